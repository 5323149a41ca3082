"""The file of `calibjax monitor`: nothing is counted twice, lost or taken for something else."""

import dataclasses
import errno
import json
import math
import os
import subprocess
import sys
from types import SimpleNamespace

import filelock
import jax
import jax.numpy as jnp
import numpy as np
import polars as pl
import pytest
import typer
from typer.testing import CliRunner

import calibjax.cli._monitor
import calibjax.monitoring
from calibjax.cli import app
from calibjax.cli._batch_deduplication import N_REMEMBERED, Batch, Counted, History, NewFile


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Ones:
    """Stands for a monitor, which takes long to compile: its log e-value is that of the last batch.

    It is the number of events, and infinite if one had the probability 0.
    """

    landmarks: object
    log_e_value: jax.Array
    log_max: jax.Array
    kernels: tuple = dataclasses.field(default=(sum,), metadata={"static": True})
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
        return dataclasses.replace(
            self, log_e_value=log_e, log_max=jnp.maximum(self.log_max, log_e)
        )

    def alarm(self, level):
        return self.log_max >= -math.log(level)

    pvalue = property(lambda self: jnp.exp(-self.log_max))
    changed_at = property(lambda self: 25 if self.log_e_value > 0 else 5)


@pytest.fixture(autouse=True)
def monitor_without_compilation(monkeypatch, request):
    if "slow" not in request.keywords:
        monkeypatch.setattr(calibjax.monitoring, "CalibrationMonitor", Ones)


@pytest.fixture
def state(tmp_path):
    return tmp_path / "state.npz"


def rows(name, n_events, seed=0, n=20, by=None, column="p"):
    """A file with other probabilities for each seed, and events that agree with them if None."""
    p, uniform = np.random.default_rng(seed).uniform(0.1, 0.9, (2, n))
    events = uniform < p if n_events is None else np.arange(n) < n_events
    columns = {column: p, "y": events.astype(int)}
    pl.DataFrame(columns | ({} if by is None else {"day": by})).write_csv(name)
    return name


def call(path, state, *options):
    arguments = "monitor", path, "--state", state, "--target", "y", *options
    return CliRunner().invoke(app, [str(x) for x in arguments])


def run(path, state, *options):
    return call(path, state, "--prob", "p", *options)


def by_day(path, state, *options):
    return run(path, state, "--by", "day", *options)


def check_refused(result, *parts):
    """One line with all parts, no verdict, and its status."""
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    (line,) = result.stderr.splitlines()
    for part in parts:
        assert str(part) in line, line


def test_an_alarm_remains(tmp_path, state):
    files = [rows(tmp_path / f"{k}.csv", n, k) for k, n in enumerate((2, 4, 0))]
    assert run(files[0], state).stdout.startswith(
        "No alarm: the largest e-value of 20 rows is 7.39"
    )
    beginning = f"ALARM since {files[1]} (row 40): the largest e-value of"
    for file, n_rows in zip(files[1:], (40, 60), strict=True):
        result = run(file, state)
        assert result.exit_code == 1
        assert result.stdout.startswith(f"{beginning} {n_rows} rows is 54.6, and an alarm needs 20")
        said, granted = result.stdout.splitlines()
        assert said.endswith(f"wrong since about {files[1]} (row 25).")
        assert granted.endswith("if they were not, begin a new --state with --lag.")
    found = json.loads(run(files[2], state, "--again", "--json").stdout)
    expected = {"alarm": True, "first_alarm": str(files[1]), "first_alarm_row": 40, "n_rows": 80}
    expected |= {"log_e_value": 0.0, "level": 0.05, "changed_at": 25, "changed_in": str(files[1])}
    assert {name: found[name] for name in expected} == expected


