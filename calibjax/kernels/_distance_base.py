"""What a distance between predictions is, and what it knows about itself."""

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from calibjax._base.struct import PyTree, struct, type_name
from calibjax._data import Distribution
from calibjax._loops import (
    slope_of_square,
    square,
    sum_over_coordinates,
)
from calibjax._numbers import Constraint, power_of_two, safe_sqrt
from calibjax.kernels._base import check_final, hold_functions, vmap_pairs


def normal_mixture(
    key: jax.Array, exponent: float, shape: tuple[int, ...], dtype: DTypeLike
) -> jax.Array:
    """w with E cos(<w, x>) = exp(-|x|^nu): exp(-r^nu) = E exp(-a r^2), a mixture of Gaussians."""
    scale_key, key = jax.random.split(key)
    scale = jnp.sqrt(2 * _positive_stable(scale_key, exponent / 2, dtype))
    return scale * jax.random.normal(key, shape, dtype)


def cauchy_mixture(
    key: jax.Array, exponent: float, shape: tuple[int, ...], dtype: DTypeLike
) -> jax.Array:
    """w with E cos(<w, x>) = exp(-r^nu), r = sum_c |x_c|: exp(-r^nu) = E exp(-a r), a mixture of
    exponentials."""
    scale_key, key = jax.random.split(key)
    scale = _positive_stable(scale_key, exponent, dtype)
    return scale * jax.random.cauchy(key, shape, dtype)


def _positive_stable(key: jax.Array, index: float, dtype: DTypeLike) -> jax.Array:
    """A draw of a > 0 with E exp(-t a) = exp(-t^index), 0 < index <= 1.

    Kanter, Stable densities under change of scale and total variation inequalities, 1975.
    """
    if index == 1:
        return jnp.ones((), dtype)
    angle_key, exponential_key = jax.random.split(key)
    tiny = jnp.finfo(dtype).tiny
    angle = jax.random.uniform(angle_key, (), dtype, minval=tiny, maxval=jnp.pi)
    exponential = jax.random.exponential(exponential_key, (), dtype)
    # pi is rounded, and where it is rounded up its sine is negative.
    logs = [jnp.log(jnp.abs(jnp.sin(c * angle))) for c in (1 - index, 1.0, index)]
    log_power = (1 - index) * (logs[0] - jnp.log(exponential)) - logs[1]
    return jnp.exp(jnp.minimum(log_power / index + logs[2], _LARGEST_LOG))


# A frequency of 1e10 already makes the feature noise; the bound keeps its products finite.
_LARGEST_LOG = 50.0


class Distance(ABC):
    """A distance d(p, q) between two predictions; its derivative is 0 where it is 0.

    The other methods are what a class knows about its distance.  It is final, with ``__call__`` or
    ``squared``, ``pairwise`` and ``draw_frequency``: another distance is another class.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> p, q = cj.Bernoulli(jnp.array(0.2)), cj.Bernoulli(jnp.array(0.7))
        >>> distance = cj.TotalVariation()
        >>> isinstance(distance, cj.Distance), float(distance(p, q))
        (True, 0.5)
    """

    #: As of a Kernel.
    parameter_constraints: ClassVar[Mapping[str, Constraint]] = {}
    inner_functions: ClassVar[Mapping[str, str]] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        known = "pairwise", "pairwise_squared", "draw_frequency"
        check_final(cls, ("__call__", "squared"), known)

    _complete = hold_functions

    @abstractmethod
    def __call__(self, p: Distribution, q: Distribution) -> jax.Array:
        """d(p, q) of one pair."""

    def pairwise(self, ps: Distribution, qs: Distribution) -> jax.Array:
        """d(p, q) for all pairs of two batches, ``[S, T]``."""
        return vmap_pairs(self)(ps, qs)

    def embedding(self, p: Distribution) -> jax.Array:
        """phi(p) of one prediction, where the distance of p and q is a norm of phi(p) - phi(q).

        The norm is half the L1 norm for TotalVariation, and the Euclidean norm for all others.
        """
        raise no_embedding(self)

    def draw_frequency(
        self, key: jax.Array, exponent: float, shape: tuple[int, ...], dtype: DTypeLike
    ) -> jax.Array:
        """A random w with E cos(<w, phi(p) - phi(q)>) = exp(-d(p, q)^nu), in the shape of phi(p).

        phi is the embedding of predictions in which d is a norm.
        """
        raise no_embedding(self)


#: What a distance may be: an object of ours, or any function of two predictions.
DistanceLike = Distance | Callable[[Any, Any], jax.Array]


#: Numbers or arrays that belong to one prediction, or to each in a batch.
Coordinates = Sequence[jax.Array]


@struct
class Embedded:
    """Predictions as the coordinates that a distance gives them."""

    coordinates: Coordinates


