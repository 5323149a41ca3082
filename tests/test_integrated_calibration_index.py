"""The integrated calibration index, by a loop over rows."""

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

import calibjax as cj

N = 60
RNG = np.random.default_rng(0)
SCALE = np.repeat(np.linspace(0.5, 2.0, N // 2), 2)  # Each risk is there twice.
LIFE, END = SCALE * RNG.exponential(size=N), RNG.uniform(0.5, 3.0, N)
TIME, OBSERVED = np.minimum(LIFE, END), LIFE <= END
PREDICTIONS = cj.Weibull(jnp.ones(N), jnp.asarray(SCALE))
TARGETS = cj.Between.right_censored(jnp.asarray(TIME), jnp.asarray(OBSERVED))


def survival(time, observed, at):
    value = 1.0
    for s in np.sort(time[observed]):
        value *= 1 - 1 / np.sum(time >= s) if s <= at else 1.0
    return value if np.any(time >= at) or value < 1e-9 else np.nan


def expected(time, observed, scale, at):
    """As in the docstring, in NumPy."""
    risk = stats.expon(scale=scale).cdf(at)
    ranks = stats.rankdata(risk)
    gaps = []
    for rank, own in zip(ranks, risk, strict=True):
        near = np.abs(ranks - rank) <= 0.25 * risk.size**0.8
        gaps.append(abs(own - (1 - survival(time[near], observed[near], at))))
    return np.mean(gaps)


def test_a_loop_over_rows():
    at = [0.4, 1.0, 10.0]
    found = cj.integrated_calibration_index(PREDICTIONS, TARGETS, jnp.array(at))
    by_hand = [expected(TIME, OBSERVED, SCALE, t) for t in at]
    np.testing.assert_allclose(found, by_hand, rtol=1e-4)
    assert np.isfinite(found[:2]).all() and np.isnan(found[2])


def test_masked_and_invalid_rows():
    where = np.arange(N) % 3 > 0
    targets = cj.Between.right_censored(np.where(where, TIME, np.nan), OBSERVED)
    at = jnp.array([1.0])
    index = jax.jit(
        lambda where: cj.integrated_calibration_index(PREDICTIONS, targets, at, where=where)
    )
    by_hand = expected(TIME[where], OBSERVED[where], SCALE[where], 1.0)
    np.testing.assert_allclose(index(where), [by_hand], rtol=1e-4)
    assert np.isnan(index(np.ones(N, bool))).all()
