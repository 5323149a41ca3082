"""The asymptotic test with the unbiased SKCE over all pairs.

Its null distribution is approximated by functions of H. n SKCE_u converges in distribution to

    Q = sum_i lambda_i (Z_i^2 - 1),

where Z_i are standard normal and lambda_i are the eigenvalues of h, the
limits of the eigenvalues of H / n (Widmann et al., ICLR 2021, Remark B.2).  With t_k = sum_i
lambda_i^k, the second and third cumulants of Q are 2 t_2 and 8 t_3.
"""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple, Unpack

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.special import gammaincc

from calibjax._base.check import check_choice, check_integer, check_key
from calibjax._base.sharding import Axis, gathered, optimised_on_devices
from calibjax._data.data import Data, RowOptions, Rows, as_data, clean_kept_first
from calibjax._data.distribution import Distribution
from calibjax._data.interval_censored import Targets
from calibjax._data.padding import padded
from calibjax._numbers.arithmetic import dot
from calibjax.discrepancy import SumOfTerms, check_kernel_of, h
from calibjax.features.random_features import one_feature
from calibjax.hypothesis_tests._result import CalibrationTestResult
from calibjax.intervals.rare_events import note_on_rare_events
from calibjax.intervals.skce_interval import (
    DrawnErrors,
    HasQuantiles,
    NormInterval,
    dependent_interval,
    h_and_dependent_sums,
    resampled_interval,
)
from calibjax.kernels.base import KernelLike
from calibjax.nulls.bootstrap import wild_draws
from calibjax.nulls.ranks import counted_pvalue
from calibjax.nulls.sampler import why_not_tested
from calibjax.operators.gram_matrix import DiscrepancyMatrix, low_rank_h, tiled_h


class NullComparison(NamedTuple):
    """What a null distribution says of the estimate.

    Args:
        statistic, pvalue: the statistic, and how probable a larger one is under H0.
        row_sums: the row sums of H without its diagonal.
        draws: draws of the statistic under H0, or None.
        errors: the distribution of the squared error of the mean whose squared norm is the biased
            SKCE, for a `NormInterval`; or None.
    """

    statistic: jax.Array
    pvalue: jax.Array
    row_sums: jax.Array
    draws: jax.Array | None = None
    errors: HasQuantiles | None = None


#: ``null(key, H, n_kept, n_resamples)``; the first `n_kept` rows of this device have weight 1, the
#: other rows 0.
NullDistribution = Callable[[jax.Array, DiscrepancyMatrix, jax.Array | int, int], NullComparison]


def bootstrap(
    key: jax.Array, h: DiscrepancyMatrix, n_kept: jax.Array | int, n_resamples: int
) -> NullComparison:
    """Compares S = n/(n-1) SKCE_u - SKCE_b with its centred multinomial bootstrap."""
    interval, statistic, draws, row_sums = resampled_interval(key, h, n_kept, n_resamples)
    pvalue = counted_pvalue(statistic, draws)
    return NullComparison(statistic, pvalue, row_sums, draws, interval.errors)


def wild(
    key: jax.Array, h: DiscrepancyMatrix, n_kept: jax.Array | int, n_resamples: int
) -> NullComparison:
    """Compares n SKCE_u with its wild bootstrap."""
    draws, row_sums = wild_draws(key, h, n_kept, n_resamples)
    return _with_draws(h, row_sums, draws)


def gamma(
    key: jax.Array, h: DiscrepancyMatrix, n_kept: jax.Array | int, n_resamples: int
) -> NullComparison:
    """Compares n SKCE_u with the gamma distribution that has its first two moments under H0.

    The p-value is P(X >= n SKCE_u + t_1), where X has mean t_1 and variance 2 t_2 (Johnson, Kotz
    and Balakrishnan, Continuous univariate distributions, 1994, p. 343).
    """
    n = h.count()
    row_sums, squares = h.row_sums_and_squares()
    statistic = n * h.unbiased(row_sums)
    t1, t2 = h.trace() / n, (squares + h.trace(power=2)) / jnp.square(n)
    pvalue = _gamma_tail(jnp.square(t1) / (2 * t2), (statistic + t1) * t1 / (2 * t2), t2)
    return NullComparison(statistic, pvalue, row_sums)


