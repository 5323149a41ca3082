"""`skce` in tiles: blocks, masks, weights, dtypes, and what must hold inside jit."""

import functools
import itertools
import subprocess
import sys
import textwrap
import warnings

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiled import tiles_of
from instances import cast, sample
from marks import slow

import calibjax as cj
from calibjax.operators.gram_matrix import in_tiles

N = 20


def tile(scale, xs, ys):
    """A smooth symmetric kernel of rows (x [2], integer label)."""
    (x, labels), (y, other_labels) = xs, ys
    squares = jnp.sum(jnp.square(x[:, None] - y[None]), axis=-1)
    return jnp.exp(-squares / scale) * (labels[:, None] != other_labels[None]).astype(x.dtype)


def loop_sums(scale, x, labels, weights, block_size):
    """The same, pair by pair, and its gradients by hand."""
    sums, of_x, of_weights, of_scale = [], np.zeros_like(x), np.zeros_like(weights), 0.0
    for start in range(0, len(x) - block_size + 1, block_size):
        total = 0.0
        for i, j in itertools.permutations(range(start, start + block_size), 2):
            square = np.sum((x[i] - x[j]) ** 2)
            k = np.exp(-square / scale) * (labels[i] != labels[j])
            total += weights[i] * weights[j] * k
            of_weights[i] += 2 * weights[j] * k
            of_x[i] += weights[i] * weights[j] * k * 4 * (x[j] - x[i]) / scale
            of_scale += weights[i] * weights[j] * k * square / scale**2
        sums.append(total)
    return np.array(sums), of_scale, of_x, of_weights


SIZES = [(37, 4), (37, 5), (37, 7), (37, 16), (37, 18), (37, 64), (18, 7), (5, 7), (2, 64), (12, 4)]


# Fast: several tiles, the last one filled up; one tile; several in each block; one of many blocks.
@pytest.mark.parametrize(
    ("block_size", "tile_rows"), slow(set(SIZES) - {(37, 7), (37, 64), (12, 4), (2, 64)}, SIZES)
)
def test_sums_and_gradients_against_a_double_loop(block_size, tile_rows, float64):
    rng = np.random.default_rng(1)
    x, labels = rng.normal(size=(37, 2)), rng.integers(3, size=37)
    weights = rng.uniform(0.1, 2, 37)

    @functools.partial(jax.jit, static_argnames=("block_size", "tile_rows"))
    def sums(scale, x, weights, labels, block_size, tile_rows):
        def of_block(block):
            *rows, weights = block
            with tiles_of(tile, tile_rows):
                return in_tiles(scale, rows, weights).pair_sum()

        n_blocks = len(x) // block_size
        blocks = jax.tree.map(
            lambda x: x[: n_blocks * block_size].reshape(n_blocks, block_size, *x.shape[1:]),
            (x, labels, weights),
        )
        return jax.vmap(of_block)(blocks)

    def total(*args, **kwargs):
        return jnp.sum(sums(*args, **kwargs))

    expected, *gradients = loop_sums(1.5, x, labels, weights, block_size)
    arguments = cast((1.5, x, weights, labels))
    sizes = {"block_size": block_size, "tile_rows": tile_rows}
    np.testing.assert_allclose(sums(*arguments, **sizes), expected, rtol=1e-13)
    found = jax.jit(jax.grad(functools.partial(total, **sizes), argnums=(0, 1, 2)))(*arguments)
    for gradient, expected in zip(found, gradients, strict=True):
        np.testing.assert_allclose(gradient, expected, rtol=1e-12, atol=1e-13)


# Blocks, masks and weights, against the matrix of h.

INSTANCE = "categorical-tv-white"


@pytest.fixture
def inputs(float64):
    """kernel, predictions, targets, and h as NumPy sees it."""
    arguments = sample(INSTANCE, N)
    return arguments, np.array(cj.h_matrix(*arguments))


def weighted(h, w, unbiased, block_size=None):
    """The definition: sums over all pairs within blocks, over the sums of their weights."""
    size = block_size or len(h)
    total = count = 0.0
    for start in range(0, len(h) - size + 1, size):
        for i, j in itertools.product(range(start, start + size), repeat=2):
            if i != j or not unbiased:
                total += w[i] * w[j] * h[i, j]
                count += w[i] * w[j]
    return total / count


