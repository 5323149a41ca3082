"""Values and gradients far in both tails, in float32, against SciPy and its differences in float64.

One row far in a tail must not make the gradient of a whole batch NaN.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from marks import slow
from scipy import stats

import calibjax as cj

STEP = 1e-5
K = np.arange(1, 17)
WEIGHTS = np.cos(K)
LEAST_TAIL = 2.0**-100
COSINES, SCORES = (
    cj.PITKernel(lambda p, q: 1.0, features=features).unit_feature()
    for features in ("cosines", "normal scores")
)


def poisson(rate):
    return cj.Poisson(rate, max_count=512)


def laplace(loc, scale):
    # The log density of stats.laplace underflows.
    return stats.gennorm(1.0, loc, scale)


def _rows(parameters, targets):
    """Columns of parameters and targets, all pairs of them."""
    rows = [(*p, y) for p in parameters for y in targets(*p)]
    return tuple(np.array(column, np.float32) for column in zip(*rows, strict=True))


def _counts(*counts):
    return lambda *parameters: counts


def _deviations(*deviations):
    return lambda *parameters: [parameters[-1] * d for d in deviations]


FAR = -1e4, -40, -13, -5, -1, 0.5, 5, 13, 40, 1e4
UNITS = [(0, 1e-25), (0, 1e-3), (0, 1), (0, 1e25)]
# The family, SciPy's law, parameters and targets.
TAILS = {
    "poisson": (
        poisson,
        stats.poisson,
        _rows([(r,) for r in (1e-3, 0.5, 0.7, 1, 20, 100)], _counts(0, 1, 5, 8, 20, 23, 30, 400)),
    ),
    "negative_binomial": (
        lambda m, r: cj.NegativeBinomial(m, r, max_count=512),
        lambda m, r: stats.nbinom(r, r / (r + m)),
        _rows([(m, r) for m in (1e-3, 0.5, 5) for r in (1, 20)], _counts(0, 1, 8, 30, 100, 400)),
    ),
    "binomial": (
        lambda probs, total: cj.Binomial(total, probs, max_count=512),
        lambda probs, total: stats.binom(total, probs),
        _rows([(p, 60) for p in (1e-3, 0.3, 0.5, 0.999)], _counts(0, 1, 6, 30, 59, 60)),
    ),
    "bernoulli": (cj.Bernoulli, stats.bernoulli, _rows([(1e-30,), (1e-8,), (0.3,)], _counts(0, 1))),
    "gamma": (
        cj.Gamma,
        lambda a, rate: stats.gamma(a, scale=1 / rate),
        _rows(
            [(a, r) for a in (0.3, 5, 100) for r in (1e-20, 1, 1e20)],
            lambda a, r: [a / r * t for t in (1e-10, 1e-3, 0.1, 2, 10, 100)],
        ),
    ),
    "weibull": (
        cj.Weibull,
        lambda k, scale: stats.weibull_min(k, scale=scale),
        _rows([(k, s) for k in (0.5, 4) for s in (1e-20, 1, 1e20)], _deviations(1e-5, 0.1, 2, 6)),
    ),
    "normal": (cj.Normal, stats.norm, _rows(UNITS, _deviations(*FAR))),
    "laplace": (cj.Laplace, laplace, _rows(UNITS, _deviations(*FAR, -75, 75))),
    "student_t": (
        lambda loc, df, scale: cj.StudentT(df, loc, scale),
        lambda loc, df, scale: stats.t(df, loc, scale),
        _rows([(0, d, s) for d in (1, 5) for s in (1e-25, 1, 1e25)], _deviations(*FAR)),
    ),
    "log_normal": (
        cj.LogNormal,
        lambda loc, scale: stats.lognorm(scale, scale=np.exp(loc)),
        _rows(
            [(0, s) for s in (0.1, 1)],
            lambda loc, s: np.exp(np.clip(s * np.array([-40, -13, -3, 0.5, 13, 40]), -30, 30)),
        ),
    ),
}


def interval(law, y, is_count):
    """F and 1 - F at both ends of what is known of U."""
    before = y - 1 if is_count else y
    return law.cdf(before), law.cdf(y), law.sf(before), law.sf(y)


def expected_cosines(law, y, is_count):
    low, high, above_low, above_high = interval(law, y, is_count)
    width = np.where(low > 0.5, above_low - above_high, high - low)
    phi = np.cos(np.pi * K * ((low + high) / 2)[:, None]) * np.sinc(K * width[:, None] / 2)
    return np.sqrt(2) * phi / (np.pi * K) @ WEIGHTS


def expected_scores(law, y, is_count):
    low, high, above_low, above_high = interval(law, y, is_count)
    low_z, high_z = (
        np.where(u < 0.5, stats.norm.ppf(u), -stats.norm.ppf(above))
        for u, above in ((low, above_low), (high, above_high))
    )
    of_tail, bound = np.minimum(high, above_low), -stats.norm.ppf(LEAST_TAIL)
    limit = np.where(high < 0.5, -bound, bound)
    if is_count:
        width = np.where(low > 0.5, above_low - above_high, high - low)
        width = np.where(width > 0, width, 1.0)
        low_z, high_z = (np.clip(z, -38, 38) for z in (low_z, high_z))
        f, g = stats.norm.pdf(low_z), stats.norm.pdf(high_z)
        first, second = (f - g) / width, (f * low_z - g * high_z) / width
    else:
        first, second = low_z, np.clip(low_z, -1e3, 1e3) ** 2 - 1
    first, second = (
        np.where(of_tail > LEAST_TAIL, x, x_limit)
        for x, x_limit in ((first, limit), (second, bound**2 - 1))
    )
    return np.stack([first, second / np.sqrt(2)], 1) @ WEIGHTS[:2]


def expected_log(law, y, is_count):
    return law.logpmf(y) if is_count else law.logpdf(y)


def pit(feature):
    def of_rows(p, y):
        features = feature.of_rows(p, y)
        return features @ jnp.asarray(WEIGHTS[: features.shape[1]], features.dtype)

    return of_rows


FUNCTIONS = {
    "log": (lambda p, y: p.log_prob(y), expected_log),
    "cosines": (pit(COSINES), expected_cosines),
    "scores": (pit(SCORES), expected_scores),
}


def derivatives(function, columns, units):
    """Central differences of each row's number, by a relative change of each column."""
    for j, unit in enumerate(units):
        ends = [
            function(*(x + (i == j) * sign * STEP * unit for i, x in enumerate(columns)))
            for sign in (1, -1)
        ]
        yield (ends[0] - ends[1]) / (2 * STEP)


