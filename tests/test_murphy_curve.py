"""Losses of decision makers by loops over them, as parts of the Brier score, and coverage."""

import re

import jax
import numpy as np
import pytest
from messages import check_message
from scipy.special import expit
from scipy.stats import binomtest, norm

import calibjax as cj
from calibjax import plot

KEY = jax.random.key(0)
N = 80
RNG = np.random.default_rng(0)
# Some probabilities are thresholds.
PROBS = (RNG.integers(1, 20, N) / 20).astype(np.float32)
OTHER = (RNG.integers(1, 200, N) / 200).astype(np.float32)
EVENTS = (RNG.random(N) < PROBS).astype(int)
WEIGHTS = RNG.integers(0, 4, N).astype(np.float32)
WHERE = RNG.random(N) < 0.8
AT = np.array([0.05, 0.3, 0.5, 0.85])
P = cj.Bernoulli(PROBS)


def lost(probs, events, at):
    """What each row loses beside somebody who knows the event, ``[n, t]``."""
    rows = [
        [at_most * (not y) if round(float(p), 6) > at_most else (1 - at_most) * y for at_most in at]
        for p, y in zip(probs, events, strict=True)
    ]
    return np.array(rows, float)


def test_loops():
    curve = cj.murphy_curve(KEY, P, EVENTS, thresholds=AT)
    losses = lost(PROBS, EVENTS, AT)
    np.testing.assert_allclose(curve.loss, losses.mean(axis=0), rtol=1e-9)
    at_half = losses[:, 2] > 0
    # At 1/2 a loss is one half, or nothing: a share of rows, for which one loss more is counted.
    wilson = [
        binomtest(int(at_half.sum()) + more, N + more).proportion_ci(0.95, method="wilson")
        for more in (0, 1)
    ]
    assert wilson[0].high / 2 < curve.pointwise_high[2] < wilson[1].high / 2
    assert 0 <= wilson[0].low / 2 - curve.pointwise_low[2] < 0.01
    ratio = (curve.loss - curve.simultaneous_low) / (curve.loss - curve.pointwise_low)
    # Both end at 0 at the first threshold.
    ratio = ratio[1:]
    # Between one threshold and four independent ones.
    np.testing.assert_allclose(ratio, ratio[0], rtol=1e-9)
    assert 1 < ratio[0] < norm.ppf(1 - 0.025 / 4) / norm.ppf(0.975) + 0.05
    constant = np.full(N, EVENTS.mean())
    np.testing.assert_allclose(curve.base_rate_loss, lost(constant, EVENTS, AT).mean(axis=0))


def test_differences_with_weights_and_masks():
    probs = np.where(WHERE, PROBS, np.nan).astype(np.float32)
    options = {"thresholds": AT, "where": WHERE, "weights": WEIGHTS}
    curve = cj.murphy_curve(KEY, cj.Bernoulli(probs), EVENTS, other=cj.Bernoulli(OTHER), **options)
    losses = lost(PROBS, EVENTS, AT) - lost(OTHER, EVENTS, AT)
    shares = WHERE * WEIGHTS.astype(float)
    n, shares = np.sum(shares > 0), shares / shares.sum()
    np.testing.assert_allclose(curve.loss, shares @ losses, atol=1e-9)
    deviations, part, r = losses - shares @ losses, np.sum(shares**2), np.maximum(AT, 1 - AT)
    variance = shares**2 @ deviations**2 * n / (n - 1)
    for sign, end in ((1, curve.pointwise_high), (-1, curve.pointwise_low)):
        x = sign * (end - curve.loss)
        third, second = sign * (shares @ deviations**3), shares @ deviations**2
        ratio = np.maximum((third + part * r**3) / (second + part * r**2), 0.0)
        expected = 1.959964**2 * (variance + part * (ratio * x - x**2))
        np.testing.assert_allclose(x**2, expected, rtol=1e-5)
    assert curve.is_difference and (curve.simultaneous_low < curve.pointwise_low).all()


def test_brier_score_is_twice_the_integral():
    at = (np.arange(4000) + 0.5) / 4000
    curve = cj.murphy_curve(KEY, P, EVENTS, thresholds=at, n_resamples=19)
    brier = np.mean((PROBS - EVENTS) ** 2)
    np.testing.assert_allclose(2 * curve.loss.mean(), brier, rtol=1e-3)


