"""Parts of recalibrators in files of JSON, with a digest that a damaged file does not have."""

import dataclasses
import hashlib
import json
import os
from typing import Any

import numpy as np

from calibjax._base.files import read_json
from calibjax._base.struct import is_array
from calibjax._data import ColumnCode
from calibjax.recalibration._beta_and_spline_maps import BetaCurve, SplineCurve
from calibjax.recalibration._conditional_pit_map import ConditionalLine
from calibjax.recalibration._conformal_quantiles import ConformalLine
from calibjax.recalibration._group_coding import Coding, GroupCurve
from calibjax.recalibration._isotonic_maps import IsotonicCurve, VennAbersCurve
from calibjax.recalibration._pit_map import UnitLine
from calibjax.recalibration._probability_maps import Average, Floor, MixedWithUniform, Scaling

# The number of the version changes with what a file holds.
_KIND = {"schema": "calibjax.Recalibrator", "version": 3}
_OF_LABELS = Average, BetaCurve, Floor, IsotonicCurve, MixedWithUniform, Scaling, SplineCurve
_OF_NUMBERS = ConditionalLine, ConformalLine, UnitLine
_STEPS: dict[str, type] = {
    x.__name__: x for x in (*_OF_LABELS, VennAbersCurve, *_OF_NUMBERS, GroupCurve)
}
_PARTS = "fit", "steps", "groups"


def content_of_parts(fit: dict[str, Any], steps: Any, groups: Any) -> dict[str, Any]:
    """What a file holds of the parts of a map, which JSON can write; more may stand beside it."""
    content = {name: _as_json(x) for name, x in zip(_PARTS, (fit, steps, groups), strict=True)}
    return _KIND | content | {"digest": _digest(content)}


def read_parts(path: str | os.PathLike[str]) -> tuple[dict[str, Any], Any, Any]:
    """The parts of the map that a file holds: what is known of its fit, its steps, its groups."""
    found = read_json(path, _KIND, "Recalibrator.save")
    content: dict[str, Any] = {name: found.get(name) for name in _PARTS}
    if found.get("digest") != _digest(content):
        raise ValueError(f"{path}: the map in the file is damaged, fit it again.")
    fit = dict(content["fit"])
    for name in ("losses", "covariates"):
        fit[name] = _tuples(fit[name])
    return fit, _of_json(content["steps"]), _of_json(content["groups"])


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
