r"""Data sets under H0 and sums over their rows: the engine of tests, bands and segments.

- A **null sampler** says how data sets are made that a calibrated model could have given.
- A **statistic** is a function of a chunk of rows and of what is drawn for them, and returns sums.
- A **reduction** says what is kept of the sums of each data set: a rank (`ranks.py`), the
  largest of several, or a simultaneous band (`bands.py`).

Where rows are independent given the predictions, targets are drawn from these.  Of samples,
`pooled` has put the target among them, so that a draw exchanges it with one of them.  Other data
sets keep how rows depend on each other: with the observed residuals r_i, random multipliers xi_i
(`multipliers.py`) and the residuals s_i of drawn targets, they have the residuals

    xi_i r_i + lambda s_i,    lambda^2 = max(0, 1 - sum_i w_i^2 r_i^2 / sum_i w_i^2 E s_i^2).

Where events are rare, the observed residuals may hardly vary, by chance: lambda adds the variance
that is missing.  Over times the mean of the observed residuals is taken out:
sum_i xi_i (r_i - sum_j r_j / n) is sum_i xi_i r_i - (sum_i xi_i / n) sum_j r_j.

Only targets change from one data set to the next: what depends on predictions alone is computed
once for several data sets.  A statistic that divides by a variance of the data set itself is
largest where no rare event occurs, because hardly anything varies there, and too many events are
never seen.  Therefore what standardises a statistic is taken from all data sets, the observed one
included, which keeps them exchangeable.
"""

from collections.abc import Callable
from typing import NamedTuple, Self, TypeVar

import jax
import jax.numpy as jnp
from jax import lax

from calibjax._base.compile import bucket
from calibjax._base.sharding import Axis, all_sum, as_varying
from calibjax._base.struct import PyTree, indexed, static, struct
from calibjax._data.data import AnyRows, Data, Rows
from calibjax._data.distribution import Distribution, Labels
from calibjax._data.interval_censored import Between, unit_interval
from calibjax._numbers.unit_interval import UnitInterval
from calibjax._pairwise.tiles import in_chunks
from calibjax.nulls.draws import DRAWS_PER_BATCH, draw_batches, draw_pits, draw_targets
from calibjax.nulls.multipliers import Multipliers, TimeMultipliers, multipliers
from calibjax.residuals.pit import DrawnPIT, Hidden
from calibjax.scores import pit_between_levels

RowsOfTree = TypeVar("RowsOfTree")
Sums = TypeVar("Sums")
Draws = TypeVar("Draws")
Other = TypeVar("Other")

#: Folded into a key: PITs in a jump, multipliers and drawn targets have different ones.
_PITS, MULTIPLIERS = 2**31 - 3, 2**31 - 1
# Up to so many rows that are censored by an unknown law have Webb's multipliers, as clusters have.
_FEW_ROWS = 50
# The number of data sets that share what is made of the predictions, such as tiles of a kernel:
# the tiles are cheap then, and ten times the values of a tile still fit into caches.
_TOGETHER = 10
# The number of rows whose targets are drawn at a time.
_ROWS = 2**12
# How many numbers of a chunk of rows are in memory at a time.
_NUMBERS = 2**20
# Or one for so many sums, if there are more.
_SUMS_OF_NUMBERS = 16


def pooled(data: AnyRows) -> AnyRows:
    """The data with an exchangeable pool in place of samples: the target is among them."""
    predictions, targets = data.predictions.exchangeable_pool(data.targets)
    return data.replace(predictions=predictions, targets=targets)


def pits_as_targets(key: jax.Array, data: AnyRows) -> AnyRows:
    """The data with the PIT in place of targets, where predictions say no more than its law.

    A PIT in a jump of the cdf is drawn.
    """
    distribution = data.predictions.pit_distribution()
    if distribution is None:
        return data
    pits = pit_between_levels(jax.random.fold_in(key, _PITS), data)
    return data.replace(predictions=distribution, targets=pits)


