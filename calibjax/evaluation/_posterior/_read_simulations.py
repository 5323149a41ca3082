"""True parameters, draws of posteriors and observations, from arrays, frames and datasets.

A dataset is what ArviZ and xarray keep: draws by names, in chains, with labels of simulations.
"""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from calibjax._base.text import listed
from calibjax._data import Frame, in_one_precision, typed_column
from calibjax.frames import as_numpy

_SIMULATION = "simulation"
_OF_DRAWS = ("chain", "draw")


class Parameters(NamedTuple):
    """True values and draws of each number.

    Args:
        true: the values ``[n]`` by the names of the numbers, in float64.
        drawn: the draws ``[n, S]``, in float64.
        n_chains: the number of chains, one after the other in the draws; None if draws are of no
            chain that is known.
        labels: of the simulations, by the argument that has them: theta and draws; or None.
    """

    true: dict[str, np.ndarray]
    drawn: dict[str, np.ndarray]
    n_chains: int | None
    labels: dict[str, np.ndarray | None]

    def add(self, names: Sequence[str], true: np.ndarray, drawn: np.ndarray) -> None:
        """Adds the numbers ``[n, …]`` with draws ``[n, S, …]``, in the coarser of both dtypes."""
        with jax.enable_x64(True):
            true, drawn = (np.asarray(x, float) for x in in_one_precision(true, drawn))
        for k, name in enumerate(names):
            self.true[name] = true.reshape(len(true), len(names))[:, k]
            self.drawn[name] = drawn.reshape(*drawn.shape[:2], len(names))[:, :, k]


def is_labelled(value: Any) -> bool:
    """Whether it is an array of xarray."""
    return hasattr(value, "dims") and hasattr(value, "coords") and not hasattr(value, "data_vars")


def labels_along(value: Any, dimension: Any) -> np.ndarray | None:
    """The labels of an array of xarray along a dimension, or None."""
    has_them = is_labelled(value) and dimension in value.coords
    return np.asarray(value.coords[dimension].to_numpy()) if has_them else None


def names_along(value: Any, dimension: Any) -> list[str]:
    """What an array of xarray calls the items along a dimension."""
    labels = labels_along(value, dimension)
    return list(map(str, range(value.sizes[dimension]) if labels is None else labels))


def read_parameters(theta: Any, draws: Any) -> Parameters:
    """True values ``[n]`` and draws ``[n, S]`` of each number.

    A parameter with more dimensions is one for each of their labels, such as "effect[Oslo]".

    Args:
        theta: an array, a mapping of names to arrays whose first axis is that of the simulations, a
            frame, a dataset or, for one parameter, an array of xarray.
        draws: an array or a mapping; a dataset with the dimension draw, perhaps chain, and one of
            simulations, which may have parameters that theta lacks; what has such a dataset as its
            `posterior`; an array of xarray with these dimensions; or a list of n of these without a
            dimension of simulations.

    Raises:
        TypeError: only one of theta and draws has names.
        ValueError: names, dimensions, shapes or labels do not fit.
    """
    dataset = _dataset_of(draws)
    if dataset is not None:
        known = _named(theta, is_labelled(draws))
        _check_simulation(dataset, known)
        return _of_datasets(known, dataset, "draws")
    is_list = isinstance(draws, Sequence) and not isinstance(draws, str)
    many = list(map(_dataset_of, draws)) if is_list else []
    if many and many[0] is not None:
        known = _named(theta, False)
        return _of_datasets(known, _stacked(many, draws, known), "draws[0]")
    if _dataset_of(theta) is not None and not is_labelled(theta):
        raise TypeError("draws must be a dataset, or a list of them, where theta is a dataset.")
    if isinstance(draws, Mapping) and any(map(is_labelled, draws.values())):
        raise TypeError("draws must be one dataset, which xarray.Dataset(draws) is.")
    return _of_arrays(theta, draws)


def _of_arrays(theta: Any, draws: Any) -> Parameters:
    labels = labels_along(theta, theta.dims[0]) if is_labelled(theta) and theta.dims else None
    columns = None
    if isinstance(theta, Frame) and not isinstance(theta, Mapping):
        columns = list(map(str, theta.columns))
        if isinstance(draws, Mapping):
            theta = {str(name): theta[name] for name in theta.columns}
    if isinstance(theta, Mapping) != isinstance(draws, Mapping):
        raise TypeError("theta and draws must both be arrays, or both mappings of names to arrays.")
    if not isinstance(theta, Mapping):
        theta, draws = {"theta": theta}, {"theta": draws}
    if set(theta) != set(draws):
        raise ValueError(
            f"draws must have the names of theta, {sorted(theta)}, got {sorted(draws)}."
        )
    found, sizes = Parameters({}, {}, None, {"theta": labels, "draws": None}), set()
    for name, values in theta.items():
        true, drawn = np.asarray(values), np.asarray(draws[name])
        _check_shapes(name, true.shape, drawn.shape)
        sizes.add(drawn.shape[:2])
        names = [name]
        if true.ndim == 2:
            names = columns or [f"{name}[{k}]" for k in range(true.shape[1])]
        found.add(names, true, drawn)
    if len(sizes) != 1:
        raise ValueError(f"All parameters must have the same n and S, got {sorted(sizes)}.")
    return found


