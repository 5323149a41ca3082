"""Files of all formats that the command reads, and those that nobody could read."""

import gzip
import io
import json
import re

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from calibjax.cli import app
from calibjax.cli._columns import Columns
from calibjax.frames.files import read_files

COMMAS = "p_a,p_b,label\n0.5,0.5,a\n0.2,0.8,b\n"
WITH_DECIMAL_COMMAS = "p_a;p_b;label\n0,5;0,5;a\n0,2;0,8;b\n"
RECORDS = [
    {"p_a": 0.5, "p_b": 0.5, "label": "a"},
    {"label": "b", "p_b": 0.8, "p_a": 0.2},
]
LINES = "\n\n".join(map(json.dumps, RECORDS))
NESTED = '{"p": {"a": 0.5, "b": 0.5}, "label": "a"}\n{"p": {"a": 0.2, "b": 0.8}, "label": "b"}'

# The name, the content, and what is said of it.
GOOD = {
    "commas": ("x.csv", COMMAS, ""),
    "byte order mark": ("x.csv", "\ufeff" + COMMAS, ""),
    "blanks": ("x.csv", COMMAS.replace(",", ", "), ""),
    "line ends of Windows": ("x.csv", COMMAS.replace("\n", "\r\n"), ""),
    "tabs": ("x.tsv", COMMAS.replace(",", "\t"), ""),
    "tabs in a csv file": ("x.csv", COMMAS.replace(",", "\t"), "x.csv: read with tabs between"),
    "bars": ("x.csv", COMMAS.replace(",", "|"), "bars"),
    "semicolons": ("x.csv", COMMAS.replace(",", ";"), "read with semicolons between columns.\n"),
    "decimal commas": ("x.csv", WITH_DECIMAL_COMMAS, "semicolons .* and commas before decimals"),
    "gzip": ("x.csv.gz", COMMAS, ""),
    "objects": ("x.jsonl", LINES, ""),
    "objects in gzip": ("x.jsonl.gz", LINES, ""),
    "a list of objects": ("x.json", json.dumps(RECORDS), ""),
    "a list behind a byte order mark": ("x.json", "\ufeff" + json.dumps(RECORDS), ""),
    "objects in objects": ("x.jsonl", NESTED.replace('"p":', '"p_":'), ""),
}


ERRORS = ValueError
EVALUATE = "calibjax.evaluation.evaluate_data"


def write(folder, name, content):
    path, content = folder / name, content.encode()
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return path


@pytest.mark.parametrize("case", GOOD)
def test_formats(case, tmp_path, capsys):
    name, content, said = GOOD[case]
    pattern = "p_.*" if case == "objects in objects" else "p_*"
    model = Columns("label", probs=pattern).read(write(tmp_path, name, content))
    np.testing.assert_allclose(model.predictions.probs, [[0.5, 0.5], [0.2, 0.8]], rtol=1e-6)
    assert model.classes == ["a", "b"] and model.targets.tolist() == [0, 1]
    err = capsys.readouterr().err
    assert re.search(said, err) if said else err == ""


def test_options_of_questions_whose_number_differs(tmp_path, capsys):
    text = '{"p": {"A": 0.5, "B": 0.5}, "y": "B"}\n{"p": {"A": 0.2, "B": 0.2, "C": 0.6}, "y": "C"}'
    columns = Columns("y", probs="p.*")
    model = columns.read(write(tmp_path, "x.jsonl", text))
    np.testing.assert_allclose(model.predictions.probs, [[0.5, 0.5, 0], [0.2, 0.2, 0.6]], rtol=1e-6)
    assert model.targets.tolist() == [1, 2]
    assert (
        "x.jsonl, column p.*: rows have 2 to 3 options; what a row lacks is"
        in capsys.readouterr().err
    )
    # What does not sum to 1 without it is missing.
    with pytest.raises(ERRORS, match="column p.C, row 1: .*got nothing"):
        columns.read(write(tmp_path, "x.jsonl", text.replace('"B": 0.5}', '"B": 0.3}')))


