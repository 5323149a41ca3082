r"""Ranks of statistics among draws, of one statistic and of the largest score of several kernels.

The statistics of one kernel, T^0 of the observed targets and T^1, …, T^B of targets drawn from the
predictions, are exchangeable if the model is calibrated, and so are the vectors of all kernels.
They remain so if each kernel's numbers are transformed by a function that does not depend on their
order.  The transformation here brings all kernels to one scale: with the mean, the standard
deviation and the skewness g of the B + 1 numbers, X = (T - mean) / deviation is nearly a shifted
gamma variable, and

    z = (6 / g) ((1 + g X / 2)^(1/3) - 1) + g / 6

is nearly standard normal (Wilson and Hilferty, The distribution of chi-square, 1931).  Under H0, X
is skew for wide kernels, which have few large eigenvalues, and nearly normal for narrow ones: the
maximum of X would favour wide kernels, the maximum of z is fair.

**Families.**  Many kernels of one kind would drown a few of another.  The largest z of each family
is therefore transformed once more, and the scores are the values that this transformation of its
family gives to the z of a kernel: M is the maximum over families, each of which has the same
chance.  The transformation of the maxima is symmetric in all data sets too.

**Intervals that hold simultaneously.**  T_k / n^2 is the squared norm of a mean, and if the model
is calibrated, it is the squared error of this mean.  Let c be the (1 - a)-quantile of the draws
M^b = max_k z_k^b, and t_k the number T that the transformation of kernel k brings to c.  The
transformation increases, so that M^b <= c says that T_k^b <= t_k for all k, which has a probability
of at least 1 - a: r_k = sqrt(t_k) / n bounds the errors of all kernels simultaneously, and
`NormInterval` with r_k has an interval for each of them.

The lower end is above 0 exactly if T_k^0 > t_k, that is if z_k^0 > c.  For the kernel with the
largest z this means M^0 > c, where c is the draw of rank ceil((1 - a) (B + 1)).  That number of
draws is smaller than M^0 exactly if at most a (B + 1) - 1 are not, that is if p <= a.  (M^0 is
equal to draws that differ from it by rounding; the lower end is 0 then.)  So the interval of the
best kernel excludes 0 if and only if the test rejects.

That the errors are those under the model is right near calibration.  If the observed data vary more
than those of the model, r_k^2 is multiplied by the ratio of both mean diagonals of H, and then the
lower end may be 0 although the test rejects: it has seen that data vary too much.
"""

import dataclasses
import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike, DTypeLike

from calibjax._base.check import check_integer
from calibjax._base.compile import quick_jit
from calibjax._base.struct import indexed, is_traced, rows_of, struct
from calibjax._numbers.arithmetic import ROUNDINGS_OF_SUMS, fast_where

#: A level of confidence that `checked_level` has seen.
Level = jax.Array | np.ndarray


def checked_level(level: ArrayLike, dtype: DTypeLike, name: str = "confidence_level") -> Level:
    """The level as an array; a ValueError unless it is in (0, 1), or NaN inside jit."""
    if not is_traced(level):
        given = np.asarray(level)
        if not np.all((given > 0) & (given < 1)):
            raise ValueError(f"{name} must be in (0, 1), got {level}.")
        return given.astype(dtype)
    level = jnp.asarray(level, dtype)
    return fast_where((level > 0) & (level < 1), level, jnp.nan)


def one_level(confidence_level: ArrayLike, dtype: DTypeLike) -> Level:
    """`checked_level` of a level that must be one number."""
    level = checked_level(confidence_level, dtype)
    if level.ndim:
        raise ValueError(f"confidence_level must be one number, got shape {list(level.shape)}.")
    return level


def check_resamples(confidence_level: ArrayLike, n_resamples: int) -> tuple[Any, int]:
    """Both options, checked: the level must be one that R resamples reach, in (0, R / (R + 1)]."""
    n_resamples = check_integer("n_resamples", n_resamples, 1)
    level, reached = one_level(confidence_level, jnp.float32), n_resamples / (n_resamples + 1)
    if is_traced(level):
        level = fast_where(level <= reached, level, jnp.nan)
    elif np.asarray(confidence_level) > reached:
        raise ValueError(
            f"confidence_level must be at most {n_resamples} / {n_resamples + 1} with "
            f"{n_resamples} resamples, got {confidence_level}."
        )
    return level, n_resamples


