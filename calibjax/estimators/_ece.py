"""Calibration errors of binned predictions, and bins by class probabilities."""

import math
from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike, DTypeLike

from calibjax._base.check import check_choice, check_integer
from calibjax._base.compile import first_rows
from calibjax._base.sharding import as_varying, evenly_spaced, gathered, on_all_rows
from calibjax._base.struct import as_pytree, rows_of, static, struct
from calibjax._data.data import Data, clean
from calibjax._data.distribution import Distribution
from calibjax._data.padding import padded
from calibjax._numbers.arithmetic import x_where
from calibjax._numbers.derivatives import absolute, safe_sqrt
from calibjax.estimators._top_label import check_classes, labels_as_data

Numbers = TypeVar("Numbers", jax.Array, np.ndarray)


@struct
class UniformBinning:
    """Bins of predictions whose probabilities fall into the same intervals for each class.

    [0, 1] is cut into `n_bins` equal intervals, which are closed on the right: probability p_c is
    in interval k if (k - 1) / n_bins < p_c <= k / n_bins, and 0 is in interval 1.  Their ends are
    those of ``numpy.linspace(0, 1, n_bins + 1)`` in the dtype of the probabilities, so that 0.3 is
    in interval 3 of 10 in float32 and in float64.  ``sklearn.calibration.calibration_curve`` has
    ends in float64 only.  (Of some thousand intervals, an end in float32 may be the number beside
    it.)

    Of two classes, or an event, the probability of the second class says which bin it is.  Of m
    classes, m > 2, a bin is one interval for each of them, so that the number of possible bins
    grows as n_bins^(m-1).  Time O(n log n) for every 9 classes (with 10 intervals).

    Args:
        n_bins: the number of intervals for each class, from 1 to 2^24.

    Raises:
        TypeError, ValueError: n_bins is not an integer in 1 … 2^24.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Bernoulli(jnp.array([0.0, 0.1, 0.11]))
        >>> float(cj.ece(predictions, jnp.array([0, 0, 1]), binning=cj.UniformBinning(10)))
        0.33
    """

    n_bins: int = static(10)

    #: The least number of predictions that can be binned.
    min_size = 0

    def _complete(self) -> None:
        # float32 holds all integers up to 2^24, but not beyond.
        vars(self).update(n_bins=check_integer("n_bins", self.n_bins, 1, 2**24))

    def capacity(self, n: int, m: int) -> int:
        """The largest possible number of bins of n predictions of m classes."""
        return min(n, self.n_bins ** (1 if m == 2 else m))

    def bins(self, probs: jax.Array, where: jax.Array) -> jax.Array:
        """The number 0, 1, … of the bin of each row of `probs` ``[n, m]``: ``[n]``.

        Masked rows get a number like all other rows.
        """
        # 1 - p is rounded, and would be on another side of an end than p is.
        intervals = self.intervals(probs[:, 1:] if probs.shape[1] == 2 else probs)
        start = as_varying(jnp.zeros(probs.shape[0], jnp.int32), probs)
        return lax.scan(_refine_groups, start, self._packed(intervals))[0]

    def intervals(self, probs: jax.Array) -> jax.Array:
        """The number 0, 1, … of the interval of each probability, in the shape of `probs`."""
        # A product with n_bins is rounded, and no more than a hint which end is the nearest one.
        nearest = lax.round(self.n_bins * probs, lax.RoundingMethod.TO_NEAREST_EVEN)
        interval = nearest - (probs <= self.ends(nearest)).astype(probs.dtype)
        return jnp.minimum(jnp.maximum(interval, 0), self.n_bins - 1).astype(jnp.int32)

    def ends(self, k: Numbers) -> Numbers:
        """k / n_bins as in ``numpy.linspace`` for whole k, an array of floating-point numbers.

        In float64 `linspace` multiplies k by the step.  In float32 its ends are the numbers nearest
        to k / n_bins.  So is the sum of the products with two parts of the step: the first part has
        so few digits that its product is exact.
        """
        step = 1 / self.n_bins
        first = step if k.dtype == jnp.float64 else 2**24 // self.n_bins / 2**24
        return k * first + k * (step - first)

    def edges(self, dtype: DTypeLike) -> jax.Array:
        """The ends of all intervals, ``[n_bins + 1]``."""
        return self.ends(jnp.arange(self.n_bins + 1, dtype=dtype)).at[-1].set(1.0)

    def _packed(self, intervals: jax.Array) -> jax.Array:
        """The intervals ``[n, m]`` packed into as few int32 words as possible, ``[w, n]``.

        The intervals of some classes are the digits of one word in base n_bins.
        """
        n, m = intervals.shape
        length = max(k for k in range(1, min(m, 31) + 1) if k == 1 or self.n_bins**k <= 2**31)
        n_words = math.ceil(m / length)
        digits = jnp.pad(intervals, ((0, 0), (0, n_words * length - m)))
        powers = jnp.array([self.n_bins**k for k in range(length)], jnp.int32)
        return jnp.sum(digits.reshape(n, n_words, length) * powers[None, None], axis=2).T


