"""D-calibration: beside SurvivalEVAL, and its p-values."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import calibjax as cj

INDEX = np.arange(40)
U, V = (INDEX * 0.6180339887498949) % 1, (INDEX * 0.41421356237309515) % 1
TIME, OBSERVED, SCALE = 0.05 + 2.5 * U, V > 0.4, 0.5 + 1.5 * V


def test_the_numbers_of_survival_eval(float64):
    """Version 0.9.0: d_calibration(exp(-(TIME / SCALE)**1.5), OBSERVED, num_bins=10)."""
    predictions = cj.Weibull(np.full(40, 1.5), SCALE)
    found = cj.d_calibration(predictions, cj.IntervalCensored.right_censored(TIME, OBSERVED))
    np.testing.assert_allclose(found.statistic, 14.089946139464942, rtol=1e-9)
    np.testing.assert_allclose(found.pvalue, 0.11916145047303763, rtol=1e-9)
    counts = [
        *(1.1851936407069699, 4.31275626214367, 2.4419012062032786, 2.5800212701351546),
        *(1.6793856977406616, 3.8392870291702073, 4.140553190936507, 3.5986285219269005),
        *(6.611136590518326, 9.611136590518326),
    ]
    np.testing.assert_allclose(found.counts, counts, rtol=1e-9)


def test_known_targets_and_counts():
    """Known targets are a histogram; a count is spread over the jump of its cdf."""
    loc = np.linspace(-1, 1, 30)
    y = loc + np.random.default_rng(0).normal(size=30)
    found = cj.d_calibration(cj.Normal(jnp.asarray(loc), jnp.ones(30)), jnp.asarray(y), n_bins=5)
    counts = np.histogram(stats.norm.cdf(y, loc), 5, (0, 1))[0]
    np.testing.assert_allclose(found.counts, counts, atol=1e-5)
    statistic, pvalue = stats.chisquare(counts)
    np.testing.assert_allclose(found[:2], (statistic, pvalue), rtol=1e-4)
    coin = cj.d_calibration(cj.Bernoulli(jnp.full(2, 0.5)), jnp.array([0, 1]), n_bins=4)
    np.testing.assert_allclose(coin.counts, 0.5, rtol=1e-6)


def test_masked_and_invalid_rows():
    predictions = cj.Weibull(jnp.full(40, 1.5), jnp.asarray(SCALE))
    where = np.arange(40) % 4 > 0
    targets = cj.IntervalCensored.right_censored(np.where(where, TIME, np.nan), OBSERVED)
    function = jax.jit(lambda where: cj.d_calibration(predictions, targets, where=where))
    kept = cj.IntervalCensored.right_censored(TIME[where], OBSERVED[where])
    expected = cj.d_calibration(predictions[where], kept)
    for ours, theirs in zip(function(where), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4)
    assert all(np.isnan(x).all() for x in function(np.ones(40, bool)))
    with pytest.raises(ValueError, match="n_bins must be between 2 and 16777216, got 1"):
        cj.d_calibration(predictions, kept, n_bins=1)