def rank_of_level(confidence_level: float, n_resamples: int) -> int:
    """The rank of `critical_value` for a level that `check_resamples` has let pass."""
    # 0.95 of 1000 draws is the draw 950 in spite of rounding.
    return math.ceil(confidence_level * (n_resamples + 1) - 1e-6)


def normal_quantile(level: Level) -> jax.Array:
    """z with P(|Z| <= z) = level for a standard normal Z."""
    # Rounding of a level in float32 is more than what this polynomial leaves out.
    return math.sqrt(2) * lax.erf_inv(jnp.asarray(level))


# A smaller skewness counts as 0.
_LEAST_SKEWNESS = 1e-6


def counted_pvalue(statistic: jax.Array, draws: jax.Array) -> jax.Array:
    """(1 + #{draws >= statistic}) / (R + 1) for R draws; the statistic counts as one more draw.

    Each of several statistics is compared with all draws.  The p-value is never 0, and it is valid
    at any R if the draws follow the null distribution.  A NaN draw counts as at least the
    statistic, so that it cannot lower the p-value.  With a NaN statistic, or NaN draws alone, the
    p-value is NaN.
    """
    n = draws.shape[0]
    along = jnp.expand_dims(draws, range(statistic.ndim))
    smaller = jnp.sum(along < statistic[..., None], axis=-1)
    pvalue = (1 + n - smaller).astype(statistic.dtype) / (n + 1)
    return fast_where((statistic == statistic) & jnp.any(draws == draws), pvalue, jnp.nan)


def counted_pvalue_with_ties(values: jax.Array) -> jax.Array:
    """`counted_pvalue` of the last of R + 1 values, where values that rounding parts are equal.

    Data sets without any event are the same data sets, and their statistics must tie.  Ties count
    as draws that are at least as large, so that the p-value stays valid.
    """
    return counted_pvalue(values[-1] - rounding_of(values), values[:-1])


def host_pvalue(values: np.ndarray, rounding: float = 0.0) -> float:
    """`counted_pvalue` of the last of R + 1 values in NumPy; nearly equal values are equal."""
    draws, statistic = values[:-1], values[-1]
    return (1 + int(np.sum(~(draws < statistic - rounding)))) / values.shape[0]


def as_multiple(pvalue: jax.Array | float, n_resamples: int) -> float:
    """The multiple of 1 / (R + 1) that a p-value of R data sets is, without rounding of float32.

    So 0.05 is not above the level 0.05.  A p-value that does not exist, NaN, remains.
    """
    found = float(pvalue) * (n_resamples + 1)
    return found if math.isnan(found) else round(found) / (n_resamples + 1)


def rounding_of(values: jax.Array) -> jax.Array:
    """By how much statistics of equal data may differ, for statistics along the last axis."""
    sizes = jnp.abs(fast_where(jnp.isfinite(values), values, 0.0))
    return ROUNDINGS_OF_SUMS * jnp.finfo(values.dtype).eps * jnp.max(sizes, axis=-1)


