"""The function h, whose expectation is the squared kernel calibration error, and deviations.

h((p, y), (q, z)) = k((p, y), (q, z)) - E k((p, Z), (q, z)) - E k((p, y), (q, Z'))
+ E k((p, Z), (q, Z')) with independent Z ~ p and Z' ~ q
(Widmann, Lindsten and Zachariah, ICLR 2021, Lemma 2 and Eq. 5).

The deviation of (p, y) at a location t = (q, z) is k((p, y), t) - E k((p, Z), t) with Z ~ p, the
first half of h (Definition C.1 there).

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
"""

import functools
import itertools
import operator
from collections.abc import Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from calibjax._loops import is_of_numbers
from calibjax._numbers import dot
from calibjax._sharding import Axis
from calibjax._struct import type_name
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
    Scaled,
    SteinKernel,
    Sum,
    TensorProduct,
    VectorFeature,
    of_pair,
    pairwise,
    vmap_pairs,
)

#: A prediction and a target, or a batch of both.
Sample = tuple[Any, jax.Array]

#: What the kernel on predictions compares, and the law that is subtracted from the target.
Role = tuple[Any, Any]


@functools.singledispatch
def h(kernel: Any, a: Sample, b: Sample) -> jax.Array:
    """h of one pair of samples, a scalar; by default for a joint kernel, with finite sums."""
    (p, y), (q, z) = a, b
    labels, ours = _labels_and_residual(kernel, p, y)
    _, theirs = _labels_and_residual(kernel, q, z)
    joint = vmap_pairs(lambda y, z: kernel((p, y), (q, z)))(labels, labels).astype(ours.dtype)
    return jnp.sum(ours[:, None] * joint * theirs[None, :])


