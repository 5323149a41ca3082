"""Estimates for classes: ours, h vmapped twice, and SciPy with BLAS."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from scipy.spatial.distance import pdist, squareform

import calibjax as cj
from benchmarks.works.data import LABEL_KERNEL, LENGTHSCALE, label_data


def skce_of_probs(probs: jax.Array, labels: jax.Array, block_size: int | None = None) -> jax.Array:
    return cj.skce(LABEL_KERNEL, cj.Categorical(probs), labels, block_size=block_size)


def skce(
    n: int, m: int, block_size: int | None = None, gradient: bool = False, jitted: bool = False
):
    """Ours, as a user calls it; with `gradient` the jitted value and gradient in the probs."""
    function = functools.partial(skce_of_probs, block_size=block_size)
    if gradient:
        function = jax.value_and_grad(function)
    if gradient or jitted:
        function = jax.jit(function)
    return functools.partial(function, *map(jnp.asarray, label_data(n, m)))


def skce_compiled(n: int, m: int):
    """Ours, compiled beforehand: for an n at which nobody waits for a first call."""
    rows = tuple(map(jnp.asarray, label_data(n, m)))
    return functools.partial(jax.jit(skce_of_probs).lower(*rows).compile(), *rows)


def skce_by_vmap(n: int, m: int):
    """Peer: h of one pair, vmapped twice, and its mean off the diagonal."""

    def h(p, y, q, z):
        residuals = (y == z) - p[z] - q[y] + jnp.dot(p, q)
        return jnp.exp(-0.5 * jnp.sum(jnp.abs(p - q)) / LENGTHSCALE) * residuals

    @jax.jit
    def mean(probs, labels):
        matrix = jax.vmap(jax.vmap(h, (None, None, 0, 0)), (0, 0, None, None))
        values = matrix(probs, labels, probs, labels)
        return (jnp.sum(values) - jnp.trace(values)) / (n * (n - 1))

    return functools.partial(mean, *map(jnp.asarray, label_data(n, m)))


def skce_in_tiles(n: int, m: int, gradient: bool = False, tile_rows: int = 512):
    """Peer: half of the tiles of h in a scan, as a good user of JAX would write it."""
    size = min(n, tile_rows)

    def mean(probs, labels):
        residuals = jax.nn.one_hot(labels, m) - probs

        @jax.checkpoint
        def step(total, tile):
            (p, r), (q, s) = (jax.lax.dynamic_slice_in_dim(rows, i * size, size, 1) for i in tile)
            # A sum over the last axis of [512, 512, m] takes several times as long.
            distance = sum(jnp.abs(a[:, None] - b[None, :]) for a, b in zip(p.T, q.T, strict=True))
            h = jnp.exp(-0.5 * distance / LENGTHSCALE) * (r @ s.T)
            off_diagonal = jnp.where(tile[0] == tile[1], 1 - jnp.eye(size), 2.0)
            return total + jnp.sum(off_diagonal * h), None

        rows, tiles = jnp.stack([probs, residuals]), jnp.stack(jnp.triu_indices(n // size), axis=1)
        return jax.lax.scan(step, 0.0, tiles)[0] / (n * (n - 1))

    function = jax.jit(jax.value_and_grad(mean) if gradient else mean)
    return functools.partial(function, *map(jnp.asarray, label_data(n, m)))


def skce_by_scipy(n: int, m: int, rowwise: bool = False):
    """Peer: distances by pdist, residuals by BLAS, their product and its sum.

    As one writes it, with square matrices; or `rowwise`, without ever making the triangle square.
    """
    probs, labels = label_data(n, m)

    def mean():
        kernel = pdist(probs, "cityblock")
        kernel *= -0.5 / LENGTHSCALE
        np.exp(kernel, out=kernel)
        residuals = np.eye(m, dtype=probs.dtype)[labels] - probs
        gram = residuals @ residuals.T
        if not rowwise:
            return np.sum(squareform(kernel) * gram) / (n * (n - 1))
        total, start = 0.0, 0
        for i in range(n - 1):
            stop = start + n - 1 - i
            total += kernel[start:stop] @ gram[i, i + 1 :]
            start = stop
        return 2 * total / (n * (n - 1))

    return mean
