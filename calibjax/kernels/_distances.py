"""Distances between predictions: of labels, of embeddings, of Wasserstein and of Fisher scores."""

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike, DTypeLike

from calibjax._base.check import check_shapes
from calibjax._base.struct import PyTree, batch_of_one, is_array, struct, type_name, widest_dtype
from calibjax._data.distribution import Distribution, families_with, wasserstein_refused
from calibjax._loops.coordinate_sums import (
    CoordinateSums,
    Elementwise,
    distance,
    slope_of_distance,
    slope_of_square,
    slope_of_square_beyond_rounding,
    square,
    square_beyond_rounding,
    sum_over_coordinates,
)
from calibjax._loops.random_numbers import cauchy_of, normal_of, uniform_numbers
from calibjax._numbers.arithmetic import dot, power_of_two, x_where
from calibjax._numbers.derivatives import absolute, safe_sqrt
from calibjax._numbers.validity import POSITIVE, Constraint, valid_or_nan
from calibjax.kernels._base import KernelLike, check_final, hold_functions, pairwise, vmap_pairs


def _positive_stable(uniform: jax.Array, index: float) -> jax.Array:
    """Draws a > 0 ``[n, 1]`` with E exp(-t a) = exp(-t^index), of uniform numbers ``[n, 2]``.

    0 < index <= 1.  Kanter, Stable densities under change of scale and total variation
    inequalities, 1975.
    """
    if index == 1:
        return jnp.ones_like(uniform[:, :1])
    if index == 0.5:
        # The law of Lévy, and of the exponent that most kernels have.
        return 1 / (2 * jnp.square(normal_of(uniform[:, :1])))
    angle, exponential = jnp.pi * uniform[:, :1], -jnp.log(uniform[:, 1:])
    # pi is rounded, and where it is rounded up its sine is negative.
    logs = [jnp.log(jnp.abs(jnp.sin(c * angle))) for c in (1 - index, 1.0, index)]
    log_power = (1 - index) * (logs[0] - jnp.log(exponential)) - logs[1]
    return jnp.exp(jnp.minimum(log_power / index + logs[2], _LARGEST_LOG))


# A frequency of 1e10 already makes the feature noise; the bound keeps its products finite.
_LARGEST_LOG = 50.0


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
        unit = power_of_two(largest_difference(*both))
        return unit * safe_sqrt(self.squared_norm(*in_units(unit, both)))

    def pairwise(self, ps: Distribution, qs: Distribution) -> jax.Array:
        """d(p, q) for all pairs of two batches, ``[S, T]``."""
        both = self.coordinates_of_both(ps, qs, are_batches=True)
        if both is None:
            return safe_sqrt(self.pairwise_squared(ps, qs))
        first = [x[:1] for x in both[0]]
        largest = jnp.maximum(*(largest_difference(batch, first) for batch in both))
        unit = power_of_two(largest)
        return unit * safe_sqrt(self.tile(*in_units(unit, both)))

    def coordinates(self, p: Distribution) -> Coordinates | None:
        """Arrays for one prediction, of whose differences this is the Euclidean norm, or None."""
        return None

    def coordinates_of_both(
        self, p: Distribution, q: Distribution, are_batches: bool = False
    ) -> tuple[Coordinates, Coordinates] | None:
        """The coordinates of two predictions, or batches of them; None if there are none."""
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
        if all(x.ndim == 1 for x in xs):
            return vmap_pairs(self.squared_norm)(xs, ys)
        vectors = (jnp.concatenate([x.reshape(len(x), -1) for x in batch], 1) for batch in (xs, ys))
        return sums(*self.square_and_slope, *vectors)

    def draw_frequencies(
        self, key: jax.Array, exponent: float, shape: tuple[int, int], dtype: DTypeLike
    ) -> jax.Array:
        """Random w with E cos(<w, phi(p) - phi(q)>) = exp(-|phi(p) - phi(q)|^nu)."""
        # exp(-r^nu) = E exp(-a r^2), a mixture of Gaussians.
        uniform = uniform_numbers(key, (shape[0], 2 + shape[1]), dtype)
        scale = jnp.sqrt(2 * _positive_stable(uniform[:, :2], exponent / 2))
        return scale * normal_of(uniform[:, 2:])


def largest_difference(xs: Coordinates, ys: Coordinates) -> jax.Array:
    """The largest of all |x - y| that are finite."""
    largest = []
    for x, y in zip(xs, ys, strict=True):
        size = jnp.abs(x - y)
        largest.append(jnp.max(x_where(jnp.isfinite(size), size, 0.0), initial=0.0))
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


