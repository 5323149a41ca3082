"""Distributions of numpyro, distrax and TFP as our own, against what those packages compute.

numpyro is part of the test extra; the other two are tested where they are installed.
"""

import contextlib
import importlib
import importlib.util
import re
import subprocess
import sys
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiled import call
from marks import slow

import calibjax as cj
from calibjax import as_predictions
from calibjax._data.padding import check_predictions

MODULES = {
    "numpyro": "numpyro.distributions",
    "distrax": "distrax",
    "tensorflow_probability": "tensorflow_probability.substrates.jax.distributions",
}
INSTALLED = [name for name in MODULES if name == "numpyro" or importlib.util.find_spec(name)]


@contextlib.contextmanager
def as_the_packages_expect():
    """They promote dtypes and ranks, and use what jax deprecates."""
    with (
        warnings.catch_warnings(),
        jax.numpy_dtype_promotion("standard"),
        jax.numpy_rank_promotion("allow"),
    ):
        warnings.simplefilter("ignore")
        yield


def load(package):
    with as_the_packages_expect():
        return importlib.import_module(MODULES[package])


N, D, K, M = 5, 2, 3, 4
RNG = np.random.default_rng(20240817)
LOC, LOCS, VECTORS, OF_VECTORS = (RNG.normal(size=s) for s in ((N,), (N, K), (N, D), (N, K, D)))
SCALE, SCALES, DIAG, OF_DIAG, RATE, RATES = (
    RNG.uniform(0.5, 3.0, size=s) for s in ((N,), (N, K), (N, D), (N, K, D), (N,), (N, K))
)
LOGIT, LOGITS, WEIGHTS = (RNG.normal(size=s) for s in ((N,), (N, M), (N, K)))
TRIL = np.tril(RNG.normal(size=(N, D, D)), -1) + np.eye(D) * DIAG[:, :, None]
COVARIANCE = TRIL @ TRIL.swapaxes(1, 2)

REAL, REALS = RNG.normal(size=N), RNG.normal(size=(N, D))
POSITIVE = np.exp(REAL)
BIT, LABEL, COUNT = (RNG.integers(0, top, size=N) for top in (2, M, 7))


def general(d, weights, *parameters, family):
    parts = [family(*(x[:, k] for x in parameters)) for k in range(K)]
    return d.MixtureGeneral(d.Categorical(logits=weights), parts)


def same(d, weights, components):
    return d.MixtureSameFamily(d.Categorical(logits=weights), components)


# For each class: the object from the package and parameters, the parameters, our family, targets.
ALL = {
    # Of logits, since the packages do not agree how log_prob goes on outside of the simplex.
    "categorical probs": (
        lambda d, x: d.Categorical(probs=jax.nn.softmax(x)),
        [LOGITS],
        cj.Categorical,
        LABEL,
    ),
    "categorical logits": (lambda d, x: d.Categorical(logits=x), [LOGITS], cj.Categorical, LABEL),
    "bernoulli probs": (lambda d, p: d.Bernoulli(probs=p), [SCALE / 4], cj.Bernoulli, BIT),
    "bernoulli logits": (lambda d, x: d.Bernoulli(logits=x), [LOGIT], cj.Bernoulli, BIT),
    "normal": (lambda d, m, s: d.Normal(m, s), [LOC, SCALE], cj.Normal, REAL),
    "normal, one scale": (lambda d, m: d.Normal(m, 2.0), [LOC], cj.Normal, REAL),
    "normal, one loc": (lambda d, s: d.Normal(0.5, s), [SCALE], cj.Normal, REAL),
    "laplace": (lambda d, m, s: d.Laplace(m, s), [LOC, SCALE], cj.Laplace, REAL),
    "independent": (
        lambda d, m, s: d.Independent(d.Normal(m, s), reinterpreted_batch_ndims=1),
        [VECTORS, DIAG],
        cj.MultivariateNormalDiag,
        REALS,
    ),
    "independent, one scale": (
        lambda d, m: d.Independent(d.Normal(m, 2.0), reinterpreted_batch_ndims=1),
        [VECTORS],
        cj.MultivariateNormalDiag,
        REALS,
    ),
    "independent over no axis": (
        lambda d, m, s: d.Independent(d.Laplace(m, s), reinterpreted_batch_ndims=0),
        [LOC, SCALE],
        cj.Laplace,
        REAL,
    ),
    "mixture": (
        lambda d, w, m, s: same(d, w, d.Normal(m, s)),
        [WEIGHTS, LOCS, SCALES],
        cj.Mixture,
        REAL,
    ),
    "mixture, one scale": (
        lambda d, w, m: same(d, w, d.Laplace(m, 2.0)),
        [WEIGHTS, LOCS],
        cj.Mixture,
        REAL,
    ),
    "mixture of vectors": (
        lambda d, w, m, s: same(d, w, d.Independent(d.Normal(m, s), reinterpreted_batch_ndims=1)),
        [WEIGHTS, OF_VECTORS, OF_DIAG],
        cj.Mixture,
        REALS,
    ),
}

