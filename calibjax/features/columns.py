"""Features of covariates, whose products are kernels of columns.

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

import functools
import itertools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._base.sharding import Axis, all_of, all_sum
from calibjax._base.struct import static, struct
from calibjax._numbers.arithmetic import ROUNDINGS_OF_TERMS, dot
from calibjax.features.weighted_sums import sum_rows

# Features of a column alone, and in products, in which a_k = 1 / k and 1 / k^2.
_COSINES, _FEW_COSINES = 4, 2
_DECAY, _FAST_DECAY = 1.0, 2.0
# Features of categories in products.
_FEW_CATEGORIES = 8


class Singles(NamedTuple):
    """Features of one column each, ``[S]``.

    Args:
        column: which column each is of.
        block: a column alone and a column in products are blocks, which have one scale each.
        frequency: k.
        category: the category that a feature indicates, and -1 if it is a cosine.
        size: the root of a_k.
    """

    column: np.ndarray
    block: np.ndarray
    frequency: np.ndarray
    category: np.ndarray
    size: np.ndarray


class Products(NamedTuple):
    """Features that are products of two: factor times single `left` times single `right`, ``[P]``.

    Args:
        left, right: two features of one column.
        factor: the root of the factor of the kernel.
        owner: the number of the kernel among those of pairs, and of predictions and a column.
    """

    left: np.ndarray
    right: np.ndarray
    factor: np.ndarray
    owner: np.ndarray


class ColumnKernels(NamedTuple):
    """The kernels of d covariates and of some coordinates of the predictions.

    There is one of each column, of each pair of columns, and of the predictions and each column.
    Behind each of these three kinds, if it has several, stands their mean.

    Args:
        sizes: the number of categories of each covariate, and 0 for numbers.
        n_coordinates: the number of coordinates of the predictions.
    """

    sizes: tuple[int, ...]
    n_coordinates: int

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """The pairs of covariates."""
        return list(itertools.combinations(range(len(self.sizes)), 2))

    @property
    def counts(self) -> tuple[int, int, int]:
        """How many kernels there are of columns, of pairs, and of predictions and a column."""
        return len(self.sizes), len(self.pairs), len(self.sizes)

    @property
    def n_kernels(self) -> int:
        """The number T of all kernels, the means of the kinds among them."""
        return sum(n + (n > 1) for n in self.counts)

    @property
    def families(self) -> tuple[int, ...]:
        """1 for kernels of columns, 2 of pairs, and 3 of predictions and a column, ``T``."""
        kinds = enumerate(self.counts, start=1)
        return tuple(kind for kind, n in kinds for _ in range(n + (n > 1)))

    def singles(self) -> Singles:
        """The features of single columns: covariates alone, and in products, and coordinates."""
        alone = [_of_column(size, _COSINES, size, _DECAY) for size in self.sizes]
        few = [
            _of_column(size, _FEW_COSINES, min(size, _FEW_CATEGORIES), _FAST_DECAY)
            for size in (*self.sizes, *(0,) * self.n_coordinates)
        ]
        d, parts = len(self.sizes), [*alone, *few]
        counts = [len(part) for part in parts]
        columns = [*range(d), *range(len(few))]
        frequency, category, size = np.concatenate(parts).T
        return Singles(
            column=np.repeat(np.array(columns, np.int32), counts),
            block=np.repeat(np.arange(len(parts), dtype=np.int32), counts),
            frequency=frequency,
            category=category,
            size=size,
        )

    def of_features(self, squares: jax.Array) -> jax.Array:
        """The forms of all kernels ``[T, …]`` from those of their features ``[S' + P, …]``."""
        block, d = self.singles().block, len(self.sizes)
        owners = np.concatenate([block[block < d], d + _products(self).owner])
        forms = jax.ops.segment_sum(squares, owners, sum(self.counts), indices_are_sorted=True)
        kinds = jnp.split(forms, np.cumsum(self.counts)[:-1])
        parts = [(x, jnp.mean(x, axis=0, keepdims=True)) if x.shape[0] > 1 else (x,) for x in kinds]
        return jnp.concatenate(list(itertools.chain(*parts)))


def _of_column(size: int, n_cosines: int, n_categories: int, decay: float) -> np.ndarray:
    """(frequency, category, size) of each feature of a column."""
    if size:
        return np.array([(0.0, c, 1.0) for c in range(n_categories)])
    return np.array([(k, -1.0, k ** (-decay / 2)) for k in range(1, n_cosines + 1)])


@functools.cache
def _products(kernels: ColumnKernels) -> Products:
    """The features of pairs, and of the predictions and a column."""
    block, d, c = kernels.singles().block, len(kernels.sizes), kernels.n_coordinates
    # Blocks d, …, 2 d - 1 are of covariates in products, and those behind them of coordinates.
    of_block = [np.flatnonzero(block == k).astype(np.int32) for k in range(d, 2 * d + c)]
    pairs = [(i, (j, k), 1.0) for i, (j, k) in enumerate(kernels.pairs)]
    with_predictions = [(len(pairs) + j, (j, d + k), c**-0.5) for j in range(d) for k in range(c)]
    left, right, factor, owner = [], [], [], []
    for kernel, (j, k), size in pairs + with_predictions:
        a, b = np.meshgrid(of_block[j], of_block[k], indexing="ij")
        left.append(a.ravel())
        right.append(b.ravel())
        factor.append(np.full(a.size, size))
        owner.append(np.full(a.size, kernel, np.int32))
    return Products(*map(np.concatenate, (left, right, factor, owner)))


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

    @property
    def n_weights(self) -> int:
        """F."""
        is_alone = self.kernels.singles().block < len(self.kernels.sizes)
        return int(np.sum(is_alone)) + self.means_of_products.size

    def weighted(self, weights: jax.Array, columns: jax.Array) -> jax.Array:
        """All features of the rows of `columns` times their weights, ``[n, F]``."""
        alone, products = _centred(self.kernels, columns, self.means, self.scales)
        features = jnp.concatenate([alone, products - self.means_of_products[None]], axis=1)
        return weights[:, None] * features


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
    block, n_products = kernels.singles().block, _products(kernels).left.size
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
    is_constant = of_block <= ROUNDINGS_OF_TERMS * jnp.finfo(weights.dtype).eps
    scales = jnp.where(is_constant, 0.0, jnp.where(is_constant, 1.0, of_block) ** -0.5)[block]
    of_products = mean_of(lambda columns: _centred(kernels, columns, means, scales)[1], n_products)
    return ColumnFeatures(means, scales, of_products, kernels)


def _centred(
    kernels: ColumnKernels, columns: jax.Array, means: jax.Array, scales: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Features of columns alone, and products before they are centred, ``[n, …]``."""
    singles, products = kernels.singles(), _products(kernels)
    centred = (_values(kernels, columns) - means[None]) * scales[None]
    alone = centred[:, : np.sum(singles.block < len(kernels.sizes))]
    factor = jnp.asarray(products.factor, centred.dtype)[None]
    return alone, factor * centred[:, products.left] * centred[:, products.right]


def _values(kernels: ColumnKernels, columns: jax.Array) -> jax.Array:
    """The features of single columns before they are centred, ``[n, S]``."""
    column, _, *numbers = kernels.singles()
    frequency, category, size = (jnp.asarray(x, columns.dtype)[None] for x in numbers)
    x = columns[:, column]
    cosines = 2**0.5 * size * jnp.cos(jnp.pi * frequency * x)
    return jnp.where(category < 0, cosines, (x == category).astype(x.dtype))
