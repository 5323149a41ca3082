"""Labels mean the same classes through every door: in Python, and in files of three kinds."""

import re

import numpy as np
import pandas as pd
import polars as pl
import pytest
from typer.testing import CliRunner

from calibjax.cli import app
from calibjax.frames import read_arrays


class Refused(Exception):
    """What a door says about labels that it does not take."""


def in_python(predictions, targets, classes=None):
    try:
        found = read_arrays(predictions, targets, classes)
    except ValueError as error:
        raise Refused(str(error)) from error
    return found.targets.tolist(), found.classes


def write_npz(frame, path):
    np.savez(path, **{x.name: np.array(x.to_list()) for x in frame})


WRITERS = {"csv": pl.DataFrame.write_csv, "parquet": pl.DataFrame.write_parquet, "npz": write_npz}


@pytest.fixture
def in_file(monkeypatch, tmp_path):
    """What `calibjax evaluate` hands on, of columns in a file of some kind."""

    def read(kind, columns, *options):
        found = []

        def evaluate_data(data, **_):
            found.append((data.targets.tolist(), data.classes))
            raise ValueError("nothing is computed here")

        monkeypatch.setattr("calibjax.evaluation.evaluate_data", evaluate_data)
        path = tmp_path / f"preds.{kind}"
        WRITERS[kind](pl.DataFrame(columns), path)
        done = CliRunner().invoke(app, ["evaluate", str(path), "--target", "label", *options])
        assert done.exit_code == 2 and done.stdout == ""
        if not found:
            raise Refused(done.stderr)
        return found[0]

    return read


def check(expected, read, *arguments):
    """The door gives these places, or an error that matches."""
    if isinstance(expected, list):
        places, classes = read(*arguments)
        assert places == expected
        return classes
    with pytest.raises(Refused) as caught:
        read(*arguments)
    assert re.search(expected, str(caught.value)), str(caught.value)
    return None


PETS = ["dog", "cat", "fox"]
IDS = ["9007199254740992", "9007199254740993"]
TWO = "two readings.*write the names"
# Names of columns, labels, and their places; or what an error says.
OF_COLUMNS = {
    "names": (PETS, ["cat", "fox", "dog"], [1, 2, 0]),
    "numbers of names": (PETS, [2, 0, 1], [2, 0, 1]),
    "floats": (PETS, [2.0, 0.0, 1.0], [2, 0, 1]),
    "from 1": (PETS, [1, 2, 3], "labels among classes .*, or 0 … 2, got 1 … 3: subtract 1"),
    "too large": (PETS, [1, 2**31, 3], "among .* 0 … 2.*2147483648"),
    "no name": (PETS, ["cat", "cow", "dog"], "among classes .'dog', 'cat', 'fox'.*'cow'"),
    "truth of three": (PETS, [True, False, True], "among .*(is|got) .?[Tt]rue"),
    "real numbers": (PETS, [0.5, 1.0, 2.0], "row .*0.5.* real targets"),
    "numbers backwards": (["1", "0"], [1, 0, 1], [0, 1, 0]),
    "numerals": (["1", "0"], ["1", "0", "1"], [0, 1, 0]),
    "floats of numbers": (["1", "0"], [1.0, 0.0, 1.0], [0, 1, 0]),
    "decimals": (["1.0", "0.0"], [1, 0, 1], [0, 1, 0]),
    "truth of 1 and 0": (["1", "0"], [True, False, True], [0, 1, 0]),
    "some of the numbers": (["1", "2", "3"], [2, 3, 2], [1, 2, 1]),
    "places of numbers": (["1", "2", "3"], [0, 1, 2], "row .*0.*count the classes from 0"),
    "places alone": (["5", "6", "7"], [0, 1, 2], "row .*0.*count the classes from 0"),
    "negative": (["-1", "0", "1"], [0, 1, 0], [1, 2, 1]),
    "negative floats": (["-1", "0", "1"], [-1.0, 1.0, 0.0], [0, 2, 1]),
    "ratings": (["0.5", "1.5"], [1.5, 0.5, 1.5], [1, 0, 1]),
    "truth": (["True", "False"], [True, False, True], [0, 1, 0]),
    "truth in capitals": (["FALSE", "TRUE"], [True, False, True], [1, 0, 1]),
    "truth as text": (["TRUE", "FALSE"], ["true", "false", "true"], [0, 1, 0]),
    "numbers of truth": (["False", "True"], [1, 0, 1], [1, 0, 1]),
    "numbers of truth backwards": (["True", "False"], [1, 0, 1], TWO),
    "answers": (["no", "yes"], [1, 0, 1], [1, 0, 1]),
    "truth of answers": (["no", "yes"], [True, False, True], [1, 0, 1]),
    "answers backwards": (["yes", "no"], [1, 0, 1], "may be 'yes', .* or 'no', since 0 means no"),
    "truth of answers backwards": (["Yes", "No"], [True, False, False], TWO),
    "sorted": (["cat", "dog"], [1, 0, 1], [1, 0, 1]),
    "not sorted": (["dog", "cat"], [1, 0, 1], "may be 'dog', .* or 'cat', by the alphabet"),
    "numbers in names": (["c_1", "c_0", "c_2"], [1, 0, 1], "or 'c_0', by the number in its name"),
    "signs in names": (["c_-1", "c_0", "c_1"], [1, 0, 1], TWO),
    "numbers in names from 1": (["c_1", "c_2", "c_3"], [0, 1, 2], [0, 1, 2]),
    "some from 1": (["c_1", "c_2", "c_3"], [1, 2, 1], TWO),
    "ids": (IDS, [2**53 + 1, 2**53, 2**53 + 1], [1, 0, 1]),
    "codes": (["01", "1", "10"], ["1", "01", "10"], [1, 0, 2]),
    "names with spaces": (["no", "yes"], [" yes", "no ", "yes"], [1, 0, 1]),
}


