"""Batches of rows that a monitor has counted, and which may not be counted again."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from calibjax.cli._batches import Batch, Fingerprint, Fingerprints, place_of
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


def check_order(
    path: Path, source: str, by: str, counted: Sequence[Counted], batches: Sequence[Batch]
) -> None:
    """An error unless all values of --by in a file come after those that were counted."""
    if not counted:
        return
    last = max((x.name for x in counted), key=place_of)
    new = [x for x in batches if place_of(x.name) > place_of(last)]
    if len(new) < len(batches):
        hint = f" from {new[0].name} on they are new;" if new else " none is new;"
        raise BadInput(
            f"{source}, column {by}: expected values after {last}, the last one that {path} has "
            f"counted, got {batches[0].name};{hint} --again counts all rows."
        )


def check_copies(
    model: Model,
    by: str | None,
    calls: Sequence[tuple[str, str]],
    counted: Sequence[Counted],
    batches: Sequence[Batch],
    fingerprints: Fingerprints,
) -> None:
    """An error if rows were counted before, by the name of this file or of another one.

    Args:
        model: the content of the file.
        by: the column that names batches.
        calls: the file and the time of each call.
        counted: the batches of all calls.
        batches: those of this file.
        fingerprints: those of its rows.
    """
    file, n = model.table.source, len(model.targets)
    if by is None:
        # A log that has grown begins with what it was.
        sizes = sorted({x.n_rows for x in counted if x.n_rows <= n})
        batches = [Batch(file, 0, size) for size in sizes]
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
                f"{file}: {rows} were counted before{order}, from {source} at {time}; --again "
                "counts them again."
            )
