"""Parts of scores, against scikit-learn and sums over all pairs of rows."""

import re

import numpy as np
import pytest
from messages import check_message
from scipy.special import expit, softmax
from sklearn.metrics import brier_score_loss, log_loss

import calibjax as cj

N = 200
RNG = np.random.default_rng(0)
LOGITS = 2 * RNG.normal(size=N)
PROBS = expit(LOGITS).astype(np.float32)
EVENTS = (RNG.random(N) < expit(LOGITS / 3)).astype(int)
FOLDS = np.arange(N) % 4
LOSSES = {"log": log_loss, "brier": brier_score_loss}


@pytest.mark.parametrize("score", ["log", "brier"])
def test_parts_are_scores_of_scikit_learn(score):
    found = cj.decompose_score(
        cj.Bernoulli(PROBS), EVENTS, score=score, method="temperature", folds=FOLDS
    )
    recalibrated = np.asarray(
        cj.cross_fit(cj.Bernoulli(PROBS), EVENTS, "temperature", FOLDS).probs, np.float64
    )
    of_others = [EVENTS[FOLDS != k] for k in range(4)]
    frequencies = np.array([(y.sum() + 0.5) / (len(y) + 1) for y in of_others])[FOLDS]
    loss = LOSSES[score]
    np.testing.assert_allclose(found.score.estimate, loss(EVENTS, PROBS), rtol=1e-5)
    np.testing.assert_allclose(found.refinement.estimate, loss(EVENTS, recalibrated), rtol=1e-5)
    np.testing.assert_allclose(found.uncertainty.estimate, loss(EVENTS, frequencies), rtol=1e-5)
    gained = found.score.estimate - found.refinement.estimate
    np.testing.assert_allclose(found.calibration.estimate, gained, atol=1e-9)
    resolved = found.uncertainty.estimate - found.refinement.estimate
    np.testing.assert_allclose(found.resolution.estimate, resolved, atol=1e-9)
    # The logits are three times too large, which 200 rows show.
    assert found.calibration.low > 0


@pytest.mark.parametrize("form", ["events", "numbers"])
def test_rows_without_weight_do_not_count(form):
    numbers = cj.Normal(LOGITS.astype(np.float32), np.ones(N, np.float32))
    p, y = {"events": (cj.Bernoulli(PROBS), EVENTS), "numbers": (numbers, EVENTS + 0.5)}[form]
    kept = np.arange(N) % 4 < 3
    method = "temperature" if form == "events" else "shift_scale"
    folds = np.arange(N) % 3
    found = cj.decompose_score(p, y, method=method, folds=folds, weights=3 * kept)
    alone = cj.decompose_score(p[kept], y[kept], method=method, folds=folds[kept])
    for a, b in zip(found[:5], alone[:5], strict=True):
        np.testing.assert_allclose(a.estimate, b.estimate, rtol=1e-5, atol=1e-6)


def test_two_columns_have_the_parts_of_one():
    columns = cj.Categorical(np.stack([1 - PROBS, PROBS], axis=1))
    pairs = [
        cj.decompose_score(p, y, score="brier", folds=FOLDS)
        for p, y in ((cj.Bernoulli(PROBS), EVENTS == 1), (columns, EVENTS))
    ]
    np.testing.assert_allclose(*(p[1].estimate for p in pairs), atol=1e-6)
    np.testing.assert_allclose(*(p[3].estimate for p in pairs), atol=1e-6)


# (score, method): calibration and refinement by probmetrics 1.3 with the same folds.  It calls our
# temperature, with its share of equal probabilities, "ts-mix".
PROBMETRICS = {
    ("log", "temperature"): (0.1876843183, 0.9404088847),
    ("brier", "temperature"): (0.0491221788, 0.5170531502),
    ("log", "svs"): (0.1807952081, 0.9472979950),
    ("brier", "svs"): (0.0452637208, 0.5209116082),
}


def test_the_numbers_of_probmetrics():
    rng = np.random.default_rng(0)
    logits = 3 * rng.normal(size=(1000, 4))
    labels = np.argmax(logits / 2 + rng.gumbel(size=logits.shape), axis=1)
    predictions = cj.Categorical(softmax(logits, axis=1).astype(np.float32))
    for (score, method), expected in PROBMETRICS.items():
        options = {"score": score, "method": method, "folds": np.arange(1000) % 5}
        found = cj.decompose_score(predictions, labels, **options)
        parts = found.calibration.estimate, found.refinement.estimate
        np.testing.assert_allclose(parts, expected, atol=1e-4)


