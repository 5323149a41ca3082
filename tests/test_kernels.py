"""Kernels and distances against SciPy, pair by pair and tile by tile."""

import functools
import operator

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from golden import recompute
from instances import DISTANCES, FAMILIES, KERNELS, TARGET_KERNELS, cast, ordinal, sample
from scipy import special
from scipy.spatial.distance import cdist

import calibjax as cj
from calibjax.discrepancy import h, h_tile
from calibjax.kernels import pairwise

BATCHES = [
    (distance, family) for distance, (_, families) in DISTANCES.items() for family in families
]
every_distance = pytest.mark.parametrize(("name", "family"), BATCHES)


def vmap_pairs(function, xs, ys):
    return jax.vmap(lambda x: jax.vmap(lambda y: function(x, y))(ys))(xs)


def matern(order, r):
    """The general formula, for r > 0; with Bessel functions, not polynomials."""
    r = np.sqrt(2 * order) * np.where(r > 0, r, 1.0)
    return 2 ** (1 - order) / special.gamma(order) * r**order * special.kv(order, r)


# Of points [n, d], already in units of the lengthscale.
FORMULAS = {
    "white": lambda x, y: cdist(x, y, "chebyshev") == 0,
    "gaussian": lambda x, y: np.exp(-cdist(x, y, "sqeuclidean") / 2),
    "laplacian": lambda x, y: np.exp(-cdist(x, y, "cityblock")),
    "matern32": lambda x, y: matern(1.5, cdist(x, y)),
    "matern52": lambda x, y: matern(2.5, cdist(x, y)),
}


@pytest.mark.parametrize("d", [None, 1, 3])
@pytest.mark.parametrize("ard", [False, True])
@pytest.mark.parametrize("name", TARGET_KERNELS)
def test_target_kernels(name, ard, d, float64):
    kernel = TARGET_KERNELS[name]
    rng = np.random.default_rng(0)
    shape = (7,) if d is None else (7, d)
    x, y = rng.normal(size=shape), rng.normal(size=shape)
    scale = getattr(kernel, "lengthscale", 1.0)
    if ard and d and name != "white":
        scale = scale * np.array([1.0, 2.0, 0.5])[:d]
        kernel = type(kernel)(jnp.array(scale))
    points = [(z / scale).reshape(7, -1) for z in (x, y)]
    matrix = pairwise(kernel, jnp.array(x), jnp.array(y))
    np.testing.assert_allclose(matrix, FORMULAS[name](*points), rtol=1e-12)
    same = pairwise(kernel, jnp.array(x), jnp.array(x))
    np.testing.assert_array_equal(jnp.diag(same), 1)


def probability_vectors(p):
    return p.probs if p.probs.ndim == 2 else np.stack([1 - p.probs, p.probs], 1)


def wasserstein(ps, qs):
    def dicts(p):
        if isinstance(p, cj.Normal):
            return recompute.unbatch({"kind": "normal", "loc": p.loc, "scale": p.scale})
        parameters = {"loc": p.loc, "scale_diag": p.scale_diag}
        return recompute.unbatch({"kind": "multivariate_normal_diag", **parameters})

    return np.array([[recompute.wasserstein(p, q) for q in dicts(qs)] for p in dicts(ps)])


def embedded(p):
    return 0.7 * np.stack([p.loc, np.log(p.scale)], 1)


DISTANCE_FORMULAS = {
    "total_variation": lambda p, q: (
        cdist(probability_vectors(p), probability_vectors(q), "cityblock") / 2
    ),
    "euclidean": lambda p, q: cdist(probability_vectors(p), probability_vectors(q)),
    "wasserstein": wasserstein,
    "embedding": lambda p, q: cdist(p.loc.reshape(len(p.loc), -1), q.loc.reshape(len(q.loc), -1)),
    "embedding_partial": lambda p, q: cdist(embedded(p), embedded(q)),
}


@every_distance
def test_distances(name, family, float64):
    distance = cast(DISTANCES[name][0])
    ps, qs = FAMILIES[family](5, 0)[0], FAMILIES[family](4, 1)[0]
    tile = distance.pairwise(cast(ps), cast(qs))
    np.testing.assert_allclose(tile, DISTANCE_FORMULAS[name](ps, qs), rtol=1e-12)
    # A prediction is at distance 0 from itself, exactly.
    np.testing.assert_array_equal(jnp.diag(distance.pairwise(cast(ps), cast(ps))), 0)


