"""The squared kernel calibration error: of all pairs or blocks, as a matrix, by random features.

Mean deviations at test locations, the witness function, have a mean square of their own.
"""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calibjax._base.check import check_flag, check_integer, check_key
from calibjax._base.compile import first_rows
from calibjax._base.sharding import Axis, gathered, optimised_on_devices, row_by_row_on_devices
from calibjax._base.struct import indexed, struct, widest_dtype
from calibjax._data.data import Data, Rows, as_data, clean, in_dtype
from calibjax._data.distribution import Distribution
from calibjax._data.interval_censored import Targets
from calibjax._data.padding import check_locations, padded
from calibjax._numbers.arithmetic import dot, quotient
from calibjax._numbers.derivatives import safe_sqrt
from calibjax.discrepancy import SumOfTerms, check_kernel_of, deviation, h
from calibjax.features.random_features import Features, draw_features, one_feature
from calibjax.features.weighted_sums import sum_rows
from calibjax.kernels.base import KernelLike, Sample, times, vmap_pairs
from calibjax.operators.gram_matrix import BlockH, TiledH, block_h, tiled_h


def skce(
    kernel: KernelLike,
    predictions: Distribution | Data,
    targets: Targets | None = None,
    *,
    unbiased: bool = True,
    block_size: int | None = None,
    where: ArrayLike | None = None,
    weights: ArrayLike | None = None,
) -> jax.Array:
    """The squared kernel calibration error SKCE = E h, estimated from n predictions and targets.

    .. math::
        \\frac{\\sum_{i \\ne j} w_i w_j h_{ij}}{\\sum_{i \\ne j} w_i w_j}
        \\quad\\text{or, biased,}\\quad
        \\frac{\\sum_{i, j} w_i w_j h_{ij}}{\\sum_{i, j} w_i w_j}

    The unbiased estimate (a U-statistic) can be negative, and its mean is 0 if the model is
    calibrated.  The biased one (a V-statistic) is nonnegative for positive definite kernels.  Both
    are the squared error, never its root.  Differentiable in predictions, real targets, weights and
    all parameters of the kernel; the derivative of a distance is 0 where two predictions are equal.

    Time O(n^2), or O(n block_size) with blocks; memory O(n) beyond the inputs, gradients included.
    If the rows are cut among D devices (by a NamedSharding of the predictions, with Explicit axes
    inside jit), each device takes 1/D of the time and memory.  The floating dtype of the result is
    the widest of predictions and real targets, at least float32.

    Args:
        kernel: usually a TensorProduct, or what `default_kernel` returns; lengthscales are in the
            units of the distance and of the targets.
        predictions, targets, where, weights: as in `Data`, or one `Data`; targets may be
            `IntervalCensored` with a `PITKernel`.  Blocks are positions, masked or not.
        unbiased: whether to average over pairs i != j instead of all pairs.
        block_size: if given, only pairs within consecutive blocks of this many rows count; the
            incomplete last block is dropped, and nothing is shuffled.

    Returns:
        A scalar.  Inside jit, where kept rows cannot be counted beforehand, the result and its
        gradient are 0 if fewer than two rows are kept.

    Raises:
        TypeError, ValueError: an argument of the wrong type, shape or, where it is concrete,
            value.  Inside jit a bad value makes the result NaN.

    See also:
        `calibration_test` for its significance, `skce_confidence_interval` for its size,
        `random_feature_skce` and `SKCEState` for many rows.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Categorical(jnp.array([[0.1, 0.8, 0.1], [0.2, 0.5, 0.3]]))
        >>> kernel = cj.TensorProduct(cj.DistanceKernel(cj.Euclidean()), cj.WhiteKernel())
        >>> float(cj.skce(kernel, predictions, jnp.array([1, 2])))
        -0.1032

    Reference: Widmann, Lindsten and Zachariah, Calibration tests beyond classification, ICLR 2021,
    Section 4 and Table 1.
    """
    data = as_data(predictions, targets, where=where, weights=weights, intervals=True)
    terms = check_kernel_of(kernel, data)
    unbiased = check_flag("unbiased", unbiased)
    if block_size is not None:
        block_size = check_integer("block_size", block_size, 2, data.n, "n = ")
    return _skce(terms, data, unbiased, None if block_size == data.n else block_size)


