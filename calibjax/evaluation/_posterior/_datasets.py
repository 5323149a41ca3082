"""Draws of posteriors as ArviZ and xarray keep them: by names, in chains; neither is imported."""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from calibjax._base.text import listed
from calibjax._data import Frame
from calibjax.evaluation._posterior._inputs import (
    Parameters,
    is_labelled,
    labels_along,
    names_along,
    rounded,
)

_SIMULATION = "simulation"
_OF_DRAWS = ("chain", "draw")


def read_datasets(theta: Any, draws: Any) -> Parameters | None:
    """True parameters and draws by their names, of what ArviZ and xarray have; None of other draws.

    A parameter with more dimensions is one for each of their labels, such as "effect[Oslo]".
    Parameters that only the draws have are left out.

    Args:
        theta: a mapping of names to arrays whose first axis is that of the simulations, a frame, a
            dataset or, for one parameter, an array.
        draws: a dataset with the dimension draw, perhaps chain, and one of simulations; what has
            such a dataset as its `posterior`; an array of xarray with these dimensions; or a list
            of n of these without a dimension of simulations.

    Raises:
        TypeError: only one of theta and draws has names.
        ValueError: dimensions, names, sizes or labels do not fit.
    """
    found = _dataset_of(draws)
    many = [] if found is not None else _datasets_of(draws)
    if found is None and not many:
        if _dataset_of(theta) is not None and not is_labelled(theta):
            raise TypeError("draws must be a dataset, or a list of them, where theta is a dataset.")
        if isinstance(draws, Mapping) and any(map(is_labelled, draws.values())):
            raise TypeError("draws must be one dataset, which xarray.Dataset(draws) is.")
        return None
    known = _named(theta, is_labelled(draws))
    simulation = None if found is None else _simulation(found, known)
    true: dict[str, np.ndarray] = {}
    drawn: dict[str, np.ndarray] = {}
    labels_of_theta: list[np.ndarray] = []
    for name, value in known.items():
        if found is not None:
            values, rest = _draws_of(found, name, [simulation], "draws")
        else:
            values, rest = _draws_of_each(many, name)
        of_theta, along = _values_of(name, value, rest)
        of_theta, values = rounded(of_theta, values)
        labels_of_theta += [] if along is None else [along]
        shape = values.shape[2:]
        if of_theta.ndim == 0 or of_theta.shape[1:] != shape:
            raise ValueError(
                f"{name}: expected theta of shape {[len(values), *shape]} for {len(values)} "
                f"posteriors, got {list(of_theta.shape)}."
            )
        names = list(itertools.product(*rest.values()))
        for k, item in enumerate(names):
            called = f"{name}[{', '.join(item)}]" if item else name
            true[called] = of_theta.reshape(len(of_theta), len(names))[:, k]
            drawn[called] = values.reshape(*values.shape[:2], len(names))[:, :, k]
    name = next(iter(known))
    one = many[0][name] if found is None else found[name]
    of_draws = _labels_of_each(many) if found is None else labels_along(one, simulation)
    if any(not np.array_equal(x, labels_of_theta[0]) for x in labels_of_theta):
        raise ValueError("theta must have one order of simulations for all of its parameters.")
    labels = {"theta": labels_of_theta[0] if labels_of_theta else None, "draws": of_draws}
    n_chains = one.sizes["chain"] if "chain" in one.dims else 1
    return Parameters(true, drawn, n_chains, labels, simulation or _SIMULATION)


def _dataset_of(value: Any) -> Any:
    """A dataset, or the posterior of what has one; None of anything else."""
    if is_labelled(value):
        is_of_draws = "draw" in value.dims
        return value.to_dataset(name="theta") if is_of_draws else None
    if not hasattr(value, "data_vars") or not len(value.data_vars):
        value = getattr(value, "posterior", None)
    return value if hasattr(value, "data_vars") else None


def _datasets_of(draws: Any) -> list[Any]:
    """Those of a list, or nothing."""
    is_list = isinstance(draws, Sequence) and not isinstance(draws, str)
    found = list(map(_dataset_of, draws)) if is_list else []
    if found and found[0] is not None and any(x is None for x in found):
        k = next(k for k, x in enumerate(found) if x is None)
        got = type(draws[k]).__name__
        raise TypeError(f"draws[{k}] must be a posterior as draws[0] is, got {got}.")
    return found if found and found[0] is not None else []


def _named(theta: Any, has_no_names: bool) -> dict[str, Any]:
    """The true values by names: arrays, or arrays of xarray."""
    if has_no_names and not isinstance(theta, Mapping):
        return {"theta": theta}
    dataset = None if is_labelled(theta) else _dataset_of(theta)
    if dataset is not None:
        return {str(name): dataset[name] for name in dataset.data_vars}
    if isinstance(theta, Mapping):
        return {str(name): value for name, value in theta.items()}
    if isinstance(theta, Frame):
        return {str(name): np.asarray(theta[name]) for name in theta.columns}
    raise TypeError(
        "theta must be a mapping of names to arrays, a frame, or a dataset, as draws have names; "
        f"got {type(theta).__name__}."
    )


