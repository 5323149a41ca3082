r"""Interpretable residuals of rows, with mean 0 under H0: the statistics of segments.

**Events** (two classes), with the residual r = y - p:

- rate: r;
- calibration slope: r (l - c) with the logit l of p and the centre c = sum w^2 v l / sum w^2 v of
  the segment, v = p (1 - p).  It is the derivative of the log likelihood in the slope of logits,
  and under the model it is not correlated with the rate.  Logits count as no further from their
  mean over all rows than 2 deviations, both weighted by v: a wrong row at p = 1 is not all there
  is.

**Classes**, with the indicators e of the target and its probabilities p:

- the frequency of each class, e_c - p_c, of up to 20 classes;
- top label: whether the target is the most probable class, minus its probability;
- calibration slope: log p_y - E log p_Y, the derivative of the log likelihood in the inverse
  temperature, where log p - E log p is cut off at -2 deviations of all rows, each row weighted as
  for events by the variance of its most probable class.

**Numbers**, counts and ordered classes, with the normal score z of U = F(y):

- location: z;
- spread: (z^2 - 1) / sqrt(2), whose sum is taken around the location of the segment: with the sum
  S, the variance V and the information I of the location, and I' of the spread, it loses
  I' (S^2 - V) / (sqrt(2) I^2), which is what a shift alone would add.  Then targets that are only
  shifted are not a sign of a wrong spread;
- coverage: whether U is in [0.05, 0.95], minus 0.9; for quantiles the two levels nearest to 0.05
  and 0.95 take their place.

For an interval of U, each is the mean over the interval.

**Dependent rows** have data sets with turned sums (`nulls/sampler.py`), which are as
likely as the observed sums only if these are symmetric.  z^2 - 1 is skew, and few units of it
reject calibrated models too often.  The spread is tested by

    s = Phi^-1(|2 U - 1|),

which is exactly normal under H0, and larger the further a target is from the median.  Its mean over
[a, b] is (G(b) - G(a)) / (b - a) with G(u) = sign(1/2 - u) f(s(u)) / 2 for the normal density f,
because the derivative of f(s) is -s f(s) s', and that of s in u is 2 sign(u - 1/2) / f(s).
Coverage is also skew, and is not tested.
"""

import math
from abc import ABC, abstractmethod
from statistics import NormalDist
from typing import ClassVar, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._base.sharding import Axis, all_sum
from calibjax._base.struct import PyTree, batch_of_one, static, struct
from calibjax._data.capabilities import has_atoms, pit_partition
from calibjax._data.distribution import Distribution, Labels, as_labels
from calibjax._data.interval_censored import unit_interval
from calibjax._numbers.arithmetic import ROUNDINGS_OF_TERMS
from calibjax._numbers.unit_interval import UnitInterval, normal_score
from calibjax.kernels.base import Sample
from calibjax.kernels.pit import UnitFeature
from calibjax.residuals.base import FiniteResidual
from calibjax.residuals.pit import DrawnPIT, of_intervals

# The largest number of classes that are tested each by itself.
_MOST_CLASSES = 20
# The largest distance of a logit from the mean, in deviations, both weighted by the variances of
# the targets.  The logit of a wrong row at p = 1 is infinite: the row would be all that a segment
# says, and its multipliers would hide all other segments.
_MOST_DEVIATIONS = 2.0
# The ends of the central interval whose coverage is counted.
_CENTRAL = 0.05, 0.95
# The normal score of a target at the lower end of the unit line: that of 1e-5.
_LEAST_SCORE = NormalDist().inv_cdf(1e-5)
# Over a narrower interval s is that of its middle.
_NARROW = 1e-3
# The largest normal score that is multiplied.  Larger ones are too rare under H0 to matter, and a
# few nearly impossible targets would leave no other segment significant.
_MOST_SCORE = 3.0
# The largest |s|.
_MOST_FOLDED = 4.0
_NORMAL_SCORES = UnitFeature(np.ones(2, np.float32), "normal scores", (1, 2))


