"""Kernels and distances against SciPy, pair by pair and tile by tile."""

import dataclasses
import functools
import itertools
import operator

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from golden import recompute
from instances import DISTANCES, FAMILIES, KERNELS, TARGET_KERNELS, cast, ordinal, sample
from marks import fast_in_float32, slow
from rules import row, rule
from scipy import special
from scipy.spatial.distance import cdist

import calibjax as cj
from calibjax._loops import coordinate_sums
from calibjax.discrepancy import h, h_tile, normal_form, prepared
from calibjax.kernels.base import pairwise

BATCHES = [
    (distance, family) for distance, (_, families) in DISTANCES.items() for family in families
]
# Their closed forms of an MMD take long to compile; the way to the distance is the same for all.
SLOW = {
    ("mean_embedding", family) for family in ("full", "poisson", "mixture", "ensemble", "empirical")
}


def vmap_pairs(function, xs, ys):
    return jax.vmap(lambda x: jax.vmap(lambda y: function(x, y))(ys))(xs)


tile = jax.jit(pairwise)


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


@pytest.mark.parametrize("d", slow({1}, [None, 1, 3]))
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
        kernel = dataclasses.replace(kernel, lengthscale=scale)
    points = [(z / scale).reshape(7, -1) for z in (x, y)]
    matrix = tile(kernel, x, y)
    np.testing.assert_allclose(matrix, FORMULAS[name](*points), rtol=1e-12)
    # x / l - y / l in one rounding is no 0 where x = y.
    np.testing.assert_allclose(np.diag(tile(kernel, x, x)), 1, rtol=4 * np.finfo(float).eps)


def probability_vectors(p):
    return p.probs if p.probs.ndim == 2 else np.stack([1 - p.probs, p.probs], 1)


KINDS = {
    cj.Normal: "normal",
    cj.Laplace: "laplace",
    cj.MultivariateNormalDiag: "multivariate_normal_diag",
    cj.MultivariateNormalFullCovariance: "multivariate_normal_full",
    cj.Mixture: "normal_mixture",
}


def dicts(p):
    """The predictions of a batch as `recompute` takes them."""
    fields = {"kind": KINDS[type(p)], **vars(p)}
    if isinstance(p, cj.Mixture):
        fields = {"kind": "normal_mixture", "weights": p.weights, **vars(p.components)}
    if isinstance(p, cj.MultivariateNormalFullCovariance):
        fields["covariance"] = fields.pop("covariance_matrix")
    return recompute.unbatch(fields)


def by_recomputation(distance):
    return lambda ps, qs: np.array([[distance(p, q) for q in dicts(qs)] for p in dicts(ps)])


def embedded(p):
    return 0.7 * np.stack([p.loc, np.log(p.scale)], 1)


def maximum_mean_discrepancy(ps, qs):
    """By quadrature: the mean of k over pairs of nodes, with weights that differ in sign."""
    n_ps = len(jax.tree.leaves(ps)[0])
    values = np.empty((n_ps, len(jax.tree.leaves(qs)[0])))
    for i, j in np.ndindex(values.shape):
        (x, w), (z, v) = (rule(row(p, k), 0.0) for p, k in ((ps, i), (qs, j)))
        points = np.concatenate([x, z]).reshape(len(x) + len(z), -1) / 0.8
        signed = np.concatenate([w, -v])
        values[i, j] = np.sqrt(signed @ np.exp(-cdist(points, points, "sqeuclidean") / 2) @ signed)
    return values


DISTANCE_FORMULAS = {
    "total_variation": lambda p, q: (
        cdist(probability_vectors(p), probability_vectors(q), "cityblock") / 2
    ),
    "euclidean": lambda p, q: cdist(probability_vectors(p), probability_vectors(q)),
    "wasserstein": by_recomputation(recompute.wasserstein),
    "mixture_wasserstein": by_recomputation(recompute.mixture_wasserstein),
    "embedding": lambda p, q: cdist(p.loc.reshape(len(p.loc), -1), q.loc.reshape(len(q.loc), -1)),
    "embedding_partial": lambda p, q: cdist(embedded(p), embedded(q)),
    "mean_embedding": maximum_mean_discrepancy,
}

# By quadrature along two axes, and of each of many components.
LONG = {("mean_embedding", "full"), ("mean_embedding", "mixture")}


@pytest.mark.parametrize(("name", "family"), slow(LONG, BATCHES))
def test_distances(name, family, float64):
    distance = cast(DISTANCES[name][0])
    ps, qs = (FAMILIES[family](5, seed)[0] for seed in (0, 1))
    pairwise = jax.jit(distance.pairwise)
    found = pairwise(cast(ps), cast(qs))
    np.testing.assert_allclose(found, DISTANCE_FORMULAS[name](ps, qs), rtol=1e-12)
    # A prediction is at distance 0 from itself, exactly.
    np.testing.assert_array_equal(np.diag(pairwise(cast(ps), cast(ps))), 0)


