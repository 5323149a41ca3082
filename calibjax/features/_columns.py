r"""Features of covariates, whose products are kernels of columns.

A column of numbers has the features sqrt(2 a_k) cos(pi k u) of the rank u of a number, from 0 to 1,
and a column of categories has the indicator of each.  Less their weighted means, and with a common
factor, they are the vector psi_j(x) of column j, with

    K_j(x, x') = <psi_j(x), psi_j(x')>,    sum_i w_i K_j(x_i, x_i) = sum_i w_i.

A centred kernel sees what differs between rows of different x.  One that is positive everywhere is
mostly about what all rows share.  Kernels of two columns are products K_j K_k, whose features are
the products of a feature of j and one of k, less their means: of columns that depend on each other,
products have a mean too.  Coordinates of predictions are columns too.  No feature depends on
targets, on the units of a number, or on what categories are called.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._numbers import dot
from calibjax._sharding import Axis, all_of, all_sum
from calibjax._struct import static, struct
from calibjax.features._column_kernels import ColumnKernels
from calibjax.features._sums import sum_rows

# A column whose variance is smaller, in units of the precision of the dtype, is constant.
_ROUNDING = 64


@struct
class ColumnFeatures:
    """The features of all kernels of covariates.

    Args:
        means: the weighted means of the features of single columns, ``[S]``.
        scales: what these features less their means are multiplied with, ``[S]``.
        means_of_products: the weighted means of the products of these, ``[P]``.
        kernels: which kernels there are.
    """

    means: jax.Array
    scales: jax.Array
    means_of_products: jax.Array
    kernels: ColumnKernels = static()

    def coordinates(self, columns: jax.Array, rows: jax.Array) -> jax.Array:
        """All features of the rows of `columns`, ``[n, F]``."""
        alone, products = _centred(self.kernels, columns, self.means, self.scales)
        return jnp.concatenate([alone, products - self.means_of_products[None]], axis=1)


def ranked(
    values: jax.Array,
    coordinates: jax.Array,
    sizes: tuple[int, ...],
    counted: jax.Array,
    axis: Axis,
) -> jax.Array:
    """Covariates ``[n, d]`` and coordinates ``[n, c]`` with ranks for numbers, ``[n, d + c]``.

    A rank is the share of counted rows of all devices that have a smaller number, and half of the
    share of those that have the same.
    """
    values = jnp.concatenate([values.astype(coordinates.dtype), coordinates], axis=1)
    every, counts = (all_of(x, axis).reshape(-1, *x.shape[1:]) for x in (values, counted))
    ordered = jnp.sort(jnp.where(counts[:, None], every, jnp.inf), axis=0)
    n = jnp.sum(counts, dtype=jnp.int32)

    def ranks(ordered: jax.Array, x: jax.Array) -> jax.Array:
        smaller, at_most = (jnp.searchsorted(ordered, x, side=side) for side in ("left", "right"))
        both = jnp.minimum(smaller, n) + jnp.minimum(at_most, n)
        return both.astype(x.dtype) / (2 * jnp.maximum(n, 1)).astype(x.dtype)

    of_numbers = jax.vmap(ranks, 1, 1)(ordered, values)
    are_categories = np.array([*(size > 0 for size in sizes), *(False,) * coordinates.shape[1]])
    return jnp.where(are_categories[None], values, of_numbers)


def column_features(
    kernels: ColumnKernels, columns: jax.Array, weights: jax.Array, axis: Axis
) -> ColumnFeatures:
    """The features of `ranked` columns, of rows with weights."""
    block, n_products = kernels.singles().block, kernels.products().left.size
    total = all_sum(jnp.sum(weights), axis)

    def mean_of(function: Callable[[jax.Array], jax.Array], size: int) -> jax.Array:
        def summed(columns: jax.Array, weights: jax.Array) -> list[jax.Array]:
            return [dot(weights, function(columns))]

        return sum_rows(summed, columns, weights, size, axis)[0] / total

    means = mean_of(lambda columns: _values(kernels, columns), block.size)
    variances = mean_of(
        lambda columns: jnp.square(_values(kernels, columns) - means[None]), block.size
    )
    of_block = jax.ops.segment_sum(variances, block, int(block[-1]) + 1)
    is_constant = of_block <= _ROUNDING * jnp.finfo(weights.dtype).eps
    scales = jnp.where(is_constant, 0.0, jnp.where(is_constant, 1.0, of_block) ** -0.5)[block]
    of_products = mean_of(lambda columns: _centred(kernels, columns, means, scales)[1], n_products)
    return ColumnFeatures(means, scales, of_products, kernels)


def _centred(
    kernels: ColumnKernels, columns: jax.Array, means: jax.Array, scales: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Features of columns alone, and products before they are centred, ``[n, …]``."""
    singles, products = kernels.singles(), kernels.products()
    centred = (_values(kernels, columns) - means[None]) * scales[None]
    alone = centred[:, : np.sum(singles.block < len(kernels.sizes))]
    factor = jnp.asarray(products.factor, centred.dtype)[None]
    return alone, factor * centred[:, products.left] * centred[:, products.right]


def _values(kernels: ColumnKernels, columns: jax.Array) -> jax.Array:
    """The features of single columns before they are centred, ``[n, S]``."""
    singles = kernels.singles()
    frequency, category, size = (
        jnp.asarray(x, columns.dtype)[None]
        for x in (singles.frequency, singles.category, singles.size)
    )
    x = columns[:, singles.column]
    cosines = 2**0.5 * size * jnp.cos(jnp.pi * frequency * x)
    return jnp.where(category < 0, cosines, (x == category).astype(x.dtype))
