"""Residuals of labels, whose expectations are finite sums, and of any vector f(p, y)."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from calibjax._base.struct import PyTree, rows_of, struct
from calibjax._data.distribution import Distribution, Labels
from calibjax._numbers.arithmetic import ROUNDINGS_OF_TERMS, dot, eigh_of_kernel, x_where
from calibjax.expectations.finite_sums import all_labels, label_residual
from calibjax.kernels.base import KernelLike, Sample, pairwise
from calibjax.residuals.base import FiniteResidual

#: A function of one prediction and one target that returns a vector ``[M]``.
TargetFeature = Callable[[Distribution, jax.Array], jax.Array]


@struct
class Indicators(FiniteResidual):
    """e_y - p for labels: the feature e_y has the WhiteKernel."""

    def of_one(self, a: Sample) -> jax.Array:
        return label_residual(*a)


@struct
class FeatureResidual(FiniteResidual):
    """f(p, y) - E f(p, Z) for a vector f of a prediction and a target.

    For labels the expectation is a finite sum.  For others it is the mean over targets that are
    drawn for it.  That mean is the same in all data sets: their order, and with it the level of a
    test, does not depend on its error.
    """

    feature: TargetFeature

    def of_one(self, a: Sample) -> jax.Array:
        labels, residual = labels_and_residual("FeatureKernel", *a)
        return dot(residual, jax.vmap(lambda label: self.feature(a[0], label))(labels))

    def deviation(self, a: Sample, location: Sample) -> jax.Array:
        return dot(self.of_one(a), self.feature(*location))

    def values(
        self, predictions: Distribution, targets: jax.Array, others: PyTree = None
    ) -> jax.Array:
        of_targets = jax.vmap(self.feature, (None, 0))

        def of_labels(p: Labels, labels: jax.Array) -> jax.Array:
            table = of_targets(p, all_labels(p))
            probabilities = p.label_probabilities()
            # A feature such as log p(y) may be infinite at labels that never occur.
            possible = x_where(probabilities[:, None] > 0, table, 0.0)
            return _difference(rows_of(table, labels), dot(probabilities, possible))

        def of_drawn(p: Distribution, targets: jax.Array, others: jax.Array) -> jax.Array:
            return _difference(of_targets(p, targets), jnp.mean(of_targets(p, others), axis=0))

        if isinstance(predictions, Labels):
            return jax.vmap(of_labels)(predictions, targets)
        return jax.vmap(of_drawn)(predictions, targets, others)


@struct
class RowOfTable:
    """The feature f(y) that is row y of a table."""

    table: jax.Array

    def __call__(self, p: Distribution, y: jax.Array) -> jax.Array:
        return self.table[y]


def _difference(values: jax.Array, mean: jax.Array) -> jax.Array:
    """f - E f for values ``[D, M]``, and 0 where it is below its rounding error."""
    residuals = values - mean[None]
    rounding = ROUNDINGS_OF_TERMS * jnp.finfo(values.dtype).eps * jnp.abs(values)
    return x_where(jnp.abs(residuals) <= rounding, 0.0, residuals)


def labels_and_residual(kernel: str, p: Distribution, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    """All labels, and e_y - p; `kernel` is the name of a type in an error."""
    if not isinstance(p, Labels):
        raise NotImplementedError(
            f"h with a joint kernel of type {kernel} needs predictions over finitely many labels "
            f"(Categorical, Bernoulli), got {type(p).__name__}; use a TensorProduct, or sums and "
            "multiples of them."
        )
    return all_labels(p), label_residual(p, y)


def root_of_kernel(kernel: KernelLike, p: Labels) -> jax.Array:
    """A matrix R with <R_a - R_b, R_c - R_d> as K has it, ``[m, M]``, K = k_Y at all labels."""
    labels = all_labels(p)
    matrix = pairwise(kernel, labels, labels).astype(p.label_probabilities().dtype)
    if labels.size == 2:
        # One number says which of two labels it is: |R_1 - R_0|^2 = K_00 - 2 K_01 + K_11.
        square = matrix[0, 0] - matrix[0, 1] - matrix[1, 0] + matrix[1, 1]
        return jnp.stack([jnp.zeros_like(square), jnp.sqrt(square)])[:, None]
    # Only differences of rows matter: a kernel such as -|y - z| is positive definite on them.
    of_rows = jnp.mean(matrix, axis=1)
    matrix = matrix - of_rows[:, None] - of_rows[None] + jnp.mean(of_rows)
    values, vectors = eigh_of_kernel(matrix)
    return vectors * jnp.sqrt(values)[None, :]
