"""The monitor that a file keeps from one call to the next."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from calibjax.cli._columns import Model
from calibjax.cli._errors import BadInput
from calibjax.cli._read import read_table
from calibjax.monitoring import CalibrationMonitor
from calibjax.monitoring._file import load_leaves, save_leaves


def kept_monitor(path: Path, model: Model, seed: int) -> CalibrationMonitor:
    """The monitor that a file keeps, or a new one."""
    # One row is no example, and how many there are does not matter for a monitor that was kept.
    example = model.predictions
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
            f"{path}: the evidence is about other predictions than those of {model.table.path}; "
            "give another --state for other columns, classes or levels."
        )
    return load_leaves(path, (meaning, fresh))[1]


def keep_monitor(path: Path, model: Model, monitor: CalibrationMonitor) -> None:
    """Writes a monitor, and what its predictions mean, to a file."""
    save_leaves(path, (_meaning(model), monitor))


def _meaning(model: Model) -> np.ndarray:
    """What the columns of predictions stand for, as bytes, of which a monitor keeps a copy."""
    family = type(model.predictions).__name__
    return np.frombuffer(json.dumps([family, model.classes, model.levels]).encode(), np.uint8)
