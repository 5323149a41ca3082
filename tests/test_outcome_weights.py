"""Weights that depend on the label: enumerated data sets, equal problems, and case-control samples.

A row with the label c is sampled with a probability proportional to 1 / w_c, so that sampled labels
have probabilities q proportional to p / w.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import kstest
from typer.testing import CliRunner

import calibjax as cj
from calibjax._data.data import clean
from calibjax.cli import app
from calibjax.discrepancy import normal_form
from calibjax.hypothesis_tests._kernel_terms import terms_of
from calibjax.hypothesis_tests._redrawn_skce import redrawn_skce
from calibjax.nulls.on_host import label_probabilities
from calibjax.nulls.sampler import NullSampler

KERNEL = cj.TensorProduct(cj.DistanceKernel(cj.TotalVariation()), cj.WhiteKernel())


def family(p):
    return cj.Bernoulli(p[:, 1]) if p.shape[1] == 2 else cj.Categorical(p)


def case_control(seed, n_events=560, shift=0.0, n=None):
    """Events, all that there are and 5 % of the rest, with risks that are wrong by a shift."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(-3.3, 1, int(n_events / 0.0558))
    happened = rng.random(logits.size) < 1 / (1 + np.exp(-logits))
    kept = np.flatnonzero(happened | (rng.random(logits.size) < 0.05))[:n]
    p = 1 / (1 + np.exp(-logits[kept] - shift))
    return cj.Bernoulli(p.astype(np.float32)), happened[kept].astype(int)


def of_events(targets):
    return np.tile([20.0, 1.0], (len(targets), 1))


def of_three(seed, n):
    """Rows of three classes that were sampled with probabilities 1/20, 1 and 1/2."""
    rng = np.random.default_rng(seed)
    x, w = rng.normal(size=30 * n), np.array([20.0, 1.0, 2.0])
    p = np.exp(np.stack([0 * x, x - 3, -0.7 * x - 2.5], axis=1))
    p /= p.sum(axis=1, keepdims=True)
    y = (rng.random((x.size, 1)) > np.cumsum(p, axis=1)).sum(axis=1)
    kept = np.flatnonzero(rng.random(x.size) < 1 / w[y])[:n]
    return p[kept].astype(np.float32), y[kept], np.tile(w, (n, 1))


@pytest.mark.parametrize(("m", "n", "n_cells"), [(2, 8, 512), (2, 8, 4), (3, 5, 512)])
def test_draws_have_the_moments_of_all_data_sets(m, n, n_cells, key):
    rng = np.random.default_rng(m + n_cells)
    p, w = rng.dirichlet(np.ones(m), n), rng.uniform(0.5, 8, (n, m))
    q = p / w / (p / w).sum(axis=1, keepdims=True)
    near = np.exp(-np.abs(p[:, None] - p[None]).sum(axis=2) / 2)
    rows, values, chances = np.arange(n), [], []
    for y in itertools.product(range(m), repeat=n):
        residuals = w[rows, y][:, None] * (np.eye(m)[list(y)] - p)
        values.append(np.sum(near * (residuals @ residuals.T)))
        chances.append(q[rows, y].prod())
    mean = np.array(chances) @ values
    variance = np.array(chances) @ np.square(values - mean)

    @jax.jit
    def sums(data):
        terms = terms_of([normal_form(KERNEL)])
        return redrawn_skce(key, terms, clean(data), 4000, n_cells, None, NullSampler())[0]

    draws = []
    for label in (0, 1):
        y = np.full(n, label)
        found = np.asarray(sums(cj.Data(family(p), y, weights=w)))[0] * w[:, label].max() ** 2
        draws.append(found[1:])
        if n_cells > n:
            np.testing.assert_allclose(found[0], values[sum(label * m**k for k in rows)], rtol=1e-4)
    # Draws do not depend on what was observed.
    np.testing.assert_allclose(*draws, rtol=1e-4)
    if n_cells > n:
        assert abs(draws[0].mean() - mean) < 4 * (variance / 4000) ** 0.5
        assert abs(draws[0].std() / variance**0.5 - 1) < 0.15


def test_events_have_the_p_value_of_q_with_weights_that_are_known(key):
    """w_y (y - p) = (w_1 (1 - p) + w_0 p) (y - q)."""
    predictions, targets = case_control(0, n=600)
    p = np.asarray(predictions.probs, np.float64)
    q = p / (p + (1 - p) / 20)
    kernel = [cj.TensorProduct(lambda p, q: 1.0, cj.WhiteKernel())]
    with_labels = cj.Data(predictions, targets, weights=of_events(targets))
    known = cj.Data(cj.Bernoulli(q), targets, weights=1 - p + 20 * p)
    pvalues = [cj.aggregated_skce_test(key, kernel, x).pvalue for x in (with_labels, known)]
    np.testing.assert_allclose(*pvalues, atol=2e-3)
    assert cj.calibration_test(key, with_labels).is_exact


