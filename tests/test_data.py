"""`Data` in place of predictions and targets: checked once, and the same numbers."""

import functools
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from marks import slow

import calibjax as cj
from calibjax._base.struct import with_fields
from calibjax._data.data import as_data
from calibjax._data.padding import padded

N = 40
RNG = np.random.default_rng(0)
PREDICTIONS = cj.Bernoulli(RNG.uniform(0.05, 0.95, N).astype(np.float32))
EVENTS = (RNG.uniform(size=N) < PREDICTIONS.probs).astype(np.int32)
WEIGHTS = RNG.uniform(0.5, 2, N).astype(np.float32)
ROWS = dict(where=np.arange(N) != 3, weights=WEIGHTS)
KEY = jax.random.key(0)


def test_data_are_the_arguments_by_name():
    clusters = np.arange(N) // 2
    of_data = cj.Data(PREDICTIONS, EVENTS, clusters=clusters, **ROWS)
    found = cj.calibration_test(KEY, of_data, n_resamples=99)
    expected = cj.calibration_test(
        KEY, PREDICTIONS, EVENTS, n_resamples=99, clusters=clusters, **ROWS
    )
    assert found.method == expected.method and "20 clusters" in found.method
    np.testing.assert_array_equal(found.null_distribution, expected.null_distribution)


