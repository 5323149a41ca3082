"""Maps of the unit interval: laws beside SciPy, fits, and forecasts in every form."""

import dataclasses
import json

import jax
import numpy as np
import pytest
from messages import calls, check_message
from scipy import stats
from scipy.interpolate import CubicSpline
from scipy.optimize import minimize
from scipy.special import expit, ndtr, ndtri

import calibjax as cj
from calibjax._data.data import as_data
from calibjax.recalibration._cross_validation import parts_of
from calibjax.recalibration._fit_numbers import OF_NUMBERS
from calibjax.recalibration._pit_map import apply_pit_map
from calibjax.recalibration._pit_map_fits import (
    LEVELS,
    PIT_MAP_FITS,
    PITMapRows,
    fit_pit_spline,
    seen_cells,
)

N = 400
LOC = np.random.default_rng(0).normal(size=N).astype(np.float32)
# Forecasts say the standard deviation 0.6, and it is 1; they are 0.2 too low.
TARGETS = (LOC + 0.2 + np.random.default_rng(1).normal(size=N)).astype(np.float32)
NORMAL = cj.Normal(LOC, np.full(N, 0.6, np.float32))
SCORES = ndtri(LEVELS)
QUANTILES = cj.Quantiles((LOC[:, None] + 0.6 * SCORES).astype(np.float32), LEVELS)
SAMPLES = (LOC[:, None] + 0.6 * np.random.default_rng(2).normal(size=(N, 9))).astype(np.float32)
EMPIRICAL = cj.Empirical(SAMPLES)
FORMS = {"density": NORMAL, "quantiles": QUANTILES, "samples": EMPIRICAL}
mapped = jax.jit(apply_pit_map, static_argnums=2)


def shares():
    """How often U is at most each level."""
    u = stats.norm(LOC, 0.6).cdf(TARGETS)
    return np.mean(u[:, None] <= np.array(LEVELS), axis=0)


# The law


def test_density_of_a_bent_map_integrates_to_its_cdf(float64):
    levels = (0.1, 0.3, 0.5, 0.9)
    p = cj.Recalibrated(
        cj.Normal(np.zeros(1), np.ones(1)), np.array([[0.05, 0.4, 0.5, 0.7]]), levels
    )
    y = np.linspace(-12, 12, 240_001)
    rows = jax.tree.map(lambda x: np.broadcast_to(x, (y.size, *x.shape[1:])), p)
    density, cdf = jax.jit(lambda p, y: (np.e ** p.log_prob(y), p.cdf(y)))(rows, y)
    density, cdf = np.asarray(density), np.asarray(cdf)
    # Trapezoids, whose error is largest where the density jumps.
    sums = np.concatenate([[0], np.cumsum((density[1:] + density[:-1]) / 2 * 1e-4)])
    np.testing.assert_allclose(sums, cdf, atol=1e-4)
    np.testing.assert_allclose(np.interp(ndtri(levels), y, cdf), p.probabilities[0], atol=1e-6)


def test_map_of_a_calibrated_model_changes_nothing():
    same = np.broadcast_to(np.array(LEVELS, np.float32), (N, len(LEVELS)))
    p = cj.Recalibrated(NORMAL, same, LEVELS)
    for method, argument in (("quantile", np.float32(0.2)), ("log_prob", TARGETS)):
        found, expected = (jax.jit(getattr(q, method))(argument) for q in (p, NORMAL))
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_tails_of_a_flat_map_end():
    """With 4 % of the mass below its first level a map has no mass at infinity."""
    n_levels = len(LEVELS)
    flat = np.linspace(0.04, 0.96, n_levels)
    flat[:2] = 0.04, 0.0400001
    p = mapped(NORMAL[:3], flat.astype(np.float32), LEVELS)
    y = LOC[:3]
    for score in (cj.crps(p, y), cj.log_score(p, y)):
        assert np.all(np.isfinite(score))
    # The outer piece stretches the tail, but at most fivefold.
    z = (np.asarray(jax.jit(p.quantile)(np.float32(0.01))) - y) / 0.6
    known = ndtri(0.0400001) - 0.2 * (SCORES[1] - SCORES[0])
    np.testing.assert_allclose(z, SCORES[0] + (ndtri(0.01) - known) / 0.2, rtol=1e-3)
    steep = cj.Recalibrated(NORMAL[:1], flat[None].astype(np.float32), LEVELS)
    ends = jax.jit(steep.cdf)(np.array([-99.0], np.float32)), jax.jit(steep.survival)(y[:1] + 99)
    assert ends[0] == 0 and ends[1] == 0


# Fits


def test_shift_scale_of_a_normal_forecast_is_that_of_its_standard_scores():
    """Normal again, with the mean and the deviation of the scores."""
    recalibrated = cj.fit_recalibrator(NORMAL, TARGETS, "shift_scale")(NORMAL)
    z = (TARGETS.astype(float) - LOC) / 0.6
    np.testing.assert_allclose(recalibrated.loc, LOC + 0.6 * z.mean(), atol=1e-5)
    np.testing.assert_allclose(recalibrated.scale, 0.6 * z.std(), rtol=1e-5)
    # Any other density has the same map of its cdf.
    heavy = cj.StudentT(np.full(N, 200, np.float32), NORMAL.loc, NORMAL.scale)
    of_heavy = cj.fit_recalibrator(heavy, TARGETS, "shift_scale")(heavy)
    cdf = stats.norm(recalibrated.loc, recalibrated.scale).cdf(TARGETS)
    np.testing.assert_allclose(jax.jit(of_heavy.cdf)(TARGETS), cdf, atol=5e-3)


def test_shift_scale_of_values_has_the_least_pinball_loss():
    """A shift and a factor around the median, by Nelder and Mead."""
    values, levels, targets = np.asarray(QUANTILES.values, float), np.array(LEVELS), TARGETS + 0.3
    middle = values[:, [LEVELS.index(0.5)]]

    def loss(x):
        errors = targets[:, None] - (middle + x[0] + x[1] * (values - middle))
        return np.mean(np.maximum(levels * errors, (levels - 1) * errors))

    best = minimize(loss, [0.0, 1.0], method="Nelder-Mead", options={"xatol": 1e-6})
    recalibrated = np.asarray(
        cj.fit_recalibrator(QUANTILES, targets, "shift_scale")(QUANTILES).values
    )
    errors = targets[:, None] - recalibrated
    found = np.mean(np.maximum(levels * errors, (levels - 1) * errors))
    assert found <= best.fun * 1.002 and best.fun < 0.99 * loss([0, 1])


