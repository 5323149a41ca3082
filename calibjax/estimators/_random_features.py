"""The squared kernel calibration error over all pairs in linear time, by random features."""

import functools

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from calibjax._base.check import check_integer, check_key
from calibjax._base.sharding import Axis, optimised_on_devices
from calibjax._base.struct import indexed, struct
from calibjax._data import Data, Distribution, Targets, as_data, clean
from calibjax._numbers import safe_sqrt
from calibjax.discrepancy import Sample, SumOfTerms, check_kernel_of
from calibjax.features import Features, draw_features, one_feature, sum_rows
from calibjax.kernels import KernelLike, times
from calibjax.operators import tiled_h


@struct
class RandomFeatureEstimate:
    """An estimate of the SKCE by random features, with its error relative to `skce`.

    It is a pytree and can leave jit and vmap.

    Args:
        estimate: the estimated SKCE.
        standard_error: the standard deviation of `estimate` over random features, given the data.
            It measures the distance to `skce` on the same data, not to the true SKCE.

    Example:
        >>> import jax, jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Bernoulli(jnp.linspace(0.0, 1.0, 100))
        >>> kernel = cj.TensorProduct(cj.DistanceKernel(cj.Euclidean()), cj.WhiteKernel())
        >>> data = kernel, predictions, jnp.arange(100) % 2
        >>> found = cj.random_feature_skce(jax.random.key(0), *data)
        >>> bool(abs(found.estimate - cj.skce(*data)) < 3 * found.standard_error)
        True
    """

    estimate: jax.Array
    standard_error: jax.Array


def random_feature_skce(
    key: jax.Array,
    kernel: KernelLike,
    predictions: Distribution | Data,
    targets: Targets | None = None,
    *,
    n_features: int = 1000,
    where: ArrayLike | None = None,
) -> RandomFeatureEstimate:
    """The unbiased SKCE over all pairs in linear time, by random features of the kernel.

    .. math::
        \\frac1D \\sum_{d=1}^D \\frac{|\\sum_i \\psi_d(p_i, y_i)|^2 - \\sum_i |\\psi_d(p_i, y_i)|^2}
        {n (n - 1)},
        \\quad \\psi_d(p, y) = e^{i w_d \\cdot \\varphi(p)}
        \\bigl(e^{i v_d \\cdot y} - E_{Z \\sim p} e^{i v_d \\cdot Z}\\bigr)

    where w_d are random frequencies of the prediction kernel and v_d of the target kernel; for
    labels the target part is exact, and there is no v.  The mean of the estimate over features is
    `skce`, and `standard_error` is its standard deviation.

    Use it for n between 10^4 and 10^6 if the model is nearly calibrated.  There the error of 64
    features equals the error of `skce` at n = 10^4 and is twice as large at 10^5, and a row costs
    as much as some 500 pairs.  Blocks of 256 rows have seven times the error of `skce` at 10^5, and
    the error of 64 features at 10^6.  Draw 256 features or more to trust the standard error.  If
    the model is far from calibrated, the error of features, some D^(-1/2) relative to the SKCE,
    does not fall with n, and `skce` with ``block_size`` is better.

    Differentiable in predictions, real targets and all parameters of the kernel, at fixed features
    (the same key).  As a loss, use kernels whose frequencies have a finite variance: exponent 2,
    and Gaussian or Matern kernels of real targets.  With other exponents, TotalVariation or
    LaplacianKernel the gradient has no finite variance.

    Time O(n D) for each product in a kernel that is a sum; memory O(n + D), gradients included.
    Floating dtype as in `skce`.  In float32 locations should be below some 1e4 lengthscales.

    Args:
        key: a key of `jax.random`, from which the features are drawn.
        kernel: a TensorProduct, or sums and multiples of TensorProducts.  The prediction kernel is
            a DistanceKernel, or sums, products and multiples of DistanceKernels.  Its distance is
            Euclidean, EmbeddingDistance, Wasserstein (for Normal, Laplace and
            MultivariateNormalDiag) or TotalVariation (with an exponent of at most 1).  The target
            kernel is any kernel for labels; for other targets it is Gaussian, Laplacian, Matern,
            or sums, products and multiples of these, with or without a closed form for the family;
            for counts it may also be WhiteKernel.
        predictions, targets, where: as in `Data`, or one `Data` without `weights`; `Between` with a
            `PITKernel`.
        n_features: D >= 2, the number of features.

    Returns:
        RandomFeatureEstimate.  With fewer than two kept rows, where they cannot be counted
        beforehand (inside jit), both numbers are 0.

    Raises:
        TypeError, ValueError: as in `skce`; the spectrum of the kernel is not known.

    See also:
        `skce` for all pairs exactly.

    Example:
        >>> import jax, jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Normal(jnp.linspace(-1.0, 1.0, 1000), jnp.full(1000, 0.5))
        >>> targets = predictions.loc + jax.random.normal(jax.random.key(0), (1000,))
        >>> kernel = cj.default_kernel(predictions)
        >>> found = cj.random_feature_skce(jax.random.key(1), kernel, predictions, targets)
        >>> exact = cj.skce(kernel, predictions, targets)
        >>> bool(abs(found.estimate - exact) < 3 * found.standard_error)
        True

    Reference: Rahimi and Recht, Random features for large-scale kernel machines, NeurIPS 2007; for
    the squared distance of mean embeddings, Zhao and Meng, FastMMD: ensemble of circular
    discrepancy for efficient two-sample test, Neural Computation 2015.
    """
    check_key(key)
    data = as_data(predictions, targets, where=where, intervals=True, without=("weights",))
    terms = check_kernel_of(kernel, data, formula=one_feature)
    n_features = check_integer("n_features", n_features, 2)
    return _random_feature_skce((key, terms), data, n_features)


@optimised_on_devices
def _random_feature_skce(
    axis: Axis, shared: tuple[jax.Array, SumOfTerms], data: Data, n_features: int
) -> RandomFeatureEstimate:
    key, kernel = shared
    h = tiled_h(kernel, clean(data, axis), axis)
    one = indexed(h.samples, 0)
    features = draw_features(key, h.kernel, one, n_features)
    pairs = h.pair_weight()
    too_few = pairs == 0
    values = sum(
        times(part.factor, _pair_sums(part, h.samples, h.weights, axis)) for part in features
    )
    values = jnp.where(too_few, 0.0, values / jnp.where(too_few, 1.0, pairs))
    return RandomFeatureEstimate(jnp.mean(values), safe_sqrt(jnp.var(values, ddof=1) / n_features))


def _pair_sums(features: Features, samples: Sample, weights: jax.Array, axis: Axis) -> jax.Array:
    """sum_{i != j} w_i w_j psi_i conj(psi_j) for each feature, ``[D]``."""

    def sums(samples: Sample, weights: jax.Array) -> list[jax.Array]:
        phases, residuals = jax.vmap(features)(samples)
        weighted = residuals * weights[:, None, None].astype(residuals.dtype)
        squares = jnp.sum(_squared_norm(features.metric, weighted), axis=0)
        return [_einsum("nd,ndc->dc", phases, weighted), squares]

    total, squares = sum_rows(sums, samples, weights, features.n_features, axis)
    return _squared_norm(features.metric, total) - squares


def _squared_norm(metric: jax.Array, z: jax.Array) -> jax.Array:
    """z^* K z over the last axis."""
    product = _einsum("...c,cb->...b", z, metric.astype(z.dtype))
    return jnp.sum(z.real * product.real + z.imag * product.imag, axis=-1)


_einsum = functools.partial(jnp.einsum, precision=lax.Precision.HIGHEST)
