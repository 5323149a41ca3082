"""The maximum mean calibration error of top-label confidences."""

import jax
from jax.typing import ArrayLike

from calibjax._data.data import Data
from calibjax._data.distribution import Distribution
from calibjax._numbers.derivatives import safe_sqrt
from calibjax.estimators._skce import skce
from calibjax.estimators._top_label import labels_as_data, top_label
from calibjax.kernels import DistanceKernel, TensorProduct, TotalVariation, WhiteKernel


def mmce(
    predictions: Distribution | Data,
    targets: ArrayLike | None = None,
    *,
    lengthscale: ArrayLike = 0.4,
    where: ArrayLike | None = None,
    weights: ArrayLike | None = None,
) -> jax.Array:
    """The maximum mean calibration error of the confidences r and hits c of `top_label`.

    .. math::
        \\Bigl( \\frac1{n^2} \\sum_{i, j} (c_i - r_i) (c_j - r_j)
        \\exp(-|r_i - r_j| / \\text{lengthscale}) \\Bigr)^{1/2}

    It is the square root of half the biased `skce` of `top_label`.  It is biased, of order n^(-1/2)
    for a calibrated model; call `skce` or a test on `top_label` for an unbiased or a blockwise
    estimate, or for a p-value.  Differentiable in predictions and lengthscale; the gradient is 0
    where the value is 0.  Time O(n^2), memory O(n).

    Args:
        predictions, targets: as in `Data`, or one `Data`: n >= 2 Categorical or Bernoulli
            predictions, or mixtures of these.
        lengthscale: a positive number, in units of confidences.
        where, weights: as in `Data`; with weights sums have w_i w_j, and n is their sum.

    Returns:
        A scalar.

    Raises:
        TypeError, ValueError: as in `skce`; the predictions have no classes.

    See also:
        `skce` for all classes instead of the most likely one.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Bernoulli(jnp.array([0.9, 0.9, 0.9, 0.9]))
        >>> float(cj.mmce(predictions, jnp.array([1, 1, 0, 0])))
        0.4

    Reference: Kumar, Sarawagi and Jain, Trainable calibration measures for neural networks from
    kernel mean embeddings, ICML 2018.
    """
    data = labels_as_data(predictions, targets, where=where, weights=weights)
    kernel = TensorProduct(DistanceKernel(TotalVariation(), lengthscale), WhiteKernel())
    # For two classes <e_c - p, e_c' - p'> is twice (c - r) (c' - r').
    rows = {"where": data.where, "weights": data.weights}
    square = skce(kernel, *top_label(data).samples, unbiased=False, **rows) / 2
    return safe_sqrt(square)  # rounding may make it negative