def test_numbers():
    """The CRPS of the law of other targets, by all pairs of rows."""
    loc = RNG.normal(size=N).astype(np.float32)
    targets = (loc + RNG.normal(size=N)).astype(np.float32)
    narrow = cj.Quantiles(loc[:, None] + np.array([-0.4, 0, 0.4], np.float32), (0.1, 0.5, 0.9))
    found = cj.decompose_score(narrow, targets, folds=FOLDS)
    expected = []
    for k in range(4):
        others, own = targets[FOLDS != k].astype(float), targets[FOLDS == k].astype(float)
        spread = np.abs(others[:, None] - others[None]).mean() / 2
        expected += list(np.abs(own[:, None] - others[None]).mean(axis=1) - spread)
    np.testing.assert_allclose(found.uncertainty.estimate, np.mean(expected), rtol=1e-6)
    np.testing.assert_allclose(found.score.estimate, np.mean(cj.crps(narrow, targets)), rtol=1e-6)
    assert found.name == "crps" and found.calibration.low > 0 and found.resolution.low > 0


def test_clusters_widen_intervals():
    """Rows that stand there ten times say no more than rows that stand there once."""
    probs, events = np.tile(PROBS[:20], 10), np.tile(EVENTS[:20], 10)
    row = np.tile(np.arange(20), 10)
    options = {"score": "brier", "method": "identity", "folds": 5}
    alone = cj.decompose_score(cj.Bernoulli(probs), events, **options)
    together = cj.decompose_score(cj.Bernoulli(probs), events, clusters=row, **options)
    once = cj.decompose_score(cj.Bernoulli(PROBS[:20]), EVENTS[:20], **options)
    np.testing.assert_allclose(together.score, once.score, rtol=1e-6)
    assert alone.score.low > together.score.low + 0.01


def test_an_impossible_target_has_an_infinite_score():
    probs = np.where(np.arange(N) == 3, 1 - EVENTS, PROBS).astype(np.float32)
    found = cj.decompose_score(cj.Bernoulli(probs), EVENTS, method="beta")
    assert found.score.estimate == found.calibration.estimate == np.inf
    assert np.isnan(found.score.low) and np.isfinite(found.refinement.high)
    assert "calibration inf (no interval)" in repr(found)


def test_words():
    found = cj.decompose_score(cj.Bernoulli(PROBS), EVENTS, method="identity")
    words = repr(found)
    assert "log score 0." in words and "in nats" in words and "5 folds of 200 rows" in words
    # A map has 1 - p in float32, where the model has it exactly.
    assert abs(found.calibration.estimate) < 1e-7 and re.search("calibration [-0-9.e]+ ", words)


LOC = np.zeros(N, np.float32)
ERRORS = {
    "score": (
        lambda: cj.decompose_score(cj.Bernoulli(PROBS), EVENTS, score="crps"),
        "score of labels must be one of log, brier, got 'crps'",
    ),
    "score of numbers": (
        lambda: cj.decompose_score(cj.Normal(LOC, LOC + 1), LOC, score="log"),
        "score of numbers must be one of crps, got 'log'",
    ),
    "level": (
        lambda: cj.decompose_score(cj.Bernoulli(PROBS), EVENTS, confidence_level=1.0),
        "confidence_level must be in (0, 1), got 1.0",
    ),
    "clusters": (
        lambda: cj.decompose_score(cj.Bernoulli(PROBS), EVENTS, clusters=FOLDS[:5]),
        "clusters",
    ),
}


@pytest.mark.parametrize("call, words", ERRORS.values(), ids=ERRORS.keys())
def test_errors(call, words):
    check_message(call, ValueError, re.escape(words))


@pytest.mark.slow
def test_calibrated_models_gain_nothing():
    """Of 60 calibrated models no interval of calibration lies above 0, and the mean is below it."""
    gains = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        probs = expit(2 * rng.normal(size=1000))
        events = (rng.random(1000) < probs).astype(int)
        gains.append(cj.decompose_score(cj.Bernoulli(probs.astype(np.float32)), events).calibration)
    assert sum(gain.low > 0 for gain in gains) <= 3
    assert np.mean([gain.estimate for gain in gains]) < 0
