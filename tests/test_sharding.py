"""Rows on many devices give what they give on one, and stay where they are."""

import functools
import json
import math
import re
import socket
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import one_of_two_processes
import pytest
from instances import FAMILIES, KERNELS, TESTS, cast, sample
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from marks import slow
from messages import check_message
from scripts import QUICK

import calibjax as cj
from calibjax._base.sharding import on_devices, rows_at
from calibjax._data.data import Rows, fill_masked
from calibjax._pairwise.ring import ring
from calibjax._pairwise.tiles import tile_sizes
from calibjax.operators.gram_matrix import whole_blocks

D = 8
N = 6 * D


@pytest.fixture(params=[pytest.param("Auto", marks=pytest.mark.slow), "Explicit"])
def mesh(request):
    return jax.make_mesh((D,), ("rows",), axis_types=(AxisType[request.param],))


def place(tree, mesh, axis="rows"):
    sharding = NamedSharding(mesh, PartitionSpec(axis))
    return jax.tree.map(lambda x: jax.device_put(jnp.asarray(x), sharding), tree)


def assert_equal(found, expected):
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-13), found, expected
    )


FAST = {"categorical-tv-white"}


@pytest.mark.parametrize("name", slow(KERNELS.keys() - FAST, KERNELS))
def test_value_and_gradient(name, mesh, float64):
    kernel, *rows = sample(name, N)

    def loss(kernel, predictions, targets):
        skce = functools.partial(cj.skce, kernel, predictions, targets)
        # Of all rows, and in blocks that lie across devices.
        return skce() + skce(unbiased=False, block_size=20)

    of_all = jax.value_and_grad(loss, (0, 1))
    with jax.set_mesh(mesh):
        found = jax.jit(of_all)(kernel, *place(rows, mesh))
    assert_equal(found, of_all(kernel, *rows))


@pytest.mark.parametrize("unbiased", slow({False}, [True, False]))
def test_masks_and_weights(unbiased, mesh, float64):
    kernel, *rows = sample("categorical-tv-white", N)
    options = {
        "where": jnp.arange(N) % 5 > 0,
        "weights": jnp.array(np.random.default_rng(0).uniform(0, 2, N)),
    }
    skce = functools.partial(cj.skce, kernel, unbiased=unbiased)
    with jax.set_mesh(mesh):
        value = skce(*place(rows, mesh), **place(options, mesh))
    assert value.is_fully_replicated
    assert_equal(value, skce(*rows, **options))


@pytest.mark.slow
def test_a_device_of_which_no_row_is_kept(float64):
    # What stands in for masked rows is a prediction there too: ones are no covariance.
    kernel, *rows = sample("full-w2-gaussian", N)
    where = jnp.arange(N) // (N // D) != 2
    mesh = jax.make_mesh((D,), ("rows",))
    loss = jax.value_and_grad(functools.partial(cj.skce, kernel))
    with jax.set_mesh(mesh):
        found = jax.jit(loss)(*place(rows, mesh), where=place(where, mesh))
    assert_equal(found, loss(*rows, where=where))


def test_rows_of_booleans(mesh):
    """As of an ensemble with missing members: a sum over devices makes integers of them."""

    @on_devices
    def chosen(axis, index, rows):
        members, where = rows
        return rows_at(fill_masked(members, where, axis), members.shape[0], index, axis)

    members, where = jnp.arange(2 * N).reshape(N, 2) % 3 > 0, jnp.arange(N) >= 3
    with jax.set_mesh(mesh):
        found = chosen(jnp.array([0, 5, N - 1]), place((members, where), mesh))
    assert found.dtype == bool
    np.testing.assert_array_equal(found, members[jnp.array([3, 5, N - 1])])