HEAVY_TAILS = {
    "student t": (lambda d, m, s: d.StudentT(s + 2, m, s), [LOC, SCALE], cj.StudentT, REAL),
    "cauchy": (lambda d, m, s: d.Cauchy(m, s), [LOC, SCALE], cj.StudentT, REAL),
    "log-normal": (lambda d, m, s: d.LogNormal(m, s / 3), [LOC, SCALE], cj.LogNormal, POSITIVE),
}

POISSON = {
    "poisson": (lambda d, r: d.Poisson(r), [RATE], cj.Poisson, COUNT),
    "mixture of poisson": (
        lambda d, w, r: same(d, w, d.Poisson(r)),
        [WEIGHTS, RATES],
        cj.Mixture,
        COUNT,
    ),
}

BOUNDED = {
    "gamma": (lambda d, a, b: d.Gamma(a, b), [SCALE, RATE], cj.Gamma, POSITIVE),
}

LIFETIMES = {
    "exponential": (lambda d, r: d.Exponential(r), [RATE], cj.Gamma, POSITIVE),
    # Their orders of arguments differ.
    "weibull": (
        lambda d, k, s: d.Weibull(concentration=k, scale=s),
        [SCALE, RATE],
        cj.Weibull,
        POSITIVE,
    ),
}

NEGATIVE_BINOMIAL = {
    "binomial probs": (
        lambda d, n, p: d.Binomial(total_count=jnp.ceil(n) + 6, probs=p),
        [RATE, SCALE / 4],
        cj.Binomial,
        COUNT,
    ),
    "binomial logits": (
        lambda d, x: d.Binomial(total_count=9, logits=x),
        [LOGIT],
        cj.Binomial,
        COUNT,
    ),
    "negative binomial probs": (
        lambda d, r, p: d.NegativeBinomial(total_count=r, probs=p),
        [RATE, SCALE / 4],
        cj.NegativeBinomial,
        COUNT,
    ),
    "negative binomial logits": (
        lambda d, r, x: d.NegativeBinomial(total_count=r, logits=x),
        [RATE, LOGIT],
        cj.NegativeBinomial,
        COUNT,
    ),
}

COUNTS = {
    "negative binomial": (
        lambda d, m, r: d.NegativeBinomial2(m, r),
        [RATE, SCALE],
        cj.NegativeBinomial,
        COUNT,
    ),
    "gamma poisson": (
        lambda d, r, s: d.GammaPoisson(r, s),
        [RATE, SCALE],
        cj.NegativeBinomial,
        COUNT,
    ),
    "zero-inflated": (
        lambda d, g, m: d.ZeroInflatedDistribution(d.NegativeBinomial2(m, 2.0), gate=g),
        [SCALE / 4, RATE],
        cj.Mixture,
        COUNT,
    ),
    "zero-inflated, logits": (
        lambda d, x, m: d.ZeroInflatedDistribution(d.Poisson(m), gate_logits=x),
        [LOGIT, RATE],
        cj.Mixture,
        COUNT,
    ),
    "zero-inflated, one gate": (
        lambda d, m: d.ZeroInflatedPoisson(0.3, m),
        [RATE],
        cj.Mixture,
        COUNT,
    ),
}