SLOW = {(f, g) for f in ("negative_binomial", "gamma", "student_t") for g in FUNCTIONS}
TABLE = [(family, function) for family in TAILS for function in FUNCTIONS]


@pytest.mark.parametrize(("family", "function"), slow(SLOW, TABLE))
def test_values_and_gradients_far_in_tails(family, function):
    make, law, columns = TAILS[family]
    found_of, expected_of = FUNCTIONS[function]
    is_count = law is stats.poisson or family in ("bernoulli", "binomial", "negative_binomial")
    last = 1 if family == "binomial" else -1 if is_count else len(columns)

    def total(*columns):
        y = columns[-1].astype("int32") if is_count else columns[-1]
        values = found_of(make(*columns[:-1]), y)
        return jnp.sum(values), values

    arguments = tuple(range(len(columns)))[:last]
    gradients, values = jax.jit(jax.grad(total, arguments, has_aux=True))(*columns)
    exact = [x.astype(float) for x in columns]
    # A location of 0 changes by scales.
    units = [np.where(x == 0, exact[-2], x) for x in exact][:last]
    with np.errstate(all="ignore"):

        def reference(*columns):
            return expected_of(law(*columns[:-1]), columns[-1], is_count)

        expected = reference(*exact)
        slopes = list(derivatives(reference, exact, units))
    np.testing.assert_allclose(values, expected, rtol=2e-5, atol=1e-4)
    # At the bound of normal scores a difference may see one side of it.
    at_bound = np.zeros(len(expected), bool)
    if function == "scores":
        with np.errstate(all="ignore"):
            _, high, above, _ = interval(law(*exact[:-1]), exact[-1], is_count)
            at_bound = np.abs(np.log2(np.minimum(high, above)) + 100) < 0.1
    for found, slope, unit in zip(gradients, slopes, units, strict=True):
        assert np.isfinite(found).all()
        # In numbers of relative changes of a parameter.
        found = np.asarray(found, float) * unit
        allowed = 3e-3 * np.abs(slope) + 3e-4 * (1 + np.abs(expected))
        assert np.all((np.abs(found - slope) <= allowed) | at_bound)


@pytest.mark.parametrize("family", slow(TAILS.keys() - {"poisson", "normal", "laplace"}, TAILS))
def test_gradients_of_the_crps_are_finite(family):
    make, _, columns = TAILS[family]
    is_real = family in ("gamma", "weibull", "normal", "laplace", "student_t", "log_normal")

    def total(*parameters):
        y = columns[-1] if is_real else columns[-1].astype("int32")
        scores = cj.scores.crps(cj.Data(make(*parameters), y))
        return jnp.sum(scores), scores

    parameters = columns[:-1]
    arguments = tuple(range(len(parameters)))
    gradients, scores = jax.jit(jax.grad(total, arguments, has_aux=True))(*parameters)
    representable = np.abs(np.asarray(scores, float) / columns[-2]) < 1e38
    for gradient in gradients:
        assert np.isfinite(gradient[representable]).all() and np.isfinite(scores).all()


@pytest.mark.parametrize("temperature", [0.5, 3.0])
@pytest.mark.parametrize("family", ["normal", "laplace"])
def test_gradients_of_tempered_log_densities(family, temperature):
    make, law, (loc, scale, y) = TAILS[family]

    def log_prob(loc, scale, y, temperature):
        return make(loc[None], scale[None]).tempered(temperature).log_prob(y[None])[0]

    rows = jax.jit(jax.vmap(jax.grad(log_prob, (0, 1, 3)), (0, 0, 0, None)))
    found = rows(loc, scale, y, jnp.float32(temperature))
    exact = [x.astype(float) for x in (loc, scale)]
    power = 0.5 if family == "normal" else 1.0

    def reference(loc, scale, t):
        return law(loc, scale * t**power).logpdf(y.astype(float))

    columns = *exact, np.full(len(y), temperature)
    units = exact[1], exact[1], columns[2]
    for gradient, slope, unit in zip(
        found, derivatives(reference, columns, units), units, strict=True
    ):
        np.testing.assert_allclose(np.asarray(gradient, float) * unit, slope, rtol=1e-3, atol=1e-4)