@optimised_on_devices
def _skce(
    axis: Axis, kernel: SumOfTerms, data: Data, unbiased: bool, block_size: int | None
) -> jax.Array:
    """The weighted mean of h_ij over i != j, or over all i, j; 0 if fewer than two rows count."""
    h: TiledH | BlockH
    if block_size is None:
        h = tiled_h(kernel, clean(data, axis), axis)
    else:
        h = block_h(kernel, data, block_size, axis)
    total, weight = h.pair_sum(), h.pair_weight()
    too_few = weight == 0
    if not unbiased:
        total, weight = total + h.trace(), h.full_weight()
    return jnp.where(too_few, 0.0, quotient(total, jnp.where(too_few, 1.0, weight)))


def h_matrix(
    kernel: KernelLike, predictions: Distribution | Data, targets: Targets | None = None
) -> jax.Array:
    """The symmetric matrix of h((p_i, y_i), (p_j, y_j)) for all pairs, which `skce` averages.

    O(n^2) time and memory: use it for small n.

    Args:
        kernel: usually a TensorProduct, or what `default_kernel` returns.
        predictions, targets: as in `Data`, or one `Data`; `IntervalCensored` with a `PITKernel`.

    Returns:
        Array ``[n, n]``.

    Raises:
        TypeError, ValueError: as in `skce`.

    See also:
        `skce` for its mean without the matrix in memory.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Bernoulli(jnp.array([0.5, 0.5]))
        >>> kernel = cj.TensorProduct(cj.DistanceKernel(cj.TotalVariation()), cj.WhiteKernel())
        >>> cj.h_matrix(kernel, predictions, jnp.array([0, 1])).tolist()
        [[0.5, -0.5], [-0.5, 0.5]]

    Reference: Widmann, Lindsten and Zachariah, Calibration tests beyond classification, ICLR 2021,
    Eq. 5.
    """
    unused = "weights", "where"
    data = as_data(predictions, targets, intervals=True, without=unused)
    return _h_matrix(check_kernel_of(kernel, data), gathered(data))


@jax.jit
def _h_matrix(kernel: SumOfTerms, data: Rows) -> jax.Array:
    data = clean(data)
    kernel = in_dtype(kernel, data.weights.dtype)
    # The pairs of `vmap_pairs` have forward-mode derivatives; tiles have only reverse mode.  The
    # weights are 1, or all NaN if a row is invalid.
    matrix = vmap_pairs(lambda a, b: h(kernel, a, b))(data.samples, data.samples)
    return matrix * data.weights[:, None]


def contributions(
    kernel: KernelLike,
    predictions: Distribution | Data,
    targets: Targets | None = None,
    *,
    where: ArrayLike | None = None,
    weights: ArrayLike | None = None,
) -> jax.Array:
    """The contribution of each row to the unbiased squared kernel calibration error.

    .. math::
        c_i = \\frac{1}{n - 1} \\sum_{j \\ne i} h_{ij}, \\qquad
        \\frac{1}{n} \\sum_i c_i = \\widehat{\\mathrm{SKCE}}

    Rows with large contributions are wrong in the same way as other rows with similar predictions;
    the target of a row with a negative contribution balances them.  The contribution of one row is
    noisy even if the model is calibrated: look for common features of the largest.  With weights it
    is sum_{j != i} w_j h_ij times sum_j w_j / sum_{j != k} w_j w_k, so that the weighted mean of
    contributions is the weighted SKCE.

    Args:
        kernel: usually a TensorProduct, or what `default_kernel` returns.
        predictions, targets: as in `Data`, or one `Data`; `IntervalCensored` with a `PITKernel`.
        where, weights: as in `Data`; n counts the kept rows.

    Returns:
        An array ``[n]``, NaN for masked rows.  Rows of weight 0 also have a contribution, from
        their h with the others.  Inside jit all are NaN if a kept row is invalid, or if fewer than
        two rows are kept.  Time O(n^2), memory O(n).

    Raises:
        TypeError, ValueError: an argument of the wrong type, shape or, where it is concrete, value.

    See also:
        `witness_map` and `residual_map` for regions instead of rows.

    Example:
        >>> import jax, jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Bernoulli(jnp.array([0.1, 0.1, 0.1, 0.9]))
        >>> targets = jnp.array([1, 1, 0, 1])  # the first two are wrong in the same way
        >>> kernel = cj.default_kernel(predictions)
        >>> cj.contributions(kernel, predictions, targets).argsort().tolist()
        [2, 3, 0, 1]

    Reference: Widmann, Lindsten and Zachariah, Calibration tests beyond classification, ICLR 2021,
    for h and the SKCE.
    """
    data = as_data(predictions, targets, where=where, weights=weights, intervals=True)
    terms = check_kernel_of(kernel, data)
    # Masked rows are NaN, which is not an error.
    with jax.debug_nans(False):
        return first_rows(_contributions(terms, padded(data)), data.n)