@pytest.mark.parametrize("door", ["pandas", "polars", *WRITERS])
@pytest.mark.parametrize("case", OF_COLUMNS)
def test_labels_of_named_columns(in_file, case, door):
    names, targets, expected = OF_COLUMNS[case]
    predictions = np.full((len(targets), len(names)), 1 / len(names))
    if door == "pandas":
        frame = pd.DataFrame(predictions, columns=names)
        classes = check(expected, in_python, frame, pd.Series(targets))
    elif door == "polars":
        frame = pl.DataFrame(predictions, schema=names)
        classes = check(expected, in_python, frame, pl.Series(targets))
    else:
        columns = {f"p_{name}": x for name, x in zip(names, predictions.T, strict=True)}
        classes = check(expected, in_file, door, columns | {"label": targets}, "--probs", "p_*")
    assert classes == (names if isinstance(expected, list) else None)


# Names that people have put in order, labels, and their places; or what an error says.
OF_CLASSES = {
    "names": (PETS, ["cat", "fox", "dog"], [1, 2, 0]),
    "numbers of names": (["dog", "cat"], [1, 0, 1], [1, 0, 1]),
    "names that are numbers": ([10, 20, 30], [30, 10, 30], [2, 0, 2]),
    "names that are numerals": (["1", "2", "3"], [1, 2, 2], [0, 1, 1]),
    "places of numbers": ([10, 20, 30], [0, 1, 2], "row 0: .*0.*count the classes from 0"),
    "names that are truth": ([True, False], [True, False, True], [0, 1, 0]),
    "answers": (["no", "yes"], [True, False, True], [1, 0, 1]),
    "answers backwards": (["yes", "no"], [True, False, True], TWO),
    "truth backwards": (["True", "False"], [True, False, True], [0, 1, 0]),
    "from 1": (PETS, [1, 2, 3], "targets: expected .* 0 … 2, got 1 … 3: subtract 1"),
    "ids": ([2**53, 2**53 + 1], [2**53 + 1, 2**53, 2**53], [1, 0, 0]),
}


@pytest.mark.parametrize("door", [list, np.array, pd.Series, pl.Series])
@pytest.mark.parametrize("case", OF_CLASSES)
def test_labels_of_classes_in_order(case, door):
    names, targets, expected = OF_CLASSES[case]
    predictions = np.full((len(targets), len(names)), 1 / len(names))
    check(expected, in_python, predictions, door(targets), names)


NOT_SAID = "got .*: (classes must name them|--event must say)"
# Labels of an event whose probability is one column, their places, and the names of the classes.
OF_EVENTS = {
    "numbers": ([1, 0, 1], [1, 0, 1], None),
    "floats": ([1.0, 0.0, 1.0], [1, 0, 1], None),
    "signs": ([1, -1, 1], [1, 0, 1], None),
    "truth": ([True, False, True], [1, 0, 1], None),
    "truth as text": (["TRUE", "FALSE", "TRUE"], [1, 0, 1], None),
    "answers": (["yes", "no", "yes"], [1, 0, 1], ["no", "yes"]),
    "answers in capitals": (["No", "Yes", "No"], [0, 1, 0], ["no", "yes"]),
    "one answer": (["yes", "yes", "yes"], [1, 1, 1], ["no", "yes"]),
    "findings": (["positive", "negative", "positive"], [1, 0, 1], ["negative", "positive"]),
    "other names": (["Present", "absent", "Present"], NOT_SAID, None),
    "other numbers": ([1, 2, 1], NOT_SAID, None),
    "three names": (["yes", "no", "maybe"], r"got \['maybe', 'no', 'yes'\]\.", None),
    "real numbers": ([0.5, 0.0, 1.0], "row .*0.5.* real targets", None),
}


