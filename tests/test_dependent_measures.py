"""Classical measures of rows in clusters and over times: data sets by plain sums, and errors."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from instances import depending
from jax.tree_util import Partial
from messages import check_message
from scipy import stats

import calibjax as cj
from calibjax._data.data import as_data, clean
from calibjax.nulls.draws import draw_pits, draw_targets
from calibjax.nulls.sampler import turns

N = 24
KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
PROBS = RNG.dirichlet(np.ones(3), N)
TARGETS = RNG.integers(0, 3, N)
WEIGHTS = RNG.lognormal(size=N) * (np.arange(N) != 5)
CLUSTERS = np.arange(N) // 3
BINS = cj.UniformBinning(2)
DEPENDENT = {
    "clusters": {"clusters": CLUSTERS},
    "times": {"times": 0.5 * np.arange(N), "horizon": 2.0},
    "weights": {"clusters": CLUSTERS, "weights": WEIGHTS},
}


@functools.partial(jax.jit, static_argnames="n_times")
def parts(key, data, n_times):
    """The multipliers of 100 data sets, and their labels or, of numbers, their PITs."""
    data, group, are_labels = clean(data), jnp.int32(0), data.predictions.n_labels is not None
    eta = turns(data, n_times, None)
    numbers = jnp.cumsum(data.weights != 0, dtype=jnp.int32) - 1
    if are_labels:
        drawn = draw_targets(key, data.predictions, numbers, group)
    else:
        drawn, _ = draw_pits(key, numbers, group[None], data.weights.dtype)
    return eta.values(eta.rows, eta.shared(group[None])), drawn


@pytest.mark.parametrize("case", DEPENDENT)
def test_data_sets_are_multiplied_residuals(case):
    given = dict(DEPENDENT[case])
    predictions, weights = cj.Categorical(PROBS), given.get("weights", np.ones(N))
    estimator = Partial(cj.ece, binning=BINS)
    options = {"n_resamples": 99} | given
    found = cj.consistency_test(KEY, estimator, predictions, TARGETS, **options)

    dependence = {x: given.get(x) for x in ("clusters", "times", "horizon")}
    data = depending(as_data(predictions, TARGETS, weights=given.get("weights")), **dependence)
    xi, drawn = (np.asarray(x) for x in parts(KEY, data, 24 if "times" in given else None))
    labels, weights = np.eye(3), weights / weights.max()
    observed = labels[TARGETS] - PROBS
    squares = np.sum(weights[:, None] ** 2 * observed**2, axis=0)
    expected = np.sum(weights[:, None] ** 2 * PROBS * (1 - PROBS), axis=0)
    missing = np.sqrt(np.maximum(1 - squares / expected, 0))
    cells = np.unique(np.clip(np.ceil(2 * PROBS), 1, 2), axis=0, return_inverse=True)[1]

    def ece(residuals):
        sums = [
            np.abs(weights[cells == b] @ residuals[cells == b]).sum()
            for b in range(cells.max() + 1)
        ]
        return sum(sums) / 2 / weights.sum()

    values = [
        ece(xi[:, [k]] * observed + missing * (labels[drawn[:, k]] - PROBS)) for k in range(99)
    ]
    np.testing.assert_allclose(found.null_distribution, values, rtol=2e-3, atol=1e-5)
    np.testing.assert_allclose(found.statistic, ece(observed), rtol=1e-5)
    plain = cj.ece(predictions, TARGETS, binning=BINS, weights=given.get("weights"))
    np.testing.assert_allclose(found.estimate, plain, rtol=1e-5)


@pytest.mark.parametrize("name", ["mce", "smooth_ece"])
def test_forms_are_the_estimators(name):
    p, y = PROBS[:, 0] / (PROBS[:, 0] + PROBS[:, 1]), (TARGETS == 0).astype(int)
    estimator = getattr(cj, name)
    options = {"n_resamples": 9, "clusters": CLUSTERS, "weights": WEIGHTS}
    found = cj.consistency_test(KEY, estimator, cj.Bernoulli(p), y, **options)
    plain = estimator(cj.Bernoulli(p), y, weights=WEIGHTS)
    np.testing.assert_allclose(found.statistic, plain, rtol=1e-4)


def weighted_hits(predictions, targets, weights=None):
    hits = targets == jnp.argmax(predictions.probs, axis=1).astype(targets.dtype)
    return jnp.average(hits.astype(jnp.float32), weights=weights)


def test_redraws_have_the_same_weights():
    """The values are those of the redrawn labels, and the estimator is called with weights."""
    predictions = cj.Categorical(PROBS)
    options = {"n_resamples": 99, "weights": WEIGHTS}
    found = cj.consistency_test(KEY, weighted_hits, predictions, TARGETS, **options)
    data = as_data(predictions, TARGETS, weights=WEIGHTS)
    data = depending(data, clusters=CLUSTERS)
    _, drawn = parts(KEY, data, None)
    hits = np.asarray(drawn) == PROBS.argmax(1)[:, None]
    expected = np.average(hits, axis=0, weights=WEIGHTS)[:99]
    np.testing.assert_allclose(found.null_distribution, expected, rtol=1e-5)
    equal, plain = (
        cj.consistency_test(KEY, cj.ece, predictions, TARGETS, n_resamples=99, **x)
        for x in ({"weights": np.full(N, 3)}, {})
    )
    np.testing.assert_allclose(equal.null_distribution, plain.null_distribution, rtol=1e-6)
    assert equal.pvalue == plain.pvalue


@pytest.mark.parametrize(
    ("estimator", "options", "message"),
    [
        (weighted_hits, {"clusters": CLUSTERS}, "estimator must be ece, .* got weighted_hits"),
        (cj.mmce, {"clusters": CLUSTERS}, "estimator must be .* got mmce"),
        (
            Partial(cj.ece, distance="kullback_leibler"),
            {"clusters": CLUSTERS},
            "distance must be one of total_variation, .* got 'kullback_leibler'",
        ),
        (cj.ece, {"null": "consistency", "weights": WEIGHTS}, "weights must be None for null='con"),
        (cj.ece, {"null": "consistency", "clusters": CLUSTERS}, "clusters must be None for null"),
        (cj.ece, {"clusters": np.zeros(N, int)}, "clusters or times must have at least 2"),
    ],
)
def test_errors(estimator, options, message):
    rows = cj.Categorical(PROBS), TARGETS
    call = functools.partial(cj.consistency_test, KEY, estimator, *rows, n_resamples=9, **options)
    check_message(call, ValueError, message)


def share_sets(given, predictions, y, residuals, share):
    """Sums of residuals ``[n, g]`` of a grid, of 99 data sets and of the observed one."""
    n_times = 24 if "times" in given else None
    dependence = {x: given.get(x) for x in ("clusters", "times", "horizon")}
    data = depending(as_data(predictions, y, weights=given.get("weights")), **dependence)
    _, band_key = jax.random.split(KEY)
    xi, drawn = (np.asarray(x)[:, :99] for x in parts(jax.random.split(band_key)[0], data, n_times))
    grid = np.linspace(0, 1, residuals.shape[1])
    redrawn = share @ (drawn[:, :, None] <= grid).reshape(N, -1)
    redrawn = redrawn.reshape(99, -1) - grid * np.sum(share)
    variances = np.maximum(grid * (1 - grid), 1e-9) * np.sum(share**2)
    missing = np.sqrt(np.maximum(1 - share**2 @ residuals**2 / variances, 0))
    data_sets = (share[:, None] * xi).T @ residuals + missing * redrawn
    return np.concatenate([data_sets, [share @ residuals]])


@pytest.mark.parametrize("case", [*DEPENDENT, "weights alone"])
def test_means_of_curves_have_weights(case):
    """And a band is as wide in all parts, in units of what data sets vary by.

    That is the model's deviation for rows whose targets are redrawn, and the root mean square of
    all data sets for those with multipliers.
    """
    given = {"weights": WEIGHTS} if case == "weights alone" else DEPENDENT[case]
    rng = np.random.default_rng(1)
    weights = given.get("weights", np.ones(N))
    y = rng.normal(size=N)
    normal = cj.Normal(jnp.zeros(N), jnp.full(N, 1.3))
    u = np.asarray(normal.cdf(jnp.asarray(y)))
    curve = cj.pit_curve(KEY, normal, y, n_bins=5, n_resamples=99, **given)
    inside = np.ceil(5 * u).astype(int)[:, None] == np.arange(1, 6)
    density = 5 * np.average(inside, axis=0, weights=weights)
    np.testing.assert_allclose(curve.density, density, rtol=1e-4)
    np.testing.assert_allclose(np.sum(curve.count), np.sum(weights > 0), rtol=1e-5)
    below = u[:, None] <= np.asarray(curve.grid)
    difference = np.average(below, axis=0, weights=weights) - np.asarray(curve.grid)
    np.testing.assert_allclose(curve.difference, difference, atol=1e-5)
    width = (curve.difference_high - curve.difference_low)[1:-1]
    deviation = np.sqrt(np.asarray(curve.grid * (1 - curve.grid))[1:-1])
    share = weights / weights.sum()
    least = np.sum(share[weights > 0] ** 2) / np.sum(weights > 0)
    if case == "weights alone":
        expected = np.maximum(deviation**2 * np.sum(share**2), least) ** 0.5
        np.testing.assert_allclose(width / expected, (width / expected)[50], rtol=1e-3)
    else:
        data_sets = share_sets(given, normal, y, below - np.asarray(curve.grid), share)[:, 1:-1]
        expected = np.maximum(np.mean(data_sets**2, axis=0), least) ** 0.5
        critical = np.sort(np.max(np.abs(data_sets[:-1]) / expected, axis=1))[94]
        np.testing.assert_allclose(width, 2 * critical * expected, rtol=1e-3)

    coverage = cj.coverage_curve(KEY, normal, y, n_levels=3, n_resamples=99, **given)
    inside = np.abs(2 * u - 1)[:, None] <= np.asarray(coverage.levels)
    found = np.average(inside, axis=0, weights=weights)
    np.testing.assert_allclose(coverage.coverage, found, atol=1e-5)


@pytest.mark.parametrize("case", [*DEPENDENT, "weights alone"])
def test_reliability_band_by_plain_sums(case):
    given = {"weights": WEIGHTS} if case == "weights alone" else DEPENDENT[case]
    weights = given.get("weights", np.ones(N)) / given.get("weights", np.ones(N)).max()
    p, y = PROBS[:, 0], (TARGETS == 0).astype(int)
    options = {"n_bins": 3, "n_resamples": 99, "confidence_level": 0.9} | given
    curve = cj.reliability_curve(KEY, cj.Bernoulli(p), y, **options)

    dependence = {x: given.get(x) for x in ("clusters", "times", "horizon")}
    if not any(x in given for x in ("clusters", "times")):
        dependence = {"clusters": CLUSTERS}
    data = as_data(cj.Bernoulli(p), y, weights=given.get("weights"))
    data = depending(data, **dependence)
    draw_key, _ = jax.random.split(KEY)
    xi, drawn = parts(draw_key, data, 24 if "times" in given else None)
    xi = np.asarray(xi)[:, :99]
    sums = np.array([weights * (np.ceil(3 * p) == b + 1) for b in range(3)])
    redrawn = sums @ (np.asarray(drawn)[:, :99] - p[:, None])
    variance = (sums**2) @ (p * (1 - p))
    data_sets = redrawn
    if case != "weights alone":
        missing = np.sqrt(np.maximum(1 - (sums**2) @ (y - p) ** 2 / variance, 0))
        data_sets = sums @ (xi * (y - p)[:, None]) + missing[:, None] * redrawn
        variance = (np.sum(data_sets**2, axis=1) + (sums @ (y - p)) ** 2) / 100
    rows = np.sum(sums > 0, axis=1)
    deviation = np.sqrt(np.maximum(variance, np.sum(sums**2, axis=1) / rows))
    critical = np.sort(np.max(np.abs(data_sets) / deviation[:, None], axis=0))[89]
    forecast, half = sums @ p / sums.sum(1), critical * deviation / sums.sum(1)
    np.testing.assert_allclose(curve.forecast, forecast, rtol=1e-5)
    np.testing.assert_allclose(curve.frequency, sums @ y / sums.sum(1), rtol=1e-5)
    # An end near 0 has lost the digits of the numbers that it is the difference of.
    below, above = curve.forecast - curve.simultaneous_low, curve.simultaneous_high - curve.forecast
    np.testing.assert_allclose(below, np.minimum(half, forecast), rtol=1e-3)
    np.testing.assert_allclose(above, np.minimum(half, 1 - forecast), rtol=1e-3)
    assert curve.count.tolist() == rows.tolist()


def test_equal_weights_are_none():
    p, y = PROBS[:, 0], (TARGETS == 0).astype(int)
    kept = np.arange(N) != 5
    curves = [
        functools.partial(cj.reliability_curve, KEY, n_bins=3),
        functools.partial(cj.pit_curve, KEY, n_bins=3),
        functools.partial(cj.corp_curve, key=KEY),
    ]
    for curve in curves:
        options = {"n_resamples": 19, "confidence_level": 0.9}
        found = curve(predictions=cj.Bernoulli(p), targets=y, weights=3.0 * kept, **options)
        plain = curve(predictions=cj.Bernoulli(p), targets=y, where=kept, **options)
        jax.tree.map(np.testing.assert_array_equal, found, plain)


def test_corp_curve_is_the_weighted_isotonic_regression():
    isotonic = pytest.importorskip("sklearn.isotonic")
    p, y = np.round(PROBS[:, 0], 1), (TARGETS == 0).astype(int)
    curve = cj.corp_curve(
        cj.Bernoulli(p), y, weights=WEIGHTS, key=KEY, n_resamples=999, confidence_level=0.9
    )
    model = isotonic.IsotonicRegression().fit(p, y, sample_weight=WEIGHTS)
    np.testing.assert_allclose(curve.recalibrated, model.predict(curve.forecasts), rtol=1e-5)
    scores = [np.average((x - y) ** 2, weights=WEIGHTS) for x in (p, model.predict(p))]
    np.testing.assert_allclose(
        [curve.score, curve.miscalibration], [scores[0], scores[0] - scores[1]], rtol=1e-5
    )
    assert np.all(curve.simultaneous_low <= curve.pointwise_low + 1e-12)


def test_smooth_ece_of_repeated_rows():
    p, y = PROBS[:, 0], (TARGETS == 0).astype(int)
    times = np.random.default_rng(2).integers(0, 4, N)
    rows = np.repeat(np.arange(N), times)
    found = cj.smooth_ece(cj.Bernoulli(p), y, weights=times)
    np.testing.assert_allclose(found, cj.smooth_ece(cj.Bernoulli(p[rows]), y[rows]), rtol=2e-3)


@pytest.mark.slow
def test_levels_of_clusters():
    """Twenty clusters of twenty rows, whose latent normal numbers have the correlation 0.5."""
    n, n_sets, rng = 400, 200, np.random.default_rng(3)
    clusters, p = np.arange(n) % 20, rng.uniform(0.05, 0.95, (n_sets, n))
    z = np.sqrt(0.5) * rng.normal(size=(n_sets, 20))[:, clusters]
    z = z + np.sqrt(0.5) * rng.normal(size=(n_sets, n))
    targets = (stats.norm.cdf(z) <= p).astype(int)

    def rejected(row, options):
        key, p, y = row
        options = {"n_resamples": 99} | options
        test = cj.consistency_test(key, cj.ece, cj.Bernoulli(p), y, **options)
        curve = cj.reliability_curve(key, cj.Bernoulli(p), y, n_bins=10, **options)
        low, high = curve.simultaneous_low, curve.simultaneous_high
        is_outside = jnp.any((curve.frequency < low) | (curve.frequency > high))
        return jnp.stack([test.pvalue <= 0.05, is_outside])

    rows = jax.random.split(KEY, n_sets), jnp.asarray(p), jnp.asarray(targets)
    given, not_given = (
        np.mean(
            jax.jit(lambda rows, o=o: jax.lax.map(lambda r: rejected(r, o), rows))(rows), axis=0
        )
        for o in ({"clusters": clusters}, {})
    )
    # Three standard errors of a level of 0.05.
    assert np.all(given < 0.05 + 3 * np.sqrt(0.05 * 0.95 / n_sets))
    assert np.all(not_given > 0.1)
