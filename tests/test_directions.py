"""Overall errors of a model: bias and dispersion are named if they are clear."""

import re
import types

import jax
import numpy as np
import pytest
from scipy import special, stats

import calibjax as cj
from calibjax.evaluation._curves import worst_cell, worst_level
from calibjax.evaluation._directions import (
    clear_directions,
    directions_in_words,
    directions_of_labels,
    directions_of_numbers,
    directions_of_vectors,
)
from calibjax.evaluation._overall_error import local_errors, widening, with_fitted_logits
from calibjax.evaluation._rows import ZERO_PROBABILITY, ZeroProbability
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
    """One logit too low everywhere: the verdict named a place, and never the error."""
    found, p, targets = of_events(LOGITS - 1, special.expit(LOGITS), temperature=1.7)
    assert (
        found[0].name == "risk under-estimated" and found[0].is_main and found[0].explained > 0.95
    )
    assert found[0].predicted == pytest.approx(p.mean())
    assert found[0].observed == pytest.approx(targets.mean())
    score = (targets - p).sum() / np.sqrt((p * (1 - p)).sum())
    assert found[0].score == pytest.approx(score)
    assert directions_in_words(found) == (
        f"risk under-estimated: predicted {100 * p.mean():.1f} %, "
        f"observed {100 * targets.mean():.1f} %"
    )
    named, *_ = of_events(LOGITS - 1, special.expit(LOGITS), classes=["dry", "wet"])
    assert named[0].name == "'wet' under-estimated"


def test_confidence():
    found, p, targets = of_events(2 * LOGITS, special.expit(LOGITS), temperature=2.0)
    assert (
        found[0].name == "over-confident" and found[0].explained > 0.75 and found[0].is_confidence
    )
    assert found[0].predicted == pytest.approx(np.maximum(p, 1 - p).mean())
    assert found[0].observed == pytest.approx(((p > 0.5) == targets).mean())
    found, *_ = of_events(LOGITS / 2, special.expit(LOGITS), temperature=0.5)
    assert found[0].name == "under-confident" and found[0].is_main


def test_a_temperature_that_improves_nothing_is_not_the_error():
    """Wrong between 0.2 and 0.6, in both directions; the best temperature is 0.87."""
    p = np.random.default_rng(7).uniform(0.02, 0.98, size=8000)
    truth = np.where((p > 0.4) & (p < 0.6), p + 0.25, p - 0.15 * ((p > 0.2) & (p < 0.4)))
    found, *_ = of_events(special.logit(p), truth, temperature=0.87)
    assert found and not any(x.is_main for x in found)
    assert "half" not in directions_in_words(found)


def test_chance_has_no_direction():
    """Of 100 calibrated models at most 5 are said to have one, but for chance."""
    named = 0
    for seed in range(100):
        found, *_ = of_events(LOGITS[:200], special.expit(LOGITS[:200]), seed, temperature=1.06)
        named += bool(found)
    assert named <= stats.binom(100, 0.05).ppf(0.999)
    assert "errors may be local or in shape" in directions_in_words([])


def test_classes_that_come_more_often():
    rng = np.random.default_rng(2)
    logits = rng.normal(size=(N, 4))
    truth = special.softmax(logits + [0, 0, 0.7, 0], axis=1)
    targets = (truth.cumsum(axis=1) > rng.random((N, 1))).argmax(axis=1)
    p = special.softmax(logits, axis=1)
    found = directions_of_labels(p, targets, Sampling(N), 1.0, ["a", "b", "c", "d"])
    first, *others = clear_directions(found, 0.05)
    assert first.name == "'c' under-estimated" and first.explained > 0.9
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
    quantiles = None
    if levels is not None:
        below = places[:, None] < levels
        quantiles = levels, below, below
    found = directions_of_numbers(places, Sampling(N), both, quantiles)
    return clear_directions(found, 0.05), means, targets


