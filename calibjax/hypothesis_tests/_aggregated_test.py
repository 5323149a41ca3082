"""The exact tests: with default choices, and with several kernels."""

import dataclasses
from collections.abc import Sequence
from typing import Any, Unpack

import jax
import jax.numpy as jnp

from calibjax._base.check import check_integer, check_key
from calibjax._base.sharding import Axis, all_sum, on_devices
from calibjax._base.struct import as_pytree, indexed, rows_of, widest_dtype
from calibjax._data.data import Data, RowOptions, Rows, as_data, clean, in_dtype
from calibjax._data.distribution import Distribution
from calibjax._data.interval_censored import IntervalCensored, Targets, known_point
from calibjax._data.padding import padded
from calibjax._data.row_columns import CovariatesLike
from calibjax._numbers.arithmetic import fast_where
from calibjax.discrepancy import SumOfTerms, check_kernel_of, normal_form
from calibjax.expectations.defaults import default_kernels_of, target_feature_kernels
from calibjax.hypothesis_tests._kernel_terms import terms_of, with_columns
from calibjax.hypothesis_tests._redrawn_skce import redrawn_skce
from calibjax.hypothesis_tests._result import (
    CalibrationTestResult,
    KernelResults,
    NamedKernel,
    named_kernels,
)
from calibjax.intervals.skce_interval import NormInterval
from calibjax.kernels.base import KernelLike, describe
from calibjax.nulls.ranks import aggregate
from calibjax.nulls.sampler import NullSampler, pits_as_targets, pooled
from calibjax.residuals.readable import has_statistics, statistics_of

# The usual number of cells.
_CELLS = 512
# What is taken from the scores of kernels beside those of sums over all rows, times the number of
# units: few of them show little but errors that all rows share.
_HANDICAP = 6.0


def calibration_test(
    key: jax.Array,
    predictions: Distribution | Data,
    targets: Targets | None = None,
    *,
    n_resamples: int = 999,
    covariates: CovariatesLike | None = None,
    **rows: Unpack[RowOptions],
) -> CalibrationTestResult:
    """Tests whether a model is calibrated; a small p-value says that it is not.

    It is `aggregated_skce_test` with `default_kernels`: the statistic of the data is compared with
    that of targets drawn from the predictions, with kernels for errors of several kinds and scales.
    Its level is exact for every family, every number of rows, and rare events: if the model is
    calibrated, and rows are independent given the predictions, the p-value is at most a with
    probability at most a.  For dependent rows, pass `clusters` or `times`: without them, calibrated
    forecasts for four steps ahead, issued at every step, are rejected in more than a third of
    cases.

    **Covariates** are other columns known before the target: age, region, lead time.  With them the
    hypothesis is that the predictions are correct given these columns,

    .. math::
        H_0: Y \\mid P, X \\sim P,

    which is false for a climatology, or for the prior given as posterior, although both are
    calibrated without X.  The level is exact in the same sense, given predictions and covariates.
    Kernels have four families: on predictions alone; on each column; on each pair of columns, for
    errors that only two columns together show; and on predictions and a column.  Kernels of columns
    are centred.  They detect errors in location and spread of numbers and vectors, and for labels
    (up to 32 classes) in frequencies, the most likely class and the log probability.  The largest
    score of each family is transformed as those of kernels are (`aggregated_skce_test`), and the
    statistic is the largest of the four, so that 1225 pairs do not dilute the other families.
    Numbers enter by their ranks: no monotone change of a column matters, and neither do names of
    categories.

    O(n n_resamples) time, and memory that does not depend on n_resamples; with d columns
    O(n d^2 n_resamples).  Rows on several devices stay where they are.

    Args:
        key: a key of `jax.random`, such as ``jax.random.key(0)``.
        predictions, targets: as in `Data`, or one `Data`; of single numbers also
            `IntervalCensored`.
        n_resamples: the number of draws; p is a multiple of 1 / (n_resamples + 1).
        covariates: as in `Data`.  Dates, times of a zone, periods and decimals keep their order.
            Strings are categories, the 64 most frequent ones of each column; inside jit all columns
            are numbers.  A column with one value has no effect.
        rows: `where`, `weights`, `clusters`, `times` and `horizon` of `Data`.

    Returns:
        CalibrationTestResult, with the results of each kernel in `kernels`, and of each covariate
        in `columns`.

    Raises:
        TypeError, ValueError: as in `aggregated_skce_test`; a covariate that is missing in a row.

    See also:
        `aggregated_skce_test` with your own kernels, `evaluate` for measures and plots,
        `CalibrationMonitor` for streams.

    Example:
        >>> import jax, jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Normal(jnp.zeros(500), jnp.full(500, 0.5))
        >>> targets = jax.random.normal(jax.random.key(0), (500,))
        >>> float(cj.calibration_test(jax.random.key(1), predictions, targets).pvalue)
        0.001

        Targets depend on a column that the predictions ignore:

        >>> x = jax.random.normal(jax.random.key(2), (500,))
        >>> predictions, targets = cj.Normal(jnp.zeros(500), jnp.ones(500)), 0.6 * x + 0.8 * targets
        >>> result = cj.calibration_test(
        ...     jax.random.key(1), predictions, targets, covariates={"x": x, "noise": x[::-1]}
        ... )
        >>> result.columns[0].name, result.columns[0].kernel
        ('x', 'column x, location')

    Reference: Gretton, Bousquet, Smola and Schölkopf, Measuring statistical dependence with
    Hilbert-Schmidt norms, ALT 2005, for centred kernels; Biggs, Schrab and Gretton, MMD-FUSE,
    NeurIPS 2023, for the aggregation of many.
    """
    if isinstance(key, Distribution):
        raise TypeError(
            "key must come first, calibration_test(jax.random.key(0), predictions, targets), got "
            f"{type(key).__name__} predictions in its place."
        )
    data = as_data(predictions, targets, intervals=True, covariates=covariates, **rows)
    return _test_of_kernels(key, None, data, n_resamples)


