"""The centred multinomial bootstrap of a degenerate U-statistic.

With the counts c of a resample (n draws out of n rows), H the matrix of h and d its diagonal,

    T* = [n/(n-1) (c^T H c - c^T d) - 2 c^T H 1] / n^2

has, given the data, the distribution that S = n/(n-1) SKCE_u - SKCE_b has if the model is
calibrated (Arcones and Giné, On the bootstrap of U and V statistics, 1992).  In e = c - 1, which
is 0 on average, every term is small where T* is.
"""

import jax
import jax.numpy as jnp
from jax import lax

from calibjax._sharding import Axis, all_sum, axis_size, global_offset
from calibjax.operators import H

# How many resamples go together.  Their counts are what the test holds besides the rows, one byte
# for each resample and row; with more resamples h is evaluated again.
_TOGETHER = 1024
# How many draws are made at a time.
_DRAWS = 2**20
# How many draws of a resample have a key of their own: draws of many devices are those of one.
_OF_KEY = 128


def bootstrap_draws(
    key: jax.Array, h: H, n_kept: jax.Array | int, n_resamples: int
) -> tuple[jax.Array, jax.Array]:
    """T* ``[n_resamples]``, and the row sums of H without its diagonal ``[n]``.

    The first `n_kept` rows of this device have weight 1, the others 0.  One pass over H serves 1024
    resamples; memory is a byte for each of these and each row.
    """
    n, weights, diagonal = h.weights.shape[0], h.weights, h.diagonal()
    n_chunks = -(-n_resamples // _TOGETHER)
    size = -(-n_resamples // n_chunks)
    count, trace = h.count(), h.trace()
    ratio = count / (count - 1)

    def chunk(index):
        number = index * size + jnp.arange(size, dtype=index.dtype)
        excess = centred_counts(key, number, n, n_kept, h.axis)
        forms, row_sums = h.quadratic_forms(excess)
        linear = jnp.stack([row_sums, weights * diagonal])
        (of_rows, of_diagonal), (_, of_squares) = all_sum(_products(excess, linear), h.axis)
        total = all_sum(jnp.sum(weights * row_sums), h.axis)
        # c^T H c - c^T d, and c^T H 1.
        twice = forms + 2 * of_rows + total + of_squares + of_diagonal
        once = of_rows + total + of_diagonal + trace
        return (ratio * twice - 2 * once) / jnp.square(count), row_sums

    draws, row_sums = lax.map(chunk, jnp.arange(n_chunks))
    return draws.reshape(-1)[:n_resamples], row_sums[0]


def centred_counts(
    key: jax.Array, numbers: jax.Array, n: int, n_kept: jax.Array | int, axis: Axis
) -> jax.Array:
    """How often each row of this device comes in each resample, minus 1; ``[R, n]``, int8.

    A resample is as many draws as rows are kept on all devices; those kept on this device are the
    first `n_kept` of its n rows.  Draw i of resample r is a function of (key, r, i) alone.
    """
    first, n_all = global_offset(n_kept, axis)
    kept = jnp.arange(n, dtype=jnp.int32) < n_kept
    # Every device makes all draws, as many at a time as it has rows, and counts those of its rows.
    n_parts = axis_size(axis)
    n_keys = -(-n // _OF_KEY)

    def one(number):
        of_resample = jax.random.fold_in(key, number)

        def add(counts, part):
            numbers = part * n_keys + jnp.arange(n_keys, dtype=jnp.int32)
            keys = jax.vmap(jax.random.fold_in, (None, 0))(of_resample, numbers)
            drawn = jax.vmap(lambda key: jax.random.randint(key, (_OF_KEY,), 0, n_all, jnp.int32))(
                keys
            )
            position = numbers[:, None] * _OF_KEY + jnp.arange(_OF_KEY, dtype=jnp.int32)[None, :]
            row = drawn - first
            counts_here = (position < n_all) & (row >= 0) & (row < n_kept)
            # A row is drawn once on average; more than 127 times it never is.
            return counts.at[jnp.where(counts_here, row, n)].add(jnp.int8(1), mode="drop"), None

        return lax.scan(add, -kept.astype(jnp.int8), jnp.arange(n_parts, dtype=jnp.int32))[0]

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