@pytest.mark.parametrize("form", [{}, {"draws": 30}, {"levels": QUANTILES}])
@pytest.mark.parametrize(
    "name, error",
    [
        ("under-dispersive", {"factor": 0.6}),
        ("over-dispersive", {"factor": 1.5}),
        ("biased low", {"shift": 0.4}),
        ("biased high", {"shift": -0.4}),
    ],
)
def test_numbers_samples_and_quantiles(form, name, error):
    """Densities, draws and quantiles: the verdict named a place, and never the error."""
    (first, *others), means, targets = of_numbers(**form, **error)
    assert first.name == name
    # The factor of `widening` tells a bias from a dispersion error, which is not given here.
    assert abs(first.score) > 1.3 * max([abs(x.score) for x in others], default=0)
    if name == "biased low":
        expected = (means.mean(), targets.mean())
        if "levels" in form:
            expected = 0.5, (targets > means).mean()
        assert (first.predicted, first.observed) == pytest.approx(expected)
    if name == "under-dispersive":
        covered = np.abs(targets - means) < 0.6 * stats.norm.ppf(0.95)
        assert first.predicted == 0.9 and first.observed == pytest.approx(covered.mean(), abs=0.03)
        assert "90 % interval coverage" in str(first)


def test_numbers_without_an_error():
    assert of_numbers()[0] == () and of_numbers(levels=QUANTILES)[0] == ()


def test_vectors():
    rng = np.random.default_rng(4)
    means = rng.normal(size=(N, 2))
    targets = means + rng.normal(size=(N, 2))
    ones = np.ones((N, 2))
    shifted = targets + [0, 0.4]
    (first, *_) = clear_directions(directions_of_vectors(means, ones, shifted, Sampling(N)), 0.05)
    assert first.name == "biased low in coordinate 1"
    assert first.observed == pytest.approx(shifted[:, 1].mean())
    found = directions_of_vectors(means, 0.7 * ones, targets, Sampling(N))
    (first, *_) = clear_directions(found, 0.05)
    assert first.name == "under-dispersive"
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
        "clearest for 'five' at probabilities 0 to 0.5: predicted 3.10 %, observed 5.90 % (O/E "
        "1.9) (n = 8123); largest for 'eight' at probabilities 0.5 to 1: predicted 95.0 %, "
        "observed 8.0 % (n = 12)"
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
        "clearest for means 0 to 1 and SDs 1 to 2: biased low by 0.2 predicted SDs (n = 900); "
        "largest for means 1 to 2 and SDs 1 to 2: errors 2 times as large as predicted (n = 9)"
    )
    nowhere = types.SimpleNamespace(worst_cell=lambda: None, largest_cell=lambda: None)
    assert worst_cell({"witness": nowhere}, None) is None


