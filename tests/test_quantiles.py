"""Quantile forecasts of laws with atoms: right is P(Y < q) <= level <= P(Y <= q), and no more."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from compiled import call

import calibjax as cj
from calibjax._data.data import as_data
from calibjax.evaluation._curves import worst_level
from calibjax.measures.families import measures

LEVELS = (0.1, 0.3, 0.5, 0.7, 0.9)
VALUES = (0.0, 0.0, 1.0, 2.0, 3.0)


def of_rain(rng, n, dry=0.0, scale=1.0):
    """Exact quantiles of laws that are 0 with some probability, else exponential; and targets.

    The targets are 0 with a probability that is larger by `dry`, and else `scale` times as large.
    """
    p = rng.uniform(0.2, 0.6, n)
    excess = np.maximum(np.array(LEVELS)[None] - p[:, None], 0.0) / (1 - p[:, None])
    targets = np.where(rng.uniform(size=n) < p + dry, 0.0, scale * rng.exponential(size=n))
    return (-np.log1p(-excess)).astype("float32"), targets.astype("float32")


def test_places_of_targets_at_quantiles():
    predictions = cj.Quantiles(jnp.tile(jnp.array([VALUES]), (5, 1)), LEVELS)
    low, high = call(predictions, "pit_intervals", np.float32([-1.0, 0.0, 0.5, 1.0, 4.0]))
    ends = np.round(np.stack([low, high], axis=2).astype(float), 3)
    found = [set(map(tuple, row.tolist())) for row in ends]
    assert found == [
        {(0.0, 0.1)},
        # Two levels at 0: a jump from 0 … 0.1 to 0.3 … 0.5.
        {(0.0, 0.3), (0.1, 0.5), (0.0, 0.5), (0.1, 0.3)},
        {(0.3, 0.5)},
        # One level at 1: a jump around 0.5, if there is one, within 0.3 … 0.7.
        {(0.3, 0.5), (0.5, 0.7), (0.3, 0.7)},
        {(0.9, 1.0)},
    ]


def test_evidence_does_not_grow_under_any_distribution_with_these_quantiles(key, float64):
    """By enumeration of all laws whose jumps at 0 and at 2 begin and end where they may."""
    forecasts = cj.Quantiles(jnp.tile(jnp.array([VALUES]), (40, 1)), LEVELS)
    monitor = cj.CalibrationMonitor.start(key, forecasts)
    past = jax.random.choice(key, jnp.array([0.0, 0.5, 2.0, 2.5, 9.0]), (40,))
    monitor = monitor.update(forecasts, past)
    outcomes = jnp.array([-1.0, 0.0, 0.5, 1.5, 2.0, 2.5, 4.0])
    update = jax.jit(jax.vmap(lambda y: monitor.update(forecasts[:1], y[None]).log_e_value))
    after = update(outcomes)
    gains = np.exp(np.asarray(after - monitor.log_e_value))
    assert gains.max() > 1.05
    means = []
    for a, b, c, d in itertools.product((0.0, 0.06, 0.1), (0.3, 0.4, 0.5), (0.5, 0.7), (0.7, 0.9)):
        law = [a, b - a, 0.5 - b, c - 0.5, d - c, 0.9 - d, 0.1]
        np.testing.assert_allclose(np.sum(law), 1.0)
        means.append(np.dot(law, gains))
    assert np.max(means) <= 1 + 1e-12
    # Not merely because nothing is ever bet on a target at a quantile.
    assert np.max(means) > 0.99


@jax.jit
def pvalue_of(seed, values, targets):
    predictions = cj.Quantiles(values, LEVELS)
    return cj.calibration_test(jax.random.key(seed), predictions, targets, n_resamples=199).pvalue


def test_equal_values_at_the_last_levels():
    """Rare counts, whose last quantiles are all 0, or all 1, and which are sometimes larger."""
    rate = np.exp(np.random.default_rng(0).uniform(-4, -1, 500))
    values = scipy.stats.poisson.ppf(np.array(LEVELS)[None], rate[:, None]).astype("float32")
    targets = np.random.default_rng(1).poisson(rate).astype("float32")
    assert pvalue_of(0, values, targets) > 0.05
    # Targets of a law that is one number, and of one that is larger too often.
    values[:], targets[:] = 2.0, 2.0
    assert pvalue_of(0, values, targets) > 0.05
    targets[:150] = 3.0
    assert pvalue_of(0, values, targets) <= 0.01


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_quantiles_at_their_levels_are_their_values(dtype):
    levels, rng = (0.05, 0.1, 0.3, 1 / 3, 0.5, 0.75, 0.9, 0.99), np.random.default_rng(0)
    size = np.geomspace(1e-6, 1e6, 40)[:, None]
    values = np.sort(size * rng.normal(size=(40, len(levels))), axis=1).astype(dtype)
    with jax.enable_x64(dtype == "float64"):
        predictions = cj.Quantiles(values, levels)
        for level, value in zip(levels, values.T, strict=True):
            np.testing.assert_array_equal(predictions.quantile(level), value)
        slope = jax.jacobian(predictions.quantile)(jnp.asarray(0.9, dtype))
    between = (values[:, 6] - values[:, 5]) / 0.15
    np.testing.assert_allclose(slope, between, rtol=1e-4)


def test_integers_are_numbers():
    predictions = cj.Quantiles(jnp.tile(jnp.array([VALUES]), (3, 1)), LEVELS)
    targets, key = jnp.array([0, 1, 3]), jax.random.key(0)
    expected = cj.pit(key, predictions, targets.astype(float))
    np.testing.assert_array_equal(cj.pit(key, predictions, targets), expected)


def test_shares_below_and_up_to_quantiles():
    values, targets = of_rain(np.random.default_rng(0), 500)
    predictions = cj.Quantiles(jnp.asarray(values), LEVELS)
    data = as_data(predictions, jnp.asarray(targets))
    (found,) = measures(jax.random.key(0), data, 0.95, 9)
    below, up_to = found["observed below 0.3 quantile"], found["observed up to 0.3 quantile"]
    assert below.value == np.mean(targets < values[:, 1])
    assert up_to.value == np.mean(targets <= values[:, 1])
    assert below.value < 0.2 and up_to.value > 0.37  # with one of these it would be wrong
    low, high = np.array(scipy.stats.binom(500, 0.3).interval(0.95)) / 500
    np.testing.assert_allclose([below.if_calibrated, up_to.if_calibrated], [(0, high), (low, 1)])
    coverage = found["coverage of 80 % intervals"]
    assert coverage.value == np.mean((targets >= values[:, 0]) & (targets <= values[:, 4]))
    assert coverage.if_calibrated[1] == 1.0
    assert worst_level(cj.Data(predictions, targets), 0.95) is None
    assert "of targets below" in worst_level(cj.Data(predictions, targets - 0.01), 0.95)
    dry = cj.Quantiles(jnp.tile(jnp.array([[0.0, 0.0, 1.0]]), (400, 1)), (0.1, 0.5, 0.9))
    wet = np.repeat([0.0, 0.5, 2.0], [100, 260, 40])
    assert "0.5 quantile: 25.0 % of targets at or below" in worst_level(cj.Data(dry, wet), 0.95)
