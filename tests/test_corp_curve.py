"""CORP: scikit-learn's isotonic regression, a published example, consistency bands."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special
from sklearn.isotonic import IsotonicRegression

import calibjax as cj
from calibjax._numbers.arithmetic import isotonic_frequencies as recalibrated
from calibjax.curves._corp_curve import bands, redrawn_curves

# How many of 52 members of the ensemble of ECMWF predicted rain at Niamey from July 1 to September
# 30, 2016, and whether it rained: Vogel et al., Statistical forecasts for the occurrence of
# precipitation outperform global models over northern tropical Africa, Geophysical Research
# Letters 2021; from products of ECMWF under the licence CC BY 4.0.
MEMBERS = """
44 38 21 42 49 50 20 41 33 42 52 52 48 40 31 25 46 52 52 52 52 40 51 52 52 49 23 49 51 24 50 48
39 52 52 36 46 48 52 52 51 52 48 38 41 52 52 52 52 49 10 35 17 46 52 52 47 52 52 52 42 42 9 27
31 49 51 36 36 47 50 49 52 19 33 52 51 11 31 20 46 44 36 43 47 8 34 47 48 7 6 10
"""
RAIN = """
0110110010101001111110110101011001001011101111
1111000110111101111011010110100000010110110000
"""


def niamey():
    members = np.array(MEMBERS.split(), float)
    return members / 52, np.array(list(RAIN.replace("\n", "")), int)


def data_with_ties(n=300, digits=2):
    rng = np.random.default_rng(0)
    p = np.round(rng.uniform(size=n), digits)
    return p, (rng.uniform(size=n) < p**1.5).astype(int)


@pytest.mark.parametrize("digits", [2, 15])
def test_isotonic_regression(digits, float64):
    p, y = data_with_ties(digits=digits)
    curve = cj.corp_curve(cj.Bernoulli(p), y)
    np.testing.assert_array_equal(curve.forecasts, np.unique(p))
    assert curve.count.sum() == 300
    expected = IsotonicRegression().fit(p, y).predict(np.unique(p))
    np.testing.assert_allclose(curve.recalibrated, expected, rtol=1e-12)


@pytest.mark.parametrize("data", [niamey, data_with_ties])
@pytest.mark.parametrize("score", ["brier", "log"])
def test_decomposition(data, score, float64):
    p, y = data()
    p = np.clip(p, 0.01, 0.99)
    curve = cj.corp_curve(cj.Bernoulli(p), y, score=score)

    def mean_score(x):
        brier = np.mean((x - y) ** 2)
        return brier if score == "brier" else -np.mean(np.log(np.where(y == 1, x, 1 - x)))

    isotonic = mean_score(IsotonicRegression().fit(p, y).predict(p))
    total, constant = mean_score(p), mean_score(np.full(p.size, y.mean()))
    expected = total, total - isotonic, constant - isotonic, constant
    parts = curve.score, curve.miscalibration, curve.discrimination, curve.uncertainty
    np.testing.assert_allclose(parts, expected, rtol=1e-10)
    assert min(parts) > 0


def test_rain_at_niamey(float64):
    curve = cj.corp_curve(cj.Bernoulli(niamey()[0]), niamey()[1])
    parts = curve.score, curve.miscalibration, curve.discrimination, curve.uncertainty
    assert np.round(parts, 3).tolist() == [0.266, 0.066, 0.044, 0.244]


def test_impossible_event_has_an_infinite_log_score():
    curve = cj.corp_curve(cj.Bernoulli(np.array([0.0, 0.5, 0.8])), np.array([1, 0, 1]), score="log")
    assert curve.score == curve.miscalibration == np.inf
    assert np.isfinite([curve.discrimination, curve.uncertainty]).all()
    right = cj.corp_curve(cj.Bernoulli(np.array([0.0, 1.0])), np.array([0, 1]), score="log")
    assert (right.score, right.miscalibration) == (0, 0)


def test_bands_hold_for_their_share_of_redrawn_curves():
    # By the definition, from the curves themselves.
    p, y = data_with_ties()
    forecasts, place, count = np.unique(p, return_inverse=True, return_counts=True)
    observed = recalibrated(np.bincount(place, y), count)
    points = np.arange(forecasts.size)
    redrawn = redrawn_curves(np.array([0]), forecasts, place, np.ones(p.size), points, 199)
    low, high, all_low, all_high = bands(forecasts, observed, redrawn, 190)
    # A critical curve may be one of several equally distant ones.
    assert 190 <= np.sum(np.all((redrawn >= all_low) & (redrawn <= all_high), axis=1)) < 195
    inside = np.sum((redrawn >= low) & (redrawn <= high), axis=0)
    assert inside.min() == 190 and np.median(inside) < 195
    assert np.all((all_low <= low) & (low <= forecasts) & (forecasts <= high) & (high <= all_high))
    # At the ends of the band all deviances are one multiple of their means.
    ends = special.rel_entr(all_high, forecasts) + special.rel_entr(1 - all_high, 1 - forecasts)
    curves = np.vstack([redrawn, observed])
    of_curves = special.rel_entr(curves, forecasts) + special.rel_entr(1 - curves, 1 - forecasts)
    free = (all_high < 1) & (forecasts > 0)
    ratios = ends[free] / of_curves.mean(0)[free]
    np.testing.assert_allclose(ratios, ratios[0], rtol=1e-6)


def test_bands_find_what_is_wrong():
    rng = np.random.default_rng(0)
    p = rng.uniform(size=400)
    curve = cj.corp_curve(
        cj.Bernoulli(p), rng.uniform(size=400) < p**2, key=jax.random.key(0), n_resamples=99
    )
    assert curve.grid.size == 200 and curve.confidence_level == 0.95
    at_grid = curve.recalibrated[np.isin(curve.forecasts, curve.grid)]
    below = at_grid < curve.simultaneous_low
    assert below[50:150].any() and not np.any(at_grid > curve.simultaneous_high)


def test_impossible_events_leave_the_band():
    p = np.array([0.0] * 5 + [0.5] * 20)
    right = np.arange(25) % 2 * (p > 0)
    for y, wrong in [(right, False), (right + (np.arange(25) == 0), True)]:
        curve = cj.corp_curve(cj.Bernoulli(p), y.astype(int), key=jax.random.key(0), n_resamples=99)
        assert curve.simultaneous_low[0] == curve.simultaneous_high[0] == 0
        assert (curve.recalibrated[0] > curve.simultaneous_high[0]) == wrong
        assert np.isfinite(curve.simultaneous_high).all() and curve.simultaneous_high[1] < 1


def test_masked_rows_do_not_count():
    p, y = data_with_ties(40)
    where = np.arange(40) % 3 > 0
    masked = cj.corp_curve(cj.Bernoulli(np.where(where, p, np.nan)), y, where=where)
    kept = cj.corp_curve(cj.Bernoulli(p[where]), y[where])
    jax.tree.map(np.testing.assert_array_equal, masked, kept)


def test_errors():
    p, y = cj.Bernoulli(jnp.array([0.2, 0.4])), jnp.array([0, 1])
    with pytest.raises(ValueError, match="score must be one of brier, log, got 'crps'"):
        cj.corp_curve(p, y, score="crps")
    with pytest.raises(TypeError, match="corp_curve must be called outside of jit"):
        jax.jit(lambda p: cj.corp_curve(p, y).score)(p)
    with pytest.raises(TypeError, match="key must be a typed key"):
        cj.corp_curve(p, y, key=0)
    with pytest.raises(TypeError, match="predictions must be Bernoulli"):
        cj.corp_curve(cj.Categorical(jnp.full((2, 2), 0.5)), y)


SIMULATED = {
    "uniform": lambda rng: rng.uniform(size=200),
    "rare": lambda rng: 0.01 * rng.uniform(size=300),
    "ties": lambda rng: np.round(rng.uniform(size=200), 1),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", SIMULATED)
def test_simultaneous_coverage(case):
    rng, n = np.random.default_rng(0), 4000
    p = SIMULATED[case](rng)
    forecasts, place, count = np.unique(p, return_inverse=True, return_counts=True)
    ones = np.ones(p.size)
    points = np.arange(forecasts.size)[:200]
    covered = 0
    for number in range(n):
        observed = recalibrated(rng.binomial(count, forecasts), count)[points]
        redrawn = redrawn_curves(np.array([number, 1]), forecasts, place, ones, points, 99)
        *_, low, high = bands(forecasts[points], observed, redrawn, 95)
        covered += np.all((observed >= low) & (observed <= high))
    assert abs(covered / n - 0.95) < 0.01
