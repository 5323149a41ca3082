"""The continuous ranked probability score of labels and counts: sum_k (F(k) - 1{y <= k})^2."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from calibjax._sharding import as_varying


def crps_of_labels(probabilities: jax.Array, targets: jax.Array) -> jax.Array:
    """The score from the probabilities ``[n, m]`` of all labels, ``[n]``."""
    total = jnp.sum(probabilities, axis=1, keepdims=True)
    below = jnp.cumsum(probabilities, axis=1) / total
    # Sums from the other end keep the digits of a small 1 - F.
    above = jnp.cumsum(probabilities[:, :0:-1], axis=1)[:, ::-1] / total
    labels = jnp.arange(probabilities.shape[1] - 1, dtype=jnp.int32)
    tail = jnp.where(targets[:, None] <= labels[None, :], above, below[:, :-1])
    return jnp.sum(jnp.square(tail), axis=1)


def crps_of_counts(predictions: Any, targets: jax.Array) -> jax.Array:
    """The score from the probabilities of the counts 0 … max_count, ``[n]``, in memory of O(n).

    It is NaN unless larger counts are improbable.
    """
    if predictions.max_count is None:
        raise ValueError(
            f"max_count must be given for the CRPS of {type(predictions).__name__} predictions of "
            "counts, which is a sum over 0 … max_count."
        )

    @jax.checkpoint
    def step(sums, count):
        cdf, score = sums
        cdf = cdf + jax.vmap(lambda p: p.probability(count))(predictions)
        return (cdf, score + jnp.square(cdf - (targets <= count).astype(cdf.dtype))), None

    dtype = jnp.result_type(jax.tree.leaves(predictions)[0])
    start = as_varying((jnp.zeros(targets.shape, dtype),) * 2, (predictions, targets))
    counts = jnp.arange(predictions.max_count + 1, dtype=targets.dtype)
    (_, score), _ = lax.scan(step, start, counts)
    # Between max_count and a larger target the cdf is 1.
    beyond = jnp.maximum(targets - predictions.max_count - 1, 0).astype(dtype)
    # False where the cdf is NaN, because too many counts are above max_count.
    is_complete = (
        predictions.cdf(jnp.full_like(targets, counts.size)) >= 1 - 8 * jnp.finfo(dtype).eps
    )
    return jnp.where(is_complete, score + beyond, jnp.nan)
