"""A map of the unit line, applied to predictions of numbers."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.special import ndtri

from calibjax._distribution import Distribution
from calibjax._numbers import normal_score
from calibjax._struct import static, struct, widest_dtype
from calibjax.distributions import Empirical, Quantiles, Recalibrated
from calibjax.recalibration._labels import Numbers
from calibjax.recalibration._unit_line._fits import LEVELS

# Of more samples the levels of all others lie between two of them.
_FEW_SAMPLES = 40


@struct
class UnitLine:
    """The map G of the unit line, by its values at levels, ``[K]``; see `Recalibrated`."""

    probabilities: Numbers
    levels: Sequence[float] = static()

    def __call__(self, predictions: Distribution) -> Any:
        dtype = widest_dtype(*jax.tree.leaves(predictions))
        g = jnp.asarray(self.probabilities, dtype)
        if isinstance(predictions, Quantiles):
            levels = jnp.asarray(predictions.levels, dtype)
            values = predictions.values.astype(dtype)
            return Quantiles(self._at_new_levels(values, levels, g), predictions.levels)
        if isinstance(predictions, Empirical):
            samples = predictions.samples.astype(dtype)
            n_samples = samples.shape[1]
            levels = jnp.arange(1, n_samples + 1, dtype=dtype) / (n_samples + 1)
            order = jnp.argsort(samples, axis=1)
            moved = self._at_new_levels(jnp.sort(samples, axis=1), levels, g)
            back = jnp.argsort(order, axis=1)
            return Empirical(jnp.take_along_axis(moved, back, axis=1), split=predictions.split)
        rows = jnp.broadcast_to(g, (len(predictions), g.size))
        return Recalibrated(predictions, rows, self.levels)

    def _at_new_levels(self, values: jax.Array, levels: jax.Array, g: jax.Array) -> jax.Array:
        """Quantiles Q(G^{-1}(levels)), from values of Q at the same levels, ``[n, L]``."""
        z = ndtri(levels)
        scores = ndtri(jnp.asarray(self.levels, levels.dtype))
        inverse = _interpolated(normal_score(g, 1 - g), scores[None], z)[0]
        return _interpolated(z, values, inverse)


def _interpolated(x: jax.Array, y: jax.Array, at: jax.Array) -> jax.Array:
    """Lines through points with increasing x ``[K]`` and y ``[n, K]``, at ``[L]``: ``[n, L]``.

    Beyond the points the first and the last piece go on.
    """
    piece = jnp.clip(jnp.searchsorted(x, at, side="right") - 1, 0, x.size - 2)
    share = (at - x[piece]) / (x[piece + 1] - x[piece])
    low, high = y[:, piece], y[:, piece + 1]
    return low + share[None] * (high - low)


def known_levels(predictions: Distribution) -> Sequence[float]:
    """The levels at which the data say how often U is below: those of a forecast, if it has few."""
    if isinstance(predictions, Quantiles):
        return predictions.levels
    if isinstance(predictions, Empirical) and predictions.samples.shape[1] <= _FEW_SAMPLES:
        # Between two samples, or beyond the last one, a target may be anywhere.
        n_samples = predictions.samples.shape[1]
        return tuple(k / (n_samples + 1) for k in range(1, n_samples + 1))
    return LEVELS


def check_numbers_to_mend(predictions: Any) -> None:
    """A TypeError unless these are predictions of numbers that a map of the unit line mends."""
    if isinstance(predictions, Empirical):
        if predictions.weights is not None or predictions.target_shape != "n":
            raise TypeError(
                "predictions must be samples of numbers [n, S] without weights, got weights or "
                "vectors."
            )
        if jnp.shape(predictions.samples)[1] < 2:
            raise TypeError("predictions must have at least 2 samples for each target, got 1.")
    elif not isinstance(predictions, Quantiles):
        Recalibrated.check_base("predictions", predictions)