class NullSampler(NamedTuple):
    """How data sets under H0 are made.

    Args:
        kind: "redrawn" targets, or residuals with multipliers, "webb" or "normal".
        n_times: at least as many as there are different times, or None if that is not known.
    """

    kind: str = "redrawn"
    n_times: int | None = None

    @classmethod
    def of(cls, data: Data) -> Self:
        """The null sampler that is right for these rows."""
        is_coarse = isinstance(data.targets, Between) and data.targets.censored_at is None
        if not data.is_dependent:
            if not is_coarse:
                return cls()
            return cls("webb" if data.n_kept() <= _FEW_ROWS else "normal")
        kind = "normal" if isinstance(data.predictions, Labels) else "webb"
        n_times = None if data.times is None else data.n_units()
        return cls(kind, None if n_times is None else bucket(n_times))

    @property
    def redraws(self) -> bool:
        """Whether data sets have fresh targets, so that the level of a test is exact."""
        return self.kind == "redrawn"

    def describe(self, data: Data) -> str:
        """What is drawn, such as "multipliers of 60 clusters", to stand behind a number."""
        if self.redraws:
            return "draws from the model"
        if not data.is_dependent:
            return "multipliers of rows, as the law of the censoring is not known"
        return f"multipliers of {data.describe_units()}"

    def data_sets(
        self,
        draw_key: jax.Array,
        multiplier_key: jax.Array,
        data: Rows,
        numbers: jax.Array,
        axis: Axis = None,
        by_pit: bool = False,
        in_cells: bool = False,
    ) -> "DataSets":
        """The data sets of clean data, whose rows have these numbers in all data."""
        xi = hidden = None
        if isinstance(data.targets, Between):
            hidden = data.targets.hiding(data.weights != 0, axis)
        if not self.redraws:
            units = data if data.is_dependent else data.replace(clusters=numbers)
            xi = multipliers(multiplier_key, units, self.kind == "normal", self.n_times, axis)
        rows = SampledRows(*data.samples, hidden, numbers, numbers if xi is None else xi.rows)
        return DataSets(draw_key, rows, xi, by_pit, in_cells)


class SampledRows(NamedTuple):
    """Rows, and what data sets under H0 are made of.

    Args:
        predictions, targets: n samples.
        hidden: between which ends a draw of each row is hidden; None if draws are known.
        numbers: the numbers of the rows in all data, ``[n]``.
        units: what multipliers take of each row.
    """

    predictions: Distribution
    targets: PyTree
    hidden: Between | None
    numbers: jax.Array
    units: jax.Array


class SetSums(NamedTuple):
    """Sums over rows of the residuals of D data sets, ``[…, D, K]``.

    Args:
        observed: of the observed targets, ``[…, 1, K]``.
        drawn: of drawn targets.
        multiplied: of observed residuals with multipliers, or None.
        factors: of the multipliers over times, ``[…, D]``, or None.
    """

    observed: jax.Array
    drawn: jax.Array
    multiplied: jax.Array | None = None
    factors: jax.Array | None = None

    def transformed(self, function: Callable[[jax.Array], jax.Array]) -> "SetSums":
        """Linear functions of the sums, which leave factors as they are."""
        multiplied = None if self.multiplied is None else function(self.multiplied)
        return SetSums(function(self.observed), function(self.drawn), multiplied, self.factors)

    def under_h0(self, missing: jax.Array, total: jax.Array) -> jax.Array:
        """The sums that the data sets have, for lambda and the sum of all weights."""
        if self.multiplied is None:
            return self.drawn
        return centred(self.multiplied, self.observed, self.factors, total) + missing * self.drawn


def centred(
    sums: jax.Array, observed: jax.Array, factors: jax.Array | None, total: jax.Array
) -> jax.Array:
    """Sums of residuals with multipliers ``[…, D, K]``, of residuals less their mean over times."""
    if factors is None:
        return sums
    means = factors / jnp.where(total > 0, total, 1.0)
    return sums - means[..., None] * observed


def variance_deficit(observed: jax.Array, expected: jax.Array) -> jax.Array:
    """lambda, from the sums of squares of observed residuals and those that are expected."""
    is_possible = expected > 0
    share = observed / jnp.where(is_possible, expected, 1.0)
    return jnp.where(is_possible, jnp.sqrt(jnp.maximum(1 - share, 0.0)), 0.0)


