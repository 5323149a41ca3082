r"""Multipliers of rows that depend on each other: residuals with random signs and sizes.

Targets drawn from the predictions are independent, and say nothing about targets that depend on
each other.  The observed residuals do.  If the model is calibrated, their sums S_g over clusters g,
or over times, have mean 0, and

    sum_g xi_g S_g,    E xi = 0,

has given the data the covariance that sum_g S_g has, if E xi_g xi_h is 1 for g = h, and 0 for
clusters that do not depend on each other (Leucht and Neumann, Dependent wild bootstrap for
degenerate U- and V-statistics, Journal of Multivariate Analysis 2013).

**Clusters.**  xi takes the values ± sqrt(1/2), ± 1 and ± sqrt(3/2) with equal probabilities, whose
variance is 1 (Webb, Reworking wild bootstrap-based inference for clustered errors, 2014).
Residuals of labels are far from normal, and have normal xi; with G clusters all xi of a draw are
multiplied with sqrt((G - 1) / chi^2_{G-1}), because G sums know their variance no better.

**Times.**  With times in units of the horizon, xi is the normal process with the covariance
max(0, 1 - |s - t| / L) and L = 3.  With a Brownian motion W it is

    xi_t = (W(t + L) - W(t)) / sqrt(L).

T times have some T / L windows, which know the variance as T / L clusters do: nu = T / L - 1.
Residuals are centred, by which the variance of their sums becomes smaller by the factor
1 - b + b^2 / 3 with b = L / T (Kiefer and Vogelsang, A new asymptotic theory for
heteroskedasticity-autocorrelation robust tests, 2005).  So all xi of a draw are multiplied with
sqrt(nu / chi^2_nu / (1 - b + b^2 / 3)).  Times further than L apart from the next one count as one
window.
"""

import jax
import jax.numpy as jnp

from calibjax._base.sharding import Axis, all_of
from calibjax._base.struct import PyTree, static, struct
from calibjax._data.data import Rows
from calibjax.nulls.draws import DRAWS_PER_BATCH, key_of

# L, in units of the horizon.
_WINDOW = 3.0
# Folded into the key of the multipliers for the sizes of whole draws.
_SIZES = 2**31 - 1


@struct
class ClusterMultipliers:
    """Independent multipliers of clusters.

    Args:
        key: a key of `jax.random`.
        rows: the number of the cluster of each row of this device, ``[n]``.
        freedom: G - 1.
        is_normal: whether they are normal, or Webb's.
    """

    key: jax.Array
    rows: jax.Array
    freedom: jax.Array
    is_normal: bool = static()

    def shared(self, batches: jax.Array) -> PyTree:
        """What all rows share of some batches of draws."""
        if not self.is_normal:
            return batches, None
        return batches, sizes_of_draws(self.key, batches, self.freedom, self.freedom)

    def values(self, clusters: jax.Array, shared: PyTree) -> jax.Array:
        """xi of some of the `rows`, ``[n, draws]``."""
        batches, sizes = shared

        def draw(cluster: jax.Array, batch: jax.Array) -> jax.Array:
            key = key_of(self.key, cluster, batch)
            shape = (DRAWS_PER_BATCH,)
            if self.is_normal:
                return jax.random.normal(key, shape, self.freedom.dtype)
            face = jax.random.randint(key, shape, 0, 6, jnp.int32)
            size = jnp.sqrt((face % 3 + 1).astype(self.freedom.dtype) / 2)
            return jnp.where(face < 3, size, -size)

        drawn = jax.vmap(lambda row: jax.vmap(lambda batch: draw(row, batch))(batches))(clusters)
        drawn = drawn.reshape(clusters.shape[0], -1)
        return drawn if sizes is None else drawn * sizes[None]


