"""The monitor: its evidence is 1 on average, whatever the past, and grows if a model is wrong."""

import dataclasses
import errno
import functools
import itertools
import os
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from instances import FAMILIES, cast
from messages import check_message
from statsmodels.stats.multitest import multipletests

import calibjax as cj
from calibjax.monitoring._outcomes import _cell_edges, outcomes_of


def evidence(monitor):
    return np.exp(np.asarray(monitor.log_e_value, np.float64))


def past_of_a_wrong_model(key, predictions, targets, **options):
    """A monitor that has learnt something, so that its bets are no longer small."""
    monitor = cj.CalibrationMonitor.start(key, predictions, **options)
    return monitor.update(predictions, targets)


def after_each(monitor, predictions, targets):
    """The evidence after *one* more row with each of many targets, by itself."""
    after = jax.vmap(lambda y: monitor.update(predictions, y[None]).log_e_value)(targets)
    return np.exp(np.asarray(after, np.float64))


def test_evidence_is_one_on_average_over_all_sequences_of_labels(key, float64):
    predictions = cj.Categorical(jax.random.dirichlet(key, jnp.ones(3), (3,)))
    monitor = cj.CalibrationMonitor.start(key, predictions)
    sequences = np.array([*itertools.product(range(3), repeat=3)])

    def of_sequence(labels):
        def step(monitor, row):
            monitor = monitor.update(*jax.tree.map(lambda x: x[None], row))
            return monitor, monitor.log_e_value

        return jax.lax.scan(step, monitor, (predictions, labels))

    after, path = jax.jit(jax.vmap(of_sequence))(sequences)
    probabilities = np.asarray(predictions.probs)[np.arange(3), np.asarray(sequences)].prod(axis=1)
    for t in range(3):
        np.testing.assert_allclose(np.exp(path[:, t]) @ probabilities, 1.0, rtol=1e-12)
    assert np.ptp(np.exp(path[:, -1])) > 0.01  # there were bets
    np.testing.assert_allclose(after.pvalue, 1 / np.maximum(1, np.exp(path).max(axis=1)))


@pytest.mark.parametrize("name", ["ordinal", "normal", "quantiles", "mixture", "empirical", "diag"])
def test_only_vectors_are_ranked_among_draws(name, key):
    predictions, targets = cast(FAMILIES[name](5, seed=0), "float32")
    shares = jax.eval_shape(outcomes_of, key, predictions, targets).shares
    # Vectors have ranks of several statistics, labels and numbers one set of cells.
    assert (shares.shape[1] > 1) == (predictions.target_shape != "n")


@pytest.mark.slow
def test_evidence_stays_as_it_is_on_average_over_counts(key, float64):
    many = cj.Poisson(jnp.linspace(0.5, 6.0, 60), max_count=80)
    monitor = past_of_a_wrong_model(key, many, 2 * many.sample(key))
    rate = jnp.array([2.3])
    counts = jnp.arange(60)
    found = after_each(monitor, cj.Poisson(rate, max_count=80), counts)
    expected = scipy.stats.poisson.pmf(counts, 2.3) @ found
    np.testing.assert_allclose(expected, evidence(monitor), rtol=1e-9)
    assert found.max() > 1.05 * evidence(monitor)


@pytest.mark.slow
def test_evidence_stays_as_it_is_on_average_over_numbers(key, float64):
    many = cj.Normal(jnp.linspace(-1.0, 1.0, 60), jnp.linspace(0.5, 1.0, 60))
    monitor = past_of_a_wrong_model(key, many, 1.7 * many.sample(key) + 0.5)
    one = cj.Normal(jnp.array([0.3]), jnp.array([0.8]))
    y, step = np.linspace(-6.0, 7.0, 40_001, retstep=True)
    found = after_each(monitor, one, jnp.asarray(y))
    expected = scipy.stats.norm.pdf(y, 0.3, 0.8) @ found * step
    # The evidence has steps at the edges of cells.
    np.testing.assert_allclose(expected, evidence(monitor), rtol=1e-3)
    assert found.max() > 1.05 * evidence(monitor)