def _check_labels(distance: Distance, *predictions: Distribution) -> None:
    """TypeError for predictions of anything but labels; it names the distance."""
    for p in predictions:
        if not (isinstance(p, Distribution) and p.has_labels):
            raise TypeError(
                f"{type(distance).__name__} compares probability vectors (Categorical or Bernoulli "
                f"predictions, or mixtures of them), got {type(p).__name__}."
            )


def label_probabilities(distance: Distance, p: Distribution) -> jax.Array:
    """The probabilities of all labels, of one prediction."""
    _check_labels(distance, p)
    return p.label_probabilities()


def _label_differences(
    distance: Distance, p: Distribution, q: Distribution
) -> tuple[jax.Array, int]:
    """The differences of the probabilities of all labels, and how often each of them occurs.

    Of two binary predictions one number, which both labels share up to its sign.
    """
    _check_labels(distance, p, q)
    if p.is_binary and q.is_binary:
        return p.binary_probability() - q.binary_probability(), 2
    return p.label_probabilities() - q.label_probabilities(), 1


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
        _check_labels(self, ps, qs)
        if ps.is_binary and qs.is_binary:
            return vmap_pairs(self)(ps, qs)
        both = ps.label_probabilities(), qs.label_probabilities()
        return sum_over_coordinates(distance, slope_of_distance, *both) / 2

    def embedding(self, p: Distribution) -> jax.Array:
        """The probabilities of all labels, of one prediction."""
        return label_probabilities(self, p)

    def draw_frequencies(
        self, key: jax.Array, exponent: float, shape: tuple[int, int], dtype: DTypeLike
    ) -> jax.Array:
        """Random w with E cos(<w, p - q>) = exp(-d(p, q)^nu) for nu <= 1."""
        if exponent > 1:
            raise TypeError(
                "random features need an exponent of at most 1 with TotalVariation, which gives no "
                f"positive definite kernel with others, got {exponent}."
            )
        # exp(-r^nu) = E exp(-a r), a mixture of exponentials, for r = sum_c |p_c - q_c| / 2.
        uniform = uniform_numbers(key, (shape[0], 2 + shape[1]), dtype)
        return _positive_stable(uniform[:, :2], exponent) * cauchy_of(uniform[:, 2:]) / 2


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

    def coordinates(self, p: Distribution) -> Coordinates | None:
        _check_labels(self, p)
        return None if p.is_binary else (p.label_probabilities(),)

    def embedding(self, p: Distribution) -> jax.Array:
        """The probabilities of all labels, of one prediction."""
        return label_probabilities(self, p)


class VectorDistance(NormDistance):
    """The Euclidean distance of vectors that are made of predictions: `embedding` differs."""

    @abstractmethod
    def embedding(self, p: Distribution) -> jax.Array:
        """The vector of one prediction."""

    def squared(self, p: Distribution, q: Distribution) -> jax.Array:
        return self.squared_norm(self.coordinates(p), self.coordinates(q))

    def coordinates(self, p: Distribution) -> Coordinates:
        return (self.embedding(p),)


# Up to this number, each number of an embedding is a coordinate of its own.
_FEW = 4


@struct
class EmbeddingDistance(VectorDistance):
    """|phi(p) - phi(q)|, the Euclidean distance of an embedding of the predictions.

    Args:
        phi: function of *one* prediction (arrays without the batch axis) that returns a scalar or
            a vector.  A function that is defined again is compiled again: define it once, and
            let `jax.tree_util.Partial` carry what changes.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> distance = cj.EmbeddingDistance(lambda p: p.loc)
        >>> predictions = cj.Normal(jnp.array([0.0, 3.0]), jnp.array([1.0, 5.0]))
        >>> float(distance.pairwise(predictions, predictions)[0, 1])
        3.0
    """

    phi: Callable[[Any], jax.Array]

    inner_functions = {"phi": "an embedding"}

    # Equal predictions may differ in the last bit of phi, which compiled loops round in more than
    # one way: equal up to rounding is equal, or the norm would have a slope of 1 there.
    square_and_slope = square_beyond_rounding, slope_of_square_beyond_rounding

    def _value(self, p: Distribution) -> jax.Array:
        """phi(p) as an array of the dtype of p."""
        value = self.phi(p)
        if not is_array(value):
            raise TypeError(
                "phi of EmbeddingDistance must return a scalar or a vector, got "
                f"{type(value).__name__}."
            )
        return jnp.asarray(value).astype(widest_dtype(*jax.tree.leaves(p)))

    def coordinates(self, p: Distribution) -> Coordinates:
        value = self._value(p)
        # Tiles of single numbers are made in one loop, which is faster than tiles of vectors.
        return tuple(value) if value.ndim == 1 and value.size <= _FEW else (value,)

    def embedding(self, p: Distribution) -> jax.Array:
        """phi(p), a vector, of one prediction."""
        return jnp.ravel(self._value(p))


