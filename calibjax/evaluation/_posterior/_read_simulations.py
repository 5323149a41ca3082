"""True parameters, draws of posteriors and observations, from arrays, frames and datasets.

A dataset is what ArviZ and xarray keep: draws by names, in chains, with labels of simulations.
"""

import itertools
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard

import jax
import numpy as np

from calibjax._base.text import listed
from calibjax._data.checks import in_one_precision
from calibjax._data.typed_column import Frame, named_columns, typed_column
from calibjax.frames import as_numpy

if TYPE_CHECKING:
    from xarray import DataArray, Dataset

_SIMULATION = "simulation"


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


def is_labelled(value: object) -> TypeGuard["DataArray"]:
    """Whether it is an array of xarray."""
    return hasattr(value, "dims") and hasattr(value, "coords") and not hasattr(value, "data_vars")


def labels_along(value: "DataArray", dimension: Hashable) -> np.ndarray | None:
    """The labels of an array of xarray along a dimension, or None."""
    return value.coords[dimension].to_numpy() if dimension in value.coords else None


def names_along(value: "DataArray", dimension: Hashable) -> list[str]:
    """What an array of xarray calls the items along a dimension."""
    labels = labels_along(value, dimension)
    return list(map(str, range(value.sizes[dimension]) if labels is None else labels))


def _dataset_of(value: object) -> "Dataset | None":
    """A dataset, or the posterior of what has one; None of anything else."""
    has_data = len(getattr(value, "data_vars", ()))
    dataset: Any = value if has_data else getattr(value, "posterior", None)
    return dataset if hasattr(dataset, "data_vars") else None


def _by_name(argument: str, value: object) -> dict[str, Any] | None:
    """The arrays or columns of what has names; None of one array."""
    dataset = _dataset_of(value)
    if dataset is not None:
        return {str(name): dataset[name] for name in dataset.data_vars}
    return named_columns(argument, value) if isinstance(value, (Mapping, Frame)) else None


def read_parameters(theta: object, draws: object) -> Parameters:
    """True values ``[n]`` and draws ``[n, S]`` of each number.

    A parameter with more dimensions is one for each of their labels, such as "effect[Oslo]".

    Args:
        theta: an array, an array of xarray, or such arrays by names, whose first axis or other
            dimension is that of the simulations: a mapping, a frame or a dataset.
        draws: an array, an array of xarray with the dimensions simulation and draw, and perhaps
            chain, or such arrays by names, which may be more than those of theta; what has such a
            dataset as its `posterior`; or a list of n of these without a dimension of simulations.

    Raises:
        TypeError: only one of theta and draws has names.
        ValueError: names, dimensions, shapes or labels do not fit.
    """
    known, columns = _by_name("theta", theta), None
    if isinstance(draws, Sequence) and any(_dataset_of(x) is not None for x in draws):
        draws = _concatenated(draws, list(known or ()))
    by_name = _by_name("draws", draws)
    if by_name is None and isinstance(theta, Frame):
        known, columns, theta = None, list(map(str, theta.columns)), np.asarray(theta)
    if (known is None) != (by_name is None):
        got = f"{type(theta).__name__} and {type(draws).__name__}"
        raise TypeError(f"theta and draws must both be arrays, or both have names, got {got}.")
    if known is None or by_name is None:
        known, by_name = {"theta": theta}, {"theta": draws}
    _check_names("draws", by_name, list(known))
    found, sizes, n_chains = Parameters({}, {}, None, {}), set(), None
    labels: dict[str, list[np.ndarray | None]] = {"theta": [], "draws": []}
    for name, value in known.items():
        variable, dims = _with_draws_second(name, by_name[name])
        drawn, rest = np.asarray(variable), {dim: names_along(variable, dim) for dim in dims[2:]}
        true, of_theta = _values_of(name, value, rest if dims else None)
        of_draws = labels_along(variable, _SIMULATION) if dims else None
        _check_shapes(name, true, drawn, is_labelled=of_theta is not None or of_draws is not None)
        labels["theta"].append(of_theta)
        labels["draws"].append(of_draws)
        sizes.add(drawn.shape[:2])
        n_chains = by_name[name].sizes.get("chain", 1) if dims else n_chains
        items = rest.values() if dims else (map(str, range(m)) for m in true.shape[1:])
        names = [", ".join(item) for item in itertools.product(*items)]
        found.add(columns or [f"{name}[{x}]" if x else name for x in names], true, drawn)
    if len(sizes) != 1:
        raise ValueError(f"All parameters must have the same n and S, got {sorted(sizes)}.")
    in_one_order = {argument: _one_order(argument, x) for argument, x in labels.items()}
    return found._replace(n_chains=n_chains, labels=in_one_order)