@struct
class DataSets:
    """Data sets under H0 of the rows of this device.

    Args:
        key: the key of drawn targets.
        rows: what they are made of.
        multipliers: of observed residuals; None if targets are redrawn.
        by_pit: whether the PIT of a target is all that counts.
        in_cells: whether all that counts of it is in which cell of the line it is.
    """

    key: jax.Array
    rows: SampledRows
    multipliers: Multipliers | None
    by_pit: bool = static()
    in_cells: bool = static(default=False)

    @property
    def are_centred(self) -> bool:
        """Whether the mean of residuals is taken out."""
        return isinstance(self.multipliers, TimeMultipliers)

    def shared(self, batches: jax.Array) -> PyTree:
        """What the multipliers of all rows share of some batches of draws."""
        return None if self.multipliers is None else self.multipliers.shared(batches)

    def factors(self, rows: SampledRows, shared: PyTree) -> jax.Array | None:
        """xi of some of the rows, ``[n, D]``; None if targets are redrawn."""
        return None if self.multipliers is None else self.multipliers.values(rows.units, shared)

    def targets(self, rows: SampledRows, batches: jax.Array) -> PyTree:
        """Targets ``[n, 1 + D, …]`` of some of the rows, the observed ones first.

        With `by_pit` these are their PITs, as `UnitInterval` or `DrawnPIT`.  Where the PIT is
        continuous it is uniform, and neither targets nor their cdf are needed.
        """
        predictions, observed, hidden, numbers, _ = rows
        if self.by_pit and (self.in_cells or not predictions.has_atoms):
            pit = unit_interval(predictions, observed)
            u, above = draw_pits(self.key, numbers, batches, pit.low.dtype)
            if hidden is None:
                return DrawnPIT(pit, (u, above))
            interval = unit_interval(predictions, hidden)
            return DrawnPIT(pit, (u, above), Hidden(interval, _contains(interval, u, above)))
        drawn = draw_batches(self.key, predictions, numbers, batches)
        intervals_of = jax.vmap(predictions.unit_interval, 1, 1)
        if hidden is None:
            every = jnp.concatenate([observed[:, None], drawn], axis=1)
            return intervals_of(every) if self.by_pit else every
        low, high, values = (
            hidden.low[:, None],
            hidden.high[:, None],
            drawn.astype(hidden.low.dtype),
        )
        contains = (low < values) & (values <= high)
        return DrawnPIT(
            unit_interval(predictions, observed),
            intervals_of(drawn),
            Hidden(unit_interval(predictions, hidden), contains),
        )

    def sums(
        self,
        residuals: Callable[[SampledRows, jax.Array], jax.Array],
        sum_rows: Callable[[RowsOfTree, jax.Array], jax.Array],
        others: RowsOfTree,
        weights: jax.Array,
        batches: jax.Array,
        per_row: int,
        bounded: Callable[[jax.Array], jax.Array] = lambda x: x,
        axis: Axis = None,
    ) -> SetSums:
        """The sums ``[F, D, K]`` over all rows of the data sets of some batches.

        Args:
            residuals: of rows and batches, ``[n, 1 + D, K]``.
            sum_rows: F sums of values of `others` ``[n, P]``, ``[F, P]``.
            others, weights: what `sum_rows` takes of rows, and their weights.
            batches: of draws.
            per_row: about how many numbers a row has beside these.
            bounded: what multipliers take of observed residuals.
            axis: the devices.
        """
        shared, n_draws = self.shared(batches), batches.size * DRAWS_PER_BATCH

        def of_rows(chunk: tuple[tuple[SampledRows, RowsOfTree], jax.Array]) -> list[jax.Array]:
            (rows, others), weights = chunk
            w, found = weights[:, None, None], residuals(rows, batches)
            columns, xi = [w * found], self.factors(rows, shared)
            if xi is not None:
                columns.append(xi[..., None] * (w * bounded(found[:, :1])))
                columns += [w * xi[..., None]] if self.are_centred else []
            flat = [x.reshape(weights.size, -1) for x in columns]
            sums = sum_rows(others, jnp.concatenate(flat, axis=1))
            parts, end = [], 0
            for x in columns:
                start, end = end, end + x.shape[1] * x.shape[2]
                parts.append(sums[:, start:end].reshape(-1, *x.shape[1:]))
            return parts

        one = indexed(self.rows, slice(1))
        n_numbers = jax.eval_shape(residuals, one, batches).size
        n_numbers *= 1 if self.multipliers is None else 2
        rows = self.rows, others
        of_targets, *more = sum_over_rows(of_rows, rows, weights, per_row + n_numbers, axis)
        multiplied = more[0] if more else None
        factors = more[1].reshape(-1, n_draws) if more[1:] else None
        return SetSums(of_targets[:, :1], of_targets[:, 1:], multiplied, factors)


