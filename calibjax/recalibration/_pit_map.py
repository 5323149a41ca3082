"""Maps of PIT values, and what they make of predictions of numbers.

Counts become a table of probabilities, a distribution that every function takes, whatever the map
is.  Counts above the last one of the sums of a family go to its last class: they have a probability
of less than 4e-18 before, or else the table is NaN.

**Conformal quantiles** are those of a forecast, moved to order statistics of what was observed.
The coordinate of a target is its normal score under the forecast, T = Phi^{-1}(F(y)), and without
an end where F is known at some levels only.  If a new row and the n rows of the fit are
exchangeable, the new T is at most the k-th smallest of the others with the probability k / (n + 1),
whatever the forecast is.

Equal T are equal up to rounding, and so is F^{-1}(F(y)) to y: quantiles go outwards by some
roundings, so that a new target that is tied with one of the fit is not beyond it.
"""

import functools
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr, ndtri

from calibjax._base.check import check_array, check_shapes
from calibjax._base.compile import bucket, filled_up, first_rows
from calibjax._base.struct import (
    is_array,
    is_traced,
    static,
    struct,
    widened,
    widest_dtype,
    with_fields,
)
from calibjax._data.covariates import CovariatesLike, covariate_columns
from calibjax._data.data import Data
from calibjax._data.distribution import Distribution
from calibjax._data.padding import filled, padded
from calibjax._numbers.arithmetic import dot
from calibjax._numbers.unit_interval import normal_score
from calibjax.distributions import (
    Counts,
    Empirical,
    Normal,
    Ordinal,
    Quantiles,
    Recalibrated,
    SurvivalCurve,
)
from calibjax.recalibration._cross_validation import (
    in_words,
    least_squares_weights,
    mixture_weights,
)
from calibjax.recalibration._pit_map_fits import (
    LEVELS,
    PIT_MAP_FITS,
    FittedPITMap,
    PITMapRows,
    cells,
    increasing,
    line_through,
)
from calibjax.recalibration._probability_maps import Fitted, Numbers, Step
from calibjax.scores import score_rows

# Of more samples the levels of all others lie between two of them.
_FEW_SAMPLES = 40
# In normal scores, of the outer pieces of a map.
_LEAST_SLOPE = 0.2


@struct
class PITMap(Step):
    """The map G of the unit interval, by its values at levels, ``[K]``; see `Recalibrated`."""

    probabilities: Numbers
    levels: Sequence[float] = static()

    def values(self, predictions: Distribution, covariates: jax.Array | None = None) -> jax.Array:
        """G at the levels ``[K]``, whatever the predictions are."""
        return jnp.asarray(self.probabilities)


def apply_pit_map(predictions: Distribution, g: jax.Array, levels: Sequence[float]) -> Any:
    """Predictions after a map with the values g at the levels, ``[K]``, or ``[n, K]`` of rows."""
    dtype = widest_dtype(*jax.tree.leaves(predictions))
    scores = ndtri(jnp.asarray(levels, dtype))
    g = _with_tails(g.astype(dtype), scores)
    if isinstance(predictions, Counts):
        return recalibrated_counts(predictions, scores, normal_score(g, 1 - g))
    if not predictions.has_known_quantiles:
        rows = jnp.broadcast_to(g, (len(predictions), len(levels)))
        return Recalibrated(predictions, rows, levels)
    scores = jnp.broadcast_to(scores, g.shape)
    return moved(predictions, lambda z: interpolated(normal_score(g, 1 - g), scores, z))


def _with_tails(g: jax.Array, scores: jax.Array) -> jax.Array:
    """The map with outer pieces that stretch the tails of a forecast, but at most fivefold.

    Where hardly a target was between the outer levels, the line through them goes on for ever.
    """
    moved, least = normal_score(g, 1 - g), _LEAST_SLOPE * jnp.diff(scores)
    first, last = moved[..., 1] - least[0], moved[..., -2] + least[-1]
    g = g.at[..., 0].set(jnp.where(first < moved[..., 0], ndtr(first), g[..., 0]))
    return g.at[..., -1].set(jnp.where(last > moved[..., -1], ndtr(last), g[..., -1]))