def test_the_lag_of_the_first_call_is_kept(tmp_path, state):
    files = [rows(tmp_path / f"{k}.csv", 4, k) for k in range(3)]
    (said,) = run(files[0], state, "--lag", "4").stdout.splitlines()
    assert said.startswith("ALARM since")
    # `load` refuses a file of another lag than that of the monitor.
    assert json.loads(run(files[1], state, "--json").stdout)["lag"] == 4
    check_refused(run(files[2], state, "--lag", "2"), "the same --lag as in its first call, 4, got")
    assert run(files[2], tmp_path / "other.npz", "--lag", "0").exit_code == 2


def test_an_alarm_of_a_log_has_its_day(tmp_path, state):
    days = np.repeat(["2026-03-01", "2026-03-02", "2026-03-03"], 10)
    log = rows(tmp_path / "log.csv", 13, n=30, by=days)
    found = json.loads(by_day(log, state, "--json", "--level", "0.1").stdout)
    assert (found["first_alarm"], found["first_alarm_row"]) == ("2026-03-01", 10)
    assert (found["changed_at"], found["changed_in"]) == (25, "2026-03-03")
    later = rows(tmp_path / "later.csv", 0, 1, by="2026-03-04")
    assert by_day(later, state).stdout.startswith("ALARM since 2026-03-01 (row 10): ")


def test_streams_share_the_level(tmp_path, state):
    """Evidence e^n for n events: two streams need e^n >= 40 for the first alarm, then 20."""
    regions = np.tile(["south", "north"], 10)
    counts = [{"north": 3, "south": 2}, {"north": 2, "south": 4}, {"north": 0, "south": 0}]
    files = []
    for k, of_regions in enumerate(counts, 1):
        path = rows(tmp_path / f"{k}.csv", 0, k, by=f"day {k}")
        events = np.arange(20) // 2 < np.array([of_regions[name] for name in regions.tolist()])
        pl.read_csv(path).with_columns(y=events.astype(int), region=regions).write_csv(path)
        files.append(path)
    options = "--stream", "region"
    result = by_day(files[0], state, *options)
    assert result.exit_code == 0, result.output
    said, _, *lines = result.stdout.splitlines()
    assert said.startswith("No alarm in 2 streams of region; 20 rows; a false one ever rings")
    assert lines[0].split() == ["north", "10", "20.1", "0.1"]
    assert lines[1].split() == ["south", "10", "7.39", "0.14"]
    picture = tmp_path / "evidence.png"
    result = by_day(files[1], state, *options, "--plot", picture)
    assert result.exit_code == 1 and picture.stat().st_size > 0
    said, _, *lines = result.stdout.splitlines()
    assert said.startswith("ALARM in 2 of 2 streams of region, new: north, south; 40 rows;")
    assert lines[0].split() == "south 20 54.6 0.037 day 2 day 2".split()
    found = json.loads(by_day(files[2], state, *options, "--json").stdout)
    assert found["alarm"] and found["n_rows"] == 60 and found["new_alarms"] == []
    north = found["streams"]["north"]
    assert (north["first_alarm"], north["first_alarm_row"]) == ("day 2", 20)
    assert north["pvalue"] == pytest.approx(np.exp(-3)) and north["log_e_value"] == 0
    check_refused(by_day(files[2], state, *options), "expected values after day 3")
    check_refused(by_day(files[2], state), "the same --stream", "region, got none")
    new = rows(tmp_path / "4.csv", 0, 4, by="day 4")
    pl.read_csv(new).with_columns(region=pl.lit("west")).write_csv(new)
    check_refused(by_day(new, state, *options), "row 2: expected one of the streams", "got west")
    pl.read_csv(new).with_columns(region=pl.lit("south")).write_csv(new)
    assert "80 rows" in by_day(new, state, *options).stdout


def test_infinite_evidence(tmp_path, state):
    path = tmp_path / "impossible.csv"
    path.write_text("p,y\n0,1\n.5,0\n.5,1\n")
    result = run(path, state, "--json")
    found = json.loads(result.stdout, parse_constant=pytest.fail)
    assert result.exit_code == 1 and found["alarm"]
    assert found["log_e_value"] == "Infinity" and found["pvalue"] == "< 1e-37"
    place = f"{path}, column y, row 2"
    assert found["impossible"].startswith(f"{place}: 1 had the probability 0")
    result = run(path, state, "--again")
    assert (
        result.exit_code == 1 and "6 rows is Infinity" in result.stdout and place in result.stdout
    )