class RowMoments(NamedTuple):
    """Moments of the residuals of each row under the model, and squares of the observed ones.

    Args:
        second: the terms of the variances of the J statistics, ``[n, A]``.
        third: the terms of their third moments, ``[n, A]``.
        squares: as `second`, of the observed residuals as they are multiplied.
        predicted: what is predicted of an observed mean, ``[n, J]``.
    """

    second: jax.Array
    third: jax.Array
    squares: jax.Array
    predicted: jax.Array


def bounded(residuals: jax.Array, most: tuple[float, ...]) -> jax.Array:
    """Residuals ``[…, J]``, no larger than `most` of each statistic."""
    limit = jnp.broadcast_to(jnp.asarray(most, residuals.dtype), residuals.shape)
    return jnp.clip(residuals, -limit, limit)


class Readable(FiniteResidual):
    """The J statistics of a family: residuals ``[n, D, J]``, and what segments make of their sums.

    By default the statistics are the sums, and each of them says how many events it has.
    """

    #: Whether moments are known without draws.
    knows_moments: bool = True
    #: The variance of a statistic of one row is multiplied by this to count events.
    unit_of_variance: ClassVar[float] = 1.0

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """The names of the statistics."""

    @property
    def most_multiplied(self) -> tuple[float, ...]:
        """The largest observed residuals where they have multipliers."""
        return (math.inf,) * len(self.names)

    @property
    def measured_by(self) -> tuple[int, ...]:
        """The statistic whose variance says how many events a segment has, for each statistic."""
        return (0,) * len(self.names)

    def fitted(self, predictions: Distribution, weights: jax.Array, axis: Axis) -> Self:
        """The same with what the statistics take from the predictions of all rows."""
        return self

    @abstractmethod
    def moments(self, predictions: Distribution, residuals: jax.Array) -> RowMoments:
        """Moments of rows, from residuals ``[n, 1 + D, J]`` of observed targets and many draws."""

    def centred(self, sums: jax.Array, second: jax.Array) -> jax.Array:
        """The statistics ``[S, D, J]`` from sums of residuals, and of w^2 `second`."""
        return sums

    def squares(self, x: jax.Array, second: jax.Array) -> jax.Array:
        """Sums of squares of the statistics ``[S, J]``, from sums of w^2 `second` and as these."""
        return x

    def cubes(self, x: jax.Array, second: jax.Array) -> jax.Array:
        """Sums of cubes of the statistics ``[S, J]``, from sums of `third`."""
        return x

    def around_mean(self, sums: jax.Array, variance: jax.Array, known: jax.Array) -> jax.Array:
        """The statistics ``[S, D, J]`` without what another one adds to them."""
        return sums

    @property
    def turned(self) -> tuple[int, ...]:
        """Which residual tests each statistic of dependent rows, or -1 for none."""
        return tuple(range(len(self.names)))

    def of_one(self, a: Sample) -> jax.Array:
        predictions, targets = batch_of_one(a)
        return self.values(predictions, targets[:, None])[0, 0]


