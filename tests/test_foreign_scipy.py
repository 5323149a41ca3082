"""Frozen distributions of scipy.stats as our own, against what SciPy computes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiled import call
from messages import check_message
from scipy import stats

import calibjax as cj
from calibjax import as_predictions
from calibjax._data.padding import check_predictions

N = 5
RNG = np.random.default_rng(20240817)
LOC, REAL = RNG.normal(size=(2, N))
SCALE, SHAPE, OTHER, POSITIVE = RNG.uniform(0.5, 3.0, size=(4, N))
PROBABILITY = RNG.uniform(0.1, 0.9, size=N)
COUNT = RNG.integers(0, 7, size=N)

# The frozen distribution, our family, targets.
CASES = {
    "norm": (stats.norm(LOC, SCALE), cj.Normal, REAL),
    "norm by name": (stats.norm(scale=SCALE, loc=1), cj.Normal, REAL),
    "norm, one scale": (stats.norm(LOC, 2), cj.Normal, REAL),
    "laplace": (stats.laplace(LOC, SCALE), cj.Laplace, REAL),
    "t": (stats.t(SHAPE + 2, LOC, SCALE), cj.StudentT, REAL),
    "t, one df": (stats.t(4, loc=LOC), cj.StudentT, REAL),
    "cauchy": (stats.cauchy(LOC, SCALE), cj.StudentT, REAL),
    "lognorm": (stats.lognorm(SHAPE / 2, scale=SCALE), cj.LogNormal, POSITIVE),
    "gamma": (stats.gamma(SHAPE, scale=SCALE), cj.Gamma, POSITIVE),
    "expon": (stats.expon(scale=SCALE), cj.Gamma, POSITIVE),
    "chi2": (stats.chi2(SHAPE), cj.Gamma, POSITIVE),
    "weibull_min": (stats.weibull_min(SHAPE, scale=SCALE), cj.Weibull, POSITIVE),
    "poisson": (stats.poisson(SCALE), cj.Poisson, COUNT),
    "binom": (stats.binom(9, PROBABILITY), cj.Binomial, COUNT),
    "nbinom": (stats.nbinom(SHAPE, PROBABILITY), cj.NegativeBinomial, COUNT),
    "bernoulli": (stats.bernoulli(PROBABILITY), cj.Bernoulli, COUNT % 2),
}


@pytest.mark.parametrize("name", CASES)
def test_the_same_distribution(name, float64):
    frozen, family, targets = CASES[name]
    predictions = as_predictions(frozen)
    assert type(predictions) is family
    assert check_predictions(predictions)["n"] == N
    assert {leaf.dtype for leaf in jax.tree.leaves(predictions)} == {jnp.dtype("float64")}
    log_prob = frozen.logpmf if predictions.target_kind == "integer" else frozen.logpdf
    found = call(predictions, "log_prob", np.asarray(targets))
    np.testing.assert_allclose(found, log_prob(targets), rtol=1e-11)
    if name != "cauchy":
        for moment in ("mean", "var"):
            found = call(predictions, {"var": "variance"}.get(moment, moment))
            np.testing.assert_allclose(found, getattr(frozen, moment)(), rtol=1e-11)


@pytest.mark.parametrize(
    ("frozen", "message"),
    {
        "loc": (stats.poisson(SCALE, 1), "names, or .*, got scipy.stats.poisson. Draws"),
        "another": (stats.geom(PROBABILITY), "names, or .*, got scipy.stats.geom. Draws"),
        "vectors": (stats.multivariate_normal(LOC), "got scipy.*multivariate_normal_frozen"),
        "new style": (stats.Normal(mu=LOC), "got scipy.stats.Normal. Draws"),
        "a user's": (
            type("Mine", (stats.rv_continuous,), {"_pdf": lambda self, x: x})(name="norm")(LOC),
            "got scipy.stats.rv_continuous_frozen. Draws",
        ),
    }.values(),
)
def test_unsupported(frozen, message):
    check_message(lambda: as_predictions(frozen), TypeError, message)


# Distributions without a closed form of ours.
WITHOUT_FORM = {
    "another": stats.gumbel_r(LOC, SCALE),
    "a loc": stats.lognorm(SHAPE / 2, LOC, SCALE),
    "a scale": stats.beta(SHAPE, 2.0, scale=3),
}


@pytest.mark.parametrize("name", WITHOUT_FORM)
def test_functions_of_scipy(name, float64):
    frozen = WITHOUT_FORM[name]
    predictions, targets = as_predictions(frozen), frozen.ppf(PROBABILITY)
    assert check_predictions(predictions)["n"] == N
    for method, theirs in {"cdf": frozen.cdf, "log_prob": frozen.logpdf}.items():
        found = getattr(predictions, method)(jnp.asarray(targets))
        np.testing.assert_allclose(found, theirs(targets), rtol=1e-12)
        found = getattr(predictions[2], method)(jnp.asarray(targets[2]))
        np.testing.assert_allclose(found, theirs(targets)[2], rtol=1e-12)
    np.testing.assert_allclose(predictions.quantile(jnp.asarray(PROBABILITY)), targets)
    np.testing.assert_allclose(predictions.mean(), np.broadcast_to(frozen.mean(), N))
    np.testing.assert_allclose(predictions.variance(), np.broadcast_to(frozen.var(), N))
    valid = predictions.supports(jnp.asarray(frozen.support()[0] - np.ones(N)))[1]
    assert name == "another" or not np.any(valid)


def test_proposed_draws():
    distribution = stats.multivariate_normal(LOC)
    with pytest.raises(TypeError) as caught:
        as_predictions(distribution)
    call = str(caught.value).partition("exact for them: ")[2].removesuffix(".")
    predictions = eval(call, {"Empirical": cj.Empirical, "jnp": jnp, "n": N, **locals()})
    assert check_predictions(predictions) == {"n": N, "s": 100, "d": N}


def test_one_prediction_is_no_batch():
    check_message(
        lambda: as_predictions(stats.norm(0, 1)),
        ValueError,
        r"obj must have batch shape \[n\], one .*, got batch shape \[\] and event shape \[\]",
    )
