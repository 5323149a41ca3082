"""Interval-censored targets, of which only an interval is known: censored, rounded or binned.

If a forecast F is right, U = F(Y) is uniform.  If low < Y <= high, U lies between F(low) and
F(high), and given that it is uniform there.  So functions of U with mean 0 have the mean 0 over
what is observed, whatever hides the target, if only that is independent of the target given the
forecast.
"""

from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from calibjax._base.check import check_array, check_shapes
from calibjax._base.sharding import Axis, all_max
from calibjax._base.struct import (
    PyTree,
    is_floating,
    is_traced,
    struct,
    widened,
    widened_integers,
    widest_dtype,
)
from calibjax._data.capabilities import OwnPIT, restricted
from calibjax._data.distribution import Distribution
from calibjax._numbers.unit_interval import UnitInterval
from calibjax._numbers.validity import is_finite

#: One end of all ranges, an array ``[n]`` of NumPy or of jax, or None.
Ends = Any
#: What a value is called, the value, its condition in words, and which rows satisfy it.
Condition = tuple[str, jax.Array, str, jax.Array]


@struct
class IntervalCensored:
    """Targets y of which only low < y <= high is known.

    A row with low == high is an exact target.  An end is open where low = -inf or high = inf.
    Censored, rounded and binned targets are rows of this kind:

    ====================================  =========  =========
    what is known                         low        high
    ====================================  =========  =========
    y itself                              y          y
    y > c, censored on the right          c          inf
    y <= c, censored on the left          -inf       c
    y in one of several bins, c < y <= d  c          d
    y, rounded to r with a step of s      r - s / 2  r + s / 2
    ====================================  =========  =========

    `log_score`, `pit_interval`, `pit_curve` and `evaluate` take them instead of an array; so does,
    with a `PITKernel` as in `default_kernel`, what estimates or tests the SKCE without drawing
    targets: `skce`, `contributions`, `skce_confidence_interval`, `compare_calibration`,
    `calibration_test` and others.  No distribution of what hides a target has to be known: if it is
    independent of the target given the forecast, the unbiased SKCE of calibrated forecasts is still
    0 on average.

    Args:
        low: lower ends ``[n]``, in units of the targets.  For counts and ordered classes they are
            whole numbers, as integers or, with open ends, as floating-point numbers.
        high: upper ends ``[n]``, each a possible target or inf.  An end that is too close to low
            for the digits of its dtype makes the target exact.
        censored_at: when each row would be censored on the right, ``[n]``, or None if that is not
            known; `right_censored` takes it.

    Where `censored_at` is known of all rows, also of those with an event, tests redraw the targets,
    hide them as the rows would be hidden, and are exact.  Else they are a wild bootstrap of the
    observed residuals, which needs no distribution of the censoring, and are right for large n.

    Predictions are single numbers with a cdf: no vectors, no `Quantiles`, which do not say where
    between two levels a target was hidden, and no `Empirical` without weights, whose rank among
    the targets is not known.

    Raises:
        TypeError, ValueError: at its use, ends that are not arrays of numbers of shape ``[n]``,
            NaN, low above high, and ends that are not possible targets.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Weibull(jnp.ones(3), jnp.ones(3))
        >>> low, high = jnp.array([0.5, 1.0, -jnp.inf]), jnp.array([0.5, jnp.inf, 1.0])
        >>> targets = cj.IntervalCensored(low, high)
        >>> low, high = cj.pit_interval(predictions, targets)
        >>> low.round(3).tolist(), high.round(3).tolist()
        ([0.393, 0.632, 0.0], [0.393, 1.0, 0.632])

    Reference: Turnbull, The empirical distribution function with arbitrarily grouped, censored and
    truncated data, Journal of the Royal Statistical Society B 1976.
    """

    low: Ends
    high: Ends
    censored_at: Ends = None

    @classmethod
    def right_censored(
        cls, time: ArrayLike, observed: ArrayLike, censored_at: ArrayLike | None = None
    ) -> Self:
        """Times of events, and of the last sight of what had no event until then.

        Arguments are arrays, lists or columns of a frame.

        Args:
            time: ``[n]``, in units of the targets.
            observed: ``[n]``, True or 1 where y = time, False or 0 where only y > time is known;
                inside jit booleans.
            censored_at: when each row is or would have been censored, ``[n]``, such as the end of a
                study; inf if never, and None if that is not known of all rows.

        Raises:
            TypeError, ValueError: an argument of the wrong type, or of another shape; observed
                holds other numbers.

        Example:
            >>> import jax.numpy as jnp, calibjax as cj
            >>> cj.IntervalCensored.right_censored([2.0, 3.0], [True, False]).high
            Array([ 2., inf], dtype=float32)
        """
        time, observed, censored_at = map(_as_array, (time, observed, censored_at))
        check_array("time", time, "real")
        observed = _as_truths(observed)
        check_shapes({"time": (time, "n"), "observed": (observed, "n")})
        if censored_at is not None:
            check_array("censored_at", censored_at, "real")
            check_shapes({"time": (time, "n"), "censored_at": (censored_at, "n")})
            censored_at = widened(censored_at)
        time = widened(time)
        return cls(time, jnp.where(jnp.asarray(observed), time, jnp.inf), censored_at)

    def named_ends(self) -> dict[str, Ends]:
        """The arrays, by what errors call them; without `censored_at` if it is not known."""
        ends = {"low of targets": self.low, "high of targets": self.high}
        if self.censored_at is not None:
            ends["censored_at of targets"] = self.censored_at
        return ends

    def conditions(self, predictions: Distribution) -> list[Condition]:
        """What the ends, arrays of NumPy or of jax, must satisfy for these predictions."""
        low, high, at = self.low, self.high, self.censored_at
        number = "a whole number" if predictions.target_kind == "integer" else "a finite number"
        low_is_valid = _is_target(predictions, low) | (~is_finite(low) & (low < 0))
        words, supported = predictions.supports(as_targets(predictions, high))
        possible = _is_target(predictions, high) & supported
        high_is_valid = possible | (~is_finite(high) & (high > 0))
        found = [
            ("low of targets", low, f"{number} or -inf", low_is_valid),
            ("high of targets", high, "at least low", high >= low),
            ("high of targets", high, f"{words}, or inf", high_is_valid),
        ]
        if at is not None:
            valid = (at >= low) & ((low == high) | (at == low) & (high > low) & ~is_finite(high))
            words = "at least the time of an event, and the time of a row that is censored on"
            found.append(("censored_at of targets", at, f"{words} the right", valid))
        return found

    def is_exact(self) -> jax.Array:
        """Which targets are known, ``[n]``."""
        return self.low == self.high

    def ends_of_draws(self, kept: jax.Array, axis: Axis) -> "IntervalCensored":
        """The ends between which a draw of each row is hidden; U of other draws is known.

        It is known if `censored_at` is.  Else a censored row would hide a draw as it hides the
        target, and an exact row would hide later times, if any kept row is right-censored.  On
        average the variance of such draws is that of the observed residuals where events are few,
        and three quarters of it where all targets are known.
        """
        if self.censored_at is not None:
            return IntervalCensored(self.censored_at, jnp.full_like(self.low, jnp.inf))
        if not is_floating(self.low):  # Whole numbers have no open ends.
            return self
        is_exact = self.is_exact()

        def any_row(condition: jax.Array) -> jax.Array:
            return all_max(jnp.any(condition & kept & ~is_exact).astype(jnp.int32), axis) > 0

        on_right, on_left = any_row(jnp.isinf(self.high)), any_row(jnp.isinf(self.low))
        low = jnp.where(is_exact & on_left & ~on_right, -jnp.inf, self.low)
        return IntervalCensored(low, jnp.where(is_exact & on_right, jnp.inf, self.high))

    def in_one_dtype(self) -> "IntervalCensored":
        """Both ends in one floating dtype if one of them has such a dtype; whole numbers as is."""
        ends = self.low, self.high
        if self.low.dtype == self.high.dtype or not any(map(is_floating, ends)):
            return self
        dtype = widest_dtype(*ends)
        return IntervalCensored(self.low.astype(dtype), self.high.astype(dtype), self.censored_at)


