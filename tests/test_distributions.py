"""Predictive distributions against scipy.stats, and their draws against their moments."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiled import call, draw, moments
from instances import FAMILIES, SCORED, cast, normal_of
from marks import slow
from rules import rule_of_quantiles
from scipy import special, stats

import calibjax as cj
from calibjax._base.struct import struct
from calibjax._data.capabilities import families

# Their own files have the same evidence.
SLOW = {"log_normal", "weibull", "recalibrated"}
every_family = pytest.mark.parametrize("family", slow(SLOW, FAMILIES))


class Vectors:
    """The normal distribution of each row, of vectors with correlated coordinates."""

    def __init__(self, p):
        self.rows = list(map(stats.multivariate_normal, p.loc, p.covariance_matrix))

    def mean(self):
        return np.stack([row.mean for row in self.rows])

    def var(self):
        return np.stack([np.diag(row.cov) for row in self.rows])

    def logpdf(self, y):
        return np.array([row.logpdf(z) for row, z in zip(self.rows, y, strict=True)])


class Shares:
    """A mixture of laws [n, K], by raw moments."""

    def __init__(self, weights, law):
        self.weights, self.law = weights, law

    def mean(self):
        return np.sum(self.weights * self.law.mean(), 1)

    def var(self):
        squares = self.law.var() + self.law.mean() ** 2
        return np.sum(self.weights * squares, 1) - self.mean() ** 2

    def logpdf(self, y):
        return np.log(np.sum(self.weights * self.law.pdf(y[:, None]), 1))


class Classes:
    """Laws over 0 … m-1, one for each row of probabilities."""

    def __init__(self, probs):
        self.rows = [stats.rv_discrete(values=(np.arange(len(p)), p)) for p in probs]

    def mean(self):
        return np.array([row.mean() for row in self.rows])

    def var(self):
        return np.array([row.var() for row in self.rows])

    def logpmf(self, y):
        return np.array([row.logpmf(z) for row, z in zip(self.rows, y, strict=True)])


class EquallyLikely:
    """Samples [n, S], of which some may be missing."""

    def __init__(self, samples, where=True):
        self.samples, self.where = samples, where

    def mean(self):
        return np.mean(self.samples, 1, where=self.where)

    def var(self):
        return np.var(self.samples, 1, where=self.where)


class Points:
    """Weighted samples, [n, S, d]."""

    def __init__(self, samples, weights):
        self.samples, self.weights = samples, weights[..., None]

    def mean(self):
        return np.sum(self.weights * self.samples, 1)

    def var(self):
        return np.sum(self.weights * self.samples**2, 1) - self.mean() ** 2


class Pieces:
    """Quantiles [n, K]: uniform between two of them, with exponential tails."""

    def __init__(self, p):
        self.rules = [rule_of_quantiles(values, np.array(p.levels)) for values in p.values]
        self.values, self.levels = p.values, np.array(p.levels)

    def mean(self):
        return np.array([points @ weights for points, weights in self.rules])

    def var(self):
        squares = np.array([points**2 @ weights for points, weights in self.rules])
        return squares - self.mean() ** 2

    def logpdf(self, y):
        slopes = np.diff(self.values) / np.diff(self.levels)
        piece = np.clip(np.sum(self.values <= y[:, None], 1) - 1, 0, slopes.shape[1] - 1)
        value = -np.log(np.take_along_axis(slopes, piece[:, None], 1)[:, 0])
        below = np.minimum(y - self.values[:, 0], 0) / (slopes[:, 0] * self.levels[0])
        above = np.maximum(y - self.values[:, -1], 0) / (slopes[:, -1] * (1 - self.levels[-1]))
        return value + below - above


class Curves:
    """Survival curves at times [n, K]: uniform between two of them, else at the last one."""

    def __init__(self, p):
        self.times = np.pad(p.times, ((0, 0), (1, 0)))
        self.above = np.pad(p.probs, ((0, 0), (1, 0)), constant_values=1)

    def _raw_moment(self, k):
        """E min(Y, last time)^k, of the antiderivative of the density of each piece."""
        slopes = -np.diff(self.above) / np.diff(self.times)
        pieces = slopes * np.diff(self.times ** (k + 1)) / (k + 1)
        return pieces.sum(1) + self.above[:, -1] * self.times[:, -1] ** k

    def mean(self):
        return self._raw_moment(1)

    def var(self):
        return self._raw_moment(2) - self._raw_moment(1) ** 2

    def logpdf(self, y):
        slopes = -np.diff(self.above) / np.diff(self.times)
        densities = np.concatenate([slopes, self.above[:, -1:]], axis=1)
        cell = np.sum(self.times[:, 1:] < y[:, None], axis=1)
        return np.log(densities[np.arange(len(y)), cell])


# The distribution of each row.
LAWS = {
    "bernoulli": lambda p: stats.bernoulli(p.probs),
    "categorical": lambda p: Classes(p.probs),
    "ordinal": lambda p: Classes(p.probs),
    "normal": lambda p: stats.norm(p.loc, p.scale),
    "diag": lambda p: stats.norm(p.loc, p.scale_diag),
    "full": Vectors,
    "laplace": lambda p: stats.laplace(p.loc, p.scale),
    "poisson": lambda p: stats.poisson(p.rate),
    "negative_binomial": lambda p: stats.nbinom(
        p.concentration, p.concentration / (p.concentration + p.mu)
    ),
    "binomial": lambda p: stats.binom(p.total.astype(int), p.probs),
    "gamma": lambda p: stats.gamma(p.concentration, scale=1 / p.rate),
    "weibull": lambda p: stats.weibull_min(p.concentration, scale=p.scale),
    "recalibrated": normal_of,
    "student_t": lambda p: stats.t(p.df, p.loc, p.scale),
    "log_normal": lambda p: stats.lognorm(p.scale, scale=np.exp(p.loc)),
    "quantiles": Pieces,
    "survival_curve": Curves,
    "mixture": lambda p: Shares(p.weights, stats.norm(p.components.loc, p.components.scale)),
    # A mixture of classes is one of their mean probabilities.
    "ensemble": lambda p: Classes(p.components.probs.mean(1)),
    "empirical": lambda p: EquallyLikely(p.samples),
    "empirical_missing": lambda p: EquallyLikely(p.samples, p.where),
    "empirical_vectors": lambda p: Points(p.samples, p.weights),
    "empirical_draws": lambda p: EquallyLikely(p.samples),
}


def test_every_family_is_here():
    kinds = (kind for family in families() for kind in (family, *family.__subclasses__()))
    # `PITOfQuantiles` stand for quantiles, and others for samples, only inside of a test.
    own = {kind for kind in kinds if getattr(cj, kind.__name__, None) is kind}
    built = [type(build(2, 0)[0]) for build in (FAMILIES | SCORED).values()]
    # A mixture of labels or counts is one of a subclass that is not public.
    assert {next(kind for kind in family.__mro__ if kind in own) for family in built} == own
    assert LAWS.keys() == FAMILIES.keys()


@every_family
def test_moments_and_density(family, float64):
    predictions, targets = FAMILIES[family](9, 0)
    law = LAWS[family](predictions)
    p, y = cast((predictions, targets))
    by_quadrature = type(p).mean is cj.Univariate.mean
    mean, variance = moments(p)
    np.testing.assert_allclose(mean, law.mean(), rtol=1e-10 if by_quadrature else 1e-13)
    np.testing.assert_allclose(variance, law.var(), rtol=1e-10 if by_quadrature else 1e-12)
    if not isinstance(p, cj.Empirical):  # which has no density
        density = law.logpmf if p.target_kind == "integer" else law.logpdf
        expected = density(targets)
        expected = expected.sum(-1) if family == "diag" else expected
        np.testing.assert_allclose(call(p, "log_prob", y), expected, rtol=1e-12)


@every_family
def test_draws(family, key):
    n_draws = 4000
    predictions, targets = FAMILIES[family](5, 0)
    p = cast(predictions, "float32")
    draws, possible = draw(p, n_draws, key)
    assert draws.shape == (n_draws, *targets.shape)
    for shape in (), (2, 3):
        of_shape = jax.eval_shape(lambda key, shape=shape: p.sample(key, shape), key)
        assert of_shape.shape == (*shape, *targets.shape)
    kind = jnp.floating if p.target_kind == "real" else jnp.integer
    assert jnp.issubdtype(draws.dtype, kind)
    assert np.all(possible)
    draws = np.array(draws, float)
    mean, variance = map(np.array, moments(p))
    deviations = draws - mean
    # Five standard errors; that of the variance from the fourth moment.
    standard_error = np.sqrt(variance / n_draws)
    assert np.all(np.abs(deviations.mean(0)) < 5 * standard_error)
    squares = deviations**2
    assert np.all(np.abs(squares.mean(0) - variance) < 5 * squares.std(0) / np.sqrt(n_draws) + 1e-6)
    # Rows are drawn independently of each other; their coordinates need not be.
    correlation = np.corrcoef(draws.reshape(n_draws, -1), rowvar=False)
    d = len(correlation) // 5
    between = np.kron(1 - np.eye(5), np.ones((d, d)))
    assert np.max(np.abs(correlation * between)) < 5 / np.sqrt(n_draws)


def test_frequencies_of_classes(key, float64):
    p = cast(FAMILIES["categorical"](3, 0)[0])
    draws = np.array(draw(p, 4000, key)[0])
    for row, probs in zip(draws.T, np.array(p.probs), strict=True):
        frequencies = np.bincount(row, minlength=4) / 4000
        assert np.all(np.abs(frequencies - probs) < 5 * np.sqrt(probs * (1 - probs) / 4000))


def test_draws_of_certain_predictions(key):
    p = cj.Categorical(jnp.eye(3))
    np.testing.assert_array_equal(p.sample(key, (50,)), np.tile(np.arange(3), (50, 1)))
    p = cj.Bernoulli(jnp.array([0.0, 1.0]))
    np.testing.assert_array_equal(p.sample(key, (50,)), np.tile([0, 1], (50, 1)))


def test_covariance_of_draws(key, float64):
    p = cast(FAMILIES["full"](2, 0)[0])
    draws = np.array(draw(p, 20_000, key)[0])
    for i, covariance in enumerate(np.array(p.covariance_matrix)):
        # The standard error of a covariance is at most sqrt(2) times that of a variance's scale.
        error = np.abs(np.cov(draws[:, i], rowvar=False) - covariance)
        assert np.all(error < 5 * np.sqrt(2 / 20_000) * np.max(covariance))


def test_from_scale_tril(float64):
    factor = np.tril(np.random.default_rng(0).uniform(0.5, 1, (4, 3, 3)))
    above = np.triu(np.ones((3, 3)), 1)
    p = cj.MultivariateNormalFullCovariance.from_scale_tril(jnp.zeros((4, 3)), factor + above)
    np.testing.assert_allclose(p.covariance_matrix, factor @ factor.swapaxes(1, 2), rtol=1e-14)
    np.testing.assert_allclose(p.scale_tril(), factor, rtol=1e-12, atol=1e-15)


# Rows of each are made of leaves of one axis or more, of a tree or two.
FAST_ROWS = {"categorical", "normal", "mixture"}


@pytest.mark.parametrize("family", slow(FAMILIES.keys() - FAST_ROWS, FAMILIES))
def test_rows_of_a_batch(family, float64):
    p = cast(FAMILIES[family](5, 0)[0])
    mask = np.array([True, False, True, False, False])
    for rows in (slice(1, 3), np.array([4, 0, 0]), mask, jnp.array([2])):
        np.testing.assert_array_equal(p[rows].mean(), p.mean()[rows])
    assert [jax.tree.leaves(one)[0].shape for one in p] == [jax.tree.leaves(p)[0].shape[1:]] * 5
    with pytest.raises(IndexError, match="rows must be between -5 and 4, got 5"):
        p[5]


def test_max_count():
    # The smallest power of two that a Poisson variable of the largest rate hardly ever exceeds.
    for rate, count in [(0.0, 32), (3.0, 32), (10.0, 64), (100.0, 256), (1000.0, 2048)]:
        rates = jnp.array([0.1, rate, jnp.nan, -3.0])
        assert cj.Poisson(rates).max_count == count
        assert stats.poisson.sf(count, rate) < 4.3e-18
    assert cj.Poisson(jnp.array([1e6])).max_count is None
    assert cj.Poisson(jnp.ones(2), max_count=7).max_count == 7
    assert jax.jit(lambda rate: jnp.float32(cj.Poisson(rate).max_count is None))(jnp.ones(2))


@pytest.mark.slow
def test_mixtures_of_mixtures_and_samples(key, float64):
    components, _ = FAMILIES["mixture"](6, 0)
    nested = jax.tree.map(lambda x: x.reshape(3, 2, *x.shape[1:]), components)
    p = cast(cj.Mixture.ensemble(nested))
    flat = cast(
        cj.Mixture(
            nested.weights.reshape(3, -1) / 2,
            jax.tree.map(lambda x: x.reshape(3, -1), nested.components),
        )
    )
    y = jnp.array([0.3, -1.0, 2.0])
    np.testing.assert_allclose(p.log_prob(y), flat.log_prob(y), rtol=1e-13)
    np.testing.assert_allclose(p.variance(), flat.variance(), rtol=1e-13)
    assert p.shapes["components.components.loc"] == "n k k'"
    samples = cj.Mixture.ensemble(cj.Empirical(jnp.arange(12.0).reshape(2, 3, 2)))
    np.testing.assert_allclose(samples.mean(), [2.5, 8.5])
    assert samples.sample(key, (4,)).shape == (4, 2)


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


GAUSSIAN = cj.GaussianKernel(1.0)
KEY = jax.random.key(0)


def tensor(distance, target_kernel=GAUSSIAN):
    return cj.TensorProduct(cj.DistanceKernel(distance), target_kernel)


def location(p):
    return p.loc


INTEGERS = {
    "normal": lambda x: cj.Normal(x, x),
    "laplace": lambda x: cj.Laplace(x, x),
    "diag": lambda x: cj.MultivariateNormalDiag(x[:, None], x[:, None]),
    "full": lambda x: cj.MultivariateNormalFullCovariance(x[:, None], x[:, None, None]),
    "mixture": lambda x: cj.Mixture.ensemble(cj.Normal(x[:, None], x[:, None])),
    "poisson": lambda x: cj.Poisson(x),
    "empirical": lambda x: cj.Empirical(x[:, None]),
}

NARROW = list(itertools.product(INTEGERS, ["int32", "bfloat16", "float16"]))
NARROW.remove(("empirical", "int32"))  # an error: counts, or labels?
FAST_NARROW = {("normal", "int32")}


@pytest.mark.parametrize(("name", "dtype"), slow(set(NARROW) - FAST_NARROW, NARROW))
def test_integers_and_16_bits(name, dtype):
    numbers = np.array([1, 2, 3])
    p, q = (INTEGERS[name](jnp.asarray(numbers, kind)) for kind in (dtype, "float32"))
    y = q.sample(KEY)
    np.testing.assert_array_equal(p.sample(KEY), y)
    if name != "empirical":
        assert p.log_prob(y).dtype == jnp.float32
        np.testing.assert_allclose(p.log_prob(y), q.log_prob(y), rtol=1e-6)
    kernel = tensor(cj.MeanEmbeddingDistance(GAUSSIAN))
    found = cj.skce(kernel, p, y)
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found, cj.skce(kernel, q, y), rtol=1e-5, atol=1e-7)


def test_integers_with_a_function_of_the_prediction():
    x = np.array([1, 2, 3], "int32")
    expected = cj.skce(tensor(cj.EmbeddingDistance(location)), cj.Normal(1.0 * x, 1.0 * x), x)
    found = cj.skce(tensor(cj.EmbeddingDistance(location)), cj.Normal(x, x), x)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


N_DRAWS = 40_000
RARE = 0.001

# Predictions, the first of which makes a target of 1 with probability RARE or close to it.
RARE_ONES = {
    "bernoulli": lambda dtype: cj.Bernoulli(jnp.array([RARE], dtype)),
    "categorical": lambda dtype: cj.Categorical(jnp.array([[1 - RARE, RARE]], dtype)),
    "empirical": lambda dtype: cj.Empirical(
        jnp.array([[0.0, 1.0]], dtype), jnp.array([[1 - RARE, RARE]], dtype)
    ),
    "mixture": lambda dtype: cj.Mixture(
        jnp.array([[1 - RARE, RARE]], dtype), cj.Bernoulli(jnp.array([[0.0, 1.0]], dtype))
    ),
}


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("family", RARE_ONES)
def test_16_bit_predictions_are_sampled_in_float32(family, dtype):
    predictions = RARE_ONES[family](dtype)
    draws = np.array(predictions.sample(KEY, (N_DRAWS,)), float)
    # The probability is rounded to 16 bits, by less than one in 2^8.
    assert abs(draws.mean() - RARE) < 5 * np.sqrt(RARE / N_DRAWS) + RARE / 2**8
    wide = jax.tree.map(lambda x: x.astype("float32"), predictions)
    np.testing.assert_array_equal(draws, wide.sample(KEY, (N_DRAWS,)))


@pytest.mark.parametrize("family", slow(FAMILIES.keys() - {"empirical_draws"}, FAMILIES))
def test_draws_do_not_depend_on_whether_float64_is_enabled(family):
    predictions = cast(FAMILIES[family](5, 0)[0], "float32")
    with jax.enable_x64(True):
        enabled = predictions.sample(KEY, (7,))
    np.testing.assert_array_equal(predictions.sample(KEY, (7,)), enabled)


MOMENTS = {
    "normal": (cj.Normal(np.int32([0, 0]), np.int32([1, 100_000])), [0, 0], [1, 1e10]),
    "diag": (
        cj.MultivariateNormalDiag(np.zeros((1, 1), "int32"), np.int32([[100_000]])),
        [[0]],
        [[1e10]],
    ),
    "laplace": (cj.Laplace(np.float16([1.5, 0]), np.float16([1, 300])), [1.5, 0], [2, 1.8e5]),
    "bernoulli": (cj.Bernoulli(jnp.array([0.99609375], "bfloat16")), [255 / 256], [255 / 2**16]),
    "categorical": (
        cj.Categorical(jnp.asarray(np.eye(300)[[257]].astype(jnp.bfloat16))),
        [257],
        [0],
    ),
    "empirical": (cj.Empirical(np.float16([[-300, 300]])), [0], [9e4]),
    "mixture": (
        cj.Mixture.ensemble(cj.Normal(np.float16([[-300, 300]]), np.float16([[1, 1]]))),
        [0],
        [90_001],
    ),
}


@pytest.mark.parametrize("family", MOMENTS)
def test_moments_of_integers_and_16_bits_are_float32(family):
    predictions, mean, variance = MOMENTS[family]
    for found, expected in ((predictions.mean(), mean), (predictions.variance(), variance)):
        assert found.dtype == jnp.float32
        np.testing.assert_allclose(found, expected, rtol=1e-6)


class Renamed(cj.Normal):
    pass


class FromVariance(Renamed):
    def __init__(self, loc, variance):
        super().__init__(loc, jnp.sqrt(variance))


@struct
class Weighed(cj.Normal):
    factor: jax.Array

    def mean(self):
        return self.factor * self.loc


class FromL1(cj.TotalVariation):
    pass


@pytest.mark.slow
def test_subclasses_are_pytrees():
    loc, scale, targets = jnp.arange(4.0), jnp.array([1.0, 2.0, 1.0, 3.0]), jnp.zeros(4)
    normal = cj.Normal(loc, scale)
    kernel = cj.default_kernel(normal)
    expected = cj.skce(kernel, normal, targets)
    for p in (Renamed(loc, scale), FromVariance(loc, scale**2), Weighed(loc, scale, jnp.ones(4))):
        np.testing.assert_allclose(cj.skce(kernel, p, targets), expected, rtol=1e-6)
        assert type(jax.tree.map(jnp.negative, p)) is type(p)
    assert [path[0].name for path, _ in jax.tree_util.tree_leaves_with_path(p)] == [
        "loc",
        "scale",
        "factor",
    ]
    probabilities, labels = cj.Bernoulli(jnp.arange(4) / 4), jnp.array([0, 1, 0, 1])
    found, expected = (
        cj.skce(cj.TensorProduct(cj.DistanceKernel(d), cj.WhiteKernel()), probabilities, labels)
        for d in (FromL1(), cj.TotalVariation())
    )
    assert found == expected


N = 6
RNG = np.random.default_rng(1)
LOC, SCALE = RNG.normal(size=N).astype("float32"), RNG.uniform(0.5, 1.5, N).astype("float32")


@pytest.mark.parametrize("unit", [1e-25, 1e25])
def test_deviations_of_numbers(unit):
    scale = SCALE * np.float32(unit)
    np.testing.assert_array_equal(cj.Normal(LOC, scale).standard_deviation(), scale)
    np.testing.assert_allclose(
        cj.Laplace(LOC, scale).standard_deviation(), np.sqrt(2) * scale, rtol=1e-6
    )


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
