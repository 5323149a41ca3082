"""The squared kernel calibration error."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calibjax._check import check_flag, check_integer
from calibjax._numerics import pairs_weight
from calibjax._pairwise import pair_sums
from calibjax._struct import as_pytree
from calibjax.discrepancy import h, h_tile
from calibjax.estimators._inputs import Inputs, check_inputs, clean


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
    if block_size is None:
        block_size = n
    block_size = check_integer("block_size", block_size, 2, n, "n = ")
    return _skce(inputs, unbiased, block_size)


@functools.partial(jax.jit, static_argnames=("unbiased", "block_size"))
def _skce(inputs: Inputs, unbiased: bool, block_size: int) -> jax.Array:
    kernel, rows = clean(inputs)
    n_blocks = rows.weights.shape[0] // block_size
    rows = jax.tree.map(lambda x: x[: n_blocks * block_size], rows)
    # A common factor of the weights cancels; their squares must not overflow.
    largest = jax.lax.stop_gradient(jnp.max(rows.weights))
    weights = rows.weights / jnp.where(largest > 0, largest, 1.0)
    samples = rows.predictions, rows.targets
    blocks = weights.reshape(n_blocks, block_size)

    total = jnp.sum(pair_sums(h_tile, kernel, samples, weights, block_size))
    count = jnp.sum(pairs_weight(blocks))
    too_few = count == 0
    if not unbiased:
        diagonal = jax.vmap(lambda a: h(kernel, a, a))(samples)
        total += jnp.sum(jnp.square(weights) * diagonal)
        count = jnp.sum(jnp.square(jnp.sum(blocks, axis=1)))
    return jnp.where(too_few, 0.0, total / jnp.where(too_few, 1.0, count))
