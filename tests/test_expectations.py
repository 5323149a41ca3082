"""Closed forms against quadrature, and against each other where two families say the same."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from instances import FAMILIES, PAIRS, cast, sample
from marks import slow
from rules import row, rule
from scipy import stats

import calibjax as cj
from calibjax.expectations.dispatch import residual_product, residual_product_tile


def kinks_of(q):
    """Where the embedding of q may have kinks, or its density."""
    return getattr(getattr(q, "components", q), "loc", 0.0)


@jax.jit
def kernel_at(nodes, kernel, y):
    return jax.vmap(lambda z: kernel(z, y))(nodes)


@jax.jit
def embedding_at(nodes, kernel, q):
    return jax.vmap(lambda z: cj.mean_embedding(q, kernel, z))(nodes)


@jax.jit
def primitives(p, kernel, q, y):
    return cj.mean_embedding(p, kernel, y), cj.inner_product(p, kernel, q)


def check_against_quadrature(kernel, p, q, y, atol=1e-13):
    """Both primitives for one pair; the second by quadrature of the first, just verified."""
    for value, function, argument, kinks in zip(
        primitives(p, kernel, q, y),
        (kernel_at, embedding_at),
        (y, q),
        (y, kinks_of(q)),
        strict=True,
    ):
        nodes, weights = rule(p, kinks)
        nodes = jnp.asarray(nodes, "int32" if p.target_kind == "integer" else "float64")
        exact = np.array(function(nodes, kernel, argument), float) @ weights
        np.testing.assert_allclose(value, exact, rtol=0, atol=atol)


# Long to compile; the same with the LaplacianKernel is not, and test_laplace has the other.
SLOW_BY_QUADRATURE = {"mixture-gaussian", "laplace-gaussian", "log_normal-matern52"}
SLOW_BY_QUADRATURE |= {"negative_binomial-white"}
SLOW_BY_QUADRATURE |= {"negative_binomial-gaussian"}


# The expectations that are a quadrature themselves: the errors that `Univariate` states.
ATOL = {
    "student_t-gaussian": 2e-6,
    "student_t-laplacian": 2e-4,
    "log_normal-matern52": 1e-5,
    "quantiles-gaussian": 2e-6,
}


@pytest.mark.parametrize("name", slow(SLOW_BY_QUADRATURE, PAIRS))
def test_against_quadrature(name, float64):
    kernel, predictions, targets = sample(name, 3)
    p, q = row(predictions, 0), row(predictions, 1)
    for a, b, y in [(p, q, targets[0]), (q, p, targets[2]), (p, p, targets[1])]:
        check_against_quadrature(kernel, a, b, y, ATOL.get(name, 1e-13))


# Standard deviations from a thousandth to a hundred times the lengthscale, close and far.
SCALES = (1e-3, 0.03, 1.0, 10.0, 100.0)
REAL = [name for name, (family, _) in PAIRS.items() if family in ("normal", "diag")]


def scaled_normal(family, loc, scale):
    if family == "normal":
        return cj.Normal(np.array(loc), np.array(scale))
    return cj.MultivariateNormalDiag(np.array([loc, -loc]), np.array([scale, 1.0]))


def extremes(family):
    """p, q and y of every scale, close and far."""
    for scale in SCALES:
        for shift in (0.0, 0.7, 6.0):
            p = scaled_normal(family, 0.25, scale)
            q = scaled_normal(family, 0.25 + shift * max(scale, 1.0), 2 * scale)
            yield p, q, q.loc - scale / 4


@pytest.mark.parametrize("name", REAL)
def test_extreme_scales(name, float64):
    family, kernel = PAIRS[name]
    for p, q, y in extremes(family):
        check_against_quadrature(*cast((kernel, p, q, y)), atol=1e-12)


@pytest.mark.parametrize("name", slow({"normal-matern32"}, REAL))
def test_float32(name):
    family, kernel = PAIRS[name]
    rows = jax.tree.map(lambda *x: np.stack(x).astype("float32"), *extremes(family))
    in_rows = jax.jit(jax.vmap(primitives, in_axes=(0, None, 0, 0)))

    def values(dtype):
        p, q, y = cast(rows, dtype)
        return in_rows(p, cast(kernel, dtype), q, y)

    with jax.enable_x64(True):
        exact = jax.tree.map(np.array, values("float64"))
    for found, expected in zip(values("float32"), exact, strict=True):
        assert found.dtype == "float32" and expected.dtype == "float64"
        # Kernels here are bounded by 2: a few units of rounding.
        np.testing.assert_allclose(found, expected, rtol=0, atol=1.5e-6)


EXPONENTIAL = [cj.LaplacianKernel, cj.Matern32Kernel, cj.Matern52Kernel]


@pytest.mark.parametrize("kernel", slow(EXPONENTIAL[1:], EXPONENTIAL))
def test_where_the_two_forms_of_a_normal_prediction_meet(kernel, float64):
    # At |mu - y| = rate sigma^2 exactly, value and derivatives are those of either side.
    rate = {cj.LaplacianKernel: 1.0, cj.Matern32Kernel: 3**0.5, cj.Matern52Kernel: 5**0.5}[kernel]

    @jax.jit
    def mean(lengthscale, loc):
        p = cj.Normal(loc, jnp.ones(()))
        return cj.mean_embedding(p, kernel(lengthscale), jnp.zeros(()))

    # In units of the lengthscale, scale 1 / l and loc 1 / l: the rate is l.
    both = jax.jit(jax.value_and_grad(mean, argnums=(0, 1)))
    at, step = (jnp.asarray(rate), jnp.ones(())), 1e-4
    value, slopes = both(*at)
    assert value == mean(*at)
    check_against_quadrature(
        kernel(at[0]), cj.Normal(at[1], jnp.ones(())), cj.Normal(at[1], jnp.ones(())), jnp.zeros(())
    )
    for i in range(2):
        moved = [[x + sign * step * (i == k) for k, x in enumerate(at)] for sign in (1, -1)]
        expected = (mean(*moved[0]) - mean(*moved[1])) / (2 * step)
        np.testing.assert_allclose(slopes[i], expected, rtol=1e-7)


@pytest.mark.parametrize("family", slow({"diag"}, ["normal", "diag"]))
def test_h_of_narrow_predictions_in_float32(family):
    # h is of the order of (scale / l)^2, the four terms are of the order of 1.
    scale, n = 1e-3, 12
    rng = np.random.default_rng(0)
    shape = n if family == "normal" else (n, 2)
    loc = rng.normal(size=shape).astype("float32")
    y = loc + scale * rng.normal(size=shape).astype("float32")

    def h(dtype):
        arguments = cast((loc, np.full(loc.shape, np.float32(scale)), y), dtype)
        make = cj.Normal if family == "normal" else cj.MultivariateNormalDiag
        kernel = cj.TensorProduct(cj.DistanceKernel(cj.Wasserstein()), cj.GaussianKernel(1.0))
        return np.array(cj.h_matrix(kernel, make(*arguments[:2]), arguments[2]), float)

    with jax.enable_x64(True):
        exact = h("float64")
    found = h("float32")
    np.testing.assert_allclose(np.diag(found), np.diag(exact), rtol=1e-6, atol=1e-6 * scale**2)
    rms = np.sqrt(np.mean(exact**2))
    assert rms < 1e-5 and np.max(np.abs(found - exact)) < 1e-3 * rms


SLOW = {"normal-matern32", "normal-matern52"}  # to compile


@pytest.mark.parametrize("name", slow(SLOW, [*REAL, "categorical-partial"]))
def test_derivatives(name, float64):
    # Of both primitives, in every floating leaf: parameters, targets and lengthscales.
    kernel, predictions, targets = sample(name, 2)
    arguments = kernel, row(predictions, 0), row(predictions, 1), targets[0]
    leaves, structure = jax.tree.flatten(arguments)
    floating = [i for i, x in enumerate(leaves) if jnp.issubdtype(x.dtype, jnp.floating)]

    @jax.jit
    def f(values):
        merged = list(leaves)
        for i, value in zip(floating, values, strict=True):
            merged[i] = value
        kernel, p, q, y = jax.tree.unflatten(structure, merged)
        return cj.mean_embedding(p, kernel, y) + 2 * cj.inner_product(p, kernel, q)

    x = [leaves[i] for i in floating]
    gradient = jax.jit(jax.grad(f))(x)
    for i, values in enumerate(x):
        for index in np.ndindex(values.shape):
            value_at = functools.partial(at, f, x, i, index)
            step = 1e-4
            near, far = ((value_at(s) - value_at(-s)) / (2 * s) for s in (step, 2 * step))
            np.testing.assert_allclose(gradient[i][index], (4 * near - far) / 3, rtol=1e-7)


@pytest.mark.parametrize("name", slow(SLOW, [x for x in REAL if x.startswith("normal")]))
def test_second_derivatives_at_equal_locations(name, float64):
    # Even and smooth in the distance there, where its absolute value is not.
    kernel, predictions, _ = sample(name, 2)
    p, q = row(predictions, 0), row(predictions, 1)

    def primitives(loc):
        moved = type(p)(loc, p.scale)
        of_target = cj.mean_embedding(moved, kernel, q.loc)
        return jnp.stack([of_target, cj.inner_product(moved, kernel, q)])

    @jax.jit
    def slopes_and_curvatures(loc):
        slopes = jax.jacrev(primitives)
        return slopes(loc), jax.jacfwd(slopes)(loc)

    at, step = np.array(q.loc), 1e-4
    slopes, curvatures = slopes_and_curvatures(at)
    assert np.all(np.abs(slopes) < 1e-16)
    ahead, behind = (slopes_and_curvatures(at + s)[0] for s in (step, -step))
    np.testing.assert_allclose(curvatures, (ahead - behind) / (2 * step), rtol=1e-6)


def at(f, x, i, index, shift):
    moved = list(x)
    moved[i] = x[i].at[index].add(shift)
    return f(moved)


# The others have every rule of a tile, or test_kernels and test_vector_tiles have it.
SLOW_TILES = SLOW | {
    "laplace-gaussian",
    "laplace-laplacian",
    "mixture-laplacian",
    "normal-sum",
    "normal-laplacian",
    "poisson-gaussian",
    "poisson-white",
    "negative_binomial-gaussian",
    "negative_binomial-white",
    "full-gaussian",
    "full-gaussian_ard",
    "empirical-matern32",
    "diag-laplacian",
}


@pytest.mark.parametrize("name", slow(SLOW_TILES, PAIRS))
def test_tiles_are_those_of_pairs(name, float64):
    kernel, predictions, targets = sample(name, 6)
    others = jax.tree.map(lambda x: x[1:5], (predictions, targets))

    def four_terms(p, y, q, z):
        first = kernel(y, z) - cj.mean_embedding(p, kernel, z)
        return first - cj.mean_embedding(q, kernel, y) + cj.inner_product(p, kernel, q)

    def of_pair(p, y, q, z):
        return residual_product(p, kernel, y, q, z), four_terms(p, y, q, z)

    @jax.jit
    def all_pairs(p, y, q, z):
        tile = residual_product_tile(p, kernel, y, q, z)
        inner = jax.vmap(of_pair, in_axes=(None, None, 0, 0))
        row = jax.vmap(cj.inner_product, in_axes=(None, None, 0))
        matrix = jax.vmap(row, in_axes=(0, None, None))(p, kernel, p)
        return tile, jax.vmap(inner, in_axes=(0, 0, None, None))(p, y, q, z), matrix

    found, expected, matrix = all_pairs(predictions, targets, *others)
    for values in expected:
        np.testing.assert_allclose(found, values, rtol=1e-11, atol=1e-14)
    # Inner products of all predictions are symmetric and positive definite.
    np.testing.assert_allclose(matrix, matrix.T, rtol=1e-13)
    assert np.linalg.eigvalsh(np.array(matrix))[0] > -1e-13


def rules_of(function):
    """The rules of this package; users and other tests have their own.

    Rows with waves are no predictions of users: tests/test_univariate.py has their twins.
    """
    modules = [(pair, " ".join(t.__module__ for t in pair)) for pair in function.rules]
    foreign = ("__main__", "test_", "readme", "doctest")
    rules = {pair for pair, names in modules if not any(word in names for word in foreign)}
    rules = {pair for pair in rules if issubclass(pair[0], cj.Distribution)}
    return rules - {(cj.Univariate, cj.WhiteKernel)}  # which is refused


def test_every_rule_has_its_twin_and_an_instance():
    assert rules_of(cj.mean_embedding) == rules_of(cj.inner_product)
    for function in (cj.mean_embedding, residual_product, residual_product_tile):
        chosen = set()
        for name, kernel in PAIRS.values():
            family = type(FAMILIES[name](2, 0)[0])
            candidates = (pair for pair in itertools.product(family.__mro__, type(kernel).__mro__))
            chosen.add(next((pair for pair in candidates if pair in function.rules), None))
        assert chosen - {None} == rules_of(function)


def test_a_pair_has_one_rule():
    register = cj.mean_embedding.register(cj.Normal, cj.GaussianKernel)
    with pytest.raises(ValueError, match=r"already has a rule for \(Normal, GaussianKernel\)"):
        register(lambda p, kernel, y: 0.0)


def test_the_most_specific_rule_wins(float64):
    # A user's subclass keeps its parent's rules; distributions come before kernels.
    class Wider(cj.GaussianKernel):
        pass

    p, y = cj.Normal(jnp.zeros(()), jnp.ones(())), jnp.ones(())
    parent = cj.mean_embedding(p, cj.GaussianKernel(2.0), y)
    assert cj.mean_embedding(p, Wider(2.0), y) == parent


N = 6


def instance(family, n=N, seed=0):
    return cast(FAMILIES[family](n, seed))


def repeated(p, k=3):
    """K times the same component, [n, K]."""
    return jax.tree.map(lambda x: jnp.stack([x] * k, axis=1), p)


def permuted(p):
    order = np.array([2, 0, 1])
    return jax.tree.map(lambda x: x[:, order], p)


def unequal(n, k=3):
    return jnp.array(np.random.default_rng(5).dirichlet(np.ones(k), n))


def as_full(p):
    covariance = jax.vmap(jnp.diag)(jnp.square(p.scale_diag))
    return cj.MultivariateNormalFullCovariance(p.loc, covariance)


def as_vectors(p):
    return cj.MultivariateNormalFullCovariance(p.loc[:, None], jnp.square(p.scale)[:, None, None])


def truncated(p):
    """Counts as classes: all but 1e-17 of their probability."""
    probs = stats.poisson.pmf(np.arange(64), np.array(p.rate)[:, None])
    return cj.Categorical(jnp.array(probs / probs.sum(1, keepdims=True)))


def repeated_samples(p):
    """Weights 2/6, 1/6, 3/6 by repetition."""
    return cj.Empirical(p.samples[:, np.array([0, 0, 1, 2, 2, 2])])


def weighted_samples(p):
    return cj.Empirical(p.samples[:, :3], jnp.tile(jnp.array([[2.0, 1, 3]]) / 6, (N, 1)))


def points(p):
    """A mixture of certain predictions."""
    return cj.Mixture.ensemble(cj.Empirical(p.samples[..., None]))


def same(p):
    return p


def tensor(kernel_of_targets, distance):
    return cj.TensorProduct(cj.DistanceKernel(distance, 0.7), kernel_of_targets)


GAUSSIAN, WHITE = cj.GaussianKernel(0.8), cj.WhiteKernel()
MMD = cj.MeanEmbeddingDistance(GAUSSIAN)
W2, MW2 = cj.Wasserstein(), cj.MixtureWasserstein()

# A family, two ways to write its predictions, and a kernel for each.
TWINS = {
    "equal components, any weights": (
        "normal",
        lambda p: cj.Mixture(unequal(N), repeated(p)),
        same,
        tensor(GAUSSIAN, MW2),
        tensor(GAUSSIAN, W2),
    ),
    "an ensemble of one": (
        "full",
        lambda p: cj.Mixture.ensemble(repeated(p, 1)),
        same,
        tensor(GAUSSIAN, MW2),
        tensor(GAUSSIAN, W2),
    ),
    "equal Laplace components": (
        "laplace",
        lambda p: cj.Mixture.ensemble(repeated(p)),
        same,
        tensor(cj.LaplacianKernel(0.9), MW2),
        tensor(cj.LaplacianKernel(0.9), W2),
    ),
    "equal weights, seen or not": (
        "mixture",
        lambda p: cj.Mixture.ensemble(p.components),
        lambda p: cj.Mixture(jnp.full((N, 3), 1 / 3), p.components),
        tensor(GAUSSIAN, MW2),
        tensor(GAUSSIAN, MW2),
    ),
    "permuted components": (
        "mixture",
        same,
        permuted,
        tensor(GAUSSIAN, MW2),
        tensor(GAUSSIAN, MW2),
    ),
    "permuted components of an ensemble": (
        "ensemble",
        permuted,
        lambda p: cj.Categorical(jnp.mean(p.components.probs, axis=1)),
        tensor(WHITE, cj.MeanEmbeddingDistance(WHITE)),
        tensor(WHITE, cj.Euclidean()),
    ),
    "diagonal covariance": ("diag", as_full, same, tensor(GAUSSIAN, W2), tensor(GAUSSIAN, W2)),
    "diagonal covariance, MMD": (
        "diag",
        as_full,
        same,
        tensor(GAUSSIAN, MMD),
        tensor(GAUSSIAN, MMD),
    ),
    "vectors of length one": (
        "normal",
        as_vectors,
        same,
        tensor(GAUSSIAN, W2),
        tensor(GAUSSIAN, W2),
    ),
    "counts as classes, White": (
        "poisson",
        truncated,
        same,
        tensor(WHITE, cj.MeanEmbeddingDistance(WHITE)),
        tensor(WHITE, cj.MeanEmbeddingDistance(WHITE)),
    ),
    "counts as classes, Gaussian": (
        "poisson",
        truncated,
        same,
        tensor(GAUSSIAN, MMD),
        tensor(GAUSSIAN, MMD),
    ),
    "repeated samples": (
        "empirical",
        weighted_samples,
        repeated_samples,
        tensor(GAUSSIAN, MMD),
        tensor(GAUSSIAN, MMD),
    ),
    "a mixture of points": (
        "empirical",
        points,
        same,
        tensor(GAUSSIAN, MMD),
        tensor(GAUSSIAN, MMD),
    ),
}

FAST_TWINS = {
    "diagonal covariance",
    "counts as classes, White",
    "repeated samples",
    "permuted components of an ensemble",
}


@pytest.mark.parametrize("name", slow(TWINS.keys() - FAST_TWINS, TWINS))
def test_twins(name, float64):
    family, one, other, kernel, other_kernel = TWINS[name]
    p, y = instance(family)

    def h(predictions, kernel):
        targets = y[:, None] if predictions.target_shape == "n d" and y.ndim == 1 else y
        return cj.h_matrix(cast(kernel), predictions, targets)

    found, expected = h(one(p), kernel), h(other(p), other_kernel)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


UNIT_GAUSSIAN = cj.GaussianKernel(1.0)


def unscaled(distance, target_kernel=UNIT_GAUSSIAN):
    return cj.TensorProduct(cj.DistanceKernel(distance), target_kernel)


def test_two_families_are_an_error():
    laplace, normal = (f(jnp.zeros(()), jnp.ones(())) for f in (cj.Laplace, cj.Normal))
    with pytest.raises(TypeError, match="must be of one family, got Laplace and Normal"):
        cj.inner_product(laplace, UNIT_GAUSSIAN, normal)
    components = jnp.zeros((4, 2)), jnp.ones((4, 2))
    mixtures = [cj.Mixture.ensemble(f(*components)) for f in (cj.Laplace, cj.Normal)]
    y, kernel = jnp.zeros(4), unscaled(cj.MeanEmbeddingDistance(UNIT_GAUSSIAN))
    message = r"of the family of predictions, Mixture\(Laplace\), got Mixture\(Normal\)"
    for function in (cj.witness, cj.ucme):
        with pytest.raises(TypeError, match=message):
            function(kernel, mixtures[0], y, mixtures[1], y)
