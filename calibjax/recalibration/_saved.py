"""Recalibrators in files of JSON."""

import dataclasses
import os
from typing import Any

import jax
import numpy as np

from calibjax._files import json_of, read_json, write_file
from calibjax._rows import ColumnCode, different
from calibjax._struct import is_array
from calibjax.recalibration._groups import Coding, GroupCurve
from calibjax.recalibration._labels import STEPS, apply_jit
from calibjax.recalibration._recalibrator import Fit, Recalibrator
from calibjax.recalibration._unit_line import ConditionalLine, ConformalLine, UnitLine

# The number of the version changes with what a file holds.
_KIND = {"schema": "calibjax.Recalibrator", "version": 2}
_DTYPES = ("float32", "float64")
_STEPS = STEPS | {x.__name__: x for x in (ConditionalLine, ConformalLine, GroupCurve, UnitLine)}


def save(recalibrator: Recalibrator, path: str | os.PathLike[str]) -> None:
    """Writes the file, which replaces an old one at once or not."""
    write_file(path, json_of(content_of(recalibrator)))


def content_of(recalibrator: Recalibrator) -> dict[str, Any]:
    """What a file holds of a recalibrator, which JSON can write; more may stand beside it."""
    return _KIND | {
        "fit": recalibrator.fit._asdict(),
        "steps": _as_json(recalibrator.steps),
        "groups": _as_json(recalibrator.of_groups),
    }


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
    try:
        fit = _fit_of(found["fit"])
        steps = _of_json(found["steps"])
        if not isinstance(steps, tuple):
            raise ValueError("steps are no list")
        return _checked(Recalibrator(steps, _of_json(found["groups"]), fit))
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise ValueError(f"{path}: the map in the file is damaged ({error}).") from error


def _as_json(node: Any) -> Any:
    if node is None:
        return None
    if isinstance(node, Coding):
        columns = [x._asdict() | {"levels": _in_json(x.levels)} for x in node.columns]
        return {"columns": columns, "pairs": [list(pair) for pair in node.pairs]}
    if isinstance(node, tuple):
        return [_as_json(x) for x in node]
    if is_array(node):
        array = np.asarray(node)
        return {"dtype": str(array.dtype), "shape": list(array.shape), "values": _decimals(array)}
    # Levels of a line are part of the structure, and no array.
    fields = {k: np.asarray(x) if k == "levels" else x for k, x in vars(node).items()}
    return {"step": type(node).__name__, **{k: _as_json(x) for k, x in fields.items()}}


def _in_json(levels: tuple[Any, ...]) -> list[Any]:
    return [str(x) if x in (-np.inf, np.inf) else x for x in levels]


def _decimals(array: np.ndarray) -> list[float]:
    return array.astype(float).ravel().tolist()


def _of_json(node: Any) -> Any:
    if node is None:
        return None
    if isinstance(node, list):
        return tuple(_of_json(x) for x in node)
    if "step" in node:
        step = _STEPS[node["step"]]
        names = {"step", *(field.name for field in dataclasses.fields(step))}
        if set(node) != names:
            raise ValueError(f"{node['step']} must have {sorted(names - {'step'})}")
        fields = {k: _of_json(x) for k, x in node.items() if k != "step"}
        if "levels" in fields:
            fields["levels"] = tuple(fields["levels"].tolist())
        return step(**fields)
    if "columns" in node:
        return _coding_of(node)
    if node["dtype"] not in _DTYPES:
        raise ValueError(f"dtype must be one of {', '.join(_DTYPES)}")
    array = np.array(node["values"], float).astype(node["dtype"]).reshape(node["shape"])
    if not np.all(np.isfinite(array)):
        raise ValueError("numbers must be finite")
    return array


def _coding_of(node: dict[str, Any]) -> Coding:
    names = [x["name"] for x in node["columns"]]
    if not all(isinstance(name, str) for name in names):
        raise ValueError("names of columns must be strings")
    columns = tuple(map(_code_of, node["columns"]))
    pairs = [(int(i), int(a), int(j), int(b)) for i, a, j, b in node["pairs"]]
    for i, a, j, b in pairs:
        if not (0 <= i < j < len(columns)):
            raise ValueError("pairs must be of two columns")
        if not (0 <= a < columns[i].n_levels and 0 <= b < columns[j].n_levels):
            raise ValueError("pairs must be of levels of their columns")
    return Coding(columns, tuple(pairs))


def _code_of(node: dict[str, Any]) -> ColumnCode:
    name, dtype, cuts = node["name"], np.dtype(node["dtype"]), tuple(node["cuts"])
    levels = tuple(map(float, node["levels"]) if dtype.kind == "f" else node["levels"])
    array = np.array(levels, dtype)
    if not np.array_equal(different(array), array) or list(cuts) != sorted(set(cuts)):
        raise ValueError("levels and cuts must ascend")
    return ColumnCode(name, str(dtype), levels, cuts)


def _fit_of(node: dict[str, Any]) -> Fit:
    losses = tuple((str(name), float(loss)) for name, loss in node["losses"])
    covariates = tuple(map(str, node["covariates"]))
    fit = Fit(**{**node, "losses": losses, "covariates": covariates})
    counts = fit.n_rows, fit.n_impossible
    if not (fit.lower is None or isinstance(fit.lower, float)):
        raise ValueError("lower must be a number or null")
    if not (fit.n_classes is None or type(fit.n_classes) is int):
        raise ValueError("n_classes must be an integer or null")
    if not all(isinstance(x, str) for x in (fit.method, fit.words, fit.score)):
        raise ValueError("method, words and score must be strings")
    if not (isinstance(fit.converged, bool) and all(type(x) is int for x in counts)):
        raise ValueError("converged must be a boolean, and counts integers")
    return fit


def _checked(recalibrator: Recalibrator) -> Recalibrator:
    """The recalibrator, if its numbers have shapes that fit together; traced, nothing is run."""
    m = recalibrator.fit.n_classes
    if recalibrator.of_groups is not None:
        recalibrator.of_groups.check()
    if m is None:
        (line,) = recalibrator.steps
        line.check()
        n_known = 2 + len(recalibrator.fit.covariates)
        if isinstance(line, ConditionalLine) and len(line.grid) not in (2, n_known):
            raise ValueError("there must be as many covariates as the map has")
        return recalibrator
    rows = jax.ShapeDtypeStruct((2, m), np.float32)
    try:
        fits = jax.eval_shape(apply_jit, recalibrator.steps, rows).shape == (2, m)
    except (TypeError, ValueError):  # jax says in many lines which shapes they are
        fits = False
    curves = recalibrator.of_groups
    if not fits or (curves and np.shape(curves.centres) != (1 if m == 2 else m,)):
        raise ValueError("shapes do not fit together")
    return recalibrator
