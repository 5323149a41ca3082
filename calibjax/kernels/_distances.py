"""Distances between predictions."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from calibjax._distribution import Distribution
from calibjax._loops import double, sign, sum_over_coordinates
from calibjax._numerics import absolute, safe_sqrt
from calibjax._struct import struct
from calibjax.kernels._base import vmap_pairs


class Distance(ABC):
    """A distance d(p, q) between two predictions; its derivative is 0 where it is 0.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> p, q = cj.Bernoulli(jnp.array(0.2)), cj.Bernoulli(jnp.array(0.7))
        >>> distance = cj.TotalVariation()
        >>> isinstance(distance, cj.Distance), float(distance(p, q))
        (True, 0.5)
    """

    @abstractmethod
    def __call__(self, p: Any, q: Any) -> jax.Array:
        """d(p, q) of one pair."""

    def pairwise(self, ps: Any, qs: Any) -> jax.Array:
        """d(p, q) for all pairs of two batches, ``[S, T]``."""
        return vmap_pairs(self)(ps, qs)


class NormDistance(Distance):
    """A distance that is the root of a smooth square: kernels of the square never take the root."""

    @abstractmethod
    def squared(self, p: Any, q: Any) -> jax.Array:
        """d(p, q)^2 of one pair."""

    def pairwise_squared(self, ps: Any, qs: Any) -> jax.Array:
        """d(p, q)^2 for all pairs of two batches, ``[S, T]``."""
        return vmap_pairs(self.squared)(ps, qs)

    def __call__(self, p: Any, q: Any) -> jax.Array:
        return safe_sqrt(self.squared(p, q))

    def pairwise(self, ps: Any, qs: Any) -> jax.Array:
        """d(p, q) for all pairs of two batches, ``[S, T]``."""
        return safe_sqrt(self.pairwise_squared(ps, qs))


def embedding(distance: Any, p: Any) -> jax.Array:
    """phi(p) of one prediction, if the distance of p and q is a norm of phi(p) - phi(q).

    It is half the L1 norm for TotalVariation and the Euclidean norm for all others.
    """
    of_distance = getattr(distance, "embedding", None)
    if of_distance is None:
        raise TypeError(
            "random features need prediction kernels of the distance TotalVariation, Euclidean, "
            f"EmbeddingDistance or Wasserstein, got {type(distance).__name__}."
        )
    return of_distance(p)


def label_probabilities(distance: Distance, p: Any) -> jax.Array:
    probabilities = p.label_probabilities() if isinstance(p, Distribution) else None
    if probabilities is None:
        raise TypeError(
            f"{type(distance).__name__} compares probability vectors (Categorical or Bernoulli "
            f"predictions, or mixtures of them), got {type(p).__name__}."
        )
    return probabilities


@struct
class TotalVariation(Distance):
    """sum_c |p_c - q_c| / 2, of the probabilities of all labels.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Categorical(jnp.array([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3]]))
        >>> cj.TotalVariation().pairwise(predictions, predictions).round(3).tolist()
        [[0.0, 0.6], [0.6, 0.0]]
    """

    def __call__(self, p: Any, q: Any) -> jax.Array:
        return jnp.sum(absolute(label_probabilities(self, p) - label_probabilities(self, q))) / 2

    def pairwise(self, ps: Any, qs: Any) -> jax.Array:
        ps, qs = label_probabilities(self, ps), label_probabilities(self, qs)
        return sum_over_coordinates(jnp.abs, sign, ps, qs) / 2

    def embedding(self, p: Any) -> jax.Array:
        """The probabilities of all labels, of one prediction."""
        return label_probabilities(self, p)


@struct
class Euclidean(NormDistance):
    """The Euclidean distance of the probabilities of all labels.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Bernoulli(jnp.array([0.2, 0.5]))
        >>> float(cj.Euclidean().pairwise(predictions, predictions)[0, 1])
        0.4243
    """

    def squared(self, p: Any, q: Any) -> jax.Array:
        return jnp.sum(jnp.square(label_probabilities(self, p) - label_probabilities(self, q)))

    def pairwise_squared(self, ps: Any, qs: Any) -> jax.Array:
        ps, qs = label_probabilities(self, ps), label_probabilities(self, qs)
        return sum_over_coordinates(jnp.square, double, ps, qs)

    def embedding(self, p: Any) -> jax.Array:
        """The probabilities of all labels, of one prediction."""
        return label_probabilities(self, p)


@struct
class EmbeddingDistance(NormDistance):
    """|phi(p) - phi(q)|, the Euclidean distance of an embedding of the predictions.

    Args:
        phi: function of *one* prediction (arrays without the batch axis) that returns a scalar or
            a vector.  A plain function is static; `jax.tree_util.Partial` carries parameters.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> distance = cj.EmbeddingDistance(lambda p: p.loc)
        >>> predictions = cj.Normal(jnp.array([0.0, 3.0]), jnp.array([1.0, 5.0]))
        >>> float(distance.pairwise(predictions, predictions)[0, 1])
        3.0
    """

    phi: Callable[[Any], jax.Array]

    def squared(self, p: Any, q: Any) -> jax.Array:
        x, y = self.phi(p), self.phi(q)
        # Equal predictions may differ in the last bit of phi, which compiled loops round in more
        # than one way: equal up to rounding is equal, or the norm would have a slope of 1 there.
        rounding = 2 * jnp.finfo(x.dtype).eps * jnp.maximum(jnp.abs(x), jnp.abs(y))
        return jnp.sum(jnp.square(jnp.where(jnp.abs(x - y) > rounding, x - y, 0.0)))

    def embedding(self, p: Any) -> jax.Array:
        """phi(p), a vector, of one prediction."""
        return jnp.ravel(self.phi(p))
