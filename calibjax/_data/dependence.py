"""Codes of what makes rows depend on each other: clusters, or times with a horizon."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from calibjax._base.check import check_array, check_shapes, check_values
from calibjax._base.sharding import devices_of
from calibjax._base.struct import is_traced, on_host


def coded_dependence(
    clusters: ArrayLike | None,
    times: ArrayLike | None,
    horizon: float | None,
    n: int,
    where: ArrayLike | None,
    kept: np.ndarray | None,
) -> tuple[Any, Any]:
    """Clusters as numbers and times in units of the horizon, each None if there are none.

    Clusters are numbered from 0 where they are concrete, in the order of their names, so that
    random numbers depend on their order alone.  Without a horizon, times are clusters: rows of one
    time may depend on each other, and rows of two times do not.
    """
    if clusters is not None and times is not None:
        raise ValueError(
            "clusters and times must not both be given: pass clusters if rows of different "
            "clusters never depend on each other, else times."
        )
    if horizon is not None and times is None:
        raise ValueError("times must be given with a horizon, got None.")
    if clusters is not None:
        check_array("clusters", clusters, "integer")
        check_shapes({"clusters": (clusters, "n")}, {"n": n})
        return _numbered(clusters, n, where, kept), None
    if times is None:
        return None, None
    check_array("times", times, "real")
    check_shapes({"times": (times, "n")}, {"n": n})
    if kept is not None and not is_traced(times):
        at = np.asarray(times, np.float64)
        with jax.ensure_compile_time_eval():
            check_values("times", times, "finite", np.isfinite(at) | ~kept)
    if horizon is None:
        return _numbered(times, n, where, kept), None
    if isinstance(horizon, bool) or not isinstance(horizon, (int, float, np.number)):
        raise TypeError(f"horizon must be a number of Python, got {type(horizon).__name__}.")
    if not 0 < horizon < math.inf:
        raise ValueError(f"horizon must be positive and finite, got {horizon}.")
    if is_traced(times) or kept is None or devices_of(times):
        return None, jnp.asarray(times) / horizon
    # Differences of times are all that counts, and a date in seconds has more digits than float32.
    at = np.asarray(times, np.float64)
    at = (at - np.min(at[kept], initial=np.inf)) / float(horizon)
    return None, jax.device_put(at.astype(jax.dtypes.canonicalize_dtype(float)))


def _numbered(values: ArrayLike, n: int, where: ArrayLike | None, kept: np.ndarray | None) -> Any:
    """Clusters as numbers from 0 on; integers remain as they are where they are not known here.

    Those of 64 bits are always numbered: two of them may have the same 32 bits.
    """
    if is_traced(values) or devices_of(values):
        if jnp.result_type(values).itemsize == 8:
            if where is not None:  # What masked rows hold takes no number.
                values = jnp.where(where, values, jnp.asarray(values)[jnp.argmax(where)])
            return jnp.unique(values, return_inverse=True, size=n)[1].astype(jnp.int32)
        if not jnp.issubdtype(jnp.result_type(values), jnp.floating):
            return jnp.asarray(values).astype(jnp.int32)
        # Equal numbers are equal bits, but for the sign of 0.
        as_float32 = jnp.asarray(values).astype(jnp.float32) + 0.0
        return jax.lax.bitcast_convert_type(as_float32, jnp.int32)
    values = np.asarray(values)
    names = np.unique(values if kept is None else values[kept])
    numbers = np.minimum(np.searchsorted(names, values), max(names.size - 1, 0))
    return jax.device_put(numbers.astype(np.int32))


def kept_rows(n: int, where: ArrayLike | None, weights: ArrayLike | None) -> np.ndarray | None:
    """Which rows count, ``[n]``, or None if that is traced."""
    if is_traced((where, weights)):
        return None
    kept = np.ones(n, bool) if where is None else np.array(on_host(where)[:n])
    if weights is not None:
        # A row has one weight, or one for each label.
        kept &= (on_host(weights)[:n] > 0).reshape(n, -1).all(axis=1)
    return kept
