"""The monitor that a file keeps from one call to the next, and what it has counted."""

import dataclasses
import itertools
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from calibjax import monitoring
from calibjax.cli._batches import Batch, Fingerprint, Fingerprints, batches_of, data_of, place_of
from calibjax.cli._columns import Columns
from calibjax.cli._terminal import BadInput
from calibjax.evaluation import Model, dependence_of, listed

# The number of the version changes with what a file holds.
_KIND = {"schema": "calibjax monitor", "version": 3}
_LEVEL = 0.05
_LARGEST = 1e300
# Options that may differ from call to call: levels are compared as numbers.
_NO_MEANING = "levels", "normalize", "sort_quantiles", "separator", "decimal", "drop_missing"


class Counted(NamedTuple):
    """A batch that was counted: a value of --by, or a file.

    Args:
        name: the value, or the file.
        n_rows: the number of its rows.
        fingerprint: of its rows.
        call: the place of the call, among all calls.
    """

    name: str
    n_rows: int
    fingerprint: Fingerprint
    call: int


class Evidence(NamedTuple):
    """The evidence of a stream after a batch, and how many of its rows the batch has."""

    name: str
    n_rows: int
    log_e_value: float


class FirstAlarm(NamedTuple):
    """The batch in which the alarm rang, and the number of rows until the end of this batch."""

    name: str
    row: int


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
        batches = batches_of(model, self.meaning["--by"])
        clusters = _clusters_of(model, self.meaning["--cluster"])
        fingerprints = Fingerprints(model)
        if not again:
            self._check_order(model, batches)
            self._check_copies(model, batches, fingerprints)
        names = _streams_of(model, self.meaning["--stream"])
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

    def as_file(self) -> bytes:
        """The content of its file."""
        monitors = [stream.monitor for stream in self.streams.values()]
        kept = {name: [x.batches, x.first_alarm] for name, x in self.streams.items()}
        header = monitoring.header_of(monitors[0]) | _KIND | {"meaning": self.meaning}
        header |= {"calls": self.calls, "counted": self.counted, "streams": kept}
        try:
            return monitoring.as_file(header, _tree_of(monitors))
        except ValueError as error:
            raise BadInput(f"{self.path}: nothing was counted, because {error}") from error

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
                alarm = FirstAlarm(batch, stream.n_rows)
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

    def _check_order(self, model: Model, batches: list[Batch]) -> None:
        """An error unless all values of --by come after those that were counted."""
        by = self.meaning["--by"]
        if by is None or not self.counted:
            return
        last = max((x.name for x in self.counted), key=place_of)
        new = [x for x in batches if place_of(x.name) > place_of(last)]
        if len(new) < len(batches):
            hint = f" from {new[0].name} on they are new;" if new else ""
            raise BadInput(
                f"{model.table.source}, column {by}: expected values after {last}, the last one "
                f"that {self.path} has counted, got {batches[0].name};{hint} --again counts all "
                "rows."
            )

    def _check_copies(self, model: Model, batches: list[Batch], fingerprints: Fingerprints) -> None:
        """An error if rows were counted before, by the name of this file or of another one."""
        file, by, n = model.table.source, self.meaning["--by"], len(model.targets)
        if by is None:
            # A log that has grown begins with what it was.
            sizes = sorted({x.n_rows for x in self.counted if x.n_rows <= n})
            batches = [Batch(file, 0, size) for size in sizes]
            found = fingerprints.of_first_rows(sizes)
        else:
            found = list(map(fingerprints.of, batches))
        for k, order in enumerate(("", " in another order")):
            seen = {(x.n_rows, x.fingerprint[k]): x for x in self.counted}
            for batch, fingerprint in zip(batches, found, strict=True):
                counted = seen.get((batch.n_rows, fingerprint[k]))
                is_whole = by is None and batch.n_rows == n
                is_same_file = is_whole and not order
                if counted is None or not (
                    is_same_file or fingerprints.is_telling(batch, in_order=not order)
                ):
                    continue
                source, time = self.calls[counted.call]
                rows = f"the {n} rows" if is_whole else f"the first {batch.n_rows} rows"
                if by is not None:
                    rows, source = f"the rows of {batch.name}", f"{source}, as {counted.name},"
                raise BadInput(
                    f"{file}: {rows} were counted before{order}, from {source} at {time}; --again "
                    "counts them again."
                )


def kept_monitor(
    path: Path,
    model: Model,
    columns: Columns,
    by: str | None,
    cluster: str | None,
    stream: str | None,
    level: float | None,
    seed: int,
) -> KeptMonitor:
    """The monitor that a file keeps, or a new one for predictions like those of a first batch.

    Args:
        path: the file.
        model: predictions, of which the first batch makes a new monitor.
        columns: which columns hold what.
        by: the column that names batches.
        cluster: the column that names clusters.
        stream: the column that names streams.
        level: the level of the alarm; None stands for that of the first call, which is 0.05 if it
            did not say.
        seed: what the random numbers of a new monitor come from.

    Raises:
        BadInput: the file is of something else.
    """
    meaning = {
        "columns": _in_words(columns),
        "classes": model.classes,
        "levels": model.levels,
        "--by": by,
        "--cluster": cluster,
        "--stream": stream,
        "--level": level or _LEVEL,
    }
    key, n = jax.random.key(seed), len(model.targets)
    if not path.exists():
        if n < 2:
            raise BadInput(f"{model.table.source}: a new --state needs at least 2 rows, got {n}.")
        # What bets are made of must not be chosen by later predictions, which may know targets.
        n_rows = batches_of(model, by)[0].n_rows
        example = jax.tree.map(lambda x: x[: max(n_rows, 2)], model.predictions)
        names = sorted(set(_streams_of(model, stream).tolist()), key=place_of)
        # All streams begin with the same functions.
        first = Stream(monitoring.CalibrationMonitor.start(key, example))
        return KeptMonitor(path, dict.fromkeys(names, first), meaning)
    header, arrays = monitoring.read_file(path)
    monitoring.check_header(path, header, _KIND)
    kept = header["meaning"]
    if level is None:
        meaning["--level"] = kept["--level"]
    for name, value in meaning.items():
        if kept[name] != value:
            was, now = (_as_text(x) for x in (kept[name], value))
            raise BadInput(
                f"{path}: expected the same {name} as in its first call, {was}, got {now}; another "
                "model needs another --state."
            )
    # The same row twice, because one row is no example; which one does not matter here.
    example = jax.tree.map(lambda x: x[jnp.zeros(2, int)], model.predictions)
    like = monitoring.CalibrationMonitor.start(key, example)
    monitoring.check_header(path, header, monitoring.header_of(like) | _KIND)
    streams = header["streams"]
    monitors = monitoring.with_leaves(path, arrays, _tree_of([like] * len(streams)))
    return KeptMonitor(
        path,
        {
            name: Stream(
                monitor, tuple(Evidence(*x) for x in batches), alarm and FirstAlarm(*alarm)
            )
            for (name, (batches, alarm)), monitor in zip(
                streams.items(), monitors if len(streams) > 1 else [monitors], strict=True
            )
        },
        kept,
        calls=tuple((file, time) for file, time in header["calls"]),
        counted=tuple(
            Counted(name, n_rows, Fingerprint(*fingerprint), call)
            for name, n_rows, fingerprint, call in header["counted"]
        ),
    )


def _tree_of(monitors: list[monitoring.CalibrationMonitor]) -> Any:
    """What a file keeps: the monitor, or a list of several."""
    return monitors if len(monitors) > 1 else monitors[0]


def _streams_of(model: Model, name: str | None) -> np.ndarray:
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