NUMBERS = "p,y\n0.5,1\n"
# The name, the content, and the error.
BAD = {
    "no such format": ("x.txt", NUMBERS, "expected a file that ends in .csv, .tsv, .jsonl"),
    "too many values": ("x.csv", NUMBERS + "0.2,0,7\n", "line 3: expected 2 values, .* got 3"),
    "decimal commas between commas": ("x.csv", "p,y\n0,5,1\n", "line 2: expected 2 .* got 3"),
    "too few values": ("x.csv", "q,p,y\n1,0.5,1\n1,0.5\n", "column y, row 3: .* got nothing"),
    "two readings": ("x.csv", "p;y\n1,234;1\n", "1,234 has two readings; --decimal ,"),
    "thousands": ("x.csv", "p;q;y\n1,234;0.5;1\n1,0;0.5;1\n", "p, row 2: .*after a point, got 1,2"),
    "no line": ("x.csv", "", "this .csv file cannot be read: it is empty"),
    "no row": ("x.csv", "p,y\n", "expected at least 2 rows, got 0"),
    "no object": ("x.jsonl", '{"p": 0.5, "y": 1}\n[0.5, 1]\n', "line 2: .* an object.*got a list"),
    "half an object": (
        "x.jsonl",
        '{"p": 0.5, "y": 1}\n{"p": 0.2',
        "line 2: this JSON cannot be read",
    ),
    "no list": ("x.json", '{"p": [0.5, 0.2], "y": [1, 0]}', "p: expected one number in each row"),
    "a missing key": ("x.jsonl", '{"p": 0.5, "y": 1}\n{"p": 0.5}\n', "y, row 2: .* got nothing"),
    "no number": ("x.jsonl", '{"p": "much", "y": 1}\n', "p, row 1: .*finite number, got much"),
    "not a number": (
        "x.jsonl",
        '{"p": NaN, "y": 1}\n',
        "p, row 1: .*number .no row has one.*, got nothing",
    ),
    "no number among decimal commas": (
        "x.csv",
        "p;y\n0,5;1\n-;0\n0,25;1\n",
        "p, row 3: .*as in other rows, with commas before decimals, got -",
    ),
    "no line of JSON": ("x.jsonl", "", "an object on each line, got an empty file"),
    "too deep": ("x.jsonl", '{"p": ' + "[" * 9000 + "]" * 9000 + "}", "line 1: this JSON cannot"),
    "a table of the web": (
        "x.csv",
        "<!DOCTYPE html>\n<html></html>\n",
        "there is no column y, only",
    ),
    "quotes that do not end": ("x.csv", 'p,y\n0.5,1\n"0.5,1\n0.2,0\n', "line 3: unexpected end"),
    "quotes in quotes": (
        "x.csv",
        'p,y\n0.5,"5" pipe"\n',
        "line 2: .*and quotation marks are around",
    ),
    "percent": (
        "x.csv",
        "p,y\n50%,1\n0.2,0\n",
        "p, row 2: .* percent sign in all rows or in none, got 50%",
    ),
    "percentages": ("x.csv", "p,y\n50,1\n20,0\n", "p, row 2: .*got 50.*divide the column by 100"),
    "the header again": (
        "x.csv",
        f"{NUMBERS}{NUMBERS}",
        "p, row 3: expected a finite number, got p",
    ),
    "blanks between columns": ("x.csv", "p y\n0.5 1\n", "there is no column y, only p y"),
    "same names": ("x.csv", "p,p,y\n0.5,0.5,1\n", "different names of columns, got p twice"),
    "lists": ("x.jsonl", '{"p": [0.5, 0.5], "y": 1}\n', "p: expected one number in each row"),
}


