"""Tests of rows with weights, in clusters, over times, and censored, beside plain loops."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from instances import depending
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from messages import check_message
from scipy import stats

import calibjax as cj
from calibjax._data.data import as_data, clean
from calibjax.discrepancy import normal_form
from calibjax.hypothesis_tests._kernel_terms import terms_of
from calibjax.hypothesis_tests._redrawn_skce import redrawn_skce
from calibjax.nulls.draws import draw_pits, draw_targets
from calibjax.nulls.engine import MOMENT_BATCHES
from calibjax.nulls.sampler import NullSampler, turns

N = 12
RNG = np.random.default_rng
WIDE = cj.DistanceKernel(cj.Wasserstein(), 1.0)
KERNEL = cj.PITKernel(WIDE, weights=np.array([1.0, 0.5]))
CONSTANT = cj.PITKernel(lambda p, q: 1.0, weights=np.array([1.0, 0.5]))
CLUSTERS = np.array([5, 5, 2, 2, 2, 9, 9, 9, 4, 0, 0, 7])
TIMES = np.array([0.0, 1.0, 1.0, 2.0, 3.0, 4.0, 6.0, 6.5, 7.0, 9.0, 20.0, 21.0])


def normal_data(rng):
    mean, sd = rng.normal(size=N), rng.uniform(0.5, 1.5, N)
    return mean, sd, mean + 1.3 * sd * rng.normal(size=N)


def cosines(u):
    """sqrt(a_k) phi_k(u) of KERNEL, behind the axes of u."""
    return np.sqrt(2) * np.stack([np.cos(np.pi * u), np.sqrt(0.5) * np.cos(2 * np.pi * u)], -1)


def wasserstein_kernel(mean, sd):
    distance = np.sqrt((mean[:, None] - mean) ** 2 + (sd[:, None] - sd) ** 2)
    return np.exp(-distance)


def forms(kernel, residuals):
    """sum_ij k_P(p_i, p_j) <r_i, r_j> of residuals ``[n, D, M]``."""
    return np.einsum("ij,idm,jdm->d", kernel, residuals, residuals)


@functools.partial(jax.jit, static_argnames=("n_resamples", "redraws"))
def found_sums(key, terms, data, n_resamples, redraws=False):
    return redrawn_skce(key, terms, clean(data), n_resamples, 64, None, NullSampler(redraws))[:2]


@functools.partial(jax.jit, static_argnames="n_batches")
def turns_of(data, n_batches):
    """The multipliers of rows, ``[n, draws]``."""
    made = turns(clean(data), None, None)
    return made.values(made.rows, made.shared(jnp.arange(n_batches, dtype=jnp.int32)))


@functools.partial(jax.jit, static_argnames=("dtype",))
def places(key, batches, dtype):
    return draw_pits(jax.random.split(key)[0], jnp.arange(N, dtype=jnp.int32), batches, dtype)[0]


DEPENDENT = {
    "clusters": dict(clusters=CLUSTERS),
    "times": dict(times=TIMES, horizon=2.0),
}


@pytest.mark.parametrize("name", DEPENDENT)
def test_every_data_set_is_a_plain_sum_over_pairs(name, key, float64):
    mean, sd, y = normal_data(RNG(0))
    # Weights over a decade, and residuals that are too small on average: lambda is above 0.
    y, weights = mean + 0.3 * (y - mean), RNG(1).uniform(0.1, 1.0, N)
    data = as_data(cj.Normal(mean, sd), jnp.asarray(y), weights=weights / weights.max())
    data = depending(data, **DEPENDENT[name])
    found, diagonal = found_sums(key, terms_of([normal_form(KERNEL)]), data, 130)
    xi = np.asarray(turns_of(data, 2))[:, :130]
    drawn = places(key, jnp.arange(2, dtype=jnp.int32), jnp.float64)[:, :130]
    expecting = places(key, jnp.asarray(MOMENT_BATCHES[:1]), jnp.float64)

    w, r = (weights / weights.max())[:, None], cosines(stats.norm.cdf(y, mean, sd))
    expected_squares = np.sum(w**2 * np.mean(cosines(np.asarray(expecting)) ** 2, 1), 0)
    missing = np.sqrt(np.maximum(0, 1 - np.sum(w**2 * r**2, 0) / expected_squares))
    assert missing.max() > 0.3
    data_sets = r[:, None] * xi[..., None] + missing * cosines(np.asarray(drawn))
    kernel = wasserstein_kernel(mean, sd) * w * w.T
    np.testing.assert_allclose(found[0, 0], forms(kernel, r[:, None])[0], rtol=1e-10)
    np.testing.assert_allclose(found[0, 1:], forms(kernel, data_sets), rtol=1e-9)
    np.testing.assert_allclose(diagonal[0], np.sum(w[:, 0] ** 2 * np.sum(r**2, 1)), rtol=1e-10)


def test_clusters_have_signs():
    xi = np.asarray(turns_of(depending(data_of_times(), clusters=CLUSTERS), 40))
    first = np.unique(CLUSTERS, return_index=True)[1]
    for cluster in np.unique(CLUSTERS):
        assert np.ptp(xi[cluster == CLUSTERS], axis=0).max() == 0
    patterns, counts = np.unique(xi[first], axis=1, return_counts=True)
    assert patterns.shape == (6, 2**6) and set(xi.ravel()) == {-1.0, 1.0}
    assert stats.chisquare(counts).pvalue > 0.01


def test_too_few_units_have_no_data_sets():
    """Five clusters, and 3.9 stretches."""
    merged = np.where(CLUSTERS == 7, 5, CLUSTERS)
    assert np.isnan(turns_of(depending(data_of_times(), clusters=merged), 1)).all()
    # One horizon for each of 12 times.
    apart = turns_of(depending(data_of_times(), times=np.arange(N) * 1.0, horizon=1.0), 1)
    np.testing.assert_allclose(np.mean(apart**2), 1, atol=0.1)
    for horizon, is_enough in ((3.0, True), (3.9, False)):
        found = turns_of(depending(data_of_times(), times=TIMES, horizon=horizon), 1)
        stretches = np.minimum(np.diff(np.unique(TIMES)), horizon).sum() / horizon * 11 / 10
        assert (stretches >= 4) == is_enough == np.isfinite(found).all()


def data_of_times():
    return as_data(cj.Normal(np.zeros(N, np.float32), np.ones(N, np.float32)), jnp.zeros(N))


def test_times_are_rotated(float64):
    """xi = B v, for B by the covariance of all pairs of times, and v of length 1."""
    xi = np.asarray(turns_of(depending(data_of_times(), times=TIMES, horizon=2.0), 100))
    assert np.abs(xi[1] - xi[2]).max() == 0
    at, rows = np.unique(TIMES / 2, return_inverse=True)
    # Nine gaps of less than a horizon of 2, and one that counts as one.
    n_stretches = np.minimum(np.diff(at), 1).sum() * 11 / 10
    k, x = np.arange(int(n_stretches) + 1), (np.arange(11) + 0.5) / 11
    assert k.size == 7
    cosines = np.cos(np.pi * k * x[:, None])
    a = cosines.T @ np.maximum(0, 1 - np.abs(at[:, None] - at)) @ cosines
    factors = np.sqrt(a[0, 0]) * cosines @ np.linalg.inv(np.linalg.cholesky(a)).T
    v, residual, *_ = np.linalg.lstsq(factors[rows], xi, rcond=None)
    np.testing.assert_allclose(residual, 0, atol=1e-8)
    np.testing.assert_allclose(np.linalg.norm(v, axis=0), 1, rtol=1e-4)
    # Directions are even: a coordinate of 7, squared, is a beta variable.
    assert stats.kstest(v[0] ** 2, stats.beta(0.5, 3).cdf).pvalue > 0.01
    assert np.abs(np.corrcoef(v)[~np.eye(7, dtype=bool)]).max() < 0.04


def test_equal_weights_change_nothing(key):
    mean, sd, y = (x.astype(np.float32) for x in normal_data(RNG(2)))
    predictions = cj.Normal(mean, sd)

    def test(**options):
        return cj.aggregated_skce_test(key, [KERNEL], predictions, y, n_resamples=99, **options)

    plain, weighted = test(), test(weights=np.full(N, 3.0, np.float32))
    np.testing.assert_array_equal(plain.null_distribution, weighted.null_distribution)
    np.testing.assert_array_equal(plain.pvalue, weighted.pvalue)
    np.testing.assert_array_equal(plain.estimate, weighted.estimate)
    uneven = RNG(3).uniform(0.1, 1.0, N).astype(np.float32)
    expected = cj.skce(KERNEL, predictions, y, weights=uneven)
    np.testing.assert_allclose(test(weights=uneven).estimate, expected, rtol=2e-5, atol=1e-7)


def test_horizons_in_other_units_and_names_of_clusters_change_nothing(key):
    mean, sd, y = (x.astype(np.float32) for x in normal_data(RNG(2)))

    def pvalues(**options):
        predictions = cj.Normal(mean, sd)
        result = cj.aggregated_skce_test(key, [KERNEL], predictions, y, n_resamples=99, **options)
        return np.asarray(result.null_distribution)

    # Times in seconds since 1970 have more digits than float32.
    seconds = 1.7e9 + 3600 * TIMES
    of_times = pvalues(times=TIMES, horizon=2.0)
    np.testing.assert_allclose(of_times, pvalues(times=seconds, horizon=7200), rtol=1e-5)
    of_clusters = pvalues(clusters=CLUSTERS)
    np.testing.assert_array_equal(of_clusters, pvalues(clusters=10**9 + 1000 * CLUSTERS))
    # Without a horizon, rows of one time are a cluster.
    np.testing.assert_array_equal(of_clusters, pvalues(times=CLUSTERS / 7))


@pytest.mark.parametrize("name", ["clusters", "times", "censored"])
def test_masks_jit_and_devices(name, key, float64):
    """The p-value of kept rows alone is that of padded, traced and distributed rows."""
    rng, n = RNG(4), 16
    kept = np.arange(n) % 4 != 3
    predictions = cj.Weibull(rng.uniform(0.5, 2, n), rng.uniform(0.5, 2, n))
    time, observed = rng.exponential(size=n), rng.random(n) < 0.6
    numbers = {"clusters": (np.arange(n) // 4,), "times": (np.sort(rng.uniform(0, 9, n)),)}
    dependence = numbers.get(name, ())

    def test(rows, where=None):
        (shape_and_scale, time, observed), *more = rows
        predictions = jax.tree.unflatten(structure, shape_and_scale)
        targets = cj.IntervalCensored.right_censored(time, observed) if name == "censored" else time
        options = dict(zip([name], more, strict=False)) | (
            {"horizon": 2} if name == "times" else {}
        )
        result = cj.aggregated_skce_test(
            key, [CONSTANT], predictions, targets, n_resamples=99, where=where, **options
        )
        return result.null_distribution, result.pvalue

    leaves, structure = jax.tree.flatten(predictions)
    rows = jax.tree.map(jnp.asarray, ((leaves, time, observed), *dependence))
    garbage = jax.tree.map(lambda x: jnp.where(kept, x, jnp.asarray(-1, x.dtype)), rows)
    if name == "times":
        garbage = (*garbage[:1], jnp.where(kept, garbage[1], jnp.nan))
    alone = test(jax.tree.map(lambda x: x[kept], rows))
    for found in test(garbage, kept), jax.jit(test)(garbage, kept):
        np.testing.assert_allclose(found[0], alone[0], rtol=1e-8)
        np.testing.assert_array_equal(found[1], alone[1])
    mesh = jax.make_mesh((4,), ("rows",), axis_types=(AxisType.Auto,))
    cut = jax.device_put((garbage, kept), NamedSharding(mesh, PartitionSpec("rows")))
    np.testing.assert_allclose(test(*cut)[0], alone[0], rtol=1e-8)


def test_draws_are_censored_as_the_rows_are(key, float64):
    """Where the censoring is known, each data set is drawn and censored, and judged as observed."""
    rng = RNG(5)
    rate, censored_at = rng.uniform(0.5, 2, N), rng.uniform(0.2, 2.0, N)
    time = rng.exponential(size=N) / rate
    targets = cj.IntervalCensored.right_censored(
        jnp.minimum(time, censored_at), jnp.asarray(time <= censored_at), jnp.asarray(censored_at)
    )
    data = as_data(cj.Weibull(np.ones(N), 1 / rate), targets, intervals=True)
    found, _ = found_sums(key, terms_of([normal_form(CONSTANT)]), data, 99, redraws=True)
    u = np.asarray(places(key, jnp.zeros(1, jnp.int32), jnp.float64))[:, :99]
    u = np.concatenate([1 - np.exp(-rate * time)[:, None], u], axis=1)
    low = (1 - np.exp(-rate * censored_at))[:, None]
    k = np.array([1, 2])
    # The mean of sqrt(2) cos(pi k u) from low to 1.
    above = -np.sqrt(2) * np.sin(np.pi * k * low) / (np.pi * k * (1 - low)) * np.sqrt([1, 0.5])
    residuals = np.where((u > low)[..., None], above[:, None], cosines(u))
    np.testing.assert_allclose(found[0], forms(np.ones((N, N)), residuals), rtol=1e-9)


def test_counts_are_censored_as_the_rows_are(key, float64):
    rng = RNG(6)
    rate, censored_at = rng.uniform(1, 4, N), rng.integers(1, 5, N)
    count = rng.poisson(rate)
    targets = cj.IntervalCensored.right_censored(
        jnp.minimum(count, censored_at), jnp.asarray(count <= censored_at), jnp.asarray(censored_at)
    )
    kernel = cj.PITKernel(lambda p, q: 1.0, weights=np.array([1.0]))
    data = as_data(cj.Poisson(rate), targets, intervals=True)
    found, _ = found_sums(key, terms_of([normal_form(kernel)]), data, 99, redraws=True)
    draws = draw_targets(
        jax.random.split(key)[0], cj.Poisson(jnp.asarray(rate)), jnp.arange(N), jnp.int32(0)
    )
    y = np.concatenate([count[:, None], np.asarray(draws)[:, :99]], axis=1)
    hidden = y > censored_at[:, None]
    low = stats.poisson.cdf(np.where(hidden, censored_at[:, None], y - 1), rate[:, None])
    high = np.where(hidden, 1.0, stats.poisson.cdf(y, rate[:, None]))
    mean = np.sqrt(2) * (np.sin(np.pi * high) - np.sin(np.pi * low)) / (np.pi * (high - low))
    np.testing.assert_allclose(found[0], np.sum(mean, axis=0) ** 2, rtol=1e-7, atol=1e-9)


X, Y, IDS = cj.Normal(np.zeros(N, np.float32), np.ones(N, np.float32)), jnp.zeros(N), CLUSTERS
ERRORS = {
    "both": (dict(clusters=IDS, times=TIMES), ValueError, "clusters and times must not both"),
    "no times": (dict(horizon=1.0), ValueError, "times must be given with a horizon"),
    "one cluster": (
        dict(clusters=IDS * 0),
        ValueError,
        "clusters or times must have at least 2 .* got 1",
    ),
    "one time": (dict(times=IDS * 0.0, horizon=1), ValueError, "times must have at least 2"),
    "names": (dict(clusters=np.array(list("abcabcabcabc"))), TypeError, "clusters must hold int"),
    "fractions": (dict(clusters=TIMES), TypeError, "clusters must hold integer values"),
    "length": (dict(clusters=IDS[:5]), ValueError, r"clusters must have shape \[n\] with n = 12"),
    "nan": (dict(times=np.where(IDS == 7, np.nan, TIMES)), ValueError, "times must be finite; row"),
    "zero": (dict(times=TIMES, horizon=0), ValueError, "horizon must be positive and fin.*got 0"),
    "array": (dict(times=TIMES, horizon=Y), TypeError, "horizon must be a number of Python"),
    "negative": (dict(weights=-np.ones(N)), ValueError, "weights must be nonnegative"),
    "one weight": (dict(weights=np.eye(N)[0]), ValueError, "keep at least 2 rows, got 1"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name, key):
    options, exception, message = ERRORS[name]
    check_message(lambda: cj.calibration_test(key, X, Y, **options), exception, message)


def test_the_method_says_what_carried_the_test(key):
    def test(**options):
        return cj.aggregated_skce_test(key, [KERNEL], X, Y, n_resamples=9, **options)

    redrawn = test(weights=np.ones(N, np.float32))
    assert "9 simulated data sets" in redrawn.method and redrawn.is_exact
    multiplied = test(clusters=CLUSTERS)
    assert "9 random signs of 6 clusters" in multiplied.method and not multiplied.is_exact
    # A cluster of masked rows does not count.
    assert "of 5 clusters" in test(clusters=CLUSTERS, where=CLUSTERS != 7).method
    assert "9 random rotations of 11 times" in test(times=TIMES, horizon=2).method
    assert "9 random signs of 11 times" in test(times=TIMES).method


def clustered(key, ids):
    """Calibrated forecasts whose errors have the correlation 0.3 in clusters, or in one class."""
    shared, own = jax.random.normal(key, (2, ids.size))
    z = np.sqrt(0.3) * shared[ids] + np.sqrt(0.7) * own
    return cj.Normal(jnp.zeros(ids.size), jnp.ones(ids.size)), z


def classes_of_clusters(key, ids):
    keys = jax.random.split(key, 3)
    joint, own = (jax.random.uniform(k, ids.shape) < 0.2 for k in keys[:2])
    others = 1 + jax.random.randint(keys[2], ids.shape, 0, 4)
    is_first = jnp.where(np.arange(ids.size) % 2 == 0, joint[ids], own)
    return cj.Categorical(jnp.full((ids.size, 5), 0.2)), jnp.where(is_first, 0, others)


def four_steps_ahead(key, times, memory=0.9):
    """Perfect forecasts of a series with a memory, each issued before the last one is verified."""
    noise = np.sqrt(1 - memory**2) * jax.random.normal(key, (times.size + 104,))
    series = jax.lax.scan(lambda x, e: (memory * x + e,) * 2, 0.0, noise)[1][100:]
    spread = jnp.full(times.size, np.sqrt(1 - memory**8))
    return cj.Normal(memory**4 * series[:-4], spread), series[4:]


def lifetimes(key, rows):
    time, end = jax.random.exponential(key, (2, rows.size)) * np.array([[1.0], [1.5]])
    targets = cj.IntervalCensored.right_censored(jnp.minimum(time, end), time <= end)
    return cj.Weibull(jnp.ones(rows.size), jnp.ones(rows.size)), targets


ROWS = np.arange(200)
LEVELS = {
    "20 clusters": (clustered, ROWS % 20, "clusters", 0.05),
    "20 clusters of labels": (classes_of_clusters, ROWS % 20, "clusters", 0.05),
    "times": (four_steps_ahead, ROWS, "times", 0.05),
    "censored": (lifetimes, ROWS, "", 0.05),
    # What the argument is for.
    "20 clusters ignored": (clustered, ROWS % 20, "", None),
    "times ignored": (four_steps_ahead, ROWS, "", None),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LEVELS)
def test_levels(name, key):
    make, numbers, argument, level = LEVELS[name]
    options = {argument: jnp.asarray(numbers)} if argument else {}
    options |= {"horizon": 4} if argument == "times" else {}

    def pvalue(key):
        data_key, test_key = jax.random.split(key)
        predictions, targets = make(data_key, numbers)
        return cj.calibration_test(test_key, predictions, targets, n_resamples=99, **options).pvalue

    n_sets = 300
    pvalues = jax.jit(lambda keys: jax.lax.map(pvalue, keys))(jax.random.split(key, n_sets))
    rejected = np.mean(np.asarray(pvalues) <= 0.05 + 1e-6)
    if level is None:
        assert rejected > 0.2
    else:
        assert rejected <= level + 3 * np.sqrt(level * (1 - level) / n_sets)


def test_ordered_classes_of_which_a_range_is_known(key):
    predictions = cj.Ordinal(jnp.full((N, 4), 0.25))
    targets = cj.IntervalCensored(jnp.full(N, -jnp.inf), jnp.arange(N, dtype=jnp.float32) % 3)
    result = cj.calibration_test(key, predictions, targets, n_resamples=99)
    assert 0 < result.pvalue <= 1
    # The default kernel, and the location and the spread of all rows.
    assert len(result.kernels.kernels) == 3
