"""`calibjax monitor`: what it says, and that nothing is counted twice or lost."""

import dataclasses
import json
import os
import pickle
import resource
import shutil
import sqlite3
from contextlib import closing

import jax
import jax.numpy as jnp
import numpy as np
import polars as pl
import pytest
import typer
from typer.testing import CliRunner

import calibjax as cj
import calibjax.cli._monitor
import calibjax.cli._monitor_state
import calibjax.monitoring
from benchmarks.monitor_kills import count_all, count_with_kills, evidence_of, write_days
from calibjax.cli import app


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Ones:
    """Stands for a monitor, which takes long to compile: its log e-value is that of the last batch.

    It is the number of events, and infinite if one had the probability 0.
    """

    landmarks: object
    log_e_value: jax.Array
    largest_log_e_value: jax.Array
    key: object = None
    lag: int = dataclasses.field(default=1, metadata={"static": True})

    @classmethod
    def start(cls, key, example, lag=1, level=0.05):
        first = jax.tree.map(lambda x: x[:2], example)
        return cls(first, jnp.zeros(()), jnp.zeros(()), lag=lag)

    def update(self, predictions, targets, where, clusters=None):
        events = where & (targets == 1)
        if clusters is not None:
            # Of each cluster, one row.
            events = events & (np.append(-1, clusters[:-1]) != clusters)
        probs = predictions.label_probabilities()[:, 1]
        log_e = jnp.sum(jnp.where(events, jnp.where(probs > 0, 1.0, jnp.inf), 0.0))
        largest_log_e_value = jnp.maximum(self.largest_log_e_value, log_e)
        return dataclasses.replace(self, log_e_value=log_e, largest_log_e_value=largest_log_e_value)

    def save(self, file):
        file.write(pickle.dumps(jax.tree.map(np.asarray, self)))

    def load(self, file):
        return pickle.load(file)

    change_point = property(lambda self: 25 if self.log_e_value > 0 else 5)


@pytest.fixture(autouse=True)
def monitor_without_compilation(monkeypatch, request):
    # A test that is slow by tests/long.txt is one of the others.
    marks = getattr(request.function, "pytestmark", [])
    if not any(mark.name == "slow" for mark in marks):
        monkeypatch.setattr(calibjax.monitoring, "CalibrationMonitor", Ones)


def rows(n_events, seed=0, n=20, **columns):
    """Rows with other probabilities for each seed, of which the first ones have events."""
    p = np.random.default_rng(seed).uniform(0.1, 0.9, n)
    return pl.DataFrame({"p": p, "y": (np.arange(n) < n_events).astype(int)}).with_columns(
        **{name: pl.Series(np.resize(x, n)) for name, x in columns.items()}
    )


def call(path, state, *options):
    arguments = "monitor", path, "--state", state, *options
    return CliRunner().invoke(app, [str(x) for x in arguments if x is not None])


def run(path, state, *options):
    return call(path, state, "--prob", "p", "--target", "y", *options)


def days(*names, seed=0, n_events=1, each=5):
    """So many rows of each day."""
    return rows(n_events, seed, len(names) * each, day=np.repeat(names, each))


def corrected(frame, n=5, **columns):
    """The rows in another order, of which the first n have the other target."""
    row = pl.int_range(pl.len())
    y = pl.when(row < n).then(1 - pl.col("y")).otherwise(pl.col("y"))
    return frame.with_columns(y=y, **columns).sample(fraction=1.0, shuffle=True, seed=0)