SQUARES = [batch for batch in BATCHES if hasattr(DISTANCES[batch[0]][0], "squared")]


@pytest.mark.parametrize(
    ("name", "family", "squared"),
    slow({(*batch, False) for batch in SLOW}, [(*batch, False) for batch in BATCHES])
    # Those that are compiled the same way are tried once.
    + slow(
        {("mixture_wasserstein", "mixture", True)},
        [(*batch, True) for batch in SQUARES if batch[0] != "mean_embedding"],
    ),
)
@fast_in_float32
def test_tiles_of_distances_are_those_of_pairs(name, family, squared, dtype):
    # In value and in gradient; with rows in common, where the distance has its kink.
    distance, ps = cast((DISTANCES[name][0], FAMILIES[family](9, 0)[0]), dtype)
    qs = jax.tree.map(lambda x: np.asarray(x)[2:6], ps)
    weights = np.asarray(np.random.default_rng(0).normal(size=(9, 4)), dtype)
    of_pair, of_tile = (distance, distance.pairwise)
    if squared:
        of_pair, of_tile = distance.squared, distance.pairwise_squared

    def values_and_gradients(function, ps, qs):
        def total(ps, qs):
            values = function(ps, qs)
            return jnp.sum(weights * values), values

        return jax.grad(total, argnums=(0, 1), has_aux=True)(ps, qs)

    @jax.jit
    def both(*rows):
        of_pairs = functools.partial(vmap_pairs, of_pair)
        return values_and_gradients(of_pairs, *rows), values_and_gradients(of_tile, *rows)

    expected, found = both(ps, qs)
    eps = 20 * float(jnp.finfo(dtype).eps)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=eps, atol=eps)


def test_gaussian_tiles_by_products_of_matrices():
    # In value and gradient as in float64: equal rows, rows within 1e-4, and one that is too far
    # for products where the lengthscale is small.
    rng = np.random.default_rng(0)
    probs = np.repeat(rng.dirichlet(np.ones(12), 8), 2, axis=0)
    probs[8:] += 1e-4 * rng.normal(size=(8, 12))
    points = np.concatenate([probs, np.eye(12)[:1]])
    weights = rng.normal(size=(17, 17))

    def found(points, lengthscale):
        kernel = cj.DistanceKernel(cj.EmbeddingDistance(lambda p: p.loc), lengthscale, 2.0)
        rows = cj.MultivariateNormalDiag(points, jnp.ones_like(points))
        values = kernel.pairwise(rows, rows)
        return jnp.sum(weights.astype(points.dtype) * values), values

    gradient = jax.jit(jax.value_and_grad(found, has_aux=True))
    for unit, lengthscale in itertools.product([1e-3, 1.0, 1e3], [0.6, 0.1]):
        rows = (unit * points).astype("float32")
        (_, values), slope = gradient(rows, np.float32(unit * lengthscale))
        differences = (rows[:, None].astype(float) - rows[None]) / (unit * lengthscale)
        exact = np.exp(-np.sum(differences**2, axis=-1))
        np.testing.assert_allclose(values, exact, atol=5e-6)
        both = (weights + weights.T) * exact
        expected = -2 * np.einsum("ij,ijc->ic", both, differences)
        np.testing.assert_allclose(unit * lengthscale * slope, expected, atol=1e-5)


@pytest.mark.parametrize("family", ["normal", "diag", "categorical"])
def test_mean_embedding_distance_of_near_predictions(family):
    # Forms that keep their digits: in float32 within a few units of rounding of float64, where a
    # difference of norms would have none, from a millionth of the distance of strangers to it.
    ps = cast(FAMILIES[family](6, 0)[0], "float32")
    tiny = jax.tree.map(lambda x: (x * (1 + 3e-6)).astype("float32"), ps)
    far = jax.tree.map(lambda x: x[::-1], ps)
    wide = jax.tree.map(lambda x: 300 * x, ps)
    kernel = cj.GaussianKernel(np.float32(0.8))
    for qs in (tiny, far) if family == "categorical" else (tiny, far, wide):
        with jax.enable_x64(True):
            exact = np.array(distances_in_rows(cast(kernel), cast(ps), cast(qs)))
        found = distances_in_rows(cast(kernel, "float32"), ps, qs)
        assert found.dtype == np.float32 and np.all(exact > 0)
        np.testing.assert_allclose(found, exact, rtol=3e-6)


@jax.jit
def distances_in_rows(kernel, ps, qs):
    return jax.vmap(cj.MeanEmbeddingDistance(kernel))(ps, qs)


