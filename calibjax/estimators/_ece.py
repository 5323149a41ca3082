"""Calibration errors of binned predictions and PIT values, and what is in each bin."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.special import gammaincc
from jax.typing import ArrayLike

from calibjax._base.check import check_choice, check_integer
from calibjax._base.compile import first_rows
from calibjax._base.sharding import Axis, all_sum, gathered, on_all_rows, on_devices
from calibjax._base.struct import as_pytree, struct
from calibjax._data.data import DEPENDENCE, Data, RowOptions, Rows, clean
from calibjax._data.distribution import Binary, Distribution, as_labels
from calibjax._data.interval_censored import Targets
from calibjax._data.padding import padded
from calibjax._numbers.derivatives import absolute, safe_sqrt
from calibjax.estimators.binning import (
    TEN_BINS,
    Binning,
    UniformBinning,
    bin_means,
    check_binning,
    numbers_of_bins,
)
from calibjax.estimators.labels import check_classes, labels_as_data
from calibjax.scores import numbers_as_data
from calibjax.scores.pit_intervals import PITInterval, mass_below, pit_interval

#: ``distance(p, q)``, a number for two vectors of probabilities.
VectorDistance = Callable[[jax.Array, jax.Array], jax.Array]


@struct
class CalibrationBins:
    """The mean prediction and the frequency of the classes in each bin; see `calibration_bins`.

    Args:
        prediction: the mean predicted probabilities of the classes, ``[b, m]``, or of class 1,
            ``[b]``, for Bernoulli predictions.
        frequency: how often the classes occurred, in the same shape.
        count: the number of rows, ``[b]``.
        error: the distance between the two, ``[b]``.
        weight: the sum of the weights of the rows in units of the largest one, ``[b]``.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Bernoulli(jnp.array([0.2, 0.2, 0.7]))
        >>> cj.calibration_bins(predictions, jnp.array([0, 1, 1])).error.round(2).tolist()
        [0.3, 0.3, nan]
    """

    prediction: jax.Array
    frequency: jax.Array
    count: jax.Array
    error: jax.Array
    weight: jax.Array


def calibration_bins(
    predictions: Distribution | Data,
    targets: ArrayLike | None = None,
    *,
    binning: Binning = TEN_BINS,
    distance: str | VectorDistance = "total_variation",
    where: ArrayLike | None = None,
    weights: ArrayLike | None = None,
) -> CalibrationBins:
    """The bins of `ece`: for each bin b the mean prediction, the class frequencies, and the error.

    .. math::
        \\bar p_b = \\frac{1}{n_b} \\sum_{i \\in b} p_i, \\qquad
        \\bar y_b = \\frac{1}{n_b} \\sum_{i \\in b} e_{y_i}, \\qquad d(\\bar p_b, \\bar y_b)

    where e_c is 1 at class c, else 0.  `ece` is the mean of the errors with weights n_b.  With
    weights of rows the sums have these, and n_b is the weight of the bin.

    The number of bins in the result is the largest number that is possible, so that it does not
    depend on values.  Bins without rows have the count 0 and are NaN otherwise.

    Args:
        predictions, targets, binning, distance, where, weights: as in `ece`.

    Returns:
        CalibrationBins(prediction, frequency, count, error, weight).  Inside jit all numbers but
        the counts are NaN if a row is invalid, or if fewer than the min_size of the binning are
        kept.

    Raises:
        TypeError, ValueError: as in `ece`.

    See also:
        `ece` for their mean.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Categorical(jnp.array([[0.8, 0.2], [0.8, 0.2], [0.3, 0.7]]))
        >>> bins = cj.calibration_bins(predictions, jnp.array([0, 1, 1]))
        >>> bins.count.tolist(), bins.prediction[:2].round(2).tolist()
        ([2, 1, 0], [[0.8, 0.2], [0.3, 0.7]])
        >>> bins.frequency[:2].tolist(), bins.error.round(2).tolist()
        ([[0.5, 0.5], [0.0, 1.0]], [0.3, 0.3, nan])

    Reference: Vaicenavicius et al., Evaluating model calibration in classification, AISTATS 2019.
    """
    data = labels_as_data(predictions, targets, where=where, weights=weights)
    bins = _calibration_bins(padded(data), binning, check_bins(data, binning, distance))
    return first_rows(bins, binning.capacity(data.n, check_classes(data.predictions)))


@on_all_rows
def _calibration_bins(data: Data, binning: Binning, distance: VectorDistance) -> CalibrationBins:
    bins = filled_bins(data, binning, distance)

    def or_nan(x: jax.Array) -> jax.Array:
        valid = (bins.count > 0) & ~jnp.isnan(bins.error)
        return jnp.where(valid.reshape(-1, *(1,) * (x.ndim - 1)), x, jnp.nan)

    prediction, frequency = or_nan(bins.prediction), or_nan(bins.frequency)
    if isinstance(data.predictions, Binary):  # They hold the second of two probabilities.
        prediction, frequency = prediction[:, 1], frequency[:, 1]
    return CalibrationBins(prediction, frequency, bins.count, or_nan(bins.error), bins.weight)


def filled_bins(data: Rows, binning: Binning, distance: VectorDistance) -> CalibrationBins:
    """The bins, with the probabilities of all classes and the error 0 where a bin is empty."""
    is_weighted, data = data.weights is not None, clean(data)
    probs = as_labels(data.predictions).label_probabilities()
    kept = jnp.ones(data.n, bool) if data.where is None else data.where
    # Weights of invalid rows are NaN, and such rows are binned as others are.
    kept = kept & (data.weights != 0)
    bins, n_bins = numbers_of_bins(binning, probs, kept)

    # Counts are integers, because a sum of ones in float32 stops at 2^24.
    counts = jnp.zeros((n_bins, probs.shape[1]), jnp.int32)
    counts = counts.at[bins, data.targets].add(1, mode="drop")
    sizes = jnp.sum(counts, axis=1)
    amounts, totals = counts.astype(probs.dtype), sizes.astype(probs.dtype)
    if is_weighted:
        amounts = jnp.zeros(counts.shape, probs.dtype)
        amounts = amounts.at[bins, data.targets].add(data.weights, mode="drop")
        totals = jnp.sum(amounts, axis=1)
    means = bin_means(probs, bins, totals, data.weights if is_weighted else None)
    frequencies = amounts / jnp.where(sizes > 0, totals, 1)[:, None]

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
    valid = jnp.where(bad, jnp.nan, 1.0)
    return CalibrationBins(means, frequencies, sizes, errors * valid, totals * valid)


def check_bins(data: Data, binning: Binning, distance: str | VectorDistance) -> VectorDistance:
    """The distance as a pytree; an error if it is none, or if the data cannot be binned."""
    check_binning(binning, data.n_counted())
    if callable(distance):
        return as_pytree(distance)
    if not isinstance(distance, str):
        raise TypeError(
            f"distance must be one of {', '.join(_DISTANCES)} or a callable, got "
            f"{type(distance).__name__}."
        )
    check_choice("distance", distance, _DISTANCES)
    return as_pytree(_DISTANCES[distance])


def _of_gap(norm: Callable[[jax.Array], jax.Array]) -> VectorDistance:
    return lambda p, q: norm(p - q)


def _kullback_leibler(p: jax.Array, q: jax.Array) -> jax.Array:
    # A class that did not occur adds 0, whatever its predicted probability is.
    occurred = q > 0
    p, q = jnp.where(occurred, p, 1.0), jnp.where(occurred, q, 1.0)
    return jnp.sum(jnp.where(occurred, q * jnp.log(q / p), 0.0))


#: Distances of probabilities ``[m]`` that depend on their difference alone.
NORMS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "total_variation": lambda gap: jnp.sum(absolute(gap)) / 2,
    "euclidean": lambda gap: safe_sqrt(jnp.sum(jnp.square(gap))),
    "squared_euclidean": lambda gap: jnp.sum(jnp.square(gap)),
}

_DISTANCES = {name: _of_gap(norm) for name, norm in NORMS.items()}
_DISTANCES["kullback_leibler"] = _kullback_leibler


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
    data = labels_as_data(predictions, targets, where=where, weights=weights)
    return _ece(gathered(padded(data)), binning, check_bins(data, binning, distance))


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
    data = labels_as_data(predictions, targets, where=where, weights=weights)
    return _mce(gathered(padded(data)), binning, check_bins(data, binning, distance))


@jax.jit
def _ece(data: Data, binning: Binning, distance: VectorDistance) -> jax.Array:
    bins = filled_bins(data, binning, distance)
    total = jnp.sum(bins.weight)
    return jnp.sum(bins.error * bins.weight / jnp.where(total > 0, total, 1))


@jax.jit
def _mce(data: Data, binning: Binning, distance: VectorDistance) -> jax.Array:
    return jnp.max(filled_bins(data, binning, distance).error)


class DCalibration(NamedTuple):
    """The chi-squared statistic, its p-value, and how much of the rows is in each bin ``[b]``."""

    statistic: jax.Array
    pvalue: jax.Array
    counts: jax.Array


def d_calibration(
    predictions: Distribution | Data,
    targets: Targets | None = None,
    *,
    n_bins: int = 10,
    where: ArrayLike | None = None,
    weights: ArrayLike | None = None,
) -> DCalibration:
    """D-calibration: how unevenly U = F(y), or parts for censored targets, fills bins of [0, 1].

    .. math::
        \\chi^2 = \\frac{B}{n} \\sum_{b=1}^B \\Big(N_b - \\frac{n}{B}\\Big)^2, \\qquad
        N_b = \\sum_i \\frac{|[l_i, h_i] \\cap b|}{h_i - l_i},

    where l_i and h_i are the ends of `pit_interval`: a known target counts in its bin, and one that
    is censored at c is spread evenly over the bins from F(c) to 1.  For a `SurvivalCurve` an event
    is also spread over its cell, and F(c) is linear between its times: packages that read the curve
    as steps give slightly different counts if the times are few.  The p-value is that of B - 1
    degrees of freedom.

    This number is common in the literature, and **the test to take is `calibration_test`**.  Spread
    rows vary less than chi-squared says, so that the p-value is too large: of 400 rows
    with a third censored, scales that are wrong by 15 % are found in fewer than half as many data
    sets as by `calibration_test`, and with two thirds censored hardly ever (the page SURVIVAL.md of
    the benchmarks).  And it sees only the mean over all rows: errors of half of the predictions
    that the other half cancels remain unseen.

    Args:
        predictions, targets: as in `Data`, or one `Data` without `clusters` and `times`: n >= 1
            predictions of numbers.
        n_bins: the number of bins B, an integer of at least 2.
        where, weights: as in `Data`.  With weights N_b are sums of them, in units of the largest
            one, n is their sum, and the divisor n of the statistic is the sum of their squares, as
            its variance is.

    Returns:
        DCalibration(statistic, pvalue, counts), differentiable but where a known target changes its
        bin.  Inside jit all of it is NaN if a kept row is invalid, and the statistic is 0 if no row
        is kept.  O(n B) time and memory.

    Raises:
        TypeError, ValueError: an argument of the wrong type, shape or, where it is concrete, value;
            predictions of vectors.

    See also:
        `pit_curve` for the histogram with a band.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Weibull(jnp.ones(4), jnp.ones(4))
        >>> time = jnp.array([0.2, 0.4, 2.0, 0.7])  # F(y) is 0.18, 0.33, 0.86, 0.50
        >>> targets = cj.IntervalCensored.right_censored(time, jnp.array([True, True, True, False]))
        >>> found = cj.d_calibration(predictions, targets, n_bins=2)
        >>> found.counts.round(2).tolist(), found.pvalue.round(2).tolist()
        ([2.0, 2.0], 1.0)

    Reference: Haider, Hoehn, Davis and Greiner, Effective ways to build and evaluate individual
    survival distributions, Journal of Machine Learning Research 2020, Section 3.5.
    """
    n_bins = check_integer("n_bins", n_bins, 2, 2**24)
    rows = RowOptions(where=where, weights=weights)
    data = numbers_as_data(predictions, targets, intervals=True, without=DEPENDENCE, **rows)
    data = padded(data)
    return _d_calibration(None, (data, pit_interval(data)), n_bins)


@on_devices
def _d_calibration(
    axis: Axis, _: None, rows: tuple[Data, PITInterval], n_bins: int
) -> DCalibration:
    data, pit = rows
    weights = clean(data, axis).weights
    grid = UniformBinning(n_bins).edges(weights.dtype)
    # Masked rows may hold NaN.
    pit = PITInterval(*(jnp.where(weights == 0, 0.5, x) for x in pit))
    inside = jnp.diff(mass_below(pit, grid), axis=1)
    of_bins = jnp.sum(weights[:, None] * (inside - 1 / n_bins), axis=0)
    sums = of_bins, jnp.sum(weights), jnp.sum(jnp.square(weights))
    excess, n, squares = all_sum(sums, axis)
    statistic = n_bins * jnp.sum(jnp.square(excess)) / jnp.where(squares == 0, 1.0, squares)
    return DCalibration(statistic, gammaincc((n_bins - 1) / 2, statistic / 2), n / n_bins + excess)
