"""Calibration slope and intercept against statsmodels, and data in which there is none."""

import re

import numpy as np
import pytest
import statsmodels.api as sm
from messages import check_message
from scipy.special import expit, logit
from scipy.stats import chi2, f, spearmanr, t

import calibjax as cj
from calibjax.measures.events import spline_basis

N = 200
RNG = np.random.default_rng(0)
PROBS = expit(RNG.normal(-0.5, 1.5, N)).astype(np.float32)
EVENTS = (RNG.random(N) < expit(0.3 + 0.6 * logit(PROBS))).astype(int)
LOGITS = logit(PROBS.astype(np.float64))


def binomial(probs, events, weights=None):
    """The fits with a slope, and with the slope 1, and the deviance of given numbers."""
    options = {"family": sm.families.Binomial(), "freq_weights": weights}
    logits, ones = logit(probs.astype(np.float64)), np.ones((len(probs), 1))
    both = sm.GLM(events, sm.add_constant(logits), **options).fit()
    alone = sm.GLM(events, ones, offset=logits, **options).fit()

    def profile(slope):
        return sm.GLM(events, ones, offset=slope * logits, **options).fit().deviance

    def of_intercept(a):
        mean = expit(a + logits)
        log_likelihood = np.where(events, np.log(mean), np.log1p(-mean))
        return -2 * np.sum(log_likelihood * (1 if weights is None else weights))

    return both, alone, profile, of_intercept


@pytest.mark.parametrize("level", [0.95, 0.5])
def test_statsmodels(level):
    found = cj.logistic_calibration(cj.Bernoulli(PROBS), EVENTS, confidence_level=level)
    both, alone, profile, of_intercept = binomial(PROBS, EVENTS)
    np.testing.assert_allclose(found.slope.estimate, both.params[1], rtol=1e-6)
    np.testing.assert_allclose(found.joint_intercept, both.params[0], atol=1e-6)
    np.testing.assert_allclose(found.intercept.estimate, alone.params[0], atol=1e-6)
    quantile = chi2.ppf(level, 1)
    for end in (found.slope.low, found.slope.high):
        np.testing.assert_allclose(profile(end) - both.deviance, quantile, rtol=1e-5)
    for end in (found.intercept.low, found.intercept.high):
        np.testing.assert_allclose(of_intercept(end) - alone.deviance, quantile, rtol=1e-5)
    ratio = of_intercept(0.0) - both.deviance
    np.testing.assert_allclose(found.pvalue, chi2.sf(ratio, 2), rtol=1e-5)
    # The interval of Wald is near.
    np.testing.assert_allclose(
        [found.slope.low, found.slope.high], both.conf_int(1 - level)[1], atol=0.04
    )


def test_observed_over_expected_and_distances():
    found = cj.logistic_calibration(cj.Bernoulli(PROBS), EVENTS)
    ratio = found.observed_over_expected
    np.testing.assert_allclose(ratio.estimate, EVENTS.sum() / PROBS.sum(), rtol=1e-6)
    # The delta method (Debray 2017): log(O / E) has the variance (1 - share) / events.
    error = np.sqrt((1 - EVENTS.mean()) / EVENTS.sum())
    expected = ratio.estimate * np.exp(np.array([-1.96, 1.96]) * error)
    np.testing.assert_allclose([ratio.low, ratio.high], expected, atol=0.02)
    basis = spline_basis(np.log(PROBS) - np.log1p(-PROBS))
    curve = sm.GLM(EVENTS, basis, family=sm.families.Binomial()).fit().fittedvalues
    np.testing.assert_allclose(found.ici, np.abs(curve - PROBS).mean(), atol=1e-5)
    assert "joint test, intercept 0 and slope 1: p = " in repr(found)


def test_weights_are_rows_that_stand_there_again():
    """Estimates are those of copies; intervals are wider, since copies say nothing new."""
    weights = 1.0 + np.arange(N) % 3
    found = cj.logistic_calibration(cj.Bernoulli(PROBS), EVENTS, weights=weights)
    both, alone, *_ = binomial(PROBS, EVENTS, weights)
    np.testing.assert_allclose(found.slope.estimate, both.params[1], rtol=1e-6)
    np.testing.assert_allclose(found.intercept.estimate, alone.params[0], atol=1e-6)
    effective = weights.sum() ** 2 / np.sum(weights**2)
    width = both.bse[1] * np.sqrt(weights.sum() / effective) * 2 * 1.96
    np.testing.assert_allclose(found.slope.high - found.slope.low, width, rtol=0.03)


