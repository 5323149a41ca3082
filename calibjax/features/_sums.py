"""Sums over rows, a few at a time."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from calibjax._numerics import compensated_add
from calibjax._pairwise import cut, pad
from calibjax._sharding import Axis, all_sum, as_varying

# Rows times features of a step: they fit into a cache.
_PER_STEP = 2**17


def sum_rows(
    function: Callable[[Any, jax.Array], list[jax.Array]],
    samples: Any,
    weights: jax.Array,
    n_features: int,
    axis: Axis,
) -> list[jax.Array]:
    """The sum over chunks of rows of ``function(samples, weights)``, itself a sum over its rows;
    of the rows of all devices.

    Memory O(n + n_features), also when differentiated: chunks are then made once more.
    """
    chunks = _chunks(samples, weights, n_features)
    part = jax.checkpoint(function)

    def step(totals, chunk):
        added = zip(totals, part(*chunk), strict=True)
        return [compensated_add(total, x) for total, x in added], None

    shapes = jax.eval_shape(function, *jax.tree.map(lambda x: x[0], chunks))
    zeros = as_varying([(jnp.zeros(x.shape, x.dtype),) * 2 for x in shapes], chunks)
    return all_sum([high + low for high, low in lax.scan(step, zeros, chunks)[0]], axis)


def map_rows(
    function: Callable[[Any], jax.Array], samples: Any, weights: jax.Array, n_features: int
) -> jax.Array:
    """``function`` of chunks of rows, a number for each row, ``[n]``."""
    chunks = _chunks(samples, weights, n_features)
    values = lax.map(lambda chunk: function(chunk[0]), chunks)
    return values.reshape(-1)[: weights.shape[0]]


def _chunks(samples: Any, weights: jax.Array, n_features: int) -> tuple[Any, jax.Array]:
    n = weights.shape[0]
    n_chunks = -(-n // max(1, _PER_STEP // n_features))
    size = -(-n // n_chunks)
    return cut(pad((samples, weights), n_chunks * size), (n_chunks, size))
