"""Odd files: what the library and the command line read of them, or what they say."""

import datetime
import decimal
import gzip
import io
import itertools
import json
import re
import shlex
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import jax
import numpy as np
import pandas as pd
import polars as pl
import pytest
from typer.testing import CliRunner

import calibjax as cj
from calibjax.cli import app
from calibjax.cli._columns import Columns

# What the library calls by another word, and what only the command line has.
WORDS = {"weight": "weights", "cluster": "clusters", "time": "times", "segments": "groups"}
ONLY_COMMANDS = "separator", "decimal", "where"


class Read(NamedTuple):
    """The first parameter of the predictions, the targets, and what else is known."""

    values: list
    targets: list
    classes: list | None = None
    said: str = ""
    rows: list | None = None
    groups: list | None = None
    times: list | None = None


def written(content, name):
    """The bytes of a text, of a frame, or of arrays by their names."""
    if isinstance(content, (bytes, str)):
        content = content.encode() if isinstance(content, str) else content
        return gzip.compress(content) if name.endswith(".gz") else content
    file = io.BytesIO()
    if isinstance(content, dict):
        np.savez(file, **content)
    else:
        getattr(content, "write_parquet" if name.endswith("parquet") else "write_ipc")(file)
    return file.getvalue()


def arguments_of(options):
    """The options of a command as arguments of `read_data`; None if it does not have them."""
    found, words = {}, shlex.split(options)
    for word, value in itertools.zip_longest(words, words[1:], fillvalue="--"):
        if word.startswith("--"):
            name = word[2:].replace("-", "_")
            found[WORDS.get(name, name)] = True if value.startswith("--") else value
    if "levels" in found:
        found["levels"] = list(map(float, found["levels"].split(",")))
    if "horizon" in found:
        found["horizon"] = float(found["horizon"])
    return None if {*ONLY_COMMANDS} & found.keys() or "target" not in found else found


def plain(text):
    """A message in which options have the names of arguments."""
    text = re.sub("--([a-z-]+)", lambda found: found[1].replace("-", "_"), text)
    return re.sub(r"(\w)=(?=True|')", r"\1 ", text).replace(" True", "")


def by_library(path, options):
    """The data set, and all that was said or is wrong."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            data, error = cj.read_data(path, **arguments_of(options)), []
        except ValueError as raised:
            data, error = None, [str(raised)]
    return data, [*(str(x.message) for x in caught), *error]


def by_command(path, options, monkeypatch):
    found = []

    def evaluate(data, **_):
        found.append(data)
        return SimpleNamespace(rejected=False, why_not_tested=None, blocks=list)

    monkeypatch.setattr("calibjax.evaluation.evaluate_data", evaluate)
    standard_input = path.read_bytes() if path.stem == "-" else None
    words = "-" if path.stem == "-" else str(path), *shlex.split(options)
    done = CliRunner().invoke(app, ["evaluate", *words], input=standard_input)
    assert (done.exit_code == 2) == (not found), done.output
    return (found or [None])[0], done.stderr.splitlines()


def check(path, options, expected, monkeypatch):
    """Both read the same, or end in one line of the same meaning."""
    is_file = isinstance(path, Path)
    results = [by_command(path, options, monkeypatch)] if is_file else []
    if arguments_of(options) is not None and not (is_file and path.stem == "-"):
        results.append(by_library(path, options))
    for data, said in results:
        said = [plain(x) for x in said]
        if isinstance(expected, str):
            assert data is None and re.search(expected, said[-1]), said
            continue
        assert data is not None, said
        values = jax.tree.leaves(data.predictions)[0]
        np.testing.assert_allclose(values, expected.values, rtol=1e-6)
        assert data.targets.tolist() == expected.targets and data.classes == expected.classes
        assert re.search(expected.said, "\n".join(said)) if expected.said else not said, said
        assert expected.rows is None or data.row_names.tolist() == expected.rows
        assert expected.groups is None or list(data.groups["g"]) == expected.groups
        assert expected.times is None or data.times.tolist() == expected.times


PROB, PROBS = "--prob p --target y", "--probs p_* --target label"
QUANTILES, NORMAL = "--quantiles q* --target y", "--mean mu --sd sd --target y"
TABLE = "p_a,p_b,label\n0.5,0.5,a\n0.2,0.8,b\n"
RECORDS = [{"p_a": 0.5, "p_b": 0.5, "label": "a"}, {"label": "b", "p_b": 0.8, "p_a": 0.2}]
FRAME, LINES = pl.DataFrame(RECORDS), "\n\n".join(map(json.dumps, RECORDS))
ARRAYS = {"p_a": [0.5, 0.2], "p_b": [0.5, 0.8], "label": [0, 1]}
HALVES = [[0.5, 0.5]] * 2
SAME = Read([[0.5, 0.5], [0.2, 0.8]], [0, 1], ["a", "b"])
# Files of one data set: their names, bytes, and what is said of them.
FORMS = {
    "commas": ("x.csv", TABLE, ""),
    "no last line end": ("x.csv", TABLE[:-1], ""),
    "an empty last line": ("x.csv", TABLE + "\n", ""),
    "empty lines": ("x.csv", TABLE.replace("\n", "\n\n"), ""),
    "an empty first line": ("x.csv", "\n" + TABLE, ""),
    "line ends of Windows": ("x.csv", TABLE.replace("\n", "\r\n"), ""),
    "line ends of old Macs": ("x.csv", TABLE.replace("\n", "\r"), ""),
    "a byte order mark": ("x.csv", "\ufeff" + TABLE, ""),
    "blanks behind commas": ("x.csv", TABLE.replace(",", ", "), ""),
    "blanks around names": ("x.csv", TABLE.replace("label", " label ").replace("p_b", " p_b"), ""),
    "quotes": ("x.csv", re.sub(r"([^,\n]+)", r'"\1"', TABLE), ""),
    "a quoted separator": ("x.csv", re.sub("^(.+)$", r'"x, y",\1', TABLE, flags=re.M), ""),
    "quoted lines": ("x.csv", re.sub("^(.+)$", r'"x\ny ""z""",\1', TABLE, flags=re.M), ""),
    "inches": ("x.csv", re.sub("^(.+)$", r'5" pipe,\1', TABLE, flags=re.M), ""),
    "a column without a name": ("x.csv", re.sub("^(.+)$", r",\1", TABLE, flags=re.M), ""),
    "tabs": ("x.tsv", TABLE.replace(",", "\t")[:-1], ""),
    "tabs in a csv file": ("x.csv", TABLE.replace(",", "\t"), "x.csv: read with tabs between"),
    "bars": ("x.csv", TABLE.replace(",", "|"), "bars between columns"),
    "semicolons": ("x.csv", TABLE.replace(",", ";"), "read with semicolons between columns.$"),
    "decimal commas": (
        "x.csv",
        TABLE.replace(",", ";").replace("0.", "0,"),
        "semicolons between columns and commas before decimals",
    ),
    "gzip": ("x.csv.gz", TABLE, ""),
    "gzip without the ending": ("x.csv", gzip.compress(TABLE.encode()), ""),
    "capital letters": ("x.CSV", TABLE, ""),
    "objects": ("x.jsonl", LINES, ""),
    "objects and a last line end": ("x.jsonl", LINES + "\n", ""),
    "objects in gzip": ("x.jsonl.gz", LINES, ""),
    "objects in a json file": ("x.json", LINES, ""),
    "a list of objects": ("x.json", json.dumps(RECORDS), ""),
    "a list behind a byte order mark": ("x.json", "\ufeff" + json.dumps(RECORDS), ""),
    "Parquet": ("x.parquet", FRAME, ""),
    "Parquet with categories": ("x.parquet", FRAME.cast({"label": pl.Categorical}), ""),
    "Parquet with decimals": ("x.parquet", FRAME.cast({"p_a": pl.Decimal(5, 2)}), ""),
    "Parquet with texts of numbers": (
        "x.parquet",
        FRAME.cast({"p_a": pl.String, "p_b": pl.String}),
        "",
    ),
    "Arrow": ("x.arrow", FRAME, ""),
    "arrays": ("x.npz", ARRAYS, ""),
    "a trailing separator": ("x.csv", re.sub("^(.+)$", r"\1,", TABLE, flags=re.M), ""),
    "mixed line ends": ("x.csv", TABLE.replace("\n", "\r\n", 1).replace("a\n", "a\r"), ""),
    "Parquet with 32 bits": ("x.parquet", FRAME.cast({pl.Float64: pl.Float32}), ""),
    "standard input, CSV": ("-.csv", TABLE, ""),
    "standard input, CSV in gzip": ("-.csv.gz", TABLE, ""),
    "standard input, objects": ("-.jsonl", LINES, ""),
    "standard input, a list": ("-.json", json.dumps(RECORDS), ""),
    "standard input, Parquet": ("-.parquet", FRAME, ""),
    "standard input, Arrow": ("-.arrow", FRAME, ""),
    "standard input, arrays": ("-.npz", ARRAYS, ""),
}


