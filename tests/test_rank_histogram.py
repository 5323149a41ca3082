"""The shape of rank histograms, and events that numbers are above a threshold."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import calibjax as cj
from calibjax._data.data import as_data
from calibjax._data.padding import padded
from calibjax.evaluation._effect import RANK_HISTOGRAM
from calibjax.evaluation._evaluate import above_threshold

N = 96
RNG = np.random.default_rng(0)
X, NOISE, DRAWS = RNG.normal(size=N), RNG.normal(size=N), RNG.normal(size=(N, 9))


def shape_of(predictions, targets):
    data = as_data(predictions, jnp.asarray(targets))
    keys = SimpleNamespace(measures=jax.random.key(0))
    case = SimpleNamespace(data=data, padded=padded(data), level=0.05, random_keys=keys)
    return RANK_HISTOGRAM.compute(case)


@pytest.mark.parametrize(
    ("spread", "shift", "shape"),
    [
        (1.0, 0.0, "flat"),
        (0.4, 0.0, "U-shaped (under-dispersive)"),
        (3.0, 0.0, "dome-shaped (over-dispersive)"),
        (1.0, 0.8, "sloped (biased high)"),
        (1.0, -0.8, "sloped (biased low)"),
        (0.4, 0.8, "sloped (biased high) and U-shaped (under-dispersive)"),
    ],
)
def test_the_shape_of_a_rank_histogram(spread, shift, shape):
    members = X[:, None] + shift + spread * DRAWS
    assert shape_of(cj.Empirical(jnp.asarray(members)), X + NOISE) == shape


def test_other_forecasts_have_no_rank_histogram():
    weights = jnp.full((N, 9), 1 / 9)
    for p in (cj.Normal(jnp.asarray(X), 1.0), cj.Empirical(jnp.asarray(DRAWS), weights)):
        assert shape_of(p, X) is None


LEVELS = (0.25, 0.5, 0.75)
ABOVE = {
    "normal": (cj.Normal, (X, np.ones(N)), 0.3, stats.norm(X).sf(0.3)),
    "counts": (cj.Poisson, (np.exp(X),), 1.5, stats.poisson(np.exp(X)).sf(1)),
    "members": (cj.Empirical, (np.round(DRAWS, 1),), 0.3, (np.round(DRAWS, 1) > 0.3).mean(axis=1)),
    "quantiles": (
        lambda q: cj.Quantiles(q, LEVELS),
        (np.tile([0.0, 1.0, 3.0], (N, 1)),),
        2.0,
        np.full(N, 1 - 0.625),
    ),
}


@pytest.mark.parametrize("case", ABOVE)
def test_numbers_above_a_threshold_are_an_event(case):
    family, parameters, above, expected = ABOVE[case]
    targets = RNG.poisson(np.exp(X)) if case == "counts" else np.round(X + NOISE, 1)
    weights = RNG.uniform(1, 2, N)
    predictions = family(*map(jnp.asarray, parameters))
    found = above_threshold(as_data(predictions, jnp.asarray(targets), weights=weights), above)
    np.testing.assert_allclose(found.predictions.probs, expected, atol=1e-6)
    np.testing.assert_array_equal(found.targets, targets > above)
    np.testing.assert_allclose(found.weights, weights, rtol=1e-6)
    assert found.classes == [f"≤ {above:g}", f"> {above:g}"]


def test_errors_of_thresholds():
    events = as_data(cj.Bernoulli(jnp.full(4, 0.5)), jnp.array([0, 1, 0, 1]))
    censored = cj.IntervalCensored.right_censored(jnp.ones(4), jnp.array([True, False, True, True]))
    numbers = as_data(cj.Normal(jnp.zeros(4), 1.0), jnp.arange(4.0))
    hidden = as_data(cj.Normal(jnp.zeros(4), 1.0), censored, intervals=True)
    for data, got in ((events, "Bernoulli"), (hidden, "censored targets")):
        with pytest.raises(TypeError, match=f"numbers and exact targets, got {got}"):
            above_threshold(data, 1.0)
    with pytest.raises(ValueError, match="above must be a finite number, such as 1.0, got nan"):
        above_threshold(numbers, np.nan)
    with pytest.raises(TypeError, match="above needs forecasts of numbers"):
        cj.evaluate([0.5] * 4, [0, 1, 0, 1], above=1.0)


def test_counts_above_a_threshold():
    """Quantiles of Poisson counts: P(Y > a) of all rows is near the Poisson one, and not above."""
    rate = np.exp(np.random.default_rng(0).normal(1.0, 0.7, 400))
    levels = np.array([0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95])
    counts = cj.Quantiles(stats.poisson.ppf(levels, rate[:, None]), tuple(levels))
    y = np.random.default_rng(1).poisson(rate).astype(float)
    for above in (0, 2, 5):
        found = above_threshold(as_data(counts, jnp.asarray(y)), above).predictions.probs
        assert abs(np.mean(found) - np.mean(stats.poisson.sf(above, rate))) < 0.02
