"""Estimates for normal predictions: ours, and the formula in a hand-written loop."""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import calibjax as cj
from benchmarks.works.data import NORMAL_KERNEL, real_data


def normal_skce(n: int):
    """Ours, for Normal predictions with a Gaussian kernel."""
    loc, scale, targets = map(jnp.asarray, real_data(n))
    return lambda: cj.skce(NORMAL_KERNEL, cj.Normal(loc, scale), targets)


def plain_residual(p_loc, p_scale, y, q_loc, q_scale, z):
    """The textbook: four exponentials.  For small scales nothing but rounding is left of them."""
    p_variance, q_variance = 1 + p_scale**2, 1 + q_scale**2

    def term(d, variance):
        return jnp.exp(-(d**2) / (2 * variance)) * lax.rsqrt(variance)

    between = term(p_loc - q_loc, p_variance + q_variance - 1)
    return (
        jnp.exp(-((y - z) ** 2) / 2)
        - term(p_loc - z, p_variance)
        - (term(q_loc - y, q_variance) - between)
    )


def stable_residual(p_loc, p_scale, y, q_loc, q_scale, z):
    """The same without cancellation: what y and p differ by at z, less the same at q."""

    def target_minus_mean(m, v):
        rate = 1 / (1 + v)
        widening = p_scale**2 * rate
        shrinking = 1 / (1 + widening)
        d, t = p_loc - m, y - m
        exact = d**2 * (widening * shrinking) + (y - p_loc) * (t + d)
        exponent = jnp.where(d**2 < 16, exact, t**2 - d**2 * shrinking)
        log_ratio = exponent * rate / 2 - jnp.log1p(widening) / 2
        log_target = -(t**2) * rate / 2 - jnp.log1p(v) / 2
        log_mean = -(d**2) * shrinking * rate / 2 - jnp.log1p(widening) / 2 - jnp.log1p(v) / 2
        positive = log_ratio > 0
        difference = jnp.expm1(jnp.where(positive, -log_ratio, log_ratio))
        larger = jnp.exp(jnp.where(positive, log_mean, log_target))
        return larger * jnp.where(positive, difference, -difference)

    return target_minus_mean(z, jnp.zeros_like(z)) - target_minus_mean(q_loc, q_scale**2)


def normal_by_hand(n: int, residual: Callable[..., jax.Array], tile_rows: int = 512):
    """Peer: a loop over tiles of the upper triangle, with one fused expression in each."""
    rows = tuple(map(jnp.asarray, real_data(n)))
    size = min(n, tile_rows)
    index = jnp.arange(n)

    @jax.jit
    def mean(rows):
        def step(total, tile):
            def cut(x, i):
                return lax.dynamic_slice(x, (i * size,), (size,))

            ours, theirs = (jax.tree.map(lambda x, i=i: cut(x, i), (*rows, index)) for i in tile)
            p_loc, p_scale, y, i = (x[:, None] for x in ours)
            q_loc, q_scale, z, j = (x[None, :] for x in theirs)
            distance = jnp.sqrt((p_loc - q_loc) ** 2 + (p_scale - q_scale) ** 2)
            h = jnp.exp(-distance) * residual(p_loc, p_scale, y, q_loc, q_scale, z)
            each_pair_twice = jnp.where(tile[0] == tile[1], 1.0, 2.0)
            return total + each_pair_twice * jnp.sum(jnp.where(i == j, 0.0, h)), None

        tiles = tuple(map(jnp.asarray, np.triu_indices(n // size)))
        return lax.scan(step, jnp.zeros(()), tiles)[0] / (n * (n - 1))

    return functools.partial(mean, rows)
