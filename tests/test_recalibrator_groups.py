"""Maps that know groups: planted errors, the ridge by its equation, codes of columns, and files."""

import json

import numpy as np
import pytest
from messages import calls, check_message
from scipy.optimize import brentq
from scipy.special import expit

import calibjax as cj
from calibjax.recalibration._groups import Coding

N = 600
RNG = np.random.default_rng(0)
LOGITS = 1.3 * RNG.normal(size=N)
GROUPS = {
    "region": RNG.choice(["north", "south", "west"], N),
    "age": RNG.normal(size=N).astype(np.float32),
    "night": RNG.random(N) < 0.5,
}
# The model errs in the north, and of old people at night.
OLD = GROUPS["age"] > np.quantile(GROUPS["age"], 0.75)
TRUTH = LOGITS + 1.2 * (GROUPS["region"] == "north") - 1.5 * (OLD & GROUPS["night"])
EVENTS = (RNG.random(N) < expit(TRUTH)).astype(int)
PREDICTIONS = cj.Bernoulli(expit(LOGITS).astype(np.float32))


def fitted(method="identity", groups=GROUPS):
    return cj.fit_recalibrator(PREDICTIONS, EVENTS, method, groups=groups)


def divergence(probs):
    """The mean Kullback-Leibler divergence to the truth."""
    p, q = expit(TRUTH), np.asarray(probs, float)
    return np.mean(p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q)))


def test_planted_errors_are_repaired():
    recalibrator = fitted("beta")
    recalibrated = recalibrator(PREDICTIONS, GROUPS).probs
    common = cj.fit_recalibrator(PREDICTIONS, EVENTS, "beta")(PREDICTIONS).probs
    assert divergence(recalibrated) < 0.5 * divergence(common)
    assert "shifts of region, age, night, which gain" in str(recalibrator)


def test_shift_of_a_segment_solves_its_equation():
    """Of rows with p = 1/2 a level's sum of residuals is the slope of its penalty."""
    level = np.repeat(["a", "b"], 200)
    events = np.r_[np.arange(200) < 50, np.arange(200) < 140].astype(int)
    even = cj.Bernoulli(np.full(400, 0.5, np.float32))
    recalibrated = cj.fit_recalibrator(even, events, "identity", groups={"level": level})
    found = np.asarray(recalibrated(even, {"level": level}).probs)[[0, 399]]
    candidates = [
        [
            expit(brentq(lambda t, k=k, s=s: 200 * expit(t) - k + 2 * s * t, -9, 9))
            for k in (50, 140)
        ]
        for s in (1.0, 4.0, 16.0, 64.0, 256.0)
    ]
    gaps = np.max(np.abs(found - np.array(candidates)), axis=1)
    # Slopes of equal logits add nothing; the data are so clear that the penalty is weak.
    assert gaps.min() < 1e-4 and gaps.argmin() <= 1


def test_calibrated_predictions_stay_nearly_as_they_are():
    events = (np.random.default_rng(5).random(N) < expit(LOGITS)).astype(int)
    recalibrated = cj.fit_recalibrator(PREDICTIONS, events, "identity", groups=GROUPS)
    assert np.max(np.abs(recalibrated(PREDICTIONS, GROUPS).probs - PREDICTIONS.probs)) < 0.03


def test_levels_that_the_fit_has_not_seen_move_nothing():
    recalibrator = fitted()
    new = {"region": ["east"] * 3, "age": [np.nan] * 3, "night": [None, True, True]}
    two = {"region": ["east", "north", "north"], "age": [np.nan] * 3, "night": [None] * 3}
    probs = np.asarray(recalibrator(PREDICTIONS[:3], new).probs)
    np.testing.assert_allclose(probs[0], PREDICTIONS.probs[0], rtol=1e-5)
    probs = np.asarray(recalibrator(PREDICTIONS[:3], two).probs)
    np.testing.assert_allclose(probs[0], PREDICTIONS.probs[0], rtol=1e-5)
    assert np.all(probs[1:] > PREDICTIONS.probs[1:3] + 0.02)


def test_rows_are_coded_as_at_the_fit():
    kept = np.ones(N, bool)
    counts = np.arange(N) % 5
    coding = Coding.of({"count": counts, "age": GROUPS["age"]}, kept)
    assert coding.columns[0].levels == (0, 1, 2, 3, 4)
    # Cuts are in the middle between the numbers of two rows.
    ages = np.sort(GROUPS["age"]).astype(float)
    starts = np.array([150, 300, 450])
    np.testing.assert_allclose(coding.columns[1].cuts, (ages[starts - 1] + ages[starts]) / 2)
    whole = coding.segments({"count": counts, "age": GROUPS["age"]}, N)
    part = coding.segments({"age": list(GROUPS["age"][7:9]), "count": counts[7:9] * 1.0}, 2)
    np.testing.assert_array_equal(part, whole[7:9])
    # Five levels, four quarters, and missing values of both, which nobody has; pairs follow.
    assert coding.n_single == 11 and len(coding.pairs) == 20 and whole.max() == 30
    days = np.datetime64("2024-01-01") + np.arange(N) % 40
    coded = Coding.of({"day": days}, kept).segments({"day": days.astype("M8[ns]")}, N)
    assert np.bincount(coded[:, 0]).tolist() == [150, 150, 150, 150]


