"""A batch in chunks, and clusters within it: what is known before a row, and who shares a stake.

Rows of a chunk are bet on what was learnt before it.  Rows of one cluster may depend on each other
in any way, so that a bet on one of them must not know another one, wherever the chunks end: a row
teaches something only after the chunk in which its cluster ends.
"""

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp

from calibjax._base.struct import rows_of, struct

T = TypeVar("T")

# The number of chunks of a batch; more chunks would learn faster and take longer.
_CHUNKS = 8


@struct
class Chunks:
    """C chunks of at most m rows each.

    Args:
        index, weights: the row of the batch in each cell, and 1 for a row that counts, 0 in a cell
            without one, NaN as in the batch, ``[C, m]``.
        cluster: the number of the cluster of each row, ``[C, m]``, or None if all rows are alone.
        end: the chunk in which this cluster ends, ``[C, m]``, or None.
        is_last: whether the row is the last one of its cluster, ``[C, m]``, or None.
        boldness: by how much bets on the row are larger than on one that is alone, ``[C, m]``, or
            None.
    """

    index: jax.Array
    weights: jax.Array
    cluster: jax.Array | None = None
    end: jax.Array | None = None
    is_last: jax.Array | None = None
    boldness: jax.Array | None = None

    def rows_of(self, rows: T) -> T:
        """Arrays ``[n, …]`` of the batch, ``[C, m, …]``."""
        return jax.tree.map(lambda x: rows_of(x, self.index), rows)

    def sums_at_end(self, sums: Callable[[jax.Array], T]) -> T:
        """Sums over the rows of all clusters that end in a chunk, ``[C, …]``.

        Args:
            sums: from weights ``[C, m]`` to arrays ``[C, …]`` of sums over the rows of a chunk.
        """
        if self.end is None:
            return sums(self.weights)
        ends_here = self.end == jnp.arange(self.end.shape[0], dtype=jnp.int32)[:, None]
        ended, going_on = (
            sums(jnp.where(chosen, self.weights, 0.0)) for chosen in (ends_here, ~ends_here)
        )
        # At most one cluster of a chunk goes on, and no other one ends later.
        end = jnp.max(self.end, axis=1)
        return jax.tree.map(lambda x, more: x.at[end].add(more), ended, going_on)

    def gains(self, log_e: jax.Array) -> jax.Array:
        """The sum of log e over all clusters that end in a chunk, ``[C, …]``.

        The e of a cluster is the mean of those of its rows.

        Args:
            log_e: log e of each row, ``[C, …, m]``.
        """
        # A cell without a row may have an infinite log e.
        rows = jnp.where(_like(self.weights == 0, log_e), 0.0, log_e * _like(self.weights, log_e))
        if self.cluster is None or self.is_last is None:
            return jnp.sum(rows, axis=-1)
        of_clusters = _log_means(
            jnp.moveaxis(rows, -1, 1).reshape(self.index.size, *rows.shape[1:-1]),
            self.cluster.reshape(-1),
            self.weights.reshape(-1),
        )
        last = self.is_last.reshape(*self.is_last.shape, *(1,) * (of_clusters.ndim - 1))
        return jnp.sum(jnp.where(last, of_clusters[self.cluster], 0.0), axis=1)


def in_chunks(weights: jax.Array, clusters: jax.Array | None) -> Chunks:
    """The rows of a batch, cut into chunks as if there were only those that count.

    Rows that count have the weight 1, or NaN, and stand first; `clusters` ``[n]`` are integers that
    are equal for neighbours of one cluster, or None.
    """
    n = weights.shape[0]
    n_kept = jnp.sum(weights != 0, dtype=jnp.int32)
    size = -(-n_kept // jnp.clip(n_kept, 1, _CHUNKS))
    n_chunks = min(n, _CHUNKS)
    within = jnp.arange(-(-n // n_chunks), dtype=jnp.int32)
    index = jnp.arange(n_chunks, dtype=jnp.int32)[:, None] * size + within[None, :]
    is_row = (within[None, :] < size) & (index < n_kept)
    index = jnp.minimum(index, n - 1)
    here = jnp.where(is_row, weights[index], 0.0)
    if clusters is None:
        return Chunks(index, here)
    rows = jnp.arange(n, dtype=jnp.int32)
    begins = _differs_from_last(clusters) | (rows == n_kept)
    cluster = jnp.cumsum(begins, dtype=jnp.int32) - 1
    last = jax.ops.segment_max(rows, cluster, n, indices_are_sorted=True)[cluster]
    # A cell without a row ends in its own chunk, so that no cluster seems to go on there.
    own = jnp.arange(n_chunks, dtype=jnp.int32)[:, None]
    end = jnp.where(is_row, (last // jnp.maximum(size, 1))[index], own)
    is_last = is_row & (last == rows)[index]
    n_rows = (last - jax.ops.segment_min(rows, cluster, n, indices_are_sorted=True)[cluster]) + 1
    # The mean of S rows has a variance between 1 / S and 1 of that of one row, and the bet that
    # gains most is larger by the inverse (Kelly).  Nothing is known of where it lies between.
    boldness = jnp.sqrt(n_rows.astype(weights.dtype))
    return Chunks(index, here, cluster[index], end, is_last, boldness[index])


def order_of_rows(weights: jax.Array, clusters: jax.Array | None) -> jax.Array:
    """The rows that count first, those of a cluster together, clusters by their first rows."""
    is_masked = weights == 0
    if clusters is None:
        return jnp.argsort(is_masked, stable=True)
    n = weights.shape[0]
    by_cluster = jnp.lexsort((clusters, is_masked))
    begins = _differs_from_last(clusters[by_cluster]) | _differs_from_last(is_masked[by_cluster])
    group = jnp.cumsum(begins, dtype=jnp.int32) - 1
    first = jax.ops.segment_min(by_cluster, group, n, indices_are_sorted=True)[group]
    return by_cluster[jnp.lexsort((first, is_masked[by_cluster]))]


def _differs_from_last(x: jax.Array) -> jax.Array:
    """Whether a value differs from the one before, ``[n]``; the first one does."""
    return jnp.concatenate([jnp.ones(1, bool), x[1:] != x[:-1]])


def _log_means(log_e: jax.Array, cluster: jax.Array, weights: jax.Array) -> jax.Array:
    """The logarithm of the mean of e over the rows of each cluster, ``[n, …]``."""
    n = cluster.size
    weights = weights.reshape(n, *(1,) * (log_e.ndim - 1))
    largest = jax.ops.segment_max(jnp.where(weights == 0, -jnp.inf, log_e), cluster, n)
    # An infinite e stays infinite.
    largest = jnp.where(jnp.isfinite(largest), largest, 0.0)
    e = jnp.where(weights == 0, 0.0, weights * jnp.exp(log_e - largest[cluster]))
    total, size = (jax.ops.segment_sum(x, cluster, n) for x in (e, weights))
    return largest + jnp.log(total) - jnp.log(jnp.where(size == 0, 1.0, size))


def _like(rows: jax.Array, x: jax.Array) -> jax.Array:
    """Values of rows ``[…, m]`` with axes of size 1 before the last, to go with ``[C, …, m]``."""
    between = x.ndim - rows.ndim
    return rows.reshape(*rows.shape[:-1], *(1,) * between, rows.shape[-1])
