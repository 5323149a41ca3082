"""The default kernels of each family: one, and one for each kind and scale of error."""

import functools
import math
import operator
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from calibjax._base.sharding import Axis, all_of, on_devices, on_one_device
from calibjax._base.struct import is_traced
from calibjax._data.capabilities import has_unit_box, is_exchangeable
from calibjax._data.data import Data, Rows, fill_masked
from calibjax._data.distribution import Distribution, Labels
from calibjax._data.padding import check_rows
from calibjax.expectations.default_features import (
    Masked,
    StandardisedFourierFeatures,
    confidence_of,
    is_top_label,
    location_and_log_spread,
    location_and_spread,
    log_probability_of,
    rank_score_kernels,
    squared_deviation,
)
from calibjax.expectations.dispatch import MeanEmbeddingDistance
from calibjax.kernels.bandwidth import median_distance, median_heuristic
from calibjax.kernels.base import Kernel, KernelLike, sum_of_products
from calibjax.kernels.distances import EmbeddingDistance, TotalVariation
from calibjax.kernels.pit import PITKernel, VectorPITKernel
from calibjax.kernels.predictions import (
    Distance,
    DistanceKernel,
    DistanceLike,
    FeatureKernel,
    TensorProduct,
)
from calibjax.kernels.stein import SteinKernel
from calibjax.kernels.targets import GaussianKernel, WhiteKernel

#: A kernel on pairs, with a prediction kernel.
JointKernel = TensorProduct | SteinKernel | PITKernel


# The factors of the scores of location and spread, and the lengthscale, of the default kernel.
_COORDINATES, _LENGTHSCALE = (1.0, 0.5), 1.0


def default_kernel(
    predictions: Distribution | Rows, *, where: ArrayLike | None = None
) -> JointKernel:
    """The usual kernel for a family of predictions, from the predictions alone.

    For numbers and counts of any family it is a `PITKernel`: it compares U = F(y), with the kernel
    exp(-|x - x'|^2) on predictions.  x are the normal scores of the location and of the spread of a
    prediction among all of them, the latter with a factor of 1/2.  Neither units nor the scale of
    the targets matter, and forecasts of 5 and 5000 count equally.  Samples (`Empirical`) are
    compared with the target among them.

    For vectors it is exp(-|x - x'| / l) k(y, z).  x are the same scores of the location and of the
    spread of each coordinate, l is the median of |x - x'|, and k is that of the `product_kernel`:
    units of coordinates do not matter.  `VectorPITKernel` with this kernel on predictions uses
    where a vector lies in its own forecast.

    For labels and models that are known by their scores it is the `product_kernel`.

    The kernel does not depend on targets, so tests with it are valid given the predictions.  For a
    training loop compute it once, before training: predictions could lower a calibration error by
    changing a kernel that follows them.

    Args:
        predictions: a batch of n >= 2 predictions, or `Data` of them.
        where: boolean mask ``[n]``; masked rows may hold anything.

    Raises:
        TypeError, ValueError: an argument of the wrong type, shape or, where it is concrete, value,
            also numbers that are out of the range of their dtype and have to be rescaled.
        NotImplementedError: at its use, a family of your own, of vectors, has no closed form.

    See also:
        `product_kernel` for the kernels of the papers, `default_kernels` for several of them.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Normal(jnp.array([5.0, 50.0, 5000.0]), jnp.array([1.0, 9.0, 800.0]))
        >>> kernel = cj.default_kernel(predictions)
        >>> in_logs = cj.LogNormal(jnp.zeros(3), jnp.ones(3))
        >>> type(kernel).__name__, type(cj.default_kernel(in_logs)).__name__
        ('PITKernel', 'PITKernel')

    Reference: Dawid, Statistical theory: the prequential approach, Journal of the Royal Statistical
    Society A 1984; Widmann, Lindsten and Zachariah, Calibration tests beyond classification, ICLR
    2021.
    """
    data = check_rows(predictions, where)
    predictions = data.predictions
    if predictions.target_shape != "n" and not predictions.score_only:
        distance = vector_distance(data)
        lengthscale = median_heuristic(distance, data)
        return TensorProduct(DistanceKernel(distance, lengthscale), gaussian_kernel(data))
    if not predictions.is_ordered:
        return product_kernel(data)
    return default_kernel_of_models([(data.predictions, data.where)])


