"""Targets that are known to lie between two numbers, against quadrature, sums and SciPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from instances import FAMILIES, cast
from marks import fast_in_float64, slow
from messages import check_message
from scipy import stats

import calibjax as cj
from calibjax._data.interval_censored import unit_interval
from calibjax.discrepancy import normal_form

EVERYWHERE = jax.tree_util.Partial(lambda p, q: jnp.ones(()))
FEATURES = {
    "cosines": cj.PITKernel(EVERYWHERE).unit_feature(),
    "normal scores": cj.PITKernel(EVERYWHERE, np.ones(4), "normal scores").unit_feature(),
}
SCALE = cj.DistanceKernel(cj.EmbeddingDistance(jax.tree_util.Partial(lambda p: jnp.log(p.scale))))
KERNEL = cj.PITKernel(SCALE, 1 / (np.pi * np.arange(1, 17)) ** 2)
NAMES = pytest.mark.parametrize("name", FEATURES)
METHODS = ["blocks", "bound", "compare"]
METHODS += ["bootstrap", "wild", "spectrum", "gamma", "pearson", "features"]


def features_of(name, predictions, low, high):
    """The features of all rows, ``[n, K]``."""
    function = jax.jit(FEATURES[name].of_rows)
    return np.asarray(
        function(predictions, cj.IntervalCensored(jnp.asarray(low), jnp.asarray(high)))
    )


def repeated(predictions, m):
    """Each prediction m times, ``[n m]``."""
    return jax.tree.map(lambda x: jnp.repeat(jnp.asarray(x), m), predictions)


LAWS = {
    "exponential": (
        lambda: cj.Weibull(jnp.ones(3), jnp.array([0.5, 1.0, 4.0])),
        lambda p: stats.expon(scale=p.scale),
    ),
    "weibull": (
        lambda: cj.Weibull(jnp.array([0.7, 1.5, 3.0]), jnp.array([1.0, 2.0, 0.5])),
        lambda p: stats.weibull_min(p.concentration, scale=p.scale),
    ),
    "normal": (
        lambda: cj.Normal(jnp.array([-1.0, 0.0, 3.0]), jnp.array([0.5, 1.0, 2.0])),
        lambda p: stats.norm(p.loc, p.scale),
    ),
}


def points_below(law, level, n_panels=60):
    """Points and weights ``[m, n]`` for integrals of the density of a law up to its quantile."""
    x, w = np.polynomial.legendre.leggauss(20)
    scores = np.linspace(-8.0, stats.norm.ppf(level), n_panels + 1)
    edges = np.stack([law.ppf(u) for u in stats.norm.cdf(scores)])
    half = np.diff(edges, axis=0)[:, None] / 2
    points = (edges[1:] + edges[:-1])[:, None] / 2 + half * x[None, :, None]
    weights = half * w[None, :, None] * law.pdf(points)
    n = edges.shape[1]
    return points.reshape(-1, n), weights.reshape(-1, n)


@pytest.mark.parametrize("family", LAWS)
@NAMES
def test_the_mean_feature_is_0_whatever_the_censoring_time_is(family, name, float64):
    make, law_of = LAWS[family]
    predictions = make()
    law = law_of(jax.tree.map(np.asarray, predictions))
    for level in (1e-6, 0.2, 0.65, 0.999):
        times = law.ppf(level)
        points, weights = points_below(law, level)
        m = points.shape[0]
        seen = features_of(name, repeated(predictions, m), *[points.T.ravel()] * 2)
        seen = np.einsum("mn,nmk->nk", weights, seen.reshape(3, m, -1))
        censored = features_of(name, predictions, times, np.full(3, np.inf))
        assert np.abs(censored).max() > 1e-3 or level == 1e-6
        np.testing.assert_allclose(seen + (1 - level) * censored, 0.0, atol=1e-10)


@NAMES
def test_the_mean_feature_of_bins_is_0(name, float64):
    predictions = cj.Gamma(jnp.array([0.5, 2.0, 7.0]), jnp.array([1.0, 0.3, 4.0]))
    edges = np.array([-np.inf, 1e-3, 0.4, 1.0, 1.001, 7.0, np.inf])
    law = stats.gamma(np.asarray(predictions.concentration), scale=1 / np.asarray(predictions.rate))
    probabilities = np.diff(law.cdf(edges[:, None]), axis=0)
    found = [
        features_of(name, predictions, np.full(3, low), np.full(3, high))
        for low, high in zip(edges[:-1], edges[1:], strict=True)
    ]
    means = np.einsum("bn,bnk->nk", probabilities, found)
    np.testing.assert_allclose(means, 0.0, atol=1e-10)


COUNTS = {
    "poisson": (
        cj.Poisson(np.array([0.3, 2.0, 9.0]), max_count=64),
        stats.poisson([0.3, 2.0, 9.0]),
    ),
    "bernoulli": (cj.Bernoulli(np.array([0.1, 0.5, 0.7])), stats.bernoulli([0.1, 0.5, 0.7])),
}


@pytest.mark.parametrize("family", COUNTS)
@NAMES
def test_the_mean_feature_of_censored_counts_is_0(family, name, float64):
    predictions, law = COUNTS[family]
    for time in (-1, 0, 3):
        total = law.sf(time)[:, None] * features_of(
            name, predictions, np.full(3, float(time)), np.full(3, np.inf)
        )
        for count in range(min(time, 1 if family == "bernoulli" else 64) + 1):
            exact = features_of(name, predictions, *[np.full(3, float(count))] * 2)
            before, after = law.cdf(count - 1), law.cdf(count)
            low, high = cj.pit_interval(predictions, np.full(3, count))
            np.testing.assert_allclose((low, high), (before, after), atol=1e-12)
            total = total + law.pmf(count)[:, None] * exact
        np.testing.assert_allclose(total, 0.0, atol=1e-10)


EXACT = ["normal", "student_t", "poisson", "mixture"]


@pytest.mark.parametrize("family", slow({"student_t"}, EXACT))
@fast_in_float64
def test_exact_rows_are_those_of_arrays(family, dtype):
    predictions, targets = cast(FAMILIES[family](6, 0), dtype)
    between = cj.IntervalCensored(targets, targets)
    kernel = cj.PITKernel(EVERYWHERE)
    for function in (cj.log_score, cj.pit_interval, lambda p, y: cj.skce(kernel, p, y)):
        for found, expected in zip(
            jax.tree.leaves(function(predictions, between)),
            jax.tree.leaves(function(predictions, targets)),
            strict=True,
        ):
            assert found.dtype == dtype
            np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7)


def rows(n, seed=0):
    """Weibull predictions of calibrated lifetimes, a third exact, censored and in bins each."""
    rng = np.random.default_rng(seed)
    shape, scale = rng.uniform(0.8, 2.5, n), rng.uniform(0.5, 3.0, n)
    time = stats.weibull_min(shape, scale=scale).rvs(random_state=rng)
    low = np.where(np.arange(n) % 3 == 0, time, time * rng.uniform(0.2, 0.9, n))
    high = np.where(np.arange(n) % 3 == 1, np.inf, np.where(np.arange(n) % 3 == 0, time, 2 * time))
    low = np.where(np.arange(n) % 6 == 5, -np.inf, low)
    return cast((cj.Weibull(shape, scale), cj.IntervalCensored(low, high)))


def by_hand(predictions, targets):
    """h of all pairs by SciPy's cdf, and means of cosines as differences of sines, ``[n, n]``."""
    shape, scale, low, high = map(np.asarray, jax.tree.leaves((predictions, targets)))
    law, k = stats.weibull_min(shape, scale=scale), np.arange(1, 17)[:, None]
    a, b = law.cdf(low), law.cdf(high)
    width = np.where(a == b, 1.0, b - a)
    means = (np.sin(np.pi * k * b) - np.sin(np.pi * k * a)) / (np.pi * k * width)
    features = np.sqrt(2) * np.where(a == b, np.cos(np.pi * k * a), means) / (np.pi * k)
    distance = np.abs(np.log(scale)[:, None] - np.log(scale))
    return np.exp(-distance) * (features.T @ features)


