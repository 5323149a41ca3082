"""Forecasts of numbers as forecasts of the event that a number is above a threshold."""

import math

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._base.struct import PyTree
from calibjax._data.data import Data
from calibjax._data.distribution import Distribution, Labels
from calibjax._data.interval_censored import Between
from calibjax._data.padding import padded
from calibjax._numbers.validity import are_whole
from calibjax.distributions import Bernoulli, Quantiles
from calibjax.scores import score_rows


def above_threshold(data: Data, above: float) -> Data:
    """Probabilities P(Y > a), and whether y > a, of checked data without masked rows.

    For members it is the share above a; for quantiles the cdf is linear between the levels, with
    exponential tails.  If all quantiles and targets are whole numbers, the cdf of the count a is
    that of the middle between a and the next one.

    Raises:
        TypeError: predictions are not ordered numbers, or targets are not known exactly.
        ValueError: the threshold is not finite.
    """
    p, kind = data.predictions, type(data.predictions).__name__
    if isinstance(p, Labels) or not p.is_ordered or isinstance(data.targets, Between):
        is_known = not isinstance(data.targets, Between)
        got = kind if is_known else "censored targets"
        raise TypeError(f"above needs forecasts of numbers and exact targets, got {got}.")
    if isinstance(above, bool) or not math.isfinite(above):
        raise ValueError(f"above must be a finite number, such as 1.0, got {above!r}.")
    threshold = math.floor(above) if p.target_kind == "integer" else above
    if isinstance(p, Quantiles) and are_whole(*map(np.asarray, (p.values, data.targets))):
        threshold = math.floor(above) + 0.5
    rows = padded(data)
    at = jnp.full(rows.n, threshold, jnp.result_type(rows.targets, type(threshold)))
    probs = np.asarray(score_rows(None, (rows, at), _survival))[: data.n]
    events = (np.asarray(data.targets) > above).astype(np.int32)
    names = [f"≤ {above:g}", f"> {above:g}"]
    found = Bernoulli(jnp.clip(jnp.asarray(probs), 0, 1)), jnp.asarray(events)
    return data.replace(predictions=found[0], targets=found[1], classes=names)


def _survival(predictions: Distribution, targets: PyTree, at: jax.Array) -> jax.Array:
    return predictions.survival(at)
