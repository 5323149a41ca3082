"""Predictions that are points with weights, with any target kernel: sums over (pairs of) points.

Each function is a double sum sum_st a_s b_t k(x_s, z_t) over the points and weights of two
measures.  A measure is a prediction, a point, or the signed measure delta_y - p.
"""

from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax import lax

from calibjax._distribution import Distribution
from calibjax._sharding import as_varying
from calibjax.expectations._dispatch import (
    inner_product,
    mean_embedding,
    residual_product,
    residual_product_tile,
    squared_distance_tile,
    squared_embedding_distance_tile,
)
from calibjax.kernels import pairwise

Family = TypeVar("Family", bound=type[Distribution])

# The least number of kernel values in one step of the loop.  A tile of many pairs of predictions
# takes one pair of points at a time; for a few pairs a step takes more points together.
_KERNEL_VALUES_PER_STEP = 64


#: Points ``[S, …]``, an array or a pytree of arrays, and weights ``[S]``.
Measure = tuple[Any, jax.Array]


def measure_mean(p, kernel, y):
    points, weights = p.atoms()
    return double_sum(kernel, (points, weights), (y[None], jnp.ones(1, weights.dtype)))


def measure_inner(p, kernel, q):
    return double_sum(kernel, p.atoms(), q.atoms())


def measure_residual(p, kernel, y, q, z):
    return double_sum(kernel, _residual_measure(p, y), _residual_measure(q, z))


def measure_residual_tile(ps, kernel, ys, qs, zs):
    measures = jax.vmap(_residual_measure)
    return double_sum_tile(kernel, measures(ps, ys), measures(qs, zs))


def measure_squared_distance_tile(ps, kernel, qs):
    def inner(ps, kernel, qs):
        measures = jax.vmap(lambda p: p.atoms())
        return double_sum_tile(kernel, measures(ps), measures(qs))

    return squared_distance_tile(ps, kernel, qs, inner)


def sums_over_atoms(family: Family) -> Family:
    """Class decorator: registers these sums for a family that has `atoms`."""
    mean_embedding.register(family, object)(measure_mean)
    inner_product.register(family, object)(measure_inner)
    residual_product.register(family, object)(measure_residual)
    residual_product_tile.register(family, object)(measure_residual_tile)
    squared_embedding_distance_tile.register(family, object)(measure_squared_distance_tile)
    return family


def _residual_measure(p, y) -> Measure:
    """The points and weights of the signed measure delta_y - p, ``[1 + S, …]`` and ``[1 + S]``.

    h is the inner product of the embeddings of two such measures.
    """
    points, weights = p.atoms()
    return jnp.concatenate([y[None], points]), jnp.concatenate(
        [jnp.ones(1, weights.dtype), -weights]
    )


def double_sum(kernel: Any, left: Measure, right: Measure) -> jax.Array:
    """sum_st a_s b_t k(x_s, z_t) for one pair of measures."""
    left, right = jax.tree.map(lambda x: x[None], (left, right))
    return double_sum_tile(kernel, left, right)[0, 0]


def double_sum_tile(kernel: Any, left: Measure, right: Measure) -> jax.Array:
    """sum_st a_is b_jt k(x_is, z_jt) for all pairs of measures i and j, ``[R, R']``.

    The loops over points are outside, and each step makes a whole tile of pairs: on a CPU this is
    ten times faster than a sum over points for each pair.  The derivative evaluates each step
    again instead of storing all steps.
    """
    shape = left[1].shape[0], right[1].shape[0]
    per_side = max(1, round((_KERNEL_VALUES_PER_STEP / (shape[0] * shape[1])) ** 0.5))
    left, right = _chunks(left, per_side), _chunks(right, per_side)

    @jax.checkpoint
    def sum_of_chunks(x, a, z, b):
        def terms(x, a, z, b):
            return pairwise(kernel, x, z).astype(a.dtype) * a[:, None] * b[None, :]

        right_terms = jax.vmap(terms, in_axes=(None, None, 0, 0))
        all_terms = jax.vmap(right_terms, in_axes=(0, 0, None, None))(x, a, z, b)
        return jnp.sum(all_terms, axis=(0, 1))

    def over_left(total, chunk):
        def over_right(total, other):
            return total + sum_of_chunks(*chunk, *other), None

        return lax.scan(over_right, total, right)[0], None

    zeros = as_varying(jnp.zeros(shape, left[1].dtype), (kernel, left, right))
    return lax.scan(over_left, zeros, left)[0]


def _chunks(measures: Measure, size: int) -> Measure:
    """Points and weights ``[R, S, …]`` cut along their points, ``[chunks, size, R, …]``.

    Copies of the last point with weight 0 fill the last chunk.
    """
    points, weights = measures
    n_points = weights.shape[1]
    size = min(size, n_points)
    n_chunks = -(-n_points // size)
    index = jnp.arange(n_chunks * size)

    def cut(values):
        values = jnp.moveaxis(values, 1, 0)[jnp.minimum(index, n_points - 1)]
        return values.reshape(n_chunks, size, *values.shape[1:])

    is_point = (index < n_points).reshape(n_chunks, size, 1)
    return jax.tree.map(cut, points), jnp.where(is_point, cut(weights), 0.0)
