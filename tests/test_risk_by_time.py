"""Risks by the times of survival curves and their Brier score, by hand and against SciPy."""

import dataclasses
import warnings

import jax.numpy as jnp
import numpy as np
import pytest
from messages import check_message
from scipy import integrate, stats
from statsmodels.duration.hazard_regression import PHReg

import calibjax as cj
from calibjax import plot
from calibjax._data.data import as_data
from calibjax.evaluation._directions import time_in_words
from calibjax.evaluation._evaluation import Evaluation
from calibjax.evaluation._report._figures import pictures_of
from calibjax.evaluation._rows import CENSORING
from calibjax.measures.measure import MeasureResult, Subset
from calibjax.measures.risk_by_time import KaplanMeier, Lifetimes, measures_by_time
from calibjax.measures.sampling import Sampling
from calibjax.recalibration.cross_fitting import row_scores

TIMES, SEEN = jnp.array([2.0, 4.0]), jnp.array([1.0, 1.5, 3.0, 5.0, 5.0, 6.0])
OBSERVED = jnp.array([True, False, True, False, True, False])
CURVES = cj.SurvivalCurve(TIMES, jnp.tile(jnp.array([0.9, 0.4]), (6, 1)))
Z = stats.norm.ppf(0.975)


def by_time(predictions, targets, index=None, **rows):
    data = as_data(predictions, targets, intervals=True, **rows)
    (some,) = Subset.of(data, 0.95, index)
    found = {name: x(some) for name, x in measures_by_time(data).items()}
    return {name: x for name, x in found.items() if x is not None}


def test_risks_by_the_times_of_a_curve():
    """By hand: 1 - (1 - 1/6)(1 - 1/4) after events at 1 and 3, with 6 and 4 rows at risk."""
    targets = cj.IntervalCensored.right_censored(SEEN, OBSERVED)
    found = by_time(CURVES, targets)
    names = [f"{x} by {t}" for t in (2, 4) for x in ("risk", "observed / expected")]
    assert list(found) == [*names, "integrated Brier score"]
    risks = [found["risk by 2"], found["risk by 4"]]
    predicted, shares, ends = map(
        np.array, zip(*[(x.if_calibrated[0], x.value, x.interval) for x in risks], strict=True)
    )
    np.testing.assert_allclose(predicted, [0.1, 0.6], rtol=1e-6)
    np.testing.assert_allclose(shares, [1 / 6, 1 - 5 / 6 * 3 / 4], rtol=1e-12)
    # Greenwood: log(-log S) +- z sqrt(sum d / (n (n - d))) / |log S|.
    survival = 1 - shares
    half = Z * np.sqrt(np.cumsum([1 / 30, 1 / 12])) / np.log(survival)
    np.testing.assert_allclose(
        ends, np.stack([1 - survival ** np.exp(s * half) for s in (1, -1)], axis=1), rtol=1e-5
    )
    ratio = found["observed / expected by 4"]
    assert ratio.value == pytest.approx(0.375 / 0.6) and ratio.if_calibrated == (1, 1)
    # By 4: two events, S(4) / S(1.5) = .4 / .925 of what was censored then, and three rows later.
    residuals = np.array([0.4, 0.4 - 0.4 / 0.925, 0.4, -0.6, -0.6, -0.6])
    at_end = np.array([0.95, 0.925, 0.65, 0.4, 0.4, 0.4])  # S where each row was last seen
    variance = np.sum(np.square(0.4 / at_end) - 0.4**2) / 2
    assert risks[1].pvalue == pytest.approx(2 * stats.norm.sf(abs(residuals.sum()) / variance**0.5))


