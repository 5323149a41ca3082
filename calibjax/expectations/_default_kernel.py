"""The default kernel of each family."""

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from calibjax._distribution import Distribution
from calibjax._rows import Data, check_rows, fill_masked
from calibjax._sharding import Axis, all_of, on_devices, on_one_device
from calibjax._struct import is_traced, widened
from calibjax.expectations._mean_embedding_distance import MeanEmbeddingDistance
from calibjax.expectations._rank_scores import Rows, rank_score_distance, rank_score_kernels
from calibjax.kernels import (
    Distance,
    DistanceKernel,
    GaussianKernel,
    PITKernel,
    SteinKernel,
    TensorProduct,
    WhiteKernel,
    median_heuristic_of_data,
)

#: A kernel on pairs, with a prediction kernel.
JointKernel = TensorProduct | SteinKernel | PITKernel


def default_kernel(predictions: Distribution, *, where: ArrayLike | None = None) -> JointKernel:
    """The usual kernel for a family of predictions, from the predictions alone.

    For numbers and counts, however they are predicted, it is a `PITKernel`: it judges where
    U = F(y) lies, with the kernel exp(-|x - x'|^2) on predictions.  x are the normal scores of the
    location and of the spread of a prediction among all of them, the latter with a factor of 1/2.
    Neither units nor the scale of the targets matter, and forecasts of 5 and 5000 count alike.
    Samples (`Empirical`) are seen with the target among them.

    For vectors it is exp(-|x - x'| / l) k(y, z).  x are the same scores of the location and of the
    spread of each coordinate, l is the median of |x - x'|, and k is that of the `product_kernel`:
    no unit of a coordinate matters.  `VectorPITKernel` with this kernel on predictions judges where
    a vector lies in its own forecast.

    For labels and models that are known by their scores it is the `product_kernel`.

    The kernel does not depend on targets, so tests with it are valid given the predictions.  For a
    training loop compute it once, before training: predictions could lower a calibration error by
    changing a kernel that follows them.

    Args:
        predictions: a batch of n >= 2 predictions.
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
    return default_kernel_of_data(check_rows(predictions, where))


# The factors of the scores of location and spread, and the lengthscale, of the default kernel.
_COORDINATES, _LENGTHSCALE = (1.0, 0.5), 1.0


def default_kernel_of_data(data: Data) -> JointKernel:
    """`default_kernel` of checked predictions; `data` may be without targets."""
    predictions = data.predictions
    if predictions.target_shape != "n" and not predictions.score_only:
        distance = vector_distance(data)
        lengthscale = median_heuristic_of_data(distance, data)
        return TensorProduct(DistanceKernel(distance, lengthscale), gaussian_kernel(data))
    if not predictions.is_ordered:
        return product_kernel_of_data(data)
    return default_kernel_of_models([(data.predictions, data.where)])


def default_kernel_of_models(rows: Sequence[Rows]) -> JointKernel:
    """`default_kernel` of numbers that several models predict, each with its mask or None."""
    (kernel,) = rank_score_kernels(rows, (_COORDINATES, _LENGTHSCALE))
    return PITKernel(kernel)


def product_kernel(predictions: Distribution, *, where: ArrayLike | None = None) -> JointKernel:
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
      the k of Normal, whose `SteinKernel` takes the place of the product.

    Units of the targets do not matter, from 1e-30 to 1e30 in float32, but for full covariances and
    Unnormalized, where squares of the units are needed: 1e-17 to 1e17.

    The kernel does not depend on targets, so tests with it are valid given the predictions.  For a
    training loop compute it once, before training: predictions could lower a calibration error by
    changing a kernel that follows them.

    Args:
        predictions: a batch of n >= 2 predictions.
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
    return product_kernel_of_data(check_rows(predictions, where))


def product_kernel_of_data(data: Data) -> JointKernel:
    """`product_kernel` of checked predictions; `data` may be without targets."""
    is_real = data.predictions.target_kind == "real"
    target_kernel = gaussian_kernel(data) if is_real else WhiteKernel()
    distance = default_distance(data)
    if distance is None:
        distance = MeanEmbeddingDistance(target_kernel)
    lengthscale = in_range(median_heuristic_of_data(distance, data))
    on_pairs = SteinKernel if data.predictions.score_only else TensorProduct
    return on_pairs(DistanceKernel(distance, lengthscale), target_kernel)


def vector_distance(data: Data) -> Distance:
    """The distance of predictions of vectors that no unit of a coordinate changes."""
    return rank_score_distance([(data.predictions, data.where)], _COORDINATES)


def default_distance(data: Data) -> Distance | None:
    """The distance of the family; None if there is none."""
    predictions, where = data.predictions, data.where
    if predictions.score_only and where is not None:
        # Its points are draws from kept rows.
        predictions, where = on_one_device((predictions, where))
        predictions = fill_masked(predictions, jnp.asarray(where))
    return predictions.default_distance()


def gaussian_kernel(data: Data) -> GaussianKernel:
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

    Where the median is 0 the mean takes its place, and where that is 0 too, 1 does.
    """
    predictions, where = rows
    if where is not None:
        predictions = fill_masked(predictions, where, axis)
    deviation = widened(predictions).spread()
    if where is not None:
        kept = where.reshape(-1, *(1,) * (deviation.ndim - 1))
        deviation = jnp.where(kept, deviation, jnp.nan)
    deviation = all_of(deviation, axis).reshape(-1, *deviation.shape[1:])
    # Equal samples have the deviation 0.  If no row is kept, median and mean are NaN.
    median, mean = jnp.nanmedian(deviation, axis=0), jnp.nanmean(deviation, axis=0)
    fallback = jnp.where(mean > 0, mean, 1.0)
    return jax.lax.stop_gradient(math.sqrt(2) * jnp.where(median > 0, median, fallback))
