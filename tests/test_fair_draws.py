"""Draws that stand for a law: half of them is compared, the other half is subtracted."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from instances import sample
from jax.test_util import check_grads
from messages import calls, check_message

import calibjax as cj

TARGET_KERNEL = cj.GaussianKernel(0.8)
KERNEL = cj.TensorProduct(
    cj.DistanceKernel(cj.MeanEmbeddingDistance(TARGET_KERNEL), 0.6), TARGET_KERNEL
)


def k(y, z):
    return np.exp(-np.sum(np.square(y - z)) / (2 * 0.8**2))


def mean_k(xs, zs):
    return np.mean([[k(x, z) for z in zs] for x in xs])


def of_predictions(a, b):
    """KERNEL's factor for two lists of draws."""
    squared = mean_k(a, a) + mean_k(b, b) - 2 * mean_k(a, b)
    # The root of what rounding leaves of equal draws would be 1e-8.
    return np.exp(-np.sqrt(squared if squared > 1e-14 else 0.0) / 0.6)


def h_of_draws(x, y, w, z):
    """h of draws x with target y, and of draws w with target z, by loops."""
    half = (len(x) + 1) // 2
    terms = []
    for a, b, c, d in (
        (x[:half], x[half:], w[:half], w[half:]),
        (x[half:], x[:half], w[half:], w[:half]),
    ):
        of_targets = k(y, z) - mean_k(b, [z]) - mean_k([y], d) + mean_k(b, d)
        terms.append(of_predictions(a, c) * of_targets)
    return np.mean(terms)


def data(n, n_draws, *axes):
    rng = np.random.default_rng(n_draws)
    centre = rng.normal(size=(n, 1, *axes))
    draws = centre + rng.normal(size=(n, n_draws, *axes))
    return draws, centre[:, 0] + rng.normal(size=(n, *axes))


@pytest.mark.parametrize(("n_draws", "axes"), [(2, ()), (5, ()), (4, (2,))])
def test_h_is_that_of_a_loop(n_draws, axes, float64):
    n = 6
    x, y = data(n, n_draws, *axes)
    expected = np.array([[h_of_draws(x[i], y[i], x[j], y[j]) for j in range(n)] for i in range(n)])
    predictions = cj.Empirical(jnp.array(x), fair=True)
    found = cj.h_matrix(KERNEL, predictions, jnp.array(y))
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-14)
    # A sum of two positive semidefinite matrices, and not what the samples themselves give.
    assert np.linalg.eigvalsh(expected)[0] > -1e-14
    plain = cj.h_matrix(KERNEL, cj.Empirical(jnp.array(x)), jnp.array(y))
    assert np.max(np.abs(plain - expected)) > 0.01


# What is built on h.


@pytest.fixture
def batch():
    x, y = data(6, 5)
    predictions, targets = cj.Empirical(jnp.array(x), fair=True), jnp.array(y)
    return predictions, targets, np.array(cj.h_matrix(KERNEL, predictions, targets))


@pytest.mark.slow
def test_masks_weights_and_blocks(float64, batch):
    predictions, targets, h = batch
    weights = np.array([1.0, 0.5, 2.0, 1.0, 0.0, 3.0])
    kept = np.array([1, 1, 0, 1, 1, 1], bool)
    w = weights * kept
    bad = cj.Empirical(predictions.samples.at[2].set(jnp.nan), fair=True)
    found = cj.skce(KERNEL, bad, targets, unbiased=False, where=kept, weights=weights)
    np.testing.assert_allclose(found, w @ h @ w / w.sum() ** 2, rtol=1e-12)
    in_blocks = np.mean([h[i, i + 1] for i in (0, 2, 4)])
    state = cj.SKCEState.empty(2).update(KERNEL, predictions, targets)
    np.testing.assert_allclose(state.compute().estimate, in_blocks, rtol=1e-12)


@pytest.mark.slow
def test_deviations(float64, batch):
    # At a location all of its draws are the prediction.
    predictions, targets, _ = batch
    x, y = np.array(predictions.samples), np.array(targets)
    (w,), (z,) = data(1, 5)
    expected = np.mean(
        [
            of_predictions(a, w) * (k(y_i, z) - mean_k(b, [z]))
            for x_i, y_i in zip(x, y, strict=True)
            for a, b in ((x_i[:3], x_i[3:]), (x_i[3:], x_i[:3]))
        ]
    )
    location = cj.Empirical(jnp.array([w]), fair=True), jnp.array([z])
    found = cj.witness(KERNEL, predictions, targets, *location)
    np.testing.assert_allclose(found, [expected], rtol=1e-10)


@pytest.mark.slow
def test_derivatives(float64, batch):
    predictions, targets, _ = batch

    def loss(draws, targets):
        return cj.skce(KERNEL, cj.Empirical(draws, fair=True), targets)

    arguments = predictions.samples[:3], targets[:3]
    check_grads(jax.jit(loss), arguments, order=1, modes=["rev"], rtol=1e-6)
    # Equal halves have the distance 0.
    ties = jnp.zeros((3, 5)), jnp.arange(3.0)
    assert all(np.all(np.isfinite(g)) for g in jax.grad(loss, (0, 1))(*ties))


