r"""The statistics of segments: residuals of rows that a person can read, with mean 0 under H0.

**Events** (two classes), with the residual r = y - p:

- rate: r;
- calibration slope: r (l - c) with the logit l of p and the centre c = sum w^2 v l / sum w^2 v of
  the segment, v = p (1 - p).  It is the derivative of the log likelihood in the slope of logits,
  and under the model it is not correlated with the rate.  Logits count as no further from their
  mean over all rows than 2 deviations, both weighted by v: a wrong row at p = 1 is not all there
  is.

**Classes**, with the indicators e of the target and its probabilities p:

- the frequency of each class, e_c - p_c, of up to 20 classes;
- top label: whether the most probable class came, minus its probability;
- calibration slope: log p_y - E log p_Y, the derivative of the log likelihood in the inverse
  temperature, where log p - E log p is cut off at -2 deviations of all rows, each row weighted as
  for events by the variance of its most probable class.

**Numbers**, counts and ordered classes, with the normal score z of U = F(y):

- location: z;
- spread: (z^2 - 1) / sqrt(2), whose sum is taken around the location of the segment: with the sum
  S, the variance V and the information I of the location, and I' of the spread, it loses
  I' (S^2 - V) / (sqrt(2) I^2), which is what a shift alone would add.  Then targets that are only
  shifted are no sign of a wrong spread;
- coverage: whether U is in [0.05, 0.95], minus 0.9; of quantiles the two levels that are
  nearest to 0.05 and 0.95 stand for them.

Of an interval of U, each is the mean over the interval.
"""

import math
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._base.sharding import Axis, all_sum
from calibjax._base.struct import static, struct
from calibjax._data.distribution import Distribution, Labels, as_labels
from calibjax._numbers.unit_interval import UnitInterval
from calibjax.kernels import UnitFeature
from calibjax.residuals.pit import DrawnPIT

# Each class of more classes is not tested by itself.
_MOST_CLASSES = 20
# In units of the precision of the dtype.
_ROUNDING = 64
# Logits count as no further from their mean than so many of their deviations, both weighted by the
# variances of the targets.  The logit of a wrong row at p = 1 is infinite: the row would be all
# that a segment says, and its multipliers would hide all other segments.
_MOST_DEVIATIONS = 2.0
# The ends of the central interval whose coverage is counted.
_CENTRAL = 0.05, 0.95
# A target at an end of the unit line counts as one that is so far from it.
_LEAST_PIT = 1e-5
# The largest normal score that is multiplied.  Larger ones are too rare under H0 to matter, and a
# few targets that are nearly impossible would leave nothing else beyond chance.
_MOST_SCORE = 3.0
_NORMAL_SCORES = UnitFeature(np.ones(2, np.float32), "normal scores", (1, 2))

#: Targets ``[n, D]``, their intervals of the unit line, or the PITs of targets and draws.
Sets = jax.Array | UnitInterval | DrawnPIT


class RowMoments(NamedTuple):
    """Moments of the residuals of each row under the model, and squares of the observed ones.

    Args:
        second: what the variances of the J statistics are made of, ``[n, A]``.
        third: what their third moments are made of, ``[n, B]``.
        squares: as `second`, of the observed residuals as they are multiplied.
        predicted: what is predicted of an observed mean, ``[n, J]``.
    """

    second: jax.Array
    third: jax.Array
    squares: jax.Array
    predicted: jax.Array


def bounded(residuals: jax.Array, most: float | tuple[float, ...]) -> jax.Array:
    """Residuals ``[…, K]``, no larger than `most` of each statistic."""
    limit = jnp.broadcast_to(jnp.asarray(most, residuals.dtype), residuals.shape)
    return jnp.clip(residuals, -limit, limit)


class Uncentred:
    """Statistics that are sums of residuals."""

    unit_of_variance: ClassVar = 1.0
    #: Observed residuals are no larger where they have multipliers.
    most_multiplied: ClassVar[float | tuple[float, ...]] = np.inf

    def centres(self, second: jax.Array) -> jax.Array:
        return jnp.zeros(second.shape[0], second.dtype)

    def centred(self, sums: jax.Array, c: jax.Array) -> jax.Array:
        return sums

    def squares(self, x: jax.Array, c: jax.Array) -> jax.Array:
        return x

    def cubes(self, x: jax.Array, c: jax.Array) -> jax.Array:
        return x

    def around_mean(self, sums: jax.Array, variance: jax.Array, known: jax.Array) -> jax.Array:
        return sums