def _check_shapes(name: str, true: tuple[int, ...], drawn: tuple[int, ...]) -> None:
    if len(true) in (1, 2) and len(drawn) == len(true) + 1:
        if drawn[0] == true[0] and drawn[2:] == true[1:] and drawn[1]:
            return
        expected = ", ".join(map(str, (true[0], "S", *true[1:])))
        words = f"draws of shape [{expected}] for theta of shape {list(true)}, got {list(drawn)}"
    else:
        words = (
            "theta [n] and draws [n, S], or theta [n, d] and draws [n, S, d], got shapes "
            f"{list(true)} and {list(drawn)}"
        )
    raise ValueError(f"{name}: expected {words}{_cure(true, drawn)}.")


def _cure(true: tuple[int, ...], drawn: tuple[int, ...]) -> str:
    """What makes draws of these shapes what they should be, or nothing."""
    rest = true[1:]
    if len(true) == 1 and len(drawn) == 3 and drawn[::2] == (true[0], 1):
        return "; draws[..., 0] has it"
    if len(drawn) == len(true) + 2 and drawn[0] == true[0] and drawn[3:] == rest:
        shape = ", ".join(map(str, (true[0], drawn[1] * drawn[2], *rest)))
        return f"; if chains and their draws are the axes 1 and 2, draws.reshape({shape}) has it"
    if len(drawn) == len(true) + 1:
        if drawn[1] == true[0] and drawn[2:] == rest:
            return "; numpy.swapaxes(draws, 0, 1) has it"
        if rest and drawn[:2] == true:
            return "; numpy.swapaxes(draws, 1, 2) has it"
    if rest == (1,) and len(drawn) == 2 and drawn[0] == true[0]:
        return "; draws[..., None] has it"
    return ""


def _dataset_of(value: Any) -> Any:
    """A dataset, or the posterior of what has one; None of anything else."""
    if is_labelled(value):
        return value.to_dataset(name="theta") if "draw" in value.dims else None
    if not hasattr(value, "data_vars") or not len(value.data_vars):
        value = getattr(value, "posterior", None)
    return value if hasattr(value, "data_vars") else None


def _stacked(many: list[Any], draws: Sequence[Any], known: Mapping[str, Any]) -> Any:
    """One dataset of those of n simulations, with the labels of the first one along dimensions."""
    import xarray

    ordered: list[Any] = []
    for k, dataset in enumerate(many):
        if dataset is None:
            got = type(draws[k]).__name__
            raise TypeError(f"draws[{k}] must be a posterior as draws[0] is, got {got}.")
        _check_names(dataset, list(known), f"draws[{k}]")
        own = dataset[list(known)]
        first = ordered[0] if ordered else own
        for name in known:
            if dict(own[name].sizes) != dict(first[name].sizes):
                raise ValueError(
                    f"draws must have one shape of {name}, got {list(first[name].shape)} and, in "
                    f"draws[{k}], {list(own[name].shape)}."
                )
        for dim in set(own.dims) - set(_OF_DRAWS):
            name = next(name for name in known if dim in own[name].dims)
            labels = (names_along(x[name], dim) for x in (first, own))
            own = own.isel({dim: _order(name, dim, *labels)})
        ordered.append(own)
    if not all(_SIMULATION in x.coords and not x.coords[_SIMULATION].ndim for x in ordered):
        ordered = [x.drop_vars(_SIMULATION, errors="ignore") for x in ordered]
    same: Any = dict(data_vars="all", coords="minimal", compat="override", join="override")
    return xarray.concat(ordered, _SIMULATION, **same)