@struct
class EventStatistics(Readable):
    """Rate and calibration slope of events.

    Args:
        middle: the mean logit of all rows, from which logits are counted: sums keep more digits.
        most: the largest distance from it that counts.
    """

    middle: jax.Array | float = 0.0
    most: jax.Array | float = math.inf

    names = ("rate", "calibration slope")

    def fitted(self, predictions: Distribution, weights: jax.Array, axis: Axis) -> Self:
        p, logits = self._probability_and_distance(predictions)
        v = weights * p * (1 - p)
        middle = _ratio(*all_sum((jnp.sum(v * logits), jnp.sum(v)), axis))
        square = _ratio(*all_sum((jnp.sum(v * (logits - middle) ** 2), jnp.sum(v)), axis))
        return type(self)(middle, _MOST_DEVIATIONS * jnp.sqrt(square))

    def values(
        self, predictions: Distribution, targets: jax.Array, others: PyTree = None
    ) -> jax.Array:
        """r and r l for labels ``[n, D]``, ``[n, D, 2]``."""
        p, distances = self._probability_and_distance(predictions)
        r = (targets == 1).astype(p.dtype) - p[:, None]
        return jnp.stack([r, r * distances[:, None]], axis=2)

    def moments(self, predictions: Distribution, residuals: jax.Array) -> RowMoments:
        p, distances = self._probability_and_distance(predictions)
        powers = jnp.stack([distances**k for k in range(4)], axis=1)
        variance = p * (1 - p)
        third = variance * (1 - 2 * p)
        squares = jnp.square(residuals[:, 0, 0])
        return RowMoments(
            variance[:, None] * powers,
            third[:, None] * powers,
            squares[:, None] * powers,
            jnp.stack([p, jnp.ones_like(p)], axis=1),
        )

    def centred(self, sums: jax.Array, second: jax.Array) -> jax.Array:
        rate, slope = sums[..., 0], sums[..., 1]
        return jnp.stack([rate, slope - _centre(second)[:, None] * rate], axis=2)

    def squares(self, x: jax.Array, second: jax.Array) -> jax.Array:
        c = _centre(second)
        of_slope = x[:, 2] - 2 * c * x[:, 1] + c**2 * x[:, 0]
        # Rounding leaves a little where all logits are equal.
        rounding = ROUNDINGS_OF_TERMS * jnp.finfo(x.dtype).eps * (x[:, 2] + c**2 * x[:, 0])
        return jnp.stack([x[:, 0], jnp.where(of_slope > rounding, of_slope, 0.0)], axis=1)

    def cubes(self, x: jax.Array, second: jax.Array) -> jax.Array:
        c = _centre(second)
        of_slope = x[:, 3] - 3 * c * x[:, 2] + 3 * c**2 * x[:, 1] - c**3 * x[:, 0]
        return jnp.stack([x[:, 0], of_slope], axis=1)

    def _probability_and_distance(self, predictions: Distribution) -> tuple[jax.Array, jax.Array]:
        """P(Y = 1), and how far its logit, which is finite, is from the middle, ``[n]``."""
        p = _normalised(predictions)
        logs = jnp.log(jnp.maximum(p, jnp.finfo(p.dtype).tiny))
        distances = logs[:, 1] - logs[:, 0] - self.middle
        return p[:, 1], jnp.clip(distances, -self.most, self.most)


def _centre(second: jax.Array) -> jax.Array:
    """c of each segment, from the sums of w^2 v times the powers of logits, ``[S, 4]``."""
    return _ratio(second[:, 1], second[:, 0])


