"""Resampled rows: the centred multinomial bootstrap of a U-statistic, and the wild one.

**Multinomial.**  Let c be the counts of a resample (n draws with replacement out of n rows), H the
matrix of h, and d its diagonal.  Given the data,

    T* = [n/(n-1) (c^T H c - c^T d) - 2 c^T H 1] / n^2

is compared with S = n/(n-1) SKCE_u - SKCE_b: T* + SKCE_b has asymptotically the distribution that
n/(n-1) SKCE_u has if the model is calibrated (Arcones and Giné, On the bootstrap of U and V
statistics, 1992).  The code computes T* from e = c - 1, which has mean 0, so that every term is
small where T* is small.

**Wild.**  If a model is calibrated, the mean of h_ij over one of its samples, given the other, is
0.  With independent random signs e, the variance of sum_{i != j} e_i e_j h_ij given the data is
2 sum_{i != j} h_ij^2, whose mean is the variance of sum_{i != j} h_ij over data sets; both sums
have asymptotically the same law (Leucht and Neumann, Dependent wild bootstrap for degenerate U- and
V-statistics, Journal of Multivariate Analysis 2013).  The diagonal of H plays no part.  In a
multinomial resample, which repeats rows, a large diagonal hides the sum over pairs.
"""

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax import lax

from calibjax._sharding import Axis, all_sum, axis_size, global_offset
from calibjax.operators import DiscrepancyMatrix

T = TypeVar("T")

# The number of resamples that share one pass over H.  Their counts, or signs, take one byte for
# each resample and row.
_TOGETHER = 1024
# The number of draws, or signs, that are made at a time.
_DRAWS = 2**20
# The number of draws that share one key.  Draws depend on the key and their position only, so that
# many devices make the same draws as one.
_DRAWS_PER_KEY = 128


class ResampledForms(NamedTuple):
    """Sums over H of the centred counts e of R resamples, with H = G + diag(d).

    Args:
        pairs: e^T G e, ``[R]``.
        rows: e^T G 1, ``[R]``.
        diagonal: sum_i e_i d_i, ``[R]``.
        squares: sum_i e_i^2 d_i, ``[R]``.
    """

    pairs: jax.Array
    rows: jax.Array
    diagonal: jax.Array
    squares: jax.Array


def bootstrap_draws(
    key: jax.Array, h: DiscrepancyMatrix, n_kept: jax.Array | int, n_resamples: int
) -> tuple[jax.Array, jax.Array]:
    """The draws T* ``[n_resamples]``, and the row sums of H without its diagonal ``[n]``.

    The arguments and the cost are those of `resampled_forms`.
    """
    forms, row_sums = resampled_forms(key, h, n_kept, n_resamples)
    count, total = h.count(), all_sum(jnp.sum(h.weights * row_sums), h.axis)
    # c^T H c - c^T d = c^T G c + sum_i (c_i^2 - c_i) d_i, and c_i^2 - c_i = e_i^2 + e_i.
    quadratic = forms.pairs + 2 * forms.rows + total + forms.squares + forms.diagonal
    # c^T H 1 = c^T G 1 + c^T d.
    linear = forms.rows + total + forms.diagonal + h.trace()
    return (count / (count - 1) * quadratic - 2 * linear) / jnp.square(count), row_sums


def resampled_forms(
    key: jax.Array, h: DiscrepancyMatrix, n_kept: jax.Array | int, n_resamples: int
) -> tuple[ResampledForms, jax.Array]:
    """The sums over H of each resample, and the row sums of H without its diagonal ``[n]``.

    The first `n_kept` rows of this device have weight 1, the other rows 0.  One pass over H serves
    1024 resamples, and the memory is one byte for each of these resamples and each row.
    """
    n, diagonal = h.weights.shape[0], h.diagonal

    def forms_of(numbers: jax.Array) -> tuple[ResampledForms, jax.Array]:
        excess = centred_counts(key, numbers, n, n_kept, h.axis)
        pairs, row_sums = h.quadratic_forms(excess)
        products = _products_with_columns(excess, jnp.stack([row_sums, h.weights * diagonal]))
        (rows, of_diagonal), (_, squares) = all_sum(products, h.axis)
        return ResampledForms(pairs, rows, of_diagonal, squares), row_sums

    return _in_chunks(forms_of, n_resamples)


def wild_draws(
    key: jax.Array, h: DiscrepancyMatrix, n_kept: jax.Array | int, n_resamples: int
) -> tuple[jax.Array, jax.Array]:
    """sum_{i != j} e_i e_j h_ij / (n - 1) of each resample, and the row sums of H ``[n]``.

    The arguments and the cost are those of `resampled_forms`.
    """

    def forms_of(numbers: jax.Array) -> tuple[jax.Array, jax.Array]:
        return h.quadratic_forms(_signs(key, numbers, h.weights.shape[0], n_kept, h.axis))

    forms, row_sums = _in_chunks(forms_of, n_resamples)
    return forms / (h.count() - 1), row_sums