@row_by_row_on_devices
def _contributions(axis: Axis, kernel: SumOfTerms, data: Data) -> jax.Array:
    h = tiled_h(kernel, clean(data, axis), axis)
    sums, pairs = h.row_sums_and_squares()[0], h.pair_weight()
    values = quotient(sums[: data.n] * h.count(), jnp.where(pairs == 0, jnp.nan, pairs))
    return values if data.where is None else jnp.where(data.where, values, jnp.nan)


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
    labels the target part is exact and needs no v.  The mean of the estimate over features is
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
        predictions, targets, where: as in `Data`, or one `Data` without `weights`;
            `IntervalCensored` with a `PITKernel`.
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
    return _random_feature_skce((key, terms), data, check_integer("n_features", n_features, 2))


@optimised_on_devices
def _random_feature_skce(
    axis: Axis, shared: tuple[jax.Array, SumOfTerms], data: Data, n_features: int
) -> RandomFeatureEstimate:
    key, kernel = shared
    h = tiled_h(kernel, clean(data, axis), axis)
    features = draw_features(key, h.kernel, indexed(h.samples, 0), n_features)
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
        (real, imag), residuals = jax.vmap(features)(samples)
        weighted = residuals * weights[:, None]
        squares = _form(features.metric, weighted)
        if features.target_frequencies is None:
            # Both are parts of a number of size 1.
            diagonal = jnp.sum(squares)
        else:
            diagonal = dot(squares, jnp.square(real) + jnp.square(imag))
        return [dot(real.T, weighted), dot(imag.T, weighted), diagonal]

    real, imag, diagonal = sum_rows(sums, samples, weights, features.n_features, axis)
    return _form(features.metric, real) + _form(features.metric, imag) - diagonal


def _form(metric: jax.Array, z: jax.Array) -> jax.Array:
    """z^T K z over the last axis."""
    return jnp.sum(dot(z, metric) * z, axis=-1)


def ucme(
    kernel: KernelLike,
    predictions: Distribution | Data,
    targets: Targets | None,
    test_predictions: Distribution,
    test_targets: ArrayLike,
    *,
    where: ArrayLike | None = None,
) -> jax.Array:
    """The unnormalized calibration mean embedding: a calibration error seen from J test locations.

    .. math::
        \\frac1J \\sum_{j=1}^J \\Bigl( \\frac1n \\sum_{i=1}^n \\bigl[
        k((p_i, y_i), t_j) - E_{Z \\sim p_i} k((p_i, Z), t_j) \\bigr] \\Bigr)^2

    It is the mean of the squared `witness` over the locations: the squared error, never its root.
    It is nonnegative, and its mean is of order 1/n for a calibrated model.  Differentiable in
    predictions, real targets, locations and all parameters of the kernel.  O(n J) time, O(n + J)
    memory, gradients included.  Inside jit it is 0 if no row is kept.

    Args:
        kernel: usually a TensorProduct, or what `default_kernel` returns.
        predictions, targets, where: as in `Data`, or one `Data` without `weights` and None;
            `IntervalCensored` with a `PITKernel`.
        test_predictions: J >= 1 predictions of the same family.
        test_targets: the targets of the locations, ``[J]`` or ``[J, d]``, which are known.

    Returns:
        A scalar.

    Raises:
        TypeError, ValueError: as in `skce`.

    See also:
        `witness` for the mean deviations themselves, `asymptotic_cme_test` for a p-value.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Bernoulli(jnp.array([0.5, 0.5]))
        >>> kernel = cj.TensorProduct(cj.DistanceKernel(cj.TotalVariation()), cj.WhiteKernel())
        >>> locations = cj.Bernoulli(jnp.array([0.5])), jnp.array([1])
        >>> float(cj.ucme(kernel, predictions, jnp.array([1, 1]), *locations))
        0.25

    Reference: Widmann, Lindsten and Zachariah, Calibration tests beyond classification, ICLR 2021,
    Definition C.1.
    """
    data = as_data(predictions, targets, where=where, intervals=True, without=("weights",))
    terms = check_kernel_of(kernel, data, formula=deviation)
    locations = check_locations(data.predictions, test_predictions, test_targets, "test")
    return _ucme((terms, locations), data)


