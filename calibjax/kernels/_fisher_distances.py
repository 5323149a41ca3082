"""Distances between predictions by their scores: generalised Fisher divergences."""

import math
from typing import Self

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from calibjax._base.check import check_shapes
from calibjax._base.struct import batch_of_one, struct, widest_dtype
from calibjax._data.distribution import Distribution
from calibjax._numbers.arithmetic import dot
from calibjax._numbers.validity import POSITIVE, Constraint, valid_or_nan
from calibjax.kernels.base import KernelLike, pairwise
from calibjax.kernels.distance import VectorDistance

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
