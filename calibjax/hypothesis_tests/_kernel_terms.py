"""The kernels of an aggregated test, taken apart into what they share.

Each kernel is a sum of terms, factor times k_P(p, q) <f(p, y), f(q, z)>.  Kernels with one target
kernel share the residuals of its features, and kernels with one distance between predictions share
the coordinates with respect to landmarks.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._rows import in_dtype
from calibjax._struct import is_traced, static, struct
from calibjax.discrepancy import JointResidual, SumOfTerms, TargetResidual
from calibjax.kernels import DistanceKernel, KernelLike, describe, times


@struct
class Group:
    """Terms factor k_P(p, q) <f(p, y), f(q, z)> with one feature f, and one kind of kernel k_P.

    Args:
        factors: the nonnegative factor of each of T terms, ``[T]``.
        prediction_kernels: k_P of all terms as one pytree, with a leading axis T.
        owners: which of all kernels each term belongs to.
        base: which of the `bases` interpolates the prediction kernels from landmarks.
        source: which of the `sources` has the residual of f.
    """

    factors: jax.Array
    prediction_kernels: KernelLike
    owners: tuple[int, ...] = static()
    base: int = static()
    source: int = static()


@struct
class KernelTerms:
    """Kernels as sums of terms.

    Args:
        groups: all terms of all kernels, those that are computed alike together.
        bases: kernels on predictions, one for each distance.
        sources: what h keeps of targets, each different from the others.
        n_kernels: the number of kernels K.
    """

    groups: list[Group]
    bases: list[KernelLike]
    sources: list[TargetResidual]
    n_kernels: int = static()


def terms_of(kernels: Sequence[SumOfTerms], dtype: Any) -> KernelTerms:
    """The kernels, in one dtype, taken apart; TypeError for one that is no sum of such terms."""
    distances: list[Any] = []
    sources: list[Any] = []
    lengthscales: dict[int, list[Any]] = {}
    groups: dict[Any, list[Any]] = {}
    for owner, kernel in enumerate(in_dtype(list(kernels), dtype)):
        for term in kernel.terms:
            if isinstance(term.residual, JointResidual):
                raise TypeError(
                    "kernels must be TensorProducts, FeatureKernels or SteinKernels, or sums and "
                    f"multiples of them, got {describe(term.residual.kernel)}."
                )
            kernel_of_term = term.prediction_kernel
            if isinstance(kernel_of_term, DistanceKernel):
                base = _index(distances, kernel_of_term.distance)
                lengthscales.setdefault(base, []).append(kernel_of_term.scalar_lengthscale())
            else:
                base = _index(distances, kernel_of_term)
            leaves, structure = jax.tree.flatten(kernel_of_term)
            alike = base, _index(sources, term.residual), structure, tuple(map(jnp.shape, leaves))
            groups.setdefault(alike, []).append((term.factor, kernel_of_term, owner))
    bases = [
        # The mean of the lengthscales interpolates well for all of them.
        DistanceKernel(d, jnp.mean(jnp.stack(lengthscales[i]))) if i in lengthscales else d
        for i, d in enumerate(distances)
    ]
    made = [_group(base, source, terms, dtype) for (base, source, *_), terms in groups.items()]
    return KernelTerms(made, bases, sources, len(kernels))


def _group(base: int, source: int, terms: Sequence[Any], dtype: Any) -> Group:
    values, kernels, owners = zip(*terms, strict=True)
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *kernels)
    factors = jnp.stack([jnp.asarray(times(value, 1.0), dtype) for value in values])
    return Group(factors, stacked, owners, base, source)


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
