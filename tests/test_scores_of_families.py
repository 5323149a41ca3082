"""The score of each family, the gradient of its log density, against differences of SciPy's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from instances import FAMILIES, cast
from test_distributions import LAWS

import calibjax as cj

WITHOUT_DENSITY = {
    "bernoulli",
    "categorical",
    "ordinal",
    "poisson",
    "negative_binomial",
    "binomial",
    "ensemble",
    "empirical",
    "empirical_missing",
    "empirical_vectors",
    "empirical_draws",
}
score = jax.jit(lambda predictions, targets: predictions.score(targets))
REAL = [name for name in FAMILIES if name not in WITHOUT_DENSITY and name in LAWS]

# The central differences of seven points have an error of order step^6.
STEPS = np.arange(1, 4)
COEFFICIENTS = np.array([3 / 4, -3 / 20, 1 / 60])


def slope(function, y, step):
    """The derivative of each row's number in a change of its target along `step`."""
    return sum(
        c * (function(y + k * step) - function(y - k * step))
        for k, c in zip(STEPS, COEFFICIENTS, strict=True)
    )


def expected_score(family, predictions, targets, size=2e-3):
    law = LAWS[family](predictions)

    def log_density(y):
        values = law.logpdf(y)
        return values.sum(-1) if values.ndim > 1 else values

    if targets.ndim == 1:
        return slope(log_density, targets, size) / size
    units = np.eye(targets.shape[1])
    return np.stack([slope(log_density, targets, size * e) / size for e in units], 1)


@pytest.mark.parametrize("family", REAL)
def test_score_is_the_derivative_of_the_log_density(family, float64):
    predictions, targets = FAMILIES[family](9, 0)
    if family == "laplace":  # whose density has a kink
        targets = np.where(np.abs(targets - predictions.loc) < 0.01, targets + 0.1, targets)
    p, y = cast((predictions, targets))
    found = score(p, y)
    assert found.shape == y.shape and found.dtype == jnp.float64
    expected = expected_score(family, predictions, targets)
    np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("family", REAL)
def test_score_in_single_precision(family):
    p, y = cast(FAMILIES[family](9, 0), "float32")
    found = score(p, y)
    assert found.dtype == jnp.float32 and found.shape == y.shape
    with jax.enable_x64(True):
        expected = cast(p, "float64").score(y.astype("float64"))
    np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-4)


# Far from where the targets are, or close to an end of the support, by hand.
FAR = {
    "normal": (lambda: cj.Normal(np.array([1.0]), np.array([2.0])), 1e5, -(1e5 - 1) / 4),
    "student_t": (
        lambda: cj.StudentT(np.array([3.0]), np.array([0.0]), np.array([1.0])),
        1e8,
        -4 * 1e8 / (3 + 1e16),
    ),
    "laplace": (lambda: cj.Laplace(np.array([0.0]), np.array([2.0])), -1e6, 0.5),
    "gamma": (lambda: cj.Gamma(np.array([3.0]), np.array([2.0])), 1e-8, 2e8 - 2),
    "weibull": (lambda: cj.Weibull(np.array([3.0]), np.array([1.0])), 1e-4, 2e4 - 3e-8),
    "log_normal": (
        lambda: cj.LogNormal(np.array([0.0]), np.array([1.0])),
        np.exp(-20.0),
        19 * np.exp(20.0),
    ),
    # Of components at -1 and 1, the nearer one is all that counts.
    "mixture": (
        lambda: cj.Mixture(
            np.array([[0.5, 0.5]]), cj.Normal(np.array([[-1.0, 1.0]]), np.ones((1, 2)))
        ),
        100.0,
        -99.0,
    ),
}


@pytest.mark.parametrize("family", FAR)
def test_score_far_out(family, float64):
    build, y, expected = FAR[family]
    found = score(cast(build()), jnp.array([y]))
    np.testing.assert_allclose(found, [expected], rtol=1e-9)


@pytest.mark.slow
def test_score_of_a_mixture_of_vectors(float64):
    rng = np.random.default_rng(0)
    weights, loc = rng.dirichlet(np.ones(3), 4), rng.normal(size=(4, 3, 2))
    scale, y = rng.uniform(0.5, 1.0, (4, 3, 2)), rng.normal(size=(4, 2))
    p = cj.Mixture(*cast((weights, cj.MultivariateNormalDiag(loc, scale))))
    z = (y[:, None] - loc) / scale
    density = weights * np.exp(-np.sum(z**2, -1) / 2) / np.prod(scale, -1)
    slopes = np.sum(density[..., None] * -z / scale, 1) / np.sum(density, 1)[:, None]
    np.testing.assert_allclose(p.score(jnp.array(y)), slopes, rtol=1e-11)


@pytest.mark.parametrize("family", sorted(WITHOUT_DENSITY))
def test_families_without_density_have_no_score(family):
    p, y = cast(FAMILIES[family](3, 0), "float32")
    with pytest.raises(TypeError, match=f"{type(p).__name__} predictions have no"):
        p.score(y)


def test_a_row_of_garbage_stays_in_its_row(float64):
    p = cj.Normal(jnp.array([0.0, jnp.nan, 1.0]), jnp.array([1.0, 1.0, 2.0]))
    found = score(p, jnp.array([1.0, 1.0, 3.0]))
    np.testing.assert_array_equal(found, [-1, np.nan, -0.5])


OUTSIDE = {
    "gamma": (cj.Gamma(jnp.full(2, 3.0), jnp.ones(2)), [-1.0, 0.0]),
    "weibull": (cj.Weibull(jnp.full(2, 3.0), jnp.ones(2)), [-1.0, 0.0]),
    "log_normal": (cj.LogNormal(jnp.zeros(2), jnp.ones(2)), [-1.0, 0.0]),
}


@pytest.mark.parametrize("family", OUTSIDE)
def test_score_outside_of_the_support_is_nan(family):
    p, y = OUTSIDE[family]
    assert jnp.all(jnp.isnan(score(p, jnp.array(y))))
