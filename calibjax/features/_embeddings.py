"""Predictions as vectors whose norm of differences is a distance."""

import functools
from typing import Any

import jax
import jax.numpy as jnp

from calibjax.distributions import Laplace, MultivariateNormalDiag, Normal
from calibjax.kernels import EmbeddingDistance, Euclidean, TotalVariation, Wasserstein


@functools.singledispatch
def embedding(distance: Any, p: Any) -> jax.Array:
    """phi(p) of one prediction: the distance of p and q is |phi(p) - phi(q)|, half the L1 norm for
    TotalVariation and the Euclidean norm for all others."""
    raise TypeError(
        "random features need prediction kernels of the distance TotalVariation, Euclidean, "
        f"EmbeddingDistance or Wasserstein, got {type(distance).__name__}."
    )


@embedding.register(TotalVariation)
@embedding.register(Euclidean)
def _probabilities(distance: Any, p: Any) -> jax.Array:
    distance(p, p)  # which knows what it is defined for
    return p.probability_vector()


@embedding.register
def _embedding(distance: EmbeddingDistance, p: Any) -> jax.Array:
    return jnp.ravel(distance.phi(p))


@embedding.register
def _wasserstein(distance: Wasserstein, p: Any) -> jax.Array:
    return _of_family(p)


@functools.singledispatch
def _of_family(p: Any) -> jax.Array:
    families = sorted(t.__name__ for t in _of_family.registry if t is not object)
    raise TypeError(
        f"random features of Wasserstein are defined for {', '.join(families)} predictions, got "
        f"{type(p).__name__}; EmbeddingDistance takes a function of any prediction."
    )


@_of_family.register
def _normal(p: Normal) -> jax.Array:
    return jnp.stack([p.loc, p.scale])


@_of_family.register
def _laplace(p: Laplace) -> jax.Array:
    return jnp.stack([p.loc, 2**0.5 * p.scale])


@_of_family.register
def _diag(p: MultivariateNormalDiag) -> jax.Array:
    return jnp.concatenate([p.loc, p.scale_diag])
