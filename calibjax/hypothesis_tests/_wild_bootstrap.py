"""The wild bootstrap of a degenerate U-statistic.

If a model is calibrated, the mean of h_ij over one of its samples, given the other, is 0.  With
independent random signs e, the variance of sum_{i != j} e_i e_j h_ij given the data is
2 sum_{i != j} h_ij^2, whose mean is the variance of sum_{i != j} h_ij over data sets; both sums
have asymptotically the same law (Leucht and Neumann, Dependent wild bootstrap for degenerate U- and
V-statistics, Journal of Multivariate Analysis 2013).  The diagonal of H plays no part.  In a
multinomial resample, which repeats rows, a large diagonal hides the sum over pairs.
"""

import jax
import jax.numpy as jnp
from jax import lax

from calibjax._sharding import Axis, axis_size, global_offset
from calibjax.operators import DiscrepancyMatrix

# The number of resamples that share one pass over H, one byte for each row and resample.
_TOGETHER = 1024
# The number of signs that are made at a time.
_SIGNS = 2**20


def wild_draws(
    key: jax.Array, h: DiscrepancyMatrix, n_kept: jax.Array | int, n_resamples: int
) -> tuple[jax.Array, jax.Array]:
    """sum_{i != j} e_i e_j h_ij / (n - 1) of each resample, and the row sums of H ``[n]``.

    The first `n_kept` rows of this device have weight 1, the other rows 0.
    """
    n_chunks = -(-n_resamples // _TOGETHER)
    size = -(-n_resamples // n_chunks)

    def draws_of_chunk(index):
        numbers = index * size + jnp.arange(size, dtype=index.dtype)
        return h.quadratic_forms(_signs(key, numbers, h.weights.shape[0], n_kept, h.axis))

    forms, row_sums = lax.map(draws_of_chunk, jnp.arange(n_chunks))
    return forms.reshape(-1)[:n_resamples] / (h.count() - 1), row_sums[0]


def _signs(
    key: jax.Array, numbers: jax.Array, n: int, n_kept: jax.Array | int, axis: Axis
) -> jax.Array:
    """1 or -1 for each resample and kept row of this device, else 0; ``[R, n]``, int8.

    A sign depends only on the key, the number of the resample and the number of the kept row.
    """
    first, _ = global_offset(n_kept, axis)
    kept = (jnp.arange(n, dtype=jnp.int32) < n_kept).astype(jnp.int8)

    def of_resample(number):
        n_all = n * axis_size(axis)
        bits = jax.random.bernoulli(jax.random.fold_in(key, number), shape=(n_all + n,))
        ours = lax.dynamic_slice_in_dim(bits, first, n)
        return kept * (2 * ours.astype(jnp.int8) - 1)

    return lax.map(of_resample, numbers, batch_size=max(1, _SIGNS // n))
