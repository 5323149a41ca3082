"""The squared kernel calibration error in linear time, with all pairs."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from calibjax._check import check_integer, check_key
from calibjax._data import Data
from calibjax._distribution import Distribution
from calibjax._door import check_inputs
from calibjax._numerics import safe_sqrt
from calibjax._sharding import Axis, on_devices
from calibjax._struct import struct
from calibjax.discrepancy import Sample
from calibjax.features import Features, draw_features, one_feature, sum_rows
from calibjax.kernels import KernelLike
from calibjax.operators import tiled_h


@struct
class RandomFeatureEstimate:
    """An estimate by random features, and how far it may be from that of all pairs.

    A pytree, so that it can leave jit and vmap.

    Args:
        estimate: of the SKCE.
        standard_error: of the features, given the data: that of `estimate` as an estimate of the
            U-statistic `skce`.  How far that is from the truth it does not say.

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
    predictions: Distribution,
    targets: ArrayLike,
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

    with random frequencies w of the prediction kernel and v of the target kernel; for labels the
    target part is exact, and there is no v.  On average over features it is `skce`, and
    `standard_error` says how far from it one may be.

    When to use it: between n = 10^4 and 10^6, where the model is nearly calibrated.  There 64
    features have the error of all pairs at 10^4 and twice that at 10^5, at a cost per row of some
    500 pairs; blocks of 256 have seven times the error of all pairs at 10^5, and as little as
    features at 10^6.  Take 256 or more to trust the standard error.  Far from calibrated, the error
    of features (relative to the SKCE some D^(-1/2)) does not fall with n, and blocks are better:
    `skce` with ``block_size``.

    Differentiable in predictions, real targets and all parameters of the kernel, at fixed features
    of the same key.  For a loss take kernels whose frequencies have a variance: exponent 2, and
    Gaussian or Matern kernels of real targets.  Those of other exponents, of TotalVariation and of
    LaplacianKernel have none, and neither have such gradients.

    Time O(n D), for each product of a kernel that is a sum; memory O(n + D), gradients included.
    Floating dtype as in `skce`.  In float32 locations should be below some 1e4 lengthscales.

    Args:
        key: a key of `jax.random`, from which the features are drawn.
        kernel: a TensorProduct, or sums and multiples of them.  Its prediction kernel is a
            DistanceKernel, or sums, products and multiples of them, of Euclidean or
            EmbeddingDistance, of Wasserstein for Normal, Laplace and MultivariateNormalDiag, or of
            TotalVariation with an exponent of at most 1.  Its target kernel is any for labels;
            Gaussian, Laplacian, Matern, or sums, products and multiples of them, for all other
            families, whether they have a closed form or not; for counts also WhiteKernel.
        predictions: a batch of n >= 2 predictions of one family.
        targets: array ``[n]`` or ``[n, d]``; class labels are ``0 … m-1``.
        n_features: D >= 2, how many features.
        where: boolean mask ``[n]``; masked rows may hold anything.

    Returns:
        RandomFeatureEstimate.  With fewer than two kept rows, where they cannot be counted
        beforehand (inside jit), both numbers are 0.

    Raises:
        TypeError, ValueError: as in `skce`; a kernel whose spectrum is not known.

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
    kernel, data = check_inputs(kernel, predictions, targets, where, formula=one_feature)
    n_features = check_integer("n_features", n_features, 2)
    return _random_feature_skce((key, kernel), data, n_features)


@on_devices
def _random_feature_skce(
    axis: Axis, shared: Any, data: Data, n_features: int
) -> RandomFeatureEstimate:
    key, kernel = shared
    h = tiled_h(kernel, data, axis)
    one = jax.tree.map(lambda x: x[0], h.samples)
    features = draw_features(key, h.kernel, one, n_features)
    pairs = h.pair_weight()
    too_few = pairs == 0
    values = sum(part.factor * _pair_sums(part, h.samples, h.weights, axis) for part in features)
    values = jnp.where(too_few, 0.0, values / jnp.where(too_few, 1.0, pairs))
    return RandomFeatureEstimate(jnp.mean(values), safe_sqrt(jnp.var(values, ddof=1) / n_features))


def _pair_sums(features: Features, samples: Sample, weights: jax.Array, axis: Axis) -> jax.Array:
    """sum_{i != j} w_i w_j psi_i conj(psi_j) for each feature, ``[D]``."""

    def sums(samples, weights):
        waves, residuals = jax.vmap(features)(samples)
        weighted = residuals * weights[:, None, None].astype(residuals.dtype)
        squares = jnp.sum(_squared_norm(features.metric, weighted), axis=0)
        return [_einsum("nd,ndc->dc", waves, weighted), squares]

    total, squares = sum_rows(sums, samples, weights, features.n_features, axis)
    return _squared_norm(features.metric, total) - squares


def _squared_norm(metric: jax.Array, z: jax.Array) -> jax.Array:
    """z^* K z over the last axis."""
    product = _einsum("...c,cb->...b", z, metric.astype(z.dtype))
    return jnp.sum(z.real * product.real + z.imag * product.imag, axis=-1)


_einsum = functools.partial(jnp.einsum, precision=lax.Precision.HIGHEST)