# Frames of the same rows.
FRAMES = {
    "pandas": pd.DataFrame(RECORDS),
    "pandas with categories": pd.DataFrame(RECORDS).astype({"label": "category"}),
    "pandas with an index of labels": pd.DataFrame(RECORDS).set_index("label"),
    "pandas with texts of numbers": pd.DataFrame(RECORDS).astype(str),
    "Polars": FRAME,
    "lists": {name: FRAME[name].to_list() for name in FRAME.columns},
    "arrays": {name: FRAME[name].to_numpy() for name in FRAME.columns},
}


@pytest.mark.parametrize("case", FRAMES)
def test_frames_of_one_data_set(case, monkeypatch):
    check(FRAMES[case], PROBS, SAME, monkeypatch)


@pytest.mark.parametrize("case", FORMS)
def test_files_of_one_data_set(case, tmp_path, monkeypatch):
    name, content, said = FORMS[case]
    (tmp_path / name).write_bytes(written(content, name))
    check(tmp_path / name, PROBS, SAME._replace(said=said), monkeypatch)


def lines(*records):
    return "\n".join(map(json.dumps, records))


def of_groups(*values, **types):
    """A frame whose column g holds anything, and the same rows as text."""
    return pl.DataFrame({"p": [0.5, 0.25], "y": [1, 0], "g": pl.Series(values, **types)})


BASE, ROW = Read([0.5, 0.25], [1, 0]), "p,y\n0.5,1\n"
LISTS = Read([[0.5, 0.5, 0], [0.2, 0.1, 0.7], [1, 0, 0]], [1, 2, 0], said="rows have 1 to 3 opt")
LACKING = "p_A,p_B,p_C,label\n0.5,0.5,,B\n0.2,0.1,0.7,C\n1,,,A\n"
GRID = {"p": np.full(3, 0.5), "y": np.array([0, 1, 0])}
ONE_ARRAY = io.BytesIO()
np.save(ONE_ARRAY, GRID["p"])
DAY, UTC = datetime.datetime(2026, 3, 31), datetime.UTC
GROUPS, TIMES = f"{PROB} --segments g", f"{PROB} --time g --horizon 1"
WHERE = "p,y,lead,region\n0.1,0,3,north\n0.3,1,2,south\n"
NUMBERS = "p,mu,sd,q0.1,q0.9,qx,y\n0.5,0,1,0,1,0,0\n1.5,0,0,2,1,0,1\n"


