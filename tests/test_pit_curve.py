"""Curves of the PIT and of coverage: their values by NumPy and SciPy, their bands by simulation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import calibjax as cj

KEY = jax.random.key(0)
LOC, SCALE = np.linspace(-2.0, 2.0, 80), np.linspace(0.5, 2.0, 80)
TARGETS = LOC + 2.0 * SCALE * np.random.default_rng(0).normal(size=80)
PREDICTIONS = cj.Normal(jnp.asarray(LOC), jnp.asarray(SCALE))
PLACES = stats.norm.cdf(TARGETS, LOC, SCALE)


def test_the_curve_of_the_pit():
    curve = cj.pit_curve(KEY, PREDICTIONS, jnp.asarray(TARGETS), n_bins=8)
    counts, edges = np.histogram(PLACES, 8, (0.0, 1.0))
    np.testing.assert_array_equal(curve.count, counts)
    np.testing.assert_allclose(curve.edges, edges, rtol=1e-6)
    np.testing.assert_allclose(curve.density, counts / 10, rtol=1e-6)
    ecdf = stats.ecdf(PLACES).cdf.evaluate(np.asarray(curve.grid))
    np.testing.assert_allclose(curve.difference, ecdf - np.asarray(curve.grid), atol=1e-6)
    # Bands contain 0 and become narrow at both ends, where the distribution function is known.
    low, high = np.asarray(curve.difference_low), np.asarray(curve.difference_high)
    assert (low <= 0).all() and (high >= 0).all()
    np.testing.assert_allclose([low[0], high[0], low[-1], high[-1]], 0, atol=1e-6)
    # Twice over-confident: more targets in the tails than the band allows.
    assert curve.density[0] > curve.density_high[0]


def test_pointwise_bands_are_binomial():
    curve = cj.pit_curve(KEY, PREDICTIONS, jnp.asarray(TARGETS), n_bins=8)
    law = stats.binom(80, 1 / 8)
    low, high = (np.round(np.asarray(x) * 10) for x in (curve.pointwise_low, curve.pointwise_high))
    inside = law.cdf(high) - law.cdf(low - 1)
    assert (inside >= 0.94).all()
    # One count fewer at either end is no band of 95 %.
    assert (law.cdf(high - 1) - law.cdf(low) < 0.95).all()


def test_the_curve_of_coverage():
    curve = cj.coverage_curve(KEY, PREDICTIONS, jnp.asarray(TARGETS), n_levels=9)
    levels = np.arange(1, 10) / 10
    low, high = stats.norm.interval(levels[:, None], LOC, SCALE)
    np.testing.assert_allclose(curve.levels, levels, rtol=1e-6)
    inside = np.mean((low <= TARGETS) & (TARGETS <= high), axis=1)
    np.testing.assert_allclose(curve.coverage, inside, rtol=1e-6)
    np.testing.assert_allclose(curve.width, np.median(high - low, axis=1), rtol=1e-4)
    assert (np.asarray(curve.coverage) < np.asarray(curve.low))[5:].any()
    with pytest.raises(TypeError, match="labels have no central intervals"):
        cj.coverage_curve(KEY, cj.Bernoulli(jnp.full(3, 0.5)), jnp.array([0, 1, 1]))


def test_masked_rows_do_not_count():
    where = jnp.arange(80) % 2 == 0
    targets = jnp.where(where, jnp.asarray(TARGETS), jnp.nan)
    for function in cj.pit_curve, cj.coverage_curve:
        masked = function(KEY, PREDICTIONS, targets, where=where)
        alone = function(KEY, PREDICTIONS[::2], targets[::2])
        for ours, theirs in zip(jax.tree.leaves(masked), jax.tree.leaves(alone), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_masked_rows_take_no_random_number():
    rates, where = jnp.linspace(0.5, 3.0, 80), np.arange(80) % 3 > 0
    counts = jnp.asarray(np.random.default_rng(1).poisson(rates))
    predictions, options = cj.Poisson(rates, max_count=30), {"n_resamples": 19}
    masked = jnp.where(where, counts, -1)
    found = cj.pit_curve(KEY, predictions, masked, where=where, **options)
    expected = cj.pit_curve(KEY, predictions[where], counts[where], **options)
    np.testing.assert_array_equal(found.count, expected.count)