ONE, TWO, MANY = rows(2), rows(2, 1), rows(2, 3, n=40)
FEW = pl.DataFrame({"p": [0.5] * 20, "y": [1] + [0] * 19})
PETS = pl.DataFrame({"p_cat": [0.5, 0.5], "p_dog": [0.5, 0.5], "y": ["cat", "dog"]})
ROUNDED = rows(1, 5, n=701).with_columns(pl.col("p").round(2)).sample(701, shuffle=True, seed=0)
FEWER = ROUNDED.with_columns(pl.col("p").round(1))
# Half of the rows of three days, whose targets are known at once.
LOG = days("2026-03-01", "2026-03-02", "2026-03-03", each=20).with_columns(id=pl.int_range(60) % 20)
KNOWN = pl.when(pl.col("id") < 10).then(pl.col("y"))
IDS = "--by", "day", "--id", "id"
BY, REGION = ("--by", "day"), ("--by", "day", "--stream", "region")
REGIONS = ["north"] * 10 + ["south"] * 10
# Calls for one state, one after the other: rows, options, the status, and words of the output.
CALLS = {
    "a file that was counted": [
        (ONE, (), 0, "No alarm: largest e-value so far 7.39, threshold 20 (level 0.05), n = 20."),
        (TWO, (), 0, "n = 40"),
        (ONE.select("y", "p"), (), 2, "the 20 rows were counted before, from 0.csv at 2"),
        (ONE.sort("p"), (), 2, "20 of the 20 rows match the 20 rows already counted"),
        (pl.concat([ONE, MANY]), (), 2, "20 of the 60 rows match the 20", "from 0.csv"),
        (ONE, ("--again",), 0, "n = 60"),
        (ONE, (), 2, "were counted before, from 0.csv"),
    ],
    "a file that was corrected": [
        (ONE, (), 0, "n = 20"),
        (corrected(ONE), (), 2, "15 of the 20 rows match the 20", "--again counts all of them"),
        (pl.concat([corrected(ONE), MANY]), (), 2, "15 of the 60 rows match the 20"),
        (corrected(ONE, n=20), (), 3, "n = 40"),
    ],
    "rows that are rounded": [
        (ROUNDED[:300], (), 0, "n = 300"),
        (ROUNDED[:300].sort("p"), (), 2, "300 of the 300 rows match the 300 rows already"),
        (pl.concat([ROUNDED[700:], ROUNDED[:300].sort("y")]), (), 2, "300 of the 301 rows match"),
        (corrected(ROUNDED[:300], 60), (), 2, "of the 300 rows match the 300 rows already counted"),
        (ROUNDED[300:700], (), 0, "n = 700"),
        (ROUNDED[:700].reverse(), (), 2, "300 of the 700 rows match the 300", "from 0.csv"),
    ],
    "rows that are few or alike by chance": [
        (FEW[:9], (), 0, "n = 9"),
        (FEW[:9].with_columns(p=pl.Series(np.arange(1, 10) / 10)), (), 0, "n = 18"),
        (FEW, (), 0, "n = 38"),
        (corrected(FEW, 1), (), 0, "n = 58"),
        (FEW, (), 2, "the 20 rows were counted before"),
    ],
    "few probabilities": [
        (FEWER[:300], (), 0, "n = 300"),
        (FEWER[300:600], (), 0, "n = 600"),
        (FEWER[300:600].sort("p"), (), 2, "300 of the 300 rows match the 300", "from 1.csv"),
    ],
    "days ascend": [
        (days("day 8", "day 9", "day 10"), BY, 0, "n = 15"),
        (days("day 12", "day 11", seed=1), BY, 2, "row 7: expected values in ascending order"),
        (days("day 10", seed=1), BY, 0, "n = 20", "5 late rows, of day 10: counted in a batch of"),
        (
            days("day 9", "day 11", seed=2),
            BY,
            0,
            "n = 30",
            "5 late rows, of day 9: counted in day 11.",
        ),
        (days("day 3", seed=1), BY, 0, "n = 35", "5 late rows, of day 3"),
        (days("day 3", seed=1), (*BY, "--again"), 0, "n = 40"),
        (days("day 12", seed=4).with_columns(day=None), BY, 2, "column day, row 2: expected a val"),
        (
            days("market 15", seed=5),
            BY,
            2,
            "row 2: expected values that are comparable with day 11, the",
        ),
        (days("day 12", "Day 13", seed=5), BY, 2, "row 7: expected a value like day 12, as the"),
    ],
    "a log that grows": [
        (LOG[:20], BY, 0, "n = 20."),
        (LOG[:20], BY, 0, "n = 20. 20 of 20 rows were counted before: left out."),
        (LOG[:20].reverse(), BY, 0, "n = 20.", "20 of 20 rows were counted before: left out."),
        (LOG[:30], BY, 0, "n = 30. 20 of 30 rows were counted before"),
        (LOG, BY, 0, "n = 60. 30 of 60", "10 late rows, of 2026-03-02: counted in 2026-03-03."),
        (LOG[1:59], BY, 0, "n = 60. 58 of 58 rows were counted before"),
        (corrected(LOG), BY, 2, "15 of the 20 rows of 2026-03-01 match the 20", "corrected ones?"),
    ],
    "labels that come later": [
        (LOG.with_columns(y=KNOWN), (*BY, "--drop-missing"), 0, "n = 30."),
        (
            LOG,
            (*BY, "--drop-missing"),
            0,
            "n = 60. 30 of 60 rows were",
            "30 late rows, of 2026-03-01,",
        ),
    ],
    "ids": [
        (LOG.with_columns(y=KNOWN, p=0.5), (*IDS, "--drop-missing"), 0, "n = 30."),
        (
            LOG.with_columns(p=0.5),
            IDS,
            0,
            "n = 60. 30 of 60 rows were",
            "30 late rows, of 2026-03-01,",
        ),
        (
            corrected(LOG).sort("day"),
            IDS,
            0,
            "n = 60. 60 of 60 rows were counted before: left out.",
        ),
        (LOG.with_columns(pl.col("id").cast(float)), IDS, 0, "n = 60. 60 of 60 rows were"),
        (LOG.with_columns(id=1), IDS, 2, "column id, row 3: expected a value that no other row of"),
        (LOG, BY, 2, "the same --id as in its first call, id, got none"),
    ],
    "ids without batches": [
        (LOG[:20], ("--id", "p"), 0, "n = 20."),
        (LOG[:30], ("--id", "p"), 0, "n = 30. 20 of 30 rows were counted before: left out."),
    ],
    "numbers of days are sorted": [
        (days(9, 10, 11).reverse(), BY, 0, "the rows were sorted by day, those of one"),
        (days(9.5, seed=1), BY, 0, "5 late rows, of 9.5"),
        (days(11.5, seed=1), BY, 0, "n = 25"),
    ],
    "dates are dates": [
        (days("30.09.2026", "1.10.2026"), BY, 0, "n = 10"),
        (days("2026/09/30", "2026/10/01"), BY, 0, "n = 10. 10 of 10 rows were counted before"),
        (days("2026-09-30 00:00:00", "2026-10-01T00:00"), BY, 0, "n = 10. 10 of 10 rows were"),
        (days("2026-10-02", seed=1), BY, 0, "n = 15"),
    ],
    "weeks of a new year": [
        (days(51, 52, 1, 2), BY, 2, "got 1 after 52; for weeks or months", "the year first"),
        (days(52), BY, 0, "n = 5"),
        (days(1, seed=1), BY, 2, "comparable with 52", "the year first, such as 2026-01"),
    ],
    "dates in other words": [
        (days(day), BY, 2, "row 2: expected a date such as 2026-03-31 or", f"understood, got {day}")
        for day in (
            *("09/30/2026", "30-09-2026", "30.06.25", "Jun 30 2025", "6/30/25", "Jun"),
            *("1 PM", "2026-03-01 1:00 PM", "2026-03-01 01:00 p.m."),
        )
    ],
    "names of months": [
        (
            days("Mar 2026", "Apr 2026"),
            BY,
            2,
            "row 7: expected a value like Mar 2026, as the order",
        ),
        (days("Mar 2026"), BY, 0, "n = 5"),
        (
            days("Apr 2026", seed=1),
            BY,
            2,
            "comparable with Mar 2026, the last one that was counted",
        ),
    ],
    "a day that is a copy": [
        (ONE.with_columns(day=pl.lit("2026-03-04")), BY, 0, "n = 20"),
        (ONE.with_columns(day=pl.lit("2026-03-05")), BY, 2, "from 0.csv, as 2026-03-04, at 2"),
        (corrected(ONE, day=pl.lit("2026-03-05")), BY, 2, "15 of the 20 rows of 2026-03-05 match"),
        (ONE.with_columns(day=pl.lit("2026-03-05")), (*BY, "--again"), 0, "n = 40"),
    ],
    "another model": [
        (ONE, (), 0, "n = 20"),
        (TWO.rename({"p": "q"}), ("--prob", "q"), 2, "the same columns", "--target y --prob q"),
        (TWO.with_columns(day=1), BY, 2, "the same --by as in its first call, none, got day"),
        (TWO, ("--level", "0.1"), 2, "the same --level as in its first call, 0.05, got 0.1"),
        (TWO, ("--level", "0.05"), 0, "n = 40"),
    ],
    "other classes": [
        (PETS, ("--probs", "p_*"), 0, "n = 2"),
        (PETS.select("y", "p_dog", "p_cat").reverse(), ("--probs", "p_*"), 0, "n = 4"),
        (
            PETS.rename({"p_cat": "p_cow"}).with_columns(y=pl.Series(["cow", "dog"])),
            ("--probs", "p_*"),
            2,
            "the same classes as in its first call, cat, dog, got cow, dog",
        ),
    ],
    "a lag": [
        (rows(4), ("--lag", "4"), 3, "ALARM at 0.csv (after row 20)"),
        (TWO, ("--json",), 1, '"lag": 4'),
        (MANY, ("--lag", "2"), 2, "the same --lag as in its first call, 4, got 2"),
        (MANY, ("--lag", "0"), 2, "--lag"),
    ],
    "pairs of rows": [
        (
            pl.concat([ONE, ONE.with_columns(p=1 - pl.col("p"), y=1 - pl.col("y"))])[
                np.arange(40).reshape(2, 20).T.ravel()
            ],
            (),
            3,
            "3.csv: rows come in pairs whose probabilities and events add up to 1"[1:],
        ),
        (MANY, (), 1, "n = 80"),
    ],
    "clusters": [
        # The last day has three clusters, each of which counts as one row here.
        (rows(20, site=[*"aabbbccccc"]), ("--cluster", "site", "--json"), 3, '"log_e_value": 6.0'),
        (TWO, (), 2, "the same --cluster as in its first call, site, got none"),
        (TWO, ("--cluster", "y"), 2, "the same --cluster as in its first call, site, got y"),
    ],
    "streams that come later": [
        (
            rows(4, 0, region=REGIONS, day=1),
            (*REGION, "--reserve", "1"),
            0,
            "ever, 1 reserved included: at",
        ),
        (rows(5, 1, region=["east"], day=2), REGION, 3, "ALARM in 2 of 3 streams", "north, east;"),
        (rows(0, 2, region=["west"], day=3), REGION, 2, "streams that share the", "got west"),
        (rows(0, 2, region=["east"], day=3), (*REGION, "--reserve", "2"), 2, "--reserve", "1, got"),
    ],
    "a stream that is new": [
        (
            rows(4, 0, region=REGIONS, day=1),
            REGION,
            3,
            "ALARM in 1 of 2 streams of region, new: no",
        ),
        (rows(0, 1, region=["east"], day=2), REGION, 2, "row 2: expected one of", "!= 'east'"),
        (rows(0, 1, day=2), BY, 2, "the same --stream as in its first call, region, got none"),
        (rows(0, 1), ("--reserve", "1"), 2, "--reserve expects --stream"),
    ],
    "nothing to count": [
        (None, (), 2, "A file of predictions must be given, or --show"),
        (None, ("--show",), 2, "state.sqlite: file not found"),
        (ONE[:1], (), 2, "a new --state needs at least 2 rows, got 1"),
    ],
}


