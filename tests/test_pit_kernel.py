"""PITKernel against quadrature, sums over outcomes, and the distance of Cramér and von Mises."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from instances import FAMILIES, cast
from messages import check_message
from scipy import integrate, special, stats

import calibjax as cj
from calibjax._data.distribution import Labels
from calibjax._numbers.unit_interval import UnitInterval
from calibjax.residuals.pit import PITResidual
from calibjax.residuals.readable import statistics_of


def everywhere(p, q):
    """The same for all predictions."""
    return jnp.ones(())


ALL = jax.tree_util.Partial(everywhere)
COSINES = cj.PITKernel(ALL).unit_feature()
SCORES = cj.PITKernel(ALL, np.ones(4), "normal scores").unit_feature()
MOMENTS = cj.PITKernel(ALL, features="standard scores").unit_feature()
STANDARD = cj.PITKernel(ALL, np.ones(4), "standard scores").unit_feature()
FIRST = cj.PITKernel(ALL, np.ones(1), "normal scores").unit_feature()


def phi(feature, z):
    """The functions on the unit line at normal scores z, from their definitions, ``[K, …]``."""
    if feature is COSINES:
        return [
            np.sqrt(2) * np.cos(np.pi * k * special.ndtr(z)) / (np.pi * k) for k in range(1, 17)
        ]
    roots = np.sqrt(special.factorial(np.arange(1, 5)))
    return [special.eval_hermitenorm(k, z) / roots[k - 1] for k in range(1, 5)]


INTERVALS = [(0.0, 1.0), (0.0, 1e-3), (0.2, 0.7), (0.3, 0.3 + 1e-9), (0.5, 0.5), (0.99, 1.0)]


@pytest.mark.parametrize("feature", [COSINES, SCORES], ids=["cosines", "scores"])
def test_means_over_intervals(feature, float64):
    low, high = (np.array(x) for x in zip(*INTERVALS, strict=True))
    found = np.asarray(jax.jit(feature.of_intervals)(UnitInterval(low, high, 1 - low, 1 - high)))
    x, w = np.polynomial.legendre.leggauss(40)
    for (a, b), row in zip(INTERVALS, found, strict=True):
        expected = phi(feature, special.ndtri((a + b) / 2))
        if b - a > 1e-6:
            edges = np.linspace(max(special.ndtri(a), -9), min(special.ndtri(b), 9), 41)[:, None]
            z = (edges[1:] + edges[:-1]) / 2 + np.diff(edges, axis=0) / 2 * x
            weights = np.diff(edges, axis=0) / 2 * w * stats.norm.pdf(z) / (b - a)
            expected = np.sum(weights * np.array(phi(feature, z)), axis=(1, 2))
        np.testing.assert_allclose(row, expected, rtol=1e-7, atol=1e-10)


def test_both_tails_in_float32():
    tail = np.array([1e-30, 1e-12, 1e-5], np.float32)
    exact = special.ndtri(tail.astype(float))
    of_intervals = jax.jit(FIRST.of_intervals)
    for low, above, sign in ((tail, 1 - tail, 1), (1 - tail, tail, -1)):
        points = UnitInterval(*map(jnp.asarray, (low, low, above, above)))
        z = np.asarray(of_intervals(points))[:, 0]
        np.testing.assert_allclose(z, sign * exact, rtol=1e-6)
    # A tenth of a tail, and a whole one.
    wide = UnitInterval(
        *map(jnp.asarray, (1 - tail, np.ones_like(tail), tail, np.zeros_like(tail)))
    )
    z = np.asarray(of_intervals(wide))[:, 0]
    np.testing.assert_allclose(z, stats.norm.pdf(exact) / tail.astype(float), rtol=1e-5)


def test_extreme_targets_in_float32():
    """U = 1e-30 and 1 - U = 1e-30 of the families whose upper tail has digits."""
    z = special.ndtri(1e-30)
    predictions = cj.Normal(jnp.zeros(2), jnp.ones(2))
    kernel = cj.PITKernel(ALL, features="normal scores")
    h = np.asarray(cj.h_matrix(kernel, predictions, jnp.array([z, -z], jnp.float32)))
    square = (z**2 - 1) ** 2 / 2
    np.testing.assert_allclose(
        h, [[z**2 + square, square - z**2]] * 1 + [[square - z**2, z**2 + square]], rtol=1e-5
    )


@pytest.mark.parametrize("feature", ["cosines", "normal scores"])
def test_gradients_of_impossible_targets_are_finite(feature):
    kernel = cj.PITKernel(cj.DistanceKernel(cj.Wasserstein()), features=feature)

    def estimate(loc, scale, targets):
        return cj.skce(kernel, cj.Normal(loc, scale), targets, unbiased=False)

    rows = jnp.array([0.0, 1.0, 1e6, -40.0]), jnp.array([1.0, 1e-3, 1.0, 1e-12]), jnp.zeros(4)
    for gradient in jax.grad(estimate, (0, 1, 2))(*rows):
        assert np.isfinite(gradient).all()


def outcomes(name, n=4):
    """All targets ``[m, n]`` with their probabilities under the predictions."""
    predictions, _ = cast(FAMILIES[name](n, 0))
    if isinstance(predictions, Labels):
        m = predictions.label_probabilities().shape[1]
    else:
        m = predictions.max_count + 1
    targets = np.broadcast_to(np.arange(m, dtype=np.int32)[:, None], (m, n))
    return predictions, targets, np.exp(jax.jit(jax.vmap(predictions.log_prob))(targets))


@pytest.mark.parametrize("name", ["bernoulli", "categorical", "ensemble", "poisson"])
def test_the_mean_feature_of_counts_and_labels_is_0(name, float64):
    predictions, targets, weights = outcomes(name)
    np.testing.assert_allclose(weights.sum(axis=0), 1.0, atol=1e-12)
    for feature in (COSINES, SCORES):
        features = jax.jit(jax.vmap(lambda y, f=feature: f.of_rows(predictions, y)))(targets)
        means = np.einsum("mn,mnk->nk", weights, features)
        np.testing.assert_allclose(means, 0.0, atol=1e-10)


LAWS = {
    "normal": lambda p: stats.norm(p.loc, p.scale),
    "student_t": lambda p: stats.t(p.df, p.loc, p.scale),
    "gamma": lambda p: stats.gamma(p.concentration, scale=1 / p.rate),
    "weibull": lambda p: stats.weibull_min(p.concentration, scale=p.scale),
}


@pytest.mark.parametrize("name", LAWS)
def test_the_mean_feature_of_a_density_is_0(name, float64):
    predictions, _ = cast(FAMILIES[name](2, 0))
    law = LAWS[name](jax.tree.map(np.asarray, predictions))
    ends = law.ppf(1e-14), law.isf(1e-14)
    x, w = np.polynomial.legendre.leggauss(400)
    # Panels at even normal scores follow the mass of the law.
    edges = np.stack([law.ppf(u) for u in special.ndtr(np.linspace(-7.6, 7.6, 40))])
    points = (edges[1:] + edges[:-1])[:, None] / 2 + np.diff(edges, axis=0)[:, None] / 2 * x[
        None, :, None
    ]
    weights = np.diff(edges, axis=0)[:, None] / 2 * w[None, :, None] * law.pdf(points)
    flat = points.reshape(-1, 2)
    features = jax.jit(jax.vmap(lambda y: COSINES.of_rows(predictions, y)))(jnp.asarray(flat))
    means = np.einsum("mn,mnk->nk", weights.reshape(-1, 2), features)
    assert np.all(ends[0] < ends[1])
    np.testing.assert_allclose(means, 0.0, atol=1e-9)


def test_each_member_of_a_set_of_samples_is_the_target_once(float64):
    values = np.array([[0.3, 1.0, 1.0, -2.0, 5.0], [1.0, 1.0, 1.0, 1.0, 2.0]])
    for feature in (COSINES, SCORES, STANDARD):
        total = 0.0
        for i in range(5):
            rest = np.delete(values, i, axis=1)
            total += np.stack(
                [
                    feature(cj.Empirical(jnp.asarray(s)), jnp.asarray(y))
                    for s, y in zip(rest, values[:, i], strict=True)
                ]
            )
        np.testing.assert_allclose(total, 0.0, atol=1e-12)


@pytest.mark.parametrize("unit", [1.0, 1e30, 1e-30])
def test_standard_scores_are_those_of_all_that_may_be_the_target(unit):
    """In single precision: also of nearly equal values, two values, and of equal ones."""
    rng = np.random.default_rng(0)
    pools = [
        rng.normal(size=(3, 6)),
        1e6 + rng.integers(3, size=(3, 6)) / 16,
        np.eye(2),
        [[0.1] * 4],
    ]
    for pool in pools:
        pool = np.asarray(unit * np.asarray(pool), np.float32)
        exact = pool.astype(np.float64)
        deviation = exact.std(axis=1, keepdims=True)
        z = (exact - exact.mean(axis=1, keepdims=True)) / np.where(deviation > 0, deviation, 1.0)
        squares = (z**2 - np.mean(z**2, axis=1, keepdims=True)) / np.sqrt(2)
        for i in range(pool.shape[1]):
            rest = rng.permuted(np.delete(pool, i, axis=1), axis=1)
            found = MOMENTS.of_rows(cj.Empirical(jnp.asarray(rest)), jnp.asarray(pool[:, i]))
            expected = np.stack([z[:, i], squares[:, i]], axis=1)
            np.testing.assert_allclose(found, expected, atol=2e-6)
            missing = np.insert(rest, [0, 1], np.nan, axis=1)
            members = cj.Empirical(jnp.asarray(missing), where=jnp.asarray(~np.isnan(missing)))
            of_members = MOMENTS.of_rows(members, jnp.asarray(pool[:, i]))
            np.testing.assert_allclose(of_members, expected, atol=2e-6)


def test_quantiles_know_the_levels_on_both_sides():
    predictions = cj.Quantiles(jnp.array([[0.0, 1.0, 3.0]] * 3), (0.1, 0.5, 0.9))
    low, high = cj.pit_interval(predictions, jnp.array([-5.0, 0.5, 100.0]))
    np.testing.assert_allclose(low, [0.0, 0.1, 0.9], rtol=1e-6)
    np.testing.assert_allclose(high, [0.1, 0.5, 1.0], rtol=1e-6)


def test_cramer_von_mises(float64):
    """With all frequencies the kernel is (u^2 + v^2) / 2 - max(u, v) + 1 / 3."""
    k = np.arange(1, 4001)
    predictions, targets = cast(FAMILIES["normal"](6, 0))
    u = np.asarray(predictions.cdf(targets))
    expected = (u[:, None] ** 2 + u**2) / 2 - np.maximum(u[:, None], u) + 1 / 3
    found = cj.h_matrix(cj.PITKernel(ALL, 1 / (np.pi * k) ** 2), predictions, targets)
    np.testing.assert_allclose(found, expected, atol=2 / (np.pi**2 * k[-1]))
    # The biased estimate is int (G(u) - u)^2 du for the empirical cdf G of U.
    whole = integrate.quad(lambda x: ((u <= x).mean() - x) ** 2, 0, 1, points=u, limit=200)[0]
    np.testing.assert_allclose(expected.mean(), whole, atol=1e-8)


def test_monotone_changes_of_the_targets(float64):
    predictions, targets = cast(FAMILIES["normal"](6, 0))
    kernel = cj.PITKernel(ALL)
    found = cj.h_matrix(kernel, predictions, targets)
    logs = cj.LogNormal(predictions.loc, predictions.scale), jnp.exp(targets)
    units = cj.Normal(3e9 * predictions.loc + 7, 3e9 * predictions.scale), 3e9 * targets + 7
    for changed in (logs, units):
        np.testing.assert_allclose(cj.h_matrix(kernel, *changed), found, rtol=1e-7, atol=1e-12)


@pytest.mark.parametrize("unit", [1e-25, 1.0, 1e25])
def test_default_kernels_have_no_unit(unit):
    predictions, targets = cast(FAMILIES["normal"](24, 0), "float32")
    scaled = cj.Normal(unit * predictions.loc, unit * predictions.scale), unit * targets
    expected = cj.skce(cj.default_kernel(predictions), predictions, targets)
    np.testing.assert_allclose(cj.skce(cj.default_kernel(scaled[0]), *scaled), expected, rtol=1e-3)


def test_small_forecasts_differ_as_much_as_large_ones(float64):
    locations = 10.0 ** np.linspace(-2, 4, 64)
    predictions = cj.Normal(jnp.asarray(locations), jnp.asarray(locations / 5))
    kernel = cj.default_kernel(predictions).prediction_kernel
    neighbours = [float(kernel(predictions[i], predictions[i + 8])) for i in (8, 28, 48)]
    assert max(neighbours) < 0.95
    assert max(neighbours) - min(neighbours) < 0.3


def test_random_features(key):
    predictions, targets = cast(FAMILIES["normal"](40, 0), "float32")
    kernel = cj.default_kernel(predictions)
    found = cj.random_feature_skce(key, kernel, predictions, targets, n_features=20_000)
    exact = cj.skce(kernel, predictions, targets)
    assert abs(found.estimate - exact) < 1e-4


def test_bad_arguments():
    vectors = cj.MultivariateNormalDiag(jnp.zeros((3, 2)), jnp.ones((3, 2))), jnp.zeros((3, 2))
    rows = cj.Normal(jnp.zeros(3), jnp.ones(3)), jnp.zeros(3)
    negative = cj.PITKernel(ALL, np.array([-1.0]))
    calls = [
        (TypeError, "predictions of one number", lambda: cj.skce(cj.PITKernel(ALL), *vectors)),
        (ValueError, "a vector of at least one number", lambda: cj.PITKernel(ALL, 1.0)),
        (ValueError, "features must be", lambda: cj.PITKernel(ALL, features="sines")),
        (ValueError, "weights of PITKernel must be nonneg", lambda: cj.skce(negative, *rows)),
    ]
    for exception, message, call in calls:
        check_message(call, exception, message)


@pytest.mark.parametrize("family", ["pool", "ties", "missing", "levels"])
def test_values_that_are_looked_up_are_those_of_each_interval(family):
    """More targets than pairs of ends are looked up, fewer are not; members may be equal."""
    rng = np.random.default_rng(0)
    members, levels = rng.normal(size=(3, 5)).astype(np.float32), (0.1, 0.5, 0.975)
    members = np.round(members) if family == "ties" else members
    where = {"where": rng.uniform(size=(3, 5)) < 0.7} if family == "missing" else {}
    pool, _ = cj.Empirical(members, **where).exchangeable_pool(members[:, 0])
    many = np.tile(np.asarray(pool.samples), (1, 20))
    if family == "levels":
        values = np.sort(members[:, :3], axis=1)
        pool = cj.Quantiles(values, levels).pit_distribution()
        many = rng.uniform(size=(3, 120)).astype(np.float32)
        many[:, :3] = levels
    for residual in (PITResidual(SCORES), statistics_of(pool, True, True)):
        of_all = np.asarray(jax.jit(residual.values)(pool, many))
        of_few = [residual.values(pool, many[:, k : k + 1]) for k in range(0, many.shape[1], 7)]
        np.testing.assert_allclose(of_all[:, ::7], np.concatenate(of_few, axis=1), atol=2e-6)
