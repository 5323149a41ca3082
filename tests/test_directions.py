"""Which way a whole model is wrong: directions are named if they are clear, and if they explain."""

import types

import numpy as np
import pytest
from scipy import special, stats

import calibjax as cj
from calibjax.evaluation._curves import worst_cell, worst_level
from calibjax.evaluation._directions import clear_directions, directions_in_words
from calibjax.evaluation._judged_directions import (
    directions_of_labels,
    directions_of_numbers,
    directions_of_vectors,
)
from calibjax.measures.sampling import Sampling

N = 1000
QUANTILES = np.array([0.05, 0.25, 0.5, 0.75, 0.95])


def of_events(logits, probabilities, seed=0, temperature=None, classes=None):
    """The clear directions of predicted logits, where events have these probabilities."""
    targets = (np.random.default_rng(seed).random(len(logits)) < probabilities).astype(int)
    p = special.expit(logits)
    both = np.stack([1 - p, p], axis=1)
    found = directions_of_labels(both, targets, Sampling(len(p)), temperature, classes)
    return clear_directions(found, 0.05), p, targets


LOGITS = 1.5 * np.random.default_rng(1).normal(size=N)


def test_events_that_are_too_rarely_predicted():
    """One logit too low everywhere: the verdict named a place, and never the direction."""
    found, p, targets = of_events(LOGITS - 1, special.expit(LOGITS), temperature=1.7)
    assert found[0].name == "too low" and found[0].is_main and found[0].explained > 0.95
    assert found[0].predicted == pytest.approx(p.mean())
    assert found[0].observed == pytest.approx(targets.mean())
    score = (targets - p).sum() / np.sqrt((p * (1 - p)).sum())
    assert found[0].score == pytest.approx(score)
    assert directions_in_words(found) == (
        f"too low (predicted {p.mean():.1%} on average, observed {targets.mean():.1%})"
    )
    named, *_ = of_events(LOGITS - 1, special.expit(LOGITS), classes=["dry", "wet"])
    assert named[0].name == "too low for 'wet'"


def test_confidence():
    found, p, targets = of_events(2 * LOGITS, special.expit(LOGITS), temperature=2.0)
    assert (
        found[0].name == "over-confident" and found[0].explained > 0.75 and found[0].is_confidence
    )
    assert found[0].predicted == pytest.approx(np.maximum(p, 1 - p).mean())
    assert found[0].observed == pytest.approx(((p > 0.5) == targets).mean())
    found, *_ = of_events(LOGITS / 2, special.expit(LOGITS), temperature=0.5)
    assert found[0].name == "under-confident" and found[0].is_main


def test_a_temperature_that_mends_nothing_is_not_the_error():
    """Wrong between 0.2 and 0.6, in both directions; the best temperature is 0.87."""
    p = np.random.default_rng(7).uniform(0.02, 0.98, size=8000)
    truth = np.where((p > 0.4) & (p < 0.6), p + 0.25, p - 0.15 * ((p > 0.2) & (p < 0.4)))
    found, *_ = of_events(special.logit(p), truth, temperature=0.87)
    assert found and not any(x.is_main for x in found)
    assert "less than half of the error" in directions_in_words(found)


def test_chance_has_no_direction():
    """Of 100 calibrated models at most 5 are said to have one, but for chance."""
    named = 0
    for seed in range(100):
        found, *_ = of_events(LOGITS[:200], special.expit(LOGITS[:200]), seed, temperature=1.06)
        named += bool(found)
    assert named <= stats.binom(100, 0.05).ppf(0.999)
    assert "in places or in shape" in directions_in_words([])


def test_classes_that_come_more_often():
    rng = np.random.default_rng(2)
    logits = rng.normal(size=(N, 4))
    truth = special.softmax(logits + [0, 0, 0.7, 0], axis=1)
    targets = (truth.cumsum(axis=1) > rng.random((N, 1))).argmax(axis=1)
    p = special.softmax(logits, axis=1)
    found = directions_of_labels(p, targets, Sampling(N), 1.0, ["a", "b", "c", "d"])
    first, *others = clear_directions(found, 0.05)
    assert first.name == "too low for 'c'" and first.explained > 0.9
    assert first.observed == pytest.approx((targets == 2).mean())
    assert not any(x.is_main for x in others)