def test_estimates_by_hand(float64):
    predictions, targets = rows(12)
    h = by_hand(predictions, targets)
    weights, where = np.linspace(0.5, 2.0, 12), np.arange(12) != 4
    for options, w in (({}, np.ones(12)), ({"weights": weights, "where": where}, weights * where)):
        pairs = np.outer(w, w)
        biased = cj.skce(KERNEL, predictions, targets, unbiased=False, **options)
        np.testing.assert_allclose(biased, np.sum(pairs * h) / pairs.sum(), rtol=1e-9)
        np.fill_diagonal(pairs, 0.0)
        for blocks in (None, 4):
            kept = pairs if blocks is None else pairs * np.kron(np.eye(3), np.ones((4, 4)))
            found = cj.skce(KERNEL, predictions, targets, block_size=blocks, **options)
            np.testing.assert_allclose(found, np.sum(kept * h) / kept.sum(), rtol=1e-9)
    one, other = (jax.tree.map(lambda x, i=i: x[i], (predictions, targets)) for i in (1, 5))
    np.testing.assert_allclose(KERNEL(one, other), h[1, 5], rtol=1e-9)


def test_other_estimates_by_hand(float64, key):
    predictions, targets = rows(12)
    h = by_hand(predictions, targets)
    np.testing.assert_allclose(cj.h_matrix(KERNEL, predictions, targets), h, rtol=1e-9, atol=1e-12)
    pairs = h - np.diag(np.diag(h))
    expected = pairs.sum(1) / 11
    found = cj.contributions(KERNEL, predictions, targets)
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    # The deviations are h with the locations, whose targets are known.
    points = cj.Weibull(jnp.full(3, 1.2), jnp.array([0.5, 1.0, 2.0])), jnp.array([0.3, 1.0, 4.0])
    both = jax.tree.map(
        lambda *x: jnp.concatenate(x),
        (predictions, targets),
        (points[0], cj.IntervalCensored(points[1], points[1])),
    )
    deviations = by_hand(*both)[:12, 12:]
    found = cj.witness(KERNEL, predictions, targets, *points)
    np.testing.assert_allclose(found, deviations.mean(0), rtol=1e-9)
    error = cj.ucme(KERNEL, predictions, targets, *points)
    np.testing.assert_allclose(error, np.mean(deviations.mean(0) ** 2), rtol=1e-9)
    result = cj.asymptotic_cme_test(KERNEL, predictions, targets, *points)
    inverse = np.linalg.inv(np.cov(deviations.T))
    expected = 12 * deviations.mean(0) @ inverse @ deviations.mean(0)
    np.testing.assert_allclose(result.statistic, expected, rtol=1e-7)
    found = cj.random_feature_skce(key, KERNEL, predictions, targets)
    distance = abs(found.estimate - pairs.sum() / 132)
    assert 0 < distance < 4 * found.standard_error < abs(pairs).mean()