def test_estimates_are_those_of_the_weights_of_observed_labels():
    p, targets, weights = of_three(0, 60)
    data = cj.Data(family(p), targets, weights=weights)
    observed = weights[np.arange(60), targets]
    np.testing.assert_array_equal(data.weights, observed)
    plain = cj.Data(family(p), targets, weights=observed)
    assert cj.skce(KERNEL, data) == cj.skce(KERNEL, plain)
    maps = [cj.fit_recalibrator(x, method="temperature")(x.predictions) for x in (data, plain)]
    np.testing.assert_array_equal(*(x.probs for x in maps))


def test_top_labels_are_sampled_as_their_classes_are():
    p, targets, weights = of_three(1, 60)
    q = p / weights / (p / weights).sum(axis=1, keepdims=True)
    for of in (cj.top_label, lambda x: cj.one_vs_rest(x, label=2)):
        data = of(cj.Data(family(p), targets, weights=weights))
        of_hit = p.argmax(axis=1) if of is cj.top_label else np.full(60, 2)
        probabilities, of_labels = label_probabilities(data)
        odds = np.asarray(probabilities) / np.asarray(of_labels)
        expected = q[np.arange(60), of_hit]
        np.testing.assert_allclose(odds[:, 1] / odds.sum(axis=1), expected, rtol=2e-5)
        hits = np.asarray(data.targets) == 1
        np.testing.assert_allclose(np.asarray(data.weights)[hits], weights[0, of_hit[hits]])


def test_ranges_of_measures_are_those_of_sampled_labels():
    predictions, targets = case_control(2, n=300)
    w, p = of_events(targets), np.asarray(predictions.probs, np.float64)
    found = cj.evaluate(cj.Data(predictions, targets, weights=w)).measures["Brier score"]
    rng, q = np.random.default_rng(0), p / (p + (1 - p) / 20)
    y = (rng.random((4000, 300)) < q).astype(int)
    weights = np.where(y, 1.0, 20.0)
    means = (weights * np.square(y - p)).sum(axis=1) / weights.sum(axis=1)
    # Quantiles of 999 draws: four standard errors.
    ends = np.quantile(means, [0.025, 0.975])
    np.testing.assert_allclose(found.if_calibrated, ends, atol=0.4 * means.std())


def test_curves_and_segments_take_weights_of_labels(key):
    predictions, targets = case_control(3, n=600)
    data = cj.Data(predictions, targets, weights=of_events(targets))
    curve = cj.reliability_curve(key, data, n_bins=5)
    filled = np.asarray(curve.frequency)[np.isfinite(curve.frequency)]
    assert curve.simultaneous_low[0] <= filled[0] <= curve.simultaneous_high[0] < 0.3
    # Low risks are halved: the segment is found, and what it prints are shares of the population.
    x = np.arange(600) % 2
    p = np.where(x, predictions.probs / 3, predictions.probs)
    result = cj.segment_test(key, data.replace(predictions=cj.Bernoulli(p)), groups={"half": x})
    worst = result.segments[0]
    assert worst.conditions == {"half": "1"} and worst.pvalue < 0.01
    w = np.asarray(data.weights)[x == 1]
    shares = [np.average(z[x == 1], weights=w) for z in (p, targets)]
    np.testing.assert_allclose([worst.predicted, worst.observed], shares, rtol=1e-3)


@pytest.mark.parametrize("weights", [np.ones((4, 3)), np.ones((4, 2, 1)), np.ones((3, 2))])
def test_shapes_of_weights_are_checked(weights):
    with pytest.raises(ValueError, match="weights must have shape"):
        cj.Data(cj.Bernoulli(np.full(4, 0.5)), np.array([0, 1, 0, 1]), weights=weights)


def test_every_label_or_none_can_be_sampled():
    predictions, targets = cj.Bernoulli(np.full(4, 0.5)), np.array([0, 1, 0, 1])
    weights = np.array([[1, 2], [0, 0], [1, 1], [3, 0]], float)
    with pytest.raises(ValueError, match="positive and finite for all labels, or 0 for all; row 3"):
        cj.Data(predictions, targets, weights=weights)
    assert cj.Data(predictions, targets, weights=weights, where=weights[:, 0] < 3).n_counted() == 2
    with pytest.raises(ValueError, match=r"weights must have shape \[n\], got shape \[4, 2\]"):
        cj.Data(cj.Normal(np.zeros(4), np.ones(4)), np.zeros(4), weights=weights)
    traced = jax.jit(lambda w: cj.skce(KERNEL, predictions, targets, weights=w))
    assert jnp.isnan(traced(weights)) and jnp.isfinite(traced(weights[:, ::-1] + 1))