@pytest.mark.parametrize("case", BAD)
def test_errors(case, tmp_path):
    name, content, message = BAD[case]
    with pytest.raises(ERRORS, match=f"x[.a-z]*.*{message}"):
        Columns("y", prob="p").read(write(tmp_path, name, content))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"no gzip", "this .gz file cannot be read"),
        (gzip.compress(COMMAS.encode())[:-9], "this .gz file cannot be read"),
        (gzip.compress("p,y\n0.5,é\n".encode("latin-1")), "expected a text in UTF-8"),
        (gzip.compress("p,y\n0.5,1\n".encode("utf-16")), "expected a text in UTF-8; save"),
    ],
    ids=["no gzip", "cut off", "latin", "utf-16"],
)
def test_bytes_that_are_no_text(content, message, tmp_path):
    path = tmp_path / "x.csv.gz"
    path.write_bytes(content)
    with pytest.raises(ERRORS, match=message):
        read_files([path])


def npz(**arrays):
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def parquet(**columns):
    file = io.BytesIO()
    pl.DataFrame(columns).write_parquet(file)
    return file.getvalue()


HALF, FLIPS = np.array([0.5, 0.5, 0.5]), np.array([0, 1, 0])
ONE_ARRAY = io.BytesIO()
np.save(ONE_ARRAY, HALF)
BINARY = {
    "npz empty": ("x.npz", b"", "this .npz file cannot be read"),
    "npz cut off": ("x.npz", npz(p=HALF, y=FLIPS)[:-30], "this .npz file cannot be read"),
    "npz one array": ("x.npz", ONE_ARRAY.getvalue(), "one array without a name, as of numpy.save"),
    "npz complex": ("x.npz", npz(p=HALF * 1j, y=FLIPS), "the array p has the dtype complex128"),
    "npz structured": (
        "x.npz",
        npz(p=np.zeros(3, [("a", float)]), y=FLIPS),
        "array p has the dtype",
    ),
    "npz objects": (
        "x.npz",
        npz(p=np.array([{}], object), y=FLIPS),
        "Object arrays cannot be loaded",
    ),
    "npz lengths": (
        "x.npz",
        npz(p=HALF, y=FLIPS[:2]),
        "column y: expected one value for each of 3 rows, got 2",
    ),
    "npz text": ("x.npz", npz(p=np.array(["a", "b", "c"]), y=FLIPS), "p, row 0: .*number, got a"),
    "npz missing": (
        "x.npz",
        npz(p=HALF * np.nan, y=FLIPS),
        "p, row 0: .*no row has one.* got nothing",
    ),
    "npz dates": ("x.npz", npz(p=HALF.astype("M8[D]"), y=FLIPS), "p: expected numbers, got dates"),
    "npz too many axes": (
        "x.npz",
        npz(p=np.ones((3, 2, 2)), y=FLIPS),
        "an array of shape .3, 2, 2",
    ),
    "npz one number": (
        "x.npz",
        npz(p=np.float64(0.5), y=FLIPS),
        "one value for each of 1 rows, got 3",
    ),
    "npz real targets": (
        "x.npz",
        npz(p=HALF, y=HALF),
        "row 0: expected labels 0 … 1, got 0.5; for real",
    ),
    "npz from 1": ("x.npz", npz(p=HALF, y=FLIPS + 1), "got .1, 2.: --event must say"),
    "npz no target": ("x.npz", npz(p=HALF), "there is no column y, only p"),
    "parquet empty": ("x.parquet", b"", "this .parquet file cannot be read"),
    "parquet cut off": ("x.parquet", parquet(p=HALF, y=FLIPS)[:-9], "this .parquet file cannot be"),
    "parquet of text": ("x.parquet", NUMBERS.encode(), "this .parquet file cannot be read"),
    "parquet no row": ("x.parquet", parquet(p=[], y=[]), "expected at least 2 rows, got 0"),
    "parquet missing": ("x.parquet", parquet(p=[0.5, None], y=[0, 1]), "row 1: .*got nothing"),
    "parquet target": ("x.parquet", parquet(p=[0.5, 0.5], y=[0, None]), "y, row 1: .*got nothing"),
    "parquet text": ("x.parquet", parquet(p=["0.5", "x"], y=[0, 1]), "p, row 1: .*number, got x"),
    "parquet bytes": (
        "x.parquet",
        parquet(p=[b"a", b"b"], y=[0, 1]),
        "p, row 0: expected a finite",
    ),
    "parquet lists": (
        "x.parquet",
        parquet(p=[[0.5, 0.5]] * 2, y=[0, 1]),
        "number in each row, got 2",
    ),
    "parquet no column": ("x.parquet", parquet(q=[0.5, 0.5], y=[0, 1]), "there is no column p"),
    "an image": ("x.csv", b"\x89PNG\r\n\x1a\n\0", "expected a text in UTF-8"),
    "JSON in latin": (
        "x.jsonl",
        '{"p": "é"}'.encode("latin-1"),
        "line 1: this JSON cannot be read: 'utf-8'",
    ),
}