def _check_names(argument: str, found: Collection[Hashable], names: list[str]) -> None:
    missing = [name for name in names if name not in found]
    if missing:
        got = f"none called {listed(missing)}, only {listed(list(found))}"
        raise ValueError(f"{argument} must have the names of theta, got {got}.")


def _concatenated(posteriors: Sequence[Any], names: list[str]) -> Any:
    """One dataset of n posteriors, with the labels of the first one along their dimensions."""
    import xarray

    parts: list[Any] = []
    for k, posterior in enumerate(posteriors):
        dataset = _dataset_of(posterior)
        if dataset is None:
            got = type(posterior).__name__
            raise TypeError(f"draws[{k}] must be a posterior as the others are, got {got}.")
        _check_names(f"draws[{k}]", dataset.data_vars, names)
        parts.append(dataset[names])
        for name in names:
            first, own = (dict(x[name].sizes) for x in (parts[0], parts[k]))
            if own != first:
                raise ValueError(
                    f"draws must have one shape of {name}, got {first} and, in draws[{k}], {own}."
                )
    if not all(_SIMULATION in x.coords and not x.coords[_SIMULATION].ndim for x in parts):
        parts = [x.drop_vars(_SIMULATION, errors="ignore") for x in parts]
    # What has another label than the first one becomes NaN, which is an error later.
    same: Any = dict(data_vars="all", coords="minimal", compat="override", join="left")
    return xarray.concat(parts, _SIMULATION, **same)


def _with_draws_second(name: str, draws: object) -> tuple[Any, tuple[Any, ...]]:
    """Draws ``[n, S, …]``, chains one after the other, and their dimensions, none of an array."""
    if not is_labelled(draws) or not {_SIMULATION, "draw"} & {*draws.dims}:
        return draws, ()
    dims = draws.dims
    if not {_SIMULATION, "draw"} <= {*dims}:
        raise ValueError(
            f"draws, variable {name}: expected the dimensions {_SIMULATION} and draw, and perhaps "
            f"chain, got {listed(list(dims))}. A list of n posteriors is also accepted."
        )
    of_draws = {"sample": [dim for dim in ("chain", "draw") if dim in dims]}
    variable = draws.stack(of_draws, create_index=False).transpose(_SIMULATION, "sample", ...)
    return variable, variable.dims


def _values_of(
    name: str, value: object, rest: Mapping[Any, list[str]] | None
) -> tuple[np.ndarray, np.ndarray | None]:
    """True values ``[n, …]`` in the order of the labels of the draws, and labels of simulations.

    Args:
        name: the parameter.
        value: its true values.
        rest: the labels of the draws along other dimensions; None if draws have no dimensions.
    """
    if not is_labelled(value) or not value.dims:
        return np.asarray(value), None
    if rest is None:
        return value.to_numpy(), labels_along(value, value.dims[0])
    others = [dim for dim in value.dims if dim not in rest]
    if len(others) != 1 or len(value.dims) != 1 + len(rest):
        needed = f"simulations and {listed(list(rest)) or 'no others'}"
        got = listed(list(value.dims))
        raise ValueError(f"theta, variable {name}: expected dimensions of {needed}, got {got}.")
    for dim, wanted in rest.items():
        own = names_along(value, dim)
        if dim in value.coords and sorted(wanted) != sorted(own):
            both = f"{listed(own)} and {listed(wanted)}"
            raise ValueError(f"{name} must have one set of labels of {dim}, got {both}.")
        if dim in value.coords:
            value = value.isel({dim: list(map(own.index, wanted))})
    return value.transpose(*others, *rest).to_numpy(), labels_along(value, others[0])


def _check_shapes(name: str, true: np.ndarray, drawn: np.ndarray, is_labelled: bool) -> None:
    """An error unless shapes are ``[n, …]`` and ``[n, S, …]``; labels may leave simulations out."""
    expected = [*true.shape[:1], "S", *true.shape[1:]]
    fits = true.ndim > 0 and drawn.ndim == true.ndim + 1 and drawn.shape[1] > 0
    fits = fits and true.shape[1:] == drawn.shape[2:]
    if not fits or not (is_labelled or len(true) == len(drawn)):
        raise ValueError(
            f"{name}: expected draws of shape [{', '.join(map(str, expected))}] for theta of shape "
            f"{list(true.shape)}, got {list(drawn.shape)}."
        )


def _one_order(argument: str, labels: Sequence[np.ndarray | None]) -> np.ndarray | None:
    """The labels of the simulations that all parts of an argument have, or None."""
    known = [x for x in labels if x is not None]
    if any(not np.array_equal(x, known[0]) for x in known):
        raise ValueError(f"{argument} must have one order of simulations for all of its parts.")
    return known[0] if known else None


#: Columns ``[n]`` by their names, and labels of the simulations or None.
Observations = tuple[dict[str, np.ndarray], np.ndarray | None]


