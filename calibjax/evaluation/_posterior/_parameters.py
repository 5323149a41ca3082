"""What is known of each parameter, and labels of simulations."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from calibjax._rows import in_one_precision
from calibjax._text import listed


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


def places_along(value: Any, dimension: Any) -> list[str]:
    """What the places along a dimension of an array of xarray are called."""
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
            "them, rows are paired by their places, which must be the same in all."
        )
    places = {name: {label: row for row, label in enumerate(x)} for name, x in known.items()}
    for name, order in known.items():
        if len(places[name]) < len(order):
            twice = next(label for row, label in enumerate(order) if places[name][label] != row)
            raise ValueError(
                f"{name} must have different labels of simulations, got {twice} twice."
            )
    common = [label for label in orders[-1] if all(label in x for x in places.values())]
    if not common:
        shown = "; ".join(f"{name} {listed(order)}" for name, order in known.items())
        raise ValueError(f"{names} must have labels of simulations in common, got {shown}.")
    return {name: np.array([x[label] for label in common]) for name, x in places.items()}


def in_words(items: Sequence[str]) -> str:
    """All of them, with "and" before the last one."""
    return " and ".join(filter(None, [", ".join(items[:-1]), items[-1]]))