@pytest.mark.parametrize(
    "family",
    slow({"laplace", "full", "poisson"}, ["laplace", "mixture", "empirical", "full", "poisson"]),
)
def test_mean_embedding_distance_of_equal_predictions(family):
    # Where it is a difference of norms: 0 with slope 0, not the root of its rounding.
    kernel = cj.DistanceKernel(cj.MeanEmbeddingDistance(cj.GaussianKernel(0.8)))
    ps = cast(FAMILIES[family](5, 0)[0], "float32")
    ps = jax.tree.map(lambda x: x[np.array([0, 0, 1, 1, 0])], ps)

    @jax.jit
    def values_and_gradient(ps):
        def total(qs):
            values = kernel.pairwise(ps, qs)
            return jnp.sum(jnp.where(values > 0.999, values, 0.0)), values

        return jax.value_and_grad(total, has_aux=True)(ps)

    (_, values), gradient = values_and_gradient(ps)
    same = np.array([0, 0, 1, 1, 0])[:, None] == np.array([0, 0, 1, 1, 0])
    np.testing.assert_array_equal(np.array(values) == 1, same)
    for leaf in jax.tree.leaves(gradient):
        np.testing.assert_array_equal(leaf, 0)


@pytest.mark.parametrize("exponent", slow({1.5}, [0.5, 1.0, 1.5, 2.0]))
def test_distance_kernel(exponent, float64):
    predictions = FAMILIES["categorical"](6, 0)[0]
    for distance in (cj.TotalVariation(), cj.Euclidean()):
        kernel = cj.DistanceKernel(distance, 0.3, exponent)
        name = "total_variation" if isinstance(distance, cj.TotalVariation) else "euclidean"
        distances = DISTANCE_FORMULAS[name](predictions, predictions)

        @jax.jit
        def both(p, kernel=kernel):
            return kernel.pairwise(p, p), vmap_pairs(kernel, p, p)

        found, of_pairs = both(cast(predictions))
        np.testing.assert_allclose(found, np.exp(-((distances / 0.3) ** exponent)), rtol=1e-12)
        np.testing.assert_allclose(found, of_pairs, rtol=1e-12)


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
    x = np.random.default_rng(0).normal(size=(16, 2))
    assert_positive(tile(TARGET_KERNELS[name], x, x))


@pytest.mark.parametrize(
    ("name", "family"),
    # The others are not known to be.
    slow(
        SLOW,
        [
            batch
            for batch in BATCHES
            if batch not in (("wasserstein", "full"), ("mixture_wasserstein", "mixture"))
        ],
    ),
)
def test_prediction_kernels_are_positive_definite(name, family, float64):
    # Distances here are Hilbertian; the total variation only allows exponents up to 1, and small
    # ones magnify the rounding of a distance that is the root of a difference.
    distance, p = cast((DISTANCES[name][0], FAMILIES[family](16, 0)[0]))
    exponents = {"total_variation": (0.5, 1.0), "mean_embedding": (1.0, 2.0)}
    exponents = exponents.get(name, (0.5, 1.0, 1.5, 2.0))
    kernels = [cj.DistanceKernel(distance, 0.5, exponent) for exponent in exponents]
    for matrix in jax.jit(lambda p: [kernel.pairwise(p, p) for kernel in kernels])(p):
        assert_positive(matrix)


def assert_positive(matrix):
    matrix = np.array(matrix)
    # The root of a difference has a few digits less.
    np.testing.assert_allclose(matrix, matrix.T, rtol=1e-12, atol=1e-15)
    assert np.linalg.eigvalsh(matrix)[0] > -1e-13 * len(matrix)


# The others have each of their rules: that of gamma predictions is that of Student's t.
SLOW_TILES = {
    "student_t-embedding-gaussian",
    "categorical-algebra",
    "normal-algebra",
    "normal-w2-matern32",
    "mixture-mw2-gaussian",
}


PARTS = slice(0, 6), slice(6, 12)


@pytest.mark.parametrize("name", slow(SLOW_TILES, KERNELS))
def test_tiles_of_h_are_those_of_pairs(name, float64):
    kernel, *a = sample(name, 6)
    b = sample(name, 6, seed=5)[1:]
    kernel = normal_form(kernel)

    @jax.jit
    def both(a, b):
        # Rows are prepared together, and a tile has as many rows on either side.
        rows = prepared(kernel, jax.tree.map(lambda *x: jnp.concatenate(x), a, b), None)
        ours, theirs = (jax.tree.map(lambda x, part=part: x[part], rows) for part in PARTS)
        return h_tile(kernel, ours, theirs), vmap_pairs(functools.partial(h, kernel), a, b)

    tile, expected = both(tuple(a), b)
    # Waves end where they are within rounding.
    atol = 1e-12 if isinstance(a[0], cj.Univariate) and "gaussian" in name else 1e-15
    np.testing.assert_allclose(tile, expected, rtol=1e-12, atol=atol)


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


