"""Parameters: numbers that all predictions share, and axes in another order."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from messages import check_message

import calibjax as cj

N = 6
RNG = np.random.default_rng(20240817)
LOC, TARGETS = RNG.normal(size=(2, N))


@pytest.mark.parametrize(
    ("predictions", "message"),
    {
        "samples": (cj.Empirical(jnp.ones((5, N))), "n = 5 .*; s = 6 in the predictions: if"),
        "vectors": (cj.Empirical(jnp.ones((5, N, 2))), "n = 5 .*; s = 6 in the predictions: if"),
        "components": (
            cj.Mixture.ensemble(cj.Normal(jnp.ones((5, N)), 1.0)),
            r"n = 5 .*; k = 6 in the predictions: .*jnp.moveaxis\(array, 0, 1\)",
        ),
        "probabilities": (
            cj.Categorical(jnp.full((5, N, 2), 0.5)),
            r"probs .* \[n, m\], got .*; K models .*Mixture.ensemble\(Categorical\(…\)\).*moveaxis",
        ),
    }.values(),
)
def test_swapped_axes(predictions, message):
    targets = jnp.ones((N, 2)) if predictions.target_shape == "n d" else jnp.ones(N)
    if predictions.target_kind == "integer":
        targets = targets.astype(int)
    key = jax.random.key(0)
    check_message(lambda: cj.calibration_test(key, predictions, targets), ValueError, message)


def test_no_axis_is_swapped():
    with pytest.raises(ValueError, match="targets") as caught:
        cj.skce(cj.WhiteKernel(), cj.Empirical(jnp.ones((5, 4))), jnp.ones(N))
    assert "swapped" not in str(caught.value)


FULL = cj.Normal(jnp.array(LOC), jnp.full(N, 2.0))


@pytest.mark.parametrize("number", [2.0, 2, np.float32(2), np.array(2.0), jnp.array(2.0)])
def test_shared_numbers(number, dtype):
    loc = jnp.array(LOC, dtype)
    for p in (cj.Normal(loc, number), dataclasses.replace(FULL, loc=loc, scale=number)):
        np.testing.assert_array_equal(p.scale, np.full(N, 2.0))
        wide = isinstance(number, np.ndarray) and jax.config.jax_enable_x64
        assert p.scale.dtype == ("float64" if wide else dtype)
    components = cj.Normal(number, jnp.ones((N, 3), dtype))
    assert cj.Mixture.ensemble(components).mean().tolist() == [2.0] * N


def test_shared_numbers_of_counts():
    counts = cj.NegativeBinomial(jnp.ones(3), 2.0)
    assert counts.concentration.tolist() == [2.0] * 3 and counts.max_count is not None


def test_shared_numbers_beside_integers():
    assert cj.Normal(jnp.arange(3), 1.5).scale.tolist() == [1.5] * 3
    assert cj.Normal(jnp.arange(3), 1).scale.dtype == jnp.int32
    assert cj.Normal(jnp.zeros(3, jnp.bfloat16), 1.5).scale.dtype == jnp.bfloat16


def test_shared_numbers_are_differentiable_inside_jit():
    @jax.jit
    @jax.grad
    def slope(scale, loc):
        return jnp.sum(cj.Normal(loc, scale).log_prob(jnp.array(TARGETS)))

    z = (TARGETS - LOC) / 2
    np.testing.assert_allclose(slope(2.0, jnp.array(LOC)), np.sum(z**2 - 1) / 2, rtol=1e-5)
    several = jax.vmap(lambda scale: cj.Normal(FULL.loc, scale))(jnp.array([1.0, 2.0]))
    assert several.scale.shape == (2, N)


def test_one_prediction_shares_nothing():
    for p in (cj.Normal(0.0, 1.0), cj.Normal(jnp.zeros(()), 1.0)):
        assert jnp.shape(p.loc) == jnp.shape(p.scale) == ()
    found = jax.vmap(lambda loc: cj.Normal(loc, 1.0))(jnp.zeros(3))
    assert found.loc.shape == found.scale.shape == (3,)
    # Not an array at all: axes of vmap, for example.
    assert cj.Normal(0, None).loc == 0


def test_wrong_parameters_beside_numbers_are_errors():
    check_message(
        lambda: cj.default_kernel(cj.Normal([0.0, 1.0], 1.0)), TypeError, "loc must be an array"
    )
    check_message(
        lambda: cj.default_kernel(cj.Normal(jnp.zeros(N), -1.0)), ValueError, "scale must be pos"
    )
