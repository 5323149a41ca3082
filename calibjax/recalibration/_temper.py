"""Predictions made more or less confident by one number."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from calibjax._check import check_array, check_values
from calibjax._struct import is_array, is_floating, is_traced, widest_dtype
from calibjax.distributions import (
    Bernoulli,
    Categorical,
    Distribution,
    Empirical,
    Laplace,
    Mixture,
    MultivariateNormalDiag,
    MultivariateNormalFullCovariance,
    Normal,
    Poisson,
    valid_rows,
)

# Why there is none.
_REASONS: dict[type, str] = {
    Empirical: ", which has no density",
    Poisson: ", of which a power is no Poisson distribution",
}


def temper(predictions: Distribution, temperature: ArrayLike) -> Any:
    """Predictions with densities proportional to p^(1/T): less confident for T > 1, more for T < 1.

    Categorical, Bernoulli: probs^(1/T), normalised, which is softmax(logits / T); classes keep
    their order, and probability 0 stays 0, with derivative 0.  Normal: scale sqrt(T), so that
    variances are multiplied by T; likewise the covariances of MultivariateNormalDiag and
    MultivariateNormalFullCovariance.  Laplace: scale T.  Means of these four do not change.
    Mixture: each component is tempered and the weights stay, since a power of a mixture is no
    mixture; it keeps its mean if its components do.

    Where a softmax may have underflowed to 0, its logits know more than its probabilities:
    ``Categorical.from_logits(logits / T)``.  Differentiable; O(size of predictions).

    Args:
        predictions: a batch of predictions.  A row that is no valid prediction, such as padding,
            becomes one that is none either (NaN, for probabilities).
        temperature: T, a positive number without units.

    Returns:
        Predictions of the same family, shapes and floating dtypes.

    Raises:
        TypeError: predictions of a family that has no tempering, or temperature is no number.
        ValueError: temperature is not a positive and finite scalar.  Inside jit, where values
            cannot be looked at, what depends on it is NaN.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> cj.temper(cj.Categorical(jnp.array([[0.9, 0.1, 0.0]])), 2.0).probs.tolist()
        [[0.75, 0.25, 0.0]]
        >>> cj.temper(cj.Normal(jnp.zeros(1), jnp.ones(1)), 4.0).scale.tolist()
        [2.0]

    Reference: Widmann, Lindsten and Zachariah, Calibration tests beyond classification, ICLR 2021,
    Definition F.1; Guo et al., On calibration of modern neural networks, ICML 2017.
    """
    if not isinstance(predictions, Distribution):
        raise _refusal(predictions)
    _check_temperature(temperature)
    return _temper(predictions, temperature)


def _check_temperature(temperature: Any) -> None:
    if not is_array(temperature):
        raise TypeError(f"temperature must be a number, got {type(temperature).__name__}.")
    with jax.ensure_compile_time_eval():
        value = temperature if is_traced(temperature) else jnp.asarray(temperature)
        check_array("temperature", value, "real")
        if value.ndim:
            raise ValueError(f"temperature must be a scalar, got shape {list(value.shape)}.")
        if not is_traced(value):
            check_values("temperature", temperature, "positive and finite", _valid(value))


def _valid(temperature: jax.Array) -> jax.Array:
    return (temperature > 0) & jnp.isfinite(temperature)


@jax.jit
def _temper(predictions: Any, temperature: Any) -> Any:
    temperature = jnp.asarray(temperature, widest_dtype(*jax.tree.leaves(predictions)))
    return _tempered(predictions, jnp.where(_valid(temperature), temperature, jnp.nan))


@functools.singledispatch
def _tempered(predictions: Any, temperature: jax.Array) -> Any:
    raise _refusal(predictions)


def _refusal(predictions: Any) -> TypeError:
    families = sorted(t.__name__ for t in _tempered.registry if t is not object)
    actual = "an array" if is_array(predictions) else type(predictions).__name__
    reason = _REASONS.get(type(predictions), "")
    return TypeError(
        f"predictions must be one of {', '.join(families)} to be tempered, got {actual}{reason}."
    )


@_tempered.register
def _categorical(predictions: Categorical, temperature: jax.Array) -> Any:
    probs = _power(predictions.probs, valid_rows(predictions), temperature)
    return dataclasses.replace(predictions, probs=_as_before(predictions.probs, probs))


@_tempered.register
def _bernoulli(predictions: Bernoulli, temperature: jax.Array) -> Any:
    probs = predictions.probs.astype(temperature.dtype)
    probs = _power(jnp.stack([1 - probs, probs], axis=-1), valid_rows(predictions), temperature)
    return dataclasses.replace(predictions, probs=_as_before(predictions.probs, probs[..., 1]))


@_tempered.register
def _normal(predictions: Normal, temperature: jax.Array) -> Any:
    scale = _product(predictions.scale, jnp.sqrt(temperature))
    return dataclasses.replace(predictions, scale=scale)


@_tempered.register
def _diag(predictions: MultivariateNormalDiag, temperature: jax.Array) -> Any:
    scale_diag = _product(predictions.scale_diag, jnp.sqrt(temperature))
    return dataclasses.replace(predictions, scale_diag=scale_diag)


@_tempered.register
def _full(predictions: MultivariateNormalFullCovariance, temperature: jax.Array) -> Any:
    covariance = _product(predictions.covariance_matrix, temperature)
    return dataclasses.replace(predictions, covariance_matrix=covariance)


@_tempered.register
def _laplace(predictions: Laplace, temperature: jax.Array) -> Any:
    return dataclasses.replace(predictions, scale=_product(predictions.scale, temperature))


@_tempered.register
def _mixture(predictions: Mixture, temperature: jax.Array) -> Any:
    components = _tempered(predictions.components, temperature)
    return dataclasses.replace(predictions, components=components)


def _power(probs: jax.Array, valid: jax.Array, temperature: jax.Array) -> jax.Array:
    """probs^(1 / T) over the last axis, normalised; NaN in rows that are not valid."""
    # A valid row in place of those: NaN would spread to the gradient in T.
    probs = jnp.where(valid[..., None], probs.astype(temperature.dtype), 1.0)
    powers = jax.nn.softmax(tempered_logits(probs, temperature), axis=-1)
    return jnp.where(valid[..., None], powers, jnp.nan)


def tempered_logits(probs: jax.Array, temperature: jax.Array) -> jax.Array:
    """log(probs / max(probs)) / T over the last axis; -inf where probs are 0, with derivative 0."""
    # Below the smallest normal number comparisons and logarithms differ between devices.
    positive = probs >= jnp.finfo(probs.dtype).tiny
    # The largest logit is exactly 0, however small T is; a common factor cancels in gradients too.
    ratios = probs / lax.stop_gradient(jnp.max(probs, axis=-1, keepdims=True))
    return jnp.where(positive, jnp.log(jnp.where(positive, ratios, 1.0)) / temperature, -jnp.inf)


def _product(scale: jax.Array, factor: jax.Array) -> jax.Array:
    """scale * factor; what is not finite stays as it is, out of the gradient in T."""
    finite = jnp.isfinite(scale)
    product = jnp.where(finite, scale, 1).astype(factor.dtype) * factor
    return _as_before(scale, jnp.where(finite, product, scale.astype(factor.dtype)))


def _as_before(old: jax.Array, new: jax.Array) -> jax.Array:
    """The new values in the dtype of the old ones; integers become floating."""
    return new.astype(old.dtype) if is_floating(old) else new
