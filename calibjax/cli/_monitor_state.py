"""The streams of `calibjax monitor`, each with a monitor, its evidence over time and its alarm.

They are in a file, a database of SQLite, in which each call is one transaction.
"""

import dataclasses
import io
import itertools
import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from calibjax import monitoring
from calibjax._base.text import listed
from calibjax._data.distribution import Distribution, Labels
from calibjax.cli._columns import Columns
from calibjax.cli._new_rows import Batch, NewRows, sort_key
from calibjax.frames import Model, cluster_numbers

# The setting of jax without which a state of 64 bits cannot be read.
_BITS = "JAX_ENABLE_X64"
#: What the first call decides, and what it decides if it says nothing.
FIRST = {"--reserve": 0, "--lag": 1, "--level": 0.05}
#: The names of all that calls agree in.
AGREED = {*FIRST, "columns", "classes", "levels", "--by", "--cluster", "--stream", "--id", _BITS}
# Options of columns that may differ from call to call: levels are compared as numbers, and a file
# whose probabilities are rounded may need what another one does not.
_MAY_DIFFER = "levels normalize sort_quantiles separator decimal drop_missing where".split()


class Evidence(NamedTuple):
    """The evidence of a stream after a batch, and how many of its rows the batch has."""

    batch: str
    n_rows: int
    log_e_value: float


@dataclasses.dataclass
class Stream:
    """The rows of one value of --stream; without --stream, all rows.

    Args:
        name: the value, "" without --stream; None for a reserved stream.
        monitor: the file of its monitor.
        largest_log_e_value: the logarithm of the largest e-value so far.
        change_point: the number of rows before the estimated onset of miscalibration, as
            estimated until the alarm.
        alarm: the batch in which the alarm rang, which is never withdrawn; None if it did not.
        alarm_row: the number of rows until the end of this batch.
        n_sharing: the number of streams without an alarm until then, which shared the level.
        zero_probability: the first row with an outcome of probability 0, as text.
        evidence: what it was after each batch that has rows of the stream, in their order.
    """

    name: str | None
    monitor: bytes
    largest_log_e_value: float = 0.0
    change_point: int = 0
    alarm: str | None = None
    alarm_row: int | None = None
    n_sharing: int | None = None
    zero_probability: str | None = None
    evidence: list[Evidence] = dataclasses.field(default_factory=list)

    @property
    def log_e_value(self) -> float:
        """The logarithm of the e-value of all its rows."""
        return self.evidence[-1].log_e_value if self.evidence else 0.0

    @property
    def n_rows(self) -> int:
        """The number of its rows in all calls."""
        return sum(batch.n_rows for batch in self.evidence)

    def number_of(self, row: int) -> int:
        """The number, from 1, of the batch of a row, which is counted from 0 in all calls."""
        ends = itertools.accumulate(batch.n_rows for batch in self.evidence)
        return min(1 + sum(end <= row for end in ends), len(self.evidence))

    @property
    def change_batch(self) -> str:
        """The name of the batch in which the model began to be wrong."""
        return self.evidence[self.number_of(self.change_point) - 1].batch


@dataclasses.dataclass
class MonitorState:
    """The streams, and what all calls agree in.

    Args:
        options: what all calls agree in, such as the columns and --level.
        streams: those that were seen, and those for which --reserve keeps a part of the level.
        new_alarms: the streams in which the alarm rang in this call.
        numbers, notes: of the rows of this call, as in `NewRows`.
    """

    options: dict[str, Any]
    streams: list[Stream]
    new_alarms: list[str] = dataclasses.field(default_factory=list)
    numbers: dict[str, int] = dataclasses.field(
        default_factory=lambda: {"n_new": 0, "n_known": 0, "n_late": 0}
    )
    notes: Sequence[str] = ()

    @property
    def level(self) -> float:
        """The level of the alarm, of all streams together."""
        return self.options["--level"]

    @property
    def n_rows(self) -> int:
        """The number of rows in all calls."""
        return sum(stream.n_rows for stream in self.streams)

    @property
    def by_name(self) -> dict[str, Stream]:
        """The streams that were seen."""
        return {stream.name: stream for stream in self.streams if stream.name is not None}

    @property
    def alarms(self) -> list[str]:
        """The streams in which an alarm ever rang."""
        return [name for name, stream in self.by_name.items() if stream.alarm is not None]

    @property
    def n_sharing(self) -> int:
        """The number of streams that share the level from now on, those without an alarm."""
        return len(self.streams) - len(self.alarms)

    def pvalues(self) -> dict[str, float]:
        """The p-values of the streams, adjusted for their number, reserved ones included."""
        streams: dict[int, Any] = dict(enumerate(self.streams))
        found = monitoring.holm_pvalues(streams)
        return {x.name: float(found[k]) for k, x in enumerate(self.streams) if x.name is not None}


