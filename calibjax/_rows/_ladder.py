"""A ladder of numbers of rows: data of nearly the same size share what is compiled.

jax compiles a program for each shape.  Outside of jit, where rows are concrete, masked rows fill
the data up to the next rung, so that 900 and 1000 rows are one shape.
"""

from typing import TypeVar

import jax
import numpy as np

from calibjax._sharding import on_one_device
from calibjax._struct import is_traced, on_host

T = TypeVar("T")

#: With more rows a pass over them takes as long as compilation, and a quarter more rows would show.
LARGEST_RUNG = 2**14


def rung(n: int) -> int:
    """The least of the numbers 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, … that is at least n.

    They are m 2^k with m = 4, 5, 6, 7: a step is at most a quarter, so that all pairs are at most
    some half more.  Beyond 2^14 every number is a rung.
    """
    if n > LARGEST_RUNG:
        return n
    step = 2 ** max((n - 1).bit_length() - 3, 0)
    return max(-(-n // step) * step, 4)


def rows_on_host(rows: T) -> T:
    """Rows as arrays of NumPy, filled up to the next rung by copies of the last row.

    Checks of their values then compile nothing, but for a few families, whose program serves all
    numbers of rows of the rung.  If some rows are traced, these remain and nothing is filled up.
    """
    leaves, structure = jax.tree.flatten(rows)
    traced = is_traced(leaves)
    if not traced:
        leaves = [filled_up(on_host(on_one_device(x))) for x in leaves]
    else:
        leaves = [x if is_traced(x) else on_host(on_one_device(x)) for x in leaves]
    return jax.tree.unflatten(structure, leaves)


def filled_up(x: np.ndarray) -> np.ndarray:
    """The rows, and as many copies of the last one as the next rung needs."""
    n = x.shape[0]
    if n in (0, rung(n)):
        return x
    # With NumPy: a program of XLA would be compiled for each number of rows.
    return np.concatenate([x, np.broadcast_to(x[-1:], (rung(n) - n, *x.shape[1:]))])


def first_rows(results: T, n: int) -> T:
    """The results of the first n rows: those of the rows that the user has."""

    def cut(x: jax.Array) -> jax.Array:
        # With NumPy: a slice would be compiled for each number of rows.
        return x if x.shape[0] == n else jax.device_put(np.asarray(x)[:n])

    return jax.tree.map(cut, results)