class NormDistance(Distance):
    """A distance that is the root of a smooth square: kernels of the square never take the root.

    Where it is a norm of differences of `coordinates`, these are divided by a unit before anything
    is squared, so that it is right in all units of the targets.  Other distances are 0 or infinite
    where the dtype cannot hold their squares, see `squares_keep_digits`.
    """

    @abstractmethod
    def squared(self, p: Distribution, q: Distribution) -> jax.Array:
        """d(p, q)^2 of one pair."""

    def pairwise_squared(self, ps: Distribution, qs: Distribution) -> jax.Array:
        """d(p, q)^2 for all pairs of two batches, ``[S, T]``."""
        both = self.coordinates_of_batches(ps, qs)
        return vmap_pairs(self.squared)(ps, qs) if both is None else self.tile(*both)

    def __call__(self, p: Distribution, q: Distribution) -> jax.Array:
        both = self.coordinates_of_pair(p, q)
        if both is None:
            return safe_sqrt(self.squared(p, q))
        unit = power_of_two(largest_difference(*both))
        return unit * safe_sqrt(self.squared_norm(*in_units(unit, both)))

    def pairwise(self, ps: Distribution, qs: Distribution) -> jax.Array:
        """d(p, q) for all pairs of two batches, ``[S, T]``."""
        both = self.coordinates_of_batches(ps, qs)
        if both is None:
            return safe_sqrt(self.pairwise_squared(ps, qs))
        first = [x[:1] for x in both[0]]
        largest = jnp.maximum(*(largest_difference(batch, first) for batch in both))
        unit = power_of_two(largest)
        return unit * safe_sqrt(self.tile(*in_units(unit, both)))

    def coordinates(self, p: Distribution) -> Coordinates | None:
        """Arrays for one prediction, of whose differences this is the Euclidean norm, or None."""
        return None

    def coordinates_of_pair(
        self, p: Distribution, q: Distribution
    ) -> tuple[Coordinates, Coordinates] | None:
        """The coordinates of both; None if there are none."""
        xs, ys = self._coordinates(p), self._coordinates(q)
        return None if xs is None or ys is None else (xs, ys)

    def coordinates_of_batches(
        self, ps: Distribution, qs: Distribution
    ) -> tuple[Coordinates, Coordinates] | None:
        """The coordinates of both batches, with a leading axis; None if there are none."""
        xs, ys = jax.vmap(self._coordinates)(ps), jax.vmap(self._coordinates)(qs)
        return None if xs is None or ys is None else (xs, ys)

    def embedded(self, ps: Distribution) -> PyTree:
        """What stands for a batch of predictions, of which all tiles need the coordinates."""
        coordinates = jax.vmap(self._coordinates)(ps)
        return ps if coordinates is None else Embedded(coordinates)

    def _coordinates(self, p: Distribution) -> Coordinates | None:
        return p.coordinates if isinstance(p, Embedded) else self.coordinates(p)

    def squared_norm(self, xs: Coordinates, ys: Coordinates) -> jax.Array:
        """|x - y|^2 of one pair."""
        squares = (jnp.sum(jnp.square(x - y)) for x, y in zip(xs, ys, strict=True))
        return functools.reduce(jnp.add, squares)

    def tile(self, xs: Coordinates, ys: Coordinates) -> jax.Array:
        """|x - y|^2 for all pairs of two batches, ``[S, T]``."""
        if all(x.ndim == 1 for x in xs):
            return vmap_pairs(self.squared_norm)(xs, ys)
        vectors = (jnp.concatenate([x.reshape(len(x), -1) for x in batch], 1) for batch in (xs, ys))
        return sum_over_coordinates(square, slope_of_square, *vectors)

    def draw_frequency(
        self, key: jax.Array, exponent: float, shape: tuple[int, ...], dtype: DTypeLike
    ) -> jax.Array:
        """A random w with E cos(<w, phi(p) - phi(q)>) = exp(-|phi(p) - phi(q)|^nu)."""
        return normal_mixture(key, exponent, shape, dtype)


def largest_difference(xs: Coordinates, ys: Coordinates) -> jax.Array:
    """The largest of all |x - y| that are finite."""
    largest = []
    for x, y in zip(xs, ys, strict=True):
        size = jnp.abs(x - y)
        largest.append(jnp.max(jnp.where(jnp.isfinite(size), size, 0.0), initial=0.0))
    return functools.reduce(jnp.maximum, largest)


def in_units(
    unit: jax.Array, both: tuple[Coordinates, Coordinates]
) -> tuple[Coordinates, Coordinates]:
    """The coordinates of both sides, divided by a unit."""
    return jax.tree.map(lambda x: x / unit, both)


def squares_keep_digits(scale: jax.Array) -> jax.Array:
    """Whether distances from a millionth of a scale to 100 times it can be squared: in float32 for
    scales between 1e-12 and 1e17."""
    limits = jnp.finfo(scale.dtype)
    smallest = math.sqrt(float(limits.tiny)) / float(limits.eps)
    return (scale >= smallest) & (scale <= math.sqrt(float(limits.max)) / 128)


def embedding(distance: DistanceLike, p: Distribution) -> jax.Array:
    """``distance.embedding(p)``; TypeError for a plain function, whose embedding is unknown."""
    if not isinstance(distance, Distance):
        raise no_embedding(distance)
    return distance.embedding(p)


def no_embedding(distance: "DistanceLike") -> TypeError:
    """The error for a distance that is no norm of a known embedding."""
    return TypeError(
        "random features need prediction kernels of the distance TotalVariation, Euclidean, "
        f"EmbeddingDistance or Wasserstein, got {type_name(distance)}."
    )
