"""CRPS, PIT and log score, against SciPy, scoringrules and sums over all counts."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scoringrules
from instances import FAMILIES, cast
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from marks import fast_in_float32, fast_in_float64, slow
from scipy import integrate, special, stats

import calibjax as cj
from calibjax.scores._scores import crps_of_numbers

by_quadrature = jax.jit(crps_of_numbers)
RTOL = {"float32": 2e-6, "float64": 1e-12}


def on_host(tree):
    return jax.tree.map(lambda x: np.asarray(x, float if x.dtype.kind == "f" else int), tree)


def of_samples(p, y, estimator="nrg"):
    return scoringrules.crps_ensemble(y, p.samples, estimator=estimator, backend="numpy")


def of_members(p, y, estimator="nrg"):
    """Of each row alone with the members that exist."""
    rows = (p.samples[i, kept] for i, kept in enumerate(p.where.astype(bool)))
    of_rows = [of_samples(cj.Empirical(x[None]), y[[i]], estimator) for i, x in enumerate(rows)]
    return np.concatenate(of_rows)


def of_masses(masses, y):
    """sum_k (F(k) - 1{y <= k})^2 for probabilities ``[n, m]`` of 0 … m - 1."""
    reached = y[:, None] <= np.arange(masses.shape[1])
    return np.sum((np.cumsum(masses, 1) - reached)[:, :-1] ** 2, 1)


CRPS = {
    "normal": lambda p, y: scoringrules.crps_normal(y, p.loc, p.scale),
    "laplace": lambda p, y: scoringrules.crps_laplace(y, p.loc, p.scale),
    "mixture": lambda p, y: scoringrules.crps_mixnorm(
        y, p.components.loc, p.components.scale, p.weights
    ),
    "poisson": lambda p, y: of_masses(stats.poisson(p.rate[:, None]).pmf(np.arange(99)), y),
    "bernoulli": lambda p, y: (p.probs - y) ** 2,
    "categorical": lambda p, y: of_masses(p.probs, y),
    "ensemble": lambda p, y: of_masses(p.components.probs.mean(1), y),
    "empirical": of_samples,
    "empirical_missing": of_members,
    "empirical_draws": lambda p, y: of_samples(p, y, "fair"),
}


@pytest.mark.parametrize("family", CRPS)
@fast_in_float32
def test_crps_formulas(family, dtype):
    p, y = cast(FAMILIES[family](9, 0), dtype)
    found = cj.crps(p, y)
    assert found.dtype == dtype
    # Poisson's has the error of jax's incomplete gamma function.
    rtol = RTOL[dtype] * (5 if family == "poisson" else 1)
    np.testing.assert_allclose(found, CRPS[family](*on_host((p, y))), rtol=rtol)


# Quadrature from the cdf.


class Weibull(cj.Univariate):
    """A user's family: F(y) = 1 - exp(-(y / scale)^shape) for y >= 0."""

    shape: jax.Array
    scale: jax.Array

    def quantile(self, level):
        return self.scale * (-jnp.log1p(-level)) ** (1 / self.shape)

    def log_prob(self, targets):
        z = targets / self.scale
        return jnp.log(self.shape / targets) + self.shape * jnp.log(z) - z**self.shape

    def cdf(self, targets):
        z = jnp.maximum(targets, 0) / self.scale
        return -jnp.expm1(-(jnp.where(z > 0, z, 0.0) ** self.shape))


LEVELS = np.array([1e-3, 0.5, 0.99])


def _rows(value):
    return np.full(len(LEVELS), value)


# Each with the law of SciPy.
SMOOTH = {
    "normal": (lambda: cj.Normal(_rows(0.3), _rows(1.7)), stats.norm(0.3, 1.7)),
    "laplace": (lambda: cj.Laplace(_rows(0.3), _rows(1.7)), stats.laplace(0.3, 1.7)),
    "log-normal": (lambda: cj.LogNormal(_rows(0.0), _rows(1.0)), stats.lognorm(1.0)),
    "narrow": (lambda: cj.LogNormal(_rows(0.0), _rows(0.1)), stats.lognorm(0.1)),
    "cauchy": (lambda: cj.StudentT(*map(_rows, (1.0, 0.0, 1.0))), stats.t(1.0)),
    "heavy": (lambda: cj.StudentT(*map(_rows, (1.5, 0.0, 1.0))), stats.t(1.5)),
    "infinite density": (lambda: Weibull(_rows(0.5), _rows(1.0)), stats.weibull_min(0.5)),
    "exponential": (lambda: Weibull(_rows(1.0), _rows(3.0)), stats.expon(scale=3.0)),
    "light": (lambda: Weibull(_rows(3.0), _rows(1.0)), stats.weibull_min(3.0)),
}