def test_tails_of_densities_are_those_of_the_best_log_score():
    """Errors of a t distribution with 2.5 degrees of freedom, beside a temperature by SciPy."""
    rng = np.random.default_rng(10)
    y = (0.8 * rng.standard_t(2.5, 3000)).astype(np.float32)
    predictions = cj.Normal(np.zeros(3000, np.float32), np.full(3000, 0.4, np.float32))
    recalibrator = cj.fit_recalibrator(predictions[:1000], y[:1000])
    after = float(np.mean(cj.log_score(recalibrator(predictions[1000:]), y[1000:])))
    temperature = np.sqrt(np.mean(y[:1000].astype(float) ** 2))
    truth = -np.mean(stats.t(2.5, scale=0.8).logpdf(y[1000:]))
    best = -np.mean(stats.norm(0, temperature).logpdf(y[1000:]))
    assert after < truth + 0.05 < best - 0.1
    before = -np.mean(stats.norm(0, 0.4).logpdf(y[1000:]))
    mean, low, high = recalibrator.fit.change
    assert mean < -1 and low < after - before < high


def test_pit_beta_is_at_the_minimum():
    s, u = shares(), np.array(LEVELS)

    def loss(x):
        p = expit(x[0] + x[1] * np.log(u) - x[2] * np.log1p(-u))
        return -np.mean(s * np.log(p) + (1 - s) * np.log1p(-p))

    found = minimize(
        loss, [0.0, 0.5, 0.5], method="Nelder-Mead", options={"xatol": 1e-7, "maxiter": 2000}
    )
    (line,) = cj.fit_recalibrator(NORMAL, TARGETS, "pit_beta").steps
    c, a, b = found.x
    expected = expit(c + a * np.log(u) - b * np.log1p(-u))
    np.testing.assert_allclose(line.probabilities[1:-1], expected, atol=2e-3)


def test_pit_isotonic_is_the_empirical_cdf_of_u():
    (line,) = cj.fit_recalibrator(NORMAL, TARGETS, "pit_isotonic").steps
    np.testing.assert_allclose(line.probabilities[1:-1], shares(), atol=1 / N)


def test_pit_spline_is_at_the_minimum():
    """Natural splines of SciPy through values at the knots, whose roughness is quadrature."""
    u = np.array(LEVELS)
    # A sum of two humps, which no map of two or three numbers has.
    s = ndtr(2 * SCORES + 2) / 2 + ndtr(2 * SCORES - 2) / 2
    fit = fit_pit_spline(u, s, 2000.0)
    s, strength = (2000 * s + u) / 2001, float(fit.description.removeprefix("penalty "))
    x = np.log(u / (1 - u)) / np.std(np.log(u / (1 - u)))
    knots = np.interp(np.linspace(0, len(u) - 1, 8), np.arange(len(u)), x)
    grid = np.linspace(knots[0], knots[-1], 4001)

    def loss(values):
        curve = CubicSpline(knots, values, bc_type="natural")
        roughness = np.mean(curve(grid, 2) ** 2) * (grid[-1] - grid[0])
        logits = curve(x)
        return np.mean(np.logaddexp(0, logits) - s * logits) + strength * roughness

    best = minimize(loss, np.zeros(8), method="BFGS", options={"gtol": 1e-8}).x
    expected = expit(CubicSpline(knots, best, bc_type="natural")(x))
    np.testing.assert_allclose(fit.probabilities, expected, atol=1e-3)
    assert fit.converged and np.max(np.abs(fit.probabilities - s)) < 0.02


def test_pit_spline_of_little_data_is_nearly_straight():
    """With 60 rows the strength is large, and with two levels there are two numbers."""
    fit = fit_pit_spline(np.array(LEVELS), ndtr(2 * SCORES), 60.0)
    slopes = np.diff(np.log(fit.probabilities / (1 - fit.probabilities)))
    slopes /= np.diff(np.log(LEVELS) - np.log1p(-np.array(LEVELS)))
    assert np.all(np.abs(slopes / np.median(slopes) - 1) < 0.4)
    fit = fit_pit_spline(np.array([0.1, 0.9]), np.array([0.3, 0.6]), 60.0)
    np.testing.assert_allclose(fit.probabilities, [18.1 / 61, 36.9 / 61], atol=1e-4)


# Maps of each forecast

# High forecasts are too narrow, and low ones too wide; U of the sixteen samples is known as well.
FACTOR = np.where(LOC > 0, 2.0, 0.4)
LOCAL_TARGETS = (LOC + 0.6 * FACTOR * np.random.default_rng(7).normal(size=N)).astype(np.float32)


def test_conditional_is_its_formula():
    recalibrator = cj.fit_recalibrator(QUANTILES, LOCAL_TARGETS, "conditional")
    (line,) = recalibrator.steps
    # Of quantiles with one spread, medians alone have ranks.
    ranks = np.interp(LOC, np.quantile(LOC, (np.arange(64) + 0.5) / 64), (np.arange(64) + 0.5) / 64)
    gaps = ndtri(ranks)[:, None] - ndtri(ranks)
    w = np.exp(-(gaps**2) / (2 * line.width**2))
    below = stats.norm(LOC, 0.6).cdf(LOCAL_TARGETS)[:, None] <= np.array(LEVELS)
    c, g = line.count, line.probabilities
    expected = (w @ below + c * g) / (w.sum(axis=1, keepdims=True) + c)
    recalibrated = np.asarray(recalibrator(QUANTILES).values)
    for row in (3, 50, 200):
        inner = np.interp(SCORES, ndtri(expected[row]), SCORES)
        inside = (SCORES > ndtri(expected[row, 0])) & (SCORES < ndtri(expected[row, -1]))
        found = (recalibrated[row] - LOC[row]) / 0.6
        np.testing.assert_allclose(found[inside], inner[inside], atol=0.03)


def test_auto_takes_the_conditional_map_where_errors_are_local():
    recalibrator = cj.fit_recalibrator(QUANTILES, LOCAL_TARGETS, where=np.arange(N) < 300)
    assert recalibrator.fit.method == "conditional"
    assert np.sum(recalibrator.steps[0].weights > 0) == 300
    judge = np.arange(N) >= 300
    u = stats.norm(LOC, 0.6 * FACTOR)
    recalibrated = np.asarray(recalibrator(QUANTILES).values)[judge]
    assert np.all(np.diff(recalibrated, axis=1) > 0)
    before, after = (
        np.mean(np.abs(ends - np.stack([u.ppf(0.1), u.ppf(0.9)], axis=1)[judge]))
        for ends in (np.asarray(QUANTILES.values)[judge][:, [3, 19]], recalibrated[:, [3, 19]])
    )
    assert after < 0.7 * before


