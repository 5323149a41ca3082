"""The test that simulates data from a calibrated model."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Unpack

import jax
import jax.numpy as jnp
from jax import lax

from calibjax._base.check import check_choice, check_integer, check_key
from calibjax._base.compile import quick_jit
from calibjax._base.sharding import gathered
from calibjax._base.struct import bind, indexed
from calibjax._data.data import Data, RowOptions, Rows, as_data, clean, kept_first
from calibjax._data.distribution import Distribution, Labels, as_labels
from calibjax._data.interval_censored import Targets
from calibjax.estimators.residual_forms import Form, residual_form
from calibjax.hypothesis_tests._result import CalibrationTestResult
from calibjax.nulls.engine import ROWS_OF_SETS, under_model, under_multipliers
from calibjax.nulls.ranks import counted_pvalue_with_ties
from calibjax.nulls.sampler import NullSampler


def consistency_test(
    key: jax.Array,
    estimator: Callable[..., jax.Array],
    predictions: Distribution | Data,
    targets: Targets | None = None,
    *,
    null: str = "model",
    n_resamples: int = 999,
    **rows: Unpack[RowOptions],
) -> CalibrationTestResult:
    """Tests whether an estimate is too large for targets drawn from the predictions.

    The estimator is evaluated again for each of R = n_resamples data sets that a calibrated model
    could have given: p = (1 + #{T* >= T}) / (R + 1).  `null` chooses these data sets:

    - "model": the same predictions, and a target drawn from each of them.  If rows are independent
      given the predictions, the level is exact at every n, also for rare events: whatever the
      estimator is, P(p <= a) <= a, and P(p <= a) = a for a = 1/(R+1), 2/(R+1), … if the estimates
      have no ties.  Whatever depends on the predictions alone, such as bins and kernel matrices, is
      computed once for many data sets, if the estimator computes it before it uses the targets.
    - "consistency": n predictions drawn with replacement, and a target drawn from each of them, as
      in the literature.  It treats the predictions as a sample of all predictions, and is valid if
      resampled predictions resemble new ones.  They contain ties: if the estimator is sensitive to
      ties, the test rejects calibrated models too often, for example always for the ECE of more
      than two classes in 10 uniform bins.  Take it to compare with published numbers.

    **Dependent rows** cannot be redrawn one by one.  With `clusters` or `times` the
    observed residuals of labels are given random signs and sizes, one for each cluster, as in
    `calibration_test`: right for many clusters, or many horizons.  It is for estimators that are
    functions of residuals: `ece` and `mce` with a distance that is a norm or its square, and
    `smooth_ece`.  Call it with ``*top_label(predictions, targets)`` for the ECE of confidences.

    Estimates that agree up to rounding count as equal.  The time is at most R times the time of the
    estimator.  Some 2^14 rows are resampled at a time, so memory is bounded if the memory of the
    estimator is; 100 targets of each row are drawn at a time.

    Args:
        key: a key of `jax.random`.
        estimator: a function of (predictions, targets) that returns a scalar and can be traced; it
            is called with ``where=where`` and ``weights=weights`` too if these are given, and with
            weights in units of the largest one.  A function that is defined
            again is compiled again: define it once, and let a `jax.tree_util.Partial` carry
            parameters that change; its booleans, Python integers and strings are options:
            ``Partial(cj.skce, kernel, unbiased=False)``.
        predictions, targets: as in `Data`, or one `Data`.
        null: "model" or "consistency".
        n_resamples: R, the number of data sets; data set r depends only on (key, r).
        rows: `where`, `weights`, `clusters`, `times` and `horizon` of `Data`.  The estimator gets
            the same weights of every data set.  With null="model" the draws are those of the kept
            rows alone.

    Returns:
        CalibrationTestResult; its statistic and its estimate are the estimator's value, and its
        null_distribution holds the values for the resamples.  It has no confidence interval, which
        an estimator that may be anything cannot have; for the SKCE see `skce_confidence_interval`.

    Raises:
        TypeError, ValueError: an argument of the wrong type, shape or, where it is concrete, value.
            Inside jit a bad value makes all numbers NaN.
        ValueError: weights, clusters or times with null="consistency"; clusters or times with an
            estimator that is not a function of residuals.

    See also:
        `calibration_test` for kernels.

    Example:
        >>> import jax, jax.numpy as jnp, calibjax as cj
        >>> def brier(predictions, targets):
        ...     return jnp.mean((targets - predictions.probs) ** 2)
        >>> predictions = cj.Bernoulli(jnp.full(100, 0.9))
        >>> targets = jnp.arange(100) < 60
        >>> result = cj.consistency_test(jax.random.key(0), brier, predictions, targets)
        >>> float(result.pvalue)
        0.001

        Twenty questions on each of 20 texts, which are easy or hard:

        >>> text = jnp.repeat(jnp.arange(20), 20)
        >>> easy = jnp.arange(20) < 13
        >>> data = cj.Bernoulli(jnp.full(400, 0.8)), easy[text].astype(int)
        >>> options = [{}, {"clusters": text}]
        >>> tests = [cj.consistency_test(jax.random.key(0), cj.ece, *data, **x) for x in options]
        >>> [bool(test.pvalue < 0.05) for test in tests]
        [True, False]

    Reference: Bröcker and Smith, Increasing the reliability of reliability diagrams, Weather and
    Forecasting, 2007; Vaicenavicius et al., Evaluating model calibration in classification,
    AISTATS 2019.  With null="model" it is a Monte Carlo test: Dwass, Modified randomization tests
    for nonparametric hypotheses, Annals of Mathematical Statistics 28, 1957.
    """
    check_key(key)
    if not callable(estimator):
        raise TypeError(f"estimator must be a callable, got {type(estimator).__name__}.")
    data = as_data(predictions, targets, without=("outcome_weights",), **rows)
    check_choice("null", null, _NULLS)
    for name in ("weights", "clusters", "times"):
        if null == "consistency" and getattr(data, name) is not None:
            raise ValueError(
                f"{name} must be None for null='consistency', which is for independent rows that "
                "weigh the same."
            )
    n_resamples = check_integer("n_resamples", n_resamples, 1)
    sampler = NullSampler.of(data)
    if not sampler.redraws:
        form = _form_of(estimator, data)
        result = _multiplied_test(key, bind(form), gathered(data), n_resamples, sampler)
        method = f"consistency_test of {n_resamples} {sampler.describe(data)}"
        return dataclasses.replace(result, method=method)
    # Rows are not padded: the estimator may hold numbers of these rows, and may not accept a mask.
    return _consistency_test(key, bind(estimator), gathered(data), null, n_resamples)


@functools.partial(quick_jit, optimised=True, static_argnames=("null", "n_resamples"))
def _consistency_test(
    key: jax.Array, estimator: Callable[..., jax.Array], data: Rows, null: str, n_resamples: int
) -> CalibrationTestResult:
    is_weighted, data = data.weights is not None, clean(data)
    options = {} if data.where is None else {"where": data.where}
    if is_weighted:
        options["weights"] = data.weights

    def estimate(predictions: Distribution, targets: jax.Array) -> jax.Array:
        value = jnp.asarray(estimator(predictions, targets, **options))
        if value.shape:
            raise ValueError(f"estimator must return a scalar, got shape {list(value.shape)}.")
        return value.astype(data.weights.dtype)

    values_under, words = _NULLS[null]
    values = values_under(key, estimate, data, n_resamples)
    method = f"consistency_test of {n_resamples} {words}"
    return _ranked(values, data.weights, method, is_exact=null == "model")


def _form_of(estimator: Callable[..., jax.Array], data: Data) -> Form:
    """The estimator as a function of residuals of labels."""
    form = residual_form(estimator)
    if form is None or not isinstance(data.predictions, Labels):
        name = getattr(estimator, "__name__", type(estimator).__name__)
        raise ValueError(
            "estimator must be ece, mce or smooth_ece of labels, or a jax.tree_util.Partial of one "
            "with options by name, for clusters, times and weights that follow the labels, got "
            f"{name}.  calibration_test takes all predictions."
        )
    return form


@functools.partial(quick_jit, static_argnames=("n_resamples", "sampler"))
def _multiplied_test(
    key: jax.Array, form: Form, data: Rows, n_resamples: int, sampler: NullSampler
) -> CalibrationTestResult:
    data = clean(data)
    predictions, weights = as_labels(data.predictions), data.weights
    probs = predictions.label_probabilities()

    def residuals(labels: jax.Array) -> jax.Array:
        return jax.nn.one_hot(labels, probs.shape[1], dtype=probs.dtype) - probs

    values = under_multipliers(
        lambda residuals: form(predictions, residuals, weights),
        residuals,
        probs * (1 - probs),
        key,
        data,
        n_resamples,
        sampler,
    )
    return _ranked(values, weights, method="")


#: ``estimate(predictions, targets)``, a scalar.
_Estimate = Callable[[Distribution, jax.Array], jax.Array]


def _under_model(key: jax.Array, estimate: _Estimate, data: Rows, n_resamples: int) -> jax.Array:
    """The estimates for targets drawn from the predictions, and last of the data, ``[R + 1]``."""
    estimate_of_targets = functools.partial(estimate, data.predictions)
    return under_model(estimate_of_targets, key, data, n_resamples, ROWS_OF_SETS // data.n)


def _under_consistency(
    key: jax.Array, estimate: _Estimate, data: Rows, n_resamples: int
) -> jax.Array:
    """The estimates for resampled predictions and their targets, and last of the data."""
    n, (kept, n_kept) = data.n, kept_first(data.predictions, data.where)

    def resample(number: jax.Array) -> jax.Array:
        row_key, target_key = jax.random.split(jax.random.fold_in(key, number))
        predictions = indexed(kept, jax.random.randint(row_key, (n,), 0, n_kept, jnp.int32))
        return estimate(predictions, predictions.sample(target_key))

    draws = lax.map(resample, jnp.arange(n_resamples), batch_size=max(1, ROWS_OF_SETS // n))
    return jnp.append(draws, estimate(*data.samples))


_NULLS = {
    "model": (_under_model, "simulated data sets"),
    "consistency": (_under_consistency, "resamples of predictions and targets"),
}


def _ranked(
    values: jax.Array, weights: jax.Array, method: str, is_exact: bool = False
) -> CalibrationTestResult:
    """The result for the last of R + 1 values of a statistic, compared with the others."""
    # All weights are NaN if a row is invalid, and then the comparison is false.
    values = values.at[-1].set(jnp.where(jnp.sum(weights > 0) >= 2, values[-1], jnp.nan))
    return CalibrationTestResult(
        statistic=values[-1],
        pvalue=counted_pvalue_with_ties(values),
        estimate=values[-1],
        null_distribution=values[:-1],
        method=method,
        is_exact=is_exact,
    )