def integral(cdf, sf, cuts, y):
    """The definition, in pieces between `cuts`, at which the integrand changes."""

    def over(function, keep):
        ends = sorted({x for x in [*cuts, y] if keep(x)})
        pieces = zip(ends[:-1], ends[1:], strict=True)
        options = {"epsabs": 0, "epsrel": 1e-11, "limit": 200}
        return sum(integrate.quad(function, *piece, **options)[0] for piece in pieces)

    below = over(lambda x: cdf(x) ** 2, lambda x: x <= y)
    return below + over(lambda x: sf(x) ** 2, lambda x: x >= y)


@functools.cache
def targets_and_scores(name):
    """Numbers that are exact in float32."""
    law = SMOOTH[name][1]
    # What lies beyond the last cuts is less than 1e-13.
    tails = np.logspace(-13, -1, 13)
    cuts = np.unique(np.round([*law.ppf([*tails, 0.3, 0.5, 0.7]), *law.isf(tails)], 6))
    y = law.ppf(LEVELS).astype("float32").astype(float)
    return y, np.array([integral(law.cdf, law.sf, cuts, z) for z in y])


@pytest.mark.parametrize("name", slow({"heavy", "narrow", "light"}, SMOOTH))
@fast_in_float64
def test_crps_by_quadrature(name, dtype):
    y, expected = targets_and_scores(name)
    p, y = cast((SMOOTH[name][0](), y), dtype)
    rtol = {"float32": 2e-6, "float64": 1e-9}[dtype]
    np.testing.assert_allclose(by_quadrature(p, y), expected, rtol=rtol)
    np.testing.assert_allclose(cj.crps(p, y), expected, rtol=rtol)


@pytest.mark.parametrize("family", [cj.Laplace, cj.LogNormal])
def test_mixtures(family, float64):
    # Equal scales, and scales that differ by a factor of 20.
    loc, scale = np.array([[0.0, 0.3, -1.0]]), np.array([[0.1, 2.0, 0.1 + 1e-9]])
    weights = np.array([[0.2, 0.5, 0.3]])
    law = {
        cj.Laplace: stats.laplace(loc, scale),
        cj.LogNormal: stats.lognorm(scale, scale=np.exp(loc)),
    }[family]
    cuts = {cj.Laplace: [-70, -5, -1, 0, 0.3, 5, 70], cj.LogNormal: [0, *np.logspace(-3, 9, 13)]}

    def average(values):
        return np.sum(weights * values)

    expected = integral(
        lambda x: average(law.cdf(x)), lambda x: average(law.sf(x)), cuts[family], 1.3
    )
    p = cast(cj.Mixture(weights, family(loc, scale)))
    np.testing.assert_allclose(cj.crps(p, jnp.array([1.3])), [expected], rtol=1e-9)


class Pareto(cj.Univariate):
    """F(y) = 1 - y^(-index) for y >= 1; the score is infinite for an index of at most 1/2."""

    index: jax.Array

    def cdf(self, targets):
        return -jnp.expm1(-self.index * jnp.log(jnp.maximum(targets, 1.0)))

    def quantile(self, level):
        return jnp.exp(-jnp.log1p(-level) / self.index)


@fast_in_float32
def test_tails_that_are_too_heavy_are_nan(dtype):
    p = cast(Pareto(np.array([0.3, 0.5, 1.0])), dtype)
    found = cj.crps(p, jnp.full(3, 2.0, dtype))
    assert np.isnan(found).tolist() == [True, True, False]
    # The integral of (1 - 1/x)^2 over [1, 2] and of 1/x^2 beyond.
    np.testing.assert_allclose(found[2], 2 - 2 * np.log(2), rtol=RTOL[dtype])


SCALES = np.logspace(-5, 5, 11)
SCALED = {
    "normal": cj.Normal,
    "laplace": cj.Laplace,
    "student t": lambda loc, scale: cj.StudentT(jnp.full_like(loc, 2.5), loc, scale),
    "mixture": lambda loc, scale: cj.Mixture.ensemble(
        cj.Normal(jnp.stack([loc, 3 * loc], 1), jnp.stack([scale, 2 * scale], 1))
    ),
    "samples": lambda loc, scale: cj.Empirical(jnp.stack([loc, loc + scale, -scale], 1)),
}


