"""Bernoulli and categorical predictions: gradients, logits, sums that rounding left."""

import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from messages import check_message
from scipy import special

import calibjax as cj
from calibjax._loops.fusion import is_of_numbers
from calibjax.discrepancy import h, normal_form

# Two predictions are equal, and two are certain.
PROBS = np.array([0.2, 0.9, 0.6, 0.2, 0.0, 1.0, 0.35])
LABELS = np.array([0, 1, 0, 1, 0, 1, 1])
DISTANCES = {"total variation": cj.TotalVariation(), "euclidean": cj.Euclidean()}


@pytest.mark.parametrize("name", DISTANCES)
def test_gradients_are_those_of_two_classes(name, float64):
    kernel = cj.TensorProduct(cj.DistanceKernel(DISTANCES[name], 0.7), cj.WhiteKernel())
    families = (cj.Bernoulli, lambda probs: cj.Categorical(jnp.stack([1 - probs, probs], axis=-1)))

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
    assert is_of_numbers(
        lambda p, q: h(normal_form(kernel), (p, jnp.array(0)), (q, jnp.array(1))), p, q
    )


RNG = np.random.default_rng(20240817)


def test_normalize():
    exact = RNG.dirichlet(np.ones(10), 50)
    rounded = jnp.array(exact.round(2))
    check_message(
        lambda: cj.default_kernel(cj.Categorical(rounded)), ValueError, "probs .*normalize=True"
    )
    p = cj.Categorical(rounded, normalize=True)
    cj.default_kernel(p)
    np.testing.assert_allclose(p.probs, rounded / rounded.sum(1, keepdims=True), rtol=1e-6)
    assert jax.tree.structure(p) == jax.tree.structure(cj.Categorical(rounded))
    assert jax.tree.leaves(dataclasses.replace(p, probs=rounded))[0] is rounded
    percents = cj.Categorical(np.array([[25, 75], [0, 3]]), normalize=True)
    assert percents.probs.tolist() == [[0.25, 0.75], [0.0, 1.0]]


def test_normalize_inside_jit_and_grad():
    def second(row):
        return cj.Categorical(row[None], normalize=True).probs[0, 1]

    found = jax.jit(jax.grad(second))(jnp.array([1.0, 2.0, 1.0]))
    np.testing.assert_allclose(found, [-1 / 8, 1 / 8, -1 / 8], rtol=1e-6)


@pytest.mark.parametrize("row", [[-0.5, -0.5], [0.0, 0.0], [-1.0, 2.0], [np.nan, 1], [np.inf, 1]])
def test_normalize_reports_rows_that_are_no_weights(row):
    p = cj.Categorical(jnp.array([[0.5, 0.5], row]), normalize=True)
    check_message(lambda: cj.default_kernel(p), ValueError, "probs must be nonnegative.*row 1 is")


def test_normalize_is_a_flag():
    bad = re.escape("normalize must be a bool, got int")
    check_message(lambda: cj.Categorical(jnp.ones((2, 2)), normalize=1), TypeError, bad)


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


def test_logits_of_16_bits():
    logits = jnp.array([[8.0, 0.0, -3.0], [0.3, 0.2, 0.1]], "bfloat16")
    exact = np.array(logits, "float64")
    found = cj.Categorical.from_logits(logits).probs
    np.testing.assert_allclose(found, special.softmax(exact, axis=1), rtol=1e-6)
    np.testing.assert_allclose(
        cj.Bernoulli.from_logits(logits[:, 0]).probs, special.expit(exact[:, 0]), rtol=1e-6
    )


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_logits_of_masked_rows_have_the_gradient_0(bad):
    """Whatever they hold, and other rows have the gradient that they have without them."""
    kept, targets = np.array([True, False, True, True]), jnp.array([1, 0, 2, 0])
    for shape, make in (((4, 3), cj.Categorical), ((4,), cj.Bernoulli)):
        logits = np.random.default_rng(0).normal(size=shape).astype(np.float32)
        logits[1] = bad
        y = targets % 2 if make is cj.Bernoulli else targets

        def error(x, y, make=make, **rows):
            return cj.mmce(make.from_logits(x), y, **rows)

        found = jax.grad(error)(jnp.asarray(logits), y, where=kept)
        expected = jax.grad(error)(jnp.asarray(logits[kept]), y[kept])
        np.testing.assert_allclose(found[kept], expected, rtol=1e-5, atol=1e-7)
        np.testing.assert_array_equal(found[1], 0)
        if np.isnan(bad):
            assert np.isnan(make.from_logits(logits).probs[1]).all()
