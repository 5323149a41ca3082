"""True parameters and draws as arrays, by names or without."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from calibjax._rows import Frame
from calibjax.evaluation._posterior._parameters import (
    Parameters,
    is_labelled,
    labels_along,
    rounded,
)


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
