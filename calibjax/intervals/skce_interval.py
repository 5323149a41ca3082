r"""The confidence interval for the SKCE, and intervals for a squared norm of any size.

The SKCE is |w|^2 for the mean w = E xi of a random function xi = k((p, Y), .) - E k((p, Z), .),
Z ~ p, and the biased estimate is |w_n|^2 for the mean w_n of n such functions.  With the error
delta = w_n - w the triangle inequality says

    | |w_n| - |w| | <= |delta|,

so that [max(0, |w_n| - r)^2, (|w_n| + r)^2] contains |w|^2 with a probability of at least 1 - a, if
r^2 is the (1 - a)-quantile of |delta|^2 (`NormInterval`).  If w = 0, this is the test that compares
|w_n|^2 with r^2.  A normal interval is too short there: |w_n|^2 is not nearly normal.

**The upper end alone holds with a probability of 1 - a/2.**  Let u = w / |w|, which is a fixed
direction.  Then |w| = <u, w_n> - <u, delta> <= |w_n| - <u, delta>.  In the limit <u, delta> is
normal with the mean 0, so that P(-<u, delta> > r) = P(|<u, delta>| > r) / 2 <= a / 2.

**For kernels with values in [0, K], intervals hold for every n** (`bounded_norm_interval`):
|xi|^2 = h_ii <= 2 K.  Let c = sqrt(2 K / n) and a = 1 - level.

Below: another xi_i changes |delta| by 2 c / sqrt(n) at most, and E |delta| <= (E |delta|^2)^(1/2)
<= c.  By the inequality of bounded differences (McDiarmid 1989)

    P(|delta| >= c (1 + sqrt(2 log(2/a)))) <= a / 2,    and    |w| >= |w_n| - |delta|.

Above: |w| <= |w_n| - <u, delta> for the fixed direction u = w / |w|, and <u, xi_i> is in the
interval of length 2 sqrt(2 K) around 0.  By Hoeffding's inequality (1963)

    P(-<u, delta> >= c sqrt(2 log(2/a))) <= a / 2.

An unbiased estimate is a mean over pairs with |h| <= 2 K, of which M are independent at a time, and
Hoeffding's inequality says P(|SKCE_u - SKCE| >= 2 K sqrt(2 log(2/a) / M)) <= a.  No SKCE exceeds
2 K.

Null distributions and distributions of errors are pytrees with a method ``quantile(level)``.

**The interval for the SKCE** is what two intervals have in common.  The first one is that of the
triangle inequality, where the draws of the bootstrap stand for the distribution of |delta|^2.
With T* and S of `nulls.bootstrap`, |delta*|^2 = T* - S + SKCE_b + max(0, SKCE_u) / (n-1) has a mean
of at least SKCE_b - SKCE_u, which is unbiased for E |delta|^2.  SKCE_b exceeds a quantile of
|delta*|^2 only if S exceeds the quantile of T*, so that the lower end is above 0 only if
`asymptotic_skce_test` rejects.

The second one inverts a test of the size of the SKCE.  With A = <u, delta> and its variance s,

    SKCE_u - SKCE = 2 |w| A + (A^2 - s) + R,    Var SKCE_u = 4 s SKCE + v,    v = 2 tr C^2 / n^2,

in the limit, where C is the covariance of xi, R comes from the other directions, and v is the
variance of SKCE_u at calibration.  Let P(|Z| <= z) = 1 - a and D = max(0, SKCE_u).

Above: SKCE_u is a quadratic form of a normal variable, and its lower tail is lighter than the
normal tail of this variance, as the one of chi-squared is.  So with a probability of at least
1 - a/2 SKCE - z sqrt(4 s SKCE + v) <= D.  The largest SKCE that satisfies this is, as in the
interval of Wilson (Probable inference, the law of succession, and statistical inference, 1927),

    D + 2 z^2 s + z sqrt(4 s D + 4 z^2 s^2 + v).

Below: let q = r^2 - (SKCE_b - SKCE_u), the quantile of SKCE_u at calibration.  Where A increases
SKCE_u, A^2 - s does too, and adds p = (z^2 - 1) s, or q if that is less, to the quantile of
2 |w| A.  R is not correlated with A, and its quantile is sqrt(q^2 - p^2).  The smallest SKCE with
SKCE_u - p - SKCE <= sqrt(4 z^2 s SKCE + q^2 - p^2) is, with D = max(0, SKCE_u - p),

    D + 2 z^2 s - sqrt(4 z^2 s D + 4 z^4 s^2 + q^2 - p^2).

Far from calibration this is the normal interval.  With one eigenvalue both intervals are nearly
equal.  With many of similar size |delta|^2 is nearly constant, and the triangle inequality far from
sharp.

**The variance s** is <w, C w> / (n |w|^2), and its direction is that of w.  Var <w_n, delta> is
<w, C w> / n + v / 2 on average, and e^2 / 4 with the Hájek standard error e.  So the estimate is
(e^2 / 4 - v / 2) / SKCE_u, but at least that of the direction w_n, e^2 / (4 SKCE_b), and at most
c / n, where c is the largest eigenvalue of C.  Near calibration w_n does not show the direction,
and s = c / n.  In between, s is a mean in which the estimate has the weight
max(0, 1 - 2 sqrt(v) / SKCE_u).  `benchmarks/INTERVALS.md` counts how often intervals contain the
SKCE.

An SKCE of landmarks has the same ends, with |delta|^2 of targets drawn from the model instead of
the bootstrap's, and e from the row sums of a few rows.

**Rare events.**  Where they are missing, the data hardly vary, and the bootstrap believes in a tiny
error.  But the model knows how much data vary if it is right.  If the observed variance tr C is
smaller than the variance under the model, by not more than 2 standard errors s of chance, a normal
variable with the missing variance in one direction is taken into account: all of it where the
variance under the model is at most sqrt(10) s, as with ten rare events or less, else less of it.

**Rows with weights, or that depend on each other** have the estimates and the draws of
`dependent_sums`: |delta*|^2 instead of the errors of resamples, their variance instead of v, and
the variance of <w_n, delta*> instead of e^2 / 4.  The largest variance c / n of a projection of
delta is the largest eigenvalue of its covariance, which is at most sqrt(v / 2), and at most
E |delta|^2.  The lower end is above 0 only if |w_n|^2 also exceeds its quantile for a calibrated
model.  Those draws use w = 0: with ten clusters they are right where |delta*|^2 are too small.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import NamedTuple, Protocol, Unpack

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from calibjax._base.check import check_integer, check_key
from calibjax._base.sharding import (
    Axis,
    all_sum,
    axis_size,
    evenly_spaced,
    global_offset,
    on_devices,
    rows_at,
)
from calibjax._base.struct import struct, widest_dtype
from calibjax._data.data import Data, RowOptions, Rows, as_data, clean_kept_first
from calibjax._data.distribution import Distribution, as_labels
from calibjax._data.interval_censored import Targets
from calibjax._data.padding import padded
from calibjax._loops.coordinate_sums import row_at
from calibjax._loops.random_numbers import folded
from calibjax._numbers.arithmetic import diagonal_of, dot, fast_where
from calibjax.discrepancy import SumOfTerms, check_kernel_of, h_tile, h_with_itself, prepared
from calibjax.kernels.base import KernelLike
from calibjax.nulls.bootstrap import DependentSums, bootstrap_draws, dependent_sums
from calibjax.nulls.draws import DRAWS_PER_BATCH, draw_targets, row_numbers
from calibjax.nulls.ranks import checked_level, normal_quantile, upper_quantile
from calibjax.operators.gram_matrix import DiscrepancyMatrix, TiledH, tiled_h


class ConfidenceInterval(NamedTuple):
    """The lower and the upper bound of a confidence interval."""

    low: jax.Array
    high: jax.Array


#: The interval of each level of confidence.
IntervalOf = Callable[[jax.Array], ConfidenceInterval]


class HasQuantiles(Protocol):
    """The distribution of a number."""

    def quantile(self, level: jax.Array) -> jax.Array:
        """The smallest number that is not exceeded with the probability `level`."""
        ...

    def moments(self) -> tuple[jax.Array, jax.Array]:
        """The mean and the variance."""
        ...


# The number of standard deviations that a calibrated model's estimate has, up to which an error may
# have any direction.
_CLEAR = 2.0


@struct
class NormInterval:
    """The interval around the biased estimate |w_n|^2, or around the unbiased one if it is known.

    Args:
        biased: |w_n|^2.
        errors: the distribution of |delta|^2.
        null: that of |w_n|^2 if w is 0, beyond which alone the interval is above 0; or None.
        unbiased: the unbiased estimate; None leaves the triangle inequality alone.
        standard_error: of the unbiased estimate far from calibration, 2 sqrt(Var <w_n, delta>);
            None if it is not known.
        largest: the largest variance c / n of a projection of delta; None takes a bound.
        missing: a variance of delta in one direction that the data do not show.
    """

    biased: jax.Array
    errors: HasQuantiles
    null: HasQuantiles | None = None
    unbiased: jax.Array | None = None
    standard_error: jax.Array | None = None
    largest: jax.Array | None = None
    missing: ArrayLike = 0.0

    def __call__(self, level: jax.Array) -> ConfidenceInterval:
        """The ends at a level of confidence, in the shape of the level."""
        z_squared = jnp.square(normal_quantile(level))
        biased = jnp.asarray(self.biased)
        squared_radius = jnp.maximum(self.errors.quantile(level), z_squared * self.missing)
        norm, radius = (jnp.sqrt(jnp.maximum(x, 0.0)) for x in (biased, squared_radius))
        low, high = jnp.square(norm - radius), jnp.square(norm + radius)
        # A number that is larger by rounding alone is not above 0.
        is_above = biased > squared_radius
        if self.null is not None:
            is_above &= biased > self.null.quantile(level)
        if self.unbiased is not None:
            estimate = jnp.maximum(self.unbiased, 0.0)
            along = self._variance_along(estimate)
            variance = self.errors.moments()[1] + 2 * jnp.square(self.missing)
            shift = 2 * z_squared * along
            q = jnp.maximum(squared_radius - (biased - self.unbiased), 0.0)
            p = jnp.minimum(jnp.maximum(z_squared - 1, 0.0) * along, q)
            rest, q_rest = jnp.maximum(estimate - p, 0.0), (q - p) * (q + p)
            # rest + shift - root, without the difference of nearly equal numbers.
            total = rest + shift + jnp.sqrt(shift * (2 * rest + shift) + q_rest)
            low = jnp.maximum(low, (jnp.square(rest) - q_rest) / fast_where(total > 0, total, 1.0))
            root = jnp.sqrt(shift * (2 * estimate + shift) + z_squared * variance)
            high = jnp.minimum(high, estimate + shift + root)
        low = fast_where(is_above, low, 0.0)
        # At small levels the upper end may be the smaller one.
        low = fast_where(jnp.isnan(high), jnp.nan, jnp.minimum(low, high))
        return ConfidenceInterval(low, high)

    def _variance_along(self, estimate: jax.Array) -> jax.Array:
        """The variance of <w, delta> / |w|, or what it is at most where w is not clear."""
        mean, variance = self.errors.moments()
        largest = self.largest
        if largest is None:
            largest = jnp.minimum(mean, jnp.sqrt(variance / 2))
        if self.standard_error is None:
            return largest + self.missing
        is_positive = estimate > 0
        size = fast_where(is_positive, estimate, 1.0)
        part = jnp.maximum(1 - _CLEAR * jnp.sqrt(variance) / size, 0.0)
        clear = fast_where(is_positive, part, 0.0)
        of_product = jnp.square(self.standard_error / 2)
        least = of_product / fast_where(self.biased > 0, self.biased, 1.0)
        along = jnp.clip((of_product - variance / 2) / size, least, jnp.maximum(largest, least))
        return clear * along + (1 - clear) * largest + self.missing


def interval_of_mean(
    estimate: jax.Array, standard_error: jax.Array, level: jax.Array
) -> ConfidenceInterval:
    """estimate ± z standard_error for a mean of independent estimates, cut off below 0."""
    error = normal_quantile(level) * standard_error
    return ConfidenceInterval(*(jnp.maximum(x, 0.0) for x in (estimate - error, estimate + error)))


def bounded_norm_interval(
    biased: jax.Array, kernel_bound: jax.Array, n: jax.Array, level: jax.Array
) -> ConfidenceInterval:
    """The interval around the biased estimate of n samples."""
    norm, c = (jnp.sqrt(jnp.maximum(x, 0.0)) for x in (biased, 2 * kernel_bound / n))
    deviation = jnp.sqrt(2 * jnp.log(2 / (1 - level)))
    low = jnp.square(jnp.maximum(norm - c * (1 + deviation), 0.0))
    high = jnp.square(norm + c * deviation)
    return ConfidenceInterval(low, jnp.minimum(high, 2 * kernel_bound))


def bounded_mean_interval(
    unbiased: jax.Array, kernel_bound: jax.Array, n_pairs: jax.Array, level: jax.Array
) -> ConfidenceInterval:
    """The interval around the unbiased estimate of M independent pairs at a time."""
    error = 2 * kernel_bound * jnp.sqrt(2 * jnp.log(2 / (1 - level)) / n_pairs)
    ends = unbiased - error, unbiased + error
    return ConfidenceInterval(*(jnp.clip(end, 0.0, 2 * kernel_bound) for end in ends))


@struct
class DrawnErrors:
    """The distribution of R draws, ``[..., R]``."""

    draws: jax.Array

    def quantile(self, level: jax.Array) -> jax.Array:
        """The draw of rank ceil(level (R + 1)): at most R + 1 times 1 - level draws exceed it.

        So a number exceeds the quantile exactly if its `counted_pvalue` is at most 1 - level.
        Above the level R / (R + 1), which draws do not reach, the largest draw grows as the squared
        normal quantiles do.  A sum of several squares with weights grows less.
        """
        found, beyond = upper_quantile(jnp.asarray(self.draws), level)
        return found * jnp.square(jnp.maximum(beyond, 1.0))

    def moments(self) -> tuple[jax.Array, jax.Array]:
        """The mean and the variance of the draws, over all axes."""
        draws = jnp.asarray(self.draws)
        return _mean_and_variance(draws, 1 / draws.size)


# The number of rows that show the largest eigenvalue.
_MATRIX_ROWS = 256
# The number of pairs that show the variance in the direction of the error, and the least number of
# rows that do.
_PAIRS, _LEAST_ROWS = 2**25, 32
# The number of steps of the power iteration.
_STEPS = 32
# The number of rows whose targets are drawn at a time, and of their parameters.
_ROWS, _PARAMETERS = 2**12, 2**16
# In standard errors of the observed variance.
_CHANCE = 2.0
# The number of rare events up to which data may not show how much they vary.
_FEW = 10


def largest_variance(
    kernel: SumOfTerms, data: Rows, n_kept: jax.Array | int, n_rows: jax.Array, axis: Axis
) -> jax.Array:
    """The largest variance of <u, xi> for any unit vector u: the largest eigenvalue of H / n.

    It comes from the centred H of at most 256 rows that are evenly spaced among all.  It is convex
    in the covariance of xi, so that on average it is not smaller than for all rows.  `data` are
    clean, their first `n_kept` rows count on this device, and `n_rows` on all devices.
    """
    size = min(_MATRIX_ROWS, data.n * axis_size(axis))
    count = jnp.minimum(jnp.maximum(n_rows, 1), size)
    is_row = jnp.arange(size, dtype=jnp.int32) < count
    # What does not count is a valid row too: of one that is 0, h may be NaN.
    index = fast_where(is_row, evenly_spaced(n_rows, count, size), 0)
    samples = rows_at(data.samples, n_kept, index, axis)
    weights, count = is_row.astype(data.weights.dtype), count.astype(data.weights.dtype)
    rows = prepared(kernel, samples, None)
    matrix = h_tile(kernel, rows, rows)
    means = dot(matrix, weights) / count
    centred = matrix - means[:, None] - means[None, :] + dot(weights, means) / count
    return _largest_eigenvalue(weights[:, None] * centred * weights[None, :]) / (count - 1)


def error_of_some_rows(
    kernel: SumOfTerms, data: Rows, n_kept: jax.Array | int, n_rows: jax.Array, axis: Axis
) -> jax.Array:
    """The Hájek standard error of the SKCE of many rows, from the row sums of a few of them.

    At least 33 rows are there, which are evenly spaced.  The arguments are those of
    `largest_variance`.
    """
    size = min(max(_PAIRS // (data.n * axis_size(axis)), _LEAST_ROWS), _MATRIX_ROWS)
    index = evenly_spaced(n_rows, size, size)
    h = tiled_h(kernel, data, axis)
    means = h.sums_at(index, n_kept) / h.count()
    return 2 * jnp.std(means, ddof=1) / jnp.sqrt(h.count())


def _largest_eigenvalue(matrix: jax.Array) -> jax.Array:
    """The largest eigenvalue of a positive semidefinite matrix, by power iteration.

    It takes a tenth of the time of a factorisation, and errs by a few percent at most, where many
    eigenvalues are nearly as large.
    """

    def normalised(vector: jax.Array) -> tuple[jax.Array, jax.Array]:
        norm = jnp.sqrt(jnp.sum(jnp.square(vector)))
        return vector / fast_where(norm == 0, 1.0, norm), norm

    def step(_: int, state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        return normalised(dot(matrix, state[0]))

    # The row of the largest variance points more to large eigenvectors than to others.
    start = normalised(row_at(matrix, jnp.argmax(diagonal_of(matrix))))
    return lax.fori_loop(0, _STEPS, step, start)[1]


def variance_under_model(
    key: jax.Array, kernel: SumOfTerms, data: Rows, numbers: jax.Array, axis: Axis
) -> tuple[jax.Array, jax.Array]:
    """E |xi|^2 for targets from the model, and by how much the mean of n rows varies.

    Where events are rare, the data may show next to no variance, but the model knows it: of up to
    100 labels each counts with its probability, else 100 targets are drawn from each prediction.
    `data` are clean, and `numbers` are the numbers of the rows in all data.  A row counts as the
    square of its weight, as in the variance of the mean.
    """
    n_labels = data.predictions.n_labels

    def mean_and_variance(row: tuple[Distribution, jax.Array]) -> tuple[jax.Array, jax.Array]:
        prediction, number = row
        shares: ArrayLike = 1 / DRAWS_PER_BATCH
        if n_labels is not None and n_labels <= DRAWS_PER_BATCH:
            probabilities = as_labels(prediction).label_probabilities()
            targets, shares = jnp.arange(n_labels), probabilities / jnp.sum(probabilities)
        else:
            batch, rows = jax.tree.map(lambda x: x[None], (prediction, number))
            targets = draw_targets(key, batch, rows, jnp.int32(0))[0]
        targets = targets.astype(data.targets.dtype)
        values = jax.vmap(lambda y: h_with_itself(kernel, (prediction, y)))(targets)
        return _mean_and_variance(values, shares)

    n_parameters = sum(x.size for x in jax.tree.leaves(data.predictions)) // data.n
    together = min(max(_PARAMETERS // max(n_parameters, 1), 1), _ROWS)
    moments = lax.map(mean_and_variance, (data.predictions, numbers), batch_size=together)
    squares = jnp.square(data.weights)
    sums = squares * moments[0], jnp.square(squares) * moments[1], squares
    mean, variance, n = all_sum(tuple(map(jnp.sum, sums)), axis)
    return mean / n, jnp.sqrt(variance) / n


def _mean_and_variance(x: jax.Array, shares: ArrayLike) -> tuple[jax.Array, jax.Array]:
    mean = jnp.sum(shares * x)
    return mean, jnp.sum(shares * jnp.square(x - mean))


def missing_variance(expected: jax.Array, chance: jax.Array, observed: jax.Array) -> jax.Array:
    """By how much data vary less than the model expects, as far as events are rare.

    `chance` is the standard error of the observed variance under the model.
    """
    missing = jnp.minimum(jnp.maximum(expected - observed, 0.0), _CHANCE * chance)
    events = jnp.square(expected / fast_where(chance == 0, 1.0, chance))
    return missing * _FEW / jnp.maximum(events, _FEW)


# Resample r has the key fold_in(key, r): the number of no resample is that of the model's draws.
_MODEL = 2**31 - 1


def skce_confidence_interval(
    key: jax.Array,
    kernel: KernelLike,
    predictions: Distribution | Data,
    targets: Targets | None = None,
    *,
    confidence_level: ArrayLike = 0.95,
    n_resamples: int = 999,
    **rows: Unpack[RowOptions],
) -> ConfidenceInterval:
    """An interval (low, high) that contains the SKCE with the given probability, for any SKCE.

    .. math::
        |\\mathrm{SKCE}_u - \\mathrm{SKCE}| \\le z \\sqrt{4 s\\,\\mathrm{SKCE} + v}

    solved for the SKCE, where v is the variance of SKCE_u at calibration, and s the variance of its
    error in the direction of the error.  For the lower end the quantile of a bootstrap at
    calibration replaces z sqrt(v).  The interval covers the SKCE at, near and far from calibration:
    a normal interval around the unbiased estimate does so only far from calibration, and in between
    its coverage is 80 to 90 % instead of 95 %.  Near calibration the upper end is 3 to 10 standard
    deviations above the estimate; at a clear error the interval is about as wide as a normal one.
    Rows must be independent; for dependent rows, pass `clusters` or `times`.

    **The upper end is a certificate**: "the SKCE is at most high, with 95 % confidence".  A large
    p-value is not a certificate; it may be due to few data.  The upper end alone has the higher
    level (1 + confidence_level) / 2: for a certificate of 95 % use confidence_level = 0.9.  The
    lower end is above 0 only if `asymptotic_skce_test` with the same key, kernel and n_resamples
    has a p-value of at most 1 - confidence_level.

    Errors are estimated from n_resamples multinomial resamples of the rows, which is valid for
    large n; from n = 50 on coverage was correct wherever ten targets or more differed from the most
    common one.  With 10 rows it misses the SKCE 0 of calibrated predictions in up to 10 % instead
    of 5 %, and with 20 rows in 6 %.  If all rows happen to be equal, as with 20 rows that are wrong
    in 10 % of cases, it misses: they do not show the variance.  With less than about ten rare
    events, the interval uses the variance that the model expects, and covers the SKCE of a
    calibrated model and of models with fewer events than predicted.  With several times more events
    than predicted, but only three or four, its coverage is some 90 % instead of 95 %.  For
    `IntervalCensored` targets the model's variance is unknown, since it depends on how they are
    censored: with few events, the interval relies on the variation of the data alone.  Rows with
    weights, clusters or times have random multipliers instead of resamples, and the estimate omits
    pairs that may depend on each other.

    O(n^2 n_resamples) time; O(n) memory, one byte for each row and each of at most 1024 resamples
    at a time, and some hundreds of numbers for a row with multipliers.

    Args:
        key: a key of `jax.random`.
        kernel: usually a TensorProduct, or what `default_kernel` returns.  The interval is for the
            SKCE with this kernel: choose it before you use the targets.
        predictions, targets: as in `Data`, or one `Data`; `IntervalCensored` with a `PITKernel`.
        confidence_level: numbers in (0, 1), of any shape.
        n_resamples: the number of resamples; resample r depends only on (key, r).
        rows: `where`, `weights`, `clusters`, `times` and `horizon` of `Data`.

    Returns:
        ConfidenceInterval(low, high) for the SKCE, which is the squared error, both in the shape of
        confidence_level; their roots are an interval for the error itself.  Inside jit a bad value,
        or fewer than two kept rows, makes both NaN.

    Raises:
        TypeError, ValueError: as in `skce`; a level is not in (0, 1).

    See also:
        `distribution_free_skce_test` with ``unbiased=False``, whose result has an interval for any
        data at any n, `equivalent_temperature` for a familiar unit, `compare_calibration` for two
        models.

    Example:
        >>> import jax, jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Bernoulli(jnp.linspace(0.05, 0.95, 500))
        >>> targets = predictions.sample(jax.random.key(0))
        >>> kernel = cj.default_kernel(predictions)
        >>> low, high = cj.skce_confidence_interval(jax.random.key(1), kernel, predictions, targets)
        >>> float(low), bool(high < 0.01)
        (0.0, True)

    Reference: Arcones and Giné, On the bootstrap of U and V statistics, 1992.
    """
    check_key(key)
    data = as_data(predictions, targets, intervals=True, **rows)
    checked = check_kernel_of(kernel, data)
    data.check_unrelated()
    n_resamples = check_integer("n_resamples", n_resamples, 1)
    level = checked_level(confidence_level, widest_dtype(*jax.tree.leaves(data.samples)))
    _, interval = skce_and_interval((key, checked, level), padded(data), n_resamples)
    return interval


@functools.partial(on_devices, light=True)
def skce_and_interval(
    axis: Axis, shared: tuple[jax.Array, SumOfTerms, jax.Array], data: Rows, n_resamples: int
) -> tuple[jax.Array, ConfidenceInterval]:
    """The unbiased SKCE, and its interval; `shared` is the key, the kernel and the level."""
    key, kernel, level = shared
    if not data.is_plain:
        h, data, sums = h_and_dependent_sums(axis, (key, kernel), data, n_resamples)
        unbiased, interval = sums.estimate, dependent_interval(sums)
        squares = all_sum(jnp.sum(jnp.square(data.weights)), axis)
        n, observed = jnp.square(h.count()) / squares, h.trace() / squares - unbiased
    else:
        data, n_kept = clean_kept_first(data, axis)
        h = tiled_h(kernel, data, axis)
        interval, *_, row_sums = resampled_interval(key, h, n_kept, n_resamples)
        n, unbiased = h.count(), h.unbiased(row_sums)
        _, n_rows = global_offset(n_kept, axis)
        largest = largest_variance(h.kernel, data, n_kept, n_rows, axis) / n
        interval = dataclasses.replace(interval, largest=largest)
        observed = n * (interval.biased - unbiased)

    # Targets from the model would have to be censored, in a way that is not known.
    if not data.is_censored:
        model_key = folded(key, _MODEL)
        numbers = row_numbers(data.weights, axis)
        expected, chance = variance_under_model(model_key, h.kernel, data, numbers, axis)
        missing = missing_variance(expected, chance, observed) / n
        interval = dataclasses.replace(interval, missing=missing)
    return unbiased, interval(level)


@on_devices
def landmark_interval(
    axis: Axis, shared: tuple[SumOfTerms, jax.Array, NormInterval, jax.Array], data: Rows
) -> ConfidenceInterval:
    """The same interval of an SKCE from landmarks, whose errors are those under the model.

    `shared` is the kernel, the unbiased SKCE, its `NormInterval` and the level.
    """
    kernel, unbiased, interval, level = shared
    interval = dataclasses.replace(interval, unbiased=unbiased)
    if data.is_plain:
        data, n_kept = clean_kept_first(data, axis)
        _, n_rows = global_offset(n_kept, axis)
        error = error_of_some_rows(kernel, data, n_kept, n_rows, axis)
        largest = largest_variance(kernel, data, n_kept, n_rows, axis) / n_rows.astype(error.dtype)
        interval = dataclasses.replace(interval, largest=largest, standard_error=error)
    return interval(level)


def resampled_interval(
    key: jax.Array, h: DiscrepancyMatrix, n_kept: jax.Array | int, n_resamples: int
) -> tuple[NormInterval, jax.Array, jax.Array, jax.Array]:
    """The interval from `bootstrap_draws`, S and the draws T* that are compared, and the row sums.

    The distribution of |delta*|^2 follows from the draws and both estimates.
    """
    draws, row_sums = bootstrap_draws(key, h, n_kept, n_resamples)
    n, unbiased = h.count(), h.unbiased(row_sums)
    biased = (n - 1) / n * unbiased + h.trace() / jnp.square(n)
    statistic = n / (n - 1) * unbiased - biased
    errors = DrawnErrors(draws - statistic + biased + jnp.maximum(unbiased, 0.0) / (n - 1))
    interval = NormInterval(biased, errors, None, unbiased, h.standard_error(row_sums))
    return interval, statistic, draws, row_sums


def dependent_interval(sums: DependentSums) -> NormInterval:
    """The interval from draws of dependent rows."""
    standard_error = 2 * jnp.sqrt(jnp.mean(jnp.square(sums.linear)))
    errors, null = DrawnErrors(sums.errors), DrawnErrors(sums.null)
    return NormInterval(sums.biased, errors, null, sums.estimate, standard_error)


def h_and_dependent_sums(
    axis: Axis, shared: tuple[jax.Array, SumOfTerms], data: Rows, n_resamples: int
) -> tuple[TiledH, Rows, DependentSums]:
    """H and the clean data of its rows, kept rows first, and their `dependent_sums`.

    `shared` is the key and the kernel.
    """
    key, kernel = shared
    data, n_kept = clean_kept_first(data, axis)
    h = tiled_h(kernel, data, axis)
    return h, data, dependent_sums(key, h, data, n_resamples)