def test_rows_are_counted_once(tmp_path, state):
    monday, tuesday = (rows(tmp_path / f"{k}.csv", 2, k) for k in range(2))
    run(monday, state)
    run(tuesday, state)
    before = state.read_bytes()
    check_refused(run(monday, state), f"{monday}: the 20 rows were counted before, from {monday}")
    copy = tmp_path / "copy.csv"
    pl.read_csv(monday).select("y", "p").write_csv(copy)
    check_refused(run(copy, state), f"{copy}: the 20 rows were counted before, from {monday} at 2")
    both = tmp_path / "both.csv"
    pl.concat([pl.read_csv(monday), pl.read_csv(tuesday)]).write_csv(both)
    check_refused(run(both, state), f"{both}: the first 20 rows were counted", monday, "--again")
    assert state.read_bytes() == before
    assert "of 80 rows" in run(both, state, "--again").stdout
    check_refused(run(both, state), f"{both}: the first 20 rows were counted")


def test_rows_in_another_order(tmp_path, state):
    first = rows(tmp_path / "first.csv", 3)
    run(first, state)
    again = tmp_path / "sorted.csv"
    pl.read_csv(first).sort("p").write_csv(again)
    check_refused(
        run(again, state), f"{again}: the 20 rows were counted before in another order, from", first
    )
    log = tmp_path / "log.csv"
    pl.concat([pl.read_csv(again), pl.read_csv(rows(tmp_path / "new.csv", 3, 1))]).write_csv(log)
    check_refused(run(log, state), f"{log}: the first 20 rows were counted before in another order")
    monday = rows(tmp_path / "monday.csv", 3, by="1")
    by_day(monday, tmp_path / "log.npz")
    pl.read_csv(monday).sort("p").with_columns(day=2).write_csv(monday)
    check_refused(by_day(monday, tmp_path / "log.npz"), "the rows of 2 were counted before in")


def test_a_log_of_few_different_rows_grows(tmp_path, state):
    """A model that always says the same: the order of its events is what is not chance."""
    events = np.random.default_rng(0).integers(0, 2, 100)
    log = tmp_path / "log.csv"
    pl.DataFrame({"p": 0.5, "y": events[:80]}).write_csv(log)
    assert "of 80 rows" in run(log, state).stdout
    pl.DataFrame({"p": 0.5, "y": events}).write_csv(log)
    check_refused(run(log, state), f"{log}: the first 80 rows were counted before, from {log}")
    # Days on which nothing happens are alike, and so are days in the order of their events.
    for n_events in 0, 20:
        few = tmp_path / f"{n_events}.npz"
        for day in 1, 2:
            frame = pl.DataFrame({"p": [0.5] * 40, "y": np.arange(40) < n_events, "day": day})
            frame.with_columns(pl.col("y").cast(int)).write_csv(log)
            assert f"of {40 * day} rows" in by_day(log, few).stdout


def test_few_rows_may_be_alike_by_chance(tmp_path, state):
    one = tmp_path / "one.csv"
    one.write_text("p,y\n0.5,0\n0.5,1\n")
    run(one, state)
    more = tmp_path / "more.csv"
    more.write_text("p,y\n0.5,0\n0.5,1\n0.5,0\n")
    assert "of 5 rows" in run(more, state).stdout
    check_refused(run(one, state), "the 2 rows were counted before")
    # Days tell rows apart that have the same numbers.
    log = rows(tmp_path / "log.csv", 0, n=4, by=["1", "1", "2", "2"])
    pl.read_csv(log).with_columns(p=0.5).write_csv(log)
    assert "of 4 rows" in by_day(log, tmp_path / "log.npz").stdout


