r"""What is tested of a segment: residuals of rows that a person can read, with mean 0 under H0.

**Events** (two classes), with the residual r = y - p:

- rate: r;
- sureness: r (l - c) with the logit l of p and the centre c = sum w^2 v l / sum w^2 v of the
  segment, v = p (1 - p).  It is the derivative of the log likelihood in the slope of logits, and
  under the model it is not correlated with the rate.

**Classes**, with the indicators e of the target and its probabilities p:

- the frequency of each class, e_c - p_c, of up to 20 classes;
- top label: whether the most probable class came, minus its probability;
- sureness: log p_y - E log p_Y, the derivative of the log likelihood in the inverse temperature.

**Numbers**, counts and ordered classes, with the normal score z of U = F(y):

- location: z;
- spread: (z^2 - 1) / sqrt(2);
- coverage: whether U is in [0.05, 0.95], minus 0.9.

Of an interval of U, each is the mean over the interval.
"""

import math
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._distribution import Distribution
from calibjax._numbers import UnitInterval
from calibjax._sharding import Axis, all_sum
from calibjax._struct import static, struct
from calibjax.features import DrawnPlaces
from calibjax.kernels import UnitFeature

# Each class of more classes is not tested by itself.
_MOST_CLASSES = 20
# The nominal coverage of the central interval.
COVERAGE = 0.9
_NORMAL_SCORES = UnitFeature(np.ones(2, np.float32), "normal scores", (1, 2))


#: Targets ``[n, D]``, their intervals of the unit line, or the places of targets and draws.
Sets = jax.Array | UnitInterval | DrawnPlaces


class RowMoments(NamedTuple):
    """Moments of the residuals of each row under the model, and squares of the observed ones.

    Args:
        second: what the variances of the J statistics are made of, ``[n, A]``.
        third: what their third moments are made of, ``[n, B]``.
        squares: as `second`, of the observed residuals.
        predicted: what is predicted of an observed mean, ``[n, J]``.
    """

    second: jax.Array
    third: jax.Array
    squares: jax.Array
    predicted: jax.Array


@struct
class EventStatistics:
    """Rate and sureness of events.

    Args:
        middle: the mean logit of all rows, from which logits are counted: sums keep more digits.
    """

    middle: jax.Array

    names: ClassVar = ("rate", "sureness")
    n_residuals: ClassVar = 2
    #: Whether moments are known without draws.
    knows_moments: ClassVar = True
    #: The statistic whose variance says how many events a segment has, for each statistic.
    measured_by: ClassVar = (0, 0)
    unit_of_variance: ClassVar = 1.0

    def residuals(self, predictions: Distribution, labels: Sets) -> jax.Array:
        """r and r l for labels ``[n, D]``, ``[n, D, 2]``."""
        assert not isinstance(labels, UnitInterval | DrawnPlaces)
        p, logits = _probability_and_logit(predictions)
        r = (labels == 1).astype(p.dtype) - p[:, None]
        return jnp.stack([r, r * (logits - self.middle)[:, None]], axis=2)

    def moments(self, predictions: Distribution, residuals: jax.Array) -> RowMoments:
        p, logits = _probability_and_logit(predictions)
        powers = jnp.stack([(logits - self.middle) ** k for k in range(4)], axis=1)
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


# In units of the precision of the dtype.
_ROUNDING = 64


class _Uncentred:
    """Statistics that are sums of residuals."""

    def centres(self, second: jax.Array) -> jax.Array:
        return jnp.zeros(second.shape[0], second.dtype)

    def centred(self, sums: jax.Array, c: jax.Array) -> jax.Array:
        return sums

    def squares(self, x: jax.Array, c: jax.Array) -> jax.Array:
        return x

    def cubes(self, x: jax.Array, c: jax.Array) -> jax.Array:
        return x


