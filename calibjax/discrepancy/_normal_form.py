"""The normal form of a kernel on pairs, a sum of terms, and h and deviations of it.

h((p, y), (q, z)) = k((p, y), (q, z)) - E k((p, Z), (q, z)) - E k((p, y), (q, Z'))
+ E k((p, Z), (q, Z')) with independent Z ~ p and Z' ~ q
(Widmann, Lindsten and Zachariah, ICLR 2021, Lemma 2 and Eq. 5).

The deviation of (p, y) at a location t = (q, z) is k((p, y), t) - E k((p, Z), t) with Z ~ p, the
first half of h (Definition C.1 there).

Both are linear in k, so that a kernel is taken apart once, where it comes from the user, into
terms factor k_P(p, q) <f(p, y), f(q, z)>.  With the residual r(p, y) = f(p, y) - E f(p, Z),

h = factor k_P(p, q) <r(p, y), r(q, z)>.

Draws from a law P_i may stand for it: two halves A_i and B_i, with the mean embeddings mu(A_i) and
mu(B_i).  The halves have two roles (`Distribution.cross_fit_pairs`), and h_ij is the mean of

k_P(A_i, A_j) <k_Y(y_i, .) - mu(B_i), k_Y(y_j, .) - mu(B_j)>

and the same with A and B exchanged.

Given the laws, rows are independent, and so are A_i and (B_i, y_i).  For i != j the mean of a term
is therefore K(P_i, P_j) <mu(Y | P_i) - mu(P_i), mu(Y | P_j) - mu(P_j)> with the positive definite
kernel K(P_i, P_j) = E k_P(A_i, A_j).  The mean over i != j is unbiased for the SKCE of the laws and
the kernel K k_Y: for a calibrated model its mean is 0, however few the draws, if the kernel does
not depend on them.  The mean of a deviation is 0 too, at a location that does not depend on A_i.
The matrix of h is a sum of two positive semidefinite ones, so that the mean over all i and j is
not negative.  On its diagonal a half meets itself: for a calibrated model and k_P(p, p) = 1 the
mean of |k_Y(y, .) - mu(B)|^2 is (1 + 1 / |B|) (E k_Y(Z, Z) - E k_Y(Z, Z')), where the law itself
has the factor 1.

A residual has the mean 0 for a target from the prediction.  Each class of residuals is one kind of
feature f; inner products are known where f itself has infinitely many numbers.
"""

import functools
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import ClassVar

import jax
import jax.numpy as jnp

