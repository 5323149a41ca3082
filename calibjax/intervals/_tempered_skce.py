"""The SKCE that predictions would show if their targets followed them at other temperatures.

If the target of row i followed q_i, the prediction p_i at the temperature T, independently of all
others, then for i != j

    E h_ij = k_P(p_i, p_j) <mu(q_i) - mu(p_i), mu(q_j) - mu(p_j)>

with the mean embeddings mu.  For labels a mean embedding is a sum over labels, and h with any
kernel has the expectation (q_i - p_i)^T K_ij (q_j - p_j), where K_ij is the kernel at both
predictions and all pairs of labels.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from calibjax._base.struct import widest_dtype
from calibjax._data import Distribution
from calibjax._numbers import dot
from calibjax.discrepancy import (
    EmbeddedTarget,
    FeatureResidual,
    JointResidual,
    PITResidual,
    SumOfTerms,
    Term,
)
from calibjax.expectations import all_labels, inner_product
from calibjax.kernels import (
    KernelLike,
    UnitFeature,
    VectorFeature,
    describe,
    pairwise,
    times,
    vmap_pairs,
)

# The number of rows whose pairs with all rows are computed at a time.
_ROWS = 64
# The number of even quantiles that stand for a distribution of real numbers.
_LEVELS = 128


def tempered_sums(
    kernel: SumOfTerms, predictions: Distribution, weights: jax.Array, temperatures: jax.Array
) -> jax.Array:
    """sum_{i != j} w_i w_j E h_ij at each temperature, ``[T]``; n x n numbers are in memory."""
    are_labels = predictions.has_labels

    def term_sums(term: Term) -> jax.Array:
        residual = term.residual
        if are_labels and isinstance(residual, JointResidual):
            sums = _sums_of_joint_kernel(residual.kernel, predictions, weights, temperatures)
            return times(term.factor, sums)
        if isinstance(residual, FeatureResidual | PITResidual) and are_labels:
            products = functools.partial(_products_of_features, residual.feature)
        elif isinstance(residual, PITResidual):
            products = functools.partial(_products_of_pit, residual.feature)
        elif isinstance(residual, EmbeddedTarget):
            of_embeddings = _products_of_embeddings if are_labels else _products_of_numbers
            products = functools.partial(of_embeddings, residual.kernel)
        else:
            raise NotImplementedError(
                f"equivalent_temperature with a joint kernel, {describe(residual)}, needs "
                f"predictions over finitely many labels, got {type(predictions).__name__}; use a "
                "TensorProduct, or sums and multiples of them."
            )
        # The kernel on predictions is made once for all temperatures.
        pairs = pairwise(term.prediction_kernel, predictions, predictions)
        pairs = jnp.fill_diagonal(weights[:, None] * pairs * weights[None, :], 0, inplace=False)
        sums = lax.map(lambda t: jnp.sum(pairs * products(predictions, t)), temperatures)
        return times(term.factor, sums)

    return kernel.total(term_sums)


def _sums_of_joint_kernel(
    kernel: KernelLike, predictions: Distribution, weights: jax.Array, temperatures: jax.Array
) -> jax.Array:
    """In one pass over all pairs of rows and of labels."""
    gaps = lax.map(lambda t: _label_gaps(predictions, t), temperatures)
    gaps = jnp.moveaxis(gaps * weights[None, :, None], 0, -1)
    labels = all_labels(predictions)

    def row_sums(row: tuple[Distribution, jax.Array, jax.Array]) -> jax.Array:
        p, gap, index = row

        def with_other(q: Distribution) -> jax.Array:
            return vmap_pairs(lambda y, z: kernel((p, y), (q, z)))(labels, labels)

        values = jax.vmap(with_other)(predictions).astype(gap.dtype).at[index].set(0.0)
        return jnp.sum(gap * jnp.tensordot(values, gaps, ((0, 2), (0, 1))), axis=0)

    rows = predictions, gaps, jnp.arange(weights.shape[0])
    return jnp.sum(lax.map(row_sums, rows), axis=0)


def _products_of_embeddings(
    kernel: KernelLike, predictions: Distribution, temperature: jax.Array
) -> jax.Array:
    """<mu(q_i) - mu(p_i), mu(q_j) - mu(p_j)> for labels, ``[n, n]``."""
    gaps, labels = _label_gaps(predictions, temperature), all_labels(predictions)
    values = vmap_pairs(kernel)(labels, labels).astype(gaps.dtype)
    return dot(dot(gaps, values), gaps.T)


def _products_of_features(
    feature: VectorFeature | UnitFeature, predictions: Distribution, temperature: jax.Array
) -> jax.Array:
    """The same of a feature f(p, y), whose expectations are sums over labels."""
    labels = all_labels(predictions)
    features = jax.vmap(lambda p: jax.vmap(lambda y: feature(p, y))(labels))(predictions)
    gaps = jax.vmap(dot)(_label_gaps(predictions, temperature), features)
    return dot(gaps, gaps.T)


def _products_of_pit(
    feature: UnitFeature, predictions: Distribution, temperature: jax.Array
) -> jax.Array:
    """The same of the features of U = F(y) of real numbers, whose means under p are 0.

    The means under q are those over even quantiles of q.
    """
    if predictions.target_kind == "integer":
        raise NotImplementedError(
            "equivalent_temperature of counts has no PITKernel; use product_kernel, got "
            f"{type(predictions).__name__}."
        )
    tempered = predictions.tempered(temperature)
    levels = (np.arange(_LEVELS) + 0.5) / _LEVELS
    of_levels = lax.map(
        lambda u: feature.of_rows(predictions, tempered.quantile(u)),
        jnp.asarray(levels, widest_dtype(*jax.tree.leaves(predictions))),
    )
    means = jnp.mean(of_levels, axis=0)
    return dot(means, means.T)


def _products_of_numbers(
    kernel: KernelLike, predictions: Distribution, temperature: jax.Array
) -> jax.Array:
    """The same of other targets, with twice <mu(p_i), mu(q_j)> instead of its symmetric part.

    Their sums with symmetric factors are equal.
    """
    tempered = predictions.tempered(temperature)

    def row_products(row: tuple[Distribution, Distribution]) -> jax.Array:
        p, hot = row

        def with_other(q: Distribution, hot_q: Distribution) -> jax.Array:
            mixed = inner_product(p, kernel, hot_q)
            return (inner_product(hot, kernel, hot_q) - mixed) - (
                mixed - inner_product(p, kernel, q)
            )

        return jax.vmap(with_other)(predictions, tempered)

    return lax.map(row_products, (predictions, tempered), batch_size=_ROWS)


def _label_gaps(predictions: Distribution, temperature: jax.Array) -> jax.Array:
    """q - p of the probabilities of all labels, ``[n, m]``."""
    tempered = predictions.tempered(temperature).label_probabilities()
    return tempered - predictions.label_probabilities()
