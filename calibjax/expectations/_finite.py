"""Predictions over finitely many labels, with any target kernel: finite sums.

With the matrix K of the kernel at all labels, E k(Z, y) = (K p)_y and E k(Z, Z') = p^T K q.  The
residual product is r^T K s with the residuals r = e_y - p and s = e_z - q.  With K = I, a tile of
residual products is one product of matrices.
"""

from typing import TypeVar

import jax
import jax.numpy as jnp
from jax import lax

from calibjax._distribution import Distribution
from calibjax._numbers import dot
from calibjax.expectations._dispatch import (
    inner_product,
    mean_embedding,
    residual_product,
    residual_product_tile,
    squared_embedding_distance,
)
from calibjax.kernels import KernelLike, WhiteKernel, vmap_pairs

Family = TypeVar("Family", bound=type[Distribution])


def all_labels(p: Distribution) -> jax.Array:
    """The labels 0 … m-1."""
    return jnp.arange(p.label_probabilities().shape[-1], dtype=jnp.int32)


def _kernel_matrix(kernel: KernelLike, p: Distribution) -> jax.Array:
    """K, the kernel at all pairs of labels, ``[m, m]``."""
    labels = all_labels(p)
    return vmap_pairs(kernel)(labels, labels).astype(p.label_probabilities().dtype)


def label_residual(p: Distribution, y: jax.Array) -> jax.Array:
    """e_y - p for a label y, ``[m]``."""
    probabilities = p.label_probabilities()
    return (all_labels(p) == y).astype(probabilities.dtype) - probabilities


def finite_mean(p: Distribution, kernel: KernelLike, y: jax.Array) -> jax.Array:
    at_labels = jax.vmap(kernel, in_axes=(0, None))(all_labels(p), y)
    probabilities = p.label_probabilities()
    return dot(probabilities, at_labels.astype(probabilities.dtype))


def finite_inner(p: Distribution, kernel: KernelLike, q: Distribution) -> jax.Array:
    return dot(p.label_probabilities(), dot(_kernel_matrix(kernel, q), q.label_probabilities()))


def finite_residual(
    p: Distribution, kernel: KernelLike, y: jax.Array, q: Distribution, z: jax.Array
) -> jax.Array:
    return dot(label_residual(p, y), dot(_kernel_matrix(kernel, q), label_residual(q, z)))


def finite_squared_distance(p: Distribution, kernel: KernelLike, q: Distribution) -> jax.Array:
    difference = p.label_probabilities() - q.label_probabilities()
    return dot(difference, dot(_kernel_matrix(kernel, q), difference))


def white_residual(
    p: Distribution, kernel: WhiteKernel, y: jax.Array, q: Distribution, z: jax.Array
) -> jax.Array:
    # K is the identity, and the residuals of two labels differ in their signs only.
    if p.is_binary and q.is_binary:
        ours, theirs = p.binary_probability(), q.binary_probability()
        return 2 * ((y == 1).astype(ours.dtype) - ours) * ((z == 1).astype(theirs.dtype) - theirs)
    return dot(label_residual(p, y), label_residual(q, z))


def white_residual_tile(
    ps: Distribution, kernel: WhiteKernel, ys: jax.Array, qs: Distribution, zs: jax.Array
) -> jax.Array:
    if ps.is_binary and qs.is_binary:
        return residual_product_tile.fallback(ps, kernel, ys, qs, zs)
    # Classes come first, so that both matrix products of the derivative work on whole rows.
    r, s = jax.vmap(label_residual)(ps, ys).T, jax.vmap(label_residual)(qs, zs).T
    if r.shape[0] > _FEW_CLASSES:
        return _matrix_product(r, s)
    return lax.platform_dependent(r, s, cpu=_matrix_product, default=_sum_of_outer_products)


# Up to this number of classes an accelerator sums outer products, which the compiler fuses into the
# code that uses them: the tile is never in memory.
_FEW_CLASSES = 32


def _matrix_product(r: jax.Array, s: jax.Array) -> jax.Array:
    """r^T s for factors ``[m, S]`` and ``[m, T]``."""
    r, s = lax.optimization_barrier((r, s))
    return lax.dot_general(r, s, (((0,), (0,)), ((), ())), precision=lax.Precision.HIGHEST)


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
