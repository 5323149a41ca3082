"""How data sets are made that a calibrated model could have given: data sets under H0.

Where rows are independent given the predictions, targets are drawn from these.  If predictions are
samples, `pooled` has put the target among them, so that a draw exchanges it with one of them.
Other data sets keep how rows depend on each other: the observed residuals have random multipliers
(`turns.py`), and where they vary too little, residuals of drawn targets are added (`engine.py`).
Only targets change from one data set to the next.
"""

from typing import NamedTuple, Self

import jax
import jax.numpy as jnp

from calibjax._base.compile import bucket
from calibjax._base.sharding import Axis
from calibjax._base.struct import PyTree, static, struct
from calibjax._data.capabilities import KnownLevels, exchangeable_pool, has_atoms
from calibjax._data.data import AnyRows, Data, Rows
from calibjax._data.distribution import Distribution, as_labels
from calibjax._data.interval_censored import Between, unit_interval
from calibjax._data.outcome_weights import sampled
from calibjax._numbers.unit_interval import UnitInterval
from calibjax.distributions import Categorical
from calibjax.nulls.draws import draw_batches, draw_pits, row_numbers
from calibjax.nulls.turns import (
    LEAST_CLUSTERS,
    LEAST_STRETCHES,
    ROUNDING_OF_STRETCHES,
    Turns,
    turns,
)
from calibjax.residuals.pit import DrawnPIT, Hidden
from calibjax.scores.pit_intervals import pit_between_levels

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
        is_coarse = isinstance(data.targets, Between) and data.targets.censored_at is None
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
            return "draws from the model"
        if not data.is_dependent:
            unknown = "weights of other labels" if self.is_by_label else "censoring times"
            return f"random signs of rows because {unknown} are unknown"
        kind = "signs" if data.times is None else "rotations"
        words = f"random {kind} of {data.describe_units()}"
        return "; ".join(filter(None, (words, why_not_tested(data))))

    def data_sets(
        self,
        key: jax.Array,
        data: Rows,
        axis: Axis = None,
        by_pit: bool = False,
        in_pit_cells: bool = False,
    ) -> "DataSets":
        """The data sets of clean data; the arguments are those of `DataSets`."""
        numbers, xi, hidden = row_numbers(data.weights, axis), None, None
        if isinstance(data.targets, Between):
            hidden = data.targets.hiding(data.weights != 0, axis)
        if not self.redraws:
            dependent = data if data.is_dependent else data.replace(clusters=numbers)
            xi = turns(dependent, self.n_times, axis)
        units = numbers if xi is None else xi.rows
        rows = SampledRows(*data.samples, hidden, numbers, units, data.outcome_weights)
        return DataSets(key, rows, xi, by_pit, in_pit_cells)


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
    units = data.describe_units()
    return f"cannot be tested: {units}, at least {LEAST_CLUSTERS} are needed"


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
    hidden: Between | None
    numbers: jax.Array
    units: jax.Array
    outcome_weights: jax.Array | None = None

    def drawn(self, key: jax.Array, batches: jax.Array) -> jax.Array:
        """Targets of some batches of draws, ``[n, D, …]``."""
        law = self.predictions
        if self.outcome_weights is not None:
            p = as_labels(law).label_probabilities()
            law = Categorical(sampled(p, self.outcome_weights))
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
    by_pit: bool = static()
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