@pytest.mark.parametrize("family", SCALED)
@fast_in_float32
def test_scales(family, dtype):
    one = jnp.ones(11, dtype)
    scale = jnp.asarray(SCALES, dtype)
    for distance in (0.0, 1.0, 1e5):
        unit = cj.crps(SCALED[family](one, one), (1 + distance) * one)
        found = cj.crps(SCALED[family](scale, scale), (1 + distance) * scale)
        np.testing.assert_allclose(found, scale * unit, rtol=RTOL[dtype])
    # For a narrow prediction it is |y - loc|.
    far = cj.crps(SCALED[family](0 * one, 1e-9 * one), 1e5 * one)
    np.testing.assert_allclose(far, 1e5, rtol=RTOL[dtype])


def test_counts(float64):
    rate = np.array([0.0, 1e-3, 0.3, 30.0, 1000.0, 1000.0])
    y = np.array([0, 0, 4, 20, 1000, 1200])
    p = cast(cj.Poisson(rate))
    expected = of_masses(stats.poisson(rate[:, None]).pmf(np.arange(2500)), y)
    np.testing.assert_allclose(cj.crps(p, jnp.array(y)), expected, rtol=1e-9, atol=1e-16)
    weights = np.full((2, 2), 0.5)
    rates = np.array([[1.0, 4.0], [3.0, 3.0]])
    mixture = cast(cj.Mixture(weights, cj.Poisson(rates, max_count=64)))
    masses = stats.poisson(rates[..., None]).pmf(np.arange(200)).mean(1)
    for y in ([0, 3], [7, 100]):
        found = cj.crps(mixture, jnp.array(y))
        np.testing.assert_allclose(found, of_masses(masses, np.array(y)), rtol=1e-12)


def test_max_count_of_mixtures():
    components = cj.Poisson(jnp.array([[1.0, 30.0]]), max_count=32)
    y = jnp.array([3])
    assert jnp.isnan(cj.crps(cj.Mixture.ensemble(components), y))
    unknown = cj.Mixture.ensemble(cj.Poisson(jnp.full((1, 2), 1e6)))
    with pytest.raises(
        ValueError, match="max_count must be given for the CRPS of Mixture predictions"
    ):
        cj.crps(unknown, y)


def test_weighted_samples(float64):
    rng = np.random.default_rng(0)
    samples, weights = rng.normal(size=(6, 7)).round(1), rng.dirichlet(np.ones(7), 6)
    y = np.array([*rng.normal(size=4), samples[4, 2], 100.0])
    distances = np.abs(samples[:, :, None] - samples[:, None, :])
    expected = np.sum(weights * np.abs(samples - y[:, None]), 1)
    expected -= np.einsum("ij,ik,ijk->i", weights, weights, distances) / 2
    p, y = cast((cj.Empirical(samples, weights), y))
    np.testing.assert_allclose(cj.crps(p, y), expected, rtol=1e-12)


# Gradients.

DIFFERENTIABLE = {
    "normal": lambda: FAMILIES["normal"](3, 0),
    "laplace": lambda: FAMILIES["laplace"](3, 0),
    "mixture": lambda: FAMILIES["mixture"](3, 0),
    "empirical": lambda: FAMILIES["empirical"](3, 0),
    "empirical_draws": lambda: FAMILIES["empirical_draws"](3, 0),
    "log-normal": lambda: (
        cj.LogNormal(np.zeros(3), np.array([0.1, 0.29, 1.0])),
        np.array([1.1, 0.9, 2.0]),
    ),
    "poisson": lambda: (cj.Poisson(np.array([0.2, 3.0, 50.0]), max_count=9), np.array([0, 5, 41])),
    "weibull": lambda: (Weibull(np.array([0.6, 1.0, 2.0]), np.ones(3)), np.array([0.1, 2.0, 0.7])),
    "laplace mixture": lambda: (
        cj.Mixture.ensemble(cj.Laplace(np.array([[0.0, 1.0]] * 3), np.array([[1.0, 2.0]] * 3))),
        np.array([0.4, -3.0, 1.0]),
    ),
}