@pytest.mark.parametrize("case", BINARY)
def test_errors_of_binary_files(case, tmp_path):
    name, content, message = BINARY[case]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ERRORS, match=message) as error:
        Columns("y", prob="p").read(tmp_path / name)
    assert "\n" not in str(error.value) and name in str(error.value)


def test_formats_that_the_name_does_not_say(tmp_path):
    """JSON with an object on each line in a .json file, and gzip without .gz."""
    lines = tmp_path / "x.json"
    lines.write_text(LINES)
    packed = tmp_path / "x.csv"
    packed.write_bytes(gzip.compress(COMMAS.encode()))
    for path in (lines, packed):
        assert Columns("label", probs="p_*").read(path).targets.tolist() == [0, 1]


def test_a_label_is_an_option_of_its_row(tmp_path):
    text = '{"p": [0.5, 0.5], "y": 2}\n{"p": [0.2, 0.2, 0.6], "y": 1}\n'
    with pytest.raises(ERRORS, match="y, row 1: expected options of their rows, got 2, with 2 opt"):
        Columns("y", probs="p").read(write(tmp_path, "x.jsonl", text))


def test_answers_in_words_have_no_probabilities(tmp_path):
    text = '{"doc_id": 0, "target": "1", "filtered_resps": ["a word"]}\n'
    with pytest.raises(ERRORS, match="expected a log of questions of multiple choice"):
        Columns().read(write(tmp_path, "samples_x.jsonl", 2 * text))


def test_separators_and_decimals_that_are_said(tmp_path):
    path = write(tmp_path, "x.csv", "x:y\n1,234:1,5\n2,000:0\n")
    model = Columns("y", mean="x", sd="x", separator=":", decimal=",").read(path)
    np.testing.assert_allclose(model.predictions.loc, [1.234, 2.0], rtol=1e-6)
    assert model.targets.tolist() == [1.5, 0.0]
    for options, message in (({"separator": "::"}, "one character"), ({"decimal": "·"}, "decimal")):
        with pytest.raises(ERRORS, match=message):
            Columns("y", mean="x", sd="x", **options).read(path)


def test_rows_of_several_files(tmp_path):
    first = write(tmp_path, "a.csv", COMMAS)
    second = write(tmp_path, "b.csv", "label,p_b,p_a\nb,0.1,0.9\na,?,1\n")
    model = Columns("label", probs="p_*").read(first, first)
    assert model.targets.tolist() == [0, 1, 0, 1]
    assert model.row_names.tolist() == [f"{row} of {first}" for row in (2, 3, 2, 3)]
    with pytest.raises(ERRORS, match="b.csv, column p_b, row 3: .*got ?"):
        Columns("label", probs="p_*").read(first, second)
    with pytest.raises(ERRORS, match="c.csv: expected the columns of .*a.csv, .* called p_b"):
        Columns("label", probs="p_*").read(first, write(tmp_path, "c.csv", "label,p_a\na,1\n"))