FULL = cj.MultivariateNormalFullCovariance
MULTIVARIATE = {
    "diagonal": (
        lambda d, m, s: d.MultivariateNormalDiag(m, s),
        [VECTORS, DIAG],
        cj.MultivariateNormalDiag,
        REALS,
    ),
    "diagonal, no loc": (
        lambda d, s: d.MultivariateNormalDiag(scale_diag=s),
        [DIAG],
        cj.MultivariateNormalDiag,
        REALS,
    ),
    "diagonal, one scale": (
        lambda d, m: d.MultivariateNormalDiag(m, DIAG[0]),
        [VECTORS],
        cj.MultivariateNormalDiag,
        REALS,
    ),
    "covariance": (
        lambda d, m, c: d.MultivariateNormalFullCovariance(m, c),
        [VECTORS, COVARIANCE],
        FULL,
        REALS,
    ),
}

CASES = {
    "numpyro": ALL
    | POISSON
    | NEGATIVE_BINOMIAL
    | COUNTS
    | HEAVY_TAILS
    | BOUNDED
    | LIFETIMES
    | {
        "chi-squared": (lambda d, k: d.Chi2(k), [RATE], cj.Gamma, POSITIVE),
        "exp of a normal": (
            lambda d, m, s: d.TransformedDistribution(
                d.Normal(m, s / 3), d.transforms.ExpTransform()
            ),
            [LOC, SCALE],
            cj.LogNormal,
            POSITIVE,
        ),
        "to_event": (
            lambda d, m, s: d.Normal(m, s).to_event(1),
            [VECTORS, DIAG],
            cj.MultivariateNormalDiag,
            REALS,
        ),
        "covariance": (
            lambda d, m, c: d.MultivariateNormal(m, c),
            [VECTORS, COVARIANCE],
            FULL,
            REALS,
        ),
        "tril": (
            lambda d, m, x: d.MultivariateNormal(m, scale_tril=x),
            [VECTORS, TRIL],
            FULL,
            REALS,
        ),
        "one loc, one tril": (
            lambda d, x: d.MultivariateNormal(0.5, scale_tril=x).expand([N]),
            [TRIL[0]],
            FULL,
            REALS,
        ),
        "expand": (lambda d, m: d.Normal(m, 2.0).expand([N]), [LOC[:1]], cj.Normal, REAL),
        "expand a vector": (
            lambda d, m: d.Normal(m, 2.0).to_event(1).expand([N]),
            [VECTORS[0]],
            cj.MultivariateNormalDiag,
            REALS,
        ),
        "expand a mixture": (
            lambda d, w, m: same(d, w, d.Normal(m, 2.0)).expand([N]),
            [WEIGHTS[0], LOCS[0]],
            cj.Mixture,
            REAL,
        ),
        "one mixing": (
            lambda d, w, m, s: same(d, w, d.Normal(m, s)),
            [WEIGHTS[0], LOCS, SCALES],
            cj.Mixture,
            REAL,
        ),
        "general": (
            lambda d, *p: general(d, *p, family=d.Normal),
            [WEIGHTS, LOCS, SCALES],
            cj.Mixture,
            REAL,
        ),
        "general of poisson": (
            lambda d, *p: general(d, *p, family=d.Poisson),
            [WEIGHTS, RATES * np.array([1.0, 5.0, 50.0])],
            cj.Mixture,
            COUNT,
        ),
    },
    "distrax": ALL
    | MULTIVARIATE
    | BOUNDED
    | {
        "tri, lower": (lambda d, m, x: d.MultivariateNormalTri(m, x), [VECTORS, TRIL], FULL, REALS),
        "tri, upper": (
            lambda d, m, x: d.MultivariateNormalTri(m, x, is_lower=False),
            [VECTORS, TRIL.swapaxes(1, 2)],
            FULL,
            REALS,
        ),
    },
    "tensorflow_probability": ALL
    | POISSON
    | NEGATIVE_BINOMIAL
    | HEAVY_TAILS
    | MULTIVARIATE
    | BOUNDED
    | LIFETIMES
    | {
        "gamma, log rate": (
            lambda d, a, x: d.Gamma(a, log_rate=x),
            [SCALE, LOC],
            cj.Gamma,
            POSITIVE,
        ),
        "tril": (lambda d, m, x: d.MultivariateNormalTriL(m, x), [VECTORS, TRIL], FULL, REALS),
        "log rate": (lambda d, x: d.Poisson(log_rate=x), [LOC], cj.Poisson, COUNT),
    },
}
INSTANCES = [(package, name) for package in INSTALLED for name in CASES[package]]