def of_numbers(factor=1.0, shift=0.0, draws=None, levels=None):
    """Predictions of numbers whose deviations are `factor` of the right ones, and targets."""
    rng = np.random.default_rng(3)
    means = 2 * rng.normal(size=N)
    targets = means + shift + rng.normal(size=N)
    places = stats.norm.cdf(targets, means, factor)
    if draws is not None:
        values = means[:, None] + factor * rng.normal(size=(N, draws))
        below = (values < targets[:, None]).sum(axis=1)
        places = (below + rng.random(N)) / (draws + 1)
    if levels is not None:
        ends = np.concatenate([[0], levels, [1]])
        cell = np.searchsorted(levels, places)
        places = ends[cell] + rng.random(N) * np.diff(ends)[cell]
    both = None if levels is not None else (means, targets)
    spreads = np.full(N, factor)
    found = directions_of_numbers(places, means, spreads, Sampling(N), both, levels)
    return clear_directions(found, 0.05), means, targets


@pytest.mark.parametrize("form", [{}, {"draws": 30}, {"levels": QUANTILES}])
@pytest.mark.parametrize(
    "name, error",
    [
        ("too narrow", {"factor": 0.6}),
        ("too wide", {"factor": 1.5}),
        ("too low", {"shift": 0.4}),
        ("too high", {"shift": -0.4}),
    ],
)
def test_numbers_samples_and_quantiles(form, name, error):
    """Densities, draws and quantiles: the verdict named a place, and never the direction."""
    (first, *others), means, targets = of_numbers(**form, **error)
    assert first.name == name and first.explained > 0.9
    assert not any(x.is_main for x in others)
    if name == "too low":
        expected = (means.mean(), targets.mean())
        if "levels" in form:
            expected = 0.5, (targets > means).mean()
        assert (first.predicted, first.observed) == pytest.approx(expected)
    if name == "too narrow":
        covered = np.abs(targets - means) < 0.6 * stats.norm.ppf(0.95)
        assert first.predicted == 0.9 and first.observed == pytest.approx(covered.mean(), abs=0.03)
        assert "of the targets lie in intervals of 90 %" in str(first)


def test_numbers_without_an_error():
    assert of_numbers()[0] == () and of_numbers(levels=QUANTILES)[0] == ()


def test_vectors():
    rng = np.random.default_rng(4)
    means = rng.normal(size=(N, 2))
    targets = means + rng.normal(size=(N, 2))
    ones = np.ones((N, 2))
    shifted = targets + [0, 0.4]
    (first, *_) = clear_directions(directions_of_vectors(means, ones, shifted, Sampling(N)), 0.05)
    assert first.name == "too low in coordinate 1" and first.is_main
    assert first.observed == pytest.approx(shifted[:, 1].mean())
    found = directions_of_vectors(means, 0.7 * ones, targets, Sampling(N))
    (first, *_) = clear_directions(found, 0.05)
    assert first.name == "too narrow" and first.explained > 0.9
    assert first.observed == pytest.approx(1 / 0.7, rel=0.05)
    assert clear_directions(directions_of_vectors(means, ones, targets, Sampling(N)), 0.05) == ()


def test_copies_in_clusters_are_no_evidence():
    """A hundred copies of each of twenty rows do not make a direction clear."""
    rng = np.random.default_rng(5)
    p = np.repeat(rng.uniform(0.2, 0.8, 20), 100)
    targets = np.repeat(rng.random(20) < p[::100] + 0.1, 100).astype(int)
    both, clusters = np.stack([1 - p, p], axis=1), np.repeat(np.arange(20), 100)
    alone = directions_of_labels(both, targets, Sampling(p.size), None, None)
    assert clear_directions(alone, 0.05)
    together = Sampling(p.size, clusters=clusters)
    assert not clear_directions(directions_of_labels(both, targets, together, None, None), 0.05)