def aggregated_skce_test(
    key: jax.Array,
    kernels: Sequence[KernelLike] | None,
    predictions: Distribution | Data,
    targets: Targets | None = None,
    *,
    n_resamples: int = 999,
    n_cells: int | None = None,
    **rows: Unpack[RowOptions],
) -> CalibrationTestResult:
    """Tests whether the SKCE of any of several kernels is too large for a calibrated model.

    The targets are redrawn from the predictions n_resamples times.  For each kernel k, z_k^b is the
    biased SKCE of draw b on a scale on which it is nearly standard normal under H0, and z_k^0 is
    that of the observed targets.  With M^b = max_k z_k^b,

    .. math::
        p = \\frac{1 + \\#\\{b \\ge 1: M^b \\ge M^0\\}}{n_{resamples} + 1}.

    The level is a theorem: if the model is calibrated, and rows are independent given the
    predictions, then P(p <= a | predictions) <= a for every a, every number of rows, kernels and
    draws, and any event rate.  Observed and redrawn targets are then exchangeable, and the
    transformation to z is symmetric in all of them.  Kernels must not depend on targets.

    Predictions that are samples (`Empirical` without weights) are tested by exchange.  In each draw
    one of the S + 1 values of a row, its S samples and its target, is chosen at random as the
    target, and the kernels use the set of all values.  If the samples are independent draws from
    the distribution of the target, the level is exact for every S >= 1: a model is not rejected
    because it has few samples.  Weighted samples, and mixtures of samples, are treated as the
    distribution itself.

    For `Quantiles` the default kernels assess the PIT U = F(y), drawn evenly between the two levels
    around a target.  A target that is equal to a quantile, as targets of a distribution with atoms
    may be, is resolved in favour of the predictions, which say only in which range the cdf jumps
    there: its PIT in the jump is chosen such that the SKCE of the default kernels is nearly as
    small as possible.  With such targets the level is not a theorem.  It held in simulations with
    one exception: for a coin with quantiles at 0.001 and 0.999, 7 % were rejected at 0.05.

    **Dependent rows** are tested by turns of the observed residuals (`nulls/sampler.py`): random
    signs of the sums over clusters, or rotations of the sums over times, which are exact for normal
    sums.  Turns have their own key, so that p does not depend on `key`.  With fewer than six
    clusters, or times that cover fewer than four horizons, all p-values are NaN, and `method` says
    why.  With the default kernels a second family of statistics is tested in the same turns, the
    sums over all rows of what `segment_test` compares: with few units an error shared by all rows
    is easiest to detect, and 6 over their number is subtracted from the scores of kernels.  Rows
    with an unknown censoring distribution have a sign each; if `IntervalCensored` has the censoring
    time of each row, draws are censored in the same way, and the level is exact.

    The bias of the SKCE is that of the draws too.  Its diagonal, the mean of h_ii, shows a wrong
    spread, and single targets that the predictions rule out.

    Above n = n_cells rows predictions are grouped into n_cells cells, with one prediction for each
    cell in prediction kernels.  Rows of events, or of two classes, are sorted by their probability
    and cut into cells; of other families, and with covariates, each row is in the cell of the
    nearest of n_cells evenly spaced rows.  Cells depend on predictions only, so that the level
    remains exact; wide kernels hardly change, and narrow ones become wider.  The PIT of continuous
    predictions is then rounded to narrow cells of the unit interval, 16 for each power of two of
    either tail, for observed and drawn targets.  A kernel of real targets or counts is replaced by
    waves with some of its frequencies.  A draw takes O(n M) time for features of M numbers, O(n)
    for labels, and all O(n + n_cells (n_cells + 100 M)) memory.

    Args:
        key: a key of `jax.random`.
        kernels: TensorProducts, FeatureKernels, SteinKernels, or sums and multiples of them; None
            stands for `default_kernels` of the predictions, of samples with the target among them.
            For samples pass kernels with fixed parameters: lengthscales chosen from the samples
            alone reveal which value is the target.
        predictions, targets: as in `Data`, or one `Data`.  With PITKernels also `IntervalCensored`.
        n_resamples: the number of draws; draw r of a row depends only on the key, r and
            the number of the row among the kept rows.
        n_cells: the number of cells; None takes 512.
        rows: `where`, `weights`, `clusters`, `times` and `horizon` of `Data`.

    Returns:
        CalibrationTestResult.  Its statistic is M^0, and null_distribution holds M^1, M^2, ….  Its
        estimate is the unbiased SKCE of the kernel with the largest score (above n_cells rows of
        that of cells, and for samples with the target among them); `kernels` has the
        estimates, scores z, p-values and intervals of all kernels.  The confidence_interval is for
        the SKCE of that kernel, and may be chosen after the fact, since the intervals of all
        kernels hold simultaneously.  It excludes 0 if and only if p <= 1 - confidence_level, unless
        data vary more than the model's draws: then it may contain 0 despite a smaller p-value.
        Inside jit a bad value, or fewer than two kept rows, makes all numbers NaN.

    Raises:
        TypeError, ValueError: an argument of the wrong type, shape or, where it is concrete, value;
            a target kernel has no known frequencies, and the targets are not labels.

    See also:
        `calibration_test` with the usual kernels.

    Example:
        >>> import jax, jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Bernoulli(jnp.linspace(0.05, 0.95, 100))
        >>> targets = predictions.sample(jax.random.key(0))
        >>> result = cj.aggregated_skce_test(jax.random.key(1), None, predictions, targets)
        >>> bool(result.pvalue > 0.05), result.kernels.pvalues.shape
        (True, (6,))

    Reference: Schrab et al., MMD aggregated two-sample test, JMLR 2023, and Biggs, Schrab and
    Gretton, MMD-FUSE, NeurIPS 2023, for the aggregation of kernels; Bröcker and Smith, Increasing
    the reliability of reliability diagrams, Weather and Forecasting, 2007, for redrawn targets.
    """
    data = as_data(predictions, targets, intervals=True, **rows)
    if kernels is not None and not isinstance(kernels, Sequence):
        raise TypeError(f"kernels must be a list of kernels, got {describe(kernels)}.")
    return _test_of_kernels(key, kernels, data, n_resamples, n_cells)


