"""What h keeps of a target: residuals r(p, y) with mean 0 for a target y from the prediction p.

A kernel on pairs is k_P(p, q) <f(p, y), f(q, z)> with a feature f, and the residual is
r(p, y) = f(p, y) - E f(p, Z) with Z ~ p.  Each class here is one kind of feature.  Inner products
of residuals are known where the feature itself has infinitely many numbers.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

import jax
import jax.numpy as jnp

from calibjax._distribution import Distribution
from calibjax._numbers import dot
from calibjax._sharding import Axis
from calibjax._struct import PyTree, struct, type_name
from calibjax.expectations import (
    all_labels,
    label_residual,
    mean_embedding,
    prepare_rows,
    residual_product,
    residual_product_tile,
)
from calibjax.kernels import (
    KernelLike,
    UnitFeature,
    VectorFeature,
    judged,
    prepare_pit,
    prepare_scores,
    stein,
    stein_tile,
    vmap_pairs,
    with_score,
)

#: A prediction or a batch of them, or what `TargetResidual.prepare` makes of a batch.
Prepared = PyTree
#: A prediction and a target, or a batch of both.
Sample = tuple[Prepared, jax.Array]


class TargetResidual(ABC):
    """The residual of a target."""

    #: As of a Kernel.
    inner_functions: ClassVar[Mapping[str, str]] = {}

    def judged(self, a: Sample) -> Sample:
        """What is compared and judged of one sample, by default what it is."""
        return a

    @abstractmethod
    def product(self, a: Sample, b: Sample) -> jax.Array:
        """<r(p, y), r(q, z)> of one pair of samples, a scalar."""

    def square(self, a: Sample) -> jax.Array:
        """<r(p, y), r(p, y)> of one sample, a scalar."""
        return self.product(a, a)

    def tile(self, a: Sample, b: Sample) -> jax.Array:
        """The products of all pairs of two batches of prepared samples, ``[S, T]``."""
        return vmap_pairs(self.product)(a, b)

    def prepare(self, prediction_kernel: KernelLike, rows: Sample, axis: Axis) -> Prepared:
        """The predictions with what `tile` needs of each row, computed once for all rows.

        By default they are returned as they are.  Others have the `cross_fit_pairs` of
        predictions: what the prediction kernel compares, and what `tile` takes.
        """
        return rows[0]

    @abstractmethod
    def deviation(self, a: Sample, location: Sample) -> jax.Array:
        """<r(p, y), f(q, z)> of one sample and one location (q, z), a scalar."""


@struct
class EmbeddedTarget(TargetResidual):
    """k(y, .) - mu(p), for a target kernel k with known mean embeddings mu(p) = E k(Z, .)."""

    kernel: KernelLike

    inner_functions = {"kernel": "targets"}

    def product(self, a: Sample, b: Sample) -> jax.Array:
        return residual_product(a[0], self.kernel, a[1], *b)

    def tile(self, a: Sample, b: Sample) -> jax.Array:
        return residual_product_tile(a[0], self.kernel, a[1], *b)

    def prepare(self, prediction_kernel: KernelLike, rows: Sample, axis: Axis) -> Prepared:
        return prepare_rows(rows[0], self.kernel, rows[1], axis)

    def deviation(self, a: Sample, location: Sample) -> jax.Array:
        (p, y), (_, z) = a, location
        value = jnp.asarray(self.kernel(y, z)).astype(jax.tree.leaves(p)[0].dtype)
        return value - mean_embedding(p, self.kernel, z)


@struct
class FeatureResidual(TargetResidual):
    """f(p, y) - E f(p, Z) for a vector f of labels, whose expectation is a finite sum."""

    feature: VectorFeature

    def product(self, a: Sample, b: Sample) -> jax.Array:
        return dot(self._residual(*a), self._residual(*b))

    def deviation(self, a: Sample, location: Sample) -> jax.Array:
        return dot(self._residual(*a), self.feature(*location))

    def _residual(self, p: Distribution, y: jax.Array) -> jax.Array:
        labels, residual = _labels_and_residual("FeatureKernel", p, y)
        return dot(residual, jax.vmap(lambda label: self.feature(p, label))(labels))


@struct
class SteinResidual(TargetResidual):
    """(s_p(y) + grad_y) l(y, .) for the score s_p of p and a target kernel l: its mean is 0."""

    kernel: KernelLike

    inner_functions = {"kernel": "targets"}

    def product(self, a: Sample, b: Sample) -> jax.Array:
        return stein(self.kernel, with_score(a), with_score(b))

    def tile(self, a: Sample, b: Sample) -> jax.Array:
        return stein_tile(self.kernel, (a[1], a[0].scores), (b[1], b[0].scores))

    def prepare(self, prediction_kernel: KernelLike, rows: Sample, axis: Axis) -> Prepared:
        return prepare_scores(prediction_kernel, rows)

    def deviation(self, a: Sample, location: Sample) -> jax.Array:
        return self.product(a, location)


@struct
class PITResidual(TargetResidual):
    """phibar(y | p), the means of functions of U = F_p(y): its mean is 0."""

    feature: UnitFeature

    def judged(self, a: Sample) -> Sample:
        return judged(a)

    def product(self, a: Sample, b: Sample) -> jax.Array:
        return dot(self.feature(*a), self.feature(*b))

    def square(self, a: Sample) -> jax.Array:
        feature = self.feature(*a)
        return dot(feature, feature)

    def tile(self, a: Sample, b: Sample) -> jax.Array:
        return dot(a[0].features, b[0].features.T)

    def prepare(self, prediction_kernel: KernelLike, rows: Sample, axis: Axis) -> Prepared:
        return prepare_pit(prediction_kernel, self.feature, rows)

    def deviation(self, a: Sample, location: Sample) -> jax.Array:
        return self.product(a, location)


@struct
class JointResidual(TargetResidual):
    """k((p, y), .) - E k((p, Z), .) for any kernel k on pairs and labels, by finite sums."""

    kernel: KernelLike

    inner_functions = {"kernel": "pairs"}

    def product(self, a: Sample, b: Sample) -> jax.Array:
        (p, y), (q, z) = a, b
        labels, ours = _labels_and_residual(type_name(self.kernel), p, y)
        _, theirs = _labels_and_residual(type_name(self.kernel), q, z)
        values = vmap_pairs(lambda y, z: self.kernel((p, y), (q, z)))(labels, labels)
        return jnp.sum(ours[:, None] * values.astype(ours.dtype) * theirs[None, :])

    def deviation(self, a: Sample, location: Sample) -> jax.Array:
        p, y = a
        labels, residual = _labels_and_residual(type_name(self.kernel), p, y)
        values = jax.vmap(lambda y: self.kernel((p, y), location))(labels)
        return jnp.sum(residual * values.astype(residual.dtype))


def _labels_and_residual(kernel: str, p: Distribution, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    """All labels, and e_y - p; `kernel` is the name of a type in an error."""
    if not p.has_labels:
        raise NotImplementedError(
            f"h with a joint kernel of type {kernel} needs predictions over finitely many labels "
            f"(Categorical, Bernoulli), got {type(p).__name__}; use a TensorProduct, or sums and "
            "multiples of them."
        )
    return all_labels(p), label_residual(p, y)