def _in_chunks(
    forms_of: Callable[[jax.Array], tuple[T, jax.Array]], n_resamples: int
) -> tuple[T, jax.Array]:
    """``forms_of(numbers)`` of all resamples, as many at a time as share one pass over H."""
    n_chunks = -(-n_resamples // _TOGETHER)
    size = -(-n_resamples // n_chunks)

    def chunk_forms(index: jax.Array) -> tuple[T, jax.Array]:
        return forms_of(index * size + jnp.arange(size, dtype=index.dtype))

    forms, row_sums = lax.map(chunk_forms, jnp.arange(n_chunks))
    return jax.tree.map(lambda x: x.reshape(-1)[:n_resamples], forms), row_sums[0]


def centred_counts(
    key: jax.Array, numbers: jax.Array, n: int, n_kept: jax.Array | int, axis: Axis
) -> jax.Array:
    """How often each resample contains each row of this device, minus 1; ``[R, n]``, int8.

    A resample has as many draws as rows are kept on all devices.  The kept rows of this device are
    the first `n_kept` of its n rows.  Draw i of resample r depends only on (key, r, i).
    """
    first, n_all = global_offset(n_kept, axis)
    kept = jnp.arange(n, dtype=jnp.int32) < n_kept
    # Every device makes all draws, about n at a time, and counts the draws of its own rows.
    n_parts = axis_size(axis)
    n_keys = -(-n // _DRAWS_PER_KEY)

    def counts_of_resample(number):
        resample_key = jax.random.fold_in(key, number)

        def add_draws(counts, part):
            numbers = part * n_keys + jnp.arange(n_keys, dtype=jnp.int32)
            keys = jax.vmap(jax.random.fold_in, (None, 0))(resample_key, numbers)
            shape = (_DRAWS_PER_KEY,)
            drawn = jax.vmap(lambda k: jax.random.randint(k, shape, 0, n_all, jnp.int32))(keys)
            offset = jnp.arange(_DRAWS_PER_KEY, dtype=jnp.int32)
            position = numbers[:, None] * _DRAWS_PER_KEY + offset[None, :]
            row = drawn - first
            is_here = (position < n_all) & (row >= 0) & (row < n_kept)
            # A row is drawn once on average, and practically never more than 127 times.
            return counts.at[jnp.where(is_here, row, n)].add(jnp.int8(1), mode="drop"), None

        return lax.scan(add_draws, -kept.astype(jnp.int8), jnp.arange(n_parts, dtype=jnp.int32))[0]

    return _mapped(counts_of_resample, numbers, n)


def _products_with_columns(excess: jax.Array, columns: jax.Array) -> tuple[jax.Array, jax.Array]:
    """sum_i e_ri x_ki and sum_i e_ri^2 x_ki, each ``[k, R]``, a few resamples r at a time."""

    def products(e):
        e = e.astype(columns.dtype)
        return (
            jnp.dot(columns, e, precision=lax.Precision.HIGHEST),
            jnp.dot(columns, jnp.square(e), precision=lax.Precision.HIGHEST),
        )

    linear, squares = lax.map(products, excess, batch_size=max(1, _DRAWS // excess.shape[1]))
    return linear.T, squares.T


def _signs(
    key: jax.Array, numbers: jax.Array, n: int, n_kept: jax.Array | int, axis: Axis
) -> jax.Array:
    """1 or -1 for each resample and kept row of this device, else 0; ``[R, n]``, int8.

    A sign depends only on the key, the number of the resample and the number of the kept row.
    """
    first, _ = global_offset(n_kept, axis)
    kept = (jnp.arange(n, dtype=jnp.int32) < n_kept).astype(jnp.int8)

    def signs_of_resample(number):
        n_all = n * axis_size(axis)
        # A probability of Python would draw other signs when jax_enable_x64 is set.
        number_key = jax.random.fold_in(key, number)
        bits = jax.random.bernoulli(number_key, jnp.float32(0.5), (n_all + n,))
        ours = lax.dynamic_slice_in_dim(bits, first, n)
        return kept * (2 * ours.astype(jnp.int8) - 1)

    return _mapped(signs_of_resample, numbers, n)


def _mapped(function: Callable[[jax.Array], jax.Array], numbers: jax.Array, n: int) -> jax.Array:
    """``function(number)`` of each resample, some draws of n rows at a time."""
    count = numbers.shape[0]
    n_batches = -(-count // max(1, _DRAWS // n))
    size = -(-count // n_batches)
    # An incomplete last batch would be compiled as another program.
    numbers = jnp.pad(numbers, (0, n_batches * size - count), mode="edge")
    return lax.map(function, numbers, batch_size=size)[:count]
