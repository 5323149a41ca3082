"""Sums of residuals of an event over all rows up to some probability."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from calibjax._rows import Data, clean


class CumulativeResiduals(NamedTuple):
    """Rows in the order of their probabilities, and the sums of w (y - p) / sum w up to each.

    Args:
        probs: the probabilities of the event, increasing, ``[n]``.
        sums: the sums up to each row, which count only at the last of rows with equal
            probabilities, ``[n]``.
        is_last: whether a row is the last one of its probability, ``[n]``.
        variance: that of the sum of all rows, if the model is calibrated.
    """

    probs: jax.Array
    sums: jax.Array
    is_last: jax.Array
    variance: jax.Array


def cumulative_residuals(data: Data) -> CumulativeResiduals:
    """Of checked binary data on one device; masked rows add nothing to any sum."""
    data = clean(data)
    probs, weights = data.predictions.binary_probability(), data.weights
    total = jnp.sum(weights)
    shares = weights / jnp.where(total == 0, 1.0, total)
    residuals = shares * (data.targets.astype(probs.dtype) - probs)
    order = jnp.argsort(probs)
    probs_in_order = probs[order]
    is_last = jnp.append(probs_in_order[1:] != probs_in_order[:-1], True)
    variance = jnp.sum(jnp.square(shares) * probs * (1 - probs))
    return CumulativeResiduals(probs_in_order, jnp.cumsum(residuals[order]), is_last, variance)