def test_days_ascend(tmp_path, state):
    def log(*days, seed=0):
        return rows(tmp_path / f"{days[0]}.csv", 1, seed, n=len(days) * 5, by=np.repeat(days, 5))

    assert by_day(log("day 8", "day 9", "day 10"), state).exit_code == 0
    before = state.read_bytes()
    column = "column day: expected values after day 10, the last one"
    check_refused(
        by_day(log("day 10", seed=1), state),
        column,
        "got day 10; none is new; 5 of the 5 rows up to then were not counted",
    )
    part = by_day(log("day 9", "day 10", "day 11", seed=1), state)
    check_refused(part, column, "got day 9; from day 11 on they are new")
    descending = log("day 12", "day 11", "day 12", seed=1)
    check_refused(
        by_day(descending, state), "row 7: expected values in ascending order, got day 11"
    )
    assert state.read_bytes() == before
    assert "of 20 rows" in by_day(log("day 3", seed=1), state, "--again").stdout
    check_refused(by_day(log("day 9.5", seed=1), state), column)
    assert "of 25 rows" in by_day(log("day 11", seed=1), state).stdout

    numbers = tmp_path / "numbers.npz"
    assert by_day(log(9.5, 10, seed=2), numbers).exit_code == 0
    check_refused(by_day(log(9, seed=3), numbers), "after 10")
    missing = rows(tmp_path / "missing.csv", 0, by=[11] * 19 + [None])
    check_refused(by_day(missing, numbers), "column day, row 21: expected a value, got nothing")


def test_days_with_points_have_the_day_first(tmp_path, state):
    def log(*days):
        return rows(tmp_path / "log.csv", 0, len(days[0]), n=10, by=np.repeat(days, 5))

    assert "of 10 rows" in by_day(log("30.09.2026", "1.10.2026"), state).stdout
    check_refused(by_day(log("30.9.2026", "1.10.2026"), state), "after 1.10.2026", "none is new")
    for days in (("09/30/2026", "10/01/2026"), ("30-09-2026", "01-10-2026")):
        check_refused(
            by_day(log(*days), state), "row 2: expected a date such as 2026-03-31 or", "got"
        )


def test_a_corrected_file_is_refused(tmp_path, state):
    """Of 20 rows 15 are as they were: more than half, and at least ten."""
    first = rows(tmp_path / "first.csv", 2)
    run(first, state)
    run(rows(tmp_path / "second.csv", 2, 1), state)
    before = state.read_bytes()
    corrected = tmp_path / "corrected.csv"
    frame = pl.read_csv(first).with_row_index()
    flipped = pl.when(pl.col("index") < 5).then(1 - pl.col("y")).otherwise(pl.col("y"))
    frame.with_columns(y=flipped).drop("index").sample(20, shuffle=True, seed=0).write_csv(
        corrected
    )
    words = (
        f"{corrected}: 15 of the 20 rows are among the 20 that were counted before, from {first}"
    )
    check_refused(run(corrected, state), words, "--again counts all")
    # So is a log that has grown, if its old rows were corrected.
    grown = tmp_path / "grown.csv"
    more = pl.read_csv(rows(tmp_path / "more.csv", 2, 3, n=40))
    pl.concat([pl.read_csv(corrected), more]).write_csv(grown)
    check_refused(run(grown, state), f"{grown}: 15 of the 60 rows are among the 20 that")
    assert state.read_bytes() == before
    frame.with_columns(y=pl.lit(1), p=1 - pl.col("p")).drop("index").write_csv(corrected)
    assert "of 60 rows" in run(corrected, state).stdout
    # Under the day of its delivery, of a stream of days.
    days = tmp_path / "days.npz"
    by_day(rows(tmp_path / "day.csv", 2, by="2026-03-04"), days)
    flipped = frame.with_columns(y=flipped, day=pl.lit("2026-03-05")).drop("index")
    flipped.write_csv(corrected)
    words = "15 of the 20 rows of 2026-03-05 are among the 20", "as 2026-03-04, at"
    check_refused(by_day(corrected, days), *words)


