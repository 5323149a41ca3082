"""Calibration errors of binned predictions."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calibjax._base.sharding import gathered
from calibjax._data import Data, Distribution, padded
from calibjax.estimators._binning import Binning
from calibjax.estimators._calibration_bins import TEN_BINS, VectorDistance, check_bins, filled_bins


def ece(
    predictions: Distribution | Data,
    targets: ArrayLike | None = None,
    *,
    binning: Binning = TEN_BINS,
    distance: str | Callable[..., jax.Array] = "total_variation",
    where: ArrayLike | None = None,
    weights: ArrayLike | None = None,
) -> jax.Array:
    """The expected calibration error: how far class frequencies are from predictions, in bins.

    .. math::
        \\sum_b \\frac{n_b}{n} \\, d(\\bar p_b, \\bar y_b)

    where the sum is over non-empty bins b of n_b predictions, with their mean prediction and their
    class frequencies.  With weights n_b is the weight of a bin, and n that of all rows.  It
    compares full probability vectors; "the" ECE of a network usually means
    ``ece(*top_label(predictions, targets))``, which `evaluate` calls the top-label ECE.

    The estimate is biased upwards, and the bias depends on the bins, so that it can be compared
    neither between data sets nor with 0: for calibrated predictions of 10 classes from the
    symmetric Dirichlet distribution with parameter 0.1 and n = 250 it is 0.44 on average with the
    default bins.  `consistency_test` takes the bias into account, and `calibration_bins` shows the
    bins.  The gradient holds the bins fixed, and the estimate jumps where a prediction changes its
    bin, so it is not a useful training loss: see `skce` and `mmce`.

    Time O(n (m + log n)) with UniformBinning and up to 9 classes, memory O(n m).  The result has
    the floating dtype of the predictions, at least float32; the bins are computed in it too.

    Args:
        predictions, targets: as in `Data`, or one `Data`: n >= 2 Categorical predictions, or
            Bernoulli predictions (two classes), or mixtures of these.
        binning: UniformBinning or MedianVarianceBinning.
        distance: "total_variation" (half the L1 distance), "euclidean", "squared_euclidean",
            "kullback_leibler" (sum_c y_c log(y_c / p_c) with frequencies y and mean prediction p),
            or a function of (p, y), ``[m]`` each, that returns a scalar and can be traced.
        where, weights: as in `Data`; weights do not move bins.

    Returns:
        A scalar.  Inside jit, where kept rows cannot be counted beforehand, it is 0 if no row is
        kept and NaN if fewer than the min_size of the binning are kept.

    Raises:
        TypeError, ValueError: an argument of the wrong type, shape or, where it is concrete,
            value; fewer predictions than min_size.  Inside jit a bad value makes the result NaN.

    See also:
        `mce` for the largest bin, `calibration_bins` for all of them, `smooth_ece` without bins,
        `consistency_test` for whether it is more than its bias.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Categorical(jnp.array([[0.8, 0.2], [0.8, 0.2], [0.3, 0.7]]))
        >>> float(cj.ece(predictions, jnp.array([0, 1, 1])))
        0.3
        >>> float(cj.ece(predictions, jnp.array([0, 1, 1]), weights=jnp.array([3, 1, 4])))
        0.175

    Reference: Vaicenavicius et al., Evaluating model calibration in classification, AISTATS 2019;
    Guo et al., On calibration of modern neural networks, ICML 2017.
    """
    data, distance = check_bins(
        predictions, targets, binning, distance, where=where, weights=weights
    )
    return _ece(gathered(padded(data)), binning, distance)


def mce(
    predictions: Distribution | Data,
    targets: ArrayLike | None = None,
    *,
    binning: Binning = TEN_BINS,
    distance: str | Callable[..., jax.Array] = "total_variation",
    where: ArrayLike | None = None,
    weights: ArrayLike | None = None,
) -> jax.Array:
    """The maximum calibration error: the error of the worst bin, however small the bin is.

    .. math::
        \\max_b d(\\bar p_b, \\bar y_b)

    where the maximum is over non-empty bins.  The bias is larger than the bias of `ece`; all else
    is as in `ece`.

    Args:
        predictions, targets, binning, distance, where, weights: as in `ece`.

    Returns:
        A scalar.  Inside jit, where kept rows cannot be counted beforehand, it is 0 if no row is
        kept and NaN if fewer than the min_size of the binning are kept.

    Raises:
        TypeError, ValueError: as in `ece`.

    See also:
        `ece` for the mean over bins.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Categorical(jnp.array([[0.8, 0.2], [0.8, 0.2], [0.4, 0.6]]))
        >>> float(cj.mce(predictions, jnp.array([0, 1, 1])))
        0.4

    Reference: Naeini, Cooper and Hauskrecht, Obtaining well calibrated probabilities using Bayesian
    binning, AAAI 2015.
    """
    data, distance = check_bins(
        predictions, targets, binning, distance, where=where, weights=weights
    )
    return _mce(gathered(padded(data)), binning, distance)


@jax.jit
def _ece(data: Data, binning: Binning, distance: VectorDistance) -> jax.Array:
    bins = filled_bins(data, binning, distance)
    total = jnp.sum(bins.weight)
    return jnp.sum(bins.error * bins.weight / jnp.where(total > 0, total, 1))


@jax.jit
def _mce(data: Data, binning: Binning, distance: VectorDistance) -> jax.Array:
    return jnp.max(filled_bins(data, binning, distance).error)
