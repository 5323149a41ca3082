"""Cumulative errors and the averaged two-bin error, by loops, enumeration and simulated paths."""

import itertools

import jax
import numpy as np
import pytest
from scipy.stats import norm

import calibjax as cj
from calibjax.estimators._ecce import tail_of_maximum, tail_of_range

N = 60
RNG = np.random.default_rng(0)
# Some probabilities are equal.
PROBS = RNG.integers(1, 40, N).astype(np.float32) / 40
EVENTS = RNG.integers(0, 2, N)
WEIGHTS = RNG.integers(0, 4, N).astype(np.float32)
WHERE = RNG.random(N) < 0.8
CASES = {
    "plain": (None, None),
    "weights": (None, WEIGHTS),
    "where": (WHERE, None),
    "both": (WHERE, WEIGHTS),
}


def sums_up_to(probs, events, counts):
    """C at each different probability, by a loop, and sigma."""
    shares = counts / counts.sum()
    residuals = shares * (events - probs)
    sums = [residuals[probs <= place].sum() for place in np.unique(probs)]
    return np.array([0.0, *sums]), np.sqrt(np.sum(shares**2 * probs * (1 - probs)))


@pytest.mark.parametrize("where, weights", CASES.values(), ids=CASES.keys())
def test_loops(where, weights):
    kept = np.ones(N, bool) if where is None else where
    counts = np.ones(N) if weights is None else weights.astype(float)
    sums, sigma = sums_up_to(PROBS[kept].astype(float), EVENTS[kept], counts[kept])
    # Masked rows may hold anything.
    probs = np.where(kept, PROBS, np.nan).astype(np.float32)
    found = cj.ecce(cj.Bernoulli(probs), EVENTS, where=where, weights=weights)
    np.testing.assert_allclose(found.mad, np.abs(sums).max(), rtol=1e-5)
    np.testing.assert_allclose(found.range, np.ptp(sums), rtol=1e-5)
    np.testing.assert_allclose(found.sigma, sigma, rtol=1e-5)
    kept_probs, kept_counts = PROBS[kept].astype(float), counts[kept]
    residuals = kept_counts / kept_counts.sum() * (kept_probs - EVENTS[kept])

    def two_bins(t):
        below = kept_probs < t
        return residuals[below].sum() ** 2 + residuals[~below].sum() ** 2

    # The integrand is a step function with steps at multiples of 1/40.
    expected = np.mean([two_bins((k + 0.5) / 40) for k in range(40)])
    error = cj.atb(cj.Bernoulli(probs), EVENTS, where=where, weights=weights)
    np.testing.assert_allclose(error, expected, rtol=1e-5)


def test_order_of_equal_probabilities_means_nothing():
    order = RNG.permutation(N)
    first = cj.ecce(cj.Bernoulli(PROBS), EVENTS)
    again = cj.ecce(cj.Bernoulli(PROBS[order]), EVENTS[order])
    np.testing.assert_allclose(first, again, rtol=1e-5)
    equal = cj.ecce(cj.Bernoulli(np.full(N, 0.5, np.float32)), EVENTS)
    np.testing.assert_allclose(equal.mad, abs(EVENTS.mean() - 0.5), rtol=1e-5)


def test_certain_predictions():
    certain = cj.Bernoulli((np.arange(N) % 2).astype(np.float32))
    right = cj.ecce(certain, np.arange(N) % 2)
    wrong = cj.ecce(certain, np.zeros(N, int))
    assert right.mad == right.range == 0 and right.mad_pvalue == right.range_pvalue == 1
    assert wrong.mad == 0.5 and wrong.mad_pvalue == wrong.range_pvalue == 0


def test_pvalues_are_near_those_of_redrawn_targets():
    def mad(predictions, targets):
        return cj.ecce(predictions, targets).mad

    probs = ((np.arange(N) + 0.5) / N).astype(np.float32)
    events = (np.arange(N) * 0.618 % 1 < 0.8 * probs).astype(int)
    exact = cj.consistency_test(jax.random.key(0), mad, cj.Bernoulli(probs), events)
    limit = cj.ecce(cj.Bernoulli(probs), events).mad_pvalue
    assert 0.01 < exact.pvalue < 0.2 and abs(exact.pvalue - limit) < 0.05


