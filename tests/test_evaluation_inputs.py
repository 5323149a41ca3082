"""What evaluate takes for predictions and targets, and what it refuses."""

import dataclasses
import decimal
import re

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import stats

import calibjax as cj
import calibjax.plot
from calibjax.frames import read_arrays

N = 30
RNG = np.random.default_rng(0)
PROBABILITIES = RNG.dirichlet(np.ones(3), N)
LABELS = RNG.integers(0, 3, N)
NAMES = ["a", "b", "c"]
STRINGS = np.array(NAMES)[LABELS]
EVENTS = PROBABILITIES[:, 0]
ORDER = [2, 0, 1]


def frame(columns=NAMES):
    return pd.DataFrame(PROBABILITIES, columns=columns)


def with_missing(column, missing):
    column = pd.Series(column).copy()
    column[3] = missing
    return column


ERRORS = {
    "NA among strings": (
        lambda: (PROBABILITIES, with_missing(STRINGS, pd.NA).astype("string")),
        NAMES,
        "targets must not have missing values; row 3 is <NA>",
    ),
    "NA in a frame": (
        lambda: (frame().astype("Float64").where(PROBABILITIES != PROBABILITIES[2, 1]), LABELS),
        None,
        "predictions must not have missing values; row 2, column 1 is <NA>",
    ),
    "masked predictions": (
        lambda: (np.ma.masked_array(PROBABILITIES, mask=PROBABILITIES == EVENTS[4]), LABELS),
        None,
        "predictions must not have missing values; row 4, column 0 is masked",
    ),
    "masked targets": (
        lambda: (PROBABILITIES, np.ma.masked_array(LABELS, mask=np.arange(N) == 5)),
        None,
        "targets must not have missing values; row 5 is masked",
    ),
    "a column of lists": (
        lambda: (pl.Series(PROBABILITIES.tolist()), LABELS),
        None,
        r"numpy.stack\(list\(predictions\)\)",
    ),
    "columns in another order than classes": (
        lambda: (frame(["c", "a", "b"]), STRINGS),
        NAMES,
        "classes must be in the order of the columns",
    ),
    "columns of some table": (
        lambda: (frame([5, 6, 7]), LABELS),
        None,
        r"among classes \[5, 6, 7\], got 0: if labels count the classes from 0, write the names",
    ),
    "a set of classes": (
        lambda: (PROBABILITIES, STRINGS),
        set(NAMES),
        "classes must be a list of names, got set",
    ),
    "classes that cannot be hashed": (
        lambda: (PROBABILITIES, LABELS),
        [["a"], ["b"], ["c"]],
        "classes must be strings or numbers",
    ),
    "classes that JSON does not have": (
        lambda: (PROBABILITIES, LABELS),
        [decimal.Decimal(c) for c in range(3)],
        "classes must be strings or numbers",
    ),
    "a matrix of classes": (
        lambda: (PROBABILITIES, LABELS),
        np.eye(3),
        r"classes must be a list of names, got shape \[3, 3\]",
    ),
    "rounding below zero": (
        lambda: ([-1e-12, 0.2], [0, 1]),
        None,
        r"row 0: .* got -1e-12; rounding errors are removed by numpy.clip",
    ),
    "rounding above one": (
        lambda: ([1 + 1e-9, 0.2], [0, 1]),
        None,
        r"row 0: .* got 1.000000001; rounding errors are removed by numpy.clip",
    ),
    "rounding in a row": (
        lambda: ([[0.5, 0.5], [-1e-12, 1.0]], [0, 1]),
        None,
        r"row 1: .* got -1e-12; rounding errors are removed by numpy.clip",
    ),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name):
    make, classes, message = ERRORS[name]
    with pytest.raises((TypeError, ValueError), match=message) as error:
        read_arrays(*make(), classes)
    assert "\n" not in str(error.value)


def test_a_scipy_distribution_cannot_be_normalized():
    with pytest.raises(ValueError, match="normalize must be False"):
        read_arrays(stats.norm(np.zeros(N), 1.0), LABELS, None, True)


@pytest.mark.parametrize("dtype", [">f8", ">f4", "longdouble", "float16"])
def test_dtypes_that_jax_does_not_compute_in(dtype):
    rows = np.array([[0.5, 0.25, 0.25], [0.0, 1.0, 0.0]]).astype(dtype)
    predictions, targets = read_arrays(rows, np.array([2, 1]).astype(dtype)).samples
    assert predictions.probs.dtype == jnp.float32
    np.testing.assert_array_equal(predictions.probs, rows.astype(float))
    assert targets.tolist() == [2, 1]