def test_clusters_have_sandwich_errors():
    """Those of statsmodels, with Student's quantile; its factor (N - 1) / (N - k) is left out."""
    clusters = np.arange(N) // 4
    found = cj.logistic_calibration(cj.Bernoulli(PROBS), EVENTS, clusters=clusters)
    options = {"cov_type": "cluster", "cov_kwds": {"groups": clusters}}
    models = binomial(PROBS, EVENTS)[:2]
    both, alone = (model.model.fit(**options) for model in models)
    degrees, quantile = clusters.max(), t.ppf(0.975, clusters.max())
    for interval, model in ((found.slope, both), (found.intercept, alone)):
        error = quantile * model.bse[-1]
        expected = model.params[-1] + error * np.array([0, -1, 1])
        np.testing.assert_allclose(interval, expected, rtol=0.01)
    away = both.params - [0, 1]
    size = away @ np.linalg.solve(both.cov_params(), away)
    pvalue = f.sf(size * (degrees - 1) / (2 * degrees), 2, degrees - 1)
    np.testing.assert_allclose(found.pvalue, pvalue, rtol=0.05)
    none = cj.logistic_calibration(cj.Bernoulli(PROBS), 0 * EVENTS, clusters=clusters)
    assert none.intercept.estimate == -np.inf and np.isnan(none.intercept.high)


def test_masked_rows_do_not_count():
    where = np.arange(N) < 150
    probs = np.where(where, PROBS, 1.0).astype(np.float32)
    masked = cj.logistic_calibration(cj.Bernoulli(probs), EVENTS, where=where)
    alone = cj.logistic_calibration(cj.Bernoulli(PROBS[:150]), EVENTS[:150])
    np.testing.assert_allclose(masked.slope, alone.slope, rtol=1e-6)
    assert masked.n_rows == 150


@pytest.mark.parametrize("event", [0, 1])
def test_one_outcome_has_no_slope(event):
    found = cj.logistic_calibration(cj.Bernoulli(PROBS), np.full(N, event))
    sign = 2 * event - 1
    assert found.intercept.estimate == sign * np.inf and np.isnan(found.slope.estimate)
    assert np.isnan(found.pvalue) and "the slope is undefined" in repr(found)
    finite = found.intercept.low if event else found.intercept.high
    # At this end the likelihood of what happened is exp(-chi2 / 2).
    p = expit(finite + LOGITS)
    likelihood = np.log(p if event else 1 - p).sum()
    np.testing.assert_allclose(-2 * likelihood, chi2.ppf(0.95, 1), rtol=1e-6)
    if not event:
        assert found.observed_over_expected.estimate == 0 < found.observed_over_expected.high


@pytest.mark.parametrize("sign", [1, -1])
def test_separated_rows_have_an_infinite_slope(sign):
    order = np.argsort(np.argsort(sign * PROBS))
    found = cj.logistic_calibration(cj.Bernoulli(PROBS), order >= 80)
    assert found.slope.estimate == sign * np.inf and "the slope is infinite" in found.note
    finite = found.slope.low if sign > 0 else found.slope.high
    assert np.isfinite(finite) and finite * sign > 0 and spearmanr(order, PROBS)[0] * sign > 0.9
    # One row of each kind with the probability that parts them: the slope is infinite still.
    tied = PROBS.copy()
    tied[order == 80] = tied[order == 79]
    ties = cj.logistic_calibration(cj.Bernoulli(tied), order >= 80)
    assert ties.slope.estimate == sign * np.inf and np.isfinite(ties.pvalue)


def test_equal_probabilities_have_no_slope():
    found = cj.logistic_calibration(cj.Bernoulli(np.full(N, 0.5, np.float32)), EVENTS)
    assert np.isnan(found.slope.estimate) and "all probabilities are equal" in found.note
    np.testing.assert_allclose(found.intercept.estimate, logit(EVENTS.mean()), atol=1e-6)


ERRORS = {
    "certain": (
        lambda: cj.logistic_calibration(
            cj.Bernoulli(np.where(np.arange(N) < 3, 1.0, PROBS)), EVENTS
        ),
        ValueError,
        "predictions must be above 0 and below 1, got 3 of 200 rows at 0 or 1",
    ),
    "classes": (
        lambda: cj.logistic_calibration(cj.Categorical(np.full((N, 2), 0.5)), EVENTS),
        TypeError,
        "predictions must be Bernoulli(probs), got Categorical",
    ),
}


@pytest.mark.parametrize("call, kind, words", ERRORS.values(), ids=ERRORS.keys())
def test_errors(call, kind, words):
    check_message(call, kind, re.escape(words))
