"""Predictive distributions against scipy.stats, and their draws against their moments."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from instances import FAMILIES, cast
from scipy import special, stats

import calibjax as cj

every_family = pytest.mark.parametrize("family", FAMILIES)

# The distribution of each row, and the mean, variance and log density of targets [n] or [n, d].
LAWS = {
    "bernoulli": lambda p: stats.bernoulli(p.probs),
    "categorical": lambda p: [
        stats.rv_discrete(values=(np.arange(len(row)), row)) for row in p.probs
    ],
    "normal": lambda p: stats.norm(p.loc, p.scale),
    "diag": lambda p: stats.norm(p.loc, p.scale_diag),
}


def of_law(family, law, method, *args):
    if family == "categorical":
        rows = zip(law, *args, strict=True)
        return np.array([getattr(row, method)(*values) for row, *values in rows])
    value = getattr(law, method)(*args)
    return value.sum(-1) if family == "diag" and method == "logpdf" else value


def test_every_family_is_here():
    families = {type(build(2, 0)[0]) for build in FAMILIES.values()}
    assert families == set(cj.Distribution.__subclasses__())
    assert LAWS.keys() == FAMILIES.keys()


@every_family
def test_moments_and_density(family, float64):
    predictions, targets = FAMILIES[family](9, 0)
    law = LAWS[family](predictions)
    p, y = cast((predictions, targets))
    np.testing.assert_allclose(p.mean(), of_law(family, law, "mean"), rtol=1e-13)
    np.testing.assert_allclose(p.variance(), of_law(family, law, "var"), rtol=1e-12)
    density = "logpmf" if p.target_kind == "integer" else "logpdf"
    np.testing.assert_allclose(p.log_prob(y), of_law(family, law, density, targets), rtol=1e-12)


@every_family
def test_draws(family, key):
    n_draws = 4000
    predictions, targets = FAMILIES[family](5, 0)
    p = cast(predictions, "float32")
    draws = jax.jit(lambda p: p.sample(key, (n_draws,)))(p)
    assert draws.shape == (n_draws, *targets.shape)
    assert p.sample(key).shape == targets.shape
    assert p.sample(key, (2, 3)).shape == (2, 3, *targets.shape)
    kind = jnp.floating if p.target_kind == "real" else jnp.integer
    assert jnp.issubdtype(draws.dtype, kind)
    assert jnp.all(jax.vmap(lambda y: p.supports(y)[1])(draws))
    draws = np.array(draws, float)
    mean, variance = np.array(p.mean()), np.array(p.variance())
    deviations = draws - mean
    # Five standard errors; that of the variance from the fourth moment.
    standard_error = np.sqrt(variance / n_draws)
    assert np.all(np.abs(deviations.mean(0)) < 5 * standard_error)
    squares = deviations**2
    assert np.all(np.abs(squares.mean(0) - variance) < 5 * squares.std(0) / np.sqrt(n_draws) + 1e-6)
    # Rows are drawn independently of each other.
    correlation = np.corrcoef(draws.reshape(n_draws, -1), rowvar=False)
    assert np.max(np.abs(correlation - np.eye(len(correlation)))) < 5 / np.sqrt(n_draws)


def test_frequencies_of_classes(key, float64):
    p = cast(FAMILIES["categorical"](3, 0)[0])
    draws = np.array(p.sample(key, (4000,)))
    for row, probs in zip(draws.T, np.array(p.probs), strict=True):
        frequencies = np.bincount(row, minlength=4) / 4000
        assert np.all(np.abs(frequencies - probs) < 5 * np.sqrt(probs * (1 - probs) / 4000))


def test_draws_of_certain_predictions(key):
    p = cj.Categorical(jnp.eye(3))
    np.testing.assert_array_equal(p.sample(key, (50,)), np.tile(np.arange(3), (50, 1)))
    p = cj.Bernoulli(jnp.array([0.0, 1.0]))
    np.testing.assert_array_equal(p.sample(key, (50,)), np.tile([0, 1], (50, 1)))


def test_from_logits(float64):
    logits = np.random.default_rng(0).normal(scale=3, size=(5, 4))
    probs = special.softmax(logits, axis=-1)
    np.testing.assert_allclose(cj.Categorical.from_logits(logits).probs, probs, rtol=1e-14)
    np.testing.assert_allclose(
        cj.Bernoulli.from_logits(logits[:, 0]).probs, special.expit(logits[:, 0]), rtol=1e-14
    )


def test_impossible_and_certain_targets():
    p = cj.Bernoulli(jnp.array([0.0, 0.0, 1.0, 1.0]))
    targets = jnp.array([0, 1, 0, 1])
    np.testing.assert_array_equal(p.log_prob(targets), [0, -np.inf, -np.inf, 0])
    p = cj.Categorical(jnp.array([[0.0, 1.0], [0.0, 1.0]]))
    np.testing.assert_array_equal(p.log_prob(jnp.array([0, 1])), [-np.inf, 0])
