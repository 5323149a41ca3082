"""Estimators that are functions of the residuals of labels alone, beside the predictions.

Residuals of dependent rows can be given random multipliers, where targets cannot be
drawn.  So an estimator that is to be compared with such data sets says what it is of residuals
r_i = e_(y_i) - p_i, whatever numbers these are.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from calibjax._data.distribution import Distribution, as_binary, as_labels
from calibjax.estimators._ece import NORMS, ece, mce
from calibjax.estimators._smooth_ece import quick_sums, smooth_ece, smooth_error
from calibjax.estimators.binning import TEN_BINS, Binning, check_binning, numbers_of_bins

#: ``form(predictions, residuals, weights, **options)`` of ``[n, m]`` and ``[n]``, a scalar.
Form = Callable[..., jax.Array]


def residual_form(estimator: Callable[..., jax.Array]) -> Form | None:
    """The form of an estimator, or of a partial of one with options by name; None without one."""
    if not isinstance(estimator, jax.tree_util.Partial):
        return next((form for known, form in _FORMS.items() if known is estimator), None)
    form = residual_form(estimator.func)
    if form is None or estimator.args:
        return None
    return jax.tree_util.Partial(form, **estimator.keywords)


def _errors(
    predictions: Distribution,
    residuals: jax.Array,
    weights: jax.Array,
    *,
    binning: Binning = TEN_BINS,
    distance: Any = "total_variation",
) -> tuple[jax.Array, jax.Array]:
    """The errors of all bins, 0 if empty, and their weights, from residuals ``[n, m]``."""
    if not isinstance(distance, str) or distance not in NORMS:
        raise ValueError(
            f"distance must be one of {', '.join(NORMS)} for clusters or times, which multiply "
            f"residuals, got {distance!r}."
        )
    probs = as_labels(predictions).label_probabilities()
    check_binning(binning, probs.shape[0])
    bins, n_bins = numbers_of_bins(binning, probs, weights != 0)
    sums, sizes = (
        jax.ops.segment_sum(x, bins, n_bins) for x in (weights[:, None] * residuals, weights)
    )
    return jax.vmap(NORMS[distance])(sums / jnp.where(sizes == 0, 1.0, sizes)[:, None]), sizes


def _ece(predictions: Distribution, *rows: jax.Array, **options: Any) -> jax.Array:
    errors, sizes = _errors(predictions, *rows, **options)
    return jnp.sum(errors * sizes) / jnp.sum(sizes)


def _mce(predictions: Distribution, *rows: jax.Array, **options: Any) -> jax.Array:
    return jnp.max(_errors(predictions, *rows, **options)[0])


def _smooth_ece(predictions: Distribution, residuals: jax.Array, weights: jax.Array) -> jax.Array:
    rows = as_binary(predictions).binary_probability(), -weights * residuals[:, 1], weights
    # Residuals may be larger than 1, which exact sums do not take.
    return smooth_error(rows, quick_sums)


_FORMS: dict[Callable[..., jax.Array], Form] = {ece: _ece, mce: _mce, smooth_ece: _smooth_ece}
