r"""Turns of sums over clusters or over times: data sets under H0 of dependent rows.

Targets drawn from the predictions are independent, and say nothing about targets that depend on
each other.  The observed residuals do.  If the model is calibrated, the sums of residuals over
units have the mean 0, and what turns them leaves their distribution as it is.

**Clusters.**  The sums S_g over clusters are independent of each other.  With random signs xi_g,
sum_g xi_g S_g has the distribution of sum_g S_g if all S_g are symmetric (Canay, Romano and Shaikh,
Randomization tests under an approximate symmetry assumption, Econometrica 2017).

**Times.**  With times in units of the horizon, let S_t be the sums over the T different times t,
and let Gamma_st = max(0, 1 - |s - t|) be the correlation of forecasts whose horizons overlap.  With
the number N of stretches of a horizon, let K = floor(N), less than T, and take the cosines

    b_0 = 1,    b_k = cos(pi k x_t),    x_t = (rank of t - 1/2) / T,    k = 1, …, K.

With A = b' Gamma b = L L' and B = sqrt(A_00) b L^-T, the K + 1 sums C = B' S are uncorrelated and
have one variance.  B_t0 is 1, so that C_0 is the sum of all rows.  If sums over stretches are
nearly normal, v' C has the distribution of C_0 for every vector v of length 1 (Langsrud, Rotation
tests, Statistics and Computing 2005; Müller, A theory of robust long-run variance estimation,
Journal of Econometrics 2007).  So a random direction v gives the multipliers xi_t = (B v)_t.

As Gamma_st is the length that both windows (s - 1, s] and (t - 1, t] share,

    A = int W(u) W(u)' du,    W(u) = sum of b_t over the times t in [u, u + 1),

and W changes only where a time enters or leaves the window.

**Errors of estimates** are differences from a mean that the data have.  Centred turns of them leave
G - 1 clusters, or the K sums C_1, …, C_K, which know their variance as in a test of Student.  All
signs of a draw are therefore multiplied with sqrt(nu / chi^2_nu), nu = G - 1, and a direction with
sqrt(chi^2_{K+1} / chi^2_K): the one makes its coordinates normal, and the other those of Student.

Signs and directions have a key of their own: the p-value of dependent rows is the same for every
key.  A direction is one of few numbers, and two keys would disagree where there are few units.
"""

import jax
import jax.numpy as jnp
from jax import lax

from calibjax._base.sharding import Axis, all_of
from calibjax._base.struct import PyTree, struct
from calibjax._data.data import Rows
from calibjax._numbers.arithmetic import dot
from calibjax.nulls.draws import DRAWS_PER_BATCH, key_of

#: With fewer clusters, or stretches of a horizon, p-values cannot be small, or have no power.
LEAST_CLUSTERS, LEAST_STRETCHES = 6, 4
#: Twelve steps of 1 / 3 are four stretches in spite of rounding.
ROUNDING_OF_STRETCHES = 1e-3
# The largest K: with more sums nothing is gained.
_MOST_COSINES = 63
# No user is likely to choose this seed.
_SEED = 0x7A5E
# Folded into a key for the sizes of whole draws.
_SIZES = 2**31 - 1


@struct
class ClusterTurns:
    """Random signs of clusters.

    Args:
        rows: the number of the cluster of each row of this device, ``[n]``.
        n_units: the number of clusters.
    """

    rows: jax.Array
    n_units: jax.Array

    def shared(self, batches: jax.Array) -> PyTree:
        """What all rows share of some batches of draws."""
        return batches

    def values(self, clusters: jax.Array, batches: PyTree) -> jax.Array:
        """xi of some of the `rows`, ``[n, draws]``; NaN with too few clusters."""

        def draw(cluster: jax.Array, batch: jax.Array) -> jax.Array:
            key = key_of(jax.random.key(_SEED), cluster, batch)
            return jax.random.rademacher(key, (DRAWS_PER_BATCH,), self.n_units.dtype)

        drawn = jax.vmap(lambda row: jax.vmap(lambda batch: draw(row, batch))(batches))(clusters)
        unit = jnp.where(self.n_units >= LEAST_CLUSTERS, 1.0, jnp.nan)
        return unit * drawn.reshape(clusters.shape[0], -1)


@struct
class TimeTurns:
    """Random directions of sums over times.

    Args:
        rows: the index of the time of each row of this device among all times, ``[n]``.
        n_units: the number of stretches, N.
        n_cosines: K, less than the number of times.
        factors: B, ``[T, 64]``, of which K + 1 columns are not 0.
    """

    rows: jax.Array
    n_units: jax.Array
    n_cosines: jax.Array
    factors: jax.Array

    def shared(self, batches: jax.Array) -> PyTree:
        """xi of all times ``[T, draws]`` of some batches; NaN with too few stretches."""
        size = self.factors.shape[1]

        def draw(k: jax.Array, batch: jax.Array) -> jax.Array:
            key = key_of(jax.random.key(_SEED), k, batch)
            return jax.random.normal(key, (DRAWS_PER_BATCH,), self.factors.dtype)

        numbers = jnp.arange(size, dtype=jnp.int32)
        v = jax.vmap(lambda k: jax.vmap(lambda batch: draw(k, batch))(batches))(numbers)
        is_used = numbers.astype(v.dtype) <= self.n_cosines
        v = jnp.where(is_used[:, None], v.reshape(size, -1), 0.0)
        are_enough = self.n_units >= LEAST_STRETCHES - ROUNDING_OF_STRETCHES
        length = jnp.linalg.norm(v, axis=0, keepdims=True)
        length = jnp.where(are_enough, length, jnp.nan)
        return dot(self.factors, v / length)

    def sizes(self, key: jax.Array, batches: jax.Array) -> jax.Array:
        """What makes each direction of some batches one of Student, ``[draws]``."""
        k = jnp.maximum(self.n_cosines, 1.0)
        of_normal, of_student = jax.random.split(key)
        squares = _chi_squared(of_normal, batches, k + 1)
        return sizes_of_draws(of_student, batches, k, squares)

    def values(self, times: jax.Array, of_times: PyTree) -> jax.Array:
        """xi of some of the `rows`, ``[n, draws]``."""
        return of_times[times]