@pytest.mark.parametrize("m", [1, 2, 10, 32, 70])
def test_sums_over_coordinates_on_every_platform(m, float64, monkeypatch):
    rng = np.random.default_rng(m)
    p, q, weights = rng.normal(size=(5, m)), rng.normal(size=(7, m)), rng.normal(size=(5, 7))
    q[0] = p[0]
    gap = p[:, None] - q[None]
    slope = coordinate_sums.slope_of_distance
    for on_cpu in (True, False):
        monkeypatch.setattr(coordinate_sums, "on_cpu", lambda on_cpu=on_cpu: on_cpu)
        distances = functools.partial(
            coordinate_sums._sum_over_coordinates, coordinate_sums.distance, slope
        )
        found = jax.jit(distances)(p, q)
        np.testing.assert_allclose(found, np.abs(gap).sum(axis=2), rtol=1e-13)
    for slopes in (coordinate_sums._slopes_in_passes, coordinate_sums._slopes_fused):
        found = jax.jit(functools.partial(slopes, slope))(p, q, weights)
        expected = np.einsum("stm,st->tm", np.sign(gap), weights)
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-13)


N = 6
RNG = np.random.default_rng(0)
LOC, SCALE = RNG.normal(size=N).astype("float32"), RNG.uniform(0.5, 1.5, N).astype("float32")
GAUSSIAN, WHITE, TV = cj.GaussianKernel(1.0), cj.WhiteKernel(), cj.TotalVariation()


@pytest.mark.parametrize("scale", [-1.0, 0.0, np.inf, np.nan])
def test_invalid_scales_poison(scale):
    functions = {
        "lengthscale of GaussianKernel": lambda s, x: cj.GaussianKernel(s)(x, 0 * x),
        "lengthscale of Matern32Kernel": lambda s, x: cj.Matern32Kernel(s)(x, 0 * x),
        "lengthscale of DistanceKernel": lambda s, x: cj.DistanceKernel(TV, s)(
            cj.Bernoulli(x), cj.Bernoulli(x / 2)
        ),
    }
    for name, function in functions.items():
        # As a constant, where a NaN would be compiled into any number, and as an argument.
        message = f"{name} must be positive and finite"
        with pytest.raises(ValueError, match=message):
            jax.jit(lambda x, f=function: f(scale, x))(1.0)
        with pytest.raises(ValueError, match=message):
            function(scale, jnp.array(1.0))
        assert np.isnan(jax.jit(function)(scale, 1.0))


@pytest.mark.parametrize("unit", [1e-20, 1e20])
def test_a_square_of_covariances_in_units_that_cannot_be_squared(unit):
    # A covariance of zeros is what float32 makes of small ones: the distance does not look at it.
    loc, covariance = (
        LOC[:, None] * np.float32(unit),
        np.tile(np.eye(1, dtype="float32"), (N, 1, 1)),
    )
    predictions = cj.MultivariateNormalFullCovariance(loc, covariance)
    kernel = cj.DistanceKernel(cj.Wasserstein(), unit)
    with pytest.raises(ValueError, match="a scale whose square float32 can hold, .*: rescale"):
        kernel.pairwise(predictions, predictions)
    if unit > 1:
        assert np.isnan(jax.jit(cj.median_heuristic)(cj.Wasserstein(), predictions))


@pytest.mark.parametrize(
    ("distance", "exponent"),
    [
        (cj.Wasserstein(), 1.0),
        *(
            pytest.param(distance, exponent, marks=pytest.mark.slow)
            for distance in (cj.Wasserstein(), cj.EmbeddingDistance(lambda p: p.loc))
            for exponent in (0.5, 1.0, 2.0)
        ),
    ],
)
def test_kernels_of_distances_do_not_depend_on_units(distance, exponent):
    @jax.jit
    def values(p, unit):
        kernel = cj.DistanceKernel(distance, 0.7 * unit, exponent)
        total, slope = jax.value_and_grad(lambda p: jnp.sum(kernel.pairwise(p, p)[0]))(p)
        between = distance.pairwise(p, p) / unit, distance(p[0], p[1]) / unit, kernel(p[0], p[1])
        return total, slope.loc * unit, *between

    def in_units(unit):
        unit = np.float32(unit)
        return values(cj.Normal(LOC * unit, SCALE * unit), unit)

    for unit in 1e-30, 1e30:
        for found, expected in zip(in_units(unit), in_units(1.0), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
