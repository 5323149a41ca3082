"""Families at the edges of their parameters' dtypes and values, where they once failed."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from marks import slow
from scipy import special

import calibjax as cj
from calibjax._struct import struct

KEY = jax.random.key(0)
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


MOMENTS = {
    "normal": (cj.Normal(np.int32([0, 0]), np.int32([1, 100_000])), [0, 0], [1, 1e10]),
    "diag": (
        cj.MultivariateNormalDiag(np.zeros((1, 1), "int32"), np.int32([[100_000]])),
        [[0]],
        [[1e10]],
    ),
    "laplace": (
        cj.Laplace(np.float16([1.5, 0]), np.float16([1, 300])),
        [1.5, 0],
        [2, 1.8e5],
    ),
    "bernoulli": (cj.Bernoulli(jnp.array([0.99609375], "bfloat16")), [255 / 256], [255 / 2**16]),
    "categorical": (
        cj.Categorical(jnp.zeros((1, 300), "bfloat16").at[0, 257].set(1)),
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


@pytest.mark.parametrize("row", [10, np.int64(10), np.int8(-7)])
def test_rows_out_of_range(row):
    with pytest.raises(IndexError, match=f"rows must be between -6 and 5, got {row}"):
        cj.Bernoulli(jnp.ones(6))[row]


def test_numpy_integers_are_rows():
    assert cj.Bernoulli(jnp.arange(6) / 8)[np.int64(-1)].probs == 5 / 8


@pytest.mark.slow
def test_counts_beyond_int32():
    predictions, targets = cj.Poisson(jnp.array([1.0, 2.0])), np.array([2**31, 1], "uint32")
    kernel = cj.TensorProduct(cj.DistanceKernel(cj.EmbeddingDistance(_rate)), cj.WhiteKernel())
    with pytest.raises(ValueError, match="targets must be counts 0, 1, …, 2147483647; row 0 is 21"):
        cj.skce(kernel, predictions, targets)
    assert jnp.isnan(jax.jit(cj.skce)(kernel, predictions, targets))
    largest = np.array([2**31 - 1, 1], "uint32")
    np.testing.assert_array_equal(
        cj.skce(kernel, predictions, largest), cj.skce(kernel, predictions, np.int32(largest))
    )
    assert jnp.all(predictions.supports(np.array([True, False]))[1])
    assert jnp.all(predictions.supports(np.array([127, 0], "int8"))[1])


def _rate(p):
    return p.rate


POSSIBLE = [(-200.0, 0), (-20.0, 0), (-20.0, 1), (3.0, 0), (3.0, 1), (20.0, 1), (200.0, 1)]


@pytest.mark.parametrize(("logit", "target"), POSSIBLE)
def test_gradient_of_a_confident_likelihood(logit, target):
    # log sigmoid(l) has the slope 1 - sigmoid(l), and log sigmoid(-l) the slope -sigmoid(l).
    def log_prob(logit):
        return cj.Bernoulli.from_logits(logit[None]).log_prob(jnp.array([target]))[0]

    slope = jax.grad(log_prob)(jnp.float32(logit))
    np.testing.assert_allclose(slope, target - special.expit(logit), atol=1e-6)


@pytest.mark.parametrize("target", [0, 1])
def test_gradient_of_a_certain_likelihood(target):
    # log p and log(1 - p) have the slopes 1 and -1 where the target is certain.
    slope = jax.grad(lambda p: cj.Bernoulli(p).log_prob(jnp.array([target]))[0])
    np.testing.assert_array_equal(slope(jnp.array([float(target)])), [2.0 * target - 1])


@pytest.mark.parametrize("family", ["bernoulli", "categorical"])
def test_gradient_of_mixed_certain_likelihoods(family):
    # log sum_k w_k p_k has the slopes w_k / sum and p_k / sum, also where a p_k is 0 or 1.
    weights, p = jnp.array([[0.25, 0.75]]), jnp.array([[1.0, 0.0]])

    def log_prob(weights, p):
        labels = jnp.stack([1 - p, p], -1)
        components = cj.Bernoulli(p) if family == "bernoulli" else cj.Categorical(labels)
        return cj.Mixture(weights, components).log_prob(jnp.array([1]))[0]

    value, (of_weights, of_p) = jax.value_and_grad(log_prob, (0, 1))(weights, p)
    np.testing.assert_allclose(value, np.log(0.25), rtol=1e-6)
    np.testing.assert_allclose(of_weights, [[4.0, 0.0]], rtol=1e-6)
    np.testing.assert_allclose(of_p, [[1.0, 3.0]], rtol=1e-6)


def test_logits_of_16_bits():
    logits = jnp.array([[8.0, 0.0, -3.0], [0.3, 0.2, 0.1]], "bfloat16")
    exact = np.array(logits, "float64")
    found = cj.Categorical.from_logits(logits).probs
    np.testing.assert_allclose(found, special.softmax(exact, axis=1), rtol=1e-6)
    np.testing.assert_allclose(
        cj.Bernoulli.from_logits(logits[:, 0]).probs, special.expit(exact[:, 0]), rtol=1e-6
    )


@pytest.mark.parametrize("dtype", slow({"float64"}, ["float32", "float64"]))
def test_gradient_of_temper_where_it_has_decided(dtype, float64):
    # At T = 0 only the most likely class is left, which no change of T changes.
    probs = jnp.array([[0.7, 0.2, 0.1, 0.0], [0.4, 0.4, 0.2, 0.0]], dtype)

    def tempered(temperature):
        return cj.temper(cj.Categorical(probs), temperature).probs

    decided = [[1, 0, 0, 0], [0.5, 0.5, 0, 0]]
    for temperature in jnp.array([1e-30, 1e-4], dtype):
        np.testing.assert_array_equal(tempered(temperature), decided)
        for derivative in (jax.jacfwd, jax.jacrev):
            np.testing.assert_array_equal(derivative(tempered)(temperature), np.zeros((2, 4)))


# Labels.


@pytest.mark.slow
def test_mixtures_of_labels_have_label_probabilities(key, float64):
    # Every estimator of labels sees the mean probabilities.
    probs, weights = jax.random.dirichlet(key, jnp.ones(3), (6, 2)), jnp.array([0.25, 0.75])
    mixtures = cj.Mixture(jnp.tile(weights, (6, 1)), cj.Categorical(probs))
    mean = cj.Categorical(jnp.einsum("k,nkm->nm", weights, probs))
    targets = jnp.array([0, 1, 2, 0, 1, 1])
    np.testing.assert_allclose(mixtures.label_probabilities(), mean.probs, rtol=1e-14)
    np.testing.assert_allclose(mixtures[0].label_probabilities(), mean.probs[0], rtol=1e-14)
    for estimate in (cj.ece, cj.mmce):
        np.testing.assert_allclose(estimate(mixtures, targets), estimate(mean, targets), rtol=1e-10)
    found, expected = (cj.one_vs_rest(p, targets, 2)[0].probs for p in (mixtures, mean))
    np.testing.assert_allclose(found, expected, rtol=1e-14)
    with pytest.raises(ValueError, match="label must be between 0 and m - 1 = 2, got 3"):
        cj.one_vs_rest(mixtures, targets, 3)
    of_labels = cj.TensorProduct(cj.DistanceKernel(cj.TotalVariation()), cj.WhiteKernel())

    def joint(a, b):
        return of_labels.prediction_kernel(a[0], b[0]) * of_labels.target_kernel(a[1], b[1])

    expected = cj.skce(of_labels, mean, targets)
    for kernel in (of_labels, joint):
        np.testing.assert_allclose(cj.skce(kernel, mixtures, targets), expected, rtol=1e-10)


# Subclasses.


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