def case(package, name):
    """The function that builds the object, its parameters, our family and targets."""
    d, (make, parameters, family, targets) = load(package), CASES[package][name]

    def built(*parameters):
        with as_the_packages_expect():
            return make(d, *parameters)

    return built, [jnp.asarray(x) for x in parameters], family, jnp.asarray(targets)


def theirs(distribution, method, *args):
    """A method, or in numpyro a property."""
    with as_the_packages_expect():
        value = getattr(distribution, method)
        return value(*args) if callable(value) else value


# Of these the packages do not give any.
WITHOUT_MOMENTS = {"categorical probs", "categorical logits", "cauchy", "exp of a normal"}

# What they are made of is in others.
SLOW = {
    "covariance",
    "one loc, one tril",
    "independent",
    "mixture",
    "mixture of poisson",
    "mixture of vectors",
    "expand a mixture",
    "general of poisson",
    "negative binomial probs",
    "negative binomial logits",
    "gamma poisson",
    "chi-squared",
    "cauchy",
    "exponential",
    "zero-inflated",
    "zero-inflated, one gate",
}


@pytest.mark.parametrize("package, name", slow({x for x in INSTANCES if x[1] in SLOW}, INSTANCES))
def test_the_same_distribution(package, name, float64):
    make, parameters, family, targets = case(package, name)
    predictions = as_predictions(make(*parameters))
    assert isinstance(predictions, family)
    # Shapes, dtypes and constraints are those of any predictions.
    assert check_predictions(predictions)["n"] == N
    assert {leaf.dtype for leaf in jax.tree.leaves(predictions)} == {jnp.dtype("float64")}
    moments = () if name in WITHOUT_MOMENTS else ("mean", "variance")

    def numbers(distribution):
        """The sum of log densities, which has a gradient, and what else is to be the same."""
        log_probs = theirs(distribution, "log_prob", targets)
        each = [jnp.broadcast_to(theirs(distribution, x), targets.shape) for x in moments]
        return jnp.sum(log_probs), [log_probs, *each]

    @jax.jit
    def both(*parameters):
        wrt = tuple(range(len(parameters)))
        return [
            jax.value_and_grad(lambda *x, f=f: numbers(f(make(*x))), wrt, has_aux=True)(*parameters)
            for f in (as_predictions, lambda distribution: distribution)
        ]

    ((_, found), gradient), ((_, expected), expected_gradient) = both(*parameters)
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-12)
    for x, y in zip(gradient, expected_gradient, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-10, atol=1e-12)
    # And made outside of jit.
    log_probs = call(predictions, "log_prob", targets)
    np.testing.assert_allclose(log_probs, expected[0], rtol=1e-12)


@pytest.mark.parametrize("package", INSTALLED)
@pytest.mark.slow
def test_as_arguments_of_jit(package, float64):
    cases = [case(package, name) for name in CASES[package]]
    distributions = [make(*parameters) for make, parameters, _, _ in cases]

    @jax.jit
    def log_probs(distributions):
        return [
            as_predictions(distribution).log_prob(targets)
            for distribution, (_, _, _, targets) in zip(distributions, cases, strict=True)
        ]

    for distribution, (_, _, _, targets), actual in zip(
        distributions, cases, log_probs(distributions), strict=True
    ):
        np.testing.assert_allclose(actual, theirs(distribution, "log_prob", targets), rtol=1e-12)