@struct
class TimeMultipliers:
    """Multipliers of times, which depend on each other as rows may.

    Args:
        key: a key of `jax.random`.
        rows: for each row of this device, the indices of t and t + L among all of both, ``[n, 2]``.
        steps: the roots of the distances of all different t and t + L, in their order, ``[2 T]``.
        freedom: nu.
    """

    key: jax.Array
    rows: jax.Array
    steps: jax.Array
    freedom: jax.Array

    def shared(self, batches: jax.Array) -> PyTree:
        """Brownian motions of some batches of draws, each with the size of its multipliers."""

        def step(index: jax.Array, batch: jax.Array) -> jax.Array:
            # A step depends on its index, not on how many rows there are behind it.
            return jax.random.normal(key_of(self.key, index, batch), (DRAWS_PER_BATCH,), dtype)

        dtype, indices = self.steps.dtype, jnp.arange(self.steps.size, dtype=jnp.int32)
        steps = jax.vmap(lambda index: jax.vmap(lambda batch: step(index, batch))(batches))(indices)
        paths = jnp.cumsum(self.steps[:, None] * steps.reshape(indices.size, -1), axis=0)
        b = 1 / (self.freedom + 1)
        scale = self.freedom / (1 - b + b**2 / 3)
        sizes = sizes_of_draws(self.key, batches, self.freedom, scale)
        return paths * (sizes / jnp.sqrt(_WINDOW))[None]

    def values(self, ends: jax.Array, paths: PyTree) -> jax.Array:
        """xi of some of the `rows`, ``[n, draws]``."""
        return paths[ends[:, 1]] - paths[ends[:, 0]]


#: How the rows of a draw are multiplied.
Multipliers = ClusterMultipliers | TimeMultipliers


def multipliers(
    key: jax.Array, data: Rows, is_normal: bool, n_times: int | None, axis: Axis
) -> Multipliers:
    """The multipliers of clean data with clusters or times.

    There are at most `n_times` different times, as many as rows if it is None.
    """
    kept, dtype = data.weights != 0, data.weights.dtype
    if data.times is None:
        n_clusters = _n_different(data.clusters, kept, axis)
        freedom = jnp.maximum(n_clusters - 1, 1).astype(dtype)
        return ClusterMultipliers(key, data.clusters, freedom, is_normal)
    times = data.times.astype(dtype)
    every, counts = (all_of(x, axis).ravel() for x in (times, kept))
    last = jnp.max(every, where=counts, initial=-jnp.inf)
    size = every.size if n_times is None else n_times
    every = jnp.unique(jnp.where(counts, every, last), size=size, fill_value=jnp.inf)
    # What fills up the times is behind all others.
    starts, ends = jnp.where(every <= last, every, last + _WINDOW), every + _WINDOW
    ends = jnp.minimum(ends, last + _WINDOW)
    both = jnp.sort(jnp.concatenate([starts, ends]))
    steps = jnp.sqrt(jnp.diff(both, prepend=both[:1]))
    indices = jnp.searchsorted(both, jnp.stack([times, times + _WINDOW], axis=1))
    gaps = jnp.diff(jnp.minimum(every, last))
    n_gaps = jnp.maximum(jnp.sum(gaps > 0), 1).astype(dtype)
    covered = jnp.sum(jnp.minimum(gaps, _WINDOW)) * (n_gaps + 1) / n_gaps
    freedom = jnp.maximum(covered / _WINDOW - 1, 1.0)
    return TimeMultipliers(key, indices.astype(jnp.int32), steps, freedom)


def _n_different(numbers: jax.Array, kept: jax.Array, axis: Axis) -> jax.Array:
    """How many different numbers the kept rows of all devices have."""
    numbers, kept = all_of(numbers, axis).ravel(), all_of(kept, axis).ravel()
    ordered = jnp.sort(jnp.where(kept, numbers, numbers[jnp.argmax(kept)]))
    return 1 + jnp.sum(jnp.diff(ordered) != 0, dtype=jnp.int32)


def sizes_of_draws(
    key: jax.Array, batches: jax.Array, freedom: jax.Array, scale: jax.Array
) -> jax.Array:
    """sqrt(scale / chi^2_freedom) of each draw of some batches."""

    def draw(batch: jax.Array) -> jax.Array:
        batch_key = key_of(key, jnp.int32(_SIZES), batch)
        return 2 * jax.random.gamma(batch_key, freedom / 2, (DRAWS_PER_BATCH,), freedom.dtype)

    return jnp.sqrt(scale / jax.vmap(draw)(batches).ravel())
