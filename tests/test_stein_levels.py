"""Levels and powers of tests with a SteinKernel, over simulated data sets."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import calibjax as cj

LEVEL = 0.05
GRID = np.linspace(-3, 3, 1001)


def location(p):
    return p.loc


def parameters(p):
    return p.parameters


def quartic(theta, y):
    """The score of exp(theta y - y^4), up to a constant."""
    return theta - 4 * y**3


def draw_quartic(key, theta):
    """By the inverse of sums of the density over a fine grid."""
    grid = jnp.asarray(GRID, theta.dtype)
    sums = jnp.cumsum(jnp.exp(theta * grid - grid**4))
    return jnp.interp(jax.random.uniform(key, (), theta.dtype), sums / sums[-1], grid)


def quartics(key, n):
    return cj.Unnormalized(quartic, jax.random.normal(key, n), draw_quartic)


def normal(key, n):
    loc_key, scale_key = jax.random.split(key)
    scale = jax.random.uniform(scale_key, n, minval=0.5, maxval=2.0)
    return cj.Normal(jax.random.normal(loc_key, n), scale)


def student_t(key, n):
    return cj.StudentT(jnp.full(n, 3.0), jax.random.normal(key, n), jnp.ones(n))


def diag(key, n):
    return cj.MultivariateNormalDiag(jax.random.normal(key, (n, 2)), jnp.ones((n, 2)))


FAMILIES = {
    "normal": (normal, location),
    "student_t": (student_t, location),
    "diag": (diag, location),
    "quartic": (quartics, parameters),
}


def stein(phi, lengthscale=1.0):
    between = cj.DistanceKernel(cj.EmbeddingDistance(phi), 1.0)
    return cj.SteinKernel(between, cj.GaussianKernel(lengthscale))


def pvalues(function, n_data_sets, seed=0):
    keys = jax.random.split(jax.random.key(seed), n_data_sets)
    return np.asarray(jax.jit(lambda keys: jax.lax.map(function, keys, batch_size=25))(keys))


def bound(n_data_sets, level=LEVEL):
    """Four standard errors."""
    return 4 * np.sqrt(level * (1 - level) / n_data_sets)


def of_calibrated(test, family, kernel, n):
    def pvalue(key):
        of_predictions, of_targets, of_test = jax.random.split(key, 3)
        predictions = family(of_predictions, n)
        targets = predictions.sample(of_targets)
        return test(of_test, kernel, predictions, targets).pvalue

    return pvalue


def bootstrap(key, kernel, predictions, targets):
    return cj.asymptotic_skce_test(key, kernel, predictions, targets, n_resamples=199)


@pytest.mark.parametrize("n", [60, 200])
@pytest.mark.parametrize("family", FAMILIES)
def test_level_of_the_bootstrap(family, n):
    build, phi = FAMILIES[family]
    found = pvalues(of_calibrated(bootstrap, build, stein(phi), n), 1000)
    assert np.mean(found <= LEVEL + 1e-6) <= LEVEL + bound(1000)
    # Nor does it never reject.
    assert np.mean(found <= 4 * LEVEL + 1e-6) > LEVEL


def wild(key, kernel, predictions, targets):
    options = {"method": "wild", "n_resamples": 199}
    return cj.asymptotic_skce_test(key, kernel, predictions, targets, **options)


def five(key, n):
    return cj.MultivariateNormalDiag(jax.random.normal(key, (n, 5)), jnp.ones((n, 5)))


@pytest.mark.parametrize(("family", "n"), [(quartics, 60), (five, 100)])
def test_level_of_the_wild_bootstrap(family, n):
    phi = location if family is five else parameters
    found = pvalues(of_calibrated(wild, family, stein(phi, 2.5), n), 1000)
    # From both sides, even where H is nearly diagonal.
    assert abs(np.mean(found <= LEVEL + 1e-6) - LEVEL) <= bound(1000)


def aggregated(n_cells):
    def test(key, kernel, predictions, targets):
        kernels = [kernel, cj.SteinKernel(kernel.prediction_kernel, cj.GaussianKernel(0.3))]
        options = {"n_resamples": 99, "n_cells": n_cells}
        return cj.aggregated_skce_test(key, kernels, predictions, targets, **options)

    return test


def log_normal(key, n):
    return cj.LogNormal(jax.random.normal(key, n) / 2, jnp.full(n, 0.7))


# Scores with heavy tails, which the bootstrap does not bear, and fewer landmarks than rows.
EXACT = {
    "quartic": (quartics, parameters, 20, 512),
    "quartic, landmarks": (quartics, parameters, 60, 16),
    "log-normal": (log_normal, location, 20, 512),
    "diag": (diag, location, 20, 512),
}


@pytest.mark.parametrize("case", EXACT)
def test_level_of_the_aggregated_test_is_exact(case):
    build, phi, n, n_cells = EXACT[case]
    found = pvalues(of_calibrated(aggregated(n_cells), build, stein(phi), n), 1000)
    # Without ties the p-value is uniform on 0.01, 0.02, ….
    for level in (0.05, 0.5):
        assert abs(np.mean(found <= level + 1e-6) - level) <= bound(1000, level)


# A wrong mean, a wrong deviation.
WRONG = {"mean": (0.3, 1.0), "deviation": (0.0, 1.3)}


@pytest.mark.parametrize("wrong", WRONG)
def test_power_beside_the_closed_form(wrong):
    shift, factor = WRONG[wrong]
    between = cj.DistanceKernel(cj.EmbeddingDistance(location), 1.0)
    kernels = [stein(location), cj.TensorProduct(between, cj.GaussianKernel(1.0))]

    def of_both(key):
        of_predictions, of_targets, of_test = jax.random.split(key, 3)
        p = cj.Normal(jax.random.normal(of_predictions, 100), jnp.ones(100))
        targets = p.loc + shift + factor * jax.random.normal(of_targets, 100)
        return jnp.stack([bootstrap(of_test, kernel, p, targets).pvalue for kernel in kernels])

    ours, closed_form = np.mean(pvalues(of_both, 500) <= LEVEL + 1e-6, axis=0)
    assert ours > 0.35 and abs(ours - closed_form) < 0.12


def test_level_of_the_convenience():
    # Its kernels are made of draws from the predictions, which must not be those of the targets.
    def test(key, _, predictions, targets):
        return cj.calibration_test(key, predictions, targets, n_resamples=99)

    found = pvalues(of_calibrated(test, quartics, None, 20), 1000)
    for level in (0.05, 0.5):
        assert abs(np.mean(found <= level + 1e-6) - level) <= bound(1000, level)
