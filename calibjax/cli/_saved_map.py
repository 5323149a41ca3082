"""A map of predictions in a file, and the columns that it was fitted to and looks at."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from calibjax._base.files import digest_of, json_of
from calibjax._base.text import listed
from calibjax.cli._columns import Columns
from calibjax.frames import PredictionColumns, Table, groups_of, stems_of
from calibjax.recalibration import Recalibrator, content_of, load_recalibrator


@dataclasses.dataclass(frozen=True)
class Fitted:
    """The columns that fitted a map.

    Args:
        path: their file, or that of the map.
        columns: those of the predictions; None of a map that `Recalibrator.save` has written.
        target: the column of targets, which other files may have or not.
    """

    path: Path
    columns: PredictionColumns | None
    target: str | None

    def columns_in(self, table: Table, said: Columns | None) -> PredictionColumns:
        """The columns of another file whose predictions the map takes.

        Args:
            table: the file.
            said: what the user says of its columns; if nothing or None, they are called as those
                that fitted the map.

        Raises:
            ValueError: these are predictions of another kind, of other classes, or at other levels.
        """
        ours = self.columns
        if said is not None and (ours is None or said.are_said):
            found = said.prediction_columns(table)
            kinds = ("kind", "classes", "levels") if ours is not None else ()
            pairs = [(what, getattr(ours, what), getattr(found, what)) for what in kinds]
        else:
            assert ours is not None  # the map has just been fitted
            found, names = ours, None
            if "*" in ours.pattern:
                names = list(stems_of(table, ours.pattern, self.target))
            pairs = [("the columns", sorted(ours.names), sorted(names or ours.names))]
        for what, old, new in pairs:
            if old != new:
                was, now = (listed(x) if isinstance(x, list) else str(x) for x in (old, new))
                raise ValueError(
                    f"{table.source}: expected {what} {was} of {self.path}, got {now}."
                )
        return found


def map_as_file(recalibrator: Recalibrator, fitted: Fitted) -> bytes:
    """A file that `read_map` reads, and `load_recalibrator` too."""
    assert fitted.columns is not None
    columns = dataclasses.asdict(fitted.columns) | {"target": fitted.target}
    columns["digest"] = digest_of(columns)
    return json_of(content_of(recalibrator) | {"columns": columns})


def read_map(path: Path) -> tuple[Recalibrator, Fitted]:
    """The map of a file, and the columns that fitted it."""
    recalibrator = load_recalibrator(path)
    node = json.loads(path.read_bytes()).get("columns")
    if node is None:
        return recalibrator, Fitted(path, None, None)
    if not isinstance(node, dict) or node.pop("digest", None) != digest_of(node):
        raise ValueError(f"{path}: the columns in the file are damaged, fit the map again.")
    target = node.pop("target")
    return recalibrator, Fitted(path, PredictionColumns(**node), target)


def columns_beside(
    table: Table, groups: Sequence[str], covariates: Sequence[str], is_fit: bool
) -> dict[str, Any]:
    """Groups and covariates as `fit_recalibrator` and a map take them, columns ``[n]`` by names.

    Each kind is None without any.  Numbers of covariates are finite.  The rows of the fit decide
    whether texts are numbers, and a map reads those of other rows.
    """
    numbers = {name: table.numbers(name) for name in covariates}
    return {"groups": groups_of(table, groups, read=is_fit) or None, "covariates": numbers or None}


def method_of(columns: PredictionColumns, method: str | None, looks_beside: bool) -> str:
    """The method; of normal predictions one whose predictions are normal again."""
    if columns.kind != "mean":
        return method or "auto"
    if looks_beside or method not in (None, "shift_scale", "nothing"):
        got = "--segments or --covariates" if looks_beside else method
        raise ValueError(
            f"--mean and --sd can be recalibrated by shift_scale, got {got}, after which "
            "predictions are not normal; recalibrate quantiles of them, with --quantiles."
        )
    return method or "shift_scale"
