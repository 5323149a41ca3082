"""The matrix of h for all pairs of samples, and the means of its rows."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calibjax._base.compile import first_rows
from calibjax._base.sharding import Axis, gathered, row_by_row_on_devices
from calibjax._data import Data, Distribution, Targets, as_data, clean, in_dtype, padded
from calibjax._numbers import quotient
from calibjax.discrepancy import SumOfTerms, check_kernel_of, h
from calibjax.kernels import KernelLike, vmap_pairs
from calibjax.operators import tiled_h


def h_matrix(
    kernel: KernelLike, predictions: Distribution | Data, targets: Targets | None = None
) -> jax.Array:
    """The symmetric matrix of h((p_i, y_i), (p_j, y_j)) for all pairs, which `skce` averages.

    O(n^2) time and memory: use it for small n.

    Args:
        kernel: usually a TensorProduct, or what `default_kernel` returns.
        predictions, targets: as in `Data`, or one `Data`; `Between` with a `PITKernel`.

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
    terms = check_kernel_of(kernel, data)
    return _h_matrix(terms, gathered(data))


@jax.jit
def _h_matrix(kernel: SumOfTerms, data: Data) -> jax.Array:
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
    noisy even if the model is calibrated: look for what many of the largest have in common.  With
    weights it is sum_{j != i} w_j h_ij times sum_j w_j / sum_{j != k} w_j w_k, so that the weighted
    mean of contributions is the weighted SKCE.

    Args:
        kernel: usually a TensorProduct, or what `default_kernel` returns.
        predictions, targets: as in `Data`, or one `Data`; `Between` with a `PITKernel`.
        where, weights: as in `Data`; n counts the kept rows.

    Returns:
        An array ``[n]``, NaN for masked rows.  Rows of weight 0 have a contribution, too, made of
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
    # The NaN of masked rows is no error.
    with jax.debug_nans(False):
        return first_rows(_contributions(terms, padded(data)), data.n)


@row_by_row_on_devices
def _contributions(axis: Axis, kernel: SumOfTerms, data: Data) -> jax.Array:
    h = tiled_h(kernel, clean(data, axis), axis)
    sums, pairs = h.row_sums_and_squares()[0], h.pair_weight()
    values = quotient(sums[: data.n] * h.count(), jnp.where(pairs == 0, jnp.nan, pairs))
    return values if data.where is None else jnp.where(data.where, values, jnp.nan)
