"""Forecasts at which an adversarial review found wrong numbers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from marks import slow

import calibjax as cj
from calibjax._struct import struct
from calibjax.expectations import prepare_rows, residual_product_tile


@pytest.mark.parametrize("dtype", slow({"float64"}, ["float32", "float64"]))
@pytest.mark.slow
def test_targets_outside_of_the_waves_beside_laws_inside(dtype, float64):
    # Rows come ever nearer to the radius of the waves; two targets are outside, in reach of laws.
    edge = 67.7 if dtype == "float32" else 107.8
    offsets = jnp.asarray([0.0, 0.1, -0.1, 0.0, edge - 10, edge - 5, edge - 1], dtype)
    scale, df = jnp.full(7, 0.1, dtype), jnp.full(7, 50.0, dtype)
    targets = offsets + jnp.asarray([0.0, 0.0, 0.0, 0.0, 10.2, 0.1, 1.4], dtype)
    kernel = cj.GaussianKernel(jnp.asarray(1.0, dtype))
    p = cj.StudentT(df, offsets, scale)
    made = prepare_rows(p, kernel, targets, None)
    assert made.target_is_near.tolist() == [True] * 4 + [False, True, False]
    found = residual_product_tile(made, kernel, targets, made, targets)
    exact = residual_product_tile(p, kernel, targets, p, targets)
    atol = 1e-5 if dtype == "float32" else 1e-11
    np.testing.assert_allclose(found, exact, rtol=0, atol=atol)
    # Without the last two rows all laws have waves, but the fifth target has none.
    assert made.law_is_near.tolist() == [True] * 5 + [False] * 2


def test_targets_beyond_equal_quantiles_are_impossible():
    p = cj.Quantiles(jnp.array([[0.0, 0.0, 1.0], [0.0, 1.0, 1.0]]), (0.1, 0.5, 0.9))
    assert cj.log_score(p, jnp.array([-1.0, 2.0])).tolist() == [np.inf, np.inf]
    assert cj.log_score(p, jnp.array([0.0, 1.0])).tolist() == pytest.approx([np.log(2.5), -np.inf])


@pytest.mark.slow
def test_levels_that_are_equal_in_float32():
    levels = (0.25, 0.5, 0.5 + 1e-9)
    p = cj.Quantiles(jnp.array([[0.0, 1.0, 1.0 + 1e-6]] * 3), levels)
    assert p.cdf(jnp.array([0.5, 1.0, 0.0])).tolist() == pytest.approx([0.375, 0.5, 0.25])
    assert np.all(np.isfinite(cj.crps(p, jnp.array([0.5, 1.0, 0.0]))))
    assert np.isfinite(p.quantile(jnp.array([0.3, 0.5, 0.9]))).all()


@struct
class SumOverPoints(cj.Kernel):
    """A Gaussian kernel for which h is a sum over all pairs of points."""

    lengthscale: float

    def __call__(self, y, z):
        return cj.GaussianKernel(self.lengthscale)(y, z)


def student_t(n, df=5.0):
    rng = np.random.default_rng(0)
    loc = jnp.asarray(rng.normal(size=n), jnp.float32)
    p = cj.StudentT(jnp.full(n, df), loc, jnp.ones(n))
    return p, loc + jnp.asarray(rng.standard_t(df, n), jnp.float32)


@pytest.mark.slow
def test_draws_from_the_model_take_the_place_of_targets(key):
    p, y = student_t(9)
    distances = cj.default_kernel(p).prediction_kernel
    found, exact = (
        cj.distribution_free_skce_test(
            cj.TensorProduct(distances, kernel), p, y, null="model", key=key, n_resamples=4
        )
        for kernel in (cj.GaussianKernel(1.5), SumOverPoints(1.5))
    )
    np.testing.assert_allclose(found.null_distribution, exact.null_distribution, atol=1e-6)
    np.testing.assert_allclose(found.statistic, exact.statistic, atol=1e-6)


@pytest.mark.slow
def test_random_features_of_univariate_predictions(key):
    p, y = student_t(9, df=1e6)
    of_normal = cj.Normal(p.loc, p.scale)
    kernel = cj.TensorProduct(
        cj.DistanceKernel(cj.EmbeddingDistance(lambda p: jnp.stack([p.loc, p.scale])), 1.0),
        cj.GaussianKernel(1.5),
    )
    found, exact = (cj.random_feature_skce(key, kernel, q, y, n_features=8) for q in (p, of_normal))
    np.testing.assert_allclose(found.estimate, exact.estimate, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "p",
    [
        cj.StudentT(jnp.full(200, 1e-3), jnp.zeros(200), jnp.ones(200)),
        cj.LogNormal(jnp.zeros(200), jnp.full(200, 1e3)),
    ],
    ids=["student_t", "log_normal"],
)
def test_extreme_draws_are_targets(p, key):
    assert jnp.all(p.supports(p.sample(key))[1])


def test_crps_of_weibull_predictions_has_derivatives():
    def score(k, scale):
        return cj.crps(cj.Weibull(k, scale), jnp.ones(1))[0]

    value, (by_k, by_scale) = jax.value_and_grad(score, (0, 1))(jnp.array([10.0]), jnp.ones(1))
    # The score is in units of the targets, and its derivative in the target is 2 F(1) - 1.
    np.testing.assert_allclose(by_scale[0], value - (1 - 2 / np.e), rtol=1e-4)
    assert jnp.isfinite(by_k[0])


@pytest.mark.slow
def test_gamma_draws_near_zero():
    def score(a, rate):
        return jnp.sum(cj.crps(cj.Gamma(a, rate), targets))

    a, rate = jnp.array([1e-5, 1e-3]), jnp.full(2, 1e-5)
    targets = jnp.full(2, np.finfo(np.float32).tiny)
    u = cj.Gamma(a, rate).cdf(targets)
    # (rate y)^a / Gamma(1 + a)
    np.testing.assert_allclose(u, np.exp(np.asarray(a) * np.log(1.18e-43)), rtol=0.02)
    for slope in jax.grad(score, (0, 1))(a, rate):
        assert jnp.all(jnp.isfinite(slope))