def default_kernel_of_models(rows: Sequence[Masked]) -> JointKernel:
    """`default_kernel` of numbers that several models predict, each with its mask or None."""
    (kernel,) = rank_score_kernels(rows, (_COORDINATES, _LENGTHSCALE))
    return PITKernel(kernel)


def product_kernel(
    predictions: Distribution | Rows, *, where: ArrayLike | None = None
) -> JointKernel:
    """The kernel of the papers for a family of predictions, from the predictions alone.

    The kernel is exp(-d(p, q) / l) k(y, z), where l is the `median_heuristic` of d and

    - Categorical, Ordinal, Bernoulli: d is the total variation, and k is 1{y = z};
    - Normal, MultivariateNormalDiag, Laplace: d is the 2-Wasserstein distance, and k is
      exp(-|y - z|^2 / (2 s^2)) with s = sqrt(2) times the median predicted standard deviation of
      each coordinate;
    - Poisson: d = |sqrt(rate) - sqrt(rate')|, and k is 1{y = z};
    - MultivariateNormalFullCovariance, Mixture, Empirical, and a family of your own without
      `default_distance`: d is the `MeanEmbeddingDistance` of k, because kernels of the Wasserstein
      distance are not known to be positive definite for them.  k is 1{y = z} for labels and counts,
      and else the k of Normal;
    - Unnormalized with a sampler: d is a `FisherDistance` at draws from the predictions, and k is
      the k of Normal, whose `SteinKernel` replaces the product.

    Units of the targets do not matter, from 1e-30 to 1e30 in float32, but for full covariances and
    Unnormalized, where squares of the units are needed: 1e-17 to 1e17.

    The kernel does not depend on targets, so tests with it are valid given the predictions.  For a
    training loop compute it once, before training: predictions could lower a calibration error by
    changing a kernel that follows them.

    Args:
        predictions: a batch of n >= 2 predictions, or `Data` of them.
        where: boolean mask ``[n]``; masked rows may hold anything.

    Raises:
        TypeError, ValueError: an argument of the wrong type, shape or, where it is concrete, value,
            also numbers that are out of the range of their dtype and have to be rescaled.
        NotImplementedError: a family of your own has no closed form with k.

    See also:
        `default_kernel`, `median_heuristic` for the lengthscale.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> kernel = cj.product_kernel(cj.Bernoulli(jnp.array([0.0, 0.25, 1.0])))
        >>> float(kernel.prediction_kernel.lengthscale)
        0.75

    Reference: Widmann, Lindsten and Zachariah, Calibration tests beyond classification, ICLR 2021,
    Section 4 and Appendix A.
    """
    data = check_rows(predictions, where)
    is_real = data.predictions.target_kind == "real"
    target_kernel = gaussian_kernel(data) if is_real else WhiteKernel()
    distance = default_distance(data)
    if distance is None:
        distance = MeanEmbeddingDistance(target_kernel)
    lengthscale = in_range(median_heuristic(distance, data))
    on_pairs = SteinKernel if data.predictions.score_only else TensorProduct
    return on_pairs(DistanceKernel(distance, lengthscale), target_kernel)


def vector_distance(data: Rows) -> DistanceLike:
    """The distance of predictions of vectors that no unit of a coordinate changes."""
    rows = [(data.predictions, data.where)]
    return rank_score_kernels(rows, (_COORDINATES, _LENGTHSCALE))[0].distance


def default_distance(data: Rows) -> Distance | None:
    """The distance of the family, or None."""
    predictions, where = data.predictions, data.where
    if predictions.score_only and where is not None:
        # Its points are draws from kept rows.
        predictions, where = on_one_device((predictions, where))
        predictions = fill_masked(predictions, jnp.asarray(where))
    return predictions.default_distance()


def gaussian_kernel(data: Rows) -> GaussianKernel:
    """The default kernel of real targets, of checked predictions."""
    lengthscale = _lengthscale(None, (data.predictions, data.where))
    return GaussianKernel(in_range(lengthscale, squared=data.predictions.score_only))


def in_range(lengthscale: jax.Array, squared: bool = False) -> jax.Array:
    """The lengthscale; a ValueError where it is concrete and out of the range of its dtype.

    With `squared` kernels have the units of its inverse square, as a SteinKernel has.
    """
    if not is_traced(lengthscale):
        limits, number = jnp.finfo(lengthscale.dtype), np.asarray(lengthscale)
        most = float(limits.max) if not squared else 0.1 * float(limits.max) ** 0.5
        least = 0.0 if not squared else 10 * float(limits.tiny) ** 0.5
        if not np.all((number >= least) & (number <= most)):
            what = "squares of differences" if squared else "differences"
            raise ValueError(
                f"default kernels need {what} between predictions that {lengthscale.dtype} can "
                "hold: rescale, which is to divide predictions and targets by a constant, or use "
                "jax.enable_x64."
            )
    return lengthscale