def witness(
    kernel: KernelLike,
    predictions: Distribution | Data,
    targets: Targets | None,
    at_predictions: Distribution,
    at_targets: ArrayLike,
    *,
    where: ArrayLike | None = None,
) -> jax.Array:
    """Where a model is wrong: the mean deviation of the data at each of J locations.

    .. math::
        f(t) = \\frac1n \\sum_{i=1}^n \\bigl[ k((p_i, y_i), t) - E_{Z \\sim p_i} k((p_i, Z), t)
        \\bigr]

    Where f(p, y) > 0, targets near y occur more often than predicted for predictions near p; where
    f(p, y) < 0 they occur less often.  Differentiable as `ucme`.  O(n J) time, O(n + J) memory,
    gradients included.  Inside jit it is 0 if no row is kept.

    Args:
        kernel: usually a TensorProduct, or what `default_kernel` returns.
        predictions, targets, where: as in `Data`, or one `Data` without `weights` and None;
            `IntervalCensored` with a `PITKernel`.
        at_predictions: J >= 1 predictions of the same family; `predictions` themselves are allowed.
        at_targets: the targets of the locations, ``[J]`` or ``[J, d]``, which are known.

    Returns:
        Array ``[J]``.

    Raises:
        TypeError, ValueError: as in `skce`.

    See also:
        `ucme` for their mean square; `witness_map` for a plot.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Bernoulli(jnp.array([0.5, 0.5]))
        >>> kernel = cj.TensorProduct(cj.DistanceKernel(cj.TotalVariation()), cj.WhiteKernel())
        >>> locations = cj.Bernoulli(jnp.array([0.5, 0.5])), jnp.array([0, 1])
        >>> cj.witness(kernel, predictions, jnp.array([1, 1]), *locations).tolist()
        [-0.5, 0.5]

    Reference: Widmann, Lindsten and Zachariah, Calibration tests beyond classification, ICLR 2021,
    Appendix C.
    """
    data = as_data(predictions, targets, where=where, intervals=True, without=("weights",))
    terms = check_kernel_of(kernel, data, formula=deviation)
    locations = check_locations(data.predictions, at_predictions, at_targets, "at")
    return _witness((terms, locations), data)


def h_and_locations(
    kernel: SumOfTerms, locations: Rows, data: Rows, axis: Axis
) -> tuple[TiledH, Rows]:
    """H and clean locations, in the widest floating dtype of data and locations."""
    data, locations = clean(data, axis), clean(locations)
    data, locations = in_dtype((data, locations), widest_dtype(data.weights, locations.weights))
    return tiled_h(kernel, data, axis), locations


def _mean_deviations(axis: Axis, shared: tuple[SumOfTerms, Rows], data: Rows) -> jax.Array:
    """The witness function at all locations, ``[J]``."""
    kernel, locations = shared
    h, locations = h_and_locations(kernel, locations, data, axis)
    means = h.deviation_sums(locations) / jnp.maximum(h.count(), 1.0)
    # The weights of the locations are 1, or all NaN if a location is invalid.
    return means * locations.weights


_witness = optimised_on_devices(_mean_deviations)


@optimised_on_devices
def _ucme(axis: Axis, shared: tuple[SumOfTerms, Rows], data: Data) -> jax.Array:
    return jnp.mean(jnp.square(_mean_deviations(axis, shared, data)))
