"""Maps of where a model is wrong, and contributions of rows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import calibjax as cj

KEY = jax.random.key(0)
N = 400
KEPT = np.arange(N) % 4 > 0
TWO_BINS = {"n_bins": 2, "n_resamples": 99}


def labels(n=N, m=3):
    """Calibrated predictions of classes."""
    logits = 2 * jax.random.normal(jax.random.key(1), (n, m))
    targets = jax.random.categorical(jax.random.key(2), logits)
    return cj.Categorical(jax.nn.softmax(logits)), targets


def numbers(n=N):
    """Calibrated predictions of numbers."""
    loc, log_scale = jax.random.normal(jax.random.key(3), (2, n))
    predictions = cj.Normal(5 * loc, jnp.exp(log_scale))
    return predictions, predictions.sample(jax.random.key(4))


def test_cells_of_classes_are_those_of_a_loop_over_kept_rows():
    predictions, targets = labels()
    broken = cj.Categorical(jnp.where(KEPT[:, None], predictions.probs, jnp.nan))
    found = cj.witness_map(KEY, broken, targets, n_bins=4, n_resamples=99, where=KEPT)
    probs = np.where(KEPT[:, None], np.asarray(predictions.probs, float), np.inf)
    for c in range(3):
        for b in range(4):
            low, high = found.probability_edges[b : b + 2]
            here = (probs[:, c] > float(low)) & (probs[:, c] <= float(high))
            hits = np.asarray(targets)[here] == c
            assert found.count[c, b] == here.sum()
            np.testing.assert_allclose(found.predicted[c, b], probs[here, c].mean(), rtol=1e-5)
            np.testing.assert_allclose(
                found.value[c, b], hits.mean() - probs[here, c].mean(), atol=1e-6
            )
            # G of the test of counts (events and no events), on the scale of the true variance.
            p = probs[here, c]
            expected = np.array([p.sum(), (1 - p).sum()])
            observed = np.array([hits.sum(), (~hits).sum()])
            g = stats.power_divergence(observed, expected, lambda_="log-likelihood").statistic
            g *= p.sum() * (1 - p).sum() / len(p) / (p * (1 - p)).sum()
            np.testing.assert_allclose(found.score[c, b] ** 2, g, rtol=1e-3, atol=1e-4)
            assert np.sign(found.score[c, b]) == np.sign(found.value[c, b])


@pytest.mark.slow
def test_the_critical_score_is_the_quantile_of_one_binomial_number():
    # One probability for all rows: the only filled cell has k ~ Binomial(N, 0.3) events.
    predictions = cj.Bernoulli(jnp.full(N, 0.3))
    found = cj.witness_map(KEY, predictions, jnp.zeros(N, int), n_resamples=1999)
    k = np.arange(N + 1)
    # 0 log 0 = 0.
    deviance = 2 * (
        np.where(k > 0, k * np.log(np.maximum(k, 1) / N / 0.3), 0.0)
        + np.where(k < N, (N - k) * np.log(np.maximum(N - k, 1) / N / 0.7), 0.0)
    )
    tail = [stats.binom.pmf(k[deviance >= d - 1e-9], N, 0.3).sum() for d in deviance]
    # The largest share of data sets that reach the critical score, and that exceed it.
    critical = float(found.critical) ** 2
    reach = max(t for t, d in zip(tail, deviance, strict=True) if d >= critical - 1e-2)
    exceed = max(t for t, d in zip(tail, deviance, strict=True) if d > critical + 1e-2)
    assert exceed - 0.015 < 0.05 < reach + 0.015
    assert found.worst_cell() == (0, 2)
    assert found.significant.sum() == 1

    # As many events as the critical data set has are not significant, and one farther off is.
    at = int(np.argmin(np.abs(deviance - critical)))
    assert deviance[at] == pytest.approx(critical, abs=1e-2)
    beyond = at + int(np.sign(at - 0.3 * N))
    for events, expected in [(at, False), (beyond, True)]:
        again = cj.witness_map(KEY, predictions, (k[:-1] < events).astype(int), n_resamples=1999)
        assert again.significant.any() == expected


def test_one_event_of_probability_zero_is_the_worst_cell():
    probs = jnp.tile(jnp.array([0.0, 0.5, 0.5]), (N, 1))
    targets = jnp.arange(N) % 2 + 1
    model = cj.Categorical(probs)
    assert cj.witness_map(KEY, model, targets, n_resamples=99).worst_cell() is None
    found = cj.witness_map(KEY, model, targets.at[7].set(0), n_resamples=99)
    assert found.worst_cell() == (0, 0)
    assert found.score[0, 0] == jnp.inf


@pytest.mark.slow
def test_masked_rows_are_not_drawn():
    for function, cut in [(cj.witness_map, labels()), (cj.residual_map, numbers())]:
        where = jnp.arange(N) < 300
        with_mask = function(KEY, *cut, n_bins=2, n_resamples=99, where=where)
        without = function(KEY, cut[0][:300], cut[1][:300], n_bins=2, n_resamples=99)
        for one, other in zip(*map(jax.tree.leaves, (with_mask, without)), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)


def test_invalid_rows_inside_jit_are_never_significant():
    predictions, targets = labels()
    compiled = jax.jit(lambda p, y: cj.witness_map(KEY, cj.Categorical(p), y, n_resamples=99))
    found = compiled(predictions.probs.at[3].set(jnp.nan), targets)
    assert jnp.isnan(found.value).all() and jnp.isnan(found.critical)
    assert found.worst_cell() is None


def test_cells_of_numbers_are_those_of_a_loop_over_kept_rows():
    predictions, targets = numbers()
    broken = cj.Normal(jnp.where(KEPT, predictions.loc, jnp.nan), predictions.scale)
    found = cj.residual_map(KEY, broken, targets, where=KEPT, **TWO_BINS)
    r = np.asarray((targets - predictions.loc) / predictions.scale, float)
    loc, scale = np.asarray(predictions.loc)[KEPT], np.asarray(predictions.scale)
    high = np.asarray(predictions.loc) > np.quantile(loc, 0.5)
    wide = scale > np.quantile(scale[KEPT], 0.5)
    for i in range(2):
        for j in range(2):
            here = (high == i) & (wide == j) & KEPT
            assert found.count[i, j] == here.sum()
            np.testing.assert_allclose(found.value[0, i, j], r[here].mean(), atol=1e-5)
            np.testing.assert_allclose(found.value[1, i, j], (r[here] ** 2).mean() - 1, atol=1e-5)
            # A mean of standard normal numbers has the variance 1 / n.
            np.testing.assert_allclose(
                found.score[0, i, j], r[here].mean() * np.sqrt(here.sum()), atol=0.6
            )
    # The largest of eight nearly normal scores.
    assert found.critical == pytest.approx(stats.norm.isf(0.05 / 16), abs=0.5)
    np.testing.assert_allclose(found.location_edges[::2], np.quantile(loc, [0, 1]))


def test_a_wrong_spread_is_found_where_it_is():
    predictions, targets = numbers()
    wide = predictions.scale > jnp.median(predictions.scale)
    targets = jnp.where(wide, predictions.loc + 1.5 * (targets - predictions.loc), targets)
    found = cj.residual_map(KEY, predictions, targets, **TWO_BINS)
    assert found.worst_cell()[0] == 1
    np.testing.assert_array_equal(found.significant[1], [[False, True], [False, True]])


def test_the_one_value_of_a_prediction_is_no_error():
    # A spread of 0: every draw is the prediction itself.
    predictions, targets = cj.Poisson(jnp.zeros(N)), jnp.zeros(N, int)
    found = cj.residual_map(KEY, predictions, targets, **TWO_BINS)
    assert found.worst_cell() is None and found.count.tolist() == [[N, 0], [0, 0]]


def test_a_residual_that_is_infinite_is_no_residual_of_0():
    predictions = cj.Normal(jnp.linspace(0.0, 1.0, 30), jnp.full(30, 1.0).at[3].set(1e-30))
    found = cj.residual_map(KEY, predictions, predictions.loc + 1, **TWO_BINS)
    assert bool(jnp.all(jnp.isnan(found.score)) & jnp.isnan(found.critical))
    assert found.worst_cell() is None and bool(jnp.isnan(found.confidence_level))


@pytest.mark.slow
def test_empty_cells_are_no_error_while_nan_is_looked_for():
    events, happened = cj.Bernoulli(jnp.array([0.1, 0.2, 0.7, 0.7])), jnp.array([0, 1, 1, 1])
    numbers, targets = cj.Normal(jnp.zeros(4), 1.0), jnp.arange(4.0)
    with jax.debug_nans(True):
        curve = cj.reliability_curve(KEY, events, happened, n_bins=3, n_resamples=19)
        classes = cj.witness_map(KEY, events, happened, n_bins=3, n_resamples=19)
        residuals = cj.residual_map(KEY, numbers, targets, n_bins=2, n_resamples=19)
        bins = cj.calibration_bins(events, happened)
        kernel, kept = cj.default_kernel(events), jnp.arange(4) > 0
        shares = cj.contributions(kernel, events, happened, where=kept)
    for found in (curve.frequency, classes.value, residuals.value, bins.error, shares):
        assert 0 < int(jnp.sum(jnp.isnan(found))) < found.size


@pytest.mark.parametrize("weighted", [False, True])
def test_contributions_are_sums_of_rows_of_the_matrix(weighted):
    predictions, targets = labels(40)
    kernel = cj.default_kernel(predictions)
    where = jnp.arange(40) % 5 > 0
    weights = jnp.arange(40.0) if weighted else None
    found = cj.contributions(kernel, predictions, targets, where=where, weights=weights)
    assert jnp.isnan(found).tolist() == (~where).tolist()
    w = np.asarray(where, float) * (1.0 if weights is None else np.asarray(weights))
    matrix = np.array(cj.h_matrix(kernel, predictions, targets), float)
    np.fill_diagonal(matrix, 0.0)
    expected = matrix @ w * w.sum() / (w.sum() ** 2 - (w**2).sum())
    np.testing.assert_allclose(found[where], expected[where], atol=1e-5)
    estimate = cj.skce(kernel, predictions, targets, where=where, weights=weights)
    np.testing.assert_allclose(np.nansum(found * w) / w.sum(), estimate, atol=1e-6)


def test_errors_name_the_function_for_other_targets():
    predictions, targets = labels(4)
    with pytest.raises(TypeError, match="residual_map takes counts"):
        cj.witness_map(KEY, *numbers(4))
    with pytest.raises(TypeError, match="witness_map takes classes"):
        cj.residual_map(KEY, predictions, targets)
    with pytest.raises(ValueError, match="n_bins must be at least 1, got 0"):
        cj.residual_map(KEY, *numbers(4), n_bins=0)