def log(scores, texts=("a", "bb", "four"), without_question=(), **metrics):
    """A question of a log of lm-evaluation-harness, whose right option is the first one."""
    pairs = [("Is it?", f" {x}") for x in texts[: len(scores)]]
    pairs += [("", x) for x in texts[: len(without_question)]]
    named = {f"gen_args_{k}": {"arg_0": x, "arg_1": y} for k, (x, y) in enumerate(pairs)}
    found = [[str(x), "False"] for x in (*scores, *without_question)]
    return {"doc_id": 0, "target": "0", "arguments": named, "filtered_resps": found} | metrics


def shares(scores):
    return [*np.exp(scores) / np.exp(scores).sum(), 0.0][:3]


SCORES = np.array([-1.0, -2.0, -6.0])
LOGS = [
    log(SCORES, acc=1.0, acc_norm=0.0),
    # Log-likelihoods without the question come last.
    log(SCORES, without_question=(-9.0, -1.0, -1.0), acc_norm=0.0, acc_mutual_info=1.0),
    log([-3.0, -4.0], acc_norm=0.0),
]
OF_LOGS = Read([shares(SCORES)] * 2 + [shares([-3.0, -4.0])], [0] * 3, said="2 to 3 options")
IMPOSSIBLE = lines(*LOGS, log([-np.inf, -np.inf], acc=0.0))
# Endings and options, and of each the files: their bytes, and what is read of them, or the error.
CASES = {
    ("csv", PROBS): {
        "classes in any order": (
            "p_dog,p_cat,p_fox,label\n0.5,0.3,0.2,cat\n0.1,0.1,0.8,fox\n",
            Read([[0.5, 0.3, 0.2], [0.1, 0.1, 0.8]], [1, 2], ["dog", "cat", "fox"]),
        ),
        # Whole numbers count the columns from 0, unless all columns have numbers as names.
        "numbers of classes": (
            "p_a,p_b,label\n0.5,0.5,1\n0.5,0.5,0\n",
            Read(HALVES, [1, 0], ["a", "b"]),
        ),
        "names that are numbers": (
            "p_1,p_0,label\n0.5,0.5,1\n0.5,0.5,0\n",
            Read(HALVES, [0, 1], ["1", "0"]),
        ),
        "names of which one is a number": (
            "p_1,p_other,label\n0.5,0.5,other\n0.5,0.5,1\n",
            Read(HALVES, [1, 0], ["1", "other"]),
        ),
        "options that a row lacks": (
            LACKING,
            LISTS._replace(classes=["A", "B", "C"], said=r"column p_\*: rows have 1 to 3 options"),
        ),
        # What is missing where the rest is no probability is missing.
        "a missing option": (LACKING + "0.3,0.3,,A\n", "p_C, row 5: .*got nothing"),
        "an option of no row": (
            LACKING + "NA,0.3,0.7,A\n",
            "row 5: .*of their rows, got A, with 2",
        ),
        "too large": (TABLE + "0.5,1e50,a", "column p_b, row 4: .*finite number, got 1e50"),
        "a text": (TABLE + "0.5,half,a", "column p_b, row 4: .*got half"),
        "nothing": (TABLE + ",0.5,a", r"p_a, row 4: .*\(drop_missing leaves out .*, got nothing"),
        "negative": (TABLE + "-0.5,1.5,a", "column p_a, row 4: expected a probability, got -0.5"),
        "a sum": (TABLE + "0.5,0.4,a", r"column p_\*, row 4: .*sum of 1 \(normalize div.*got 0.9"),
        "no class": (TABLE + "1,0,c", r"column label, row 4: .*classes \['a', 'b'\], got 'c'"),
        "a large number": (
            "p_a,p_b,label\n1,0,2",
            r"row 2: .*among classes \['a', 'b'\], or 0 … 1, got '2'",
        ),
        "no label": (TABLE + "1,0,", "label, row 4: .*label .drop_missing leaves.*, got nothing"),
        # Lines of the file are counted, also where a row has several, or none.
        "line breaks": (
            'note,p_a,p_b,label\n"x\ny",0.5,0.5,a\n\nx,?,0.5,a',
            r"column p_a, row 5: .*got \?",
        ),
        "headers alone": ("p_a,p_b,label\n", "expected at least 2 rows, got 0"),
        "a row cut off": (TABLE[:-3], "column label, row 3: .*got nothing"),
    },
    ("csv", f"{PROBS} --normalize"): {
        "counts": (
            "p_a,p_b,label\n30,10,a\n1,1,b\n",
            Read([[0.75, 0.25], [0.5, 0.5]], [0, 1], [*"ab"]),
        )
    },
    ("csv", f"{PROBS} --drop-missing"): {
        "a class called NA": (
            "p_NA,p_b,label\n0.5,0.5,NA\n0.2,0.8,b\n1,0,\n",
            SAME._replace(classes=["NA", "b"], said="2 of 3 rows are used", rows=[2, 3]),
        ),
        "options that a row lacks": (
            LACKING + ",,,B\n0.3,0.7,,\n0.3,0.3,,A\n",
            LISTS._replace(classes=["A", "B", "C"], said="3 of 6 rows", rows=[2, 3, 4]),
        ),
    },
    ("csv", "--probs p_* --target 'the \"label\"'"): {
        "quotes in names": (
            ',p_a,p_b,"the ""label"""\n0,0.5,0.5,b\n1,0.5,0.5,a\n',
            Read(HALVES, [1, 0], ["a", "b"]),
        )
    },
    ("csv", PROB): {
        "truth values": ("p,y\n0.5,true\n0.25,False\n", BASE),
        "yes and no": ("p,y\n0.5,yes\n0.25,no\n", BASE._replace(classes=["no", "yes"])),
        "percentages": (
            "p,y\n50%,1\n 25 %,0\n",
            BASE._replace(said="p: percentages are read as sh"),
        ),
        "numbers of all kinds": ("p,y\n5e-1,+1\n.25,0.0\n", BASE),
        "percent in one row": (
            "p,y\n50%,1\n0.2,0\n",
            "p, row 2: .*in all rows or in none, got 50%",
        ),
        "no percent sign": (
            "p,y\n0,0\n50,1\n20,0\n",
            "p, row 3: .*got 50; of perc.*(divide the col|pass percent)",
        ),
        "above one": ("p,y\n0,0\n1.5,1\n", "p, row 3: expected a probability, got 1.5"),
        "underscores": ("p,y\n0.5,1\n0_1,0\n", "p, row 3: expected a finite number, got 0_1"),
        "NaN": ("p,y\n0.5,1\nnan,0\n", r"p, row 3: .*\(drop_missing .*, got nan"),
        "infinity": ("p,y\n0.5,1\ninf,0\n", "p, row 3: expected a finite number, got inf"),
        "too many values": (ROW + "0.2,0,7\n", "line 3: expected 2 values, .* got 3"),
        "decimal commas between commas": ("p,y\n0,5,1\n", "line 2: expected 2 .* got 3"),
        "too few values": ("q,p,y\n1,0.5,1\n1,0.5\n", "column y, row 3: .* got nothing"),
        "two readings": ("p;y\n1,234;1\n", "1,234 has two readings; decimal ,"),
        "thousands": ("p;q;y\n1,234;0.5;1\n1,0;0.5;1\n", "p, row 2: .*after a point, got 1,2"),
        "no line": ("", "this .csv file cannot be read: it is empty"),
        "headers alone": ("p,y\n", "expected at least 2 rows, got 0"),
        "one row": (ROW, "expected at least 2 rows, got 1"),
        "no number among decimal commas": (
            "p;y\n0,5;1\n-;0\n0,25;1\n",
            "p, row 3: .*as in other rows, with commas before decimals, got -",
        ),
        "a table of the web": ("<!DOCTYPE html>\n<html></html>\n", "column y not found, only"),
        "quotes that do not end": ('p,y\n0.5,1\n"0.5,1\n0.2,0\n', "line 3: unexpected end"),
        "quotes in quotes": ('p,y\n0.5,"5" pipe"\n', "line 2: .*and quotation marks are around"),
        "the header again": (2 * ROW, "p, row 3: expected a finite number, got p"),
        "blanks between columns": ("p y\n0.5 1\n", "column y not found, only p y"),
        "same names": ("p,p,y\n0.5,0.5,1\n", "different names of columns, got p twice"),
        "an image": (b"\x89PNG\r\n\x1a\n\0", "expected a text in UTF-8"),
        "Latin": ("p,y\n0.5,é\n".encode("latin-1"), "expected a text in UTF-8"),
        "UTF-16": (ROW.encode("utf-16"), "expected a text in UTF-8; save"),
    },
    ("csv.gz", PROB): {
        "cut off": (
            gzip.compress(gzip.compress(ROW.encode())[:-9]),
            "this .csv file cannot be read|UTF",
        ),
    },
    ("txt", PROB): {"no such format": (ROW, "expected a file that ends in .csv, .tsv, .jsonl")},
    ("csv", f"{PROB} --event rain"): {
        "an event that never came": (
            "p,y\n0.5,dry\n0.25,dry\n",
            Read([0.5, 0.25], [0, 0], ["not rain", "rain"], "column y: no row is rain."),
        )
    },
    ("csv", f"{PROB} --drop-missing"): {
        "words for what is missing": (
            "p,y\n0.5,1\nNA,1\n0.3,\n NaN ,1\n0.2,null\n0.25,0\n,\n",
            BASE._replace(said="2 of 6 rows are used, without missing", rows=[2, 7]),
        )
    },
    ("csv", f"{PROB} --where 'lead == 3' --drop-missing"): {
        "some rows": (
            "p,y,lead,g\n0.5,1,3,a\n0.2,NA,3,b\n0.3,1,2,c\n,1,3,\n0.25,0,3,d\n",
            BASE._replace(
                said="x.csv: 4 of 5 rows are used, where lead == 3.\n.*2 of 4", rows=[2, 6]
            ),
        ),
        "a text": ("p,y,lead\n0.5,1,x\n", "where lead == 3: .*compare"),
    },
    ("csv", "--mean mu --sd mu --target y --separator : --decimal ,"): {
        "what is said": ("mu:y\n1,234:1,5\n2,000:0\n", Read([1.234, 2.0], [1.5, 0.0]))
    },
    **{
        ("csv", f"{PROB} --where {shlex.quote(condition)}"): {"a condition": (WHERE, message)}
        for condition, message in (
            ("lead", "true or false for each row"),
            ("lead ==", "where lead ==: unable to parse"),
            ("region = north", "unable to find column .north.; valid columns"),
            ("sum(lead) > 1", "true or false for each row"),
            ("lead <> '-1'", "number is compared with a text; write 3 for a number"),
        )
    },
    # What is no level is never divided by 100, and what is no member is no draw.
    **{
        ("csv", f"{options} --target y"): {
            header: (f"{header},y\n1,2,3,0\n1,2,3,0\n", message)
            for header, message in messages.items()
        }
        for options, messages in {
            "--quantiles q*": {
                "q1,q2,q3": "must be in .0, 1., got 1, 2, 3; levels gives them in the order",
                "q0.1,q0.5,q1.0": "got 0.1, 0.5, 1.0; levels gives",
                "q1,q5,q9": "got 1, 5, 9; levels gives",
                "q0,q50,q100": "got 0, 50, 100; levels gives",
                "q0,q0.5,q0.9": "got 0, 0.5, 0.9; levels gives",
                "q90,q180,q365": "survival curves at such times",
            },
            "--quantiles q* --levels 10,50,90": {"q1,q2,q3": "got 10.*divide percentages by 100"},
            "--quantiles q* --levels 0.1,0.5,1.0": {"q1,q2,q3": "got 0.1, 0.5, 1.0; divide"},
            "--draws ens_*": {
                "ens_1,ens_2,ens_mean": "members ens_. must all end in a number, got ens_mean:",
                "ens_mean,ens_01,ens_sd": "number, got ens_mean, ens_sd:",
            },
            "--draws draw_*": {"draw_id,draw_1,draw_2": "number, got draw_id:"},
            "--draws *_t2m": {"m1_t2m,m2_t2m,mean_t2m": "number, got mean_t2m:"},
        }.items()
    },
    # Options that do not fit together, or not the numbers.
    **{
        ("csv", f"--target y {options}"): {"options": (NUMBERS, message)}
        for options, message in (
            ("", "probs, prob, .* got 0"),
            ("--prob p --mean mu", "got 2 of them"),
            ("--mean mu", "mean needs sd"),
            ("--prob p --sd sd", "sd can be used only together with mean"),
            ("--prob p --levels 0.1", "levels .* quantiles"),
            ("--prob p --normalize", "normalize .* probs"),
            ("--mean mu --sd sd --event 1", "event .* prob"),
            ("--prob p --sort-quantiles", "sort_quantiles .* quantiles"),
            ("--prob p", "x.csv, column p, row 3: .* got 1.5"),
            ("--prob y", "column y: it cannot hold predictions and"),
            ("--mean mu --sd sd", "x.csv, column sd, row 3: .* got 0"),
            ("--quantiles q0*", "x.csv, column q0.9, row 3: .*sort_quantiles .*got 1"),
            ("--quantiles q*", "Levels .* 0.1, 0.9, x"),
            ("--quantiles q* --levels 0.1,0.9", "2 levels, got 3"),
            ("--quantiles q0* --levels 0.5,0.5", "levels must be"),
            ("--draws q", "column q not found, only p, mu"),
            ("--draws mu", r"column mu: got one column; use a pattern .* 'mu_\*'"),
            ("--probs p", r"column p: got one column; for one event use prob, .* 'p_\*'"),
            ("--draws q*.*", r"one \*, got q"),
            ("--survival q0*", "survival needs event"),
            ("--survival q* --event y", "must have one number in each name"),
            ("--survival q0* --event y", "q0.1, row 3: .* at most that of the time"),
        )
    },
    ("csv", f"{PROB} --separator ::"): {"separator": (ROW, "separator must be one character")},
    ("csv", f"{PROB} --decimal ·"): {"decimal": (ROW, "decimal must be . or a comma")},
    ("csv", NORMAL): {"normal": ("mu,sd,y\n1,2,3\n-1.5,1e-2,4\n", Read([1, -1.5], [3, 4]))},
    ("csv", "--draws d* --target y"): {
        "draws": ("d1,d2,y\n1,2,3\n4,5,6\n", Read([[1, 2], [4, 5]], [3, 6]))
    },
    ("csv", QUANTILES): {
        header: (f"{header},y\n3,1,2,0\n6,4,5,0\n", Read([[1, 2, 3], [4, 5, 6]], [0, 0]))
        for header in ("q0.9,q0.1,q0.5", "q_90%,q_10%,q_50%", "q90,q10,q50", "q.9,q.1,q.5")
    },
    # A pattern leaves the whole number of a name.
    **{
        ("csv", f"--quantiles {pattern} --target y"): {
            "a part of a number": (
                f"{header},y\n3,1,2,0\n6,4,5,0\n",
                Read([[1, 2, 3], [4, 5, 6]], [0, 0]),
            )
        }
        for pattern, header in {
            "0.*": "0.9,0.1,0.5",
            "q0.*": "q0.9,q0.1,q0.5",
            "q0*": "q0.75,q0.05,q0.5",
            "*5": "q0.95,q0.05,q0.5",
            "*.5%": "97.5%,2.5%,12.5%",
            "q.*": "q.9,q.1,q.5",
        }.items()
    },
    ("csv", f"{QUANTILES} --levels 0.9,0.1,0.5"): {
        "levels": ("qc,qa,qb,y\n3,1,2,0\n6,4,5,0\n", Read([[1, 2, 3], [4, 5, 6]], [0, 0]))
    },
    ("csv", f"{QUANTILES} --sort-quantiles"): {
        "crossing": ("q0.9,q0.1,q0.5,y\n3,1,2,0\n4,5,6,0\n", Read([[1, 2, 3], [4, 5, 6]], [0, 0]))
    },
    # The type of a column is that of the file.
    ("csv", GROUPS): {
        "texts": ("p,y,g\n0.5,1,north\n0.25,0,\n", BASE._replace(groups=["north", None])),
        "quoted empty texts": (
            'p,y,g\n0.5,1,"a,b"\n0.25,0,""\n',
            BASE._replace(groups=["a,b", None]),
        ),
        "numbers": ("p,y,g\n0.5,1,7\n0.25,0,7.5\n", BASE._replace(groups=[7, 7.5])),
        "mixed": ("p,y,g\n0.5,1,007\n0.25,0,x\n", BASE._replace(groups=["007", "x"])),
        "codes": ("p,y,g\n0.5,1,01004\n0.25,0,10001\n", BASE._replace(groups=["01004", "10001"])),
        "1 and 01": ("p,y,g\n0.5,1,1\n0.25,0,01\n", BASE._replace(groups=["1", "01"])),
        "decimals": ("p,y,g\n0.5,1,0.5\n0.25,0,0\n", BASE._replace(groups=[0.5, 0])),
        "in quotes": ('p,y,g\n0.5,1,"7"\n0.25,0,"1"\n', BASE._replace(groups=["7", "1"])),
        "quotes around all": (
            '"p","y","g"\n"0.5","1","7"\n"0.25","0","1"\n',
            BASE._replace(groups=[7, 1]),
        ),
        "a separator in quotes": (
            'p,y,g,z\n0.5,1,7,"x,""5"""\n0.25,0,1,"6,"\n',
            BASE._replace(groups=[7, 1]),
        ),
        # As a float, both were one number, and one group.
        "large integers": (
            "p,y,g\n0.5,1,9007199254740993\n0.25,0,9007199254740992\n",
            BASE._replace(groups=["9007199254740993", "9007199254740992"]),
        ),
        "large numbers": ("p,y,g\n0.5,1,1e30\n0.25,0,7\n", BASE._replace(groups=[1e30, 7])),
    },
    ("jsonl", GROUPS): {
        "large integers": (
            lines({"p": 0.5, "y": 1, "g": 10**20 + 1}, {"p": 0.25, "y": 0, "g": 10**20}),
            BASE._replace(groups=[str(10**20 + 1), str(10**20)]),
        ),
        "mixed": (
            lines({"p": 0.5, "y": 1, "g": 7}, {"p": 0.25, "y": 0, "g": "x"}),
            BASE._replace(groups=["7", "x"]),
        ),
        "codes": (
            lines({"p": 0.5, "y": 1, "g": "7"}, {"p": 0.25, "y": 0, "g": "1"}),
            BASE._replace(groups=["7", "1"]),
        ),
        "truth values": (
            lines({"p": 0.5, "y": True, "g": True}, {"p": 0.25, "y": False, "g": False}),
            BASE._replace(groups=[True, False]),
        ),
        "a key that one lacks": (
            lines({"p": 0.5, "y": 1, "g": "a"}, {"p": 0.25, "y": 0}),
            BASE._replace(groups=["a", None]),
        ),
    },
    ("parquet", GROUPS): {
        "truth values": (of_groups(True, False), BASE._replace(groups=[True, False])),
        "dates": (
            of_groups(DAY.date(), DAY.date()),
            BASE._replace(groups=[np.datetime64(DAY, "D")] * 2),
        ),
        "categories": (
            of_groups("b", None, dtype=pl.Categorical),
            BASE._replace(groups=["b", None]),
        ),
        "codes": (of_groups("7", "1"), BASE._replace(groups=["7", "1"])),
        "large integers": (
            of_groups(2**63 - 1, -(2**62)),
            BASE._replace(groups=[2**63 - 1, -(2**62)]),
        ),
        "decimals": (
            of_groups(decimal.Decimal("1.10"), decimal.Decimal("2.00")),
            BASE._replace(groups=[decimal.Decimal("1.10"), 2]),
        ),
    },
    ("csv", TIMES): {
        "dates": ("p,y,g\n0.5,1,2026-03-31\n0.25,0,2026-04-02\n", BASE._replace(times=[0, 2])),
        "dates with points": (
            "p,y,g\n0.5,1,31.3.2026\n0.25,0,1.04.2026\n",
            BASE._replace(times=[0, 1]),
        ),
        "zones": (
            "p,y,g\n0.5,1,2026-03-31T02:00+02:00\n0.25,0,2026-03-31T12:00Z\n",
            BASE._replace(times=[0, 0.5]),
        ),
        "numbers": ("p,y,g\n0.5,1,3\n0.25,0,4.5\n", BASE._replace(times=[0, 1.5])),
        "no date": (
            "p,y,g\n0.5,1,3\n0.25,0,x\n",
            "g, row 3: expected a number, or a date .*, got x",
        ),
    },
    ("arrow", TIMES): {
        "dates": (of_groups(DAY.date(), DAY.date().replace(day=1)), BASE._replace(times=[30, 0])),
        "times": (of_groups(DAY, DAY.replace(hour=6)), BASE._replace(times=[0, 0.25])),
        "zones": (
            of_groups(DAY.replace(tzinfo=UTC), DAY.replace(hour=12, tzinfo=UTC)).with_columns(
                pl.col("g").dt.convert_time_zone("Asia/Tokyo")
            ),
            BASE._replace(times=[0, 0.5]),
        ),
        "missing": (of_groups(DAY, None), "g, row 1: expected a value, got nothing"),
    },
    ("jsonl", ""): {
        "a log": (lines(*LOGS), OF_LOGS),
        "an impossible question": (
            IMPOSSIBLE,
            "row 4: expected a finite log-likelihood in filtered_resps",
        ),
        "answers in words": (
            lines(*[log([0.0]) | {"filtered_resps": ["a word"]}] * 2),
            "expected a log of questions of multiple choice",
        ),
    },
    ("jsonl", "--drop-missing"): {
        "an impossible question": (IMPOSSIBLE, OF_LOGS._replace(rows=[1, 2, 3])),
    },
    ("jsonl", "--probs option_probabilities_norm"): {
        "a log": (
            lines(*LOGS),
            OF_LOGS._replace(values=[shares(SCORES / [1, 2, 4])] * 2 + [shares([-3.0, -2.0])]),
        )
    },
    # Objects, of which some have other keys, or lists of other lengths.
    ("jsonl", "--probs p.* --target y"): {
        "objects in objects": (
            lines({"p": {"a": 0.5, "b": 0.5}, "y": "a"}, {"p": {"a": 0.2, "b": 0.8}, "y": "b"}),
            SAME,
        ),
        "options whose number differs": (
            lines(
                {"p": {"A": 0.2, "B": 0.8}, "y": "B"},
                {"p": {"A": 0.2, "B": 0.2, "C": 0.6}, "y": "C"},
            ),
            Read(
                [[0.2, 0.8, 0], [0.2, 0.2, 0.6]],
                [1, 2],
                [*"ABC"],
                r"column p.\*: rows have 2 to 3 opt",
            ),
        ),
        "a missing option": (
            lines(
                {"p": {"A": 0.5, "B": 0.3}, "y": "B"},
                {"p": {"A": 0.2, "B": 0.2, "C": 0.6}, "y": "C"},
            ),
            "column p.C, row 1: .*got nothing",
        ),
        "a null inside": (
            lines({"p": {"a": 0.5, "b": None}, "y": "a"}, {"p": {"a": 0.2, "b": 0.8}, "y": "b"}),
            "column p.b, row 1: .*got nothing",
        ),
    },
    ("jsonl", "--probs p --target y"): {
        "lists whose lengths differ": (
            lines({"p": [0.5, 0.5], "y": 1}, {"p": [0.2, 0.1, 0.7], "y": 2}, {"p": [1], "y": 0}),
            LISTS,
        ),
        "letters": (
            lines({"p": [0.5, 0.5], "y": "B"}, {"p": [0.2, 0.1, 0.7], "y": "A"}),
            Read(
                [[0.5, 0.5, 0], [0.2, 0.1, 0.7]], [1, 0], [*"ABC"], "column y: A is the first of p"
            ),
        ),
        "an option that a row lacks": (
            lines({"p": [0.5, 0.5], "y": 2}, {"p": [0.2, 0.2, 0.6], "y": 1}),
            "y, row 1: expected options of their rows, got 2, with 2 opt",
        ),
        **{
            f"a label {label!r}": (
                lines({"p": [0.5, 0.5], "y": label}, {"p": [0.2, 0.1, 0.7], "y": other}),
                message,
            )
            for label, other, message in (
                ("C", "A", "row 1: expected options of their rows, got C, with 2 options"),
                ("D", "A", "got 'D': name .* of lists write the indices of options, from 0, or A"),
                ("", 0, "expected a label, got an empty text; drop_missing leaves out its row"),
                (-1, 0, "got -1; if -1 stands for no label, leave out its rows"),
            )
        },
    },
    ("jsonl", "--probs p --target y --drop-missing"): {
        "nulls": (
            lines(
                *({"p": x, "y": y} for x, y in (([0.5, 0.5], 1), ([0.2, 0.8], 0))),
                *({"p": x, "y": y} for x, y in (([None, 0.7], 0), ([0.5, 0.5], None), (None, 1))),
                {"p": [0.5, 0.5], "y": ""},
            ),
            Read([[0.5, 0.5], [0.2, 0.8]], [1, 0], said="2 of 6 rows", rows=[1, 2]),
        )
    },
    ("jsonl", "--draws p --target y"): {
        "lists whose lengths differ": (
            lines({"p": [0.5, 0.5], "y": 1}, {"p": [0.2, 0.1, 0.7], "y": 2}),
            # What a missing member holds is a copy of another one.
            Read(
                [[0.5] * 3, [0.2, 0.1, 0.7]], [1, 2], said="members are missing; rows have 2 to 3"
            ),
        )
    },
    ("jsonl", "--probs q --target y"): {
        "keys of an object": (
            lines({"q": {"a": 0.5, "b": 0.5}, "y": 1}),
            r"column q not found, .* is it 'q\.\*', for the keys of an object",
        )
    },
    ("jsonl", PROB): {
        "no object": ('{"p": 0.5, "y": 1}\n[0.5, 1]\n', "line 2: .* an object.*got a list"),
        "half an object": ('{"p": 0.5, "y": 1}\n{"p": 0.2', "line 2: this JSON cannot be read"),
        "a missing key": ('{"p": 0.5, "y": 1}\n{"p": 0.5}\n', "y, row 2: .* got nothing"),
        "no number": ('{"p": "much", "y": 1}\n', "p, row 1: .*finite number, got much"),
        "NaN": ('{"p": NaN, "y": 1}\n', "p, row 1: .*number .no row has one.*, got nothing"),
        "no line": ("", "an object on each line, got an empty file"),
        "too deep": ('{"p": ' + "[" * 9000 + "]" * 9000 + "}", "line 1: this JSON cannot"),
        "lists": ('{"p": [0.5, 0.5], "y": 1}\n', "p: expected one number in each row"),
        "Latin": ('{"p": "é"}'.encode("latin-1"), "line 1: this JSON cannot be read: 'utf-8'"),
    },
    ("json", PROB): {
        "columns": ('{"p": [0.5, 0.2], "y": [1, 0]}', "p: expected one number in each row"),
    },
    ("jsonl", f'{PROB} --where "\\"doc.subject\\" = \'law\'"'): {
        "names with dots": (
            lines(
                *(
                    {"doc": {"subject": x, "a.b": 1}, "p": 0.5, "y": 1}
                    for x in ("law", "art", "law")
                )
            ),
            Read([0.5, 0.5], [1, 1], said="2 of 3 rows are used", rows=[1, 3]),
        )
    },
    ("parquet", PROB): {
        "empty": (b"", "this .parquet file cannot be read"),
        "cut off": (written(of_groups(1, 2), "parquet")[:-9], "this .parquet file cannot be read"),
        "a text": (ROW, "this .parquet file cannot be read"),
        "no row": (of_groups(1, 2).head(0), "expected at least 2 rows, got 0"),
        "missing": (of_groups(1, 2).with_columns(p=pl.Series([0.5, None])), "row 1: .*got nothing"),
        "no target": (of_groups(1, 2).with_columns(y=pl.Series([0, None])), "y, row 1: .*got noth"),
        "texts": (
            of_groups(1, 2).with_columns(p=pl.Series(["0.5", "x"])),
            "p, row 1: .*number, got x",
        ),
        "bytes": (of_groups(1, 2).with_columns(p=pl.lit(b"a")), "p, row 0: expected a finite"),
        "lists": (of_groups(1, 2).with_columns(p=pl.lit([0.5, 0.5])), "number in each row, got 2"),
        "no column": (of_groups(1, 2).drop("p"), "column p not found"),
        "truth values": (of_groups(1, 2).with_columns(pl.col("y").cast(bool)), BASE),
    },
    ("npz", PROB): {
        "empty": (b"", "this .npz file cannot be read"),
        "cut off": (written(GRID, "npz")[:-30], "this .npz file cannot be read"),
        "one array": (ONE_ARRAY.getvalue(), "one array without a name, as of numpy.save"),
        "complex": (GRID | {"p": GRID["p"] * 1j}, "the array p has the dtype complex128"),
        "structured": (GRID | {"p": np.zeros(3, [("a", float)])}, "array p has the dtype"),
        "objects": (GRID | {"p": np.array([{}], object)}, "Object arrays cannot be loaded"),
        "lengths": (GRID | {"y": [0, 1]}, "y: expected one value for each of 3 rows, got 2"),
        "texts": (GRID | {"p": np.array(["a", "b", "c"])}, "p, row 0: .*number, got a"),
        "texts of other lengths": (GRID | {"p": ["0.5"], "z": [1] * 3}, "each of 3 rows, got 1"),
        "missing": (GRID | {"p": GRID["p"] * np.nan}, "p, row 0: .*no row has one.* got nothing"),
        "dates": (GRID | {"p": GRID["p"].astype("M8[D]")}, "p: expected numbers, got dates"),
        "too many axes": (GRID | {"p": np.ones((3, 2, 2))}, "an array of shape .3, 2, 2"),
        "one number": (GRID | {"p": np.float64(0.5)}, "one value for each of 1 rows, got 3"),
        "real targets": (GRID | {"y": GRID["p"]}, "row 0: .*labels 0 … 1, got 0.5; for real"),
        "from 1": (GRID | {"y": GRID["y"] + 1}, "got .1, 2.: event must say"),
        "no target": ({"p": GRID["p"]}, "column y not found, only p"),
    },
}
NAMES = [(*key, case) for key, cases in CASES.items() for case in cases]