def read_observations(x: object) -> Observations:
    """The observations of `check_posterior`.

    Args:
        x: numbers ``[n]`` or ``[n, k]``, as an array, as an array or a dataset of xarray, or as
            columns in a frame or a mapping.  The simulations are the dimension of xarray with this
            name, or the first one.

    Raises:
        TypeError, ValueError: x is something else, or its columns differ in length.
    """
    by_name = _by_name("x", x)
    columns: dict[str, np.ndarray] = {}
    labels: list[np.ndarray | None] = []
    for name, value in ({"x": x} if by_name is None else by_name).items():
        names = None
        if is_labelled(value) and value.dims:
            first = _SIMULATION if _SIMULATION in value.dims else value.dims[0]
            value = value.transpose(first, ...)
            labels.append(labels_along(value, first))
            names = names_along(value, value.dims[1]) if value.ndim == 2 else None
        array = _array("x" if by_name is None else f"column {name} of x", value)
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
    return columns, _one_order("x", labels)


def _array(name: str, value: object) -> np.ndarray:
    is_array = isinstance(value, np.ndarray) or hasattr(value, "to_numpy")
    array = np.asarray(value) if is_array else as_numpy(name, value)
    if array.ndim not in (1, 2):
        cure = "; x.reshape(len(x), -1) makes columns of all further axes" if array.ndim > 2 else ""
        raise ValueError(f"{name} must have shape [n] or [n, k], got {list(array.shape)}{cure}.")
    return array


class Simulations(NamedTuple):
    """Simulations whose numbers are all known.

    Args:
        parameters: true values ``[n]`` and draws ``[n, S]`` of each number.
        columns: of the observations, ``[n]`` each; None without observations.
        notes: which simulations are left out, in sentences.
        names: of the simulations: their labels, or their rows.
    """

    parameters: dict[str, tuple[np.ndarray, np.ndarray]]
    columns: dict[str, np.ndarray] | None
    notes: list[str]
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
    rows, notes = _common_rows(labels), []
    names = next((x for x in labels.values() if x is not None), None)
    if rows:
        found = {k: _rows_of(columns, rows[k]) for k, columns in found.items()}
        assert names is not None
        sizes = {name: len(x) for name, x in labels.items() if x is not None}
        names = names[next(iter(rows.values()))]
        if len(names) < max(sizes.values()):
            shown = ", ".join(f"{name} has {size}" for name, size in sizes.items())
            notes.append(
                f"{len(names)} simulations are in all arguments, by their labels: {shown}."
            )
    lengths = {k: len(next(iter(columns.values()))) for k, columns in found.items()}
    n = lengths["draws"]
    if set(lengths.values()) != {n}:
        raise ValueError(f"{_in_words(list(found))} must have the same simulations, got {lengths}.")
    names = np.arange(n) if names is None else names

    def is_missing(argument: str, x: np.ndarray) -> np.ndarray:
        if argument == "x":
            return typed_column("x", x, n).missing
        return ~np.isfinite(x.reshape(n, -1)).all(axis=1)

    bad = {k: any_of(is_missing(k, x) for x in columns.values()) for k, columns in found.items()}
    lost = any_of(bad.values())
    if n < 2:
        raise ValueError(
            f"theta and draws must have at least 2 simulations, got {n}; draw more theta from the "
            "prior, and from each the data and its posterior."
        )
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
        notes.append(f"{lost.sum()} of {n} simulations are left out: {words}.")
        found, names = {k: _rows_of(columns, ~lost) for k, columns in found.items()}, names[~lost]
    rows_of_all = {k: (x, found["draws"][k]) for k, x in found["theta"].items()}
    return Simulations(rows_of_all, found.get("x"), notes, names)


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
    if len(set(map(tuple, known.values()))) < 2:
        return {}
    names = _in_words(list(known))
    for name in labels:
        order = known.get(name)
        if order is None:
            words = f"as those of {names} differ; without any, all orders must agree"
            raise ValueError(f"{name} must have labels of simulations, {words}.")
        if len(set(order)) < len(order):
            twice = next(label for label in order if order.count(label) > 1)
            raise ValueError(f"{name} must have different simulation labels, got {twice} twice.")
    rows = {name: dict(zip(x, range(len(x)), strict=True)) for name, x in known.items()}
    *_, last = known.values()
    common = [label for label in last if all(label in x for x in rows.values())]
    if not common:
        shown = "; ".join(f"{name} {listed(order)}" for name, order in known.items())
        raise ValueError(f"{names} must have labels of simulations in common, got {shown}.")
    return {name: np.array([x[label] for label in common]) for name, x in rows.items()}


def _in_words(items: Sequence[str]) -> str:
    """All of them, with "and" before the last one."""
    return " and ".join(filter(None, [", ".join(items[:-1]), items[-1]]))
