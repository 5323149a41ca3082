"""Shifts and scales of densities, which are fitted before maps of the unit interval.

A density with the cdf F becomes the one with the cdf Phi(a + b z), z = Phi^{-1}(F(y)): for a normal
forecast this changes the mean and the standard deviation.  The log density changes by

    log b + (z^2 - (a + b z)^2) / 2,

whose mean is largest where a + b z has the mean 0 and the variance 1 over the rows of the fit.
Quantiles and samples have maps of their values, in `_member_by_member`.
"""

from collections.abc import Sequence
from statistics import NormalDist
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr

from calibjax import distributions as dist
from calibjax._base.struct import struct, widest_dtype
from calibjax._data.data import in_dtype
from calibjax._data.distribution import Distribution
from calibjax.recalibration._pit_map_fits import LEAST_SLOPE, LOG_SCORE
from calibjax.recalibration._probability_maps import Numbers, Step

# Two points define a line through normal scores; float32 distinguishes these two.
_POINTS = (-1.0, 1.0)
_LEVELS = tuple(map(NormalDist().cdf, _POINTS))
_LARGEST_SHIFT, _LARGEST_SLOPE = 4.0, 4.0


@struct
class ShiftScale(Step):
    """Changes normal scores z of a density to a + b z; see above.

    Args:
        shift: a, a scalar or ``[n]``.
        slope: b > 0, a scalar or ``[n]``.
    """

    shift: Numbers
    slope: Numbers

    def __call__(self, predictions: Distribution, covariates: jax.Array | None = None) -> Any:
        line = in_dtype(self, widest_dtype(*jax.tree.leaves(predictions)))
        if isinstance(predictions, dist.Normal):
            scale = predictions.scale / line.slope
            return dist.Normal(predictions.loc - line.shift * scale, scale)
        a, b = (jnp.broadcast_to(x, len(predictions))[:, None] for x in (line.shift, line.slope))
        a = jnp.clip(a, -_LARGEST_SHIFT, _LARGEST_SHIFT)
        scores = a + jnp.minimum(b, _LARGEST_SLOPE) * jnp.asarray(_POINTS, a.dtype)[None]
        return dist.Recalibrated(predictions, ndtr(scores), _LEVELS)

    def in_words(self) -> str:
        """The factor of the spread, and the shift in units of the new one."""
        words = spread_in_words(1 / float(self.slope))
        shift = -float(self.shift)
        return f"{words}, shift {shift:+.2g} standard deviations" if shift else words


def spread_in_words(factor: float) -> str:
    """The factor of the spread as text."""
    return f"spread {'widened' if factor >= 1 else 'narrowed'} by a factor of {factor:.3g}"


class NormalScores(NamedTuple):
    """Rows of densities in float64 that fit or score a shift and a scale, each ``[n]``.

    Args:
        z: the normal score of the target, after the maps before this one.
        change: the log density after these maps minus that of the original forecast.
        weights: positive weights.
        part: the part that is held out with the row.
    """

    z: np.ndarray
    change: np.ndarray
    weights: np.ndarray
    part: np.ndarray

    def chosen(self, rows: np.ndarray | slice) -> Self:
        return type(self)(*(x[rows] for x in self))

    def scores(self, line: ShiftScale | None) -> np.ndarray:
        """The log score minus that of the original forecast, ``[n]``."""
        return -(self if line is None else self.moved(line)).change

    def moved(self, line: ShiftScale) -> Self:
        """The same rows after a map."""
        return self.after(line.shift, line.slope)

    def after(self, shift: Any, slope: Any) -> Self:
        """The same rows with normal scores shift + slope z."""
        z = shift + slope * self.z
        return self._replace(z=z, change=self.change + np.log(slope) + (self.z**2 - z**2) / 2)

    def in_groups(self, shift: np.ndarray, log_scale: np.ndarray) -> Self:
        """The same rows after shifts in z and scales of their groups, each ``[n]``."""
        return self.after(-shift * np.exp(-log_scale), np.exp(-log_scale))

    def spread(self) -> tuple[np.ndarray, np.ndarray]:
        """Errors of forecasts and the mean sizes that their spread implies, each ``[n]``."""
        return self.z, np.ones_like(self.z)

    def name_of_score(self) -> str:
        return LOG_SCORE

    def fits(
        self, kinds: Sequence[bool], chosen: np.ndarray | slice = slice(None)
    ) -> list[tuple[ShiftScale, bool]]:
        """`fit` of chosen rows, with and without a shift."""
        return [self.chosen(chosen).fit(has_shift) for has_shift in kinds]

    def fit(self, has_shift: bool) -> tuple[ShiftScale, bool]:
        """The map with the best mean log score, and whether it is inside its range."""
        mean = np.average(self.z, weights=self.weights) if has_shift else 0.0
        deviation = np.sqrt(np.average((self.z - mean) ** 2, weights=self.weights))
        slope = 1 / max(deviation, 1e-3)
        bounded = max(slope, LEAST_SLOPE / 10)
        line = ShiftScale(np.asarray(-mean * bounded), np.asarray(bounded))
        return line, bool(slope == bounded and deviation >= 1e-3)