def test_many_classes_and_weights():
    rng = np.random.default_rng(1)
    probs = rng.dirichlet(np.ones(3), N).astype(np.float32)
    truth = np.log(probs) + 1.5 * (GROUPS["region"] == "west")[:, None] * np.array([1, 0, -1])
    labels = np.argmax(truth + rng.gumbel(size=truth.shape), axis=1)
    predictions, weights = cj.Categorical(probs), np.where(np.arange(N) < 400, 1.0, 0.0)
    recalibrator = cj.fit_recalibrator(
        predictions, labels, "temperature", groups=GROUPS, weights=weights.astype(np.float32)
    )
    alone = cj.fit_recalibrator(
        predictions, labels, "temperature", groups=GROUPS, where=np.arange(N) < 400
    )
    recalibrated = np.asarray(recalibrator(predictions, GROUPS).probs)
    np.testing.assert_allclose(recalibrated, alone(predictions, GROUPS).probs, atol=1e-5)
    np.testing.assert_allclose(recalibrated.sum(axis=1), 1, atol=1e-5)
    west = GROUPS["region"] == "west"
    expected = np.exp(truth) / np.exp(truth).sum(axis=1, keepdims=True)
    before, after = (np.abs(q - expected)[west].mean() for q in (probs, recalibrated))
    assert after < 0.5 * before and recalibrator.fit.n_rows == 400


def test_a_file_has_the_same_map(tmp_path):
    path, recalibrator = tmp_path / "map.json", fitted()
    recalibrator.save(path)
    loaded = cj.load_recalibrator(path)
    a, b = (np.asarray(r(PREDICTIONS, GROUPS).probs).tobytes() for r in (loaded, recalibrator))
    assert a == b and str(loaded) == str(recalibrator)
    content = json.loads(path.read_text())
    content["groups"]["coding"]["pairs"][0][3] = 99
    path.write_text(json.dumps(content))
    check_message(lambda: cj.load_recalibrator(path), ValueError, "map in the file is damaged")


def test_one_row_has_a_map():
    one = {name: values[:1] for name, values in GROUPS.items()}
    recalibrator = cj.fit_recalibrator(PREDICTIONS[:1], EVENTS[:1], groups=one)
    assert np.all(np.isfinite(recalibrator(PREDICTIONS, GROUPS).probs))


def test_out_of_fold_maps_know_groups():
    recalibrated = cj.cross_fit(PREDICTIONS, EVENTS, "identity", 2, groups=GROUPS)
    assert divergence(recalibrated.probs) < 0.6 * divergence(PREDICTIONS.probs)


@pytest.mark.parametrize("name", ["clusters", "times"])
def test_rows_that_depend_are_left_out_together(name):
    """What all rows of a cluster have in common says nothing of the next cluster of its level."""
    rng = np.random.default_rng(2)
    cluster = np.arange(N) // 20
    events = (rng.random(N) < expit(LOGITS + 2 * rng.normal(size=30)[cluster])).astype(int)
    level = rng.permutation(np.arange(30) % 10)[cluster]
    groups = {"level": level}

    def words(**dependence):
        return str(cj.fit_recalibrator(PREDICTIONS, events, "beta", groups=groups, **dependence))

    assert "; shifts of level" in words()
    assert "no segment of level differs" in words(**{name: cluster})
    # An error of a level that all of its clusters have is still found.
    events = (rng.random(N) < expit(LOGITS + 2 * np.where(level < 5, 1, -1))).astype(int)
    assert "; shifts" in words(**{name: cluster})


@pytest.mark.slow
def test_segments_pass_a_test_after_the_map(key):
    rng = np.random.default_rng(9)
    n = 4000
    logits, region = 1.3 * rng.normal(size=n), rng.choice(list("abcd"), n)
    events = (rng.random(n) < expit(logits + 0.8 * (region == "a"))).astype(int)
    predictions, fit = cj.Bernoulli(expit(logits).astype(np.float32)), slice(0, 2000)
    recalibrator = cj.fit_recalibrator(
        predictions[fit], events[fit], "beta", groups={"region": region[fit]}
    )
    judge, names = slice(2000, None), {"region": region[2000:]}
    before = cj.segment_test(key, predictions[judge], events[judge], names)
    after = cj.segment_test(key, recalibrator(predictions[judge], names), events[judge], names)
    assert before.pvalue < 0.01 and after.pvalue > 0.05


ERRORS = {
    ValueError: {
        "groups must be given, since the map was fitted with them: region, age, night": lambda: (
            fitted()(PREDICTIONS)
        ),
        "groups must be None for a map that was fitted without groups": lambda: cj.fit_recalibrator(
            PREDICTIONS, EVENTS, "beta"
        )(PREDICTIONS, GROUPS),
        "groups must have the columns of the fit, region, age, .* got none called age": lambda: (
            fitted()(PREDICTIONS, {"region": GROUPS["region"]})
        ),
        r"column region of groups must have shape \[n\] with n = 600": lambda: fitted(
            groups={"region": GROUPS["region"][:5]}
        ),
        "groups must hold at least one column, got none": lambda: fitted(groups={}),
        "column age of groups must hold numbers, as at the fit, got 'old'": lambda: fitted()(
            PREDICTIONS[:1], {"region": ["a"], "age": ["old"], "night": [True]}
        ),
    }
}


@pytest.mark.parametrize("case", calls(ERRORS))
def test_errors(case):
    check_message(*case)


@pytest.mark.slow
def test_chance_rarely_moves_segments_of_many_classes():
    """Six segments without a difference: two kinds of numbers with a chance of 0.16 each."""
    rng, n, n_moved = np.random.default_rng(1), 600, 0
    for _ in range(30):
        logits = rng.normal(size=(n, 5))
        labels = np.argmax(logits + rng.gumbel(size=(n, 5)), axis=1)
        powers = np.exp(1.5 * logits)
        predictions = cj.Categorical((powers / powers.sum(axis=1, keepdims=True)).astype("f4"))
        groups = {"region": rng.integers(0, 6, n).astype(str)}
        found = cj.fit_recalibrator(predictions, labels, "temperature", groups=groups)
        n_moved += "no segment of region differs" not in found.fit.description
    assert n_moved <= 17