def test_nothing_is_known_of_later_times():
    """Rows were seen until 6: of later times nothing is known, but if nobody is left there."""
    targets = cj.IntervalCensored.right_censored(SEEN, OBSERVED)
    later = dataclasses.replace(CURVES, times=jnp.tile(jnp.array([6.0, 7.0]), (6, 1)))
    assert list(by_time(later, targets)) == ["risk by 6", "observed / expected by 6"]
    seen_at_last = cj.IntervalCensored.right_censored(SEEN, OBSERVED | (SEEN == 6))
    found = by_time(later, seen_at_last)
    assert [(found[f"risk by {t}"].value, found[f"risk by {t}"].interval) for t in (6, 7)] == [
        (1, None)
    ] * 2
    after = dataclasses.replace(CURVES, times=later.times + 1)
    assert not by_time(after, targets)


RNG, N = np.random.default_rng(0), 60
SCALE = np.exp(RNG.normal(size=N))
GRID = np.array([0.5, 1.0, 1.5, 2.5])
PROBS = np.exp(-GRID / SCALE[:, None])
LIFETIME, END = SCALE * RNG.exponential(size=N), RNG.exponential(2.0, N)
TIME = np.ceil(4 * np.minimum(LIFETIME, END)) / 4  # with ties
EVENT = LIFETIME <= END
MODEL = cj.SurvivalCurve(GRID.astype("float32"), PROBS.astype("float32"))
TARGETS = cj.IntervalCensored.right_censored(TIME.astype("float32"), EVENT)


def graf(probs, time, event):
    """The Brier score of each row, integrated, with P(censored at t or later) by plain loops."""

    def uncensored(t, including):
        product = 1.0
        for s in np.unique(time[~event]):
            if s < t or (including and s == t):
                at_risk = np.sum(time > s) + np.sum((time == s) & ~event)
                product *= 1 - np.sum((time == s) & ~event) / at_risk
        return product

    scores = np.zeros((len(time), GRID.size))
    for i, (t, is_event) in enumerate(zip(time, event, strict=True)):
        for k, at in enumerate(GRID):
            if t > at:
                scores[i, k] = (1 - probs[i, k]) ** 2 / uncensored(at, True)
            elif is_event:
                scores[i, k] = probs[i, k] ** 2 / uncensored(t, False)
    return integrate.trapezoid(scores, GRID, axis=1) / (GRID[-1] - GRID[0])


@pytest.mark.parametrize("index", [np.arange(N), np.arange(0, N, 2)])
def test_integrated_brier_score(index):
    found = by_time(MODEL, TARGETS, [index])["integrated Brier score"]
    scores = graf(PROBS[index], TIME[index], EVENT[index])
    assert found.value == pytest.approx(scores.mean(), rel=1e-5)
    if index.size == N:
        np.testing.assert_allclose(row_scores(MODEL, TARGETS), scores, rtol=1e-4, atol=1e-6)
    half = stats.t.ppf(0.975, index.size - 1) * stats.sem(scores)
    np.testing.assert_allclose(found.interval, scores.mean() + half * np.array([-1, 1]), atol=0.02)


def test_weights_and_copies():
    """A row of weight 2 is two rows; a cluster of two copies is one row."""
    twice = np.where(np.arange(N) % 3 == 0, 2, 1)
    copies = np.repeat(np.arange(N), twice)
    weighted = by_time(MODEL, TARGETS, weights=twice.astype("float32"))
    repeated = by_time(MODEL[copies], TARGETS.right_censored(TIME[copies], EVENT[copies]))
    assert [x.value for x in weighted.values()] == pytest.approx(
        [x.value for x in repeated.values()], rel=1e-5
    )
    both = np.repeat(np.arange(N), 2)
    alone, found = (
        by_time(MODEL, TARGETS),
        by_time(MODEL[both], TARGETS.right_censored(TIME[both], EVENT[both]), clusters=both),
    )
    for name, x in alone.items():
        np.testing.assert_allclose(found[name].interval, x.interval, rtol=0.1)
        if x.pvalue is not None:
            assert found[name].pvalue == pytest.approx(x.pvalue, abs=0.1)