@pytest.mark.parametrize("method", slow({"wild", "spectrum", "pearson", "features"}, METHODS))
def test_tests_of_the_skce_by_hand(method, float64, key):
    predictions, targets = rows(12)
    pairs = by_hand(predictions, targets)
    np.fill_diagonal(pairs, 0.0)
    blocks = np.array([pairs[i : i + 4, i : i + 4].sum() / 12 for i in (0, 4, 8)])
    if method == "blocks":
        result = cj.asymptotic_block_skce_test(KERNEL, predictions, targets, block_size=4)
        expected = blocks.mean() / (blocks.std(ddof=1) / np.sqrt(3))
        np.testing.assert_allclose(result.statistic, expected, rtol=1e-8)
        state = cj.SKCEState.empty(4)
        for part in (slice(4), slice(4, 12)):
            batch = jax.tree.map(lambda x, part=part: x[part], (predictions, targets))
            state = state.update(KERNEL, *batch)
        np.testing.assert_allclose(state.compute().statistic, expected, rtol=1e-8)
        return
    if method == "bound":
        result = cj.distribution_free_skce_test(KERNEL, predictions, targets)
    elif method == "compare":
        wrong = cj.Weibull(predictions.concentration, 2 * predictions.scale)
        result = cj.compare_calibration(key, KERNEL, predictions, wrong, targets, n_resamples=19)
        others = by_hand(wrong, targets)
        second = (others.sum() - np.trace(others)) / 132
        np.testing.assert_allclose(result.estimates, [pairs.sum() / 132, second], rtol=1e-8)
        assert 0 < result.pvalue <= 1
        return
    else:
        result = cj.asymptotic_skce_test(
            key, KERNEL, predictions, targets, method=method, n_resamples=19
        )
    # Random features are a kernel of their own.
    tolerance = {"rtol": 0.5} if method == "features" else {"rtol": 1e-8}
    np.testing.assert_allclose(result.estimate, pairs.sum() / 132, **tolerance)
    assert 0 < result.pvalue <= 1


