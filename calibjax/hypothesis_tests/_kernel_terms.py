"""The kernels of an aggregated test, taken apart into what they share.

Each kernel is a sum of terms, factor times k_P(p, q) <f(p, y), f(q, z)>.  Kernels with one target
kernel share the residuals of its features, and kernels with one distance between predictions share
the coordinates with respect to landmarks.
"""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._rows import in_dtype
from calibjax._struct import as_pytree, is_traced, static, struct
from calibjax.features import SteinFeature
from calibjax.kernels import (
    DistanceKernel,
    FeatureKernel,
    Scaled,
    SteinKernel,
    Sum,
    TensorProduct,
    VectorFeature,
    describe,
)


@struct
class Group:
    """Terms factor k_P(p, q) <f(p, y), f(q, z)> with one feature f, and one kind of kernel k_P.

    Args:
        factors: the nonnegative factor of each of T terms, ``[T]``.
        prediction_kernels: k_P of all terms as one pytree, with a leading axis T.
        owners: which of all kernels each term belongs to.
        base: which of the `bases` interpolates the prediction kernels from landmarks.
        source: which of the `sources` has the feature f.
    """

    factors: jax.Array
    prediction_kernels: Any
    owners: tuple[int, ...] = static()
    base: int = static()
    source: int = static()


@struct
class KernelTerms:
    """Kernels as sums of terms.

    Args:
        groups: all terms of all kernels, those that are computed alike together.
        bases: kernels on predictions, one for each distance.
        sources: target kernels and features, each different from the others.
        n_kernels: the number of kernels K.
    """

    groups: list[Group]
    bases: list[Any]
    sources: list[Any]
    n_kernels: int = static()


def terms_of(kernels: Sequence[Any], dtype: Any) -> KernelTerms:
    """The kernels, in one dtype, taken apart; TypeError for one that is no sum of such terms."""
    distances: list[Any] = []
    sources: list[Any] = []
    lengthscales: dict[int, list[Any]] = {}
    groups: dict[Any, list[Any]] = {}
    for owner, kernel in enumerate(in_dtype(list(kernels), dtype)):
        for factor, prediction_kernel, source in _terms(kernel):
            is_of_distance = type(prediction_kernel) is DistanceKernel
            distance = prediction_kernel.distance if is_of_distance else prediction_kernel
            base = _index(distances, distance)
            if is_of_distance:
                lengthscales.setdefault(base, []).append(prediction_kernel.scalar_lengthscale())
            leaves, structure = jax.tree.flatten(as_pytree(prediction_kernel))
            alike = base, _index(sources, source), structure, tuple(map(jnp.shape, leaves))
            groups.setdefault(alike, []).append((factor, prediction_kernel, owner))
    bases = [
        # The mean of the lengthscales interpolates well for all of them.
        DistanceKernel(d, jnp.mean(jnp.stack(lengthscales[i]))) if i in lengthscales else d
        for i, d in enumerate(distances)
    ]
    made = [_group(base, source, terms, dtype) for (base, source, *_), terms in groups.items()]
    return as_pytree(KernelTerms(made, bases, sources, len(kernels)))


def _group(base: int, source: int, terms: Sequence[Any], dtype: Any) -> Group:
    values, kernels, owners = zip(*terms, strict=True)
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *map(as_pytree, kernels))
    factors = jnp.stack([jnp.asarray(value, dtype) for value in values])
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
    (ours, structure), (theirs, other) = (jax.tree.flatten(as_pytree(x)) for x in (a, b))
    if (structure,) != (other,):
        return False

    def is_same(x: Any, y: Any) -> bool:
        return x is y or (not is_traced((x, y)) and np.array_equal(x, y))

    return all(map(is_same, ours, theirs))


@functools.singledispatch
def _terms(kernel: Any) -> list[tuple[Any, Any, Any]]:
    """The factor, the prediction kernel and the target kernel or feature of each term."""
    raise TypeError(
        "kernels must be TensorProducts, FeatureKernels or SteinKernels, or sums and multiples of "
        f"them, got {describe(kernel)}."
    )


@_terms.register
def _terms_of_product(kernel: TensorProduct) -> list[tuple[Any, Any, Any]]:
    return [(1.0, kernel.prediction_kernel, kernel.target_kernel)]


@_terms.register
def _terms_of_features(kernel: FeatureKernel) -> list[tuple[Any, Any, Any]]:
    return [(1.0, kernel.prediction_kernel, VectorFeature(kernel.feature))]


@_terms.register
def _terms_of_stein(kernel: SteinKernel) -> list[tuple[Any, Any, Any]]:
    return [(1.0, kernel.prediction_kernel, SteinFeature(kernel.target_kernel))]


@_terms.register
def _terms_of_sum(kernel: Sum) -> list[tuple[Any, Any, Any]]:
    return _terms(kernel.left) + _terms(kernel.right)


@_terms.register
def _terms_of_multiple(kernel: Scaled) -> list[tuple[Any, Any, Any]]:
    return [(kernel.valid_factor() * f, *parts) for f, *parts in _terms(kernel.kernel)]