def test_rows_that_are_few_or_alike_are_no_correction(tmp_path, state):
    """Nine rows, and 20 of two kinds, are the same by chance."""
    nine = rows(tmp_path / "nine.csv", 2, n=9)
    run(nine, state)
    pl.read_csv(nine).with_columns(y=1 - pl.col("y")).head(1).write_csv(tmp_path / "one.csv")
    one = pl.concat([pl.read_csv(nine).tail(8), pl.read_csv(tmp_path / "one.csv")])
    one.write_csv(tmp_path / "one.csv")
    assert "of 18 rows" in run(tmp_path / "one.csv", state).stdout
    for k in 1, 2:
        path = tmp_path / f"alike{k}.csv"
        pl.DataFrame({"p": [0.5] * 20, "y": [1] * k + [0] * (20 - k)}).write_csv(path)
        assert run(path, tmp_path / "alike.npz").exit_code == 0


def test_the_rows_that_are_remembered_are_the_last_ones():
    history = History(rows=np.arange(N_REMEMBERED, dtype=np.uint32) + 10)
    model = SimpleNamespace(table=SimpleNamespace(source=""))
    file = NewFile(model, None, [Batch("", 0, np.arange(3, dtype=np.uint64))])
    kept = history.after(file, "").rows
    assert len(kept) == N_REMEMBERED and kept[[0, -4, -1]].tolist() == [13, 65545, 2]

    def parts(*sizes):
        counted = tuple(Counted("", n, ("", ""), 0) for n in sizes)
        return [x.tolist() for x in History((), counted, np.array([5, 6, 7])).remembered()]

    assert parts(4, 2, 1) == [[], [5, 6], [7]] and parts(4, 2) == [[5], [6, 7]]


def test_a_late_file_is_no_copy(tmp_path, state):
    by_day(rows(tmp_path / "first.csv", 2, by=np.repeat([1, 2], 10)), state)
    late = rows(tmp_path / "late.csv", 2, 1, by=1)
    words = "after 2, the last one", "got 1; none is new; 20 of the 20 rows up to then were not"
    check_refused(by_day(late, state), *words, "--again counts all rows")
    again = tmp_path / "again.csv"
    pl.concat([pl.read_csv(tmp_path / "first.csv"), pl.read_csv(late)[:3]]).write_csv(again)
    words = "the rows were sorted by day", "20 of the 23 rows up to then were counted before"
    result = by_day(again, state)
    assert result.exit_code == 2 and all(x in result.stderr for x in words), result.stderr


def test_streams_that_come_later(tmp_path, state):
    """Places are reserved: with three streams of which one comes later the alarm needs 60."""

    def log(day, region, n_events):
        path = rows(tmp_path / f"{day}.csv", n_events, day, by=day)
        pl.read_csv(path).with_columns(region=pl.Series(region)).write_csv(path)
        return path

    two = ["north"] * 10 + ["south"] * 10
    first, east = log(1, two, 4), log(2, ["east"] * 20, 5)
    plain = tmp_path / "plain.npz"
    options = "--stream", "region"
    by_day(first, plain, *options)
    words = "row 2: expected one of the streams that share the level, north, south", "--reserve"
    check_refused(by_day(east, plain, *options), *words, "--where \"region != 'east'\"", "got east")
    result = by_day(east, plain, *options, "--where", "region = 'east'")
    assert "the same" not in result.stderr and "got east" in result.stderr
    result = by_day(first, state, *options, "--reserve", "1")
    assert result.exit_code == 0
    assert result.stdout.startswith("No alarm in 2 streams of region; 20 rows; a false one ever")
    assert "in any of them or of 1 to come with" in result.stdout
    assert result.stdout.splitlines()[2].split() == ["north", "10", "54.6", "0.055"]
    found = json.loads(by_day(east, state, *options, "--json").stdout)
    assert found["new_alarms"] == ["north", "east"] and found["streams"]["east"]["n_rows"] == 20
    assert found["streams"]["east"]["pvalue"] == pytest.approx(3 * np.exp(-5))
    # Holm: without east, two are left, and north has had evidence enough since the same day.
    assert found["streams"]["north"]["pvalue"] == pytest.approx(2 * np.exp(-4))
    west = log(3, ["west"] * 20, 0)
    check_refused(by_day(west, state, *options), "north, south, east", "got west")
    check_refused(by_day(west, state, *options, "--reserve", "2"), "the same --reserve", "1, got 2")
    check_refused(run(first, tmp_path / "x.npz", "--reserve", "1"), "--reserve expects --stream")


