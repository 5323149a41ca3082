"""The monitor that a file keeps from one call to the next."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from calibjax.cli._columns import Model
from calibjax.cli._errors import BadInput
from calibjax.cli._read import read_table
from calibjax.monitoring import CalibrationMonitor
from calibjax.monitoring._file import load_leaves, save_leaves


def kept_monitor(path: Path, model: Model, n_rows: int, seed: int) -> CalibrationMonitor:
    """The monitor that a file keeps, or a new one for predictions like the first n_rows."""
    example = jax.tree.map(lambda x: x[: max(n_rows, 2)], model.predictions)
    # One row is no example, and how many there are does not matter for a monitor that was kept.
    if path.exists():
        example = jax.tree.map(lambda x: jnp.concatenate([x, x]), example)
    fresh = CalibrationMonitor.start(jax.random.key(seed), example)
    if not path.exists():
        return fresh
    meaning = _meaning(model)
    kept = read_table(path).columns.get("0")
    same = kept is not None and np.array_equal(kept.to_numpy(), meaning)
    if not same:
        raise BadInput(
            f"{path}: expected what this command has written for the same columns, classes and "
            f"levels as those of {model.table.path}; give another --state for other ones."
        )
    return load_leaves(path, (meaning, fresh))[1]


def keep_monitor(path: Path, model: Model, monitor: CalibrationMonitor) -> None:
    """Writes a monitor, and what its predictions mean, to a file."""
    save_leaves(path, (_meaning(model), monitor))


def _meaning(model: Model) -> np.ndarray:
    """What the columns of predictions stand for, as bytes, of which a monitor keeps a copy."""
    family = type(model.predictions).__name__
    return np.frombuffer(json.dumps([family, model.classes, model.levels]).encode(), np.uint8)


def batches(model: Model, by: str | None) -> Iterator[tuple[Any, Any, jax.Array, jax.Array]]:
    """The name, predictions, targets and mask of each batch, which is named by a column.

    All have the same number of rows, so that they are compiled once.

    Raises:
        BadInput: the rows of a batch do not come one after the other.
    """
    n = len(model.targets)
    if by is None:
        yield None, model.predictions, jnp.asarray(model.targets), jnp.ones(n, bool)
        return
    column = model.table.column(by)
    names = column.to_numpy()
    starts = np.flatnonzero(np.append(True, names[1:] != names[:-1]))
    is_new = ~np.isin(np.arange(n), starts) | column.is_first_distinct().to_numpy()
    model.table.check(by, is_new, "rows of one value one after the other")
    sizes = np.diff(np.append(starts, n))
    for start, size in zip(starts, sizes, strict=True):
        place = np.arange(max(sizes))
        rows = start + np.minimum(place, size - 1)
        predictions = jax.tree.map(lambda x, rows=rows: x[rows], model.predictions)
        name = str(column[int(start)])
        yield name, predictions, jnp.asarray(model.targets[rows]), jnp.asarray(place < size)
