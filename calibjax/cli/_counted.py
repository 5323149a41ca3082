"""Batches of rows that a monitor has counted, and which may not be counted again."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from calibjax.cli._batches import Batch, Fingerprint, Fingerprints, place_of, restart_of
from calibjax.cli._seen import copies_of, is_telling
from calibjax.cli._terminal import BadInput
from calibjax.evaluation import Model


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


class History(NamedTuple):
    """What all calls have counted.

    Args:
        calls: the file and the time of each call.
        counted: the batches of all calls.
        rows: what is remembered of the rows of each batch.
    """

    calls: Sequence[tuple[str, str]]
    counted: Sequence[Counted]
    rows: Sequence[np.ndarray]


class NewFile(NamedTuple):
    """A file that is to be counted.

    Args:
        model: its content.
        by: the column that names batches, or None.
        batches: its batches.
        fingerprints: those of its rows.
    """

    model: Model
    by: str | None
    batches: Sequence[Batch]
    fingerprints: Fingerprints

    @property
    def source(self) -> str:
        """Its name."""
        return self.model.table.source


def check_order(path: Path, history: History, file: NewFile) -> None:
    """An error unless all values of --by in a file come after those that were counted.

    `path` is where the monitor is kept.
    """
    counted, batches = history.counted, file.batches
    if not counted:
        return
    last = max((x.name for x in counted), key=place_of)
    old = [x for x in batches if place_of(x.name) <= place_of(last)]
    if not old:
        return
    n = sum(x.n_rows for x in old)
    n_before = sum(_n_counted(x, history, file.fingerprints) for x in old)
    if 2 * n_before > n:
        reason = f"{n_before} of the {n} rows up to then were counted before"
    else:
        reason = f"{n - n_before} of the {n} rows up to then were not counted, and come late"
    new = [x for x in batches if place_of(x.name) > place_of(last)]
    hint = f"from {new[0].name} on they are new" if new else "none is new"
    raise BadInput(
        f"{file.source}, column {file.by}: expected values after {last}, the last one that "
        f"{path} has counted, got {old[0].name}; {hint}; {reason}; "
        f"--again counts all rows{restart_of(last, old[0].name)}."
    )


def _n_counted(batch: Batch, history: History, fingerprints: Fingerprints) -> int:
    """The number of rows of a batch that were counted in a batch of the same name."""
    fingerprint, now = fingerprints.of(batch), fingerprints.rows_of(batch)
    n_rows = 0
    for before, rows in zip(history.counted, history.rows, strict=True):
        if place_of(before.name) != place_of(batch.name):
            continue
        if before.fingerprint.in_any_order == fingerprint.in_any_order:
            return batch.n_rows
        if is_telling(rows):
            n_rows = max(n_rows, int(np.isin(now, rows).sum()))
    return n_rows


def check_corrections(history: History, file: NewFile) -> None:
    """An error if most rows of a batch were counted before, such as in a corrected file."""
    for copy in copies_of(list(map(file.fingerprints.rows_of, file.batches)), history.rows):
        batch, before = file.batches[copy.batch], history.counted[copy.counted]
        source, time = history.calls[before.call]
        of_batch = "" if file.by is None else f" of {batch.name}"
        source = source if file.by is None else f"{source}, as {before.name},"
        raise BadInput(
            f"{file.source}: {copy.n_rows} of the {batch.n_rows} rows{of_batch} are among "
            f"the {before.n_rows} that were counted before, from {source} at {time}; give only new "
            "rows, or --again counts all of them."
        )


def check_copies(history: History, file: NewFile) -> None:
    """An error if rows were counted before, by the name of this file or of another one."""
    (calls, counted, _), (model, by, batches, fingerprints) = history, file
    n = len(model.targets)
    if by is None:
        # A log that has grown begins with what it was.
        sizes = sorted({x.n_rows for x in counted if x.n_rows <= n})
        batches = [Batch(file.source, 0, size) for size in sizes]
        found = fingerprints.of_first_rows(sizes)
    else:
        found = list(map(fingerprints.of, batches))
    for k, order in enumerate(("", " in another order")):
        seen = {(x.n_rows, x.fingerprint[k]): x for x in counted}
        for batch, fingerprint in zip(batches, found, strict=True):
            copy = seen.get((batch.n_rows, fingerprint[k]))
            is_whole = by is None and batch.n_rows == n
            is_same_file = is_whole and not order
            if copy is None or not (
                is_same_file or fingerprints.is_telling(batch, in_order=not order)
            ):
                continue
            source, time = calls[copy.call]
            rows = f"the {n} rows" if is_whole else f"the first {batch.n_rows} rows"
            if by is not None:
                rows, source = f"the rows of {batch.name}", f"{source}, as {copy.name},"
            raise BadInput(
                f"{file.source}: {rows} were counted before{order}, from {source} at {time}; "
                "--again counts them again."
            )