@struct
class Wasserstein(NormDistance):
    """The 2-Wasserstein distance between two predictions of a family, in units of the targets.

    W(p, q)^2 = |loc_p - loc_q|^2 + B, where B = |scale_p - scale_q|^2 for Normal and
    MultivariateNormalDiag, B = 2 (scale_p - scale_q)^2 for Laplace, and
    B = tr S_p + tr S_q - 2 tr (S_p^1/2 S_q S_p^1/2)^1/2 for MultivariateNormalFullCovariance with
    covariance matrices S (Widmann et al., ICLR 2021, Appendix D).

    A kernel exp(-(W / l)^nu), nu <= 2, is positive definite for Normal, MultivariateNormalDiag and
    Laplace predictions.  For full covariances it is known to be positive definite only if the
    covariances commute.

    With full covariances a pair costs O(d^3), and only first derivatives are right.

    Raises:
        TypeError: the predictions are of two families, or their family has no formula.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Normal(jnp.array([0.0, 3.0]), jnp.array([1.0, 5.0]))
        >>> float(cj.Wasserstein().pairwise(predictions, predictions)[0, 1])
        5.0
    """

    def squared(self, p: Distribution, q: Distribution) -> jax.Array:
        return squared_wasserstein(p, q)

    def coordinates_of_both(
        self, p: Distribution, q: Distribution, are_batches: bool = False
    ) -> tuple[Coordinates, Coordinates] | None:
        _check_families(p, q)
        return super().coordinates_of_both(p, q, are_batches)

    def coordinates(self, p: Distribution) -> Coordinates | None:
        return p.wasserstein_coordinates()

    def embedding(self, p: Distribution) -> jax.Array:
        """A vector for one prediction; the distance is the norm of the difference of vectors."""
        vector = p.wasserstein_embedding()
        if vector is None:
            families = families_with("wasserstein_embedding")
            raise TypeError(
                f"random features of Wasserstein are defined for {families} predictions, got "
                f"{type(p).__name__}; EmbeddingDistance takes a function of any prediction."
            )
        return vector


def squared_wasserstein(p: Distribution, q: Distribution) -> jax.Array:
    """The squared 2-Wasserstein distance of one pair."""
    _check_families(p, q)
    return p.squared_wasserstein(q)


def _check_families(p: Distribution, q: Distribution) -> None:
    if isinstance(p, Embedded) and isinstance(q, Embedded):
        return
    if type(p) is not type(q):
        raise TypeError(
            "Wasserstein is defined for two predictions of one family, got "
            f"{type(p).__name__} and {type(q).__name__}."
        )
    if not isinstance(p, Distribution):
        raise wasserstein_refused(p)


_FINITE_POINTS = Constraint(
    "finite, and at least one", lambda x: np.isfinite(x).all() & (np.size(x) > 0)
)