@struct
class ClassStatistics(Readable):
    """Frequencies of classes, of the most probable one, and calibration slope.

    Args:
        n_tested: how many classes are tested by themselves, m or 0.
        most: a target's log probability counts as no further below its mean.
    """

    n_tested: int = static()
    most: jax.Array | float = math.inf

    @property
    def names(self) -> tuple[str, ...]:
        return (*(f"class {c}" for c in range(self.n_tested)), "top label", "calibration slope")

    @property
    def measured_by(self) -> tuple[int, ...]:
        return (*range(self.n_tested), self.n_tested, self.n_tested)

    def fitted(self, predictions: Distribution, weights: jax.Array, axis: Axis) -> Self:
        """With the deviation of the log probabilities of all rows; of two classes, of logits."""
        p, deviations = self._probabilities_and_deviations(predictions)
        top = jnp.max(p, axis=1)
        squares = weights * jnp.sum(p * deviations**2, axis=1)
        sums = jnp.sum(squares), jnp.sum(weights * top * (1 - top))
        most = _MOST_DEVIATIONS * jnp.sqrt(_ratio(*all_sum(sums, axis)))
        return type(self)(self.n_tested, most)

    def values(
        self, predictions: Distribution, targets: jax.Array, others: PyTree = None
    ) -> jax.Array:
        """``[n, D, J]`` for labels ``[n, D]``."""
        p, deviations = self._probabilities_and_deviations(predictions)
        top = jnp.argmax(p, axis=1).astype(targets.dtype)
        is_top = (targets == top[:, None]).astype(p.dtype) - jnp.max(p, axis=1)[:, None]
        slope = jnp.take_along_axis(deviations, targets, axis=1)
        indicators = jax.nn.one_hot(targets, self.n_tested, dtype=p.dtype)
        of_classes = indicators - p[:, None, : self.n_tested]
        return jnp.concatenate([of_classes, jnp.stack([is_top, slope], axis=2)], axis=2)

    def moments(self, predictions: Distribution, residuals: jax.Array) -> RowMoments:
        p, deviations = self._probabilities_and_deviations(predictions)
        top = jnp.max(p, axis=1, keepdims=True)
        events = jnp.concatenate([p[:, : self.n_tested], top], axis=1)
        variances = events * (1 - events)
        second, third = (
            jnp.concatenate([x, jnp.sum(p * deviations**k, axis=1, keepdims=True)], axis=1)
            for k, x in ((2, variances), (3, variances * (1 - 2 * events)))
        )
        predicted = jnp.concatenate([events, jnp.ones_like(top)], axis=1)
        return RowMoments(second, third, jnp.square(residuals[:, 0]), predicted)

    def _probabilities_and_deviations(
        self, predictions: Distribution
    ) -> tuple[jax.Array, jax.Array]:
        """Probabilities, and the deviations of their logs, of mean 0 in each row, ``[n, m]``."""
        p = _normalised(predictions)
        log_p = jnp.log(jnp.maximum(p, jnp.finfo(p.dtype).tiny))
        deviations = log_p - jnp.sum(p * log_p, axis=1, keepdims=True)
        deviations = jnp.maximum(deviations, -self.most)
        return p, deviations - jnp.sum(p * deviations, axis=1, keepdims=True)


def _normalised(predictions: Distribution) -> jax.Array:
    """The probabilities of labels, ``[n, m]``."""
    probabilities = as_labels(predictions).label_probabilities()
    return probabilities / jnp.sum(probabilities, axis=1, keepdims=True)


def _ratio(x: jax.Array, y: jax.Array) -> jax.Array:
    return x / jnp.where(y > 0, y, 1.0)


class LineStatistic(ABC):
    """Statistics of numbers, functions of mean 0 of the unit line."""

    names: tuple[str, ...]
    #: The largest values where they have multipliers, by default any of one statistic.
    most_multiplied: tuple[float, ...] = (math.inf,)
    #: Whether sums of few rows are nearly as likely as the same with the other sign.
    is_symmetric: bool = True

    @abstractmethod
    def uniform_moments(self) -> list[tuple[float, ...]]:
        """E r^2, E r^3 and the mean that is predicted, of each statistic of a uniform U."""

    @abstractmethod
    def of_intervals(self, interval: UnitInterval) -> jax.Array:
        """The means over intervals of the unit line, ``[J]`` behind their axes."""

    @abstractmethod
    def of_points(self, u: jax.Array, above: jax.Array) -> jax.Array:
        """The values at points u of the unit line, ``[J]`` behind their axes; above = 1 - u."""


