"""The monitors of the streams of a file, and what they have counted."""

import dataclasses
import itertools
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from calibjax import monitoring
from calibjax._text import listed
from calibjax.cli._batches import Fingerprints, batches_of, data_of
from calibjax.cli._counted import (
    Counted,
    History,
    NewFile,
    check_copies,
    check_corrections,
    check_order,
)
from calibjax.cli._seen import parts_of, remembered
from calibjax.cli._terminal import BadInput
from calibjax.evaluation import Model, dependence_of

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
class KeptMonitor:
    """The monitors of one or several streams, and what they have counted.

    Args:
        path: where they are kept.
        streams: the streams by their names; the only one without --stream is called "".
        meaning: what all calls must agree in, such as the columns and the level.
        calls: the file and the time of each call.
        counted: the batches of all calls, in their order.
        rows: 32 bits for each of the rows that were counted last.
        reserve: the monitors of streams that are still to come, all of them at their start.
        new_alarms: the streams in which the alarm rang in this call.
    """

    path: Path
    streams: dict[str, Stream]
    meaning: dict[str, Any]
    calls: tuple[tuple[str, str], ...] = ()
    counted: tuple[Counted, ...] = ()
    rows: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0, np.uint32))
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
    def n_rows(self) -> int:
        """The number of rows in all calls."""
        return sum(batch.n_rows for batch in self.counted)

    @property
    def has_alarm(self) -> bool:
        """Whether an alarm ever rang in any stream."""
        return any(stream.first_alarm is not None for stream in self.streams.values())

    @property
    def n_sharing(self) -> int:
        """The number of streams that share the level from now on, those without an alarm."""
        n_alarms = sum(stream.first_alarm is not None for stream in self.streams.values())
        return len(self.streams) + len(self.reserve) - n_alarms

    def pvalues(self) -> dict[str, float]:
        """The p-values of the streams, adjusted for the number of them and of those to come."""
        monitors: dict[str | int, Any] = dict(enumerate(self.reserve))
        monitors |= {name: stream.monitor for name, stream in self.streams.items()}
        found = monitoring.stream_pvalues(monitors)
        return {name: float(found[name]) for name in self.streams}

    def after(self, model: Model, again: bool) -> "KeptMonitor":
        """The monitor after all batches of a file.

        Args:
            model: the content of the file.
            again: whether what was counted before may be counted again.

        Raises:
            BadInput: it may not, and was.
        """
        by = self.meaning["--by"]
        batches = batches_of(model, by)
        clusters = _clusters_of(model, self.meaning["--cluster"])
        fingerprints = Fingerprints(model)
        if not again:
            self._check_new(NewFile(model, by, batches, fingerprints))
        names = streams_of(model, self.meaning["--stream"])
        start = self._with_streams(model, names)
        parts = [
            {
                name: x.start + np.flatnonzero(names[x.start :][: x.n_rows] == name)
                for name in start.streams
            }
            for x in batches
        ]
        size = max(rows.size for part in parts for rows in part.values())
        kept = start
        for batch, part in zip(batches, parts, strict=True):
            for name, rows in part.items():
                if rows.size:
                    data = data_of(model, clusters, rows, size)
                    kept = kept._updated(model, batch.name, name, rows, *data)
            kept = kept._with_alarms(batch.name)
        call = model.table.source, datetime.now(UTC).isoformat(" ", "minutes")
        counted = [Counted(x.name, x.n_rows, fingerprints.of(x), len(self.calls)) for x in batches]
        rows = np.concatenate([fingerprints.rows_of(x) for x in batches])
        return dataclasses.replace(
            kept,
            calls=(*self.calls, call),
            counted=(*self.counted, *counted),
            rows=remembered(self.rows, rows),
        )

    def _check_new(self, file: NewFile) -> None:
        """An error if rows were counted before, or do not come after those that were."""
        rows = parts_of(self.rows, [x.n_rows for x in self.counted])
        history = History(self.calls, self.counted, rows)
        if file.by is not None:
            check_order(self.path, history, file)
        check_copies(history, file)
        check_corrections(history, file)

    def _updated(
        self,
        model: Model,
        batch: str,
        name: str,
        rows: np.ndarray,
        predictions: Any,
        targets: np.ndarray,
        options: dict[str, Any],
    ) -> "KeptMonitor":
        """The same after the rows of one stream in a batch."""
        stream = self.streams[name]
        try:
            monitor = stream.monitor.update(predictions, targets, **options)
        except ValueError as error:
            raise BadInput(f"{model.table.source}, batch {batch}: {error}") from error
        # JSON has no infinity.
        evidence = Evidence(batch, rows.size, min(float(monitor.log_e_value), _LARGEST))
        after = dataclasses.replace(
            stream,
            monitor=monitor,
            batches=(*stream.batches, evidence),
            impossible=stream.impossible or _impossible(model, rows),
        )
        return dataclasses.replace(self, streams=self.streams | {name: after})

    def _with_alarms(self, batch: str) -> "KeptMonitor":
        """The same at the end of a batch, in which alarms may have bucket."""
        pvalues, streams, n_sharing = self.pvalues(), dict(self.streams), self.n_sharing
        new = [
            name
            for name, stream in self.streams.items()
            if stream.first_alarm is None and pvalues[name] <= self.level
        ]
        for name in sorted(new, key=lambda name: -float(streams[name].monitor.log_max)):
            stream = streams[name]
            changed_at = int(stream.monitor.changed_at)
            alarm = FirstAlarm(batch, stream.n_rows, changed_at, n_sharing)
            streams[name] = dataclasses.replace(stream, first_alarm=alarm)
            n_sharing -= 1
        return dataclasses.replace(self, streams=streams, new_alarms=(*self.new_alarms, *new))

    def _with_streams(self, model: Model, names: np.ndarray) -> "KeptMonitor":
        """The same with the new streams of a file, for which places were reserved."""
        column, streams, reserve = self.meaning["--stream"], dict(self.streams), [*self.reserve]
        for name in dict.fromkeys(names.tolist()):
            if name in streams:
                continue
            if not reserve:
                words = (
                    f"one of the streams that share the level, {listed(list(streams))} (a first "
                    "call with --reserve 5 keeps places for five more; now leave the new one out, "
                    f"by --where \"{column} != '{name}'\", and begin another --state for it)"
                )
                model.table.check(column, names != name, words)
            streams[name] = Stream(reserve.pop())
        return dataclasses.replace(self, streams=streams, reserve=tuple(reserve))


def streams_of(model: Model, name: str | None) -> np.ndarray:
    """The name of the stream of each row."""
    if name is None:
        return np.full(len(model.targets), "")
    names = model.table.texts(name)
    if len(names) != len(model.targets):
        raise BadInput(
            f"{model.table.source}, column {name}: expected one value for each of "
            f"{len(model.targets)} rows, got {len(names)}."
        )
    return names


def _clusters_of(model: Model, name: str | None) -> np.ndarray | None:
    """The number of the cluster of each row."""
    return None if name is None else np.asarray(dependence_of(model, name, None, None).clusters)


def _impossible(model: Model, rows: np.ndarray) -> str | None:
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
    place = model.table.place_of(model.target, row)
    return f"{place}: {label} had the probability 0, and that alone is infinite evidence."