def test_rows_are_sorted_by_their_days(tmp_path, state):
    """The last day has 10 rows, 3 of them events: all of the log e-value."""
    log = rows(tmp_path / "log.csv", 13, n=30, by=np.repeat([9, 10, 11], 10))
    pl.read_csv(log).reverse().write_csv(log)
    result = by_day(log, state, "--json")
    assert "log.csv: the rows were sorted by day, those of one value as they were" in result.stderr
    assert json.loads(result.stdout)["log_e_value"] == 0
    assert json.loads(result.stdout)["first_alarm"] == "9"


def test_weeks_of_a_new_year_and_dates_in_words(tmp_path, state):
    weeks = rows(tmp_path / "weeks.csv", 0, by=np.repeat([51, 52, 1, 2], 5))
    hint = "got 1 after 52; for weeks or months of several years, name the year first"
    check_refused(by_day(weeks, state), hint)
    by_day(rows(tmp_path / "old.csv", 0, 1, by=52), state)
    check_refused(by_day(rows(tmp_path / "new.csv", 0, 2, by=1), state), "name the year first")
    for day in "30.06.25", "Jun 30 2025", "6/30/25", "3 March":
        path = rows(tmp_path / "day.csv", 0, 3, by=day)
        check_refused(by_day(path, state), f"other formats are not understood, got {day}")
    assert by_day(rows(tmp_path / "day.csv", 0, 3, by="market 5"), state).exit_code == 0


def test_pairs_of_rows_are_seen(tmp_path, state):
    path = rows(tmp_path / "games.csv", 4)
    one = pl.read_csv(path).with_row_index()
    other = one.with_columns(p=1 - pl.col("p"), y=1 - pl.col("y"))
    pl.concat([one, other]).sort("index").drop("index").write_csv(path)
    hint = "games.csv: rows come in pairs whose probabilities and events add up to 1"
    assert hint in run(path, state).stderr
    pl.concat([one, one]).sort("index").drop("index").write_csv(path)
    assert run(path, tmp_path / "new.npz").stderr == ""


def test_a_day_that_is_a_copy(tmp_path, state):
    yesterday = rows(tmp_path / "yesterday.csv", 1, by="2026-03-04")
    today = rows(tmp_path / "today.csv", 1, by="2026-03-05")
    by_day(yesterday, state)
    line = f"rows of 2026-03-05 were counted before, from {yesterday}, as 2026-03-04"
    check_refused(by_day(today, state), f"{today}: the {line}")
    assert "of 40 rows" in by_day(today, state, "--again").stdout


def test_rows_of_a_cluster_have_one_stake(tmp_path, state):
    days = np.repeat(["2026-03-01", "2026-03-02"], 10)
    log = rows(tmp_path / "log.csv", 20, by=days)
    pl.read_csv(log).with_columns(site=pl.Series([*"aabbbccccc" * 2])).write_csv(log)
    # The last day has three clusters, each of which counts as one row here.
    found = json.loads(by_day(log, state, "--cluster", "site", "--json").stdout)
    assert (found["n_rows"], found["log_e_value"]) == (20, 3.0)
    check_refused(by_day(log, state, "--again"), "the same --cluster", "site, got none")
    check_refused(run(log, tmp_path / "new.npz", "--cluster", "none"), "no column none")