@pytest.mark.parametrize(
    ("name", "family", "squared"),
    [(*batch, False) for batch in BATCHES]
    + [(*batch, True) for batch in BATCHES if hasattr(DISTANCES[batch[0]][0], "squared")],
)
def test_tiles_of_distances_are_those_of_pairs(name, family, squared, dtype):
    # In value and in gradient; with rows in common, where the distance has its kink.
    distance, ps = cast((DISTANCES[name][0], FAMILIES[family](9, 0)[0]), dtype)
    qs = jax.tree.map(lambda x: x[2:6], ps)
    weights = jnp.asarray(np.random.default_rng(0).normal(size=(9, 4)), dtype)
    of_pair, of_tile = (distance, distance.pairwise)
    if squared:
        of_pair, of_tile = distance.squared, distance.pairwise_squared

    def values_and_gradients(function):
        def total(ps, qs):
            values = function(ps, qs)
            return jnp.sum(weights * values), values

        return jax.jit(jax.grad(total, argnums=(0, 1), has_aux=True))(ps, qs)

    expected = values_and_gradients(functools.partial(vmap_pairs, of_pair))
    found = values_and_gradients(of_tile)
    eps = 20 * float(jnp.finfo(dtype).eps)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=eps, atol=eps)


@pytest.mark.parametrize("exponent", [0.5, 1.0, 1.5, 2.0])
def test_distance_kernel(exponent, float64):
    predictions = FAMILIES["categorical"](6, 0)[0]
    for distance in (cj.TotalVariation(), cj.Euclidean()):
        kernel = cj.DistanceKernel(distance, 0.3, exponent)
        name = "total_variation" if isinstance(distance, cj.TotalVariation) else "euclidean"
        distances = DISTANCE_FORMULAS[name](predictions, predictions)
        tile = kernel.pairwise(cast(predictions), cast(predictions))
        np.testing.assert_allclose(tile, np.exp(-((distances / 0.3) ** exponent)), rtol=1e-12)
        np.testing.assert_allclose(
            tile, vmap_pairs(kernel, cast(predictions), cast(predictions)), rtol=1e-12
        )


# The algebra of kernels.

ALGEBRA = {
    "sum": (lambda k, j: k + j, operator.add),
    "product": (lambda k, j: k * j, operator.mul),
    "scaled": (lambda k, j: 3.0 * k, lambda a, b: 3 * a),
    "scaled from the right": (lambda k, j: k * 3.0, lambda a, b: 3 * a),
    "nested": (lambda k, j: 2.0 * (k + j) * k + j, lambda a, b: 2 * (a + b) * a + b),
}


@pytest.mark.parametrize("name", ALGEBRA)
def test_algebra(name, float64):
    combine, of_values = ALGEBRA[name]
    k, j = cj.GaussianKernel(0.8), cj.Matern32Kernel(1.2)
    x = jnp.array(np.random.default_rng(0).normal(size=5))
    expected = of_values(np.array(pairwise(k, x, x)), np.array(pairwise(j, x, x)))
    kernel = combine(k, j)
    assert isinstance(kernel, cj.Kernel)
    np.testing.assert_allclose(pairwise(kernel, x, x), expected, rtol=1e-14)
    np.testing.assert_allclose(kernel(x[0], x[1]), expected[0, 1], rtol=1e-14)


def test_functions_join_the_algebra(float64):
    labels = jnp.arange(4)
    white, function = np.eye(4), np.array(pairwise(ordinal, labels, labels))
    for kernel in (ordinal + cj.WhiteKernel(), cj.WhiteKernel() + ordinal):
        np.testing.assert_allclose(pairwise(kernel, labels, labels), white + function)
    for kernel in (ordinal * cj.WhiteKernel(), cj.WhiteKernel() * ordinal):
        np.testing.assert_allclose(pairwise(kernel, labels, labels), white * function)


@pytest.mark.parametrize("other", ["text", None, [1.0]])
def test_kernels_do_not_add_to_anything(other):
    with pytest.raises(TypeError):
        cj.WhiteKernel() + other


