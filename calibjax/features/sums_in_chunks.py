"""Sums and maps over rows, in chunks of a few rows."""

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
from jax import lax

from calibjax._base.sharding import Axis, all_sum, as_varying
from calibjax._base.struct import indexed
from calibjax._numbers.arithmetic import compensated_add
from calibjax._pairwise.tiles import in_chunks

T = TypeVar("T")

# The number of rows times features in one chunk, which fit into a cache.
_NUMBERS_PER_CHUNK = 2**17


def sum_rows(
    function: Callable[[T, jax.Array], list[jax.Array]],
    samples: T,
    weights: jax.Array,
    n_features: int,
    axis: Axis,
) -> list[jax.Array]:
    """The sum of ``function(samples, weights)`` over chunks of the rows of all devices.

    `function` returns sums over the rows that it is given.  Memory O(n + n_features), also for the
    derivative, which evaluates each chunk again.
    """
    chunks = in_chunks(samples, weights, _NUMBERS_PER_CHUNK // n_features)
    sum_chunk = jax.checkpoint(function)

    def step(
        totals: list[tuple[jax.Array, jax.Array]], chunk: tuple[T, jax.Array]
    ) -> tuple[list[tuple[jax.Array, jax.Array]], None]:
        added = zip(totals, sum_chunk(*chunk), strict=True)
        return [compensated_add(total, x) for total, x in added], None

    shapes = jax.eval_shape(function, *indexed(chunks, 0))
    zeros = as_varying([(jnp.zeros(x.shape, x.dtype),) * 2 for x in shapes], chunks)
    return all_sum([high + low for high, low in lax.scan(step, zeros, chunks)[0]], axis)


def map_rows(
    function: Callable[[T], jax.Array], samples: T, weights: jax.Array, n_features: int
) -> jax.Array:
    """What ``function(samples)`` gives for each row, ``[n, …]``, by chunks of rows."""
    chunks = in_chunks(samples, weights, _NUMBERS_PER_CHUNK // n_features)
    values = lax.map(lambda chunk: function(chunk[0]), chunks)
    return values.reshape(-1, *values.shape[2:])[: weights.shape[0]]
