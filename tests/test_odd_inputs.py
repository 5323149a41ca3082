"""Unusual but valid input: integers, 16 bit, NumPy, huge and tiny numbers, two families."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from instances import FAMILIES, cast
from marks import fast_in_float32, slow
from scipy import stats

import calibjax as cj

GAUSSIAN = cj.GaussianKernel(1.0)
KEY = jax.random.key(0)


def tensor(distance, target_kernel=GAUSSIAN):
    return cj.TensorProduct(cj.DistanceKernel(distance), target_kernel)


def location(p):
    return p.loc


def rate(p):
    return p.rate


# Two families in one function.


def test_two_families_are_an_error():
    laplace, normal = (f(jnp.zeros(()), jnp.ones(())) for f in (cj.Laplace, cj.Normal))
    with pytest.raises(TypeError, match="must be of one family, got Laplace and Normal"):
        cj.inner_product(laplace, GAUSSIAN, normal)
    components = jnp.zeros((4, 2)), jnp.ones((4, 2))
    mixtures = [cj.Mixture.ensemble(f(*components)) for f in (cj.Laplace, cj.Normal)]
    y, kernel = jnp.zeros(4), tensor(cj.MeanEmbeddingDistance(GAUSSIAN))
    message = r"of the family of predictions, Mixture\(Laplace\), got Mixture\(Normal\)"
    for function in (cj.witness, cj.ucme):
        with pytest.raises(TypeError, match=message):
            function(kernel, mixtures[0], y, mixtures[1], y)


# Integer and 16-bit parameters are floating-point numbers of 32 bits.

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


def test_numpy_samples_inside_jit():
    samples = np.arange(20, dtype="float32").reshape(4, 5)
    assert jax.jit(lambda key: cj.Empirical(samples).sample(key))(KEY).shape == (4,)


# Mixtures.


@pytest.mark.slow
def test_mixtures_of_mixtures_of_another_size(float64):
    normal = cj.Normal(jnp.zeros((5, 2, 3)), jnp.ones((5, 2, 3)))
    weights = jnp.full((5, 2), 1 / 2), jnp.full((5, 2, 3), 1 / 3)
    nested = cj.Mixture(weights[0], cj.Mixture(weights[1], normal))
    y, kernel = jnp.arange(5.0), tensor(cj.MeanEmbeddingDistance(GAUSSIAN))
    flat = cj.Normal(jnp.zeros(5), jnp.ones(5))
    np.testing.assert_allclose(cj.skce(kernel, nested, y), cj.skce(kernel, flat, y), rtol=1e-12)


@pytest.mark.slow
def test_likelihood_of_a_component_without_weight(float64):
    # Its derivative in the weight is the limit: the density of the component over that of all.
    components = cj.Normal(jnp.array([[0.0, 1.0]]), jnp.ones((1, 2)))

    def log_prob(weights, y):
        return cj.Mixture(weights[None], components).log_prob(y[None])[0]

    slope = jax.grad(log_prob)
    densities = stats.norm.pdf([1.0, 0.0])
    found = slope(jnp.array([1.0, 0.0]), jnp.ones(()))
    np.testing.assert_allclose(found, densities / densities[0], rtol=1e-12)
    # Far away, where the other density is all but 0, it is finite, and so is the value.
    value, found = jax.value_and_grad(log_prob)(jnp.array([1.0, 0.0]), jnp.array(60.0))
    np.testing.assert_allclose(value, stats.norm.logpdf(60.0), rtol=1e-12)
    assert jnp.all(jnp.isfinite(found)) and found[1] > 1e20
    # And impossible targets are impossible.
    classes = cj.Mixture.ensemble(cj.Categorical(jnp.array([[[1.0, 0.0], [1.0, 0.0]]])))
    assert classes.log_prob(jnp.array([1]))[0] == -jnp.inf


# Counts.


@pytest.mark.parametrize("value", slow({1e-37, 1e3, 1e7}, [0.0, 1e-37, 0.5, 1e3, 1e5, 1e7]))
def test_likelihood_of_counts(value, dtype):
    rates = jnp.full(4, value, dtype)
    root = np.sqrt(value)
    counts = np.array([0, np.floor(value), np.floor(value + 3 * root), 20], "int32")
    p = cj.Poisson(rates)
    # The rate as float32 has it; SciPy's own formula loses digits, the normal law does not matter.
    exact = stats.poisson.logpmf(counts, np.array(rates, float))
    rtol = 1e-5 if dtype == "float32" else 1e-9
    atol = 4e-5 * max(1, root / 100) if dtype == "float32" else 1e-7
    np.testing.assert_allclose(p.log_prob(jnp.array(counts)), exact, rtol=rtol, atol=atol)
    slope = jax.grad(lambda r: cj.Poisson(r).log_prob(jnp.array(counts))[0])(rates)[0]
    assert slope == -1  # of count 0


@pytest.mark.slow
def test_second_derivatives_at_rate_zero(float64):
    kernel = tensor(cj.EmbeddingDistance(rate), cj.WhiteKernel())

    @jax.jit
    def gradient(rates):
        def loss(rates):
            square = cj.DistanceKernel(cj.EmbeddingDistance(rate), 2.0, 2.0)
            smooth = cj.TensorProduct(square, kernel.target_kernel)
            return cj.skce(smooth, cj.Poisson(rates, max_count=64), jnp.array([0, 1, 2]))

        return jax.grad(loss)(rates)

    rates, step = jnp.array([0.0, 1.0, 2.0]), 1e-5
    hessian = jax.jit(jax.jacfwd(gradient))(rates)
    for i in (1, 2):
        ahead, behind = (gradient(rates.at[i].add(sign * step)) for sign in (1, -1))
        np.testing.assert_allclose(hessian[:, i], (ahead - behind) / (2 * step), atol=1e-8)
    ahead = [gradient(rates.at[0].add(k * step)) for k in range(3)]
    expected = (-3 * ahead[0] + 4 * ahead[1] - ahead[2]) / (2 * step)
    np.testing.assert_allclose(hessian[:, 0], expected, atol=1e-6)


@pytest.mark.slow
def test_tiny_rates_and_masked_huge_rates():
    kernel, y = tensor(cj.EmbeddingDistance(rate)), jnp.array([0, 1, 2])
    zero, tiny = (cj.skce(kernel, cj.Poisson(jnp.array([r, 1.0, 2.0])), y) for r in (0.0, 5e-38))
    np.testing.assert_allclose(tiny, zero, rtol=1e-6)
    rates, where = jnp.array([1.0, 2.0, 3.0, 1e6]), jnp.arange(4) < 3
    found = cj.skce(kernel, cj.Poisson(rates), jnp.array([1, 2, 3, 0]), where=where)
    expected = cj.skce(kernel, cj.Poisson(rates[:3]), jnp.array([1, 2, 3]))
    np.testing.assert_allclose(found, expected, rtol=1e-6)


# Nothing that is valid makes a NaN on the way.


@pytest.mark.parametrize("family", slow(FAMILIES.keys() - {"poisson"}, FAMILIES))
def test_no_nan_on_the_way(family):
    predictions, targets = cast(FAMILIES[family](6, 0), "float32")
    where = jnp.arange(6) < 5
    with jax.debug_nans(True):
        kernel = cj.default_kernel(predictions, where=where)

        def loss(predictions):
            return cj.skce(kernel, predictions, targets, where=where)

        assert jnp.isfinite(jax.jit(loss)(predictions))
        jax.block_until_ready(jax.jit(jax.grad(loss))(predictions))


@fast_in_float32
def test_no_nan_of_masked_rows(dtype):
    p = cj.Categorical(jnp.asarray([[0.2, 0.8], [jnp.nan, 0.0], [0.6, 0.4]], dtype))
    where = jnp.array([True, False, True])
    masked = jnp.array([1, -1, 0])
    with jax.debug_nans(True):
        value = cj.mmce(p, masked, where=where)
    np.testing.assert_allclose(value, cj.mmce(p[where], masked[where]), rtol=1e-6)


@pytest.mark.slow
def test_extreme_laplace_scales():
    # Squares and products of these overflow in float32.
    p = cj.Laplace(jnp.float32(0), jnp.float32(7e-15))
    q = cj.Laplace(jnp.float32(2e12), jnp.float32(7e-15))
    value, slopes = jax.value_and_grad(
        lambda p: cj.inner_product(p, cj.LaplacianKernel(jnp.float32(1)), q)
    )(p)
    assert value == 0 and all(jnp.isfinite(x) for x in jax.tree.leaves(slopes))