@struct
class LocationAndSpread(LineStatistic):
    """Normal scores and their squares."""

    names = ("location", "spread")
    most_multiplied = (_MOST_SCORE, (_MOST_SCORE**2 - 1) / math.sqrt(2))

    def uniform_moments(self) -> list[tuple[float, ...]]:
        return [(1.0, 1.0), (0.0, math.sqrt(8)), (0.0, 1.0)]

    def of_intervals(self, interval: UnitInterval) -> jax.Array:
        """A target at an end of the line, which the model called impossible, counts as near it.

        Its normal score is infinite: beside four of them hundreds of others would not be seen.
        """
        scores = _NORMAL_SCORES.of_intervals(interval)
        for is_end, z in (
            (interval.high <= 0, _LEAST_SCORE),
            (interval.above_low <= 0, -_LEAST_SCORE),
        ):
            at_end = np.array([z, (z**2 - 1) / math.sqrt(2)], scores.dtype)
            scores = jnp.where(is_end[..., None], at_end, scores)
        return scores

    def of_points(self, u: jax.Array, above: jax.Array) -> jax.Array:
        return _NORMAL_SCORES.of_points(u, above)


@struct
class Coverage(LineStatistic):
    """Whether U is in a central interval of the unit line.

    Args:
        low, high: the ends of the interval.
    """

    low: float = static(_CENTRAL[0])
    high: float = static(_CENTRAL[1])

    names = ("coverage",)
    is_symmetric = False

    def uniform_moments(self) -> list[tuple[float, ...]]:
        p = self.high - self.low
        return [(p * (1 - p),), (p * (1 - p) * (1 - 2 * p),), (p,)]

    def of_intervals(self, interval: UnitInterval) -> jax.Array:
        width = interval.width()
        inside = jnp.minimum(interval.high, self.high) - jnp.maximum(interval.low, self.low)
        is_point = width <= 0
        share = jnp.clip(inside / jnp.where(is_point, 1.0, width), 0.0, 1.0)
        share = jnp.where(is_point, (inside >= 0).astype(share.dtype), share)
        return share[..., None] - (self.high - self.low)

    def of_points(self, u: jax.Array, above: jax.Array) -> jax.Array:
        is_inside = (u >= self.low) & (above >= 1 - self.high)
        return is_inside.astype(u.dtype)[..., None] - (self.high - self.low)


@struct
class FoldedScores(LineStatistic):
    """s, cut off far out: a target at the median has -infinity."""

    names = ("folded spread",)

    def uniform_moments(self) -> list[tuple[float, ...]]:
        return [(1.0,), (0.0,), (1.0,)]

    def of_intervals(self, interval: UnitInterval) -> jax.Array:
        width, points = interval.width(), (interval.middle(), interval[0::2], interval[1::2])
        is_narrow = width <= _NARROW
        u, above = map(jnp.stack, zip(*points, strict=True))
        scores = _folded(u, above)
        integrals = jnp.where(u < above, 0.5, -0.5) * jnp.exp(-jnp.square(scores) / 2)
        of_wide = (integrals[2] - integrals[1]) / jnp.where(is_narrow, 1.0, width)
        found = jnp.where(is_narrow, scores[0], of_wide / math.sqrt(2 * math.pi))
        return jnp.clip(found, -_MOST_FOLDED, _MOST_FOLDED)[..., None]

    def of_points(self, u: jax.Array, above: jax.Array) -> jax.Array:
        return jnp.clip(_folded(u, above), -_MOST_FOLDED, _MOST_FOLDED)[..., None]


def _folded(u: jax.Array, above: jax.Array) -> jax.Array:
    tails = 2 * jnp.minimum(u, above)
    least = jnp.finfo(tails.dtype).tiny
    return normal_score(jnp.maximum(1 - tails, least), jnp.maximum(tails, least))


