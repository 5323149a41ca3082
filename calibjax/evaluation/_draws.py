"""Draws of posteriors as ArviZ and xarray keep them: by names, in chains; neither is imported."""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

_SIMULATION = "simulation"
_OF_DRAWS = ("chain", "draw")


def named_draws(theta: Any, draws: Any) -> tuple[Any, Any]:
    """True parameters ``[n]`` and draws ``[n, S]`` by their names, of what ArviZ and xarray have.

    A parameter with more dimensions is one for each of their places, such as "effect[Oslo]".
    Parameters that only the draws have are left out.

    Args:
        theta: a mapping of names to arrays whose first axis is that of the simulations, or a
            dataset.
        draws: a dataset with the dimension draw, perhaps chain, and one of simulations; what has
            such a dataset as its `posterior`; or a list of n of these without a dimension of
            simulations.  Anything else is returned as it is, and theta with it.

    Raises:
        TypeError: only one of theta and draws has names.
        ValueError: dimensions, names or sizes do not fit.
    """
    found = _dataset_of(draws)
    many = [] if found is not None else _datasets_of(draws)
    if found is None and not many:
        if _dataset_of(theta) is not None:
            raise TypeError("draws must be a dataset, or a list of them, where theta is a dataset.")
        return theta, draws
    of_theta = _dataset_of(theta)  # which is a mapping, too
    known = theta if of_theta is None and isinstance(theta, Mapping) else None
    if known is None and of_theta is None:
        raise TypeError(
            "theta must be a mapping of names to arrays, or a dataset, as draws have names; got "
            f"{type(theta).__name__}."
        )
    names = list(map(str, known if known is not None else of_theta.data_vars))
    simulation = None if found is None else _simulation(found, names, known, of_theta)
    true: dict[str, np.ndarray] = {}
    drawn: dict[str, np.ndarray] = {}
    for name in names:
        if found is not None:
            values, rest = _draws_of(found, name, [simulation], "draws")
        else:
            each = [_draws_of(x, name, [], f"draws[{k}]") for k, x in enumerate(many)]
            shapes = [x.shape for x, _ in each]
            if len(set(shapes)) > 1:
                k = next(k for k, shape in enumerate(shapes) if shape != shapes[0])
                raise ValueError(
                    f"draws must have one shape of {name}, got {list(shapes[0])} and, in draws[{k}]"
                    f", {list(shapes[k])}."
                )
            values, rest = np.stack([x for x, _ in each]), each[0][1]
        if known is not None:
            values_of_theta = np.asarray(known[name])
        else:
            of_simulations = [dim for dim in of_theta[name].dims if dim not in rest]
            dims = [*of_simulations, *rest]
            if len(of_simulations) != 1 or set(dims) != set(of_theta[name].dims):
                raise ValueError(
                    f"theta, variable {name}: expected one dimension of simulations and "
                    f"{_listed(rest)}, got {_listed(of_theta[name].dims)}."
                )
            values_of_theta = of_theta[name].transpose(*dims).to_numpy()
        n, shape = len(values), values.shape[2:]
        if values_of_theta.shape != (n, *shape):
            raise ValueError(
                f"{name}: expected theta of shape {[n, *shape]} for {n} posteriors, got "
                f"{list(values_of_theta.shape)}."
            )
        places = list(itertools.product(*rest.values()))
        for k, place in enumerate(places):
            called = f"{name}[{', '.join(place)}]" if place else name
            true[called] = values_of_theta.reshape(n, len(places))[:, k]
            drawn[called] = values.reshape(n, values.shape[1], len(places))[:, :, k]
    return true, drawn


def _dataset_of(value: Any) -> Any:
    """A dataset, or the posterior of what has one; None of anything else."""
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


def _simulation(draws: Any, names: list[str], known: Any, of_theta: Any) -> str:
    """The name of the dimension of simulations."""
    _check_names(draws, names, "draws")
    common = [dim for dim in draws[names[0]].dims if dim not in _OF_DRAWS]
    common = [dim for dim in common if all(dim in draws[name].dims for name in names)]
    if known is not None:
        n = len(np.atleast_1d(np.asarray(known[names[0]])))
        common = [dim for dim in common if draws.sizes[dim] == n]
    else:
        common = [dim for dim in common if all(dim in of_theta[name].dims for name in names)]
    if _SIMULATION in common or len(common) == 1:
        return _SIMULATION if _SIMULATION in common else common[0]
    found = f"may be one of {_listed(common)}: call it {_SIMULATION}" if common else "is missing"
    raise ValueError(
        f"draws must have chain, draw and one dimension of simulations, which {found}; "
        f"{names[0]} has {_listed(draws[names[0]].dims)}. Of n posteriors a list is taken, too."
    )


def _draws_of(
    dataset: Any, name: str, leading: list[Any], words: str
) -> tuple[np.ndarray, dict[Any, list[str]]]:
    """Draws ``[*leading, S, …]`` of a parameter, and the places along its other dimensions."""
    _check_names(dataset, [name], words)
    variable = dataset[name]
    of_draws = [dim for dim in _OF_DRAWS if dim in variable.dims]
    if "draw" not in of_draws:
        raise ValueError(
            f"{words}, variable {name}: expected the dimension draw, got {_listed(variable.dims)}."
        )
    rest = [dim for dim in variable.dims if dim not in (*leading, *of_draws)]
    array = variable.transpose(*leading, *of_draws, *rest).to_numpy()
    sizes = dict(zip((*leading, *of_draws, *rest), array.shape, strict=True))
    n_draws = math.prod(sizes[dim] for dim in of_draws)
    places = {
        dim: [str(x) for x in variable[dim].to_numpy()]
        if dim in variable.coords
        else list(map(str, range(sizes[dim])))
        for dim in rest
    }
    shape = [sizes[dim] for dim in leading], [sizes[dim] for dim in rest]
    return array.reshape(*shape[0], n_draws, *shape[1]), places


def _check_names(dataset: Any, names: list[str], words: str) -> None:
    missing = [name for name in names if name not in dataset.data_vars]
    if missing:
        raise ValueError(
            f"{words} must have the names of theta, got none called {_listed(missing)}, only "
            f"{_listed(dataset.data_vars)}."
        )


def _listed(items: Any) -> str:
    return ", ".join(map(str, items)) or "none"
