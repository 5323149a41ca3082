"""Maps of PIT values, and predictions of numbers after them.

Counts become a table of probabilities, which every function accepts.  Counts above max_count go to
its last class: their original probability is below 4e-18, or else the table is NaN.

**Conformal quantiles** move the quantiles of a forecast to order statistics of observed targets.
The coordinate of a target is its normal score under the forecast, T = Phi^{-1}(F(y)); it is
unbounded also where F is known at some levels only.  If a new row and the n rows of the fit are
exchangeable, the new T is at most the k-th smallest of the others with the probability k / (n + 1),
for any forecast.

Ties of T, and F^{-1}(F(y)) = y, hold up to rounding.  Quantiles move outwards by some roundings, so
that a new target that is tied with one of the fit is not beyond it.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr, ndtri

from calibjax import distributions as dist
from calibjax._base.compile import quick_jit
from calibjax._base.struct import static, struct, widened, widest_dtype
from calibjax._data.capabilities import KnownQuantiles, pit_partition
from calibjax._data.data import Data
from calibjax._data.distribution import Distribution
from calibjax._data.interval_censored import unit_interval
from calibjax._data.padding import padded
from calibjax._numbers.unit_interval import normal_score
from calibjax.recalibration._pit_map_fits import LEVELS, line_through, with_tails
from calibjax.recalibration._probability_maps import Fitted, Numbers, Step
from calibjax.scores import score_rows

# Maximum number of samples for levels at their ranks.
_FEW_SAMPLES = 40


@struct
class PITMap(Step):
    """The map G of the unit interval, by its values at levels, ``[K]``; see `Recalibrated`."""

    probabilities: Numbers
    levels: Sequence[float] = static()

    def values(self, predictions: Distribution, covariates: jax.Array | None = None) -> jax.Array:
        """G at the levels ``[K]``, the same for all predictions."""
        return jnp.asarray(self.probabilities)


def apply_pit_map(predictions: Distribution, g: jax.Array, levels: Sequence[float]) -> Any:
    """Predictions after a map with values g at the levels, ``[K]`` or ``[n, K]``."""
    dtype = widest_dtype(*jax.tree.leaves(predictions))
    scores, g = ndtri(jnp.asarray(levels, dtype)), g.astype(dtype)
    plain = normal_score(g, 1 - g)
    of_g = with_tails(jnp, plain, scores)
    if isinstance(predictions, dist.Counts):
        return recalibrated_counts(predictions, scores, of_g)
    if isinstance(predictions, dist.SurvivalCurve):
        return _recalibrated_curves(predictions, scores, of_g)
    if not isinstance(predictions, KnownQuantiles):
        g = jnp.where(of_g == plain, g, ndtr(of_g))  # inner values keep all digits
        rows = jnp.broadcast_to(g, (len(predictions), len(levels)))
        return dist.Recalibrated(predictions, rows, levels)
    scores = jnp.broadcast_to(scores, g.shape)
    return moved(predictions, lambda z: interpolated(of_g, scores, z))


def moved(
    predictions: KnownQuantiles, inverse: Callable[[jax.Array], jax.Array], rounding: float = 0.0
) -> Distribution:
    """Quantiles Q(G^{-1}(u)) at the known levels u of Q, or samples in their order.

    Args:
        predictions: predictions of numbers; Q is linear in normal scores between levels and beyond.
        inverse: a function from normal scores of u ``[L]`` to those of G^{-1}(u).
        rounding: the share of their size by which values move outwards.
    """
    z, values = known_quantiles(predictions)
    values = interpolated(z, values, inverse(z))
    if rounding:
        values = values + outwards(jnp.broadcast_to(z, values.shape), rounding) * jnp.abs(values)
    return predictions.with_quantiles(values)


def outwards(z: jax.Array, size: float) -> jax.Array:
    """A move at normal scores of levels: downwards below the median, and upwards from there."""
    return jnp.where(z < 0, -size, size).astype(z.dtype)


@functools.partial(quick_jit, light=True)
def known_quantiles(predictions: KnownQuantiles) -> tuple[jax.Array, jax.Array]:
    """Normal scores of levels ``[L]``, or ``[n, L]``, and the quantiles there ``[n, L]``."""
    levels, values = predictions.known_quantiles()
    return ndtri(levels), values


def in_form(
    found: Any, given: Any, lower: Any, is_whole: Any, threshold: Any = None
) -> Distribution:
    """Raises quantiles and samples to a bound, and rounds them if all were whole numbers.

    Values at the bound are an atom, such as dry members, and stay there.  Values up to a threshold
    also become the bound.
    """
    if lower is None and is_whole is None:
        return found
    (_, before), (_, values) = known_quantiles(given), known_quantiles(found)
    if is_whole is not None:
        values = jnp.round(values) + 0.0  # without the sign of -0
    if lower is not None:
        least = lower if threshold is None else threshold
        values = jnp.where((before <= lower) | (values <= least), lower, values)
    return given.with_quantiles(values)


def quantiles_of(
    predictions: Distribution, scores: jax.Array, levels: Sequence[float]
) -> dist.Quantiles:
    """Quantiles of densities at normal scores ``[K]``, as those at other levels."""
    # The quantile at a level that rounds to 1 is infinite.
    inner = jnp.minimum(ndtr(scores), 1 - jnp.finfo(scores.dtype).epsneg)
    inner = jnp.maximum(inner, jnp.finfo(scores.dtype).tiny)
    values = jax.vmap(predictions.quantile, out_axes=1)(inner)
    return dist.Quantiles(values.astype(scores.dtype), levels)


def known_levels(predictions: Distribution) -> Sequence[float]:
    """The levels at which P(U <= u) is observed: those of a forecast, if it has few."""
    pieces = pit_partition(predictions)
    if isinstance(pieces, tuple):
        return pieces
    if pieces is not None and pieces <= _FEW_SAMPLES:
        # Between two samples, or beyond the last one, a target may be anywhere.
        return tuple(k / (pieces + 1) for k in range(1, pieces + 1))
    return LEVELS


def check_numbers(predictions: object) -> None:
    """Raises an error unless a map of PIT values can recalibrate the predictions."""
    if isinstance(predictions, dist.Empirical):
        if predictions.weights is not None or predictions.target_shape != "n":
            raise TypeError(
                "predictions must be samples of numbers [n, S] without weights, got weights or "
                "vectors."
            )
        if jnp.shape(predictions.samples)[1] < 2:
            raise ValueError("predictions must have at least 2 samples for each target, got 1.")
    elif isinstance(predictions, dist.Counts):
        if predictions.max_count is None:
            raise ValueError(
                f"max_count must be given for {type(predictions).__name__} predictions that are "
                "recalibrated, which makes tables of the probabilities of 0 … max_count."
            )
    elif not isinstance(predictions, (dist.Quantiles, dist.SurvivalCurve)):
        dist.Recalibrated.check_base("predictions", predictions)


def recalibrated_counts(
    predictions: dist.Counts, scores: jax.Array, moved: jax.Array
) -> dist.Ordinal:
    """P(Y <= k) = G(F(k)) for the counts k = 0 … max_count, the last of which has the rest.

    Args:
        predictions: counts with a max_count.
        scores: normal scores of levels, ``[K]``.
        moved: normal scores of G at the levels, ``[K]`` or ``[n, K]``.
    """
    assert predictions.max_count is not None  # the caller has looked
    counts = jnp.arange(predictions.max_count + 1, dtype=jnp.int32)
    p = jax.vmap(lambda one: jax.vmap(one.probability)(counts))(widened(predictions))
    below = jnp.cumsum(p, axis=1)[:, :-1]
    above = jnp.cumsum(p[:, :0:-1], axis=1)[:, ::-1]
    z = interpolated(scores, moved, normal_score(jnp.minimum(below, 1.0), above))
    # The thinner tail has all digits of a difference.
    least = jnp.finfo(p.dtype).tiny
    lower = jnp.where(below <= least, 0.0, ndtr(z))
    upper = jnp.where(above <= least, 0.0, ndtr(-z))
    ones, zeros = jnp.ones_like(p[:, :1]), jnp.zeros_like(p[:, :1])
    lower = jnp.concatenate([zeros, lower, ones], axis=1)
    upper = jnp.concatenate([ones, upper, zeros], axis=1)
    of_lower, of_upper = jnp.diff(lower, axis=1), -jnp.diff(upper, axis=1)
    q = jnp.maximum(jnp.where(lower[:, 1:] < 0.5, of_lower, of_upper), 0.0)
    q = q / jnp.sum(q, axis=1, keepdims=True)
    return dist.Ordinal(jnp.where(are_complete(predictions)[:, None], q, jnp.nan))


def _recalibrated_curves(
    predictions: dist.SurvivalCurve, scores: jax.Array, moved: jax.Array
) -> dist.SurvivalCurve:
    """1 - G(F(t)) at the times of curves, with G as in `recalibrated_counts`; 0 and 1 stay."""
    above = jax.lax.cummin(jnp.clip(widened(predictions).probs, 0.0, 1.0), axis=1)
    z = interpolated(scores, moved, normal_score(1 - above, above))
    probs = jnp.where((above > 0) & (above < 1), ndtr(-z), above)
    return dist.SurvivalCurve(predictions.times, probs)


@functools.partial(quick_jit, light=True)
def are_complete(predictions: dist.Counts) -> jax.Array:
    """Whether counts above max_count are improbable, ``[n]``."""
    return jax.vmap(lambda one: one.is_complete())(widened(predictions))


def interpolated(x: jax.Array, y: jax.Array, at: jax.Array) -> jax.Array:
    """Lines through points with increasing x and y ``[K]``, at ``[L]``.

    Each may also differ between rows, ``[n, …]``; the result is then ``[n, L]``.  Beyond the points
    the first and the last line continue.
    """
    axes = tuple(0 if part.ndim == 2 else None for part in (x, y, at))
    if axes == (None, None, None):
        return line_through(jnp, x, y, at)
    return jax.vmap(functools.partial(line_through, jnp), in_axes=axes)(x, y, at)


# Maximum coordinate; larger ones occur for targets beyond a forecast without a tail.
_LARGEST = 100.0
# Outward moves of scores and of values, in units in the last place, at least of 2^-40, the error of
# cdfs in float64; and the maximum move of scores.
_OF_SCORES, _OF_VALUES, _LEAST_EPS, _MOST = 8, 4, 2.0**-40, 0.1


@struct
class ConformalPITMap(Step):
    """Moves the quantiles at the levels to normal scores `scores` of a forecast, ``[K]``."""

    scores: Numbers
    levels: Sequence[float] = static()

    def __call__(self, predictions: Distribution) -> Any:
        dtype = widest_dtype(*jax.tree.leaves(predictions))
        dtypes = dtype, jnp.result_type(self.scores)
        eps = max(_LEAST_EPS, *(float(jnp.finfo(x).eps) for x in dtypes))
        z = ndtri(jnp.asarray(self.levels, dtype))
        scores = jnp.asarray(self.scores, dtype)
        rounding = _OF_SCORES * eps * (1 + jnp.abs(scores))
        if isinstance(predictions, KnownQuantiles):
            scores = scores + outwards(z, 1.0) * rounding

            def inverse(at: jax.Array) -> jax.Array:
                return interpolated(z, scores, at)

            return moved(predictions, inverse, _OF_VALUES * eps)
        # A level near 1 has lost digits: eps / phi(z) in normal scores.
        rounding = rounding + 2.5 * eps * jnp.exp(jnp.square(jnp.maximum(scores, 0.0)) / 2)
        rounding = outwards(z, 1.0) * jnp.minimum(rounding, _MOST)
        if predictions.target_kind == "integer":
            # The quantile is the first count that reaches a level, of which an end is a cdf.
            scores = jax.lax.cummax(scores - rounding)
            return quantiles_of(predictions, scores, self.levels)
        recalibrated = quantiles_of(predictions, scores + rounding, self.levels)
        by = outwards(z, _OF_VALUES * eps)[None] * jnp.abs(recalibrated.values)
        return dist.Quantiles(recalibrated.values + by, self.levels)


def fit_conformal(data: Data, levels: np.ndarray, kept: np.ndarray) -> Fitted:
    """Fits order statistics of the kept rows; converged if n rows reach all levels.

    The rank is ceil((n + 1) level) for levels of at least 1/2, and else floor((n + 1) level), so
    that intervals between two levels cover at least their share.  Levels that n rows cannot reach
    have the outermost one, or the forecast's own quantile if that is further out.
    """
    low, high = (np.sort(x[: kept.size][kept]) for x in coordinates(padded(data)))
    n, own = len(low), np.asarray(ndtri(levels), float)
    # (n + 1) level may be a whole number up to rounding.
    rank = (n + 1) * levels
    rank = np.where(levels < 0.5, np.floor(rank + 1e-9), np.ceil(rank - 1e-9)).astype(int)
    inside = np.clip(rank, 1, n) - 1
    found = np.where(levels < 0.5, low[inside], high[inside])
    found = np.where(rank < 1, np.minimum(found, own), found)
    found = np.where(rank > n, np.maximum(found, own), found)
    # In ties a lower end may lie above an upper one: both go outwards.
    is_low = levels < 0.5
    downwards = np.minimum.accumulate(found[::-1])[::-1]
    found = np.where(is_low, downwards, np.maximum.accumulate(found))
    reached = bool(np.all((rank >= 1) & (rank <= n)))
    words = f"coverage is known for levels from {1 / (n + 1):.2g} to {n / (n + 1):.4g}"
    line = ConformalPITMap(np.clip(found, -_LARGEST, _LARGEST), tuple(levels.tolist()))
    return Fitted((line,), reached, words)


def coordinates(data: Data) -> tuple[np.ndarray, np.ndarray]:
    """The coordinate of each target, at a jump of F those of both ends, each ``[n]``."""
    predictions, targets = data.predictions, data.targets
    if isinstance(predictions, dist.Normal):
        y, loc, scale = (np.asarray(x, float) for x in (targets, *vars(predictions).values()))
        return ((y - loc) / scale,) * 2
    if isinstance(predictions, KnownQuantiles):
        z, values = known_quantiles(predictions)
        return _between(np.asarray(values, float), np.asarray(z, float), np.asarray(targets, float))
    low, high = score_rows(None, (data,), _normal_scores)
    return np.asarray(low, float), np.asarray(high, float)


def _normal_scores(predictions: Distribution, targets: jax.Array) -> tuple[jax.Array, jax.Array]:
    pit = unit_interval(predictions, targets)
    return normal_score(pit.low, pit.above_low), normal_score(pit.high, pit.above_high)


def _between(values: np.ndarray, z: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Scores by lines through values ``[n, K]`` at scores z ``[K]``, also beyond the outer ones.

    Scores of samples, some of which may be missing, differ between rows, ``[n, K]``.
    """
    row, last, z = np.arange(len(y)), values.shape[1] - 2, np.broadcast_to(z, values.shape)

    def at_piece(before: np.ndarray, of_jump: float) -> np.ndarray:
        piece = np.clip(np.sum(before, axis=1) - 1, 0, last)
        start, end = values[row, piece], values[row, piece + 1]
        # Only outer pieces are without width, and a target beyond them is infinitely far.
        with np.errstate(divide="ignore", invalid="ignore"):
            share = (y - start) / (end - start)
        share = np.where(np.isnan(share), of_jump, share)
        low, high = z[row, piece], z[row, piece + 1]
        return low + share * (high - low)

    return at_piece(values < y[:, None], 0.0), at_piece(values <= y[:, None], 1.0)