def test_clusters_are_units():
    """Four copies of each row in one cluster have the errors of the rows alone."""
    copies = np.repeat(np.arange(N), 4)
    once = cj.murphy_curve(KEY, P, EVENTS, thresholds=AT)
    again = cj.murphy_curve(
        KEY, cj.Bernoulli(PROBS[copies]), EVENTS[copies], thresholds=AT, clusters=copies
    )
    np.testing.assert_allclose(again.loss, once.loss, rtol=1e-9)
    np.testing.assert_allclose(again.pointwise_high, once.pointwise_high, rtol=1e-9)
    # The largest of normal errors is drawn in another way, to some percent.
    np.testing.assert_allclose(again.simultaneous_high, once.simultaneous_high, rtol=0.05)


def test_equal_models_differ_nowhere():
    """Then z^2 / (n + z^2) of all rows may have another loss, as if none of n rows has an event."""
    curve = cj.murphy_curve(KEY, P, EVENTS, other=P, thresholds=AT)
    assert (curve.loss == 0).all()
    most = 1.959964**2 / (N + 1.959964**2) * np.maximum(AT, 1 - AT)
    np.testing.assert_allclose(curve.pointwise_high, most, rtol=1e-6)
    np.testing.assert_allclose(curve.pointwise_low, -most, rtol=1e-6)


def test_picture():
    curve = cj.murphy_curve(KEY, P, EVENTS)
    ax = plot.murphy(curve)
    lines = {line.get_label(): line.get_ydata() for line in ax.lines}
    np.testing.assert_array_equal(lines["model"], curve.loss)
    np.testing.assert_array_equal(lines["base rate"], curve.base_rate_loss)
    pair = cj.murphy_curve(KEY, P, EVENTS, other=cj.Bernoulli(OTHER))
    assert "difference" in plot.murphy(pair).get_ylabel()
    with pytest.raises(TypeError, match="must be a MurphyCurve"):
        plot.murphy(EVENTS)


ERRORS = {
    "thresholds": (
        lambda: cj.murphy_curve(KEY, P, EVENTS, thresholds=np.array([0.5, 0.2])),
        ValueError,
        "thresholds must increase within (0, 1), got [0.5, 0.2]",
    ),
    "other": (
        lambda: cj.murphy_curve(KEY, P, EVENTS, other=PROBS),
        TypeError,
        "other must be a distribution",
    ),
    "one cluster": (
        lambda: cj.murphy_curve(KEY, P, EVENTS, clusters=np.zeros(N, int)),
        ValueError,
        "clusters must hold at least 2 different numbers, got 1",
    ),
    "level": (
        lambda: cj.murphy_curve(KEY, P, EVENTS, confidence_level=0.999, n_resamples=99),
        ValueError,
        "confidence_level must be at most",
    ),
}


@pytest.mark.parametrize("call, kind, words", ERRORS.values(), ids=ERRORS.keys())
def test_errors(call, kind, words):
    check_message(call, kind, re.escape(words))


@pytest.mark.slow
def test_bands_cover_expected_losses():
    """The band of 90 % of 300 rows contains all expected losses at least as often."""
    at, n_sets = np.arange(1, 20) / 20, 400
    logits = np.random.default_rng(1).normal(size=200_000)
    # The expected losses of a model whose logits are twice too large.
    acts = expit(2 * logits)[:, None] > at
    p = expit(logits)[:, None]
    expected = np.mean(np.where(acts, at * (1 - p), (1 - at) * p), axis=0)
    inside = 0
    for seed in range(n_sets):
        rng = np.random.default_rng(seed + 2)
        x = rng.normal(size=300)
        events = (rng.random(300) < expit(x)).astype(int)
        model = cj.Bernoulli(expit(2 * x).astype(np.float32))
        options = {"thresholds": at, "confidence_level": 0.9, "n_resamples": 199}
        curve = cj.murphy_curve(jax.random.key(seed), model, events, **options)
        inside += np.all(
            (curve.simultaneous_low <= expected) & (expected <= curve.simultaneous_high)
        )
    assert inside / n_sets > 0.9 - 3 * (0.09 / n_sets) ** 0.5, inside / n_sets