@struct
class ClassStatistics(_Uncentred):
    """Frequencies of classes, of the most probable one, and sureness.

    Args:
        n_classes: m.
    """

    n_classes: int = static()

    knows_moments: ClassVar = True
    unit_of_variance: ClassVar = 1.0

    @property
    def has_classes(self) -> bool:
        """Whether each class is tested."""
        return self.n_classes <= _MOST_CLASSES

    @property
    def names(self) -> tuple[str, ...]:
        classes = [f"class {c}" for c in range(self.n_classes)] if self.has_classes else []
        return (*classes, "top label", "sureness")

    @property
    def n_residuals(self) -> int:
        return len(self.names)

    @property
    def measured_by(self) -> tuple[int, ...]:
        top = len(self.names) - 2
        return (*range(top), top, top)

    def residuals(self, predictions: Distribution, labels: Sets) -> jax.Array:
        """``[n, D, J]`` for labels ``[n, D]``."""
        assert not isinstance(labels, UnitInterval | DrawnPlaces)
        p, log_p, mean = _probabilities_and_logs(predictions)
        top = jnp.argmax(p, axis=1).astype(labels.dtype)
        is_top = (labels == top[:, None]).astype(p.dtype) - jnp.max(p, axis=1)[:, None]
        sureness = jnp.take_along_axis(log_p, labels, axis=1) - mean[:, None]
        found = jnp.stack([is_top, sureness], axis=2)
        if not self.has_classes:
            return found
        indicators = jax.nn.one_hot(labels, self.n_classes, dtype=p.dtype)
        return jnp.concatenate([indicators - p[:, None], found], axis=2)

    def moments(self, predictions: Distribution, residuals: jax.Array) -> RowMoments:
        p, log_p, mean = _probabilities_and_logs(predictions)
        events = jnp.max(p, axis=1, keepdims=True)
        if self.has_classes:
            events = jnp.concatenate([p, events], axis=1)
        deviations = log_p - mean[:, None]
        second, third = (
            jnp.concatenate([of_events, jnp.sum(p * deviations**k, axis=1, keepdims=True)], axis=1)
            for k, of_events in (
                (2, events * (1 - events)),
                (3, events * (1 - events) * (1 - 2 * events)),
            )
        )
        predicted = jnp.concatenate([events, jnp.ones_like(events[:, :1])], axis=1)
        return RowMoments(second, third, jnp.square(residuals[:, 0]), predicted)


@struct
class NumberStatistics(_Uncentred):
    """Location, spread and coverage of numbers.

    Args:
        knows_moments: whether U of every target is one number, and uniform; else moments are
            those of draws.
    """

    knows_moments: bool = static()

    names: ClassVar = ("location", "spread", "coverage")
    n_residuals: ClassVar = 3
    measured_by: ClassVar = (0, 0, 0)
    #: A number says as much as a fair coin, whether it is above the median.
    unit_of_variance: ClassVar = 0.25

    def residuals(self, predictions: Distribution, sets: Sets) -> jax.Array:
        """``[n, D, 3]`` for targets ``[n, D]``, or for places of targets and draws."""
        if not isinstance(sets, UnitInterval | DrawnPlaces):
            sets = jax.vmap(predictions.unit_interval, 1, 1)(sets)
        if isinstance(sets, UnitInterval):
            return _of_intervals(sets)
        observed = _of_intervals(sets.observed)[:, None]
        if isinstance(sets.drawn, UnitInterval):
            drawn = _of_intervals(sets.drawn)
        else:
            drawn = _of_points(*sets.drawn)
        if sets.hidden is not None:
            of_hidden = _of_intervals(sets.hidden.interval)[:, None]
            drawn = jnp.where(sets.hidden.contains[..., None], of_hidden, drawn)
        return jnp.concatenate([observed, drawn], axis=1)

    def moments(self, predictions: Distribution, residuals: jax.Array) -> RowMoments:
        """The residuals are those of many draws behind the observed ones, ``[n, 1 + D, 3]``."""
        squares, drawn = jnp.square(residuals[:, 0]), residuals[:, 1:]
        second, third = jnp.mean(jnp.square(drawn), axis=1), jnp.mean(drawn**3, axis=1)
        if self.knows_moments:
            of_coverage = COVERAGE * (1 - COVERAGE)
            known = jnp.array([1.0, 1.0, of_coverage], squares.dtype)
            cubes = [0.0, math.sqrt(8), of_coverage * (1 - 2 * COVERAGE)]
            second = jnp.broadcast_to(known, squares.shape)
            third = jnp.broadcast_to(jnp.array(cubes, squares.dtype), squares.shape)
        predicted = jnp.array([0.0, 1.0, COVERAGE], squares.dtype)
        return RowMoments(second, third, squares, jnp.broadcast_to(predicted, squares.shape))