def test_truthful_by_enumeration():
    """The expected ATB is least at the truth, where it is sum p (1 - p) / n^2; the ECE's is not."""
    truth = np.array([0.15, 0.4, 0.6, 0.6])
    worlds = np.array(list(itertools.product((0, 1), repeat=4)))
    chance = np.prod(np.where(worlds, truth, 1 - truth), axis=1)
    values = jax.jit(jax.vmap(cj.atb, (None, 0)))
    expected = chance @ values(cj.Bernoulli(truth.astype(np.float32)), worlds)
    np.testing.assert_allclose(expected, np.sum(truth * (1 - truth)) / 16, rtol=1e-5)
    lies = np.clip(truth + RNG.normal(0, 0.15, (40, 4)), 0, 1).astype(np.float32)
    for lie in lies:
        assert chance @ values(cj.Bernoulli(lie), worlds) > expected
    # What is the same for all rows and right on average is calibrated, too.
    mean = cj.Bernoulli(np.full(4, truth.mean(), np.float32))
    np.testing.assert_allclose(chance @ values(mean, worlds), expected, rtol=1e-5)
    binning = cj.UniformBinning(2)
    two = np.array(list(itertools.product((0, 1), repeat=2)))
    chance = np.prod(np.where(two, [0.4, 0.6], [0.6, 0.4]), axis=1)
    honest, together = (
        sum(
            c * cj.ece(cj.Bernoulli(np.array(p, np.float32)), y, binning=binning)
            for c, y in zip(chance, two, strict=True)
        )
        for p in ([0.4, 0.6], [0.5, 0.5])
    )
    assert together < honest


X = np.linspace(0, 12, 4001)
TAILS = np.asarray(jax.jit(lambda x: (tail_of_maximum(x), tail_of_range(x)))(X.astype(np.float32)))


def test_laws_have_their_means():
    """The mean of a positive number is the integral of its tail."""
    for values, mean in zip(
        TAILS.astype(float), ((np.pi / 2) ** 0.5, (8 / np.pi) ** 0.5), strict=True
    ):
        assert np.all(np.diff(values) <= 1e-6) and values[0] == 1
        np.testing.assert_allclose(np.trapezoid(values, X), mean, rtol=1e-4)


def test_laws_have_quantiles_of_paths():
    """P(max |B| > x) is twice that of one side, up to paths that reach both, and of walks."""
    one_side = 4 * norm.sf(X)
    np.testing.assert_allclose(TAILS[0][X > 3], one_side[X > 3], rtol=1e-3, atol=1e-12)
    paths = np.cumsum(RNG.normal(size=(1000, 1000)), axis=1) / 1000**0.5
    highest, lowest = np.maximum(paths.max(axis=1), 0), np.minimum(paths.min(axis=1), 0)
    # A walk sees less than its path, on each side by 0.58 steps on average (Chernoff 1965).
    missed = 0.5826 / 1000**0.5
    sizes = np.maximum(highest, -lowest) + missed, highest - lowest + 2 * missed
    for values, size in zip(TAILS, sizes, strict=True):
        for level in (0.05, 0.2, 0.5):
            found = np.interp(np.quantile(size, 1 - level), X, values)
            assert abs(found - level) < 3 * (level * (1 - level) / 1000) ** 0.5


@pytest.mark.slow
def test_levels():
    """Of calibrated models a share of the level has small p-values."""

    def pvalues(key):
        logits, events = jax.random.split(key)
        p = cj.Bernoulli.from_logits(1.5 * jax.random.normal(logits, (500,)))
        return cj.ecce(p, p.sample(events))[3:]

    found = jax.jit(jax.vmap(pvalues))(jax.random.split(jax.random.key(0), 2000))
    for values in found:
        for level in (0.05, 0.2):
            error = (level * (1 - level) / 2000) ** 0.5
            assert level - 3 * error - 0.02 < np.mean(values <= level) < level + 3 * error
