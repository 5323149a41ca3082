"""The monitors of `calibjax monitor`, what they have counted, and the file that keeps both."""

import dataclasses
import itertools
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np

from calibjax import monitoring
from calibjax._base.files import check_header, npz_of, read_npz, with_leaves
from calibjax._base.text import listed
from calibjax.cli._batch_deduplication import History, NewFile, sort_key, texts_of
from calibjax.cli._columns import Columns
from calibjax.cli._terminal import BadInput
from calibjax.frames import Model, dependence_of

# The number of the version changes with what a file holds.
_KIND = {"schema": "calibjax monitor", "version": 6}
# What the first call decides, and what it decides if it says nothing.
_FIRST = {"--reserve": 0, "--lag": 1, "--level": 0.05}
# Options that may differ from call to call: levels are compared as numbers.
_NO_MEANING = (
    "levels",
    "normalize",
    "sort_quantiles",
    "separator",
    "decimal",
    "drop_missing",
    "where",
)
# How a model goes on whose columns have new names.
_RENAMED = "; if it is the same model with another header, give the columns their old names"
# JSON has no infinity.
_LARGEST = 1e300


class Evidence(NamedTuple):
    """The evidence of a stream after a batch, and how many of its rows the batch has."""

    name: str
    n_rows: int
    log_e_value: float


class FirstAlarm(NamedTuple):
    """The batch in which the alarm rang, and what was known at its end.

    Args:
        name: the batch.
        row: the number of rows until its end.
        changed_at: the number of rows after which the model began to be wrong, as estimated then.
        n_sharing: the number of streams that shared the level, those without an alarm until then.
    """

    name: str
    row: int
    changed_at: int
    n_sharing: int


@dataclasses.dataclass(frozen=True)
class Stream:
    """The rows of one value of --stream; without --stream, all rows.

    Args:
        monitor: the evidence.
        batches: what it was after each batch that has rows of the stream, in their order.
        first_alarm: when the alarm rang, after which it is never withdrawn.
        impossible: the first row with an outcome of probability 0, in words.
    """

    monitor: monitoring.CalibrationMonitor
    batches: tuple[Evidence, ...] = ()
    first_alarm: FirstAlarm | None = None
    impossible: str | None = None

    @property
    def n_rows(self) -> int:
        """The number of its rows in all calls."""
        return sum(batch.n_rows for batch in self.batches)

    def number_of(self, row: int) -> int:
        """The number, from 1, of the batch of a row, which is counted from 0 in all calls."""
        ends = itertools.accumulate(batch.n_rows for batch in self.batches)
        return min(1 + sum(end <= row for end in ends), len(self.batches))

    def batch_of(self, row: int) -> str:
        """The name of the batch of a row."""
        return self.batches[self.number_of(row) - 1].name


