"""A ladder of numbers of rows: data of nearly the same size share what is compiled.

jax compiles a program for each shape.  Outside of jit, where rows are concrete, masked rows fill
the data up to the next rung, so that 900 and 1000 rows are one shape.
"""

import dataclasses
from typing import TypeVar

import jax
import numpy as np

from calibjax._rows._data import Data
from calibjax._sharding import devices_of
from calibjax._struct import is_traced, on_host

T = TypeVar("T")

#: With more rows a pass over them takes as long as compilation, and a quarter more rows would show.
_LARGEST_RUNG = 2**14


def rung(n: int) -> int:
    """The least of the numbers 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, … that is at least n.

    They are m 2^k with m = 4, 5, 6, 7: a step is at most a quarter, so that all pairs are at most
    some half more.  Beyond 2^14 every number is a rung.
    """
    if n > _LARGEST_RUNG:
        return n
    step = 2 ** max((n - 1).bit_length() - 3, 0)
    return max(-(-n // step) * step, 4)


def filled_up(x: np.ndarray) -> np.ndarray:
    """The rows, and as many copies of the last one as the next rung needs."""
    n = x.shape[0]
    if n in (0, rung(n)):
        return x
    # With NumPy: a program of XLA would be compiled for each number of rows.
    return np.concatenate([x, np.broadcast_to(x[-1:], (rung(n) - n, *x.shape[1:]))])


def padded(data: Data) -> Data:
    """The data with masked rows behind the others, up to the next rung; `where` is an array then.

    Traced rows, rows on several devices, and more than 2^14 rows are returned as they are.  So are
    predictions that are known by draws, because default kernels draw from all of their rows.  The
    rows that are added are copies of the last one.
    """
    if data.n > _LARGEST_RUNG or data.predictions.score_only or is_traced(data) or devices_of(data):
        return data
    where = np.zeros(rung(data.n), bool)
    where[: data.n] = True if data.where is None else data.where
    mask = jax.device_put(where)
    if is_traced(mask):  # Nothing changes inside of a user's jit, where data may be constants.
        return data

    def fill(x: jax.Array) -> jax.Array:
        with np.errstate(over="ignore"):  # Masked rows may hold anything.
            rows = filled_up(on_host(x))
        is_placed = isinstance(x, jax.Array) and x.committed
        return jax.device_put(rows, x.sharding if is_placed else None)

    rows = dataclasses.replace(data, where=None)
    return dataclasses.replace(jax.tree.map(fill, rows), where=mask)


def first_rows(results: T, n: int) -> T:
    """The results of the first n rows: those of the rows that the user has."""

    def cut(x: jax.Array) -> jax.Array:
        if x.shape[0] == n:
            return x
        if is_traced(x):  # by a key, or by parameters of a kernel
            return x[:n]
        # With NumPy: a slice would be compiled for each number of rows.
        return jax.device_put(np.asarray(x)[:n])

    return jax.tree.map(cut, results)
