"""Reliability curves: counts, and consistency bands by enumeration of all data sets."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from marks import slow
from scipy import special, stats
from sklearn.calibration import calibration_curve

import calibjax as cj
from calibjax.nulls.bands import Bins

KEY = jax.random.key(0)


def outside(curve, band="simultaneous"):
    """Which bins leave the band, ``[b]``."""
    low, high = getattr(curve, f"{band}_low"), getattr(curve, f"{band}_high")
    return (curve.frequency < low) | (curve.frequency > high)


def test_counts(dtype):
    rng = np.random.default_rng(0)
    p = rng.uniform(0.2, 1, 300)
    y = (rng.uniform(size=300) < p).astype(int)
    curve = cj.reliability_curve(KEY, cj.Bernoulli(jnp.asarray(p, dtype)), y, n_bins=5)
    edges = np.linspace(0, 1, 6)
    np.testing.assert_allclose(curve.edges, edges, rtol=1e-6)
    count, _ = np.histogram(p, edges)
    np.testing.assert_array_equal(curve.count, count)
    assert count[0] == 0
    for field, x in [("forecast", p), ("frequency", y)]:
        found = getattr(curve, field)
        assert found.dtype == dtype and np.isnan(found[0])
        np.testing.assert_allclose(
            found[1:], np.histogram(p, edges, weights=x)[0][1:] / count[1:], rtol=1e-6
        )
    for band in ("pointwise", "simultaneous"):
        low, high = getattr(curve, f"{band}_low"), getattr(curve, f"{band}_high")
        assert np.isnan(low[0]) and np.isnan(high[0])
        assert np.all((low <= curve.forecast) & (curve.forecast <= high) | (count == 0))
    assert np.all(curve.simultaneous_low[1:] <= curve.pointwise_low[1:])
    assert np.all(curve.simultaneous_high[1:] >= curve.pointwise_high[1:])


def test_bins_are_closed_on_the_right():
    p = jnp.array([0.0, 0.5, 0.5000001, 1.0])
    curve = cj.reliability_curve(KEY, cj.Bernoulli(p), jnp.zeros(4, int), n_bins=2)
    assert curve.count.tolist() == [2, 2]


@pytest.mark.slow
def test_quantile_bins_are_those_of_scikit_learn():
    """Of 300 rare events, with one probability that a third of the rows share, and masked rows."""
    rng = np.random.default_rng(5)
    p = rng.beta(0.5, 20, size=300).astype(np.float32)
    p[:100] = 0.01
    y, options = rng.random(300) < 3 * p, {"n_bins": 5, "strategy": "quantile", "n_resamples": 19}
    rows = cj.Bernoulli(np.append(p, [0.9] * 40)), np.append(y, [1] * 40)
    data = cj.Data(*rows, where=np.arange(340) < 300)
    curve = cj.reliability_curve(KEY, data, **options)
    filled, edges = np.asarray(curve.count) > 0, np.asarray(curve.edges)
    assert curve.count.sum() == 300 and curve.count.max() >= 100
    assert edges[0] == p.min() and edges[-1] == p.max()
    bins = np.searchsorted(edges[1:-1], p)
    means = [(p[bins == b].mean(), y[bins == b].mean()) for b in np.unique(bins)]
    found = np.stack([curve.forecast, curve.frequency], axis=1)[filled]
    np.testing.assert_allclose(found, means, rtol=1e-5)
    of_all = cj.witness_map(KEY, data, **options)
    np.testing.assert_allclose(of_all.probability_edges, edges)
    np.testing.assert_array_equal(of_all.count[0], curve.count)
    # Without ties each bin has 60 rows, as in scikit-learn.
    q = rng.permutation(np.linspace(0.001, 0.2, 300).astype(np.float32))
    curve = cj.reliability_curve(KEY, cj.Bernoulli(q), y, **options)
    expected = calibration_curve(y, q, n_bins=5, strategy="quantile")
    np.testing.assert_allclose([curve.frequency, curve.forecast], expected, rtol=1e-5)


def test_band_of_a_critical_distance(float64):
    # The definition of the distance, for every number of events.
    p = [
        np.array([0.01, 0.02, 0.03]),
        np.linspace(0.4, 0.6, 40),
        np.full(7, 0.999),
        np.array([0.2]),
    ]
    bins = Bins(
        *(jnp.array([f(x) for x in p]) for f in (np.mean, lambda x: np.mean(1 - x))),
        jnp.array([np.sum(x * (1 - x)) for x in p]),
        jnp.array([x.size for x in p], "int32"),
    )
    for critical in (0.5, 1.0, 4.0, 12.0):
        low, high = bins.band(jnp.asarray(critical))
        for b, x in enumerate(p):
            n, mean = x.size, x.mean()
            k = np.arange(n + 1)
            divergence = special.rel_entr(k / n, mean) + special.rel_entr(1 - k / n, 1 - mean)
            distance = 2 * n * divergence * n * mean * (1 - mean) / np.sum(x * (1 - x))
            inside = (k / n >= low[b]) & (k / n <= high[b])
            np.testing.assert_array_equal(inside, distance <= critical)


@pytest.mark.parametrize("case", slow({"rare"}, ["different", "ties", "rare"]))
def test_level_by_enumeration(case, float64):
    # Bands do not depend on the targets: the probability to leave them is a sum over all targets.
    p = {
        "different": [0.1, 0.3, 0.35, 0.6, 0.7, 0.9, 0.95, 0.2],
        "ties": [0.2, 0.2, 0.2, 0.2, 0.8, 0.8, 0.8, 0.8],
        "rare": [0.01, 0.02, 0.01, 0.03, 0.05, 0.01, 0.9, 0.01],
    }[case]
    targets = np.array(list(itertools.product([0, 1], repeat=8)))
    weights = np.prod(np.where(targets == 1, p, 1 - np.array(p)), axis=1)
    predictions, frequencies = cj.Bernoulli(jnp.asarray(p)), []
    place = np.ceil(np.array(p) * 4).astype(int) - 1
    for b in range(4):
        members = place == b
        frequencies.append(targets[:, members].sum(1) / max(1, members.sum()))

    @jax.jit
    def left(key):
        zeros = jnp.zeros(8, int)
        options = {"n_bins": 4, "confidence_level": 0.8, "n_resamples": 19}
        curve = cj.reliability_curve(key, predictions, zeros, **options)
        found = jnp.stack([jnp.asarray(x) for x in frequencies], axis=1)
        low, high = curve.simultaneous_low[None], curve.simultaneous_high[None]
        pointwise = (found < curve.pointwise_low[None]) | (found > curve.pointwise_high[None])
        return jnp.any((found < low) | (found > high), axis=1), pointwise

    all_bins, each_bin = jax.lax.map(left, jax.random.split(KEY, 400))
    levels = weights @ np.asarray(all_bins).T
    error = levels.std() / 20
    assert levels.mean() < 0.2 + 3 * error
    # With ties a level that can be reached is far below.
    assert levels.mean() > {"different": 0.1, "ties": 0.05, "rare": 0.02}[case]
    of_bins = np.einsum("t,ktb->kb", weights, np.asarray(each_bin))
    assert np.all(of_bins.mean(0) < 0.2 + 3 * of_bins.std(0) / 20 + 1e-12)


def test_pointwise_band_of_equal_forecasts(float64):
    curve = cj.reliability_curve(
        KEY, cj.Bernoulli(jnp.full(300, 0.3)), jnp.zeros(300, int), n_bins=2, n_resamples=3999
    )
    law = stats.binom(300, 0.3)
    low, high = np.round(300 * curve.pointwise_low[0]), np.round(300 * curve.pointwise_high[0])
    assert 0.94 < law.cdf(high) - law.cdf(low - 1) < 0.965
    # One bin with rows: both bands are one.
    assert curve.simultaneous_low[0] == curve.pointwise_low[0]


def test_certain_and_impossible_events():
    predictions = cj.Bernoulli(jnp.array([0.0, 0.0, 1.0, 1.0]))
    curve = cj.reliability_curve(KEY, predictions, jnp.array([0, 0, 1, 1]), n_bins=3)
    assert not outside(curve).any()
    assert curve.simultaneous_low[::2].tolist() == curve.simultaneous_high[::2].tolist() == [0, 1]
    curve = cj.reliability_curve(KEY, predictions, jnp.array([0, 1, 1, 1]), n_bins=3)
    assert outside(curve).tolist() == [True, False, False]
    # In one bin their mean is 1/2, and cannot be another number.
    curve = cj.reliability_curve(KEY, predictions, jnp.array([0, 0, 1, 1]), n_bins=1)
    assert not outside(curve).any()
    np.testing.assert_allclose(curve.simultaneous_high, 0.5, rtol=1e-6)


def test_masked_rows_do_not_count():
    p, y = jnp.linspace(0.05, 0.95, 40), jnp.arange(40) % 2
    where = jnp.arange(40) % 3 > 0
    masked = cj.reliability_curve(
        KEY, cj.Bernoulli(jnp.where(where, p, jnp.nan)), y, where=where, n_bins=4
    )
    kept = cj.reliability_curve(KEY, cj.Bernoulli(p[where]), y[where], n_bins=4)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), masked, kept)


@pytest.mark.slow
def test_invalid_rows_inside_jit():
    @jax.jit
    def curve(p, level=0.95):
        return cj.reliability_curve(
            KEY,
            cj.Bernoulli(p),
            jnp.array([0, 1, 1]),
            n_bins=2,
            confidence_level=level,
            n_resamples=99,
        )

    p = jnp.array([0.2, 0.4, 0.9])
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(curve(p)))
    bad = curve(p.at[0].set(2.0))
    assert np.isnan(bad.frequency).all() and np.isnan(bad.simultaneous_low).all()
    # 99 data sets have no band of this level.
    assert np.isnan(curve(p, 0.995).simultaneous_low).all()


def test_errors():
    predictions, targets = cj.Bernoulli(jnp.array([0.2, 0.4])), jnp.array([0, 1])
    with pytest.raises(ValueError, match="confidence_level must be at most 19 / 20 with 19"):
        cj.reliability_curve(KEY, predictions, targets, n_resamples=19, confidence_level=0.96)
    with pytest.raises(ValueError, match="n_bins must be between 1"):
        cj.reliability_curve(KEY, predictions, targets, n_bins=0)
    with pytest.raises(TypeError, match="top_label"):
        cj.reliability_curve(KEY, cj.Categorical(jnp.full((2, 2), 0.5)), targets)


# Forecasts whose bands are simulated: with many events, with few, with ties, with empty bins.
SIMULATED = {
    "uniform": lambda rng: rng.uniform(size=500),
    "sharp": lambda rng: rng.beta(0.3, 0.3, 500),
    "rare": lambda rng: 0.008 * rng.uniform(size=500),
    "some rare": lambda rng: np.where(np.arange(500) < 100, 1.0, 0.02) * rng.uniform(size=500),
    "ties": lambda rng: np.round(rng.uniform(size=200), 1),
    "few rows": lambda rng: rng.uniform(size=30),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", SIMULATED)
def test_simultaneous_coverage(case):
    p = SIMULATED[case](np.random.default_rng(0)).astype("float32")
    predictions, n = cj.Bernoulli(jnp.asarray(p)), 6000

    @jax.jit
    def left(key):
        draws, targets = jax.random.split(key)
        curve = cj.reliability_curve(
            draws, predictions, predictions.sample(targets), n_resamples=199
        )
        return jnp.any(outside(curve))

    covered = 1 - np.mean(jax.lax.map(left, jax.random.split(KEY, n)))
    error = np.sqrt(0.95 * 0.05 / n)
    assert covered > 0.95 - 3 * error
    # Few rows, rare events and ties make few different distances: none of them is quite at 95 %.
    if case in ("uniform", "sharp"):
        assert covered < 0.95 + 3 * error