def moved(
    predictions: Distribution, inverse: Callable[[jax.Array], jax.Array], rounding: float = 0.0
) -> Distribution:
    """Quantiles Q(G^{-1}(u)) at the levels u where Q is known, or samples in their order.

    Args:
        predictions: of numbers, where Q is linear in normal scores between its levels, and beyond.
        inverse: the normal scores of G^{-1}(u), from those of u ``[L]``.
        rounding: the share of their size by which values go outwards.
    """
    z, values = known_quantiles(predictions)
    values = interpolated(z, values, inverse(z))
    if rounding:
        values = values + outwards(jnp.broadcast_to(z, values.shape), rounding) * jnp.abs(values)
    return predictions.with_quantiles(values)


def outwards(z: jax.Array, size: float) -> jax.Array:
    """A move at normal scores of levels: downwards below the median, and upwards from there."""
    return jnp.where(z < 0, -size, size).astype(z.dtype)


@jax.jit
def known_quantiles(predictions: Distribution) -> tuple[jax.Array, jax.Array]:
    """Normal scores of levels ``[L]``, or ``[n, L]``, and the quantiles there ``[n, L]``."""
    levels, values = predictions.known_quantiles()
    return ndtri(levels), values


@jax.jit
def quantiles_at(predictions: Distribution, levels: jax.Array) -> jax.Array:
    """Quantiles of these forecasts at levels ``[K]``: ``[n, K]``."""
    z, values = known_quantiles(predictions)
    return interpolated(z, values, ndtri(levels.astype(z.dtype)))


def quantiles_of(
    predictions: Distribution, scores: jax.Array, levels: Sequence[float]
) -> Quantiles:
    """Quantiles of densities at normal scores ``[K]``, as those at other levels."""
    # The quantile at a level that rounds to 1 is infinite.
    inner = jnp.minimum(ndtr(scores), 1 - jnp.finfo(scores.dtype).epsneg)
    inner = jnp.maximum(inner, jnp.finfo(scores.dtype).tiny)
    values = jax.vmap(predictions.quantile, out_axes=1)(inner)
    return Quantiles(values.astype(scores.dtype), levels)


def known_levels(predictions: Distribution) -> Sequence[float]:
    """The levels at which the data say how often U is below: those of a forecast, if it has few."""
    pieces = predictions.pieces_of_pit
    if isinstance(pieces, tuple):
        return pieces
    if pieces is not None and pieces <= _FEW_SAMPLES:
        # Between two samples, or beyond the last one, a target may be anywhere.
        return tuple(k / (pieces + 1) for k in range(1, pieces + 1))
    return LEVELS


def check_numbers(predictions: Any) -> None:
    """An error unless these are predictions of numbers that a map of PIT values recalibrates."""
    if isinstance(predictions, Empirical):
        if predictions.weights is not None or predictions.target_shape != "n":
            raise TypeError(
                "predictions must be samples of numbers [n, S] without weights, got weights or "
                "vectors."
            )
        if jnp.shape(predictions.samples)[1] < 2:
            raise ValueError("predictions must have at least 2 samples for each target, got 1.")
    elif isinstance(predictions, Counts):
        if predictions.max_count is None:
            raise ValueError(
                f"max_count must be given for {type(predictions).__name__} predictions that are "
                "recalibrated, which makes tables of the probabilities of 0 … max_count."
            )
    elif isinstance(predictions, SurvivalCurve):
        raise TypeError(
            "predictions must be distributions of all times to be recalibrated, such as Weibull("
            "concentration, scale) or LogNormal(loc, scale), got SurvivalCurve, which ends at its "
            "last time."
        )
    elif not isinstance(predictions, Quantiles):
        Recalibrated.check_base("predictions", predictions)


