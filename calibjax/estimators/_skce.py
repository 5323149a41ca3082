"""The squared kernel calibration error."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calibjax._check import check_flag, check_integer
from calibjax._numerics import fractions_of, pairs_weight
from calibjax._pairwise import all_pairs_sum, block_sums
from calibjax._sharding import Axis, all_max, all_sum, on_devices
from calibjax._struct import as_pytree
from calibjax.discrepancy import h, h_tile
from calibjax.estimators._inputs import Inputs, check_inputs
from calibjax.estimators._rows import all_pairs_weight, clean, whole_blocks


def skce(
    kernel: Any,
    predictions: Any,
    targets: ArrayLike,
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

    The unbiased estimate (a U-statistic) can be negative, and is on average 0 if the model is
    calibrated; the biased one (a V-statistic) is nonnegative for positive definite kernels.  It is
    the squared error, never its root.  Differentiable in predictions, real targets, weights and
    all parameters of the kernel; the derivative at ties is 0.

    Time O(n^2), or O(n block_size) with blocks; memory O(n) beyond the inputs, gradients included.
    If the rows are cut among D devices (a NamedSharding of the predictions; inside jit one with
    Explicit axes), both are D times less on each.
    Floating dtype of the result: the widest of predictions and real targets, at least float32.

    Args:
        kernel: usually a TensorProduct, or what `default_kernel` returns; lengthscales are in the
            units of the distance and of the targets.
        predictions: a batch of n >= 2 predictions of one family.
        targets: array ``[n]`` or ``[n, d]``; class labels are ``0 … m-1``.
        unbiased: mean over pairs i != j, else over all pairs.
        block_size: if given, only pairs within consecutive blocks of this many rows count; the
            incomplete last block is dropped, and nothing is shuffled.
        where: boolean mask ``[n]``.  Masked rows may hold anything, NaN included; the result and
            its gradients are those without them.  Blocks count positions, masked or not.
        weights: nonnegative sample weights ``[n]``.

    Returns:
        A scalar.  With fewer than two kept rows, where they cannot be counted beforehand (inside
        jit), it is 0 and so is its gradient.

    Raises:
        TypeError, ValueError: an argument of the wrong type, shape or, where it is concrete,
            value.  Inside jit a bad value makes the result NaN.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Categorical(jnp.array([[0.1, 0.8, 0.1], [0.2, 0.5, 0.3]]))
        >>> kernel = cj.TensorProduct(cj.DistanceKernel(cj.Euclidean()), cj.WhiteKernel())
        >>> float(cj.skce(kernel, predictions, jnp.array([1, 2])))
        -0.1032

    Reference: Widmann, Lindsten and Zachariah, Calibration tests beyond classification, ICLR 2021,
    Section 4 and Table 1.
    """
    inputs = Inputs(as_pytree(kernel), predictions, targets, where, weights)
    n = check_inputs(inputs)
    unbiased = check_flag("unbiased", unbiased)
    if block_size is not None:
        block_size = check_integer("block_size", block_size, 2, n, "n = ")
    return _skce(inputs.kernel, inputs[1:], unbiased, None if block_size == n else block_size)


def local_skce(
    axis: Axis, kernel: Any, rows: Any, unbiased: bool, block_size: int | None
) -> jax.Array:
    """`skce` from the rows of this device and those along `axis`."""
    kernel, rows = clean(kernel, *rows, axis=axis)
    # A common factor of the weights cancels; their squares must not overflow.
    largest = all_max(jnp.max(rows.weights), axis)
    rows = rows._replace(weights=fractions_of(jnp.where(largest > 0, largest, 1.0), rows.weights))
    if block_size is not None:
        rows = whole_blocks(rows, block_size, axis)
    samples, weights = (rows.predictions, rows.targets), rows.weights

    if block_size is None:
        total = all_pairs_sum(h_tile, kernel, samples, weights, axis)
        count = all_pairs_weight(weights, axis)
        squares = jnp.square(all_sum(jnp.sum(weights), axis))
    else:
        blocks = weights.reshape(-1, block_size)
        sums = block_sums(h_tile, kernel, samples, weights, block_size)
        squares = jnp.sum(jnp.square(jnp.sum(blocks, axis=1)))
        of_blocks = jnp.sum(sums), jnp.sum(pairs_weight(blocks)), squares
        total, count, squares = all_sum(of_blocks, axis)
    too_few = count == 0
    if not unbiased:
        diagonal = jax.vmap(lambda a: h(kernel, a, a))(samples)
        total += all_sum(jnp.sum(jnp.square(weights) * diagonal), axis)
        count = squares
    return jnp.where(too_few, 0.0, total / jnp.where(too_few, 1.0, count))


_skce = on_devices(local_skce)