def test_some_rows(tmp_path, capsys):
    text = "p,y,lead,region\n0.1,0,3,north\n0.2,NA,3,north\n0.3,1,2,north\n,1,3,\n0.5,1,3,south\n"
    path = write(tmp_path, "x.csv", text)
    columns = Columns("y", prob="p", where="lead == 3", drop_missing=True)
    model = columns.read(path)
    np.testing.assert_allclose(model.predictions.probs, [0.1, 0.5], rtol=1e-6)
    assert model.row_names.tolist() == [2, 6]
    err = capsys.readouterr().err
    assert "x.csv: 4 of 5 rows are used, where lead == 3.\n" in err
    assert "2 of 4 rows are used, without missing values (missing are 1 of p, 1 of y).\n" in err
    assert len(columns.read(path, at_least=1, others=["region"]).targets) == 2
    for where, message in (
        ("lead", "true or false for each row"),
        ("lead ==", "--where lead ==: unable to parse"),
        ("region = north", "unable to find column .north.; valid columns"),
        ("sum(lead) > 1", "true or false for each row"),
    ):
        with pytest.raises(ERRORS, match=message):
            Columns("y", prob="p", where=where).read(path)


def test_a_class_may_be_called_na(tmp_path):
    path = write(tmp_path, "x.csv", "p_NA,p_b,label\n0.5,0.5,NA\n0.2,0.8,b\n1,0,\n")
    model = Columns("label", probs="p_*", drop_missing=True).read(path)
    assert model.targets.tolist() == [0, 1]


def test_options_whose_number_differs(tmp_path, capsys):
    lines = ['{"p": [0.5, 0.5], "y": 1}', '{"p": [0.2, 0.1, 0.7], "y": 2}', '{"p": [1], "y": 0}']
    model = Columns("y", probs="p").read(write(tmp_path, "x.jsonl", "\n".join(lines)))
    expected = [[0.5, 0.5, 0], [0.2, 0.1, 0.7], [1, 0, 0]]
    np.testing.assert_allclose(model.predictions.probs, expected, rtol=1e-6)
    assert model.targets.tolist() == [1, 2, 0]
    assert "x.jsonl, column p: rows have 1 to 3 options" in capsys.readouterr().err
    with pytest.raises(ERRORS, match="p, row 2: expected 2 numbers as .* got 3 numbers"):
        Columns("y", draws="p").read(tmp_path / "x.jsonl")


def test_logs_of_the_harness(tmp_path, monkeypatch):
    logs = [
        {"doc_id": k, "doc": {"q": "?"}, "target": str(k), "filtered_resps": resps, "acc": 0.0}
        for k, resps in enumerate(
            ([["-1.0", "False"], ["-2.0", "True"]], [["-3", "False"], ["-3", "True"]])
        )
    ]
    path = write(tmp_path, "samples.jsonl", "\n".join(map(json.dumps, logs)))
    model = Columns().read(path)
    first = 1 / (1 + np.exp(-1))
    np.testing.assert_allclose(model.predictions.probs, [[first, 1 - first], [0.5, 0.5]], rtol=1e-6)
    assert model.targets.tolist() == [0, 1]
    # Standard input can be read once only.
    evaluated = []
    monkeypatch.setattr(EVALUATE, lambda *x, **_: evaluated.append(x))
    CliRunner().invoke(app, ["evaluate", "-"], input=path.read_bytes())
    ((data,),) = evaluated
    np.testing.assert_array_equal(data.predictions.probs, model.predictions.probs)


def harness_log(values, choices, without_question=(), **metrics):
    pairs = [["Is it?", f" {text}"] for text in choices]
    pairs += [["", text] for text in choices[: len(without_question)]]
    return {
        "doc_id": 0,
        "target": "0",
        "arguments": {f"gen_args_{k}": {"arg_0": a, "arg_1": b} for k, (a, b) in enumerate(pairs)},
        "filtered_resps": [[str(x), "False"] for x in (*values, *without_question)],
    } | metrics