@dataclasses.dataclass(frozen=True)
class MonitorState:
    """The monitors of one or several streams, and what they have counted.

    Args:
        path: where they are kept.
        streams: the streams by their names; the only one without --stream is called "".
        meaning: what all calls must agree in, such as the columns and the level.
        history: the batches of all calls.
        reserve: the monitors of streams that are still to come, all of them at their start.
        new_alarms: the streams in which the alarm rang in this call.
    """

    path: Path
    streams: dict[str, Stream]
    meaning: dict[str, Any]
    history: History = dataclasses.field(default_factory=History)
    reserve: tuple[monitoring.CalibrationMonitor, ...] = ()
    new_alarms: tuple[str, ...] = ()

    @property
    def level(self) -> float:
        """The level of the alarm, of all streams together."""
        return self.meaning["--level"]

    @property
    def lag(self) -> int:
        """The number of batches until targets are known."""
        return self.meaning["--lag"]

    @property
    def alarms(self) -> list[str]:
        """The streams in which an alarm ever rang."""
        return [name for name, x in self.streams.items() if x.first_alarm is not None]

    @property
    def n_sharing(self) -> int:
        """The number of streams that share the level from now on, those without an alarm."""
        return len(self.streams) + len(self.reserve) - len(self.alarms)

    def pvalues(self) -> dict[str, float]:
        """The p-values of the streams, adjusted for the number of them and of those to come."""
        monitors: dict[str | int, Any] = dict(enumerate(self.reserve))
        monitors |= {name: stream.monitor for name, stream in self.streams.items()}
        found = monitoring.holm_pvalues(monitors)
        return {name: float(found[name]) for name in self.streams}

    @classmethod
    def started(cls, path: Path, file: NewFile, meaning: dict[str, Any], seed: int) -> Self:
        """The state before the first row, for predictions like those of the first batch."""
        n = len(file.model.targets)
        if n < 2:
            source = file.model.table.source
            raise BadInput(f"{source}: a new --state needs at least 2 rows, got {n}.")
        # What bets are made of must not be chosen by later predictions, which may know targets.
        n_rows = max(file.batches[0].n_rows, 2)
        example = jax.tree.map(lambda x: x[:n_rows], file.model.predictions)
        names = sorted(set(_streams_of(file.model, meaning["--stream"]).tolist()), key=sort_key)
        # All streams begin with the same functions, and the first alarm needs the whole evidence.
        n_reserved, lag = meaning["--reserve"], meaning["--lag"]
        level = meaning["--level"] / (len(names) + n_reserved)
        key = jax.random.key(seed)
        first = monitoring.CalibrationMonitor.start(key, example, lag=lag, level=level)
        streams = dict.fromkeys(names, Stream(first))
        return cls(path, streams, meaning, reserve=(first,) * n_reserved)

    def after(self, file: NewFile, again: bool) -> "MonitorState":
        """The state after all batches of a file.

        Args:
            file: the file.
            again: whether what was counted before may be counted again.

        Raises:
            BadInput: it may not, and was.
        """
        model = file.model
        if not again:
            self.history.check_new(self.path, file)
        cluster = self.meaning["--cluster"]
        clusters = None
        if cluster is not None:
            clusters = np.asarray(dependence_of(model.table, cluster, None, None).clusters)
        names = _streams_of(model, self.meaning["--stream"])
        state = self._with_streams(model, names)
        parts = [
            {
                name: x.start + np.flatnonzero(names[x.start :][: x.n_rows] == name)
                for name in state.streams
            }
            for x in file.batches
        ]
        # Parts that have the same number of rows share what is compiled.
        size = max(rows.size for part in parts for rows in part.values())
        for batch, part in zip(file.batches, parts, strict=True):
            streams = dict(state.streams)
            for name, rows in part.items():
                if rows.size:
                    streams[name] = _updated(streams[name], model, batch.name, clusters, rows, size)
            state = dataclasses.replace(state, streams=streams)._with_alarms(batch.name)
        time = datetime.now(UTC).isoformat(" ", "minutes")
        return dataclasses.replace(state, history=self.history.after(file, time))

    def _with_alarms(self, batch: str) -> "MonitorState":
        """The same at the end of a batch, in which alarms may have rung."""
        pvalues, streams, n_sharing = self.pvalues(), dict(self.streams), self.n_sharing
        new = [x for x in streams if x not in self.alarms and pvalues[x] <= self.level]
        for name in sorted(new, key=lambda name: -float(streams[name].monitor.log_max)):
            stream = streams[name]
            changed_at = int(stream.monitor.changed_at)
            alarm = FirstAlarm(batch, stream.n_rows, changed_at, n_sharing)
            streams[name] = dataclasses.replace(stream, first_alarm=alarm)
            n_sharing -= 1
        return dataclasses.replace(self, streams=streams, new_alarms=(*self.new_alarms, *new))

    def _with_streams(self, model: Model, names: np.ndarray) -> "MonitorState":
        """The same with the new streams of a file, for which monitors were reserved."""
        column, streams, reserve = self.meaning["--stream"], dict(self.streams), [*self.reserve]
        for name in dict.fromkeys(names.tolist()):
            if name in streams:
                continue
            if not reserve:
                words = (
                    f"one of the streams that share the level, {listed(list(streams))} (a first "
                    "call with --reserve 5 reserves five more; now leave the new one out, "
                    f"by --where \"{column} != '{name}'\", and begin another --state for it)"
                )
                model.table.check(column, names != name, words)
            streams[name] = Stream(reserve.pop())
        return dataclasses.replace(self, streams=streams, reserve=tuple(reserve))

    def as_file(self) -> bytes:
        """The content of the file of the state."""
        monitors = [stream.monitor for stream in self.streams.values()]
        streams = {
            name: [x.batches, x.first_alarm, x.impossible] for name, x in self.streams.items()
        }
        header = monitoring.header_of(monitors[0]) | _KIND | self.history.to_dict()
        header |= {"meaning": self.meaning, "streams": streams, "n_reserved": len(self.reserve)}
        try:
            return npz_of(header, _tree_of([*monitors, *self.reserve[:1]]))
        except ValueError as error:
            raise BadInput(f"{self.path}: nothing was counted, because {error}") from error