def slopes(function, tree, step=1e-5):
    """Central differences of rows of a function, in each column of each floating leaf."""
    leaves, structure = jax.tree.flatten(tree)
    for i, x in enumerate(leaves):
        for column in np.ndindex(*x.shape[1:]) if x.dtype.kind == "f" else ():
            shift = np.zeros(x.shape)
            shift[(slice(None), *column)] = step
            up, down = (
                function(*jax.tree.unflatten(structure, [*leaves[:i], x + s, *leaves[i + 1 :]]))
                for s in (shift, -shift)
            )
            yield (i, *column), (up - down) / (2 * step)


@pytest.mark.parametrize("family", slow({"empirical_draws", "laplace", "weibull"}, DIFFERENTIABLE))
def test_gradients(family, float64):
    p, y = cast(DIFFERENTIABLE[family]())
    # The weights of a mixture stay on the simplex inside: crps divides by their sum.
    argnums = (0, 1) if p.target_kind == "real" else 0
    gradient = jax.jit(jax.grad(lambda p, y: jnp.sum(cj.crps(p, y)), argnums))(p, y)
    leaves = jax.tree.leaves(gradient)
    unchecked = jax.jit(lambda p, y: cj.crps(p, y))
    for (i, *column), slope in slopes(unchecked, (p, y)):
        found = leaves[i][(slice(None), *column)]
        np.testing.assert_allclose(found, slope, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("score", [cj.crps, by_quadrature], ids=["formula", "quadrature"])
@pytest.mark.parametrize("family", slow({"Normal"}, ["Normal", "Laplace"]))
def test_derivatives_at_the_location(score, family, float64):
    p = getattr(cj, family)(jnp.zeros(1), jnp.full(1, 2.0))

    def total(y):
        return score(p, y)[0]

    # F^2 - (1 - F)^2 = 2 F - 1, and its derivative 2 f.
    np.testing.assert_allclose(jax.grad(total)(jnp.zeros(1)), 0.0, atol=1e-12)
    curvature = jax.jit(jax.hessian(total))
    for y in (0.0, 0.7):
        y = jnp.full(1, y)
        expected = 2 * jnp.exp(p.log_prob(y))
        np.testing.assert_allclose(curvature(y)[0], expected, rtol=1e-8)


def test_derivatives_of_counts_that_are_certain(float64):
    # At mean 0, where log P(Y = 1) is -infinity; only the right derivative can be measured.
    y = jnp.array([0, 2])

    @jax.jit
    def scores(mean):
        poisson = cj.Poisson(jnp.stack([mean, jnp.ones(2)], axis=1), max_count=32)
        binomial = cj.NegativeBinomial(mean, jnp.full(2, 3.0), max_count=32)
        return cj.crps(cj.Mixture.ensemble(poisson), y), cj.crps(binomial, y)

    zero, step = jnp.zeros(2), 1e-7
    _, slopes = jax.jvp(scores, (zero,), (jnp.ones(2),))
    for slope, low, high in zip(slopes, scores(zero), scores(zero + step), strict=True):
        np.testing.assert_allclose(slope, (high - low) / step, atol=1e-6)


def test_derivatives_of_narrow_predictions(dtype):
    # Far from the target they are -E|Y - Y'| / 2 for the standard variables.
    loc, scale = jnp.zeros(1, dtype), jnp.full(1, 1e-8, dtype)
    for family, expected in (
        (cj.Normal, -1 / np.sqrt(np.pi)),
        (cj.Laplace, -0.75),
        (cj.LogNormal, -1 / np.sqrt(np.pi)),
    ):
        score = jax.jit(lambda scale, family=family: cj.crps(family(loc, scale), 2 + loc)[0])
        np.testing.assert_allclose(jax.grad(score)(scale), [expected], rtol=1e-5)


# The probability integral transform.


@pytest.mark.parametrize(
    "n_samples, fair", slow({(10, True)}, [(1, False), (3, False), (10, True)])
)
def test_pit_of_draws(n_samples, fair, key):
    # Rounded draws have ties.
    law = cj.Normal(jnp.linspace(-1, 1, 3000), jnp.ones(3000))
    draws = jnp.round(law.sample(jax.random.key(2), (n_samples,)).T)
    targets = jnp.round(law.sample(jax.random.key(1)))
    p = cj.Empirical(draws, fair=fair)
    u = np.array(cj.pit(key, p, targets))
    assert stats.kstest(u, "uniform").pvalue > 0.01
    wrong = np.array(cj.pit(key, p, targets + 0.3))
    assert stats.kstest(wrong, "uniform").pvalue < 1e-6


def test_pit_of_numbers_is_the_cdf(key):
    p, y = cast(FAMILIES["laplace"](5, 0), "float32")
    np.testing.assert_array_equal(cj.pit(key, p, y), jax.jit(lambda p, y: p.cdf(y))(p, y))


def test_pit_of_counts_lies_in_the_jump(key, float64):
    p, y = cast(FAMILIES["poisson"](50, 0))
    u, law = np.array(cj.pit(key, p, y)), stats.poisson(np.array(p.rate))
    assert np.all((law.cdf(np.array(y) - 1) < u) & (u < law.cdf(np.array(y))))


# The log score.


def test_log_score(float64):
    p, y = cast(FAMILIES["diag"](6, 0))
    expected = -stats.norm(p.loc, p.scale_diag).logpdf(y).sum(1)
    np.testing.assert_allclose(cj.log_score(p, y), expected, rtol=1e-12)
    p, y = cast(FAMILIES["poisson"](6, 0))
    expected = -(special.xlogy(y, p.rate) - p.rate - special.gammaln(y + 1))
    np.testing.assert_allclose(cj.log_score(p, y), expected, rtol=1e-12)
    impossible = cj.log_score(cj.Categorical(jnp.eye(2)), jnp.array([0, 0]))
    assert impossible.tolist() == [0, jnp.inf]


# Arguments.

SCORES = {
    "crps": cj.crps,
    "log_score": cj.log_score,
    "pit": lambda p, y: cj.pit(jax.random.key(0), p, y),
}


@pytest.mark.parametrize("name", SCORES)
def test_arguments(name):
    score = SCORES[name]
    p = cj.Normal(jnp.zeros(3), jnp.array([1.0, 2.0, 3.0]))
    y = jnp.array([0.1, -0.2, 0.3])
    np.testing.assert_array_equal(score(p[:1], y[:1])[0], score(p, y)[0])
    with pytest.raises(ValueError, match="targets must be finite; row 1 is nan"):
        score(p, jnp.array([0.1, jnp.nan, 0.3]))
    with pytest.raises(ValueError, match="scale must be positive and finite; row 2 is -1.0"):
        score(cj.Normal(jnp.zeros(3), jnp.array([1.0, 1.0, -1.0])), y)
    with pytest.raises(ValueError, match=r"targets must have shape \[n\] with n = 3"):
        score(p, y[:2])
    with pytest.raises(ValueError, match="predictions must hold at least 1 row, got 0"):
        score(p[:0], y[:0])
    with pytest.raises(TypeError, match="predictions must be a distribution of calibjax"):
        score(y, y)
    # Where values cannot be looked at, bad rows are NaN, and no others.
    values = jax.jit(score)(p, jnp.array([0.1, jnp.inf, 0.3]))
    assert np.isnan(values).tolist() == [False, True, False]
    batches = jax.vmap(score)(jax.tree.map(lambda x: jnp.stack([x, x]), p), jnp.stack([y, y]))
    np.testing.assert_allclose(batches[1], score(p, y), rtol=1e-6)


@pytest.mark.parametrize("name", ["crps", "pit"])
@pytest.mark.parametrize("family", ["diag", "empirical_vectors"])
def test_vectors_are_refused(name, family):
    p, y = cast(FAMILIES[family](4, 0), "float32")
    with pytest.raises(TypeError, match="predictions must be of labels, counts or real numbers"):
        SCORES[name](p, y)


def test_families_without_a_density_or_a_key():
    p, y = cast(FAMILIES["empirical"](4, 0), "float32")
    with pytest.raises(TypeError, match="Empirical predictions have no log_prob"):
        cj.log_score(p, y)
    with pytest.raises(TypeError, match="key must be a typed key"):
        cj.pit(0, p, y)


# Several devices.


@pytest.mark.parametrize(
    "family", slow({"normal", "student_t"}, ["normal", "student_t", "mixture"])
)
@pytest.mark.parametrize("axis_type", slow({"Auto"}, ["Auto", "Explicit"]))
def test_rows_on_several_devices(family, axis_type, key, float64):
    mesh = jax.make_mesh((4,), ("rows",), axis_types=(AxisType[axis_type],))
    rows = cast(FAMILIES[family](8, 0))
    on_devices = jax.device_put(rows, NamedSharding(mesh, PartitionSpec("rows")))

    @jax.jit
    def scores(p, y):
        return cj.crps(p, y), cj.pit(key, p, y), cj.log_score(p, y)

    for found, expected in zip(scores(*on_devices), scores(*rows), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12)


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
