"""The Brier score against scikit-learn's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from instances import FAMILIES, cast
from jax.sharding import NamedSharding, PartitionSpec
from sklearn.metrics import brier_score_loss

import calibjax as cj


def test_masked_rows_on_one_device_and_on_two(float64):
    predictions, targets = FAMILIES["categorical"](30, 0)
    where = np.arange(30) % 3 > 0
    expected = brier_score_loss(
        targets[where], predictions.probs[where], labels=range(4), scale_by_half=False
    )
    predictions.probs[~where] = np.nan
    rows = (*cast((predictions, targets)), jnp.asarray(where))
    sharding = NamedSharding(
        jax.make_mesh((2,), ("rows",), devices=jax.devices()[:2]), PartitionSpec("rows")
    )
    for p, y, where in (rows, jax.device_put(rows, sharding)):
        np.testing.assert_allclose(cj.brier_score(p, y, where=where), expected, rtol=1e-14)


def test_bad_input():
    predictions = cj.Bernoulli(jnp.array([0.2, 0.5]))
    with pytest.raises(ValueError, match="targets must be .* row 1 is 2"):
        cj.brier_score(predictions, jnp.array([0, 2]))
    assert jnp.isnan(jax.jit(cj.brier_score)(predictions, jnp.array([0, 2])))
    with pytest.raises(TypeError, match="Normal"):
        cj.brier_score(cj.Normal(jnp.zeros(2), jnp.ones(2)), jnp.zeros(2))