@struct
class EventStatistics(Uncentred):
    """Rate and calibration slope of events.

    Args:
        middle: the mean logit of all rows, from which logits are counted: sums keep more digits.
        most: the largest distance from it that counts.
    """

    middle: jax.Array
    most: jax.Array

    names: ClassVar = ("rate", "calibration slope")
    n_residuals: ClassVar = 2
    #: Whether moments are known without draws.
    knows_moments: ClassVar = True
    #: The statistic whose variance says how many events a segment has, for each statistic.
    measured_by: ClassVar = (0, 0)

    def residuals(self, predictions: Distribution, labels: Sets) -> jax.Array:
        """r and r l for labels ``[n, D]``, ``[n, D, 2]``."""
        assert not isinstance(labels, UnitInterval | DrawnPIT)
        p, distances = self._probability_and_distance(predictions)
        r = (labels == 1).astype(p.dtype) - p[:, None]
        return jnp.stack([r, r * distances[:, None]], axis=2)

    def moments(self, predictions: Distribution, residuals: jax.Array) -> RowMoments:
        p, distances = self._probability_and_distance(predictions)
        powers = jnp.stack([distances**k for k in range(4)], axis=1)
        variance = p * (1 - p)
        third = variance * (1 - 2 * p)
        squares = jnp.square(residuals[:, 0, 0])
        return RowMoments(
            variance[:, None] * powers[:, :3],
            third[:, None] * powers,
            squares[:, None] * powers[:, :3],
            jnp.stack([p, jnp.ones_like(p)], axis=1),
        )

    def centres(self, second: jax.Array) -> jax.Array:
        """c of each segment, from the sums of w^2 `second` ``[S, 3]``."""
        variance = second[:, 0]
        return second[:, 1] / jnp.where(variance > 0, variance, 1.0)

    def centred(self, sums: jax.Array, c: jax.Array) -> jax.Array:
        """The two statistics, from sums of residuals ``[S, D, 2]``."""
        rate, slope = sums[..., 0], sums[..., 1]
        return jnp.stack([rate, slope - c[:, None] * rate], axis=2)

    def squares(self, x: jax.Array, c: jax.Array) -> jax.Array:
        """Sums of squares of both statistics ``[S, 2]``, from sums of `second` ``[S, 3]``."""
        of_slope = x[:, 2] - 2 * c * x[:, 1] + c**2 * x[:, 0]
        # Rounding leaves a little where all logits are equal.
        rounding = _ROUNDING * jnp.finfo(x.dtype).eps * (x[:, 2] + c**2 * x[:, 0])
        return jnp.stack([x[:, 0], jnp.where(of_slope > rounding, of_slope, 0.0)], axis=1)

    def cubes(self, x: jax.Array, c: jax.Array) -> jax.Array:
        """Sums of cubes of both statistics ``[S, 2]``, from sums of `third` ``[S, 4]``."""
        of_slope = x[:, 3] - 3 * c * x[:, 2] + 3 * c**2 * x[:, 1] - c**3 * x[:, 0]
        return jnp.stack([x[:, 0], of_slope], axis=1)

    def _probability_and_distance(self, predictions: Distribution) -> tuple[jax.Array, jax.Array]:
        """P(Y = 1), and how far its logit is from the middle, ``[n]``."""
        p, logits = probability_and_logit(as_labels(predictions))
        return p, jnp.clip(logits - self.middle, -self.most, self.most)


@struct
class ClassStatistics(Uncentred):
    """Frequencies of classes, of the most probable one, and calibration slope.

    Args:
        n_tested: how many classes are tested by themselves, m or 0.
        most: a target's log probability counts as no further below its mean.
    """

    n_tested: int = static()
    most: jax.Array

    knows_moments: ClassVar = True

    @property
    def n_residuals(self) -> int:
        return self.n_tested + 2

    @property
    def measured_by(self) -> tuple[int, ...]:
        return (*range(self.n_tested), self.n_tested, self.n_tested)

    def residuals(self, predictions: Distribution, labels: Sets) -> jax.Array:
        """``[n, D, J]`` for labels ``[n, D]``."""
        assert not isinstance(labels, UnitInterval | DrawnPIT)
        p, deviations = self._probabilities_and_deviations(predictions)
        top = jnp.argmax(p, axis=1).astype(labels.dtype)
        is_top = (labels == top[:, None]).astype(p.dtype) - jnp.max(p, axis=1)[:, None]
        slope = jnp.take_along_axis(deviations, labels, axis=1)
        found = jnp.stack([is_top, slope], axis=2)
        if not self.n_tested:
            return found
        indicators = jax.nn.one_hot(labels, self.n_tested, dtype=p.dtype)
        return jnp.concatenate([indicators - p[:, None], found], axis=2)

    def moments(self, predictions: Distribution, residuals: jax.Array) -> RowMoments:
        p, deviations = self._probabilities_and_deviations(predictions)
        events = jnp.max(p, axis=1, keepdims=True)
        if self.n_tested:
            events = jnp.concatenate([p, events], axis=1)
        second, third = (
            jnp.concatenate([of_events, jnp.sum(p * deviations**k, axis=1, keepdims=True)], axis=1)
            for k, of_events in (
                (2, events * (1 - events)),
                (3, events * (1 - events) * (1 - 2 * events)),
            )
        )
        predicted = jnp.concatenate([events, jnp.ones_like(events[:, :1])], axis=1)
        return RowMoments(second, third, jnp.square(residuals[:, 0]), predicted)

    def _probabilities_and_deviations(
        self, predictions: Distribution
    ) -> tuple[jax.Array, jax.Array]:
        """Probabilities, and the deviations of their logs, of mean 0 in each row, ``[n, m]``."""
        p, deviations = _probabilities_and_deviations(as_labels(predictions))
        deviations = jnp.maximum(deviations, -self.most)
        return p, deviations - jnp.sum(p * deviations, axis=1, keepdims=True)


