"""Kernels taken apart into what they share.

Each kernel is a sum of terms, factor times k_P(p, q) <f(p, y), f(q, z)>.  Kernels with one target
kernel share the residuals of its features, and kernels with one distance between predictions share
the cells that rows are in.  Outside of jit they are only sorted: the arithmetic, of a dozen
numbers, is a part of the test's one program.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._base.struct import is_traced, rows_of, static, struct
from calibjax._data.data import Data
from calibjax.discrepancy import SumOfTerms
from calibjax.expectations.defaults import prediction_coordinates
from calibjax.features.columns import ColumnKernels
from calibjax.kernels.base import KernelLike, describe, times
from calibjax.kernels.predictions import DistanceKernel
from calibjax.residuals.base import JointResidual, TargetResidual

#: A weighting and a residual.
Pair = tuple[int, int]


@struct
class ColumnTerms:
    """The kernels of covariates with one feature of targets.

    Args:
        kernels: which kernels these are.
        first: the number of the first of them among all kernels.
        pair: the number behind those of the `weightings`, and which of the `residuals` is that of
            the feature.
    """

    kernels: ColumnKernels = static()
    first: int = static()
    pair: Pair = static()


@struct
class KernelTerms:
    """Kernels as sums of terms, factor k_P(p, q) <f(p, y), f(q, z)>.

    Args:
        kernel_lists: the kernels on predictions, a list for each distance and structure.
        weightings: a kernel on predictions for each distance, which says what is near.
        residuals: what h keeps of targets, each different from the others.
        of_columns: the kernels of covariates, which are behind all others.
        forms: a number of the `kernel_lists` for k_P, with the numbers of one of the `weightings`
            and of one of the `residuals`: what is summed for all kernels of the list.
        pairs: all weightings and residuals that go together.
        factors: the nonnegative factor of each of T terms; None stands for 1.
        kernels: which of the kernels of all forms the k_P of each term is.
        owners: which of the K kernels each term belongs to.
        n_kernels: the number of kernels K.
        families: the number of the family of each kernel; none if each is one of its own.
    """

    kernel_lists: list[list[KernelLike]]
    weightings: list[KernelLike]
    residuals: list[TargetResidual]
    of_columns: list[ColumnTerms]
    factors: list[jax.Array | None]
    forms: tuple[tuple[int, Pair], ...] = static()
    pairs: tuple[Pair, ...] = static()
    kernels: tuple[int, ...] = static()
    owners: tuple[int, ...] = static()
    n_kernels: int = static()
    families: tuple[int, ...] = static()

    def of_kernels(self, of_forms: jax.Array) -> jax.Array:
        """Sums over the terms of each kernel ``[K, …]``, from the numbers of all forms ``[U, …]``.

        Each of the `forms` has a number of each kernel of its list.
        """
        of_terms = rows_of(of_forms, np.array(self.kernels, np.int32))
        if self.factors.count(None) < len(self.factors):
            column = jnp.stack([jnp.asarray(times(x, 1.0), of_terms.dtype) for x in self.factors])
            of_terms *= column.reshape(-1, *(1,) * (of_terms.ndim - 1))
        zeros = jnp.zeros((self.n_kernels, *of_terms.shape[1:]), of_terms.dtype)
        return zeros.at[jnp.array(self.owners, jnp.int32)].add(of_terms, mode="promise_in_bounds")


def terms_of(kernels: Sequence[SumOfTerms]) -> KernelTerms:
    """The terms of the kernels; TypeError for a kernel that is not a sum of such terms."""
    distances: list[Any] = []
    residuals: list[Any] = []
    weightings: list[KernelLike] = []
    kernel_lists: dict[Any, dict[Any, KernelLike]] = {}
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
            pair = _index(distances, distance), _index(residuals, term.residual)
            if len(distances) > len(weightings):
                weightings.append(compared)
            leaves, structure = jax.tree.flatten(compared)
            kernel_list = pair[0], structure, tuple(map(jnp.shape, leaves))
            # Programs must not depend on numbers: kernels are equal if they have the same arrays.
            known, arrays = kernel_lists.setdefault(kernel_list, {}), tuple(map(id, leaves))
            known.setdefault(arrays, compared)
            of_form = groups.setdefault((kernel_list, pair), [])
            of_form.append((term.factor, list(known).index(arrays), owner))
    forms, terms, numbers, first = [], [], list(kernel_lists), 0
    for (kernel_list, pair), of_form in groups.items():
        forms.append((numbers.index(kernel_list), pair))
        terms += [(factor, first + index, owner) for factor, index, owner in of_form]
        first += len(kernel_lists[kernel_list])
    factors, of_terms, owners = zip(*terms, strict=True)
    different = [list(known.values()) for known in kernel_lists.values()]
    pairs = tuple(dict.fromkeys(pair for _, pair in groups))
    of_kernels = list(factors), tuple(forms), pairs, of_terms, owners, len(kernels), ()
    return KernelTerms(different, weightings, residuals, [], *of_kernels)


def with_columns(terms: KernelTerms, data: Data, kernels: Sequence[SumOfTerms]) -> KernelTerms:
    """The terms of more kernels: those of the covariates, each with the features of `kernels`.

    These are among those that `terms` are of.  If one has several features, such as ranks and
    standard scores of samples, the first one counts.
    """
    assert data.covariates is not None
    coordinates = jax.eval_shape(prediction_coordinates, data.predictions)
    columns = ColumnKernels(data.covariates.sizes, int(coordinates.shape[1]))
    families, groups, pairs = [0] * terms.n_kernels, [], list(terms.pairs)
    for kernel in kernels:
        term, *_ = kernel.terms
        pairs.append((len(terms.weightings), _index(terms.residuals, term.residual)))
        groups.append(ColumnTerms(columns, len(families), pairs[-1]))
        families += columns.families
    return dataclasses.replace(
        terms,
        of_columns=groups,
        pairs=tuple(dict.fromkeys(pairs)),
        n_kernels=len(families),
        families=tuple(families),
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
