"""Exponential predictions, where the generic tests do not look."""

import jax.numpy as jnp
import numpy as np
import pytest
from instances import FAMILIES, cast, sample
from scipy import stats
from scipy.integrate import quad

import calibjax as cj


def test_wasserstein_by_quantiles(float64):
    p = cast(FAMILIES["exponential"](2, 0)[0])
    one, other = (stats.expon(scale=float(scale)) for scale in p.scale)
    squared, _ = quad(lambda level: (one.ppf(level) - other.ppf(level)) ** 2, 0, 1)
    np.testing.assert_allclose(cj.Wasserstein().squared(p[0], p[1]), squared, rtol=1e-8)


def test_a_wrong_model_is_seen(float64):
    kernel, predictions, targets = sample("exponential-w2-laplacian", 100)
    right, wrong = (cj.skce(kernel, predictions, y) for y in (targets, 3 * targets))
    assert abs(right) < 0.2 * wrong


@pytest.mark.parametrize(
    ("scale", "target", "message"),
    [(-1.0, 1.0, "scale must be positive and finite"), (1.0, -1.0, "targets must be nonnegative")],
)
def test_bad_values(scale, target, message):
    kernel = sample("exponential-w2-laplacian", dtype="float32")[0]
    predictions, targets = cj.Exponential(jnp.array([1.0, scale])), jnp.array([1.0, target])
    with pytest.raises(ValueError, match=message):
        cj.skce(kernel, predictions, targets)
