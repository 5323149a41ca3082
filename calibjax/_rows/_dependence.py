"""Rows that depend on each other: clusters, or times with a horizon."""

import dataclasses
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from calibjax._check import check_array, check_shapes, check_values
from calibjax._rows._data import Data
from calibjax._sharding import devices_of
from calibjax._struct import is_traced, on_host


class Dependence(NamedTuple):
    """Which rows may depend on each other, as the user says it.

    Args:
        clusters: integers ``[n]``, or None.
        times: numbers ``[n]``, or None.
        horizon: a number of Python in units of the times, or None.
    """

    clusters: ArrayLike | None = None
    times: ArrayLike | None = None
    horizon: float | None = None


def with_dependence(data: Data, dependence: Dependence, at_least: int = 2) -> Data:
    """Checked data, and which of their rows may depend on each other, checked too.

    There must be at least `at_least` clusters, or times without a horizon.

    Clusters are numbered from 0 where they are concrete, in the order of their names, so that
    random numbers depend on their order alone.  Without a horizon, times are clusters: rows of one
    time may depend on each other, and rows of two times do not.
    """
    clusters, times, horizon = dependence
    if clusters is not None and times is not None:
        raise ValueError(
            "clusters and times must not both be given: pass clusters if rows of different "
            "clusters never depend on each other, else times."
        )
    if horizon is not None and times is None:
        raise ValueError("times must be given with a horizon, got None.")
    if clusters is not None:
        check_array("clusters", clusters, "integer")
        check_shapes({"clusters": (clusters, "n")}, {"n": data.n})
        return dataclasses.replace(data, clusters=_numbered("clusters", clusters, data, at_least))
    if times is None:
        return data
    check_array("times", times, "real")
    check_shapes({"times": (times, "n")}, {"n": data.n})
    kept = kept_rows(data)
    if kept is not None and not is_traced(times):
        at = np.asarray(times, np.float64)
        with jax.ensure_compile_time_eval():
            check_values("times", times, "finite", np.isfinite(at) | ~kept)
    if horizon is None:
        return dataclasses.replace(data, clusters=_numbered("times", times, data, at_least))
    if isinstance(horizon, bool) or not isinstance(horizon, (int, float, np.number)):
        raise TypeError(f"horizon must be a number of Python, got {type(horizon).__name__}.")
    if not 0 < horizon < math.inf:
        raise ValueError(f"horizon must be positive and finite, got {horizon}.")
    if is_traced((times, data.where)) or devices_of(times):
        return dataclasses.replace(data, times=jnp.asarray(times) / horizon)
    # Differences of times are all that counts, and a date in seconds has more digits than float32.
    at = np.asarray(times, np.float64)
    _refuse_one("times", at, data)
    at = (at - np.min(at[kept])) / float(horizon)
    return dataclasses.replace(
        data, times=jax.device_put(at.astype(jax.dtypes.canonicalize_dtype(float)))
    )


def check_unrelated(data: Data) -> None:
    """A ValueError if all kept rows are less than a horizon apart: no pair would be left."""
    kept = kept_rows(data)
    if data.times is None or kept is None or is_traced(data.times):
        return
    with jax.ensure_compile_time_eval():
        at = np.asarray(data.times)[kept]
    if at.size and np.max(at) - np.min(at) < 1:
        raise ValueError(
            "times must be more than one horizon apart for some rows, got all within "
            f"{np.max(at) - np.min(at):.3g} horizons."
        )


def n_units(data: Data) -> int | None:
    """The number of clusters, or of different times; None if it is traced or nothing depends."""
    values = data.clusters if data.times is None else data.times
    kept = kept_rows(data)
    if values is None or kept is None or is_traced(values):
        return None
    return int(np.unique(np.asarray(values)[kept]).size)


def describe_units(data: Data) -> str:
    """What rows depend on each other in, such as "60 clusters"; "rows" if they do not."""
    if data.clusters is None and data.times is None:
        return "rows"
    number = n_units(data)
    count = "" if number is None else f"{number} "
    return f"{count}{'clusters' if data.times is None else 'times'}"


def _numbered(name: str, values: ArrayLike, data: Data, at_least: int) -> ArrayLike:
    """Clusters as numbers from 0 on; integers remain as they are where they are not known here.

    Those of 64 bits are numbered there, too: two of them may have the same 32 bits.
    """
    kept = kept_rows(data)
    if is_traced(values) or devices_of(values):
        if jnp.result_type(values).itemsize == 8:
            return jnp.unique(values, return_inverse=True, size=data.n)[1].astype(jnp.int32)
        if not jnp.issubdtype(jnp.result_type(values), jnp.floating):
            return jnp.asarray(values).astype(jnp.int32)
        # Equal numbers are equal bits, but for the sign of 0.
        as_float32 = jnp.asarray(values).astype(jnp.float32) + 0.0
        return jax.lax.bitcast_convert_type(as_float32, jnp.int32)
    values = np.asarray(values)
    if at_least > 1:
        _refuse_one(name, values, data)
    names = np.unique(values if kept is None else values[kept])
    numbers = np.minimum(np.searchsorted(names, values), max(names.size - 1, 0))
    return jax.device_put(numbers.astype(np.int32))


def _refuse_one(name: str, values: np.ndarray, data: Data) -> None:
    kept = kept_rows(data)
    if kept is not None and np.unique(values[kept]).size < 2:
        raise ValueError(f"{name} must have at least 2 different values, got 1.")


def kept_rows(data: Data) -> np.ndarray | None:
    """Which rows count, or None if that is traced."""
    if is_traced((data.where, data.weights)):
        return None
    kept = np.ones(data.n, bool) if data.where is None else np.array(on_host(data.where)[: data.n])
    if data.weights is not None:
        kept &= on_host(data.weights)[: data.n] > 0
    return kept
