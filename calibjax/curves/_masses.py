"""Sums over rows that are 0 on average if a model is calibrated, and how far they may be from 0."""

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._rows import Data
from calibjax._struct import is_traced, on_host, struct
from calibjax.resampling import critical_value

# In units of the precision: by how much equal distances may differ between two programs.
_ROUNDING = 256


def without_equal_weights(data: Data) -> Data:
    """The same rows without weights, if all weights that are known here are equal or 0."""
    if data.weights is None or is_traced((data.weights, data.where)):
        return data
    weights = on_host(data.weights)
    kept = weights > 0
    if data.where is not None:
        kept = kept & on_host(data.where)
    if not kept.any() or np.ptp(weights[kept]) != 0:
        return data
    return data.replace(weights=None, where=jax.device_put(kept))


@struct
class Masses:
    """Sums M over rows, of k parts of the unit line or k bins.

    Args:
        observed: of the observed targets, ``[k]``.
        deviation: d, ``[k]``; 0 for what cannot vary.
        distances: |M| in units of the deviation, of data sets under H0, ``[R, k]``.
        total: the weight of the rows, of all parts or of each bin.
        n_rows: the number of rows that count.
    """

    observed: jax.Array
    deviation: jax.Array
    distances: jax.Array
    total: jax.Array
    n_rows: jax.Array

    def __getitem__(self, parts: slice) -> "Masses":
        of_parts = self.observed[parts], self.deviation[parts], self.distances[:, parts]
        return Masses(*of_parts, self.total, self.n_rows)

    def alone(self, level: jax.Array) -> jax.Array:
        """How far M may be from 0 in each part by itself, ``[k]``."""
        return self._largest(critical_value(self.distances.T, level))

    def together(self, level: jax.Array) -> jax.Array:
        """How far M may be from 0 in all parts at once, ``[k]``."""
        return self._largest(critical_value(jnp.max(self.distances, axis=1), level))

    def _largest(self, critical: jax.Array) -> jax.Array:
        # Equal data sets may differ by rounding, and must be within.
        rounding = _ROUNDING * jnp.finfo(self.deviation.dtype).eps
        return critical * self.deviation * (1 + rounding)
