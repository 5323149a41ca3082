r"""How data sets are made that a calibrated model could have given: data sets under H0.

Where rows are independent given the predictions, targets are drawn from these.  If predictions are
samples, `pooled` has put the target among them, so that a draw exchanges it with one of them.
Other data sets keep how rows depend on each other: the observed residuals have random multipliers
(turns of sums, below), and where they vary too little, residuals of drawn targets are added
(`engine.py`).  Only targets change from one data set to the next.

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

from typing import NamedTuple, Self

import jax
import jax.numpy as jnp
from jax import lax

from calibjax._base.compile import bucket
from calibjax._base.sharding import Axis, all_of
from calibjax._base.struct import PyTree, static, struct
from calibjax._data.capabilities import KnownLevels, exchangeable_pool, has_atoms
from calibjax._data.data import AnyRows, Data, Rows
from calibjax._data.distribution import Distribution, as_labels
from calibjax._data.interval_censored import IntervalCensored, unit_interval
from calibjax._data.row_columns import sampled
from calibjax._loops.random_numbers import random_signs
from calibjax._numbers.arithmetic import dot
from calibjax._numbers.unit_interval import UnitInterval
from calibjax.distributions import Categorical
from calibjax.nulls.draws import (
    DRAWS_PER_BATCH,
    draw_batches,
    draw_pits,
    keys_of_draws,
    row_numbers,
)
from calibjax.residuals.pit import DrawnPIT, Hidden
from calibjax.scores.pit_intervals import pit_between_levels

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
        keys = keys_of_draws(jax.random.key(_SEED), clusters, batches)
        drawn = random_signs(keys, DRAWS_PER_BATCH, self.n_units.dtype)
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

        def draw(key: jax.Array) -> jax.Array:
            return jax.random.normal(key, (DRAWS_PER_BATCH,), self.factors.dtype)

        numbers = jnp.arange(size, dtype=jnp.int32)
        v = jax.vmap(jax.vmap(draw))(keys_of_draws(jax.random.key(_SEED), numbers, batches))
        is_used = numbers.astype(v.dtype) <= self.n_cosines
        v = jnp.where(is_used[:, None], v.reshape(size, -1), 0.0)
        are_enough = self.n_units >= LEAST_STRETCHES - ROUNDING_OF_STRETCHES
        length = jnp.linalg.norm(v, axis=0, keepdims=True)
        return dot(self.factors, v / jnp.where(are_enough, length, jnp.nan))

    def sizes(self, key: jax.Array, batches: jax.Array) -> jax.Array:
        """What makes each direction of some batches one of Student, ``[draws]``."""
        k = jnp.maximum(self.n_cosines, 1.0)
        of_normal, of_student = jax.random.split(key)
        return sizes_of_draws(of_student, batches, k, _chi_squared(of_normal, batches, k + 1))

    def values(self, times: jax.Array, of_times: PyTree) -> jax.Array:
        """xi of some of the `rows`, ``[n, draws]``."""
        return of_times[times]


def sizes_of_draws(
    key: jax.Array, batches: jax.Array, freedom: jax.Array, scale: jax.Array
) -> jax.Array:
    """sqrt(scale / chi^2_freedom) of each draw of some batches."""
    return jnp.sqrt(scale / _chi_squared(key, batches, freedom))


def _chi_squared(key: jax.Array, batches: jax.Array, freedom: jax.Array) -> jax.Array:
    def draw(key: jax.Array) -> jax.Array:
        return 2 * jax.random.gamma(key, freedom / 2, (DRAWS_PER_BATCH,), freedom.dtype)

    return jax.vmap(draw)(keys_of_draws(key, jnp.array([_SIZES]), batches)[0]).ravel()


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
    root = jnp.linalg.cholesky(a + jnp.diag(jnp.where(fills, 1.0, 1e-6 * jnp.diagonal(a))))
    solved = lax.linalg.triangular_solve(root, cosines, lower=True, transpose_a=True)
    return jnp.sqrt(a[0, 0]) * solved


def _n_different(numbers: jax.Array, kept: jax.Array, axis: Axis) -> jax.Array:
    """How many different numbers the kept rows of all devices have."""
    numbers, kept = all_of(numbers, axis).ravel(), all_of(kept, axis).ravel()
    ordered = jnp.sort(jnp.where(kept, numbers, numbers[jnp.argmax(kept)]))
    return 1 + jnp.sum(jnp.diff(ordered) != 0, dtype=jnp.int32)


# Folded into a key: PITs in a jump and drawn targets have different ones.
_PITS = 2**31 - 3


def pooled(data: AnyRows) -> AnyRows:
    """The data with an exchangeable pool instead of samples: the target is among them."""
    predictions, targets = exchangeable_pool(data.predictions, data.targets)
    return data.replace(predictions=predictions, targets=targets)


def pits_as_targets(key: jax.Array, data: AnyRows) -> AnyRows:
    """The data with the PIT instead of targets, where predictions say only how it is distributed.

    A PIT in a jump of the cdf is drawn.
    """
    if not isinstance(data.predictions, KnownLevels):
        return data
    pits = pit_between_levels(jax.random.fold_in(key, _PITS), data)
    return data.replace(predictions=data.predictions.pit_distribution(), targets=pits)


class NullSampler(NamedTuple):
    """How data sets under H0 are made.

    Args:
        redraws: whether data sets have fresh targets, so that the level of a test is exact; else
            residuals have multipliers.
        n_times: at least as many as there are different times, or None if that is not known.
        is_by_label: whether weights depend on labels, so that moments of the model are not known.
    """

    redraws: bool = True
    n_times: int | None = None
    is_by_label: bool = False

    @classmethod
    def of(cls, data: Data) -> Self:
        """The null sampler that is right for these rows."""
        is_coarse = data.is_censored and data.targets.censored_at is None
        is_by_label = data.weights_depend_on_labels()
        is_unknown = is_coarse or (is_by_label and data.outcome_weights is None)
        n_times = None if data.times is None else data.n_units()
        return cls(
            redraws=not (data.is_dependent or is_unknown),
            n_times=None if n_times is None else bucket(n_times),
            is_by_label=is_by_label,
        )

    def describe(self, data: Data) -> str:
        """What is drawn, such as "random signs of 60 clusters", for the end of a number."""
        if self.redraws:
            return "simulated data sets"
        if not data.is_dependent:
            unknown = "weights of other labels" if self.is_by_label else "censoring times of events"
            return f"random signs of rows, as {unknown} are unknown"
        kind = "signs" if data.times is None else "rotations"
        words = f"random {kind} of {data.describe_units()}"
        return "; ".join(filter(None, (words, why_not_tested(data))))

    def data_sets(self, key: jax.Array, data: Rows, axis: Axis = None) -> "DataSets":
        """The data sets of clean data."""
        numbers, xi, hidden = row_numbers(data.weights, axis), None, None
        if data.is_censored:
            hidden = data.targets.ends_of_draws(data.weights != 0, axis)
        if not self.redraws:
            dependent = data if data.is_dependent else data.replace(clusters=numbers)
            xi = turns(dependent, self.n_times, axis)
        units = numbers if xi is None else xi.rows
        rows = SampledRows(*data.samples, hidden, numbers, units, data.outcome_weights)
        return DataSets(key, rows, xi)


def why_not_tested(data: Data) -> str | None:
    """The reason why no data sets exist under H0, and no p-value; None if they exist."""
    stretches, clusters = data.n_stretches(), data.n_units()
    if stretches is not None:
        if stretches >= LEAST_STRETCHES - ROUNDING_OF_STRETCHES:
            return None
        return (
            f"cannot be tested: {stretches:.1f} stretches of the horizon {data.horizon or 1:g}, at "
            f"least {LEAST_STRETCHES} are needed (a shorter horizon, more times, or the monitor)"
        )
    if clusters is None or clusters >= LEAST_CLUSTERS:
        return None
    return f"cannot be tested: {data.describe_units()}, at least {LEAST_CLUSTERS} are needed"


class SampledRows(NamedTuple):
    """Rows, and what data sets under H0 are drawn from.

    Args:
        predictions, targets: n samples.
        hidden: between which ends a draw of each row is hidden; None if draws are known.
        numbers: the numbers of the rows in all data, ``[n]``.
        units: what multipliers take of each row.
        outcome_weights: those of clean `Rows`, or None.
    """

    predictions: Distribution
    targets: PyTree
    hidden: IntervalCensored | None
    numbers: jax.Array
    units: jax.Array
    outcome_weights: jax.Array | None = None

    def drawn(self, key: jax.Array, batches: jax.Array) -> jax.Array:
        """Targets of some batches of draws, ``[n, D, …]``."""
        law = self.predictions
        if self.outcome_weights is not None:
            law = Categorical(sampled(as_labels(law).label_probabilities(), self.outcome_weights))
        return draw_batches(key, law, self.numbers, batches)


@struct
class DataSets:
    """Data sets under H0 of the rows of this device.

    Args:
        key: the key of drawn targets.
        rows: what they are drawn from.
        turns: what multiplies observed residuals; None if targets are redrawn.
        by_pit: whether the PIT of a target is all that counts.
        in_pit_cells: whether all that counts of it is in which cell of the line it is.
    """

    key: jax.Array
    rows: SampledRows
    turns: Turns | None
    by_pit: bool = static(default=False)
    in_pit_cells: bool = static(default=False)

    def shared(self, batches: jax.Array) -> PyTree:
        """What the multipliers of all rows share of some batches of draws."""
        return None if self.turns is None else self.turns.shared(batches)

    def factors(self, rows: SampledRows, shared: PyTree) -> jax.Array | None:
        """xi of some of the rows, ``[n, D]``; None if targets are redrawn."""
        return None if self.turns is None else self.turns.values(rows.units, shared)

    def targets(self, rows: SampledRows, batches: jax.Array) -> PyTree:
        """Targets ``[n, 1 + D, …]`` of some of the rows, the observed ones first.

        With `by_pit` these are their PITs, as `UnitInterval` or `DrawnPIT`.  Where the PIT is
        continuous it is uniform, and neither targets nor their cdf are needed.
        """
        predictions, observed, hidden, numbers, *_ = rows
        if self.by_pit and (self.in_pit_cells or not has_atoms(predictions)):
            pit = unit_interval(predictions, observed)
            u, above = draw_pits(self.key, numbers, batches, pit.low.dtype)
            if hidden is None:
                return DrawnPIT(pit, (u, above))
            interval = unit_interval(predictions, hidden)
            return DrawnPIT(pit, (u, above), Hidden(interval, _contains(interval, u, above)))
        drawn = rows.drawn(self.key, batches)
        intervals_of = jax.vmap(lambda y: unit_interval(predictions, y), 1, 1)
        if hidden is None:
            every = jnp.concatenate([observed[:, None], drawn], axis=1)
            return intervals_of(every) if self.by_pit else every
        values = drawn.astype(hidden.low.dtype)
        contains = (hidden.low[:, None] < values) & (values <= hidden.high[:, None])
        return DrawnPIT(
            unit_interval(predictions, observed),
            intervals_of(drawn),
            Hidden(unit_interval(predictions, hidden), contains),
        )


def _contains(interval: UnitInterval, u: jax.Array, above: jax.Array) -> jax.Array:
    """Which u ``[n, D]`` lie in the intervals ``[n]``, from the tail that has more digits."""
    low, high, above_low, above_high = (x[:, None] for x in interval)
    is_above_low = jnp.where(u < 0.5, u > low, above < above_low)
    return is_above_low & jnp.where(u < 0.5, u <= high, above >= above_high)