def _labels_and_residual(kernel: Any, p: Any, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    """All labels, and e_y - p."""
    if p.label_probabilities() is None:
        raise NotImplementedError(
            f"h with a joint kernel of type {type_name(kernel)} needs predictions over "
            f"finitely many labels (Categorical, Bernoulli), got {type(p).__name__}; use a "
            "TensorProduct, or sums and multiples of them."
        )
    return all_labels(p), label_residual(p, y)


@h.register
def _h_of_product(kernel: TensorProduct, a: Sample, b: Sample) -> jax.Array:
    (p, y), (q, z) = a, b

    def of_role(ours: Role, theirs: Role) -> jax.Array:
        return of_pair(kernel.prediction_kernel, ours[0], theirs[0]) * residual_product(
            ours[1], kernel.target_kernel, y, theirs[1], z
        )

    return _mean(map(of_role, p.cross_fit_pairs(), q.cross_fit_pairs()))


def _mean(terms: Iterable[jax.Array]) -> jax.Array:
    first, *others = terms
    # A division by 1 would be one more operation in every loop.
    return functools.reduce(jnp.add, others, first) / (1 + len(others)) if others else first


@h.register
def _h_of_features(kernel: FeatureKernel, a: Sample, b: Sample) -> jax.Array:
    def residual(p, y):
        labels, residual = _labels_and_residual(kernel, p, y)
        feature = VectorFeature(kernel.feature)
        return dot(residual, jax.vmap(lambda label: feature(p, label))(labels))

    return of_pair(kernel.prediction_kernel, a[0], b[0]) * dot(residual(*a), residual(*b))


@h.register
def _h_of_stein(kernel: SteinKernel, a: Sample, b: Sample) -> jax.Array:
    # The mean embeddings vanish.
    return kernel(a, b)


@h.register
def _h_of_sum(kernel: Sum, a: Sample, b: Sample) -> jax.Array:
    return h(kernel.left, a, b) + h(kernel.right, a, b)


@h.register
def _h_of_multiple(kernel: Scaled, a: Sample, b: Sample) -> jax.Array:
    return kernel.valid_factor() * h(kernel.kernel, a, b)


@functools.singledispatch
def h_tile(kernel: Any, a: Sample, b: Sample) -> jax.Array:
    """h of all pairs of two batches of samples, ``[S, T]``."""
    return vmap_pairs(functools.partial(h, kernel))(a, b)


@h_tile.register
def _h_tile_of_product(kernel: TensorProduct, a: Sample, b: Sample) -> jax.Array:
    (ps, ys), (qs, zs) = a, b
    if _is_a_few_numbers(kernel, a):
        return vmap_pairs(functools.partial(h, kernel))(a, b)

    def of_role(ours: Role, theirs: Role) -> jax.Array:
        targets = residual_product_tile(ours[1], kernel.target_kernel, ys, theirs[1], zs)
        return pairwise(kernel.prediction_kernel, ours[0], theirs[0]) * targets

    return _mean(map(of_role, _roles(ps), _roles(qs)))


def _roles(predictions: Any) -> tuple[Role, ...]:
    """The roles of each prediction in a batch."""
    return jax.vmap(lambda p: p.cross_fit_pairs())(predictions)


def _is_a_few_numbers(kernel: TensorProduct, rows: Sample) -> bool:
    """Whether one pair is best taken as a whole; arrays, and loops over them, have faster tiles."""
    if any(x.ndim > 1 for x in jax.tree.leaves(rows)):
        return False
    one = jax.tree.map(lambda x: jax.ShapeDtypeStruct((), x.dtype), rows)

    def of_pair(a: Sample, b: Sample) -> jax.Array:
        return residual_product(a[0], kernel.target_kernel, a[1], *b)

    return is_of_numbers(of_pair, one, one)


@h_tile.register
def _h_tile_of_stein(kernel: SteinKernel, a: Sample, b: Sample) -> jax.Array:
    return kernel.pairwise(a, b)


@h_tile.register
def _h_tile_of_sum(kernel: Sum, a: Any, b: Any) -> jax.Array:
    (left, right), (other_left, other_right) = _parts(a), _parts(b)
    return h_tile(kernel.left, left, other_left) + h_tile(kernel.right, right, other_right)


class Parts(NamedTuple):
    """The rows as both kernels of a Sum want them prepared."""

    left: Any
    right: Any


def _is_unchanged(made: Any, rows: Sample) -> bool:
    ours, structure = jax.tree.flatten(made)
    theirs, other = jax.tree.flatten(rows)
    return (structure,) == (other,) and all(map(operator.is_, ours, theirs))


def _parts(rows: Any) -> Parts:
    return rows if isinstance(rows, Parts) else Parts(rows, rows)


@h_tile.register
def _h_tile_of_multiple(kernel: Scaled, a: Sample, b: Sample) -> jax.Array:
    return kernel.valid_factor() * h_tile(kernel.kernel, a, b)


@functools.singledispatch
def prepared(kernel: Any, rows: Sample, axis: Axis) -> Any:
    """The rows with what their tiles share, so that it is computed once; by default as they are."""
    return rows


@prepared.register
def _prepared_for_product(kernel: TensorProduct, rows: Sample, axis: Axis) -> Any:
    predictions, targets = rows
    return prepare_rows(predictions, kernel.target_kernel, targets, axis), targets


@prepared.register
def _prepared_for_stein(kernel: SteinKernel, rows: Sample, axis: Axis) -> Any:
    return kernel.prepared(rows)


@prepared.register
def _prepared_for_sum(kernel: Sum, rows: Sample, axis: Axis) -> Any:
    parts = Parts(prepared(kernel.left, rows, axis), prepared(kernel.right, rows, axis))
    # Rows that neither kernel changes would go through all tiles, and all derivatives, twice.
    return rows if all(_is_unchanged(part, rows) for part in parts) else parts


@prepared.register
def _prepared_for_multiple(kernel: Scaled, rows: Sample, axis: Axis) -> Any:
    return prepared(kernel.kernel, rows, axis)


@functools.singledispatch
def deviation(kernel: Any, a: Sample, location: Sample) -> jax.Array:
    """The deviation of one sample at one location; by default for a joint kernel, a finite sum."""
    p, y = a
    labels, residual = _labels_and_residual(kernel, p, y)
    joint = jax.vmap(lambda y: kernel((p, y), location))(labels).astype(residual.dtype)
    return jnp.sum(residual * joint)


@deviation.register
def _deviation_of_product(kernel: TensorProduct, a: Sample, location: Sample) -> jax.Array:
    (p, y), (q, z) = a, location
    target_kernel = kernel.target_kernel
    of_targets = jnp.asarray(target_kernel(y, z)).astype(jax.tree.leaves(p)[0].dtype)

    def of_role(compared: Any, subtracted: Any) -> jax.Array:
        of_predictions = of_pair(kernel.prediction_kernel, compared, q)
        return of_predictions * (of_targets - mean_embedding(subtracted, target_kernel, z))

    return _mean(itertools.starmap(of_role, p.cross_fit_pairs()))


@deviation.register
def _deviation_of_stein(kernel: SteinKernel, a: Sample, location: Sample) -> jax.Array:
    return kernel(a, location)


@deviation.register
def _deviation_of_sum(kernel: Sum, a: Sample, location: Sample) -> jax.Array:
    return deviation(kernel.left, a, location) + deviation(kernel.right, a, location)


@deviation.register
def _deviation_of_multiple(kernel: Scaled, a: Sample, location: Sample) -> jax.Array:
    return kernel.valid_factor() * deviation(kernel.kernel, a, location)


def deviation_tile(kernel: Any, a: Sample, locations: Sample) -> jax.Array:
    """The deviations of a batch of samples at a batch of locations, ``[S, J]``."""
    return vmap_pairs(functools.partial(deviation, kernel))(a, locations)
