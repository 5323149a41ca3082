"""Residuals of labels: rates and sureness of events, frequencies and sureness of classes."""

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._distribution import Distribution
from calibjax._numbers import UnitInterval
from calibjax._sharding import Axis, all_sum
from calibjax._struct import static, struct
from calibjax.features import DrawnPIT
from calibjax.segments._row_moments import RowMoments, Sets, Uncentred

# Each class of more classes is not tested by itself.
_MOST_CLASSES = 20
# In units of the precision of the dtype.
_ROUNDING = 64
# Logits count as no further from their mean than so many of their deviations, both weighted by the
# variances of the targets.  The logit of a wrong row at p = 1 is infinite: the row would be all
# that a segment says, and its multipliers would hide all other segments.
_MOST_DEVIATIONS = 2.0


@struct
class EventStatistics:
    """Rate and sureness of events.

    Args:
        middle: the mean logit of all rows, from which logits are counted: sums keep more digits.
        most: the largest distance from it that counts.
    """

    middle: jax.Array
    most: jax.Array

    names: ClassVar = ("rate", "sureness")
    n_residuals: ClassVar = 2
    #: Whether moments are known without draws.
    knows_moments: ClassVar = True
    #: The statistic whose variance says how many events a segment has, for each statistic.
    measured_by: ClassVar = (0, 0)
    unit_of_variance: ClassVar = 1.0
    #: Observed residuals are no larger where they have multipliers.
    most_multiplied: ClassVar = (np.inf, np.inf)

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

    def around_mean(self, sums: jax.Array, variance: jax.Array, known: jax.Array) -> jax.Array:
        return sums

    def _probability_and_distance(self, predictions: Distribution) -> tuple[jax.Array, jax.Array]:
        """P(Y = 1), and how far its logit is from the middle, ``[n]``."""
        p, logits = probability_and_logit(predictions)
        return p, jnp.clip(logits - self.middle, -self.most, self.most)


@struct
class ClassStatistics(Uncentred):
    """Frequencies of classes, of the most probable one, and sureness.

    Args:
        n_classes: m.
        most: a target's log probability counts as no further below its mean.
    """

    n_classes: int = static()
    most: jax.Array

    knows_moments: ClassVar = True
    unit_of_variance: ClassVar = 1.0
    most_multiplied: ClassVar = np.inf

    @property
    def has_classes(self) -> bool:
        """Whether each class is tested."""
        return self.n_classes <= _MOST_CLASSES

    @property
    def names(self) -> tuple[str, ...]:
        return names_of_classes(self.n_classes)

    @property
    def n_residuals(self) -> int:
        return len(self.names)

    @property
    def measured_by(self) -> tuple[int, ...]:
        top = len(self.names) - 2
        return (*range(top), top, top)

    def residuals(self, predictions: Distribution, labels: Sets) -> jax.Array:
        """``[n, D, J]`` for labels ``[n, D]``."""
        assert not isinstance(labels, UnitInterval | DrawnPIT)
        p, deviations = self._probabilities_and_deviations(predictions)
        top = jnp.argmax(p, axis=1).astype(labels.dtype)
        is_top = (labels == top[:, None]).astype(p.dtype) - jnp.max(p, axis=1)[:, None]
        sureness = jnp.take_along_axis(deviations, labels, axis=1)
        found = jnp.stack([is_top, sureness], axis=2)
        if not self.has_classes:
            return found
        indicators = jax.nn.one_hot(labels, self.n_classes, dtype=p.dtype)
        return jnp.concatenate([indicators - p[:, None], found], axis=2)

    def moments(self, predictions: Distribution, residuals: jax.Array) -> RowMoments:
        p, deviations = self._probabilities_and_deviations(predictions)
        events = jnp.max(p, axis=1, keepdims=True)
        if self.has_classes:
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
        p, deviations = _probabilities_and_deviations(predictions)
        deviations = jnp.maximum(deviations, -self.most)
        return p, deviations - jnp.sum(p * deviations, axis=1, keepdims=True)


def names_of_classes(n_classes: int) -> tuple[str, ...]:
    """What the statistics of so many classes are called."""
    classes = [f"class {c}" for c in range(n_classes)] if n_classes <= _MOST_CLASSES else []
    return (*classes, "top label", "sureness")


def event_statistics(predictions: Distribution, weights: jax.Array, axis: Axis) -> EventStatistics:
    """With the mean and the deviation of the logits of all rows."""
    p, logits = probability_and_logit(predictions)
    v = weights * p * (1 - p)
    middle = _ratio(*all_sum((jnp.sum(v * logits), jnp.sum(v)), axis))
    square = _ratio(*all_sum((jnp.sum(v * (logits - middle) ** 2), jnp.sum(v)), axis))
    return EventStatistics(middle, _MOST_DEVIATIONS * jnp.sqrt(square))


def class_statistics(predictions: Distribution, weights: jax.Array, axis: Axis) -> ClassStatistics:
    """With the deviation of the log probabilities of all rows; of two classes, of their logits."""
    p, deviations = _probabilities_and_deviations(predictions)
    top = jnp.max(p, axis=1)
    squares = weights * jnp.sum(p * deviations**2, axis=1)
    sums = jnp.sum(squares), jnp.sum(weights * top * (1 - top))
    return ClassStatistics(p.shape[1], _MOST_DEVIATIONS * jnp.sqrt(_ratio(*all_sum(sums, axis))))


def probability_and_logit(predictions: Distribution) -> tuple[jax.Array, jax.Array]:
    """P(Y = 1) and its logit, which is finite, ``[n]``."""
    probabilities = predictions.label_probabilities()
    p = probabilities[:, 1] / jnp.sum(probabilities, axis=1)
    least = jnp.finfo(p.dtype).tiny
    other = probabilities[:, 0] / jnp.sum(probabilities, axis=1)
    return p, jnp.log(jnp.maximum(p, least)) - jnp.log(jnp.maximum(other, least))


def _probabilities_and_deviations(predictions: Distribution) -> tuple[jax.Array, jax.Array]:
    """Probabilities, and their finite logs minus the mean of these, ``[n, m]``."""
    probabilities = predictions.label_probabilities()
    p = probabilities / jnp.sum(probabilities, axis=1, keepdims=True)
    log_p = jnp.log(jnp.maximum(p, jnp.finfo(p.dtype).tiny))
    return p, log_p - jnp.sum(p * log_p, axis=1, keepdims=True)


def _ratio(x: jax.Array, y: jax.Array) -> jax.Array:
    return x / jnp.where(y > 0, y, 1.0)
