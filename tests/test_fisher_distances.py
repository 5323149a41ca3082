"""Distances of scores against sums in NumPy, and against the closed form for normal models."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from instances import FAMILIES, cast
from marks import slow
from messages import calls, check_message

import calibjax as cj

N = 6


def quartic(theta, y):
    return theta["loc"] - theta["scale"] * y**3


def bent(theta, y):
    """The gradient of -(y_1 - theta)^2 / 2 - (y_2 - y_1^2)^2."""
    excess = y[1] - jnp.square(y[0])
    return jnp.stack([theta - y[0] + 4 * excess * y[0], -2 * excess])


def _normal(p, x):
    return -(x - p.loc[:, None]) / p.scale[:, None] ** 2


def _student_t(p, x):
    z = x - p.loc[:, None]
    return -(p.df[:, None] + 1) * z / (p.df * p.scale**2 + z.T**2).T


def _full(p, x):
    return -np.linalg.solve(p.covariance_matrix[:, None], (x - p.loc[:, None])[..., None])[..., 0]


def _diag(p, x):
    return -(x - p.loc[:, None]) / p.scale_diag[:, None] ** 2


def _quartic(p, x):
    return p.parameters["loc"][:, None] - p.parameters["scale"][:, None] * x**3


def _bent(p, x):
    excess = x[:, 1] - x[:, 0] ** 2
    first = p.parameters[:, None] - x[:, 0] + 4 * excess * x[:, 0]
    return np.stack([first, np.broadcast_to(-2 * excess, first.shape)], -1)


def unnormalized(n, seed):
    rng = np.random.default_rng(seed)
    parameters = {"loc": rng.normal(size=n), "scale": rng.uniform(0.5, 2.0, n)}
    return cj.Unnormalized(quartic, parameters), rng.normal(size=n)


def vectors(n, seed):
    rng = np.random.default_rng(seed)
    return cj.Unnormalized(bent, rng.normal(size=n)), rng.normal(size=(n, 2))


# Predictions, and their scores [n, M] or [n, M, d] at points, by hand.
MODELS = {
    "normal": (FAMILIES["normal"], _normal),
    "student_t": (FAMILIES["student_t"], _student_t),
    "diag": (FAMILIES["diag"], _diag),
    "full": (FAMILIES["full"], _full),
    "quartic": (unnormalized, _quartic),
    "bent": (vectors, _bent),
}
every_model = pytest.mark.parametrize("name", slow(MODELS.keys() - {"quartic", "full"}, MODELS))


def case(name, n_points=7):
    """Predictions, points, and the scores there."""
    build, scores_at = MODELS[name]
    predictions, targets = build(N, 0)
    points = np.random.default_rng(3).normal(size=(n_points, *targets.shape[1:]))
    return predictions, points, scores_at(predictions, points).reshape(N, n_points, -1)


def pairs(kernel, predictions):
    """The values of all pairs, one by one."""
    return jax.vmap(lambda p: jax.vmap(lambda q: kernel(p, q))(predictions))(predictions)


@every_model
def test_fisher_is_the_mean_over_the_points(name, float64):
    predictions, points, scores = case(name)
    difference = scores[:, None] - scores
    expected = np.sqrt(np.sum(difference**2, (2, 3)) / len(points))
    found = jax.jit(pairs)(*cast((cj.FisherDistance(points), predictions)))
    np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-14)
    np.testing.assert_array_equal(np.diagonal(found), 0)


def gaussian_matrix(points, scale):
    points = points.reshape(len(points), -1)
    squares = np.sum((points[:, None] - points) ** 2, -1)
    return np.exp(-squares / (2 * scale**2))


def double_sum(scores, matrix):
    difference = scores[:, None] - scores
    return np.einsum("ijmd,ijkd,mk->ij", difference, difference, matrix) / len(matrix) ** 2


@every_model
def test_kernelized_fisher_is_the_double_sum(name, float64):
    predictions, points, scores = case(name)
    expected = double_sum(scores, gaussian_matrix(points, 0.6))
    distance = cj.KernelizedFisherDistance(points, cj.GaussianKernel(0.6))
    found = jax.jit(pairs)(*cast((distance, predictions)))
    np.testing.assert_allclose(np.square(found), expected, rtol=1e-11, atol=1e-14)
    np.testing.assert_array_equal(np.diagonal(found), 0)


@pytest.mark.slow
@pytest.mark.parametrize("n_points", [30, 300])
@pytest.mark.parametrize("lengthscale", [0.01, 0.3, 3.0, 100.0])
@pytest.mark.parametrize("name", ["normal", "quartic", "bent"])
def test_single_precision(name, lengthscale, n_points):
    # At a long lengthscale the matrix of the points is singular but for rounding errors.
    predictions, points, scores = case(name, n_points)
    expected = double_sum(scores, gaussian_matrix(points, lengthscale))
    distance = cj.KernelizedFisherDistance(points, cj.GaussianKernel(lengthscale))
    found = jax.jit(pairs)(*cast((distance, predictions), "float32"))
    assert found.dtype == jnp.float32
    # Scores cancel in the sum: beside the result, its error is one of their squares.
    squares = np.sum((scores[:, None] - scores) ** 2, (2, 3)) / n_points
    error = np.abs(np.square(np.array(found, float)) - expected)
    assert np.all(error <= 1e-4 * expected + 2e-6 * squares)
    fisher = jax.jit(pairs)(*cast((cj.FisherDistance(points), predictions), "float32"))
    np.testing.assert_allclose(np.square(fisher), squares, rtol=1e-5, atol=1e-6)


# Under a normal base measure, for normal models.

NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(20)
WEIGHTS = WEIGHTS / WEIGHTS.sum()


def under_normal_by_quadrature(scores_at, predictions, loc, scale):
    if np.ndim(loc) == 0:
        nodes, weights = loc + scale * NODES, WEIGHTS
    else:
        grid = np.stack(np.meshgrid(NODES, NODES, indexing="ij"), -1).reshape(-1, 2)
        nodes, weights = loc + scale * grid, np.outer(WEIGHTS, WEIGHTS).ravel()
    scores = scores_at(predictions, nodes).reshape(N, len(nodes), -1)
    return np.einsum("ijmd,m->ij", (scores[:, None] - scores) ** 2, weights)


@pytest.mark.parametrize("name", ["normal", "diag", "full"])
def test_under_normal_is_exact_for_normal_models(name, float64):
    build, scores_at = MODELS[name]
    predictions, targets = build(N, 0)
    loc, scale = (0.7, 1.4) if targets.ndim == 1 else (np.array([0.7, -2.0]), 1.4)
    expected = under_normal_by_quadrature(scores_at, predictions, loc, scale)
    distance = cj.FisherDistance.under_normal(*cast((loc, scale)))
    found = np.square(jax.jit(pairs)(distance, cast(predictions)))
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-13)


def test_the_formula_for_isotropic_normal_models(float64):
    # |a|^2 - 2 b m.a + b^2 (d s^2 + |m|^2).
    rng = np.random.default_rng(0)
    means, deviations = rng.normal(size=(N, 2)), rng.uniform(0.5, 2.0, N)
    m, s = np.array([0.7, -2.0]), 1.4
    precisions = deviations**-2
    shifts = means * precisions[:, None]
    a, b = shifts[:, None] - shifts, precisions[:, None] - precisions
    expected = np.sum(a**2, -1) - 2 * b * (a @ m) + b**2 * (2 * s**2 + m @ m)
    p = cj.MultivariateNormalDiag(means, np.stack([deviations] * 2, 1))
    found = jax.jit(pairs)(cj.FisherDistance.under_normal(*cast((m, s))), cast(p))
    np.testing.assert_allclose(np.square(found), expected, rtol=1e-12, atol=1e-13)


def test_points_of_under_normal(float64):
    distance = cj.FisherDistance.under_normal(1.0, 2.0)
    np.testing.assert_allclose(np.sort(distance.points), [-1, 3])
    points = np.array(cj.FisherDistance.under_normal(jnp.array([0.0, 1.0, 2.0]), 0.5).points)
    assert points.shape == (6, 3)
    np.testing.assert_allclose(points.mean(0), [0, 1, 2], atol=1e-15)
    np.testing.assert_allclose(np.cov(points.T, bias=True), 0.25 * np.eye(3), atol=1e-15)


# As parts of a kernel.

BUILD = {
    "fisher": cj.FisherDistance,
    "kernelized": lambda points: cj.KernelizedFisherDistance(points, cj.Matern32Kernel(0.6)),
}
both = pytest.mark.parametrize("distance", BUILD)


@both
@pytest.mark.parametrize("exponent", [1.0, pytest.param(2.0, marks=pytest.mark.slow)])
def test_kernels_are_positive_definite(distance, exponent, float64):
    predictions, points, _ = case("quartic")
    kernel = cj.DistanceKernel(BUILD[distance](points), 1.5, exponent)
    matrix = np.array(jax.jit(pairs)(*cast((kernel, predictions))))
    np.testing.assert_allclose(matrix, matrix.T, rtol=1e-14)
    assert np.linalg.eigvalsh(matrix)[0] > 1e-9 and np.all(np.diagonal(matrix) == 1)


@both
@pytest.mark.parametrize("exponent", slow({2.0}, [1.0, 2.0]))
def test_gradients_are_finite_at_equal_predictions(distance, exponent):
    points = jnp.array([-1.0, 0.5, 2.0])

    def total(loc, points):
        p = cj.Normal(loc, jnp.ones(4))
        kernel = cj.DistanceKernel(BUILD[distance](points), 0.7, exponent)
        matrix = pairs(kernel, p)
        return jnp.sum(matrix), matrix

    loc = jnp.array([0.0, 0.0, 0.0, 1.0])
    gradients, matrix = jax.jit(jax.grad(total, (0, 1), has_aux=True))(loc, points)
    np.testing.assert_array_equal(matrix[:3, :3], 1)
    assert all(np.all(np.isfinite(gradient)) for gradient in gradients)
    # The three equal predictions are moved by the fourth only, each by as much.
    np.testing.assert_allclose(
        gradients[0], gradients[0][0] * jnp.array([1.0, 1.0, 1.0, -3.0]), rtol=1e-5
    )
    assert gradients[0][0] != 0


@pytest.mark.parametrize("distance", slow({"fisher"}, BUILD))
def test_median_heuristic(distance, float64):
    predictions, points, _ = case("quartic")
    distance, p = cast((BUILD[distance](points), predictions))
    between = np.array(jax.jit(pairs)(distance, p))[np.triu_indices(N, 1)]
    np.testing.assert_allclose(cj.median_heuristic(distance, p), np.median(between), rtol=1e-12)


@pytest.mark.slow
@both
def test_gradient_in_the_points_against_differences(distance, float64):
    predictions, points, _ = case("quartic")
    p = cast(predictions)

    @jax.jit
    def total(points):
        return jnp.sum(pairs(cj.DistanceKernel(BUILD[distance](points), 2.0), p))

    gradient = jax.grad(total)(jnp.array(points))
    for j, step in enumerate(1e-5 * np.eye(len(points))):
        slope = (total(jnp.array(points + step)) - total(jnp.array(points - step))) / 2e-5
        np.testing.assert_allclose(gradient[j], slope, rtol=1e-6, atol=1e-8)


# Mistakes.

NORMAL = cj.Normal(jnp.zeros(3), jnp.ones(3))
VECTORS = cj.MultivariateNormalDiag(jnp.zeros((3, 2)), jnp.ones((3, 2)))
POINTS = jnp.array([0.0, 1.0])


def skce(distance, predictions, targets=None):
    kernel = cj.SteinKernel(cj.DistanceKernel(distance), cj.GaussianKernel(1.0))
    return cj.skce(kernel, predictions, predictions.mean() if targets is None else targets)


MISTAKES = {
    ValueError: {
        r"points .*shape \[M\].*\[4, 2\]": lambda: skce(
            cj.FisherDistance(jnp.zeros((4, 2))), NORMAL
        ),
        r"points .*shape \[M, d\].*\[2\]": lambda: skce(cj.FisherDistance(POINTS), VECTORS),
        r"points .*shape \[M, d\].*d = 2.*\[4, 3\]": lambda: skce(
            cj.FisherDistance(jnp.zeros((4, 3))), VECTORS
        ),
        "points": lambda: skce(cj.FisherDistance(POINTS.at[1].set(jnp.nan)), NORMAL),
        "scale": lambda: cj.FisherDistance.under_normal(0.0, 0.0),
        "loc": lambda: cj.FisherDistance.under_normal(jnp.eye(2), 1.0),
    },
    TypeError: {
        "points": lambda: skce(cj.FisherDistance("points"), NORMAL),
        "Poisson predictions have no score": lambda: skce(
            cj.FisherDistance(POINTS), cj.Poisson(jnp.ones(3)), jnp.ones(3, int)
        ),
        "kernel": lambda: skce(
            cj.KernelizedFisherDistance(
                POINTS, cj.SteinKernel(cj.DistanceKernel(cj.Wasserstein()), cj.GaussianKernel(1.0))
            ),
            NORMAL,
        ),
    },
}


@pytest.mark.parametrize("case", calls(MISTAKES))
def test_mistakes_are_named(case):
    check_message(*case)


def test_points_outside_of_the_support_give_nan():
    predictions = cj.Gamma(jnp.full(3, 3.0), jnp.array([1.0, 2.0, 3.0]))
    found = jax.jit(pairs)(cj.FisherDistance(jnp.array([1.0, -1.0])), predictions)
    assert jnp.all(jnp.isnan(found))
