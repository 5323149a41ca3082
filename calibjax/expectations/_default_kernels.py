"""The default kernels of `aggregated_skce_test`, one for each kind and scale of error."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from calibjax._distribution import Distribution
from calibjax._rows import Data, check_rows
from calibjax._struct import is_traced
from calibjax.expectations._default_kernel import (
    default_distance,
    gaussian_kernel,
    in_range,
    vector_distance,
)
from calibjax.expectations._features import (
    StandardisedFourierFeatures,
    confidence_of,
    is_top_label,
    location_and_spread,
    log_probability_of,
    squared_deviation,
)
from calibjax.expectations._rank_scores import rank_score_kernels
from calibjax.kernels import (
    DistanceKernel,
    DistanceLike,
    EmbeddingDistance,
    FeatureKernel,
    Kernel,
    KernelLike,
    PITKernel,
    SteinKernel,
    TensorProduct,
    TotalVariation,
    VectorPITKernel,
    WhiteKernel,
    median_heuristic_of_data,
    sum_of_products,
)

# Lengthscales in units of the median distance.  The widest kernel is nearly constant: it sees
# errors of the same sign everywhere.
_MIDDLE, _WIDE = 1 / 4, 4
# The narrowest kernel of labels has some 16 / n of the median distance: more rows show more.
_ROWS, _NARROWEST = 16, 1 / 256
# Lengthscales of kernels on standardised targets.  With the first one they see a wrong location,
# with the second one a wrong shape.
_LOCATION, _SHAPE = 4.0, 0.5


def default_kernels(predictions: Distribution, *, where: ArrayLike | None = None) -> list[Kernel]:
    """The usual kernels for an aggregated test, from the predictions alone.

    Each is k_P(p, q) <f(p, y), f(q, z)> with k_P = exp(-d(p, q) / l), where the lengthscale l is a
    multiple of the `median_heuristic` of d.

    For labels there are six: f = e_y and the total variation at c, 1/4 and 4 times the median,
    which see any error at a scale; whether y is the most likely class, and the difference of the
    confidences, at 2 c and 1/4; and f = log p(y) at 4, which sees whether the model is too sure, or
    not sure enough.  c is 16 / n, from 1/256 to 1/4: more rows show finer errors, and up to 64 rows
    the first two kernels are the same.  Ordinal predictions have a seventh, the `PITKernel` of the
    normal score of U = F(y), at 4, which sees whether targets are higher than predicted.

    For numbers and counts there are nine `PITKernel`: three kinds of features of U = F(y), each
    with three kernels on predictions.  With the normal score z of U, f is z, which sees a wrong
    location; (z^2 - 1) / sqrt(2), which sees a wrong spread; or four cosines of U and the third and
    fourth polynomial of Hermite in z, which see a wrong shape.  k_P compares predictions by their
    location or, among those of one location, by their spread, both as in `default_kernel`; or it is
    wide, and sees errors of the same sign everywhere.

    For vectors there are six, each f at 1/4 and 4.  d is the Euclidean distance of the scores of
    `default_kernel`, so that no unit of a coordinate matters.  For normal vectors, and for samples
    (`Empirical`) without weights, they are `VectorPITKernel`: the normal scores z_j of the numbers
    U_1, …, U_d see a wrong location; (z_j^2 - 1) / sqrt(2) and the products z_j z_l see wrong
    spreads and a wrong dependence; and cosines of U_j and the third and fourth polynomial of
    Hermite in z_j see a wrong shape.  For other families f is made of waves of the standardised
    target u = (y - location) / spread, slow ones, which see a wrong location, or fast ones, which
    see a wrong shape; or f = log p(y), which sees a wrong spread, or |u|^2 where the family has no
    `log_prob`.  Unnormalized predictions with a sampler have two more, the SteinKernels at 1/4 and
    4, and d is their `default_distance`.

    More kernels see more kinds of errors, and each sees a little less: these were chosen by their
    power for some thirty kinds of errors.

    Args:
        predictions: a batch of n >= 2 predictions.
        where: boolean mask ``[n]``; masked rows may hold anything.

    Returns:
        A list of kernels; append your own, or drop what you do not want to see.

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
    return default_kernels_of_data(check_rows(predictions, where))


