"""Mean deviations at test locations: the witness function and the mean of its squares."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calibjax._base.sharding import Axis, optimised_on_devices
from calibjax._base.struct import widest_dtype
from calibjax._data.data import Data, Rows, as_data, clean, in_dtype
from calibjax._data.distribution import Distribution
from calibjax._data.interval_censored import Targets
from calibjax._data.padding import check_locations
from calibjax.discrepancy import SumOfTerms, check_kernel_of, deviation
from calibjax.kernels.base import KernelLike
from calibjax.operators.gram_matrix import TiledH, tiled_h


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
            `Between` with a `PITKernel`.
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
            `Between` with a `PITKernel`.
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
    dtype = widest_dtype(data.weights, locations.weights)
    data, locations = in_dtype((data, locations), dtype)
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
