"""Predictions by samples, with any target kernel: weighted sums over samples, or pairs of them."""

import jax
import jax.numpy as jnp
from jax import lax

from calibjax._sharding import as_varying
from calibjax.distributions._empirical._empirical import Empirical
from calibjax.expectations import (
    inner_product,
    mean_embedding,
    residual_product,
    residual_product_tile,
    squared_distance_tile,
    squared_embedding_distance_tile,
)
from calibjax.kernels import pairwise

# How many kernel values a step makes, if not even more pairs of predictions are there: more are
# worth a step, but batches of single pairs and of small blocks are made side by side.
_PER_STEP = 64


@mean_embedding.register(Empirical, object)
def empirical_mean(p, kernel, y):
    return _of_pair(kernel, *_samples(p), y[None], jnp.ones(1, p.samples.dtype))


@inner_product.register(Empirical, object)
def empirical_inner(p, kernel, q):
    return _of_pair(kernel, *_samples(p), *_samples(q))


@residual_product.register(Empirical, object)
def empirical_residual(p, kernel, y, q, z):
    return _of_pair(kernel, *_residual(p, y), *_residual(q, z))


@residual_product_tile.register(Empirical, object)
def empirical_residual_tile(ps, kernel, ys, qs, zs):
    left, right = jax.vmap(_residual)(ps, ys), jax.vmap(_residual)(qs, zs)
    return _bilinear(kernel, *left, *right)


@squared_embedding_distance_tile.register(Empirical, object)
def empirical_squared_distance_tile(ps, kernel, qs):
    def inner(ps, kernel, qs):
        return _bilinear(kernel, *jax.vmap(_samples)(ps), *jax.vmap(_samples)(qs))

    return squared_distance_tile(ps, kernel, qs, inner)


def _samples(p) -> tuple[jax.Array, jax.Array]:
    return p.samples, p.probabilities()


def _residual(p, y) -> tuple[jax.Array, jax.Array]:
    """The points and weights of the signed measure delta_y - p, whose embedding h is made of."""
    weights = p.probabilities()
    return jnp.concatenate([y[None], p.samples]), jnp.concatenate(
        [jnp.ones(1, weights.dtype), -weights]
    )


def _of_pair(kernel, *measures):
    return _bilinear(kernel, *(x[None] for x in measures))[0, 0]


def _bilinear(kernel, x, a, z, b) -> jax.Array:
    """sum_st a_is b_jt k(x_is, z_jt) for all pairs of measures i and j, ``[R, R']``.

    Loops over samples of both, one by one for a whole tile of pairs: that is how a CPU is ten times
    faster than with a sum over samples inside.  The derivative evaluates each step again instead of
    holding all.
    """
    n_pairs = x.shape[0] * z.shape[0]
    per_side = max(1, round((_PER_STEP / n_pairs) ** 0.5))
    left, right = _chunks(x, a, per_side), _chunks(z, b, per_side)

    @jax.checkpoint
    def of_chunks(x, a, z, b):
        def of_samples(x, a, z, b):
            return pairwise(kernel, x, z).astype(a.dtype) * a[:, None] * b[None, :]

        of_right = jax.vmap(of_samples, in_axes=(None, None, 0, 0))
        return jnp.sum(jax.vmap(of_right, in_axes=(0, 0, None, None))(x, a, z, b), axis=(0, 1))

    def over_left(total, chunk):
        def over_right(total, other):
            return total + of_chunks(*chunk, *other), None

        return lax.scan(over_right, total, right)[0], None

    zeros = as_varying(jnp.zeros((x.shape[0], z.shape[0]), a.dtype), (kernel, left, right))
    return lax.scan(over_left, zeros, left)[0]


def _chunks(points, weights, size: int) -> tuple[jax.Array, jax.Array]:
    """Samples first, ``[chunks, size, R, …]``; added ones are copies that weigh nothing."""
    n_samples = weights.shape[1]
    size = min(size, n_samples)
    n_chunks = -(-n_samples // size)
    index = jnp.arange(n_chunks * size)

    def cut(values):
        values = jnp.moveaxis(values, 1, 0)[jnp.minimum(index, n_samples - 1)]
        return values.reshape(n_chunks, size, *values.shape[1:])

    is_sample = (index < n_samples).reshape(n_chunks, size, 1)
    return cut(points), jnp.where(is_sample, cut(weights), 0.0)
