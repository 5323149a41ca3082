"""Ensembles that are shifted and scaled around their own mean, beside SciPy and double sums."""

import jax
import numpy as np
import pytest
from scipy.optimize import minimize

import calibjax as cj
from calibjax.recalibration._member_by_member import (
    MemberByMember,
    MemberRows,
    parts_of_members,
)
from calibjax.recalibration._pit_map_fits import PIT_MAP_FITS

N, S = 240, 6


def ensemble(rng, n=N, n_members=S, scale=1.6, signal=1.0):
    """Members and targets, any of which may be the target."""
    centre = signal * rng.normal(size=n)
    pool = centre[:, None] + scale * rng.normal(size=(n, n_members + 1))
    return pool[:, 1:].astype(np.float32), pool[:, 0].astype(np.float32)


def spread_by(members, factor):
    mean = members.mean(axis=1, keepdims=True)
    return (mean + factor * (members - mean)).astype(members.dtype)


def rows_of(members, targets):
    n = len(targets)
    rows = np.ones(n, bool), np.asarray(targets, float), np.ones(n), np.arange(n) % 5
    return MemberRows.of(cj.Empirical(members), *rows)


def double_sum(members, targets, fair=False):
    """E|m - y| - E|m - m'| / 2, over all pairs of members, or of different ones."""
    n_members = members.shape[1]
    pairs = np.abs(members[:, :, None] - members[:, None]).sum(axis=(1, 2)) / n_members
    errors = np.abs(members - targets[:, None]).mean(axis=1)
    return np.mean(errors - pairs / 2 / (n_members - 1 if fair else n_members))


# The fit


def test_fit_is_the_minimum_that_scipy_finds():
    rng = np.random.default_rng(0)
    mean, spread = rng.normal(size=N), rng.gamma(3, 0.4, size=N)
    members = mean[:, None] + spread[:, None] * rng.normal(size=(N, S))
    targets = 0.5 + 0.8 * mean + (0.4 * spread + 0.7) * rng.normal(size=N)
    difference = np.abs(members[:, :, None] - members[:, None]).sum(axis=(1, 2)) / S / (S - 1)
    centre = members.mean(axis=1)

    def moved(x):
        factor = x[2] + x[3] / difference
        return (x[0] + x[1] * centre)[:, None] + factor[:, None] * (members - centre[:, None])

    def loss(x):
        return double_sum(moved(x), targets)

    options = {"xatol": 1e-6, "fatol": 1e-9, "maxiter": 5000, "maxfev": 5000}
    best = minimize(loss, [0.0, 1.0, 1.0, 0.5], method="Nelder-Mead", options=options)
    ((line, converged),) = rows_of(members, targets).fits([(1, 1, 1, 1)])
    found = line.shift + (1 - line.slope) * line.centre, line.slope, line.scale, line.inflation
    assert converged and loss(found) < best.fun * (1 + 1e-4)
    np.testing.assert_allclose(found, best.x, atol=0.02)
    scores = rows_of(members, targets).scores(line)
    assert np.mean(scores) == pytest.approx(loss(found), rel=1e-5)


def test_no_factor_is_better_for_a_pool_of_which_any_value_may_be_the_target():
    """Of the CRPS of all members, for each pool; the fair CRPS favours a larger spread."""
    pool = np.random.default_rng(1).gamma(0.7, size=7)
    members = np.array([np.delete(pool, k) for k in range(7)])
    ends = spread_by(members, 0.999), spread_by(members, 1.001)
    low, high = (double_sum(x, pool) for x in ends)
    assert abs(high - low) < 1e-12
    low, high = (double_sum(x, pool, fair=True) for x in ends)
    assert high < low - 1e-4


# Maps


def test_members_that_are_too_narrow_are_spread_around_their_mean(tmp_path):
    members, targets = ensemble(np.random.default_rng(2), 400, 8, signal=4.0)
    members = spread_by(members, 1 / 1.5)
    recalibrator = cj.fit_recalibrator(cj.Empirical(members), targets, "shift_scale")
    recalibrator.save(tmp_path / "map.json")
    found = np.asarray(recalibrator(cj.Empirical(members)).samples)
    again = cj.load_recalibrator(tmp_path / "map.json")(cj.Empirical(members))
    np.testing.assert_array_equal(again.samples, found)
    np.testing.assert_array_equal(np.argsort(found, axis=1), np.argsort(members, axis=1))
    factor = found.std(axis=1) / members.std(axis=1)
    np.testing.assert_allclose(factor, factor[0], rtol=1e-4)
    # A deviation of the factor is about 1.5 / sqrt(2 n).
    assert factor[0] == pytest.approx(1.5, abs=4 * 1.5 / np.sqrt(800))
    assert f"spread widened by a factor of {factor[0]:.3g}" in str(recalibrator)
    auto = cj.fit_recalibrator(cj.Empirical(members), targets)
    assert auto.steps[0].scale == pytest.approx(recalibrator.steps[0].scale, abs=1e-3)
    losses = dict(auto.fit.losses)
    expected = float(np.mean(cj.crps(cj.Empirical(members), targets)))
    assert losses["identity"] == pytest.approx(expected, rel=1e-5)
    assert losses["shift_scale"] < 0.98 * losses["identity"]
    assert set(losses) == {"identity", *PIT_MAP_FITS}


