"""VectorPITKernel against quadrature, a closed form and sums over pools; units of coordinates."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from instances import FAMILIES, cast
from messages import check_message
from scipy import linalg, special

import calibjax as cj


def everywhere(p, q):
    """The same for all predictions."""
    return jnp.ones(())


ALL = jax.tree_util.Partial(everywhere)
COSINES = cj.VectorPITKernel(ALL)
SCORES = cj.VectorPITKernel(ALL, np.ones(4), "normal scores")
STANDARD = cj.VectorPITKernel(ALL, features="standard scores")
MOMENTS = cj.VectorPITKernel(ALL, features="normal scores")


@pytest.mark.parametrize("features", ["cosines", "normal scores"])
@pytest.mark.parametrize("family", ["diag", "full"])
def test_features_of_a_distribution_are_orthogonal(family, features, float64):
    """Their means are 0, and their second moments are the weights: by Gauss and Hermite's rule."""
    (p,) = jax.tree.map(lambda x: x[:1], cast(FAMILIES[family](3, 0)))[:1]
    x, w = special.roots_hermitenorm(60)
    z = np.stack(np.meshgrid(x, x, indexing="ij"), axis=-1).reshape(-1, 2)
    weights = np.outer(w, w).ravel() / (2 * np.pi)
    covariance = np.diag(p.variance()[0]) if family == "diag" else p.covariance_matrix[0]
    targets = np.asarray(p.loc[0]) + z @ np.linalg.cholesky(covariance).T
    feature = cj.VectorPITKernel(ALL, np.array([1.0, 0.5, 0.3]), features).unit_feature()
    values = np.asarray(jax.jit(jax.vmap(lambda y: feature(p[0], y)))(targets))
    np.testing.assert_allclose(weights @ values, 0, atol=1e-5)
    of_numbers = np.asarray(feature.valid_weights())
    expected = np.concatenate([np.tile(of_numbers, 2), of_numbers[1:2]])
    np.testing.assert_allclose((weights[:, None] * values).T @ values, np.diag(expected), atol=1e-3)


def test_polynomials_of_hermite(float64):
    """<e, f> + (<e, f>^2 - |e|^2 - |f|^2 + d) / 2 for standardised targets e and f."""
    predictions, targets = cast(FAMILIES["full"](6, 0))
    rows = zip(*map(np.asarray, (predictions.scale_tril(), targets - predictions.loc)), strict=True)
    e = np.array([linalg.solve_triangular(factor, y, lower=True) for factor, y in rows])
    products, squares = e @ e.T, np.sum(e**2, axis=1)
    expected = products + (products**2 - squares[:, None] - squares + 2) / 2
    # The kernel has products of pairs j < l once, and the sum over all j and l twice, halved.
    np.testing.assert_allclose(cj.h_matrix(MOMENTS, predictions, targets), expected, rtol=1e-9)


def test_each_vector_of_a_pool_is_the_target_once(float64):
    pool = np.random.default_rng(0).normal(size=(2, 6, 3))
    pool[1, 2:4] = pool[1, 0]  # ties
    pool[1, 4, 1] = pool[1, 5, 1]
    for kernel in (COSINES, SCORES, STANDARD):
        feature = kernel.unit_feature()
        found = [
            feature.of_rows(
                *cj.Empirical(jnp.asarray(np.delete(pool, i, 1))).exchangeable_pool(pool[:, i])
            )
            for i in range(6)
        ]
        assert np.abs(found[0]).max() > 0.1
        np.testing.assert_allclose(np.sum(found, axis=0), 0, atol=1e-12)


def test_samples_of_one_coordinate_are_numbers(float64):
    samples, targets = np.random.default_rng(0).normal(size=(5, 4)), np.linspace(-1, 1, 5)
    expected = cj.h_matrix(cj.PITKernel(ALL), cj.Empirical(jnp.asarray(samples)), targets)
    vectors = cj.Empirical(jnp.asarray(samples[..., None]))
    found = cj.h_matrix(COSINES, vectors, jnp.asarray(targets[:, None]))
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_the_order_of_coordinates(float64):
    """It does not matter for equal correlations."""
    rng, factor = np.random.default_rng(0), np.tril(np.random.default_rng(1).normal(size=(3, 3)))
    correlation = factor @ factor.T / np.sqrt(np.outer(*[np.sum(factor**2, axis=1)] * 2))
    scales, targets = np.exp(rng.normal(size=(7, 3))), rng.normal(size=(7, 3))
    covariances = scales[:, :, None] * correlation * scales[:, None, :]
    found = []
    for order in ([0, 1, 2], [2, 0, 1]):
        matrices = jnp.asarray(covariances[:, order][:, :, order])
        p = cj.MultivariateNormalFullCovariance(jnp.zeros((7, 3)), matrices)
        found.append(cj.h_matrix(MOMENTS, p, jnp.asarray(targets[:, order])))
    np.testing.assert_allclose(*found, rtol=1e-9)


# Units of the coordinates.


