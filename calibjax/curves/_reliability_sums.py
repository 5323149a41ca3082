"""The sums of residuals in bins, of rows with weights or rows that depend on each other.

With the residuals r_i = y_i - p_i and weights w_i, M = sum_i w_i r_i of a bin has the mean 0 and,
if rows are independent, the variance sum_i w_i^2 p_i (1 - p_i).
"""

import jax
import jax.numpy as jnp

from calibjax._rows import Data, clean
from calibjax.curves._masses import Masses
from calibjax.resampling import (
    DRAWS_PER_GROUP,
    NullSampler,
    SampledRows,
    in_passes,
    lacking,
    row_numbers,
)


def masses_of_bins(
    key: jax.Array,
    data: Data,
    bins: jax.Array,
    n_bins: int,
    n_resamples: int,
    sampler: NullSampler,
) -> Masses:
    """The sums of residuals of binary predictions in the bin ``[n]`` of each row.

    Rows of the bin `n_bins` do not count.
    """
    draw_key, multiplier_key = jax.random.split(key)
    data = clean(data)
    data = data.replace(targets=data.targets.astype(jnp.int32))
    weights, probs = data.weights, data.predictions.binary_probability()
    sets = sampler.data_sets(draw_key, multiplier_key, data, row_numbers(weights))

    def in_bins(bins: jax.Array, x: jax.Array) -> jax.Array:
        return jax.ops.segment_sum(x, bins, n_bins)

    def residuals(rows: SampledRows, groups: jax.Array) -> jax.Array:
        probs = rows.predictions.binary_probability()
        return (sets.targets(rows, groups).astype(probs.dtype) - probs[:, None])[..., None]

    squared, w = jnp.square(data.targets - probs), jnp.square(weights)
    kept = (weights != 0).astype(weights.dtype)
    columns = jnp.stack([weights, kept, w, w * squared, w * probs * (1 - probs)], axis=1)
    size, count, of_ones, of_observed, variance = in_bins(bins, columns).T
    least = of_ones / jnp.maximum(count, 1)
    deviation = jnp.where(count > 0, jnp.sqrt(jnp.maximum(variance, least)), 0.0)
    missing = lacking(of_observed, variance)[:, None, None]

    def of_groups(groups: jax.Array) -> tuple[jax.Array, jax.Array]:
        """M of some data sets under H0, ``[draws, b]``, and of the observed targets, ``[b]``."""
        found = sets.sums(residuals, in_bins, bins, weights, groups, DRAWS_PER_GROUP)
        if found.factors is not None:  # All bins share the mean over times.
            found = found._replace(factors=jnp.sum(found.factors, axis=0, keepdims=True))
        return found.under_h0(missing, jnp.sum(weights))[..., 0].T, found.observed[:, 0, 0]

    sums, observed = in_passes(of_groups, n_resamples)
    distances = jnp.abs(sums) / jnp.where(deviation > 0, deviation, 1.0)[None]
    return Masses(observed, deviation, distances, size, count)