def _as_array(values: Any) -> Any:
    """Lists, and columns of a frame, as arrays; all else as it is."""
    is_list = isinstance(values, (list, tuple))
    is_column = hasattr(values, "__array__") and not isinstance(values, (jax.Array, np.ndarray))
    return np.asarray(values) if is_list or is_column else values


def _as_truths(observed: Any) -> Any:
    """Booleans, also from numbers 1 and 0, which are checked outside of jit."""
    is_number = getattr(getattr(observed, "dtype", None), "kind", "") in "iuf"
    if is_traced(observed) or not is_number:
        check_array("observed", observed, "boolean")
        return observed
    numbers = np.atleast_1d(observed)
    is_truth = np.isin(numbers, (0, 1))
    if not is_truth.all():
        row = int(np.argmin(is_truth.reshape(len(numbers), -1).all(axis=1)))
        raise ValueError(
            "observed must be True or 1 where there was an event, and False or 0 elsewhere; row "
            f"{row} is {numbers[row]}. For other values, pass observed == value."
        )
    return np.asarray(observed).astype(bool)


#: The targets of n rows: an array, or `IntervalCensored`.
Targets = ArrayLike | IntervalCensored


def _is_target(predictions: Distribution, ends: jax.Array) -> jax.Array:
    """Whether ends are finite and, of counts, whole."""
    return is_finite(ends) & (as_targets(predictions, ends).astype(ends.dtype) == ends)


