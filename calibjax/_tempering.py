"""What the families need to make their predictions more or less confident by a temperature."""

import math

import jax
import jax.numpy as jnp
from jax import lax

from calibjax._struct import is_floating


def tempered_probabilities(probs: jax.Array, valid: jax.Array, temperature: jax.Array) -> jax.Array:
    """probs^(1 / T) over the last axis, normalised; NaN in rows that are not valid."""
    # A valid row in place of those: NaN would spread to the gradient in T.
    probs = jnp.where(valid[..., None], probs.astype(temperature.dtype), 1.0)
    # The exponential of less is 0, and derivatives of such logits would overflow.
    least = math.log(jnp.finfo(probs.dtype).smallest_subnormal) - 1
    powers = jax.nn.softmax(_tempered_logits(probs, temperature, least), axis=-1)
    return jnp.where(valid[..., None], powers, jnp.nan)


def tempered_label_log_prob(
    probs: jax.Array, targets: jax.Array, temperature: jax.Array
) -> jax.Array:
    """The log probability of labels ``[n]`` under tempered probabilities ``[n, m]``.

    By the logarithms: a tempered probability may underflow, and cost a finite number of nats.
    """
    log_probs = jax.nn.log_softmax(_tempered_logits(probs, temperature))
    return jnp.take_along_axis(log_probs, targets[:, None], axis=-1)[:, 0]


def _tempered_logits(
    probs: jax.Array, temperature: jax.Array, least: float = -math.inf
) -> jax.Array:
    """log(probs / max(probs)) / T over the last axis.

    It is -inf, with derivative 0, where probs are 0 and where it is less than `least`.
    """
    # Below the smallest normal number comparisons and logarithms differ between devices.
    positive = probs >= jnp.finfo(probs.dtype).tiny
    # The largest logit is exactly 0, however small T is; a common factor cancels in gradients too.
    ratios = probs / lax.stop_gradient(jnp.max(probs, axis=-1, keepdims=True))
    logs = jnp.log(jnp.where(positive, ratios, 1.0))
    counted = positive & ~(logs < least * temperature)
    return jnp.where(counted, _quotient(jnp.where(counted, logs, 0.0), temperature), -jnp.inf)


@jax.custom_jvp
def _quotient(x: jax.Array, y: jax.Array) -> jax.Array:
    """x / y, whose derivative in y is -(x / y) / y: the square of a small y would be 0."""
    return x / y


@_quotient.defjvp
def _quotient_jvp(primals, tangents):
    (x, y), (dx, dy) = primals, tangents
    value = x / y
    # Not (x / y) / y, which a compiler may take for x / y^2.
    return value, (dx - value * dy) / y


def tempered_scale(scale: jax.Array, factor: jax.Array) -> jax.Array:
    """scale * factor; what is not finite stays as it is, out of the gradient in the factor."""
    finite = jnp.isfinite(scale)
    product = jnp.where(finite, scale, 1).astype(factor.dtype) * factor
    return as_before(scale, jnp.where(finite, product, scale.astype(factor.dtype)))


def as_before(old: jax.Array, new: jax.Array) -> jax.Array:
    """The new values in the dtype of the old ones; integers become floating."""
    return new.astype(old.dtype) if is_floating(old) else new
