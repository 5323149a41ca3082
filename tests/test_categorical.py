"""One number for each binary prediction: gradients of the two-class Categorical, in one loop."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import calibjax as cj
from calibjax._loops import is_of_numbers
from calibjax.discrepancy import h

# Two predictions are equal, and two are certain.
PROBS = np.array([0.2, 0.9, 0.6, 0.2, 0.0, 1.0, 0.35])
LABELS = np.array([0, 1, 0, 1, 0, 1, 1])
DISTANCES = {"total variation": cj.TotalVariation(), "euclidean": cj.Euclidean()}


@pytest.mark.parametrize("name", DISTANCES)
def test_gradients_are_those_of_two_classes(name, float64):
    kernel = cj.TensorProduct(cj.DistanceKernel(DISTANCES[name], 0.7), cj.WhiteKernel())
    families = (
        cj.Bernoulli,
        lambda probs: cj.Categorical(jnp.stack([1 - probs, probs], axis=-1)),
    )

    def gradient(family):
        def estimate(probs):
            return cj.skce(kernel, family(probs), jnp.asarray(LABELS))

        return jax.jit(jax.value_and_grad(estimate))(jnp.asarray(PROBS))

    for found, expected in zip(*map(gradient, families), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("name", DISTANCES)
def test_a_pair_is_made_of_numbers(name):
    kernel = cj.TensorProduct(cj.DistanceKernel(DISTANCES[name], 0.7), cj.WhiteKernel())
    p, q = cj.Bernoulli(jnp.array(0.3)), cj.Bernoulli(jnp.array(0.8))
    assert is_of_numbers(lambda p, q: h(kernel, (p, jnp.array(0)), (q, jnp.array(1))), p, q)
