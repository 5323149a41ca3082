"""Powers p^(1/T) of probabilities, and scales multiplied by a factor."""

import math

import jax
import jax.numpy as jnp
from jax import lax

from calibjax._base.struct import is_floating
from calibjax._numbers.arithmetic import fast_where, quotient


def tempered_probabilities(probs: jax.Array, valid: jax.Array, temperature: jax.Array) -> jax.Array:
    """probs^(1 / T), normalised over the last axis; NaN in rows that are not valid."""
    # Ones replace invalid rows before the power: NaN would spread to the gradient in T.
    probs = fast_where(valid[..., None], probs.astype(temperature.dtype), 1.0)
    # The exponential of a logit below `least` is 0, but the derivative of the logit may overflow.
    least = math.log(jnp.finfo(probs.dtype).smallest_subnormal) - 1
    powers = jax.nn.softmax(_tempered_logits(probs, temperature, least), axis=-1)
    return fast_where(valid[..., None], powers, jnp.nan)


def tempered_label_log_prob(
    probs: jax.Array, targets: jax.Array, temperature: jax.Array
) -> jax.Array:
    """The log probability of labels ``[n]`` under tempered probabilities ``[n, m]``.

    It is computed from logits: the logarithm of a tempered probability is finite where the
    probability itself underflows to 0.
    """
    logits = _tempered_logits(probs, temperature)
    # The largest logit is 0, so that no sum overflows or underflows.
    log_sums = jnp.log(jnp.sum(jnp.exp(logits), axis=-1))

    def entry(logits: jax.Array, label: jax.Array) -> jax.Array:
        return logits.at[label].get(mode="clip", wrap_negative_indices=False)

    return jax.vmap(entry)(logits, targets) - log_sums


def _tempered_logits(
    probs: jax.Array, temperature: jax.Array, least: float = -math.inf
) -> jax.Array:
    """log(probs / max(probs)) / T over the last axis.

    It is -inf, with derivative 0, where probs are 0 and where it is less than `least`.
    """
    # Devices disagree about comparisons and logarithms below the smallest normal number.
    positive = probs >= jnp.finfo(probs.dtype).tiny
    # The division makes the largest logit exactly 0 at every T.  A common factor changes
    # neither softmax nor its gradients.
    ratios = probs / lax.stop_gradient(jnp.max(probs, axis=-1, keepdims=True))
    logs = jnp.log(fast_where(positive, ratios, 1.0))
    is_finite = positive & ~(logs < least * temperature)
    return fast_where(is_finite, quotient(fast_where(is_finite, logs, 0.0), temperature), -jnp.inf)


def tempered_scale(scale: jax.Array, factor: jax.Array) -> jax.Array:
    """scale * factor; an entry that is not finite stays as it is, without a gradient."""
    finite = jnp.isfinite(scale)
    factor = jnp.broadcast_to(factor, scale.shape)
    product = jnp.where(finite, scale, 1).astype(factor.dtype) * factor
    return as_before(scale, jnp.where(finite, product, scale.astype(factor.dtype)))


def as_before(old: jax.Array, new: jax.Array) -> jax.Array:
    """`new` in the dtype of `old` if that is a floating dtype, else `new` as it is."""
    return new.astype(old.dtype) if is_floating(old) else new