def in_units(units, n=24):
    """Families of vectors with one unit for each coordinate, and targets for them."""
    rng, units = np.random.default_rng(2), np.asarray(units)
    loc, scale = rng.normal(size=(n, 2)), rng.uniform(0.5, 1.5, (n, 2))
    covariances = scale[:, :, None] * np.array([[1.0, 0.6], [0.6, 1.0]]) * scale[:, None]
    samples = loc[:, None] + scale[:, None] * rng.normal(size=(n, 5, 2))
    diag = cj.MultivariateNormalDiag(loc * units, scale * units)
    parts = cj.MultivariateNormalDiag(samples * units, np.repeat(scale[:, None], 5, 1) * units)
    predictions = {
        "diag": diag,
        "full": cj.MultivariateNormalFullCovariance(
            loc * units, covariances * np.outer(units, units)
        ),
        "empirical": cj.Empirical(samples * units),
        "fair": cj.Empirical(samples * units, fair=True),
        "mixture": cj.Mixture.ensemble(parts),
    }
    return cast(predictions), jnp.asarray((loc + 1.4 * scale * rng.normal(size=(n, 2))) * units)


@jax.jit
def _pvalue_and_estimate(predictions, targets):
    test = cj.aggregated_skce_test(jax.random.key(0), None, predictions, targets, n_resamples=99)
    return test.pvalue, cj.skce(cj.default_kernel(predictions), predictions, targets)


FAST = "diag", "empirical"


@pytest.mark.parametrize(
    "family",
    [pytest.param(x, marks=[] if x in FAST else pytest.mark.slow) for x in in_units([1.0, 1.0])[0]],
)
def test_coordinates_have_no_units(family, float64):
    expected = None
    for units in ([1.0, 1.0], [1.0, 1e3], [1e-9, 1e7]):
        predictions, targets = in_units(units)
        found = np.asarray(_pvalue_and_estimate(predictions[family], targets))
        expected = found if expected is None else expected
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)
    assert abs(expected[1]) > 1e-4


def test_monotone_changes_of_samples(float64):
    predictions, targets = in_units([1.0, 1.0])
    samples = predictions["empirical"].samples
    changed = cj.Empirical(jnp.stack([samples[..., 0] ** 3, jnp.exp(samples[..., 1])], axis=-1))
    new_targets = jnp.stack([targets[:, 0] ** 3, jnp.exp(targets[:, 1])], axis=1)
    found = cj.h_matrix(COSINES, changed, new_targets)
    np.testing.assert_array_equal(found, cj.h_matrix(COSINES, predictions["empirical"], targets))


@pytest.mark.slow
@pytest.mark.parametrize("family", ["full", "empirical"])
def test_level_and_power(family):
    """The units of the second coordinate are 1000 times the first one's, which is biased."""
    n, n_sets, n_draws = 100, 200, 39
    root = np.linalg.cholesky([[1.0, 600.0], [600.0, 1e6]])

    def rejects(key, bias):
        keys = jax.random.split(key, 4)
        loc = jax.random.normal(keys[0], (n, 2)) @ root.T
        targets = loc + jax.random.normal(keys[1], (n, 2)) @ root.T + jnp.array([[bias, 0.0]])
        if family == "full":
            p = cj.MultivariateNormalFullCovariance(loc, jnp.tile(root @ root.T, (n, 1, 1)))
        else:
            p = cj.Empirical(loc[:, None] + jax.random.normal(keys[2], (n, 8, 2)) @ root.T)
        test = cj.aggregated_skce_test(keys[3], None, p, targets, n_resamples=n_draws)
        return test.pvalue <= 0.05

    over_sets = jax.jit(
        lambda keys, bias: jax.lax.map(lambda key: rejects(key, bias), keys, batch_size=20)
    )
    level, power = (
        float(jnp.mean(over_sets(jax.random.split(jax.random.key(i), n_sets), bias)))
        for i, bias in enumerate((0.0, 0.5))
    )
    assert level <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / n_sets)
    assert power > 0.7


def test_random_features(key):
    predictions, targets = cast(FAMILIES["diag"](30, 0), "float32")
    kernel = cj.VectorPITKernel(cj.default_kernel(predictions).prediction_kernel)
    found = cj.random_feature_skce(key, kernel, predictions, targets, n_features=4000)
    assert abs(found.estimate - cj.skce(kernel, predictions, targets)) < 0.02


def test_gradients_are_finite():
    """Also of targets that are impossible in float32, and of equal variances."""
    targets = jnp.array([[0.0, 0.5], [1e30, -1e30], [3.0, 0.0]])

    def estimate(loc, covariances):
        p = cj.MultivariateNormalFullCovariance(loc, covariances)
        return cj.skce(COSINES, p, targets)

    gradients = jax.grad(estimate, (0, 1))(jnp.zeros((3, 2)), jnp.tile(jnp.eye(2), (3, 1, 1)))
    assert all(np.isfinite(x).all() for x in gradients)
    assert np.abs(gradients[0][0]).max() > 1e-4


def test_bad_arguments():
    loc, targets = jnp.zeros((3, 2)), jnp.zeros((3, 2))
    numbers = cj.Normal(jnp.zeros(3), jnp.ones(3)), jnp.zeros(3)
    vectors = cj.MultivariateNormalDiag(loc, jnp.ones((3, 2)))
    mixture = cj.Mixture.ensemble(cj.MultivariateNormalDiag(loc[:, None], jnp.ones((3, 1, 2))))
    calls = [
        (TypeError, "predictions of vectors, got Normal", lambda: cj.skce(COSINES, *numbers)),
        (TypeError, "no known PIT", lambda: cj.skce(COSINES, mixture, targets)),
        (ValueError, "kernel_bound must be given", lambda: bound(vectors, targets)),
    ]

    def bound(p, targets):
        return cj.distribution_free_skce_test(COSINES, p, targets, unbiased=False)

    for exception, message, call in calls:
        check_message(call, exception, message)