def _of_datasets(known: Mapping[str, Any], dataset: Any, words: str) -> Parameters:
    found = Parameters({}, {}, None, {})
    labels_of_theta: list[np.ndarray] = []
    for name, value in known.items():
        variable = dataset[name]
        of_draws = [dim for dim in _OF_DRAWS if dim in variable.dims]
        if "draw" not in of_draws:
            raise ValueError(
                f"{words}, variable {name}: expected the dimension draw, got "
                f"{_listed(variable.dims)}."
            )
        rest = {
            dim: names_along(variable, dim)
            for dim in variable.dims
            if dim not in (_SIMULATION, *of_draws)
        }
        drawn = variable.transpose(_SIMULATION, *of_draws, *rest).to_numpy()
        n, shape = len(drawn), drawn.shape[1 + len(of_draws) :]
        drawn = drawn.reshape(n, math.prod(drawn.shape[1 : 1 + len(of_draws)]), *shape)
        true, along = _values_of(name, value, rest)
        labels_of_theta += [] if along is None else [along]
        if true.ndim == 0 or true.shape[1:] != shape:
            raise ValueError(
                f"{name}: expected theta of shape {[n, *shape]} for {n} posteriors, got "
                f"{list(true.shape)}."
            )
        items = [", ".join(item) for item in itertools.product(*rest.values())]
        found.add([f"{name}[{item}]" if item else name for item in items], true, drawn)
    if any(not np.array_equal(x, labels_of_theta[0]) for x in labels_of_theta):
        raise ValueError("theta must have one order of simulations for all of its parameters.")
    of_theta = labels_of_theta[0] if labels_of_theta else None
    labels = {"theta": of_theta, "draws": labels_along(variable, _SIMULATION)}
    return found._replace(n_chains=variable.sizes.get("chain", 1), labels=labels)


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


def _check_simulation(draws: Any, known: Mapping[str, Any]) -> None:
    _check_names(draws, list(known), "draws")
    for name in known:
        if _SIMULATION not in draws[name].dims:
            raise ValueError(
                f"draws must have chain, draw and the dimension {_SIMULATION}, which is missing; "
                f"{name} has {_listed(draws[name].dims)}. Of n posteriors a list is taken, too."
            )


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


class Observations(NamedTuple):
    """Columns ``[n]`` by their names, and labels of the simulations or None."""

    columns: dict[str, np.ndarray]
    labels: np.ndarray | None


def read_observations(x: Any) -> Observations:
    """The observations of `check_posterior`.

    Args:
        x: numbers ``[n]`` or ``[n, k]``, as an array, as an array or a dataset of xarray, or as
            columns in a frame or a mapping.  The simulations are the dimension of xarray with this
            name, or the first one.

    Raises:
        TypeError, ValueError: x is something else, or its columns differ in length.
    """
    if hasattr(x, "data_vars"):
        x = {name: x[name] for name in x.data_vars}
    parts = {"x": x}
    if isinstance(x, (Mapping, Frame)):
        names_of_x = x if isinstance(x, Mapping) else x.columns
        parts = {str(name): x[name] for name in names_of_x}
    columns: dict[str, np.ndarray] = {}
    labels: list[np.ndarray] = []
    for name, value in parts.items():
        names = None
        if is_labelled(value) and value.dims:
            first = _SIMULATION if _SIMULATION in value.dims else value.dims[0]
            value = value.transpose(first, ...)
            along = labels_along(value, first)
            labels += [] if along is None else [along]
            names = names_along(value, value.dims[1]) if value.ndim == 2 else None
            value = value.to_numpy()
        array = _array("x" if name == "x" else f"column {name} of x", value)
        if array.ndim == 1 or array.shape[1:] == (1,):
            columns[name] = array.reshape(len(array))
        else:
            names = names or list(map(str, range(array.shape[1])))
            columns |= {f"{name}[{item}]": array[:, k] for k, item in enumerate(names)}
    if not columns:
        raise ValueError("x must have at least one column, got none.")
    sizes = {name: len(values) for name, values in columns.items()}
    if len(set(sizes.values())) > 1:
        raise ValueError(f"x must have columns of one length, got {sizes}.")
    if any(not np.array_equal(along, labels[0]) for along in labels):
        raise ValueError("x must have one order of simulations for all of its columns.")
    return Observations(columns, labels[0] if labels else None)


def _array(name: str, value: Any) -> np.ndarray:
    is_array = isinstance(value, np.ndarray) or hasattr(value, "to_numpy")
    array = np.asarray(value) if is_array else as_numpy(name, value)
    if array.ndim not in (1, 2):
        cure = "; x.reshape(len(x), -1) makes columns of all further axes" if array.ndim > 2 else ""
        raise ValueError(
            f"{name} must have shape [n] or [n, k], got shape {list(array.shape)}{cure}."
        )
    return array


class Simulations(NamedTuple):
    """Simulations whose numbers are all known.

    Args:
        parameters: true values ``[n]`` and draws ``[n, S]`` of each number.
        columns: of the observations, ``[n]`` each; None without observations.
        remarks: which simulations are left out, in sentences.
        names: of the simulations: their labels, or their rows.
    """

    parameters: dict[str, tuple[np.ndarray, np.ndarray]]
    columns: dict[str, np.ndarray] | None
    remarks: list[str]
    names: np.ndarray