def test_the_largest_error_and_the_clearest_one():
    """'five' of many rows by 2.8 points, beside 'eight' of few rows by 87."""
    cells = {"value": [[0.028, np.nan], [0.0, -0.87]], "score": [[9.0, np.nan], [0.1, -4.0]]}
    witness = cj.WitnessMap(
        classes=np.arange(2),
        probability_edges=np.array([0.0, 0.5, 1.0]),
        predicted=np.array([[0.031, np.nan], [0.1, 0.95]]),
        value=np.array(cells["value"]),
        count=np.array([[8123, 0], [5000, 12]]),
        score=np.array(cells["score"]),
        significant=np.array([[True, False], [False, True]]),
        critical=np.array(3.0),
        confidence_level=np.array(0.95),
    )
    assert worst_cell({"witness": witness}, ["five", "eight"]) == (
        "clearest where 'five' gets 0 to 0.5: predicted 3.1% on average, observed 5.9%, 1.9 times "
        "as many (8123 rows); largest where 'eight' gets 0.5 to 1: predicted 95.0% on average, "
        "observed 8.0% (12 rows)"
    )
    residuals = cj.ResidualMap(
        location_edges=np.array([0.0, 1.0, 2.0]),
        spread_edges=np.array([1.0, 2.0]),
        count=np.array([[900], [9]]),
        value=np.array([[[0.2], [0.0]], [[0.0], [3.0]]]),
        score=np.array([[[9.0], [0.0]], [[0.0], [5.0]]]),
        significant=np.array([[[True], [False]], [[False], [True]]]),
        critical=np.array(3.0),
        confidence_level=np.array(0.95),
    )
    assert worst_cell({"residuals": residuals}, None) == (
        "clearest where means are 0 to 1 and deviations 1 to 2: targets are 0.2 deviations higher "
        "(900 rows); largest where means are 1 to 2 and deviations 1 to 2: errors are 2 times as "
        "large as predicted (9 rows)"
    )
    nowhere = types.SimpleNamespace(worst_cell=lambda: None, largest_cell=lambda: None)
    assert worst_cell({"witness": nowhere}, None) is None


def test_levels_of_quantiles():
    """The level 0.99 is clearest, and 0.5 is farthest off."""
    parts = np.arange(2000) / 2000
    targets = np.where(parts < 0.56, -1.0, np.where(parts < 0.95, 1.0, 3.0))
    values = np.tile(np.array([0.0, 2.0], np.float32), (2000, 1))
    assert worst_level(cj.Data(cj.Quantiles(values, (0.5, 0.99)), targets), 0.95) == (
        "clearest where quantiles have the level 0.99: 95.0% of the targets lie below them; "
        "largest where quantiles have the level 0.5: 56.0% of the targets lie below them"
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["events", "quantiles", "samples"])
def test_the_verdict_says_which_way(name):
    rng = np.random.default_rng(6)
    means = 2 * rng.normal(size=N)
    targets = (means + rng.normal(size=N)).astype(np.float32)
    if name == "events":
        happened = rng.random(N) < special.expit(LOGITS)
        found = cj.evaluate(special.expit(LOGITS - 1), happened)
        assert "\nToo low (predicted" in found.verdict
        assert found.to_dict()["directions"][0]["name"] == "too low"
        assert "over-confident" not in found.verdict
    elif name == "quantiles":
        values = (means[:, None] + 0.6 * stats.norm.ppf(QUANTILES)).astype(np.float32)
        found = cj.evaluate(cj.Quantiles(values, tuple(QUANTILES)), targets)
        assert says_too_narrow(found.verdict)
    else:
        draws = (means[:, None] + 0.6 * rng.normal(size=(N, 30))).astype(np.float32)
        assert says_too_narrow(cj.evaluate(cj.Empirical(draws), targets).verdict)


def says_too_narrow(verdict):
    return "\nToo narrow (" in verdict and "of the targets lie in intervals of 90 %)" in verdict


@pytest.mark.parametrize(("classes", "event"), [(None, "the event"), (["no", "yes"], "'yes'")])
def test_events_are_told_from_the_likelier_outcome(classes, event):
    """Stated confidences of 90 %: what is predicted is the event, and not what is likelier."""
    p, came = np.repeat([0.9, 0.3], 50), np.repeat([1, 0, 0, 1], [30, 20, 25, 25])
    probabilities = np.stack([1 - p, p], axis=1)
    *_, confidence = directions_of_labels(probabilities, came, Sampling(100, None), None, classes)
    assert confidence.details == (
        "the likelier of two outcomes: predicted 80.0% on average, observed 55.0%; "
        f"{event}: predicted 60.0%, observed 55.0%"
    )


def test_targets_of_probability_0_count_in_what_is_predicted_and_observed():
    """75 % and 45 % are observed where 100 % and 60 % are predicted; one such row says little."""
    p, came = np.repeat([1.0, 0.6], 200), np.repeat([1, 0, 1, 0], [150, 50, 90, 110])
    probabilities = np.stack([1 - p, p], axis=1)
    found = directions_of_labels(probabilities, came, Sampling(400), None, None)
    assert {x.name for x in clear_directions(found, 0.05)} == {"over-confident", "too high"}
    for direction in found:
        assert (direction.predicted, direction.observed) == pytest.approx((0.8, 0.6))
    came = np.repeat([1, 0, 1, 0], [199, 1, 120, 80])
    found = directions_of_labels(probabilities, came, Sampling(400), None, None)
    assert clear_directions(found, 0.05) == ()