def started(model: Model, batch: Batch, options: dict[str, Any], seed: int) -> MonitorState:
    """The state before the first row, for predictions like those of a batch."""
    n = len(model.targets)
    if n < 2:
        raise ValueError(f"{model.table.source}: a new --state needs at least 2 rows, got {n}.")
    names = sorted(set(_streams_of(model, options).tolist()), key=sort_key)
    n_streams = len(names) + options["--reserve"]
    # The functions of bets must not depend on later predictions, which may use targets.
    rows = slice(max(len(batch.hashes), 2))
    example = jax.tree.map(lambda x: np.asarray(x)[rows], model.predictions)
    # All streams begin with the same functions, and the first alarm needs the whole evidence.
    saved = _saved(_monitor(example, options, options["--level"] / n_streams, seed))
    seen = [Stream(name, saved) for name in names]
    return MonitorState(options, seen + [Stream(None, saved) for _ in range(options["--reserve"])])


def count(state: MonitorState, path: Path, new: NewRows) -> None:
    """Adds the new rows of a file to the evidence of the state in a path, in their order."""
    model, state.numbers, state.notes = new.model, new.numbers, new.notes
    if not new.updates:
        return
    cluster, clusters = state.options["--cluster"], None
    if cluster is not None:
        clusters = cluster_numbers(model.table.typed(cluster))
    names = _streams_of(model, state.options)
    _take_reserved(state, model, names)
    # Its numbers do not count, and are not computed; the same row twice, since an example needs
    # two.
    example = jax.tree.map(lambda x: np.asarray(x)[[0, 0]], model.predictions)
    like = jax.eval_shape(lambda p: _monitor(p, state.options), example)
    like = dataclasses.replace(like, key=jax.random.key(0))
    streams = {name: state.by_name[name] for name in dict.fromkeys(names.tolist())}
    try:
        monitors = {name: like.load(io.BytesIO(x.monitor)) for name, x in streams.items()}
    except ValueError as error:
        raise ValueError(
            f"{path}: the monitor in this state does not fit, and its evidence is kept: {error} "
            "Give predictions as in the first call, in the same precision, or a copy of the state."
        ) from error
    ends = np.cumsum([n for _, n in new.updates])
    parts = [
        {name: rows[names[rows] == name] for name in dict.fromkeys(names[rows].tolist())}
        for rows in np.split(np.arange(len(names)), ends[:-1])
    ]
    # Parts that have the same number of rows share what is compiled.
    size = max(rows.size for part in parts for rows in part.values())

    def after(name: str, rows: np.ndarray) -> monitoring.CalibrationMonitor:
        """The monitor of a stream after some rows, which are filled up to `size`."""
        filled = rows[np.minimum(np.arange(size), rows.size - 1)]
        # With NumPy: jax would compile for each number of rows.
        predictions: Any = jax.tree.map(lambda x: np.asarray(x)[filled], model.predictions)
        options: Any = {} if clusters is None else {"clusters": clusters[filled]}
        where = np.arange(size) < rows.size
        return monitors[name].update(predictions, model.targets[filled], where=where, **options)

    for (batch, _), part in zip(new.updates, parts, strict=True):
        for name, rows in part.items():
            try:
                monitor = after(name, rows)
            except ValueError as error:
                raise ValueError(f"{model.table.source}, batch {batch}: {error}") from error
            stream, monitors[name] = streams[name], monitor
            stream.evidence.append(Evidence(batch, rows.size, float(monitor.log_e_value)))
            stream.largest_log_e_value = float(monitor.largest_log_e_value)
            if stream.alarm is None:
                stream.change_point = int(monitor.change_point)
            stream.zero_probability = stream.zero_probability or zero_probability_row(model, rows)
        _ring(state, batch)
    for name, stream in streams.items():
        stream.monitor = _saved(monitors[name])


def _streams_of(model: Model, options: dict[str, Any]) -> np.ndarray:
    """The name of the stream of each row."""
    name = options["--stream"]
    return np.full(len(model.targets), "") if name is None else model.table.typed(name).texts()