@pytest.mark.parametrize("door", ["list", "numpy", "pandas", "polars", *WRITERS])
@pytest.mark.parametrize("case", OF_EVENTS)
def test_labels_of_an_event(in_file, case, door):
    targets, expected, classes = OF_EVENTS[case]
    if door in WRITERS:
        columns = {"p": [0.5] * len(targets), "label": targets}
        assert check(expected, in_file, door, columns, "--prob", "p") == classes
    else:
        made = {"list": list, "numpy": np.array, "pandas": pd.Series, "polars": pl.Series}[door]
        assert check(expected, in_python, [0.5] * len(targets), made(targets)) == classes


# An event, labels, and their places; or what an error says.
EVENTS = {
    "a name": ("absent", ["Present", "absent", "Present"], [0, 1, 0]),
    "a number": ("2", [1, 2, 1], [0, 1, 0]),
    "zero": ("0", [1, 0, 1], [0, 1, 0]),
    "truth": ("false", [True, False, True], [0, 1, 0]),
    "never": ("absent", ["Present", "Present", "Present"], [0, 0, 0]),
    "no label": (
        "gone",
        ["Present", "absent", "Present"],
        r"of which 'gone' is one, got \['Present",
    ),
    "another spelling": ("Absent", ["present", "absent", "absent"], "of which 'Absent' is one"),
    "three labels": ("a", ["a", "b", "c"], r"of which 'a' is one, got \['a', 'b', 'c'\]"),
}


@pytest.mark.parametrize("door", WRITERS)
@pytest.mark.parametrize("case", EVENTS)
def test_events_on_the_command_line(in_file, case, door):
    event, targets, expected = EVENTS[case]
    columns = {"p": [0.5] * len(targets), "label": targets}
    classes = check(expected, in_file, door, columns, "--prob", "p", "--event", event)
    assert classes == ([f"not {event}", event] if isinstance(expected, list) else None)


def test_events_in_python():
    names = ["Present", "absent"]
    assert in_python([0.1, 0.2], ["absent", "Present"], names) == ([1, 0], names)
    # So near to 1 that 32 bits need two columns: still an event.
    assert in_python([1 - 1e-9, 0.5], ["yes", "no"]) == ([1, 0], ["no", "yes"])


def test_objects_of_pandas():
    frame = pd.DataFrame(np.full((2, 2), 0.5), columns=["True", "False"])
    assert in_python(frame, pd.Series([True, False], dtype=object))[0] == [0, 1]
    frame = pd.DataFrame(np.full((2, 2), 0.5), columns=IDS)
    assert in_python(frame, pd.Series([2**53 + 1, 2**53], dtype=object))[0] == [1, 0]


@pytest.mark.parametrize("door", ["pandas", "parquet", "npz"])
def test_floats_of_which_several_ids_are_rounded(in_file, door):
    targets, expected = [4.0, 2.0**53], "integers or strings if they reach 9007199"
    if door == "pandas":
        frame = pd.DataFrame(np.full((2, 2), 0.5), columns=["4", IDS[0]])
        check(expected, in_python, frame, pd.Series(targets))
    else:
        columns = {"p_4": [0.5, 0.5], f"p_{IDS[0]}": [0.5, 0.5], "label": targets}
        check(expected, in_file, door, columns, "--probs", "p_*")


def test_columns_of_one_name():
    frame = pd.DataFrame(np.full((2, 3), 1 / 3), columns=["a", "b", "a"])
    with pytest.raises(Refused, match="columns of predictions must be different names"):
        in_python(frame, ["a", "b"])


@pytest.mark.parametrize("door", ["npz", "numpy"])
@pytest.mark.parametrize(
    "targets, expected",
    [
        ([[1], [0], [2]], [1, 0, 2]),
        (np.eye(3).tolist(), r"one-hot rows or scores of shape \[3, 3\]: numpy.argmax"),
        (np.zeros((3, 2, 2)).tolist(), r"labels \[n\], got shape \[3, 2, 2\]"),
        (["a", "b", "c"], "row .*'a': (classes must name|name the columns)"),
    ],
)
def test_arrays_without_names(in_file, door, targets, expected):
    predictions = np.full((3, 3), 1 / 3)
    if door == "numpy":
        check(expected, in_python, predictions, targets)
    else:
        columns = {"probs": predictions, "label": np.array(targets)}
        check(expected, in_file, door, columns, "--probs", "probs")
