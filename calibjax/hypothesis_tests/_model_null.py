"""The null distribution of a statistic over data sets that the model itself draws.

Given the predictions of a calibrated model, the observed targets and those of `draw_targets` are
exchangeable.  Only targets change from one data set to the next: a statistic is vectorised over
them, and what depends on predictions alone is computed once for several data sets.

A statistic that divides by a variance of the data set itself is largest where no rare event
occurs, because hardly anything varies there, and too many events are never seen.  Therefore what
standardises a statistic is taken from all data sets, the observed one included, which keeps them
exchangeable.
"""

import dataclasses
from collections.abc import Callable, Collection
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax import lax

from calibjax._check import check_choice, check_integer, check_key
from calibjax._rows import Data
from calibjax._sharding import Axis, global_offset
from calibjax.intervals._model_draws import DRAWS_PER_GROUP, draw_targets
from calibjax.operators import BlockH, TiledH, whole_blocks

AnyH = TypeVar("AnyH", bound=TiledH | BlockH)

# The number of data sets that share what is made of the predictions, such as tiles of a kernel:
# the tiles are cheap then, and ten times the values of a tile still fit into caches.
TOGETHER = 10
# The number of rows whose targets are drawn at a time.
_ROWS = 2**12


def check_null(null: Any, nulls: Collection[str], key: Any, n_resamples: Any) -> int:
    """n_resamples, checked; the null "model" needs a key, and the other nulls draw nothing."""
    check_choice("null", null, nulls)
    n_resamples = check_integer("n_resamples", n_resamples, 1)
    if null == "model" and key is None:
        raise ValueError("key must be given for null='model', which draws targets, got None.")
    if null != "model" and key is not None:
        raise ValueError(f"key must be None for null={null!r}, which draws nothing.")
    if key is not None:
        check_key(key)
    return n_resamples


def row_numbers(n: int, where: jax.Array | None, axis: Axis) -> jax.Array:
    """The number of each kept row among the kept rows of all devices, ``[n]``.

    The n rows are those of this device.  A masked row has any number.
    """
    kept = jnp.ones(n, bool) if where is None else where
    counts = jnp.cumsum(kept, dtype=jnp.int32)
    return global_offset(counts[-1], axis)[0] + counts - 1


def tile_row_numbers(h: TiledH, data: Data, axis: Axis) -> jax.Array:
    """`row_numbers` of the rows of H, whose last ones only fill a tile."""
    numbers = row_numbers(data.n, data.where, axis)
    return jnp.pad(numbers, (0, h.weights.shape[0] - data.n), mode="edge")


def block_row_numbers(data: Data, block_size: int, axis: Axis) -> jax.Array:
    """`row_numbers` of the rows of the blocks that begin on this device."""
    numbers = row_numbers(data.n, data.where, axis)
    rows = Data(None, numbers, weights=jnp.ones(data.n))
    return whole_blocks(rows, block_size, axis).targets


def with_targets(operator: AnyH, targets: jax.Array) -> AnyH:
    """The operator of other targets for the same predictions."""
    return dataclasses.replace(operator, samples=(operator.samples[0], targets))


def under_model(
    statistic: Callable[[jax.Array], Any],
    key: jax.Array,
    samples: tuple[Any, jax.Array],
    rows: jax.Array,
    n_resamples: int,
    together: int = TOGETHER,
) -> Any:
    """``statistic(targets)`` of n_resamples draws from the model, and last of the observed targets.

    The observed targets take their turn among the draws, so that the same program computes all
    values.  Draw r depends only on (key, rows, r).

    Args:
        statistic: a function of targets, which may sum over devices.
        key: a key of `jax.random`.
        samples: the predictions and the observed targets of the rows of this device.
        rows: the numbers of these rows in all data, ``[n]``.
        n_resamples: the number of draws, R.
        together: how many data sets are computed at once, at most.

    Returns:
        The tree that `statistic` returns, with the leading axis ``[R + 1]``.
    """
    predictions, observed = samples
    # A divisor of the size of a group leaves no rest, which would be one more program.
    divisors = [k for k in range(1, DRAWS_PER_GROUP + 1) if DRAWS_PER_GROUP % k == 0]
    together = max(k for k in divisors if k <= max(1, together))

    def of_group(group: jax.Array) -> Any:
        def draw(row: tuple[Any, jax.Array]) -> jax.Array:
            prediction, number = jax.tree.map(lambda x: x[None], row)
            return draw_targets(key, prediction, number, group)[0].astype(observed.dtype)

        drawn = lax.map(draw, (predictions, rows), batch_size=_ROWS)
        drawn = jnp.moveaxis(drawn, 1, 0)
        numbers = group * DRAWS_PER_GROUP + jnp.arange(DRAWS_PER_GROUP, dtype=jnp.int32)
        is_observed = (numbers == n_resamples).reshape(-1, *(1,) * observed.ndim)
        targets = jnp.where(is_observed, observed[None], drawn)
        return lax.map(statistic, targets, batch_size=together)

    n_groups = n_resamples // DRAWS_PER_GROUP + 1
    values = lax.map(of_group, jnp.arange(n_groups, dtype=jnp.int32))
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:])[: n_resamples + 1], values)
