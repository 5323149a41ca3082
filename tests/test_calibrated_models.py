"""What holds for a calibrated model of every family and shape: the table `CALIBRATED`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from instances import CALIBRATED, N_CALIBRATED

import calibjax as cj
from calibjax.evaluation._section import keys_of

N_STREAMS, N_BATCHES, N_SETS = 200, 20, 400
models = pytest.mark.parametrize("data", CALIBRATED.values(), ids=CALIBRATED)


def at_most(rate, level, n):
    return rate <= level + 3 * np.sqrt(level * (1 - level) / n)


def streams(data, key):
    """log e-values after the first batches, and whether an alarm rang, of many streams."""
    monitor = cj.CalibrationMonitor.start(jax.random.key(1), data(jax.random.key(2))[0])

    def of_stream(key):
        def step(monitor, key):
            monitor = monitor.update(*data(key))
            return monitor, monitor.log_e_value

        last, path = jax.lax.scan(step, monitor, jax.random.split(key, N_BATCHES))
        return path, last.alarm(0.05), last.n_skipped

    of_streams = jax.jit(lambda keys: jax.lax.map(of_stream, keys, batch_size=50))
    path, alarms, lost = of_streams(jax.random.split(key, N_STREAMS))
    assert not np.any(lost)
    return np.asarray(path, np.float64), np.asarray(alarms)


@models
def test_few_streams_raise_an_alarm(data, key):
    path, alarms = streams(data, key)
    assert at_most(np.mean(alarms), 0.05, N_STREAMS)
    # The mean of min(e, 20) is at most that of e, and its error is known.
    e_values = np.minimum(np.exp(path), 20.0)
    errors = e_values.std(axis=0) / N_STREAMS**0.5
    assert np.all(e_values.mean(axis=0) <= 1 + 4 * errors)


@models
def test_the_test_has_its_level(data, key):
    def pvalue(key):
        target_key, test_key = jax.random.split(key)
        return cj.calibration_test(test_key, *data(target_key), n_resamples=99).pvalue

    of_sets = jax.jit(lambda keys: jax.lax.map(pvalue, keys, batch_size=50))

    def too_often(key, n):
        pvalues = np.asarray(of_sets(jax.random.split(key, n)))
        assert not np.any(np.isnan(pvalues))
        rates = {level: np.mean(pvalues <= level + 1e-6) for level in (0.01, 0.05, 0.2)}
        return {level: x for level, x in rates.items() if not at_most(x, level, n)}

    # Of three rates for each of so many models some are 3 standard errors too large by chance, as
    # 0.0875 at 0.05 of quantiles with this key: ten times as many other sets then decide.
    assert not too_often(key, N_SETS) or not too_often(jax.random.fold_in(key, 1), 10 * N_SETS)


GROUPS = {"side": np.arange(N_CALIBRATED) % 2, "half": np.arange(N_CALIBRATED) < N_CALIBRATED / 2}


@models
def test_the_test_of_segments_has_its_level(data, key):
    predictions, targets = data(key)
    if targets.ndim > 1:
        with pytest.raises(TypeError, match="take one coordinate"):
            cj.segment_test(key, predictions, targets, GROUPS)
        return

    def pvalue(key):
        target_key, test_key = jax.random.split(key)
        return cj.segment_test(test_key, *data(target_key), GROUPS, n_resamples=99).pvalue

    of_sets = jax.jit(lambda keys: jax.lax.map(pvalue, keys, batch_size=50))
    pvalues = np.asarray(of_sets(jax.random.split(key, N_SETS)))
    assert not np.any(np.isnan(pvalues))
    for level in 0.01, 0.05, 0.2:
        assert at_most(np.mean(pvalues <= level + 1e-6), level, N_SETS)


@models
def test_places_are_uniform(data, key):
    if data(key)[1].ndim > 1:
        with pytest.raises(TypeError, match="vectors"):
            cj.pit(key, *data(key))
        return

    def places(key):
        target_key, place_key = jax.random.split(key)
        return cj.pit(place_key, *data(target_key))

    found = np.ravel(jax.jit(jax.vmap(places))(jax.random.split(key, 40)))
    assert found.size == 40 * N_CALIBRATED
    assert scipy.stats.kstest(found, "uniform").pvalue > 1e-3


@models
def test_evaluate_says_what_the_test_says(data, key):
    """So that its level is that of the test, with one compiled evaluation for each model."""
    predictions, targets = data(key)
    found = cj.evaluate(predictions, targets, seed=3)
    expected = cj.calibration_test(keys_of(3).test, predictions, targets).pvalue
    assert found.pvalue == pytest.approx(float(expected))
    for name, measure in found.measures.items():
        assert np.isfinite(measure.value), name


@models
def test_masked_rows_are_dropped_rows(data, key):
    """Masked rows hold other valid rows: that they may hold anything is tested elsewhere."""
    where = jnp.arange(N_CALIBRATED) % 3 != 1
    predictions, targets = data(key)
    dropped = jax.tree.map(lambda x: x[where], (predictions, targets))
    monitor = cj.CalibrationMonitor.start(jax.random.key(1), data(jax.random.key(2))[0])
    np.testing.assert_allclose(
        monitor.update(predictions, targets, where=where).log_e_value,
        monitor.update(*dropped).log_e_value,
        rtol=1e-4,
        atol=1e-5,
    )
    masked = cj.calibration_test(key, predictions, targets, where=where, n_resamples=99)
    alone = cj.calibration_test(key, *dropped, n_resamples=99)
    np.testing.assert_allclose(masked.statistic, alone.statistic, rtol=2e-3, atol=1e-3)
    np.testing.assert_allclose(masked.pvalue, alone.pvalue, atol=0.021)