def test_conditional_of_equal_forecasts_is_one_map():
    """Spreads that differ by rounding have no ranks, and a constant forecast has one."""
    same = cj.Quantiles(np.tile(ndtri(LEVELS), (N, 1)).astype(np.float32), LEVELS)
    values = cj.fit_recalibrator(same, TARGETS, "conditional")(same).values
    assert np.all(np.isfinite(values)) and np.ptp(values, axis=0).max() < 1e-5


COVARIATE = np.random.default_rng(8).normal(size=N).astype(np.float32)
# The median of a forecast is right on average, and 0.8 off to a side that the covariate tells.
HIDDEN_TARGETS = (LOC + 0.8 * np.sign(COVARIATE) + 0.6 * (TARGETS - LOC - 0.2)).astype(np.float32)


def test_a_covariate_corrects_what_the_forecast_does_not_say(tmp_path):
    recalibrator = cj.fit_recalibrator(
        QUANTILES, HIDDEN_TARGETS, "conditional", covariates={"wind": COVARIATE}
    )
    assert recalibrator.steps[-1].grid.shape == (3, 64) and recalibrator.fit.covariates == ("wind",)
    values = np.asarray(recalibrator(QUANTILES, covariates={"wind": COVARIATE}).values)
    medians = values[:, LEVELS.index(0.5)] - LOC
    # It was 0.8 before, and the map is drawn to the one for all forecasts.
    assert np.mean(np.abs(medians - 0.8 * np.sign(COVARIATE))) < 0.4
    path = tmp_path / "map.json"
    recalibrator.save(path)
    loaded = cj.load_recalibrator(path)
    assert loaded.fit == recalibrator.fit
    again = loaded(QUANTILES, covariates={"wind": COVARIATE}).values
    np.testing.assert_array_equal(again, values)
    for given, message in (
        (None, "covariates must be given.*: wind"),
        ({"rain": COVARIATE}, "columns of the fit, wind, got rain"),
        (COVARIATE[:, None].repeat(2, 1), "columns of the fit, wind, got 0, 1"),
    ):
        check_message(lambda x=given: recalibrator(QUANTILES, covariates=x), ValueError, message)


STATION = np.arange(N) % 4
# Forecasts of station 1 are 0.8 too low, and those of station 2 too narrow by a factor of 2.
OF_STATIONS = (
    LOC + 0.6 * (TARGETS - LOC - 0.2) * np.where(STATION == 2, 2, 1) + 0.8 * (STATION == 1)
)
OF_STATIONS = OF_STATIONS.astype(np.float32)


@pytest.mark.parametrize("form", ["quantiles", "density"])
def test_groups_have_shifts_and_spreads(form, tmp_path):
    p, groups = FORMS[form], {"station": STATION}
    recalibrator = cj.fit_recalibrator(p, OF_STATIONS, "identity", groups=groups)
    assert "groups of station" in recalibrator.fit.description
    recalibrated = recalibrator(p, groups)
    level = jax.jit(lambda q, u: q.quantile(u))
    low, middle, high = (
        np.asarray(level(recalibrated, u)) - LOC for u in np.float32([0.25, 0.5, 0.75])
    )
    for station, (shift, factor) in enumerate([(0, 1), (0.8, 1), (0, 2), (0, 1)]):
        own = STATION == station
        # Of 100 rows a median has the standard error 0.075, and the half of the spread 0.05.
        np.testing.assert_allclose(np.mean(middle[own]), shift, atol=0.25)
        spread = np.mean(high[own] - low[own]) / (2 * 0.6 * ndtri(0.75))
        np.testing.assert_allclose(spread, factor, rtol=0.3)
    recalibrator.save(tmp_path / "map.json")
    again = cj.load_recalibrator(tmp_path / "map.json")(p, groups)
    jax.tree.map(np.testing.assert_array_equal, again, recalibrated)


@pytest.mark.parametrize("form", FORMS)
def test_a_group_that_is_right_keeps_the_map_of_all(form):
    """Errors of one station of three are twice as large: the others keep their map."""
    station, p = np.array(["a", "b", "c"])[np.arange(N) % 3], FORMS[form]
    right = LOC + 0.6 * (TARGETS - LOC - 0.2)
    targets = LOC + (right - LOC) * np.where(station == "c", 2.0, 1.0)
    recalibrator = cj.fit_recalibrator(p, targets.astype(np.float32), groups={"station": station})
    assert "corrected in 1 of 3 groups of station" in str(recalibrator)
    curve = recalibrator.group_map
    factors = np.exp(curve.log_scales[: curve.coding.n_single])
    np.testing.assert_allclose(factors[:2], 1)
    # 133 rows: a deviation of the factor is 2 / sqrt(266), and nine members vary.
    assert factors[2] == pytest.approx(2.0, abs=0.4)


def test_any_density_has_groups_a_scale_and_a_map(tmp_path):
    """Of a Laplace forecast three maps stand upon each other; folds have one form."""
    base, station = cj.Laplace(LOC, np.full(N, 0.3, np.float32)), {"station": STATION.astype(str)}
    recalibrator = cj.fit_recalibrator(base, OF_STATIONS, groups=station)
    recalibrator.save(tmp_path / "map.json")
    found = cj.load_recalibrator(tmp_path / "map.json")(base, station)
    folds = cj.cross_fit(base, OF_STATIONS, "auto", 3, groups=station)
    before, after, held_out = (
        float(np.mean(cj.log_score(p, OF_STATIONS))) for p in (base, found, folds)
    )
    assert after < held_out < before - 0.3
    change = recalibrator.fit.change
    assert change[1] < held_out - before < change[2]


