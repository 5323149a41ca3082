"""evaluate: targets that are hidden, and rows that count differently or depend on each other."""

import copy
import datetime
import json
import re

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import stats

import calibjax as cj
from calibjax._data.data import as_data
from calibjax._data.padding import padded
from calibjax.evaluation._directions import shift_in_words
from calibjax.evaluation._rows import note_on_censoring, notes_on_few_units
from calibjax.evaluation._section import keys_of
from calibjax.evaluation._wording import target_in_words
from calibjax.frames import read_arrays, read_rows
from calibjax.measures.families import measures
from calibjax.measures.labels import label_measures
from calibjax.measures.measure import MeasureResult, Subset
from calibjax.measures.sampling import Sampling, mean_interval, wilson_interval

N = 160


@pytest.fixture(scope="module")
def lifetimes():
    """Forecasts that are too short, times, and whether the event was seen."""
    rng = np.random.default_rng(0)
    scale = np.exp(0.3 * rng.normal(size=N)).astype(np.float32)
    times, ends = 1.6 * scale * rng.weibull(1.5, N), rng.exponential(2.0, N)
    seen = np.minimum(times, ends).astype(np.float32)
    return cj.Weibull(jnp.full(N, 1.5), jnp.asarray(scale)), seen, times <= ends


@pytest.fixture(scope="module")
def of_hidden(lifetimes):
    predictions, seen, observed = lifetimes
    return cj.evaluate(predictions, cj.IntervalCensored.right_censored(seen, observed))


def test_the_verdict_on_censored_targets(of_hidden, lifetimes):
    predictions, seen, observed = lifetimes
    hidden = N - observed.sum()
    assert of_hidden.rejected and of_hidden.n == N and 20 < hidden < N - 20
    assert of_hidden.verdict.startswith(
        f"Not calibrated (p ≤ 0.001, n = {N}, {hidden} censored).\n"
        f"Events later than predicted: {observed.sum()} observed, "
    )
    test = cj.calibration_test(keys_of(0).test, predictions, of_hidden.targets)
    assert of_hidden.pvalue == pytest.approx(float(test.pvalue))
    printed = " ".join(repr(of_hidden).split())
    assert "Censored targets: " in printed and "asymptotically valid" in printed
    assert "CRPS" not in of_hidden.measures and of_hidden.equivalent_temperature is None


def test_measures_of_censored_targets(of_hidden, lifetimes):
    predictions, seen, observed = lifetimes
    law = stats.weibull_min(1.5, scale=np.asarray(predictions.scale))
    assert list(of_hidden.measures) == ["log loss", "mean PIT", "events"]
    scores = -np.where(observed, law.logpdf(seen), law.logsf(seen))
    assert of_hidden.measures["log loss"].value == pytest.approx(scores.mean(), rel=1e-5)
    pits = np.where(observed, law.cdf(seen), (1 + law.cdf(seen)) / 2)
    events = of_hidden.measures["events"]
    expected = -law.logsf(seen).sum()
    assert events.value == observed.sum() < expected
    half = 1.959964 * expected**0.5
    np.testing.assert_allclose(events.if_calibrated, (expected - half, expected + half), rtol=1e-4)
    ends = f"{expected - half:.0f} to {expected + half:.0f}"
    mean_pit = of_hidden.measures["mean PIT"]
    assert mean_pit.value == pytest.approx(pits.mean(), rel=1e-5)
    of_pit = f"mean PIT {mean_pit.value:.3g}, 0.5 if calibrated"
    assert of_hidden.verdict.endswith(
        f" observed, {ends} expected during the same follow-up; {of_pit}."
    )
    student = stats.t(N - 1, pits.mean(), stats.sem(pits)).interval(0.95)
    np.testing.assert_allclose(mean_pit.interval, student, atol=3e-3)  # but for skewness
    assert mean_pit.if_calibrated == (0.5, 0.5)


def test_neighbours_that_depend_on_each_other_are_said(of_hidden):
    assert 0.01 < of_hidden.pvalue_of_neighbours == of_hidden.to_dict()["pvalue_of_neighbours"]
    words = "Neighbouring rows appear dependent (p ≤ 0.00333)"
    assert words not in repr(of_hidden)
    flagged = copy.copy(of_hidden)
    vars(flagged)["pvalue_of_neighbours"] = 1 / 300
    assert words in repr(flagged) and "pass times and a horizon, or clusters" in flagged.notes[0]


