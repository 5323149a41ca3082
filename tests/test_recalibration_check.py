"""What an evaluation says of recalibrations: on rows that did not fit them."""

import dataclasses
import re
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import log_loss, mean_pinball_loss

import calibjax as cj
from calibjax._data.data import Data
from calibjax.evaluation import _recalibration_check

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


def check_of(predictions, targets):
    data = Data(predictions, targets)
    return _recalibration_check.recalibration_check(KEY, data, 999)


def best_of(m):
    data = Data(cj.Categorical(np.full((200, m), 1 / m)), np.zeros(200, int))
    return _recalibration_check.best_method(data)


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

    monkeypatch.setattr(_recalibration_check, "calibration_test", test)
    return found


def test_a_sentence(tested):
    check = check_of(PREDICTIONS, LABELS)
    recalibrated = cj.cross_fit(PREDICTIONS, LABELS, "sms", 5)
    np.testing.assert_array_equal(tested[0].probs[:N], recalibrated.probs)
    before, after = (loss_of(p) for p in (TOO_SURE, recalibrated.probs))
    assert after < before
    np.testing.assert_allclose([check.before, check.after], [before, after], rtol=1e-5)
    numbers = f"from {before:.3g} to {after:.3g}"
    said = f"Recalibration (structured matrix scaling, sms) lowers held-out log loss {numbers}; "
    said += "calibration is {} rejected (p = 0.4)."
    assert check.in_words(0.05) == said.format("then not")
    assert check.in_words(0.45) == said.format("still")
    left = dataclasses.replace(check, remaining="clearest segment: north")
    assert left.in_words(0.05).endswith("(p = 0.4); remaining error: clearest segment: north.")
    same = dataclasses.replace(check, score="CRPS", before=33.31, after=33.29)
    assert "scaling, sms) leaves held-out CRPS at 33.3; calibration" in same.in_words(0.05)


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
    check = check_of(p, y)
    assert isinstance(tested[0], type(p))
    score = "log loss" if form == "normal" else "pinball loss"
    said = rf"lowers held-out {score} from \S+ to \S+; calibration is"
    assert re.search(said, check.in_words(0.05))
    # Those of the truth, N(LOC + 0.5, 1).
    truth = stats.norm(LOC + 0.5, 1)
    if form == "normal":
        of_rows, best = -stats.norm(LOC, 0.5).logpdf(NUMBERS), -truth.logpdf(NUMBERS)
    else:
        of_rows = [mean_pinball_loss(y, p.values[:, k], alpha=u) for k, u in enumerate(p.levels)]
        best = np.array([mean_pinball_loss(NUMBERS, truth.ppf(u), alpha=u) for u in p.levels])
    np.testing.assert_allclose(check.before, np.mean(of_rows), rtol=1e-5)
    assert best.mean() - 0.02 < check.after < 0.9 * check.before
    if form == "normal":
        np.testing.assert_allclose(tested[0].scale[:N], 1, atol=0.15)
        np.testing.assert_allclose(tested[0].loc[:N] - LOC, 0.5, atol=0.2)


def test_nothing_is_said():
    calibrated = np.full((N, M), 1 / 3, np.float32)
    check = check_of(cj.Categorical(calibrated), np.arange(N) % M)
    assert check.after > check.before
    assert check.in_words(0.05).endswith("does not lower held-out log loss")
    assert check_of(PREDICTIONS[:100], LABELS[:100]) is None
    laplace = cj.Laplace(np.zeros(N, np.float32), np.ones(N, np.float32))
    assert check_of(laplace, np.zeros(N, np.float32)) is None
    assert best_of(2) == "spline" and best_of(1000) == "svs"


def test_members_of_many_rows_have_their_own_map():
    levels = np.array([-0.5, 0, 0.5], np.float32)
    forms = cj.Empirical, lambda x: cj.Quantiles(x, (0.25, 0.5, 0.75))
    for form, expected in zip(forms, ("auto", "pit_spline"), strict=True):
        data = Data(form(np.tile(levels, (2001, 1))), np.zeros(2001, np.float32))
        assert _recalibration_check.best_method(data) == expected


def test_many_numbers(monkeypatch):
    """Fits to many probabilities take too long for a verdict."""
    monkeypatch.setattr(_recalibration_check, "_MOST_NUMBERS", N * M - 1)
    assert check_of(PREDICTIONS, LABELS) is None
    assert _recalibration_check.best_method(Data(PREDICTIONS, LABELS)) == "sms"
    assert _recalibration_check.best_method(Data(PREDICTIONS[:100], LABELS[:100])) is None


def test_impossible_targets():
    """The log score as it is is infinite, and recalibrated it is not."""
    probs = np.where(TOO_SURE < 0.1, 0, TOO_SURE)
    probs /= probs.sum(axis=1, keepdims=True)
    check = check_of(cj.Categorical(probs.astype(np.float32)), LABELS)
    assert re.search("log loss from ∞ to [0-9.]+; calibration", check.in_words(0.05))


def test_a_temperature_and_the_best_method_of_labels(keys):
    found = _recalibration_check.recalibration_checks(KEY, Data(PREDICTIONS, LABELS), 999)
    assert [x.method for x in found] == ["temperature", "sms"]
    # One question has one p-value: that of the sentence on the same map.
    check = check_of(PREDICTIONS, LABELS)
    assert found[1].pvalue == check.pvalue and found[1].after == check.after
    assert all(key is KEY for key in keys)
    for one in found:
        recalibrated = cj.cross_fit(PREDICTIONS, LABELS, one.method, 5)
        expected = [loss_of(TOO_SURE), loss_of(recalibrated.probs)]
        np.testing.assert_allclose([one.before, one.after], expected, rtol=1e-5)
        assert one.description


def test_a_temperature_of_numbers():
    """Of vectors, too, which no map of the unit interval repairs: each fold has another."""
    targets = (1.5 * RNG.normal(size=(N, 2))).astype(np.float32)
    p = cj.MultivariateNormalDiag(np.zeros((N, 2), np.float32), np.ones((N, 2), np.float32))
    (found,) = _recalibration_check.recalibration_checks(KEY, Data(p, targets), 999)
    assert found.method == "temperature" and re.search("T = 2", found.description)
    spread = np.sqrt(np.mean(targets**2))
    best = -np.mean(stats.norm(scale=spread).logpdf(targets).sum(axis=1))
    assert best < found.after < best + 0.02 < found.before - 0.3
