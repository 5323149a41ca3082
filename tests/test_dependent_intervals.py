"""Intervals and comparisons of rows with weights, clusters or times: NumPy, facts and coverage."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from instances import depending
from messages import check_message
from scipy import stats
from test_interval_censored import KERNEL, by_hand, rows

import calibjax as cj
from calibjax._data.data import as_data, clean
from calibjax.discrepancy import normal_form
from calibjax.intervals.skce_interval import dependent_interval
from calibjax.nulls.bootstrap import DependentSums, dependent_sums
from calibjax.nulls.sampler import sizes_of_draws, turns
from calibjax.operators.gram_matrix import tiled_h

KEY = jax.random.key(31)
N, R = 12, 150
WEIGHTS = np.linspace(0.5, 2.0, N)
GROUPS = np.arange(N) // 2
CASES = {
    "weights": {},
    "clusters": {"clusters": 5 * GROUPS},
    "equal times": {"times": GROUPS / 7},
    "times": {"times": 0.1 + 2.0 * np.arange(N), "horizon": 6},
}


def related_rows(name):
    """Which rows may depend on each other, ``[n, n]``."""
    if name == "weights":
        return np.eye(N, dtype=bool)
    if name == "times":
        return np.abs(np.subtract.outer(np.arange(N), np.arange(N))) < 3
    return np.equal.outer(GROUPS, GROUPS)


def sums_by_hand(name, h, v, w):
    """What `dependent_sums` returns, from multipliers with weights ``[n, R]``."""
    pairs, related, total = np.outer(w, w), related_rows(name), w.sum()
    estimate = np.sum(pairs * h * ~related) / np.sum(pairs * ~related)
    share = np.sum(pairs * related) / total**2
    if name == "times":
        # Four stretches: chi-squared variables with five and with four degrees of freedom.
        keys = jax.random.split(KEY)
        squares = 1 / np.asarray(sizes_of_draws(keys[0], jnp.arange(2), jnp.asarray(5.0), 1.0)) ** 2
        f = np.asarray(sizes_of_draws(keys[1], jnp.arange(2), jnp.asarray(4.0), squares))[:R]
    else:
        # Of Student's distribution, with 1 / share clusters.
        nu = jnp.asarray(1 / share - 1)
        f = np.asarray(sizes_of_draws(KEY, jnp.arange(2), nu, nu))[:R] / np.sqrt(1 - share)
    e = f * (v - w[:, None] * v.sum(0) / total)
    errors = np.einsum("ir,ij,jr->r", e, h, e) / total**2
    null = np.einsum("ir,ij,jr->r", v, h, v) / total**2
    return estimate, w @ h @ w / total**2, errors, w @ h @ e / total**2, null


def draws_of(name, predictions, targets, weights=WEIGHTS):
    data = as_data(predictions, targets, weights=weights, intervals=True)
    data = clean(depending(data, **CASES[name]))
    terms = normal_form(KERNEL)
    found = jax.jit(lambda data: dependent_sums(KEY, tiled_h(terms, data), data, R))(data)
    if name == "weights":
        data = data.replace(clusters=jnp.arange(N))

    @jax.jit
    def factors_of(data):
        eta = turns(data, None, None)
        return eta.values(eta.rows, eta.shared(jnp.arange(2)))[:, :R]

    factors = np.asarray(factors_of(data))
    w = np.asarray(data.weights)
    return found, sums_by_hand(name, by_hand(predictions, targets), w[:, None] * factors, w)


@pytest.mark.parametrize("name", CASES)
def test_sums_by_hand(name, float64):
    found, expected = draws_of(name, *rows(N))
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)


def test_errors_have_the_mean_of_the_diagonal_blocks(float64):
    # Of clusters that weigh the same, E |delta*|^2 is |w_n|^2 - SKCE: by all signs of 6 clusters.
    predictions, targets = rows(12)
    h, groups = by_hand(predictions, targets), np.arange(12) // 2
    signs = np.array(np.meshgrid(*[[-1, 1]] * 6)).reshape(6, -1)[groups]
    e = (signs - signs.mean(0)) * np.sqrt(6 / 5)
    mean = np.mean(np.einsum("ir,ij,jr->r", e, h, e)) / 144
    kernel = KERNEL, predictions, targets
    result = cj.asymptotic_skce_test(KEY, *kernel, clusters=groups, n_resamples=19)
    np.testing.assert_allclose(h.mean() - result.estimate, mean, rtol=1e-9)
    apart = groups[:, None] != groups
    np.testing.assert_allclose(result.estimate, h[apart].mean(), rtol=1e-9)
    np.testing.assert_allclose(result.statistic, 12 * h.mean(), rtol=1e-9)


@pytest.mark.parametrize("name", ["clusters", "times"])
def test_results_by_hand(name, float64):
    predictions, targets = rows(N)
    wrong = cj.Weibull(predictions.concentration, 3 * predictions.scale)
    options = {"n_resamples": R, **CASES[name]}
    (ours, expected), (theirs, _) = (draws_of(name, p, targets, None) for p in (predictions, wrong))
    estimate, biased, errors, linear, null = expected
    # The test.
    result = cj.asymptotic_skce_test(KEY, KERNEL, predictions, targets, **options)
    np.testing.assert_allclose(result.null_distribution, N * null, rtol=1e-9)
    assert result.pvalue == (1 + np.sum(null >= biased - 1e-12)) / (R + 1)
    error = 2 * np.sqrt(np.mean(linear**2))
    np.testing.assert_allclose(result.standard_error, error, rtol=1e-9)
    assert f"{R} turns of {6 if name == 'clusters' else N} {name}" in result.method
    # The interval of these sums, which `test_intervals` knows by hand.
    levels = jnp.array([0.2, 0.5, 0.9])
    sums = DependentSums(*map(jnp.asarray, (estimate, biased, errors, linear, null + 1e-15)))
    ends = dependent_interval(sums)(levels)
    np.testing.assert_allclose(result.confidence_interval(levels), ends, rtol=1e-6, atol=1e-12)
    found = cj.skce_confidence_interval(
        KEY, KERNEL, predictions, targets, confidence_level=levels, **options
    )
    np.testing.assert_allclose(found, ends, rtol=1e-6, atol=1e-12)
    # The comparison.
    compared = cj.compare_calibration(KEY, KERNEL, predictions, wrong, targets, **options)
    np.testing.assert_allclose(compared.estimates, [ours.estimate, theirs.estimate], rtol=1e-8)
    draws = 2 * (ours.linear - theirs.linear) + (ours.errors - theirs.errors)
    draws = draws - np.mean(ours.errors - theirs.errors)
    np.testing.assert_allclose(compared.standard_error, np.sqrt(np.mean(draws**2)), rtol=1e-8)
    np.testing.assert_allclose(
        compared.deviations[0] * compared.standard_error, draws, rtol=1e-7, atol=1e-12
    )
    assert "turns of" in compared.method


@pytest.mark.parametrize("name", CASES)
def test_masked_rows_and_jit(name, float64):
    predictions, targets = rows(N)
    where = np.arange(N) % 5 != 2
    columns = {"weights": WEIGHTS, **CASES[name]}
    horizon = {"horizon": columns.pop("horizon")} if "horizon" in columns else {}
    rest = jax.tree.map(lambda x: x[where], (predictions, targets, columns))
    bad = cj.IntervalCensored(targets.low + np.where(where, 0.0, np.nan), targets.high)

    def ends(predictions, targets, columns, where):
        options = {**columns, **horizon, "where": where, "n_resamples": 99}
        return cj.skce_confidence_interval(KEY, KERNEL, predictions, targets, **options)

    expected = ends(*rest, None)
    assert 0 <= expected.low < expected.high < np.inf
    masked = ends(predictions, bad, columns, where)
    np.testing.assert_allclose(masked, expected, rtol=1e-9)
    if name in ("clusters", "times"):
        # Names of clusters are numbers already where they are traced, and draws depend on them.
        numbered = {**columns, "clusters": GROUPS} if name == "clusters" else columns
        jitted = jax.jit(ends)
        found = jitted(predictions, bad, numbered, where)
        np.testing.assert_allclose(found, expected, rtol=1e-9)
        # All rows depend on each other.
        alone = {k: np.zeros_like(v) if k == name else v for k, v in numbered.items()}
        assert np.isnan(jitted(predictions, bad, alone, where)).all()


def test_predictions_of_labels_share_their_turns(float64):
    rng = np.random.default_rng(0)
    probs, clusters = rng.uniform(0.2, 0.8, 40), np.arange(40) // 2
    first, targets = cj.Bernoulli(jnp.asarray(probs)), rng.integers(0, 2, 40)
    second = cj.Categorical(jnp.stack([1 - probs, probs], axis=1))
    options = {"clusters": clusters, "n_resamples": 39}
    result = cj.compare_calibration(KEY, None, first, second, targets, **options)
    assert result.pvalue == 1 and abs(result.difference) < 1e-15
    # Weights of a row are those of as many rows in the estimates, and not in their errors.
    kernel = cj.default_kernel(first)
    options = {"weights": 1.0 + clusters % 3, "n_resamples": 39}
    wrong = cj.Bernoulli(jnp.asarray(probs**2))
    result = cj.compare_calibration(KEY, kernel, first, wrong, targets, **options)
    for found, model in zip(result.estimates, (first, wrong), strict=True):
        expected = cj.skce(kernel, model, targets, weights=options["weights"])
        np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_bad_arguments():
    predictions, targets = cj.Normal(jnp.zeros(6), jnp.ones(6)), jnp.arange(6.0)
    data, times = (cj.default_kernel(predictions), predictions, targets), np.arange(6)
    pair = predictions, predictions, targets

    def interval(**options):
        return lambda: cj.skce_confidence_interval(KEY, *data, **options)

    lines = [
        (interval(clusters=times, times=times), "clusters and times must not both be given"),
        (interval(horizon=2), "times must be given with a horizon"),
        (interval(clusters=times * 0), "clusters or times must have at least 2 different values"),
        (interval(times=times, horizon=6), "times must be more than one horizon apart"),
        (interval(clusters=times[:5]), r"clusters must have shape \[n\] with n = 6"),
        (interval(weights=-times), "weights must be nonnegative"),
        (
            lambda: cj.compare_calibration(KEY, None, *pair, times=times, horizon=6),
            "times must be more than one horizon apart",
        ),
        (
            lambda: cj.asymptotic_skce_test(KEY, *data, clusters=times, method="wild"),
            "method must be 'bootstrap' with weights, clusters or times, got 'wild'",
        ),
    ]
    for call, message in lines:
        check_message(call, ValueError, message)


# Coverage.

LOC = cj.DistanceKernel(cj.EmbeddingDistance(jax.tree_util.Partial(lambda p: p.loc)), 1.0)
OF_NORMAL = cj.PITKernel(LOC)
PHI = 0.9


def of_clusters(key, n, size, correlation, bias):
    keys, groups = jax.random.split(key, 3), jnp.arange(n) // size
    loc = jax.random.normal(keys[0], (n,))
    shared = jax.random.normal(keys[1], (n // size,))[groups]
    own = jax.random.normal(keys[2], (n,))
    errors = jnp.sqrt(correlation) * shared + jnp.sqrt(1 - correlation) * own
    return cj.Normal(loc, jnp.ones(n)), loc + bias + errors, {"clusters": groups}


def four_steps_ahead(key, n, bias):
    """The optimal forecasts of an autoregression, issued at every step."""
    keys = jax.random.split(key)
    start = jax.random.normal(keys[0]) / np.sqrt(1 - PHI**2)
    noise = jax.random.normal(keys[1], (n + 4,))
    _, y = jax.lax.scan(lambda y, e: (PHI * y + e,) * 2, start, noise)
    scale = np.sqrt((1 - PHI**8) / (1 - PHI**2))
    predictions = cj.Normal(PHI**4 * y[:n], jnp.full(n, scale))
    return predictions, y[4:] + bias * scale, {"times": jnp.arange(n), "horizon": 4}


def skce_of_bias(bias, deviation):
    """The SKCE of normal forecasts with a constant bias, in units of their scale."""
    # E exp(-|D|) for the difference D of two locations.
    s = np.sqrt(2) * deviation
    of_locations = 2 * np.exp(s**2 / 2) * stats.norm.sf(s)
    u = stats.norm.cdf(stats.norm.ppf((np.arange(10**5) + 0.5) / 10**5) + bias)
    means = np.sqrt(2) * np.cos(np.pi * np.arange(1, 17)[:, None] * u).mean(1)
    return of_locations * np.sum((means / (np.pi * np.arange(1, 17))) ** 2)


STATIONARY = PHI**4 / np.sqrt(1 - PHI**2)
COVERAGE = {
    "clusters of 5": (lambda key, bias: of_clusters(key, 200, 5, 0.5, bias), 1.0),
    "clusters of 20": (lambda key, bias: of_clusters(key, 400, 20, 0.5, bias), 1.0),
    "four steps ahead": (lambda key, bias: four_steps_ahead(key, 200, bias), STATIONARY),
}


@pytest.mark.parametrize("bias", [0.0, 0.3])
@pytest.mark.parametrize("name", COVERAGE)
def test_coverage(name, bias):
    (make, deviation), n_sets, level = COVERAGE[name], 300, 0.9

    def ends(key):
        predictions, targets, options = make(key, bias)
        key = jax.random.fold_in(key, 1)
        return cj.skce_confidence_interval(
            key, OF_NORMAL, predictions, targets, confidence_level=level, n_resamples=199, **options
        )

    keys = jax.random.split(KEY, n_sets)
    low, high = jax.jit(lambda keys: jax.lax.map(ends, keys))(keys)
    truth = skce_of_bias(bias, deviation)
    rate = np.mean((low <= truth) & (truth <= high))
    print(rate, truth, np.mean(low > 0))
    assert rate >= level - 3 * np.sqrt(level * (1 - level) / n_sets)
    # The certificate, and the power: independent rows would seem to know far more.
    certain = (1 + level) / 2
    assert np.mean(truth <= high) >= certain - 3 * np.sqrt(certain * (1 - certain) / n_sets)
    if bias:
        assert np.mean(low > 0) > 0.3


@pytest.mark.parametrize("name", COVERAGE)
def test_levels(name):
    make, n_sets, level = COVERAGE[name][0], 300, 0.05

    def pvalues(key):
        predictions, targets, options = make(key, 0.0)
        key, options = jax.random.fold_in(key, 1), {**options, "n_resamples": 199}
        shift = 0.5 * predictions.scale
        wrong = [cj.Normal(predictions.loc + s, predictions.scale) for s in (shift, -shift)]
        compared = [
            cj.compare_calibration(key, OF_NORMAL, first, wrong[1], targets, **options)
            for first in (wrong[0], predictions)
        ]
        test = cj.asymptotic_skce_test(key, OF_NORMAL, predictions, targets, **options)
        return jnp.stack([*(x.pvalue for x in compared), test.pvalue])

    keys = jax.random.split(KEY, n_sets)
    found = np.asarray(jax.jit(lambda keys: jax.lax.map(pvalues, keys))(keys))
    equally_wrong, one_is_wrong, calibrated = np.mean(found <= level, axis=0)
    print(equally_wrong, one_is_wrong, calibrated)
    most = level + 3 * np.sqrt(level * (1 - level) / n_sets)
    assert 0 < equally_wrong < most and 0.01 < calibrated < most
    assert one_is_wrong > equally_wrong
