"""What a distance of predictions knows about itself; distances that are norms."""

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from calibjax._base.struct import PyTree, struct, type_name
from calibjax._data.distribution import Distribution
from calibjax._loops.coordinate_sums import (
    CoordinateSums,
    Elementwise,
    slope_of_square,
    square,
    sum_over_coordinates,
)
from calibjax._loops.random_numbers import normal_of, positive_stable_of, uniform_numbers
from calibjax._numbers.arithmetic import power_of_two, x_where
from calibjax._numbers.derivatives import safe_sqrt
from calibjax._numbers.validity import Constraint
from calibjax.kernels.base import check_final, hold_functions, vmap_pairs


class Distance(ABC):
    """A distance d(p, q) between two predictions; its derivative is 0 where it is 0.

    The other methods are what a class knows about its distance.  It is final, with ``__call__`` or
    ``squared``, ``pairwise`` and ``draw_frequencies``: another distance is another class.

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
        known = "pairwise", "pairwise_squared", "draw_frequencies"
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

    def draw_frequencies(
        self, key: jax.Array, exponent: float, shape: tuple[int, int], dtype: DTypeLike
    ) -> jax.Array:
        """Random w with E cos(<w, phi(p) - phi(q)>) = exp(-d(p, q)^nu), ``[n, m]``.

        phi is the embedding of predictions in which d is a norm.
        """
        raise no_embedding(self)


#: What a distance may be: an object of ours, or any function of two predictions.
DistanceLike = Distance | Callable[[Any, Any], jax.Array]


#: Numbers or arrays that belong to one prediction, or to each in a batch.
Coordinates = Sequence[jax.Array]
#: Those of two predictions, or of two batches.
Sides = tuple[Coordinates, Coordinates]


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

    #: The square of the difference of two coordinates, and its slope in the first one.
    square_and_slope: ClassVar[tuple[Elementwise, Elementwise]] = square, slope_of_square

    @abstractmethod
    def squared(self, p: Distribution, q: Distribution) -> jax.Array:
        """d(p, q)^2 of one pair."""

    def pairwise_squared(self, ps: Distribution, qs: Distribution) -> jax.Array:
        """d(p, q)^2 for all pairs of two batches, ``[S, T]``."""
        both = self.coordinates_of_both(ps, qs, are_batches=True)
        return vmap_pairs(self.squared)(ps, qs) if both is None else self.tile(*both)

    def __call__(self, p: Distribution, q: Distribution) -> jax.Array:
        both = self.coordinates_of_both(p, q)
        if both is None:
            return safe_sqrt(self.squared(p, q))
        unit, both = in_units(largest_difference(*both), both)
        return unit * safe_sqrt(self.squared_norm(*both))

    def pairwise(self, ps: Distribution, qs: Distribution) -> jax.Array:
        """d(p, q) for all pairs of two batches, ``[S, T]``."""
        both = self.coordinates_of_both(ps, qs, are_batches=True)
        if both is None:
            return safe_sqrt(self.pairwise_squared(ps, qs))
        first = [x[:1] for x in both[0]]
        largest = jnp.maximum(*(largest_difference(batch, first) for batch in both))
        unit, both = in_units(largest, both)
        return unit * safe_sqrt(self.tile(*both))

    def coordinates(self, p: Distribution) -> Coordinates | None:
        """Arrays for one prediction, of whose differences this is the Euclidean norm, or None."""
        return None

    def coordinates_of_both(
        self, p: Distribution, q: Distribution, are_batches: bool = False
    ) -> Sides | None:
        """The coordinates of two predictions, or batches of them, or None."""
        coordinates = jax.vmap(self._coordinates) if are_batches else self._coordinates
        xs, ys = coordinates(p), coordinates(q)
        return None if xs is None or ys is None else (xs, ys)

    def embedded(self, ps: Distribution) -> PyTree:
        """What stands for a batch of predictions, of which all tiles need the coordinates."""
        coordinates = jax.vmap(self._coordinates)(ps)
        return ps if coordinates is None else Embedded(coordinates)

    def _coordinates(self, p: Distribution) -> Coordinates | None:
        return p.coordinates if isinstance(p, Embedded) else self.coordinates(p)

    def squared_norm(self, xs: Coordinates, ys: Coordinates) -> jax.Array:
        """|x - y|^2 of one pair."""
        square, _ = self.square_and_slope
        squares = []
        for x, y in zip(xs, ys, strict=True):
            squares.append(jnp.sum(square(x, y)))
        return functools.reduce(jnp.add, squares)

    def tile(
        self, xs: Coordinates, ys: Coordinates, sums: CoordinateSums = sum_over_coordinates
    ) -> jax.Array:
        """|x - y|^2 for all pairs of two batches, ``[S, T]``; `sums` makes it of vectors."""
        if max(map(jnp.ndim, xs)) == 1:
            return vmap_pairs(self.squared_norm)(xs, ys)
        vectors = (jnp.concatenate([x.reshape(len(x), -1) for x in batch], 1) for batch in (xs, ys))
        return sums(*self.square_and_slope, *vectors)

    def draw_frequencies(
        self, key: jax.Array, exponent: float, shape: tuple[int, int], dtype: DTypeLike
    ) -> jax.Array:
        """Random w with E cos(<w, phi(p) - phi(q)>) = exp(-|phi(p) - phi(q)|^nu)."""
        # exp(-r^nu) = E exp(-a r^2), a mixture of Gaussians.
        uniform = uniform_numbers(key, (shape[0], 2 + shape[1]), dtype)
        scale = jnp.sqrt(2 * positive_stable_of(uniform[:, :2], exponent / 2))
        return scale * normal_of(uniform[:, 2:])


def largest_difference(xs: Coordinates, ys: Coordinates) -> jax.Array:
    """The largest of all |x - y| that are finite."""
    largest = []
    for x, y in zip(xs, ys, strict=True):
        size = jnp.abs(x - y)
        largest.append(jnp.max(x_where(jnp.isfinite(size), size, 0.0), initial=0.0))
    return functools.reduce(jnp.maximum, largest)


def in_units(scale: jax.Array, both: Sides) -> tuple[jax.Array, Sides]:
    """A power of 2 near a scale, and the coordinates of both sides divided by it."""
    unit = power_of_two(scale.astype(both[0][0].dtype))
    return unit, jax.tree.map(lambda x: x / unit, both)


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
    """The error for a distance that is not a norm of a known embedding."""
    return TypeError(
        "random features need prediction kernels of the distance TotalVariation, Euclidean, "
        f"EmbeddingDistance or Wasserstein, got {type_name(distance)}."
    )


class VectorDistance(NormDistance):
    """The Euclidean distance of vectors computed from predictions: `embedding` differs."""

    @abstractmethod
    def embedding(self, p: Distribution) -> jax.Array:
        """The vector of one prediction."""

    def squared(self, p: Distribution, q: Distribution) -> jax.Array:
        return self.squared_norm(self.coordinates(p), self.coordinates(q))

    def coordinates(self, p: Distribution) -> Coordinates:
        return (self.embedding(p),)