def _take_reserved(state: MonitorState, model: Model, names: np.ndarray) -> None:
    """Gives new streams of a file the parts of the level that are reserved for them."""
    reserved = [stream for stream in state.streams if stream.name is None]
    new = [name for name in dict.fromkeys(names.tolist()) if name not in state.by_name]
    for stream, name in zip(reserved, new, strict=False):
        stream.name = name
    for name in new[len(reserved) :]:
        column, shared = state.options["--stream"], listed(list(state.by_name))
        words = (
            f"one of the streams that share the level, {shared} (a first call with --reserve 5 "
            "reserves five more; now leave the new one out, by --where "
            f"\"{column} != '{name}'\", and begin another --state for it)"
        )
        model.table.check(column, names != name, words)


def _monitor(
    example: Distribution, options: dict[str, Any], level: float = 0.5, seed: int = 0
) -> monitoring.CalibrationMonitor:
    """A monitor before its first row, for predictions like those of an example."""
    key, lag = jax.random.key(seed), options["--lag"]
    return monitoring.CalibrationMonitor.start(key, example, lag=lag, level=level)


def _ring(state: MonitorState, batch: str) -> None:
    """The alarms of a state that ring at the end of a batch."""
    pvalues, n_sharing, streams = state.pvalues(), state.n_sharing, state.by_name
    new = [x for x in streams if streams[x].alarm is None and pvalues[x] <= state.level]
    state.new_alarms += new
    for stream in sorted((streams[name] for name in new), key=lambda x: -x.largest_log_e_value):
        stream.alarm, stream.alarm_row, stream.n_sharing = batch, stream.n_rows, n_sharing
        n_sharing -= 1


def zero_probability_row(model: Model, rows: np.ndarray) -> str | None:
    """The first of some rows with a label to which its prediction gave the probability 0."""
    if not isinstance(model.predictions, Labels):
        return None
    probabilities = np.asarray(model.predictions.label_probabilities())[rows]
    stated = probabilities[np.arange(len(rows)), model.targets[rows]]
    # Smaller numbers are 0 for the arithmetic of jax.
    is_zero = stated < np.finfo(stated.dtype).tiny
    if not is_zero.any():
        return None
    row = int(rows[is_zero.argmax()])
    label = model.targets[row] if model.classes is None else model.classes[model.targets[row]]
    cell = model.table.cell_name(model.target, row)
    return f"{cell}: {label} had the probability 0, and that alone is infinite evidence."


def _saved(monitor: monitoring.CalibrationMonitor) -> bytes:
    file = io.BytesIO()
    monitor.save(file)
    return file.getvalue()


def checked(
    path: Path,
    state: MonitorState | None,
    model: Model,
    batches: list[Batch],
    options: dict[str, Any],
    seed: int,
) -> MonitorState:
    """The state, or a new one; an error if options are others than in its first call."""
    said = {name: x for name, x in options.items() if not (name in FIRST and x is None)}
    if state is None:
        return started(model, batches[0], FIRST | said, seed)
    for name, value in said.items():
        if state.options[name] != value:
            was, now = map(_as_text, (state.options[name], value))
            hint = "another model needs another --state"
            if name == "columns":
                hint += "; if only its header is another one, give the columns their old names"
            if name == _BITS:
                hint = f"set the environment variable {_BITS}={was}"
            raise ValueError(
                f"{path}: expected the same {name} as in its first call, {was}, got {now}; {hint}."
            )
    return state


def options_of(model: Model, columns: Columns) -> dict[str, Any]:
    """What columns and options mean, which all calls agree in."""
    options, levels = columns.given, model.columns.levels
    said = " ".join(f"--{k} {x}" for k, x in options.items() if x and k not in _MAY_DIFFER)
    bits = int(jax.config.values["jax_enable_x64"])
    of_model = {"columns": said, "classes": model.classes, "levels": levels and sorted(levels)}
    return {**of_model, _BITS: bits}


def _as_text(value: object) -> str:
    return listed(value) if isinstance(value, list) else str("none" if value is None else value)