def test_another_model_is_refused(tmp_path, state):
    first = rows(tmp_path / "first.csv", 2)
    other = rows(tmp_path / "other.csv", 2, 1, column="q", by="day 1")
    pl.read_csv(other).with_columns(p="q", no=1 - pl.col("q")).write_csv(other)
    run(first, state)
    before = state.read_bytes()
    words = f"{state}: expected the same columns as in its first call, --target y --prob p, got"
    check_refused(call(other, state, "--prob", "q"), words, "--target y --prob q")
    check_refused(call(other, state, "--mean", "p", "--sd", "q"), words)
    check_refused(by_day(other, state), "the same --by", "none, got day")
    check_refused(run(other, state, "--level", "0.1"), "the same --level", "0.05, got 0.1")
    assert state.read_bytes() == before
    assert run(other, state, "--level", "0.05").exit_code == 0

    pets = tmp_path / "pets.csv"
    pets.write_text("p_cat,p_dog,y\n0.5,0.5,cat\n0.5,0.5,dog\n")
    run_pets = ("--probs", "p_*")
    new = tmp_path / "pets.npz"
    assert call(pets, new, *run_pets).exit_code == 0
    pets.write_text("p_cow,p_dog,y\n0.5,0.5,cow\n0.5,0.5,dog\n")
    check_refused(call(pets, new, *run_pets), "the same classes", "cat, dog, got cow, dog")


def with_header(content, **changes):
    def change(arrays):
        header = json.loads(arrays["header"].tobytes()) | changes
        return arrays | {"header": np.frombuffer(json.dumps(header).encode(), np.uint8)}

    return changed(content, change)


def changed(path, change):
    with np.load(path) as file:
        arrays = change(dict(file))
    np.savez(path, **arrays)


