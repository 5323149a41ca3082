"""What an evaluation says of recalibrations: on rows that did not fit them."""

import re
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from sklearn.metrics import log_loss

import calibjax as cj
from calibjax.evaluation import _mending, _remedies

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


@pytest.fixture(autouse=True)
def tested(monkeypatch):
    """The predictions that were tested; the test itself takes long to compile."""
    found = []

    def test(key, data, *, n_resamples):
        found.append(data.predictions)
        return SimpleNamespace(pvalue=np.float32(0.4))

    monkeypatch.setattr(_mending, "calibration_test_of_data", test)
    monkeypatch.setattr(_remedies, "calibration_test_of_data", test)
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


def test_nothing_is_said():
    calibrated = np.full((N, M), 1 / 3, np.float32)
    mending = _mending.mending_of(KEY, cj.Categorical(calibrated), np.arange(N) % M, 999)
    assert mending.after > mending.before and mending.in_words(0.05) == ""
    assert _mending.mending_of(KEY, PREDICTIONS[:100], LABELS[:100], 999) is None
    normal = cj.Normal(np.zeros(N, np.float32), np.ones(N, np.float32))
    assert _mending.mending_of(KEY, normal, np.zeros(N, np.float32), 999) is None
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
    assert re.search("log score from inf to [0-9.]+ on", mending.in_words(0.05))


def test_remedies_of_labels():
    found = _remedies.remedies_of(KEY, PREDICTIONS, LABELS, 999)
    assert [x.name for x in found] == ["as it is", "temperature", "sms"]
    for remedy in found[1:]:
        mended = cj.cross_fit(PREDICTIONS, LABELS, remedy.name, 5)
        np.testing.assert_allclose(remedy.log_score, loss_of(mended.probs), rtol=1e-5)
        assert remedy.n == N and remedy.fitted
