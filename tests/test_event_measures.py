"""Measures of events beside statsmodels, scikit-learn, and drawn models."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import statsmodels.api as sm
from scipy import stats
from scipy.special import expit
from sklearn.metrics import brier_score_loss, roc_auc_score

import calibjax as cj
from calibjax._data.data import as_data
from calibjax._data.padding import padded
from calibjax.measures.events import Design, spline_basis
from calibjax.measures.families import measures
from calibjax.measures.measure import MeasureResult, pooled_ratio

RNG = np.random.default_rng(0)
N = 500
LOGITS = RNG.normal(-1.5, 1.2, N)
P = np.asarray(expit(LOGITS), np.float32)
Y = (RNG.random(N) < expit(0.4 + 0.7 * LOGITS)).astype(int)


def measured(p=P, y=Y, n_resamples=99, **rows):
    data = padded(as_data(cj.Bernoulli(jnp.asarray(p)), jnp.asarray(y), **rows))
    return measures(jax.random.key(0), data, 0.95, n_resamples)[0]


@pytest.fixture(scope="module")
def found():
    return measured()


def regression(features, y=Y, offset=None, **options):
    model = sm.GLM(y, features, family=sm.families.Binomial(), offset=offset)
    return model.fit(tol=1e-12, **options)


def assert_interval(ours, expected, rel):
    """The lengths agree, and each end, in units of the length."""
    low, high = expected
    np.testing.assert_allclose(ours, expected, atol=rel * (high - low))


def test_intercept_and_slope_are_those_of_statsmodels(found):
    logits = np.log(P.astype(float)) - np.log1p(-P.astype(float))
    intercept = regression(np.ones(N), offset=logits)
    slope = regression(sm.add_constant(logits))
    for name, value, ends in (
        ("calibration-in-the-large", intercept.params[0], intercept.conf_int()[0]),
        ("calibration slope", slope.params[1], slope.conf_int()[1]),
    ):
        assert found[name].value == pytest.approx(value, rel=1e-5)
        assert_interval(found[name].interval, ends, 0.05)


def test_intervals_of_clusters_are_those_of_statsmodels():
    clusters = np.arange(N) // 5
    rows = measured(clusters=clusters)
    logits = np.log(P.astype(float)) - np.log1p(-P.astype(float))
    options = {"cov_type": "cluster", "cov_kwds": {"groups": clusters}}
    expected = regression(sm.add_constant(logits), **options)
    slope = rows["calibration slope"]
    assert_interval(slope.interval, expected.conf_int()[1], 0.05)
    assert slope.if_calibrated[0] == pytest.approx(1, abs=0.05)
    assert rows["calibration-in-the-large"].pvalue is None


def test_scores_and_ratios(found):
    assert found["AUC"].value == pytest.approx(roc_auc_score(Y, P))
    positives, negatives = P[Y == 1].astype(float), P[Y == 0].astype(float)
    above = (positives[:, None] > negatives) + 0.5 * (positives[:, None] == negatives)
    delong = above.mean(axis=1).var(ddof=1) / len(positives)
    delong += above.mean(axis=0).var(ddof=1) / len(negatives)
    half = stats.norm.ppf(0.975) * delong**0.5
    assert_interval(found["AUC"].interval, (above.mean() - half, above.mean() + half), 0.05)
    brier, share = brier_score_loss(Y, P), Y.mean()
    assert found["scaled Brier score"].value == pytest.approx(1 - brier / (share * (1 - share)))
    assert found["observed events"].value == Y.sum()
    assert found["expected events"].value == pytest.approx(P.sum(), rel=1e-6)
    assert found["observed / expected"].value == pytest.approx(Y.sum() / P.sum(), rel=1e-6)
    # The number of events of a calibrated model is nearly normal.
    low, high = found["expected events"].if_calibrated
    sd = (P * (1 - P)).sum() ** 0.5
    assert (high - low) / (2 * sd) == pytest.approx(1.96, abs=0.6)  # 99 draws


def test_the_sentence_of_a_clinical_paper(found):
    ratio, slope = found["observed / expected"], found["calibration slope"]
    numbers = [ratio.value, *ratio.interval, slope.value, *slope.interval]
    expected = (
        "The model under-estimated risk: O/E {:.2f} (95 % CI {:.2f} to {:.2f}). The calibration "
        "slope was {:.2f} (95 % CI {:.2f} to {:.2f})."
    ).format(*numbers)
    assert expected in cj.evaluate(cj.Bernoulli(P), Y).citation


def test_distances_from_the_smooth_curve(found):
    logits = np.log(P.astype(float)) - np.log1p(-P.astype(float))
    distances = np.abs(regression(spline_basis(logits)).fittedvalues - P)
    assert found["ICI"].value == pytest.approx(distances.mean(), rel=1e-4)
    assert found["E50"].value == pytest.approx(np.quantile(distances, 0.5), rel=5e-3)
    assert found["E90"].value == pytest.approx(np.quantile(distances, 0.9), rel=5e-3)
    assert found["ICI"].pvalue == 0.01 and found["ICI"].value > found["ICI"].if_calibrated[1]


def test_fits_to_points_are_those_to_rows():
    """3000 rows: fits to 256 points are within a fiftieth of their standard error."""
    rng = np.random.default_rng(1)
    logits = rng.gumbel(-2, 1, 3000)
    basis, shares = spline_basis(logits), np.full(3000, 1 / 3000)
    y = rng.random((3, 3000)) < expit(logits)
    points = Design.of(basis[:, :2], logits, shares).points()
    slopes = 1 + points.fit((y * shares) @ basis[:, :2]).coefficients[:, 1]
    for targets, slope in zip(y, slopes, strict=True):
        expected = regression(sm.add_constant(logits), targets)
        assert abs(slope - expected.params[1]) < 0.02 * expected.bse[1]


@pytest.mark.parametrize(
    ("p", "y", "words"),
    [
        (P, np.zeros(N, int), "no finite estimate"),
        (P, (P > 0.3).astype(int), "no finite estimate"),
        (np.where(np.arange(N) == 7, 1.0, P), Y, "0 and 1 have no logit: row 7"),
    ],
)
def test_what_has_no_estimate_says_so(p, y, words):
    rows = measured(p, y, 19)
    assert np.isnan(rows["calibration slope"].value) and rows["calibration slope"].note == words
    assert np.isfinite(rows["observed / expected"].value)
    if words == "no finite estimate":  # The curve has the limits 0 and 1.
        limit = np.abs(y - p).mean()  # but for rows near the probability that parts events
        assert rows["ICI"].value == pytest.approx(limit, rel=0.03) and rows["ICI"].pvalue == 0.05
        assert rows["ICI"].interval is None


@pytest.mark.slow
def test_errors_of_right_models_are_in_their_ranges():
    """200 sets of 300 rows: 95 % of the ICI are below the upper end, and p-values are uniform."""
    above, pvalues = [], []
    for seed in range(200):
        rng = np.random.default_rng(seed)
        logits = rng.normal(-1.5, 1.0, 300)
        p = expit(logits).astype(np.float32)
        rows = measured(p, (rng.random(300) < p).astype(int), 199)
        above.append(rows["ICI"].value > rows["ICI"].if_calibrated[1])
        pvalues.append((rows["ICI"].pvalue, rows["calibration-in-the-large"].pvalue))
    assert np.mean(above) < 0.025 + 3 * (0.025 * 0.975 / 200) ** 0.5
    assert all(stats.kstest(x, "uniform").pvalue > 0.001 for x in np.transpose(pvalues))


def test_pooled_ratios_by_hand():
    """DerSimonian and Laird of three groups, step by step."""
    logs, errors = np.array([0.0, 0.4, -0.1]), np.array([0.1, 0.2, 0.15])
    half = stats.norm.ppf(0.975) * errors
    groups = [
        MeasureResult(np.exp(x), (np.exp(x - h), np.exp(x + h)))
        for x, h in zip(logs, half, strict=True)
    ]
    w = 1 / errors**2
    fixed = np.sum(w * logs) / np.sum(w)
    q = np.sum(w * (logs - fixed) ** 2)
    tau2 = (q - 2) / (np.sum(w) - np.sum(w**2) / np.sum(w))
    w = 1 / (errors**2 + tau2)
    middle, error = np.sum(w * logs) / np.sum(w), np.sum(w) ** -0.5
    pooled = pooled_ratio([*groups, MeasureResult(0.0), None], 0.95)
    assert tau2 > 0 and pooled.tau2 == pytest.approx(tau2) and pooled.n_groups == 3
    assert np.log(pooled.value) == pytest.approx(middle)
    expected = middle + stats.norm.ppf([0.025, 0.975]) * error
    np.testing.assert_allclose(np.log(pooled.interval), expected)
    expected = middle + stats.t.ppf([0.025, 0.975], 1) * (error**2 + tau2) ** 0.5
    np.testing.assert_allclose(np.log(pooled.prediction_interval), expected)
    assert str(pooled).startswith("pooled O/E of 3 groups 1.0")
    assert pooled_ratio(groups[:1], 0.95) is None
    assert pooled_ratio(groups[:2], 0.95).prediction_interval is None


@pytest.mark.slow
def test_a_verdict_on_risks_that_are_too_high_and_too_extreme_says_both():
    rng = np.random.default_rng(1)
    logits = rng.normal(-1, 1.3, 1000)
    events = (rng.random(1000) < expit(-0.6 + 0.6 * logits)).astype(int)
    evaluation = cj.evaluate(expit(logits).astype(np.float32), events)
    slope = evaluation.measures["calibration slope"]
    assert slope.interval[1] < 1 and "Risk over-estimated: " in evaluation.verdict
    assert f"; calibration slope {slope.value:.3g} (95 % CI" in evaluation.verdict
