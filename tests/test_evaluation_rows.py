"""evaluate: targets that are hidden, and rows that count differently or depend on each other."""

import json

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import calibjax as cj
from calibjax.evaluation._hidden import shift_in_words, target_in_words
from calibjax.evaluation._inputs import read_inputs
from calibjax.evaluation._keys import keys_of
from calibjax.evaluation._measure import Measure

N = 160


@pytest.fixture(scope="module")
def lifetimes():
    """Forecasts that are too short, times, and whether the event was seen."""
    rng = np.random.default_rng(0)
    scale = np.exp(0.3 * rng.normal(size=N)).astype(np.float32)
    times, ends = 1.6 * scale * rng.weibull(1.5, N), rng.exponential(2.0, N)
    seen = np.minimum(times, ends).astype(np.float32)
    return cj.Weibull(jnp.full(N, 1.5), jnp.asarray(scale)), seen, times <= ends


@pytest.fixture(scope="module")
def of_hidden(lifetimes):
    predictions, seen, observed = lifetimes
    return cj.evaluate(predictions, cj.Between.right_censored(seen, observed))


def test_the_verdict_on_hidden_targets(of_hidden, lifetimes):
    predictions, seen, observed = lifetimes
    hidden = N - observed.sum()
    assert of_hidden.rejected and of_hidden.n == N and 20 < hidden < N - 20
    assert of_hidden.verdict.startswith(
        f"Not calibrated (p = {of_hidden.pvalue:.3g}, {N} rows, {hidden} of hidden targets): "
        "targets are higher than predicted"
    )
    test = cj.calibration_test(keys_of(0).test, predictions, of_hidden.targets)
    assert of_hidden.pvalue == pytest.approx(float(test.pvalue))
    printed = repr(of_hidden)
    assert "Hidden targets: of" in printed and "right for many rows" in printed
    assert "CRPS" not in of_hidden.measures and of_hidden.effect.equivalent is None


def test_measures_of_hidden_targets(of_hidden, lifetimes):
    predictions, seen, observed = lifetimes
    law = stats.weibull_min(1.5, scale=np.asarray(predictions.scale))
    assert list(of_hidden.measures) == ["log score", "mean place of targets"]
    scores = -np.where(observed, law.logpdf(seen), law.logsf(seen))
    assert of_hidden.measures["log score"].value == pytest.approx(scores.mean(), rel=1e-5)
    places = np.where(observed, law.cdf(seen), (1 + law.cdf(seen)) / 2)
    place = of_hidden.measures["mean place of targets"]
    assert place.value == pytest.approx(places.mean(), rel=1e-5)
    student = stats.t(N - 1, places.mean(), stats.sem(places)).interval(0.95)
    np.testing.assert_allclose(place.interval, student, atol=3e-3)  # but for skewness
    assert place.if_calibrated == (0.5, 0.5)


def test_files_of_hidden_targets(of_hidden):
    found = json.loads(of_hidden.to_json())
    assert found["n_hidden"] > 20 and found["curves"] == {} and found["worst_rows"] == []
    text = of_hidden.to_html()
    assert text.count("<svg") == 1 and "random signs and sizes" in text
    assert "Would a few numbers" not in text


def test_times_of_censoring_make_the_test_exact(lifetimes):
    predictions, seen, observed = lifetimes
    ends = np.where(observed, 10.0, seen)
    found = cj.evaluate(predictions, cj.Between.right_censored(seen, observed, ends))
    assert found.is_redrawn and "hides them as their rows" in repr(found)


def test_words_for_hidden_targets():
    words = [target_in_words(*ends) for ends in [(2, np.inf), (-np.inf, 2), (1, 2), (2, 2)]]
    assert words == ["> 2", "≤ 2", "1 … 2", "2"]
    assert shift_in_words(Measure(0.4, (0.35, 0.45))).startswith("targets are lower")
    assert shift_in_words(Measure(0.4, (0.3, 0.51))) is None
    assert shift_in_words(Measure(np.nan)) is None


def test_hidden_targets_as_people_have_them():
    ends = [1.0, 2.0], [1.0, np.inf]
    for predictions in cj.Weibull(jnp.ones(2), jnp.ones(2)), stats.expon(scale=np.ones(2)):
        family, targets, classes = read_inputs(predictions, cj.Between(*ends), None, False)
        assert isinstance(targets.high, np.ndarray) and classes is None and len(family) == 2
    classes = cj.Ordinal(jnp.full((2, 3), 1 / 3))
    for arguments, error, message in [
        ((np.ones((2, 2)), None, False), TypeError, "predictions must be a distribution"),
        ((classes, None, False), TypeError, "Ordinal predictions of classes"),
        ((family, ["a"], False), ValueError, "classes must not be given"),
        ((family, None, True), ValueError, "normalize must not be given"),
    ]:
        with pytest.raises(error, match=message):
            read_inputs(arguments[0], cj.Between(*ends), *arguments[1:])