@pytest.mark.slow
def test_evidence_stays_as_it_is_on_average_over_the_exchange_of_a_target_with_samples(
    key, float64
):
    pool = jnp.array([-1.0, 0.2, 0.2, 0.9, 2.0])
    draws = jax.random.normal(key, (40, 4))
    monitor = past_of_a_wrong_model(key, cj.Empirical(draws), jnp.linspace(0.0, 3.0, 40))
    found = [
        evidence(monitor.update(cj.Empirical(jnp.delete(pool, i)[None]), pool[i][None]))
        for i in range(5)
    ]
    np.testing.assert_allclose(np.mean(found), evidence(monitor), rtol=1e-12)
    assert np.ptp(found) > 0.01 * evidence(monitor)


@pytest.mark.slow
def test_quantile_forecasts_are_evaluated_at_their_levels_only(key):
    quantiles = cj.Quantiles(jnp.tile(jnp.array([[0.0, 1.0, 5.0]]), (50, 1)), (0.1, 0.5, 0.9))
    monitor = cj.CalibrationMonitor.start(key, quantiles)
    one, targets = quantiles[:1], jnp.array([-3.0, -1.0, 0.1, 0.9, 1.1, 4.9, 6.0, 100.0])
    found = after_each(monitor.update(quantiles, jnp.linspace(0.0, 2.0, 50)), one, targets)
    np.testing.assert_allclose(found[::2], found[1::2])
    assert len(set(found.tolist())) == 4


def _labels(key, n, wrong):
    logits = jax.random.normal(key, (n,))
    truth = cj.Bernoulli(jax.nn.sigmoid(logits + wrong))
    return cj.Bernoulli(jax.nn.sigmoid(logits)), truth.sample(jax.random.fold_in(key, 1))


def _classes(key, n, wrong):
    logits = jax.random.normal(key, (n, 5))
    truth = cj.Categorical.from_logits((1 - wrong) * logits)
    return cj.Categorical.from_logits(logits), truth.sample(jax.random.fold_in(key, 1))


def _numbers(key, n, wrong):
    loc = jax.random.normal(key, (n,))
    predictions = cj.Normal(loc, jnp.full(n, 0.5))
    truth = cj.Normal(loc, jnp.full(n, 0.5 * (1 + wrong)))
    return predictions, truth.sample(jax.random.fold_in(key, 1))


def _counts(key, n, wrong):
    rate = 3 + jax.random.uniform(key, (n,))
    truth = cj.Poisson(rate * (1 + wrong), max_count=60)
    return cj.Poisson(rate, max_count=60), truth.sample(jax.random.fold_in(key, 1))


def _draws(key, n, wrong):
    predictions, targets = _numbers(key, n, wrong)
    samples = predictions.sample(jax.random.fold_in(key, 2), (7,)).T
    return cj.Empirical(samples, fair=True), targets


def _vectors(key, n, wrong):
    loc = jax.random.normal(key, (n, 2))
    scale = jnp.full((n, 2), 0.5)
    targets = cj.MultivariateNormalDiag(loc, (1 + wrong) * scale).sample(jax.random.fold_in(key, 1))
    return cj.MultivariateNormalDiag(loc, scale), targets


STREAMS = {
    "labels": _labels,
    "classes": _classes,
    "numbers": _numbers,
    "counts": _counts,
    "draws": _draws,
    "vectors": _vectors,
}
SLOW = ("numbers", "classes", "counts", "draws", "vectors")
streams = pytest.mark.parametrize(
    "data",
    [pytest.param(f, id=k, marks=[pytest.mark.slow] * (k in SLOW)) for k, f in STREAMS.items()],
)


def watch(data, key, errors, n=100, **options):
    """A monitor after one batch for each error of the model, its evidence and when it changed."""
    first, _ = data(jax.random.fold_in(key, 999), n, 0.0)
    monitor = cj.CalibrationMonitor.start(key, first, **options)

    def step(monitor, batch):
        key, error = batch
        monitor = monitor.update(*data(key, n, error))
        return monitor, (monitor.log_e_value, monitor.change_point)

    return jax.lax.scan(step, monitor, (jax.random.split(key, len(errors)), errors))


