"""The Hellinger distance, where the generic tests do not look."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from instances import FAMILIES, cast

import calibjax as cj


def test_random_features_have_the_distance(float64):
    p = cast(FAMILIES["categorical"](2, 0)[0])
    distance = cj.Hellinger()
    gap = distance.embedding(p[0]) - distance.embedding(p[1])
    np.testing.assert_allclose(jnp.linalg.norm(gap), distance(p[0], p[1]), rtol=1e-14)


def test_the_derivative_is_finite_where_a_probability_is_zero():
    gradient = jax.grad(lambda x: cj.Hellinger()(cj.Bernoulli(x), cj.Bernoulli(jnp.array(0.3))))
    assert np.all(np.isfinite([gradient(jnp.array(x)) for x in (0.0, 0.3, 1.0)]))


def test_other_predictions_are_refused():
    p = cj.Normal(jnp.array(0.0), jnp.array(1.0))
    with pytest.raises(TypeError, match="Hellinger compares probability vectors .* got Normal"):
        cj.Hellinger()(p, p)