def _refine_groups(group: jax.Array, word: jax.Array) -> tuple[jax.Array, None]:
    """The number 0, 1, … of the pair (group, word) among all distinct pairs, for each row."""
    rows = jnp.arange(group.size, dtype=jnp.int32)
    *keys, rows = lax.sort((group, word, rows), num_keys=2)
    is_new = jnp.any(jnp.stack([key[1:] != key[:-1] for key in keys]), axis=0)
    number = jnp.pad(jnp.cumsum(is_new, dtype=jnp.int32), (1, 0))
    return group.at[rows].set(number, unique_indices=True), None


@struct
class MedianVarianceBinning:
    """Bins made by splitting, again and again, the set whose probabilities vary the most.

    A set is split at the median probability of the class with the largest variance; members at or
    above the median (the upper one of two) form the new set.  A set becomes a bin if it has fewer
    than 2 `min_size` members, or if a side of the split would have fewer than `min_size`.
    Variances that agree to rounding, as for the two classes of Bernoulli predictions, count as
    equal, and the first such class is used.  Time O((n log n + n m) n / min_size), memory O(n m).

    Args:
        min_size: the least number of predictions in a bin, at least 1.
        max_bins: the largest number of bins, at least 1; None means no limit.

    Raises:
        TypeError, ValueError: an argument is not an integer of at least 1.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Bernoulli(jnp.array([0.1, 0.2, 0.8, 0.9]))
        >>> binning = cj.MedianVarianceBinning(min_size=2)
        >>> float(cj.ece(predictions, jnp.array([0, 0, 1, 1]), binning=binning))
        0.15

    Reference: Widmann, Lindsten and Zachariah, Calibration tests in multi-class classification,
    NeurIPS 2019.
    """

    min_size: int = static(10)
    max_bins: int | None = static(None)

    def _complete(self) -> None:
        vars(self).update(min_size=check_integer("min_size", self.min_size, 1))
        if self.max_bins is not None:
            vars(self).update(max_bins=check_integer("max_bins", self.max_bins, 1))

    def capacity(self, n: int, m: int) -> int:
        """The largest possible number of bins of n predictions of m classes."""
        largest = max(1, n // self.min_size)
        return largest if self.max_bins is None else min(largest, self.max_bins)

    def bins(self, probs: jax.Array, where: jax.Array) -> jax.Array:
        """The number 0, 1, … of the bin of each row of `probs` ``[n, m]``: ``[n]``.

        Masked rows are in bin 0 and do not influence the other rows.
        """
        capacity = self.capacity(*probs.shape)

        def largest_variance(members):
            """The largest variance of a class, or -inf if the set is not split, and the class."""
            count = jnp.sum(members)
            deviations = probs - _mean_of_members(probs, members, count)[None]
            variances = _mean_of_members(jnp.square(deviations), members, count - 1)
            largest = jnp.max(variances)
            nearly = 1 - 100 * jnp.finfo(probs.dtype).eps
            final = count < 2 * self.min_size
            first = jnp.argmax(variances >= nearly * largest).astype(jnp.int32)
            return jnp.where(final, -jnp.inf, largest), first

        def unfinished(state):
            _, variances, _, n_bins = state
            return (n_bins < capacity) & jnp.any(variances > -jnp.inf)

        def split(state):
            bins, variances, classes, n_bins = state
            parent = jnp.argmax(variances).astype(jnp.int32)
            members = where & (bins == parent)
            x = probs[:, classes[parent]]
            median = jnp.sort(jnp.where(members, x, jnp.inf))[jnp.sum(members) // 2]
            sides = members[None] & jnp.stack([x < median, x >= median])
            splits = jnp.all(jnp.sum(sides, axis=1) >= self.min_size)
            new_variances, new_classes = jax.vmap(largest_variance)(sides)
            numbers = jnp.stack([parent, n_bins])
            return (
                jnp.where(splits & sides[1], n_bins, bins),
                jnp.where(
                    splits,
                    variances.at[numbers].set(new_variances),
                    variances.at[parent].set(-jnp.inf),
                ),
                jnp.where(splits, classes.at[numbers].set(new_classes), classes),
                n_bins + splits.astype(jnp.int32),
            )

        first_variance, first_class = largest_variance(where)
        state = (
            jnp.zeros(where.shape, jnp.int32),
            jnp.full(capacity, -jnp.inf, probs.dtype).at[0].set(first_variance),
            jnp.zeros(capacity, jnp.int32).at[0].set(first_class),
            jnp.int32(1),
        )
        return lax.while_loop(unfinished, split, as_varying(state, (probs, where)))[0]


def _mean_of_members(x: jax.Array, members: jax.Array, count: jax.Array) -> jax.Array:
    """The sum of the member rows of x ``[n, m]``, divided by `count`: ``[m]``."""
    return jnp.sum(jnp.where(members[:, None], x, 0), axis=0) / jnp.maximum(count, 1).astype(
        x.dtype
    )


Binning = UniformBinning | MedianVarianceBinning


#: Equal intervals of [0, 1], or intervals that hold equally many probabilities.
STRATEGIES = ("uniform", "quantile")


def intervals_of(
    strategy: str, n_bins: int, probs: jax.Array, kept: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """The interval of each probability, in its shape, `n_bins` where not kept, and all ends.

    Intervals are closed on the right, so that equal probabilities are in one; some may be empty.
    """
    if strategy == "uniform":
        binning = UniformBinning(n_bins)
        return jnp.where(kept, binning.intervals(probs), n_bins), binning.edges(probs.dtype)
    kept = jnp.broadcast_to(kept, probs.shape)
    ordered = jnp.sort(jnp.where(kept, probs, jnp.inf), axis=None)
    n_kept = jnp.sum(kept, dtype=jnp.int32)
    first = jnp.append(evenly_spaced(n_kept, n_bins, n_bins), n_kept)
    edges = ordered[jnp.maximum(first - 1, 0)]
    bins = jnp.searchsorted(edges[1:-1], probs.ravel()).reshape(probs.shape)
    return jnp.where(kept, bins, n_bins).astype(jnp.int32), edges


def bin_means(
    x: jax.Array, bins: jax.Array, sizes: jax.Array, weights: jax.Array | None = None
) -> jax.Array:
    """The mean of the rows of x ``[n, k]`` in each of b bins, 0 in empty ones: ``[b, k]``.

    Rows of the bin b do not count; `sizes` ``[b]`` are the numbers of rows in the bins, or the sums
    of their weights ``[n]``.
    """
    divisors = x_where(sizes > 0, sizes, 1).astype(x.dtype)[:, None]

    def sums(x: jax.Array) -> jax.Array:
        x = x if weights is None else x * weights[:, None]
        zeros = jnp.zeros((sizes.size, x.shape[1]), x.dtype)
        return zeros.at[bins].add(x, mode="drop", wrap_negative_indices=False)

    means = sums(x) / divisors
    # The mean of the deviations corrects rounding: a float32 sum of 10^6 equal numbers is off by
    # percents.
    return means + sums(x - rows_of(means, jnp.minimum(bins, sizes.size - 1))) / divisors


def check_binning(binning: Binning, n: int) -> None:
    """Raises an error unless `binning` is one of the two above and can bin n predictions."""
    if not isinstance(binning, Binning):
        raise TypeError(
            "binning must be UniformBinning(n_bins) or MedianVarianceBinning(min_size), got "
            f"{type(binning).__name__}."
        )
    if n < binning.min_size:
        raise ValueError(
            f"predictions must hold at least min_size = {binning.min_size} rows, got {n}."
        )


TEN_BINS = UniformBinning(10)

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
    data, distance = check_bins(predictions, targets, binning, distance, where, weights)
    bins = _calibration_bins(padded(data), binning, distance)
    return first_rows(bins, binning.capacity(data.n, check_classes(data.predictions)))


@on_all_rows
def _calibration_bins(data: Data, binning: Binning, distance: VectorDistance) -> CalibrationBins:
    bins = filled_bins(data, binning, distance)

    def or_nan(x: jax.Array) -> jax.Array:
        valid = (bins.count > 0) & ~jnp.isnan(bins.error)
        return jnp.where(valid.reshape(-1, *(1,) * (x.ndim - 1)), x, jnp.nan)

    def stated_classes(x: jax.Array) -> jax.Array:
        # Of two probabilities that sum to 1, Bernoulli predictions hold the second one.
        return x[:, 1] if data.predictions.is_binary else x

    prediction, frequency = (stated_classes(or_nan(x)) for x in (bins.prediction, bins.frequency))
    return CalibrationBins(prediction, frequency, bins.count, or_nan(bins.error), bins.weight)


def filled_bins(data: Data, binning: Binning, distance: VectorDistance) -> CalibrationBins:
    """The bins, with the probabilities of all classes and the error 0 where a bin is empty."""
    is_weighted, data = data.weights is not None, clean(data)
    probs = data.predictions.label_probabilities()
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


def numbers_of_bins(binning: Binning, probs: jax.Array, kept: jax.Array) -> tuple[jax.Array, int]:
    """The bin of each row ``[n]``, and the number of bins b; b stands for a masked row."""
    n_bins = binning.capacity(*probs.shape)
    return jnp.where(kept, binning.bins(lax.stop_gradient(probs), kept), n_bins), n_bins


def check_bins(
    predictions: Distribution | Data,
    targets: ArrayLike | None,
    binning: Binning,
    distance: str | VectorDistance,
    where: ArrayLike | None,
    weights: ArrayLike | None,
) -> tuple[Data, VectorDistance]:
    """The checked data, and the distance as a pytree."""
    data = labels_as_data(predictions, targets, where=where, weights=weights)
    check_binning(binning, data.n_counted())
    if callable(distance):
        return data, as_pytree(distance)
    if not isinstance(distance, str):
        raise TypeError(
            f"distance must be one of {', '.join(_DISTANCES)} or a callable, got "
            f"{type(distance).__name__}."
        )
    check_choice("distance", distance, _DISTANCES)
    return data, as_pytree(_DISTANCES[distance])


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
    data, distance = check_bins(predictions, targets, binning, distance, where, weights)
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
    data, distance = check_bins(predictions, targets, binning, distance, where, weights)
    return _mce(gathered(padded(data)), binning, distance)


@jax.jit
def _ece(data: Data, binning: Binning, distance: VectorDistance) -> jax.Array:
    bins = filled_bins(data, binning, distance)
    total = jnp.sum(bins.weight)
    return jnp.sum(bins.error * bins.weight / jnp.where(total > 0, total, 1))


@jax.jit
def _mce(data: Data, binning: Binning, distance: VectorDistance) -> jax.Array:
    return jnp.max(filled_bins(data, binning, distance).error)
