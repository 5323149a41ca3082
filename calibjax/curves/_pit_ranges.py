"""The PIT curve of targets of which an interval is known."""

import jax
import jax.numpy as jnp

from calibjax._rows import Data
from calibjax._struct import widest_dtype
from calibjax.curves._pit_masses import Parts, masses_of_parts
from calibjax.curves._pit_result import PITCurve, cells_per_bin
from calibjax.curves._rows import on_all_rows
from calibjax.estimators import UniformBinning
from calibjax.hypothesis_tests import Law


@on_all_rows
def pit_curve_of_ranges(
    key: jax.Array,
    data: Data,
    *,
    n_bins: int,
    confidence_level: jax.Array,
    n_resamples: int,
    law: Law,
) -> PITCurve:
    """`pit_curve` of checked `Between` targets, and of rows with weights or in clusters."""
    n_cells = n_bins * cells_per_bin(n_bins)
    dtype = widest_dtype(*jax.tree.leaves(data))
    grid, edges = (UniformBinning(k).edges(dtype) for k in (n_cells, n_bins))
    places = jnp.arange(n_cells + 1, dtype=jnp.int32)
    ends = places[:: n_cells // n_bins]
    parts = Parts(
        jnp.concatenate([ends[:-1], jnp.zeros_like(places)]), jnp.concatenate([ends[1:], places])
    )
    masses = masses_of_parts(key, data, grid, parts, n_resamples, law)
    bins, below = masses[:n_bins], masses[n_bins:]
    n = masses.total
    valid = jnp.where(jnp.any(jnp.isnan(bins.observed)), jnp.nan, 1.0).astype(dtype)
    share = 1 / n_bins + bins.observed / n
    alone, together = (n_bins / n * x(confidence_level) for x in (bins.alone, bins.together))
    largest = below.together(confidence_level) / n
    return PITCurve(
        edges=edges,
        count=bins.n_rows * share,
        density=n_bins * share,
        pointwise_low=jnp.maximum(1 - alone, 0.0) * valid,
        pointwise_high=(1 + alone) * valid,
        density_low=jnp.maximum(1 - together, 0.0) * valid,
        density_high=(1 + together) * valid,
        grid=grid,
        difference=below.observed / n,
        difference_low=-largest * valid,
        difference_high=largest * valid,
        confidence_level=confidence_level.astype(dtype) * valid,
    )
