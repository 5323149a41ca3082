"""Files that `calibjax recalibrate --apply` writes: new predictions, and every other value kept."""

import csv
import io
import json

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

import calibjax as cj
from calibjax.cli import app
from calibjax.cli._recalibrated_files import with_columns_of
from calibjax.frames.files import read_files

P = np.array([0.2, 0.8, 0.3, 0.7], np.float32)
OTHERS = {
    "id": ["007", "9007199254740993", "1e5", "1.10"],
    "note": ["", 'two\nlines, "quoted"; a\ttab | a bar', "a 5 cm pipe", " é "],
    "y": ["0", "1", "0", "1"],
}


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """A kept map and what it makes of the predictions."""
    path = tmp_path_factory.mktemp("map") / "map.json"
    recalibrator = cj.fit_recalibrator(cj.Bernoulli(P), np.array([0, 1, 0, 0]), "temperature")
    recalibrator.save(path)
    return path, np.asarray(recalibrator(cj.Bernoulli(P)).probs)


def applied(fitted, path, *options):
    """The path of the recalibrated file."""
    out = path.with_name(f"out{path.suffix}")
    options = "--load", fitted[0], "--prob", "p", *options, "--apply", path, "--out", out
    done = CliRunner().invoke(app, ["recalibrate", *map(str, options)])
    assert done.exit_code == 0, done.stderr
    return out


def text_of(header, rows, separator, end, **options):
    found = io.StringIO(newline="")
    csv.writer(found, delimiter=separator, lineterminator=end, **options).writerows([header, *rows])
    return found.getvalue()


def rows_of(content, separator):
    """The cells of a text by the csv module, without blank lines."""
    text = io.StringIO(content.decode("utf-8-sig"), newline="")
    return [row for row in csv.reader(text, delimiter=separator) if row]


@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize(
    "name, separator, decimal, end",
    [("x.csv", ",", ".", "\n"), ("x.tsv", "\t", ".", "\r\n"), ("x.csv", ";", ",", "\r")],
)
def test_texts(fitted, tmp_path, name, separator, decimal, end, last):
    """With a last line end, and without."""
    path = tmp_path / name
    shown = [str(x).replace(".", decimal) for x in P]
    others = [[x.replace(".", decimal) for x in OTHERS["id"]], OTHERS["note"], OTHERS["y"]]
    rows = list(zip(shown, *others, strict=True))
    text = text_of(["p", *OTHERS], rows, separator, end)
    path.write_bytes((text if last else text.removesuffix(end)).encode())
    header, *found = rows_of(applied(fitted, path).read_bytes(), separator)
    assert header == ["p", *OTHERS] and [tuple(row[1:]) for row in found] == [x[1:] for x in rows]
    probs = [float(row[0].replace(decimal, ".")) for row in found]
    np.testing.assert_allclose(probs, fitted[1], rtol=1e-6)


ROWS = [["007", "0.2", "a"], ["1.10", "0.8", "b"], ["1e5", "0.3", "c"], ["", "0.7", "d"]]
# A text, and its rows with p between two others if these are not the usual ones.
ODD = {
    "byte order mark": ("\ufeff" + text_of(["id", "p", "x"], ROWS, ",", "\r\n"), None),
    "blank lines": ("\r\n" + text_of(["id", "p", "x"], ROWS, ",", "\r\n\r\n"), None),
    "inches": (
        'id,p,x\n5" pipe,0.2,a\nb,0.8,"two\nlines"\n6",0.3,c\n,0.7,"d, e"',
        [['5" pipe', "a"], ["b", "two\nlines"], ['6"', "c"], ["", "d, e"]],
    ),
    "short rows": ("id,p,x\n1,0.2\n2,0.8\n3,0.3\n4,0.7", [[str(k), ""] for k in range(1, 5)]),
    "names with blanks": (text_of(["id ", " p", "x"], ROWS, ",", "\n"), None),
    "columns without a name": (text_of(["", "p", ""], ROWS, ",", "\n"), None),
    "percentages with commas": (
        "id;p;x\n1;20,0%;1,50\n2;80%;2\n3;30%;3\n4;70%;4",
        [["1", "1,50"], ["2", "2"], ["3", "3"], ["4", "4"]],
    ),
}


@pytest.mark.parametrize("case", ODD)
def test_odd_texts(fitted, tmp_path, case):
    text, expected = ODD[case]
    separator = ";" if ";" in text else ","
    path = tmp_path / "x.csv"
    path.write_bytes(text.encode())
    content = applied(fitted, path).read_bytes()
    header, *found = rows_of(content, separator)
    assert header == rows_of(text.encode(), separator)[0]
    # What has no name is in no pattern.
    assert list(read_files([path], on_command_line=True).columns) == [
        x.strip() for x in header if x
    ]
    assert content.startswith(b"\xef\xbb\xbf") == text.startswith("\ufeff")
    assert [[row[0], row[2]] for row in found] == (expected or [[x[0], x[2]] for x in ROWS])
    probs = [float(row[1].replace(",", ".")) for row in found]
    np.testing.assert_allclose(probs, fitted[1], rtol=1e-6)


