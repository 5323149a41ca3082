"""The smooth calibration error: published code, quadrature of its definition, transformations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize

import calibjax as cj


def binary_data(n, power, digits=15):
    """Evenly spread forecasts p, and events of the probability p^power."""
    i = np.arange(1, n + 1)
    p = np.round(i * 0.6180339887498949 % 1, digits)
    return p, (i * 0.7548776662466927 % 1 < p**power).astype(int)


# What smECE of relplot 1.0.3, the code of the method's authors, returns for `binary_data`; and for
# forecasts 0, 0, 1, 1 of 0, 1, 1, 1.
PUBLISHED = {
    (2, 1.0): 0.4269125249430733,
    (10, 1.0): 0.11095842973478315,
    (200, 3.0): 0.24214818885328393,
    (200, 1.0, 1): 0.03413117724562413,
    (5000, 1.0): 0.009423614125112799,
    (5000, 1.2): 0.04468814963829923,
    (5000, 0.5, 2): 0.16705564739748482,
}
PUBLISHED_AT_ENDS = 0.24998694870564164


def smooth_ece(p, y, dtype=None, where=None):
    return cj.smooth_ece(cj.Bernoulli(jnp.asarray(p, dtype)), jnp.asarray(y), where=where)


@pytest.mark.parametrize("case", PUBLISHED, ids=str)
def test_published_code(case, dtype):
    found = smooth_ece(*binary_data(*case), dtype)
    assert found.dtype == dtype
    # One ulp of float32 moves a forecast by 6e-8.
    assert abs(float(found) - PUBLISHED[case]) < {"float32": 3e-7, "float64": 1e-12}[dtype]


def test_published_code_at_the_ends(float64):
    assert float(smooth_ece([0.0, 0.0, 1.0, 1.0], [0, 1, 1, 1])) == pytest.approx(
        PUBLISHED_AT_ENDS, abs=1e-12
    )


def error_at(bandwidth, p, y, n_points=2000):
    """The definition: the midpoint rule, and the normal density with its images at 0 and 1."""
    t = (np.arange(n_points) + 0.5) / n_points
    images = np.concatenate([2 * k + sign * p for k in range(-3, 4) for sign in (1, -1)])
    residuals = np.tile(p - y, 14)
    kernel = np.exp(-(((t[:, None] - images) / bandwidth) ** 2) / 2)
    return np.mean(np.abs(kernel @ residuals)) / (bandwidth * np.sqrt(2 * np.pi) * p.size)


@pytest.mark.parametrize("case", [(200, 3.0), (200, 1.0)], ids=str)
def test_definition(case, float64):
    p, y = binary_data(*case)
    fixed_point = optimize.brentq(lambda s: error_at(s, p, y) - s, 0.01, 1.0, xtol=1e-6)
    # The bandwidth is rounded up to 1/1024, where the error is smaller.
    bandwidth = np.ceil(fixed_point * 1024) / 1024
    found = float(smooth_ece(p, y))
    assert found == pytest.approx(error_at(bandwidth, p, y), abs=4e-4)
    assert found < fixed_point + 4e-4 < found + 2e-3


def test_forecasts_that_are_right():
    assert float(smooth_ece([0.0, 1.0, 1.0], [0, 1, 1])) == 0
    # Half of equal forecasts of 1/2 happen.
    assert float(smooth_ece(jnp.full(4, 0.5), [0, 1, 1, 0])) == 0


def test_equal_forecasts(float64):
    # All residuals are smoothed alike, whatever the bandwidth is: their mean is left.  The
    # published code adds 1e-4 to a density of 10.
    found = smooth_ece(jnp.full(10, 0.3), np.arange(10) < 7)
    assert float(found) == pytest.approx(0.4, abs=1e-5)


def test_gradient(float64):
    p, y = binary_data(10, 1.0)
    gradient = jax.grad(lambda p: cj.smooth_ece(cj.Bernoulli(p), jnp.asarray(y)))(jnp.asarray(p))
    step = 1e-7
    for i in (0, 3, 9):
        moved = [p + sign * step * (np.arange(10) == i) for sign in (1, -1)]
        up, down = (float(smooth_ece(q, y)) for q in moved)
        assert gradient[i] == pytest.approx((up - down) / (2 * step), rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("p", [np.full(4, 0.3), np.array([0.0, 0.0, 1.0, 1.0])], ids=str)
def test_gradient_is_finite(p):
    y = jnp.asarray([0, 1, 1, 0])
    gradient = jax.grad(lambda p: cj.smooth_ece(cj.Bernoulli(p), y))(jnp.asarray(p))
    assert np.isfinite(gradient).all() and np.any(gradient != 0)


def test_masked_rows_do_not_count():
    p, y = binary_data(10, 1.0)
    where = np.arange(10) % 3 > 0
    masked = smooth_ece(np.where(where, p, np.nan), np.where(where, y, 7), "float32", where)
    np.testing.assert_allclose(masked, smooth_ece(p[where], y[where], "float32"), rtol=1e-6)


def test_vmap_and_jit():
    p, y = binary_data(30, 1.0)
    p, y = jnp.asarray(p.reshape(3, 10), "float32"), jnp.asarray(y.reshape(3, 10))
    found = jax.jit(jax.vmap(lambda p, y: cj.smooth_ece(cj.Bernoulli(p), y)))(p, y)
    np.testing.assert_allclose(
        found, [smooth_ece(*row) for row in zip(p, y, strict=True)], rtol=1e-6
    )


def test_invalid_rows_inside_jit():
    p, y = jnp.array([0.2, 0.8, 0.5]), jnp.array([0, 1, 1])
    compiled = jax.jit(smooth_ece)
    assert np.isfinite(compiled(p, y))
    assert np.isnan(compiled(p.at[0].set(1.5), y))
    assert np.isnan(compiled(p.at[0].set(jnp.nan), y))
    assert np.isnan(compiled(p, y.at[0].set(2)))
    assert np.isnan(jax.jit(lambda where: smooth_ece(p, y, where=where))(jnp.zeros(3, bool)))


def test_only_binary_predictions():
    with pytest.raises(TypeError, match="predictions must be Bernoulli.*Categorical; .*top_label"):
        cj.smooth_ece(cj.Categorical(jnp.full((3, 2), 0.5)), jnp.zeros(3, int))
    with pytest.raises(TypeError, match="predictions must be Bernoulli.*Normal"):
        cj.smooth_ece(cj.Normal(jnp.zeros(3), jnp.ones(3)), jnp.zeros(3))
    with pytest.raises(TypeError, match="predictions must be a distribution of calibjax"):
        cj.smooth_ece(jnp.full(3, 0.5), jnp.zeros(3, int))


@pytest.mark.slow
def test_many_equal_forecasts_in_single_precision():
    # The mean residual is 4e-4, and a plain float32 sum of the forecasts is off by percents.
    n = 10**6
    y = np.arange(n) < 299_600
    np.testing.assert_allclose(smooth_ece(np.full(n, 0.3), y, "float32"), 4e-4, atol=1e-6)