@pytest.mark.parametrize("block_size", slow({2, 6, 13, 30, N - 1}, [2, 5, 6, 7, 13, 30, N - 1, N]))
def test_blocks_begin_on_one_device(block_size, mesh):
    @on_devices
    def blocks(axis, _, rows):
        targets, weights = rows
        rows = whole_blocks(Rows(None, targets, weights=weights), block_size, axis)
        gather = functools.partial(jax.lax.all_gather, axis_name=axis, tiled=True)
        return gather(rows.targets.reshape(-1, block_size)), gather(rows.weights)

    rows = place((jnp.arange(N), jnp.arange(1.0, N + 1)), mesh)
    targets, weights = map(np.asarray, blocks(None, rows))
    weights = weights.reshape(targets.shape)
    complete = weights[:, 0] > 0
    expected = np.arange(N // block_size * block_size).reshape(-1, block_size)
    np.testing.assert_array_equal(targets[complete], expected)
    np.testing.assert_array_equal(weights[complete], expected + 1)
    np.testing.assert_array_equal(weights[~complete], 0)


@pytest.mark.slow
def test_tiles_of_many_devices(mesh, float64):
    # Several tiles on each device, of which some pass from one to the next.
    kernel, *rows = sample("categorical-tv-white", 2 * 600 * D)
    assert_equal(cj.skce(kernel, *place(rows, mesh)), cj.skce(kernel, *rows))


FAST_TESTS = {"blocks of 3"}


@pytest.mark.parametrize("name", slow(TESTS.keys() - FAST_TESTS, TESTS))
def test_hypothesis_tests(name, mesh, float64, key):
    kernel, *rows = sample("categorical-tv-white", N)
    where = jnp.arange(N) % 5 > 0
    expected = TESTS[name](key, kernel, *rows, where=where)
    assert_equal(TESTS[name](key, kernel, *place(rows, mesh), where=place(where, mesh)), expected)


def state(predictions, targets, where):
    empty = cj.SKCEState.empty(7)
    return empty.update(cj.default_kernel(predictions), predictions, targets, where=where)


def witness_at_itself(predictions, targets, where):
    kernel = cj.default_kernel(predictions)
    return cj.witness(kernel, predictions, targets, predictions, targets, where=where)


def random_features(predictions, targets, where):
    kernel = cj.TensorProduct(cj.DistanceKernel(cj.EmbeddingDistance(mean)), cj.GaussianKernel(1.0))
    arguments = jax.random.key(0), kernel, predictions, targets
    return cj.random_feature_skce(*arguments, n_features=4, where=where)


def mean(prediction):
    return prediction.mean() if hasattr(prediction, "loc") else jax.tree.leaves(prediction)[0]


# Public functions of (predictions, targets, where) besides the estimators and tests above.
OTHERS = {
    "state": state,
    "witness": witness_at_itself,
    "default_kernel": lambda p, y, where: cj.default_kernel(p, where=where),
    "features": random_features,
    "moments": lambda p, y, where: (p.mean(), p.variance()),
    "apply_temperature": lambda p, y, where: cj.apply_temperature(p, 2.0),
    "fit_temperature": lambda p, y, where: cj.fit_temperature(p, y, where=where),
    "ece": lambda p, y, where: cj.ece(p, y, where=where),
    "mce": lambda p, y, where: cj.mce(p, y, binning=cj.MedianVarianceBinning()),
    "mmce": lambda p, y, where: cj.mmce(p, y, where=where),
    "one_vs_rest": lambda p, y, where: cj.one_vs_rest(p, y, 1),
    "h_matrix": lambda p, y, where: cj.h_matrix(cj.default_kernel(p), p, y),
}


FAST_OTHERS = {("categorical", name) for name in ("witness", "ece")}


UNTEMPERED = {
    *("poisson", "negative_binomial", "ensemble", "gamma", "weibull"),
    *("binomial", "student_t", "log_normal", "quantiles"),
    *("survival_curve", "recalibrated"),
}


# A witness has the formulas of a family; other functions see a family through its methods.
OF_ALL_FAMILIES = {"witness", "moments"}
SOME_FAMILIES = {"categorical", "normal", "mixture", "poisson", "empirical", "quantiles"}


def _others():
    for family in FAMILIES:
        for name in OTHERS:
            if name not in OF_ALL_FAMILIES and family not in SOME_FAMILIES:
                continue
            if name in ("ece", "mce", "mmce", "one_vs_rest") and family != "categorical":
                continue
            if name in ("apply_temperature", "fit_temperature") and family in UNTEMPERED:
                continue
            # It has no expectations of target kernels.
            if (family, name) == ("survival_curve", "features"):
                continue
            # jax cannot vmap its ndtri over an explicit axis of a mesh (0.10.2), as moments do.
            if family in ("recalibrated") and name == "moments":
                continue
            if name in ("apply_temperature", "fit_temperature") and family.startswith(
                ("mixture", "emp")
            ):
                continue
            yield family, name


@pytest.mark.parametrize(("family", "name"), slow(set(_others()) - FAST_OTHERS, _others()))
def test_other_functions(family, name, mesh, float64):
    rows = *cast(FAMILIES[family](N, 0), "float64"), jnp.arange(N) % 5 > 0
    assert_equal(OTHERS[name](*place(rows, mesh)), OTHERS[name](*rows))


@pytest.mark.slow
@pytest.mark.parametrize("family", ["bernoulli", "categorical", "normal"])
def test_segments(family, mesh, float64, key):
    predictions, targets = cast(FAMILIES[family](N, 0), "float64")
    groups = {"side": np.arange(N) % 2, "third": np.arange(N) % 3}
    where = jnp.arange(N) % 5 > 0

    def found(rows, where):
        test = cj.segment_test(key, *rows, groups, where=where, n_resamples=99)
        return test.pvalue, test.null_distribution, test.sums

    expected = found((predictions, targets), where)
    assert_equal(found(place((predictions, targets), mesh), place(where, mesh)), expected)


every_kind = pytest.mark.parametrize(
    "kind", slow({AxisType.Auto}, [AxisType.Auto, AxisType.Explicit])
)


@pytest.mark.slow
@every_kind
def test_rows_along_two_axes_of_a_mesh(kind, float64):
    kernel, *rows = sample("categorical-tv-white", N)
    expected = cj.skce(kernel, *rows)
    mesh = jax.make_mesh((2, 4), ("hosts", "chips"), axis_types=(kind, kind))
    assert_equal(cj.skce(kernel, *place(rows, mesh, ("hosts", "chips"))), expected)
    assert_equal(cj.skce(kernel, *place(rows, mesh, "chips")), expected)
    # Targets that lie elsewhere come to the predictions.
    both = place(rows[0], mesh, "chips"), place(rows[1], mesh, "hosts")
    assert_equal(cj.skce(kernel, *both), expected)


@every_kind
def test_classes_along_an_axis_of_a_mesh(kind, float64):
    kernel, predictions, targets = sample("categorical-tv-white", N)
    n_classes = predictions.probs.shape[1]
    mesh = jax.make_mesh((n_classes,), ("c",), (kind,), devices=jax.devices()[:n_classes])
    probs = jax.device_put(predictions.probs, NamedSharding(mesh, PartitionSpec(None, "c")))
    assert_equal(
        cj.skce(kernel, cj.Categorical(probs), targets), cj.skce(kernel, predictions, targets)
    )


def test_a_mesh_of_one_device(float64):
    kernel, *rows = sample("categorical-tv-white", N)
    alone = jax.make_mesh((1,), ("rows",), devices=jax.devices()[:1])
    assert_equal(cj.skce(kernel, *place(rows, alone)), cj.skce(kernel, *rows))


def test_bad_values_are_errors(mesh):
    kernel, predictions, targets = sample("categorical-tv-white", N, dtype="float32")
    predictions, targets = place((predictions, np.asarray(targets).copy()), mesh)
    bad = place(np.where(np.arange(N) == 30, 7, np.asarray(targets)), mesh)
    check_message(
        lambda: cj.skce(kernel, predictions, bad), ValueError, "targets must be .*; row 30 is 7"
    )
    probs = place(np.where(np.arange(N)[:, None] == 30, 0.5, np.asarray(predictions.probs)), mesh)
    check_message(
        lambda: cj.skce(kernel, cj.Categorical(probs), targets),
        ValueError,
        "probs must be .*row 30",
    )
    inside = jax.jit(functools.partial(cj.skce, kernel))
    assert jnp.isnan(inside(predictions, bad))


# What a device holds and does.

ROWS = 2**14  # of each device, more than the square of a tile has entries in all
M = R = 10


def shapes_on_a_device(function, *arguments):
    """Of all arrays in the compiled program of one device."""
    text = jax.jit(function).lower(*arguments).compile().as_text()
    assert re.search(r"num_partitions=8", text)
    shapes = re.findall(r"\b(?:f32|s32|u32|s8|pred|f64|s64|u64|bf16)\[([\d,]*)\]", text)
    return {tuple(map(int, shape.split(","))) for shape in shapes if shape}


_, KERNEL = KERNELS["categorical-tv-white"]
skce = functools.partial(cj.skce, KERNEL)


def bootstrap(predictions, targets):
    key = jax.random.key(0)
    return cj.asymptotic_skce_test(key, KERNEL, predictions, targets, n_resamples=R).pvalue


@pytest.mark.parametrize("function", slow({skce}, [skce, jax.value_and_grad(skce), bootstrap]))
def test_no_device_holds_more_than_twice_its_rows(function):
    mesh = jax.make_mesh((D,), ("rows",), axis_types=(AxisType.Explicit,))
    sharding = NamedSharding(mesh, PartitionSpec("rows"))
    probs = jax.ShapeDtypeStruct((D * ROWS, M), jnp.float32, sharding=sharding)
    targets = jax.ShapeDtypeStruct((D * ROWS,), jnp.int32, sharding=sharding)
    with jax.set_mesh(mesh):
        shapes = shapes_on_a_device(function, cj.Categorical(probs), targets)
    assert (ROWS, M) in shapes or (ROWS * M,) in shapes
    # Rows of weight 0 fill the last tile.
    most = 2 * math.prod(tile_sizes(ROWS)) * M
    for shape in shapes:
        assert max(shape) <= most and np.prod(shape) <= most, shape


def test_values_are_checked_where_they_lie():
    mesh = jax.make_mesh((D,), ("rows",), axis_types=(AxisType.Explicit,))
    probs, targets = np.full((2 * D, 3), 1 / 3, np.float32), np.zeros(2 * D, np.int32)
    with jax.set_mesh(mesh):
        assert cj.Data(cj.Categorical(place(probs, mesh)), place(targets, mesh)).n == 2 * D
        with pytest.raises(ValueError, match="row 5"):
            probs[5] = 0.5
            cj.Data(cj.Categorical(place(probs, mesh)), place(targets, mesh))


@pytest.mark.parametrize(
    ("n_tiles", "n_devices"),
    slow({(1, 8), (3, 8), (5, 1)}, [(1, 8), (3, 8), (3, 5), (4, 2), (5, 1), (4, 1)]),
)
def test_work_is_shared(n_tiles, n_devices):
    # Every unordered pair of tiles with its factor, and how many of them each device visits.
    def visit(left, right, same, factor):
        pairs = jnp.zeros((n_all, n_all)).at[left, right].add(1.0)
        pairs = jnp.where(same, pairs, pairs + pairs.T)
        return factor * jnp.where(same, 2.0, 1.0) * pairs, (
            [jnp.ones(())],
            left.astype(jnp.float32),
            right.astype(jnp.float32),
        )

    n_all = n_tiles * n_devices
    mesh = jax.make_mesh((n_devices,), ("rows",), devices=jax.devices()[:n_devices])
    rows = place(jnp.arange(n_all), mesh) if n_devices > 1 else jnp.arange(n_all)

    @on_devices
    def walk(axis, _, rows):
        zero = jnp.zeros((n_all, n_all))
        total, [visits], of_tiles = ring(
            visit, rows, zero, [jnp.zeros(())], 0 * rows.astype(jnp.float32), axis
        )
        if axis is None:
            return total, visits[None], of_tiles
        gather = functools.partial(jax.lax.all_gather, axis_name=axis, tiled=True)
        return jax.lax.psum(total, axis), gather(visits[None]), gather(of_tiles)

    total, visits, of_tiles = walk(None, rows)
    np.testing.assert_array_equal(total, np.ones((n_all, n_all)))
    np.testing.assert_array_equal(visits, np.full(n_devices, n_tiles * (n_all // 2 + 1)))
    # Each tile comes as often to the left as to the right, and what is added comes home.
    np.testing.assert_array_equal(of_tiles, 2 * (n_all // 2 + 1) * np.arange(n_all))


PROGRAM = Path(one_of_two_processes.__file__)


@pytest.mark.slow
def test_two_processes():
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = str(free.getsockname()[1])
    processes = [
        subprocess.Popen(
            [sys.executable, PROGRAM, port, i], stdout=subprocess.PIPE, text=True, env=QUICK
        )
        for i in "01"
    ]
    probs, targets = one_of_two_processes.samples()
    alone, gradient = one_of_two_processes.results(
        cj.Categorical(jnp.asarray(probs)), jnp.asarray(targets)
    )
    starts = set()
    for process in processes:
        output, _ = process.communicate(timeout=300)
        assert process.returncode == 0
        found, shards = json.loads(output.splitlines()[-1])
        assert "targets" in found.pop("error")
        assert found.keys() == alone.keys()
        for name, expected in alone.items():
            np.testing.assert_allclose(found[name], expected, rtol=0, atol=1e-6, err_msg=name)
        for start, rows in shards:
            np.testing.assert_allclose(rows, gradient[start : start + len(rows)], rtol=0, atol=1e-6)
            starts.add(start)
    assert starts == {0, 60, 120, 180}