def test_levels_of_quantiles():
    """The level 0.99 is clearest, and 0.5 is farthest off."""
    parts = np.arange(2000) / 2000
    targets = np.where(parts < 0.56, -1.0, np.where(parts < 0.95, 1.0, 3.0))
    values = np.tile(np.array([0.0, 2.0], np.float32), (2000, 1))
    assert worst_level(cj.Data(cj.Quantiles(values, (0.5, 0.99)), targets), 0.95) == (
        "clearest at the 0.99 quantile: 95.0 % of targets below; "
        "largest at the 0.5 quantile: 56.0 % of targets below"
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
        assert "\nRisk under-estimated: predicted" in found.verdict
        assert found.to_dict()["directions"][0]["name"] == "risk under-estimated"
        assert "over-confident" not in found.verdict
    elif name == "quantiles":
        values = (means[:, None] + 0.6 * stats.norm.ppf(QUANTILES)).astype(np.float32)
        found = cj.evaluate(cj.Quantiles(values, tuple(QUANTILES)), targets)
        assert says_under_dispersive(found.verdict)
    else:
        draws = (means[:, None] + 0.6 * rng.normal(size=(N, 30))).astype(np.float32)
        assert says_under_dispersive(cj.evaluate(cj.Empirical(draws), targets).verdict)


def says_under_dispersive(verdict):
    """With the factor of 1 / 0.6 in the interval."""
    said = r"\nUnder-dispersive: 90 % interval coverage [\d.]+ %; intervals should be [\d.]+ times "
    found = re.search(said + r"as wide \(95 % CI ([\d.]+) to ([\d.]+)\)", verdict)
    return found and float(found[1]) < 1 / 0.6 < float(found[2])


@pytest.mark.parametrize(("classes", "event"), [(None, "the event"), (["no", "yes"], "'yes'")])
def test_events_are_distinct_from_the_likelier_outcome(classes, event):
    """Stated confidences of 90 %: what is predicted is the event, and not what is likelier."""
    p, came = np.repeat([0.9, 0.3], 50), np.repeat([1, 0, 0, 1], [30, 20, 25, 25])
    probabilities = np.stack([1 - p, p], axis=1)
    *_, confidence = directions_of_labels(probabilities, came, Sampling(100, None), None, classes)
    assert confidence.details == (
        f"mean confidence 80.0 %, accuracy 55.0 %; {event}: predicted 60.0 %, observed 55.0 %"
    )


def test_targets_of_probability_0_count_in_what_is_predicted_and_observed():
    """75 % and 45 % are observed where 100 % and 60 % are predicted; one such row says little."""
    p, came = np.repeat([1.0, 0.6], 200), np.repeat([1, 0, 1, 0], [150, 50, 90, 110])
    probabilities = np.stack([1 - p, p], axis=1)
    found = directions_of_labels(probabilities, came, Sampling(400), None, None)
    assert {x.name for x in clear_directions(found, 0.05)} == {
        "over-confident",
        "risk over-estimated",
    }
    for direction in found:
        assert (direction.predicted, direction.observed) == pytest.approx((0.8, 0.6))
    certain = directions_of_labels(
        np.eye(2)[[0, 1] * 50], np.ones(100, int), Sampling(100), None, None
    )
    names = {x.name for x in clear_directions(certain, 0.05)}
    assert names == {"over-confident", "risk under-estimated"}
    came = np.repeat([1, 0, 1, 0], [199, 1, 120, 80])
    found = directions_of_labels(probabilities, came, Sampling(400), None, None)
    assert clear_directions(found, 0.05) == ()


@pytest.mark.parametrize(
    ("true", "shift", "levels"), [(0.6, 0.2, 19), (1.5, -0.3, 19), (0.6, 0.2, 5), (1.0, 0.4, 3)]
)
def test_how_much_wider_intervals_should_be(true, shift, levels):
    """Forecasts whose standard deviations are `true` of the right ones, whatever their bias is."""
    rng = np.random.default_rng(8)
    errors = (shift + rng.normal(size=N)) / true
    u = np.linspace(0, 1, levels + 2)[1:-1]
    below = errors[:, None] <= stats.norm.ppf(u)
    data = cj.Data(cj.Normal(np.zeros(N, np.float32), 1.0), np.float32(errors))
    found = widening(data, np.arange(N), (u, below), Sampling(N), 0.05)
    # The interval of a chi-squared variance is the shortest of all.
    variance = errors.var(ddof=1)
    ends = [(variance * (N - 1) / stats.chi2(N - 1).ppf(q)) ** 0.5 for q in (0.975, 0.025)]
    assert found.interval[0] < errors.std() < found.interval[1]
    assert 1 < np.log(found.interval[1] / found.interval[0]) / np.log(ends[1] / ends[0]) < 2


@pytest.mark.parametrize("kind", ["members", "counts"])
def test_how_much_wider_members_and_counts_should_spread(kind):
    rng = np.random.default_rng(9)
    if kind == "members":
        means, truth = rng.normal(size=N), 1.5
        draws = means[:, None] + rng.normal(size=(N, 10)) / 1.5
        data = cj.Data(cj.Empirical(np.float32(draws)), np.float32(means + 1 + rng.normal(size=N)))
    else:
        rate, truth = rng.uniform(2, 6, N), 1.5
        counts = rng.negative_binomial(rate / 1.25, 1 / 2.25)  # variance 2.25 times the mean
        data = cj.Data(cj.Poisson(np.float32(rate)), counts)
    found = widening(data, np.arange(N), (np.zeros(0), np.zeros((N, 0))), Sampling(N), 0.05)
    assert found.interval[0] < truth < found.interval[1] < 1.15 * truth


def counts_and_quantiles(shift):
    """Quantiles of Poisson counts, of which many are equal to their targets."""
    rate = np.random.default_rng(10).uniform(1, 6, N)
    values = stats.poisson.ppf(QUANTILES, rate[:, None]) - shift
    targets = np.random.default_rng(11).poisson(rate)
    below, up_to = targets[:, None] < values, targets[:, None] <= values
    mid = stats.poisson.cdf(targets + shift, rate) - stats.poisson.pmf(targets + shift, rate) / 2
    rows = mid, Sampling(N), None, (QUANTILES, below, up_to)
    return directions_of_numbers(*rows), targets, values[:, 2]


def test_ties_at_the_median_are_no_bias():
    """Half of the targets are neither above nor below the right median of a count."""
    found, targets, medians = counts_and_quantiles(0)
    assert np.mean(targets > medians) < 0.5 < np.mean(targets >= medians)
    assert not any(x.name.startswith("biased") for x in found)
    (low, *_), targets, medians = counts_and_quantiles(1)
    above, at_or_above = 100 * np.mean(targets > medians), 100 * np.mean(targets >= medians)
    assert low.details == (
        f"{above:.1f} % of targets above the predicted median, {at_or_above:.1f} % at or above, "
        "50.0 % if calibrated"
    )


@pytest.mark.parametrize("is_local", [False, True])
@pytest.mark.parametrize("kind", ["numbers", "classes"])
def test_a_place_is_named_if_the_overall_error_does_not_explain_it(kind, is_local):
    rng, n = np.random.default_rng(12), 3000
    x = np.float32(rng.normal(size=n))
    if kind == "numbers":
        scale = np.where(x > 0.9, 2.2, 1.3) if is_local else 1.3
        data = cj.Data(cj.Normal(x, 1.0), np.float32(x + 0.3 + scale * rng.normal(size=n)))
        found = cj.residual_map(jax.random.key(0), data, n_resamples=199)
    else:
        truth = special.expit(0.7 * x + 0.3)
        truth = np.where((x > 0.5) & (x < 1) & is_local, 0.2, truth)
        data = cj.Data(cj.Bernoulli(jax.nn.sigmoid(x)), (rng.random(n) < truth).astype(int))
        found = cj.witness_map(jax.random.key(0), data, n_resamples=199)
    assert found.worst_cell() is not None
    cell = local_errors(data, found).worst_cell()
    assert (cell is not None) == is_local
    if is_local and kind == "numbers":
        assert cell[:2] == (1, 4)
    elif is_local:
        assert cell == (0, 6)
    if kind == "classes":
        # Logits by statsmodels' method, Newton's steps of a logistic regression.
        p = np.asarray(data.predictions.probs, np.float64)
        happened = np.eye(2)[np.asarray(data.targets)]
        shares, both = np.full(n, 1 / n), np.stack([1 - p, p], axis=1)
        fitted = with_fitted_logits(both, happened, shares)[:, 1]
        columns = np.stack([np.ones(n), special.logit(p)], axis=1)
        np.testing.assert_allclose(columns.T @ (fitted - happened[:, 1]) / n, 0, atol=1e-4)
        shifted = with_fitted_logits(both, happened, shares, 1)[:, 1]
        np.testing.assert_allclose(np.ptp(special.logit(shifted) - special.logit(p)), 0, atol=1e-9)
        np.testing.assert_allclose(shifted.mean(), happened[:, 1].mean(), atol=1e-4)


def test_answers_of_probability_1_that_were_wrong():
    p, came = np.repeat([1.0, 0.0, 0.6], [15, 5, 40]), np.ones(60, int)
    came[[0, 1, 2, 30, 31]] = 0
    came[16:20] = 0
    case = types.SimpleNamespace(
        data=cj.Data(cj.Bernoulli(np.float32(p)), came),
        row_names=np.arange(60),
        zero_probability=ZeroProbability(np.array([0, 1, 2, 15]), 0.2),
    )
    assert ZERO_PROBABILITY.clause(case) == (
        "4 of 20 predictions with probability 1 were wrong (rows 0, 1, 2, 15); without them p = 0.2"
    )
