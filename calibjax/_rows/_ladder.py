"""A ladder of numbers of rows: data of nearly the same size share what is compiled.

jax compiles a program for each shape.  Outside of jit, where rows are concrete, masked rows fill
the data up to the next rung, so that 900 and 1000 rows are one shape.
"""

from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._rows._data import Data
from calibjax._sharding import devices_of
from calibjax._struct import is_traced

# With more rows a pass over them takes as long as compilation, and a quarter more rows would show.
_LARGEST = 2**14


def rung(n: int) -> int:
    """The least of the numbers 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, … that is at least n.

    They are m 2^k with m = 4, 5, 6, 7: a step is at most a quarter, so that all pairs are at most
    some half more.  Beyond 2^14 every number is a rung.
    """
    if n > _LARGEST:
        return n
    step = 2 ** max((n - 1).bit_length() - 3, 0)
    return max(-(-n // step) * step, 4)


def padded(data: Data) -> Data:
    """The data with masked rows behind the others, up to the next rung; `where` is an array then.

    Traced rows, rows on several devices, and more than 2^14 rows are returned as they are.  The
    rows that are added are copies of the last one.
    """
    if data.n > _LARGEST or is_traced(data) or devices_of(data) is not None:
        return data
    extra = rung(data.n) - data.n

    def fill(x: Any, mode: Literal["edge", "constant"]) -> jax.Array:
        width = ((0, extra), *((0, 0),) * (np.ndim(x) - 1))
        # With NumPy: a program of XLA would be compiled for each number of rows.
        return jnp.asarray(np.pad(np.asarray(x), width, mode)) if extra else jnp.asarray(x)

    predictions, targets, weights = jax.tree.map(
        lambda x: fill(x, "edge"), (data.predictions, data.targets, data.weights)
    )
    where = np.ones(data.n, bool) if data.where is None else data.where
    return Data(predictions, targets, fill(where, "constant"), weights)
