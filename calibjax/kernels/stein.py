"""Kernels on pairs of a prediction and a target whose mean embeddings vanish.

**Stein's identity.**  With the score s(y) = grad log p(y) and a smooth function g,

    (s(y) + grad) g(y) = grad(p g)(y) / p(y),

so that its mean under p is the integral of grad(p g), which is 0 if p g is continuous and vanishes
at the ends of the support.  In both arguments of a target kernel l this gives the Stein kernel

    S((p, y), (q, z)) = sum_c (s_p(y)_c + d/dy_c) (s_q(z)_c + d/dz_c) l(y, z),

an inner product of the features (s_p(y) + grad_y) l(y, .), with E S((p, Z), .) = 0 for Z ~ p.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp

from calibjax._base.struct import batch_of_one, struct
from calibjax._data.distribution import Distribution
from calibjax._loops.coordinate_sums import row_by_row
from calibjax.kernels.base import (
    Kernel,
    KernelLike,
    Product,
    Sample,
    kernel_value,
    sum_of_products,
    times,
    vmap_pairs,
)
from calibjax.kernels.targets import GaussianKernel, LaplacianKernel, WhiteKernel, in_lengthscales


@struct
class SteinKernel(Kernel):
    """k((p, y), (q, z)) = k_P(p, q) S((p, y), (q, z)), for models that are known by their score.

    S is the Stein kernel of a target kernel l, with the scores s_p(y) = grad_y log p(y),

    .. math::
        S = l(y, z) s_p(y) \\cdot s_q(z) + s_p(y) \\cdot \\nabla_z l(y, z)
        + s_q(z) \\cdot \\nabla_y l(y, z)
        + \\sum_c \\partial^2 l(y, z) / \\partial y_c \\partial z_c.

    Its mean over Y ~ p is 0 (Stein's identity), so that h = k: neither an expectation nor a
    normalising constant is needed, and the SKCE of this kernel is the kernel calibration
    conditional Stein discrepancy (KCCSD).  It replaces a TensorProduct, for
    `Unnormalized` predictions and for all families whose density is continuous, and 0 at the ends
    of its support, with a finite E s_p(Y)^2.  S has the units of 1 / targets^2, and no upper bound:
    where scores are rare and large, as for Gamma predictions with a concentration near 2 or wide
    LogNormal ones, `asymptotic_skce_test` rejects calibrated models too often unless n is large.
    `aggregated_skce_test` of a family with draws is exact.

    Args:
        prediction_kernel: k_P, for example a DistanceKernel of a FisherDistance.
        target_kernel: l, twice differentiable, in units of the targets: a GaussianKernel has a
            closed form; the derivatives of others, such as Matern32Kernel or a function of two
            targets, are taken by `jax.jvp`, one for each coordinate.

    Raises:
        TypeError: target_kernel has no derivatives (LaplacianKernel, WhiteKernel); at its use, the
            predictions have no score.
        ValueError: at its use outside of jit, a density is not 0 at an end of its support, or its
            score has no variance.  Inside jit the result is NaN.

    See also:
        `TensorProduct` where expectations are known, `Unnormalized` for the predictions.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> kernel = cj.SteinKernel(cj.DistanceKernel(cj.Wasserstein()), cj.GaussianKernel(1.0))
        >>> p = cj.Normal(jnp.array(0.0), jnp.array(1.0))
        >>> float(kernel((p, jnp.array(0.0)), (p, jnp.array(0.0))))
        1.0

    Reference: Glaser, Widmann, Lindsten and Gretton, Fast and scalable score-based kernel
    calibration tests, UAI 2023, Section 3.
    """

    prediction_kernel: KernelLike
    target_kernel: KernelLike

    domain = "pairs"
    inner_functions = {"prediction_kernel": "predictions", "target_kernel": "targets"}

    def _complete(self) -> None:
        super()._complete()
        rough = _rough_part(self.target_kernel)
        if rough is not None:
            raise TypeError(
                "target_kernel of SteinKernel must be twice differentiable, such as GaussianKernel "
                f"or Matern32Kernel, got {type(rough).__name__}."
            )

    def __call__(self, x: Sample, y: Sample) -> jax.Array:
        of_predictions = kernel_value(self.prediction_kernel, x[0], y[0])
        return of_predictions * stein(self.target_kernel, with_score(x), with_score(y))


def stein_scores(predictions: Distribution, targets: jax.Array) -> jax.Array:
    """The scores of n predictions at their targets; NaN in rows without Stein's identity."""
    scores = predictions.score(targets)
    has_identity = predictions.has_stein_identity()[1].reshape(-1, *(1,) * (scores.ndim - 1))
    return jnp.where(has_identity, scores, jnp.nan)


def with_score(sample: Sample) -> "Point":
    """The target of one sample with its score."""
    (score,) = stein_scores(*batch_of_one(sample))
    return sample[1], score


def _rough_part(kernel: KernelLike) -> Kernel | None:
    """A part of a target kernel that has no mixed second derivative; None if there is none."""
    if not isinstance(kernel, Kernel):
        return None
    if isinstance(kernel, (LaplacianKernel, WhiteKernel)):
        return kernel
    parts = (_rough_part(getattr(kernel, field)) for field in kernel.inner_functions)
    return next((part for part in parts if part is not None), None)


#: A target and the score of its prediction there.
Point = tuple[jax.Array, jax.Array]


def stein(kernel: KernelLike, a: Point, b: Point) -> jax.Array:
    """S for a target kernel and one pair of targets with their scores."""

    def evaluate(kernel: KernelLike) -> jax.Array:
        if isinstance(kernel, GaussianKernel):
            return _gaussian(*_with_rate(kernel, a), *_with_rate(kernel, b))
        return _by_derivatives(kernel, a, b)

    return _sum_over_products(kernel, evaluate)


def stein_tile(kernel: KernelLike, a: Point, b: Point) -> jax.Array:
    """S of all pairs of two batches of targets with their scores, ``[S, T]``."""

    def evaluate(kernel: KernelLike) -> jax.Array:
        if isinstance(kernel, GaussianKernel) and a[0].ndim > 1:
            with_rate = jax.vmap(functools.partial(_with_rate, kernel))
            return row_by_row(_gaussian, with_rate(a), with_rate(b))
        return vmap_pairs(functools.partial(stein, kernel))(a, b)

    return _sum_over_products(kernel, evaluate)


def _sum_over_products(
    kernel: KernelLike, function: Callable[[KernelLike], jax.Array]
) -> jax.Array:
    """The value of a linear function of a target kernel."""
    values = [
        times(factor, function(functools.reduce(Product, kernels)))
        for factor, kernels in sum_of_products(kernel)
    ]
    return functools.reduce(jnp.add, values)


def _by_derivatives(kernel: KernelLike, a: Point, b: Point) -> jax.Array:
    (y, s), (z, t) = a, b

    def coordinate_term(e: jax.Array) -> jax.Array:
        """(s_c + d/dy_c) (t_c + d/dz_c) l(y, z) for the unit vector e of a coordinate c."""

        def in_second(y: jax.Array) -> jax.Array:
            value, slope = jax.jvp(lambda z: kernel_value(kernel, y, z), (z,), (e,))
            return jnp.sum(t * e) * value + slope

        value, slope = jax.jvp(in_second, (y,), (e,))
        return jnp.sum(s * e) * value + slope

    units = jnp.eye(y.size, dtype=y.dtype).reshape(y.size, *y.shape)
    return jnp.sum(jax.vmap(coordinate_term)(units))


def _with_rate(kernel: GaussianKernel, point: Point) -> tuple[jax.Array, jax.Array, jax.Array]:
    """A target, its score, and 1 / l^2 for each coordinate."""
    y, s = point
    (inverse,) = in_lengthscales(kernel, jnp.ones_like(y))
    return y, s, jnp.square(inverse)


def _gaussian(
    y: jax.Array, s: jax.Array, rate: jax.Array, z: jax.Array, t: jax.Array, _: jax.Array
) -> jax.Array:
    """S for exp(-|y - z|^2 / (2 l^2)), of numbers, or of vectors, coordinates first.

    With v = (y - z) / l^2 the derivatives of l in y and z are -v l and v l, and the mixed ones add
    up to (sum_c 1 / l_c^2 - |v|^2) l.  As s.t + s.v - t.v - |v|^2 = (s - v).(t + v),
    S = l ((s - v).(t + v) + sum_c 1 / l_c^2).
    """
    difference = y - z
    v = difference * rate
    exponent, products = -difference * v / 2, (s - v) * (t + v) + rate
    if difference.ndim > 0:
        exponent, products = jnp.sum(exponent, axis=0), jnp.sum(products, axis=0)
    value = jnp.exp(exponent)
    # The products may be infinite where targets are so far apart that the value is 0.
    return value * jnp.where(value > 0, products, 0.0)