def default_kernels_of_data(data: Data) -> list[Kernel]:
    """`default_kernels` of checked predictions; `data` may be without targets."""
    predictions = data.predictions
    if predictions.has_labels:
        return _kernels_of_labels(data)
    of_numbers = _kernels_of_places if predictions.is_ordered else _kernels_of_standardised_targets
    return of_numbers(data)


def default_prediction_kernels(data: Data) -> list[KernelLike]:
    """The different kernels on predictions that `default_kernels` are made of."""
    found: list[Any] = [
        getattr(part, "prediction_kernel", None)
        for kernel in default_kernels_of_data(data)
        for _, (part,) in sum_of_products(kernel)
    ]
    # Several kernels on pairs share one kernel on predictions.
    return list({id(kernel): kernel for kernel in found}.values())


def _kernels_of_labels(data: Data) -> list[Kernel]:
    narrow = _narrow(data)
    of_predictions = _at_scales(TotalVariation(), data, (narrow, _MIDDLE, _WIDE))
    confidence = EmbeddingDistance(confidence_of)
    of_confidences = _at_scales(confidence, data, (2 * narrow, _MIDDLE))
    of_order = PITKernel(of_predictions[-1], _OF_LOCATION, "normal scores")
    return [
        *(TensorProduct(kernel, WhiteKernel()) for kernel in of_predictions),
        *(FeatureKernel(kernel, is_top_label) for kernel in of_confidences),
        FeatureKernel(of_predictions[-1], log_probability_of),
        *([of_order] if data.predictions.is_ordered else []),
    ]


def _narrow(data: Data) -> jax.Array | float:
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
_OF_SHAPE = np.array([0.0, 0.0, 1.0, 1.0], np.float32)
_OF_CELLS = np.array([0.0, 0.0, 1.0, 1.0, 1.0, 1.0], np.float32)


def _kernels_of_places(data: Data) -> list[Kernel]:
    kernels: list[Kernel] = []
    rows = [(data.predictions, data.where)]
    for k in rank_score_kernels(rows, _NEAR_IN_LOCATION, _NEAR_IN_SPREAD, _NEAR_AND_FAR):
        shape = PITKernel(k, _OF_SHAPE, "normal scores") + PITKernel(k, _OF_CELLS)
        moments = (PITKernel(k, w, "normal scores") for w in (_OF_LOCATION, _OF_SPREAD))
        kernels += [*moments, shape]
    return kernels


def _kernels_of_standardised_targets(data: Data) -> list[Kernel]:
    predictions = data.predictions
    distance = default_distance(data) if predictions.score_only else vector_distance(data)
    if distance is None:
        distance = EmbeddingDistance(location_and_spread)
    of_predictions = _at_scales(distance, data, (_MIDDLE, _WIDE))
    if predictions.has_unit_box:
        return _kernels_of_boxes(of_predictions)
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


def _kernels_of_boxes(of_predictions: list[DistanceKernel]) -> list[Kernel]:
    kernels: list[Kernel] = []
    for k in of_predictions:
        of_location, of_second, of_shape = (
            VectorPITKernel(k, w, "normal scores") for w in (_OF_LOCATION, _OF_SPREAD, _OF_SHAPE)
        )
        kernels += [of_location, of_second, of_shape + VectorPITKernel(k, _OF_CELLS)]
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
    distance: DistanceLike, data: Data, scales: Sequence[jax.Array | float]
) -> list[DistanceKernel]:
    median = in_range(median_heuristic_of_data(distance, data))
    if is_traced(median):
        lengthscales = [jnp.asarray(c, median.dtype) * median for c in scales]
    else:  # Nothing is compiled for products of numbers.
        numbers = np.asarray(scales, median.dtype) * np.asarray(median)
        lengthscales = [jax.device_put(x) for x in numbers]
    return [DistanceKernel(distance, lengthscale) for lengthscale in lengthscales]