def recalibrated_counts(predictions: Counts, scores: jax.Array, moved: jax.Array) -> Ordinal:
    """P(Y <= k) = G(F(k)) for the counts k = 0 … max_count, of which the last one has the rest.

    Args:
        predictions: counts with a max_count.
        scores: normal scores of levels, ``[K]``.
        moved: normal scores of G there, ``[K]``, or ``[n, K]`` of rows.
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
    return Ordinal(jnp.where(are_complete(predictions)[:, None], q, jnp.nan))


@jax.jit
def are_complete(predictions: Counts) -> jax.Array:
    """Whether counts above max_count are improbable, ``[n]``."""
    return jax.vmap(lambda one: one.is_complete())(widened(predictions))


def interpolated(x: jax.Array, y: jax.Array, at: jax.Array) -> jax.Array:
    """Lines through points with increasing x and y ``[K]``, at ``[L]``.

    Each may be one for all rows, or of rows ``[n, …]``; the result is ``[n, L]`` then.  Beyond the
    points the first and the last piece go on.
    """
    axes = tuple(0 if part.ndim == 2 else None for part in (x, y, at))
    if axes == (None, None, None):
        return line_through(jnp, x, y, at)
    return jax.vmap(functools.partial(line_through, jnp), in_axes=axes)(x, y, at)


def as_normal(recalibrated: Any) -> Normal:
    """Normal predictions after a shift and scale of normal scores, as what they are: normal."""
    n = len(recalibrated)
    return first_rows(_as_normal(filled(recalibrated, n)), n)


@jax.jit
def _as_normal(recalibrated: Any) -> Normal:
    low, loc, high = (recalibrated.quantile(ndtr(z)) for z in (-1.0, 0.0, 1.0))
    return Normal(loc, (high - low) / 2)


# Coordinates beyond are those of targets where a forecast has no tail.
_LARGEST = 100.0
# How far scores and values go, in units in the last place, or of 2^-40, the error of cdfs in
# float64; and the most in scores.
_OF_SCORES, _OF_VALUES, _LEAST_EPS, _MOST = 8, 4, 2.0**-40, 0.1


@struct
class ConformalPITMap(Step):
    """Where the quantiles at levels are among the normal scores of a forecast, ``[K]``."""

    scores: Numbers
    levels: Sequence[float] = static()

    def __call__(self, predictions: Distribution) -> Any:
        dtype = widest_dtype(*jax.tree.leaves(predictions))
        dtypes = dtype, jnp.result_type(self.scores)
        eps = max(_LEAST_EPS, *(float(jnp.finfo(x).eps) for x in dtypes))
        z = ndtri(jnp.asarray(self.levels, dtype))
        scores = jnp.asarray(self.scores, dtype)
        rounding = _OF_SCORES * eps * (1 + jnp.abs(scores))
        if predictions.has_known_quantiles:
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
        return Quantiles(recalibrated.values + by, self.levels)


def fit_conformal(data: Data, levels: np.ndarray, kept: np.ndarray) -> Fitted:
    """Order statistics of the kept rows, which converged if n rows reach all levels.

    At a level of at least 1/2 it is the one of rank ceil((n + 1) level), and below of rank
    floor((n + 1) level), so that intervals between two levels hold at least their share.  At levels
    that n rows cannot reach it is the outermost one, or the forecast's own quantile if that is
    further out.
    """
    low, high = (np.sort(x[: kept.size][kept]) for x in _coordinates(padded(data)))
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


def _coordinates(data: Data) -> tuple[np.ndarray, np.ndarray]:
    """Of each target the coordinate, and at a jump of F those of both ends, each ``[n]``."""
    predictions, targets = data.predictions, data.targets
    if predictions.has_known_quantiles:
        z, values = known_quantiles(predictions)
        return _between(np.asarray(values, float), np.asarray(z, float), np.asarray(targets, float))
    low, high = score_rows(None, (data,), _normal_scores)
    return np.asarray(low, float), np.asarray(high, float)


def _normal_scores(predictions: Distribution, targets: jax.Array) -> tuple[jax.Array, jax.Array]:
    pit = predictions.unit_interval(targets)
    return normal_score(pit.low, pit.above_low), normal_score(pit.high, pit.above_high)


def _between(values: np.ndarray, z: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Lines through values ``[n, K]`` at scores z ``[K]``, that go on beyond the outer ones.

    Of samples, some of which may be missing, the scores are those of each row, ``[n, K]``.
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


def read_covariates(
    given: CovariatesLike | None, n: int, kept: np.ndarray
) -> tuple[tuple[str, ...], np.ndarray | None]:
    """Names of columns, and numbers ``[n, d]`` that are known in all rows that count."""
    columns = _columns(given, n)
    if not columns:
        return (), None
    found = np.stack([np.asarray(x, float) for x in columns.values()], axis=1)
    unknown = np.flatnonzero(kept & ~np.isfinite(found).all(axis=1))
    if unknown.size:
        raise ValueError(
            f"covariates must be finite in every row, got {found[unknown[0]].tolist()} in row "
            f"{unknown[0]}."
        )
    return tuple(columns), found


def covariates_of(given: CovariatesLike | None, names: tuple[str, ...], n: int) -> Any:
    """The columns ``[n, d]`` that a map was fitted with, in their order."""
    columns = _columns(given, n)
    lacking = [name for name in names if name not in columns]
    if lacking or (is_array(given) and len(columns) != len(names)):
        raise ValueError(
            f"covariates must have the columns of the fit, {', '.join(names)}, got "
            f"{', '.join(columns)}."
        )
    if not names:
        return None
    xp = jnp if is_traced(columns) else np
    return xp.stack([xp.asarray(columns[name]) for name in names], axis=1)


def _columns(given: CovariatesLike | None, n: int) -> dict[str, jax.Array | np.ndarray]:
    columns = {} if given is None else covariate_columns(given, n)
    return {name: _numbers(name, values, n) for name, values in columns.items()}


def _numbers(name: str, values: object, n: int) -> jax.Array | np.ndarray:
    array = values if isinstance(values, jax.Array) else np.asarray(values)
    of_column = f"column {name} of covariates"
    if array.dtype == bool:
        array = array.astype(np.float32)
    check_array(of_column, array, "real")
    check_shapes({of_column: (array, "n")}, {"n": n})
    return array


#: Rows that a map keeps, at most; of more rows every so manyth is kept.
MOST_ROWS = 4096
# Ranks of medians and of spreads are known at so many numbers.
_N_RANKS = 64
_TILE = 256


@struct
class ConditionalPITMap(Step):
    """G of a forecast x, G_x(u) = (sum_i w_i 1[U_i <= u] + c G(u)) / (sum_i w_i + c).

    The weights are w_i = exp(-|s(x) - s(x_i)|^2 / (2 h^2)) for the normal scores s of the median,
    of the spread and of covariates among those of the fit.

    Args:
        probabilities: G at the levels ``[K]``.
        count: c > 0, how many rows G stands for, a scalar.
        width: h > 0, a scalar.
        below: how much of U_i is at most each level, ``[m, K]``.
        scores: s(x_i), ``[m, F]``.
        weights: how much each row counts, ``[m]``.
        grid: medians, logarithms of spreads, and covariates if they help, of evenly spaced ranks,
            nondecreasing, ``[F, Q]``.
        levels: of the unit interval.
    """

    probabilities: Numbers
    count: Numbers
    width: Numbers
    below: Numbers
    scores: Numbers
    weights: Numbers
    grid: Numbers
    levels: Sequence[float] = static()

    def values(self, predictions: Distribution, covariates: jax.Array | None = None) -> jax.Array:
        """G of each forecast at the levels, ``[n, K]``."""
        dtype = widest_dtype(*jax.tree.leaves(predictions))
        line = jax.tree.map(lambda x: jnp.asarray(x, dtype), self)
        features = median_and_spread(predictions).astype(dtype)
        if covariates is not None:
            features = jnp.concatenate([features, covariates.astype(dtype)], axis=1)
        # Without covariates that help the grid has two rows.
        scores = scores_among(line.grid, features[:, : line.grid.shape[0]])
        return jax.lax.map(line.at, scores, batch_size=_TILE)

    def at(self, scores: jax.Array) -> jax.Array:
        """G of *one* forecast with given normal scores ``[F]``, at the levels ``[K]``."""
        gaps = jnp.sum(jnp.square(jnp.asarray(self.scores) - scores[None]), axis=1)
        alike = self.weights * jnp.exp(-gaps / (2 * jnp.square(self.width)))
        sums = dot(jnp.asarray(alike), jnp.asarray(self.below)) + self.count * self.probabilities
        return increasing(sums / (jnp.sum(alike) + self.count))


def with_filled_rows(steps: tuple, n: int) -> tuple:
    """The steps of a map that was fitted to a part of n rows, whose rows fill the bucket of n."""

    def with_rows(step: Any) -> Any:
        if not isinstance(step, ConditionalPITMap):
            return step
        size, m = min(bucket(n), MOST_ROWS), len(step.weights)
        below, scores = (filled_up(np.asarray(x), size) for x in (step.below, step.scores))
        weights = np.append(step.weights, np.zeros(size - m))
        return with_fields(step, below=below, scores=scores, weights=weights)

    return tuple(map(with_rows, steps))


@jax.jit
def median_and_spread(predictions: Distribution) -> jax.Array:
    """The median, and log(Q(Phi(1)) - Q(Phi(-1))) of each forecast, ``[n, 2]``.

    Of counts, whose quantiles are whole numbers, the mean and the logarithm of the deviation.
    """
    p = widened(predictions)
    if isinstance(p, Counts):
        deviation = jnp.maximum(p.standard_deviation(), jnp.finfo(p.mean().dtype).tiny)
        return jnp.stack([p.mean(), jnp.log(deviation)], axis=1)
    if p.has_known_quantiles:
        z, values = known_quantiles(p)
        low, median, high = interpolated(z, values, jnp.array([-1.0, 0.0, 1.0], z.dtype)).T
    else:
        dtype = widest_dtype(*jax.tree.leaves(p))
        low, median, high = jax.vmap(p.quantile)(ndtr(jnp.array([-1.0, 0.0, 1.0], dtype)))
    spread = jnp.maximum(high - low, jnp.finfo(median.dtype).tiny)
    return jnp.stack([median, jnp.log(spread)], axis=1)


def grid_of(features: np.ndarray) -> np.ndarray:
    """Numbers ``[F, Q]`` of evenly spaced ranks among features ``[m, F]``.

    If medians or spreads hardly differ, what differs is rounding: all have nearly the rank 1/2.  So
    have equal covariates.
    """
    ranks = (np.arange(_N_RANKS) + 0.5) / _N_RANKS
    grid = np.quantile(features, ranks, axis=0).T
    centres = np.median(features, axis=0)
    units = np.ones(len(centres))
    units[0] = np.exp(centres[1])
    ranges = grid[:, -1] - grid[:, 0]
    is_even = np.where(np.arange(len(units)) < 2, ranges < 0.01 * units, ranges <= 0)
    wide = centres[:, None] + units[:, None] * (ranks - 0.5)
    return np.where(is_even[:, None], wide, grid)


@jax.jit
def scores_among(grid: jax.Array, features: jax.Array) -> jax.Array:
    """The normal scores of the ranks of features ``[n, F]``, linear between those of the grid."""
    ranks = (jnp.arange(grid.shape[1], dtype=features.dtype) + 0.5) / grid.shape[1]
    columns = [jnp.interp(x, of_grid, ranks) for x, of_grid in zip(features.T, grid, strict=True)]
    # No rank is nearer to a forecast that is not known.
    return jnp.where(jnp.isfinite(features), ndtri(jnp.stack(columns, axis=1)), jnp.nan)


# Parts of fewer rows have hardly a target in the tails.
LEAST_ROWS = 20
# With fewer rows next to none are alike.
_LEAST_CONDITIONAL = 100
# How many rows the map of all forecasts may stand for, and widths of what is alike.
_COUNTS = (20.0, 60.0, 200.0, 600.0, 2000.0)
_WIDTHS = (1.0, 0.5, 0.25)
# The median and the spread come before covariates.
_N_OF_FORECAST = 2


class _Mixture(NamedTuple):
    """A mixture of maps for all forecasts: its name, G at the levels, and that without each part.

    The losses are those of candidates.
    """

    name: str
    line: FittedPITMap
    without: np.ndarray
    losses: dict[str, float]


def fit_pit_map(
    method: str, rows: PITMapRows, of_members: bool = False
) -> tuple[str, Fitted, dict[str, float]]:
    """The method that was chosen, its map, and the losses of the candidates on held-out rows.

    Args:
        method: "auto", "conditional", "nothing" or one of `PIT_MAP_FITS`.
        rows: what fits them.
        of_members: whether these have been shifted and scaled in their own units.
    """
    n, chooses = len(rows.weights), method in ("auto", "conditional")
    if not chooses or n < LEAST_ROWS:
        name = "nothing" if chooses else method
        return name, _for_all(name, fit_of(name, rows), rows), {}
    mixture = _mixture(rows, of_members)
    found, losses = None, mixture.losses
    if rows.features is not None and n >= _LEAST_CONDITIONAL:
        found, loss = _conditional(rows, mixture, is_sure=method == "auto")
        losses = losses | {"conditional": loss}
    if found is not None:
        return "conditional", found, losses
    return mixture.name, _for_all(mixture.name, mixture.line, rows), losses


def fit_of(name: str, rows: PITMapRows) -> FittedPITMap:
    """One map for all forecasts."""
    if name == "nothing":
        return FittedPITMap(rows.levels, True, "")
    n = float(rows.weights.sum())
    return PIT_MAP_FITS[name](rows.levels, rows.weights @ rows.below / n, n)


def _for_all(name: str, line: FittedPITMap, rows: PITMapRows) -> Fitted:
    g = line.probabilities if name == "nothing" else increasing(line.probabilities)
    return Fitted((PITMap(g, tuple(rows.levels.tolist())),), line.converged, line.words)


def _mixture(rows: PITMapRows, of_members: bool) -> _Mixture:
    """The mixture of candidates with the least loss in parts that did not fit them.

    It is "nothing" unless the mixture is better by more than a standard error.
    """
    names = ("nothing", *(x for x in PIT_MAP_FITS if not (of_members and x == "shift_scale")))
    parts = [rows.part == k for k in range(rows.part.max() + 1)]
    curves = []
    for inside in parts:
        others = rows.chosen(~inside)
        fits = [increasing(fit_of(name, others).probabilities) for name in names]
        curves.append(np.stack(fits, axis=1))
    shares, words = in_words(names, _shares(rows, parts, np.stack(curves)))
    every = np.array([shares.get(name, 0.0) for name in names])
    without = np.stack([g @ every for g in curves])
    table = np.array([[_loss(rows, k, g) for g in curves[k].T] for k in range(len(parts))])
    mixed = np.array([_loss(rows, k, g) for k, g in enumerate(without)])
    losses = dict(zip(names, (table.sum(axis=0) / rows.weights.sum()).tolist(), strict=True))
    if not is_clear(table[:, 0] - mixed):
        nothing = np.stack([g[:, 0] for g in curves])
        return _Mixture("nothing", fit_of("nothing", rows), nothing, losses)
    chosen = [fit_of(name, rows) for name in shares]
    if len(chosen) == 1:
        return _Mixture(next(iter(shares)), chosen[0], without, losses)
    g = np.array(list(shares.values())) @ np.stack([fit.probabilities for fit in chosen])
    converged = all(fit.converged for fit in chosen)
    return _Mixture("mixture", FittedPITMap(g, converged, words), without, losses)


def _shares(rows: PITMapRows, parts: list[np.ndarray], curves: np.ndarray) -> np.ndarray:
    """The shares of candidates with the least loss, from their G without each part, ``[P, K, J]``.

    The rows of one part have one curve, so that sums over them are all that counts, unless
    intervals are known of them.
    """
    if rows.seen is not None:
        of_rows = [rows.probabilities(g[rows.part]) for g in np.moveaxis(curves, 2, 0)]
        return mixture_weights(np.stack(of_rows, axis=1), rows.weights)
    if rows.distances is None:
        of_cells = np.stack([rows.weights[i] @ cells(rows.below[i]) for i in parts])
        between = np.swapaxes(cells(np.swapaxes(curves, 1, 2)), 1, 2)
        return mixture_weights(between.reshape(-1, curves.shape[2]), of_cells.ravel())
    counts = rows.weights[:, None] * rows.distances
    of_levels = np.stack([counts[i].sum(axis=0) for i in parts])
    below = np.stack([(counts * rows.below)[i].sum(axis=0) for i in parts])
    shares = below / np.where(of_levels > 0, of_levels, 1.0)
    values = curves.reshape(-1, curves.shape[2])
    return least_squares_weights(values, shares.ravel(), of_levels.ravel())


def _loss(rows: PITMapRows, k: int, g: np.ndarray) -> float:
    """The sum of the scores of a part, weighted."""
    inside = rows.chosen(rows.part == k)
    return float(inside.weights @ inside.scores(g))


def is_clear(gains: np.ndarray, errors: float = 1.0) -> bool:
    """Whether a sum of gains in parts is larger than so many of its standard errors."""
    return bool(gains.sum() > errors * np.sqrt(gains.size) * np.std(gains, ddof=1))


def _conditional(rows: PITMapRows, mixture: _Mixture, is_sure: bool) -> tuple[Fitted | None, float]:
    """The map for each forecast that predicts parts best, and its loss there.

    None if the map for all forecasts predicts them better; if `is_sure`, also if it is worse by
    less than a standard error of the difference between parts.
    """
    kept = rows
    if len(rows.weights) > MOST_ROWS:
        kept = rows.chosen(np.linspace(0, len(rows.weights) - 1, MOST_ROWS).astype(int))
    assert kept.features is not None  # the caller has looked
    grid = grid_of(kept.features)
    features = filled_up(kept.features, MOST_ROWS)
    scores = np.asarray(scores_among(grid, features), float)[: len(kept.features)]
    # What a forecast tells alone, and with all covariates.
    sizes = sorted({_N_OF_FORECAST, scores.shape[1]})
    tables = [_held_out_losses(kept, scores[:, :size], mixture.without) for size in sizes]
    of_all, losses = tables[0][0], np.stack([table[1:] for table in tables])
    choices = list(product(sizes, _WIDTHS, _COUNTS))
    losses = losses.reshape(len(choices), -1)
    best = int(np.argmin(losses.sum(axis=1)))
    loss = float(losses[best].sum() / kept.weights.sum())
    if not is_clear(of_all - losses[best], 1.0 if is_sure else 0.0):
        return None, loss
    size, width, count = choices[best]
    line = ConditionalPITMap(
        probabilities=increasing(mixture.line.probabilities),
        count=np.array(count),
        width=np.array(width),
        below=kept.below,
        scores=scores[:, :size],
        weights=kept.weights,
        grid=grid[:size],
        levels=tuple(rows.levels.tolist()),
    )
    name = mixture.line.words if mixture.name == "mixture" else mixture.name
    words = f"by {len(scores)} rows, beside which {name} counts as {count:.0f}, width {width}"
    if len(sizes) > 1:
        words += ", with covariates" if size > _N_OF_FORECAST else ", without covariates"
    return Fitted((line,), mixture.line.converged, words), loss


def _held_out_losses(rows: PITMapRows, scores: np.ndarray, without: np.ndarray) -> np.ndarray:
    """The loss of each part, of the map for all, and of maps by rows of other parts.

    The first row is that of the map for all, and one for each width and count follows.
    """
    found = []
    for k in range(rows.part.max() + 1):
        is_inside = rows.part == k
        inside, others = rows.chosen(is_inside), rows.chosen(~is_inside)
        gaps = np.sum((scores[is_inside, None] - scores[None, ~is_inside]) ** 2, axis=2)
        losses = [inside.weights @ inside.scores(without[k])]
        for width in _WIDTHS:
            alike = others.weights * np.exp(-gaps / (2 * width**2))
            sums, total = alike @ others.below, alike.sum(axis=1, keepdims=True)
            for count in _COUNTS:
                g = increasing((sums + count * without[k]) / (total + count))
                losses.append(inside.weights @ inside.scores(g))
        found.append(losses)
    return np.array(found).T