@on_devices
def _lengthscale(axis: Axis, _: None, rows: tuple[Distribution, jax.Array | None]) -> jax.Array:
    """sqrt(2) times the median predicted standard deviation of each coordinate, ``[]`` or ``[d]``.

    Where the median is 0 it is the mean, and where that is 0 too, 1.
    """
    predictions, where = rows
    if where is not None:
        predictions = fill_masked(predictions, where, axis)
    deviation = predictions.spread()
    if where is not None:
        kept = where.reshape(-1, *(1,) * (deviation.ndim - 1))
        deviation = jnp.where(kept, deviation, jnp.nan)
    deviation = all_of(deviation, axis).reshape(-1, *deviation.shape[1:])
    # Equal samples have the deviation 0.  If no row is kept, median and mean are NaN.
    median, mean = jnp.nanmedian(deviation, axis=0), jnp.nanmean(deviation, axis=0)
    fallback = jnp.where(mean > 0, mean, 1.0)
    return jax.lax.stop_gradient(math.sqrt(2) * jnp.where(median > 0, median, fallback))


# Lengthscales in units of the median distance.  The widest kernel is nearly constant: it detects
# errors of the same sign everywhere.
_MIDDLE, _WIDE = 1 / 4, 4
# The narrowest kernel of labels has some 16 / n of the median distance: more rows show more.
_ROWS, _NARROWEST = 16, 1 / 256
# Lengthscales of kernels on standardised targets, for a wrong location and a wrong shape.
_LOCATION, _SHAPE = 4.0, 0.5


def default_kernels(
    predictions: Distribution | Data, *, where: ArrayLike | None = None
) -> list[Kernel]:
    """The usual kernels for an aggregated test, from the predictions alone.

    Each is k_P(p, q) <f(p, y), f(q, z)> with k_P = exp(-d(p, q) / l), where the lengthscale l is a
    multiple of the `median_heuristic` of d.

    For labels there are six: f = e_y and the total variation at c, 1/4 and 4 times the median,
    which detect any error at a scale; whether y is the most likely class, and the difference of the
    confidences, at 2 c and 1/4; and f = log p(y) at 4, which detects over- and under-confidence. c
    is 16 / n, from 1/256 to 1/4: more rows show finer errors, and up to 64 rows the first two
    kernels are the same.  Ordinal predictions have a seventh, the `PITKernel` of the normal score
    of U = F(y), at 4, which detects bias.

    For numbers and counts there are nine `PITKernel`: three kinds of features of U = F(y), each
    with three kernels on predictions.  With the normal score z of U, f is z, which detects a wrong
    location; (z^2 - 1) / sqrt(2), which detects a wrong spread; or four cosines of U and the third
    and fourth Hermite polynomials of z, which detect a wrong shape. k_P compares predictions by
    their location or, among those of one location, by their spread, both as in `default_kernel`; or
    it is wide, and detects errors of the same sign everywhere.

    For samples (`Empirical`) without weights there are seven, because ranks among few are coarse.
    With the standard score z = (y - mean) / deviation in the set of the samples and the target, the
    kernels of location also have 0.5 times that of z, and those of the spread 1.5 times that of
    (z^2 - 1) / sqrt(2).  The seventh is the sum of all, and of those that detect the shape.

    For vectors there are six, each f at 1/4 and 4.  d is the Euclidean distance of the scores of
    `default_kernel`, so that units of coordinates do not matter.  For normal vectors, and for
    samples (`Empirical`) without weights, they are `VectorPITKernel`: the normal scores z_j of the
    numbers U_1, …, U_d detect a wrong location; (z_j^2 - 1) / sqrt(2) and the products z_j z_l,
    wrong spreads and a wrong dependence; and cosines of U_j and the third and fourth Hermite
    polynomials of z_j, a wrong shape.  For samples standard scores are added, as for numbers, and
    the sum of all makes five.  For other families f consists of waves of the standardised target
    u = (y - location) / spread, slow ones, which detect a wrong location, or fast ones, which
    detect a wrong shape; or f = log p(y), which detects a wrong spread, or |u|^2 where the family
    has no `log_prob`.  Unnormalized predictions with a sampler have two more, the SteinKernels at
    1/4 and 4, and d is their `default_distance`.

    More kernels detect more kinds of errors, each with a little less power: these were chosen by
    their power for some thirty kinds of errors.

    Args:
        predictions: a batch of n >= 2 predictions, or `Data` of them.
        where: boolean mask ``[n]``; masked rows may hold anything.

    Returns:
        A list of kernels; append your own, or drop some.

    Raises:
        TypeError, ValueError: an argument of the wrong type, shape or, where it is concrete, value.

    See also:
        `default_kernel` for one, `aggregated_skce_test` to test with them.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> kernels = cj.default_kernels(cj.Bernoulli(jnp.array([0.0, 0.25, 1.0])))
        >>> [type(kernel).__name__ for kernel in kernels[2:4]]
        ['TensorProduct', 'FeatureKernel']
        >>> float(kernels[0].prediction_kernel.lengthscale) * 4
        0.75
    """
    return default_kernels_of(check_rows(predictions, where))


