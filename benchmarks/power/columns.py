"""The tests, as functions that say for one data set which columns of the tables reject."""

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

import calibjax as cj
from benchmarks.power import one_set_of_draws, t_cal
from benchmarks.power.settings import Setting
from calibjax._data.capabilities import exchangeable_pool, is_exchangeable
from calibjax._data.data import Rows
from calibjax.expectations.defaults import _kernels_of_pit, default_prediction_kernels

LEVEL = 0.05

#: Smoothness of the bumps, which only T-Cal with a known number of bins may know.
_SMOOTHNESS = 0.6
_ECE_BINS = 15

#: ``test(key, predictions, targets, n_draws)`` returns a p-value, or p-values by column.
Test = Callable[[jax.Array, Any, jax.Array, int], Any]


def previous_default(key, predictions, targets, n_draws):
    kernel = cj.default_kernel(predictions)
    return cj.asymptotic_skce_test(key, kernel, predictions, targets, n_resamples=n_draws).pvalue


def aggregated(key, predictions, targets, n_draws):
    return cj.aggregated_skce_test(key, None, predictions, targets, n_resamples=n_draws).pvalue


def ranks(key, predictions, targets, n_draws):
    """The aggregated test with ranks among the members alone."""
    kernels = _kernels_of_pit(*_of_pool(predictions, targets), False)
    return cj.aggregated_skce_test(key, kernels, predictions, targets, n_resamples=n_draws).pvalue


def pool_scores(key, predictions, targets, n_draws):
    """The aggregated test with the target in units of the members and itself alone."""
    of_predictions, on_pairs = _of_pool(predictions, targets)
    kernels = [
        on_pairs(kernel, weights, "standard scores")
        for kernel in of_predictions
        for weights in (jnp.array([1.0]), jnp.array([0.0, 1.0]))
    ]
    return cj.aggregated_skce_test(key, kernels, predictions, targets, n_resamples=n_draws).pvalue


def _of_pool(predictions: Any, targets: jax.Array) -> tuple[list[Any], type[cj.PITKernel]]:
    """The kernels on predictions of the aggregated test, and the kernels that it makes of them."""
    pool, _ = exchangeable_pool(predictions, targets)
    is_vector = pool.target_shape == "n d"
    return (
        default_prediction_kernels(Rows(pool)),
        cj.VectorPITKernel if is_vector else cj.PITKernel,
    )


def distribution_free(key, predictions, targets, n_draws):
    kernel = cj.default_kernel(predictions)
    return cj.distribution_free_skce_test(kernel, predictions, targets, unbiased=False).pvalue


def block(key, predictions, targets, n_draws):
    """Blocks of sqrt(n) rows, or fewer to have 30 of them."""
    n = targets.shape[0]
    size = max(2, min(math.isqrt(n), n // 30))
    kernel = cj.default_kernel(predictions)
    return cj.asymptotic_block_skce_test(kernel, predictions, targets, block_size=size).pvalue


def cme(key, predictions, targets, n_draws):
    """One random location for each 100 rows, at most 10."""
    n_locations = max(1, min(10, targets.shape[0] // 100))
    locations = cj.sample_test_locations(key, predictions, n_locations)
    kernel = cj.default_kernel(predictions)
    return cj.asymptotic_cme_test(kernel, predictions, targets, *locations).pvalue


def ece(key, predictions, targets, n_draws):
    """15 uniform bins of the confidences; targets are redrawn, the predictions stay."""
    confidences, hits = cj.top_label(predictions, targets)
    estimator = functools.partial(cj.ece, binning=cj.UniformBinning(_ECE_BINS))
    return cj.consistency_test(
        key, estimator, confidences, hits, n_resamples=n_draws, null="model"
    ).pvalue


def t_cal_adaptive(key, predictions, targets, n_draws):
    n_bins = t_cal.dyadic_bins(targets.shape[0])
    return _t_cal(key, predictions, targets, n_draws, n_bins)


def t_cal_with_known_bins(key, predictions, targets, n_draws):
    n_bins = [t_cal.best_bins(targets.shape[0], _SMOOTHNESS)]
    return _t_cal(key, predictions, targets, n_draws, n_bins)


def _t_cal(key, predictions, targets, n_draws, n_bins):
    # 999 draws where the other tests have 199: its quantiles are far out.
    rejects = t_cal.rejects(key, predictions.probs, targets, n_bins, 5 * n_draws + 4, LEVEL)
    return jnp.where(rejects, 0.0, 1.0)


def one_kernel(key, predictions, targets, n_draws):
    """The exact test with the default kernel alone; only its time is of interest."""
    kernels = [cj.default_kernel(exchangeable_pool(predictions, targets)[0])]
    return cj.aggregated_skce_test(key, kernels, predictions, targets, n_resamples=n_draws).pvalue


#: The column of each test; "all kernels" stands for many columns.
NAMES: dict[Test, str] = {
    previous_default: "previous default",
    aggregated: "aggregated",
    one_set_of_draws.pvalues: "all kernels",
    ranks: "ranks",
    pool_scores: "units of the pool",
    distribution_free: "distribution-free",
    block: "block",
    cme: "CME",
    ece: "ECE",
    t_cal_adaptive: "T-Cal, adaptive",
    t_cal_with_known_bins: "T-Cal, known bins",
    one_kernel: "one kernel",
}


def tests_of(setting: Setting, predictions: Any) -> list[Test]:
    """The tests that there are for a family and a setting."""
    if setting.is_ensemble:
        return [aggregated, *([ranks, pool_scores] if is_exchangeable(predictions) else [])]
    tests = [
        *(previous_default, aggregated, one_set_of_draws.pvalues),
        *(distribution_free, block, cme),
    ]
    if isinstance(predictions, cj.Bernoulli | cj.Categorical):
        tests.append(ece)
    if isinstance(predictions, cj.Bernoulli):
        tests.append(t_cal_adaptive)
    if setting.is_t_cal:
        tests.append(t_cal_with_known_bins)
    return tests


@functools.partial(jax.jit, static_argnames=("test", "n_draws", "batch_size"))
def rejections(
    keys: jax.Array, data: Any, *, test: Test, n_draws: int, batch_size: int
) -> Mapping[str, jax.Array]:
    """Which data sets a test rejects, by column; `data` have a leading axis of data sets."""

    def of_one(arguments):
        key, (predictions, targets) = arguments
        pvalues = test(key, predictions, targets, n_draws)
        by_column = pvalues if isinstance(pvalues, dict) else {NAMES[test]: pvalues}
        # NaN is no rejection.
        return {column: p <= LEVEL for column, p in by_column.items()}

    return lax.map(of_one, (keys, data), batch_size=batch_size)