@pytest.mark.parametrize("end", ["\r\n", "\n\n"])
def test_objects(fitted, tmp_path, end):
    others = [
        {"id": 2**70, "deep": {"list": [1, [2, {"a": None}]], "text": "é\n"}, "y": 0},
        {"id": "007", "deep": {}, "small": 1e-320, "y": 1},
        {"id": 1.10, "deep": [{"b": 1}, "c", []], "y": 0},
        {"id": True, "NaN": float("nan"), "y": None},
    ]
    path = tmp_path / "x.jsonl"
    lines = [json.dumps({"p": float(p)} | x) for p, x in zip(P, others, strict=True)]
    path.write_bytes(end.join(lines).encode())
    found = [json.loads(x) for x in applied(fitted, path).read_bytes().splitlines()]
    np.testing.assert_allclose([x["p"] for x in found], fitted[1], rtol=1e-6)
    assert list(map(repr, found)) == [
        repr({"p": new["p"]} | x) for new, x in zip(found, others, strict=True)
    ]


def test_numbers_that_are_too_large(fitted, tmp_path):
    lines = [f'{{"p": {p}, "x": ["Infinity", Infinity, 1e300]}}' for p in P]
    path = tmp_path / "x.jsonl"
    path.write_text("\n".join(lines))
    assert applied(fitted, path).read_text().count("Infinity") == 8
    path.write_text("\n".join([*lines[:2], lines[2].replace("1e300", "-1e400"), lines[3]]))
    options = "--load", fitted[0], "--prob", "p", "--apply", path, "--out", tmp_path / "x2.jsonl"
    done = CliRunner().invoke(app, ["recalibrate", *map(str, options)])
    assert done.exit_code == 2 and "x.jsonl, line 3: a number is too large" in done.stderr


TYPES = pl.DataFrame(
    {
        "id": ["007", None, "", "x"],
        "whole": [2**63 - 1, None, -1, 0],
        "day": pl.Series(["2026-01-01", None, "1900-03-01", "2026-12-31"]).str.to_date(),
        "time": pl.Series([1, None, 2, 3]).cast(pl.Datetime("ns", "Europe/Berlin")),
        "exact": pl.Series(["1.10", None, "2.00", "0.01"]).cast(pl.Decimal(10, 2)),
        "kind": pl.Series(["a", "b", None, "a"], dtype=pl.Categorical),
        "deep": [{"a": [1, 2]}, {"a": []}, {"a": None}, None],
        "nan": [float("nan"), None, 1.0, 0.1],
    }
)


@pytest.mark.parametrize("name", ["parquet", "arrow"])
def test_types(fitted, tmp_path, name):
    path, kind = tmp_path / f"x.{name}", {"arrow": "ipc"}.get(name, name)
    frame = TYPES.with_columns(p=pl.Series(P, dtype=pl.Float32 if name == "arrow" else None))
    getattr(frame, f"write_{kind}")(path)
    found = getattr(pl, f"read_{kind}")(applied(fitted, path))
    assert found.schema == frame.schema and found.drop("p").equals(TYPES)
    np.testing.assert_allclose(found["p"], fitted[1], rtol=1e-6)


# Of options that rows lack; what the others are is not asked here.
NEW = np.array([[0.75, 0.25, np.nan], [np.nan, 0.5, 0.5]])
LOG = {"doc_id": 0, "doc": {"q": "é?"}, "target": "1", "filtered_resps": [["-1", "a"]] * 2}
OPTIONS = {
    "lists": ([{"p": [0.5, 0.5]}, {"p": [None, 1, 0]}], "p", [[0.75, 0.25], [None, 0.5, 0.5]]),
    "a log": (
        [LOG, LOG | {"filtered_resps": [["0", "b"]] * 3}],
        "option_probabilities",
        [[0.75, 0.25], [None, 0.5, 0.5]],
    ),
    "keys": (
        [{"q": {"a": 0.5, "b": 0.5}, "q.d": 1}, {"q": {"b": 0.9, "c": 0.1}}],
        "q",
        [{"a": 0.75, "b": 0.25}, {"b": 0.5, "c": 0.5}],
    ),
}


@pytest.mark.parametrize("case", OPTIONS)
def test_options_that_objects_lack(tmp_path, case):
    records, name, expected = OPTIONS[case]
    path = tmp_path / "x.jsonl"
    path.write_text("\n\n".join(map(json.dumps, records)))
    new = {f"q.{x}": NEW[:, k] for k, x in enumerate("abc")} if case == "keys" else {name: NEW}
    table = read_files([path], on_command_line=True)
    found = list(map(json.loads, with_columns_of(table, table, new).splitlines()))
    assert found == [x | {name: values} for x, values in zip(records, expected, strict=True)]