def pearson(
    key: jax.Array, h: DiscrepancyMatrix, n_kept: jax.Array | int, n_resamples: int
) -> NullComparison:
    """Compares n SKCE_u with Pearson's curve that has its first three moments under H0.

    The p-value is P(X >= nu + n SKCE_u sqrt(nu / t_2)), where X is chi-squared with
    nu = t_2^3 / t_3^2: X, shifted and scaled, is Pearson's curve of type III.
    """
    matrix, (row_sums, _) = h.reduced() / h.count(), h.row_sums_and_squares()
    statistic = h.count() * h.unbiased(row_sums)
    # The matrix is divided by sqrt(t_2), because powers of its entries may overflow.
    largest = jnp.max(jnp.abs(matrix))
    matrix = matrix / jnp.where(largest > 0, largest, 1.0)
    t2 = jnp.sum(jnp.square(matrix))
    norm = jnp.sqrt(jnp.where(t2 > 0, t2, 1.0))
    matrix = matrix / norm
    shape = 1 / jnp.square(jnp.sum(dot(matrix, matrix) * matrix)) / 2
    ratio = statistic / jnp.where(largest > 0, largest * norm, 1.0)
    pvalue = _gamma_tail(shape, shape + ratio * jnp.sqrt(shape / 2), t2)
    return NullComparison(statistic, pvalue, row_sums)


def spectrum(
    key: jax.Array, h: DiscrepancyMatrix, n_kept: jax.Array | int, n_resamples: int
) -> NullComparison:
    """Compares n SKCE_u with draws of its limit under H0, with the eigenvalues of H / n."""
    row_sums, _ = h.row_sums_and_squares()
    return _with_draws(h, row_sums, _spectrum_draws(key, h.reduced() / h.count(), n_resamples))


def _with_draws(h: DiscrepancyMatrix, row_sums: jax.Array, draws: jax.Array) -> NullComparison:
    """Compares n SKCE_u with draws."""
    n, unbiased = h.count(), h.unbiased(row_sums)
    # SKCE_b - SKCE_u is the unbiased estimate of the mean squared error of the mean.
    errors = DrawnErrors(h.trace() / jnp.square(n) - unbiased / n + draws / n)
    statistic = n * unbiased
    return NullComparison(statistic, counted_pvalue(statistic, draws), row_sums, draws, errors)


