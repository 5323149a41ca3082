"""Buckets of padded sizes: data of nearly the same size share what is compiled.

jax compiles a program for each shape.  Outside of jit, where rows are concrete, masked rows fill
the data up to the size of a bucket, so that 900 and 1000 rows are one shape.
"""

from typing import TypeVar

import jax
import numpy as np

from calibjax._base.struct import is_traced

T = TypeVar("T")

#: With more rows a pass over them takes as long as compilation, and a quarter more rows would show.
LARGEST_BUCKET = 2**14


def bucket(n: int) -> int:
    """The least of the numbers 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, … that is at least n.

    They are m 2^k with m = 4, 5, 6, 7: a step is at most a quarter, so that all pairs are at most
    some half more.  Beyond 2^14 every number is a bucket.
    """
    if n > LARGEST_BUCKET:
        return n
    step = 2 ** max((n - 1).bit_length() - 3, 0)
    return max(-(-n // step) * step, 4)


def filled_up(x: np.ndarray) -> np.ndarray:
    """The rows, and as many copies of the last one as its bucket needs."""
    n = x.shape[0]
    if n in (0, bucket(n)):
        return x
    # With NumPy: a program of XLA would be compiled for each number of rows.
    return np.concatenate([x, np.broadcast_to(x[-1:], (bucket(n) - n, *x.shape[1:]))])


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