def test_what_a_log_of_the_harness_holds(tmp_path):
    values, choices = np.array([-1.0, -2.0, -6.0]), ["a", "bb", "four"]
    without = (-9.0, -1.0, -1.0)
    logs = [
        harness_log(values, choices, acc=1.0, acc_norm=0.0),
        # Its log-likelihoods without the question come last.
        harness_log(values, choices, without, acc_norm=0.0, acc_mutual_info=1.0),
        harness_log([-3.0, -4.0], choices[:2], acc_norm=0.0),
    ]
    path = write(tmp_path, "samples.jsonl", lines_of(*logs))
    for columns, scores in (
        (Columns(), values),
        (Columns(probs="option_probabilities_norm"), values / [1, 2, 4]),
    ):
        found = np.asarray(columns.read(path).predictions.probs)
        expected = np.exp(scores) / np.exp(scores).sum()
        np.testing.assert_allclose(found[:2], np.tile(expected, (2, 1)), rtol=1e-6)
        assert found[2, 2] == 0
    impossible = harness_log([-np.inf, -np.inf], choices[:2], acc=0.0)
    path = write(tmp_path, "samples.jsonl", lines_of(*logs, impossible))
    with pytest.raises(ERRORS, match="row 4: expected a finite log-likelihood in filtered_resps"):
        Columns().read(path)
    assert Columns(drop_missing=True).read(path).row_names.tolist() == [1, 2, 3]


def lines_of(*records):
    return "\n".join(map(json.dumps, records))


def test_letters_of_options(tmp_path, capsys):
    records = [{"p": [0.5, 0.5], "y": "B"}, {"p": [0.2, 0.1, 0.7], "y": "A"}]
    model = Columns("y", probs="p").read(write(tmp_path, "x.jsonl", lines_of(*records)))
    assert model.targets.tolist() == [1, 0] and model.classes == ["A", "B", "C"]
    assert "column y: A is the first of p" in capsys.readouterr().err
    for target, message in [
        ("C", "row 1: expected options of their rows, got C, with 2 options"),
        ("D", "got 'D': name .* of lists write the indices of options, from 0, or A, B"),
        ("", "expected a label, got an empty text; --drop-missing leaves out its row"),
        (-1, "got -1; if -1 stands for no label, leave out its rows"),
    ]:
        bad = [records[0] | {"y": target}, records[1] | {"y": 0 if target in (-1, "") else "A"}]
        with pytest.raises(ERRORS, match=message):
            Columns("y", probs="p").read(write(tmp_path, "bad.jsonl", lines_of(*bad)))


def test_what_is_missing_in_a_log(tmp_path, capsys):
    records = [{"p": [0.5, 0.5], "y": k % 2, "q": {"a": 0.5, "b": 0.5}} for k in range(4)]
    records += [
        {"p": [None, 0.7], "y": 0},
        {"p": [0.5, 0.5], "y": None},
        {"p": [0.5, 0.5], "y": ""},
    ]
    path = write(tmp_path, "x.jsonl", lines_of(*records))
    model = Columns("y", probs="p", drop_missing=True).read(path)
    assert model.row_names.tolist() == [1, 2, 3, 4]
    with pytest.raises(ERRORS, match=r"no column q, .* is it 'q\.\*', for the keys of an object"):
        Columns("y", probs="q").read(path)


def test_names_with_dots_in_a_condition(tmp_path):
    records = [{"doc": {"subject": s, "x.y": 1}, "p": 0.5, "y": 1} for s in ("law", "art", "doc.x")]
    path = write(tmp_path, "x.jsonl", lines_of(*records))
    for condition, rows in [
        ("\"doc.subject\" = 'law'", [1]),
        ("\"doc.subject\" <> 'doc.subject'", [1, 2, 3]),
    ]:
        model = Columns("y", prob="p", where=condition).read(path, at_least=1)
        assert model.row_names.tolist() == rows
    with pytest.raises(ERRORS, match="numbers is compared with a text; write numbers without"):
        Columns("y", prob="p", where="y <> '-1'").read(path)


