"""The median heuristic."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from calibjax._check import check_array, check_shapes
from calibjax.kernels._distances import Distance

_MAX_ROWS = 1024


def median_heuristic(
    distance: Distance, predictions: Any, *, where: jax.Array | None = None
) -> jax.Array:
    """The median distance over all pairs i < j of predictions, a lengthscale.

    Above 1024 predictions every k-th is taken, k = n // 1024.  If the median is 0 (more than half
    of the pairs coincide) it is the mean distance, and if that is 0 (all coincide) then 1.  Works
    inside jit and vmap; its gradient is stopped.  O(min(n, 1024)^2).

    Args:
        distance: for example TotalVariation() or Wasserstein().
        predictions: a batch of n >= 2 predictions.
        where: boolean mask ``[n]``; masked rows may hold anything.

    Returns:
        A scalar, in units of the distance.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Bernoulli(jnp.array([0.0, 0.25, 1.0]))
        >>> float(cj.median_heuristic(cj.TotalVariation(), predictions))
        0.75
    """
    leaves = jax.tree.leaves(predictions)
    n = leaves[0].shape[0]
    if n < 2:
        raise ValueError(f"predictions must hold at least 2 rows, got {n}.")
    if where is None:
        rows = jnp.arange(min(n, _MAX_ROWS)) * (n // min(n, _MAX_ROWS))
        kept = jnp.ones(rows.shape, bool)
    else:
        check_array("where", where, "boolean")
        check_shapes(
            {"predictions": (leaves[0][..., :0].reshape(n, -1), "n none"), "where": (where, "n")}
        )
        n_kept = jnp.sum(where)
        # Kept rows first, in order; then the same stride over them.
        order = jnp.argsort(~where, stable=True)
        position = jnp.arange(min(n, _MAX_ROWS)) * jnp.maximum(n_kept // _MAX_ROWS, 1)
        kept = position < n_kept
        rows = order[jnp.minimum(position, n - 1)]
        rows = jnp.where(kept, rows, order[0])
    chosen = jax.tree.map(lambda leaf: lax.stop_gradient(jnp.asarray(leaf)[rows]), predictions)
    return _median(distance.pairwise(chosen, chosen), kept)


def _median(distances: jax.Array, kept: jax.Array) -> jax.Array:
    i, j = jnp.triu_indices(kept.shape[0], k=1)
    pairs = kept[i] & kept[j]
    n_pairs = jnp.sum(pairs)
    # Pairs that do not count are sorted to the end.
    ordered = jnp.sort(jnp.where(pairs, distances[i, j], jnp.inf))
    last = jnp.maximum(n_pairs - 1, 0)
    median = (ordered[last // 2] + ordered[(last + 1) // 2]) / 2
    total = jnp.sum(jnp.where(jnp.isfinite(ordered), ordered, 0.0))
    mean = total / jnp.maximum(n_pairs, 1).astype(total.dtype)
    fallback = jnp.where(mean > 0, mean, 1.0)
    usable = (n_pairs > 0) & (median > 0)
    return lax.stop_gradient(jnp.where(usable, median, fallback))