def default_kernels_of(data: Rows) -> list[Kernel]:
    """`default_kernels` of checked data, filled up to a bucket."""
    if isinstance(data.predictions, Labels):
        return _kernels_of_labels(data)
    if data.predictions.is_ordered:
        kinds = _NEAR_IN_LOCATION, _NEAR_IN_SPREAD, _NEAR_AND_FAR
        of_predictions = rank_score_kernels([(data.predictions, data.where)], *kinds)
        return _kernels_of_pit(of_predictions, PITKernel, is_exchangeable(data.predictions))
    return _kernels_of_standardised_targets(data)


def default_prediction_kernels(data: Rows) -> list[KernelLike]:
    """The different kernels on predictions inside `default_kernels`."""
    found: list[Any] = [
        getattr(part, "prediction_kernel", None)
        for kernel in default_kernels_of(check_rows(data, None))
        for _, (part,) in sum_of_products(kernel)
    ]
    # Several kernels on pairs share one kernel on predictions.
    return list({id(kernel): kernel for kernel in found}.values())


def _kernels_of_labels(data: Rows) -> list[Kernel]:
    narrow = _narrow(data)
    of_predictions = _at_scales(TotalVariation(), data, (narrow, _MIDDLE, _WIDE))
    of_confidences = _at_scales(EmbeddingDistance(confidence_of), data, (2 * narrow, _MIDDLE))
    of_order = PITKernel(of_predictions[-1], _OF_LOCATION, "normal scores")
    return [
        *(TensorProduct(kernel, WhiteKernel()) for kernel in of_predictions),
        *(FeatureKernel(kernel, is_top_label) for kernel in of_confidences),
        FeatureKernel(of_predictions[-1], log_probability_of),
        *([of_order] if data.predictions.is_ordered else []),
    ]


def _narrow(data: Rows) -> jax.Array | float:
    """The narrowest scale."""
    if is_traced(data.where):
        n = jnp.sum(data.where, dtype=jnp.int32).astype(jnp.float32)
        return jnp.clip(_ROWS / n, _NARROWEST, _MIDDLE)
    return min(max(_ROWS / max(data.n_kept(), 1), _NARROWEST), _MIDDLE)


# The factors of the scores of location and spread, and the lengthscale.
_NEAR_IN_LOCATION, _NEAR_IN_SPREAD = ((1.0, 0.0), 0.3), ((0.0, 1.0), 0.3)
_NEAR_AND_FAR = ((1.0, 0.5), 4.0)
# Weights of normal scores and of cosines.
_OF_LOCATION, _OF_SPREAD = np.array([1.0], np.float32), np.array([0.0, 1.0], np.float32)
# Weights of standard scores: more weight for the location costs power with skewed or heavy tails.
_OF_LOCATION_IN_POOL = np.array([0.5], np.float32)
_OF_SPREAD_IN_POOL = np.array([0.0, 1.5], np.float32)
_OF_SHAPE = np.array([0.0, 0.0, 1.0, 1.0], np.float32)
_OF_CELLS = np.array([0.0, 0.0, 1.0, 1.0, 1.0, 1.0], np.float32)


