"""Distances between predictions: of labels, of embeddings, of Wasserstein, and by their scores."""

import math
from collections.abc import Callable
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike, DTypeLike

from calibjax._base.check import check_shapes
from calibjax._base.struct import batch_of_one, is_array, struct, widest_dtype
from calibjax._data.capabilities import SquaredWasserstein, WassersteinEmbedding, families_with
from calibjax._data.distribution import Binary, Distribution, Labels
from calibjax._loops.coordinate_sums import (
    distance,
    slope_of_distance,
    slope_of_square_beyond_rounding,
    square_beyond_rounding,
    sum_over_coordinates,
)
from calibjax._loops.random_numbers import cauchy_of, positive_stable_of, uniform_numbers
from calibjax._numbers.arithmetic import dot
from calibjax._numbers.derivatives import absolute
from calibjax._numbers.validity import POSITIVE, Constraint, valid_or_nan
from calibjax.kernels.base import KernelLike, pairwise, vmap_pairs
from calibjax.kernels.predictions import (
    Coordinates,
    Distance,
    Embedded,
    NormDistance,
    VectorDistance,
)


def _labels(distance: Distance, p: Distribution) -> Labels:
    """The predictions; TypeError for those of anything but labels, which names the distance."""
    if not isinstance(p, Labels):
        raise TypeError(
            f"{type(distance).__name__} compares probability vectors (Categorical or Bernoulli "
            f"predictions, or mixtures of them), got {type(p).__name__}."
        )
    return p


def _label_differences(
    distance: Distance, p: Distribution, q: Distribution
) -> tuple[jax.Array, int]:
    """The differences of the probabilities of all labels, and how often each of them occurs.

    For two binary predictions it is one number, which both labels share up to its sign.
    """
    if isinstance(p, Binary) and isinstance(q, Binary):
        return p.binary_probability() - q.binary_probability(), 2
    both = _labels(distance, p), _labels(distance, q)
    return both[0].label_probabilities() - both[1].label_probabilities(), 1


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
        if isinstance(ps, Binary) and isinstance(qs, Binary):
            return vmap_pairs(self)(ps, qs)
        p, q = _labels(self, ps).label_probabilities(), _labels(self, qs).label_probabilities()
        return sum_over_coordinates(distance, slope_of_distance, p, q) / 2

    def embedding(self, p: Distribution) -> jax.Array:
        """The probabilities of all labels, of one prediction."""
        return _labels(self, p).label_probabilities()

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
        return positive_stable_of(uniform[:, :2], exponent) * cauchy_of(uniform[:, 2:]) / 2


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
        p = _labels(self, p)
        return None if isinstance(p, Binary) else (p.label_probabilities(),)

    def embedding(self, p: Distribution) -> jax.Array:
        """The probabilities of all labels, of one prediction."""
        return _labels(self, p).label_probabilities()


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
        _check_families(p, q)
        if isinstance(p, SquaredWasserstein):
            return p.squared_wasserstein(q)
        ours, theirs = self.coordinates(p), self.coordinates(q)
        if ours is None or theirs is None:
            raise _refused(p)
        return self.squared_norm(ours, theirs)

    def coordinates_of_both(
        self, p: Distribution, q: Distribution, are_batches: bool = False
    ) -> tuple[Coordinates, Coordinates] | None:
        _check_families(p, q)
        return super().coordinates_of_both(p, q, are_batches)

    def coordinates(self, p: Distribution) -> Coordinates | None:
        if not isinstance(p, WassersteinEmbedding):
            return None
        found = p.wasserstein_embedding()
        return found if isinstance(found, tuple) else (found,)

    def embedding(self, p: Distribution) -> jax.Array:
        """A vector for one prediction; the distance is the norm of the difference of vectors."""
        coordinates = self.coordinates(p)
        if coordinates is None:
            raise TypeError(
                f"random features of Wasserstein are defined for "
                f"{families_with(WassersteinEmbedding)} predictions, got {type(p).__name__}; "
                "EmbeddingDistance takes a function of any prediction."
            )
        return jnp.hstack(coordinates)


def _check_families(p: Distribution, q: Distribution) -> None:
    if isinstance(p, Embedded) and isinstance(q, Embedded):
        return
    if type(p) is not type(q):
        raise TypeError(
            "Wasserstein is defined for two predictions of one family, got "
            f"{type(p).__name__} and {type(q).__name__}."
        )
    if not isinstance(p, Distribution):
        raise _refused(p)


def _refused(predictions: object) -> TypeError:
    """The error for predictions of a family whose Wasserstein distance has no formula."""
    families = families_with(WassersteinEmbedding, SquaredWasserstein)
    return TypeError(
        f"Wasserstein is defined for {families} predictions, and MixtureWasserstein for mixtures "
        f"of these, got {type(predictions).__name__}."
    )


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
        `MeanEmbeddingDistance` where distributions are known.

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