def _spectrum_draws(key: jax.Array, matrix: jax.Array, n_resamples: int) -> jax.Array:
    """Draws of Q, where lambda_i are the eigenvalues of `matrix`, ``[n_resamples]``.

    Gretton et al., A fast, consistent kernel two-sample test, NeurIPS 2009.
    """
    eigenvalues = jnp.linalg.eigvalsh(matrix)
    # The largest eigenvalues come first, so that the zeros of masked rows change no draw.
    eigenvalues = eigenvalues[jnp.argsort(-jnp.abs(eigenvalues))]

    def draw(number):
        normal = jax.random.normal(jax.random.fold_in(key, number), eigenvalues.shape, matrix.dtype)
        return dot(jnp.square(normal) - 1, eigenvalues)

    # Some 2^20 normal numbers are drawn at a time.
    batch_size = max(1, 2**20 // matrix.shape[0])
    return lax.map(draw, jnp.arange(n_resamples), batch_size=batch_size)


def _gamma_tail(shape: jax.Array, x: jax.Array, t2: jax.Array) -> jax.Array:
    """P(X >= x) for the gamma distribution with this shape and scale 1; 1 if t_2 is 0."""
    # t_2 = 0 means that h is 0 for all pairs; then the statistic is 0 and the p-value is 1.
    degenerate = t2 == 0
    shape = jnp.where(degenerate, 1.0, shape)
    tail = gammaincc(shape, jnp.where(degenerate, 0.0, jnp.maximum(x, 0.0)))
    return jnp.where(jnp.isnan(x) & ~degenerate, jnp.nan, tail)


# The largest number of rows for which a method stores the matrix H.
_MAX_MATRIX_ROWS = 8192


#: Approximations of the distribution of the estimate under H0, functions of H.
_METHODS: dict[str, NullDistribution] = {
    "bootstrap": bootstrap,
    "wild": wild,
    "spectrum": spectrum,
    "gamma": gamma,
    "pearson": pearson,
    "features": spectrum,
}
# Those for which the matrix H is in memory, on one device.
_HOLDING_MATRIX = "spectrum", "pearson"


def asymptotic_skce_test(
    key: jax.Array,
    kernel: KernelLike,
    predictions: Distribution | Data,
    targets: Targets | None = None,
    *,
    n_resamples: int = 1000,
    method: str = "bootstrap",
    n_features: int = 256,
    **rows: Unpack[RowOptions],
) -> CalibrationTestResult:
    """Tests whether the unbiased SKCE over all pairs is too large for a calibrated model.

    Its p-value is asymptotically exact.  `method` chooses an approximation of the null distribution
    of the estimate, where n SKCE_u tends to sum_i lambda_i (Z_i^2 - 1):

    - "bootstrap": the centred multinomial bootstrap of S = n/(n-1) SKCE_u - SKCE_b, with
      p = (1 + #{T* >= S}) / (n_resamples + 1).  O(n^2 n_resamples) time; O(n) memory, one byte for
      each row and each of at most 1024 resamples at a time.
    - "wild": the wild bootstrap, T* = sum_{i != j} e_i e_j h_ij / (n - 1) with random signs e.  As
      good as the bootstrap elsewhere, and much better where few pairs of rows are alike: vectors of
      many coordinates, many classes, few rows.  There the bootstrap hardly ever rejects, calibrated
      or not (vectors of 5 coordinates with standard deviations that are 10 % too small, 200 rows:
      power 0.34 and 0.11 at level 0.05).  Where events are rare it rejects calibrated models more
      often than the bootstrap.  The same time and memory.
    - "gamma": the gamma distribution with the first two moments, without draws.  Use it if the
      bootstrap takes too long.  At 0.05 and 0.1 the p-value is right within a fifth.  Smaller
      p-values are too small: if h has a long tail of small eigenvalues, by factors of 1.5 to 4 at
      0.01 and 3 to 60 at 0.001.  O(n^2) time, O(n) memory.
    - "pearson": Pearson's curve with the first three moments, without draws.  The p-value is right
      within a tenth down to 0.01, and within a third at 0.001.  It stores H: O(n^3) time,
      n <= 8192.
    - "spectrum": draws of the limit, with the eigenvalues of H / n as lambda.  As good as the
      bootstrap if n is large.  It stores H: O(n^3) time, n <= 8192.
    - "features": "spectrum" for a kernel of n_features random features, whose H has only
      2 n_features eigenvalues for each tensor product of the kernel.  The choice for large n.  The
      test is valid with any number of features, because they do not depend on the data; with 64
      features it was as powerful as the bootstrap.  O(n n_features^2) time, O(n) memory.

    Rows with `weights`, in `clusters` or over `times` need the method "bootstrap".  It
    compares n SKCE_b with n |sum_i eta_i w_i / n|^2 for turns eta of clusters or times
    (`nulls/bootstrap.py`), where sum_i w_i / n is the mean that SKCE_b is the squared
    norm of.  The estimate leaves out the pairs that may depend on each other.  The O(n) memory has
    some hundreds of numbers for a row then.

    The statistic is S for "bootstrap" and n SKCE_u for the other methods.  All methods estimate the
    null distribution from H.  If fewer than some ten rare events are expected among all rows, H
    does not show it, and the methods reject calibrated models too often; outside of jit the method
    of the result then says so.  Use `calibration_test`, or `distribution_free_skce_test` with
    ``null="model"``, which are exact.

    Args:
        key: a key of `jax.random`; "gamma" and "pearson" do not use it.
        kernel: usually a TensorProduct, or what `default_kernel` returns.
        predictions, targets: as in `Data`, or one `Data`.  With a `PITKernel` also
            `IntervalCensored`.
        n_resamples: the number of draws under H0; draw r depends only on (key, r).
        method: "bootstrap", "wild", "gamma", "pearson", "spectrum" or "features".
        n_features: the number of random features of "features"; `random_feature_skce` says which
            kernels have random features.
        rows: `where`, `weights`, `clusters`, `times` and `horizon` of `Data`.

    Returns:
        CalibrationTestResult.  Its confidence_interval, which "gamma" and "pearson" do not have,
        holds whether the model is calibrated or not, and its lower end is above 0 only if p <= 1 -
        confidence_level.  `skce_confidence_interval` computes more for the interval of "bootstrap":
        its upper end may be lower, and it allows for rare events.
        The standard_error, from row sums of H (Hájek projection), holds for models that are *not*
        calibrated; under H0 it is too large.  With "features" the estimate and the interval are of
        the SKCE of the random kernel, and standard_error is None, because the row sums do not show
        the error of the features.  The null_distribution holds the draws, if there are any.  Inside
        jit a bad value, or fewer than two kept rows, makes all numbers NaN.  As a loss use `skce`:
        the estimate of a test has no gradient in bounded memory.

    Raises:
        TypeError, ValueError: as in `skce`; weights, clusters or times are given, and method is
            not "bootstrap"; method is "spectrum" or "pearson" and the batch has
            more than 8192 rows; method is "features" and the spectrum of the kernel is not known.

    See also:
        `calibration_test`, which is exact; `asymptotic_block_skce_test` for many rows.

    Example:
        >>> import jax, jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Bernoulli(jnp.full(100, 0.5))
        >>> targets = jnp.arange(100) < 75
        >>> kernel = cj.default_kernel(predictions)
        >>> result = cj.asymptotic_skce_test(jax.random.key(0), kernel, predictions, targets)
        >>> float(result.pvalue)
        0.001

    Reference: Widmann, Lindsten and Zachariah, Calibration tests beyond classification, ICLR 2021,
    Remark B.2; for "features" see `random_feature_skce`.
    """
    check_key(key)
    check_choice("method", method, _METHODS)
    formula = one_feature if method == "features" else h
    data = as_data(predictions, targets, intervals=True, **rows)
    terms = check_kernel_of(kernel, data, formula=formula)
    data.check_unrelated()
    n_resamples = check_integer("n_resamples", n_resamples, 1)
    n_features = check_integer("n_features", n_features, 1)
    if method in _HOLDING_MATRIX and data.n > _MAX_MATRIX_ROWS:
        raise ValueError(
            f"method must be 'bootstrap', 'wild', 'gamma' or 'features' above n = "
            f"{_MAX_MATRIX_ROWS}, got {method!r}, which holds an n x n matrix, with n = {data.n}."
        )
    data = padded(data)
    if not data.is_plain:
        if method != "bootstrap":
            raise ValueError(
                f"method must be 'bootstrap' with weights, clusters or times, got {method!r}, "
                "which is for independent rows that weigh the same."
            )
        result = _dependent_skce_test((key, terms), data, n_resamples)
        described = f"asymptotic_skce_test, {n_resamples} turns of {data.describe_units()}"
        result = dataclasses.replace(result, method=described)
        if why := why_not_tested(data):
            pvalue = jnp.full_like(result.pvalue, jnp.nan)
            result = dataclasses.replace(result, pvalue=pvalue, method=f"{described}; {why}")
    else:
        given = gathered(data) if method in _HOLDING_MATRIX else data
        result = _asymptotic_skce_test((key, terms), given, n_resamples, method, n_features)
    return note_on_rare_events(result, data, "calibration_test")


@optimised_on_devices
def _dependent_skce_test(
    axis: Axis, shared: tuple[jax.Array, SumOfTerms], data: Data, n_resamples: int
) -> CalibrationTestResult:
    h, _, sums = h_and_dependent_sums(axis, shared, data, n_resamples)
    n = h.count()
    draws = n * sums.null
    statistic = jnp.where(jnp.isnan(sums.estimate), jnp.nan, n * sums.biased)
    interval = dependent_interval(sums)
    return CalibrationTestResult(
        statistic=statistic,
        pvalue=counted_pvalue(statistic, draws),
        estimate=sums.estimate,
        standard_error=interval.standard_error,
        null_distribution=draws,
        interval=interval,
    )


@optimised_on_devices
def _asymptotic_skce_test(
    axis: Axis,
    shared: tuple[jax.Array, SumOfTerms],
    data: Rows,
    n_resamples: int,
    method: str,
    n_features: int,
) -> CalibrationTestResult:
    key, kernel = shared
    data, n_kept = clean_kept_first(data, axis)
    operator: DiscrepancyMatrix
    described = f"asymptotic_skce_test, {method}"
    if method == "features":
        feature_key, key = jax.random.split(key)
        operator = low_rank_h(feature_key, kernel, data, n_features, axis)
    else:
        operator = tiled_h(kernel, data, axis)
    found = _METHODS[method](key, operator, n_kept, n_resamples)
    described += "" if found.draws is None else f" of {n_resamples}"
    described += f", {n_features} features" if method == "features" else ""
    n, estimate = operator.count(), operator.unbiased(found.row_sums)
    biased = (n - 1) / n * estimate + operator.trace() / jnp.square(n)
    error, interval = operator.standard_error(found.row_sums), None
    if found.errors is not None:
        interval = NormInterval(biased, found.errors, None, estimate, error)
    return CalibrationTestResult(
        statistic=found.statistic,
        pvalue=found.pvalue,
        estimate=estimate,
        standard_error=error,
        null_distribution=found.draws,
        interval=interval,
        method=described,
    )
