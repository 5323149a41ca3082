"""Characteristic functions E exp(i <v, Z>), and probabilities where there are only labels.

Both are for one prediction and one frequency, a number or a vector as the targets are.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from calibjax._numerics import dot
from calibjax.distributions import (
    Bernoulli,
    Categorical,
    Empirical,
    Laplace,
    Mixture,
    MultivariateNormalDiag,
    MultivariateNormalFullCovariance,
    Normal,
    Poisson,
)


@functools.singledispatch
def label_probabilities(p: Any) -> Any:
    """The probabilities of all labels ``[m]``, or None where targets are no labels."""
    return None


@label_probabilities.register(Categorical)
@label_probabilities.register(Bernoulli)
def _classes(p: Any) -> jax.Array:
    return p.probability_vector()


@label_probabilities.register
def _ensemble(p: Mixture) -> Any:
    first = jax.tree.map(lambda x: x[0], p.components)
    if label_probabilities(first) is None:
        return None
    return dot(p.probabilities(), jax.vmap(label_probabilities)(p.components))


def wave(angle: jax.Array, amplitude: jax.Array | float = 1.0) -> jax.Array:
    """amplitude exp(i angle)."""
    return lax.complex(amplitude * jnp.cos(angle), amplitude * jnp.sin(angle))


@functools.singledispatch
def characteristic(p: Any, v: jax.Array) -> jax.Array:
    """E exp(i <v, Z>) for Z ~ p, a complex number."""
    families = sorted(t.__name__ for t in characteristic.registry if t is not object)
    raise TypeError(
        f"random features are defined for Bernoulli, Categorical, {', '.join(families)} "
        f"predictions, got {type(p).__name__}."
    )


@characteristic.register
def _normal(p: Normal, v: jax.Array) -> jax.Array:
    return wave(v * p.loc, jnp.exp(-jnp.square(v * p.scale) / 2))


@characteristic.register
def _diag(p: MultivariateNormalDiag, v: jax.Array) -> jax.Array:
    return wave(dot(p.loc, v), jnp.exp(-jnp.sum(jnp.square(v * p.scale_diag)) / 2))


@characteristic.register
def _full(p: MultivariateNormalFullCovariance, v: jax.Array) -> jax.Array:
    return wave(dot(p.loc, v), jnp.exp(-dot(v, dot(p.covariance_matrix, v)) / 2))


@characteristic.register
def _laplace(p: Laplace, v: jax.Array) -> jax.Array:
    return wave(v * p.loc, 1 / (1 + jnp.square(v * p.scale)))


@characteristic.register
def _poisson(p: Poisson, v: jax.Array) -> jax.Array:
    # exp(rate (exp(i v) - 1)), with cos v - 1 as it keeps its digits.
    return wave(p.rate * jnp.sin(v), jnp.exp(-2 * p.rate * jnp.square(jnp.sin(v / 2))))


@characteristic.register
def _mixture(p: Mixture, v: jax.Array) -> jax.Array:
    return _average(p.probabilities(), p.components, lambda c: characteristic(c, v))


@characteristic.register
def _empirical(p: Empirical, v: jax.Array) -> jax.Array:
    return _average(p.probabilities(), p.samples, lambda z: wave(jnp.sum(z * v)))


def _average(weights: jax.Array, items: Any, function: Callable[[Any], jax.Array]) -> jax.Array:
    """A loop over components or samples, made again in the derivative instead of held."""

    @jax.checkpoint
    def term(weight, item):
        value = function(item)
        return weight.astype(value.dtype) * value

    def step(total, weighted):
        return total + term(*weighted), None

    zero = lax.complex(*(jnp.zeros((), weights.dtype),) * 2)
    return lax.scan(step, zero, (weights, items))[0]