KERNEL = cj.default_kernel(PREDICTIONS)
NUMBERS = cj.Normal(np.linspace(-1.0, 1.0, N), np.ones(N)), np.linspace(-2.0, 1.0, N)
WHERE, R = {"where": ROWS["where"]}, {"n_resamples": 19, "confidence_level": 0.9}
OPTIONS = {"weights": WEIGHTS, "times": np.arange(N), "horizon": 2}
# A function of predictions and targets, these, and how rows count.
CALLS = {
    "ece": (cj.ece, (PREDICTIONS, EVENTS), ROWS),
    "mce": (cj.mce, (PREDICTIONS, EVENTS), ROWS),
    "mmce": (cj.mmce, (PREDICTIONS, EVENTS), ROWS),
    "smooth_ece": (cj.smooth_ece, (PREDICTIONS, EVENTS), ROWS),
    "calibration_bins": (cj.calibration_bins, (PREDICTIONS, EVENTS), ROWS),
    "contributions": (functools.partial(cj.contributions, KERNEL), (PREDICTIONS, EVENTS), ROWS),
    "corp_curve": (cj.corp_curve, (PREDICTIONS, EVENTS), ROWS),
    "d_calibration": (cj.d_calibration, NUMBERS, ROWS),
    "reliability_curve": (
        functools.partial(cj.reliability_curve, KEY, n_bins=3, **R),
        (PREDICTIONS, EVENTS),
        OPTIONS,
    ),
    "pit_curve": (functools.partial(cj.pit_curve, KEY, n_bins=3, **R), NUMBERS, OPTIONS),
    "coverage_curve": (functools.partial(cj.coverage_curve, KEY, n_levels=3, **R), NUMBERS, ROWS),
    "spread_skill_curve": (
        functools.partial(cj.spread_skill_curve, KEY, n_bins=3, **R),
        (cj.Empirical(np.random.default_rng(0).normal(size=(N, 4))), NUMBERS[1]),
        OPTIONS,
    ),
    "witness_map": (
        functools.partial(cj.witness_map, KEY, n_bins=3, **R),
        (PREDICTIONS, EVENTS),
        WHERE,
    ),
    "residual_map": (functools.partial(cj.residual_map, KEY, n_bins=2, **R), NUMBERS, WHERE),
    "skce_confidence_interval": (
        functools.partial(cj.skce_confidence_interval, KEY, KERNEL, n_resamples=19),
        (PREDICTIONS, EVENTS),
        OPTIONS,
    ),
    "compare_groups": (
        lambda p, y=None, **rows: cj.compare_groups(
            KEY, KERNEL, p, y, np.arange(N) % 2, n_resamples=19, **rows
        ),
        (PREDICTIONS, EVENTS),
        ROWS,
    ),
    "compare_calibration": (
        lambda p, y=None, **rows: cj.compare_calibration(
            KEY, KERNEL, p, cj.Bernoulli(1 - PREDICTIONS.probs), y, n_resamples=19, **rows
        ),
        (PREDICTIONS, EVENTS),
        OPTIONS,
    ),
    "crps": (cj.crps, NUMBERS, {}),
    "log_score": (cj.log_score, NUMBERS, {}),
    "pit": (functools.partial(cj.pit, KEY), NUMBERS, {}),
    "pit_interval": (cj.pit_interval, NUMBERS, {}),
    "h_matrix": (functools.partial(cj.h_matrix, KERNEL), (PREDICTIONS, EVENTS), {}),
    "calibration_curve": (cj.calibration_curve, (PREDICTIONS, EVENTS), OPTIONS),
    "risk_curve": (functools.partial(cj.risk_curve, time=0.5, n_bins=3), NUMBERS, ROWS),
    "random_feature_skce": (
        functools.partial(cj.random_feature_skce, KEY, KERNEL, n_features=8),
        (PREDICTIONS, EVENTS),
        WHERE,
    ),
    "skce": (functools.partial(cj.skce, KERNEL), (PREDICTIONS, EVENTS), ROWS),
    "aggregated_skce_test": (
        functools.partial(cj.aggregated_skce_test, KEY, [KERNEL], n_resamples=19),
        (PREDICTIONS, EVENTS),
        OPTIONS,
    ),
    "asymptotic_block_skce_test": (
        functools.partial(cj.asymptotic_block_skce_test, KERNEL),
        (PREDICTIONS, EVENTS),
        WHERE,
    ),
    "asymptotic_skce_test": (
        functools.partial(cj.asymptotic_skce_test, KEY, KERNEL, n_resamples=19),
        (PREDICTIONS, EVENTS),
        OPTIONS,
    ),
    "calibration_test": (
        functools.partial(cj.calibration_test, KEY, n_resamples=19),
        (PREDICTIONS, EVENTS),
        OPTIONS,
    ),
    "consistency_test": (
        functools.partial(cj.consistency_test, KEY, cj.ece, n_resamples=19),
        (PREDICTIONS, EVENTS),
        ROWS,
    ),
    "distribution_free_skce_test": (
        functools.partial(cj.distribution_free_skce_test, KERNEL, kernel_bound=1.0),
        (PREDICTIONS, EVENTS),
        WHERE,
    ),
    "equivalent_temperature": (
        functools.partial(cj.equivalent_temperature, KEY, KERNEL, n_resamples=19),
        (PREDICTIONS, EVENTS),
        OPTIONS,
    ),
    "cross_fit": (
        functools.partial(cj.cross_fit, method="temperature"),
        (PREDICTIONS, EVENTS),
        {"weights": WEIGHTS},
    ),
    "decompose_score": (cj.decompose_score, (PREDICTIONS, EVENTS), {"weights": WEIGHTS}),
    "fit_recalibrator": (
        lambda *samples, **rows: cj.fit_recalibrator(*samples, method="temperature", **rows)(
            PREDICTIONS
        ),
        (PREDICTIONS, EVENTS),
        ROWS,
    ),
    "fit_temperature": (cj.fit_temperature, (PREDICTIONS, EVENTS), ROWS),
    "logistic_calibration": (
        lambda *samples, **rows: cj.logistic_calibration(*samples, **rows).slope,
        (PREDICTIONS, EVENTS),
        ROWS,
    ),
    "segment_test": (
        functools.partial(cj.segment_test, KEY, groups={"side": np.arange(N) % 2}, n_resamples=19),
        (PREDICTIONS, EVENTS),
        OPTIONS,
    ),
    "evaluate": (
        lambda *samples, **rows: cj.evaluate(*samples, **rows).measures["Brier score"].value,
        (PREDICTIONS, EVENTS),
        {"weights": WEIGHTS},
    ),
    # Locations follow the targets, which are None beside Data.
    **{
        name: (
            lambda p, y=None, name=name, **rows: getattr(cj, name)(
                KERNEL, p, y, PREDICTIONS[:3], EVENTS[:3], **rows
            ),
            (PREDICTIONS, EVENTS),
            WHERE,
        )
        for name in ("ucme", "witness", "asymptotic_cme_test")
    },
}
QUICK = {"ece", "crps", "corp_curve"}


def test_every_function_of_predictions_and_targets_is_tried_with_data():
    functions = {x: getattr(cj, x) for x in cj.__all__ if inspect.isroutine(getattr(cj, x))}
    taking = {
        name
        for name, function in functions.items()
        if {"targets", "predictions"} <= {*inspect.signature(function).parameters}
    }
    of_binary_problems = {"top_label", "one_vs_rest"}  # what they return is `Data`, too
    assert len(taking) > 40 and taking <= CALLS.keys() | of_binary_problems


