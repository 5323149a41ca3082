"""Predictions of lifetimes by survival curves on a grid of times."""

from collections.abc import Iterable
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from calibjax._base.struct import is_array, is_traced, struct, widened, widest_dtype
from calibjax._data.capabilities import OwnPIT
from calibjax._numbers.derivatives import safe_sqrt
from calibjax._numbers.unit_interval import UnitInterval
from calibjax._numbers.validity import NONNEGATIVE, TOLERANCE, is_finite, is_nonnegative
from calibjax.distributions._quantiles import mean_square


@struct
class Cells:
    """P(start < Y <= end) of K cells from 0 to the last time, and what is left for later.

    Args:
        ends: 0 and the K times, ``[K + 1]``.
        above: P(Y > end) at the K + 1 ends, and 0, ``[K + 2]``.
    """

    ends: jax.Array
    above: jax.Array

    @property
    def below(self) -> jax.Array:
        """P(Y <= end) at the K + 1 ends, and 1, ``[K + 2]``."""
        return 1 - self.above

    @property
    def masses(self) -> jax.Array:
        """The probabilities of the K cells and of what is later, ``[K + 1]``."""
        return self.above[:-1] - self.above[1:]

    def number(self, y: jax.Array) -> jax.Array:
        """The cell of a target, from 0; K for one after the last time."""
        return jnp.searchsorted(self.ends[1:], y, side="left").astype(jnp.int32)

    def interval(self, y: jax.Array) -> UnitInterval:
        """Where U is, given the cell of a target."""
        k, below = self.number(y), self.below
        return UnitInterval(below[k], below[k + 1], self.above[k], self.above[k + 1])

    def tails(self, y: jax.Array) -> tuple[jax.Array, jax.Array]:
        """P(Y <= y) and P(Y > y), which stay what they are at the last time until y is infinite."""
        k, n_cells = self.number(y), self.ends.size - 1
        start, end = self.ends[k], self.ends[jnp.minimum(k + 1, n_cells)]
        width = jnp.where(end > start, end - start, 1.0)
        share = (jnp.clip(y, start, end) - start) / width
        # In a cell without width, which is that of time 0, all is below the target.
        share = jnp.where((end == start) & (y >= 0), 1.0, share)
        share = jnp.where((k == n_cells) & (y < jnp.inf), 0.0, share)
        below, above = ((1 - share) * x[k] + share * x[k + 1] for x in (self.below, self.above))
        return below, above

    def log_prob(self, y: jax.Array) -> jax.Array:
        """The log density in a cell; the log probability of time 0, and of what is later."""
        k = self.number(y)
        width = jnp.pad(jnp.diff(self.ends), (0, 1), constant_values=1.0)[k]
        mass = self.masses[k]
        is_possible = (mass > 0) & (y >= 0)
        log_mass = jnp.log(jnp.where(is_possible, mass, 1.0))
        value = log_mass - jnp.log(jnp.where(width > 0, width, 1.0))
        return jnp.where(is_possible, value, -jnp.inf)

    def quantile(self, level: jax.Array) -> jax.Array:
        """The smallest y with P(Y <= y) >= level, inf if it is later than the last time."""
        below, n_cells = self.below[:-1], self.ends.size - 1
        k = jnp.searchsorted(below[1:], level, side="left").astype(jnp.int32)
        inside = jnp.minimum(k, n_cells - 1)
        start, end = self.ends[inside], self.ends[inside + 1]
        mass = below[inside + 1] - below[inside]
        share = (level - below[inside]) / jnp.where(mass > 0, mass, 1.0)
        # The start itself belongs to the cell before.
        first = jnp.where(inside == 0, 0.0, jnp.minimum(jnp.nextafter(start, end), end))
        y = jnp.clip(start + share * (end - start), first, end)
        return jnp.where(jnp.isnan(level), jnp.nan, jnp.where(k == n_cells, jnp.inf, y))

    def moments(self) -> tuple[jax.Array, jax.Array]:
        """The mean and the variance of min(Y, last time), in units of the last time."""
        ends = self.ends / self.ends[-1]
        widths, middles = jnp.diff(ends), (ends[1:] + ends[:-1]) / 2
        mean = jnp.sum(widths * (self.above[:-2] + self.above[1:-1]) / 2)
        squares = jnp.square(middles - mean) + jnp.square(widths) / 12
        rest = self.above[-2] * jnp.square(1 - mean)
        return mean, jnp.sum(self.masses[:-1] * squares) + rest

    def crps(self, y: jax.Array) -> jax.Array:
        """The integral of (F(t) - 1{y <= t})^2 over t from 0 to the last time."""
        start, end = self.ends[:-1], self.ends[1:]
        cut = jnp.clip(y, start, end)
        share = (cut - start) / jnp.where(end > start, end - start, 1.0)
        below, above = self.below[:-1], self.above[:-1]
        below_cut, above_cut = (x[:-1] + share * (x[1:] - x[:-1]) for x in (below, above))
        squares = (cut - start) * mean_square(below[:-1], below_cut)
        return jnp.sum(squares + (end - cut) * mean_square(above_cut, above[1:]))

    def mean_absolute_difference(self, other: "Cells") -> jax.Array:
        """E|Z - Z'| up to the last time, the integral of F (1 - G) + G (1 - F)."""
        ends = jnp.minimum(jnp.sort(jnp.append(self.ends, other.ends)), self.ends[-1])
        at = ends[:-1], (ends[:-1] + ends[1:]) / 2, ends[1:]

        def values(y: jax.Array) -> jax.Array:
            (f, above_f), (g, above_g) = (jax.vmap(c.tails)(y) for c in (self, other))
            return f * above_g + g * above_f

        # Simpson's rule is exact.  A curve jumps only at 0, where this integral has no part.
        first, middle, last = map(values, at)
        return jnp.sum(jnp.diff(ends) * (first + 4 * middle + last) / 6)


