"""The monitors of the streams of a file, and what they have counted."""

import dataclasses
import itertools
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from calibjax import monitoring
from calibjax.cli._batches import Fingerprints, batches_of, data_of
from calibjax.cli._counted import Counted, check_copies, check_order
from calibjax.cli._terminal import BadInput
from calibjax.evaluation import Model, dependence_of, listed

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
    """

    name: str
    row: int
    changed_at: int


@dataclasses.dataclass(frozen=True)
class Stream:
    """The rows of one value of --stream; without --stream, all rows.

    Args:
        monitor: the evidence.
        batches: what it was after each batch that has rows of the stream, in their order.
        first_alarm: when the alarm rang, after which it is never withdrawn.
    """

    monitor: monitoring.CalibrationMonitor
    batches: tuple[Evidence, ...] = ()
    first_alarm: FirstAlarm | None = None

    @property
    def n_rows(self) -> int:
        """The number of its rows in all calls."""
        return sum(batch.n_rows for batch in self.batches)

    def batch_of(self, row: int) -> str:
        """The name of the batch of a row, which is counted from 0 in all calls."""
        ends = itertools.accumulate(batch.n_rows for batch in self.batches)
        after = (x.name for x, end in zip(self.batches, ends, strict=True) if end > row)
        return next(after, self.batches[-1].name)


@dataclasses.dataclass(frozen=True)
class KeptMonitor:
    """The monitors of one or several streams, and what they have counted.

    Args:
        path: where they are kept.
        streams: the streams by their names; the only one without --stream is called "".
        meaning: what all calls must agree in, such as the columns and the level.
        calls: the file and the time of each call.
        counted: the batches of all calls, in their order.
    """

    path: Path
    streams: dict[str, Stream]
    meaning: dict[str, Any]
    calls: tuple[tuple[str, str], ...] = ()
    counted: tuple[Counted, ...] = ()

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

    def pvalues(self) -> dict[str, float]:
        """The p-values of the streams, adjusted for their number."""
        monitors = {name: stream.monitor for name, stream in self.streams.items()}
        return {name: float(p) for name, p in monitoring.stream_pvalues(monitors).items()}

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
            if by is not None:
                check_order(self.path, model.table.source, by, self.counted, batches)
            check_copies(model, by, self.calls, self.counted, batches, fingerprints)
        names = streams_of(model, self.meaning["--stream"])
        self._check_streams(model, names)
        parts = [
            {
                name: x.start + np.flatnonzero(names[x.start :][: x.n_rows] == name)
                for name in self.streams
            }
            for x in batches
        ]
        size = max(rows.size for part in parts for rows in part.values())
        kept = self
        for batch, part in zip(batches, parts, strict=True):
            for name, rows in part.items():
                if rows.size:
                    data = data_of(model, clusters, rows, size)
                    kept = kept._updated(model, batch.name, name, rows.size, *data)
            kept = kept._with_alarms(batch.name)
        call = model.table.source, datetime.now(UTC).isoformat(" ", "minutes")
        counted = [Counted(x.name, x.n_rows, fingerprints.of(x), len(self.calls)) for x in batches]
        return dataclasses.replace(
            kept, calls=(*self.calls, call), counted=(*self.counted, *counted)
        )

    def _updated(
        self,
        model: Model,
        batch: str,
        name: str,
        n_rows: int,
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
        evidence = Evidence(batch, n_rows, min(float(monitor.log_e_value), _LARGEST))
        after = dataclasses.replace(stream, monitor=monitor, batches=(*stream.batches, evidence))
        return dataclasses.replace(self, streams=self.streams | {name: after})

    def _with_alarms(self, batch: str) -> "KeptMonitor":
        """The same at the end of a batch, in which alarms may have rung."""
        pvalues, streams = self.pvalues(), {}
        for name, stream in self.streams.items():
            if stream.first_alarm is None and pvalues[name] <= self.level:
                alarm = FirstAlarm(batch, stream.n_rows, int(stream.monitor.changed_at))
                stream = dataclasses.replace(stream, first_alarm=alarm)
            streams[name] = stream
        return dataclasses.replace(self, streams=streams)

    def _check_streams(self, model: Model, names: np.ndarray) -> None:
        """An error if a row is of a stream that the first call did not have."""
        known = np.isin(names, list(self.streams))
        if not known.all():
            words = (
                f"one of the streams of the first call, {listed(list(self.streams))}, which share "
                "the level (a new one needs another --state)"
            )
            model.table.check(self.meaning["--stream"], known, words)


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
