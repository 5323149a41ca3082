"""Out-of-fold recalibration against maps that are fitted by hand."""

import numpy as np
import pytest
from messages import check_message
from scipy.special import expit

import calibjax as cj

N = 200
RNG = np.random.default_rng(0)
LOGITS = 2 * RNG.normal(size=N)
PREDICTIONS = cj.Bernoulli(expit(LOGITS).astype(np.float32))
EVENTS = (RNG.random(N) < expit(LOGITS / 2)).astype(int)
CLUSTERS = np.arange(N) // 10


def test_each_row_has_the_map_of_the_other_folds():
    weeks = np.array([3, 7, 9])[np.arange(N) % 3]
    found = np.asarray(cj.cross_fit(PREDICTIONS, EVENTS, "temperature", weeks).probs)
    for week in (3, 7, 9):
        others = weeks != week
        recalibrator = cj.fit_recalibrator(PREDICTIONS[others], EVENTS[others], "temperature")
        expected = np.asarray(recalibrator(PREDICTIONS).probs)
        np.testing.assert_allclose(found[~others], expected[~others], atol=1e-6)


def test_clusters_stay_together():
    """The targets of a cluster have no influence on its own predictions."""
    found = np.asarray(cj.cross_fit(PREDICTIONS, EVENTS, "beta", 4, clusters=CLUSTERS).probs)
    changed = np.where(CLUSTERS == 5, 1 - EVENTS, EVENTS)
    again = np.asarray(cj.cross_fit(PREDICTIONS, changed, "beta", 4, clusters=CLUSTERS).probs)
    inside = CLUSTERS == 5
    np.testing.assert_array_equal(found[inside], again[inside])
    assert np.any(found[~inside] != again[~inside])


def test_times_are_left_out_in_blocks():
    rng = np.random.default_rng(1)
    times = rng.permutation(CLUSTERS) / 4
    found = np.asarray(cj.cross_fit(PREDICTIONS, EVENTS, "temperature", 4, times=times).probs)
    # Twenty times make four blocks of five.
    blocks = (4 * times // 5).astype(int)
    expected = np.asarray(cj.cross_fit(PREDICTIONS, EVENTS, "temperature", blocks).probs)
    np.testing.assert_array_equal(found, expected)


def test_two_clusters_score_a_map_that_leaves_nothing_out():
    halves = CLUSTERS // 10
    found = cj.cross_fit(PREDICTIONS, EVENTS, "temperature", 2, clusters=halves)
    expected = cj.cross_fit(PREDICTIONS, EVENTS, "temperature", halves)
    np.testing.assert_array_equal(found.probs, expected.probs)


def test_numbers():
    loc = RNG.normal(size=N).astype(np.float32)
    targets = (loc + RNG.normal(size=N)).astype(np.float32)
    levels = (0.1, 0.5, 0.9)
    narrow = cj.Quantiles(loc[:, None] + np.array([-0.5, 0.0, 0.5], np.float32), levels)
    recalibrated = cj.cross_fit(narrow, targets, "shift_scale", 5)
    assert type(recalibrated) is cj.Quantiles and recalibrated.levels == levels
    values = np.asarray(recalibrated.values)
    for k, level in enumerate(levels):
        assert abs(np.mean(targets <= values[:, k]) - level) < 0.1


def test_rows_without_weight_fit_no_map():
    counts = np.arange(N) % 3 > 0
    folds = np.arange(N) % 2
    found = np.asarray(
        cj.cross_fit(
            PREDICTIONS, EVENTS, "temperature", folds, weights=counts.astype(np.float32)
        ).probs
    )
    alone = cj.fit_recalibrator(PREDICTIONS, EVENTS, "temperature", where=counts & (folds == 1))
    np.testing.assert_allclose(found[::2], np.asarray(alone(PREDICTIONS).probs)[::2], atol=1e-6)


ERRORS = {
    "one fold": (lambda: cj.cross_fit(PREDICTIONS, EVENTS, "beta", 1), "folds must be between 2"),
    "many folds": (
        lambda: cj.cross_fit(PREDICTIONS, EVENTS, "beta", 21, clusters=CLUSTERS),
        "folds must be between 2 and the number of rows, clusters or times, 20, got 21",
    ),
    "equal": (
        lambda: cj.cross_fit(PREDICTIONS, EVENTS, "beta", np.zeros(N, int)),
        "folds must hold at least 2 different numbers",
    ),
    "shape": (
        lambda: cj.cross_fit(PREDICTIONS, EVENTS, "beta", np.arange(N - 1)),
        "folds must have shape",
    ),
    "both": (
        lambda: cj.cross_fit(PREDICTIONS, EVENTS, "beta", CLUSTERS, clusters=CLUSTERS),
        "clusters must be None with the fold of each row",
    ),
    "both times": (
        lambda: cj.cross_fit(PREDICTIONS, EVENTS, "beta", CLUSTERS, times=CLUSTERS),
        "times must be None with the fold of each row",
    ),
    "two for auto": (
        lambda: cj.cross_fit(PREDICTIONS, EVENTS, "auto", 2, clusters=CLUSTERS // 10),
        "clusters or times must have at least 2 different values, got 1",
    ),
}


@pytest.mark.parametrize("case", ERRORS)
def test_errors(case):
    call, message = ERRORS[case]
    check_message(call, ValueError, message)