def _kernels_of_pit(
    of_predictions: list[DistanceKernel], on_pairs: type[PITKernel], of_pools: bool
) -> list[Kernel]:
    """Kernels that detect a wrong location, spread and shape, for each kernel on predictions.

    For samples, kernels in units of the pool also detect location and spread, and the sum of all
    kernels detects the shape: fewer kernels leave more power to each, and ranks of few samples have
    little shape.
    """
    kernels: list[Kernel] = []
    of_shape: list[Kernel] = []
    both = (_OF_LOCATION, _OF_LOCATION_IN_POOL), (_OF_SPREAD, _OF_SPREAD_IN_POOL)
    for k in of_predictions:
        for weights, in_pool in both:
            of_ranks = on_pairs(k, weights, "normal scores")
            of_pool = on_pairs(k, in_pool, "standard scores")
            kernels.append(of_ranks + of_pool if of_pools else of_ranks)
        shape = on_pairs(k, _OF_SHAPE, "normal scores") + on_pairs(k, _OF_CELLS)
        (of_shape if of_pools else kernels).append(shape)
    return [*kernels, functools.reduce(operator.add, kernels + of_shape)] if of_shape else kernels


def _kernels_of_standardised_targets(data: Rows) -> list[Kernel]:
    predictions = data.predictions
    distance = default_distance(data) if predictions.score_only else vector_distance(data)
    if distance is None:
        distance = EmbeddingDistance(location_and_spread)
    of_predictions = _at_scales(distance, data, (_MIDDLE, _WIDE))
    if has_unit_box(predictions):
        return _kernels_of_pit(of_predictions, VectorPITKernel, is_exchangeable(predictions))
    features = (
        StandardisedFourierFeatures(_LOCATION),
        StandardisedFourierFeatures(_SHAPE),
        log_probability_of if has_log_prob(predictions) else squared_deviation,
    )
    kernels: list[Kernel] = [FeatureKernel(k, f) for f in features for k in of_predictions]
    if predictions.score_only:
        target_kernel = gaussian_kernel(data)
        kernels += [SteinKernel(kernel, target_kernel) for kernel in of_predictions]
    return kernels


def has_log_prob(predictions: Distribution) -> bool:
    """Whether the predictions have a density or probabilities."""
    # A mixture has one if its components have one.
    one = jax.tree.map(lambda x: jax.ShapeDtypeStruct((1, *x.shape[1:]), x.dtype), predictions)
    try:
        jax.eval_shape(lambda p: p.log_prob(p.sample(jax.random.key(0))), one)
    except TypeError:
        return False
    return True


def _at_scales(
    distance: DistanceLike, data: Rows, scales: Sequence[jax.Array | float]
) -> list[DistanceKernel]:
    median = in_range(median_distance(distance, data))
    if is_traced(median):
        lengthscales = [jnp.asarray(c, median.dtype) * median for c in scales]
    else:  # Nothing is compiled for products of numbers.
        numbers = np.asarray(scales, median.dtype) * np.asarray(median)
        lengthscales = [jax.device_put(x) for x in numbers]
    return [DistanceKernel(distance, lengthscale) for lengthscale in lengthscales]


# With more classes, the frequency of each in every pair of columns is more than a test can see.
_MANY_CLASSES = 32


def target_feature_kernels(data: Data) -> dict[str, int]:
    """Which of the `default_kernels` has each feature of targets that covariates may explain.

    They are interpretable features: for labels their frequencies, whether the most likely class was
    right, and whether the model was over-confident; for numbers and vectors location and spread.
    More features cost power.
    """
    predictions = data.predictions
    n_labels = predictions.n_labels
    if n_labels is not None:
        index = {"frequencies": 0} if n_labels <= _MANY_CLASSES else {}
        index |= {"most likely class": 3, "log probability": 5}
        return index | ({"order": 6} if predictions.is_ordered else {})
    if predictions.is_ordered or has_unit_box(predictions):
        return {"location": 0, "spread": 1}
    return {"location": 0, "spread": 4}


def prediction_coordinates(predictions: Distribution) -> jax.Array:
    """A few numbers of each prediction that covariates may change the meaning of, ``[n, c]``.

    They are the probability of label 1 of two, or of the most likely label of more; location and
    logarithm of the spread of numbers; and all locations of vectors.
    """
    if isinstance(predictions, Labels):
        probabilities = predictions.label_probabilities()
        if probabilities.shape[1] == 2:
            return probabilities[:, 1:]
        return jax.vmap(confidence_of)(predictions)[:, None]
    if predictions.is_ordered:
        return jnp.stack(location_and_log_spread(predictions), axis=1)
    return predictions.location().reshape(len(predictions), -1)
