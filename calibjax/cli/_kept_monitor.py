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
_KIND = {"schema": "calibjax monitor", "version": 2}
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
        log_e_value: the evidence after this batch.
    """

    name: str
    n_rows: int
    fingerprint: Fingerprint
    call: int
    log_e_value: float


class FirstAlarm(NamedTuple):
    """The batch in which the alarm rang, and the number of rows until the end of this batch."""

    name: str
    row: int


@dataclasses.dataclass(frozen=True)
class KeptMonitor:
    """A monitor, and what it has counted.

    Args:
        path: where it is kept.
        monitor: the evidence.
        meaning: what all calls must agree in, such as the columns and the level.
        calls: the file and the time of each call.
        counted: the batches of all calls, in their order.
        first_alarm: when the alarm rang, after which it is never withdrawn.
    """

    path: Path
    monitor: monitoring.CalibrationMonitor
    meaning: dict[str, Any]
    calls: tuple[tuple[str, str], ...] = ()
    counted: tuple[Counted, ...] = ()
    first_alarm: FirstAlarm | None = None

    @property
    def level(self) -> float:
        """The level of the alarm."""
        return self.meaning["--level"]

    @property
    def n_rows(self) -> int:
        """The number of rows in all calls."""
        return sum(batch.n_rows for batch in self.counted)

    def batch_of(self, row: int) -> str:
        """The name of the batch of a row, which is counted from 0 in all calls."""
        ends = itertools.accumulate(batch.n_rows for batch in self.counted)
        after = (x.name for x, end in zip(self.counted, ends, strict=True) if end > row)
        return next(after, self.counted[-1].name)

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
        monitor, first_alarm, n_rows = self.monitor, self.first_alarm, self.n_rows
        largest, evidence = max(batch.n_rows for batch in batches), []
        for batch in batches:
            predictions, targets, options = data_of(model, clusters, batch, largest)
            try:
                monitor = monitor.update(predictions, targets, **options)
            except ValueError as error:
                raise BadInput(f"{model.table.source}, batch {batch.name}: {error}") from error
            # JSON has no infinity.
            evidence.append(min(float(monitor.log_e_value), _LARGEST))
            n_rows += batch.n_rows
            if first_alarm is None and monitor.alarm(self.level):
                first_alarm = FirstAlarm(batch.name, n_rows)
        call = model.table.source, datetime.now(UTC).isoformat(" ", "minutes")
        counted = [
            Counted(x.name, x.n_rows, fingerprints.of(x), len(self.calls), log_e_value)
            for x, log_e_value in zip(batches, evidence, strict=True)
        ]
        return dataclasses.replace(
            self,
            monitor=monitor,
            calls=(*self.calls, call),
            counted=(*self.counted, *counted),
            first_alarm=first_alarm,
        )

    def as_file(self) -> bytes:
        """The content of its file."""
        kept = {name: getattr(self, name) for name in ("calls", "counted", "first_alarm")}
        header = monitoring.header_of(self.monitor) | _KIND | {"meaning": self.meaning} | kept
        try:
            return monitoring.as_file(header, self.monitor)
        except ValueError as error:
            raise BadInput(f"{self.path}: nothing was counted, because {error}") from error

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
        "--level": level or _LEVEL,
    }
    key, n = jax.random.key(seed), len(model.targets)
    if not path.exists():
        if n < 2:
            raise BadInput(f"{model.table.source}: a new --state needs at least 2 rows, got {n}.")
        # What bets are made of must not be chosen by later predictions, which may know targets.
        n_rows = batches_of(model, by)[0].n_rows
        example = jax.tree.map(lambda x: x[: max(n_rows, 2)], model.predictions)
        return KeptMonitor(path, monitoring.CalibrationMonitor.start(key, example), meaning)
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
    return KeptMonitor(
        path,
        monitoring.with_leaves(path, arrays, like),
        kept,
        calls=tuple((file, time) for file, time in header["calls"]),
        counted=tuple(
            Counted(name, n_rows, Fingerprint(*fingerprint), call, log_e_value)
            for name, n_rows, fingerprint, call, log_e_value in header["counted"]
        ),
        first_alarm=header["first_alarm"] and FirstAlarm(*header["first_alarm"]),
    )


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
