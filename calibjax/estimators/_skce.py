"""The squared kernel calibration error."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calibjax._base.check import check_flag, check_integer
from calibjax._base.sharding import Axis, optimised_on_devices
from calibjax._data import Data, Distribution, Targets, as_data, clean
from calibjax._numbers import quotient
from calibjax.discrepancy import SumOfTerms, check_kernel_of
from calibjax.kernels import KernelLike
from calibjax.operators import BlockH, TiledH, block_h, tiled_h


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
        predictions, targets, where, weights: as in `Data`, or one `Data`; targets may be `Between`
            with a `PITKernel`.  Blocks are positions, masked or not.
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
        `calibration_test` for whether it is more than chance, `skce_confidence_interval` for how
        large it is, `random_feature_skce` and `SKCEState` for many rows.

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
