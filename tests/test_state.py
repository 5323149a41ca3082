"""The block test of a stream of batches."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from messages import check_message

import calibjax as cj

KERNEL = cj.TensorProduct(cj.DistanceKernel(cj.TotalVariation(), 0.5), cj.WhiteKernel())


def sample(key, n, dtype=jnp.float32):
    predictions = cj.Categorical(jax.random.dirichlet(key, jnp.ones(3, dtype), (n,)))
    return predictions, predictions.sample(jax.random.fold_in(key, 1))


def of_batches(data, sizes, block_size, **options):
    state, start = cj.SKCEState.empty(block_size), 0
    for size in sizes:
        batch = jax.tree.map(lambda x, start=start, size=size: x[start : start + size], data)
        state = state.update(KERNEL, *batch, **options)
        start += size
    return state


@pytest.mark.parametrize("block_size", [2, pytest.param(5, marks=pytest.mark.slow)])
def test_mean_and_error_of_blocks(block_size, key, float64):
    data = sample(key, 120, jnp.float64)
    result = of_batches(data, [40] * 3, block_size).compute()
    blocks = jax.tree.map(lambda x: x.reshape(-1, block_size, *x.shape[1:]), data)
    values = np.asarray(jax.jit(jax.vmap(functools.partial(cj.skce, KERNEL)))(*blocks))
    expected = values.mean(), scipy.stats.sem(values)
    np.testing.assert_allclose((result.estimate, result.standard_error), expected, rtol=1e-12)
    z = expected[0] / expected[1]
    np.testing.assert_allclose(result.pvalue, scipy.stats.norm.sf(z), rtol=1e-12)


@pytest.mark.slow
def test_drops_incomplete_blocks_of_each_batch(key):
    predictions, targets = sample(key, 37)
    state = of_batches((predictions, targets), [23, 3, 11], 10)
    kept = jnp.array([*range(20), *range(26, 36)])
    expected = cj.asymptotic_block_skce_test(
        KERNEL, predictions[kept], targets[kept], block_size=10
    )
    assert state.n_blocks == 3
    np.testing.assert_allclose(state.compute().statistic, expected.statistic, rtol=1e-5)


@pytest.mark.slow
def test_a_block_with_a_masked_row_does_not_count(key):
    predictions, targets = sample(key, 12)
    where = jnp.arange(12) != 4
    state = cj.SKCEState.empty(4).update(KERNEL, predictions, targets.at[4].set(7), where=where)
    kept = jnp.array([*range(4), *range(8, 12)])
    expected = of_batches((predictions[kept], targets[kept]), [8], 4)
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-5), state, expected)


@pytest.mark.slow
def test_merged_states_know_all_batches(key, float64):
    data = sample(key, 100, jnp.float64)
    parts = [of_batches(jax.tree.map(lambda x, i=i: x[i::2], data), [50], 5) for i in range(2)]
    together = jnp.concatenate([jnp.arange(100)[i::2] for i in range(2)])
    expected = of_batches(jax.tree.map(lambda x: x[together], data), [100], 5)
    close = functools.partial(np.testing.assert_allclose, rtol=1e-12)
    for merged in (parts[0].merge(parts[1]), parts[1].merge(parts[0])):
        jax.tree.map(close, merged, expected)
    empty = cj.SKCEState.empty(5)
    for merged in (empty.merge(expected), expected.merge(empty)):
        jax.tree.map(close, merged, expected)


def test_scan_and_jit_equal_a_loop(key):
    data = sample(key, 64)
    batches = jax.tree.map(lambda x: x.reshape(4, 16, *x.shape[1:]), data)

    @jax.jit
    def stream(batches):
        def step(state, batch):
            return state.update(KERNEL, *batch), None

        return jax.lax.scan(step, cj.SKCEState.empty(4), batches)[0].compute()

    expected = of_batches(data, [16] * 4, 4).compute()
    np.testing.assert_allclose(stream(batches).pvalue, expected.pvalue, rtol=1e-5)


def test_bad_values_in_jit_stay_nan(key):
    predictions, targets = sample(key, 8)
    update = jax.jit(lambda state, targets: state.update(KERNEL, predictions, targets))
    state = update(cj.SKCEState.empty(), targets.at[3].set(5))
    state = update(state, targets)
    assert jnp.isnan(jax.jit(lambda state: state.compute().pvalue)(state))


def test_a_million_blocks_in_single_precision(key):
    # Means of 1e-3 and deviations of 1: the counts exceed what sums of squares could hold.
    values = 1e-3 + jax.random.normal(key, (2000, 1000))

    def step(state, values):
        mean = jnp.mean(values)
        squares = jnp.sum(jnp.square(values - mean))
        return state.merge(cj.SKCEState(jnp.array(1000, jnp.int32), mean, squares)), None

    state = jax.lax.scan(step, cj.SKCEState.empty(), values)[0]
    result = state.compute()
    exact = np.asarray(values, np.float64).ravel()
    assert state.n_blocks == exact.size
    np.testing.assert_allclose(result.estimate, exact.mean(), atol=1e-2 * scipy.stats.sem(exact))
    np.testing.assert_allclose(result.standard_error, scipy.stats.sem(exact), rtol=1e-4)


@pytest.mark.slow
def test_one_block_on_which_h_is_0_is_no_test():
    predictions = cj.Categorical(jnp.tile(jnp.array([1.0, 0.0]), (4, 1)))
    test = functools.partial(
        cj.asymptotic_block_skce_test, KERNEL, predictions, jnp.zeros(4, int), variance="null"
    )
    result = jax.jit(lambda where: test(where=where))(jnp.arange(4) < 2)
    assert jnp.isnan(result.statistic) and jnp.isnan(result.pvalue)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: cj.SKCEState.empty(1), "block_size.*2.*1"),
        (lambda: cj.SKCEState.empty(2).merge(cj.SKCEState.empty(3)), "other.*2.*3"),
        (lambda: one_block().compute(), "two complete blocks of 4.*1"),
    ],
)
def test_messages(call, message):
    check_message(call, ValueError, message)


def one_block():
    return cj.SKCEState.empty(4).update(KERNEL, *sample(jax.random.key(0), 7))


def test_states_of_numbers():
    numbers = cj.SKCEState(4, 0.25, 0.5), cj.SKCEState(2, 0.75, 0.125)
    arrays = [jax.tree.map(jnp.asarray, state) for state in numbers]
    for method in (lambda a, b: a.merge(b), lambda a, b: a.compute()):
        found, expected = (jax.tree.leaves(method(*states)) for states in (numbers, arrays))
        assert all(map(np.array_equal, found, expected))