def read_state(
    path: Path, file: NewFile, columns: Columns, options: dict[str, Any], seed: int
) -> MonitorState:
    """The state that a file keeps, or a new one for predictions like those of a first batch.

    Args:
        path: where it is kept.
        file: predictions, of which the first batch makes a new monitor.
        columns: which columns hold what.
        options: the options that all calls agree in; --reserve, --lag and --level are None if
            nothing is said, which stands for those of the first call.
        seed: what the random numbers of a new monitor come from.

    Raises:
        BadInput: the file is of something else.
    """
    model = file.model
    meaning = {"columns": _in_words(columns), "classes": model.classes, "levels": model.levels}
    meaning |= options
    if not path.exists():
        said = {name: x for name, x in meaning.items() if not (name in _FIRST and x is None)}
        return MonitorState.started(path, file, _FIRST | said, seed)
    header, arrays = read_npz(path, "a monitor")
    check_header(path, header, _KIND)
    kept = header["meaning"] | {"--lag": header["lag"]}
    for name, value in meaning.items():
        if kept[name] != value and not (name in _FIRST and value is None):
            was, now = (_as_text(x) for x in (kept[name], value))
            raise BadInput(
                f"{path}: expected the same {name} as in its first call, {was}, got {now}; another "
                f"model needs another --state{_RENAMED if name == 'columns' else ''}."
            )
    # The same row twice, because one row is no example; which one does not matter here.
    example = jax.tree.map(lambda x: x[jnp.zeros(2, int)], model.predictions)
    like = monitoring.CalibrationMonitor.start(jax.random.key(seed), example, lag=kept["--lag"])
    check_header(path, header, monitoring.header_of(like) | _KIND)
    n_reserved = header["n_reserved"]
    # All that are reserved are at the start, and one of them is kept.
    n_monitors = len(header["streams"]) + min(n_reserved, 1)
    tree = with_leaves(path, arrays, _tree_of([like] * n_monitors))
    monitors = tree if n_monitors > 1 else [tree]
    streams = {
        name: Stream(
            monitor,
            tuple(Evidence(*x) for x in batches),
            alarm and FirstAlarm(*alarm),
            impossible,
        )
        for (name, (batches, alarm, impossible)), monitor in zip(
            header["streams"].items(), monitors, strict=False
        )
    }
    history = History.of_dict(header)
    return MonitorState(path, streams, kept, history, reserve=(monitors[-1],) * n_reserved)


def _updated(
    stream: Stream,
    model: Model,
    batch: str,
    clusters: np.ndarray | None,
    rows: np.ndarray,
    size: int,
) -> Stream:
    """A stream after its rows in a batch, which are filled up to a number of them."""
    filled = rows[np.minimum(np.arange(size), rows.size - 1)]
    # With NumPy: jax would compile for each number of rows.
    predictions: Any = jax.tree.map(lambda x: np.asarray(x)[filled], model.predictions)
    options: dict[str, Any] = {} if clusters is None else {"clusters": clusters[filled]}
    options["where"] = np.arange(size) < rows.size
    try:
        monitor = stream.monitor.update(predictions, model.targets[filled], **options)
    except ValueError as error:
        raise BadInput(f"{model.table.source}, batch {batch}: {error}") from error
    evidence = Evidence(batch, rows.size, min(float(monitor.log_e_value), _LARGEST))
    return dataclasses.replace(
        stream,
        monitor=monitor,
        batches=(*stream.batches, evidence),
        impossible=stream.impossible or impossible_row(model, rows),
    )


def impossible_row(model: Model, rows: np.ndarray) -> str | None:
    """The first of some rows with a label to which its prediction gave the probability 0."""
    if not model.predictions.has_labels:
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


def _streams_of(model: Model, name: str | None) -> np.ndarray:
    """The name of the stream of each row."""
    return np.full(len(model.targets), "") if name is None else texts_of(model, name)


def _tree_of(monitors: list[monitoring.CalibrationMonitor]) -> Any:
    """What a file keeps: the monitor, or a list of several."""
    return monitors if len(monitors) > 1 else monitors[0]


def _as_text(value: Any) -> str:
    if value is None:
        return "none"
    return listed(value) if isinstance(value, list) else str(value)


def _in_words(columns: Columns) -> str:
    """The options that say which columns hold what; `meaning` has the levels as numbers."""
    options = dataclasses.asdict(columns)
    # A file whose probabilities are rounded may need what another one does not.
    given = {k: x for k, x in options.items() if x and k not in _NO_MEANING}
    return " ".join(f"--{name} {value}" for name, value in given.items())
