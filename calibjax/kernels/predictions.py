"""Distances of predictions, and kernels on these and on pairs of a prediction and a target."""

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike, DTypeLike

from calibjax._base.compile import on_cpu
from calibjax._base.struct import PyTree, is_traced, static, struct, type_name, widest_dtype
from calibjax._data.distribution import Distribution
from calibjax._loops.coordinate_sums import (
    CoordinateSums,
    Elementwise,
    slope_of_square,
    square,
    sum_of_squares_near_1,
    sum_over_coordinates,
)
from calibjax._loops.random_numbers import normal_of, positive_stable_of, uniform_numbers
from calibjax._numbers.arithmetic import dot, fast_where, power_of_two
from calibjax._numbers.derivatives import safe_sqrt
from calibjax._numbers.validity import POSITIVE, Constraint, scalar_or_nan
from calibjax.kernels.base import (
    Kernel,
    KernelLike,
    Sample,
    check_final,
    hold_functions,
    kernel_value,
    pairwise,
    upper_bound,
    vmap_pairs,
)


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
        squares = (jnp.sum(square(x, y)) for x, y in zip(xs, ys, strict=True))
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
        largest.append(jnp.max(fast_where(jnp.isfinite(size), size, 0.0), initial=0.0))
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


_EXPONENT = Constraint("a Python number in (0, 2]", lambda x: (x > 0) & (x <= 2), is_static=True)


@struct
class DistanceKernel(Kernel):
    """exp(-(d(p, q) / l)^nu), a kernel on predictions.

    Positive definite for Euclidean, EmbeddingDistance, MeanEmbeddingDistance, and Wasserstein of
    all families but full covariances, with any exponent, and for TotalVariation with nu <= 1.
    MixtureWasserstein is not known to give a kernel.

    Args:
        distance: a distance between two predictions, or a callable of two.
        lengthscale: l > 0, in units of the distance.
        exponent: nu in (0, 2], a Python float: 1 is the exponential, 2 the Gaussian kernel.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> kernel = cj.DistanceKernel(cj.TotalVariation(), lengthscale=0.5)
        >>> p, q = cj.Bernoulli(jnp.array(0.2)), cj.Bernoulli(jnp.array(0.7))
        >>> float(kernel(p, q))
        0.3679

    Reference: Widmann, Lindsten and Zachariah, Calibration tests beyond classification, ICLR 2021,
    Eq. 4.
    """

    distance: DistanceLike
    lengthscale: ArrayLike = 1.0
    exponent: float = static(default=1.0)

    domain = "predictions"
    parameter_constraints = {"lengthscale": POSITIVE, "exponent": _EXPONENT}
    inner_functions = {"distance": "a distance"}

    def __call__(self, p: Distribution, q: Distribution) -> jax.Array:
        norm, scale = self.distance, self.scalar_lengthscale()
        if not isinstance(norm, NormDistance):
            return self._from_distance(kernel_value(norm, p, q), scale)
        both = norm.coordinates_of_both(p, q)
        if both is None:
            return self._from_square(norm.squared(p, q), scale)
        unit, both = in_units(scale, both)
        return self._from_square(norm.squared_norm(*both), scale, unit)

    def pairwise(self, ps: Distribution, qs: Distribution) -> jax.Array:
        """The kernel for all pairs of two batches, ``[S, T]``."""
        norm, scale = self.distance, self.scalar_lengthscale()
        # The square of a norm is smooth at 0, where the norm is not.
        if not isinstance(norm, NormDistance):
            return self._from_distance(pairwise(norm, ps, qs), scale)
        both = norm.coordinates_of_both(ps, qs, are_batches=True)
        if both is None:
            return self._from_square(norm.pairwise_squared(ps, qs), scale)
        unit, both = in_units(scale, both)
        # An exponential of the square does not need the digits of small distances; a root does.
        has_products = self.exponent == 2 and on_cpu()
        sums = sum_of_squares_near_1 if has_products else sum_over_coordinates
        return self._from_square(norm.tile(*both, sums), scale, unit)

    def upper_bound(self) -> float:
        """1."""
        return 1.0

    def draw_frequencies(
        self, key: jax.Array, n: int, point: jax.Array, dtype: DTypeLike
    ) -> jax.Array:
        """n random w with E cos(<w, phi(p) - phi(q)>) = k(p, q), for the embedding phi(p)."""
        if not isinstance(self.distance, Distance):
            raise no_embedding(self.distance)
        w = self.distance.draw_frequencies(key, self.exponent, (n, point.size), dtype)
        return w / self.scalar_lengthscale()

    def scalar_lengthscale(self) -> jax.Array:
        """The lengthscale, NaN if it is not positive; ValueError if it is not a scalar."""
        return scalar_or_nan(POSITIVE, self.lengthscale, "lengthscale of DistanceKernel")

    def _from_square(
        self, squared: jax.Array, scale: jax.Array, unit: jax.Array | None = None
    ) -> jax.Array:
        """The kernel, from the squared distance in units of `unit`."""
        if unit is None:
            scale, unit = _squarable(scale), jnp.ones((), squared.dtype)
        if self.exponent == 2:
            return _exp_of_minus(squared / jnp.square(scale / unit))
        return self._from_distance(unit * safe_sqrt(squared), scale)

    def _from_distance(self, distance: jax.Array, scale: jax.Array) -> jax.Array:
        ratio = distance / scale
        if self.exponent == 1:
            return _exp_of_minus(ratio)
        # The slope of ratio^nu at 0 is infinite for nu < 1: there, as at every kink, it is 0.  A
        # tiny number instead is right to rounding where a ratio of 0 is rounded otherwise.
        at_zero = ratio == 0
        power = jnp.where(at_zero, jnp.finfo(ratio.dtype).tiny, ratio) ** self.exponent
        return _exp_of_minus(jnp.where(at_zero, 0.0, power))