@struct
class NumberStatistics(Readable):
    """Location, spread and others of numbers.

    Args:
        knows_moments: whether U of every target is one number, and uniform; else moments are
            those of draws.
        parts: what the statistics are, location and spread first.
        is_turned: whether there is also what tests the spread of dependent rows.
    """

    knows_moments: bool = static()
    parts: list[LineStatistic]
    is_turned: bool = static(default=False)

    #: A number says as much as a fair coin, whether it is above the median.
    unit_of_variance = 0.25

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for part in self.parts for name in part.names)

    @property
    def most_multiplied(self) -> tuple[float, ...]:
        return tuple(most for part in self._parts for most in part.most_multiplied)

    @property
    def _parts(self) -> list[LineStatistic]:
        return [*self.parts, *([FoldedScores()] if self.is_turned else [])]

    @property
    def turned(self) -> tuple[int, ...]:
        if not self.is_turned:
            return super().turned
        # The last residual stands for the spread.
        are_symmetric = [part.is_symmetric for part in self.parts for _ in part.names]
        others = (i if are_symmetric[i] else -1 for i in range(2, len(are_symmetric)))
        return (0, len(are_symmetric), *others)

    def values(
        self, predictions: Distribution, targets: PyTree, others: PyTree = None
    ) -> jax.Array:
        """``[n, D, J]`` for targets ``[n, D]``, or for PITs of targets and draws."""
        if isinstance(targets, DrawnPIT):
            return targets.values(self._of_intervals, self._of_points)
        if not isinstance(targets, UnitInterval):
            targets = jax.vmap(lambda y: unit_interval(predictions, y), 1, 1)(targets)
        return of_intervals(predictions, targets, self._of_intervals)

    def _of_intervals(self, interval: UnitInterval) -> jax.Array:
        return jnp.concatenate([x.of_intervals(interval) for x in self._parts], axis=-1)

    def _of_points(self, u: jax.Array, above: jax.Array) -> jax.Array:
        return jnp.concatenate([x.of_points(u, above) for x in self._parts], axis=-1)

    def moments(self, predictions: Distribution, residuals: jax.Array) -> RowMoments:
        squares = jnp.square(bounded(residuals[:, 0], self.most_multiplied))
        known = np.concatenate([x.uniform_moments() for x in self._parts], axis=1)
        second, third, predicted = (
            jnp.broadcast_to(x, squares.shape) for x in known.astype(squares.dtype)
        )
        if not self.knows_moments:
            second, third = (jnp.mean(residuals[:, 1:] ** k, axis=1) for k in (2, 3))
        return RowMoments(second, third, squares, predicted)

    def around_mean(self, sums: jax.Array, variance: jax.Array, known: jax.Array) -> jax.Array:
        """The spread around the segment's own location d, whose square a shift of all adds to it.

        The estimate of d^2 has the mean 0 under H0.
        """
        known = jnp.where(known > 0, known, 1.0)[:, None]
        squared_shift = (jnp.square(sums[..., 0]) - variance[:, None, 0]) / known[..., 0] ** 2
        return sums.at[..., 1].add(-known[..., 1] * squared_shift / math.sqrt(2))


def has_statistics(predictions: Distribution) -> bool:
    """Whether the family has statistics: it is of labels, counts or numbers."""
    return predictions.is_ordered or isinstance(predictions, Labels)


def statistics_of(
    predictions: Distribution, is_exact: bool = True, is_turned: bool = False
) -> Readable:
    """The statistics for a family.

    `is_exact` says whether all targets are known, and `is_turned` whether sums are turned.
    """
    if predictions.is_ordered:
        coverage = Coverage(*central_interval(pit_partition(predictions)))
        knows_moments = is_exact and not has_atoms(predictions)
        return NumberStatistics(knows_moments, [LocationAndSpread(), coverage], is_turned)
    n_classes = predictions.n_labels or 0
    if n_classes <= 2:
        return EventStatistics()
    return ClassStatistics(n_classes if n_classes <= _MOST_CLASSES else 0)


def central_interval(partition: int | tuple[float, ...] | None) -> tuple[float, float]:
    """The ends of a central interval: of quantiles the two levels nearest to those of 90 %."""
    if not isinstance(partition, tuple):
        return _CENTRAL
    low, high = (min(partition, key=lambda level: abs(level - end)) for end in _CENTRAL)
    return (low, high) if low < high else (partition[0], partition[-1])
