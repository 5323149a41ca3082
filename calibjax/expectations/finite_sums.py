"""Expectations of any target kernel as sums: over all labels, and over points with weights.

For finitely many labels, with the matrix K of the kernel at all of them, E k(Z, y) = (K p)_y and E
k(Z, Z') = p^T K q.  The residual product is r^T K s with the residuals r = e_y - p and s = e_z - q.
With K = I, a tile of residual products is one product of matrices.

For points with weights each function is a double sum sum_st a_s b_t k(x_s, z_t) over the points and
weights of two measures.  A measure is a prediction, a point, or the signed measure delta_y - p.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax import lax

from calibjax._base.compile import on_cpu
from calibjax._base.sharding import as_varying
from calibjax._base.struct import PyTree, indexed
from calibjax._data.distribution import Binary, Distribution, Labels
from calibjax._numbers.arithmetic import dot, sum_over_pairs
from calibjax.expectations.dispatch import (
    inner_product,
    mean_embedding,
    residual_product,
    residual_product_tile,
    squared_distance_tile,
    squared_embedding_distance,
    squared_embedding_distance_tile,
)
from calibjax.kernels import WhiteKernel
from calibjax.kernels.base import KernelLike, pairwise, vmap_pairs

Family = TypeVar("Family", bound=type[Distribution])


def all_labels(p: Labels) -> jax.Array:
    """The labels 0 … m-1."""
    return jnp.arange(p.label_probabilities().shape[-1], dtype=jnp.int32)


def _kernel_matrix(kernel: KernelLike, p: Labels) -> jax.Array:
    """K, the kernel at all pairs of labels, ``[m, m]``."""
    labels = all_labels(p)
    return vmap_pairs(kernel)(labels, labels).astype(p.label_probabilities().dtype)


def label_residual(p: Labels, y: jax.Array) -> jax.Array:
    """e_y - p for a label y, ``[m]``."""
    probabilities = p.label_probabilities()
    is_target = jnp.arange(probabilities.shape[-1], dtype=jnp.int32) == y
    return is_target.astype(probabilities.dtype) - probabilities


def finite_mean(p: Labels, kernel: KernelLike, y: jax.Array) -> jax.Array:
    at_labels = jax.vmap(kernel, in_axes=(0, None))(all_labels(p), y)
    probabilities = p.label_probabilities()
    return dot(probabilities, at_labels.astype(probabilities.dtype))


def finite_inner(p: Labels, kernel: KernelLike, q: Labels) -> jax.Array:
    return dot(p.label_probabilities(), dot(_kernel_matrix(kernel, q), q.label_probabilities()))


def finite_residual(
    p: Labels, kernel: KernelLike, y: jax.Array, q: Labels, z: jax.Array
) -> jax.Array:
    return dot(label_residual(p, y), dot(_kernel_matrix(kernel, q), label_residual(q, z)))


def finite_squared_distance(p: Labels, kernel: KernelLike, q: Labels) -> jax.Array:
    difference = p.label_probabilities() - q.label_probabilities()
    return dot(difference, dot(_kernel_matrix(kernel, q), difference))


def white_residual(
    p: Labels, kernel: WhiteKernel, y: jax.Array, q: Labels, z: jax.Array
) -> jax.Array:
    # K is the identity, and the residuals of two labels differ in their signs only.
    if isinstance(p, Binary) and isinstance(q, Binary):
        ours, theirs = p.binary_probability(), q.binary_probability()
        return 2 * ((y == 1).astype(ours.dtype) - ours) * ((z == 1).astype(theirs.dtype) - theirs)
    return dot(label_residual(p, y), label_residual(q, z))


def white_residual_tile(
    ps: Labels, kernel: WhiteKernel, ys: jax.Array, qs: Labels, zs: jax.Array
) -> jax.Array:
    if isinstance(ps, Binary) and isinstance(qs, Binary):
        return residual_product_tile.fallback(ps, kernel, ys, qs, zs)
    r, s = jax.vmap(label_residual)(ps, ys), jax.vmap(label_residual)(qs, zs)
    if on_cpu() or r.shape[1] > _FEW_CLASSES:
        # Fused into the product they would be recomputed for each of its blocks. jax 0.12 derives
        # no barrier of two arrays of which one has a derivative.  Classes are first, as in the
        # distances of the same rows: 4096 rows take a tenth less time.  A product of few rows with
        # many classes takes half of the time with rows first.
        axis = 1 if r.shape[1] > _FEW_CLASSES and r.size <= _SMALL_PRODUCT else 0
        r = lax.optimization_barrier(jnp.moveaxis(r, 1, axis))
        s = lax.optimization_barrier(jnp.moveaxis(s, 1, axis))
        over_classes = ((axis,), (axis,)), ((), ())
        return lax.dot_general(r, s, over_classes, precision=lax.Precision.HIGHEST)
    return _sum_of_outer_products(r.T, s.T)


# Up to this number of classes an accelerator sums outer products, which the compiler fuses into the
# code that uses them: the tile is never in memory.
_FEW_CLASSES = 32
# The largest number of residuals, rows times classes, of a product with rows first.
_SMALL_PRODUCT = 2**15


@jax.custom_jvp
def _sum_of_outer_products(r: jax.Array, s: jax.Array) -> jax.Array:
    """r^T s for factors ``[m, S]`` and ``[m, T]``."""
    return sum(a[:, None] * b[None, :] for a, b in zip(r, s, strict=True))


@_sum_of_outer_products.defjvp
def _sum_of_outer_products_jvp(factors, tangents):
    # The same derivative, as products of matrices: backwards they read the cotangents of the tile
    # once for each factor, and not once for each class.
    (r, s), (dr, ds) = factors, tangents
    return _sum_of_outer_products(r, s), dot(dr.T, s) + dot(r.T, ds)


def finite_sums(family: Family) -> Family:
    """Class decorator: registers these sums for a family that has `label_probabilities`."""
    mean_embedding.register(family, object)(finite_mean)
    inner_product.register(family, object)(finite_inner)
    residual_product.register(family, object)(finite_residual)
    squared_embedding_distance.register(family, object)(finite_squared_distance)
    residual_product.register(family, WhiteKernel)(white_residual)
    residual_product_tile.register(family, WhiteKernel)(white_residual_tile)
    return family


# The least number of kernel values in one step of the loop.  A tile of many pairs of predictions
# takes one pair of points at a time; for a few pairs a step takes more points together.
_KERNEL_VALUES_PER_STEP = 64


#: Points ``[S, …]``, an array or a pytree of arrays, and weights ``[S]``.
Measure = tuple[PyTree, jax.Array]


def sums_over_atoms(family: Family) -> Family:
    """Class decorator: registers sums over atoms for a family that has `atoms`, for any kernel."""
    register_sums(
        family,
        object,
        measure=lambda p, kernel: p.atoms(),
        point=lambda kernel, y: y[None],
        of_points=lambda kernel: kernel,
    )
    return family


def register_sums(
    family: type[Distribution],
    kernel_type: type,
    measure: Callable[[Any, Any], Measure],
    point: Callable[[Any, jax.Array], PyTree],
    of_points: Callable[[Any], KernelLike],
) -> None:
    """Registers sums over pairs of points for a family and a kernel type.

    A residual product of one pair is four sums, of which many targets of one prediction share the
    one over its own points.

    Args:
        family: the family of the predictions.
        kernel_type: the type of the target kernel.
        measure: ``measure(p, kernel)``, the points and weights of one prediction.
        point: ``point(kernel, y)``, one target as points with a leading axis of length 1.
        of_points: ``of_points(kernel)``, the function of two points that is summed.
    """

    def residual_measure(p: Distribution, kernel: KernelLike, y: jax.Array) -> Measure:
        return measure_of_residual(measure(p, kernel), point(kernel, y))

    @mean_embedding.register(family, kernel_type)
    def measure_mean(p: Distribution, kernel: KernelLike, y: jax.Array) -> jax.Array:
        points, weights = measure(p, kernel)
        at_target = point(kernel, y), jnp.ones(1, weights.dtype)
        return double_sum(of_points(kernel), (points, weights), at_target)

    @inner_product.register(family, kernel_type)
    def measure_inner(p: Distribution, kernel: KernelLike, q: Distribution) -> jax.Array:
        return double_sum(of_points(kernel), measure(p, kernel), measure(q, kernel))

    @residual_product_tile.register(family, kernel_type)
    def measure_residual_tile(
        ps: Distribution, kernel: KernelLike, ys: jax.Array, qs: Distribution, zs: jax.Array
    ) -> jax.Array:
        measures = jax.vmap(residual_measure, (0, None, 0))
        left, right = measures(ps, kernel, ys), measures(qs, kernel, zs)
        return double_sum_tile(of_points(kernel), left, right)

    @squared_embedding_distance_tile.register(family, kernel_type)
    def measure_squared_distance_tile(
        ps: Distribution, kernel: KernelLike, qs: Distribution
    ) -> jax.Array:
        def inner_tile(ps: Distribution, kernel: KernelLike, qs: Distribution) -> jax.Array:
            measures = jax.vmap(measure, (0, None))
            return double_sum_tile(of_points(kernel), measures(ps, kernel), measures(qs, kernel))

        return squared_distance_tile(ps, kernel, qs, inner_tile)


def measure_of_residual(measure: Measure, target: PyTree) -> Measure:
    """The signed measure delta_y - p, ``[1 + S, …]`` and ``[1 + S]``, from p and the point y.

    h is the inner product of the embeddings of two such measures.
    """
    points, weights = measure
    points = jax.tree.map(lambda a, b: jnp.concatenate([a, b]), target, points)
    return points, jnp.concatenate([jnp.ones(1, weights.dtype), -weights])


def double_sum(kernel: KernelLike, left: Measure, right: Measure) -> jax.Array:
    """sum_st a_s b_t k(x_s, z_t) for one pair of measures."""
    left, right = indexed((left, right), None)
    return double_sum_tile(kernel, left, right)[0, 0]


def double_sum_tile(kernel: KernelLike, left: Measure, right: Measure) -> jax.Array:
    """sum_st a_is b_jt k(x_is, z_jt) for all pairs of measures i and j, ``[R, R']``.

    The loops over points are outside, and each step makes a whole tile of pairs: on a CPU this is
    ten times faster than a sum over points for each pair.
    """
    shape = left[1].shape[0], right[1].shape[0]
    per_side = max(1, round((_KERNEL_VALUES_PER_STEP / (shape[0] * shape[1])) ** 0.5))
    left, right = _chunks(left, per_side), _chunks(right, per_side)

    def terms(left: Measure, right: Measure) -> jax.Array:
        (x, a), (z, b) = left, right
        return pairwise(kernel, x, z).astype(a.dtype) * a[:, None] * b[None, :]

    def sum_of_chunks(left: Measure, right: Measure) -> jax.Array:
        return jnp.sum(vmap_pairs(terms)(left, right), axis=(0, 1))

    zeros = as_varying(jnp.zeros(shape, left[1].dtype), (kernel, left, right))
    return sum_over_pairs(sum_of_chunks, left, right, zeros)


def _chunks(measures: Measure, size: int) -> Measure:
    """Points and weights ``[R, S, …]`` cut along their points, ``[chunks, size, R, …]``.

    Copies of the last point with weight 0 fill the last chunk.
    """
    points, weights = measures
    n_points = weights.shape[1]
    size = min(size, n_points)
    n_chunks = -(-n_points // size)
    index = jnp.arange(n_chunks * size)

    def cut(values: jax.Array) -> jax.Array:
        values = jnp.moveaxis(values, 1, 0)[jnp.minimum(index, n_points - 1)]
        return values.reshape(n_chunks, size, *values.shape[1:])

    is_point = (index < n_points).reshape(n_chunks, size, 1)
    return jax.tree.map(cut, points), jnp.where(is_point, cut(weights), 0.0)
