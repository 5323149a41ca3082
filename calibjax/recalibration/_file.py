"""Recalibrators in files of JSON, with a digest that a damaged file does not have."""

import dataclasses
import hashlib
import json
import os
from typing import Any

import numpy as np

from calibjax._base.files import json_of, read_json, write_file
from calibjax._base.struct import is_array
from calibjax._data import ColumnCode
from calibjax.recalibration._groups import Coding, GroupCurve
from calibjax.recalibration._label_curves import BetaCurve, SplineCurve
from calibjax.recalibration._label_isotonic import IsotonicCurve, VennAbersCurve
from calibjax.recalibration._label_steps import Average, Floor, MixedWithUniform, Scaling
from calibjax.recalibration._line import UnitLine
from calibjax.recalibration._line_conditional import ConditionalLine
from calibjax.recalibration._line_conformal import ConformalLine
from calibjax.recalibration._recalibrator import Fit, Recalibrator

# The number of the version changes with what a file holds.
_KIND = {"schema": "calibjax.Recalibrator", "version": 3}
_OF_LABELS = Average, BetaCurve, Floor, IsotonicCurve, MixedWithUniform, Scaling, SplineCurve
_OF_NUMBERS = ConditionalLine, ConformalLine, UnitLine
_STEPS: dict[str, type] = {
    x.__name__: x for x in (*_OF_LABELS, VennAbersCurve, *_OF_NUMBERS, GroupCurve)
}
_PARTS = "fit", "steps", "groups"


def save(recalibrator: Recalibrator, path: str | os.PathLike[str]) -> None:
    """Writes the file, which replaces an old one at once or not."""
    write_file(path, json_of(content_of(recalibrator)))


def content_of(recalibrator: Recalibrator) -> dict[str, Any]:
    """What a file holds of a recalibrator, which JSON can write; more may stand beside it."""
    parts = recalibrator.fit._asdict(), recalibrator.steps, recalibrator.of_groups
    content = {name: _as_json(x) for name, x in zip(_PARTS, parts, strict=True)}
    return _KIND | content | {"digest": _digest(content)}


def load_recalibrator(path: str | os.PathLike[str]) -> Recalibrator:
    """The recalibrator that `Recalibrator.save` has written to a file.

    It makes the same predictions, bit by bit, in another process of the same machine.  The file is
    JSON, with a schema and a version; nothing in it is run.

    Raises:
        OSError: there is no such file, or it cannot be read.
        ValueError: the file holds something else, a part of a map, or one of another version.

    Example:
        >>> import os, tempfile, jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Bernoulli(jnp.array([0.9, 0.8, 0.1, 0.3]))
        >>> recalibrator = cj.fit_recalibrator(predictions, jnp.array([1, 0, 0, 1]), "temperature")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = os.path.join(folder, "map.json")
        ...     recalibrator.save(path)
        ...     loaded = cj.load_recalibrator(path)
        >>> bool(jnp.all(loaded(predictions).probs == recalibrator(predictions).probs))
        True
    """
    found = read_json(path, _KIND, "Recalibrator.save")
    content: dict[str, Any] = {name: found.get(name) for name in _PARTS}
    if found.get("digest") != _digest(content):
        raise ValueError(f"{path}: the map in the file is damaged, fit it again.")
    known = dict(content["fit"])
    for name in ("losses", "covariates"):
        known[name] = _tuples(known[name])
    return Recalibrator(_of_json(content["steps"]), _of_json(content["groups"]), Fit(**known))


def _digest(content: dict[str, Any]) -> str:
    """Of what was written, and equal of what is read: decimals of numbers are exact."""
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def _as_json(node: Any) -> Any:
    if isinstance(node, Coding):
        columns = [x._asdict() | {"levels": _texts(x.levels)} for x in node.columns]
        return {"columns": columns, "pairs": node.pairs}
    if isinstance(node, tuple):
        return [_as_json(x) for x in node]
    if is_array(node) and not isinstance(node, (bool, int, float)):
        array = np.asarray(node)
        values = array.astype(float).ravel().tolist()
        return {"dtype": str(array.dtype), "shape": array.shape, "values": values}
    if type(node) not in _STEPS.values():
        return node
    fields = {name: _as_json(x) for name, x in vars(node).items()}
    return {"step": type(node).__name__, **fields}


def _texts(levels: tuple[Any, ...]) -> list[Any]:
    """Levels of a column; JSON has no infinity."""
    return [str(x) if x in (-np.inf, np.inf) else x for x in levels]


def _of_json(node: Any) -> Any:
    if isinstance(node, list):
        return tuple(_of_json(x) for x in node)
    if not isinstance(node, dict):
        return node
    if "step" in node:
        step = _STEPS[node["step"]]
        names = [field.name for field in dataclasses.fields(step)]
        return step(**{name: _of_json(node[name]) for name in names})
    if "columns" in node:
        return Coding(tuple(map(_code_of, node["columns"])), _tuples(node["pairs"]))
    return np.array(node["values"], float).astype(node["dtype"]).reshape(node["shape"])


def _code_of(node: dict[str, Any]) -> ColumnCode:
    is_float = np.dtype(node["dtype"]).kind == "f"
    levels = tuple(map(float, node["levels"]) if is_float else node["levels"])
    return ColumnCode(node["name"], node["dtype"], levels, tuple(node["cuts"]))


def _tuples(node: list[Any]) -> tuple[Any, ...]:
    return tuple(tuple(x) if isinstance(x, list) else x for x in node)