def _simulation(draws: Any, known: Mapping[str, Any]) -> Any:
    """The name of the dimension of simulations."""
    names = list(known)
    _check_names(draws, names, "draws")
    common = [dim for dim in draws[names[0]].dims if dim not in _OF_DRAWS]
    common = [dim for dim in common if all(dim in draws[name].dims for name in names)]
    if _SIMULATION in common:
        return _SIMULATION
    of_theta = known[names[0]]
    if is_labelled(of_theta):
        common = [dim for dim in common if dim in of_theta.dims]
    else:
        n = len(np.atleast_1d(np.asarray(of_theta)))
        common = [dim for dim in common if draws.sizes[dim] == n]
    if len(common) == 1:
        return common[0]
    found = f"may be one of {_listed(common)}: call it {_SIMULATION}" if common else "is missing"
    raise ValueError(
        f"draws must have chain, draw and one dimension of simulations, which {found}; "
        f"{names[0]} has {_listed(draws[names[0]].dims)}. Of n posteriors a list is taken, too."
    )


def _draws_of(
    dataset: Any, name: str, leading: list[Any], words: str
) -> tuple[np.ndarray, dict[Any, list[str]]]:
    """Draws ``[*leading, S, …]`` of a parameter, and the labels along its other dimensions."""
    _check_names(dataset, [name], words)
    variable = dataset[name]
    of_draws = [dim for dim in _OF_DRAWS if dim in variable.dims]
    if "draw" not in of_draws:
        raise ValueError(
            f"{words}, variable {name}: expected the dimension draw, got {_listed(variable.dims)}."
        )
    rest = [dim for dim in variable.dims if dim not in (*leading, *of_draws)]
    array = variable.transpose(*leading, *of_draws, *rest).to_numpy()
    n_draws = math.prod(variable.sizes[dim] for dim in of_draws)
    shape = [variable.sizes[x] for x in leading], [variable.sizes[x] for x in rest]
    names = {dim: names_along(variable, dim) for dim in rest}
    return array.reshape(*shape[0], n_draws, *shape[1]), names


def _draws_of_each(many: list[Any], name: str) -> tuple[np.ndarray, dict[Any, list[str]]]:
    """Draws ``[n, S, …]`` of a parameter of n datasets, in the order of labels of the first."""
    first, names = _draws_of(many[0], name, [], "draws[0]")
    found = []
    for k, dataset in enumerate(many):
        values, own = _draws_of(dataset, name, [], f"draws[{k}]")
        if values.shape != first.shape:
            raise ValueError(
                f"draws must have one shape of {name}, got {list(first.shape)} and, in draws[{k}]"
                f", {list(values.shape)}."
            )
        for axis, dim in enumerate(names):
            values = np.take(values, _order(name, dim, names[dim], own[dim]), 1 + axis)
        found.append(values)
    return np.stack(found), names


def _labels_of_each(many: list[Any]) -> np.ndarray | None:
    """The coordinate simulation that each of n datasets has."""
    found = [x.coords[_SIMULATION] for x in many if _SIMULATION in x.coords]
    if len(found) < len(many) or any(x.ndim for x in found):
        return None
    return np.array([x.to_numpy().item() for x in found])


def _values_of(
    name: str, value: Any, rest: Mapping[Any, list[str]]
) -> tuple[np.ndarray, np.ndarray | None]:
    """True values ``[n, …]`` in the order of the labels of the draws, and labels of simulations."""
    if not is_labelled(value):
        return np.asarray(value), None
    others = [dim for dim in value.dims if dim not in rest]
    dims = [*others, *rest]
    if len(others) != 1 or set(dims) != set(value.dims):
        raise ValueError(
            f"theta, variable {name}: expected one dimension of simulations and "
            f"{_listed(rest)}, got {_listed(value.dims)}."
        )
    array = value.transpose(*dims).to_numpy()
    for axis, (dim, names) in enumerate(rest.items()):
        if labels_along(value, dim) is not None:
            array = np.take(array, _order(name, dim, names, names_along(value, dim)), 1 + axis)
    return array, labels_along(value, others[0])


def _order(name: str, dim: Any, wanted: list[str], own: list[str]) -> list[int]:
    """Where the wanted labels are among those that an array has."""
    if sorted(wanted) != sorted(own):
        raise ValueError(
            f"{name}: expected one set of labels of {dim} in theta and draws, got "
            f"{_listed(wanted)} and {_listed(own)}."
        )
    return [own.index(item) for item in wanted]


def _check_names(dataset: Any, names: list[str], words: str) -> None:
    missing = [name for name in names if name not in dataset.data_vars]
    if missing:
        raise ValueError(
            f"{words} must have the names of theta, got none called {_listed(missing)}, only "
            f"{_listed(dataset.data_vars)}."
        )


def _listed(items: Any) -> str:
    return listed(list(items)) or "none"