@pytest.mark.parametrize("case", CALLS)
def test_calls_one_after_the_other(tmp_path, monkeypatch, case):
    """What was refused has changed nothing, and ends in one line."""
    monkeypatch.chdir(tmp_path)
    state = tmp_path / "state.sqlite"
    for k, (frame, options, status, *words) in enumerate(CALLS[case]):
        before = state.read_bytes() if state.exists() else b""
        if frame is not None:
            frame.write_csv(f"{k}.csv")
        names = () if {"--prob", "--probs"} & {*options} else ("--prob", "p")
        path = None if frame is None else f"{k}.csv"
        result = call(path, "state.sqlite", "--target", "y", *names, *options)
        assert result.exit_code == status, result.output
        assert all(x in " ".join(result.output.split()) for x in words), result.output
        if status == 2:
            assert result.stdout == ""
            assert (state.read_bytes() if state.exists() else b"") == before


def test_an_alarm_remains(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for k, n in enumerate((2, 4, 0)):
        rows(n, k).write_csv(f"{k}.csv")
    run("0.csv", "state.sqlite")
    for k, n_rows, status in (1, 40, 3), (2, 60, 1):
        result = run(f"{k}.csv", "state.sqlite")
        said, granted = result.stdout.splitlines()
        assert result.exit_code == status
        assert said == (
            "ALARM at 1.csv (after row 40): largest e-value so far 54.6, threshold 20 "
            f"(level 0.05), n = {n_rows}. Estimated onset 1.csv (after row 25)."
        )
        assert granted.endswith("If not, start a new --state with --lag.")
    result = run("2.csv", "state.sqlite", "--again", "--json")
    expected = {"alarm": True, "first_alarm": "1.csv", "first_alarm_row": 40, "n_rows": 80}
    expected |= {"log_e_value": 0.0, "level": 0.05, "change_point": 25, "change_batch": "1.csv"}
    expected |= {"pvalue": pytest.approx(np.exp(-4)), "lag": 1, "new_alarm": False}
    expected |= {"largest_log_e_value": 4.0, "n_new": 20, "n_known": 0, "n_late": 0}
    assert json.loads(result.stdout) == expected | {"zero_probability": None}
    assert result.exit_code == 1
    shown = call(None, "state.sqlite", "--show")
    assert shown.exit_code == 1 and shown.stdout.startswith("ALARM at 1.csv (after row 40)")
    assert shown.stdout.splitlines()[-1] == (
        "evidence  ▅█▁▁  e-value 1 after 2.csv; full bar: 54.6 (log scale)."
    )


def test_streams_share_the_level(tmp_path):
    """Evidence e^n for n events: two streams need e^n >= 40 for the first alarm, then 20."""
    state, picture = tmp_path / "state.sqlite", tmp_path / "evidence.png"
    for k, (north, south) in enumerate(((3, 2), (2, 4), (0, 0)), 1):
        events = np.arange(20) // 2 < np.resize([south, north], 20)
        frame = rows(0, k, day=f"day {k}", region=["south", "north"])
        frame.with_columns(y=events.astype(int)).write_csv(tmp_path / f"{k}.csv")
    result = run(tmp_path / "1.csv", state, *REGION)
    said, _, *lines = result.stdout.splitlines()
    assert said.startswith("No alarm in 2 streams of region; n = 20; probability of any false")
    assert lines[0].split() == ["north", "10", "20.1", "20.1", "0.0996"]
    assert lines[1].split() == ["south", "10", "7.39", "7.39", "0.135"]
    result = run(tmp_path / "2.csv", state, *REGION, "--plot", picture, "--show")
    assert result.exit_code == 3 and picture.stat().st_size > 0
    said, _, *lines = result.stdout.splitlines()
    assert said.startswith("ALARM in 2 of 2 streams of region, new: north, south; n = 40;")
    assert lines[0].split() == "south 20 54.6 54.6 0.0366 day 2 day 2".split()
    assert lines[-2].startswith("north  █▆  e-value 7.39 after day 2; full")
    found = json.loads(run(tmp_path / "3.csv", state, *REGION, "--json").stdout)
    assert found["alarm"] and found["n_rows"] == 60 and found["new_alarms"] == []
    north = found["streams"]["north"]
    assert (north["first_alarm"], north["first_alarm_row"]) == ("day 2", 20)
    assert north["pvalue"] == pytest.approx(np.exp(-3)) and north["log_e_value"] == 0


def test_infinite_evidence(tmp_path):
    path, state = tmp_path / "zero.csv", tmp_path / "state.sqlite"
    path.write_text("p,y\n0,1\n.5,0\n.5,1\n")
    result = run(path, state, "--json")
    found = json.loads(result.stdout, parse_constant=pytest.fail)
    assert result.exit_code == 3 and found["alarm"]
    assert found["log_e_value"] == "Infinity" and found["pvalue"] == "< 1e-37"
    row = f"{path}, column y, row 2: 1 had the probability 0"
    assert found["zero_probability"].startswith(row)
    result = run(path, state, "--again", "--show", "--plot", tmp_path / "evidence.png")
    assert (
        result.exit_code == 1
        and "largest e-value so far Infinity" in result.stdout
        and row in result.stdout
    )


def with_sql(statement):
    def change(path):
        with closing(sqlite3.connect(path, isolation_level=None)) as database:
            database.execute(statement)

    return change


def damaged(path):
    content = path.read_bytes()
    path.write_bytes(content[:8192] + b"\xff" * (len(content) - 8192))


BROKEN = {
    "text": (
        lambda path: path.write_text("no numbers" * 99),
        "expected a --state, got a file that is not a database; name another file",
    ),
    "damaged": (damaged, "expected a --state, got a damaged one; restore a copy of it"),
    "half": (lambda path: os.truncate(path, path.stat().st_size // 2), "got a damaged one"),
    "option": (with_sql("DELETE FROM options WHERE name = '--lag'"), "got a damaged one"),
    "rows": (with_sql("DELETE FROM batches"), "got a damaged one"),
    "version": (with_sql("PRAGMA user_version = 9"), "of another version of calibjax, 9 for 3"),
    "bits": (
        with_sql("UPDATE options SET value = '1' WHERE name = 'JAX_ENABLE_X64'"),
        "in its first call, 1, got 0; set the environment variable JAX_ENABLE_X64=1",
    ),
    "foreign": (with_sql("PRAGMA application_id = 9"), "got another database"),
    "NaN": (with_sql("DROP TABLE evidence"), "no such table: evidence"),
    "folder": (lambda path: path.unlink() or path.mkdir(), "unable to open database file"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_files(tmp_path, case):
    state, path = tmp_path / "state.sqlite", tmp_path / "rows.csv"
    ONE.write_csv(path)
    run(path, state)
    breaks, message = BROKEN[case]
    breaks(state)
    before = state.is_file() and state.read_bytes()
    TWO.write_csv(path)
    result = run(path, state)
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"{state}: ") and message in line
    assert "Nothing was counted" in line or case == "bits"
    assert result.exit_code == 2 and (state.is_file() and state.read_bytes()) == before


def test_a_monitor_that_does_not_fit(tmp_path, monkeypatch):
    state, path = tmp_path / "state.sqlite", tmp_path / "rows.csv"
    ONE.write_csv(path)
    run(path, state)

    def load(self, file):
        raise ValueError("kernels.0.lengthscale must be float64.")

    monkeypatch.setattr(Ones, "load", load)
    TWO.write_csv(path)
    result, words = run(path, state), "its evidence is kept: kernels.0.lengthscale must be float64."
    assert result.exit_code == 2 and result.stderr.startswith(f"{state}: ")
    assert words in result.stderr and "n = 20." in run(None, state, "--show").stdout


def test_names_of_files_that_are_not_utf8(tmp_path):
    path = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.csv")
    state = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.sqlite")
    with open(path, "wb") as file:
        rows(4).write_csv(file)
    result = run(path, state)
    assert result.exit_code == 3 and "\\xe9.csv (after row 20)" in result.stdout
    assert run(path, state).exit_code == 2 and "from " in run(path, state).stderr


def test_what_is_not_printed_is_not_counted(monkeypatch, tmp_path):
    state, path, echo = tmp_path / "state.sqlite", tmp_path / "rows.csv", typer.echo

    def into_a_closed_pipe(text, err=False):
        if not err:
            raise BrokenPipeError(32, "Broken pipe")
        echo(text, err=True)

    ONE.write_csv(path)
    for n_rows in 20, 40:
        with monkeypatch.context() as patch:
            patch.setattr(typer, "echo", into_a_closed_pipe)
            result = run(path, state, "--again")
        assert result.exit_code == 2 and "(Broken pipe), and nothing was counted" in result.stderr
        assert f"n = {n_rows}." in run(path, state, "--again").stdout


def test_a_full_disk(tmp_path):
    """A process may write no file that is longer than the state is now."""
    state, path = tmp_path / "state.sqlite", tmp_path / "rows.csv"
    ONE.write_csv(path)
    run(path, state)
    before, limits = state.read_bytes(), resource.getrlimit(resource.RLIMIT_FSIZE)
    rows(2, 1, n=9000).write_csv(path)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before), limits[1]))
    try:
        result = run(path, state)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (
        result.exit_code == 2 and f"{state}: disk I/O error. Nothing was counted" in result.stderr
    )
    assert state.read_bytes() == before
    assert "n = 9020" in run(path, state).stdout


def test_one_call_at_a_time(monkeypatch, tmp_path):
    state, path = tmp_path / "state.sqlite", tmp_path / "rows.csv"
    ONE.write_csv(path)
    monkeypatch.setattr(calibjax.cli._monitor_state, "_PATIENCE", 0.01)
    with closing(sqlite3.connect(state, isolation_level=None)) as database:
        database.execute("BEGIN IMMEDIATE")
        result = run(path, state)
    assert result.exit_code == 2
    assert f"{state}: database is locked. Nothing was counted" in result.stderr
    assert run(path, state).exit_code == 0


def test_links_and_rights_remain(tmp_path):
    folder, state = tmp_path / "folder", tmp_path / "state.sqlite"
    folder.mkdir()
    state.symlink_to("folder/real.sqlite")
    for frame in ONE, TWO:
        frame.write_csv(tmp_path / "rows.csv")
        run(tmp_path / "rows.csv", state)
        (folder / "real.sqlite").chmod(0o640)
    assert state.is_symlink() and os.stat(folder / "real.sqlite").st_mode & 0o777 == 0o640
    assert [x.name for x in folder.iterdir()] == ["real.sqlite"]


def count_ones(*arguments):
    calibjax.monitoring.CalibrationMonitor = Ones
    count_all(*arguments)


def test_a_call_that_is_killed_has_counted_nothing(monkeypatch, tmp_path):
    """What files hold when all is written, and not yet committed, is the state before."""
    path, state, left = (tmp_path / name for name in ("rows.csv", "state.sqlite", "left"))
    ONE.write_csv(path)
    run(path, state)
    before = evidence_of(state)
    TWO.write_csv(path)
    left.mkdir()

    def killed(*_):
        for file in tmp_path.glob("state.sqlite*"):
            shutil.copy(file, left)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(calibjax.cli._monitor, "echo", killed)
        run(path, state)
    for folder in left, tmp_path:
        assert evidence_of(folder / "state.sqlite") == before
        assert "n = 40" in run(path, folder / "state.sqlite").stdout


def test_processes_that_are_killed_lose_nothing(monkeypatch, tmp_path):
    """The same as one process; `benchmarks.monitor_kills` is the long form, with real monitors."""
    monkeypatch.setattr(calibjax.monitoring, "CalibrationMonitor", Ones)
    write_days(tmp_path, 8, 30, latest=3)
    assert count_with_kills(tmp_path, tmp_path / "killed.sqlite", 2, 2, count_ones) == 2
    count_all(tmp_path, tmp_path / "quiet.sqlite")
    assert evidence_of(tmp_path / "killed.sqlite") == evidence_of(tmp_path / "quiet.sqlite")


@pytest.mark.slow
@pytest.mark.parametrize("lag", [1, 2])
def test_as_the_library_does(tmp_path, lag):
    """Days one by one, of different sizes, and as one log."""
    write_days(tmp_path, 4, 60)
    days = [pl.read_csv(x).head(60 - k) for k, x in enumerate(sorted(tmp_path.glob("*.csv")))]
    pl.concat(days).write_csv(tmp_path / "log.csv")
    options, batches = (*BY, "--lag", lag), []
    for k, frame in enumerate(days):
        frame.write_csv(tmp_path / f"{k}.csv")
        run(tmp_path / f"{k}.csv", tmp_path / "days.sqlite", *options)
        batches.append((cj.Bernoulli(frame["p"].to_numpy()), frame["y"].to_numpy()))
    result = run(tmp_path / "log.csv", tmp_path / "log.sqlite", *options, "--json")
    expected, path = cj.CalibrationMonitor.start(jax.random.key(0), batches[0][0], lag=lag), []
    for batch in batches:
        expected = expected.update(*batch)
        path.append((len(batch[1]), pytest.approx(float(expected.log_e_value), rel=1e-4, abs=1e-5)))
    assert json.loads(result.stdout)["log_e_value"] == path[-1][1]
    for name in "days", "log":
        evidence = evidence_of(tmp_path / f"{name}.sqlite")["evidence"]
        assert [row[2:] for row in evidence] == path


@pytest.mark.slow
def test_labels_that_come_late(tmp_path, monkeypatch):
    """30 weeks, labels one to three weeks late, 20 kills: as the library, each row once."""
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "programs"))
    monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    write_days(tmp_path, 30, 40, latest=3)
    assert count_with_kills(tmp_path, tmp_path / "killed.sqlite", 2, 20) == 20
    expected, seen, path = None, pl.DataFrame({"p": [0.0], "day": [-1]}), []
    for file in sorted(tmp_path.glob("*.csv")):
        known = pl.read_csv(file).drop_nulls()
        new = known.join(seen, on=["p", "day"], how="anti", maintain_order="left")
        seen, predictions = known.select("p", "day"), cj.Bernoulli(new["p"].to_numpy())
        if expected is None:
            expected = cj.CalibrationMonitor.start(jax.random.key(0), predictions, lag=4)
        expected = expected.update(predictions, new["y"].to_numpy())
        path.append((len(new), pytest.approx(float(expected.log_e_value), rel=1e-4, abs=1e-4)))
    evidence = evidence_of(tmp_path / "killed.sqlite")["evidence"]
    assert [row[2:] for row in evidence] == path and len(seen) == sum(n for n, _ in path)
