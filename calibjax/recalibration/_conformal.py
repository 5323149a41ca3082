"""Conformal quantiles: those of a forecast, moved to order statistics of what was observed.

The coordinate of a target is its normal score under the forecast, T = Phi^{-1}(F(y)), and without
an end where F is known at some levels only.  If a new row and the n rows of the fit are
exchangeable, the new T is at most the k-th smallest of the others with the probability k / (n + 1),
whatever the forecast is.

Equal T are equal up to rounding, and so is F^{-1}(F(y)) to y: quantiles go outwards by some
roundings, so that a new target that is tied with one of the fit is not beyond it.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtri

from calibjax._base.struct import static, struct, widest_dtype
from calibjax._data.capabilities import KnownQuantiles
from calibjax._data.data import Data
from calibjax._data.distribution import Distribution
from calibjax._data.interval_censored import unit_interval
from calibjax._data.padding import padded
from calibjax._numbers.unit_interval import normal_score
from calibjax.distributions import Quantiles
from calibjax.recalibration import _pit_map as pit_map
from calibjax.recalibration._pit_map import outwards
from calibjax.recalibration._probability_maps import Fitted, Numbers, Step
from calibjax.scores import score_rows

# The largest coordinate: those beyond are of targets where a forecast has no tail.
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
        if isinstance(predictions, KnownQuantiles):
            scores = scores + outwards(z, 1.0) * rounding

            def inverse(at: jax.Array) -> jax.Array:
                return pit_map.interpolated(z, scores, at)

            return pit_map.moved(predictions, inverse, _OF_VALUES * eps)
        # A level near 1 has lost digits: eps / phi(z) in normal scores.
        rounding = rounding + 2.5 * eps * jnp.exp(jnp.square(jnp.maximum(scores, 0.0)) / 2)
        rounding = outwards(z, 1.0) * jnp.minimum(rounding, _MOST)
        if predictions.target_kind == "integer":
            # The quantile is the first count that reaches a level, of which an end is a cdf.
            scores = jax.lax.cummax(scores - rounding)
            return pit_map.quantiles_of(predictions, scores, self.levels)
        recalibrated = pit_map.quantiles_of(predictions, scores + rounding, self.levels)
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
    if isinstance(predictions, KnownQuantiles):
        z, values = pit_map.known_quantiles(predictions)
        return _between(np.asarray(values, float), np.asarray(z, float), np.asarray(targets, float))
    low, high = score_rows(None, (data,), _normal_scores)
    return np.asarray(low, float), np.asarray(high, float)


def _normal_scores(predictions: Distribution, targets: jax.Array) -> tuple[jax.Array, jax.Array]:
    pit = unit_interval(predictions, targets)
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