@pytest.mark.parametrize(("ending", "options", "case"), NAMES)
def test_odd_files(ending, options, case, tmp_path, monkeypatch):
    content, expected = CASES[ending, options][case]
    path = tmp_path / f"x.{ending}"
    path.write_bytes(written(content, path.name))
    check(path, options, expected, monkeypatch)


def test_rows_of_several_files(tmp_path):
    """They are joined by the names of columns, and errors say which file it is."""
    (tmp_path / "a.csv").write_text(TABLE)
    (tmp_path / "b.csv").write_text("label,p_b,p_a\nb,0.1,0.9\na,?,1\n")
    (tmp_path / "c.csv").write_text("label,p_a\na,1\n")
    a, b, c = (tmp_path / f"{x}.csv" for x in "abc")
    model = Columns(target="label", probs="p_*").read(a, a)
    assert model.targets.tolist() == [0, 1, 0, 1]
    assert model.table.row_names.tolist() == [f"{row} of {a}" for row in (2, 3, 2, 3)]
    with pytest.raises(ValueError, match=r"b.csv, column p_b, row 3: .*got \?"):
        Columns(target="label", probs="p_*").read(a, b)
    with pytest.raises(ValueError, match="c.csv: expected the columns of .*a.csv, .* called p_b"):
        Columns(target="label", probs="p_*").read(a, c)


