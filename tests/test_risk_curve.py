"""Predicted and observed risks: Kaplan-Meier by hand and by lifelines, and coverage."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import calibjax as cj
from calibjax import plot

INDEX = np.arange(40)
U, V = (INDEX * 0.6180339887498949) % 1, (INDEX * 0.41421356237309515) % 1
# Rounded, so that events and censored rows are at the same times.
TIME, OBSERVED = np.round(0.05 + 2.5 * U, 1), V > 0.4
SCALE = 0.5 + 1.5 * V
PREDICTIONS = cj.Weibull(jnp.full(40, 1.5), jnp.asarray(SCALE))
TARGETS = cj.Between.right_censored(jnp.asarray(TIME), jnp.asarray(OBSERVED))
AT = jnp.array([0.4, 1.2, 2.6])


def kaplan_meier(time, observed, at):
    """S(t), and how many rows are seen until t."""
    survival = 1.0
    for s in np.unique(time[observed]):
        if s <= at:
            survival *= 1 - np.sum(observed & (time == s)) / np.sum(time >= s)
    return survival, np.sum(time >= at)


def test_groups_by_hand():
    curve = cj.risk_curve(PREDICTIONS, TARGETS, AT, n_bins=4)
    at, time = np.asarray(AT), np.asarray(TARGETS.low)
    for k in range(3):
        risk = stats.weibull_min(1.5, scale=SCALE).cdf(at[k])
        for b, rows in enumerate(np.argsort(risk).reshape(4, 10)):
            survival, n_seen = kaplan_meier(time[rows], OBSERVED[rows], at[k])
            known = n_seen > 0 or survival < 1e-12
            expected = risk[rows].mean(), 1 - survival if known else np.nan
            found = curve.predicted[k, b], curve.observed[k, b]
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
            assert curve.low[k, b] <= curve.observed[k, b] <= curve.high[k, b] or not known
    assert np.isnan(curve.observed).any() and (np.asarray(curve.count) == 10).all()


def test_the_numbers_of_lifelines():
    """Version 0.30.3 of its KaplanMeierFitter, for each of the groups at 1.2."""
    curve = cj.risk_curve(PREDICTIONS, TARGETS, AT, n_bins=4)
    observed = [0.6, 0.4, 0.11111111111111138, 0.0]
    low = [0.32979536, 0.17277903, 0.01643597]
    high = [0.87730683, 0.7473311, 0.56703491]
    predicted = [0.42501849826, 0.54788872966, 0.72314330648, 0.91283746353]
    for found, expected in zip(
        (curve.predicted, curve.observed), (predicted, observed), strict=True
    ):
        np.testing.assert_allclose(found[1], expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(curve.low[1, :3], low, rtol=1e-4)
    np.testing.assert_allclose(curve.high[1, :3], high, rtol=1e-4)
    # lifelines gives no interval without any event; that of four rows without one is exact.
    assert curve.low[1, 3] == 0
    expected = stats.binomtest(0, 4).proportion_ci(0.95, "exact").high
    np.testing.assert_allclose(curve.high[1, 3], expected, rtol=1e-5)


def test_when_all_rows_had_an_event():
    """The interval begins where it did before the last event: log-log, with 3 of 4 events."""
    predictions = cj.Weibull(jnp.ones(4), jnp.ones(4))
    curve = cj.risk_curve(predictions, jnp.array([0.1, 0.2, 0.3, 0.4]), jnp.array([0.35, 1.0]))
    assert curve.observed[1, 0] == 1 and curve.high[1, 0] == 1
    greenwood = 1 / 12 + 1 / 6 + 1 / 2
    factor = np.exp(stats.norm.ppf(0.975) * np.sqrt(greenwood) / np.log(4))
    np.testing.assert_allclose(curve.low[:, 0], 1 - 0.25 ** (1 / factor), rtol=1e-5)
    # Rows with equal risks are in one group, and other groups are empty.
    assert curve.count[0].tolist() == [4, *[0] * 9] and np.isnan(curve.predicted[0, 1:]).all()


@jax.jit
def in_jit(targets, where):
    return cj.risk_curve(PREDICTIONS, targets, AT, n_bins=4, where=where)


def test_masked_and_invalid_rows():
    where = np.arange(40) % 4 > 0
    masked = cj.Between(jnp.where(where, TARGETS.low, jnp.nan), TARGETS.high)
    expected = cj.risk_curve(PREDICTIONS[where], kept(where), AT, n_bins=4)
    found = in_jit(masked, where)
    for name in ("predicted", "observed", "low", "high", "count"):
        ours, theirs = getattr(found, name), getattr(expected, name)
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
    # Rows that are binned are no lifetimes.
    binned = cj.Between(TARGETS.low, TARGETS.low + 1)
    with pytest.raises(ValueError, match="high of targets must be low of targets where the event"):
        cj.risk_curve(PREDICTIONS, binned, AT)
    for targets in (masked, binned):
        curve = in_jit(targets, np.ones(40, bool))
        assert all(np.isnan(getattr(curve, name)).all() for name in ("predicted", "low", "high"))


def kept(where):
    return cj.Between(TARGETS.low[where], TARGETS.high[where])


def test_wrong_times():
    with pytest.raises(ValueError, match="at must have shape"):
        cj.risk_curve(PREDICTIONS, TARGETS, jnp.ones((2, 2)))
    with pytest.raises(ValueError, match="at must be finite"):
        cj.risk_curve(PREDICTIONS, TARGETS, jnp.array([jnp.nan]))


def test_counts():
    """P(Y <= 1.5) of a count is P(Y <= 1)."""
    rates = jnp.linspace(0.5, 3.0, 40)
    counts = jnp.asarray(np.random.default_rng(0).poisson(rates))
    curve = cj.risk_curve(cj.Poisson(rates, max_count=64), counts, jnp.array([1.5]), n_bins=2)
    risk = stats.poisson(np.asarray(rates)).cdf(1)
    groups = (np.arange(20, 40), np.arange(20))
    np.testing.assert_allclose(curve.predicted[0], [risk[g].mean() for g in groups], rtol=1e-4)
    expected = [np.mean(np.asarray(counts)[g] <= 1) for g in groups]
    np.testing.assert_allclose(curve.observed[0], expected, rtol=1e-5)


@pytest.mark.slow
def test_intervals_cover():
    n = 400
    predictions = cj.Weibull(jnp.ones(n), jnp.linspace(0.5, 2.0, n))

    def covers(key):
        of_event, of_end = jax.random.split(key)
        y, end = predictions.sample(of_event), 2 * jax.random.exponential(of_end, (n,))
        targets = cj.Between.right_censored(jnp.minimum(y, end), y <= end)
        curve = cj.risk_curve(predictions, targets, jnp.array([0.5, 1.5]), n_bins=5)
        inside = (curve.low <= curve.predicted) & (curve.predicted <= curve.high)
        return jnp.mean(inside.astype(jnp.float32))

    keys = jax.random.split(jax.random.key(0), 500)
    rates = np.asarray(jax.jit(lambda keys: jax.lax.map(covers, keys))(keys))
    # Ten intervals of 500 data sets; those of two times depend on each other.
    assert abs(rates.mean() - 0.95) < 3 * np.sqrt(0.05 * 0.95 / 2500)


def test_the_picture():
    curve = cj.risk_curve(PREDICTIONS, TARGETS, AT, n_bins=4)
    ax = plot.risk(curve)
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels == ["until 0.4", "until 1.2", "until 2.6"]
    lines, *_ = ax.containers[1]
    known = ~np.isnan(curve.observed[1])
    np.testing.assert_allclose(lines.get_xdata(), curve.predicted[1][known])
    np.testing.assert_allclose(lines.get_ydata(), curve.observed[1][known])
    ax.figure.canvas.draw()
    with pytest.raises(TypeError, match="curve must be a RiskCurve, got int"):
        plot.risk(3)
    many = cj.risk_curve(PREDICTIONS, TARGETS, jnp.arange(1.0, 6.0))
    with pytest.raises(ValueError, match="curve must be of at most 4 times, got 5"):
        plot.risk(many)