def test_files_of_censored_targets(of_hidden):
    found = json.loads(of_hidden.to_json())
    assert found["n_censored"] > 20 and found["curves"] == {} and found["influential_rows"] == []
    text = of_hidden.to_html()
    assert "The range if calibrated is where the number would lie" in text
    assert text.count("<svg") == 1 and "random signs and sizes" in text
    assert "What would a recalibration gain?" not in text


def test_times_of_censoring_make_the_test_exact(lifetimes):
    predictions, seen, observed = lifetimes
    ends = np.where(observed, 10.0, seen)
    found = cj.evaluate(predictions, cj.IntervalCensored.right_censored(seen, observed, ends))
    assert found.test.is_exact and "redraws targets and censors them" in repr(found)


def test_rows_that_are_censored_between_few_times_of_curves_are_said():
    curves = cj.SurvivalCurve(np.array([1.0, 2.0]), np.array([[0.95, 0.5]] * 40))
    seen = np.full(40, 2.0)
    # At a time, in a cell of 5 %, after the last time, an event, and at the start.
    seen[:5] = [1.0, 0.5, 9.0, 1.5, 0.0]
    observed = np.arange(40) == 3

    def share_of(predictions, *ends):
        said = note_on_censoring(
            cj.Data(predictions, cj.IntervalCensored.right_censored(seen, observed, *ends))
        )
        return re.findall(r"\d+ %", said) if "may be too small" in said else []

    assert share_of(curves) == []
    seen[5:7] = 1.5, 1.9
    assert share_of(curves) == []  # 5 % of rows
    seen[7:9] = 1.1
    assert share_of(curves) == ["10 %"]
    ends = np.where(observed, 3.0, seen)
    assert share_of(curves, ends) == share_of(cj.Weibull(np.ones(40), np.ones(40))) == []


def _events(curves, low, high):
    data = padded(as_data(curves, cj.IntervalCensored(low, high), intervals=True))
    (found,) = measures(jax.random.key(0), data, 0.95, 9)
    return found.get("events")


def test_of_which_targets_events_are_counted():
    curves = cj.SurvivalCurve(jnp.array([1.0, 2.0]), jnp.array([[0.5, 0.25]] * 3))
    low = np.array([1.0, 1.5, 9.0])
    # The last event is after the last time, where the curve says nothing.
    found = _events(curves, low, np.array([1.0, np.inf, 9.0]))
    assert found.value == 1
    # The only event of the first cell is at its end; the second cell has none, and S is linear.
    expected = -np.log([0.5, 0.375, 0.25]).sum()
    found = found.if_calibrated
    np.testing.assert_allclose(found, [0, expected + 1.959964 * expected**0.5], rtol=1e-6)
    assert _events(curves, low, low) is None and _events(curves, low + 1, low + 1) is None


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("probs", "ratios"), [((0.5, 0.5), [8]), ((0.5, 0.0), [8, 2, 1.25]), ((0.0, 0.0), None)]
)
def test_flat_curves_and_those_that_reach_zero_expect_events_without_warnings(probs, ratios):
    """All rows are at risk in the first cell; S is linear in a cell that the curve cannot weigh."""
    curves = cj.SurvivalCurve(jnp.array([1.0, 2.0]), jnp.array([probs] * 3))
    found = _events(curves, np.array([1.5, 1.2, 0.5]), np.array([1.5, np.inf, 0.5]))
    if ratios is None:
        assert found is None
    else:
        expected = np.log(ratios).sum()
        high = found.if_calibrated[1]
        np.testing.assert_allclose(high, expected + 1.959964 * expected**0.5, rtol=1e-6)