# SQLite keeps both numbers in the head of the file; the version changes with what tables hold.
_APPLICATION, _VERSION = int.from_bytes(b"cjmo", "big"), 3
_TABLES = f"""
CREATE TABLE options (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE batches (name TEXT NOT NULL, file TEXT NOT NULL, time TEXT NOT NULL,
    hashes BLOB NOT NULL);
CREATE TABLE streams (name TEXT UNIQUE, monitor BLOB NOT NULL, largest_log_e_value REAL NOT NULL,
    change_point INTEGER NOT NULL, alarm TEXT, alarm_row INTEGER, n_sharing INTEGER,
    zero_probability TEXT);
CREATE TABLE evidence (stream TEXT NOT NULL REFERENCES streams (name), batch TEXT NOT NULL,
    n_rows INTEGER NOT NULL, log_e_value REAL NOT NULL);
PRAGMA application_id = {_APPLICATION};
PRAGMA user_version = {_VERSION}"""
# For how many seconds a call waits for others.
_PATIENCE = 300.0
_EXPECTED = "expected a --state, got"
_DAMAGED = f"{_EXPECTED} a damaged one; restore a copy of it, which keeps its evidence"


@contextmanager
def opened(path: Path) -> Iterator[sqlite3.Connection]:
    """The database of a state, to which a block writes everything at its end, or nothing.

    Until then other calls for the same file wait.  SQLite undoes the writes of a killed call when
    the file is opened again.

    Raises:
        ValueError: the file is of something else, is damaged, or cannot be written.
    """
    try:
        with closing(sqlite3.connect(path, _PATIENCE, isolation_level=None)) as database:
            database.execute("BEGIN IMMEDIATE")
            words = "application_id", "user_version", "quick_check(1)"
            found = [database.execute(f"PRAGMA {x}").fetchone()[0] for x in words]
            if not database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                for statement in _TABLES.split(";"):
                    database.execute(statement)
            elif found != [_APPLICATION, _VERSION, "ok"]:
                got = "another database; name another file"
                if found[0] == _APPLICATION and found[1] != _VERSION:
                    got = f"one of another version of calibjax, {found[1]} for {_VERSION}; go on "
                    got += "with that version, or name another file"
                raise sqlite3.DatabaseError(_DAMAGED if found[2] != "ok" else f"{_EXPECTED} {got}")
            yield database
            database.execute("COMMIT")
    except (sqlite3.Error, UnicodeDecodeError) as error:
        reason = str(error)
        if "not a database" in reason:
            reason = f"{_EXPECTED} a file that is not a database; name another file"
        elif "malformed" in reason or isinstance(error, UnicodeDecodeError):
            reason = _DAMAGED
        raise ValueError(
            f"{path}: {reason}. Nothing was counted, and the state is what it was before this call."
        ) from error


def read_state(database: sqlite3.Connection) -> tuple[MonitorState | None, list[Batch]]:
    """The state that a database holds, None before the first call, and all rows that it counted."""
    select = database.execute
    try:
        options = {x: json.loads(y) for x, y in select("SELECT name, value FROM options")}
        streams = [Stream(*row) for row in select("SELECT * FROM streams ORDER BY rowid")]
        by_name = {stream.name: stream for stream in streams}
        for name, *row in select("SELECT * FROM evidence ORDER BY rowid"):
            by_name[name].evidence.append(Evidence(*row))
        counted = [
            Batch(name, np.frombuffer(hashes, "<i8"), f"{file}{as_name} at {time}")
            for name, file, time, hashes in select("SELECT * FROM batches ORDER BY rowid")
            for as_name in ["" if name == file else f", as {name},"]
        ]
        n_rows = sum(len(x.hashes) for x in counted)
        state = MonitorState(options, streams) if options or streams or counted else None
        if state and (options.keys() != AGREED or n_rows != state.n_rows):
            raise ValueError
    except (KeyError, TypeError, ValueError) as error:
        raise sqlite3.DatabaseError(_DAMAGED) from error
    return state, counted


def write_state(
    database: sqlite3.Connection, state: MonitorState, batches: Sequence[Batch], source: str
) -> None:
    """Writes a state after some more batches of a file into a database."""
    write, write_all = database.execute, database.executemany
    options = [(name, json.dumps(value)) for name, value in state.options.items()]
    write_all("INSERT OR REPLACE INTO options VALUES (?, ?)", options)
    time = datetime.now(UTC).isoformat(" ", "minutes")
    parts = [(x.name, source, time, x.hashes.tobytes()) for x in batches]
    write_all("INSERT INTO batches VALUES (?, ?, ?, ?)", parts)
    write("DELETE FROM streams")
    for stream in state.streams:
        *fields, evidence = vars(stream).values()
        write(f"INSERT INTO streams VALUES ({', '.join('?' * len(fields))})", fields)
        n = write("SELECT count(*) FROM evidence WHERE stream = ?", [stream.name]).fetchone()[0]
        new = [(stream.name, *x) for x in evidence[n:]]
        write_all("INSERT INTO evidence VALUES (?, ?, ?, ?)", new)