def _test_of_kernels(
    key: jax.Array,
    kernels: Sequence[KernelLike] | None,
    data: Data,
    n_resamples: int,
    n_cells: int | None = None,
) -> CalibrationTestResult:
    """`aggregated_skce_test` of checked data."""
    check_key(key)
    n_resamples = check_integer("n_resamples", n_resamples, 1)
    if n_cells is not None:
        n_cells = check_integer("n_cells", n_cells, 1)
    tested: list[Any]
    features: dict[str, int] = {}
    if kernels is None:
        data = pits_as_targets(key, pooled(padded(data)))
        tested = [*default_kernels_of(data)]
        features = {} if data.covariates is None else target_feature_kernels(data)
    else:
        if not kernels:
            raise ValueError("kernels must hold at least one kernel, got none.")
        data = pooled(data)
        tested = as_pytree(list(kernels))
        for kernel in tested:
            check_kernel_of(kernel, data, formula=one_residual)
        data = padded(data)
    forms = list(map(normal_form, tested))
    of_columns = {name: forms[index] for name, index in features.items()}
    sampler, statistics = NullSampler.of(data), None
    if data.is_censored:
        # The default kernels of ordered classes compare labels too, which are not known here.
        tested = [k for k, form in zip(tested, forms, strict=True) if form.is_of_pit]
        forms = [form for form in forms if form.is_of_pit]
        of_columns = {name: form for name, form in of_columns.items() if form.is_of_pit}
    terms = terms_of(forms)
    if kernels is None and not sampler.redraws and has_statistics(data.predictions):
        statistics = statistics_of(data.predictions, not data.is_censored, True)
        both = zip(statistics.names, statistics.turned, strict=True)
        tested += [NamedKernel(f"all rows, {name}") for name, column in both if column >= 0]
    if of_columns:
        assert data.covariates is not None
        terms = with_columns(terms, data, list(of_columns.values()))
        tested += named_kernels(data.covariates.names, list(of_columns))
        # The compilation cache keys on shapes, and must not on names.
        data = data.replace(covariates=dataclasses.replace(data.covariates, names=()))
    shared = key, terms, statistics
    result = _aggregated_skce_test(shared, data, n_resamples, n_cells or _CELLS, sampler)
    assert result.kernels is not None
    described = f"{len(tested)} kernels, {n_resamples} {sampler.describe(data)}"
    return dataclasses.replace(
        result,
        kernels=dataclasses.replace(result.kernels, kernels=tested),
        method=f"aggregated_skce_test, {described}",
        is_exact=sampler.redraws,
    )