def test_options_that_a_row_of_text_lacks(tmp_path, capsys):
    text = "p_A,p_B,p_C,y\n0.5,0.5,,B\n0.2,0.1,0.7,A\n1,,,A\n"
    path = write(tmp_path, "x.csv", text)
    columns = Columns("y", probs="p_*")
    expected = np.array([[0.5, 0.5, 0], [0.2, 0.1, 0.7], [1, 0, 0]])
    np.testing.assert_allclose(columns.read(path).predictions.probs, expected, rtol=1e-6)
    assert "x.csv, column p_*: rows have 1 to 3 options; what a row" in capsys.readouterr().err
    dropping = Columns("y", probs="p_*", drop_missing=True)
    model = dropping.read(write(tmp_path, "y.csv", text + ",,,B\n0.3,0.7,,\n"))
    np.testing.assert_allclose(model.predictions.probs, expected, rtol=1e-6)
    # What is missing where the rest is no probability is missing, in these rows alone.
    bad = write(tmp_path, "y.csv", f"{text}0.3,0.3,,A\nNA,0.3,0.7,B\n")
    with pytest.raises(ERRORS, match="p_C, row 5: .*got nothing"):
        columns.read(bad)
    model = dropping.read(bad)
    assert model.row_names.tolist() == [2, 3, 4, 6] and model.predictions.probs[3, 0] == 0
    with pytest.raises(ERRORS, match="y, row 5: expected options of their rows, got A, with 2"):
        columns.read(write(tmp_path, "y.csv", f"{text}NA,0.3,0.7,A\n"))


def test_percentages(tmp_path, capsys):
    path = write(tmp_path, "x.csv", "p,y\n50%,1\n 7.5 %,0\n")
    model = Columns("y", prob="p").read(path)
    np.testing.assert_allclose(model.predictions.probs, [0.5, 0.075], rtol=1e-6)
    assert "column p: percentages are read as shares" in capsys.readouterr().err
    path = write(tmp_path, "x.csv", "p,y\n0,0\n85,1\n100,0\n")
    with pytest.raises(
        ERRORS, match="p, row 3: expected a probability, got 85; of percentages, 0 to 100, divide"
    ):
        Columns("y", prob="p").read(path)
    with pytest.raises(ERRORS, match="row 3: expected a probability, got 1.5"):
        Columns("y", prob="p").read(write(tmp_path, "x.csv", "p,y\n0,0\n1.5,1\n0.3,0\n"))


@pytest.mark.parametrize("form", ["csv", "gz", "jsonl", "json", "parquet", "npz"])
def test_standard_input(form, monkeypatch):
    frame, content = pl.DataFrame(RECORDS), io.BytesIO()
    if form == "parquet":
        frame.write_parquet(content)
    elif form == "npz":
        np.savez(content, **{name: frame[name].to_numpy() for name in ("p_a", "p_b")}, label=[0, 1])
    else:
        text = {"jsonl": LINES, "json": json.dumps(RECORDS)}.get(form, COMMAS).encode()
        content = io.BytesIO(gzip.compress(text) if form == "gz" else text)
    evaluated = []
    monkeypatch.setattr(EVALUATE, lambda *x, **_: evaluated.append(x))
    options = ["evaluate", "-", "--probs", "p_*", "--target", "label"]
    CliRunner().invoke(app, options, input=content.getvalue())
    (((predictions, targets),),) = ([x.samples for x in call] for call in evaluated)
    np.testing.assert_allclose(predictions.probs, [[0.5, 0.5], [0.2, 0.8]], rtol=1e-6)
    assert targets.tolist() == [0, 1]