@pytest.mark.parametrize("unbiased", [True, False])
@pytest.mark.parametrize("block_size", slow({2}, [2, 3, 7]))
def test_blocks_are_the_mean_of_consecutive_estimates(block_size, unbiased, inputs):
    arguments, h = inputs
    estimates = []
    for start in range(0, N - block_size + 1, block_size):
        block = h[start : start + block_size, start : start + block_size]
        off_diagonal = block[~np.eye(block_size, dtype=bool)]
        estimates.append(np.mean(off_diagonal if unbiased else block))
    value = cj.skce(*arguments, unbiased=unbiased, block_size=block_size)
    np.testing.assert_allclose(value, np.mean(estimates), rtol=1e-13)


def test_blocks_that_fill_their_chunks_in_part():
    # 27 blocks of 100 rows are summed in two chunks, of which the last has one block too few.
    p = np.random.default_rng(0).uniform(size=(27, 100))
    y = np.random.default_rng(1).uniform(size=p.shape) < p
    gaps = np.abs(p[:, :, None] - p[:, None, :])
    h = 2 * np.exp(-gaps / 0.5) * ((y - p)[:, :, None] * (y - p)[:, None, :])
    expected = np.mean(h[:, ~np.eye(100, dtype=bool)])
    kernel = cj.TensorProduct(cj.DistanceKernel(cj.TotalVariation(), 0.5), cj.WhiteKernel())
    value = cj.skce(kernel, cj.Bernoulli(np.float32(p.ravel())), y.ravel(), block_size=100)
    np.testing.assert_allclose(value, expected, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("unbiased", [True, False])
def test_one_block_of_n_is_no_block(unbiased, inputs):
    arguments, _ = inputs
    whole = cj.skce(*arguments, unbiased=unbiased)
    assert cj.skce(*arguments, unbiased=unbiased, block_size=N) == whole


@pytest.mark.parametrize("unbiased", [True, False])
@pytest.mark.parametrize("block_size", slow({None}, [None, 6]))
def test_weights(block_size, unbiased, inputs):
    arguments, h = inputs
    weights = np.random.default_rng(2).uniform(0, 3, N)
    weights[[3, 4]] = 0.0, 100.0
    options = {"unbiased": unbiased, "block_size": block_size}
    expected = weighted(h, weights, **options)
    for factor in (1.0, 1e-200, 1e200):  # a common factor cancels
        value = cj.skce(*arguments, weights=jnp.array(factor * weights), **options)
        np.testing.assert_allclose(value, expected, rtol=1e-12)
    where = np.arange(N) % 3 > 0
    value = cj.skce(*arguments, weights=jnp.array(weights), where=jnp.array(where), **options)
    np.testing.assert_allclose(value, weighted(h, weights * where, **options), rtol=1e-12)


@pytest.mark.parametrize("unbiased", [True, False])
@pytest.mark.parametrize("block_size", slow({6}, [None, 2, 6]))
def test_where_is_weight_zero_or_one(block_size, unbiased, inputs):
    arguments, h = inputs
    where = np.ones(N, bool)
    where[[0, 1, 7, 18]] = False  # a whole block of two among them
    options = {"unbiased": unbiased, "block_size": block_size}
    value = cj.skce(*arguments, where=jnp.array(where), **options)
    np.testing.assert_allclose(value, weighted(h, where.astype(float), **options), rtol=1e-12)


GARBAGE = {"nan": (np.nan, -1), "inf": (np.inf, 99), "zeros": (0.0, 0), "negative": (-3.0, -7)}


@pytest.mark.parametrize(
    ("instance", "unbiased"),
    [
        (INSTANCE, True),
        pytest.param("bernoulli-tv-white", False, marks=pytest.mark.slow),
        pytest.param("normal-w2-gaussian", False, marks=pytest.mark.slow),
    ],
)
def test_masked_rows_may_hold_anything(instance, unbiased, float64):
    where = np.arange(N) % 4 > 0
    arguments = kernel, *rows = sample(instance, N)

    @jax.jit
    def value_and_gradient(kernel, predictions, targets, where):
        def loss(kernel, predictions):
            return cj.skce(kernel, predictions, targets, unbiased=unbiased, where=where)

        return jax.value_and_grad(loss, argnums=(0, 1))(kernel, predictions)

    def assert_same(found, expected):
        chex.assert_trees_all_close(found, expected, rtol=1e-12, atol=1e-16)

    def select(gradients, selected):
        return jax.tree.map(lambda x: x[selected], gradients[1])

    # Dropping the rows gives the same value and gradient.
    kept = jax.tree.map(lambda x: x[where], rows)
    value, gradients = value_and_gradient(kernel, *kept, jnp.ones(where.sum(), bool))
    for real, label in GARBAGE.values():
        dirty = fill(rows, ~where, real, label)
        dirty_value, dirty_gradients = value_and_gradient(kernel, *dirty, jnp.array(where))
        assert_same((dirty_value, dirty_gradients[0]), (value, gradients[0]))
        assert_same(select(dirty_gradients, where), gradients[1])
        for leaf in jax.tree.leaves(select(dirty_gradients, ~where)):
            np.testing.assert_array_equal(leaf, 0)
        concrete = cj.skce(kernel, *dirty, unbiased=unbiased, where=jnp.array(where))
        assert_same(concrete, value)
    h = np.array(cj.h_matrix(*arguments))
    np.testing.assert_allclose(value, weighted(h, where.astype(float), unbiased), rtol=1e-12)


def fill(tree, rows, real, label):
    """Puts garbage into rows, whatever their dtype."""

    def leaf(x):
        x = np.array(x)
        x[rows] = real if np.issubdtype(x.dtype, np.floating) else label
        return jnp.array(x)

    return jax.tree.map(leaf, tree)


@pytest.mark.parametrize("unbiased", slow({False}, [True, False]))
@pytest.mark.parametrize("instance", slow({"normal-w2-gaussian"}, [INSTANCE, "normal-w2-gaussian"]))
def test_fewer_than_two_kept_rows(instance, unbiased, float64):
    kernel, *rows = sample(instance, N)

    def loss(kernel, rows, where=None, weights=None):
        return cj.skce(kernel, *rows, unbiased=unbiased, where=where, weights=weights)

    value_and_gradient = jax.jit(jax.value_and_grad(loss, argnums=(0, 1), allow_int=True))
    for n_kept in (0, 1):
        where = jnp.arange(N) < n_kept
        with pytest.raises(ValueError, match=f"at least 2 rows.*got {n_kept}"):
            loss(kernel, rows, where)
        with pytest.raises(ValueError, match=f"at least 2 rows.*got {n_kept}"):
            loss(kernel, rows, weights=where.astype(float))
        dirty = fill(rows, slice(n_kept, None), np.nan, -1)
        value, gradients = value_and_gradient(kernel, dirty, where)
        for number in [value, *jax.tree.leaves(gradients)]:
            if number.dtype != jax.dtypes.float0:
                np.testing.assert_array_equal(number, 0)


def test_no_pair_within_any_block(float64):
    # Rows are kept, but no two of one block.
    arguments = sample(INSTANCE, N)
    where = jnp.arange(N) % 2 == 0
    value = jax.jit(cj.skce, static_argnames="block_size")(*arguments, block_size=2, where=where)
    assert value == 0


# Values that cannot be looked at.


def change(leaf, index, value):
    return jnp.asarray(leaf).at[index].set(value)


BAD_VALUES = {
    "label too large": (INSTANCE, lambda k, p, y: (k, p, change(y, 3, 4))),
    "label negative": (INSTANCE, lambda k, p, y: (k, p, change(y, 3, -1))),
    "binary label 2": ("bernoulli-tv-white", lambda k, p, y: (k, p, change(y, 3, 2))),
    "not normalised": (INSTANCE, lambda k, p, y: (k, cj.Categorical(change(p.probs, 2, 0.3)), y)),
    "probability 1.1": ("bernoulli-tv-white", lambda k, p, y: (k, cj.Bernoulli(1 + p.probs), y)),
    "scale 0": ("normal-w2-gaussian", lambda k, p, y: (k, cj.Normal(p.loc, 0 * p.scale), y)),
    "scale negative": (
        "normal-w2-gaussian",
        lambda k, p, y: (k, cj.Normal(p.loc, change(p.scale, 0, -1.0)), y),
    ),
    "target inf": ("normal-w2-gaussian", lambda k, p, y: (k, p, change(y, 1, jnp.inf))),
    "target nan": ("diag-w2-gaussian", lambda k, p, y: (k, p, change(y, 1, jnp.nan))),
    "lengthscales negative": ("normal-w2-gaussian", lambda k, p, y: (times(-1.0, k), p, y)),
    "lengthscales 0": ("normal-w2-gaussian", lambda k, p, y: (times(0.0, k), p, y)),
    "prediction lengthscale -1": (INSTANCE, lambda k, p, y: (times(-1.0, k), p, y)),
}


def times(factor, kernel):
    return jax.tree.map(lambda x: factor * x, kernel)


@pytest.mark.parametrize("case", BAD_VALUES)
def test_bad_values_inside_jit_give_nan(case):
    instance, spoil = BAD_VALUES[case]
    arguments = sample(instance, N, dtype="float32")
    assert jnp.isfinite(jitted_skce(*arguments))
    assert jnp.isnan(jitted_skce(*spoil(*arguments)))
    with pytest.raises(ValueError):
        cj.skce(*spoil(*arguments))


def test_bad_weights_inside_jit_give_nan():
    arguments = sample(INSTANCE, N, dtype="float32")
    for bad in (-1.0, jnp.nan, jnp.inf):
        weights = change(jnp.ones(N), 2, bad)
        assert jnp.isnan(jitted_skce(*arguments, weights=weights))
        # All of them masked: not seen.
        assert jnp.isfinite(jitted_skce(*arguments, weights=weights, where=jnp.arange(N) > 2))


@jax.jit
def jitted_skce(kernel, predictions, targets, where=None, weights=None):
    return cj.skce(kernel, predictions, targets, where=where, weights=weights)


# dtypes.


narrow = pytest.mark.parametrize("narrow", slow({jnp.float16}, [jnp.bfloat16, jnp.float16]))


@narrow
@pytest.mark.parametrize(
    "instance",
    [
        INSTANCE,
        pytest.param("bernoulli-tv-white", marks=pytest.mark.slow),
        pytest.param("normal-w2-gaussian", marks=pytest.mark.slow),
    ],
)
def test_16_bit_inputs_are_computed_in_float32(instance, narrow):
    kernel, predictions, targets = sample(instance, N, dtype="float32")
    if instance == INSTANCE:  # rows that sum to one, exactly
        counts = np.random.default_rng(0).multinomial(64, [0.1, 0.2, 0.3, 0.4], N)
        predictions = cj.Categorical(jnp.asarray(counts / 64, "float32"))
    predictions = jax.tree.map(lambda x: x.astype(narrow), predictions)
    wide = jax.tree.map(lambda x: x.astype("float32"), predictions)
    value, expected = (cj.skce(kernel, p, targets) for p in (predictions, wide))
    assert value.dtype == jnp.float32 and value == expected
    gradient = jax.jit(jax.grad(cj.skce, argnums=1))(kernel, predictions, targets)
    for leaf in jax.tree.leaves(gradient):
        assert leaf.dtype == narrow and jnp.all(jnp.isfinite(leaf)) and jnp.any(leaf != 0)


@narrow
def test_softmax_in_16_bits(narrow):
    logits = np.random.default_rng(0).normal(size=(N, 100)).astype("float32")
    targets = jnp.arange(N)
    predictions = cj.Categorical(jax.nn.softmax(jnp.asarray(logits, narrow)))
    value = cj.skce(sample_kernel(0.5), predictions, targets)
    expected = cj.skce(sample_kernel(0.5), cj.Categorical.from_logits(logits), targets)
    assert predictions.probs.dtype == narrow and value.dtype == jnp.float32
    # Three digits of h, which is about 1 here, and 190 pairs to average them over.
    assert abs(value - expected) < 1e-3


def test_integer_probabilities():
    labels = np.random.default_rng(0).integers(3, size=(2, N))
    one_hot = np.eye(3, dtype=int)[labels[0]]
    kernel = sample_kernel(0.5)
    value = cj.skce(kernel, cj.Categorical(jnp.array(one_hot)), jnp.array(labels[1]))
    expected = cj.skce(kernel, cj.Categorical(jnp.array(one_hot, float)), jnp.array(labels[1]))
    assert value.dtype == jnp.float32 and value == expected


LABEL_DTYPES = ["uint8", "int8", "int16", "uint32", "int64"]


@pytest.mark.parametrize("label_dtype", slow({"int8", "int16", "uint32"}, LABEL_DTYPES))
@pytest.mark.parametrize("instance", slow({"bernoulli-tv-white"}, [INSTANCE, "bernoulli-tv-white"]))
def test_label_dtypes(instance, label_dtype, float64):
    kernel, predictions, targets = sample(instance, N)
    targets = targets % 2
    expected = cj.skce(kernel, predictions, targets)
    assert cj.skce(kernel, predictions, targets.astype(label_dtype)) == expected
    if isinstance(predictions, cj.Bernoulli):
        assert cj.skce(kernel, predictions, targets.astype(bool)) == expected


def test_numpy_arrays_are_arrays(float64):
    kernel, predictions, targets = sample(INSTANCE, N)
    where, weights = np.arange(N) > 3, np.linspace(1, 2, N)
    as_numpy = jax.tree.map(np.array, (predictions, targets))
    value = cj.skce(kernel, *as_numpy, where=where, weights=weights)
    expected = cj.skce(
        kernel, predictions, targets, where=jnp.array(where), weights=jnp.array(weights)
    )
    assert value == expected


def test_a_double_target_makes_a_double_result(float64):
    kernel, predictions, targets = sample("normal-w2-gaussian", N, dtype="float32")
    assert cj.skce(kernel, predictions, targets).dtype == jnp.float32
    assert cj.skce(kernel, predictions, targets.astype("float64")).dtype == jnp.float64


def test_float32_sum_over_many_pairs():
    with jax.enable_x64(True):
        exact = cj.skce(*sample(INSTANCE, 4000), unbiased=False)
    value = cj.skce(*sample(INSTANCE, 4000, dtype="float32"), unbiased=False)
    assert value.dtype == jnp.float32 and exact.dtype == jnp.float64
    assert abs(float(value) - float(exact)) < 1e-6


# What real predictions look like.


@pytest.mark.parametrize("unbiased", [True, False])
def test_constant_predictor(unbiased, float64):
    # h = <e_y - p, e_z - p>: with every k_P = 1 the biased estimate is |mean(e_y) - p|^2.
    kernel, _, targets = sample(INSTANCE, N)
    p = np.array([0.1, 0.2, 0.3, 0.4])
    predictions = cj.Categorical(jnp.tile(p, (N, 1)))
    residuals = np.eye(4)[np.array(targets)] - p
    total, own = np.sum(residuals.sum(0) ** 2), np.sum(residuals**2)
    expected = (total - own) / (N * (N - 1)) if unbiased else total / N**2
    np.testing.assert_allclose(cj.skce(kernel, predictions, targets, unbiased=unbiased), expected)


@pytest.mark.slow
def test_saturated_confidences_under_the_median_heuristic(dtype):
    # More than half of the pairs coincide: the median distance is 0.
    confidences = jnp.asarray([1.0] * 9 + [0.0], dtype)
    targets = jnp.array([1, 1, 1, 1, 1, 1, 1, 0, 0, 0])

    @jax.jit
    def value_and_gradient(confidences):
        kernel = cj.default_kernel(cj.Bernoulli(confidences))
        return jax.value_and_grad(lambda c: cj.skce(kernel, cj.Bernoulli(c), targets))(confidences)

    value, gradient = value_and_gradient(confidences)
    # Residuals (1 - y) of 9 rows, 2 of them -1; h = 2 r r' k and k = 1 among them.
    np.testing.assert_allclose(value, 2 * 2 / (10 * 9), rtol=1e-6)
    assert jnp.all(jnp.isfinite(gradient))


# Inside the user's transformations.


@pytest.mark.parametrize("instance", slow({"normal-w2-gaussian"}, [INSTANCE, "normal-w2-gaussian"]))
def test_debug_nans_is_quiet(instance, float64):
    kernel, predictions, targets = sample(instance, N)
    ties = jax.tree.map(lambda x: x.at[1].set(x[0]), predictions), targets
    dirty = fill(ties, [2], np.nan, -1)
    loss = functools.partial(cj.skce, unbiased=False)
    value_and_gradient = jax.jit(jax.value_and_grad(loss, argnums=1))
    with jax.debug_nans(True):
        for rows, where in [(ties, jnp.ones(N, bool)), (dirty, jnp.arange(N) != 2)]:
            value, gradient = value_and_gradient(kernel, *rows, where=where)
            assert all(jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves((value, gradient)))


def sample_kernel(lengthscale):
    return cj.TensorProduct(cj.DistanceKernel(cj.TotalVariation(), lengthscale), cj.WhiteKernel())


def test_skce_compiles_once_for_two_lengthscales(caplog):
    _, predictions, targets = sample(INSTANCE, 11, dtype="float32")
    cj.skce(sample_kernel(0.1), predictions, targets)
    with jax.log_compiles(), warnings.catch_warnings():
        cj.skce(sample_kernel(0.2), predictions, targets)
        assert "Compiling" not in caplog.text
        cj.skce(sample_kernel(0.2), predictions, targets, unbiased=False)
        assert "Compiling" in caplog.text


# MiB above the inputs at n = 100 000, m = 10: the value, and the value with its gradient.
MEMORY = {"skce": 200, "jax.jit(jax.value_and_grad(skce))": 400}


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("function", MEMORY)
def test_memory(function):
    script = f"""
        import jax, jax.numpy as jnp, calibjax as cj

        def inputs(n):
            keys = jax.random.split(jax.random.key(0))
            probs = jax.nn.softmax(jax.random.normal(keys[0], (n, 10)))
            return probs, jax.random.randint(keys[1], n, 0, 10)

        def skce(probs, labels):
            kernel = cj.TensorProduct(cj.DistanceKernel(cj.TotalVariation()), cj.WhiteKernel())
            return cj.skce(kernel, cj.Categorical(probs), labels)

        def peak():
            # Of this process alone: ru_maxrss would start from the parent's.
            status = open("/proc/self/status").read()
            return int(status.split("VmHWM:")[1].split()[0])

        function = {function}
        jax.block_until_ready(function(*inputs(2_000)))  # what a compiler takes
        arguments = jax.block_until_ready(inputs(100_000))
        before = peak()
        jax.block_until_ready(function(*arguments))
        print((peak() - before) / 1024)
    """
    script = textwrap.dedent(script)
    output = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert output.returncode == 0, output.stderr
    assert float(output.stdout) < MEMORY[function]


@pytest.mark.parametrize(
    "name", ["categorical-tv-white", pytest.param("normal-w2-gaussian", marks=pytest.mark.slow)]
)
@pytest.mark.slow
def test_accelerators_compute_the_same(name, monkeypatch, float64):
    """Where code is chosen by platform, by what is written for others than a CPU."""
    # No other test has as many rows or rows in a block, and so none meets what is traced here.
    n = 44
    kernel, predictions, targets = sample(name, n + 2)

    def value_and_gradient(rows, where=None):
        def loss(predictions):
            estimate = functools.partial(cj.skce, kernel, predictions, targets[rows], where=where)
            return estimate() + estimate(block_size=22)

        return jax.jit(jax.value_and_grad(loss))(jax.tree.map(lambda x: x[rows], predictions))

    with monkeypatch.context() as patch:
        patch.setattr(jax, "default_backend", lambda: "gpu")
        found, slopes = value_and_gradient(slice(n))
    # The same rows in arrays of another length are compiled anew.
    expected, expected_slopes = value_and_gradient(slice(n + 2), jnp.arange(n + 2) < n)
    np.testing.assert_allclose(found, expected, rtol=1e-11)
    for slope, expected in zip(*map(jax.tree.leaves, (slopes, expected_slopes)), strict=True):
        np.testing.assert_allclose(slope, expected[:n], rtol=1e-11, atol=1e-15)


def test_a_gpu_holds_no_tile_of_few_classes(monkeypatch):
    """What is lowered for it has neither products of matrices nor loops over classes."""
    kernel, *rows = sample("categorical-tv-white", N, dtype="float32")
    jax.clear_caches()  # What other tests have traced is for a CPU.
    with monkeypatch.context() as patch:
        patch.setattr(jax, "default_backend", lambda: "gpu")
        traced = jax.jit(cj.skce).trace(kernel, *rows)
    skce = traced.lower(lowering_platforms=("cuda",)).as_text()
    jax.clear_caches()
    assert "dot_general" not in skce
    assert "dot_general" in jax.jit(cj.skce).lower(kernel, *rows).as_text()


N_ROWS = 6
RNG = np.random.default_rng(1)

LOC, SCALE = (
    RNG.normal(size=N_ROWS).astype("float32"),
    RNG.uniform(0.5, 1.5, N_ROWS).astype("float32"),
)

NORMAL, REALS = cj.Normal(LOC, SCALE), RNG.normal(size=N_ROWS).astype("float32")
CLASSES = cj.Categorical(RNG.dirichlet(np.ones(3), N_ROWS).astype("float32"))
LABELS = RNG.integers(0, 3, N_ROWS).astype("int32")
OF_CLASSES = cj.TensorProduct(cj.DistanceKernel(cj.TotalVariation()), cj.WhiteKernel())
OF_REALS = cj.TensorProduct(cj.DistanceKernel(cj.Wasserstein()), cj.GaussianKernel(1.0))


def test_gradients_of_weights_of_which_one_dominates():
    # Of w = (1, e, e, …) the derivative in w_1 is of the order of e, in the others of 1 / e.
    def estimate(weights):
        return cj.skce(OF_CLASSES, CLASSES, LABELS, weights=weights)

    found = jax.grad(estimate)(jnp.array([1.0] + [1e-20] * (N_ROWS - 1)))
    h = np.array(cj.h_matrix(OF_CLASSES, CLASSES, LABELS), "float64")[0, 1:]
    expected = (h - h.mean()) / (1e-20 * h.size)
    np.testing.assert_allclose(found[1:], expected, rtol=1e-4, atol=1e-5 * abs(expected).max())
    assert abs(found[0]) < 1e-5


def test_a_training_step_transfers_nothing():
    def loss(loc, log_scale, targets):
        predictions = cj.Normal(loc, jnp.exp(log_scale))
        penalty = cj.skce(OF_REALS, predictions, targets)
        return penalty - jnp.mean(predictions.log_prob(targets))

    arguments = jnp.array(LOC), jnp.array(SCALE), jnp.array(REALS)
    step = jax.jit(jax.value_and_grad(loss, (0, 1)))
    with jax.transfer_guard("disallow"):
        first, later = step(*arguments), step(*arguments)
    assert all(map(np.array_equal, jax.tree.leaves(first), jax.tree.leaves(later)))
    assert np.isfinite(first[0])


@pytest.mark.parametrize("options", [{}, {"where": True}, {"weights": 1.0}])
def test_checks_of_values_transfer_nothing(options):
    options = {name: jnp.ones(N_ROWS, type(value)) for name, value in options.items()}
    kernel = jax.tree.map(jnp.asarray, OF_REALS)
    predictions, targets = cj.Normal(jnp.array(LOC), jnp.array(SCALE)), jnp.array(REALS)
    with jax.transfer_guard("disallow"):
        cj.skce(kernel, predictions, targets, **options)


N_ROWS = 6
GAUSSIAN, WHITE, TV = cj.GaussianKernel(1.0), cj.WhiteKernel(), cj.TotalVariation()


def skce_of(prediction_kernel, predictions=CLASSES, targets=LABELS, target_kernel=WHITE, **options):
    kernel = cj.TensorProduct(prediction_kernel, target_kernel)
    return cj.skce(kernel, predictions, targets, **options)


def skce_of_distance(distance, *args, **options):
    return skce_of(cj.DistanceKernel(distance), *args, **options)


@pytest.mark.parametrize("options", [{}, {"unbiased": False}, {"block_size": 3}])
def test_weights_whose_sum_overflows(options):
    found = skce_of_distance(TV, weights=jnp.full(N_ROWS, 1e38), **options)
    np.testing.assert_allclose(found, skce_of_distance(TV, **options), rtol=1e-5)