@struct
class FisherDistance(VectorDistance):
    """The root of the generalised Fisher divergence, D(p, q)^2 = E |s_p(X) - s_q(X)|^2.

    The mean is over M points of a base measure, X = x_j with probability 1 / M, and
    s_p(x) = grad_x log p(x) is the score of p.  No normalising constant is needed.  It is the
    distance of vectors of M d numbers, which sums over pairs hold for each row, so that a
    DistanceKernel of it is positive definite for every exponent in (0, 2].

    Args:
        points: ``[M]``, or ``[M, d]`` for vectors; in units of the targets.  Take them from where
            the targets are, for example draws of a few of the predictions; the points must not
            depend on the targets that are tested.

    Raises:
        TypeError, ValueError: points of another shape than the targets, or predictions without a
            score.  Points outside of the support of a prediction make distances to it NaN.

    See also:
        `KernelizedFisherDistance`, which smooths the scores; `Wasserstein` and
        `MeanEmbeddingDistance` where laws are known.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> p, q = (cj.Normal(jnp.array(m), jnp.array(1.0)) for m in (0.0, 2.0))
        >>> float(cj.FisherDistance(jnp.array([-1.0, 0.0, 1.0]))(p, q))
        2.0

    Reference: Glaser, Widmann, Lindsten and Gretton, Fast and scalable score-based kernel
    calibration tests, UAI 2023, Section 4.
    """

    points: ArrayLike

    parameter_constraints = {"points": _FINITE_POINTS}

    @classmethod
    def under_normal(cls, loc: ArrayLike, scale: ArrayLike) -> Self:
        """The distance with the base measure N(loc, scale^2 I), exact for normal predictions.

        Their scores are linear, and the points loc +- scale sqrt(d) e_c, for the unit vectors e_c
        of d coordinates, have the mean of every quadratic function: they have the mean and the
        covariance matrix of the base measure.

        Args:
            loc: a number, or a vector ``[d]``.
            scale: a positive number.

        Raises:
            ValueError: loc or scale is none of these.

        Example:
            >>> import jax.numpy as jnp, calibjax as cj
            >>> distance = cj.FisherDistance.under_normal(jnp.array([0.0, 1.0]), 2.0)
            >>> distance.points.shape
            (4, 2)
        """
        loc = jnp.asarray(loc)
        loc = loc.astype(widest_dtype(loc, scale))
        if loc.ndim > 1:
            raise ValueError(f"loc must be a number or a vector, got shape {list(loc.shape)}.")
        scale = jnp.asarray(valid_or_nan(POSITIVE, scale, "scale"), loc.dtype)
        steps = scale * math.sqrt(loc.size) * jnp.eye(loc.size, dtype=loc.dtype)
        steps = jnp.concatenate([steps, -steps])
        return cls(loc[None] + steps.reshape(-1, *loc.shape))

    def embedding(self, p: Distribution) -> jax.Array:
        """The scores of one prediction at all points over sqrt(M), ``[M d]``."""
        scores = _scores_at(p, self.points)
        return jnp.ravel(scores) / math.sqrt(scores.shape[0])


@struct
class KernelizedFisherDistance(VectorDistance):
    """D(p, q)^2 = E l(X, X') <s_p(X) - s_q(X), s_p(X') - s_q(X')> with independent X and X'.

    It is the squared norm of E (s_p(X) - s_q(X)) l(X, .), which smooths the difference of the
    scores.  X and X' are among M points of a base measure, each with probability 1 / M.  The kernel
    matrix of the points is factored once for each batch, O(M^3), and 1e-6 M times its mean diagonal
    is added to the diagonal in float32 (2e-15 M in float64).

    Args:
        points: ``[M]``, or ``[M, d]`` for vectors, as for FisherDistance.
        kernel: a target kernel l, such as a GaussianKernel.

    Raises:
        TypeError, ValueError: as for FisherDistance.

    See also:
        `FisherDistance` without smoothing.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> p, q = (cj.Normal(jnp.array(m), jnp.array(1.0)) for m in (0.0, 2.0))
        >>> points = jnp.array([-1.0, 1.0])
        >>> float(cj.KernelizedFisherDistance(points, cj.GaussianKernel(1.0))(p, q) ** 2)
        2.2707

    Reference: Glaser, Widmann, Lindsten and Gretton, Fast and scalable score-based kernel
    calibration tests, UAI 2023, Section 4.
    """

    points: ArrayLike
    kernel: KernelLike

    parameter_constraints = {"points": _FINITE_POINTS}
    inner_functions = {"kernel": "targets"}

    def embedding(self, p: Distribution) -> jax.Array:
        """R^T s / M for the scores s at all points and the kernel matrix R R^T, ``[M d]``."""
        scores = _scores_at(p, self.points)
        n_points = scores.shape[0]
        points = jnp.asarray(self.points, scores.dtype)
        matrix = pairwise(self.kernel, points, points).astype(scores.dtype)
        # Rounding errors may make eigenvalues near 0 negative.
        jitter = 10 * n_points * jnp.finfo(matrix.dtype).eps * jnp.mean(jnp.diagonal(matrix))
        root = jnp.linalg.cholesky(matrix + jitter * jnp.eye(n_points, dtype=matrix.dtype))
        return jnp.ravel(dot(root.T, scores.reshape(n_points, -1))) / n_points


def _scores_at(p: Distribution, points: ArrayLike) -> jax.Array:
    """The score of one prediction at each point, in the shape of the points."""
    one_axis_less = {
        name: (p.parameter(name), axes.removeprefix("n").strip()) for name, axes in p.shapes.items()
    }
    points = jnp.asarray(points, widest_dtype(*jax.tree.leaves(p)))
    shape = p.target_shape.replace("n", "M", 1)
    check_shapes({"points": (points, shape)}, check_shapes(one_axis_less))
    batch = batch_of_one(p)
    return jax.vmap(lambda x: batch.score(x[None])[0])(points)