BROKEN = {
    "no file of NumPy": (lambda path: path.write_text("no numbers"), "a whole file"),
    "empty": (lambda path: path.write_bytes(b""), "a whole file"),
    "a part": (lambda path: path.write_bytes(path.read_bytes()[:-40]), "a whole file"),
    "other arrays": (lambda path: np.savez(path, p=np.ones(3)), "a whole file"),
    "NaN": (lambda path: changed(path, lambda x: x | {"log_max": np.float32("nan")}), "log_max"),
    "array": (lambda path: changed(path, lambda x: x | {"more": np.ones(3)}), "more"),
    "shape": (lambda path: changed(path, lambda x: x | {"log_max": np.ones(3)}), "log_max must be"),
    "version": (lambda path: with_header(path, version=1), "version 6, got 1"),
    "schema": (lambda path: with_header(path, schema="x"), "schema calibjax monitor, got x"),
    "family": (lambda path: with_header(path, family="Normal"), "Bernoulli, got Normal"),
    "kernels": (lambda path: with_header(path, kernels="K"), "kernels (sum), got K"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_files(tmp_path, state, case):
    run(rows(tmp_path / "first.csv", 2), state)
    breaks, message = BROKEN[case]
    breaks(state)
    before = state.read_bytes()
    check_refused(run(rows(tmp_path / "second.csv", 2, 1), state), f"{state}: ", message)
    assert state.read_bytes() == before


def test_what_is_not_printed_is_not_counted(monkeypatch, tmp_path, state):
    echo = typer.echo

    def into_a_closed_pipe(text, err=False):
        if not err:
            raise BrokenPipeError(errno.EPIPE, "Broken pipe")
        echo(text, err=True)

    files = [rows(tmp_path / f"{k}.csv", 2, k) for k in range(2)]
    with monkeypatch.context() as patch:
        patch.setattr(typer, "echo", into_a_closed_pipe)
        check_refused(run(files[0], state), "could not be printed (Broken pipe)")
        assert not state.exists()
    assert run(files[0], state).exit_code == 0
    before = state.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(typer, "echo", into_a_closed_pipe)
        check_refused(run(files[1], state), "nothing was counted")
    assert state.read_bytes() == before
    assert "of 40 rows" in run(files[1], state).stdout
    assert not list(tmp_path.glob(".*"))


def test_a_full_disk(monkeypatch, tmp_path, state):
    files = [rows(tmp_path / f"{k}.csv", 2, k) for k in range(2)]
    run(files[0], state)
    before = state.read_bytes()

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    check_refused(run(files[1], state), f"{state}: No space left on device")
    assert state.read_bytes() == before and not list(tmp_path.glob(".*"))


def test_evidence_that_is_not_a_number(monkeypatch, tmp_path, state):
    files = [rows(tmp_path / f"{k}.csv", 2, k) for k in range(2)]
    run(files[0], state)
    before = state.read_bytes()

    def update(self, predictions, targets, where):
        return dataclasses.replace(self, log_e_value=jnp.nan * self.log_e_value)

    monkeypatch.setattr(Ones, "update", update)
    check_refused(run(files[1], state), f"{state}: nothing was counted", "log_e_value", "NaN")
    assert state.read_bytes() == before


def test_one_call_at_a_time(monkeypatch, tmp_path, state):
    monkeypatch.setattr(calibjax.cli._monitor, "_PATIENCE", 0.01)
    path = rows(tmp_path / "rows.csv", 2)
    with filelock.FileLock(f"{state}.lock"):
        result = run(path, state)
    assert result.exit_code == 2 and not state.exists()
    waiting, gave_up = result.stderr.splitlines()
    assert waiting == f"{state}: another call is using this file; waiting for it."
    assert gave_up.startswith(f"{state}: other calls have been using this file for 0.01 seconds")
    assert run(path, state).exit_code == 0


def test_links_and_rights_remain(tmp_path, state):
    folder = tmp_path / "folder"
    folder.mkdir()
    state.symlink_to("folder/real.npz")
    files = [rows(tmp_path / f"{k}.csv", 2, k) for k in range(2)]
    run(files[0], state)
    (folder / "real.npz").chmod(0o640)
    assert "of 40 rows" in run(files[1], state).stdout
    assert state.is_symlink() and os.stat(folder / "real.npz").st_mode & 0o777 == 0o640
    assert sorted(x.name for x in folder.iterdir()) == ["real.npz", "real.npz.lock"]


@pytest.mark.slow
def test_processes_at_the_same_time(tmp_path, state):
    """Three calls at once; one into a pipe that nobody reads; an event of probability 0."""
    files = [rows(tmp_path / f"{k}.csv", None, k) for k in range(5)]

    def start(file, *options, stdout=subprocess.PIPE):
        arguments = ["monitor", file, "--state", state, "--prob", "p", "--target", "y", *options]
        return subprocess.Popen(
            [sys.executable, "-m", "calibjax", *map(str, arguments)],
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
        )

    first = start(files[0])
    first.communicate()
    assert first.returncode == 0
    calls = [start(file) for file in files[1:4]]
    texts = [process.communicate()[0] for process in calls]
    assert [process.returncode for process in calls] == [0, 0, 0]
    assert sorted(text.split("value of ")[1][:2] for text in texts) == ["40", "60", "80"]

    before = state.read_bytes()
    reading, writing = os.pipe()
    os.close(reading)
    closed = start(files[4], stdout=writing)
    os.close(writing)
    assert "nothing was counted" in closed.communicate()[1] and closed.returncode == 2
    assert state.read_bytes() == before

    impossible = tmp_path / "impossible.csv"
    impossible.write_text("p,y\n0,1\n.5,0\n.5,1\n")
    alarm = start(impossible, "--json")
    found = json.loads(alarm.communicate()[0])
    assert alarm.returncode == 1 and found["log_e_value"] == "Infinity" and found["n_rows"] == 83