@pytest.mark.parametrize("n_events", [560, 56])
def test_levels_and_power_of_case_control_samples(n_events):
    """Intervals of O / E cover, too; 200 sets, and 12 of risks that are too low."""
    n = 900 * n_events // 560
    pvalues, low, covers = [], [], []
    for number in range(200):
        predictions, targets = case_control(7000 + number, n_events, n=n)
        data = cj.Data(predictions, targets, weights=of_events(targets))
        key = jax.random.key(number)
        pvalues.append(float(cj.calibration_test(key, data).pvalue))
        ratio = cj.logistic_calibration(data).observed_over_expected
        covers.append(ratio.low <= 1 <= ratio.high)
        if number < 12 and n_events == 560:
            predictions, targets = case_control(7000 + number, n_events, -0.4, n)
            data = cj.Data(predictions, targets, weights=of_events(targets))
            low.append(float(cj.calibration_test(key, data).pvalue) <= 0.05)
    assert kstest(pvalues, "uniform").pvalue > 0.01
    assert abs(np.mean(np.array(pvalues) <= 0.05) - 0.05) < 3 * (0.05 * 0.95 / 200) ** 0.5
    assert abs(np.mean(np.array(pvalues) > 0.9) - 0.1) < 3 * (0.1 * 0.9 / 200) ** 0.5
    assert 0.905 <= np.mean(covers) <= 0.99
    assert n_events == 56 or sum(low) >= 10


@pytest.mark.parametrize("n", [900, 90])
def test_levels_of_sampled_classes(n):
    pvalues = []
    for number in range(200):
        p, targets, weights = of_three(8000 + number, n)
        data = cj.Data(family(p), targets, weights=weights)
        pvalues.append(float(cj.calibration_test(jax.random.key(number), data).pvalue))
    assert kstest(pvalues, "uniform").pvalue > 0.01
    assert abs(np.mean(np.array(pvalues) <= 0.05) - 0.05) < 3 * (0.05 * 0.95 / 200) ** 0.5


def test_weights_that_follow_the_label_are_found(key):
    predictions, targets = case_control(4, n=400)
    followed = cj.Data(predictions, targets, weights=np.where(targets, 1.0, 20.0))
    assert followed.weights_depend_on_labels()
    # Weights of strata, of rows, and of too few rows say nothing of labels.
    strata, rng = np.arange(400) % 3 + 1.0, np.random.default_rng(0)
    for weights, n in ((strata, 400), (rng.random(400), 400), (np.where(targets, 1.0, 20.0), 12)):
        data = cj.Data(cj.Bernoulli(predictions.probs[:n]), targets[:n], weights=weights[:n])
        assert not data.weights_depend_on_labels()


def test_weights_that_follow_the_label_are_not_called_exact(key):
    predictions, targets = case_control(4, n=400)
    followed = cj.Data(predictions, targets, weights=np.where(targets, 1.0, 20.0))
    result = cj.calibration_test(key, followed, n_resamples=99)
    assert not result.is_exact and "of rows, as weights of other labels are" in result.method
    printed = str(cj.evaluate(followed))
    assert "Weights depend on the outcome" in printed and "exact aggregated" not in printed
    assert "p omitted: weights depend on the outcome" in printed and "worst for" not in printed


def columns_of_events():
    predictions, targets = case_control(5, n=40)
    columns = {"p": np.asarray(predictions.probs), "y": targets, "none": 20 * np.ones(40)}
    return columns | {"event": np.ones(40)}


def test_two_columns_hold_the_weights_of_an_event():
    columns = columns_of_events()
    data = cj.read_data(columns, prob="p", target="y", weights=["none", "event"])
    np.testing.assert_array_equal(data.outcome_weights, of_events(columns["y"]))
    np.testing.assert_array_equal(data.weights, np.where(columns["y"], 1, 20))
    one = cj.read_data(columns, prob="p", target="y", weights=["none"])
    assert one.outcome_weights is None and set(np.asarray(one.weights)) == {20}
    with pytest.raises(ValueError, match="weights must have shape"):
        cj.read_data(columns, prob="p", target="y", weights=["none", "event", "p"])


def test_the_command_takes_two_columns_of_weights(tmp_path):
    columns, path = columns_of_events(), tmp_path / "rows.csv"
    lines = [",".join(map(str, row)) for row in zip(*columns.values(), strict=True)]
    path.write_text("\n".join([",".join(columns), *lines]))
    options = ["--prob", "p", "--target", "y", "--weight", "none,event"]
    assert "exact" in CliRunner().invoke(app, ["evaluate", str(path), *options]).stdout