@pytest.mark.slow
def test_mixtures_of_draws(float64):
    x, y = data(4, 12)
    components = x.reshape(4, 3, 4)
    # The halves of a mixture are mixtures of the halves of its components.
    pooled = np.concatenate(
        [components[..., :2].reshape(4, 6), components[..., 2:].reshape(4, 6)], 1
    )
    mixture = cj.Mixture.ensemble(cj.Empirical(jnp.array(components), fair=True))
    found, expected = (
        cj.h_matrix(KERNEL, predictions, jnp.array(y))
        for predictions in (mixture, cj.Empirical(jnp.array(pooled), fair=True))
    )
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-14)


@pytest.mark.slow
def test_random_features(key, float64):
    kernel, predictions, targets = sample("empirical_draws-embedding-gaussian")
    found = cj.random_feature_skce(key, kernel, predictions, targets, n_features=50_000)
    errors = [
        (cj.skce(kernel, p, targets) - found.estimate) / found.standard_error
        for p in (predictions, cj.Empirical(predictions.samples))
    ]
    assert abs(errors[0]) < 4
    assert abs(errors[1]) > 10  # of the samples themselves


# What is unbiased.

# The laws that two predictions are draws from, and those of their targets.
POINTS = np.array([-0.7, 0.4, 1.1])
PREDICTED = np.array([[0.2, 0.5, 0.3], [0.6, 0.1, 0.3]])
WRONG = np.array([[0.3, 0.3, 0.4], [0.5, 0.1, 0.4]])


def all_draws(law, target_law, n_draws):
    """All values of draws from a law and of a target, and their probabilities."""
    index = np.array(list(itertools.product(range(3), repeat=n_draws + 1)))
    probabilities = np.prod(law[index[:, :-1]], 1) * target_law[index[:, -1]]
    return POINTS[index[:, :-1]], POINTS[index[:, -1]], probabilities


def expectations(n_draws, target_laws, fair):
    """E h_12 and E h_11 over all draws and targets of two predictions, exactly."""
    pairs = zip(PREDICTED, target_laws, strict=True)
    ours, theirs = (all_draws(*laws, n_draws) for laws in pairs)
    # Only rows of different predictions meet: one matrix holds h of all pairs of their values.
    draws, targets = (
        jnp.array(np.concatenate(x)) for x in list(zip(ours, theirs, strict=True))[:2]
    )
    h = np.array(cj.h_matrix(KERNEL, cj.Empirical(draws, fair=fair), targets))
    n = len(ours[0])
    return ours[2] @ h[:n, n:] @ theirs[2], ours[2] @ np.diag(h)[:n]


@pytest.mark.parametrize("n_draws", [2, 3])
def test_the_mean_is_that_of_the_distributions(n_draws, float64):
    K = np.array([[k(x, z) for z in POINTS] for x in POINTS])

    of_pair, of_one = expectations(n_draws, PREDICTED, fair=True)
    assert abs(of_pair) < 1e-14
    # On the diagonal a half meets itself.
    p = PREDICTED[0]
    halves = np.array([n_draws // 2, (n_draws + 1) // 2])
    np.testing.assert_allclose(of_one, np.mean(1 + 1 / halves) * (1 - p @ K @ p), rtol=1e-12)
    # The samples themselves look wrong.
    assert expectations(n_draws, PREDICTED, fair=False)[0] > 0.003

    # A wrong model: the SKCE of the laws, with the mean of the kernel over halves.
    of_halves = []
    for size in halves:
        index = list(itertools.product(range(3), repeat=size))
        of_all = [[of_predictions(POINTS[list(a)], POINTS[list(b)]) for b in index] for a in index]
        ours, theirs = (np.prod(law[np.array(index)], 1) for law in PREDICTED)
        of_halves.append(ours @ np.array(of_all) @ theirs)
    residuals = WRONG - PREDICTED
    expected = np.mean(of_halves) * (residuals[0] @ K @ residuals[1])
    assert abs(expected) > 1e-3
    found, _ = expectations(n_draws, WRONG, fair=True)
    np.testing.assert_allclose(found, expected, rtol=1e-11)


# Errors.

BAD = {
    ValueError: {
        r"samples must hold at least 2 draws .* with fair=True, got shape \[6, 1\]": lambda: (
            cj.skce(KERNEL, cj.Empirical(jnp.ones((6, 1)), fair=True), jnp.ones(6))
        ),
        "samples must hold at least 2 draws": lambda: cj.default_kernel(
            cj.Mixture.ensemble(cj.Empirical(jnp.ones((6, 3, 1)), fair=True))
        ),
        "weights must be None with fair=True.*got ArrayImpl": lambda: cj.Empirical(
            jnp.ones((6, 2)), jnp.full((6, 2), 0.5), fair=True
        ),
    },
    TypeError: {"fair must be a bool, got int": lambda: cj.Empirical(jnp.ones((6, 2)), fair=1)},
}


@pytest.mark.parametrize("case", calls(BAD))
def test_bad_arguments(case):
    check_message(*case)