@pytest.mark.parametrize("package", INSTALLED)
@pytest.mark.parametrize("name", ["categorical logits", "bernoulli logits"])
def test_saturated_logits(package, name):
    make, (logits,), _, _ = case(package, name)

    def total(logits):
        return jnp.sum(jnp.square(as_predictions(make(logits)).probs))

    gradient = jax.grad(total)(1e4 * logits.astype("float32"))
    assert np.isfinite(gradient).all()


@pytest.mark.parametrize("package", INSTALLED)
def test_a_number_as_a_parameter(package):
    make, _, _, _ = case(package, "normal")
    predictions = as_predictions(make(jnp.zeros(N), 2.0))
    assert predictions.loc.dtype == predictions.scale.dtype == jnp.float32
    assert predictions.loc.shape == predictions.scale.shape == (N,)


def test_integers_become_real():
    make, _, _, _ = case("numpyro", "normal")
    predictions = as_predictions(make(np.arange(N), 2))
    assert predictions.loc.dtype == predictions.scale.dtype == jnp.float32


def test_our_own_pass_through():
    predictions = cj.Normal(jnp.zeros(N), jnp.ones(N))
    assert as_predictions(predictions) is predictions


@pytest.mark.parametrize("package", INSTALLED)
@pytest.mark.parametrize(
    "make, batch, event",
    [
        (lambda d: d.Normal(0.0, 1.0), [], []),
        (lambda d: d.Normal(LOCS, 1.0), [N, K], []),
        (lambda d: d.Categorical(logits=LOGITS[0]), [], []),
        (lambda d: d.Independent(d.Normal(LOC, 1.0), reinterpreted_batch_ndims=1), [], [N]),
        (lambda d: same(d, WEIGHTS[0], d.Normal(LOCS[0], SCALES[0])), [], []),
    ],
)
def test_batch_shapes(package, make, batch, event):
    with as_the_packages_expect():
        distribution = make(load(package))
    message = (
        f"obj must have batch shape [n], one .*, got batch shape {batch} and event shape {event}"
    )
    with pytest.raises(ValueError, match=re.sub(r"([\[\]])", r"\\\1", message)):
        as_predictions(distribution)


@pytest.mark.parametrize("package", INSTALLED)
def test_unknown_distributions(package, key):
    d = load(package)
    with as_the_packages_expect():
        distribution = d.Dirichlet(jnp.array(np.abs(LOCS)))
    message = rf"that as_predictions names, or .*, got {package}\.Dirichlet\. Draws"
    with pytest.raises(TypeError, match=message) as caught:
        as_predictions(distribution)
    # The call that the message proposes.
    call = str(caught.value).partition("exact for them: ")[2].removesuffix(".")
    names = {"Empirical": cj.Empirical, "jnp": jnp, "key": key, "distribution": distribution}
    with as_the_packages_expect():
        predictions = eval(call, names)
    assert check_predictions(predictions) == {"n": N, "s": 100, "d": K}


# Distributions without a closed form of ours: what makes one of loc and scale.
WITHOUT_FORM = {
    "gumbel": lambda d, m, s: d.Gumbel(m, s),
    "logistic, one scale": lambda d, m, s: d.Logistic(m, 2.0),
    "one scale, no quantile": lambda d, m, s: d.InverseGamma(s + 3, 2.0),
}


@pytest.mark.parametrize("name", WITHOUT_FORM)
def test_functions_of_another_package(name, float64):
    def log_prob(convert, m, s):
        with as_the_packages_expect():
            distribution = WITHOUT_FORM[name](load("numpyro"), m, s)
        return theirs(convert(distribution), "log_prob", POSITIVE)

    predictions = as_predictions(WITHOUT_FORM[name](load("numpyro"), LOC, SCALE))
    distribution = WITHOUT_FORM[name](load("numpyro"), LOC, SCALE)
    assert check_predictions(predictions)["n"] == N
    np.testing.assert_allclose(predictions.mean(), jnp.broadcast_to(distribution.mean, N))
    expected = theirs(distribution, "cdf", POSITIVE)
    np.testing.assert_allclose(predictions.cdf(jnp.asarray(POSITIVE)), expected)
    np.testing.assert_allclose(predictions[1:3].cdf(jnp.asarray(POSITIVE[1:3])), expected[1:3])
    np.testing.assert_allclose(predictions.quantile(expected), POSITIVE, rtol=1e-8)
    gradients = [
        jax.grad(lambda *x, f=f: jnp.sum(log_prob(f, *x)), (0, 1))(jnp.array(LOC), jnp.array(SCALE))
        for f in (as_predictions, lambda distribution: distribution)
    ]
    np.testing.assert_allclose(*gradients, atol=1e-12)


