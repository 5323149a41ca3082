"""Survival curves and times of events as packages of survival analysis have them."""

import types

import numpy as np
import pandas as pd
import pytest

import calibjax as cj
from calibjax.frames import read_arrays

TIMES = np.array([1.0, 2.0, 4.0])
PROBS = np.array([[0.75, 0.5, 0.25], [0.875, 0.5, 0.5], [0.5, 0.25, 0.0], [1.0, 0.5, 0.125]])
TIME, EVENT = np.array([1.5, 2.0, 3.0, 9.0]), np.array([True, False, True, False])
ROWS = ["a", "b", "c", "d"]
FRAME = pd.DataFrame(PROBS.T, index=TIMES, columns=ROWS)
COLUMNS = pd.DataFrame({"week": TIME, "arrest": EVENT.astype(int)}, index=ROWS)
# What scikit-survival calls y.
STRUCTURED = np.rec.fromarrays([EVENT, TIME], names="status,days").view(np.ndarray)


class Step:
    """What scikit-survival's StepFunction has."""

    def __init__(self, probs):
        self.x, self.probs = TIMES, probs

    def __call__(self, times):
        return np.interp(times, self.x, self.probs)


CURVES = {
    "frame": FRAME,
    "functions": [Step(row) for row in PROBS],
    "array of functions": np.array([Step(row) for row in PROBS], object),
    "distribution": cj.SurvivalCurve(TIMES, PROBS),
}
EVENTS = {
    "structured": STRUCTURED,
    "columns": COLUMNS,
    "events first": COLUMNS[["arrest", "week"]],
    "pair": (TIME, EVENT),
    "array": np.stack([TIME, EVENT], axis=1),
    "between": cj.IntervalCensored.right_censored(TIME, EVENT),
}


@pytest.mark.parametrize("events", EVENTS)
@pytest.mark.parametrize("curves", CURVES)
def test_curves_and_events(curves, events):
    found = read_arrays(CURVES[curves], EVENTS[events])
    np.testing.assert_array_equal(found.predictions.probs, PROBS)
    np.testing.assert_array_equal(found.predictions.times, np.tile(TIMES, (4, 1)))
    np.testing.assert_array_equal(found.targets.low, TIME)
    np.testing.assert_array_equal(found.targets.high, [1.5, np.inf, 3, np.inf])


def test_times_that_are_all_of_events():
    found = read_arrays(CURVES["functions"], TIME)
    assert found.targets.tolist() == TIME.tolist()
    weibull = cj.Weibull(np.ones(4), np.ones(4))
    assert read_arrays(weibull, STRUCTURED).targets.high[1] == np.inf


BAD = {
    "transposed": (FRAME.T, COLUMNS, "times as their index, got 3 .*: pass the transpose"),
    "fewer": (FRAME, COLUMNS[:3], "a column of survival for each of 3 targets, .* got 4 columns"),
    "another order": (
        FRAME,
        COLUMNS[::-1],
        "targets must have its index in the order of predictions.T",
    ),
    "no event": (FRAME, COLUMNS.assign(arrest=2), "arrest of 2: .* value of an event"),
    "status": (FRAME, COLUMNS.assign(arrest=["dead", "alive"] * 2), "arrest of alive, dead"),
    "two events": (FRAME, COLUMNS.assign(week=1), "got week of 1 and arrest of 0, 1"),
    "censored": (
        FRAME,
        COLUMNS.assign(arrest=[0, 1, 1, 1]).rename(columns={"arrest": "cens"}),
        r"cens, which is 1 in 3 of 4 rows: .*\(time, cens == 1\) if .*\(time, cens == 0\) if",
    ),
    "names of times": (
        FRAME.set_axis(["S_1", "S_2.5", "S_4"]),
        COLUMNS,
        r"times as their index, got S_1: curves.set_axis\(times\)",
    ),
    "lengths": (CURVES["functions"], (TIME, EVENT[:2]), "as many events as times"),
    "missing": (FRAME, COLUMNS.assign(week=np.nan), "targets, row 0: expected a finite number"),
    "names": (
        FRAME,
        COLUMNS.assign(week="late"),
        "targets, row 0: expected a finite number, got late",
    ),
    "no times": (PROBS, STRUCTURED, r"got ndarray, .*SurvivalCurve\(times, curves\)"),
    "array": (FRAME.to_numpy(), COLUMNS, r"of survival curves calibjax.SurvivalCurve\("),
    "swapped": (STRUCTURED, CURVES["functions"], "predictions come first"),
    "only times": (FRAME, TIME, "with times and events as targets"),
    "classes": (cj.Bernoulli(np.full(4, 0.5)), STRUCTURED, "predictions of numbers"),
}


@pytest.mark.parametrize("case", BAD)
def test_errors(case):
    curves, events, message = BAD[case]
    with pytest.raises((TypeError, ValueError), match=message) as error:
        read_arrays(curves, events)
    assert "\n" not in str(error.value)


def test_many_numbers_of_a_row_are_not_all_in_its_error():
    rising = pd.DataFrame(np.linspace(0, 1, 90)[:, None].repeat(4, 1), np.arange(90.0))
    with pytest.raises(ValueError, match=r"nonincreasing .* row 0 is \[0. .* \.\.\. .* 1. *\]\.$"):
        cj.evaluate(rising, COLUMNS.reset_index(drop=True))


def test_other_frames_and_columns_are_no_lifetimes():
    probs = pd.DataFrame({"dry": [0.25, 0.5, 0.5], "wet": [0.75, 0.5, 0.5]})
    with pytest.raises(ValueError, match="one-hot"):
        read_arrays(probs, np.eye(2)[[0, 1, 0]])
    vectors = cj.MultivariateNormalDiag(np.zeros((3, 2)), np.ones((3, 2)))
    assert read_arrays(vectors, np.eye(2)[[0, 1, 0]]).targets.shape == (3, 2)
    lists = [types.SimpleNamespace()]
    with pytest.raises(TypeError, match="predictions must"):
        read_arrays(lists, [0, 1])
