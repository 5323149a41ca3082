"""evaluate: what people have, in; a verdict, numbers, files and pictures, out."""

import copy
import dataclasses
import json
import re
import sys
import time
from html.parser import HTMLParser
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import polars as pl
import pytest
from own_counts import Geometric
from scipy import stats
from sklearn import metrics

import calibjax as cj
import calibjax.plot
from calibjax._base.text import class_name, p_in_words, pvalue_text, shares_in_words, working
from calibjax._data.data import Data, as_data
from calibjax._data.padding import padded
from calibjax.evaluation import _evaluation
from calibjax.evaluation._curves import worst_level
from calibjax.evaluation._directions import Direction
from calibjax.evaluation._effect import BestTemperature, interval_of_temperature, skce_of
from calibjax.evaluation._evaluation import verdict
from calibjax.evaluation._report._page import kernel_in_words, lines_of_kernels, rows_of_page
from calibjax.evaluation._rows import (
    ZERO_PROBABILITY,
    ZeroProbability,
    notes_on_rows,
    zero_probability_rows,
)
from calibjax.evaluation._section import Section
from calibjax.evaluation._wording import (
    aligned_numbers,
    cells,
    interval_text,
    number,
    shown_names,
    with_interval,
)
from calibjax.frames import read_arrays
from calibjax.measures.families import _error_over_variance, measures
from calibjax.measures.measure import MeasureResult, Subset
from calibjax.measures.quantiles import coverages_not_printed
from calibjax.measures.sampling import Sampling, mean_interval, wilson_interval

NAMES = ["cat", "dog", "fox"]


def too_sure(n=120, factor=3.0):
    """Probabilities of three classes whose logits are too large, and labels."""
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(n, 3))
    truth = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    labels = (truth.cumsum(axis=1) > rng.random((n, 1))).argmax(axis=1)
    powers = truth**factor
    return powers / powers.sum(axis=1, keepdims=True), labels


PROBABILITIES, LABELS = too_sure()


class Tensor:
    """What torch has of a tensor that needs a gradient: NumPy cannot read it before `detach`."""

    def __init__(self, array, attached=True):
        self.array, self.attached = array, attached

    def detach(self):
        return Tensor(self.array, attached=False)

    def cpu(self):
        return self

    def __array__(self, dtype=None, copy=None):
        if self.attached:
            raise RuntimeError("Can't call numpy() on Tensor that requires grad.")
        return np.asarray(self.array, dtype)


@pytest.fixture(scope="module")
def evaluation():
    return cj.evaluate(PROBABILITIES, np.array(NAMES)[LABELS], classes=NAMES)


def test_masked_rows_are_left_out(evaluation):
    """Rows that are kept have the numbers that they have among all rows."""
    order = np.random.default_rng(1).permutation(np.repeat([True, False], [len(LABELS), 5]))
    probabilities, labels = np.full((len(order), 3), np.nan), np.zeros(len(order), int)
    probabilities[order], labels[order] = PROBABILITIES, LABELS
    data = cj.Data(cj.Categorical(probabilities), labels, where=order)
    found = cj.evaluate(data)
    assert found.n == evaluation.n and found.pvalue == evaluation.pvalue
    assert found.row_names.tolist() == np.flatnonzero(order).tolist()
    np.testing.assert_array_equal(found.targets, LABELS)


def with_found(evaluation, **found):
    """An evaluation that has found something else."""
    changed = copy.copy(evaluation)
    vars(changed).update(found)
    return changed


def test_an_evaluation_computes_what_it_is_asked_for(evaluation):
    named = cj.evaluate(pd.DataFrame(PROBABILITIES, columns=NAMES), np.array(NAMES)[LABELS])
    assert named.classes == NAMES and named.pvalue == evaluation.pvalue
    fresh = dataclasses.replace(evaluation)
    fields = {field.name for field in dataclasses.fields(fresh)}
    assert fresh.rejected and vars(fresh).keys() - fields == {"pvalue"}
    for name in ("skce", "measures", "curves"):
        assert name not in vars(fresh) and getattr(fresh, name) is getattr(fresh, name)
    assert "recalibration" not in vars(fresh)


class Classes(Section[int]):
    """The number of classes."""

    def compute(self, case):
        return case.data.predictions.n_labels

    def rows(self, case):
        return [("classes", MeasureResult(float(self.of(case))))]

    def notes(self, case):
        return [f"{self.of(case)} classes have probabilities."]


def test_a_section_is_one_class_and_one_line(evaluation, monkeypatch):
    section = Classes()
    section.__set_name__(cj.Evaluation, "n_classes")
    monkeypatch.setitem(_evaluation._SECTIONS, "n_classes", section)
    monkeypatch.setattr(cj.Evaluation, "n_classes", section, raising=False)
    fresh = with_found(evaluation)
    assert fresh.n_classes == 3 == fresh.to_dict()["n_classes"]
    assert fresh.rows()[-1][0] == "classes" and "3 classes have" in repr(fresh)


def test_a_terminal_shows_what_takes_long(evaluation, monkeypatch, capsys):
    monkeypatch.setattr("calibjax._base.text._PATIENCE", -1.0)
    assert repr(evaluation) and not capsys.readouterr().err
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    repr(evaluation)
    shown = capsys.readouterr().err
    assert "░ skce" in shown and shown.endswith("\r\x1b[K")


