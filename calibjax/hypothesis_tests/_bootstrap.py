"""The centred multinomial bootstrap of a degenerate U-statistic.

With the counts c of a resample (n draws out of n rows), H the matrix of h and d its diagonal,

    T* = [n/(n-1) (c^T H c - c^T d) - 2 c^T H 1] / n^2

has, given the data, the distribution that S = n/(n-1) SKCE_u - SKCE_b has if the model is
calibrated (Arcones and Giné, On the bootstrap of U and V statistics, 1992).  In e = c - 1, which
is 0 on average, every term is small where T* is.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from calibjax._pairwise import pad, quadratic_forms, tile_sizes
from calibjax.discrepancy import h_tile

# How many resamples go together.  Their counts are what the test holds besides the rows, one byte
# for each resample and row; with more resamples h is evaluated again.
_TOGETHER = 1024
# How many draws are made at a time.
_DRAWS = 2**20


def bootstrap(
    key: jax.Array,
    kernel: Any,
    samples: Any,
    weights: jax.Array,
    diagonal: jax.Array,
    n_kept: Any,
    n_resamples: int,
) -> tuple[jax.Array, jax.Array]:
    """T* ``[n_resamples]``, and the row sums of H without its diagonal ``[n]``.

    Args:
        weights: 1 for the first `n_kept` rows, 0 for those after them.
        diagonal: that of H, ``[n]``.

    O(n^2 n_resamples) time; memory O(n min(n_resamples, 1024)) bytes.
    """
    n, dtype = weights.shape[0], weights.dtype
    # Rows in full tiles, since the counts would be copied to pad them.
    samples, weights = pad((samples, weights), math.prod(tile_sizes(n)))
    diagonal = jnp.pad(diagonal, (0, weights.shape[0] - n))
    n_chunks = -(-n_resamples // _TOGETHER)
    size = -(-n_resamples // n_chunks)
    count = jnp.asarray(n_kept, dtype)
    ratio = count / (count - 1)

    def chunk(index):
        number = index * size + jnp.arange(size, dtype=index.dtype)
        excess = centred_counts(key, number, weights.shape[0], n_kept)
        forms, row_sums = quadratic_forms(h_tile, kernel, samples, weights, excess)
        linear = jnp.stack([row_sums, diagonal])
        (of_rows, of_diagonal), (_, of_squares) = _products(excess, linear)
        total, trace = jnp.sum(weights * row_sums), jnp.sum(diagonal)
        # c^T H c - c^T d, and c^T H 1.
        twice = forms + 2 * of_rows + total + of_squares + of_diagonal
        once = of_rows + total + of_diagonal + trace
        return (ratio * twice - 2 * once) / jnp.square(count), row_sums

    draws, row_sums = lax.map(chunk, jnp.arange(n_chunks))
    return draws.reshape(-1)[:n_resamples], row_sums[0, :n]


def centred_counts(key: jax.Array, numbers: jax.Array, n: int, n_kept: Any) -> jax.Array:
    """How often each row comes in each resample, minus 1; ``[R, n]``, int8.

    Resample r, of `n_kept` draws out of the first `n_kept` rows, is a function of (key, r) alone.
    """
    row = jnp.arange(n)
    kept = row < n_kept

    def one(number):
        drawn = jax.random.randint(jax.random.fold_in(key, number), (n,), 0, n_kept, jnp.int32)
        # A row is drawn once on average; more than 127 times it never is.
        return (-kept.astype(jnp.int8)).at[drawn].add(kept.astype(jnp.int8))

    return lax.map(one, numbers, batch_size=max(1, _DRAWS // n))


def _products(excess: jax.Array, columns: jax.Array) -> tuple[jax.Array, jax.Array]:
    """sum_i e_ri x_ki and sum_i e_ri^2 x_ki, each ``[k, R]``, a few resamples at a time."""

    def one(e):
        e = e.astype(columns.dtype)
        return (
            jnp.dot(columns, e, precision=lax.Precision.HIGHEST),
            jnp.dot(columns, jnp.square(e), precision=lax.Precision.HIGHEST),
        )

    linear, squares = lax.map(one, excess, batch_size=max(1, _DRAWS // excess.shape[1]))
    return linear.T, squares.T