def cells_of(times: jax.Array, survival: jax.Array) -> Cells:
    """The cells of a curve at times ``[K]``, in which nothing that rounding has raised rises."""
    falling = lax.cummin(jnp.clip(survival, 0.0, 1.0))
    return Cells(jnp.pad(times, (1, 0)), jnp.pad(falling, 1, constant_values=((1.0, 0.0),)))


@struct
class SurvivalCurve(OwnPIT):
    """Survival curves S(t) = P(Y > t) at K times, as from a Cox model or a forest of lifetimes.

    A curve says how probable each cell between two times is: P(t_k < Y <= t_(k+1)) is
    S(t_k) - S(t_(k+1)), with S(0) = 1.  It does not say where in a cell a target lies, nor when it
    comes after the last time:

    - of an event in a cell, also at its upper end, `pit_interval` is from F(t_k) to F(t_(k+1)) with
      F = 1 - S, whether lifetimes are continuous or are recorded at the times themselves;
    - an event after the last time t_K is as good as censored there: U is in [F(t_K), 1];
    - of a target that is censored between two times, S is linear between them.  This is the only
      rule that the curve does not give.  It does not matter for targets that are censored at the
      times or after the last one.  For others the mean of U errs by up to about the square of the
      probability of the cell: correct curves at one or two times are rejected if many of some
      hundred rows are censored in between.  More times help, and so does `censored_at` of
      `IntervalCensored`.

    So a `PITKernel`, as in `default_kernel`, with `skce` and `calibration_test`, assesses the
    probabilities of the cells, and `IntervalCensored` targets may be censored anywhere.
    `log_score` is -log of the mean density in the cell of an event, infinite where the curve is
    flat, and -log S(t_K) after the last time.  `crps` is the integral of (F(t) - 1{y <= t})^2 up to
    the last time, the integrated Brier score of linear curves.  `mean`, `variance`, location and
    spread are those of min(Y, t_K), the restricted lifetime.

    Args:
        times: ``[K]``, or ``[n, K]`` with a grid for each prediction; nonnegative, increasing, in
            units of the targets.  It may begin with 0, where curves may be below 1.
        probs: S(t) = P(Y > t) at the times, ``[n, K]``, in [0, 1] and nonincreasing along them, but
            for rounding: rises of a row may sum to 1e-3.

    Expectations, scores and draws take O(K) time for each row, pairs of rows do not see K.

    Targets are nonnegative numbers ``[n]``, of which `IntervalCensored` says which are censored.  A
    draw after the last time is the next number of its dtype.  Kernels of targets, as in
    `TensorProduct`, are not defined, since they would need to know times after the last one.

    Raises:
        ValueError: times do not have one number for each column of probs, or have another number of
            rows; at the first use outside of jit, values that are not such times or curves.

    See also:
        `IntervalCensored`; `Weibull` and `LogNormal` for distributions that are known at all times.
        An ensemble of curves is the curve of their mean: ``SurvivalCurve(times,
        probs.mean(axis=1))``.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> times, probs = jnp.array([1.0, 2.0, 4.0]), jnp.array([[0.75, 0.5, 0.25]] * 4)
        >>> predictions = cj.SurvivalCurve(times, probs)
        >>> time = jnp.array([1.5, 2.0, 3.0, 9.0])
        >>> targets = cj.IntervalCensored.right_censored(time, jnp.array([1, 1, 0, 0]))
        >>> low, high = cj.pit_interval(predictions, targets)
        >>> low.tolist(), high.tolist()
        ([0.25, 0.25, 0.625, 0.75], [0.5, 0.5, 1.0, 1.0])
        >>> predictions.mean()[:1].tolist(), predictions.quantile(0.5)[:1].tolist()
        ([2.25], [2.0])

    Reference: Graf, Schmoor, Sauerbrei and Schumacher, Assessment and comparison of prognostic
    classification schemes for survival data, Statistics in Medicine 1999, for the integrated score.
    """

    times: jax.Array
    probs: jax.Array

    shapes = {"times": "n k", "probs": "n k"}
    condition_on_targets = NONNEGATIVE
    has_continuous_density = False
    compared_with_targets = ("times",)
    untempered = ", whose density after the last time is not known"

    def _complete(self) -> None:
        if not (is_array(self.times) and is_array(self.probs)) or jnp.ndim(self.probs) < 2:
            return
        shape, of_times = jnp.shape(self.probs), jnp.shape(self.times)
        if shape[-1] == 0 or of_times[-1:] != shape[-1:]:
            raise ValueError(
                "times must be at least one number for each column of probs, [n, K], got shapes "
                f"{list(of_times)} and {list(shape)}."
            )
        if len(of_times) > 1 and of_times[:-1] != shape[:-1]:
            raise ValueError(
                "times must be [K], or have a row for each row of probs, got shapes "
                f"{list(of_times)} and {list(shape)}; predictions[rows] chooses rows of both."
            )
        if len(of_times) == 1:
            xp = jnp if is_traced(self.times) else np  # which compiles nothing
            times = xp.broadcast_to(xp.asarray(self.times), shape)
            vars(self)["times"] = jax.device_put(times)

    @classmethod
    def from_curves(cls, curves: Any) -> Self:
        """What ``predict_survival_function`` of lifelines or scikit-survival returns.

        Args:
            curves: a frame with K times as its index and a column for each prediction, or n step
                functions with K times ``x``.

        Raises:
            TypeError: curves are neither.
            ValueError: the functions have different numbers of times.

        Example:
            >>> import jax.numpy as jnp, pandas as pd, calibjax as cj
            >>> frame = pd.DataFrame({"a": [0.9, 0.4], "b": [0.8, 0.7]}, index=[1.0, 2.0])
            >>> cj.SurvivalCurve.from_curves(frame).survival(jnp.array([2.0, 2.0])).tolist()
            [0.4, 0.7]
        """
        return cls(*times_and_probabilities(curves))

    def constraints(self) -> dict[str, tuple[str, jax.Array]]:
        times, probs = (x.astype(widest_dtype(x)) for x in (self.times, self.probs))
        increasing = (times[:, 1:] > times[:, :-1]).all(axis=1) & (times[:, -1] > 0)
        steps = probs[:, 1:] - probs[:, :-1]
        falls = (steps + abs(steps)).sum(axis=1) <= 2 * TOLERANCE
        inside = ((probs >= -TOLERANCE) & (probs <= 1 + TOLERANCE)).all(axis=1)
        return {
            "times": (
                "nonnegative, finite and increasing, with a positive last one",
                increasing & is_nonnegative(times).all(axis=1),
            ),
            "probs": (
                f"in [0, 1] and nonincreasing along the times, within {TOLERANCE:g}",
                falls & inside & is_finite(probs).all(axis=1),
            ),
        }

    def restricted(self, targets: jax.Array) -> jax.Array:
        """Targets, or the last time if that is before them."""
        p, targets = widened((self, targets))
        return jnp.minimum(targets, p.times[:, -1])

    def mean(self) -> jax.Array:
        """The means of min(Y, last time), ``[n]``."""
        return self.times[:, -1] * jax.vmap(lambda p: p._cells().moments()[0])(self)

    def standard_deviation(self) -> jax.Array:
        """The standard deviations of min(Y, last time), ``[n]``."""
        variance = jax.vmap(lambda p: p._cells().moments()[1])(self)
        return self.times[:, -1] * safe_sqrt(variance)

    def sample(self, key: jax.Array, shape: tuple[int, ...] = ()) -> jax.Array:
        """Draws ``[*shape, n]``; one after the last time is the next number after it."""
        p = widened(self)
        limits = jnp.finfo(p.times.dtype)
        size = (*shape, p.times.shape[0])
        levels = jax.random.uniform(key, size, p.times.dtype, limits.tiny, 1 - limits.epsneg)

        def of_one(p: SurvivalCurve, levels: jax.Array) -> jax.Array:
            draws = jax.vmap(p._cells().quantile)(levels)
            return jnp.where(jnp.isinf(draws), jnp.nextafter(p.times[-1], jnp.inf), draws)

        return jax.vmap(of_one, (0, 1), 1)(p, levels.reshape(-1, size[-1])).reshape(size)

    def log_prob(self, targets: jax.Array) -> jax.Array:
        """The log density, that of the cell of a target, ``[n]``; log S(t_K) after the last time.

        At time 0, if that is one of the times, it is the log probability of an event at once.
        """
        return jax.vmap(lambda p, y: p._cells().log_prob(y))(self, targets)

    def tails(self, targets: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Both are linear in each cell, and constant after the last time."""
        return jax.vmap(lambda p, y: p._cells().tails(y))(self, targets)

    def cdf_jump(self, targets: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The limits of the cdf, which jumps at 0, and somewhere after the last time."""
        at = self.cdf(targets)
        before = jnp.where(targets <= 0, 0.0, jnp.where(jnp.isinf(targets), 1 - self._last(), at))
        return before, jnp.where(targets > self.times[:, -1], 1.0, at)

    def unit_interval(self, targets: jax.Array) -> UnitInterval:
        """The values of the cdf at both ends of the cell of a target, or after the last time."""
        return jax.vmap(lambda p, y: p._cells().interval(y))(self, targets)

    def quantile(self, level: jax.Array) -> jax.Array:
        """The times ``[n]`` at which the cdf reaches a level; inf where it does not."""
        return jax.vmap(lambda p, level: p._cells().quantile(level))(self, level)

    def crps_closed_form(self, targets: jax.Array) -> jax.Array:
        """The score up to the last time, ``[n]``."""
        return jax.vmap(lambda p, y: p._cells().crps(y))(self, targets)

    def mean_absolute_difference(self, other: Self) -> jax.Array:
        """E|Z - Z'| of what *two* predictions say up to the last time of the first one."""
        return self._cells().mean_absolute_difference(other._cells())

    def _cells(self) -> Cells:
        """The cells of *one* prediction."""
        return cells_of(self.times, self.probs)

    def _last(self) -> jax.Array:
        """P(Y > last time), ``[n]``."""
        return jax.vmap(lambda p: p._cells().above[-2])(self)


def times_and_probabilities(curves: Any) -> tuple[Any, Any]:
    """Times ``[K]`` or ``[n, K]`` and probabilities ``[n, K]`` of a frame or of functions."""
    if hasattr(curves, "index") and hasattr(curves, "columns"):
        try:
            times = np.asarray(curves.index, float)
        except (TypeError, ValueError):
            raise ValueError(
                f"curves must have times as their index, got {curves.index[0]}: "
                "curves.set_axis(times) sets them."
            ) from None
        try:
            return times, np.asarray(curves, float).T
        except (TypeError, ValueError) as error:
            raise ValueError(f"curves must be numbers: {error}.") from None
    functions = list(curves) if isinstance(curves, Iterable) else [curves]
    for function in functions:
        if not (callable(function) and hasattr(function, "x")):
            raise TypeError(
                "curves must be a frame with times as its index, or step functions with times x, "
                f"got {type(function).__name__}."
            )
    sizes = sorted({np.size(function.x) for function in functions})
    if len(sizes) != 1:
        raise ValueError(f"curves must have one number of times, got {sizes}.")
    times = np.stack([np.asarray(function.x, float) for function in functions])
    return times, np.stack([np.asarray(function(function.x), float) for function in functions])
