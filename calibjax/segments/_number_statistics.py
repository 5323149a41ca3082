"""Residuals of numbers: location, spread and coverage."""

import math
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._distribution import Distribution
from calibjax._numbers import UnitInterval
from calibjax._struct import static, struct
from calibjax.features import DrawnPIT
from calibjax.kernels import UnitFeature
from calibjax.segments._row_moments import RowMoments, Sets, Uncentred, bounded

# The ends of the central interval whose coverage is counted.
_CENTRAL = 0.05, 0.95
# A target at an end of the unit line counts as one that is so far from it.
_LEAST_PLACE = 1e-5
# The largest normal score that is multiplied.  Larger ones are too rare under H0 to matter, and a
# few targets that are nearly impossible would leave nothing else beyond chance.
_MOST_SCORE = 3.0
_NORMAL_SCORES = UnitFeature(np.ones(2, np.float32), "normal scores", (1, 2))


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
    #: Observed residuals are no larger where they have multipliers.
    most_multiplied: ClassVar = (_MOST_SCORE, (_MOST_SCORE**2 - 1) / math.sqrt(2), 1.0)

    @property
    def coverage(self) -> float:
        """The probability of the central interval."""
        return self.central[1] - self.central[0]

    def residuals(self, predictions: Distribution, sets: Sets) -> jax.Array:
        """``[n, D, 3]`` for targets ``[n, D]``, or for places of targets and draws."""
        if not isinstance(sets, UnitInterval | DrawnPIT):
            sets = jax.vmap(predictions.unit_interval, 1, 1)(sets)
        if isinstance(sets, UnitInterval):
            return self._of_intervals(sets)
        observed = self._of_intervals(sets.observed)[:, None]
        if isinstance(sets.drawn, UnitInterval):
            drawn = self._of_intervals(sets.drawn)
        else:
            drawn = self._of_points(*sets.drawn)
        if sets.hidden is not None:
            of_hidden = self._of_intervals(sets.hidden.interval)[:, None]
            drawn = jnp.where(sets.hidden.contains[..., None], of_hidden, drawn)
        return jnp.concatenate([observed, drawn], axis=1)

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
    place = jnp.where(is_last, 1 - _LEAST_PLACE, _LEAST_PLACE)
    return _NORMAL_SCORES.of_points(place, jnp.where(is_last, _LEAST_PLACE, 1 - _LEAST_PLACE))