def test_sums_that_overflow():
    counts = np.array([[6e4, 6e4], [2e4, 6e4]], np.float16)
    predictions = read_arrays(counts, [0, 1], None, True).predictions
    np.testing.assert_allclose(predictions.probs, [[0.5, 0.5], [0.25, 0.75]], rtol=1e-3)
    counts = np.full((2, 10), 1e38, np.float32)
    predictions = read_arrays(counts, [0, 1], None, True).predictions
    np.testing.assert_allclose(predictions.probs, 0.1, rtol=1e-6)


def test_columns_that_are_numbers_name_the_classes():
    inputs = read_arrays(frame(ORDER), np.array(ORDER)[LABELS])
    assert inputs.targets.tolist() == LABELS.tolist() and inputs.classes == ORDER
    inputs = read_arrays(frame([10, 20, 30]), 10 * LABELS + 10)
    assert inputs.targets.tolist() == LABELS.tolist() and inputs.classes == [10, 20, 30]
    inputs = read_arrays(frame([0, 1, 2]), LABELS)
    assert inputs.targets.tolist() == LABELS.tolist() and inputs.classes is None


def test_strings_of_variable_length():
    strings = STRINGS.astype(np.dtypes.StringDType())
    assert read_arrays(PROBABILITIES, strings, NAMES).targets.tolist() == LABELS.tolist()


def test_large_integers_are_numbers():
    targets = read_arrays(cj.Normal(jnp.zeros(2), 1.0), np.array([2**40, 1])).targets
    assert targets.tolist() == [2.0**40, 1.0]


def test_inside_jit():
    calls = [
        lambda x: cj.evaluate(x, [0, 1]),
        lambda x: cj.evaluate(cj.Bernoulli(x), np.array([0, 1])),
        lambda x: cj.evaluate([0.1, 0.9], [0, 1]),
    ]
    for call in calls:
        with pytest.raises(TypeError, match="evaluate must be called outside of jit"):
            jax.jit(call)(jnp.array([0.1, 0.9]))


def test_levels_at_which_nothing_could_be_rejected():
    with pytest.raises(ValueError, match="level must be a number from 0.001 to 0.5"):
        cj.evaluate(EVENTS, LABELS // 2, level=1e-4)
    with pytest.raises(ValueError, match="such as 0.05 for a confidence of 95 %, got 0.95"):
        cj.evaluate(EVENTS, LABELS // 2, level=0.95)


def test_seeds_that_jax_does_not_take():
    with pytest.raises(ValueError, match="seed must be between 0 and"):
        cj.evaluate(EVENTS, LABELS // 2, seed=2**63)


def test_probabilities_that_32_bits_round_to_one():
    predictions, targets = read_arrays([1 - 1e-9, 0.5], [0, 1]).samples
    # -log 1e-9; as a Bernoulli prediction it would be infinite.
    assert float(-predictions.log_prob(jnp.asarray(targets))[0]) == pytest.approx(20.723, rel=1e-4)


@pytest.mark.slow
def test_an_evaluation_in_64_bits_is_of_use_outside():
    with jax.enable_x64(True):
        evaluation = cj.evaluate(PROBABILITIES, LABELS)
        inside = evaluation.to_dict()
    again = dataclasses.replace(evaluation)  # without what it has computed
    assert again.to_dict() == inside and "64" in str(evaluation.predictions.probs.dtype)
    assert len(again.influential_rows()) == 10 and "<svg" in again.to_html()


@pytest.mark.slow
def test_a_distribution_without_a_mean():
    x = np.linspace(-1, 1, N)
    evaluation = cj.evaluate(cj.StudentT(1.0, x, 0.05), x + 1)
    assert evaluation.rejected
    rows = re.findall(r'<tr><th scope="row">(\d+)</th><td>(.*?)</td><td>', evaluation.to_html())
    assert len(rows) == 10
    for row, middle in rows:
        assert float(middle) == pytest.approx(x[int(row)], abs=1e-3)


@pytest.mark.slow
def test_a_temperature_at_the_end_of_its_range():
    x = np.linspace(-1, 1, N)
    wide = cj.evaluate(cj.Normal(x, 1e4), x + 0.1 * np.sin(9 * x))
    assert "intervals should be at most 0.492 times as wide." in wide.verdict


def test_predictions_on_several_devices_come_to_one():
    # Classical measures and curves look at all rows at once.
    mesh = jax.make_mesh((2,), ("rows",), devices=jax.devices()[:2])
    rows = jax.NamedSharding(mesh, jax.P("rows"))
    predictions = cj.Categorical(jax.device_put(jnp.asarray(PROBABILITIES, jnp.float32), rows))
    found = read_arrays(predictions, jax.device_put(LABELS, rows))
    assert len(found.predictions.probs.devices()) == 1
    np.testing.assert_array_equal(found.predictions.probs, predictions.probs)
    assert found.targets.tolist() == LABELS.tolist()