@pytest.mark.parametrize("name", ["x.csv", "x.parquet", "x.arrow", "x.jsonl"])
def test_options_that_rows_lack(tmp_path, name):
    probs = np.array([[0.5, 0.5, 0], [0, 0.3, 0.7], [0.2, 0.2, 0.6], [0.1, 0.8, 0.1]], np.float32)
    recalibrator = cj.fit_recalibrator(cj.Categorical(probs[2:]), np.array([0, 1]), "temperature")
    recalibrator.save(tmp_path / "map.json")
    cells = [[float(x) or None for x in row] for row in probs]
    frame = pl.DataFrame(cells, ["p_a", "p_b", "p_c"], orient="row")
    frame, option = {
        "x.arrow": (pl.DataFrame({"p": cells}), "p"),
        "x.jsonl": (pl.DataFrame({"p": [cells[0][:2], *cells[1:]]}), "p"),
    }.get(name, (frame, "p_*"))
    path, out = tmp_path / name, tmp_path / f"out-{name}"
    write = {"csv": "csv", "parquet": "parquet", "arrow": "ipc", "jsonl": "ndjson"}[name[2:]]
    getattr(frame, f"write_{write}")(path)
    options = "--load", tmp_path / "map.json", "--probs", option, "--apply", path, "--out", out
    done = CliRunner().invoke(app, ["recalibrate", *map(str, options)])
    assert done.exit_code == 0, done.stderr
    table = read_files([out], on_command_line=True)
    found = table.series["p"].to_list() if option == "p" else pl.DataFrame(table.series).rows()
    assert found[1][0] is None and list(found[0][2:]) in ([], [None])
    expected = recalibrator(cj.Categorical(probs, ragged=True)).probs
    filled = np.array([[*(float(x or 0) for x in row), 0.0][:3] for row in found])
    np.testing.assert_allclose(filled, expected, rtol=1e-6)
    assert np.all(np.abs(filled.sum(axis=1) - 1) < 1e-6)


@pytest.mark.parametrize(
    "kind",
    [pl.List(pl.Int64), pl.List(pl.UInt8), pl.List(pl.Float32), pl.Array(pl.Int64, 2)],
    ids=str,
)
def test_lists_of_integers(tmp_path, kind):
    """New probabilities of one-hot lists were cut off to integers."""
    path = tmp_path / "x.parquet"
    frame = pl.DataFrame({"p": pl.Series([[0, 1], [1, 0], [0, 1]], dtype=kind), "y": [1, 0, 1]})
    frame.write_parquet(path)
    table = read_files([path], on_command_line=True)
    new = np.array([[0.25, 0.75], [np.nan, np.nan], [0.5, 0.5]])
    path.write_bytes(with_columns_of(table, table, {"p": new}))
    found = pl.read_parquet(path)
    assert found["p"].to_list() == [[0.25, 0.75], [1, 0], [0.5, 0.5]]
    assert found.drop("p").equals(frame.drop("p"))


MISSING = {
    "x.csv": "note,p,y\na,0.2,0\nb,,1\nc,NA,\nd,0.8,1\ne,0.3,0\nf,0.7,1",
    "commas.csv": "note;p;y\na;0,2;0\nb;;1\nc;NA;\nd;0,8;1\ne;0,3;0\nf;0,7;1",
    "x.jsonl": "\n".join(
        f'{{"note": "{x}", "p": {p}}}'
        for x, p in zip("abcdef", ["0.2", "null", "NaN", "0.8", "0.3", "0.7"], strict=True)
    ),
    "x.parquet": pl.DataFrame({"note": list("abcdef"), "p": [0.2, None, np.nan, 0.8, 0.3, 0.7]}),
}


@pytest.mark.parametrize("name", MISSING)
def test_rows_without_a_prediction(fitted, tmp_path, name):
    """They stay as they are, which was an error whose advice was the option that was passed."""
    path, content = tmp_path / name, MISSING[name]
    if name == "x.parquet":
        content.write_parquet(path)
    else:
        path.write_text(content)
    arguments = "--load", fitted[0], "--prob", "p", "--apply", path, "--out", tmp_path / f"o-{name}"
    done = CliRunner().invoke(app, ["recalibrate", *map(str, arguments)])
    assert done.exit_code == 2 and "p, row" in done.stderr
    found = read_files([applied(fitted, path, "--drop-missing")], on_command_line=True)
    cells = found.series["p"].cast(pl.String).to_list()
    assert found.columns["note"].tolist() == list("abcdef")
    kept = {"x.csv": [None, "NA"], "commas.csv": [None, "NA"]}
    assert cells[1:3] == kept.get(name, [None, "NaN"])
    probs = np.array(cells[:1] + cells[3:], float)
    np.testing.assert_allclose(probs, fitted[1], rtol=1e-6)