def event_statistics(predictions: Distribution, weights: jax.Array, axis: Axis) -> EventStatistics:
    """With the mean and the deviation of the logits of all rows."""
    p, logits = probability_and_logit(as_labels(predictions))
    v = weights * p * (1 - p)
    middle = _ratio(*all_sum((jnp.sum(v * logits), jnp.sum(v)), axis))
    square = _ratio(*all_sum((jnp.sum(v * (logits - middle) ** 2), jnp.sum(v)), axis))
    return EventStatistics(middle, _MOST_DEVIATIONS * jnp.sqrt(square))


def class_statistics(predictions: Distribution, weights: jax.Array, axis: Axis) -> ClassStatistics:
    """With the deviation of the log probabilities of all rows; of two classes, of their logits."""
    p, deviations = _probabilities_and_deviations(as_labels(predictions))
    top = jnp.max(p, axis=1)
    squares = weights * jnp.sum(p * deviations**2, axis=1)
    sums = jnp.sum(squares), jnp.sum(weights * top * (1 - top))
    n_tested = p.shape[1] if p.shape[1] <= _MOST_CLASSES else 0
    return ClassStatistics(n_tested, _MOST_DEVIATIONS * jnp.sqrt(_ratio(*all_sum(sums, axis))))


def probability_and_logit(predictions: Labels) -> tuple[jax.Array, jax.Array]:
    """P(Y = 1) and its logit, which is finite, ``[n]``."""
    probabilities = predictions.label_probabilities()
    p = probabilities[:, 1] / jnp.sum(probabilities, axis=1)
    least = jnp.finfo(p.dtype).tiny
    other = probabilities[:, 0] / jnp.sum(probabilities, axis=1)
    return p, jnp.log(jnp.maximum(p, least)) - jnp.log(jnp.maximum(other, least))


def _probabilities_and_deviations(predictions: Labels) -> tuple[jax.Array, jax.Array]:
    """Probabilities, and their finite logs minus the mean of these, ``[n, m]``."""
    probabilities = predictions.label_probabilities()
    p = probabilities / jnp.sum(probabilities, axis=1, keepdims=True)
    log_p = jnp.log(jnp.maximum(p, jnp.finfo(p.dtype).tiny))
    return p, log_p - jnp.sum(p * log_p, axis=1, keepdims=True)


def _ratio(x: jax.Array, y: jax.Array) -> jax.Array:
    return x / jnp.where(y > 0, y, 1.0)


