"""The kernels of an aggregated test, taken apart into what they share.

Each kernel is a sum of terms, factor times k_P(p, q) <f(p, y), f(q, z)>.  Kernels with one target
kernel share the residuals of its features, and kernels with one distance between predictions share
the coordinates with respect to landmarks.  Outside of jit they are only sorted: the arithmetic, of
a dozen numbers, is a part of the test's one program.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._base.struct import is_traced, static, struct
from calibjax._data import Data
from calibjax.discrepancy import JointResidual, SumOfTerms, TargetResidual
from calibjax.expectations import prediction_coordinates
from calibjax.features import ColumnKernels, Landmarks
from calibjax.kernels import DistanceKernel, KernelLike, describe, times


@struct
class Group:
    """Terms factor k_P(p, q) <f(p, y), f(q, z)> with one feature f, and one kind of kernel k_P.

    Args:
        factors: the nonnegative factor of each of T terms; None stands for 1.
        prediction_kernels: k_P of each term.
        owners: which of all kernels each term belongs to.
        base: which of the `bases` interpolates the prediction kernels from landmarks.
        source: which of the `sources` has the residual of f.
    """

    factors: list[jax.Array | None]
    prediction_kernels: list[KernelLike]
    owners: tuple[int, ...] = static()
    base: int = static()
    source: int = static()

    def matrices(self, landmarks: Landmarks) -> jax.Array:
        """factor K of each term at the landmarks, ``[T, F, F]``."""
        dtype = jnp.result_type(*jax.tree.leaves(landmarks.points))
        factors = jnp.stack([jnp.asarray(times(x, 1.0), dtype) for x in self.factors])
        kernels = jax.tree.map(lambda *x: jnp.stack(x), *self.prediction_kernels)
        return jax.vmap(lambda factor, k: factor * landmarks.matrix(k))(factors, kernels)


@struct
class ColumnGroup:
    """The kernels of covariates with one feature of targets.

    Args:
        kernels: which kernels these are.
        first: the number of the first of them among all kernels.
        base: the number behind those of the `bases`.
        source: which of the `sources` has the residual of the feature.
    """

    kernels: ColumnKernels = static()
    first: int = static()
    base: int = static()
    source: int = static()

    @property
    def owners(self) -> tuple[int, ...]:
        """Which of all kernels these are."""
        return tuple(range(self.first, self.first + self.kernels.n_kernels))


@struct
class KernelTerms:
    """Kernels as sums of terms.

    Args:
        groups: all terms of all kernels, those that are computed alike together.
        bases: kernels on predictions, one list for each distance.
        sources: what h keeps of targets, each different from the others.
        of_columns: the kernels of covariates, which are behind all others.
        n_kernels: the number of kernels K.
        families: the number of the family of each kernel; none if each is one of its own.
    """

    groups: list[Group]
    bases: list[list[KernelLike]]
    sources: list[TargetResidual]
    of_columns: list[ColumnGroup]
    n_kernels: int = static()
    families: tuple[int, ...] = static()

    def base_kernels(self) -> list[KernelLike]:
        """For each distance the kernel that interpolates all of its kernels from landmarks."""
        return list(map(_base_kernel, self.bases))

    def bases_of(self, source: int) -> list[int]:
        """The bases that go with a source of residuals."""
        groups: list[Group | ColumnGroup] = [*self.groups, *self.of_columns]
        return sorted({group.base for group in groups if group.source == source})


def _base_kernel(kernels: Sequence[KernelLike]) -> KernelLike:
    with_distance = [kernel for kernel in kernels if isinstance(kernel, DistanceKernel)]
    if not with_distance:
        return kernels[0]
    # The mean of the lengthscales interpolates well for all of them.
    lengthscales = [kernel.scalar_lengthscale() for kernel in with_distance]
    return DistanceKernel(with_distance[0].distance, jnp.mean(jnp.stack(lengthscales)))


def terms_of(kernels: Sequence[SumOfTerms]) -> KernelTerms:
    """The kernels, taken apart; TypeError for one that is no sum of such terms."""
    distances: list[Any] = []
    sources: list[Any] = []
    bases: dict[int, list[Any]] = {}
    groups: dict[Any, list[Any]] = {}
    for owner, kernel in enumerate(kernels):
        for term in kernel.terms:
            if isinstance(term.residual, JointResidual):
                raise TypeError(
                    "kernels must be TensorProducts, FeatureKernels or SteinKernels, or sums and "
                    f"multiples of them, got {describe(term.residual.kernel)}."
                )
            compared = term.prediction_kernel
            distance = compared.distance if isinstance(compared, DistanceKernel) else compared
            base = _index(distances, distance)
            bases.setdefault(base, []).append(compared)
            leaves, structure = jax.tree.flatten(compared)
            alike = base, _index(sources, term.residual), structure, tuple(map(jnp.shape, leaves))
            groups.setdefault(alike, []).append((term.factor, compared, owner))
    made = []
    for (base, source, *_), terms in groups.items():
        factors, kernels_of_terms, owners = zip(*terms, strict=True)
        made.append(Group(list(factors), list(kernels_of_terms), owners, base, source))
    return KernelTerms(made, list(bases.values()), sources, [], len(kernels), ())


def column_kernels(data: Data) -> ColumnKernels:
    """The kernels of the covariates of these rows."""
    assert data.covariates is not None
    coordinates = jax.eval_shape(prediction_coordinates, data.predictions)
    return ColumnKernels(data.covariates.sizes, int(coordinates.shape[1]))


def with_columns(
    terms: KernelTerms, columns: ColumnKernels, judging: Sequence[SumOfTerms]
) -> KernelTerms:
    """The terms of more kernels: those of columns, each with the feature of each judging kernel.

    The judging kernels are among those that `terms` are of.
    """
    families, groups = [0] * terms.n_kernels, []
    for kernel in judging:
        (term,) = kernel.terms
        source = _index(terms.sources, term.residual)
        groups.append(ColumnGroup(columns, len(families), len(terms.bases), source))
        families += columns.families
    return dataclasses.replace(
        terms, of_columns=groups, n_kernels=len(families), families=tuple(families)
    )


def _index(found: list[Any], node: Any) -> int:
    """The index of an equal node, which is appended if there is none."""
    for i, other in enumerate(found):
        if _are_equal(node, other):
            return i
    found.append(node)
    return len(found) - 1


def _are_equal(a: Any, b: Any) -> bool:
    """Whether two pytrees are equal; traced leaves are equal only to themselves."""
    (ours, structure), (theirs, other) = map(jax.tree.flatten, (a, b))
    if (structure,) != (other,):
        return False

    def is_same(x: Any, y: Any) -> bool:
        return x is y or (not is_traced((x, y)) and np.array_equal(x, y))

    return all(map(is_same, ours, theirs))