@pytest.mark.parametrize("times", [(12, 24, 36), range(1, 37)], ids=["years", "months"])
@pytest.mark.parametrize("shape", [0.5, 1.0, 2.0])
def test_coarse_curves_expect_as_many_events_as_their_distribution(shape, times):
    """Of Weibull lifetimes, whose cumulative hazard (t / scale)^shape is known at all times."""
    n, rng = 8000, np.random.default_rng(5)
    scale = np.exp(3.6 - 0.8 * rng.normal(size=n))
    time, censored_at = scale * rng.weibull(shape, n), rng.uniform(6, 60, n)
    seen = np.minimum(time, censored_at)
    high = np.where(time <= censored_at, seen, np.inf)
    grid = np.array(times, float)
    found = _events(cj.SurvivalCurve(grid, np.exp(-((grid / scale[:, None]) ** shape))), seen, high)
    expected = np.sum((np.minimum(seen, 36) / scale) ** shape)
    # The events of a cell, some 1400, say what its hazard is in between.
    assert abs(np.mean(found.if_calibrated) / expected - 1) < 0.01
    low, high = found.if_calibrated
    assert low < found.value < high
    np.testing.assert_allclose(high - low, 2 * 1.96 * expected**0.5, rtol=0.01)


def test_few_units_are_said():
    def said(*dependence):
        known = dict(zip(("clusters", "times", "horizon"), dependence, strict=False))
        return "".join(notes_on_few_units(cj.Data(cj.Normal(np.zeros(40), 1.0), rows, **known)))

    rows = np.arange(40)
    assert "fewer than 10): only large errors are detectable" in said(rows % 9)
    assert "Few" not in said(rows % 10) and "Few" not in said(None, rows)
    assert "7.8 of the horizon 5.1, fewer than 8): only" in said(None, rows, 5.1)
    assert "Few" not in said(None, rows, 5)


def test_descriptions_of_censored_targets():
    words = [target_in_words(*ends) for ends in [(2, np.inf), (-np.inf, 2), (1, 2), (2, 2)]]
    assert words == ["> 2", "≤ 2", "1 … 2", "2"]
    assert shift_in_words(MeasureResult(0.4, (0.35, 0.45))).startswith("biased high: mean PIT 0.4")
    assert shift_in_words(MeasureResult(0.4, (0.3, 0.51))) is None
    assert shift_in_words(MeasureResult(np.nan)) is None
    early = shift_in_words(MeasureResult(0.6, (0.55, 0.65)), MeasureResult(8.0, None, (20.0, 20.0)))
    assert early.startswith("events later than predicted: 8 observed, 20 expected during the same ")


def test_censored_targets_as_users_have_them():
    ends = [1.0, 2.0], [1.0, np.inf]
    for predictions in cj.Weibull(jnp.ones(2), jnp.ones(2)), stats.expon(scale=np.ones(2)):
        data = read_arrays(predictions, cj.IntervalCensored(*ends))
        family, targets = data.samples
        assert isinstance(targets.high, np.ndarray) and data.classes is None and len(family) == 2
    classes = cj.Ordinal(jnp.full((2, 3), 1 / 3))
    for arguments, error, message in [
        ((np.ones((2, 2)), None, False), TypeError, "predictions must be a distribution"),
        ((classes, None, False), TypeError, "Ordinal predictions of classes"),
        ((family, ["a"], False), ValueError, "classes must not be given"),
        ((family, None, True), ValueError, "normalize must not be given"),
    ]:
        with pytest.raises(error, match=message):
            read_arrays(arguments[0], cj.IntervalCensored(*ends), *arguments[1:])


def loops(values, weights, near):
    """The variance of a weighted mean: sum over pairs of rows of near_ij u_i u_j."""
    shares = weights / weights.sum()
    parts = shares * (values - shares @ values)
    return sum(near[i, j] * parts[i] * parts[j] for i in range(N) for j in range(N))