def test_log_scores(float64):
    predictions, targets = rows(12)
    shape, scale, low, high = map(np.asarray, jax.tree.leaves((predictions, targets)))
    law = stats.weibull_min(shape, scale=scale)
    hidden = np.where(low == high, 1.0, law.cdf(high) - law.cdf(low))
    expected = -np.where(low == high, law.logpdf(np.where(low == high, low, 1.0)), np.log(hidden))
    np.testing.assert_allclose(cj.log_score(predictions, targets), expected, rtol=1e-10)


def test_tails_in_float32():
    ends = np.array([-11.0, -5.0, 5.0, 11.0], np.float32)
    predictions = cj.Normal(jnp.zeros(4), jnp.ones(4))
    above = cj.IntervalCensored(ends, np.full(4, np.inf, np.float32))
    below = cj.IntervalCensored(np.full(4, -np.inf, np.float32), ends)
    beyond = cj.IntervalCensored(ends, ends + np.float32(1.0))
    laws = stats.norm.sf(ends), stats.norm.cdf(ends)
    probabilities = (
        *laws,
        np.where(
            ends > 0,
            laws[0] - stats.norm.sf(ends.astype(float) + 1),
            stats.norm.cdf(ends.astype(float) + 1) - laws[1],
        ),
    )
    for targets, p in zip((above, below, beyond), probabilities, strict=True):
        np.testing.assert_allclose(
            cj.log_score(predictions, targets), -np.log(p), rtol=1e-6, atol=1e-7
        )
        # E[Z | low < Z <= high] is the first normal score.
        low, high = (np.asarray(x, float) for x in (targets.low, targets.high))
        expected = (stats.norm.pdf(low) - stats.norm.pdf(high)) / p
        first = cj.PITKernel(EVERYWHERE, np.ones(1), "normal scores").unit_feature()
        found = first.of_intervals(unit_interval(predictions, targets))[:, 0]
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=1e-6)
    # Beyond the numbers of float32 nothing is NaN, nor is a derivative.
    far = cj.IntervalCensored(jnp.full(4, 30.0), jnp.full(4, jnp.inf))
    assert np.isposinf(cj.log_score(predictions, far)).all()
    for function in (cj.log_score, lambda p, y: cj.skce(cj.PITKernel(EVERYWHERE), p, y)):
        slopes = jax.grad(lambda *x, f=function: jnp.sum(f(*x)), (0, 1))(predictions, far)
        assert all(np.isfinite(x).all() for x in jax.tree.leaves(slopes))


