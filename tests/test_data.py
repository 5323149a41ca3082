"""`Data` in place of predictions and targets: checked once, and the same numbers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import calibjax as cj
from calibjax._rows import as_data

N = 40
RNG = np.random.default_rng(0)
PREDICTIONS = cj.Bernoulli(RNG.uniform(0.05, 0.95, N).astype(np.float32))
EVENTS = (RNG.uniform(size=N) < PREDICTIONS.probs).astype(np.int32)
WEIGHTS = RNG.uniform(0.5, 2, N).astype(np.float32)
ROWS = dict(where=np.arange(N) != 3, weights=WEIGHTS)
KEY = jax.random.key(0)


def test_data_are_the_arguments_by_name():
    clusters = np.arange(N) // 2
    of_data = cj.Data(PREDICTIONS, EVENTS, clusters=clusters, **ROWS)
    found = cj.calibration_test(KEY, of_data, n_resamples=99)
    expected = cj.calibration_test(
        KEY, PREDICTIONS, EVENTS, n_resamples=99, clusters=clusters, **ROWS
    )
    assert found.method == expected.method and "20 clusters" in found.method
    np.testing.assert_array_equal(found.null_distribution, expected.null_distribution)


def test_clusters_are_numbered_and_times_are_in_horizons():
    named = cj.Data(PREDICTIONS, EVENTS, clusters=np.arange(N) % 3 * 10**12 - 7)
    np.testing.assert_array_equal(named.clusters, np.arange(N) % 3)
    timed = cj.Data(PREDICTIONS, EVENTS, times=1e9 + 4.0 * np.arange(N), horizon=8)
    np.testing.assert_array_equal(timed.times, np.arange(N) / 2)
    assert timed.n_units() == N and named.describe_units() == "3 clusters"


def test_data_are_a_pytree_that_is_not_checked_again():
    data = cj.Data(PREDICTIONS, EVENTS, **ROWS)
    assert as_data(data) is data
    weighted = jax.jit(lambda x: jnp.sum(jnp.where(x.targets == 1, x.weights, 0.0)))(data)
    np.testing.assert_allclose(weighted, np.sum(WEIGHTS * EVENTS), rtol=1e-6)
    assert data.replace(weights=None).where is data.where


@pytest.mark.parametrize(
    "call, kind, message",
    [
        (lambda: cj.Data(PREDICTIONS, EVENTS + 1), ValueError, "targets must be .*; row "),
        (lambda: cj.Data(PREDICTIONS, EVENTS, weights=-WEIGHTS), ValueError, "weights must be"),
        (lambda: cj.Data(PREDICTIONS, EVENTS, horizon=2), ValueError, "times must be given"),
        (lambda: cj.Data(PREDICTIONS, EVENTS[1:]), ValueError, "targets must have shape"),
        (
            lambda: cj.calibration_test(KEY, cj.Data(PREDICTIONS, EVENTS), EVENTS),
            TypeError,
            "targets must be None beside Data",
        ),
        (
            lambda: cj.calibration_test(KEY, cj.Data(PREDICTIONS, EVENTS), weights=WEIGHTS),
            TypeError,
            "weights must be None beside Data",
        ),
        (lambda: cj.calibration_test(KEY, PREDICTIONS), TypeError, "targets must be an array"),
        (
            lambda: cj.calibration_test(KEY, cj.Data(PREDICTIONS[:1], EVENTS[:1])),
            ValueError,
            "predictions must hold at least 2 rows, got 1",
        ),
    ],
)
def test_errors(call, kind, message):
    with pytest.raises(kind, match=message):
        call()