def _contains(interval: UnitInterval, u: jax.Array, above: jax.Array) -> jax.Array:
    """Which u ``[n, D]`` lie in the intervals ``[n]``, from the tail that has more digits."""
    low, high, above_low, above_high = (x[:, None] for x in interval)
    is_above_low = jnp.where(u < 0.5, u > low, above < above_low)
    return is_above_low & jnp.where(u < 0.5, u <= high, above >= above_high)


def in_passes(
    function: Callable[[jax.Array], tuple[Draws, Other]],
    n_resamples: int,
    most: int = 1,
    size: int = DRAWS_PER_BATCH,
) -> tuple[Draws, Other]:
    """``function(batches)`` of all batches of draws, at most `most` of them in one pass over rows.

    The function returns arrays ``[draws, …]``, of which R are returned, and what is the same for
    all batches.  A batch has `size` draws.
    """
    n_batches = -(-n_resamples // size)
    n_passes = -(-n_batches // max(1, most))
    together = -(-n_batches // n_passes)
    batches = jnp.arange(n_passes * together, dtype=jnp.int32).reshape(n_passes, together)
    draws, other = lax.map(function, batches)
    draws = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:])[:n_resamples], draws)
    return draws, indexed(other, 0)


def sum_over_rows(
    function: Callable[[tuple[RowsOfTree, jax.Array]], Sums],
    rows: RowsOfTree,
    weights: jax.Array,
    per_row: int,
    axis: Axis = None,
) -> Sums:
    """The sum over all devices of ``function((rows, weights))`` of chunks of rows.

    The function holds `per_row` numbers of a row, and returns a tree of sums.  Rows of weight 0,
    which fill the last chunk, must add nothing to them.
    """
    shapes = jax.eval_shape(function, indexed((rows, weights), slice(1)))
    sums = jax.tree.leaves(shapes)
    # Sums ``[F, …]`` over fewer rows than F would mostly move their result, and so do sums of far
    # more numbers than a chunk has.
    n_numbers = max(_NUMBERS, sum(x.size for x in sums) // _SUMS_OF_NUMBERS)
    chunks = in_chunks(rows, weights, max(sums[0].shape[0], n_numbers // per_row))

    def step(totals: Sums, chunk: tuple[RowsOfTree, jax.Array]) -> tuple[Sums, None]:
        return jax.tree.map(jnp.add, totals, function(chunk)), None

    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
    return all_sum(lax.scan(step, as_varying(zeros, rows), chunks)[0], axis)


def under_model(
    statistic: Callable[[jax.Array], Sums],
    key: jax.Array,
    samples: tuple[Distribution, jax.Array],
    rows: jax.Array,
    n_resamples: int,
    together: int = _TOGETHER,
) -> Sums:
    """``statistic(targets)`` of n_resamples draws from the model, and last of the observed targets.

    The observed targets take their turn among the draws, so that the same program computes all
    values.  Draw r depends only on (key, rows, r).

    Args:
        statistic: a function of targets, which may sum over devices.
        key: a key of `jax.random`.
        samples: the predictions and the observed targets of the rows of this device.
        rows: the numbers of these rows in all data, ``[n]``.
        n_resamples: the number of draws, R.
        together: how many data sets are computed at once, at most.

    Returns:
        The tree that `statistic` returns, with the leading axis ``[R + 1]``.
    """
    predictions, observed = samples
    # A divisor of the size of a batch leaves no rest, which would be one more program.
    divisors = [k for k in range(1, DRAWS_PER_BATCH + 1) if DRAWS_PER_BATCH % k == 0]
    together = max(k for k in divisors if k <= max(1, together))

    def values_of_batch(batches: jax.Array) -> tuple[Sums, tuple[()]]:
        def draw(row: tuple[Distribution, jax.Array]) -> jax.Array:
            prediction, number = indexed(row, None)
            return draw_targets(key, prediction, number, batches[0])[0].astype(observed.dtype)

        drawn = lax.map(draw, (predictions, rows), batch_size=_ROWS)
        drawn = jnp.moveaxis(drawn, 1, 0)
        numbers = batches[0] * DRAWS_PER_BATCH + jnp.arange(DRAWS_PER_BATCH, dtype=jnp.int32)
        is_observed = (numbers == n_resamples).reshape(-1, *(1,) * observed.ndim)
        targets = jnp.where(is_observed, observed[None], drawn)
        return lax.map(statistic, targets, batch_size=together), ()

    return in_passes(values_of_batch, n_resamples + 1)[0]
