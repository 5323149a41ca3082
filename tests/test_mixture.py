"""Mixtures: of mixtures, of components without weight, of certain components, of labels."""

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import calibjax as cj
from calibjax._data.capabilities import has_atoms
from calibjax._data.distribution import CountLike, Labels

GAUSSIAN = cj.GaussianKernel(1.0)


def tensor(distance, target_kernel=GAUSSIAN):
    return cj.TensorProduct(cj.DistanceKernel(distance), target_kernel)


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


def test_a_mixture_knows_what_its_components_know():
    half, one = jnp.full((3, 2), 0.5), jnp.ones((3, 2))
    labels, counts, reals = map(
        cj.Mixture.ensemble, (cj.Bernoulli(half), cj.Poisson(one), cj.Normal(half, one))
    )
    nested = cj.Mixture.ensemble(cj.Mixture.ensemble(cj.Bernoulli(jnp.full((3, 2, 2), 0.5))))
    found = [[isinstance(p, x) for x in (Labels, CountLike)] for p in (labels, counts, reals)]
    assert found == [[True, False], [False, True], [False, False]]
    assert isinstance(nested, Labels) and isinstance(pickle.loads(pickle.dumps(labels)), Labels)
    assert (labels.n_labels, counts.max_count, reals.n_labels) == (2, 32, None)
    assert repr(labels).startswith("Mixture(n=3, k=2, Bernoulli")
    assert [has_atoms(p) for p in (labels, counts, reals)] == [True, True, False]


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