def test_logs_whose_questions_have_more_and_fewer_options(tmp_path):
    """Keys of options that a log lacks are no reason not to join it, whichever is first."""
    scores = SCORES, np.array([-3.0, -4.0])
    paths = [tmp_path / "three.jsonl", tmp_path / "two.jsonl"]
    for path, values in zip(paths, scores, strict=True):
        path.write_text(lines(log(values)))
    for order in (slice(None), slice(None, None, -1)):
        probs = Columns().read(*paths[order]).predictions.label_probabilities()
        np.testing.assert_allclose(probs, [*map(shares, scores[order])], rtol=1e-6)


LEVELS_OF_TOOLS = {
    "AutoGluon": ("0.*", "mean,{}", "{}"),
    "AutoGluon, named one by one": ("0.1, 0.5,0.9", "mean,{}", "{}"),
    "darts": ("x_q*", "x_q{}0", "x_q{}0"),
    "older darts": ("x_*", "x_{}", "x_{}"),
}


@pytest.mark.parametrize("tool", LEVELS_OF_TOOLS)
def test_quantiles_of_tools(tmp_path, tool):
    """Their columns as they write them: mean, 0.1, … of AutoGluon, x_q0.10 or x_0.1 of darts."""
    pattern, first, other = LEVELS_OF_TOOLS[tool]
    names = [first.format(0.1), other.format(0.5), other.format(0.9)]
    header = ",".join(["item_id", "timestamp", *names, "x"])
    row = "2," * (header.count("mean")) + "1,2,4,3"
    (tmp_path / "a.csv").write_text(f"{header}\n01,2026-01-03,{row}\n1,2026-01-04,{row}\n")
    model = Columns(target="x", quantiles=pattern).read(tmp_path / "a.csv")
    assert model.predictions.levels == (0.1, 0.5, 0.9) and model.targets.tolist() == [3, 3]
    np.testing.assert_array_equal(model.predictions.values, [[1, 2, 4]] * 2)
    assert model.table.columns["item_id"].tolist() == ["01", "1"]
