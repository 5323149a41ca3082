"""The SKCE that predictions would show if their targets followed them at other temperatures.

If the target of row i followed q_i, the prediction p_i at the temperature T, independently of all
others, then for i != j

    E h_ij = k_P(p_i, p_j) <mu(q_i) - mu(p_i), mu(q_j) - mu(p_j)>

with the mean embeddings mu.  For labels a mean embedding is a sum over labels, and h with any
kernel has the expectation (q_i - p_i)^T K_ij (q_j - p_j), where K_ij is the kernel at both
predictions and all pairs of labels.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from calibjax._distribution import Distribution
from calibjax._numbers import dot
from calibjax.discrepancy import EmbeddedTarget, FeatureResidual, SumOfTerms, Term
from calibjax.expectations import all_labels, inner_product
from calibjax.kernels import KernelLike, describe, pairwise, times, vmap_pairs

# The number of rows whose pairs with all rows are computed at a time.
_ROWS = 64


def tempered_sums(
    kernel: SumOfTerms, predictions: Distribution, weights: jax.Array, temperatures: jax.Array
) -> jax.Array:
    """sum_{i != j} w_i w_j E h_ij at each temperature, ``[T]``; n x n numbers are in memory."""

    def of_term(term: Term) -> jax.Array:
        of_predictions, residual = term.prediction_kernel, term.residual
        if isinstance(residual, EmbeddedTarget):
            sums = _sums_of_embeddings(of_predictions, residual, predictions, weights, temperatures)
        elif predictions.label_probabilities() is None:
            raise NotImplementedError(
                f"equivalent_temperature with a joint kernel, {describe(residual)}, needs "
                f"predictions over finitely many labels, got {type(predictions).__name__}; use a "
                "TensorProduct, or sums and multiples of them."
            )
        elif isinstance(residual, FeatureResidual):
            sums = _sums_of_features(of_predictions, residual, predictions, weights, temperatures)
        else:
            sums = _sums_of_joint_kernel(residual, predictions, weights, temperatures)
        return times(term.factor, sums)

    return kernel.total(of_term)


def _sums_of_joint_kernel(
    residual: Any, predictions: Distribution, weights: jax.Array, temperatures: jax.Array
) -> jax.Array:
    """In one pass over all pairs of rows and of labels."""
    gaps = lax.map(lambda t: _label_gaps(predictions, t), temperatures)
    gaps = jnp.moveaxis(gaps * weights[None, :, None], 0, -1)
    labels = all_labels(predictions)

    def of_row(row: tuple[Any, jax.Array, jax.Array]) -> jax.Array:
        p, gap, index = row

        def with_other(q: Any) -> jax.Array:
            return vmap_pairs(lambda y, z: residual.kernel((p, y), (q, z)))(labels, labels)

        values = jax.vmap(with_other)(predictions).astype(gap.dtype).at[index].set(0.0)
        return jnp.sum(gap * jnp.tensordot(values, gaps, ((0, 2), (0, 1))), axis=0)

    rows = predictions, gaps, jnp.arange(weights.shape[0])
    return jnp.sum(lax.map(of_row, rows), axis=0)


def _sums_of_embeddings(
    prediction_kernel: KernelLike,
    residual: EmbeddedTarget,
    predictions: Distribution,
    weights: jax.Array,
    temperatures: jax.Array,
) -> jax.Array:
    is_of_labels = predictions.label_probabilities() is not None
    sum_of = _sum_of_labels if is_of_labels else _sum_of_laws
    # The kernel on predictions is made once for all temperatures.
    pairs = _weighted(prediction_kernel, predictions, weights)
    return lax.map(lambda t: sum_of(pairs, residual.kernel, predictions, t), temperatures)


def _sum_of_labels(
    pairs: jax.Array, kernel: Any, predictions: Any, temperature: jax.Array
) -> jax.Array:
    gaps, labels = _label_gaps(predictions, temperature), all_labels(predictions)
    values = vmap_pairs(kernel)(labels, labels).astype(gaps.dtype)
    return jnp.sum(pairs * dot(dot(gaps, values), gaps.T))


def _sum_of_laws(
    pairs: jax.Array, kernel: Any, predictions: Any, temperature: jax.Array
) -> jax.Array:
    """sum_ij c_ij <mu(q_i) - mu(p_i), mu(q_j) - mu(p_j)> for a symmetric matrix c.

    By symmetry the terms <mu(p_i), mu(q_j)> and <mu(q_i), mu(p_j)> have the same sum.
    """
    tempered = predictions.tempered(temperature)

    def of_row(row: tuple[jax.Array, Any, Any]) -> jax.Array:
        of_pairs, p, hot = row

        def with_other(q: Any, hot_q: Any) -> jax.Array:
            mixed = inner_product(p, kernel, hot_q)
            return (inner_product(hot, kernel, hot_q) - mixed) - (
                mixed - inner_product(p, kernel, q)
            )

        return jnp.sum(of_pairs * jax.vmap(with_other)(predictions, tempered))

    return jnp.sum(lax.map(of_row, (pairs, predictions, tempered), batch_size=_ROWS))


def _sums_of_features(
    prediction_kernel: KernelLike,
    residual: FeatureResidual,
    predictions: Distribution,
    weights: jax.Array,
    temperatures: jax.Array,
) -> jax.Array:
    pairs = _weighted(prediction_kernel, predictions, weights)
    labels, feature = all_labels(predictions), residual.feature
    features = jax.vmap(lambda p: jax.vmap(lambda y: feature(p, y))(labels))(predictions)

    def at(temperature: jax.Array) -> jax.Array:
        gaps = jax.vmap(dot)(_label_gaps(predictions, temperature), features)
        return jnp.sum(pairs * dot(gaps, gaps.T))

    return lax.map(at, temperatures)


def _weighted(kernel: Any, predictions: Any, weights: jax.Array) -> jax.Array:
    """w_i w_j k_P(p_i, p_j), and 0 for i = j."""
    values = weights[:, None] * pairwise(kernel, predictions, predictions) * weights[None, :]
    return jnp.fill_diagonal(values, 0, inplace=False)


def _label_gaps(predictions: Any, temperature: jax.Array) -> jax.Array:
    """q - p of the probabilities of all labels, ``[n, m]``."""
    tempered = predictions.tempered(temperature).label_probabilities()
    return tempered - predictions.label_probabilities()