def test_bootstrap_members_without_noise_are_inflated():
    """Their spread says nothing of the noise, so that it is added in units of the targets."""
    rng = np.random.default_rng(3)
    centre, spread = 3 * rng.normal(size=600), rng.gamma(2, 0.1, size=600)
    members = (centre[:, None] + spread[:, None] * rng.normal(size=(600, 8))).astype(np.float32)
    targets = (centre + rng.normal(size=600)).astype(np.float32)
    recalibrator = cj.fit_recalibrator(cj.Empirical(members), targets)
    (line, *_) = recalibrator.steps
    assert line.inflation > 0.7 and "mean difference d becomes" in recalibrator.fit.description
    narrow = np.argsort(members.std(axis=1))[:300]
    found = np.asarray(recalibrator(cj.Empirical(members[narrow])).samples)
    inside = (targets[narrow] > found.min(axis=1)) & (targets[narrow] < found.max(axis=1))
    assert np.mean(inside) == pytest.approx(7 / 9, abs=0.08)


def test_groups_move_members_that_have_been_scaled():
    rng = np.random.default_rng(4)
    members, targets = ensemble(rng, 800, 9, signal=4.0)
    first = np.arange(800) % 2 == 0
    members, groups = spread_by(members, 0.6), {"first": first}
    targets = targets + np.float32(1.5) * first
    recalibrator = cj.fit_recalibrator(cj.Empirical(members), targets, "shift_scale", groups=groups)
    found = recalibrator(cj.Empirical(members), groups)
    gaps = targets - np.asarray(found.samples).mean(axis=1)
    assert np.abs(gaps[first].mean()) < 0.3 and np.abs(gaps[~first].mean()) < 0.3


def cases():
    """Members and targets where a number of the fit is 0, or rounds."""
    rng = np.random.default_rng(5)
    members, targets = ensemble(rng, 60, 4)
    equal = np.broadcast_to(members[:, :1], members.shape).copy()
    dry = np.where(rng.random((60, 1)) < 0.7, 0, members)
    scales = (10.0 ** rng.integers(-2, 3, size=(60, 1))).astype(np.float32)
    return {
        "equal members": (equal, targets),
        "equal up to rounding": (equal * (1 + 1e-7 * rng.normal(size=equal.shape)), targets),
        "constant": (np.ones((60, 4), np.float32), np.ones(60, np.float32)),
        "two members": (members[:, :2], targets),
        "dry": (dry, np.where(dry[:, 0] == 0, 0, targets)),
        "far from 0": (1e5 + members, 1e5 + targets),
        "farther": (1e6 + members, 1e6 + targets),
        "scales": (scales * members, scales[:, 0] * targets),
        "small": (1e-30 * members, 1e-30 * targets),
        "one row": (members[:1], targets[:1]),
        "few rows": (members[:5], targets[:5]),
        "wild": (members, np.where(np.arange(60) == 3, 1e6, targets)),
    }


@pytest.mark.parametrize("name", cases())
def test_odd_ensembles_have_a_map(name):
    members, targets = (np.asarray(x, np.float32) for x in cases()[name])
    recalibrator = cj.fit_recalibrator(cj.Empirical(members), targets, "shift_scale")
    found = np.asarray(recalibrator(cj.Empirical(members)).samples)
    assert np.all(np.isfinite(found))
    is_equal = np.ptp(members, axis=1) <= 1e-6 * np.abs(members).max(axis=1)
    largest = np.abs(found).max(axis=1)
    assert np.all(np.ptp(found, axis=1)[is_equal] <= 1e-5 * largest[is_equal])
    before, after = (np.mean(cj.crps(cj.Empirical(x), targets)) for x in (members, found))
    assert after <= before * 1.02 or name in ("one row", "few rows")


def test_map_of_members_is_a_function_of_jax():
    line = MemberByMember(*map(np.float32, (0.5, 0.9, 0.1, 1.2, 0.3)))
    members = np.float32([[0.0, 1.0, 3.0], [2.0, 2.0, 2.0]])
    moved = jax.jit(lambda x: line(cj.Empirical(x)).samples)(members)
    mean, spread = 4 / 3, 2.0
    expected = mean + 0.5 - 0.1 * (mean - 0.1) + (1.2 + 0.3 / spread) * (members[0] - mean)
    np.testing.assert_allclose(moved[0], expected, rtol=1e-5)
    np.testing.assert_allclose(moved[1], 2 + 0.5 - 0.19, rtol=1e-6)
    # Nearly equal members have no spread that is taken for noise in one place and not in another.
    for shift in 1e6, 1e8:
        _, deviations, _, inverse, half = parts_of_members(np, cj.Empirical(members + shift))
        assert ((np.ptp(deviations, axis=1) > 0) == (half > 0)).all()
        assert ((inverse > 0) == (half > 0)).all() and (half[0] > 0) == (shift == 1e6)
    slopes = jax.grad(lambda x: line(cj.Empirical(x)).samples.sum())(members)
    np.testing.assert_allclose(slopes, 0.9, rtol=1e-5)


@pytest.mark.slow
def test_ranks_and_scores_after_a_map_are_nearly_those_of_the_right_factor(key):
    """Members too narrow by 1.5: 2000 rows fit the map, and 672 others judge it."""
    rng, pvalues, scores = np.random.default_rng(6), [], []
    for _ in range(40):
        members, targets = ensemble(rng, 2672, 20, signal=3.0)
        narrow = cj.Empirical(spread_by(members, 1 / 1.5))
        recalibrated = cj.fit_recalibrator(narrow[:2000], targets[:2000])(narrow[2000:])
        pvalues.append(cj.calibration_test(key, recalibrated, targets[2000:]).pvalue)
        pair = np.asarray(recalibrated.samples, float), members[2000:].astype(float)
        scores.append([double_sum(x, targets[2000:], fair=True) for x in pair])
    # The map is as noisy as a third of the rows that judge it: .91 pass, with a deviation of .045.
    assert np.mean(np.array(pvalues) >= 0.05) >= 0.8
    after, right = np.mean(scores, axis=0)
    assert after < 1.002 * right
