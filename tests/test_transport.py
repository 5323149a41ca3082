"""Optimal transport and Wasserstein distances against SciPy, and their derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from golden import recompute
from marks import fast_in_float32, fast_in_float64, slow
from scipy import integrate, linalg, optimize, stats

import calibjax as cj
from calibjax.distributions import MixtureWasserstein
from calibjax.distributions import _optimal_transport as _transport
from calibjax.distributions._optimal_transport import transport
from calibjax.kernels import Wasserstein
from calibjax.kernels.base import vmap_pairs

# Problems lie on the last axis: one call solves all of them.


@jax.jit
def values_and_slopes(costs, a, b):
    def total(*arguments):
        values = transport(*arguments)
        return jnp.sum(values), values

    slopes, values = jax.grad(total, argnums=(0, 1, 2), has_aux=True)(costs, a, b)
    return values, *slopes


def solve(*problems, dtype="float64"):
    """Values, plans, and derivatives in both weights, as NumPy arrays."""
    return [np.array(x) for x in values_and_slopes(*(jnp.asarray(x, dtype) for x in problems))]


GENERAL = slice(0, 32)  # the problems without ties or zeros


def problems(rows, columns, n=96, seed=0):
    """Costs with and without ties, weights that are general, partly zero, or have partial sums."""
    rng = np.random.default_rng(seed)
    costs = rng.gamma(1.0, size=(rows, columns, n))
    costs[..., n // 2 :] = rng.integers(4, size=(rows, columns, n - n // 2))
    x, y = rng.normal(size=(2, max(rows, columns), n // 6))
    costs[..., : n // 6] = np.square(x[:rows, None] - y[:columns])
    weights = []
    for k in (rows, columns):
        w = rng.dirichlet(np.ones(k), n).T
        w[:, n // 3 :: 3] *= rng.random((k, len(range(n // 3, n, 3)))) < 0.6
        w[:, n // 3 + 1 :: 3] = rng.integers(3, size=(k, len(range(n // 3 + 1, n, 3))))
        w[0] += w.sum(0) == 0
        weights.append(w / w.sum(0))
    return costs, *weights


def linear_programme(costs, a, b):
    rows, columns = costs.shape
    sums = [np.kron(np.eye(rows), np.ones(columns)), np.kron(np.ones(rows), np.eye(columns))]
    # The last equation follows from the others, up to rounding.
    result = optimize.linprog(
        costs.ravel(), A_eq=np.vstack(sums)[:-1], b_eq=np.concatenate([a, b])[:-1]
    )
    assert result.status == 0
    return result.fun


@fast_in_float64
def test_equal_weights_are_assignment_problems(dtype):
    costs, _, _ = problems(5, 5)
    weights = np.full((5, 96), 0.2)
    values, plans, _, _ = solve(costs, weights, weights, dtype=dtype)
    eps = float(jnp.finfo(dtype).eps)
    for i in range(96):
        chosen = optimize.linear_sum_assignment(costs[..., i])
        expected = costs[..., i][chosen].mean()
        np.testing.assert_allclose(values[i], expected, rtol=20 * eps, atol=20 * eps)
        if i < 48:  # without ties
            np.testing.assert_allclose(plans[..., i][chosen], 0.2, rtol=4 * eps)


@pytest.mark.parametrize("shape", slow([[5, 5], [3, 1]], [[4, 7], [5, 5], [3, 1]]))
def test_general_weights_are_linear_programmes(shape, float64):
    costs, a, b = problems(*shape)
    values, plans, u, v = solve(costs, a, b)
    for i in range(96):
        expected = linear_programme(costs[..., i], a[:, i], b[:, i])
        np.testing.assert_allclose(values[i], expected, rtol=1e-12, atol=1e-14)
    # Optimal, from the definition: a plan and potentials that leave no gap.
    assert np.min(plans) >= 0
    np.testing.assert_allclose(plans.sum(1), a, atol=1e-15)
    np.testing.assert_allclose(plans.sum(0), b, atol=1e-15)
    # Derivatives along the simplex are potentials less their means, of which the sum is the value.
    np.testing.assert_allclose(np.sum(a * u, 0), 0, atol=1e-14)
    np.testing.assert_allclose(np.sum(b * v, 0), 0, atol=1e-14)
    assert np.min(costs - u[:, None] - v - values) > -1e-13
    # The other way round, and with weights that do not sum to one.
    transposed = solve(np.swapaxes(costs, 0, 1), 3 * b, (1 + 1e-5) * a)[0]
    np.testing.assert_allclose(transposed, values, rtol=1e-12, atol=1e-14)


def test_single_precision_is_as_good_as_its_rounding():
    values = solve(*problems(5, 5), dtype="float32")[0]
    with jax.enable_x64(True):
        np.testing.assert_allclose(values, solve(*problems(5, 5))[0], atol=1e-6)


def test_weights_that_are_equal_up_to_rounding():
    costs, a, _ = problems(5, 5)
    costs *= 1 - np.eye(5)[..., None]
    eps = np.finfo("float32").eps
    b = a * (1 + eps * np.random.default_rng(1).integers(-1, 2, size=a.shape))
    values = solve(costs, a, b, dtype="float32")[0]
    # Otherwise the root of a value would be 1e-4, with a slope of 1e4.
    np.testing.assert_array_equal(values, 0)


def test_derivatives_of_transport(float64):
    arguments = problems(4, 7)
    slopes = solve(*arguments)[1:]
    rng, step = np.random.default_rng(1), 1e-7
    directions = [rng.normal(size=x.shape) for x in arguments]
    for x in directions[1:]:  # along the simplex
        x -= x.mean(0)
    total = 0.0
    for i, direction in enumerate(directions):
        ahead, behind = (
            solve(*arguments[:i], arguments[i] + t * direction, *arguments[i + 1 :])[0][GENERAL]
            for t in (step, -step)
        )
        found = np.sum(slopes[i] * direction, tuple(range(direction.ndim - 1)))
        np.testing.assert_allclose(found[GENERAL], (ahead - behind) / (2 * step), atol=2e-6)
        total += found
    # Forward mode says the same.
    arrays, tangents = (tuple(map(jnp.asarray, x)) for x in (arguments, directions))
    forward = jax.jit(lambda *x: jax.jvp(transport, x, tangents)[1])(*arrays)
    np.testing.assert_allclose(forward, total, rtol=1e-12, atol=1e-13)


def test_a_component_without_weight_has_the_price_of_its_first_bit(float64):
    costs, a, b = problems(4, 7)
    a[1], b[2] = 0.0, 0.0
    a[0] += 1 - a.sum(0)
    b[0] += 1 - b.sum(0)
    values, _, u, _ = solve(costs, a, b)
    step = 1e-7
    a[0], a[1] = a[0] - step, step
    expected = (solve(costs, a, b)[0] - values) / step
    np.testing.assert_allclose((u[1] - u[0])[GENERAL], expected[GENERAL], atol=2e-6)


@pytest.mark.parametrize(
    ("argument", "value"),
    [(0, np.nan), (0, np.inf), (0, -np.inf), (1, np.nan), (1, -1e-3), (2, np.nan), (2, np.inf)],
)
def test_bad_problems_are_nan(argument, value, float64):
    arguments = problems(4, 7)
    expected = solve(*arguments)[0]
    arguments[argument][1, ..., 3] = value
    expected[3] = np.nan
    np.testing.assert_array_equal(solve(*arguments)[0], expected)


def test_weights_that_are_all_zero_are_nan(float64):
    costs, a, b = problems(4, 7)
    assert np.isnan(solve(costs, 0 * a, b)[0]).all()


@pytest.mark.slow
def test_too_many_augmentations_are_nan(float64, monkeypatch):
    monkeypatch.setattr(_transport, "_max_steps", lambda n_points: 5)
    costs, a, b = problems(5, 5)
    a[:, 0] = b[:, 0] = np.eye(5)[0]
    values = transport(*map(jnp.asarray, (costs, a, b)))
    np.testing.assert_allclose(values[0], costs[0, 0, 0])
    expected = solve(costs, a, b)[0]
    solved = np.isfinite(values)
    assert 0 < np.sum(solved) < 96
    np.testing.assert_allclose(values[solved], expected[solved], rtol=1e-13, atol=1e-15)


# Wasserstein distances of one family.


def covariances(n, d, seed):
    factors = np.random.default_rng(seed).normal(size=(n, d, d))
    return factors @ np.swapaxes(factors, 1, 2) + 0.1 * np.eye(d)


def full(covariance, dtype="float64"):
    covariance = jnp.asarray(covariance, dtype)
    return cj.MultivariateNormalFullCovariance(jnp.zeros_like(covariance[:, 0]), covariance)


@jax.jit
def squares(p, q):
    """Of each pair of rows, with the derivatives in both covariances."""
    squared = jax.vmap(Wasserstein().squared)
    slopes = jax.grad(lambda *pair: jnp.sum(squared(*pair)), argnums=(0, 1))(p, q)
    return squared(p, q), slopes[0].covariance_matrix, slopes[1].covariance_matrix


@pytest.mark.parametrize("d", slow({1, 2}, [1, 2, 5]))
def test_full_covariances(d, float64):
    s, t = covariances(8, d, 0), covariances(8, d, 1)
    values, of_s, of_t = squares(full(s), full(t))
    for i in range(8):
        root = linalg.sqrtm(s[i])
        middle = linalg.sqrtm(root @ t[i] @ root)
        np.testing.assert_allclose(values[i], np.trace(s[i] + t[i] - 2 * middle), rtol=1e-11)
        # The derivative is I - T, with the matrix T of the optimal map.
        inverse = linalg.inv(root)
        slope = np.eye(d) - inverse @ middle @ inverse
        np.testing.assert_allclose(of_s[i], slope, rtol=1e-9, atol=1e-9)
    direction = np.random.default_rng(2).normal(size=(8, d, d))
    direction = 1e-6 * (direction + np.swapaxes(direction, 1, 2))
    ahead, behind = (squares(full(s), full(t + x))[0] for x in (direction, -direction))
    np.testing.assert_allclose(np.sum(of_t * direction, (1, 2)), (ahead - behind) / 2, rtol=1e-6)


@pytest.mark.parametrize("distance", [1e-2, 1e-4, 1e-6])
def test_covariances_that_nearly_coincide(distance):
    s = covariances(16, 5, 0).astype("float32")
    change = np.random.default_rng(1).normal(size=s.shape)
    t = s + (distance * (change + np.swapaxes(change, 1, 2))).astype("float32")
    found = [np.asarray(x) for x in squares(full(s, "float32"), full(t, "float32"))]
    with jax.enable_x64(True):
        expected = [np.asarray(x) for x in squares(full(s), full(t))]
    scale = np.trace(s, axis1=1, axis2=2)
    np.testing.assert_array_less(np.abs(found[0] - expected[0]) / scale, 2e-7)
    np.testing.assert_allclose(found[1], expected[1], atol=1e-4)
    np.testing.assert_allclose(found[2], expected[2], atol=1e-4)


def test_covariances_that_coincide(dtype):
    p = full(covariances(8, 5, 0), dtype)
    for x in squares(p, p):
        np.testing.assert_array_equal(x, 0)


def test_full_covariances_that_are_diagonal(float64):
    rng = np.random.default_rng(0)
    loc, scale = rng.normal(size=(6, 2)), rng.uniform(0.3, 1.5, (6, 2))
    covariance = jnp.asarray(np.square(scale)[:, None] * np.eye(2))
    batches = [
        (cj.MultivariateNormalDiag, jnp.asarray(loc), jnp.asarray(scale)),
        (cj.MultivariateNormalFullCovariance, jnp.asarray(loc), covariance),
        (cj.Normal, jnp.asarray(loc[:, 0]), jnp.asarray(scale[:, 0])),
        (cj.MultivariateNormalFullCovariance, jnp.asarray(loc[:, :1]), covariance[:, :1, :1]),
    ]
    diag, full_diag, normal, full_normal = (
        jax.jit(Wasserstein().pairwise)(family(*parameters), family(*parameters))
        for family, *parameters in batches
    )
    np.testing.assert_allclose(full_diag, diag, rtol=1e-12)
    np.testing.assert_allclose(full_normal, normal, rtol=1e-12)


def test_laplace_by_quantiles(float64):
    def integrand(u):
        return (stats.laplace.ppf(u, 0.3, 0.5) - stats.laplace.ppf(u, -0.2, 1.2)) ** 2

    p = cj.Laplace(jnp.array(0.3), jnp.array(0.5))
    q = cj.Laplace(jnp.array(-0.2), jnp.array(1.2))
    expected = sum(integrate.quad(integrand, *i)[0] for i in ((0, 0.1), (0.1, 0.9), (0.9, 1)))
    np.testing.assert_allclose(Wasserstein().squared(p, q), expected, rtol=1e-8)


def test_families_do_not_mix(float64):
    p, q = cj.Normal(jnp.zeros(()), jnp.ones(())), cj.Laplace(jnp.zeros(()), jnp.ones(()))
    with pytest.raises(TypeError, match="predictions of one family, got Normal and Laplace"):
        Wasserstein()(p, q)


# Mixtures.


def mixtures(n, n_components, seed, dtype="float64"):
    rng = np.random.default_rng(seed)
    loc, scale = rng.normal(size=(n, n_components)), rng.uniform(0.3, 1.5, (n, n_components))
    weights = jnp.asarray(rng.dirichlet(np.ones(n_components), n), dtype)
    return cj.Mixture(weights, cj.Normal(jnp.asarray(loc, dtype), jnp.asarray(scale, dtype)))


def parameters(p):
    weights = jax.vmap(cj.Mixture.probabilities)(p)
    rows = zip(*map(np.asarray, (weights, p.components.loc, p.components.scale)), strict=True)
    return [{"kind": "normal_mixture", "weights": w, "loc": m, "scale": s} for w, m, s in rows]


tile = jax.jit(MixtureWasserstein().pairwise)


@pytest.mark.parametrize("shape", [(3, 3), (4, 1)])
@pytest.mark.parametrize("equal", slow({True}, [False, True]))
def test_mixtures(shape, equal, float64):
    ps, qs = mixtures(3, shape[0], 0), mixtures(4, shape[1], 1)
    if equal:
        ps, qs = (cj.Mixture.ensemble(p.components) for p in (ps, qs))
    expected = [
        [recompute.mixture_wasserstein(p, q) for q in parameters(qs)] for p in parameters(ps)
    ]
    np.testing.assert_allclose(tile(ps, qs), expected, rtol=1e-9)


@fast_in_float32
def test_mixtures_that_are_the_same(dtype):
    ps = mixtures(16, 3, 0, dtype)
    # Two components that coincide, and one without weight.
    components = jax.tree.map(lambda x: x.at[::2, 1].set(x[::2, 0]), ps.components)
    ps = cj.Mixture(ps.weights.at[:4, 2].set(0.0), components)
    total = jax.value_and_grad(lambda *a: jnp.sum(jnp.diag(tile(*a))), argnums=(0, 1))
    with jax.debug_nans(True):
        results = jax.jit(total)(ps, ps)
    for x in jax.tree.leaves(results):
        np.testing.assert_array_equal(x, 0)


def test_mixtures_by_pair_by_tile_and_by_block(float64):
    ps = mixtures(5, 3, 0)
    expected = tile(ps, ps)
    by_pair = jax.jit(vmap_pairs(MixtureWasserstein()))
    np.testing.assert_allclose(by_pair(ps, ps), expected, rtol=1e-13)
    blocks = jax.tree.map(lambda x: x[None], ps)
    np.testing.assert_allclose(jax.vmap(tile)(blocks, blocks)[0], expected, rtol=1e-13)
    # The order of components does not matter.
    reversed_ps = jax.tree.map(lambda x: x[:, ::-1], ps)
    np.testing.assert_allclose(tile(ps, reversed_ps), expected, rtol=1e-12, atol=1e-12)


def test_derivatives_of_mixtures(float64):
    ps, qs = mixtures(3, 3, 0), mixtures(4, 3, 1)
    slopes = jax.jit(jax.grad(lambda p: jnp.sum(tile(p, qs))))(ps)
    rng = np.random.default_rng(2)
    change = jax.tree.map(lambda x: jnp.asarray(rng.normal(size=x.shape)), ps)
    along_simplex = change.weights - jnp.mean(change.weights, 1, keepdims=True)
    change = cj.Mixture(along_simplex, change.components)
    products = jax.tree.map(lambda x, y: jnp.sum(x * y), slopes, change)

    def moved(step):
        return jnp.sum(tile(jax.tree.map(lambda x, y: x + step * y, ps, change), qs))

    expected = (moved(1e-6) - moved(-1e-6)) / 2e-6
    np.testing.assert_allclose(sum(jax.tree.leaves(products)), expected, rtol=1e-7)


def test_mixtures_with_nan(float64):
    ps = mixtures(5, 3, 0)
    loc = ps.components.loc.at[1, 0].set(jnp.nan)
    bad = cj.Mixture(ps.weights, cj.Normal(loc, ps.components.scale))
    expected = np.array(tile(ps, ps))
    expected[1] = np.nan
    np.testing.assert_array_equal(tile(bad, ps), expected)


def test_mixture_wasserstein_is_for_mixtures(float64):
    p = jax.tree.map(lambda x: x[0], mixtures(1, 3, 0))
    with pytest.raises(TypeError, match="Mixture predictions, got Mixture and Normal"):
        MixtureWasserstein()(p, p.components)
    classes = cj.Mixture(p.weights, cj.Categorical(jnp.full((3, 2), 0.5)))
    with pytest.raises(TypeError, match="Wasserstein is defined for .*, got Categorical"):
        MixtureWasserstein()(classes, classes)