def test_equal_stations_have_no_map_and_biases_are_drawn_to_that_of_all():
    rng = np.random.default_rng(14)
    station, n = np.repeat(np.arange(40), 30).astype(str), 1200
    loc, noise = rng.normal(size=n), rng.normal(size=n)
    bias = rng.normal(size=40)[station.astype(int)]
    predictions = cj.Normal(loc.astype(np.float32), np.ones(n, np.float32))
    groups = {"station": station}
    equal = cj.fit_recalibrator(predictions, (loc + noise).astype(np.float32), groups=groups)
    assert "no group of station differs" in str(equal)
    biased = (loc + bias + noise).astype(np.float32)
    recalibrated = cj.fit_recalibrator(predictions, biased, "shift_scale", groups=groups)(
        predictions, groups
    )
    # Empirical Bayes: the error of a mean of 30 rows is 1 / sqrt(30), and biases have the spread 1.
    found = np.asarray(recalibrated.loc)[::30] - loc[::30]
    assert np.std(found - bias[::30]) < 1.3 / np.sqrt(30)
    raw = np.array([np.mean((biased - loc)[station == str(k)]) for k in range(40)])
    slope = np.polyfit(raw, found, 1)[0]
    assert slope == pytest.approx(30 / 31, abs=0.03)


def test_dry_members_stay_dry_and_are_as_many_as_dry_targets():
    rng, n = np.random.default_rng(15), 400
    wet = np.exp(rng.normal(size=n))[:, None] * rng.gamma(1.5, size=(n, 10))
    members = np.where(rng.random((n, 9)) < 0.4, 0, wet[:, 1:]).astype(np.float32)
    targets = np.where(rng.random(n) < 0.6, 0, wet[:, 0]).astype(np.float32)
    predictions = cj.Empirical(members)
    recalibrator = cj.fit_recalibrator(predictions, targets, lower=0.0)
    found = np.asarray(recalibrator(predictions).samples)
    assert np.all(found[members == 0] == 0) and "values up to" in str(recalibrator)
    assert np.mean(found == 0) == pytest.approx(np.mean(targets == 0), abs=0.03)
    before, after = (np.mean(cj.crps(p, targets)) for p in (predictions, cj.Empirical(found)))
    assert after < before


def test_groups_of_calibrated_forecasts_stay_as_they_are():
    calibrated = LOC + 0.6 * (TARGETS - LOC - 0.2)
    clusters = np.arange(N) // 10
    recalibrator = cj.fit_recalibrator(
        QUANTILES,
        calibrated.astype(np.float32),
        "identity",
        groups={"station": STATION},
        clusters=clusters,
    )
    assert "no group of station differs" in str(recalibrator)
    found = recalibrator(QUANTILES, {"station": STATION}).values
    np.testing.assert_allclose(found, QUANTILES.values, atol=1e-3)


# What judges candidates


@pytest.mark.parametrize("form", ["quantiles", "samples"])
def test_losses_of_held_out_rows_are_in_units_of_the_targets(form):
    """The pinball loss of quantiles, by NumPy, and the CRPS of samples, that of `crps`."""
    recalibrator = cj.fit_recalibrator(FORMS[form], TARGETS, "auto")
    errors, levels = TARGETS[:, None] - np.asarray(QUANTILES.values), np.array(LEVELS)
    scores = {
        "quantiles": ("pinball loss", np.maximum(levels * errors, (levels - 1) * errors)),
        "samples": ("CRPS", cj.crps(EMPIRICAL, TARGETS)),
    }
    name, of_rows = scores[form]
    assert f"held-out {name}: " in str(recalibrator)
    losses = dict(recalibrator.fit.losses)
    assert losses["identity"] == pytest.approx(float(np.mean(of_rows)), rel=1e-4)


def test_log_scores_of_held_out_rows_are_differences():
    fit = cj.fit_recalibrator(NORMAL, TARGETS, "shift_scale")
    known = (("identity", -1e-6), ("shift_scale", -0.25))
    fit = dataclasses.replace(fit, fit=fit.fit._replace(losses=known, change=(-0.2, -0.3, -0.1)))
    change = "change of held-out log loss: -0.2 (95 % CI -0.3 to -0.1); negative is better"
    assert f"  {change}\n" in str(fit)
    words = "held-out log loss, change: "
    assert f"{words}shift_scale -0.2500, identity 0.0000\n" in str(fit)


def test_scores_of_densities_are_log_scores():
    """A line in normal scores is a shift and a scale: the log score less that before."""
    levels, y = ndtr(np.linspace(-4, 4, 41)), np.array([-1.3, 0.2, 2.5])
    rows = PITMapRows(levels, np.zeros((3, 41)), np.ones(3), np.zeros(3, int), z=y)
    after = stats.norm(0.3, 1.5).logpdf(y)
    expected = stats.norm.logpdf(y) - after
    g = ndtr((ndtri(levels) - 0.3) / 1.5)
    for of_rows in (g, np.tile(g, (3, 1))):
        np.testing.assert_allclose(rows.scores(of_rows), expected, atol=1e-6)


def test_scores_of_ranges_are_log_scores_of_ranges():
    """Whatever fills their hidden parts."""
    levels = np.array([0.1, 0.25, 0.5, 0.75, 0.9])
    g = np.array([0.3, 0.4, 0.6, 0.7, 0.8])
    low, high = np.array([0.2, 0.05, 0.3, 0.6, 0.95]), np.array([1.0, 0.6, 0.4, 0.6, 1.0])
    ends = (np.interp(x, [0, *levels, 1], [0, *g, 1]) for x in (high, low))
    mass = np.subtract(*ends)
    # The fourth is known, in the cell from 0.5 to 0.75.
    mass[3], width = 0.1, np.where(low == high, 0.25, high - low)
    filled = np.random.default_rng(0).uniform(size=(5, 5))
    rows = PITMapRows(levels, filled, np.ones(5), np.zeros(5, int))
    rows = rows._replace(seen=seen_cells(levels, low, high))
    np.testing.assert_allclose(rows.scores(g), -np.log(mass / width))
    np.testing.assert_allclose(rows.scores(np.tile(g, (5, 1))), -np.log(mass / width))
    np.testing.assert_allclose(rows.scores(levels), 0, atol=1e-12)


@pytest.mark.slow
def test_no_map_is_worth_having_where_censored_forecasts_are_right():
    """Events in a third of the rows: what a map fills hidden parts with is no gain of this map."""
    rng, n = np.random.default_rng(5), 200
    scale = np.exp(0.5 * rng.normal(size=n))
    life, end = scale * rng.weibull(1.5, n), rng.uniform(0, 1.2, n)
    predictions = cj.Weibull(np.full(n, 1.5, np.float32), scale.astype(np.float32))
    known = cj.IntervalCensored.right_censored(
        np.minimum(life, end).astype(np.float32), life <= end
    )
    fit = cj.fit_recalibrator(predictions, known).fit
    assert fit.method == "identity" and dict(fit.losses)["shift_scale"] > -0.002