@streams
def test_a_model_that_becomes_wrong(data, key):
    errors = jnp.where(jnp.arange(70) < 30, 0.0, 0.8).at[50:].set(0.0)

    def of_stream(key):
        monitor, (path, changes) = watch(data, key, errors)
        return monitor.alarm(0.05), path, changes, monitor.bets.change_point()

    alarms, paths, changes, later = jax.lax.map(of_stream, jax.random.split(key, 5))
    assert np.all(alarms) and np.all(paths[:, 29] < np.log(20))
    assert np.all(paths[:, 40] > np.log(20))
    # In one of some twelve streams a bet gains by chance before the change.
    np.testing.assert_allclose(np.median(changes[:, 40]), 3000, atol=200)
    # What is estimated at the alarm remains, though bets on labels would say something else later.
    assert np.all(np.ptp(changes[:, 40:], axis=1) == 0)
    assert data is not _labels or np.any(later != changes[:, -1])


def test_jit_scan_and_masks_are_a_loop(key):
    monitor, _ = watch(_labels, key, jnp.full(3, 0.3))
    assert bool(jax.jit(lambda m: m.alarm(0.05))(monitor)) == bool(monitor.alarm(0.05))
    looped = cj.CalibrationMonitor.start(key, _labels(jax.random.fold_in(key, 999), 100, 0.0)[0])
    for k in jax.random.split(key, 3):
        predictions, targets = _labels(k, 100, 0.3)
        # The order of rows and their chunks stay the same.
        padded = jax.tree.map(
            lambda x: x.at[7].set(jnp.ones_like(x[7]) * 9), (predictions, targets)
        )
        assert bool(jnp.isfinite(looped.update(*padded, where=jnp.arange(100) != 7).e_value))
        looped = looped.update(predictions, targets)
    jax.tree.map(
        functools.partial(np.testing.assert_allclose, rtol=2e-3, atol=1e-3),
        monitor.bets,
        looped.bets,
    )
    masked = looped.update(predictions, targets, where=jnp.zeros(100, bool))
    np.testing.assert_allclose(masked.log_e_value, looped.log_e_value, rtol=1e-5)
    assert int(masked.n_rows) == 300 == int(looped.n_rows)
    assert looped.update(predictions[:0], targets[:0]) is looped


@pytest.mark.slow
def test_a_target_of_probability_zero_is_infinite_evidence(key):
    predictions = cj.Categorical(jnp.array([[0.5, 0.5, 0.0], [0.2, 0.3, 0.5]]))
    monitor = cj.CalibrationMonitor.start(key, predictions).update(predictions, jnp.array([2, 1]))
    assert float(monitor.pvalue) == 0.0 and bool(monitor.alarm(1e-9))
    assert repr(monitor).endswith("pvalue < 1e-37)")
    assert float(monitor.update(predictions, jnp.array([0, 1])).pvalue) == 0.0


@pytest.mark.slow
def test_keeps_its_dtype_and_counts_no_further_than_int32(key):
    predictions, targets = _labels(key, 20, 0.0)
    monitor = cj.CalibrationMonitor.start(key, predictions)
    with jax.enable_x64(True):
        wide = cj.Bernoulli(np.asarray(predictions.probs, np.float64))
        found = monitor.update(wide, targets)
    expected = monitor.update(predictions, targets)
    jax.tree.map(np.testing.assert_array_equal, found.bets, expected.bets)
    full = jnp.full_like(monitor.bets.n_rows, 2**31 - 5)
    late = dataclasses.replace(monitor, bets=dataclasses.replace(monitor.bets, n_rows=full))
    late = late.update(predictions, targets)
    assert int(late.n_rows) == 2**31 - 1 and bool(jnp.isfinite(late.e_value))


