"""Random features: of single kernels, of h, their estimate of the SKCE and their test."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from instances import FAMILIES, KERNELS, TARGET_KERNELS, cast, sample
from jax.test_util import check_grads
from messages import calls, check_message
from rules import row, rule
from scipy import stats

import calibjax as cj
from calibjax._data.data import Data
from calibjax._loops.random_numbers import uniform_numbers
from calibjax.discrepancy import normal_form
from calibjax.estimators._skce import _pair_sums
from calibjax.features.random_features import (
    draw_features,
    prediction_frequencies,
    target_frequencies,
)
from calibjax.kernels.predictions import embedding
from calibjax.operators.gram_matrix import low_rank_h

# What has no features, and a part of the message that says so.
WITHOUT = {
    "categorical-joint": "TensorProduct.*function",
    "full-w2-gaussian": "Wasserstein.*Normal.*FullCovariance",
    "mixture-mw2-gaussian": "Euclidean.*MixtureWasserstein",
    "mixture-mean_embedding-gaussian": "Euclidean.*MeanEmbeddingDistance",
    "ensemble-mean_embedding-white": "Euclidean.*MeanEmbeddingDistance",
    "empirical-mean_embedding-laplacian": "Euclidean.*MeanEmbeddingDistance",
    "normal-w2-stein_matern52": "TensorProduct.*SteinKernel",
    "unnormalized-fisher-stein_gaussian": "TensorProduct.*SteinKernel",
}
# Labels and real targets, with all algebra, take long to compile.
SOME = [
    "bernoulli-tv-white",
    pytest.param("categorical-algebra", marks=pytest.mark.slow),
    pytest.param("normal-algebra", marks=pytest.mark.slow),
]
FAST = ("categorical-tv-white",)
INSTANCES = [
    pytest.param(name, marks=[pytest.mark.slow] * (name not in FAST))
    for name in KERNELS
    if name not in WITHOUT
]


def standard(values, expected):
    """How many standard errors the mean of values is off, over the first axis."""
    values = np.asarray(values)
    return (values.mean(0) - expected) / stats.sem(values, axis=0)


# Kernels.


def frequencies(draw, kernel, key, like, n=10_000):
    return jax.jit(lambda key: draw(kernel, key, n, like, jnp.float64))(key)


@pytest.mark.parametrize("name", [name for name in TARGET_KERNELS if name != "white"])
@pytest.mark.parametrize("difference", [0.7, np.array([0.3, -1.1])])
def test_target_kernels_are_means_over_frequencies(name, difference, key, float64):
    kernel, difference = TARGET_KERNELS[name], jnp.asarray(difference)
    w = frequencies(target_frequencies, kernel, key, difference)
    cosines = np.cos(np.asarray(w) @ difference if difference.ndim else w * difference)
    expected = kernel(difference, jnp.zeros_like(difference))
    assert abs(standard(cosines, expected)) < 5


@pytest.mark.parametrize(("dtype", "digits"), [(jnp.float32, 23), (jnp.float64, 32)])
def test_uniform_numbers_are_between_0_and_1(dtype, digits, key, float64):
    numbers = np.asarray(uniform_numbers(key, (3, 500), dtype), np.float64)
    # Odd multiples are neither 0 nor 1, nor 1/2, where a normal number would be 0.
    multiples = numbers * 2 ** (digits + 1)
    np.testing.assert_array_equal(multiples % 2, 1)
    assert 0 < multiples.min() and multiples.max() < 2 ** (digits + 1)
    assert stats.kstest(numbers.ravel(), "uniform").pvalue > 1e-4


def test_white_kernel_of_counts(key, float64):
    w = frequencies(target_frequencies, cj.WhiteKernel(), key, jnp.array(3))
    for difference in (1, 2, 17):
        assert abs(standard(jnp.cos(w * difference), 0.0)) < 5


@pytest.mark.parametrize("exponent", [0.3, 1.0, 1.5, 2.0])
def test_euclidean_kernels_are_means_over_frequencies(exponent, key, float64):
    kernel = cj.DistanceKernel(cj.Wasserstein(), 0.7, exponent)
    p, q = cast(cj.Normal(np.float64(0.2), np.float64(1.0)), "float64"), cj.Normal(1.3, 0.4)
    w = frequencies(prediction_frequencies, kernel, key, p)
    differences = embedding(kernel.distance, p) - embedding(kernel.distance, cast(q))
    assert abs(standard(jnp.cos(w @ differences), kernel(p, cast(q)))) < 5


@pytest.mark.parametrize("exponent", [0.3, 0.8, 1.0])
def test_total_variation_kernels_are_means_over_frequencies(exponent, key, float64):
    kernel = cj.DistanceKernel(cj.TotalVariation(), 0.4, exponent)
    p, q = (row(FAMILIES["categorical"](8, 0)[0], i) for i in (0, 3))
    w = frequencies(prediction_frequencies, kernel, key, cast(p))
    assert abs(standard(jnp.cos(w @ (p.probs - q.probs)), kernel(p, q))) < 5


@pytest.mark.parametrize(
    ("distance", "family"),
    [
        (cj.Euclidean(), "categorical"),
        (cj.Euclidean(), "bernoulli"),
        (cj.Wasserstein(), "normal"),
        (cj.Wasserstein(), "laplace"),
        (cj.Wasserstein(), "diag"),
        (cj.EmbeddingDistance(lambda p: p.rate), "poisson"),
    ],
)
def test_embeddings_have_the_distance(distance, family, float64):
    p, q = (cast(row(FAMILIES[family](8, 0)[0], i)) for i in (0, 3))
    difference = embedding(distance, p) - embedding(distance, q)
    np.testing.assert_allclose(jnp.linalg.norm(difference), distance(p, q), rtol=1e-14)


# Characteristic functions.


@pytest.mark.parametrize(
    "family",
    ["normal", "laplace", "diag", "full", "mixture", "poisson", "empirical", "empirical_vectors"],
)
def test_characteristic_functions_are_integrals(family, float64):
    predictions, targets = FAMILIES[family](4, 0)
    for i, size in enumerate([0.3, 1.0, 4.0]):
        p, v = row(predictions, i), size * np.linspace(1.0, -0.6, targets[0].size)
        v = v.reshape(targets[0].shape)
        nodes, weights = rule(p, np.zeros_like(targets[0]))
        angles = nodes @ v if v.ndim else nodes * v
        found = cast(p).characteristic(jnp.asarray(v))
        np.testing.assert_allclose(found, weights @ np.exp(1j * angles), rtol=1e-8, atol=1e-12)


# h.


def test_features_of_labels_are_exact_in_the_targets(key, float64):
    # With equal predictions there is no randomness left.
    kernel, predictions, targets = sample("categorical-tv-function")
    same = jax.tree.map(lambda x: jnp.broadcast_to(x[:1], x.shape), predictions)
    found = cj.random_feature_skce(key, kernel, same, targets, n_features=3)
    np.testing.assert_allclose(found.estimate, cj.skce(kernel, same, targets), rtol=1e-12)
    assert found.standard_error < 1e-12


@pytest.mark.parametrize("name", INSTANCES)
def test_unbiased_with_an_honest_standard_error(name, key, float64):
    # Each feature is independent, and the estimate their mean: 200 estimates of 100 in one.
    arguments = sample(name)
    keys = jax.random.split(key, 200)
    estimate = jax.jit(
        lambda keys: jax.lax.map(
            lambda key: cj.random_feature_skce(key, *arguments, n_features=100), keys
        )
    )
    found = estimate(keys)
    errors = np.asarray(found.estimate - cj.skce(*arguments))
    assert abs(standard(errors, 0.0)) < 5
    z = errors / np.asarray(found.standard_error)
    # The law of the mean square of 200 standard normal numbers, but for heavier tails.
    low, high = stats.chi2.ppf([1e-5, 1 - 1e-5], 200) / 200
    assert low < np.mean(z**2) < 1.1 * high


@pytest.mark.parametrize("name", WITHOUT)
@pytest.mark.parametrize("function", ["estimate", "test"])
def test_messages_where_there_are_no_features(name, function, key):
    function = {
        "estimate": cj.random_feature_skce,
        "test": functools.partial(cj.asymptotic_skce_test, method="features"),
    }[function]
    arguments = key, *sample(name, dtype="float32")
    check_message(lambda: function(*arguments), TypeError, WITHOUT[name])


# The estimate.


@pytest.mark.slow
@pytest.mark.parametrize("name", SOME)
def test_sums_over_chunks_of_rows(name, key, float64):
    n, n_features = 40, 5000
    kernel, *samples = sample(name, n)
    features = draw_features(
        key, normal_form(kernel), jax.tree.map(lambda x: x[0], samples), n_features
    )
    products = 0.0
    for part in features:
        (real, imag), residuals = jax.tree.map(np.asarray, jax.jit(jax.vmap(part))(samples))
        psi = (real + 1j * imag)[:, :, None] * residuals[:, None] / np.sqrt(n_features)
        left = (psi @ np.asarray(part.metric)).reshape(n, -1)
        products += (1 if part.factor is None else part.factor) * (
            left @ psi.reshape(n, -1).conj().T
        ).real
    expected = (products.sum() - np.trace(products)) / (n * (n - 1))
    found = cj.random_feature_skce(key, kernel, *samples, n_features=n_features)
    np.testing.assert_allclose(found.estimate, expected, rtol=1e-10)


@pytest.mark.parametrize("name", SOME)
def test_jit_and_vmap(name, key, float64):
    kernel, *batch = sample(name)
    other = sample(name, seed=3)[1:]
    estimate = functools.partial(cj.random_feature_skce, n_features=20)
    keys = jax.random.split(key)
    loop = [estimate(k, kernel, *data) for k, data in zip(keys, (batch, other), strict=True)]
    stacked = jax.tree.map(lambda *x: jnp.stack(x), tuple(batch), other)
    found = jax.jit(jax.vmap(estimate, (0, None, 0, 0)))(keys, kernel, *stacked)
    for i, expected in enumerate(loop):
        np.testing.assert_allclose(found.estimate[i], expected.estimate, rtol=1e-10)
        np.testing.assert_allclose(found.standard_error[i], expected.standard_error, rtol=1e-10)


@pytest.mark.slow
# Frequencies of other kernels are too large for differences.
@pytest.mark.parametrize("name", ["normal-w2-matern32", "categorical-euclidean-gaussian"])
def test_derivatives(name, key, float64):
    kernel, predictions, targets = sample(name)

    def loss(kernel, predictions):
        return cj.random_feature_skce(key, kernel, predictions, targets, n_features=20).estimate

    check_grads(jax.jit(loss), (kernel, predictions), order=1, rtol=1e-7)


@pytest.mark.parametrize("name", SOME)
def test_where_is_dropping_rows(name, key, float64):
    kernel, predictions, targets = sample(name)
    where = jnp.array([False, True, True, True, False, True, True, True])

    def masked(x, value):
        return jnp.where(where.reshape(-1, *(1,) * (x.ndim - 1)), x, jnp.asarray(value, x.dtype))

    garbage = jax.tree.map(lambda x: masked(x, jnp.nan), predictions)
    estimate = functools.partial(cj.random_feature_skce, key, kernel, n_features=20)

    @jax.jit
    def value_and_gradient(predictions):
        def loss(predictions):
            return estimate(predictions, masked(targets, -1), where=where).estimate

        return jax.value_and_grad(loss)(predictions)

    kept = jax.tree.map(lambda x: x[where], (predictions, targets))
    value, gradient = value_and_gradient(garbage)
    np.testing.assert_allclose(value, estimate(*kept).estimate, rtol=1e-10)
    for x in jax.tree.leaves(gradient):
        assert jnp.all(jnp.isfinite(x)) and jnp.all(x[~where] == 0)


def test_too_few_rows_and_bad_values_in_jit(key):
    kernel, predictions, targets = sample("categorical-tv-white", dtype="float32")

    @jax.jit
    def value_and_gradient(probs, where):
        def loss(probs):
            data = cj.Categorical(probs), targets
            return cj.random_feature_skce(key, kernel, *data, n_features=5, where=where).estimate

        return jax.value_and_grad(loss)(probs)

    value, gradient = value_and_gradient(predictions.probs, jnp.arange(8) < 1)
    assert value == 0 and jnp.all(gradient == 0)
    value, _ = value_and_gradient(2 * predictions.probs, jnp.arange(8) < 4)
    assert jnp.isnan(value)


@pytest.mark.parametrize(
    "name",
    ["categorical-tv-white", pytest.param("normal-embedding-laplacian", marks=pytest.mark.slow)],
)
def test_float32_is_near_float64(name, key):
    n, n_features = 3000, 100
    with jax.enable_x64(True):
        kernel, *samples = sample(name, n)
        features = draw_features(
            key, normal_form(kernel), jax.tree.map(lambda x: x[0], samples), n_features
        )
        (features,) = cast(features, "float32")
        samples = cast(samples, "float32")
        pair_sums = jax.jit(functools.partial(_pair_sums, axis=None))
        found = pair_sums(features, samples, jnp.ones(n, jnp.float32))
        features, samples = cast((features, samples), "float64")
        expected = np.asarray(pair_sums(features, samples, jnp.ones(n)))
    assert found.dtype == jnp.float32
    # In units of the standard deviation of a calibrated model, some n.
    np.testing.assert_allclose(np.asarray(found) / n, expected / n, atol=1e-4)


@pytest.mark.slow
def test_pairs_without_a_closed_form(key, float64):
    predictions, targets = cast(FAMILIES["laplace"](6, 0))
    wasserstein, matern = cj.DistanceKernel(cj.Wasserstein()), TARGET_KERNELS["matern32"]
    kernel = cast(cj.TensorProduct(wasserstein, matern))
    with pytest.raises(NotImplementedError):
        cj.skce(kernel, predictions, targets)
    found = cj.random_feature_skce(key, kernel, predictions, targets, n_features=5000)

    rules = [rule(row(predictions, i), targets) for i in range(6)]
    nodes = [np.append(z, y) for (z, _), y in zip(rules, targets, strict=True)]
    weights = [np.append(-w, 1.0) for _, w in rules]
    similar = wasserstein.pairwise(predictions, predictions)

    def h(i, j):
        r = np.sqrt(3) * np.abs(nodes[i][:, None] - nodes[j]) / matern.lengthscale
        return similar[i, j] * (weights[i] @ ((1 + r) * np.exp(-r)) @ weights[j])

    exact = np.mean([h(i, j) for i in range(6) for j in range(i)])
    assert abs(found.estimate - exact) < 5 * found.standard_error


def tensor(distance, target_kernel, *options, **exponent):
    return cj.TensorProduct(cj.DistanceKernel(distance, *options, **exponent), target_kernel)


TV, W2, EUCLIDEAN = cj.TotalVariation(), cj.Wasserstein(), cj.Euclidean()
WHITE, GAUSSIAN = cj.WhiteKernel(), cj.GaussianKernel(1.0)
BAD = {
    TypeError: {
        "DistanceKernel.*function": lambda: features_of(
            cj.TensorProduct(lambda p, q: jnp.exp(-jnp.square(p.loc - q.loc)), GAUSSIAN)
        ),
        "GaussianKernel.*WhiteKernel.*<lambda>": lambda: features_of(
            tensor(W2, lambda y, z: jnp.exp(-abs(y - z)))
        ),
        "WhiteKernel.*labels or counts.*real": lambda: features_of(tensor(W2, WHITE)),
        "exponent.*TotalVariation.*1.5": lambda: features_of(
            tensor(TV, WHITE, exponent=1.5), "categorical"
        ),
        "Euclidean.*Categorical.*Normal": lambda: features_of(tensor(EUCLIDEAN, GAUSSIAN)),
    },
    ValueError: {
        r"lengthscale.*scalar.*\[2\]": lambda: features_of(
            tensor(EUCLIDEAN, WHITE, jnp.ones(2)), "categorical"
        ),
        r"lengthscale.*GaussianKernel.*\[\].*\[2\]": lambda: features_of(
            tensor(W2, cj.GaussianKernel(jnp.ones(2)))
        ),
    },
}


def features_of(kernel, family="normal"):
    data = cast(FAMILIES[family](4, 0), "float32")
    return cj.random_feature_skce(jax.random.key(0), kernel, *data)


@pytest.mark.parametrize("case", calls(BAD))
def test_messages(case):
    check_message(*case)


@pytest.mark.parametrize(
    ("n_features", "exception", "message"),
    [(1, ValueError, "n_features.*2.*1"), (10.0, TypeError, "n_features.*integer.*float")],
)
def test_messages_of_the_number_of_features(n_features, exception, message, key):
    arguments = sample("categorical-tv-white", dtype="float32")
    estimate = functools.partial(cj.random_feature_skce, key, *arguments)
    check_message(lambda: estimate(n_features=n_features), exception, message)


# The test of the hypothesis that a model is calibrated; test_hypothesis_tests_levels has its level.


@pytest.mark.parametrize("name", SOME)
def test_moments_are_those_of_h(name, key, float64):
    n, n_features = 6, 20
    kernel, *samples = sample(name, n)
    data = Data(*samples, weights=jnp.ones(n))

    def moments(key):
        operator = low_rank_h(key, normal_form(kernel), data, n_features, None)
        return operator.reduced(), operator.row_sums_and_squares()[0]

    matrices, row_sums = jax.jit(functools.partial(jax.lax.map, moments))(
        jax.random.split(key, 400)
    )
    h = np.array(cj.h_matrix(kernel, *samples))
    assert abs(standard(np.trace(matrices, axis1=1, axis2=2), np.trace(h))) < 5
    np.fill_diagonal(h, 0)
    assert np.all(np.abs(standard(row_sums, h.sum(1))) < 5)


def test_the_result_says_what_it_is(key):
    arguments = sample("categorical-tv-white", 20, dtype="float32")
    result = cj.asymptotic_skce_test(key, *arguments, method="features", n_features=30)
    assert result.method == "asymptotic_skce_test, features of 1000, 30 features"
    np.testing.assert_allclose(result.statistic, 20 * result.estimate, rtol=1e-6)
    assert result.null_distribution.shape == (1000,)


@pytest.mark.parametrize("factor", [0.0, 1.0])
@pytest.mark.slow
def test_a_part_of_the_kernel_that_is_0(factor, key):
    kernel, predictions, targets = sample("categorical-tv-white", 50, dtype="float32")
    test = functools.partial(cj.asymptotic_skce_test, key, method="features", n_features=16)
    result = test(factor * kernel + 0.0 * kernel, predictions, targets)
    assert 0 < result.pvalue <= 1 and jnp.isfinite(result.estimate)
    assert result.standard_error is None
