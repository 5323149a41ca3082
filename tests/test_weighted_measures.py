"""Weights of rows in classical measures: sums in NumPy, and rows that are repeated."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from messages import check_message

import calibjax as cj

N = 48
WEIGHTS = np.random.default_rng(1).integers(0, 4, N)
UNEVEN = np.random.default_rng(2).lognormal(0, 1.5, N) * (np.arange(N) != 5)
BINS = cj.UniformBinning(4)


def classes(n_classes):
    rng = np.random.default_rng(0)
    probs = rng.dirichlet(np.ones(n_classes), N)
    right = probs**0.4 / (probs**0.4).sum(1, keepdims=True)
    return probs, np.array([rng.choice(n_classes, p=q) for q in right])


def repeated(predictions, targets):
    """WEIGHTS as numbers of equal rows."""
    rows = np.repeat(np.arange(N), WEIGHTS)
    return jax.tree.map(lambda x: x[rows], (predictions, targets))


def lifetimes():
    rng = np.random.default_rng(3)
    time, end = rng.exponential(size=N), rng.uniform(0.5, 2.0, N)
    seen, event = jnp.asarray(np.minimum(time, end)), jnp.asarray(time <= end)
    predictions = cj.Weibull(jnp.ones(N), jnp.asarray(rng.uniform(0.5, 2.0, N)))
    return predictions, cj.IntervalCensored.right_censored(seen, event)


def test_bins_are_weighted_sums():
    probs, targets = classes(3)
    found = cj.calibration_bins(cj.Categorical(probs), targets, binning=BINS, weights=UNEVEN)
    share = UNEVEN / UNEVEN.max()
    interval = np.clip(np.ceil(4 * probs), 1, 4)
    expected = {}
    for cell in np.unique(interval[UNEVEN > 0], axis=0):
        rows = (interval == cell).all(1) & (UNEVEN > 0)
        mean, frequency = (
            np.average(x[rows], axis=0, weights=UNEVEN[rows]) for x in (probs, np.eye(3)[targets])
        )
        error = np.abs(mean - frequency).sum() / 2
        expected[tuple(cell)] = rows.sum(), share[rows].sum(), error, *mean, *frequency
    filled = np.asarray(found.count) > 0
    ours = np.column_stack(
        [found.count, found.weight, found.error, found.prediction, found.frequency]
    )[filled]
    np.testing.assert_allclose(
        ours[np.lexsort(ours.T)], np.array(sorted(expected.values(), key=lambda x: x[::-1])),
        rtol=2e-5, atol=1e-6,
    )  # fmt: skip
    errors, weights = ours[:, 2], ours[:, 1]
    measures = [
        f(cj.Categorical(probs), targets, binning=BINS, weights=UNEVEN) for f in (cj.ece, cj.mce)
    ]
    np.testing.assert_allclose(measures, [np.average(errors, weights=weights), errors.max()], 1e-5)


def brier(predictions, targets, weights=None):
    squares = (jax.nn.one_hot(targets, 3) - predictions.probs) ** 2
    return jnp.average(jnp.sum(squares, axis=1), weights=weights)


MEASURES = {
    "ece": functools.partial(cj.ece, binning=BINS),
    "mce": functools.partial(cj.mce, binning=BINS),
    "mmce": cj.mmce,
    "temperature": cj.fit_temperature,
    "temperature of a score": functools.partial(cj.fit_temperature, objective=brier),
}


@pytest.mark.parametrize("name", MEASURES)
def test_of_a_description_weights_are_numbers_of_rows(name):
    probs, targets = classes(3)
    rows = cj.Categorical(jnp.asarray(probs)), jnp.asarray(targets)
    measure = MEASURES[name]
    expected = measure(*repeated(*rows))
    np.testing.assert_allclose(measure(*rows, weights=WEIGHTS), expected, rtol=2e-3)
    assert not np.allclose(measure(*rows), expected, rtol=5e-3)
    # A common factor cancels; equal weights change no digit.
    tolerance = 2e-4 if name == "temperature of a score" else 0.0
    equal = measure(*rows, weights=np.full(N, 7.0))
    np.testing.assert_allclose(equal, measure(*rows), rtol=tolerance)


def test_d_calibration():
    predictions, targets = lifetimes()
    found = cj.d_calibration(predictions, targets, n_bins=3, weights=UNEVEN)
    low, high = (np.asarray(x, float) for x in cj.pit_interval(predictions, targets))
    share, edges = UNEVEN / UNEVEN.max(), np.linspace(0, 1, 4)
    below = np.clip((edges - low[:, None]) / np.where(high > low, high - low, 1)[:, None], 0, 1)
    below = np.where((high > low)[:, None], below, edges >= low[:, None])
    counts = share @ np.diff(below, axis=1)
    np.testing.assert_allclose(found.counts, counts, rtol=1e-4)
    squares = np.sum((counts - share.sum() / 3) ** 2)
    np.testing.assert_allclose(found.statistic, 3 * squares / np.sum(share**2), rtol=1e-3)
    equal = cj.d_calibration(predictions, targets, n_bins=3, weights=np.full(N, 3.0))
    plain = cj.d_calibration(predictions, targets, n_bins=3)
    jax.tree.map(np.testing.assert_array_equal, equal, plain)


def test_equivalent_temperature():
    """The left side at T by all pairs of binary predictions: T shows the SKCE of the data."""
    p = np.where(np.arange(N) % 2, 0.9, 0.1) + np.random.default_rng(4).uniform(-0.05, 0.05, N)
    targets = np.where(np.arange(N) % 5 > 1, p > 0.5, p < 0.5).astype(int)
    kernel = cj.TensorProduct(cj.DistanceKernel(cj.TotalVariation(), 1.0), cj.WhiteKernel())
    options = {"n_resamples": 99, "weights": UNEVEN}
    rows = cj.Bernoulli(jnp.asarray(p)), jnp.asarray(targets)
    found = cj.equivalent_temperature(jax.random.key(0), kernel, *rows, **options)
    logits = np.log(p / (1 - p))
    change = UNEVEN * (1 / (1 + np.exp(-logits / float(found.temperature))) - p)
    pairs = 2 * np.exp(-np.abs(p[:, None] - p)) * np.outer(change, change)
    shown = (pairs.sum() - np.trace(pairs)) / (UNEVEN.sum() ** 2 - np.sum(UNEVEN**2))
    assert 1.1 < float(found.temperature) < 100
    np.testing.assert_allclose(shown, cj.skce(kernel, *rows, weights=UNEVEN), rtol=0.02)


def test_errors():
    probs, targets = classes(3)
    predictions = cj.Categorical(probs)
    for measure in (cj.ece, cj.mmce, cj.fit_temperature):
        bad = functools.partial(measure, predictions, targets, weights=-WEIGHTS)
        check_message(bad, ValueError, "weights must be nonnegative and finite; row")
    few, binning = 1.0 * (np.arange(N) < 5), cj.MedianVarianceBinning(10)
    measure = functools.partial(cj.ece, predictions, targets, binning=binning, weights=few)
    check_message(measure, ValueError, "at least min_size = 10 rows, got 5")