@pytest.mark.slow
def test_stacked_monitors_are_one_for_each_stream(key):
    predictions, targets = _labels(key, 32, 0.5)
    monitor = cj.CalibrationMonitor.start(key, predictions, lag=2)
    stacked = jax.tree.map(lambda x: jnp.stack([x, x, x]), monitor)
    where = jnp.arange(32)[None] < jnp.array([[32], [8], [0]])
    after = jax.vmap(lambda m, where: m.update(predictions, targets, where=where))(stacked, where)
    assert after.n_rows.tolist() == [32, 8, 0]
    assert after.change_point.shape == (3,)
    assert after.alarm(0.05).shape == (3,)


def test_lags_are_processes_of_their_own(key):
    predictions, targets = _labels(key, 60, 1.0)
    batches = [(predictions[i : i + 10], targets[i : i + 10]) for i in range(0, 60, 10)]
    start = functools.partial(cj.CalibrationMonitor.start, key, predictions)
    monitor = start(lag=2)
    alone = [start(), start()]
    for i, batch in enumerate(batches):
        monitor, alone[i % 2] = monitor.update(*batch), alone[i % 2].update(*batch)
    np.testing.assert_allclose(monitor.e_value, max(m.e_value for m in alone) / 2, rtol=1e-5)
    largest = max(float(m.largest_log_e_value) for m in alone)
    np.testing.assert_allclose(
        monitor.largest_log_e_value, max(0.0, largest - np.log(2)), atol=1e-5
    )


def test_goes_on_from_its_file(key, tmp_path):
    monitor, _ = watch(_labels, key, jnp.full(2, 0.3))
    monitor.save(tmp_path / "state.npz")
    other, _ = _labels(jax.random.key(5), 100, 0.0)
    start = functools.partial(cj.CalibrationMonitor.start, jax.random.key(9))
    loaded = start(other).load(tmp_path / "state.npz")
    # Shapes are enough, so that nothing is computed for the state.
    shapes = dataclasses.replace(jax.eval_shape(start, other), key=key)
    assert jax.tree.all(jax.tree.map(jnp.array_equal, shapes.load(tmp_path / "state.npz"), loaded))
    batch = _labels(jax.random.key(6), 100, 0.3)
    ours, theirs = monitor.update(*batch), loaded.update(*batch)
    jax.tree.map(np.testing.assert_array_equal, ours.bets, theirs.bets)
    assert jnp.array_equal(jax.random.key_data(ours.key), jax.random.key_data(theirs.key))
    assert [path.name for path in tmp_path.iterdir()] == ["state.npz"]
    check_message(
        lambda: cj.CalibrationMonitor.start(key, other, lag=2).load(tmp_path / "state.npz"),
        ValueError,
        r"state.npz: .* lag 2, got 1",
    )