def test_derivatives_of_kaplan_and_meier():
    """Against differences in the weights, and the sum of their squares is Greenwood's."""
    shares = Sampling(N, np.ones(N))
    estimate = KaplanMeier(TIME, EVENT, shares)
    for row in (0, 7, int(np.argmax(TIME))):
        sides = []
        for step in (1e-4, -1e-4):
            weights = np.ones(N)
            weights[row] += step
            sides.append(KaplanMeier(TIME, EVENT, Sampling(N, weights)).risk(1.5))
        expected = N * (sides[0] - sides[1]) / 2e-4
        assert estimate.influence(1.5)[row] == pytest.approx(expected, rel=1e-5)
    censored = stats.CensoredData(TIME[EVENT], right=TIME[~EVENT])
    found = stats.ecdf(censored).sf
    assert estimate.risk(1.5) == pytest.approx(1 - found.evaluate(1.5))
    with pytest.warns(RuntimeWarning, match="undefined"):  # where nobody or everybody is left
        low, high = found.confidence_interval(0.95, method="log-log")
    ends = KaplanMeier(TIME, EVENT, Sampling(N)).interval(1.5, 0.95)
    expected = 1 - high.evaluate(1.5), 1 - low.evaluate(1.5)
    np.testing.assert_allclose(ends, expected, rtol=1e-9)


def test_level_where_censoring_depends_on_the_prediction():
    """P-values are uniform, though Kaplan and Meier's estimate is biased here."""
    rng, found, n = np.random.default_rng(1), [], 200
    for _ in range(300):
        risk = rng.normal(size=n)
        lifetime, end = (
            np.exp(-risk) * rng.exponential(size=n),
            np.exp(risk) * rng.exponential(size=n),
        )
        curves = np.exp(-np.exp(risk)[:, None] * GRID)
        data = Lifetimes(GRID, curves, np.minimum(lifetime, end), lifetime <= end)
        residuals, variances = data.residuals(2)
        found.append([residuals.sum() / variances.sum() ** 0.5, data.is_event.mean()])
    z, _ = np.array(found).T
    assert stats.kstest(z, stats.norm.cdf).pvalue > 0.01


def test_censoring_that_depends_on_the_predicted_risk_is_said():
    """The score test of Cox regression on whether the risk is high, by statsmodels."""
    is_high, notes = 1.0 * (PROBS[:, 0] < np.median(PROBS[:, 0])), []
    for end in RNG.exponential(size=N), RNG.exponential(size=N) * SCALE**2:
        time, event = np.minimum(LIFETIME, end).astype("float32"), LIFETIME <= end
        model = PHReg(time, is_high[:, None], status=~event)
        score, curvature = model.score(np.zeros(1))[0], -model.hessian(np.zeros(1))[0, 0]
        data = as_data(MODEL, cj.IntervalCensored.right_censored(time, event), intervals=True)
        found = Lifetimes.of(data).pvalue_of_censoring()
        assert found == pytest.approx(2 * stats.norm.sf(abs(score) / curvature**0.5), rel=1e-5)
        notes.append(CENSORING.notes(Evaluation(data, None, 0.05, 0))[1:])
    assert notes[0] == [] and notes[1][0].startswith(
        "Censoring depends on the predicted risk (p < 0.001)"
    )


def test_the_first_time_in_words():
    def risk(predicted, observed, pvalue):
        return MeasureResult(observed, (0.1, 0.5), (predicted, predicted), pvalue)

    early, late = risk(0.1, 0.11, 0.5), risk(0.6, 0.375, 0.02)
    said = (
        "risk by 4: predicted 60.0 %, observed 37.5 % (Kaplan-Meier), "
        "p = 0.04 adjusted for 2 time points"
    )
    both = {"risk by 2": early, "events": late, "risk by 4": late}
    assert time_in_words(both, 0.05) == said and time_in_words(both, 0.03) is None
    later = time_in_words(both | {"risk by 2": late}, 0.05)
    assert later.startswith("risk by 2 (and at later times): predicted")
    first = {"risk by 2": late, "risk by 4": early}
    assert time_in_words(first, 0.05).startswith("risk by 2: predicted")
    assert time_in_words({"risk by 4": late}, 0.05).endswith("(Kaplan-Meier), p = 0.02")


