"""True parameters, draws and observations as arrays, by names or without."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from calibjax._base.text import listed
from calibjax._data import Frame, in_one_precision
from calibjax.frames import as_numpy


class Parameters(NamedTuple):
    """True values and draws of each number.

    Args:
        true: the values ``[n]`` by the names of the numbers, in float64.
        drawn: the draws ``[n, S]``, in float64.
        n_chains: the number of chains, one after the other in the draws; None if draws are of no
            chain that is known.
        labels: of the simulations, by the argument that has them: theta and draws; or None.
        dimension: of the simulations, as datasets call it; or None.
    """

    true: dict[str, np.ndarray]
    drawn: dict[str, np.ndarray]
    n_chains: int | None
    labels: dict[str, np.ndarray | None]
    dimension: Any = None


def rounded(true: np.ndarray, drawn: np.ndarray) -> tuple[np.ndarray, ...]:
    """True values and draws in float64, both rounded to the coarser dtype of the two."""
    with jax.enable_x64(True):
        return tuple(np.asarray(x, float) for x in in_one_precision(true, drawn))


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


def common_rows(labels: Mapping[str, np.ndarray | None]) -> dict[str, np.ndarray]:
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
    names = in_words(list(known))
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


def in_words(items: Sequence[str]) -> str:
    """All of them, with "and" before the last one."""
    return " and ".join(filter(None, [", ".join(items[:-1]), items[-1]]))


def read_arrays(theta: Any, draws: Any) -> Parameters:
    """True values ``[n]`` and draws ``[n, S]`` of each number.

    Raises:
        TypeError: only one of theta and draws has names.
        ValueError: names or shapes do not fit.
    """
    labels = labels_along(theta, theta.dims[0]) if is_labelled(theta) and theta.dims else None
    columns = None
    if isinstance(theta, Frame) and not isinstance(theta, Mapping):
        columns = [str(name) for name in theta.columns]
        if isinstance(draws, Mapping):
            theta = {name: theta[key] for name, key in zip(columns, theta.columns, strict=True)}
    if isinstance(theta, Mapping) != isinstance(draws, Mapping):
        raise TypeError("theta and draws must both be arrays, or both mappings of names to arrays.")
    if not isinstance(theta, Mapping):
        theta, draws = {"theta": theta}, {"theta": draws}
    if set(theta) != set(draws):
        raise ValueError(
            f"draws must have the names of theta, {sorted(theta)}, got {sorted(draws)}."
        )
    true: dict[str, np.ndarray] = {}
    drawn: dict[str, np.ndarray] = {}
    sizes = set()
    for name, values in theta.items():
        of_theta, of_draws = rounded(np.asarray(values), np.asarray(draws[name]))
        _check_shapes(name, of_theta.shape, of_draws.shape)
        sizes.add(of_draws.shape[:2])
        if of_theta.ndim == 1:
            true[name], drawn[name] = of_theta, of_draws
            continue
        for k in range(of_theta.shape[1]):
            called = f"{name}[{k}]" if columns is None else columns[k]
            true[called], drawn[called] = of_theta[:, k], of_draws[:, :, k]
    if len(sizes) != 1:
        raise ValueError(f"All parameters must have the same n and S, got {sorted(sizes)}.")
    return Parameters(true, drawn, None, {"theta": labels, "draws": None})


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


class Observations(NamedTuple):
    """Columns ``[n]`` by their names, and labels of the simulations or None."""

    columns: dict[str, np.ndarray]
    labels: np.ndarray | None


def read_observations(x: Any, dimension: Any) -> Observations:
    """The observations of `check_posterior`.

    Args:
        x: numbers ``[n]`` or ``[n, k]``, as an array, as an array or a dataset of xarray, or as
            columns in a frame or a mapping.
        dimension: of the simulations, as xarray calls it; the first one where it is not there.

    Raises:
        TypeError, ValueError: x is something else, or its columns differ in length.
    """
    if hasattr(x, "data_vars"):
        x = {name: x[name] for name in x.data_vars}
    if isinstance(x, Mapping):
        parts = {str(name): value for name, value in x.items()}
    elif isinstance(x, Frame):
        parts = {str(name): x[name] for name in x.columns}
    else:
        parts = {"x": x}
    columns: dict[str, np.ndarray] = {}
    labels: list[np.ndarray] = []
    for name, value in parts.items():
        names = None
        if is_labelled(value) and value.dims:
            first = dimension if dimension in value.dims else value.dims[0]
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
