"""The smooth calibration curve of an event beside statsmodels, and its coverage."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import statsmodels.api as sm
from scipy import stats
from scipy.special import expit, logit

import calibjax as cj
from calibjax import plot
from calibjax.evaluation._report._figures import pictures_of
from calibjax.measures.events import spline_basis

RNG = np.random.default_rng(0)
N = 500
LOGITS = RNG.normal(-1.0, 1.2, N)
P = np.asarray(expit(LOGITS), np.float32)
Y = (RNG.random(N) < expit(0.4 + 0.7 * LOGITS)).astype(int)
MODEL = cj.Bernoulli(jnp.asarray(P))
CLUSTERS = np.arange(N) // 5


def regression(curve, p=P, y=Y, **options):
    """Logits of the curve and their standard errors by statsmodels, at the curve's grid."""
    features = spline_basis(logit(p.astype(float)))
    fit = sm.GLM(y, features, family=sm.families.Binomial()).fit(tol=1e-12, **options)
    grid = spline_basis(logit(p.astype(float)), logit(curve.predicted))
    variances = ((grid @ fit.cov_params()) * grid).sum(axis=1)
    return grid @ fit.params, variances**0.5


@pytest.mark.parametrize(
    ("rows", "options", "n_units"),
    [
        ({}, {"cov_type": "HC0"}, N),
        (
            {"clusters": CLUSTERS},
            {"cov_type": "cluster", "cov_kwds": {"groups": CLUSTERS, "use_correction": False}},
            N // 5,
        ),
    ],
)
def test_curve_and_bands_are_those_of_statsmodels(rows, options, n_units):
    """Hotelling: K coefficients are within K (m - 1) / (m - K) F of their squared distance."""
    curve = cj.calibration_curve(MODEL, Y, **rows)
    logits, errors = regression(curve, **options)
    np.testing.assert_allclose(logit(curve.frequency), logits, atol=1e-4)
    factor, k = (n_units / (n_units - 1)) ** 0.5, 5
    together = stats.f.ppf(0.95, k, n_units - k) * k * (n_units - 1) / (n_units - k)
    for low, high, c in (
        (curve.pointwise_low, curve.pointwise_high, stats.t.ppf(0.975, n_units - 1)),
        (curve.simultaneous_low, curve.simultaneous_high, together**0.5),
    ):
        np.testing.assert_allclose(logit(low), logits - c * factor * errors, rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose(logit(high), logits + c * factor * errors, rtol=1e-3, atol=1e-3)


def test_intervals_of_a_right_model_are_those_of_its_likelihood():
    """Where the model is right, rows vary as the likelihood says: within 5 % of GLM's lengths."""
    z = np.random.default_rng(1).normal(0, 1, 20_000)
    p = np.asarray(expit(z), np.float32)
    y = np.random.default_rng(2).random(p.size) < expit(z)
    curve = cj.calibration_curve(cj.Bernoulli(jnp.asarray(p)), y)
    lengths = logit(curve.pointwise_high) - logit(curve.pointwise_low)
    np.testing.assert_allclose(
        lengths, 2 * 1.96 * regression(curve, p, y.astype(int))[1], rtol=0.05
    )


def test_weights_are_copies():
    twice = np.where(np.arange(N) % 3 == 0, 2, 1)
    weights = jnp.asarray(twice, jnp.float32)
    weighted = cj.calibration_curve(MODEL, Y, weights=weights, where=np.arange(N) < 400)
    copies = np.repeat(np.arange(400), twice[:400])
    # The knots are those of the rows, whatever these weigh.
    basis = spline_basis(logit(P[:400].astype(float)))
    fit = sm.GLM(Y[copies], basis[copies], family=sm.families.Binomial()).fit(tol=1e-12)
    grid = spline_basis(logit(P[:400].astype(float)), logit(weighted.predicted))
    np.testing.assert_allclose(logit(weighted.frequency), grid @ fit.params, atol=1e-4)


def test_the_histogram_and_rare_events():
    curve = cj.calibration_curve(MODEL, Y)
    ends = np.quantile(P, [0.005, 0.995])
    np.testing.assert_allclose(curve.predicted, np.linspace(*ends, 100), rtol=1e-5)
    assert not curve.is_rare and curve.count.sum() == N
    inner = (curve.edges[1] <= P) & (curve.edges[-2] > P)
    assert curve.count[1:-1].sum() == inner.sum()
    rare = cj.calibration_curve(cj.Bernoulli(jnp.asarray(P / 20)), Y)
    assert rare.is_rare and np.ptp(np.diff(np.log(rare.predicted))) < 1e-9
    for found, scale in ((curve, "linear"), (rare, "log")):
        ax = plot.calibration(found)
        (below,) = ax.child_axes
        assert ax.get_xscale() == ax.get_yscale() == below.get_xscale() == scale
        assert [bar.get_height() for bar in below.patches] == found.count.tolist()
        (line,) = (x for x in ax.lines if x.get_label() == "smooth frequency")
        np.testing.assert_array_equal(line.get_ydata(), found.frequency)
        (points,) = (x for x in ax.lines if x.get_label() == "significant")
        p, low, high = found.predicted, found.simultaneous_low, found.simultaneous_high
        np.testing.assert_array_equal(points.get_xdata(), p[(p < low) | (p > high)])


def test_bins_of_rare_events_have_logarithmic_axes():
    y = np.arange(N) % 50 == 0
    curve = cj.reliability_curve(
        jax.random.key(0), cj.Bernoulli(jnp.asarray(P / 20)), y, strategy="quantile", n_resamples=99
    )
    ax = plot.reliability(curve)
    assert ax.get_xscale() == ax.get_yscale() == "log" == ax.child_axes[0].get_xscale()
    shown = np.concatenate([x.get_ydata() for x in ax.lines if x.get_linestyle() == "None"])
    assert (np.asarray(curve.frequency) == 0).any() and shown.min() >= ax.get_ylim()[0] > 0


@pytest.mark.parametrize(
    ("p", "y", "rows", "words"),
    [
        (P, np.zeros(N, int), {}, "no finite estimate"),
        (np.full(N, 0.3, np.float32), Y, {}, "no finite estimate"),
        (np.where(np.arange(N) == 7, 1, P), Y, {}, "0 and 1 have no logit: row 7"),
        (P, Y, {"clusters": np.zeros(N, int)}, "at least 2 different values, got 1"),
    ],
)
def test_what_has_no_curve_says_so(p, y, rows, words):
    with pytest.raises(ValueError, match=words):
        cj.calibration_curve(cj.Bernoulli(jnp.asarray(p)), y, **rows)


def test_other_arguments():
    with pytest.raises(TypeError, match="curve must be a CalibrationCurve, got ndarray"):
        plot.calibration(np.zeros(3))
    with pytest.raises(TypeError, match="outside of jit"):
        jax.jit(lambda p: cj.calibration_curve(cj.Bernoulli(p), Y))(P)
    few = cj.calibration_curve(MODEL, Y, clusters=np.arange(N) % 4)
    assert few.simultaneous_low.max() == 0 and few.simultaneous_high.min() == 1
    assert few.pointwise_low.max() > 0


@pytest.mark.slow
def test_the_report_has_it_first_if_it_exists():
    evaluation = cj.evaluate(MODEL, Y)
    first, *_ = pictures_of(evaluation)
    curve = cj.calibration_curve(MODEL, Y)
    p, low, high = curve.predicted, curve.simultaneous_low, curve.simultaneous_high
    assert first.outside == f"{((p < low) | (p > high)).sum()} of 100" != "0 of 100"
    assert first.name == "calibration"
    assert f"outside of the band at {first.outside} probabilities" in evaluation.to_html()
    of_certain = cj.evaluate(cj.Bernoulli(MODEL.probs.at[7].set(1)), Y)
    assert pictures_of(of_certain)[0].name == "reliability"


@pytest.mark.slow
@pytest.mark.parametrize(("n", "centre"), [(300, 0.0), (1000, -3.0), (3000, -4.0)])
def test_the_simultaneous_band_covers_a_right_model(n, centre):
    rng, covered = np.random.default_rng(n), []
    for _ in range(200):
        logits = rng.normal(centre, 1.2, n)
        model = cj.Bernoulli(jnp.asarray(expit(logits), jnp.float32))
        try:
            curve = cj.calibration_curve(model, (rng.random(n) < expit(logits)).astype(int))
        except ValueError:  # no finite estimate
            covered.append(False)
            continue
        p, low, high = curve.predicted, curve.simultaneous_low, curve.simultaneous_high
        covered.append(((low <= p) & (p <= high)).all())
    assert np.mean(covered) >= 0.93
