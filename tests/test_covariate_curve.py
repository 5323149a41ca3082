"""Errors as a function of a covariate, against loops of NumPy, and what was planted."""

import jax
import numpy as np
import pytest

import calibjax as cj
import calibjax.plot
from calibjax import plot

N, KEY = 400, jax.random.key(5)
RNG = np.random.default_rng
AGE = RNG(0).uniform(20, 80, N)
KIND = RNG(1).choice(["a", "b", "c"], N)
PROBS = RNG(2).uniform(0.2, 0.8, N).astype(np.float32)
EVENTS = (RNG(3).uniform(size=N) < PROBS).astype(np.int32)
WEIGHTS = RNG(4).uniform(0.2, 2.0, N).astype(np.float32)
OPTIONS = {"n_bins": 5, "n_resamples": 99}


def of_events(covariate, targets=EVENTS, **options):
    return cj.covariate_curve(KEY, cj.Bernoulli(PROBS), targets, covariate, **OPTIONS, **options)


def test_rates_of_bins_are_those_of_plain_loops():
    where = np.arange(N) % 5 > 0
    curve = of_events({"age": AGE}, weights=WEIGHTS, where=where)
    ages, w, p, y = (x[where].astype(float) for x in (AGE, WEIGHTS, PROBS, EVENTS))
    # Fifths of 320 different ages.
    fifths = np.argsort(ages).reshape(5, 64)
    for c, rows in enumerate(fifths):
        assert (curve.least[c], curve.most[c]) == (ages[rows].min(), ages[rows].max())
        assert curve.least[c] < curve.positions[c] < curve.most[c] and curve.count[c] == 64
        error = np.average(y[rows] - p[rows], weights=w[rows])
        np.testing.assert_allclose(curve.value[0, c], error, atol=1e-5)
        predicted = np.average(p[rows], weights=w[rows])
        np.testing.assert_allclose(curve.predicted[0, c], predicted, rtol=1e-5)
    np.testing.assert_allclose(curve.overall[0], np.average(y - p, weights=w), atol=1e-5)


def test_bands_and_intervals_agree():
    curve = of_events({"age": AGE}, targets=(AGE > 65).astype(np.int32))
    value, significant = curve.value, curve.significant
    np.testing.assert_array_equal(significant, (value < curve.low) | (value > curve.high))
    is_off = (curve.interval_low > 0) | (curve.interval_high < 0)
    np.testing.assert_array_equal(significant, is_off)
    assert significant[0, [0, 4]].all() and curve.pvalue == pytest.approx(0.01)


def test_categories_and_small_cells():
    kinds = np.where(np.arange(N) < 5, "rare", KIND)
    curve = of_events({"kind": kinds})
    assert curve.categories == ("a", "b", "c", "rare") and curve.name == "kind"
    assert np.isnan(curve.value[:, 3]).all() and not curve.significant[:, 3].any()
    rows = kinds == "b"
    np.testing.assert_allclose(curve.value[0, 1], np.mean(EVENTS[rows] - PROBS[rows]), atol=1e-5)
    labels = [x.get_text() for x in plot.covariate(curve, statistic="rate").get_xticklabels()]
    assert labels == ["a", "b", "c"]


def test_few_numbers_and_times_have_a_cell_each():
    months = RNG(6).integers(1, 5, N)
    of_numbers = of_events({"month": months})
    np.testing.assert_array_equal(of_numbers.positions, [1, 2, 3, 4])
    days = np.datetime64("2026-01-01") + months.astype("m8[D]")
    of_days = of_events({"day": days})
    np.testing.assert_array_equal(of_days.positions, np.unique(days))
    np.testing.assert_array_equal(of_days.value, of_numbers.value)


def test_a_planted_wave_is_found():
    x = RNG(7).uniform(size=N)
    wave = 0.8 * np.sin(2 * np.pi * x)
    targets = (wave + RNG(8).normal(size=N)).astype(np.float32)
    predictions = cj.Normal(np.zeros(N, np.float32), np.ones(N, np.float32))
    curve = cj.covariate_curve(KEY, predictions, targets, {"x": x}, **OPTIONS)
    assert curve.clearest() == "location"
    truth = np.array([np.mean(wave[part]) for part in np.array_split(np.argsort(x), 5)])
    # The intervals hold for all cells at once, here with 95 %.
    value, low, high = (y[0] for y in (curve.value, curve.interval_low, curve.interval_high))
    assert np.all((low <= truth) & (truth <= high))
    np.testing.assert_array_equal(np.sign(value[[0, 1, 3, 4]]), [1, 1, -1, -1])
    assert curve.significant[0, [1, 3]].all() and not curve.significant[0, 2]
    axes = plot.covariate(curve)
    assert axes.get_xlabel() == "x" and "predicted deviations" in axes.get_ylabel()


@pytest.mark.slow
def test_the_band_holds_for_all_cells_at_once():
    n_sets, level, outside = 400, 0.1, 0
    for seed in range(n_sets):
        rng = RNG(seed)
        events = (rng.uniform(size=N) < PROBS).astype(np.int32)
        curve = cj.covariate_curve(
            jax.random.key(seed),
            cj.Bernoulli(PROBS),
            events,
            {"x": AGE},
            confidence_level=1 - level,
            **OPTIONS,
        )
        outside += curve.significant.any()
    # The score of all rows together counts too, which is not shown.
    deviation = np.sqrt(level * (1 - level) / n_sets)
    assert level - 5 * deviation <= outside / n_sets <= level + 3 * deviation


def test_errors():
    with pytest.raises(ValueError, match="covariate must be one column, got age, kind"):
        of_events({"age": AGE, "kind": KIND})
    with pytest.raises(TypeError, match="covariate must be a mapping of names"):
        of_events(AGE)
    with pytest.raises(ValueError, match="age of covariate must be known in every row; row 3 is"):
        of_events({"age": np.where(np.arange(N) == 3, np.nan, AGE)})
    with pytest.raises(ValueError, match="age of covariate must have two values, got 1"):
        of_events({"age": np.ones(N)})
    with pytest.raises(ValueError, match="must have at most 64 categories, got 400"):
        of_events({"name": np.arange(N).astype(str)})
    with pytest.raises(TypeError, match="must hold real numbers, times or categories"):
        of_events({"age": 1j * AGE})
    with pytest.raises(ValueError, match="statistic must be one of rate, sureness, got 'spread'"):
        plot.covariate(of_events({"age": AGE}), statistic="spread")
    with pytest.raises(TypeError, match="must be called outside of jit"):
        jax.jit(lambda y: of_events({"age": AGE}, targets=y))(EVENTS)