@pytest.mark.parametrize("function", ["skce", "log_score"])
def test_gradients(function, float64):
    predictions, targets = rows(12)

    @jax.jit
    def value(shape, scale, low, high):
        data = cj.Weibull(shape, scale), cj.IntervalCensored(low, high)
        return cj.skce(KERNEL, *data) if function == "skce" else jnp.sum(cj.log_score(*data))

    leaves = jax.tree.leaves((predictions, targets))
    slopes = jax.jit(jax.grad(value, (0, 1, 2, 3)))(*leaves)
    rng, step = np.random.default_rng(1), 1e-6
    for _ in range(3):
        moves = [rng.normal(size=12) for _ in leaves]
        # An exact target remains exact, and its density moves.
        is_exact = np.asarray(targets.is_exact())
        moves[3] = np.where(is_exact, moves[2], moves[3])
        up, down = (
            value(*[x + s * step * d for x, d in zip(leaves, moves, strict=True)]) for s in (1, -1)
        )
        expected = (up - down) / (2 * step)
        found = sum(np.sum(g * d) for g, d in zip(slopes, moves, strict=True))
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)


def test_masked_rows_may_hold_anything(dtype):
    predictions, targets = cast(rows(12), dtype)
    kept = np.arange(12) % 4 != 2
    bad = np.where(kept, 0.0, np.nan).astype(dtype)
    masked = cj.IntervalCensored(targets.low + bad, jnp.where(kept, targets.high, -7.0))
    rest = jax.tree.map(lambda x: x[kept], (predictions, targets))

    def estimate(targets, where):
        return cj.skce(KERNEL, predictions, targets, where=where)

    expected = cj.skce(KERNEL, *rest)
    for function in (estimate, jax.jit(estimate)):
        found = function(masked, kept)
        assert found.dtype == dtype
        np.testing.assert_allclose(found, expected, rtol=1e-4)
    slopes = jax.grad(estimate)(masked, kept)
    for slope in jax.tree.leaves(slopes):
        assert np.isfinite(slope).all() and not slope[~kept].any()


def test_jit_and_bad_values(key):
    predictions, targets = cast(rows(12), "float32")
    no_nan = cj.IntervalCensored(
        targets.low.at[3].set(9.0).at[4].set(3.0), targets.high.at[3].set(8.0)
    )
    for function in (
        lambda y: cj.skce(KERNEL, predictions, y),
        lambda y: cj.log_score(predictions, y),
        lambda y: cj.pit_interval(predictions, y),
        lambda y: cj.skce_confidence_interval(key, KERNEL, predictions, y, n_resamples=19),
    ):
        compiled = jax.jit(function)
        for found, expected, bad in zip(
            *(jax.tree.leaves(x) for x in (compiled(targets), function(targets))),
            jax.tree.leaves(compiled(no_nan)),
            strict=True,
        ):
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
            assert np.isnan(bad[3] if bad.ndim else bad)


def test_rows_on_several_devices(float64):
    predictions, targets = rows(16)
    mesh = jax.make_mesh((8,), ("rows",))
    rows_of = jax.NamedSharding(mesh, jax.P("rows"))
    cut = jax.device_put((predictions, targets), rows_of)
    for options in ({}, {"block_size": 4}):
        found = cj.skce(KERNEL, *cut, **options)
        np.testing.assert_allclose(found, cj.skce(KERNEL, predictions, targets, **options))
    with pytest.raises(ValueError, match="high of targets must be at least low; row 2"):
        bad = cj.IntervalCensored(targets.low.at[2].set(50.0), targets.high)
        cj.skce(KERNEL, cut[0], jax.device_put(bad, rows_of))


def test_ends_of_counts():
    predictions = cj.Poisson(jnp.array([0.5, 2.0, 4.0]), max_count=64)
    law = stats.poisson([0.5, 2.0, 4.0])
    low, high = np.array([1, 0, 3]), np.array([2.0, np.inf, 3.0])
    found = cj.pit_interval(predictions, cj.IntervalCensored(low, high))
    np.testing.assert_allclose(found.low, law.cdf([1, 0, 2]), rtol=1e-5)
    np.testing.assert_allclose(found.high, law.cdf([2, 9e9, 3]), rtol=1e-5)
    expected = law.cdf([2, 9e9, 3]) - law.cdf([1, 0, 2])
    score = cj.log_score(predictions, cj.IntervalCensored(low, high))
    np.testing.assert_allclose(score, -np.log(expected), rtol=1e-5)