def test_errors_of_means_beside_loops_over_pairs():
    rng = np.random.default_rng(1)
    values, weights = rng.normal(size=N), rng.exponential(size=N)
    clusters, times = rng.integers(0, 12, N), rng.integers(0, 40, N) / 2
    of_clusters = Sampling(N, weights, clusters)
    error, freedom = of_clusters.error(values)
    expected = loops(values, weights, clusters[:, None] == clusters[None]) * 12 / 11
    assert error**2 == pytest.approx(expected) and freedom == 11
    of_times = Sampling(N, weights, times=times)
    error, freedom = of_times.error(values)
    near = np.maximum(1 - np.abs(times[:, None] - times[None]) / 3, 0)
    n_times = np.unique(times).size
    assert freedom == pytest.approx(np.ptp(times) * n_times / (n_times - 1) / 3 - 1)
    b = 1 / (freedom + 1)
    assert error**2 == pytest.approx(loops(values, weights, near) / (1 - b + b**2 / 3))
    assert Sampling(N, weights).error(values)[1] == N - 1
    plain = stats.sem(values)
    assert Sampling(N).error(values)[0] == pytest.approx(plain)
    assert Sampling(N, np.full(N, 3.0)).error(values)[0] == pytest.approx(plain)
    assert Sampling(N, np.full(N, 3.0)).n_effective() == pytest.approx(N)


@pytest.mark.parametrize("of_shares", [False, True])
def test_intervals_of_means_of_clusters_contain_them(of_shares):
    """400 sets of 30 clusters of unequal size, which vary by themselves."""
    rng = np.random.default_rng(2)
    clusters = np.repeat(np.arange(30), rng.integers(2, 9, 30))
    hits = plain = 0
    for _ in range(400):
        values = 0.7 * rng.normal(size=30)[clusters] + 0.7 * rng.normal(size=clusters.size)
        sampling = Sampling(clusters.size, None, clusters)
        truth, interval = 0.0, mean_interval
        if of_shares:
            values, truth, interval = values > 0, 0.5, wilson_interval
        low, high = interval(values, 0.95, sampling=sampling)
        hits += low <= truth <= high
        low, high = interval(values, 0.95)
        plain += low <= truth <= high
    assert 0.92 <= hits / 400 <= 0.98  # 0.95 but for three standard errors
    assert plain / 400 < 0.85


@pytest.fixture(scope="module")
def of_clusters():
    rng = np.random.default_rng(3)
    clusters, weights = np.repeat(np.arange(40), 4), rng.integers(1, 4, N)
    x = rng.normal(size=N)
    y = (x + 0.8 * rng.normal(size=40)[clusters] + 0.6 * rng.logistic(size=N)) > 0
    probabilities = 1 / (1 + np.exp(-x))
    names = [f"site {k:02}" for k in clusters]  # in the order of the numbers
    options = {"clusters": names, "weights": weights.tolist()}
    return cj.evaluate(probabilities, y, **options), probabilities, y, clusters, weights


def test_an_evaluation_of_clusters_and_weights(of_clusters):
    found, probabilities, y, clusters, weights = of_clusters
    test = cj.calibration_test(
        keys_of(0).test, found.predictions, found.targets, weights=weights, clusters=clusters
    )
    assert found.pvalue == pytest.approx(float(test.pvalue))
    n_effective = weights.sum() ** 2 / np.square(weights).sum()
    assert found.n_effective == pytest.approx(n_effective)
    brier = np.average((probabilities - y) ** 2, weights=weights)
    assert found.measures["Brier score"].value == pytest.approx(brier, rel=1e-5)
    expected = np.average(probabilities * (1 - probabilities), weights=weights)
    low, high = found.measures["Brier score"].if_calibrated
    assert low == high == pytest.approx(expected, rel=0.02)
    rows = np.repeat(np.arange(N), weights)
    smooth = cj.smooth_ece(found.predictions[rows], found.targets[rows])
    assert found.measures["smooth ECE"].value == pytest.approx(float(smooth), rel=1e-4)
    assert found.measures["ECE"].pvalue is None
    assert found.best_temperature is None and found.recalibrations == []


def test_words_and_files_of_clusters_and_weights(of_clusters):
    found = of_clusters[0]
    assert re.search(rf"\(p = {found.pvalue:.3g}, n = 160, .*40 clusters\)", found.verdict)
    printed = repr(found)
    for text in (
        "Dependent rows (40 clusters)",
        "effective sample size",
        "rows are dependent",
        "Weights: ",
    ):
        assert text in printed
    assert found.pvalue_of_neighbours is None
    saved = json.loads(found.to_json())
    assert saved["assumes"] == "40 clusters" and saved["n_effective"] < N
    page = found.to_html()
    assert "The range if calibrated is the mean of the number" in page
    assert "40 clusters" in page and "it rejects about 5" in page