from calibjax._base.sharding import Axis
from calibjax._base.struct import PyTree, static, struct, type_name
from calibjax._data.distribution import Distribution, Labels
from calibjax._numbers.arithmetic import dot
from calibjax.expectations import (
    all_labels,
    label_residual,
    mean_embedding,
    prepare_rows,
    residual_product,
    residual_product_tile,
)
from calibjax.kernels import (
    FeatureKernel,
    KernelLike,
    PITKernel,
    Product,
    RowsWithNumbers,
    SteinKernel,
    TensorProduct,
    UnitFeature,
    VectorFeature,
    embedded_rows,
    judged,
    kernel_value,
    pairwise,
    stein,
    stein_scores,
    stein_tile,
    sum_of_products,
    times,
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

    @property
    def is_of_pit(self) -> bool:
        """Whether all that it sees of a target is its PIT."""
        return False

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

    def deviation(self, a: Sample, location: Sample) -> jax.Array:
        """<r(p, y), f(q, z)> of one sample and one location (q, z), a scalar; by default r is f."""
        return self.product(a, location)


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
        return stein_tile(self.kernel, (a[1], a[0].numbers), (b[1], b[0].numbers))

    def prepare(self, prediction_kernel: KernelLike, rows: Sample, axis: Axis) -> Prepared:
        predictions = embedded_rows(prediction_kernel, rows[0])
        return RowsWithNumbers(predictions, stein_scores(*rows))


@struct
class PITResidual(TargetResidual):
    """phibar(y | p), the means of functions of U = F_p(y): its mean is 0."""

    feature: UnitFeature

    @property
    def is_of_pit(self) -> bool:
        return self.feature.is_of_pit

    def judged(self, a: Sample) -> Sample:
        return judged(a)

    def product(self, a: Sample, b: Sample) -> jax.Array:
        return dot(self.feature(*a), self.feature(*b))

    def square(self, a: Sample) -> jax.Array:
        feature = self.feature(*a)
        return dot(feature, feature)

    def tile(self, a: Sample, b: Sample) -> jax.Array:
        return dot(a[0].numbers, b[0].numbers.T)

    def prepare(self, prediction_kernel: KernelLike, rows: Sample, axis: Axis) -> Prepared:
        predictions, targets = rows[0].exchangeable_pool(rows[1])
        features = self.feature.of_rows(predictions, targets)
        return RowsWithNumbers(embedded_rows(prediction_kernel, predictions), features)


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
    if not isinstance(p, Labels):
        raise NotImplementedError(
            f"h with a joint kernel of type {kernel} needs predictions over finitely many labels "
            f"(Categorical, Bernoulli), got {type(p).__name__}; use a TensorProduct, or sums and "
            "multiples of them."
        )
    return all_labels(p), label_residual(p, y)


@struct
class Term:
    """factor k_P(p, q) <f(p, y), f(q, z)>.

    Args:
        factor: a nonnegative number, or None for 1.
        prediction_kernel: k_P, a kernel on predictions.
        residual: what h keeps of f.
    """

    factor: jax.Array | None
    prediction_kernel: KernelLike
    residual: TargetResidual

    inner_functions = {"prediction_kernel": "predictions", "residual": "a residual"}

    def h(self, a: Sample, b: Sample) -> jax.Array:
        """h of one pair of samples."""
        a, b = map(self.residual.judged, (a, b))
        return self._mean(
            kernel_value(self.prediction_kernel, p, q) * self.residual.product((r, a[1]), (s, b[1]))
            for (p, r), (q, s) in zip(_cross_fit(a[0]), _cross_fit(b[0]), strict=True)
        )

    def h_with_itself(self, a: Sample) -> jax.Array:
        """h of a sample and itself."""
        a = self.residual.judged(a)
        return self._mean(
            kernel_value(self.prediction_kernel, p, p) * self.residual.square((r, a[1]))
            for p, r in _cross_fit(a[0])
        )

    def h_tile(self, a: Sample, b: Sample) -> jax.Array:
        """h of all pairs of two batches of prepared samples, ``[S, T]``."""
        pairs = jax.vmap(_cross_fit)(a[0]), jax.vmap(_cross_fit)(b[0])
        return self._mean(
            pairwise(self.prediction_kernel, p, q) * self.residual.tile((r, a[1]), (s, b[1]))
            for (p, r), (q, s) in zip(*pairs, strict=True)
        )

    def deviation(self, a: Sample, location: Sample) -> jax.Array:
        """The deviation of one sample at one location."""
        a, location = map(self.residual.judged, (a, location))
        return self._mean(
            kernel_value(self.prediction_kernel, p, location[0])
            * self.residual.deviation((r, a[1]), location)
            for p, r in _cross_fit(a[0])
        )

    def _mean(self, of_pairs: Iterable[jax.Array]) -> jax.Array:
        """factor times the mean over the cross-fit pairs."""
        values = list(of_pairs)
        total = functools.reduce(jnp.add, values)
        # A division by 1 would be one more operation in every loop.
        return times(self.factor, total if len(values) == 1 else total / len(values))


#: What the prediction kernel compares and what the residual is of, of one prediction.
_cross_fit = operator.methodcaller("cross_fit_pairs")


@struct
class SumOfTerms:
    """A kernel on pairs as a sum of terms."""

    terms: tuple[Term, ...]

    def total(self, function: Callable[[Term], jax.Array]) -> jax.Array:
        """The sum of a function of each term."""
        return functools.reduce(jnp.add, map(function, self.terms))

    @property
    def is_of_pit(self) -> bool:
        """Whether all that it sees of a target is its PIT."""
        return all(term.residual.is_of_pit for term in self.terms)


@struct
class One:
    """The kernel that is 1 everywhere."""

    def __call__(self, p: Distribution, q: Distribution) -> jax.Array:
        return jnp.ones(())


def normal_form(kernel: KernelLike) -> SumOfTerms:
    """A user's kernel on pairs, which is checked already, as a sum of terms."""
    products = sum_of_products(kernel)
    return SumOfTerms(tuple(Term(f, *separate(functools.reduce(Product, k))) for f, k in products))


@functools.singledispatch
def separate(kernel: KernelLike) -> tuple[KernelLike, TargetResidual]:
    """The prediction kernel and the residual of a kernel on pairs that is no sum or multiple.

    A class of kernels registers what it is made of; by default it is a joint kernel.
    """
    return One(), JointResidual(kernel)


@separate.register
def _separate_product(kernel: TensorProduct) -> tuple[KernelLike, TargetResidual]:
    return kernel.prediction_kernel, EmbeddedTarget(kernel.target_kernel)


@separate.register
def _separate_feature(kernel: FeatureKernel) -> tuple[KernelLike, TargetResidual]:
    return kernel.prediction_kernel, FeatureResidual(VectorFeature(kernel.feature))


@separate.register
def _separate_stein(kernel: SteinKernel) -> tuple[KernelLike, TargetResidual]:
    return kernel.prediction_kernel, SteinResidual(kernel.target_kernel)


@separate.register
def _separate_pit(kernel: PITKernel) -> tuple[KernelLike, TargetResidual]:
    return kernel.prediction_kernel, PITResidual(kernel.unit_feature())


@struct
class PreparedRows:
    """Rows as the terms of a kernel want them.

    Args:
        variants: the rows with what different terms need.
        of_term: which of the variants each term takes.
    """

    variants: list[Sample]
    of_term: tuple[int, ...] = static()


def prepared(kernel: SumOfTerms, rows: Sample, axis: Axis) -> PreparedRows:
    """The rows with what the tiles of each term share, so that it is computed once."""
    # Equal rows would go through all tiles, and all derivatives, more than once.
    variants: dict[int, Sample] = {}
    made = []
    for term in kernel.terms:
        predictions = term.residual.prepare(term.prediction_kernel, rows, axis)
        variants.setdefault(id(predictions), (predictions, rows[1]))
        made.append(id(predictions))
    return PreparedRows(list(variants.values()), tuple(map(list(variants).index, made)))


def h(kernel: SumOfTerms, a: Sample, b: Sample) -> jax.Array:
    """h of one pair of samples, a scalar."""
    return kernel.total(lambda term: term.h(a, b))


def h_with_itself(kernel: SumOfTerms, a: Sample) -> jax.Array:
    """h of a sample and itself, a scalar; what `h` computes of both samples is computed once."""
    return kernel.total(lambda term: term.h_with_itself(a))


def h_tile(kernel: SumOfTerms, a: PreparedRows, b: PreparedRows) -> jax.Array:
    """h of all pairs of two batches of rows, ``[S, T]``."""
    terms = zip(kernel.terms, a.of_term, strict=True)
    return functools.reduce(
        jnp.add, (term.h_tile(a.variants[i], b.variants[i]) for term, i in terms)
    )


def deviation(kernel: SumOfTerms, a: Sample, location: Sample) -> jax.Array:
    """The deviation of one sample at one location, a scalar."""
    return kernel.total(lambda term: term.deviation(a, location))


def deviation_tile(kernel: SumOfTerms, a: Sample, locations: Sample) -> jax.Array:
    """The deviations of a batch of samples at a batch of locations, ``[S, J]``."""
    return vmap_pairs(functools.partial(deviation, kernel))(a, locations)