@pytest.mark.parametrize("weights", [None, np.where(np.arange(N) % 3 == 0, 2, 1)])
def test_groups_of_predicted_risk(weights):
    """Halves by the median of the scale, each against SciPy's estimate of Kaplan and Meier."""
    options = {} if weights is None else {"weights": weights.astype("float32")}
    curve = cj.risk_curve(MODEL, TARGETS, time=1.5, n_bins=2, **options)
    halves = SCALE > np.median(SCALE), SCALE <= np.median(SCALE)
    for k, half in enumerate(halves):
        copies = np.repeat(np.arange(N), 1 if weights is None else weights)
        some = copies[half[copies]]
        right = TIME[some][~EVENT[some]]
        observed = stats.ecdf(stats.CensoredData(TIME[some][EVENT[some]], right=right)).sf
        assert curve.observed[k] == pytest.approx(1 - observed.evaluate(1.5))
        assert curve.predicted[k] == pytest.approx(np.mean(1 - PROBS[some, 2]), rel=1e-5)
        assert curve.count[k] == half.sum()
        if weights is None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                ends = observed.confidence_interval(0.95, method="log-log")
            expected = [1 - end.evaluate(1.5) for end in (ends.high, ends.low)]
            np.testing.assert_allclose([curve.low[k], curve.high[k]], expected, rtol=1e-6)
    ax = plot.risk(curve)
    assert ax.get_title("left") == "Risk by 1.5, 60 rows in 2 groups"
    shown = np.concatenate([x.lines[0].get_xydata() for x in ax.containers])
    np.testing.assert_allclose(np.sort(shown[:, 1]), np.sort(curve.observed))


def test_groups_of_equal_risk_and_of_nobody():
    curve = cj.risk_curve(CURVES, cj.IntervalCensored.right_censored(SEEN, OBSERVED), time=3.0)
    assert curve.predicted == pytest.approx([0.35]) and curve.observed == pytest.approx([0.375])
    until_2 = cj.IntervalCensored.right_censored(jnp.minimum(SEEN, 2.0), OBSERVED & (SEEN <= 2))
    curve = cj.risk_curve(CURVES, until_2, time=3.0)
    assert cj.risk_curve(CURVES, until_2).time == 1.0  # the median of the times of events
    assert np.isnan([curve.observed, curve.low, curve.high]).all() and curve.count == [6]
    for call, error, message in [
        (
            lambda: cj.risk_curve(CURVES, SEEN, time=4.5),
            ValueError,
            "in .0, 4., where curves end, got 4.5",
        ),
        (lambda: cj.risk_curve(CURVES, SEEN, time=0.0), ValueError, "got 0.0"),
        (
            lambda: cj.risk_curve(CURVES, cj.IntervalCensored(SEEN, SEEN + 1), time=1.0),
            ValueError,
            "censored on the right",
        ),
        (
            lambda: cj.risk_curve(cj.Poisson(jnp.ones(2)), jnp.array([1, 2]), time=1.0),
            TypeError,
            "real numbers, got Poisson",
        ),
        (lambda: plot.risk(MODEL), TypeError, "RiskCurve, got SurvivalCurve"),
    ]:
        check_message(call, error, message)


def test_an_evaluation_has_the_curve_of_its_middle_time():
    data = as_data(MODEL, TARGETS, intervals=True)
    evaluation = Evaluation(data, None, 0.05, 0)
    assert list(evaluation.curves) == ["risk"] and evaluation.curves["risk"].time == 1.5
    curve, (risk, null) = evaluation.curves["risk"], pictures_of(evaluation)
    outside = (curve.predicted < curve.low) | (curve.predicted > curve.high)
    assert (risk.name, risk.outside, null.name) == ("risk", f"{outside.sum()} of 10", "null")
    assert "axes_1" in risk.svg()
