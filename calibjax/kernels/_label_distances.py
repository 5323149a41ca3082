"""Distances between the probabilities of all labels."""

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from calibjax._distribution import Distribution
from calibjax._loops import (
    distance,
    slope_of_distance,
    slope_of_square,
    square,
    sum_over_coordinates,
)
from calibjax._numbers import absolute
from calibjax._struct import struct
from calibjax.kernels._base import vmap_pairs
from calibjax.kernels._distance import Distance, NormDistance
from calibjax.kernels._spectra import cauchy_mixture


def label_probabilities(distance: Distance, p: Distribution) -> jax.Array:
    """The probabilities of all labels, of one prediction or of each in a batch.

    The TypeError for a prediction of anything else names the distance.
    """
    if not (isinstance(p, Distribution) and p.has_labels):
        raise TypeError(
            f"{type(distance).__name__} compares probability vectors (Categorical or Bernoulli "
            f"predictions, or mixtures of them), got {type(p).__name__}."
        )
    return p.label_probabilities()


def _are_binary(p: Distribution, q: Distribution) -> bool:
    """Whether one number says all of either prediction, or of each in two batches."""
    return all(isinstance(x, Distribution) and x.is_binary for x in (p, q))


def _label_differences(
    distance: Distance, p: Distribution, q: Distribution
) -> tuple[jax.Array, int]:
    """The differences of the probabilities of all labels, and how often each of them occurs.

    Of two binary predictions one number, which both labels share up to its sign.
    """
    if _are_binary(p, q):
        return p.binary_probability() - q.binary_probability(), 2
    return label_probabilities(distance, p) - label_probabilities(distance, q), 1


@struct
class TotalVariation(Distance):
    """sum_c |p_c - q_c| / 2, of the probabilities of all labels.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Categorical(jnp.array([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3]]))
        >>> cj.TotalVariation().pairwise(predictions, predictions).round(3).tolist()
        [[0.0, 0.6], [0.6, 0.0]]
    """

    def __call__(self, p: Distribution, q: Distribution) -> jax.Array:
        differences, times = _label_differences(self, p, q)
        return times * jnp.sum(absolute(differences)) / 2

    def pairwise(self, ps: Distribution, qs: Distribution) -> jax.Array:
        if _are_binary(ps, qs):
            return vmap_pairs(self)(ps, qs)
        both = label_probabilities(self, ps), label_probabilities(self, qs)
        return sum_over_coordinates(distance, slope_of_distance, *both) / 2

    def embedding(self, p: Distribution) -> jax.Array:
        """The probabilities of all labels, of one prediction."""
        return label_probabilities(self, p)

    def draw_frequency(
        self, key: jax.Array, exponent: float, shape: tuple[int, ...], dtype: DTypeLike
    ) -> jax.Array:
        """A random w with E cos(<w, p - q>) = exp(-d(p, q)^nu) for nu <= 1."""
        if exponent > 1:
            raise TypeError(
                "random features need an exponent of at most 1 with TotalVariation, which gives no "
                f"positive definite kernel with others, got {exponent}."
            )
        return cauchy_mixture(key, exponent, shape, dtype) / 2


@struct
class Euclidean(NormDistance):
    """The Euclidean distance of the probabilities of all labels.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Bernoulli(jnp.array([0.2, 0.5]))
        >>> float(cj.Euclidean().pairwise(predictions, predictions)[0, 1])
        0.4243
    """

    def squared(self, p: Distribution, q: Distribution) -> jax.Array:
        differences, times = _label_differences(self, p, q)
        return times * jnp.sum(jnp.square(differences))

    def pairwise_squared(self, ps: Distribution, qs: Distribution) -> jax.Array:
        if _are_binary(ps, qs):
            return vmap_pairs(self.squared)(ps, qs)
        both = label_probabilities(self, ps), label_probabilities(self, qs)
        return sum_over_coordinates(square, slope_of_square, *both)

    def embedding(self, p: Distribution) -> jax.Array:
        """The probabilities of all labels, of one prediction."""
        return label_probabilities(self, p)