def matched(
    parameters: Parameters, observations: Observations | None, drop_missing: bool
) -> Simulations:
    """The simulations of all arguments, by their labels, without those where a number is missing.

    Raises:
        ValueError: labels or lengths do not fit; numbers are missing and are not to be dropped, or
            fewer than two simulations remain.
    """
    found: dict[str, dict[str, np.ndarray]]
    found, labels = {"theta": parameters.true, "draws": parameters.drawn}, dict(parameters.labels)
    if observations is not None:
        found["x"], labels["x"] = observations
    rows, remarks = _common_rows(labels), []
    names = next((x for x in labels.values() if x is not None), None)
    if rows:
        found = {k: _rows_of(columns, rows[k]) for k, columns in found.items()}
        assert names is not None
        sizes = {name: len(x) for name, x in labels.items() if x is not None}
        names = names[next(iter(rows.values()))]
        if len(names) < max(sizes.values()):
            shown = ", ".join(f"{name} has {size}" for name, size in sizes.items())
            remarks.append(
                f"{len(names)} simulations are in all arguments, by their labels: {shown}."
            )
    lengths = {k: len(next(iter(columns.values()))) for k, columns in found.items()}
    n = lengths["draws"]
    names = np.arange(n) if names is None else names
    if lengths["theta"] != n:
        n_true = lengths["theta"]
        raise ValueError(f"theta must have one value for each of {n} posteriors, got {n_true}.")
    if lengths.get("x", n) != n:
        raise ValueError(f"x must have one row for each of {n} simulations, got {lengths['x']}.")
    bad = {
        argument: any_of(
            typed_column("x", x, n).missing
            if argument == "x"
            else ~np.isfinite(x.reshape(n, -1)).all(axis=1)
            for x in columns.values()
        )
        for argument, columns in found.items()
    }
    lost = any_of(bad.values())
    if lost.any():
        got = [f"{argument} of {counted(names[x])}" for argument, x in bad.items() if x.any()]
        words = f"missing or infinite numbers in {_in_words(got)}"
        if not drop_missing:
            raise ValueError(
                f"{_in_words(list(bad))} must be finite, got {words}; drop_missing=True leaves "
                f"{lost.sum()} of {n} simulations out."
            )
        if n - lost.sum() < 2:
            raise ValueError(f"theta and draws must have two simulations at least without {words}.")
        remarks.append(f"{lost.sum()} of {n} simulations are left out: {words}.")
        found, names = {k: _rows_of(columns, ~lost) for k, columns in found.items()}, names[~lost]
    rows_of_all = {k: (x, found["draws"][k]) for k, x in found["theta"].items()}
    return Simulations(rows_of_all, found.get("x"), remarks, names)


def _rows_of(columns: dict[str, np.ndarray], rows: np.ndarray) -> dict[str, np.ndarray]:
    return {name: x[rows] for name, x in columns.items()}


def any_of(masks: Iterable[np.ndarray]) -> np.ndarray:
    """Where any of the masks ``[n]`` is true."""
    return np.any(list(masks), axis=0)


def counted(names: Sequence) -> str:
    """How many simulations there are, and which: "2 simulations (3, 7)"."""
    return f"{len(names)} simulation{'s' * (len(names) != 1)} ({listed(list(names))})"


def _common_rows(labels: Mapping[str, np.ndarray | None]) -> dict[str, np.ndarray]:
    """For each argument its rows of the simulations that all have, by labels; none if they agree.

    Args:
        labels: of the simulations, by the names of the arguments; None of one without labels.

    Raises:
        ValueError: labels differ, and an argument has none, or a label is there twice, or none is
            in all.
    """
    known = {name: x.tolist() for name, x in labels.items() if x is not None}
    orders = list(known.values())
    if all(order == orders[0] for order in orders):
        return {}
    names = _in_words(list(known))
    others = [name for name, x in labels.items() if x is None]
    if others:
        raise ValueError(
            f"{others[0]} must have labels of simulations, as those of {names} differ; without "
            "them, rows are paired by their order, which must be the same in all."
        )
    rows = {name: {label: row for row, label in enumerate(x)} for name, x in known.items()}
    for name, order in known.items():
        if len(rows[name]) < len(order):
            twice = next(label for row, label in enumerate(order) if rows[name][label] != row)
            raise ValueError(
                f"{name} must have different labels of simulations, got {twice} twice."
            )
    common = [label for label in orders[-1] if all(label in x for x in rows.values())]
    if not common:
        shown = "; ".join(f"{name} {listed(order)}" for name, order in known.items())
        raise ValueError(f"{names} must have labels of simulations in common, got {shown}.")
    return {name: np.array([x[label] for label in common]) for name, x in rows.items()}


def _in_words(items: Sequence[str]) -> str:
    """All of them, with "and" before the last one."""
    return " and ".join(filter(None, [", ".join(items[:-1]), items[-1]]))