def test_parts_keep_together_what_depends_on_each_other():
    numbers = np.random.default_rng(6).integers(0, 30, N).astype(np.int32)
    kept = np.arange(N) % 7 > 0
    assert parts_of(as_data(NORMAL, TARGETS, where=kept), kept, 10) is None
    for depends in (
        {"clusters": numbers},
        {"times": numbers / 4},
        {"times": numbers / 4, "horizon": 1},
    ):
        data = as_data(NORMAL, TARGETS, where=kept, **depends)
        part = parts_of(data, kept, 10)
        assert part.shape == (kept.sum(),) and set(part) == set(range(10))
        for number in range(30):
            assert np.unique(part[numbers[kept] == number]).size == 1
        # Times of one part follow each other.
        first = np.array([part[numbers[kept] == number][0] for number in range(30)])
        assert np.all(np.diff(first) >= 0) == ("times" in depends)


# Conformal quantiles


def test_conformal_coverage_by_enumeration():
    """Each of 20 rows in turn is the new one, and its quantiles are those of the 19 others."""
    rng = np.random.default_rng(5)
    levels = (0.05, 0.12, 0.3, 0.5, 0.8, 0.95)
    n = 19
    tied = np.round(2 * rng.normal(size=n + 1))
    for targets, has_ties in ((3 * rng.normal(size=n + 1), False), (tied, True)):
        # The forecasts are wrong, and of no two rows the same; but those with ties.
        loc = np.zeros(n + 1) if has_ties else rng.normal(size=n + 1)
        scale = np.ones(n + 1) if has_ties else np.exp(rng.normal(size=n + 1))
        values = (loc[:, None] + scale[:, None] * ndtri(levels)).astype(np.float32)
        targets = targets.astype(np.float32)
        predictions = cj.Quantiles(values, levels)
        at_most, below = np.zeros(6), np.zeros(6)
        for new in range(n + 1):
            others = np.delete(np.arange(n + 1), new)
            recalibrator = cj.fit_recalibrator(predictions[others], targets[others], "conformal")
            recalibrated = np.asarray(recalibrator(predictions).values)[new]
            assert recalibrator.fit.converged and np.all(np.diff(recalibrated) >= 0)
            at_most += (targets[new] <= recalibrated) / (n + 1)
            below += (targets[new] < recalibrated) / (n + 1)
        for level, above, under in zip(levels, at_most, below, strict=True):
            if level < 0.5:
                assert under <= level + 1e-9
                assert has_ties or above > level - 1 / (n + 1)
            else:
                assert above >= level - 1e-9
                assert has_ties or above < level + 1 / (n + 1)


def test_conformal_quantiles_of_densities_are_those_of_order_statistics():
    quantiles = cj.fit_recalibrator(NORMAL, TARGETS, "conformal")(NORMAL)
    z = np.sort((TARGETS - LOC) / 0.6)
    assert type(quantiles) is cj.Quantiles and quantiles.levels == LEVELS
    for level, found in zip(LEVELS, np.asarray(quantiles.values).T, strict=True):
        k = np.floor((N + 1) * level) if level < 0.5 else np.ceil((N + 1) * level)
        np.testing.assert_allclose(found, LOC + 0.6 * z[int(k) - 1], atol=2e-3)


def test_conformal_with_few_rows_says_how_far_it_reaches():
    recalibrator = cj.fit_recalibrator(QUANTILES[:4], TARGETS[:4], "conformal")
    assert not recalibrator.fit.converged
    assert "coverage is known for levels from 0.2 to 0.8" in str(recalibrator)
    recalibrated = np.asarray(recalibrator(QUANTILES).values)
    assert np.all(recalibrated[:, 0] <= QUANTILES.values[:, 0] + 1e-5)
    assert np.all(recalibrated[:, -1] >= QUANTILES.values[:, -1] - 1e-5)


# Targets that are known as ranges

CENSORED_AT = (LOC + 0.1 + 1.2 * np.random.default_rng(11).random(N)).astype(np.float32)
HIDDEN = TARGETS > CENSORED_AT
CENSORED = cj.IntervalCensored(np.minimum(TARGETS, CENSORED_AT), np.where(HIDDEN, np.inf, TARGETS))


def kaplan_meier():
    """How often U is at most each level, by the product of what was survived."""
    u = stats.norm(LOC, 0.6).cdf(np.minimum(TARGETS, CENSORED_AT))
    order = np.argsort(u)
    at_risk = N - np.arange(N)
    survival = np.cumprod(1 - ~HIDDEN[order] / at_risk)
    return 1 - np.array([survival[u[order] <= level][-1] for level in LEVELS])


def test_isotonic_of_censored_targets_is_nearly_that_of_kaplan_and_meier():
    assert 0.2 < HIDDEN.mean() < 0.6
    (line,) = cj.fit_recalibrator(NORMAL, CENSORED, "pit_isotonic").steps
    # Kaplan and Meier know U exactly, and the map at its levels.
    np.testing.assert_allclose(line.probabilities[:-2], kaplan_meier()[:-2], atol=0.02)


@pytest.mark.parametrize("method", ["shift_scale", "pit_beta", "auto"])
def test_maps_of_censored_targets_are_those_of_all_targets(method):
    seen = np.minimum(TARGETS, CENSORED_AT)
    recalibrated, of_all, naive = (
        cj.fit_recalibrator(NORMAL, y, method).steps[0].probabilities
        for y in (CENSORED, cj.IntervalCensored(TARGETS, TARGETS), cj.IntervalCensored(seen, seen))
    )
    # A deviation of a share of 400 is 0.025.
    gap, of_naive = np.max(np.abs(recalibrated - of_all)), np.max(np.abs(naive - of_all))
    assert gap < 0.05 and of_naive > 2 * gap


