"""The sums of residuals in bins, of rows with weights or rows that depend on each other.

With the residuals r_i = y_i - p_i and weights w_i, M = sum_i w_i r_i of a bin has the mean 0 and,
if rows are independent, the variance sum_i w_i^2 p_i (1 - p_i).  Data sets under H0 have redrawn
targets, or, in clusters and over times, the residuals xi_i r_i + lambda s_i of `multiplied`.
"""

import jax
import jax.numpy as jnp
from jax import lax

from calibjax._rows import Data, clean
from calibjax._struct import PyTree
from calibjax.curves._masses import Masses
from calibjax.hypothesis_tests import Law, lacking
from calibjax.resampling import (
    DRAWS_PER_GROUP,
    Multipliers,
    draw_groups,
    multipliers,
    row_numbers,
    sum_over_rows,
)


def masses_of_bins(
    key: jax.Array, data: Data, bins: jax.Array, n_bins: int, n_resamples: int, law: Law
) -> Masses:
    """The sums of residuals of binary predictions in the bin ``[n]`` of each row.

    Rows of the bin `n_bins` do not count.
    """
    draw_key, multiplier_key = jax.random.split(key)
    data = clean(data).replace(targets=data.targets.astype(jnp.int32))
    weights, probs = data.weights, data.predictions.binary_probability()
    dtype, numbers = weights.dtype, row_numbers(weights)
    xi: Multipliers | None = None
    units = numbers
    if law.kind != "redrawn":
        xi = multipliers(multiplier_key, data, law.kind == "normal", law.n_times, axis=None)
        units = xi.rows

    def in_bins(x: jax.Array, bins: jax.Array) -> jax.Array:
        return jax.ops.segment_sum(x, bins, n_bins).T

    residuals = data.targets.astype(dtype) - probs
    terms = weights[:, None] * jnp.stack([residuals, jnp.ones_like(probs)], axis=1)
    squares = jnp.square(weights)[:, None] * jnp.stack(
        [jnp.square(residuals), probs * (1 - probs), jnp.ones_like(probs)], axis=1
    )
    observed, size = in_bins(terms, bins)
    of_observed, variance, of_ones = in_bins(squares, bins)
    count = in_bins((weights != 0).astype(dtype), bins)
    least = of_ones / jnp.maximum(count, 1)
    deviation = jnp.where(count > 0, jnp.sqrt(jnp.maximum(variance, least)), 0.0)
    missing = lacking(of_observed, variance)

    def sums_of_group(group: jax.Array) -> jax.Array:
        """M of some data sets under H0, ``[draws, b]``."""
        shared = None if xi is None else xi.shared(group[None])

        def sums_over(chunk: PyTree) -> tuple[jax.Array, ...]:
            (predictions, residuals, bins, numbers, units), weights = chunk
            drawn = draw_groups(draw_key, predictions, numbers, group[None]).astype(dtype)
            gaps = drawn - predictions.binary_probability()[:, None]
            redrawn = in_bins(weights[:, None] * gaps, bins)
            if xi is None:
                return (redrawn,)
            factors = xi.values(units, shared) * weights[:, None]
            sums = in_bins(factors * residuals[:, None], bins)
            return redrawn, sums, jnp.sum(factors, axis=0)

        rows = data.predictions, residuals, bins, numbers, units
        redrawn, *multiplied = sum_over_rows(sums_over, rows, weights, 8 * DRAWS_PER_GROUP)
        if xi is None:
            return redrawn
        sums, factors = multiplied
        if data.times is not None:
            sums = sums - (factors / jnp.sum(weights))[:, None] * observed[None]
        return sums + missing[None] * redrawn

    groups = jnp.arange(-(-n_resamples // DRAWS_PER_GROUP), dtype=jnp.int32)
    sums = lax.map(sums_of_group, groups).reshape(-1, n_bins)[:n_resamples]
    distances = jnp.abs(sums) / jnp.where(deviation > 0, deviation, 1.0)[None]
    return Masses(observed, deviation, distances, size, count)