def as_targets(predictions: Distribution, ends: jax.Array) -> jax.Array:
    """Finite ends as targets of the predictions, which are integers if these are counts."""
    return ends.astype(jnp.int32) if predictions.target_kind == "integer" else ends


def known_point(predictions: Distribution, targets: IntervalCensored) -> jax.Array:
    """The target where it is known, and else an end that is finite, or 0 without one, ``[n]``."""
    low, high = targets.low, targets.high
    low = jnp.where(jnp.isinf(low), jnp.zeros_like(low), low)
    return as_targets(predictions, jnp.where(jnp.isinf(high), low, high))


def unit_interval(predictions: Distribution, targets: PyTree) -> UnitInterval:
    """What predictions say about targets: where U = F(y) lies, each end ``[n]``."""
    if isinstance(targets, IntervalCensored):
        return _of_interval(predictions, targets)
    if predictions.target_kind == "integer":
        counts = widened_integers(targets)
        below, above = jax.vmap(predictions.tails)(jnp.stack([counts - 1, counts]))
        return UnitInterval(*below, *above)
    if isinstance(predictions, OwnPIT) and predictions.has_atoms:
        return predictions.unit_interval(targets)
    at, above_at = predictions.tails(targets)
    return UnitInterval(at, at, above_at, above_at)


def _of_interval(predictions: Distribution, targets: IntervalCensored) -> UnitInterval:
    point = known_point(predictions, targets)
    exact = unit_interval(predictions, point)

    def tails(end: jax.Array, is_open: jax.Array) -> tuple[jax.Array, jax.Array]:
        """F and 1 - F at an end, also where it is open; derivatives there are 0."""
        is_last = end > 0
        below, above = predictions.tails(jnp.where(is_open, point, as_targets(predictions, end)))
        return (
            jnp.where(is_open, jnp.where(is_last, 1.0, 0.0), below),
            jnp.where(is_open, jnp.where(is_last, 0.0, 1.0), above),
        )

    # An end that is later than all that a forecast is about is not known.
    start, end = (restricted(predictions, x) for x in (targets.low, targets.high))
    low, above_low = tails(start, jnp.isinf(start))
    high, above_high = tails(end, jnp.isinf(targets.high) | (end < targets.high))
    hidden = UnitInterval(low, high, above_low, above_high)
    is_exact = targets.is_exact()
    return UnitInterval(*(jnp.where(is_exact, x, y) for x, y in zip(exact, hidden, strict=True)))