def test_h_is_linear_in_the_kernel(float64):
    _, predictions, targets = sample("categorical-tv-white")
    k = KERNELS["categorical-tv-white"][1]
    j = KERNELS["categorical-euclidean-gaussian"][1]
    combined = cj.h_matrix(0.3 * k + 2.0 * j, predictions, targets)
    parts = [np.array(cj.h_matrix(kernel, predictions, targets)) for kernel in (k, j)]
    np.testing.assert_allclose(combined, 0.3 * parts[0] + 2 * parts[1], rtol=1e-12, atol=1e-16)


# Matrices of kernels and of h.


@pytest.mark.parametrize("name", TARGET_KERNELS)
def test_target_kernels_are_positive_definite(name, float64):
    x = jnp.array(np.random.default_rng(0).normal(size=(16, 2)))
    assert_positive(pairwise(TARGET_KERNELS[name], x, x))


@every_distance
def test_prediction_kernels_are_positive_definite(name, family, float64):
    # Distances here are Hilbertian; the total variation only allows exponents up to 1.
    distance, p = cast((DISTANCES[name][0], FAMILIES[family](16, 0)[0]))
    for exponent in (0.5, 1.0) if name == "total_variation" else (0.5, 1.0, 1.5, 2.0):
        assert_positive(cj.DistanceKernel(distance, 0.5, exponent).pairwise(p, p))


@pytest.mark.parametrize("name", [name for name in KERNELS if name != "categorical-joint"])
def test_h_is_positive_definite(name, float64):
    assert_positive(cj.h_matrix(*sample(name, 12)))


def assert_positive(matrix):
    np.testing.assert_allclose(matrix, matrix.T, rtol=1e-13, atol=1e-15)
    assert np.linalg.eigvalsh(np.array(matrix))[0] > -1e-13 * len(matrix)


@pytest.mark.parametrize("name", KERNELS)
def test_tiles_of_h_are_those_of_pairs(name, float64):
    kernel, *a = sample(name, 6)
    b = sample(name, 4, seed=5)[1:]
    expected = jax.jit(lambda a, b: vmap_pairs(functools.partial(h, kernel), a, b))(tuple(a), b)
    tile = jax.jit(functools.partial(h_tile, kernel))(tuple(a), b)
    np.testing.assert_allclose(tile, expected, rtol=1e-12, atol=1e-15)


def test_h_of_a_joint_kernel_that_is_a_product(float64):
    # The four terms of h one by one, for a tensor product that the library cannot see.
    kernel, predictions, targets = sample("categorical-euclidean-gaussian", 6)

    def hidden(a, b):
        return kernel(a, b)

    value = cj.h_matrix(hidden, predictions, targets)
    np.testing.assert_allclose(value, cj.h_matrix(kernel, predictions, targets), atol=1e-14)


def test_h_of_a_joint_kernel_by_enumeration(float64):
    kernel, predictions, targets = sample("categorical-joint", 5)
    probs, y, m = np.array(predictions.probs), np.array(targets), 4

    def k(i, a, j, b):
        d = probs[i] - probs[j]
        return np.exp(-np.sum(d**2) - (d[a] - d[b]) ** 2)

    expected = np.empty((5, 5))
    for i, j in np.ndindex(5, 5):
        value = k(i, y[i], j, y[j])
        value -= sum(probs[i, a] * k(i, a, j, y[j]) for a in range(m))
        value -= sum(probs[j, b] * k(i, y[i], j, b) for b in range(m))
        for a, b in np.ndindex(m, m):
            value += probs[i, a] * probs[j, b] * k(i, a, j, b)
        expected[i, j] = value
    np.testing.assert_allclose(cj.h_matrix(kernel, predictions, targets), expected, atol=1e-14)


@pytest.mark.parametrize(
    "name", ["bernoulli-tv-white", "bernoulli-euclidean-white", "categorical-tv-function"]
)
def test_bernoulli_is_the_categorical_of_two_classes(name, float64):
    kernel = cast(KERNELS[name][1])
    _, binary, targets = sample("bernoulli-tv-white", 12)
    probs = np.array(binary.probs)
    classes = cj.Categorical(jnp.array(np.stack([1 - probs, probs], 1)))
    np.testing.assert_allclose(
        cj.h_matrix(kernel, binary, targets),
        cj.h_matrix(kernel, classes, targets),
        rtol=1e-13,
        atol=1e-15,
    )