def test_right_censored():
    time, observed = np.array([2, 3, 1]), np.array([True, False, True])
    targets = cj.IntervalCensored.right_censored(time, observed)
    np.testing.assert_array_equal(targets.low, time)
    np.testing.assert_array_equal(targets.high, [2.0, np.inf, 1.0])
    frame = pd.DataFrame({"time": time, "event": [1, 0, 1]})
    for given in (frame.time, frame.event), (time.tolist(), frame.event.tolist()):
        found = cj.IntervalCensored.right_censored(*given)
        np.testing.assert_array_equal(found.low, targets.low)
        np.testing.assert_array_equal(found.high, targets.high)
    for arguments, exception, message in (
        ((time, time), ValueError, "observed must be True or 1 .*; row 0 is 2. .* == value"),
        ((time, ["yes", "no", "no"]), TypeError, "observed must hold boolean values, got strings"),
        ((time, observed[:2]), ValueError, r"observed must have shape \[n\] with n = 3"),
        (("a", observed), TypeError, "time must be an array"),
    ):
        check_message(
            lambda a=arguments: cj.IntervalCensored.right_censored(*a), exception, message
        )


def test_bad_targets():
    ones = jnp.ones(3)
    weibull, poisson = cj.Weibull(ones, ones), cj.Poisson(ones, max_count=64)
    inf, nan = np.inf, np.nan
    quantiles = cj.Quantiles(jnp.array([[0.0, 1.0]] * 3), (0.1, 0.9))
    vectors = cj.MultivariateNormalDiag(jnp.zeros((3, 2)), jnp.ones((3, 2)))
    value, kind = ValueError, TypeError
    lines = [
        (weibull, [1, 2, nan], [1, 3, 4], value, "low of targets must be a finite number or -inf"),
        (weibull, [1, 2, 3], [1, nan, 4], value, "high of targets must be at least low; row 1"),
        (weibull, [1, 2, 3], [1, 3, 2], value, "at least low; row 2 is 2.0"),
        (weibull, [1, 2, inf], [1, 3, inf], value, "a finite number or -inf; row 2 is inf"),
        (weibull, [1, 2, -inf], [1, 3, -inf], value, "positive and finite, or inf; row 2 is -inf"),
        (weibull, [-2, -2, 1], [-2, -1, 1], value, "positive and finite, or inf; row 0 is -2.0"),
        (weibull, [1, -2, 1], [1, -1, 1], value, "positive and finite, or inf; row 1 is -1.0"),
        (poisson, [1, 2.5, 3], [1, 3, 4], value, "a whole number or -inf; row 1 is 2.5"),
        (poisson, [1, 2, 3], [1, 3, 4.5], value, "or inf; row 2 is 4.5"),
        (poisson, [1, -3, 3], [1, -2, 4], value, "or inf; row 1 is -2.0"),
        (weibull, [1, 2], [1, 3], value, r"low of targets must have shape \[n\] with n = 3"),
        (weibull, [1, 2, 3], [[1, 2, 3]], value, r"high of targets must have shape \[n\]"),
        (quantiles, [1, 2, 3], [1, 2, 3], kind, "cdf is known everywhere, got Quantiles"),
        (cj.Empirical(jnp.ones((3, 2))), [1, 2, 3], [1, 2, 3], kind, "got Empirical"),
        (vectors, [1, 2, 3], [1, 2, 3], kind, "predictions of one number .* MultivariateNormal"),
    ]
    for predictions, low, high, exception, message in lines:
        targets = cj.IntervalCensored(np.array(low, np.float32), np.array(high, np.float32))
        check_message(lambda p=predictions, y=targets: cj.log_score(p, y), exception, message)
    check_message(
        lambda: cj.log_score(weibull, cj.IntervalCensored([1.0, 2.0, 3.0], np.ones(3))),
        TypeError,
        "low of targets must be an array, got list",
    )


