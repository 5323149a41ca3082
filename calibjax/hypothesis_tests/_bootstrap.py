"""The centred multinomial bootstrap of a degenerate U-statistic.

Let c be the counts of a resample (n draws with replacement out of n rows), H the matrix of h, and d
its diagonal.  Given the data,

    T* = [n/(n-1) (c^T H c - c^T d) - 2 c^T H 1] / n^2

has asymptotically the distribution that S = n/(n-1) SKCE_u - SKCE_b has if the model is calibrated
(Arcones and Giné, On the bootstrap of U and V statistics, 1992).  The code computes T* from
e = c - 1, which has mean 0, so that every term is small where T* is small.
"""

import jax
import jax.numpy as jnp
from jax import lax

from calibjax._sharding import Axis, all_sum, axis_size, global_offset
from calibjax.operators import H

# The number of resamples that share one pass over H.  Their counts take one byte for each resample
# and row.
_TOGETHER = 1024
# The number of draws that are made at a time.
_DRAWS = 2**20
# The number of draws that share one key.  Draws depend on the key and their position only, so that
# many devices make the same draws as one.
_DRAWS_PER_KEY = 128


def bootstrap_draws(
    key: jax.Array, h: H, n_kept: jax.Array | int, n_resamples: int
) -> tuple[jax.Array, jax.Array]:
    """The draws T* ``[n_resamples]``, and the row sums of H without its diagonal ``[n]``.

    The first `n_kept` rows of this device have weight 1, the other rows 0.  One pass over H serves
    1024 resamples, and the memory is one byte for each of these resamples and each row.
    """
    n, weights, diagonal = h.weights.shape[0], h.weights, h.diagonal()
    n_chunks = -(-n_resamples // _TOGETHER)
    size = -(-n_resamples // n_chunks)
    count, trace = h.count(), h.trace()
    ratio = count / (count - 1)

    def draws_of_chunk(index):
        number = index * size + jnp.arange(size, dtype=index.dtype)
        excess = centred_counts(key, number, n, n_kept, h.axis)
        forms, row_sums = h.quadratic_forms(excess)
        linear = jnp.stack([row_sums, weights * diagonal])
        products, square_products = _products_with_columns(excess, linear)
        products, square_products = all_sum((products, square_products), h.axis)
        (e_rows, e_diagonal), (_, e_squared_diagonal) = products, square_products
        total = all_sum(jnp.sum(weights * row_sums), h.axis)
        # With H = G + diag(d), where G has the diagonal 0, and c = 1 + e:
        # c^T H c - c^T d = c^T G c + sum_i (c_i^2 - c_i) d_i, and c_i^2 - c_i = e_i^2 + e_i.
        quadratic = forms + 2 * e_rows + total + e_squared_diagonal + e_diagonal
        # c^T H 1 = c^T G 1 + c^T d.
        linear_form = e_rows + total + e_diagonal + trace
        return (ratio * quadratic - 2 * linear_form) / jnp.square(count), row_sums

    draws, row_sums = lax.map(draws_of_chunk, jnp.arange(n_chunks))
    return draws.reshape(-1)[:n_resamples], row_sums[0]


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

    return lax.map(counts_of_resample, numbers, batch_size=max(1, _DRAWS // n))


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