def sizes_of_draws(
    key: jax.Array, batches: jax.Array, freedom: jax.Array, scale: jax.Array
) -> jax.Array:
    """sqrt(scale / chi^2_freedom) of each draw of some batches."""
    return jnp.sqrt(scale / _chi_squared(key, batches, freedom))


def _chi_squared(key: jax.Array, batches: jax.Array, freedom: jax.Array) -> jax.Array:
    def draw(batch: jax.Array) -> jax.Array:
        batch_key = key_of(key, jnp.int32(_SIZES), batch)
        return 2 * jax.random.gamma(batch_key, freedom / 2, (DRAWS_PER_BATCH,), freedom.dtype)

    return jax.vmap(draw)(batches).ravel()


#: How the rows of a draw are multiplied.
Turns = ClusterTurns | TimeTurns


def turns(data: Rows, n_times: int | None, axis: Axis) -> Turns:
    """The turns of clean data with clusters or times.

    There are at most `n_times` different times, as many as rows if it is None.
    """
    kept, dtype = data.weights != 0, data.weights.dtype
    if data.times is None:
        return ClusterTurns(data.clusters, _n_different(data.clusters, kept, axis).astype(dtype))
    times = data.times.astype(dtype)
    every, counts = (all_of(x, axis).ravel() for x in (times, kept))
    last = jnp.max(every, where=counts, initial=-jnp.inf)
    size = every.size if n_times is None else n_times
    # What fills up the times is behind all others.
    every = jnp.unique(jnp.where(counts, every, last), size=size, fill_value=jnp.inf)
    is_time = every <= last
    n_all, starts = jnp.sum(is_time).astype(dtype), jnp.where(is_time, every, last)
    gaps = jnp.diff(starts)
    n_stretches = jnp.sum(jnp.minimum(gaps, 1.0)) * n_all / jnp.maximum(n_all - 1, 1)
    # With K = T all values of the last cosine are 0.
    n_cosines = jnp.minimum(jnp.floor(n_stretches + ROUNDING_OF_STRETCHES), n_all - 1)
    n_cosines = jnp.minimum(n_cosines, _MOST_COSINES)
    k = jnp.arange(_MOST_COSINES + 1, dtype=dtype)
    x = (jnp.arange(size, dtype=dtype) + 0.5) / n_all
    counts_as = is_time[:, None] & (k <= n_cosines)[None]
    cosines = jnp.where(counts_as, jnp.cos(jnp.pi * k[None] * x[:, None]), 0.0)
    factors = _uncorrelated(cosines, starts, k > n_cosines)
    rows = jnp.searchsorted(every, times).astype(jnp.int32)
    return TimeTurns(rows, n_stretches, n_cosines, factors)


def _uncorrelated(cosines: jax.Array, times: jax.Array, fills: jax.Array) -> jax.Array:
    """B of cosines ``[T, K + 1]`` over sorted times ``[T]``; columns that `fills` remain 0."""
    below = jnp.pad(jnp.cumsum(cosines, axis=0), ((1, 0), (0, 0)))
    # A window [u, u + 1) changes where a time leaves it, behind u = t, or enters it, at u = t - 1.
    changes = jnp.sort(jnp.concatenate([times - 1, times]))
    middle = (changes[1:] + changes[:-1]) / 2
    first, end = (jnp.searchsorted(times, middle + x) for x in (0.0, 1.0))
    windows = jnp.sqrt(jnp.diff(changes))[:, None] * (below[end] - below[first])
    a = dot(windows.T, windows)
    # A column that fills up has a one; a share of a millionth hides what rounding makes negative.
    share = jnp.where(fills, 1.0, 1e-6 * jnp.diagonal(a))
    root = jnp.linalg.cholesky(a + jnp.diag(share))
    solved = lax.linalg.triangular_solve(root, cosines, lower=True, transpose_a=True)
    return jnp.sqrt(a[0, 0]) * solved


def _n_different(numbers: jax.Array, kept: jax.Array, axis: Axis) -> jax.Array:
    """How many different numbers the kept rows of all devices have."""
    numbers, kept = all_of(numbers, axis).ravel(), all_of(kept, axis).ravel()
    ordered = jnp.sort(jnp.where(kept, numbers, numbers[jnp.argmax(kept)]))
    return 1 + jnp.sum(jnp.diff(ordered) != 0, dtype=jnp.int32)