def test_a_log_has_a_line_of_what_takes_long(monkeypatch, capsys):
    """One for work and what it contains, and none of what is done at once."""
    monkeypatch.setattr("calibjax._base.text._LINE", 0.05)
    with working("Testing 9 rows") as say, working("Reading"):
        say("kernels")
        time.sleep(0.12)
    with working("Testing 1 row"):
        pass
    assert set(capsys.readouterr().err.splitlines()) == {"Testing 9 rows: kernels … 0 s"}


CONTAINERS = {
    "list": lambda: (PROBABILITIES.tolist(), LABELS.tolist()),
    "jax": lambda: (jnp.asarray(PROBABILITIES), jnp.asarray(LABELS)),
    "torch": lambda: (Tensor(PROBABILITIES), Tensor(LABELS)),
    "pandas": lambda: (pd.DataFrame(PROBABILITIES, columns=NAMES), pd.Series(LABELS)),
    "pandas with names": lambda: (
        pd.DataFrame(PROBABILITIES, columns=NAMES, index=range(7, 127)),
        pd.Series(np.array(NAMES)[LABELS], dtype="category"),
    ),
    "polars": lambda: (pl.DataFrame(PROBABILITIES, schema=NAMES), pl.Series(LABELS)),
    "floats for labels": lambda: (PROBABILITIES, LABELS.astype(float)),
    "labels in a column": lambda: (PROBABILITIES, LABELS[:, None]),
    "objects": lambda: (PROBABILITIES.astype(object), LABELS.astype(object)),
    "a distribution": lambda: (cj.Categorical(jnp.asarray(PROBABILITIES)), LABELS),
}


@pytest.mark.parametrize("name", CONTAINERS)
def test_containers(name):
    predictions, targets = read_arrays(*CONTAINERS[name]()).samples
    np.testing.assert_array_equal(predictions.probs, jnp.asarray(PROBABILITIES))
    np.testing.assert_array_equal(targets, LABELS)