@pytest.mark.parametrize("method", ["pit_isotonic", "conditional"])
def test_recalibrated_curves_are_those_of_kaplan_and_meier(method):
    """Curves that are alike, of events at the times that are censored after some of these."""
    rng, n, times = np.random.default_rng(12), 3000, np.arange(1.0, 6.0, dtype=np.float32)
    predicted, right = 1 - np.array([0.05, 0.1, 0.2, 0.3, 0.5]), 1 - 0.16 * times
    life = 1 + np.sum(rng.random(n)[:, None] < right, axis=1)
    end = rng.integers(1, 7, n)
    curves = cj.SurvivalCurve(times, np.tile(predicted.astype(np.float32), (n, 1)))
    seen = np.minimum(life, end).astype(np.float32)
    known = cj.IntervalCensored.right_censored(seen, life <= end)
    recalibrated = cj.fit_recalibrator(curves, known, method)(curves)
    at_risk = np.array([np.sum(seen >= t) for t in times])
    events = np.array([np.sum((seen == t) & (life <= end)) for t in times])
    np.testing.assert_allclose(recalibrated.probs[0], np.cumprod(1 - events / at_risk), atol=0.015)
    np.testing.assert_array_equal(recalibrated.times[0], times)


def test_recalibrated_curves_keep_0_and_1():
    curves = cj.SurvivalCurve(np.ones(1, np.float32), np.array([[0.0], [0.5], [1.0]], np.float32))
    known = cj.IntervalCensored.right_censored(
        np.array([0.5, 1.0, 2.0], np.float32), [True, False, False]
    )
    recalibrated = cj.fit_recalibrator(curves, known, "pit_isotonic")(curves).probs[:, 0]
    assert recalibrated[0] == 0 < recalibrated[1] < recalibrated[2] == 1


def test_known_ends_are_targets():
    known = cj.IntervalCensored(TARGETS, TARGETS)
    (a,), (b,) = (cj.fit_recalibrator(NORMAL, y, "pit_beta").steps for y in (known, TARGETS))
    np.testing.assert_allclose(a.probabilities, b.probabilities[1:-1], atol=1e-5)


# Forms of forecasts


def test_quantiles_stay_quantiles_at_their_levels():
    recalibrated = cj.fit_recalibrator(QUANTILES, TARGETS, "shift_scale")(QUANTILES)
    of_density = cj.fit_recalibrator(NORMAL, TARGETS, "shift_scale")(NORMAL)
    assert type(recalibrated) is cj.Quantiles and recalibrated.levels == QUANTILES.levels
    values = np.asarray(recalibrated.values)
    assert np.all(np.diff(values, axis=1) > 0)
    quantile = jax.jit(of_density.quantile)
    for k in (0, 11, 22):  # One has the best pinball loss and one the best log score.
        np.testing.assert_allclose(values[:, k], quantile(np.float32(LEVELS[k])), atol=0.1)


def test_samples_stay_samples_in_their_order():
    recalibrated = cj.fit_recalibrator(EMPIRICAL, TARGETS, "pit_isotonic")(EMPIRICAL)
    found = np.asarray(recalibrated.samples)
    assert type(recalibrated) is cj.Empirical and found.shape == SAMPLES.shape
    np.testing.assert_array_equal(np.argsort(found, axis=1), np.argsort(SAMPLES, axis=1))
    assert np.mean(found.std(axis=1)) > 1.3 * np.mean(SAMPLES.std(axis=1))


@pytest.mark.parametrize("form", ["values", "samples"])
def test_recalibrated_values_keep_a_lower_bound(form, tmp_path):
    """Forecasts and targets of 0 and more, which are too narrow: widened, some go below 0."""
    base = QUANTILES if form == "values" else EMPIRICAL
    values = np.asarray(getattr(base, form))
    shift = -min(values.min(), TARGETS.min())
    predictions, targets = dataclasses.replace(base, **{form: values + shift}), TARGETS + shift
    free = cj.fit_recalibrator(predictions, targets, "shift_scale")
    bound = cj.fit_recalibrator(predictions, targets, "shift_scale", lower=0)
    expected = np.asarray(getattr(free(predictions), form))
    assert expected.min() < 0
    bound.save(tmp_path / "map.json")
    for recalibrator in (bound, cj.load_recalibrator(tmp_path / "map.json")):
        assert "lower bound of recalibrated values: 0" in str(recalibrator)
        found = np.asarray(getattr(recalibrator(predictions), form))
        at_bound = (np.asarray(getattr(predictions, form)) <= 0) | (expected <= 0)
        assert np.all(found[at_bound] == 0)
        np.testing.assert_array_equal(found[~at_bound], expected[~at_bound])


def expected_crps(members):
    """The mean CRPS of members ``[n, S]`` over standard normal targets, ``[n]``."""
    errors = members * (2 * ndtr(members) - 1) + 2 * stats.norm.pdf(members)
    pairs = np.abs(members[:, :, None] - members[:, None]).mean(axis=(1, 2))
    return errors.mean(axis=1) - pairs / 2


@pytest.mark.parametrize("form", FORMS)
def test_auto_is_better_on_new_rows(form):
    predictions, half = FORMS[form], N // 2
    recalibrator = cj.fit_recalibrator(predictions, TARGETS, where=np.arange(N) < half)
    assert recalibrator.fit.n_rows == half
    losses = dict(recalibrator.fit.losses)
    known = {"identity", *PIT_MAP_FITS} | ({"conditional"} if form != "samples" else set())
    assert set(losses) == known and min(losses, key=losses.get) != "identity"
    if form == "samples":
        # The expected CRPS of members, whose factor should be 1 / 0.6: E|x - y| has a closed form.
        centre = LOC[:, None] + 0.2
        right = centre + (SAMPLES - LOC[:, None]) / 0.6
        found = np.asarray(recalibrator(predictions).samples)
        before, after, best = (expected_crps(x - centre)[half:] for x in (SAMPLES, found, right))
        assert np.mean(before - after) > 0.7 * np.mean(before - best) > 0
    else:
        before, after = (
            np.mean(np.asarray(cj.crps(p, TARGETS))[half:])
            for p in (predictions, recalibrator(predictions))
        )
        assert after < 0.98 * before
    assert "fitted to 200 rows; " in str(recalibrator)


def test_auto_leaves_calibrated_forecasts_nearly_alone():
    right = cj.Normal(LOC, np.ones(N, np.float32))
    targets = (TARGETS - 0.2).astype(np.float32)
    recalibrated = cj.fit_recalibrator(right, targets)(right)
    change = np.asarray(jax.jit(recalibrated.cdf)(targets)) - stats.norm(LOC, 1.0).cdf(targets)
    assert np.mean(np.abs(change)) < 0.03


def test_recalibrated_forecasts_are_evaluated_like_all_others(key):
    recalibrated = cj.fit_recalibrator(NORMAL, TARGETS, "shift_scale")(NORMAL)
    assert cj.calibration_test(key, NORMAL, TARGETS, n_resamples=99).pvalue < 0.05
    # These rows fitted it, so that the p-value is rather too large.
    assert cj.calibration_test(key, recalibrated, TARGETS, n_resamples=99).pvalue > 0.05


