"""Calibration errors of binned predictions."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from calibjax._check import check_choice
from calibjax._data import Data, check_data, clean
from calibjax._distribution import Distribution
from calibjax._sharding import gathered
from calibjax._struct import as_pytree
from calibjax.distributions import Categorical
from calibjax.estimators._binning import Binning, UniformBinning, check_binning
from calibjax.estimators._top_label import check_classes
from calibjax.kernels import Euclidean, TotalVariation

_TEN_BINS = UniformBinning(10)


def ece(
    predictions: Distribution,
    targets: ArrayLike,
    *,
    binning: Binning = _TEN_BINS,
    distance: str | Callable[..., jax.Array] = "total_variation",
    where: ArrayLike | None = None,
) -> jax.Array:
    """The expected calibration error: how far class frequencies are from predictions, in bins.

    .. math::
        \\sum_b \\frac{n_b}{n} \\, d(\\bar p_b, \\bar y_b)

    where the sum is over non-empty bins b of n_b predictions, with their mean prediction and their
    class frequencies.  It compares full probability vectors; "the" ECE of a network usually means
    the ECE of `top_label`.

    The estimate is biased upwards, and the bias depends on the bins, so that it can be compared
    neither between data sets nor with 0: for calibrated predictions of 10 classes from the
    symmetric Dirichlet distribution with parameter 0.1 and n = 250 it is 0.44 on average with the
    default bins.  `consistency_test` takes the bias into account.  The gradient holds the bins
    fixed, and the estimate jumps where a prediction changes its bin, so it is not a useful training
    loss: see `skce` and `mmce`.

    Time O(n (m + log n)) with UniformBinning and up to 9 classes, memory O(n m).  The result has
    the floating dtype of the predictions, at least float32; the bins are computed in it too.

    Args:
        predictions: n >= 2 Categorical predictions, or Bernoulli predictions (two classes), or
            mixtures of these.
        targets: labels ``0 … m-1``, array ``[n]``.
        binning: UniformBinning or MedianVarianceBinning.
        distance: "total_variation" (half the L1 distance), "euclidean", "squared_euclidean",
            "kullback_leibler" (sum_c y_c log(y_c / p_c) with frequencies y and mean prediction p),
            or a function of (p, y), ``[m]`` each, that returns a scalar and can be traced.
        where: boolean mask ``[n]``; masked rows may hold anything.

    Returns:
        A scalar.  Inside jit, where kept rows cannot be counted beforehand, it is 0 if no row is
        kept and NaN if fewer than the min_size of the binning are kept.

    Raises:
        TypeError, ValueError: an argument of the wrong type, shape or, where it is concrete,
            value; fewer predictions than min_size.  Inside jit a bad value makes the result NaN.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Categorical(jnp.array([[0.8, 0.2], [0.8, 0.2], [0.3, 0.7]]))
        >>> float(cj.ece(predictions, jnp.array([0, 1, 1])))
        0.3

    Reference: Vaicenavicius et al., Evaluating model calibration in classification, AISTATS 2019;
    Guo et al., On calibration of modern neural networks, ICML 2017.
    """
    data, distance = _check_arguments(predictions, targets, binning, distance, where)
    return _ece(gathered(data), binning, distance)


def mce(
    predictions: Distribution,
    targets: ArrayLike,
    *,
    binning: Binning = _TEN_BINS,
    distance: str | Callable[..., jax.Array] = "total_variation",
    where: ArrayLike | None = None,
) -> jax.Array:
    """The maximum calibration error: the error of the worst bin, however small the bin is.

    .. math::
        \\max_b d(\\bar p_b, \\bar y_b)

    where the maximum is over non-empty bins.  The bias is larger than the bias of `ece`; all else
    is as in `ece`.

    Args:
        predictions, targets, binning, distance, where: as in `ece`.

    Returns:
        A scalar.  Inside jit, where kept rows cannot be counted beforehand, it is 0 if no row is
        kept and NaN if fewer than the min_size of the binning are kept.

    Raises:
        TypeError, ValueError: as in `ece`.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Categorical(jnp.array([[0.8, 0.2], [0.8, 0.2], [0.4, 0.6]]))
        >>> float(cj.mce(predictions, jnp.array([0, 1, 1])))
        0.4

    Reference: Naeini, Cooper and Hauskrecht, Obtaining well calibrated probabilities using Bayesian
    binning, AAAI 2015.
    """
    data, distance = _check_arguments(predictions, targets, binning, distance, where)
    return _mce(gathered(data), binning, distance)


def _total_variation(p: jax.Array, q: jax.Array) -> jax.Array:
    return TotalVariation()(Categorical(p), Categorical(q))


def _squared_euclidean(p: jax.Array, q: jax.Array) -> jax.Array:
    return Euclidean().squared(Categorical(p), Categorical(q))


def _euclidean(p: jax.Array, q: jax.Array) -> jax.Array:
    return Euclidean()(Categorical(p), Categorical(q))


def _kullback_leibler(p: jax.Array, q: jax.Array) -> jax.Array:
    # A class that did not occur adds 0, whatever its predicted probability is.
    occurred = q > 0
    p, q = jnp.where(occurred, p, 1.0), jnp.where(occurred, q, 1.0)
    return jnp.sum(jnp.where(occurred, q * jnp.log(q / p), 0.0))


_DISTANCES = {
    "total_variation": _total_variation,
    "euclidean": _euclidean,
    "squared_euclidean": _squared_euclidean,
    "kullback_leibler": _kullback_leibler,
}


def _check_arguments(
    predictions: Any, targets: Any, binning: Any, distance: Any, where: Any
) -> tuple[Data, Any]:
    """The checked data, and the distance as a pytree."""
    check_classes(predictions)
    data = check_data(predictions, targets, where)
    check_binning(binning, data.n_kept())
    if callable(distance):
        return data, as_pytree(distance)
    if not isinstance(distance, str):
        raise TypeError(
            f"distance must be one of {', '.join(_DISTANCES)} or a callable, got "
            f"{type(distance).__name__}."
        )
    check_choice("distance", distance, _DISTANCES)
    return data, as_pytree(_DISTANCES[distance])


@jax.jit
def _ece(data: Data, binning: Binning, distance: Any) -> jax.Array:
    errors, sizes = _bin_errors(data, binning, distance)
    return jnp.sum(errors * sizes / jnp.maximum(jnp.sum(sizes), 1))


@jax.jit
def _mce(data: Data, binning: Binning, distance: Any) -> jax.Array:
    return jnp.max(_bin_errors(data, binning, distance)[0])


def _bin_errors(data: Data, binning: Binning, distance: Any) -> tuple[jax.Array, jax.Array]:
    """The error of each bin (0 for an empty one) and the number of its predictions."""
    data = clean(data)
    probs = data.predictions.label_probabilities()
    kept = jnp.ones(data.n, bool) if data.where is None else data.where
    bins = binning.bins(lax.stop_gradient(probs), kept)
    n_bins = binning.capacity(*probs.shape)

    def sums(x):
        return jax.ops.segment_sum(jnp.where(kept[:, None], x, 0), bins, n_bins)

    # Counts are integers, because a sum of ones in float32 stops at 2^24.
    counts = jnp.zeros((n_bins, probs.shape[1]), jnp.int32)
    counts = counts.at[bins, data.targets].add(kept.astype(jnp.int32))
    sizes = jnp.sum(counts, axis=1).astype(probs.dtype)
    divisors = jnp.maximum(sizes, 1)[:, None]
    # The mean of the deviations corrects rounding: a float32 sum of 10^6 equal numbers is off by
    # percents.
    means = sums(probs) / divisors
    means += sums(probs - means[bins]) / divisors
    frequencies = counts.astype(probs.dtype) / divisors

    # The first bin replaces empty bins, where distances or their gradients may not exist.
    filled = sizes > 0
    pairs = jax.tree.map(
        lambda x: jnp.where(filled[:, None], x, lax.stop_gradient(x[:1])), (means, frequencies)
    )
    errors = jnp.asarray(jax.vmap(distance)(*pairs))
    if errors.shape != sizes.shape:
        raise ValueError(f"distance must return a scalar, got shape {list(errors.shape[1:])}.")
    bad = jnp.any(jnp.isnan(data.weights)) | (jnp.sum(kept) < binning.min_size)
    errors = jnp.where(filled, errors.astype(probs.dtype), 0.0)
    return errors * jnp.where(bad, jnp.nan, 1.0), sizes
