"""A confidence interval for the SKCE, by the norm of its error."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calibjax._batch import kept_first
from calibjax._check import check_integer, check_key
from calibjax._data import Data, clean
from calibjax._distribution import Distribution
from calibjax._door import check_inputs
from calibjax._sharding import Axis, all_sum, on_devices
from calibjax.intervals._bootstrap import resampled_forms
from calibjax.intervals._confidence_interval import ConfidenceInterval
from calibjax.kernels import KernelLike
from calibjax.operators import tiled_h_of_clean


def skce_confidence_interval(
    key: jax.Array,
    kernel: KernelLike,
    predictions: Distribution,
    targets: ArrayLike,
    *,
    confidence_level: float = 0.95,
    n_resamples: int = 999,
    where: ArrayLike | None = None,
) -> ConfidenceInterval:
    """Stands in for the interval of another branch."""
    check_key(key)
    kernel, data = check_inputs(kernel, predictions, targets, where)
    n_resamples = check_integer("n_resamples", n_resamples, 1)
    return _interval((key, kernel, jnp.asarray(confidence_level)), data, n_resamples)


@on_devices
def _interval(axis: Axis, shared: Any, data: Data, n_resamples: int) -> ConfidenceInterval:
    key, kernel, level = shared
    data, n_kept = kept_first(clean(data, axis), data.where)
    data = Data(data.predictions, data.targets, weights=data.weights)
    h = tiled_h_of_clean(kernel, data, axis)
    forms, row_sums = resampled_forms(key, h, n_kept, n_resamples)
    n = h.count()
    biased = (all_sum(jnp.sum(h.weights * row_sums), axis) + h.trace()) / jnp.square(n)
    errors = (forms.pairs + forms.squares) / (n * (n - 1))
    error = jnp.sqrt(jnp.maximum(jnp.quantile(errors, level.astype(errors.dtype)), 0.0))
    root = jnp.sqrt(jnp.maximum(biased, 0.0))
    ends = jnp.maximum(root - error, 0.0), root + error
    return ConfidenceInterval(*map(jnp.square, ends))