@struct
class NumberStatistics(Uncentred):
    """Location, spread and coverage of numbers.

    Args:
        knows_moments: whether U of every target is one number, and uniform; else moments are
            those of draws.
        central: the ends of the central interval of U.
    """

    knows_moments: bool = static()
    central: tuple[float, float] = static(_CENTRAL)

    names: ClassVar = ("location", "spread", "coverage")
    n_residuals: ClassVar = 3
    measured_by: ClassVar = (0, 0, 0)
    #: A number says as much as a fair coin, whether it is above the median.
    unit_of_variance: ClassVar = 0.25
    most_multiplied: ClassVar = (_MOST_SCORE, (_MOST_SCORE**2 - 1) / math.sqrt(2), 1.0)

    @property
    def coverage(self) -> float:
        """The probability of the central interval."""
        return self.central[1] - self.central[0]

    def residuals(self, predictions: Distribution, sets: Sets) -> jax.Array:
        """``[n, D, 3]`` for targets ``[n, D]``, or for PITs of targets and draws."""
        if not isinstance(sets, UnitInterval | DrawnPIT):
            sets = jax.vmap(predictions.unit_interval, 1, 1)(sets)
        if isinstance(sets, UnitInterval):
            return self._of_intervals(sets)
        return sets.values(self._of_intervals, self._of_points)

    def moments(self, predictions: Distribution, residuals: jax.Array) -> RowMoments:
        """The residuals are those of many draws behind the observed ones, ``[n, 1 + D, 3]``."""
        drawn = residuals[:, 1:]
        squares = jnp.square(bounded(residuals[:, 0], self.most_multiplied))
        second, third = jnp.mean(jnp.square(drawn), axis=1), jnp.mean(drawn**3, axis=1)
        if self.knows_moments:
            of_coverage = self.coverage * (1 - self.coverage)
            known = jnp.array([1.0, 1.0, of_coverage], squares.dtype)
            cubes = [0.0, math.sqrt(8), of_coverage * (1 - 2 * self.coverage)]
            second = jnp.broadcast_to(known, squares.shape)
            third = jnp.broadcast_to(jnp.array(cubes, squares.dtype), squares.shape)
        predicted = jnp.array([0.0, 1.0, self.coverage], squares.dtype)
        return RowMoments(second, third, squares, jnp.broadcast_to(predicted, squares.shape))

    def around_mean(self, sums: jax.Array, variance: jax.Array, known: jax.Array) -> jax.Array:
        """The spread around the segment's own location d, whose square a shift of all adds to it.

        The estimate of d^2 has the mean 0 under H0.
        """
        known = jnp.where(known > 0, known, 1.0)[:, None]
        squared_shift = (jnp.square(sums[..., 0]) - variance[:, None, 0]) / known[..., 0] ** 2
        return sums.at[..., 1].add(-known[..., 1] * squared_shift / math.sqrt(2))

    def _of_intervals(self, interval: UnitInterval) -> jax.Array:
        """The three residuals of intervals, behind their axes."""
        (low, high), width = self.central, interval.width()
        inside = jnp.minimum(interval.high, high) - jnp.maximum(interval.low, low)
        is_point = width <= 0
        share = jnp.clip(inside / jnp.where(is_point, 1.0, width), 0.0, 1.0)
        share = jnp.where(is_point, (inside >= 0).astype(share.dtype), share)
        scores = _NORMAL_SCORES.of_intervals(interval)
        is_first, is_last = interval.high <= 0, interval.above_low <= 0
        scores = jnp.where((is_first | is_last)[..., None], _of_end(is_last), scores)
        return jnp.concatenate([scores, share[..., None] - self.coverage], axis=-1)

    def _of_points(self, u: jax.Array, above: jax.Array) -> jax.Array:
        """The three residuals of points u of the unit line, behind their axes; above = 1 - u."""
        low, high = self.central
        inside = ((u >= low) & (above >= 1 - high)).astype(u.dtype) - self.coverage
        return jnp.concatenate([_NORMAL_SCORES.of_points(u, above), inside[..., None]], axis=-1)


def central_interval(pieces: int | tuple[float, ...] | None) -> tuple[float, float]:
    """The ends of a central interval: of quantiles the two levels nearest to those of 90 %."""
    if not isinstance(pieces, tuple):
        return _CENTRAL
    low, high = (min(pieces, key=lambda level: abs(level - end)) for end in _CENTRAL)
    return (low, high) if low < high else (pieces[0], pieces[-1])


def _of_end(is_last: jax.Array) -> jax.Array:
    """Location and spread of targets at an end of the line, which the model called impossible.

    Their normal score is infinite: beside four of them hundreds of others would not be seen.
    """
    u = jnp.where(is_last, 1 - _LEAST_PIT, _LEAST_PIT)
    return _NORMAL_SCORES.of_points(u, jnp.where(is_last, _LEAST_PIT, 1 - _LEAST_PIT))


#: The statistics of a family.
Statistics = EventStatistics | ClassStatistics | NumberStatistics


def statistics_of(
    predictions: Distribution, weights: jax.Array, is_exact: bool, axis: Axis
) -> Statistics:
    """The statistics for a family; `is_exact` says whether all targets are known."""
    if predictions.is_ordered:
        return NumberStatistics(
            knows_moments=is_exact and not predictions.has_atoms,
            central=central_interval(predictions.pieces_of_pit),
        )
    make = class_statistics if (predictions.n_labels or 0) > 2 else event_statistics
    return make(predictions, weights, axis)


def names_of_statistics(predictions: Distribution) -> tuple[str, ...]:
    """What the statistics for a family are called."""
    if predictions.is_ordered:
        return NumberStatistics.names
    n_classes = predictions.n_labels or 0
    if n_classes <= 2:
        return EventStatistics.names
    classes = [f"class {c}" for c in range(n_classes)] if n_classes <= _MOST_CLASSES else []
    return (*classes, "top label", "calibration slope")