def upper_quantile(draws: jax.Array, level: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The draw of rank ceil(level (R + 1)) along the last axis, or the largest draw.

    Beside it stands the normal quantile of the level in units of the quantile of R / (R + 1), which
    is above 1 exactly if all draws are too small.
    """
    n_draws = draws.shape[-1]
    shape = jnp.broadcast_shapes(draws.shape[:-1], level.shape)
    ordered = jnp.broadcast_to(jnp.sort(draws, axis=-1), (*shape, n_draws))
    # 0.95 of 1000 draws is the draw 950 in spite of rounding.
    rounding = 8 * jnp.finfo(draws.dtype).eps
    rank = jnp.ceil((level - rounding) * (n_draws + 1))
    index = jnp.minimum(fast_where(rank >= 1, rank, 1.0), n_draws).astype(jnp.int32) - 1
    index = jnp.broadcast_to(index, shape)[..., None]
    found = jnp.take_along_axis(ordered, index, axis=-1)[..., 0]
    reached = jnp.asarray(n_draws / (n_draws + 1), draws.dtype)
    beyond = normal_quantile(level) / normal_quantile(reached)
    return fast_where(jnp.isnan(level), jnp.nan, found), beyond


def critical_value(distances: jax.Array, level: jax.Array) -> jax.Array:
    """The distance of rank ceil(level (R + 1)) among those of R data sets, along the last axis.

    One more data set from the same distribution exceeds it with a probability of at most 1 - level.
    """
    return upper_quantile(distances, level.astype(distances.dtype))[0]


def holm(pvalues: np.ndarray) -> np.ndarray:
    """P-values adjusted for their number, whatever depends on what ``[n]``.

    Holm, A simple sequentially rejective multiple test procedure, 1979.
    """
    order = np.argsort(pvalues)
    factors = np.arange(pvalues.size, 0, -1)
    found = np.empty_like(pvalues)
    found[order] = np.minimum(np.maximum.accumulate(factors * pvalues[order]), 1.0)
    return found


# The share of scores whose mean excess is the unit of a tail.
_TAIL = 0.01


@functools.partial(quick_jit, light=True)
def step_down(values: jax.Array) -> jax.Array:
    """P-values of G groups from K statistics of each, ``[G, K, 1 + B]``, adjusted for G and K.

    Column b has the statistics of one data set, of which the observed one is the first.  Each
    statistic is brought to the scale of normal scores by the moments of its own 1 + B numbers.
    Among many groups only errors far out in the tails stand out, where these scores are not normal,
    above all those of rare targets.  The largest hundredth of the scores of a statistic, in all
    groups and data sets, exceed the others by some mean: in units of this mean excess, tails of all
    statistics are nearly exponential, and none hides the others.  A group has the largest of its K.

    The largest observed group is compared with the maxima of all groups, the next one with the
    maxima of all but the first, and so on; no p-value is less than the one before it.  The least is
    1 / (B + 1) for every G.  All of this is symmetric in the data sets, so that p is exact where
    these are exchangeable.

    Westfall and Young, Resampling-based multiple testing, 1993.
    """
    n_groups, n_kernels, n_sets = values.shape
    rows = values.reshape(-1, n_sets)
    scores = _in_family(_scale_of_families(rows, tuple(range(len(rows)))), rows)
    scores = jnp.where(jnp.isneginf(scores), 0.0, scores)
    # Data that are equal up to rounding have a score not less than the observed one.
    scores = scores.at[:, 0].add(-rounding_of(scores)).reshape(values.shape)
    excess = scores - jnp.quantile(scores, 1 - _TAIL, axis=(0, 2), method="lower", keepdims=True)
    unit = jnp.mean(jnp.maximum(excess, 0.0), axis=(0, 2), keepdims=True) / _TAIL
    largest = jnp.max(excess / jnp.where(unit > 0, unit, 1.0), axis=1)
    order = jnp.argsort(largest[:, 0], descending=True)
    ordered = rows_of(largest, order)
    maxima = lax.cummax(ordered[:, 1:], axis=0, reverse=True)
    pvalues = jax.vmap(counted_pvalue)(ordered[:, 0], maxima)
    return jnp.zeros_like(pvalues).at[order].set(lax.cummax(pvalues))


def normal_scores(x: jax.Array, skewness: jax.Array, least_ratio: float = -math.inf) -> jax.Array:
    """The scores on which numbers of mean 0, variance 1 and some skewness g are nearly normal.

    With these X is nearly a shifted gamma variable, and 6 / g ((1 + g X / 2)^(1/3) - 1) + g / 6 is
    nearly standard normal (Wilson and Hilferty, The distribution of chi-square, PNAS 1931); it
    tends to X as g tends to 0.  1 + g X / 2 counts as at least `least_ratio`.
    """
    is_skew = jnp.abs(skewness) > _LEAST_SKEWNESS
    g = fast_where(is_skew, skewness, 1.0)
    shift = jnp.maximum(g * x / 2, least_ratio - 1)
    root = jnp.cbrt(1 + shift)
    # (1 + s)^(1/3) - 1 = s / (r^2 + r + 1) keeps the digits of a small s.
    return fast_where(is_skew, 6 / g * (shift / (jnp.square(root) + root + 1)) + g / 6, x)


# A kernel with one eigenvalue, chi-squared with one degree of freedom, has 2.8.  Rare events have
# more, and z would be large for all draws: no other kernel could decide.
_SMALLEST_SKEWNESS, _LARGEST_SKEWNESS = 0.05, 2.83
# The cube root has an infinite slope at 0, far below all values that decide a test.
_LEAST_RATIO = 0.01


class Aggregate(NamedTuple):
    """The p-value of the largest z, and its ingredients.

    Args:
        statistic: the largest z of the observed targets.
        pvalue: its rank among the draws.
        pvalue_of_first: that of the first family alone, in the same draws, if there are families.
        scores_of_first: the largest z of this family, of the observed targets and of each draw,
            ``[1 + B]``.
        draws: the largest z of each draw, ``[B]``.
        scores: z of the observed targets for each kernel, ``[K]``.
        scores_of_draws: z of each draw, ``[K, B]``.
        pvalues: the p-value that each kernel would have alone, ``[K]``.
        adjusted_pvalues: the rank of each kernel's score among the draws of the maximum, ``[K]``.
        errors: the thresholds t_k of all kernels.
    """

    statistic: jax.Array
    pvalue: jax.Array
    pvalue_of_first: jax.Array | None
    scores_of_first: jax.Array | None
    draws: jax.Array
    scores: jax.Array
    scores_of_draws: jax.Array
    pvalues: jax.Array
    adjusted_pvalues: jax.Array
    errors: "SimultaneousErrors"


@struct
class Scale:
    """The transformation of numbers to a scale on which they are nearly standard normal.

    Args:
        mean, deviation, skewness: of the numbers, of one shape.
        handicap: what is taken from z.
    """

    mean: jax.Array
    deviation: jax.Array
    skewness: jax.Array
    handicap: jax.Array | None = None

    def score(self, standardised: jax.Array) -> jax.Array:
        """z of (T - mean) / deviation; with more axes, the last one is not of the scale."""
        z = normal_scores(standardised, self.skewness, _LEAST_RATIO)
        return z if self.handicap is None else z - self.handicap

    def number(self, z: jax.Array) -> jax.Array:
        """The number T with this z."""
        g = self.skewness
        z = z if self.handicap is None else z + self.handicap
        root = jnp.maximum(1 + g * (z - g / 6) / 6, 0.0)
        return self.mean + self.deviation * 2 / g * (root**3 - 1)


@struct
class SimultaneousErrors:
    """The thresholds t_k, from the draws M^b and the transformation of each kernel.

    Args:
        draws: M^b, ``[1, B]`` for K kernels, or ``[B]`` for one of them.
        own: the transformation of the statistics of each kernel, ``[K]`` or ``[]``.
        of_family: that of the largest z of its family, or None.
        rounding: by how much statistics of equal data may differ.
        factor: what t_k is multiplied with.
    """

    draws: jax.Array
    own: Scale
    of_family: Scale | None
    rounding: jax.Array
    factor: jax.Array

    def quantile(self, level: jax.Array) -> jax.Array:
        """factor t_k for c at this level; above all draws c grows as normal quantiles do."""
        draws = jnp.asarray(self.draws)
        c, beyond = upper_quantile(draws, level)
        reached = normal_quantile(jnp.asarray(1 - 1 / (draws.shape[-1] + 1), draws.dtype))
        c = c + reached * jnp.maximum(beyond - 1, 0.0)
        z = c if self.of_family is None else self.of_family.number(c)
        return self.factor * self.own.number(z) + self.rounding

    def moments(self) -> tuple[jax.Array, jax.Array]:
        """The mean and the variance of the draws of one kernel, for which M^b are its scores.

        The observed statistic, which may be far off, takes no part.
        """
        numbers = self.factor * self.own.number(self.draws)
        return jnp.mean(numbers), jnp.var(numbers)

    def scaled(self, unit: jax.Array, factor: jax.Array) -> "SimultaneousErrors":
        """The thresholds times unit and factor, where `unit` is the one of the statistics."""
        own = Scale(unit * self.own.mean, unit * self.own.deviation, self.own.skewness)
        return SimultaneousErrors(self.draws, own, self.of_family, unit * self.rounding, factor)

    def of(self, kernel: jax.Array) -> "SimultaneousErrors":
        """The thresholds of one kernel."""
        parts = self.own, self.of_family, self.rounding, self.factor
        return SimultaneousErrors(self.draws[0], *jax.tree.map(lambda x: rows_of(x, kernel), parts))


def aggregate(
    values: jax.Array, families: tuple[int, ...] = (), handicap: jax.Array | None = None
) -> Aggregate:
    """The aggregate of statistics ``[K, 1 + B]``, the observed ones first.

    `families` has the number of the family of each kernel, if there are any; the scores of the
    first one are made smaller by the handicap.

    Statistics that differ by rounding errors only are equal: where events are rare, many draws are
    the same data.  The errors are proportional to the largest statistic, which is a sum of squares.
    """
    rounding = rounding_of(values)[:, None]
    mean = jnp.mean(values, axis=1, keepdims=True)
    deviation = jnp.sqrt(jnp.mean(jnp.square(values - mean), axis=1, keepdims=True))
    # A kernel whose numbers differ by little more than rounding errors says nothing.
    constant = deviation <= 2 * rounding
    safe = fast_where(constant, 1.0, deviation)
    standardised = fast_where(constant, 0.0, values - mean) / safe
    own = Scale(mean, fast_where(constant, 0.0, deviation), _skewness(standardised))

    def score(x: jax.Array) -> jax.Array:
        # If all kernels say nothing, all draws are equal.
        least = fast_where(jnp.all(constant), values.dtype.type(0), -jnp.inf)
        return fast_where(constant, least, own.score(x))

    # Data that are equal up to rounding have a z not less than the last one for the same kernel.
    least = standardised[:, :1] - rounding / safe
    scores = score(jnp.concatenate([standardised, least], axis=1))
    of_family = pvalue_of_first = scores_of_first = None
    if families:
        scores_of_first, pvalue_of_first, _ = _largest(scores[: families.count(0)])
        of_family = _scale_of_families(scores[:, :-1], families)
        if handicap is not None:
            of_first = jnp.where(np.array(families)[:, None] == 0, handicap, 0.0)
            of_family = dataclasses.replace(of_family, handicap=of_first.astype(values.dtype))
        scores = _in_family(of_family, scores)
        of_family = indexed(of_family, np.s_[:, 0])
    largest, pvalue, adjusted = _largest(scores)
    draws = largest[1:]
    return Aggregate(
        statistic=largest[0],
        pvalue=pvalue,
        pvalue_of_first=pvalue_of_first,
        scores_of_first=scores_of_first,
        draws=draws,
        scores=scores[:, 0],
        scores_of_draws=scores[:, 1:-1],
        pvalues=jax.vmap(counted_pvalue)(values[:, 0] - rounding[:, 0], values[:, 1:]),
        adjusted_pvalues=adjusted,
        errors=SimultaneousErrors(
            draws=draws[None],
            own=indexed(own, np.s_[:, 0]),
            of_family=of_family,
            rounding=rounding[:, 0],
            factor=jnp.ones_like(mean[:, 0]),
        ),
    )


def _largest(scores: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The largest of the scores ``[K, 1 + B]`` of each data set, its p-value, and those of all.

    A last column has the least scores of data that are equal to the observed ones.
    """
    largest = jnp.max(scores[:, :-1], axis=0)
    pvalues = counted_pvalue(scores[:, -1], largest[1:])
    return largest, rows_of(pvalues, jnp.argmax(scores[:, 0])), pvalues


def _skewness(standardised: jax.Array) -> jax.Array:
    skewness = jnp.mean(standardised**3, axis=1, keepdims=True)
    return jnp.minimum(jnp.maximum(skewness, _SMALLEST_SKEWNESS), _LARGEST_SKEWNESS)


def _scale_of_families(scores: jax.Array, families: tuple[int, ...]) -> Scale:
    """The transformation of the largest of the scores ``[K, 1 + B]`` of the family of each kernel.

    Its arrays have the shape ``[K, 1]``.
    """
    numbers = np.array(families, np.int32)
    largest = jax.ops.segment_max(scores, numbers, int(numbers.max()) + 1)
    # Where all kernels of a family say nothing, all are -infinity.
    largest = fast_where(jnp.isneginf(largest), 0.0, largest)
    mean = jnp.mean(largest, axis=1, keepdims=True)
    deviation = jnp.sqrt(jnp.mean(jnp.square(largest - mean), axis=1, keepdims=True))
    deviation = fast_where(deviation > 0, deviation, 1.0)
    skewness = _skewness((largest - mean) / deviation)
    return Scale(mean[numbers], deviation[numbers], skewness[numbers])


def _in_family(scale: Scale, z: jax.Array) -> jax.Array:
    return fast_where(jnp.isneginf(z), -jnp.inf, scale.score((z - scale.mean) / scale.deviation))