def test_weights_are_repetitions():
    weights = np.where(np.arange(N) < 100, 2.0, 0.0).astype(np.float32)
    found = cj.fit_recalibrator(NORMAL, TARGETS, "pit_beta", weights=weights)
    alone = cj.fit_recalibrator(NORMAL[:100], TARGETS[:100], "pit_beta")
    np.testing.assert_allclose(
        found.steps[0].probabilities, alone.steps[0].probabilities, atol=1e-5
    )


def test_odd_rows_have_a_map():
    one = cj.Normal(np.zeros(1, np.float32), np.ones(1, np.float32))
    far = cj.Normal(np.zeros(30, np.float32), np.ones(30, np.float32))
    for predictions, targets in ((one, [3.0]), (far, [40.0] * 30), (far, [0.0] * 30)):
        for method in OF_NUMBERS:
            recalibrator = cj.fit_recalibrator(predictions, np.array(targets, np.float32), method)
            values = jax.jit(recalibrator(predictions).quantile)(np.float32(0.3))
            assert np.all(np.isfinite(values)), (targets[0], method)
    assert cj.fit_recalibrator(one, np.zeros(1, np.float32)).fit.method == "identity"


FEW = slice(0, 120)
ONES = np.ones(120, np.float32)
FORECASTS = {
    "equal samples": (cj.Empirical(np.tile(LOC[FEW, None], (1, 6)).astype(np.float32)), TARGETS),
    "points": (cj.Normal(LOC[FEW].astype(np.float32), 1e-30 * ONES), TARGETS),
    "points that are right": (cj.Normal(LOC[FEW].astype(np.float32), 1e-30 * ONES), LOC),
    "impossible": (
        cj.Normal(LOC[FEW].astype(np.float32), ONES),
        np.where(np.arange(N) == 3, 1e6, TARGETS),
    ),
    "no counts": (cj.Poisson(0 * ONES, max_count=5), np.zeros(N, int)),
    "impossible counts": (cj.Poisson(0 * ONES, max_count=5), np.arange(N) % 3),
}


@pytest.mark.parametrize(
    "method",
    [pytest.param(x, marks=() if x == "pit_isotonic" else pytest.mark.slow) for x in OF_NUMBERS],
)
def test_odd_forecasts_have_a_map(method):
    quantiles = jax.jit(lambda p: jax.vmap(p.quantile)(np.float32([0.1, 0.5, 0.9])))
    for name, (predictions, targets) in FORECASTS.items():
        targets = targets[FEW] if name.endswith("counts") else targets[FEW].astype(np.float32)
        recalibrated = cj.fit_recalibrator(predictions, targets, method)(predictions)
        if isinstance(recalibrated, cj.Ordinal):
            probs = np.asarray(recalibrated.probs)
            assert np.all(probs >= 0), name
            np.testing.assert_allclose(probs.sum(axis=1), 1, atol=1e-5)
        else:
            found = np.asarray(quantiles(recalibrated), float)
            assert np.all(np.isfinite(found)) and np.all(np.diff(found, axis=0) >= 0), name


SIZES = 10 ** np.random.default_rng(9).uniform(-12, 12, N)
FAR = np.where(np.arange(N) == 3, 1e30, TARGETS)
ODD = {
    "one target far outside": (LOC[:, None] + 0.6 * SCORES, FAR),
    "constant forecasts": (np.tile(SCORES, (N, 1)), TARGETS),
    "points": (np.tile(LOC[:, None], len(LEVELS)), TARGETS),
    "ties": (LOC[:, None] + 0.6 * SCORES, LOC),
    "sizes over decades": (SIZES[:, None] * (1 + 0.1 * SCORES), SIZES * (1 + 0.1 * TARGETS)),
}


@pytest.mark.parametrize("odd", ODD)
def test_odd_quantiles_have_a_map(odd):
    values, targets = (x.astype(np.float32) for x in ODD[odd])
    predictions = cj.Quantiles(values, LEVELS)
    for method in ("auto", "pit_spline", "conformal"):
        recalibrator = cj.fit_recalibrator(predictions, targets, method)
        found = np.asarray(recalibrator(predictions).values)
        assert np.all(np.isfinite(found)) and np.all(np.diff(found, axis=1) >= 0), method
        if odd == "one target far outside" and method != "conformal":
            assert np.ptp(found[3]) < 10 * np.ptp(values[3])


@pytest.mark.parametrize("method", ["conformal", "auto", "conditional"])
def test_a_file_has_the_same_map(tmp_path, method):
    path = tmp_path / "map.json"
    targets = LOCAL_TARGETS if method == "conditional" else TARGETS
    recalibrator = cj.fit_recalibrator(QUANTILES, targets, method)
    recalibrator.save(path)
    loaded = cj.load_recalibrator(path)
    assert str(loaded) == str(recalibrator)
    a, b = (np.asarray(r(QUANTILES).values).tobytes() for r in (loaded, recalibrator))
    assert a == b
    content = json.loads(path.read_text())
    numbers = {"conformal": "scores", "auto": "scale", "conditional": "probabilities"}[method]
    content["steps"][0][numbers]["values"][0] = 20.0
    path.write_text(json.dumps(content))
    check_message(lambda: cj.load_recalibrator(path), ValueError, "map in the file is damaged")


# Counts

RATES = np.exp(np.random.default_rng(3).normal(1, 0.5, N)).astype(np.float32)
POISSON = cj.Poisson(RATES, max_count=64)
# More spread than a Poisson variable has: the law of a gamma mixture.
OVERDISPERSED = np.random.default_rng(4).poisson(
    RATES * np.random.default_rng(6).gamma(1.0, 1.0, N)
)


def test_a_map_of_counts_is_its_formula():
    g = np.linspace(0.05, 0.9, len(LEVELS)).astype(np.float32)
    recalibrated = mapped(POISSON[:5], g, LEVELS)
    probs, counts = np.asarray(recalibrated.probs, float), np.arange(64)
    np.testing.assert_allclose(probs.sum(axis=1), 1, atol=1e-5)
    z = ndtri(np.clip(stats.poisson(RATES[:5, None].astype(float)).cdf(counts), 1e-30, 1 - 1e-15))
    inside = (z > SCORES[0]) & (z < SCORES[-1])
    expected = ndtr(np.interp(z, SCORES, ndtri(g)))
    np.testing.assert_allclose(
        np.cumsum(probs, axis=1)[:, :64][inside], expected[inside], atol=2e-4
    )


