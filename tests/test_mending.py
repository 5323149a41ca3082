"""What an evaluation says of recalibrations: on rows that did not fit them."""

import re
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import log_loss

import calibjax as cj
from calibjax.evaluation import _mending, _remedies
from calibjax.evaluation._keys import keys_of

N, M = 240, 3
RNG = np.random.default_rng(0)
LOGITS = 2 * RNG.normal(size=(N, M))
LABELS = np.argmax(LOGITS + RNG.gumbel(size=(N, M)), axis=1).astype(np.int32)
TOO_SURE = np.exp(2 * LOGITS) / np.exp(2 * LOGITS).sum(axis=1, keepdims=True)
PREDICTIONS = cj.Categorical(TOO_SURE.astype(np.float32))
KEY = jax.random.key(0)


def loss_of(probs):
    probs = np.asarray(probs, float)
    return log_loss(LABELS, probs / probs.sum(axis=1, keepdims=True))


@pytest.fixture
def keys():
    """The keys with which was tested."""
    return []


@pytest.fixture(autouse=True)
def tested(monkeypatch, keys):
    """The predictions that were tested; the test itself takes long to compile."""
    found = []

    def test(key, data, *, n_resamples):
        found.append(data.predictions)
        keys.append(key)
        return SimpleNamespace(pvalue=np.float32(0.4))

    monkeypatch.setattr(_mending, "calibration_test", test)
    monkeypatch.setattr(_remedies, "calibration_test", test)
    return found


def test_a_sentence(tested):
    mending = _mending.mending_of(KEY, PREDICTIONS, LABELS, 999)
    mended = cj.cross_fit(PREDICTIONS, LABELS, "sms", 5)
    np.testing.assert_array_equal(tested[0].probs[:N], mended.probs)
    before, after = (loss_of(p) for p in (TOO_SURE, mended.probs))
    assert after < before
    np.testing.assert_allclose([mending.before, mending.after], [before, after], rtol=1e-5)
    numbers = f"from {before:.3g} to {after:.3g} on rows that did not fit it"
    said = (
        f"Recalibrating with sms takes the log score {numbers}, and then the test {{}} (p = 0.4)."
    )
    assert mending.in_words(0.05) == said.format("no longer rejects")
    assert mending.in_words(0.45) == said.format("still rejects")
    of_segments = mending.in_words(0.05, is_segment_wrong=True)
    assert "the test of all rows together no longer rejects (p = 0.4); a recal" in of_segments


LOC = RNG.normal(size=N)
NUMBERS = LOC + 0.5 + RNG.normal(size=N)
FORMS = {
    "normal": cj.Normal(LOC.astype(np.float32), np.full(N, 0.5, np.float32)),
    "quantiles": cj.Quantiles(
        (LOC[:, None] + [-0.64, -0.34, 0, 0.34, 0.64]).astype(np.float32),
        (0.1, 0.25, 0.5, 0.75, 0.9),
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_sentence_of_numbers(tested, form):
    """Half of the deviation is missing, and all medians are 0.5 too low."""
    p, y = FORMS[form], NUMBERS.astype(np.float32)
    mending = _mending.mending_of(KEY, p, y, 999)
    assert isinstance(tested[0], type(p))
    said = r"takes the CRPS from \S+ to \S+ on rows that did not fit it, and then the test"
    assert re.search(said, mending.in_words(0.05))
    np.testing.assert_allclose(mending.before, np.mean(cj.crps(p, y)), rtol=1e-5)
    # Of N(LOC + 0.5, 1) it is 1 / sqrt(pi) on average, with a deviation of 0.41 / sqrt(N).
    truth = stats.norm(LOC + 0.5, 1)
    w = NUMBERS - LOC - 0.5
    best = w * (2 * truth.cdf(NUMBERS) - 1) + 2 * truth.pdf(NUMBERS) - np.pi**-0.5
    assert best.mean() - 0.02 < mending.after < 0.9 * mending.before
    if form == "normal":
        np.testing.assert_allclose(tested[0].scale[:N], 1, atol=0.15)
        np.testing.assert_allclose(tested[0].loc[:N] - LOC, 0.5, atol=0.2)


def test_nothing_is_said():
    calibrated = np.full((N, M), 1 / 3, np.float32)
    mending = _mending.mending_of(KEY, cj.Categorical(calibrated), np.arange(N) % M, 999)
    assert mending.after > mending.before and mending.in_words(0.05) == ""
    assert _mending.mending_of(KEY, PREDICTIONS[:100], LABELS[:100], 999) is None
    laplace = cj.Laplace(np.zeros(N, np.float32), np.ones(N, np.float32))
    assert _mending.mending_of(KEY, laplace, np.zeros(N, np.float32), 999) is None
    assert _mending.best_method(2) == "spline" and _mending.best_method(1000) == "svs"


def test_many_numbers(monkeypatch):
    """Fits to many probabilities take too long for a verdict."""
    monkeypatch.setattr(_mending, "_MOST_NUMBERS", N * M - 1)
    assert _mending.mending_of(KEY, PREDICTIONS, LABELS, 999) is None


def test_impossible_targets():
    """The log score as it is is infinite, and mended it is not."""
    probs = np.where(TOO_SURE < 0.1, 0, TOO_SURE)
    probs /= probs.sum(axis=1, keepdims=True)
    mending = _mending.mending_of(KEY, cj.Categorical(probs.astype(np.float32)), LABELS, 999)
    assert re.search("log score from ∞ to [0-9.]+ on", mending.in_words(0.05))


def test_remedies_of_labels(keys):
    found = _remedies.remedies_of(keys_of(0), PREDICTIONS, LABELS, 999, 0.003)
    assert [x.name for x in found] == ["as it is", "temperature", "sms"]
    # One question has one p-value: that of the evaluation, and that of the sentence on its maps.
    mending = _mending.mending_of(keys_of(0).test, PREDICTIONS, LABELS, 999)
    assert found[0].pvalue == 0.003 and found[2].pvalue == pytest.approx(mending.pvalue)
    assert [tuple(jax.random.key_data(key)) for key in keys] == [
        tuple(jax.random.key_data(keys_of(0).test))
    ] * 3
    assert found[0].log_score == pytest.approx(loss_of(TOO_SURE), rel=1e-5)
    for remedy in found[1:]:
        mended = cj.cross_fit(PREDICTIONS, LABELS, remedy.name, 5)
        np.testing.assert_allclose(remedy.log_score, loss_of(mended.probs), rtol=1e-5)
        assert remedy.n == N and remedy.fitted
