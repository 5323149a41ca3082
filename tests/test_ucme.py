"""Deviations at test locations: definition, quadrature, sums over tiles, derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiled import tiles_of
from instances import FAMILIES, KERNELS, cast, sample
from marks import slow
from test_skce import loop_sums, tile
from test_transformations import difference, directions, dot

import calibjax as cj
from calibjax._data.data import Rows
from calibjax._pairwise import tiles
from calibjax.discrepancy import deviation, h, normal_form
from calibjax.operators.gram_matrix import TiledH, in_tiles

# Of labels, of reals, and of a kernel that is no tensor product.
FAST = {"categorical-tv-white", "normal-w2-gaussian", "categorical-joint"}
every_kernel = pytest.mark.parametrize("name", slow(KERNELS.keys() - FAST, KERNELS))


# Inside the jit of a user: of labels and of reals.
WITH_DERIVATIVES = ["categorical-tv-white", "normal-w2-gaussian"]


def with_locations(name, n=9, n_locations=4):
    arguments = sample(name, n)
    return *arguments, *sample(name, n_locations, 5)[1:]


# Halves of draws have two roles in h, and none of them is the law that is drawn from; nor are
# draws that a PITKernel puts into a row with the target.
OF_DRAWS = {x for x in KERNELS if "draws" in x} | {"empirical-embedding-pit"}


@pytest.mark.parametrize(
    "name", slow(KERNELS.keys() - FAST, [x for x in KERNELS if x not in OF_DRAWS])
)
def test_h_is_a_deviation_less_its_mean(name, float64):
    # h(a, (q, z)) = deviation at (q, z) less its expectation over z ~ q: an independent law of
    # total expectation ties the two halves, here by an average over many draws of z.
    kernel, predictions, targets = sample(name, 2)
    kernel = normal_form(kernel)
    a, b = (jax.tree.map(lambda x, i=i: x[i], (predictions, targets)) for i in (0, 1))
    n_draws = 20_000
    draws = predictions.sample(jax.random.key(0), (n_draws,))[:, 1]

    @jax.jit
    def numbers(a, b, draws):
        at_draws = jax.vmap(lambda z: deviation(kernel, a, (b[0], z)))(draws)
        return h(kernel, a, b), deviation(kernel, a, b), at_draws

    found, at_target, at_draws = map(np.array, numbers(a, b, draws))
    error = np.std(at_draws) / np.sqrt(n_draws)
    np.testing.assert_allclose(found, at_target - np.mean(at_draws), atol=4 * error + 1e-12)


@every_kernel
def test_ucme_is_the_mean_square_of_means_of_deviations(name, float64):
    kernel, predictions, targets, *locations = with_locations(name)
    of_row = jax.vmap(deviation, (None, None, 0))
    each = jax.jit(jax.vmap(of_row, (None, 0, None)))
    mean = np.mean(each(normal_form(kernel), (predictions, targets), tuple(locations)), axis=0)
    arguments = kernel, predictions, targets, *locations
    np.testing.assert_allclose(cj.witness(*arguments), mean, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(cj.ucme(*arguments), np.mean(mean**2), rtol=1e-12)
    if name in WITH_DERIVATIVES:
        np.testing.assert_allclose(jax.jit(cj.ucme)(*arguments), np.mean(mean**2), rtol=1e-12)


@pytest.mark.parametrize("name", WITH_DERIVATIVES)
@pytest.mark.slow
def test_derivatives_in_everything(name, float64):
    leaves, structure = jax.tree.flatten(with_locations(name))
    floating = [jnp.issubdtype(leaf.dtype, jnp.floating) for leaf in leaves]

    @jax.jit
    def loss(values):
        values = iter(values)
        merged = [next(values) if kind else x for x, kind in zip(leaves, floating, strict=True)]
        return cj.ucme(*jax.tree.unflatten(structure, merged))

    values = [leaf for leaf, kind in zip(leaves, floating, strict=True) if kind]
    gradient = jax.jit(jax.grad(loss))(values)
    for direction in directions(values):
        expected = difference(loss, values, direction)
        assert abs(expected) > 1e-8
        np.testing.assert_allclose(dot(gradient, direction), expected, rtol=1e-6)


def test_locations_may_have_another_precision():
    with jax.enable_x64(True):
        kernel, predictions, targets, at, at_targets = with_locations("normal-w2-gaussian")
        narrow = jax.tree.map(lambda x: x.astype("float32"), (predictions, targets))
        assert cj.witness(kernel, *narrow, at, at_targets).dtype == jnp.float64


def test_bad_locations_inside_jit_give_nan():
    kernel, *data = sample("categorical-tv-white", 9, dtype="float32")
    at = cj.Categorical(jnp.array([[0.25, 0.25, 0.25, 0.25], [0.5, 0.5, 0.5, 0.5]]))
    values = jax.jit(cj.witness)(kernel, *data, at, jnp.array([1, 2]))
    assert jnp.all(jnp.isnan(values))
    test = jax.jit(cj.asymptotic_cme_test)
    assert jnp.isnan(test(kernel, *data, at, jnp.array([1, 2])).pvalue)


# The engine.


@pytest.mark.parametrize(
    ("n_columns", "tile_rows"), slow({(5, 4), (5, 64), (1, 7)}, [(5, 4), (5, 64), (1, 7), (23, 7)])
)
def test_sums_of_deviations(n_columns, tile_rows, float64, monkeypatch):
    monkeypatch.setattr(tiles, "most_tile_rows", lambda: tile_rows)
    kernel, *samples = sample("normal-w2-gaussian", 19)
    locations = Rows(*cast(FAMILIES["normal"](n_columns, 3)))
    weights = jnp.asarray(np.random.default_rng(1).uniform(0.1, 2, 19))
    h = in_tiles(normal_form(kernel), tuple(samples), weights)
    assert h.weights.shape[0] % h.tile_rows == 0 and h.tile_rows <= max(tile_rows, 16)
    expected = np.asarray(h.weights) @ np.asarray(h.deviations(locations))
    np.testing.assert_allclose(h.deviation_sums(locations), expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("n_vectors", "tile_rows"),
    slow(
        {(3, 4), (3, 16), (3, 37), (1, 7)},
        [(3, 4), (3, 7), (3, 16), (3, 37), (3, 64), (0, 7), (1, 7)],
    ),
)
def test_quadratic_forms(n_vectors, tile_rows, float64):
    rng = np.random.default_rng(1)
    x, labels = rng.normal(size=(37, 2)), rng.integers(3, size=37)
    weights = rng.uniform(0.1, 2, 37)
    vectors = rng.integers(-1, 5, size=(n_vectors, 37)).astype("int8")
    with tiles_of(tile, tile_rows):
        h = in_tiles(*cast((1.5, (x, labels), weights)))
        padding = ((0, 0), (0, h.weights.shape[0] - 37))
        found, products = jax.jit(TiledH.quadratic_forms)(h, jnp.pad(vectors, padding))
    products = products[:37]
    each = [loop_sums(1.5, x, labels, vector.astype(float), 37)[0][0] for vector in vectors]
    np.testing.assert_allclose(found, np.array(each), rtol=1e-12)
    # The derivative of w^T G w in w is 2 G w.
    *_, of_weights = loop_sums(1.5, x, labels, weights, 37)
    np.testing.assert_allclose(products, of_weights / 2, rtol=1e-12)
