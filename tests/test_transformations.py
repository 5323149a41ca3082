"""jit, vmap and derivatives of the estimators, for every kernel on pairs."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from instances import KERNELS, sample
from marks import slow

import calibjax as cj

# What they are made of has tests of its own: distances and h in test_kernels, expectations.
SLOW = {
    "categorical-euclidean-gaussian",
    "categorical-tv-function",
    "categorical-joint",
    "bernoulli-tv-white",
    "bernoulli-euclidean-white",
    "laplace-w2-laplacian",
    "diag-w2-gaussian",
    "poisson-embedding-white",
    "negative_binomial-embedding-white",
    "gamma-embedding-gaussian",
    "normal-w2-matern32",
    "normal-embedding-laplacian",
    "normal-algebra",
    "categorical-algebra",
    "mixture-mean_embedding-gaussian",
    "mixture-mw2-gaussian",
    "ensemble-mean_embedding-white",
    "empirical-mean_embedding-laplacian",
    "empirical_draws-embedding-gaussian",
    "full-w2-gaussian",
    "student_t-embedding-gaussian",
}
# Without jit every operation is compiled by itself, which takes long.
SLOW_WITHOUT_JIT = [
    "categorical-joint",
    "normal-w2-gaussian",
    "poisson-embedding-white",
    "ensemble-mean_embedding-white",
]


NOT_KNOWN_TO_BE_POSITIVE_DEFINITE = {
    "categorical-joint",
    "full-w2-gaussian",
    "mixture-mw2-gaussian",
}


@pytest.mark.parametrize("name", slow(SLOW, KERNELS))
def test_jit_and_vmap_are_a_loop_and_float32_is_near_float64(name):
    with jax.enable_x64(True):
        kernel, *batch = sample(name)
        others = [sample(name, seed=seed)[1:] for seed in (1, 2)]
        stacked = jax.tree.map(lambda *x: jnp.array(np.stack(x)), tuple(batch), *others)
        loss = functools.partial(cj.skce, kernel, unbiased=False)
        values = [loss(*data) for data in (batch, *others)]
        np.testing.assert_allclose(jax.jit(jax.vmap(loss))(*stacked), values, rtol=1e-12)
        h = np.array(cj.h_matrix(kernel, *batch))
        # Waves replace sums over points up to 1e-13.
        np.testing.assert_allclose(values[0], h.mean(), rtol=1e-12, atol=2e-13)
        if name not in NOT_KNOWN_TO_BE_POSITIVE_DEFINITE:
            np.testing.assert_allclose(h, h.T, rtol=1e-12, atol=1e-15)
            assert np.linalg.eigvalsh(h)[0] > -1e-13 * len(h)
    value = cj.skce(*sample(name, dtype="float32"), unbiased=False)
    assert value.dtype == jnp.float32
    # The rounding of h, which is bounded by the kernel: twice what was measured, at most.
    assert abs(float(value) - float(values[0])) < 1e-6 * np.mean(np.abs(h))


@pytest.mark.parametrize(
    "name", slow(SLOW_WITHOUT_JIT, ["categorical-tv-white", *SLOW_WITHOUT_JIT])
)
@pytest.mark.slow
def test_without_jit(name, float64):
    arguments = sample(name, 4)
    jitted = jax.jit(cj.skce)(*arguments)
    np.testing.assert_allclose(cj.skce(*arguments), jitted, rtol=1e-13)
    with jax.disable_jit():
        np.testing.assert_allclose(cj.skce(*arguments), jitted, rtol=1e-12)


@pytest.mark.parametrize("name", KERNELS)
def test_pytrees(name, float64):
    arguments = sample(name)
    leaves, structure = jax.tree.flatten(arguments)
    again = jax.tree.unflatten(structure, leaves)
    assert jax.tree.structure(again) == structure
    assert hash(jax.tree.structure(sample(name))) == hash(structure)
    chex.assert_trees_all_equal(again, arguments)
    # Placeholders in place of arrays must be accepted too.
    assert jax.tree.structure(jax.tree.map(lambda _: 0, arguments)) == structure


# Derivatives. A loss as a function of the list of its floating leaves: predictions, real targets,
# parameters of the kernel, weights.


def loss_of_leaves(name, unbiased=False, n=8):
    arguments = (*sample(name, n), jnp.linspace(0.5, 1.5, n))
    leaves, structure = jax.tree.flatten(arguments)
    floating = [jnp.issubdtype(leaf.dtype, jnp.floating) for leaf in leaves]

    def loss(values):
        values = iter(values)
        merged = [next(values) if kind else x for x, kind in zip(leaves, floating, strict=True)]
        kernel, predictions, targets, weights = jax.tree.unflatten(structure, merged)
        return cj.skce(kernel, predictions, targets, unbiased=unbiased, weights=weights)

    return loss, [leaf for leaf, kind in zip(leaves, floating, strict=True) if kind]


def difference(f, x, direction, step=1e-5):
    """The derivative along a direction: central differences of fourth order."""

    def central(step):
        ahead, behind = (
            f([a + sign * step * b for a, b in zip(x, direction, strict=True)]) for sign in (1, -1)
        )
        return jax.tree.map(lambda a, b: (a - b) / (2 * step), ahead, behind)

    near, far = central(step), central(2 * step)
    return jax.tree.map(lambda a, b: (4 * a - b) / 3, near, far)


def directions(leaves, seed=0):
    """One for each leaf, so that an error names it."""
    rng = np.random.default_rng(seed)
    for i in range(len(leaves)):
        yield [jnp.array(0.3 * rng.normal(size=x.shape) * (i == j)) for j, x in enumerate(leaves)]


def dot(a, b):
    return sum(float(jnp.vdot(x, y)) for x, y in zip(a, b, strict=True))


# An exponent below 1, and optimal transport, whose square is of first order in the weights.
NO_ONE_SIDED_DERIVATIVES = {"categorical-tv-function", "mixture-mw2-gaussian"}


@pytest.mark.parametrize("name", slow(SLOW | {"normal-w2-stein_matern52"}, KERNELS))
def test_first_derivatives(name, float64):
    arguments = *sample(name), jnp.linspace(0.5, 1.5, 8)
    leaves, structure = jax.tree.flatten(arguments)
    floating = [i for i, x in enumerate(leaves) if jnp.issubdtype(x.dtype, jnp.floating)]

    def loss(leaves):
        kernel, predictions, targets, weights = jax.tree.unflatten(structure, leaves)
        return cj.skce(kernel, predictions, targets, unbiased=False, weights=weights)

    @jax.jit
    def derivatives(leaves, direction):
        """The value, its derivative in a direction, and its gradient, of all floating leaves."""

        def of_floating(x):
            return loss([x.get(i, leaf) for i, leaf in enumerate(leaves)])

        x = {i: leaves[i] for i in floating}
        direction = dict(zip(floating, direction, strict=True))
        value, slope = jax.jvp(of_floating, (x,), (direction,))
        return value, slope, jax.grad(of_floating)(x)

    def value(x):
        moved = dict(zip(floating, x, strict=True))
        return derivatives([moved.get(i, leaf) for i, leaf in enumerate(leaves)], x)[0]

    x = [leaves[i] for i in floating]
    for direction in directions(x):
        _, forward, gradient = derivatives(leaves, direction)
        expected = difference(value, x, direction)
        assert abs(expected) > 1e-6  # else nothing is tested
        product = dot(gradient.values(), direction)
        np.testing.assert_allclose(product, expected, rtol=1e-7, atol=1e-10)
        np.testing.assert_allclose(forward, product, rtol=1e-11, atol=1e-14)

    # Ties. A kernel of a distance has kinks where predictions coincide; there the derivative is
    # that of the distance set to 0: the mean of the one-sided derivatives, which a central
    # difference gives.
    n_before, n_of_predictions = (len(jax.tree.leaves(a)) for a in arguments[:2])
    of_predictions = [i - n_before in range(n_of_predictions) for i in floating]
    rows = np.array([0, 0, 1, 1, 1, 2, 3, 4])
    for i in np.array(floating)[of_predictions]:
        leaves[i] = leaves[i][rows]
    x = [leaves[i] for i in floating]
    gradient = list(derivatives(leaves, x)[2].values())
    assert all(jnp.all(jnp.isfinite(slope)) for slope in gradient)
    if name in NO_ONE_SIDED_DERIVATIVES:
        return
    for direction, chosen in zip(directions(x), of_predictions, strict=True):
        if chosen:
            expected = difference(value, x, direction, step=1e-7)
            np.testing.assert_allclose(dot(gradient, direction), expected, rtol=1e-5, atol=1e-7)


LABELS, REALS = "categorical-tv-white", "normal-w2-gaussian"


@pytest.mark.parametrize("name", slow({REALS}, [LABELS, REALS]))
def test_gradient_of_the_unbiased_estimate(name, float64):
    loss, leaves = loss_of_leaves(name, unbiased=True)
    gradient = jax.jit(jax.grad(loss))(leaves)
    for direction in directions(leaves):
        expected = difference(jax.jit(loss), leaves, direction)
        np.testing.assert_allclose(dot(gradient, direction), expected, rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize(
    "name",
    slow(
        {"categorical-euclidean-gaussian", REALS}, [LABELS, "categorical-euclidean-gaussian", REALS]
    ),
)
def test_second_derivatives(name, float64):
    loss, leaves = loss_of_leaves(name, unbiased=True, n=6)
    gradient = jax.grad(loss)
    product = jax.jit(lambda x, v: jax.jvp(gradient, (x,), (v,))[1])
    gradient = jax.jit(gradient)
    for direction in directions(leaves):
        expected = difference(gradient, leaves, direction)
        for found, block in zip(product(leaves, direction), expected, strict=True):
            np.testing.assert_allclose(found, block, rtol=1e-6, atol=1e-8)


# At the border of what is possible.


@pytest.mark.slow
def test_second_derivative_of_equal_rows(float64):
    # Along a direction in which they stay equal, so that the gradient has no jump.
    logits, direction = jax.random.normal(jax.random.key(3), (2, 5, 4))[
        :, jnp.array([4, 1, 2, 3, 4])
    ]
    kernel = cj.TensorProduct(cj.DistanceKernel(cj.TotalVariation(), 0.7), cj.WhiteKernel())
    targets = jnp.array([0, 3, 1, 1, 2])
    gradient = jax.grad(lambda x: cj.skce(kernel, cj.Categorical(jax.nn.softmax(x)), targets))
    found = jax.jit(lambda x: jax.jvp(gradient, (x,), (direction,))[1])(logits)
    (expected,) = difference(lambda x: [gradient(*x)], [logits], [direction])
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-8)


DISTANCES = [cj.TotalVariation(), pytest.param(cj.Euclidean(), marks=pytest.mark.slow)]


@pytest.mark.parametrize("distance", DISTANCES)
def test_gradient_at_saturated_logits(distance, dtype):
    # Rows 0 and 1 coincide at a vertex, row 2 is at another; rows 3 and 4 are not saturated.
    logits = jnp.asarray(
        [[300, -300, -300], [300, -300, -300], [-300, -300, 300], [0, 1, 2], [1, 0, 0]], dtype
    )
    targets = jnp.array([0, 1, 2, 1, 0])
    kernel = cj.TensorProduct(cj.DistanceKernel(distance), cj.WhiteKernel())

    @jax.jit
    def loss(logits):
        return cj.skce(kernel, cj.Categorical.from_logits(logits), targets, unbiased=False)

    gradient = jax.jit(jax.grad(loss))(logits)
    np.testing.assert_allclose(gradient[:3], 0, atol=1e-200)  # true values are about exp(-600)
    if dtype == "float64":
        for index in np.ndindex(2, 3):
            direction = [jnp.zeros_like(logits).at[index[0] + 3, index[1]].set(1)]
            expected = difference(lambda x: loss(*x), [logits], direction)
            np.testing.assert_allclose(gradient[index[0] + 3, index[1]], expected, atol=1e-10)
    else:
        assert jnp.all(jnp.isfinite(gradient)) and jnp.any(gradient != 0)


@pytest.mark.parametrize("distance", DISTANCES)
def test_gradient_at_one_hot_rows(distance, float64):
    # Only derivatives into the simplex exist: differences ahead, of second order.
    probs = jnp.array([[1, 0, 0], [0.2, 0.5, 0.3], [0.3, 0.1, 0.6]])
    direction = jnp.array([[-2.0, 1, 1], [0, 0, 0], [0, 0, 0]])
    targets = jnp.array([1, 1, 2])
    kernel = cj.TensorProduct(cj.DistanceKernel(distance), cj.WhiteKernel())

    @jax.jit
    def loss(probs):
        return cj.skce(kernel, cj.Categorical(probs), targets)

    values = [loss(probs + step * 1e-5 * direction) for step in range(3)]
    expected = (-3 * values[0] + 4 * values[1] - values[2]) / 2e-5
    np.testing.assert_allclose(jnp.vdot(jax.grad(loss)(probs), direction), expected, rtol=1e-7)


def test_total_variation_does_not_push_equal_predictions_apart(float64):
    # d exp(-TV) is 0 at equal predictions, in every coordinate.
    p = jnp.array([[0.2, 0.3, 0.5]] * 3)
    kernel = cj.DistanceKernel(cj.TotalVariation())

    def total(p):
        return jnp.sum(kernel.pairwise(cj.Categorical(p), cj.Categorical(p)))

    np.testing.assert_array_equal(jax.jit(jax.grad(total))(p), 0)