@on_devices
def _aggregated_skce_test(
    axis: Axis, shared: Any, data: Rows, n_resamples: int, n_cells: int, sampler: NullSampler
) -> CalibrationTestResult:
    key, terms, statistics = shared
    data = clean(data, axis)
    sums = map(jnp.sum, (data.weights, jnp.square(data.weights), data.weights != 0))
    n, of_squares, n_rows = all_sum(tuple(sums), axis)
    redrawn = redrawn_skce(key, terms, data, n_resamples, n_cells, axis, sampler, statistics)
    values, diagonals, squares, n_units = redrawn
    families, first = terms.families, terms.families.count(0)
    handicap: jax.Array | None = None
    if squares is not None and n_units is not None:
        handicap = _HANDICAP / n_units
        # They stand between the kernels and those of covariates.
        first = first or terms.n_kernels
        values = jnp.insert(values, first, squares, axis=0)
        diagonals = jnp.insert(diagonals, first, jnp.zeros_like(squares[:, 0]))
        of_rows = (max(families, default=0) + 1,) * len(squares)
        families = (0,) * first + of_rows + families[first:]
        first += len(squares)
    # All weights are NaN if a row is invalid, and so are all numbers.
    values = fast_where(n_rows >= 2, values, jnp.nan)
    observed, unit = values[:, 0], 1 / jnp.square(n)
    # The diagonals of the model's draws have the mean of their sums, in which pairs cancel.
    expected = jnp.mean(values[:, 1:], axis=1)
    biased = unit * observed
    if sampler.redraws:
        estimates = (observed - diagonals) / (jnp.square(n) - of_squares)
        excess = jnp.maximum(diagonals / fast_where(expected == 0, 1.0, expected), 1.0)
    else:
        # Under H0 the pairs of dependent rows have a mean that is not 0.  The data
        # sets vary as the observed data do.
        estimates, excess = unit * (observed - expected), jnp.ones_like(observed)
    found = aggregate(values, families, handicap)
    of_columns = None
    if terms.families:
        # An error of all rows makes residuals vary more, and so all numbers of columns larger.
        own = values.at[:, 0].divide(excess)[first:]
        ranked = aggregate(own, tuple(kind - 1 for kind in families[first:]))
        of_columns = ranked.scores, ranked.adjusted_pvalues
    errors = found.errors.scaled(unit, excess)
    # The kernels are added outside of jit, as they are.
    of_kernels = KernelResults(
        kernels=[],
        estimates=estimates,
        scores=found.scores,
        pvalues=found.pvalues,
        adjusted_pvalues=found.adjusted_pvalues,
        interval=NormInterval(biased, errors),
        draws=found.scores_of_draws,
        of_columns=of_columns,
    )
    best = of_kernels.best
    return CalibrationTestResult(
        statistic=fast_where(jnp.isnan(found.pvalue), jnp.nan, found.statistic),
        pvalue=found.pvalue,
        estimate=rows_of(estimates, best),
        null_distribution=found.draws,
        kernels=of_kernels,
        interval=NormInterval(rows_of(biased, best), errors.of(best)),
        pvalue_without_covariates=found.pvalue_of_first if terms.families else None,
        scores_without_covariates=found.scores_of_first if terms.families else None,
    )


def one_residual(kernel: SumOfTerms, a: Any, b: Any) -> jax.Array:
    """What the test evaluates of a kernel, for `check_formula`: the squares of one residual."""
    dtype = widest_dtype(*jax.tree.leaves(a[0]))
    (residual, *_) = in_dtype(terms_of([kernel]).residuals, dtype)
    finite = residual.finite(jax.random.key(0), *a)
    p, y = indexed(a, None)
    if isinstance(y, IntervalCensored):
        y = known_point(p, y)
    return jnp.sum(jnp.square(finite.values(p, y[:, None], y[:, None])))
