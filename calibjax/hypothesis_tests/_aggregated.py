"""The exact test with several kernels."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calibjax._check import check_integer, check_key
from calibjax._distribution import Distribution
from calibjax._interval_censored import Between, Targets, known_point
from calibjax._rows import (
    Data,
    as_data,
    clean,
    in_dtype,
    padded,
)
from calibjax._sharding import Axis, all_sum, on_devices
from calibjax._struct import as_pytree, widest_dtype
from calibjax.discrepancy import PITResidual, SumOfTerms, check_kernel_of, normal_form
from calibjax.expectations import default_kernels, judging_kernels
from calibjax.features import residual_feature, residual_sums
from calibjax.hypothesis_tests._aggregation import aggregate
from calibjax.hypothesis_tests._covariate_kernels import column_kernels, named_kernels
from calibjax.hypothesis_tests._judged_data import at_places, pooled
from calibjax.hypothesis_tests._kernel_terms import terms_of, with_columns
from calibjax.hypothesis_tests._law_under_h0 import REDRAWN, Law, describe_law, law_under_h0
from calibjax.hypothesis_tests._redrawn_skce import redrawn_skce
from calibjax.hypothesis_tests._result import CalibrationTestResult, Members
from calibjax.intervals import NormInterval
from calibjax.kernels import KernelLike, describe

# The usual number of landmarks, and that of the default kernels of numbers, which are smooth.
_LANDMARKS, _FEW_LANDMARKS = 512, 128
# Folded into the key, so that places of targets and draws have different keys.
_PLACES = 2**31 - 1


def aggregated_skce_test(
    key: jax.Array,
    kernels: Sequence[KernelLike] | None,
    predictions: Distribution,
    targets: Targets,
    *,
    n_resamples: int = 999,
    n_features: int | None = None,
    where: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    clusters: ArrayLike | None = None,
    times: ArrayLike | None = None,
    horizon: float | None = None,
) -> CalibrationTestResult:
    """Is the SKCE of any of several kernels too large for a calibrated model?

    The targets are redrawn from the predictions n_resamples times.  For each kernel k, z_k^b brings
    the biased SKCE of draw b to a scale on which it is nearly standard normal under H0, and z_k^0
    is the number of the observed targets.  With M^b = max_k z_k^b,

    .. math::
        p = \\frac{1 + \\#\\{b \\ge 1: M^b \\ge M^0\\}}{n_{resamples} + 1}.

    The level is a theorem: if the model is calibrated, and rows are independent given the
    predictions, then P(p <= a | predictions) <= a for every a, every number of rows, kernels and
    draws, and however rare events are.  Observed and redrawn targets are then exchangeable, and the
    transformation to z is symmetric in all of them.  Kernels must not depend on targets.

    Predictions that are samples (`Empirical` without weights) are tested by exchange: in each draw,
    one of the S + 1 values of a row, its S samples and its target, chosen at random, plays the
    target, and the kernels see the set of all of them.  If the samples are independent draws from
    the law of the target, the level is exact for every S >= 1: a model is not rejected because its
    samples are few.  Weighted samples, and mixtures of samples, are taken for the law itself.

    Of `Quantiles` the default kernels judge the place U = F(y) of a target between two levels,
    drawn evenly.  Targets that are equal to a quantile, as those of a law with an atom may be, are
    judged in favour of the predictions, which say only in which range the cdf jumps there: first,
    places in the jump are chosen that make the SKCE of the default kernels small, nearly the
    smallest.  With such targets the level is not a theorem: it was kept in all cases that were
    tried but for a coin with quantiles at 0.001 and 0.999, where 7 % were rejected at 0.05.

    **Rows that depend on each other**, in clusters or over times, are compared with no draws but
    with data sets whose residuals are the observed ones, multiplied with random numbers that
    depend on each other as the rows may (`resampling/_multipliers.py`).  The level is right for
    many clusters or times, in most cases from ten clusters on.  So are rows that are censored by
    an unknown law, each with a multiplier of its own; if `Between` says when each row would have
    been censored, draws are hidden in the same way, and the level is exact.

    The bias of the SKCE is that of the draws too.  Its diagonal, the mean of h_ii, shows a wrong
    spread, and single targets that the predictions rule out.

    Above n = n_features, prediction kernels are interpolated from n_features landmarks, rows that
    are evenly spaced.  This gives kernels that depend on predictions only: the level remains exact,
    wide kernels hardly change, and kernels that are narrower than the distances of the landmarks
    become wider.  A kernel of real targets or counts is replaced by waves with some of its
    frequencies.  O(n n_features) time for each number of a feature and each draw;
    O(n + n_features (n_features + 100 M)) memory for features of M numbers, as many as classes.

    Args:
        key: a key of `jax.random`.
        kernels: TensorProducts, FeatureKernels, SteinKernels, or sums and multiples of them; None
            stands for `default_kernels` of the predictions, of samples with the target among them.
            For samples pass kernels with fixed parameters: lengthscales chosen from the samples
            alone know which value is the target.
        predictions: a batch of n >= 2 predictions of one family.
        targets: array ``[n]`` or ``[n, d]``; class labels are ``0 … m-1``.  With PITKernels also
            `Between`, where they are censored or binned.
        n_resamples: the number of draws; draw r of a row depends only on the key, r and
            the number of the row among the kept rows.
        n_features: the number of landmarks; None takes 512, and 128 for the default kernels of
            numbers, which are smooth.
        where: boolean mask ``[n]``; masked rows may hold anything.
        weights: how much each row counts, nonnegative numbers ``[n]`` that are known before the
            targets; None for equal weights.  A row of weight 2 is not two rows: the test knows that
            it varies as one row does.
        clusters: integers ``[n]``: rows of one cluster may depend on each other in any way.
        times: numbers ``[n]``: rows of one time may depend on each other in any way.
        horizon: a number in units of the times: rows less than it apart may depend on each other,
            as forecasts for h steps ahead do that are issued at every step; None for rows of one
            time only.

    Returns:
        CalibrationTestResult.  Its statistic is M^0, and null_distribution holds M^1, M^2, ….  Its
        estimate is the unbiased SKCE of the kernel that attains the maximum (of the changed kernel
        above n_features rows, and of samples with the target among them), and `members` says which
        kernel that is, and has the estimates, scores z, p-values and intervals of all kernels.  The
        confidence_interval is for the SKCE of the kernel with the maximum; as the intervals of all
        kernels hold simultaneously, it may be chosen after the fact.  It excludes 0 if and only if
        p <= 1 - confidence_level, unless data vary more than the model's draws: then it may contain
        0 in spite of a smaller p-value.  Inside jit a bad value, or fewer than two kept rows, makes
        all numbers NaN.

    Raises:
        TypeError, ValueError: an argument of the wrong type, shape or, where it is concrete, value;
            a target kernel has no known frequencies, and the targets are no labels.

    See also:
        `calibration_test` with the usual kernels.

    Example:
        >>> import jax, jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Bernoulli(jnp.linspace(0.05, 0.95, 100))
        >>> targets = predictions.sample(jax.random.key(0))
        >>> result = cj.aggregated_skce_test(jax.random.key(1), None, predictions, targets)
        >>> bool(result.pvalue > 0.05), result.members.pvalues.shape
        (True, (6,))

    Reference: Schrab et al., MMD aggregated two-sample test, JMLR 2023, and Biggs, Schrab and
    Gretton, MMD-FUSE, NeurIPS 2023, for the aggregation of kernels; Bröcker and Smith, Increasing
    the reliability of reliability diagrams, Weather and Forecasting, 2007, for redrawn targets.
    """
    check_key(key)
    n_resamples = check_integer("n_resamples", n_resamples, 1)
    if n_features is not None:
        n_features = check_integer("n_features", n_features, 1)
    data = as_data(
        predictions,
        targets,
        intervals=True,
        where=where,
        weights=weights,
        clusters=clusters,
        times=times,
        horizon=horizon,
    )
    if kernels is not None:
        if not isinstance(kernels, Sequence):
            raise TypeError(f"kernels must be a list of kernels, got {describe(kernels)}.")
        if not kernels:
            raise ValueError("kernels must hold at least one kernel, got none.")
        judged = pooled(data)
        for kernel in kernels:
            check_kernel_of(kernel, judged, formula=one_residual)
        kernels = as_pytree(list(kernels))
    return aggregated_skce_test_of_data(
        key, kernels, padded(data), n_resamples=n_resamples, n_features=n_features
    )


def aggregated_skce_test_of_data(
    key: jax.Array,
    kernels: Sequence[Any] | None,
    data: Data,
    *,
    n_resamples: int,
    n_features: int | None = None,
) -> CalibrationTestResult:
    """`aggregated_skce_test` of checked kernels and data."""
    data = pooled(data)
    if n_features is None:
        is_smooth = kernels is None and data.predictions.is_ordered
        n_features = _FEW_LANDMARKS if is_smooth else _LANDMARKS
    judging: dict[str, int] = {}
    if kernels is None:
        data = at_places(key, _PLACES, data)
        kernels = default_kernels(data)
        judging = {} if data.covariates is None else judging_kernels(data)
    forms = list(map(normal_form, kernels))
    of_columns = {name: forms[place] for name, place in judging.items()}
    if isinstance(data.targets, Between):
        # The default kernels of ordered classes compare labels too, which are not known here.
        kernels = [k for k, form in zip(kernels, forms, strict=True) if _judges_places(form)]
        forms = list(filter(_judges_places, forms))
        of_columns = {name: form for name, form in of_columns.items() if _judges_places(form)}
    terms = terms_of(forms)
    if of_columns:
        assert data.covariates is not None
        terms = with_columns(terms, column_kernels(data), list(of_columns.values()))
        kernels = [*kernels, *named_kernels(data.covariates.names, list(of_columns))]
        # Other names are no other program.
        unnamed = dataclasses.replace(data.covariates, names=())
        data = data.replace(covariates=unnamed)
    law = law_under_h0(data)
    result = _aggregated_skce_test((key, terms), data, n_resamples, n_features, law)
    assert result.members is not None
    members = dataclasses.replace(result.members, kernels=list(kernels))
    described = f"{len(kernels)} kernels, {n_resamples} {describe_law(data, law)}"
    method = f"aggregated_skce_test, {described}"
    return dataclasses.replace(result, members=members, method=method)


def _judges_places(form: SumOfTerms) -> bool:
    return all(isinstance(term.residual, PITResidual) for term in form.terms)


@on_devices
def _aggregated_skce_test(
    axis: Axis, shared: Any, data: Data, n_resamples: int, n_features: int, law: Law
) -> CalibrationTestResult:
    key, terms = shared
    data = clean(data, axis)
    sums = [data.weights, jnp.square(data.weights), jnp.ones_like(data.weights)]
    counted = data.weights != 0
    n, of_squares, n_rows = all_sum(jnp.stack([jnp.sum(x, where=counted) for x in sums]), axis)
    values, diagonals = redrawn_skce(key, terms, data, n_resamples, n_features, axis, law)
    # All weights are NaN if a row is invalid, and so are all numbers.
    values = jnp.where(n_rows >= 2, values, jnp.nan)
    found, observed = aggregate(values, terms.families), values[:, 0]
    # The diagonals of the model's draws have the mean of their sums, in which pairs cancel.
    expected = jnp.mean(values[:, 1:], axis=1)
    unit = 1 / jnp.square(n)
    biased = unit * observed
    if law == REDRAWN:
        estimates = (observed - diagonals) / (jnp.square(n) - of_squares)
        excess = jnp.maximum(diagonals / jnp.where(expected == 0, 1.0, expected), 1.0)
    else:
        # Under H0 the pairs of rows that depend on each other have a mean that is not 0.  The data
        # sets vary as the observed data do.
        estimates, excess = unit * (observed - expected), jnp.ones_like(observed)
    errors = found.errors.scaled(unit, excess)
    # The kernels are put in their place outside of jit, as they are.
    members = Members(
        kernels=[],
        estimates=estimates,
        scores=found.scores,
        pvalues=found.pvalues,
        adjusted_pvalues=found.adjusted_pvalues,
        interval=NormInterval(biased, errors),
    )
    best = members.best
    return CalibrationTestResult(
        statistic=found.statistic,
        pvalue=found.pvalue,
        estimate=estimates[best],
        null_distribution=found.draws,
        members=members,
        interval=NormInterval(biased[best], errors.of(best)),
    )


def one_residual(kernel: SumOfTerms, a: Any, b: Any) -> jax.Array:
    """What the test evaluates of a kernel, for `check_formula`: the squares of one residual."""
    dtype = widest_dtype(*jax.tree.leaves(a[0]))
    (source, *_) = in_dtype(terms_of([kernel]).sources, dtype)
    feature = residual_feature(jax.random.key(0), source, *a)
    p, y = jax.tree.map(lambda x: x[None], a)
    if isinstance(y, Between):
        y = known_point(p, y)
    (sums,) = residual_sums(feature, [jnp.ones((1, 1))], p, y[:, None], y[:, None])
    return sums.squares[0]