def test_counts_beyond_a_table_are_no_class_of_it():
    """A map is refused where max_count is too small, and predictions of such rows are NaN."""
    rates = np.array([0.0, 1.0, 40.0], np.float32)
    recalibrator = cj.fit_recalibrator(POISSON, OVERDISPERSED, "pit_beta")
    probs = np.asarray(recalibrator(cj.Poisson(rates, max_count=64)).probs)
    np.testing.assert_array_equal(np.isnan(probs).any(axis=1), rates > 30)
    np.testing.assert_allclose(probs[0], np.arange(65) == 0, atol=1e-6)


@pytest.mark.parametrize("method", ["auto", *PIT_MAP_FITS, "conditional"])
def test_overdispersed_counts_are_recalibrated(method):
    recalibrator = cj.fit_recalibrator(POISSON, OVERDISPERSED, method, where=np.arange(N) < 250)
    recalibrated = recalibrator(POISSON)
    assert type(recalibrated) is cj.Ordinal and recalibrated.probs.shape == (N, 65)
    judge = np.arange(N) >= 250
    q = np.asarray(recalibrated.probs, float)[np.arange(N), OVERDISPERSED][judge]
    before = stats.poisson(RATES).logpmf(OVERDISPERSED)[judge]
    # Best is the law of the mixture, which is geometric.
    best = stats.geom(1 / (1 + RATES)).logpmf(OVERDISPERSED + 1)[judge]
    gain = np.mean(np.log(q) - before) / np.mean(best - before)
    assert gain > 0.75


def test_conformal_quantiles_of_counts_hold_their_share():
    recalibrated = cj.fit_recalibrator(POISSON[:250], OVERDISPERSED[:250], "conformal")(
        POISSON[250:]
    )
    at_most = np.mean(OVERDISPERSED[250:, None] <= np.asarray(recalibrated.values), axis=0)
    upper = np.array(LEVELS) > 0.5
    # Of 150 rows, and of the fit: a deviation of 0.05 at most.
    assert np.all(at_most[upper] > np.array(LEVELS)[upper] - 0.1)


COUNTS = cj.Poisson(np.ones(5, np.float32))
ERRORS = {
    ValueError: {
        "max_count must be so large .* got 64, which row 1 may exceed": lambda: cj.fit_recalibrator(
            cj.Poisson(np.array([1, 30], np.float32), max_count=64), np.ones(2, int), "pit_beta"
        ),
        "max_count must be given for Poisson predictions that are recalibrated": lambda: (
            cj.fit_recalibrator(cj.Poisson(np.full(5, 1e5, np.float32)), np.ones(5, int))
        ),
        "levels must be at least 2 increasing numbers": lambda: cj.Recalibrated(
            NORMAL, np.ones((N, 2)), (0.9, 0.1)
        ),
        "probabilities must be increasing and in": lambda: cj.crps(
            cj.Recalibrated(NORMAL, np.full((N, 2), 0.5), (0.1, 0.9)), TARGETS
        ),
        "method for numbers must be one of auto, identity, shift_scale.*got 'sms'": lambda: (
            cj.fit_recalibrator(NORMAL, TARGETS, "sms")
        ),
        "method='conformal' does not support weights": lambda: cj.fit_recalibrator(
            NORMAL, TARGETS, "conformal", weights=np.ones(N)
        ),
        "targets must be known for method 'conformal', got IntervalCensored": lambda: (
            cj.fit_recalibrator(NORMAL, CENSORED, "conformal")
        ),
        "clusters and times must not both be given": lambda: cj.fit_recalibrator(
            NORMAL, TARGETS, clusters=np.ones(N, int), times=np.ones(N)
        ),
        "clusters or times must have at least 2 different values": lambda: cj.fit_recalibrator(
            NORMAL, TARGETS, clusters=np.ones(N, int)
        ),
        "method='pit_beta' does not support covariates": lambda: cj.fit_recalibrator(
            NORMAL, TARGETS, "pit_beta", covariates={"x": LOC}
        ),
        "covariates must be finite in every row, got .nan. in row 0": lambda: cj.fit_recalibrator(
            NORMAL, TARGETS, covariates={"x": np.full(N, np.nan)}
        ),
        "covariates is not supported for class predictions": lambda: cj.fit_recalibrator(
            cj.Bernoulli(np.full(9, 0.5)), np.ones(9, int), covariates=LOC
        ),
        "method='conformal' does not support groups": lambda: cj.fit_recalibrator(
            NORMAL, TARGETS, "conformal", groups={"x": STATION}
        ),
        "lower is supported for quantiles and samples only, got Normal": lambda: (
            cj.fit_recalibrator(NORMAL, TARGETS, lower=-9.0)
        ),
        "lower is not supported for class predictions": lambda: cj.fit_recalibrator(
            cj.Bernoulli(np.full(9, 0.5)), np.ones(9, int), lower=0.0
        ),
        "lower must not exceed any target; got 1, target .* in row 0": lambda: cj.fit_recalibrator(
            QUANTILES, TARGETS, lower=1
        ),
        "lower must be a finite number or None, got nan": lambda: cj.fit_recalibrator(
            QUANTILES, TARGETS, lower=np.nan
        ),
        "at least 2 samples": lambda: cj.fit_recalibrator(
            cj.Empirical(np.ones((5, 1))), np.ones(5)
        ),
    },
    TypeError: {
        "base must be predictions of one real number.*got Poisson": lambda: cj.Recalibrated(
            COUNTS, np.ones((5, 2)), (0.1, 0.9)
        ),
        "column date of covariates must hold real values, got dtype datetime64": lambda: (
            cj.fit_recalibrator(NORMAL, TARGETS, covariates={"date": np.arange(N).astype("M8[D]")})
        ),
        "column x of covariates must hold real values, got dtype timedelta64": lambda: (
            cj.fit_recalibrator(NORMAL, TARGETS, covariates={"x": LOC.astype("m8[s]")})
        ),
        "predictions must be samples of numbers": lambda: cj.fit_recalibrator(
            cj.Empirical(np.ones((5, 3, 2))), np.ones((5, 2))
        ),
    },
}


@pytest.mark.parametrize("case", calls(ERRORS))
def test_errors(case):
    check_message(*case)
