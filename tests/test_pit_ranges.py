"""The PIT curve of targets of which an interval is known: NumPy, quadrature, and its levels."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import calibjax as cj
from calibjax.curves._residual_sums import Parts, variation
from calibjax.scores.pit_intervals import PITInterval

KEY = jax.random.key(0)
N = 80
LAW = stats.weibull_min(1.5, scale=np.linspace(0.5, 2.0, N))
PREDICTIONS = cj.Weibull(jnp.full(N, 1.5), jnp.linspace(0.5, 2.0, N))
FEW = {"n_bins": 8, "n_resamples": 99}


def ranges(seed=0):
    """Exact rows, and such that are hidden on the right, on the left, and between two numbers."""
    rng = np.random.default_rng(seed)
    u = rng.uniform(size=(2, N))
    below, above = np.sort(LAW.ppf(u), axis=0)
    low = np.select([np.arange(N) % 4 == k for k in (0, 1, 3)], [below, below, below], -np.inf)
    high = np.select([np.arange(N) % 4 == k for k in (0, 1, 2)], [below, np.inf, above], above)
    return low, high


def test_masses_are_spread_over_what_is_open():
    low, high = ranges()
    curve = cj.pit_curve(
        KEY, PREDICTIONS, cj.IntervalCensored(jnp.array(low), jnp.array(high)), **FEW
    )
    u_low, u_high = LAW.cdf(low), LAW.cdf(high)
    edges = np.arange(9) / 8
    mass = np.zeros(8)
    for a, b in zip(u_low, u_high, strict=True):
        if a == b:
            mass += np.histogram(a, edges)[0]
        else:
            mass += np.diff(np.clip((edges - a) / (b - a), 0, 1))
    np.testing.assert_allclose(curve.count, mass, atol=2e-4)
    np.testing.assert_allclose(curve.density, mass / 10, atol=1e-4)
    np.testing.assert_allclose(np.sum(curve.count), N, rtol=1e-5)
    # The distribution function has the same masses at the ends of the bins.
    at_edges = np.asarray(curve.difference)[:: (curve.grid.size - 1) // 8]
    np.testing.assert_allclose(at_edges, np.append(0, np.cumsum(mass)) / N - edges, atol=1e-5)
    for value, below, above in (
        (curve.density, curve.pointwise_low, curve.pointwise_high),
        (curve.difference, curve.difference_low, curve.difference_high),
    ):
        assert ((value >= below - 1) & (value <= above + 1)).all() and (below <= above).all()
    np.testing.assert_array_equal(np.asarray(curve.difference_high)[[0, -1]], 0)


def test_exact_rows_are_those_of_arrays():
    """Also of counts, whose PIT is random: the same key draws the same."""
    rates = jnp.linspace(0.5, 5.0, N)
    counts = jnp.asarray(np.random.default_rng(1).poisson(rates))
    predictions = cj.Poisson(rates, max_count=64)
    found, expected = (
        cj.pit_curve(KEY, predictions, y, **FEW)
        for y in (cj.IntervalCensored(counts, counts), counts)
    )
    np.testing.assert_allclose(found.count, expected.count, atol=1e-4)
    np.testing.assert_allclose(found.difference, expected.difference, atol=1e-6)


def masses_of(place, grid, parts):
    """C(h) - C(l) - (h - l) of rows that are known to be in an interval, ``[n, k]``."""
    low, high = place[0][:, None], place[1][:, None]
    with np.errstate(all="ignore"):
        share = np.clip((grid - low) / (high - low), 0, 1)
    below = np.where(low == high, grid >= low, share)
    return np.diff(below[:, parts], axis=2)[..., 0] - np.diff(grid[parts], axis=1)[:, 0]


@pytest.mark.parametrize("side", ["right", "left"])
def test_the_variance_of_rows_that_are_censored_at_unknown_times(side, float64):
    """By the midpoint rule over U, for several times of censoring."""
    grid = np.arange(11) / 10
    parts = np.array([[0, 1], [0, 4], [3, 7], [9, 10], [0, 10]])
    middle = (np.arange(20_000) + 0.5) / 20_000
    for end in (0.15, 0.5, 0.95, 1.0):
        seen = np.minimum(middle, end)
        hidden = np.where(middle < end, seen, 1.0)
        e = masses_of((seen, hidden), grid, parts)
        interval = (seen, np.ones_like(seen))
        if side == "left":
            interval = (np.zeros_like(seen), 1 - seen)
            e = masses_of((1 - hidden, 1 - seen), grid, parts)
        found = variation(PITInterval(*interval), jnp.array(grid), Parts(*parts.T), jnp.zeros(()))
        np.testing.assert_allclose(np.mean(found, axis=0), np.mean(e**2, axis=0), atol=3e-4)
        assert np.mean(e**2, axis=0)[2] > 0.01


def outside(curve):
    histogram = (curve.density < curve.density_low) | (curve.density > curve.density_high)
    below, above = curve.difference_low, curve.difference_high
    ecdf = (curve.difference < below) | (curve.difference > above)
    alone = (curve.density < curve.pointwise_low) | (curve.density > curve.pointwise_high)
    left = [jnp.any(histogram), jnp.any(ecdf), jnp.mean(alone)]
    return jnp.stack([x.astype(jnp.float32) for x in left])


def rates_outside(n, share, is_known, scale=1.0, n_data_sets=600):
    """How often the curves leave their bands; times of censoring depend on the predictions."""
    predictions = cj.Weibull(jnp.ones(n), jnp.linspace(0.5, 2.0, n))

    def data_set(key):
        key, of_event, of_end = jax.random.split(key, 3)
        y = scale * predictions.sample(of_event)
        end = jax.random.exponential(of_end, (n,)) * (1 - share) / share
        known = end if is_known else None
        targets = cj.IntervalCensored.right_censored(jnp.minimum(y, end), y <= end, known)
        return outside(cj.pit_curve(key, predictions, targets, n_bins=10, n_resamples=199))

    keys = jax.random.split(jax.random.key(3), n_data_sets)
    return np.mean(jax.jit(lambda keys: jax.lax.map(data_set, keys))(keys), axis=0)


@pytest.mark.parametrize(("n", "share"), [(50, 0.35), (400, 0.65), (400, 0.975)])
def test_the_level_of_the_bands(n, share):
    error = np.sqrt(0.05 * 0.95 / 600)
    exact = rates_outside(n, share, True)
    assert (np.abs(exact - 0.05) < 3 * error).all()
    assert (rates_outside(n, share, False) < 0.05 + 3 * error).all()


def test_the_bands_see_a_wrong_scale():
    for is_known in True, False:
        assert rates_outside(400, 0.35, is_known, 1.3, 100)[1] > 0.8


def test_masked_and_invalid_rows():
    low, high = ranges()
    where = np.arange(N) % 5 > 0
    masked = cj.IntervalCensored(np.where(where, low, np.nan), high)

    @jax.jit
    def curve(targets, where):
        return cj.pit_curve(KEY, PREDICTIONS, targets, where=where, **FEW)

    found = curve(masked, where)
    expected = cj.pit_curve(
        KEY, PREDICTIONS[where], cj.IntervalCensored(low[where], high[where]), **FEW
    )
    np.testing.assert_allclose(found.count, expected.count, atol=2e-4)
    np.testing.assert_allclose(found.difference_high, expected.difference_high, atol=1e-5)
    invalid = curve(masked, np.ones(N, bool))
    for value in jax.tree.leaves(invalid):
        if value.shape != invalid.edges.shape and value.shape != invalid.grid.shape:
            assert np.isnan(value).all()
