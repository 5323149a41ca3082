"""Arrays out of one loop are the arrays, and so are their derivatives."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiled import tiles_of
from jax import lax
from marks import slow

import calibjax as cj
from calibjax._loops.fusion import (
    in_one_loop,
    is_of_numbers,
    materialised,
    recomputed,
    recomputed_exp,
)
from calibjax._loops.random_numbers import folded, random_bits, random_integers, random_signs
from calibjax.distributions import _divided_differences, _laplace
from calibjax.operators.gram_matrix import in_tiles

X = np.linspace(0.3, 2.0, 7)


@jax.custom_jvp
def cubed(x):
    return x**3 / jnp.sqrt(x * x)


@cubed.defjvp
def _cubed_jvp(primals, tangents):
    # Not the derivative of what it returns: a rule that is lost is seen.
    return cubed(*primals), 10 * tangents[0]


def loops(function, *args):
    """How many loops XLA makes of a function."""
    text = jax.jit(function).lower(*args).compile().as_text()
    return text[text.index("ENTRY") :].count(" fusion(")


def test_xla_still_makes_a_loop_for_each_array():
    """Once it does not, `in_one_loop` can go: docs/house.md says how."""

    def both(x):
        held = jnp.exp(x)
        return held * jnp.sin(held), held + jnp.sin(held)

    assert loops(both, X) > loops(lambda x: in_one_loop(both(x)), X) == 1


def test_xla_still_holds_what_is_expensive(monkeypatch):
    """Once it does not, `recomputed` can go: docs/house.md says how."""

    def of_pairs(x):
        distance = jnp.abs(x[:, None] - x[None])
        scales = jnp.broadcast_arrays(x[:, None], x[None])
        return jnp.sum(_laplace._two_predictions(distance, *scales))

    few = loops(of_pairs, X)
    for module in _laplace, _divided_differences:
        monkeypatch.setattr(module, "recomputed", lambda x: x)
        monkeypatch.setattr(module, "recomputed_exp", jnp.exp)
    jax.clear_caches()
    assert few < loops(of_pairs, X)


def test_jax_still_makes_random_bits_in_a_loop():
    """Once it does not, `random_bits` can be those of jax."""
    made = jax.jit(lambda key: jax.random.bits(key, (8,))).lower(jax.random.key(0))
    assert "while" in made.as_text()


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg"])
def test_numbers_of_keys_are_those_of_jax(impl):
    """As one key at a time and as arrays of keys, which jax would have to map."""
    keys, size = jax.random.split(jax.random.key(7, impl=impl), 3), 50

    def equal(found, expected):
        words = map(jax.random.key_data, (found, jnp.stack(expected)))
        np.testing.assert_array_equal(*words)

    numbers = jnp.array([0, 5, 2**31 - 1])
    of_pairs = folded(keys[:, None], numbers)
    equal(of_pairs, [jnp.stack([jax.random.fold_in(k, i) for i in numbers]) for k in keys])
    if (
        impl == "rbg"
    ):  # jax maps its bits to other bits, and splits the halves of a number otherwise
        return
    bits = np.stack([jax.random.bits(key, (size,), jnp.uint32) for key in keys])
    np.testing.assert_array_equal(random_bits(keys, size), bits)
    signs = np.where(bits < 2**31, 1.0, -1.0)
    np.testing.assert_array_equal(random_signs(keys, size, jnp.float32), signs)
    equal(folded(keys[0], jnp.arange(2)), list(jax.random.split(keys[0])))
    for n in (1, 21, 1000, 2**31 - 1, jnp.arange(1, size + 1)):
        expected = jax.random.randint(keys[0], (size,), 0, n, jnp.int32)
        np.testing.assert_array_equal(random_integers(keys[0], size, n), expected)


def test_recomputed_rounds_nothing(dtype):
    # The largest and smallest numbers, and those with all digits.
    info = np.finfo(dtype)
    x = jnp.array([info.max, info.tiny, -1 - info.eps, 0.0, np.inf, np.nan], dtype)
    np.testing.assert_array_equal(jax.jit(recomputed)(x), x)


def test_derivatives_of_recomputed_exp(float64):
    second = jax.vmap(jax.grad(jax.grad(lambda x: recomputed_exp(2 * x))))(X)
    np.testing.assert_allclose(second, 4 * np.exp(2 * X), rtol=1e-14)


def test_in_one_loop_is_the_identity(dtype):
    arrays = [jnp.asarray(np.outer(X, k + X), dtype) for k in range(9)]
    for found, expected in zip(jax.jit(in_one_loop)(arrays), arrays, strict=True):
        np.testing.assert_array_equal(found, expected)


def test_derivatives_of_in_one_loop(float64):
    def loss(x):
        a, b = in_one_loop([jnp.sin(x), x**3])
        return jnp.sum(a * b)

    def plain(x):
        return jnp.sum(jnp.sin(x) * x**3)

    np.testing.assert_allclose(jax.grad(loss)(X), jax.grad(plain)(X), rtol=1e-14)
    hessians = [jax.jit(jax.hessian(f))(X) for f in (loss, plain)]
    np.testing.assert_allclose(*hessians, rtol=1e-13, atol=1e-14)


def test_held_rows_are_the_rows():
    rows = {"a": jnp.arange(3), "b": jnp.ones(3), "c": jnp.ones((3, 2)), "d": jnp.array([True] * 3)}
    found = jax.jit(materialised)(rows)
    for name, x in rows.items():
        assert found[name].dtype == x.dtype
        np.testing.assert_array_equal(found[name], x)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda x: jnp.exp(-x) * cubed(x), True),
        (lambda x: jnp.sum(jnp.full(2, x)), False),
        (lambda x: lax.fori_loop(0, 3, lambda _, y: y * x, x), False),
        (lambda x: jax.jit(lambda x: jnp.sum(jnp.arange(4.0) * x))(x), False),
    ],
)
def test_what_is_made_of_numbers(function, expected):
    assert is_of_numbers(function, 0.5) == expected


# The engine, with every choice of what is differentiated: one loop for a few arrays, several for
# many.  The reference is the double sum, which jax differentiates by itself.


def tile(parameters, xs, ys):
    def of_pair(x, y):
        (a, s, label), (b, t, other) = x, y
        near = jnp.exp(-jnp.square(a - b) / parameters["width"]) / jnp.sqrt(s * t)
        return near * jnp.where(label == other, parameters["factor"], 1.0) + jnp.cos(a * t + b * s)

    return jax.vmap(lambda x: jax.vmap(lambda y: of_pair(x, y))(ys))(xs)


N = 11
ROWS = (
    np.random.default_rng(0).normal(size=N),
    np.random.default_rng(1).uniform(0.5, 2, N),
    np.arange(N) % 3,
)
ARGUMENTS = ({"width": 1.3, "factor": 0.4}, ROWS[0], ROWS[1], np.linspace(0.5, 1.5, N))


def by_engine(parameters, a, s, weights):
    rows = a, s, jnp.asarray(ROWS[2])
    with tiles_of(tile, 4):
        return in_tiles(parameters, rows, weights).pair_sum()


def by_double_sum(parameters, a, s, weights):
    rows = a, s, jnp.asarray(ROWS[2])
    values = tile(parameters, rows, rows) * weights[:, None] * weights[None]
    return jnp.sum(values) - jnp.trace(values)


@pytest.mark.parametrize("asked", slow([[1], [3]], [[1], [3], [0, 1, 2, 3]]))
def test_gradients_and_products_with_hessians(asked, float64):
    arguments = jax.tree.map(jnp.asarray, ARGUMENTS)
    chosen = [arguments[k] for k in asked]

    def derivatives(function):
        def of_chosen(chosen):
            changed = dict(zip(asked, chosen, strict=True))
            return function(*(changed.get(k, x) for k, x in enumerate(arguments)))

        direction = jax.tree.map(jnp.cos, chosen)
        forward = jax.jvp(of_chosen, (chosen,), (direction,))
        backward = jax.value_and_grad(of_chosen)
        return forward, jax.jvp(backward, (chosen,), (direction,))

    found, expected = (
        jax.jit(functools.partial(derivatives, f))() for f in (by_engine, by_double_sum)
    )
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-13)


def test_a_batch_of_gradients(float64):
    arguments = jax.tree.map(jnp.asarray, ARGUMENTS)
    batch = jnp.stack([arguments[1], 2 * arguments[1]])

    def gradients(function):
        of_one = jax.grad(lambda a: function(arguments[0], a, *arguments[2:]))
        return jax.jit(jax.vmap(of_one))(batch), lax.map(of_one, batch)

    for found, expected in zip(gradients(by_engine), gradients(by_double_sum), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-13)


def test_parameters_that_are_vectors(float64):
    # A prediction kernel with a vector of parameters has no partial derivatives by numbers.
    p = cj.Normal(jnp.asarray(ROWS[0]), jnp.asarray(ROWS[1]))
    target = cj.GaussianKernel(0.8)

    def loss(estimate, w):
        phi = jax.tree_util.Partial(lambda w, p: jnp.sum(w * p.loc), w)
        kernel = cj.TensorProduct(
            cj.DistanceKernel(cj.EmbeddingDistance(phi), exponent=2.0), target
        )
        return estimate(kernel, p, jnp.asarray(ROWS[0]))

    def by_matrix(kernel, p, y):
        h = cj.h_matrix(kernel, p, y)
        return (jnp.sum(h) - jnp.trace(h)) / (N * (N - 1))

    w = jnp.array([0.4, 0.7])
    gradients = [jax.grad(functools.partial(loss, f))(w) for f in (cj.skce, by_matrix)]
    np.testing.assert_allclose(*gradients, rtol=1e-11)