#: The statistics of a family.
Statistics = EventStatistics | ClassStatistics | NumberStatistics


def _of_intervals(interval: UnitInterval) -> jax.Array:
    """The three residuals of intervals, behind their axes."""
    half, width = (1 - COVERAGE) / 2, interval.width()
    inside = jnp.minimum(interval.high, 1 - half) - jnp.maximum(interval.low, half)
    is_point = width <= 0
    share = jnp.clip(inside / jnp.where(is_point, 1.0, width), 0.0, 1.0)
    share = jnp.where(is_point, (inside >= 0).astype(share.dtype), share)
    scores = _NORMAL_SCORES.of_intervals(interval)
    return jnp.concatenate([scores, share[..., None] - COVERAGE], axis=-1)


def _of_points(u: jax.Array, above: jax.Array) -> jax.Array:
    """The three residuals of points u of the unit line, behind their axes; above = 1 - u."""
    half = (1 - COVERAGE) / 2
    inside = ((u >= half) & (above >= half)).astype(u.dtype) - COVERAGE
    return jnp.concatenate([_NORMAL_SCORES.of_points(u, above), inside[..., None]], axis=-1)


def _probability_and_logit(predictions: Distribution) -> tuple[jax.Array, jax.Array]:
    """P(Y = 1) and its logit, which is finite, ``[n]``."""
    probabilities = predictions.label_probabilities()
    p = probabilities[:, 1] / jnp.sum(probabilities, axis=1)
    least = jnp.finfo(p.dtype).tiny
    other = probabilities[:, 0] / jnp.sum(probabilities, axis=1)
    return p, jnp.log(jnp.maximum(p, least)) - jnp.log(jnp.maximum(other, least))


def _probabilities_and_logs(
    predictions: Distribution,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Probabilities and their finite logs ``[n, m]``, and the means of the logs ``[n]``."""
    probabilities = predictions.label_probabilities()
    p = probabilities / jnp.sum(probabilities, axis=1, keepdims=True)
    log_p = jnp.log(jnp.maximum(p, jnp.finfo(p.dtype).tiny))
    return p, log_p, jnp.sum(p * log_p, axis=1)


def statistics_of(
    predictions: Distribution, weights: jax.Array, is_exact: bool, axis: Axis
) -> Statistics:
    """The statistics for a family; `is_exact` says whether all targets are known."""
    if predictions.is_ordered:
        return NumberStatistics(is_exact and not predictions.has_atoms)
    n_classes = _n_classes(predictions)
    if n_classes > 2:
        return ClassStatistics(n_classes)
    p, logits = _probability_and_logit(predictions)
    variance = weights * p * (1 - p)
    total, sums = all_sum((jnp.sum(variance), jnp.sum(variance * logits)), axis)
    return EventStatistics(sums / jnp.where(total > 0, total, 1.0))


def names_of_statistics(predictions: Distribution) -> tuple[str, ...]:
    """What the statistics for a family are called."""
    if predictions.is_ordered:
        return NumberStatistics.names
    n_classes = _n_classes(predictions)
    return ClassStatistics(n_classes).names if n_classes > 2 else EventStatistics.names


def _n_classes(predictions: Distribution) -> int:
    probabilities = jax.eval_shape(lambda p: p.label_probabilities(), predictions)
    return int(probabilities.shape[1])