def test_only_its_own_file_is_loaded(key, tmp_path):
    loc, scale = jnp.arange(64.0), jnp.ones(64)
    monitor, path = cj.CalibrationMonitor.start(key, cj.Normal(loc, scale)), tmp_path / "state.npz"
    monitor.save(path)
    content = path.read_bytes()
    levels = (0.1, 0.5, 0.9)
    values = jnp.arange(192.0).reshape(64, 3)

    def of(predictions):
        """A monitor with the same arrays, but for the predictions."""
        return dataclasses.replace(monitor, landmarks=predictions)

    def check_refused(monitor, message):
        check_message(lambda: monitor.load(path), ValueError, message)
        with pytest.raises(ValueError) as caught:
            monitor.load(path)
        assert str(caught.value).startswith(f"{path}: ") and "\n" not in str(caught.value)

    assert int(monitor.load(path).n_rows) == 0
    check_refused(of(cj.Laplace(loc, scale)), r"family Laplace, got Normal\.$")
    check_refused(of(cj.LogNormal(loc, scale)), "family LogNormal, got Normal")
    distance = cj.EmbeddingDistance(lambda p: p.loc)
    check_refused(
        dataclasses.replace(monitor, kernels=[cj.DistanceKernel(distance)]),
        r"kernels \(DistanceKernel\(EmbeddingDistance\(<lambda>\), exponent=1.0\)\), got \(Dist",
    )
    check_refused(
        dataclasses.replace(monitor, largest_log_e_value=jnp.zeros(2)),
        r"largest_log_e_value .* \[2\], got .* \[\]",
    )
    of(cj.Quantiles(values, levels)).save(path)
    check_refused(of(cj.Quantiles(values, (0.2, 0.5, 0.9))), r"levels=\(0.2, .*levels=\(0.1, ")

    for broken in (b"junk", b"", content[:-40], content[: len(content) // 2]):
        path.write_bytes(broken)
        check_refused(monitor, "expected a whole file")
    np.savez(path, p=np.ones(3))
    check_refused(monitor, "expected a whole file")
    path.write_bytes(content)
    with np.load(path) as file:
        arrays = dict(file)
    np.savez(path, **arrays | {"largest_log_e_value": np.float32("nan")})
    check_refused(monitor, "largest_log_e_value must hold numbers, got NaN")
    header = arrays["header"].tobytes().replace(b'"version": 4', b'"version": 9')
    np.savez(path, **arrays | {"header": np.frombuffer(header, np.uint8)})
    check_refused(monitor, "version 4, got 9")


def test_a_save_that_fails_leaves_the_old_file(key, tmp_path, monkeypatch):
    path = tmp_path / "state.npz"
    monitor = cj.CalibrationMonitor.start(key, cj.Normal(jnp.arange(64.0), jnp.ones(64)))
    monitor.save(path)
    before = path.read_bytes()
    lost = dataclasses.replace(monitor, largest_log_e_value=jnp.array(jnp.nan))
    check_message(lambda: lost.save(path), ValueError, "largest_log_e_value must hold numbers.*NaN")
    link = tmp_path / "link.npz"
    link.symlink_to(path)
    dataclasses.replace(monitor, largest_log_e_value=jnp.array(3.0)).save(link)
    assert link.is_symlink() and monitor.load(path).largest_log_e_value == 3

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    check_message(lambda: monitor.save(path), OSError, r"No space.*state.npz")
    assert monitor.load(path).largest_log_e_value == 3 and path.read_bytes() != before
    assert sorted(x.name for x in tmp_path.iterdir()) == ["link.npz", "state.npz"]


def test_bad_values(key):
    predictions, targets = _labels(key, 100, 0.0)
    monitor = cj.CalibrationMonitor.start(key, predictions)
    with pytest.raises(ValueError):
        monitor.update(predictions, targets.at[3].set(2))
    # Inside jit the batch is left out, and what was known stays.
    before = monitor.update(predictions, targets)
    inside = jax.jit(lambda y: before.update(predictions, y))(targets.at[3].set(2))
    assert int(inside.n_skipped) == 1 and "n_skipped = 1" in repr(inside)
    assert inside.log_e_value == before.log_e_value and int(inside.n_rows) == 100
    numbers = cj.Normal(jnp.zeros(4), jnp.ones(4))
    check_message(
        lambda: monitor.update(numbers, jnp.zeros(4)), TypeError, r"predictions.*Bernoulli.*Normal"
    )
    classes = cj.Categorical(jnp.full((4, 3), 1 / 3))
    check_message(
        lambda: cj.CalibrationMonitor.start(key, classes).update(
            cj.Categorical(jnp.full((4, 2), 0.5)), jnp.zeros(4, int)
        ),
        ValueError,
        r"predictions.*\[\[3\]\].*\[\[2\]\]",
    )
    check_message(
        lambda: cj.CalibrationMonitor.start(key, predictions, kernels=cj.WhiteKernel()),
        TypeError,
        r"kernels.*list.*WhiteKernel",
    )
    with pytest.raises(TypeError):
        cj.CalibrationMonitor.start(key, predictions, kernels=cj.default_kernels(predictions))
    with pytest.raises(ValueError):
        monitor.alarm(1.5)


@pytest.mark.parametrize(
    "axis", [jax.sharding.AxisType.Explicit, jax.sharding.AxisType.Auto], ids=str
)
@pytest.mark.slow
def test_rows_on_two_devices(axis, key):
    mesh = jax.make_mesh((2,), ("rows",), axis_types=(axis,))
    spec = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("rows"))
    batch = _labels(key, 32, 0.5)
    cut = jax.device_put(batch, spec)
    expected = cj.CalibrationMonitor.start(key, batch[0]).update(*batch)
    found = cj.CalibrationMonitor.start(key, cut[0]).update(*cut)
    np.testing.assert_allclose(found.log_e_value, expected.log_e_value, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_inside_of_shard_map_each_device_has_its_own(key):
    mesh = jax.make_mesh((2,), ("rows",), axis_types=(jax.sharding.AxisType.Auto,))
    rows = jax.sharding.PartitionSpec("rows")
    predictions, targets = _labels(key, 32, 0.5)
    monitor = cj.CalibrationMonitor.start(key, predictions)

    def local(predictions, targets):
        return monitor.update(predictions, targets).log_e_value[None]

    mapped = jax.shard_map(local, mesh=mesh, in_specs=rows, out_specs=rows)
    found = jax.jit(mapped)(predictions, targets)
    halves = [monitor.update(predictions[i : i + 16], targets[i : i + 16]) for i in (0, 16)]
    np.testing.assert_allclose(found, [m.log_e_value for m in halves], rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_evidence_of_a_censored_target_is_its_mean_over_where_it_may_be(key, float64):
    many = cj.Weibull(jnp.full(60, 1.5), jnp.linspace(0.5, 2.0, 60))
    seen = jnp.arange(60) % 2 == 0
    time = 0.6 * many.sample(key)
    monitor = past_of_a_wrong_model(key, many, cj.IntervalCensored.right_censored(time, seen))
    one = cj.Weibull(jnp.array([1.5]), jnp.array([1.2]))
    law = scipy.stats.weibull_min(1.5, scale=1.2)
    between = np.array([[0.7, np.inf], [0.0, 0.4], [-np.inf, 2.0], [0.9, 1.1]])
    # The evidence of a target that is known has steps at the edges of cells.
    cuts = np.unique(np.append(_cell_edges(), law.cdf(between)))
    u, widths = (cuts[1:] + cuts[:-1]) / 2, np.diff(cuts)
    low, high = np.concatenate([np.stack([law.ppf(u)] * 2, axis=1), between]).T
    after = jax.vmap(
        lambda a, b: monitor.update(one, cj.IntervalCensored(a[None], b[None])).log_e_value
    )
    exact, hidden = np.split(np.exp(np.asarray(after(low, high))), [u.size])
    for (start, end), found in zip(law.cdf(between), hidden, strict=True):
        inside = widths * ((u > start) & (u < end))
        np.testing.assert_allclose(found, inside @ exact / inside.sum(), rtol=1e-7)
    np.testing.assert_allclose(widths @ exact, evidence(monitor), rtol=1e-7)
    assert np.ptp(hidden) > 0.01 * evidence(monitor)


def test_what_hides_a_class_is_refused(key):
    grades = cj.Ordinal(jax.random.dirichlet(key, jnp.ones(3), (20,)))
    monitor = cj.CalibrationMonitor.start(key, grades)
    hidden = cj.IntervalCensored(jnp.zeros(20, int), jnp.ones(20, int))
    check_message(
        lambda: monitor.update(grades, hidden), TypeError, "targets.*labels.*IntervalCensored"
    )


def test_alarms_of_streams():
    """Holm's p-values as statsmodels has them, with ties, tiny ones and p-values of 1."""
    logs = np.array([3.5, 0.0, 12.0, 3.5, 5.0, 80.0], np.float32)
    monitors = {
        f"stream {k}": types.SimpleNamespace(largest_log_e_value=jnp.asarray(x))
        for k, x in enumerate(logs)
    }
    found = cj.holm_pvalues(monitors)
    assert list(found) == list(monitors)
    expected = multipletests(np.exp(-logs.astype(float)), method="holm")[1]
    np.testing.assert_allclose(np.array(list(found.values())), expected, rtol=1e-4)
    for wrong, error, message in (
        ({}, ValueError, "at least one"),
        ([1], TypeError, "mapping of names to monitors, got list"),
        ({"a": 1.0}, TypeError, "got float as a"),
    ):
        with pytest.raises(error, match=message):
            cj.holm_pvalues(wrong)
