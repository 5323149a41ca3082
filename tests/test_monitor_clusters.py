"""Rows that depend on each other in a monitor: evidence is 1 on average for every joint law."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from messages import check_message

import calibjax as cj


def started(key, n=40):
    """Predictions, and a monitor whose bets are large, since it has seen a model that is wrong."""
    probs = jnp.linspace(0.1, 0.9, n)
    predictions = cj.Bernoulli(probs)
    targets = cj.Bernoulli(probs**3).sample(key)
    return predictions, cj.CalibrationMonitor.start(key, predictions).update(predictions, targets)


def e_of(monitor):
    return np.exp(np.asarray(monitor.log_e_value, np.float64))


@pytest.mark.parametrize("sign", [1, -1], ids=["together", "opposed"])
def test_evidence_is_one_on_average_for_every_joint_distribution(key, float64, sign):
    _, monitor = started(key)
    probs = np.array([0.3, 0.8, 0.6, 0.45, 0.2])
    # Interleaved, so that clusters are sorted, and longer than a chunk, which has one row.
    clusters = jnp.array([7, -2, 7, -2, 7])
    targets = np.array([*itertools.product((0, 1), repeat=5)])
    update = jax.jit(jax.vmap(lambda y: monitor.update(cj.Bernoulli(probs), y, clusters=clusters)))
    after = update(targets)

    # One uniform number decides all rows of a cluster, whose margins are right; those of the second
    # cluster depend on each other in a way which depends on the first one.
    u = (np.arange(100_000) + 0.5) / 100_000

    def law(rows, flipped):
        events = np.where(flipped, u[:, None] > 1 - probs[rows], u[:, None] < probs[rows])
        codes = events @ (1 << np.arange(len(rows)))
        return np.bincount(codes, minlength=1 << len(rows)) / u.size

    first, second = [0, 2, 4], [1, 3]
    of_first = law(first, np.array([False, sign < 0, False]))
    code = targets @ np.array([1, 0, 2, 0, 4])
    of_second = np.array([law(second, np.array([k % 2 == 1, False])) for k in range(8)])
    probabilities = of_first[code] * of_second[code, targets[:, 1] + 2 * targets[:, 3]]
    assert np.isclose(probabilities.sum(), 1)
    np.testing.assert_allclose(probabilities @ e_of(after) / e_of(monitor), 1.0, rtol=1e-9)
    alone = jax.vmap(lambda y: monitor.update(cj.Bernoulli(probs), y))(targets)
    assert abs(probabilities @ e_of(alone) / e_of(monitor) - 1) > 0.01


def test_the_evidence_of_a_cluster_is_a_sum_over_its_rows(key, float64):
    _, monitor = started(key)
    predictions, same = cj.Bernoulli(jnp.linspace(0.2, 0.7, 9)), jnp.zeros(9, int)
    targets = np.random.default_rng(0).integers(0, 2, (30, 9))
    targets = np.concatenate([np.zeros((1, 9), int), np.eye(9, dtype=int), targets])
    update = jax.jit(jax.vmap(lambda y: monitor.update(predictions, y, clusters=same)))
    after = update(targets)
    none, events, found = np.split(e_of(after), [1, 10])
    np.testing.assert_allclose(found, none + targets[10:] @ (events - none), rtol=1e-9)
    assert np.ptp(found) > 0.1 * e_of(monitor)
    assert np.all(after.n_rows == 49) and np.all(after.largest_log_e_value >= after.log_e_value)


def test_a_row_is_a_cluster_if_none_is_like_it(key, float64):
    predictions, monitor = started(key)
    targets = jnp.arange(40) % 3 // 2
    expected = monitor.update(predictions, targets)
    found = monitor.update(predictions, targets, clusters=jnp.arange(40)[::-1])
    close = functools.partial(np.testing.assert_allclose, rtol=1e-9, atol=1e-12)
    jax.tree.map(close, found.bets, expected.bets)
    close(found.largest_log_e_value, expected.largest_log_e_value)


def test_names_masks_and_the_order_within_a_batch_do_not_matter(key, float64):
    predictions, monitor = started(key)
    targets, clusters = jnp.arange(40) % 3 // 2, jnp.arange(40) // 7
    close = functools.partial(np.testing.assert_allclose, rtol=1e-9, atol=1e-12)

    @jax.jit
    def update(rows, clusters, where):
        predictions, targets = jax.tree.map(lambda x: x[rows], (predictions_of, targets_of))
        return monitor.update(predictions, targets, clusters=clusters, where=where)

    predictions_of, targets_of = predictions, targets
    every = jnp.ones(40, bool)
    expected = update(jnp.arange(40), clusters, every)
    # Clusters in their order, with other names, rows spread over the batch.
    shuffled = np.concatenate([np.arange(0, 40, 7), np.setdiff1d(np.arange(40), range(0, 40, 7))])
    found = update(shuffled, 9 - 3 * clusters[shuffled], every)
    close(found.log_e_value, expected.log_e_value)
    close(found.largest_log_e_value, expected.largest_log_e_value)
    # What is masked may be of a cluster that counts, and outside of jit have any number.
    kept = update(jnp.arange(40), clusters, clusters < 4)
    names = np.where(clusters < 4, clusters + 2**40, -(2**50))
    outside = monitor.update(predictions, targets, clusters=names, where=clusters < 4)
    close(kept.log_e_value, outside.log_e_value)
    close(monitor.update(predictions[:28], targets[:28]).n_rows, kept.n_rows)
    none = monitor.update(predictions, targets, clusters=clusters, where=jnp.zeros(40, bool))
    close(none.log_e_value, monitor.log_e_value)


def test_an_impossible_target_and_a_bad_row_are_found_within_a_cluster(key):
    predictions = cj.Categorical(jnp.array([[0.5, 0.5, 0.0], [0.2, 0.3, 0.5], [0.1, 0.1, 0.8]]))
    monitor = cj.CalibrationMonitor.start(key, predictions)
    clusters = jnp.array([0, 0, 1])
    after = monitor.update(predictions, jnp.array([2, 1, 0]), clusters=clusters)
    assert float(after.pvalue) == 0.0 and bool(after.alarm(1e-9))
    inside = jax.jit(lambda y: monitor.update(predictions, y, clusters=clusters))
    lost = inside(jnp.array([0, 1, 5]))
    assert int(lost.n_skipped) == 1 and int(lost.n_rows) == 0


def test_bad_clusters(key, float64):
    predictions, monitor = started(key)
    targets = jnp.zeros(40, int)
    check_message(
        lambda: monitor.update(predictions, targets, clusters=jnp.zeros(40)),
        TypeError,
        "clusters.*integer.*float",
    )
    check_message(
        lambda: monitor.update(predictions, targets, clusters=jnp.zeros(7, int)),
        ValueError,
        r"clusters.*n = 40.*\[7\]",
    )


def _streams(key, n_streams, bias, rho, clustered):
    """Final p-values of streams with 40 clusters of 5 rows, in 5 batches."""
    scale = jnp.ones(40)
    example = cj.Normal(jnp.linspace(-2.0, 2.0, 40), scale)
    monitor = cj.CalibrationMonitor.start(key, example)
    clusters = jnp.arange(40) // 5

    def step(monitor, key):
        loc, shared, own = (jax.random.normal(k, (40,)) for k in jax.random.split(key, 3))
        noise = jnp.sqrt(rho) * shared[clusters] + jnp.sqrt(1 - rho) * own
        data = cj.Normal(loc, scale), loc + bias + noise
        return monitor.update(*data, clusters=clusters if clustered else None), None

    def pvalue(key):
        return jax.lax.scan(step, monitor, jax.random.split(key, 5))[0].pvalue

    return jax.jit(jax.vmap(pvalue))(jax.random.split(key, n_streams))


@pytest.mark.slow
def test_clusters_keep_the_level_and_have_power(key):
    rows = _streams(key, 400, 0.0, 0.9, False)
    clusters = _streams(key, 400, 0.0, 0.9, True)
    assert np.mean(rows <= 0.05) > 0.2
    assert np.mean(clusters <= 0.05) <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 400)
    assert np.mean(_streams(key, 100, 0.7, 0.3, True) <= 0.05) > 0.8