def test_other_kernels_are_refused():
    predictions, targets = (
        cj.Normal(jnp.zeros(3), jnp.ones(3)),
        cj.IntervalCensored(*[jnp.ones(3)] * 2),
    )
    product = cj.TensorProduct(cj.DistanceKernel(cj.Wasserstein()), cj.GaussianKernel(1.0))
    for kernel in (product, 0.5 * KERNEL + product, lambda a, b: 1.0):
        check_message(
            lambda k=kernel: cj.skce(k, predictions, targets), TypeError, "must be a PITKernel"
        )
    both = 0.5 * cj.PITKernel(EVERYWHERE) + 2.0 * cj.PITKernel(EVERYWHERE, np.ones(1))
    assert len(normal_form(both).terms) == 2 and np.isfinite(cj.skce(both, predictions, targets))


def test_other_functions_refuse_intervals(key):
    p, y = cj.Normal(jnp.zeros(20), jnp.ones(20)), jnp.ones(20)
    b, labels = cj.Bernoulli(jnp.full(20, 0.4)), jnp.ones(20, int)
    t, few = cj.IntervalCensored(y, y), cj.IntervalCensored(y[:2], y[:2])
    k = cj.default_kernel(p)
    calls = [
        lambda: cj.ucme(k, p, y, p[:2], few),
        lambda: cj.crps(p, t),
        lambda: cj.pit(key, p, t),
        lambda: cj.equivalent_temperature(key, k, p, t),
        lambda: cj.fit_temperature(p, t),
        lambda: cj.coverage_curve(key, p, t),
        lambda: cj.residual_map(key, p, t),
        lambda: cj.ece(b, cj.IntervalCensored(labels, labels)),
        lambda: cj.mmce(b, cj.IntervalCensored(labels, labels)),
        lambda: cj.reliability_curve(key, b, cj.IntervalCensored(labels, labels)),
        lambda: cj.top_label(b, cj.IntervalCensored(labels, labels)),
        lambda: cj.one_vs_rest(b, cj.IntervalCensored(labels, labels), 1),
    ]
    for call in calls:
        check_message(call, TypeError, "targets must be an array.*IntervalCensored")


@pytest.mark.parametrize("censored", [0.35, 0.65])
def test_the_skce_of_calibrated_censored_forecasts_is_0_on_average(censored, key):
    n, n_sets = 64, 400
    shape, scale = jnp.linspace(0.8, 2.5, n), jnp.exp(jnp.sin(jnp.arange(n)))
    right, wrong = cj.Weibull(shape, scale), cj.Weibull(shape, 1.5 * scale)
    # Times of censoring that depend on the forecasts: exponential, with means in units of scales.
    mean = scale * {0.35: 2.0, 0.65: 0.6}[censored]

    def estimates(key):
        keys = jax.random.split(key)
        times, ends = right.sample(keys[0]), mean * jax.random.exponential(keys[1], (n,))
        targets = cj.IntervalCensored.right_censored(jnp.minimum(times, ends), times <= ends)
        skces = [cj.skce(KERNEL, p, targets) for p in (right, wrong)]
        return jnp.stack([*skces, jnp.mean(times > ends, dtype=jnp.float32)])

    keys = jax.random.split(key, n_sets)
    found = np.asarray(jax.jit(lambda keys: jax.lax.map(estimates, keys))(keys), float)
    means, errors = found.mean(0), found.std(0, ddof=1) / np.sqrt(n_sets)
    print(means, errors)
    assert abs(means[2] - censored) < 0.06
    assert abs(means[0]) < 3 * errors[0] and means[1] > 10 * errors[1]