def test_weighted_means_of_draws():
    """Weights of 2 are rows that come twice, in the ECE and all means but not in their spread."""
    rng = np.random.default_rng(4)
    probabilities, y = rng.random(50), rng.integers(0, 2, 50)
    twice = np.repeat(np.arange(50), 2)[: 50 + 20]
    weights = np.bincount(twice, minlength=50)
    kept = np.flatnonzero(weights)
    key, values = keys_of(0).measures, []
    for rows, w in ((twice, None), (kept, weights[kept])):
        data = as_data(cj.Bernoulli(jnp.asarray(probabilities[rows])), y[rows], weights=w)
        every_row = Subset.of(data, 0.95)
        found = label_measures(key, padded(data), every_row, 9)
        sizes = {name: rows.size if name.endswith(" events") else 1 for name in found}
        values.append([x(*every_row).value / sizes[name] for name, x in found.items()])
        for x in found.values():
            if getattr(x, "drawn", None) is not None:
                last = float(x.of_means(x.drawn[-1, 0]))
                assert last == pytest.approx(x(*every_row).value, rel=1e-9)
    assert values[0] == pytest.approx(values[1], rel=1e-4)


NOON = datetime.datetime(2026, 3, 31, 12)
DAYS = [20543.5, 20544.5]


@pytest.mark.parametrize(
    "times",
    [
        [NOON, NOON + datetime.timedelta(days=1)],
        ["2026-03-31 12:00", "2026-04-01T14:00+02:00"],
        np.array(["2026-03-31T12", "2026-04-01T12"], "datetime64[h]"),
        pd.Series(pd.to_datetime(["2026-03-31 12:00", "2026-04-01 12:00"])),
        pl.Series([NOON, NOON + datetime.timedelta(days=1)]),
    ],
)
def test_dates(times):
    for horizon in (4, datetime.timedelta(days=4), np.timedelta64(96, "h")):
        found = read_rows(times=times, horizon=horizon)
        assert found["times"].tolist() == DAYS and found["horizon"] == 4 and len(found) == 2
    clusters = read_rows(clusters=times)["clusters"]
    assert clusters.tolist() == [0, 1] and clusters.dtype == np.int32


def test_clusters_and_times_of_other_kinds():
    def read(name, value, horizon=None):
        return read_rows(**{name: value}, horizon=horizon)[name].tolist()

    assert read("clusters", ["b", "a", "b"]) == [1, 0, 1]
    assert read("clusters", pd.Series([7.0, 3.0])) == [1, 0]
    assert read("times", [[3], [1]], 2.5) == [3, 1]
    assert read("times", ["3", "1.5"], 2) == [3, 1.5]
    assert read("weights", pd.Series([1, 2])) == [1, 2]


@pytest.mark.parametrize(
    "options, message",
    [
        ({"times": ["2026-03-31", "soon"]}, "times, row 1: .* such as 2026-03-31, got soon"),
        ({"times": pd.Series([NOON, None])}, "times, row 1: expected a value, got nothing"),
        ({"times": [1.0, np.nan]}, "times, row 1: expected a value, got nothing"),
        ({"times": [1, 2], "horizon": datetime.timedelta(1)}, "horizon must be a number, as"),
        ({"times": [1, 2], "horizon": "7 days"}, "horizon must be a number of Python, got str"),
        ({"times": [1, 2], "clusters": [1, 2]}, "cannot be used together"),
        ({"horizon": 2}, "times must be given with a horizon"),
        ({"clusters": ["a", None]}, "clusters, row 1: expected a value, got nothing"),
        ({"clusters": ["a", "a"]}, "at least 2 different values"),
        ({"clusters": [[1, 2], [3, 4]]}, "clusters: expected one value in each row"),
        ({"clusters": [1, 2, 3]}, "clusters"),
        ({"weights": ["a", "b"]}, "weights, row 0: expected a finite number, got a"),
        ({"weights": [1, -1]}, "weights, row 1: expected a weight, which is not negative"),
        ({"weights": [1.0, 2, 3]}, "weights"),
    ],
)
def test_errors_of_rows(options, message):
    with pytest.raises((TypeError, ValueError), match=message):
        cj.evaluate([0.2, 0.7], [0, 1], **options)