def test_only_what_was_checked_is_known_to_be_valid():
    data = cj.Data(PREDICTIONS, EVENTS, where=ROWS["where"])
    assert padded(as_data(data)).is_valid and not data.is_valid
    assert as_data(cj.Data(PREDICTIONS, EVENTS)).is_valid
    bad = PREDICTIONS.probs.copy()
    bad[5] = np.nan
    others = data.replace(predictions=cj.Bernoulli(bad))
    of_jax = jax.tree.map(lambda x: bad if x is data.predictions.probs else x, data)
    for changed in others, of_jax, data.replace(where=np.ones(N, bool)):
        assert not padded(as_data(changed)).is_valid
    for changed in others, of_jax:
        assert np.isnan(cj.skce(KERNEL, changed)) and np.isnan(cj.smooth_ece(changed))
        assert not jax.jit(lambda x: padded(as_data(x)).is_valid)(changed)
    # Predictions that a recalibrator makes of these are as valid: one program tests both.
    assert padded(as_data(with_fields(data, predictions=cj.Bernoulli(bad)))).is_valid
    # What functions return is known to be checked, until jax changes it.
    hits = cj.top_label(cj.Data(PREDICTIONS, EVENTS))
    assert as_data(hits).is_valid
    assert np.isnan(cj.ece(jax.tree.map(lambda x: -1 - x if x is hits.targets else x, hits)))


@pytest.mark.parametrize("name", slow(CALLS.keys() - QUICK, CALLS))
def test_functions_take_data(name):
    function, samples, rows = CALLS[name]
    found, expected = function(cj.Data(*samples, **rows)), function(*samples, **rows)
    jax.tree.map(np.testing.assert_array_equal, found, expected)


def test_binary_problems_of_data_are_data():
    data = cj.Data(PREDICTIONS, EVENTS, **ROWS)
    for of_data, samples in (
        (cj.top_label(data), cj.top_label(PREDICTIONS, EVENTS)),
        (cj.one_vs_rest(data, label=0), cj.one_vs_rest(PREDICTIONS, EVENTS, 0)),
    ):
        jax.tree.map(np.testing.assert_array_equal, of_data.samples, samples)
        assert of_data.where is data.where and of_data.weights is data.weights


def test_clusters_are_numbered_and_times_are_in_horizons():
    named = cj.Data(PREDICTIONS, EVENTS, clusters=np.arange(N) % 3 * 10**12 - 7)
    np.testing.assert_array_equal(named.clusters, np.arange(N) % 3)
    timed = cj.Data(PREDICTIONS, EVENTS, times=1e9 + 4.0 * np.arange(N), horizon=8)
    np.testing.assert_array_equal(timed.times, np.arange(N) / 2)
    assert timed.n_units() == N and named.describe_units() == "3 clusters"
    of_times = cj.Data(PREDICTIONS, EVENTS, times=np.arange(N) % 3)
    assert of_times.horizon == 0 and of_times.describe_units() == "3 times"


def test_data_are_a_pytree_that_is_not_checked_again():
    data = cj.Data(PREDICTIONS, EVENTS, **ROWS)
    assert as_data(data) is data
    weighted = jax.jit(lambda x: jnp.sum(jnp.where(x.targets == 1, x.weights, 0.0)))(data)
    np.testing.assert_allclose(weighted, np.sum(WEIGHTS * EVENTS), rtol=1e-6)
    assert data.replace(weights=None).where is data.where


@pytest.mark.parametrize(
    "call, kind, message",
    [
        (lambda: cj.Data(PREDICTIONS, EVENTS + 1), ValueError, "targets must be .*; row "),
        (lambda: cj.Data(PREDICTIONS, EVENTS, weights=-WEIGHTS), ValueError, "weights must be"),
        (lambda: cj.Data(PREDICTIONS, EVENTS, horizon=2), ValueError, "times must be given"),
        (lambda: cj.Data(PREDICTIONS, EVENTS[1:]), ValueError, "targets must have shape"),
        (
            lambda: cj.calibration_test(KEY, cj.Data(PREDICTIONS, EVENTS), EVENTS),
            TypeError,
            "targets must be None beside Data",
        ),
        (
            lambda: cj.calibration_test(KEY, cj.Data(PREDICTIONS, EVENTS), weights=WEIGHTS),
            TypeError,
            "weights must be None beside Data",
        ),
        (lambda: cj.calibration_test(KEY, PREDICTIONS), TypeError, "targets must be an array"),
        (
            lambda: cj.witness_map(KEY, cj.Data(PREDICTIONS, EVENTS, weights=WEIGHTS)),
            ValueError,
            r"weights of Data must be None: .*; data.replace\(weights=None\) leaves them out",
        ),
        (
            lambda: cj.calibration_test(KEY, cj.Data(PREDICTIONS[:1], EVENTS[:1])),
            ValueError,
            "predictions must hold at least 2 rows, got 1",
        ),
    ],
)
def test_errors(call, kind, message):
    with pytest.raises(kind, match=message):
        call()