def embedded_rows(kernel: KernelLike, predictions: Distribution) -> PyTree:
    """What stands for a batch of predictions in the tiles of a prediction kernel."""
    if isinstance(kernel, DistanceKernel) and isinstance(kernel.distance, NormDistance):
        return kernel.distance.embedded(predictions)
    return predictions


def _squarable(scale: jax.Array) -> jax.Array:
    """The lengthscale, NaN if its square is out of range; a ValueError where it is concrete."""
    in_range = squares_keep_digits(scale)
    if not is_traced(in_range) and not bool(in_range):
        raise ValueError(
            f"lengthscale of DistanceKernel must be a scale whose square {scale.dtype} can hold, "
            f"got {scale}: rescale, divide predictions and targets by a constant, or use "
            "jax.enable_x64."
        )
    return fast_where(jnp.asarray(in_range), scale, jnp.nan)


def _exp_of_minus(x: jax.Array) -> jax.Array:
    # A constant NaN would not stay one: on CPUs XLA turns exp of it into any number.
    return fast_where(x == x, jnp.exp(-x), jnp.nan)


@struct
class TensorProduct(Kernel):
    """k((p, y), (q, z)) = k_P(p, q) k_Y(y, z): a prediction kernel times a target kernel.

    Args:
        prediction_kernel: k_P, for example a DistanceKernel, or a callable of two predictions.
        target_kernel: k_Y, for example a GaussianKernel, or a callable of two targets.

    See also:
        `default_kernel` for a usual one, `FeatureKernel` and `SteinKernel` for others on pairs.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> kernel = cj.TensorProduct(cj.DistanceKernel(cj.TotalVariation()), cj.WhiteKernel())
        >>> p, q = cj.Bernoulli(jnp.array(0.2)), cj.Bernoulli(jnp.array(0.7))
        >>> float(kernel((p, jnp.array(1)), (q, jnp.array(1))))
        0.6065
    """

    prediction_kernel: KernelLike
    target_kernel: KernelLike

    domain = "pairs"
    inner_functions = {"prediction_kernel": "predictions", "target_kernel": "targets"}

    def __call__(self, x: Sample, y: Sample) -> jax.Array:
        of_predictions = kernel_value(self.prediction_kernel, x[0], y[0])
        return of_predictions * kernel_value(self.target_kernel, x[1], y[1])

    def upper_bound(self) -> float | jax.Array:
        """The product of the bounds of both kernels."""
        return upper_bound(self.prediction_kernel) * upper_bound(self.target_kernel)


@struct
class FeatureKernel(Kernel):
    """k((p, y), (q, z)) = k_P(p, q) <f(p, y), f(q, z)>, which detects errors of a feature f.

    A feature is a number, or a vector, such as log p(y), or whether y is the most likely class of
    p.  The calibration error of the kernel is 0 if, among predictions that k_P holds for alike,
    the feature is on average what the predictions expect.

    `aggregated_skce_test` takes the kernel for every family.  Estimators take it for labels, where
    the expectation of the feature is a finite sum.

    Args:
        prediction_kernel: k_P, for example a DistanceKernel, or a callable of two predictions.
        feature: f, a function of *one* prediction and *one* target that returns a scalar or a
            vector.

    See also:
        `TensorProduct` for all features of a target kernel.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> distance = cj.DistanceKernel(cj.TotalVariation())
        >>> kernel = cj.FeatureKernel(distance, lambda p, y: y == jnp.argmax(p.probs))
        >>> predictions = cj.Categorical(jnp.array([[0.75, 0.25], [0.75, 0.25]]))
        >>> float(cj.skce(kernel, predictions, jnp.array([0, 1])))
        -0.1875
    """

    prediction_kernel: KernelLike
    feature: Callable[[Any, jax.Array], jax.Array]

    domain = "pairs"
    inner_functions = {"prediction_kernel": "predictions", "feature": "a feature"}

    def __call__(self, x: Sample, y: Sample) -> jax.Array:
        feature = VectorFeature(self.feature)
        product = dot(feature(*x), feature(*y))
        return kernel_value(self.prediction_kernel, x[0], y[0]) * product


@struct
class VectorFeature:
    """A feature f as a vector in the dtype of the prediction."""

    feature: Callable[[Any, jax.Array], jax.Array]

    def __call__(self, p: Distribution, y: jax.Array) -> jax.Array:
        value = jnp.asarray(self.feature(p, y))
        return jnp.ravel(value).astype(widest_dtype(*jax.tree.leaves(p)))
