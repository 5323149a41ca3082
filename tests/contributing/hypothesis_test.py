"""The bound by Cantelli's inequality, on each operator."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from instances import sample

import calibjax as cj
from calibjax._data.data import Data
from calibjax.discrepancy import normal_form
from calibjax.hypothesis_tests._asymptotic import cantelli
from calibjax.operators.gram_matrix import low_rank_h

N = 30


def bound(matrix):
    """The p-value by the variance 2 sum_i lambda_i^2 of the limit law, from eigenvalues."""
    statistic = (np.sum(matrix) - np.trace(matrix)) / (N - 1)
    variance = 2 * np.sum((np.linalg.eigvalsh(matrix) / N) ** 2)
    return variance / (variance + max(statistic, 0) ** 2)


@jax.jit
def pvalue(operator):
    return cantelli(jax.random.key(0), operator, N, 1).pvalue


def data():
    """A model that is wrong: label 0 always comes."""
    kernel, predictions, targets = sample("categorical-tv-white", N)
    return kernel, predictions, 0 * targets


def test_on_tiles(key, float64):
    expected = bound(np.array(cj.h_matrix(*data())))
    assert expected < 0.1
    result = cj.asymptotic_skce_test(key, *data(), method="cantelli", n_resamples=1)
    np.testing.assert_allclose(result.pvalue, expected, rtol=1e-12)


def test_on_features(key, float64):
    kernel, *samples = data()

    @functools.partial(jax.jit, static_argnums=2)
    def operator_and_rows(kernel, samples, n_features):
        data = Data(*samples, weights=jnp.ones(N))
        operator = low_rank_h(key, normal_form(kernel), data, n_features, None)
        return operator, operator.psi(data.samples)

    operator, psi = operator_and_rows(kernel, samples, 8)
    expected = bound(np.array(psi @ psi.T))
    assert expected < 0.5
    np.testing.assert_allclose(pvalue(operator), expected, rtol=1e-12)


def test_calibrated_models_are_rejected_too_rarely_if_at_all(key):
    kernel = cj.TensorProduct(cj.DistanceKernel(cj.TotalVariation(), 0.4), cj.WhiteKernel())

    @jax.vmap
    def pvalue(key):
        of_predictions, of_targets = jax.random.split(key)
        predictions = cj.Bernoulli(jax.random.uniform(of_predictions, N))
        targets = predictions.sample(of_targets)
        options = {"method": "cantelli", "n_resamples": 1}
        return cj.asymptotic_skce_test(key, kernel, predictions, targets, **options).pvalue

    pvalues = jax.jit(pvalue)(jax.random.split(key, 1000))
    # Beyond 2 standard deviations, where the bound is 1 / 5, lie some 5 % of most laws.
    assert 0.01 < np.mean(pvalues <= 0.2) < 0.1