@pytest.mark.parametrize("package", INSTALLED)
def test_point_forecasts(package):
    name = "Delta" if package == "numpyro" else "Deterministic"
    with as_the_packages_expect():
        distribution = getattr(load(package), name)(LOC)
    message = f"obj must be a predictive distribution, got {package}.{name}, a point forecast"
    with pytest.raises(TypeError, match=message):
        as_predictions(distribution)


def subclass(cls):
    class Normal(cls):
        """Might redefine anything."""

    return Normal


@pytest.mark.parametrize("package", INSTALLED)
@pytest.mark.parametrize(
    "make, message",
    [
        (
            lambda d: d.Independent(d.Laplace(VECTORS, DIAG), reinterpreted_batch_ndims=1),
            "got Independent over 1 axes of .*Laplace",
        ),
        (
            lambda d: d.Independent(d.Normal(OF_VECTORS, OF_DIAG), reinterpreted_batch_ndims=2),
            "got Independent over 2 axes of .*Normal",
        ),
        (
            lambda d: same(d, WEIGHTS, d.Independent(d.Laplace(OF_VECTORS, OF_DIAG), 1)),
            "got Independent over 1 axes of .*Laplace",
        ),
        (lambda d: subclass(d.Normal)(LOC, SCALE), r"got test_foreign\..*Normal\. Draws"),
    ],
)
def test_unsupported_combinations(package, make, message):
    with as_the_packages_expect():
        distribution = make(load(package))
    with pytest.raises(TypeError, match=message):
        as_predictions(distribution)


def test_unsupported_mixtures():
    d = load("numpyro")
    with as_the_packages_expect():
        inner = same(d, jnp.zeros((N, 2, K)), d.Normal(jnp.zeros((N, 2, K)), 1.0))
        mixing = d.Categorical(logits=jnp.zeros((N, 2)))
        mixtures = [
            d.MixtureSameFamily(mixing, inner),
            d.MixtureGeneral(mixing, 2 * [same(d, WEIGHTS, d.Normal(LOCS, 1.0))]),
            d.MixtureGeneral(mixing, [d.Normal(LOC, SCALE), d.Laplace(LOC, SCALE)]),
        ]
    for mixture in mixtures:
        with pytest.raises(TypeError, match="got .*Mixture.* of mixtures or of several families"):
            as_predictions(mixture)


@pytest.mark.parametrize(
    "obj, actual", [(jnp.zeros(N), "an array"), ([0.5], "list"), (None, "NoneType"), ("tv", "str")]
)
def test_no_distribution(obj, actual):
    with pytest.raises(TypeError, match=f"obj must be a distribution of .*, got {actual}"):
        as_predictions(obj)


def test_nothing_is_imported():
    code = """
import sys
import calibjax
assert not {"numpyro", "distrax", "tensorflow_probability"} & set(sys.modules)
import jax.numpy as jnp
import numpyro.distributions as dist
from calibjax import as_predictions
mixture = dist.MixtureSameFamily(
    dist.Categorical(logits=jnp.zeros((3, 2))), dist.Normal(jnp.zeros((3, 2)), 1.0)
)
before = set(sys.modules)
as_predictions(mixture)
packages = {name.partition(".")[0] for name in set(sys.modules) - before}
assert not {"numpyro", "distrax", "tensorflow_probability"} & packages
"""
    subprocess.run([sys.executable, "-c", code], check=True)