def test_inputs_of_other_kinds():
    names = np.array(["no", "yes"])
    events = PROBABILITIES[:, 0], names[LABELS // 2]
    predictions, targets = read_arrays(*events, ["no", "yes"]).samples
    assert isinstance(predictions, cj.Bernoulli)
    np.testing.assert_array_equal(targets, LABELS // 2)
    rounded = read_arrays(PROBABILITIES.round(1) + 1e-2, LABELS, None, True).predictions.probs
    np.testing.assert_allclose(rounded.sum(axis=1), 1, rtol=1e-6)
    counted = read_arrays(PROBABILITIES, LABELS + 1, [1, 2, 3])
    np.testing.assert_array_equal(counted.targets, LABELS)
    forecasts = read_arrays(stats.norm(np.zeros(3), 2.0), pd.Series([0.0, 1.0, 2.0]))
    assert isinstance(forecasts.predictions, cj.Normal) and forecasts.targets.shape == (3,)


def test_the_verdict(evaluation):
    assert evaluation.rejected and evaluation.pvalue == pytest.approx(0.001)
    assert re.match(
        r"Not calibrated \(p ≤ 0.001, n = 120\).\nOver-confident: mean confidence [\d.]+ %, "
        r"accuracy [\d.]+ %; fitted temperature [\d.]+ \(95 % CI [\d.]+ to [\d.]+\).$",
        evaluation.verdict,
    )
    assert 1.5 < float(evaluation.equivalent_temperature.temperature) < 6
    printed = repr(evaluation)
    for name in "SKCE", "fitted temperature", "accuracy", "ECE", "Over-confident", "To cite: ":
        assert name in printed
    assert "equivalent" not in printed and "<pre>" in evaluation._repr_html_()


def test_measures_are_those_of_scikit_learn(evaluation):
    measures = evaluation.measures
    accuracy = metrics.accuracy_score(LABELS, PROBABILITIES.argmax(axis=1))
    assert measures["accuracy"].value == pytest.approx(accuracy, rel=1e-5)
    log_loss = metrics.log_loss(LABELS, PROBABILITIES)
    assert measures["log loss"].value == pytest.approx(log_loss, rel=1e-5)
    brier = metrics.brier_score_loss(LABELS, PROBABILITIES, labels=[0, 1, 2])
    assert measures["Brier score"].value == pytest.approx(brier, rel=1e-5)
    confidence = cj.top_label(evaluation.predictions, evaluation.targets)
    assert measures["top-label ECE"].value == pytest.approx(float(cj.ece(*confidence)), rel=1e-5)
    # A model that is over-confident expects to be better than it is.
    assert measures["accuracy"].value < measures["accuracy"].if_calibrated[0]
    assert measures["log loss"].value > measures["log loss"].if_calibrated[1]
    # Targets that follow the predictions have the mean of p_max for an accuracy.
    low, high = measures["accuracy"].if_calibrated
    assert low < PROBABILITIES.max(axis=1).mean() < high


def measures_of(predictions, targets):
    (found,) = measures(jax.random.key(0), padded(as_data(predictions, targets)), 0.95, 9)
    return found


def test_the_brier_score_of_events_is_that_of_scikit_learn():
    p, happened = PROBABILITIES[:, 0].astype(np.float32), LABELS == 0
    both = cj.Categorical(jnp.stack([1 - p, p], axis=1))
    for predictions in (cj.Bernoulli(jnp.asarray(p)), both):
        found = measures_of(predictions, jnp.asarray(happened, int))
        expected = metrics.brier_score_loss(happened, p)
        assert found["Brier score"].value == pytest.approx(expected, rel=1e-5)
        low, high = found["Brier score"].interval
        assert low < expected < high < 0.5
        assert {"ECE", "smooth ECE"} < set(found)  # of the event, and not of the top label


@pytest.mark.slow
def test_rows_are_called_as_they_were_given():
    """Behind a row without a target, the next row of a question was named."""
    probabilities, labels = too_sure(factor=1.0)
    probabilities[7], labels[7] = [0.0, 1.0, 0.0], 2
    labels = labels.astype(float)
    labels[3] = np.nan
    frame = {"p_0": probabilities[:, 0], "p_1": probabilities[:, 1], "p_2": probabilities[:, 2]}
    with pytest.warns(UserWarning, match="119 of 120 rows"):
        found = cj.evaluate(frame | {"y": labels}, target="y", probs="p_*", drop_missing=True)
    assert "1 of 1 predictions with probability 1 was wrong (row 7)" in found.verdict
    assert found.to_dict()["zero_probability_rows"] == [7]
    assert found.influential_rows(1).tolist() == [7]
    assert found.influential_indices(1).tolist() == [6]
    assert found.targets[6] == 2 and 3 not in found.influential_rows(119)
    assert '<tr><th scope="row">7</th>' in found.to_html()


@pytest.mark.slow
def test_impossible_targets_are_named():
    """One of them rejects a model in which nothing else is wrong."""
    probabilities, labels = too_sure(factor=1.0)
    probabilities[7], labels[7] = [0.0, 1.0, 0.0], 2
    found = cj.evaluate(probabilities, labels)
    assert found.pvalue <= 0.05 < found.zero_probability.pvalue_without
    assert found.verdict == (
        "Not calibrated (p ≤ 0.001, n = 120).\n"
        "1 of 1 predictions with probability 1 was wrong (row 7); without it "
        f"p = {found.zero_probability.pvalue_without:.3g}."
    )
    assert found.influential_rows(3)[0] == 7 and len(set(found.influential_rows(3).tolist())) == 3
    saved = found.to_dict()
    assert saved["zero_probability_rows"] == [7]
    assert saved["pvalue_without_zero_probability_rows"] == found.zero_probability.pvalue_without


def test_which_targets_are_impossible():
    def impossible(predictions, targets):
        return zero_probability_rows(as_data(predictions, targets)).tolist()

    x = jnp.array([0.0, 0.5, 1.0, 1e-30])
    assert impossible(cj.Bernoulli(x), jnp.array([1, 1, 0, 1])) == [0, 2]
    counts = cj.Poisson(jnp.array([0.0, 0.0, 1.0, 1e-10]))
    assert impossible(counts, jnp.array([0, 3, 3, 30])) == [1]
    numbers = cj.Normal(jnp.zeros(4), jnp.array([1.0, 1e-30, 1.0, 1.0]))
    assert impossible(numbers, jnp.array([0.0, 1.0, 30.0, 1e25])) == [
        1,
        3,
    ]
    # Samples promise no probabilities.
    assert impossible(cj.Empirical(jnp.zeros((4, 3))), jnp.ones(4)) == []
    # The curve is flat between its first two times, where the target is.
    curves = cj.SurvivalCurve(jnp.array([1.0, 2.0, 3.0]), jnp.array([[0.5, 0.5, 0.2]] * 2))
    assert impossible(curves, jnp.array([1.5, 0.5])) == []
    # Before a curve falls, and after it has reached 0.
    curves = cj.SurvivalCurve(jnp.array([1.0, 2.0, 3.0]), jnp.array([[1.0, 0.5, 0.0]] * 3))
    assert impossible(curves, jnp.array([0.5, 1.5, 4.0])) == [0, 2]
    found = ZeroProbability(np.array([0]))
    case = SimpleNamespace(zero_probability=found, data=SimpleNamespace(predictions=curves))
    words = ZERO_PROBABILITY.clause(case)
    assert "probability 0, before the curve falls or after it has reached 0 (row 0)" in words
    known = cj.IntervalCensored.right_censored(jnp.array([0.5, 1.5, 4.0]), jnp.ones(3, bool))
    data = padded(as_data(curves, known, intervals=True))
    (found,) = measures(jax.random.key(0), data, 0.95, 9)
    score = found["log loss"]
    assert (score.value, score.note) == (np.inf, "2 events where curves are flat: rows 0, 2")


def direction(name, explained):
    return Direction(name, 0.7, 0.6, "of the test", 9.0, explained)


TOO_SURE, NOT_SURE = direction("over-confident", 0.9), direction("under-confident", 0.9)


def said(
    pvalue=0.001,
    best=1.0,
    interval=None,
    measures=None,
    found=(),
    worst=None,
    zero=((), None),
    n=12,
):
    """The verdict on predictions of events."""
    rows = ZeroProbability(np.array(zero[0], int), zero[1])
    return verdict(
        SimpleNamespace(
            pvalue=pvalue,
            level=0.05,
            rejected=pvalue <= 0.05,
            why_not_tested=None,
            n=n,
            data=Data(cj.Bernoulli(jnp.full(n, 0.5)), np.zeros(n, int)),
            row_names=np.arange(n),
            measures=measures or {},
            best_temperature=BestTemperature(best, interval),
            directions=found,
            worst=worst,
            zero_probability=rows,
            said_as=lambda in_python, _: in_python,
            segments=None,
            recalibration=None,
        )
    )


SHIFT = direction("risk under-estimated", 0.9)
MEASURES_OF_EVENTS = {
    "calibration slope": MeasureResult(0.7, (0.6, 0.8)),
    "observed / expected": MeasureResult(0.77, (0.71, 0.84)),
}
# What a verdict says, and what it does not say.
VERDICTS = {
    "impossible targets, and the others are wrong too": (
        {"zero": (range(8), 0.002), "worst": "worst where"},
        "; 8 observed targets had|(rows 0, 1, 2, 3, 4 and 3 more)|without them p = 0.002",
        "",
    ),
    "one impossible target": (
        {"pvalue": 0.3, "zero": ([4], None)},
        "1 observed target had|\nNo other miscalibration detected (p = 0.3, n = 12, 0 events).",
        "",
    ),
    "calibrated events": (
        {"pvalue": 0.3, "measures": MEASURES_OF_EVENTS},
        ").\nO/E 0.770 (95 % CI 0.710 to 0.840); calibration slope 0.70 (95 % CI 0.60 to 0.80), "
        "risks too extreme by this interval alone.",
        "temperature",
    ),
    "a bound": (
        {"best": 100.0, "found": [TOO_SURE]},
        "\nOver-confident: of the test; fitted temperature ≥ 100.",
        "",
    ),
    "over-confident": (
        {"best": 3.0, "interval": (2.0, 4.0), "found": [TOO_SURE]},
        "\nOver-confident: of the test; fitted temperature 3.0 (95 % CI 2.0 to 4.0).",
        "",
    ),
    "under-confident": (
        {"best": 0.01, "found": [NOT_SURE]},
        "\nUnder-confident: of the test; fitted temperature ≤ 0.01.",
        "",
    ),
    "a temperature that is not the error": ({"best": 0.946}, "local or in shape", "temperature"),
    "a temperature of the other side": (
        {"best": 0.946, "found": [direction("over-confident", 0.2)]},
        "\nOver-confident: of the test.",
        "temperature|half",
    ),
    "two errors of which none is the main one": (
        {"best": 1.1, "found": [direction("over-confident", 0.2), direction("'a' over", 0.1)]},
        "\nOver-confident: of the test; fitted temperature 1.1; 'a' over.",
        "",
    ),
    "a shift": (
        {"best": 1.8, "found": [SHIFT, TOO_SURE]},
        "\nRisk under-estimated: of the test.",
        "temperature",
    ),
    "measures of events": (
        {
            "best": 1.8,
            "found": [direction("over-confident", 0.4), direction("'b' over-estimated", 0.3)],
            "measures": MEASURES_OF_EVENTS,
        },
        "\nOver-confident: of the test; calibration slope 0.70 (95 % CI 0.60 to 0.80), risks "
        "too extreme; 'b' over-estimated; O/E 0.770 (95 % CI 0.710 to 0.840).",
        "temperature",
    ),
    "a map that was not fitted": (
        {"n": 200},
        "\nTo recalibrate, use fit_recalibrator(method='spline'); estimate the gain with",
        "",
    ),
    "a bound on the error": (
        {"pvalue": 0.3, "best": 1.02, "interval": (0.9, 1.1)},
        "(p = 0.3, n = 12, 0 events).\nFitted temperature 1.02 (95 % CI 0.90 to 1.10), 1 if "
        "calibrated.",
        "",
    ),
}


@pytest.mark.parametrize("case", VERDICTS)
def test_what_a_verdict_says(case):
    arguments, contained, lacking = VERDICTS[case]
    found = said(**arguments)
    assert all(words in found for words in contained.split("|")), found
    assert not any(words in found for words in filter(None, lacking.split("|"))), found


@pytest.mark.parametrize(
    ("predicted", "observed", "words"),
    [
        (0.697, 0.585, "predicted 69.7 %, observed 58.5 %"),
        (0.00912, 0.01136, "predicted 0.91 %, observed 1.14 % (O/E 1.2)"),
        (0.995, 0.9914, "predicted 99.50 %, observed 99.14 %"),
        (1e-5, 2e-5, "predicted 0.0010 %, observed 0.0020 % (O/E 2)"),
        (0.0, 0.02, "predicted 0.0 %, observed 2.0 %"),
        (0.02, 0.0, "predicted 2.00 %, observed 0.00 %"),
        (0.5, 0.5, "predicted 50.0 %, observed 50.0 %"),
        (3e-8, 0.005, "predicted 3e-06 %, observed 0.50 % (O/E 1.7e+05)"),
        (0.04, 4e-5, "predicted 4.00 %, observed 0.004 % (O/E 0.001)"),
        (0.04, 0.0405, "predicted 4.000 %, observed 4.050 %"),
    ],
)
def test_shares_have_the_digits_that_tell_them_apart(predicted, observed, words):
    assert shares_in_words(predicted, observed) == words


def test_the_interval_of_the_best_temperature():
    """Of normal predictions T is the mean of z^2, of which SciPy has the interval."""
    z = 1.4 * np.random.default_rng(3).normal(size=400).astype(np.float32)
    data = padded(as_data(cj.Normal(jnp.zeros(400), jnp.ones(400)), jnp.asarray(z)))
    square, best = np.square(z), float(cj.fit_temperature(data))
    assert best == pytest.approx(square.mean(), rel=2e-3)
    drawn = stats.bootstrap((square,), np.mean, n_resamples=4000, rng=0).confidence_interval
    found = interval_of_temperature(data, best, 0.95)
    np.testing.assert_allclose(found, drawn, rtol=0.03)


@pytest.mark.slow
@pytest.mark.parametrize("factor", [1.0, 1.1, 1.5])
@pytest.mark.parametrize("n_classes", [2, 10, 40])
def test_the_interval_of_many_rows_is_that_of_few(n_classes, factor, monkeypatch):
    """All pairs and landmarks, of logits that are so many times too large: no jump between them."""
    rng = np.random.default_rng(n_classes)
    logits = 1.5 * rng.normal(size=(1500, n_classes)).astype(np.float32)
    targets = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    data = padded(as_data(cj.Categorical(jax.nn.softmax(factor * logits)), targets))
    (low, high), (other_low, other_high) = (
        skce_of(jax.random.key(0), data, 0.95, 999).interval
        for most in (1500, 0)
        if not monkeypatch.setattr("calibjax.evaluation._effect._MAX_ALL_PAIRS", most)
    )
    assert other_high == pytest.approx(high, rel=0.2)
    assert other_low == pytest.approx(low, abs=0.1 * high)


def test_bounds_are_said():
    values = {100.0: "≥ 100", 0.01: "≤ 0.01", 99.0: "99"}
    for value, text in values.items():
        assert cells("fitted temperature", MeasureResult(value))[0] == text


def test_p_values_say_where_they_end():
    words = {0.31: "p = 0.31", 0.001: "p ≤ 0.001", 1e-9: "p ≤ 0.001"}
    assert {p: p_in_words(p, 999) for p in words} == words
    assert p_in_words(0.01, 199, sides=2) == "p ≤ 0.01" and p_in_words(0.005, 199) == "p ≤ 0.005"
    assert p_in_words(np.float32(0.001)) == "p = 0.001" and p_in_words(9e-4) == "p < 0.001"
    assert pvalue_text(0.02, 99) == "0.02" and pvalue_text(None) == pvalue_text(np.nan) == ""


def test_an_estimate_has_the_decimals_of_its_interval():
    """Two digits of half of the width; ends that are not 0 do not become 0."""

    def words(value, *interval):
        return with_interval("{}", value, interval, 0.05)

    assert words(0.00404, 0.00171, 0.00747) == "0.0040 (95 % CI 0.0017 to 0.0075)"
    assert words(4.4e-5, 0.0, 0.00142) == "0.00004 (95 % CI 0 to 0.00142)"
    assert words(0.000883, 3.26e-6, 0.00361) == "0.0009 (95 % CI 3.3e-06 to 0.0036)"
    assert words(-4.4e-10, 0.0, 1.42e-9) == "-4.4e-10 (95 % CI 0 to 1.42e-09)"
    assert words(0.0, 0.0, 0.0) == "0 (95 % CI 0 to 0)" and words(1.31, 1.1, 1.52).endswith("1.52)")
    assert words(0.55, 0.13, 404.0) == "0.55 (95 % CI 0.13 to 404)"
    assert words(412.3, 377.1, 450.9) == "412 (95 % CI 377 to 451)"
    assert cells("ECE", MeasureResult(0.0357, None, (0.018, 0.0632))) == (
        "0.036",
        "",
        "0.018 … 0.063",
        "",
    )
    assert cells("bias", MeasureResult(0.1, (0.0, 0.2), (0.5, 0.5)))[2] == "expected 0.5"
    assert cells("SKCE", MeasureResult(-0.1, (0.0, 0.2)))[2] == "unbiased; CI cut at 0"
    assert cells("p-value (9 clusters)", MeasureResult(0.001, n_draws=999))[0] == "≤ 0.001"
    assert aligned_numbers([0.0345, 0.339, np.nan, np.inf]) == ["0.035", "0.339", "", "∞"]
    assert aligned_numbers([15.0, 1234.0]) == ["15", "1234"] and aligned_numbers([]) == []


def test_the_sentence_of_a_paper(evaluation):
    low, high = evaluation.skce.interval
    said = evaluation.citation
    assert said.startswith(
        "Calibration was rejected (exact aggregated kernel test, 999 simulated data sets, "
        "p ≤ 0.001, n = 120). Over-confident: mean confidence "
    )
    assert said.endswith(
        "). The squared kernel calibration error (default kernel) was "
        f"{evaluation.skce.value:.3f} (95 % CI {low:.3f} to {high:.3f})."
    )
    assert evaluation.to_dict()["citation"] == said


@pytest.mark.parametrize("level", [0.9, 0.95])
def test_intervals_of_means(level):
    hits = np.arange(50) % 5 < 4
    expected = stats.binomtest(40, 50).proportion_ci(level, method="wilson")
    np.testing.assert_allclose(wilson_interval(hits, level), expected, rtol=1e-9)
    values = np.random.default_rng(0).normal(size=40)
    symmetric = np.concatenate([values, -values]) + 3
    expected = stats.t.interval(level, 79, 3, stats.sem(symmetric))
    np.testing.assert_allclose(mean_interval(symmetric, level), expected, rtol=1e-9)
    # Hall's cubic, of which the interval has the roots.
    for skewed in np.exp(values), -np.exp(2 * values), 1e-90 * values**2:
        a = stats.skew(skewed, bias=False) / 40**0.5
        ends = (skewed.mean() - np.array(mean_interval(skewed, level))) / stats.sem(skewed)
        cubic = ends + a * ends**2 / 3 + a**2 * ends**3 / 27 + a / 6
        np.testing.assert_allclose(cubic, np.flip(stats.t.interval(level, 39)), rtol=1e-6)
    assert mean_interval(np.full(9, 2.5), level) == (2.5, 2.5)
    # Brier scores of few rows: the interval ends where scores do.
    assert mean_interval(np.array([0.2, 0.9]), level, (0.0, 1.0)) == (0.0, 1.0)
    low, high = mean_interval(np.array([-1e-4, 0.0, 0.0]), level, (0.0, 1.0))
    assert low == -1e-4 / 3 and high == pytest.approx(0.0, abs=1e-4)


def test_intervals_of_skewed_scores_miss_less_often():
    # Squared errors over variances, of Poisson targets; the normal interval misses in 16 %.
    rng = np.random.default_rng(1)
    rates = rng.uniform(0, 5, (1000, 30))
    ends = [mean_interval(row, 0.95) for row in (rng.poisson(rates) - rates) ** 2 / rates]
    lows, highs = np.transpose(ends)
    assert np.mean((lows <= 1) & (1 <= highs)) > 0.91


def test_few_rows_and_few_events_are_said():
    probs = np.full(60, 0.01)
    often, rarely = np.arange(60) % 2, np.arange(60) // 55
    (note,) = notes_on_rows(cj.Data(cj.Bernoulli(probs), rarely))
    assert note.startswith("Few events: 5 targets differ from the most common one, 0.6 are")
    assert len(notes_on_rows(cj.Data(cj.Bernoulli(probs + 0.4), rarely))) == 1
    assert notes_on_rows(cj.Data(cj.Bernoulli(probs + 0.4), often)) == []
    assert notes_on_rows(cj.Data(cj.Normal(probs, np.ones(60)), probs)) == []
    assert len(notes_on_rows(cj.Data(cj.Normal(probs, np.ones(60))[:5], probs[:5]))) == 1
    (note,) = notes_on_rows(cj.Data(cj.Normal(probs, np.ones(60))[:49], probs[:49]))
    assert note.startswith("Few rows (fewer than 50)")


def test_columns_of_long_intervals_do_not_touch(evaluation):
    long = MeasureResult(8.3e47, (-1.96e47, 5.95e48), (1.0, 1.0))
    shown = repr(with_found(evaluation, measures={"squares": long}))
    assert "-1.96e+47 … 5.95e+48 expected 1\n" in shown


def test_contributions_and_rows(evaluation):
    mean = evaluation.contributions.mean()
    assert mean == pytest.approx(evaluation.skce.value, rel=1e-4)
    rows = evaluation.influential_rows(3)
    assert sorted(evaluation.contributions)[-3:][::-1] == evaluation.contributions[rows].tolist()


def test_json(evaluation, tmp_path):
    text = evaluation.to_json(tmp_path / "evaluation.json")
    found = json.loads(text)
    assert found == json.loads((tmp_path / "evaluation.json").read_text()) == evaluation.to_dict()
    assert found["classes"] == NAMES and found["n"] == 120 and found["rejected"] is True
    assert len(found["curves"]["reliability"]["frequency"]) == 15
    assert None in found["curves"]["reliability"]["frequency"]  # an empty bin is no number
    # Kernels by names: addresses of functions would differ from process to process.
    names = [kernel["kernel"] for kernel in found["kernels"]]
    assert len(names) == 6 and any("log_probability_of" in name for name in names)
    assert " at 0x" not in text


class Page(HTMLParser):
    """The open elements, identifiers and addresses of a page."""

    EMPTY = {"meta", "br"}

    def __init__(self):
        super().__init__()
        self.open, self.identifiers, self.references, self.text = [], [], [], ""

    def handle_starttag(self, tag, attributes):
        self._attributes(attributes)
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self._attributes(attributes)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data

    def _attributes(self, attributes):
        for name, value in attributes:
            if name == "id":
                self.identifiers.append(value)
            if name in ("href", "xlink:href", "src"):
                self.references.append(value)


def test_the_report(evaluation, tmp_path):
    text = evaluation.to_html(tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == text
    again = cj.evaluate(PROBABILITIES, LABELS, classes=NAMES)
    assert again.to_html() == text
    assert len(text.encode()) < 1_000_000
    page = Page()
    page.feed(text)
    assert not page.open and len(set(page.identifiers)) == len(page.identifiers)
    # It needs no other file, and what it refers to is there.
    references = [x for x in page.references if not x.startswith("data:image/png;base64,")]
    assert {x.removeprefix("#") for x in references} <= set(page.identifiers)
    assert " ".join(evaluation.verdict.split()) in " ".join(page.text.split())
    assert text.count("<svg") == text.count('role="img"') == 4
    # Sections without data are absent.
    assert "What would a recalibration gain?" not in page.text and "CRPS" not in page.text


def test_the_report_folds_kernels_away_and_names_them_in_words(evaluation):
    lines = lines_of_kernels(evaluation.test, 0.05)
    assert lines[0]["name"].startswith("class frequencies, among predictions within 0.")
    assert lines[-1]["name"].startswith(
        "whether it is over-confident (log p of the observed class), among"
    )
    assert "log_probability_of" in lines[-1]["technical"]
    numbers = cj.default_kernels(cj.Normal(np.arange(9.0, dtype=np.float32), np.ones(9)))
    assert [kernel_in_words(kernel) for kernel in numbers][::4] == [
        "the location, among predictions of similar location",
        "the spread, among predictions of similar spread",
        "the shape, among predictions at all distances",
    ]
    assert kernel_in_words(cj.GaussianKernel(1.0)) == "GaussianKernel(1)"


def test_equal_rows_of_the_report_are_one_line(evaluation):
    """Ten worst rows were ten identical lines."""
    rows = np.arange(120)
    shares = np.where(rows < 30, 2.0, 1.0 / (rows + 1))
    equal = SimpleNamespace(
        predictions=cj.Bernoulli(np.where(rows < 30, 0.75, 0.5).astype(np.float32)),
        targets=np.zeros(120, int),
        classes=None,
        contributions=shares,
        row_names=rows + 2,
        influential_indices=lambda count: np.argsort(-shares, kind="stable")[:count],
    )
    lines = rows_of_page(equal)
    assert len(lines) == 10 and lines[0]["row"] == "30 equal rows: 2, 3, 4, 5, 6 and 25 more"
    assert lines[0]["observed"] == "class 0: 0.25" and lines[1]["row"] == "32"


def test_the_overview(evaluation):
    figure = evaluation.plot()
    assert len(figure.axes) >= 4
    # Notebooks ask for this, whether anybody has imported pyplot or not.
    assert figure._repr_png_().startswith(b"\x89PNG")


def families():
    x = jax.random.normal(jax.random.key(0), (200,))
    y = x + 0.5 * jax.random.normal(jax.random.key(1), (200,))
    both = jnp.stack([x, y], axis=1)
    draws = x[:, None] + jax.random.normal(jax.random.key(2), (200, 10))
    counts = jax.random.poisson(jax.random.key(3), jnp.exp(x))
    levels = jnp.array([-1.28, 0.0, 1.28])
    return {
        "Bernoulli": (jax.nn.sigmoid(x), y > 0),
        "Normal": (cj.Normal(x, jnp.full(200, 0.5)), y),
        "StudentT": (cj.StudentT(jnp.full(200, 3.0), x, jnp.full(200, 0.5)), y),
        "Poisson": (cj.Poisson(jnp.exp(x)), counts),
        "Empirical": (cj.Empirical(draws), y),
        "Quantiles": (cj.Quantiles(x[:, None] + levels[None], levels=(0.1, 0.5, 0.9)), y),
        "MultivariateNormalDiag": (cj.MultivariateNormalDiag(both, jnp.ones((200, 2))), both),
        "Mixture": (cj.Mixture.ensemble(cj.Normal(both, jnp.ones((200, 2)))), y),
    }


FAMILIES = "Bernoulli Normal StudentT Poisson Empirical Quantiles MultivariateNormalDiag Mixture"


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES.split())
def test_families(family):
    predictions, targets = families()[family]
    found = cj.evaluate(predictions, targets)
    assert found.family == family and 0 < found.pvalue <= 1
    assert json.loads(found.to_json())["family"] == family
    assert found.to_html().count("<svg") >= 1
    assert found.skce.interval[0] <= found.skce.interval[1]
    # Of these two it is "auto" alone.
    has_maps = found.best_temperature is not None or family in ("Empirical", "Quantiles")
    assert ("What would a recalibration gain?" in found.to_html()) == has_maps
    if family == "Normal":
        crps = np.asarray(cj.crps(predictions, targets)).mean()
        assert found.measures["CRPS"].value == pytest.approx(crps, rel=1e-5)
        assert "by a factor of" in found.to_html()


def test_measures_of_quantiles():
    """What was predicted: scores, the share below each level, and the coverage of each pair."""
    rng = np.random.default_rng(0)
    x, z = rng.normal(size=(2, 400)).astype("float32")
    y = x + 0.7 + z  # too low
    levels = (0.1, 0.5, 0.9)
    values = (x[:, None] + stats.norm.ppf(levels)[None]).astype("float32")
    predictions = cj.Quantiles(jnp.asarray(values), levels)
    found = measures_of(predictions, jnp.asarray(y))
    assert list(found) == [
        "weighted interval score",
        "dispersion",
        "overprediction",
        "underprediction",
        "pinball loss",
        "CRPS",
        "bias",
        "coverage of 80 % intervals",
        *(f"observed below {u} quantile" for u in levels),
    ]
    hits = {f"observed below {u} quantile": y <= values[:, k] for k, u in enumerate(levels)}
    hits["coverage of 80 % intervals"] = (y > values[:, 0]) & (y <= values[:, 2])
    for name, of_rows in hits.items():
        probability = 0.8 if "coverage" in name else float(name.split()[2])
        assert found[name].value == pytest.approx(of_rows.mean())
        wilson = stats.binomtest(int(of_rows.sum()), 400).proportion_ci(0.95, method="wilson")
        np.testing.assert_allclose(found[name].interval, wilson, rtol=1e-9)
        expected = np.array(stats.binom(400, probability).interval(0.95)) / 400
        np.testing.assert_allclose(found[name].if_calibrated, expected)
    worst = worst_level(cj.Data(predictions, y), 0.95)
    scores = [
        abs(hits[f"observed below {u} quantile"].mean() - u) / (u * (1 - u)) ** 0.5 for u in levels
    ]
    assert worst is not None and f"at the {levels[np.argmax(scores)]} quantile: " in worst
    assert worst_level(cj.Data(predictions, x + z), 0.95) is None
    assert worst_level(cj.Data(cj.Normal(x, jnp.ones(400)), y), 0.95) is None
    many = cj.Quantiles(jnp.tile(jnp.arange(1.0, 100), (50, 1)), np.arange(1, 100) / 100)
    shown = list(measures_of(many, jnp.full(50, 7.0)))
    shares = [name for name in shown if name.startswith("observed below")]
    assert shares == [f"observed below {u} quantile" for u in (0.05, 0.25, 0.5, 0.75, 0.95)]
    coverages = set(shown) - set(coverages_not_printed(shown))
    assert len(shown) == 7 + 49 + 5 and len(coverages) == 7 + 3 + 5
    assert {f"coverage of {x} % intervals" for x in (50, 80, 90)} < coverages


def test_a_row_without_a_cdf_is_not_counted():
    predictions = Geometric(jnp.full(60, 0.75).at[4].set(0.9998))
    targets = jnp.full(60, 3).at[4].set(5000)
    found = measures_of(predictions, targets)
    for name in ("CRPS", "coverage of 90 % intervals"):
        assert np.isnan(found[name].value) and found[name].note == "NaN in row 4"
    assert np.isfinite(found["log loss"].value) and found["log loss"].note is None


@pytest.mark.slow
def test_many_rows():
    probabilities, labels = too_sure(25_000, 1.0)
    found = cj.evaluate(probabilities, labels)
    assert not found.rejected and found.contributions is None
    assert len(found.to_json()) < 500_000 and "Rows that contribute" not in found.to_html()


def test_names_of_classes_of_any_letters():
    names = ["x" * 3000, "two\nlines", "\x1b[31m", "\ud800", "\u202e", "😀 <b>"]
    shown = shown_names(names)
    assert shown[0] == "x" * 39 + "…" and shown[1] == "two\\nlines" and shown[5] == "😀 <b>"
    assert all(name.isprintable() for name in shown)
    assert len(class_name(names, 0)) < 50 and class_name(names, 1) == r"'two\nlines'"
    assert class_name([10, 20], 1) == "class 20"


def test_numbers_that_are_infinite_or_none():
    assert number(np.inf) == "∞" and number(-0.0) == "0" and number(np.nan) == ""
    large = ("1128", "-999999", "1e+06", "999", "1000", "0.0123")
    assert tuple(map(number, (1128.4, -999_999.0, 1e6, 999.4, 999.6, 0.01234))) == large
    assert interval_text((1.0, np.inf)) == "1 … ∞"


def test_no_variance_no_ratio_to_it():
    # A t distribution with two degrees of freedom has a mean, and no finite variance.
    x = jnp.linspace(-1, 1, 5)
    found = measures_of(cj.StudentT(2.0, x, 1.0), x)
    assert "CRPS" in found and "squared error / variance" not in found


def test_the_squared_error_of_an_ensemble():
    """Of five draws from the law of the targets, where the mean of ratios is about 3."""
    rng = np.random.default_rng(0)
    deviations = rng.gamma(4.0, 1.0, 20_000)
    draws = deviations[:, None] * rng.normal(size=(20_000, 5))
    squares = (deviations * rng.normal(size=20_000) - draws.mean(axis=1)) ** 2
    variances, every_row = draws.var(axis=1), np.arange(20_000)
    rows = Subset(every_row, Sampling(20_000), 0.95, every_row)
    found = _error_over_variance(squares, variances, np.full(20_000, 5))(rows)
    by_hand = squares.mean() / (draws.var(axis=1, ddof=1) * (1 + 1 / 5)).mean()
    assert found.value == pytest.approx(by_hand)
    assert found.value == pytest.approx(1, abs=0.03) and np.mean(squares / variances) > 2.5
    # The interval is that of the ratio, as resamples show it.
    samples = rng.integers(20_000, size=(100, 20_000))
    expected = 1.5 * variances
    ratios = squares[samples].mean(axis=1) / expected[samples].mean(axis=1)
    half = (found.interval[1] - found.interval[0]) / 2
    assert half / 1.96 == pytest.approx(np.std(ratios), rel=0.3)
    # Half of the rows have three of them.
    where = np.arange(5)[None] < np.where(np.arange(20_000) % 2, 3, 5)[:, None]
    squares = (deviations * rng.normal(size=20_000) - draws.mean(axis=1, where=where)) ** 2
    some = draws.var(axis=1, where=where)
    found = _error_over_variance(squares, some, where.sum(axis=1))(rows)
    assert found.value == pytest.approx(1, abs=0.03)


def test_a_p_value_that_is_no_number(monkeypatch):
    class Falling(cj.Univariate):
        loc: jax.Array

        def quantile(self, level):
            return self.loc - level

    monkeypatch.setattr(
        "calibjax.evaluation._evaluate.calibration_test",
        lambda *_, **__: SimpleNamespace(pvalue=np.nan),
    )
    with pytest.raises(
        ValueError, match="tested: the log_prob of row 0 is NaN, as where quantiles"
    ):
        cj.evaluate(Falling(jnp.zeros(3)), jnp.zeros(3))
