"""Bins of predictions by their class probabilities, and means in bins."""

import math
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import DTypeLike

from calibjax._base.check import check_integer
from calibjax._base.sharding import as_varying, evenly_spaced
from calibjax._base.struct import rows_of, static, struct
from calibjax._numbers.arithmetic import fast_where

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

    For two classes, or an event, the probability of the second class determines the bin.  For m > 2
    classes a bin is one interval for each of them, so that the number of possible bins grows as
    n_bins^(m-1).  Time O(n log n) for every 9 classes (with 10 intervals).

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
        to k / n_bins.  So is the sum of the products with two parts of the step: the first part is
        short enough that its product is exact.
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
    """Bins made by repeatedly splitting the set whose probabilities vary the most.

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
            bins = jnp.where(splits & sides[1], n_bins, bins)
            whole = variances.at[parent].set(-jnp.inf)
            variances = jnp.where(splits, variances.at[numbers].set(new_variances), whole)
            classes = jnp.where(splits, classes.at[numbers].set(new_classes), classes)
            return bins, variances, classes, n_bins + splits.astype(jnp.int32)

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
    total = jnp.sum(jnp.where(members[:, None], x, 0), axis=0)
    return total / jnp.maximum(count, 1).astype(x.dtype)


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


def numbers_of_bins(binning: Binning, probs: jax.Array, kept: jax.Array) -> tuple[jax.Array, int]:
    """The bin of each row ``[n]``, and the number of bins b; b stands for a masked row."""
    n_bins = binning.capacity(*probs.shape)
    return jnp.where(kept, binning.bins(lax.stop_gradient(probs), kept), n_bins), n_bins


def bin_means(
    x: jax.Array, bins: jax.Array, sizes: jax.Array, weights: jax.Array | None = None
) -> jax.Array:
    """The mean of the rows of x ``[n, k]`` in each of b bins, 0 in empty ones: ``[b, k]``.

    Rows of the bin b do not count; `sizes` ``[b]`` are the numbers of rows in the bins, or the sums
    of their weights ``[n]``.
    """
    divisors = fast_where(sizes > 0, sizes, 1).astype(x.dtype)[:, None]

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
