"""Univariate predictions with a Gaussian kernel: rows by their Fourier coefficients.

With a Gaussian kernel h is one product of vectors: sums over all pairs of points would take 65^2
values of the kernel for each h.  In units of the lengthscale, for frequencies w_m = (m + 1/2) D
with m >= 0, Poisson's summation formula gives

    2 D sum_m phi(w_m) cos(w_m d) = sum_j (-1)^j exp(-(d + j P)^2 / 2),  P = 2 pi / D,

with the normal density phi: the kernel, and copies of it at multiples of the period P.  With

    r_m = exp(i w_m y) - sum_s a_s exp(i w_m x_s),

the residual product of two rows is the real part of 2 D sum_m phi(w_m) r_m conj(r'_m), if all
points are so near to one center that no copy is seen.  Targets that are further away are left out
of r, and their part k(y, y') is added.  They must see no prediction: these are nearer to the center
by as much as the kernel reaches.
"""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_derivatives import SymbolicZero
from jax.typing import DTypeLike

from calibjax._base.sharding import Axis, all_of
from calibjax._base.struct import PyTree, struct
from calibjax._loops.branches import anywhere
from calibjax._numbers.arithmetic import dot
from calibjax.distributions._far_rows import REACH, far_first, of_groups, sums_of_far_rows
from calibjax.distributions._univariate import Univariate
from calibjax.distributions._univariate_expectations import (
    Measure,
    of_normals,
    residual_measure,
    variances,
)
from calibjax.expectations.dispatch import prepare_rows, residual_product_tile
from calibjax.kernels.base import pairwise
from calibjax.kernels.targets import GaussianKernel, in_lengthscales

# Rows whose coefficients are made together, so that they stay in the nearest cache.
_ROWS_TOGETHER = 64


@struct
class FourierRows:
    """Rows: distributions, and Fourier coefficients of their residuals.

    Args:
        prediction: what the coefficients are of.
        coefficients: r times the root of its weight, real parts and imaginary parts, ``[2 M]``, or
            what the near rows see of a row that is not near.
        target_is_near: whether the target is part of the coefficients.
        prediction_is_near: whether targets without coefficients see hardly any part of it.
        measure: the measure of the residual, of points from the center on.
    """

    prediction: Univariate
    coefficients: jax.Array
    target_is_near: jax.Array
    prediction_is_near: jax.Array
    measure: Measure

    def cross_fit_pairs(self) -> tuple[tuple[Univariate, "FourierRows"], ...]:
        """What h compares and subtracts of *one* prediction, as `CrossFit` has it."""
        return ((self.prediction, self),)


@prepare_rows.register(Univariate, GaussianKernel)
def fourier_rows(ps: Univariate, kernel: GaussianKernel, ys: jax.Array, axis: Axis) -> FourierRows:
    """The rows with their Fourier coefficients, in O(n M Q) time."""
    (scaled,) = in_lengthscales(kernel, ys)
    # h does not depend on the center, and has no derivative in it.
    center = lax.stop_gradient(jnp.median(all_of(jnp.median(scaled), axis)))
    n = ys.shape[0]
    size = min(n, _ROWS_TOGETHER)
    n_chunks = -(-n // size)
    index = jnp.minimum(jnp.arange(n_chunks * size), n - 1).reshape(n_chunks, size)
    chunks = jax.tree.map(lambda x: x[index], (ps, ys))

    of_chunk = jax.checkpoint(lambda chunk: _fourier_chunk(chunk, kernel, center))
    waves, target_is_near, is_near, measure = jax.tree.map(
        lambda x: x.reshape(-1, *x.shape[2:])[:n], lax.map(of_chunk, chunks)
    )

    @jax.checkpoint
    def with_far_rows(waves: jax.Array, measure: Measure) -> jax.Array:
        groups, place = far_first(measure, ~is_near, n)
        return jnp.where(is_near[:, None], waves, of_groups(_seen_by_waves, groups)[place])

    are_any = anywhere(jnp.any(~is_near))
    coefficients = lax.cond(are_any, with_far_rows, lambda waves, _: waves, waves, measure)
    return FourierRows(ps, coefficients, target_is_near, is_near, measure)


def _fourier_chunk(
    rows: tuple[Univariate, jax.Array], kernel: GaussianKernel, center: jax.Array
) -> tuple[PyTree, ...]:
    def measure(p, y):
        return residual_measure(p, kernel, y, variances)

    # Rows come last, so that sums over points run along whole registers.
    (points, v), weights = jax.vmap(measure, out_axes=1)(*rows)
    *_, radius, negligible = _frequencies(points.dtype)
    points, is_narrow = points - center, jnp.all(v == 0, axis=0)
    is_near = jnp.abs(points) <= radius
    in_reach = jnp.abs(points[1:]) > radius - REACH[points.dtype.name]
    prediction_is_near = jnp.sum(jnp.where(in_reach, -weights[1:], 0.0), axis=0) <= negligible
    sums = _waves(jnp.where(is_near, points, 0.0), jnp.where(is_near, weights, 0.0))
    measures = (points.T, v.T), weights.T
    return jnp.concatenate(sums).T, is_near[0], prediction_is_near & is_narrow, measures


def _seen_by_waves(measures: Measure) -> jax.Array:
    """What waves see of any measures ``[R, Q]``, coefficients ``[R, 2 M]``.

    The kernel is a product of two functions of any point t, integrated over t: of two points,

        E k(X, Z) = (2 pi)^{1/2} int N(t; x, v + 1/2) N(t; z, u + 1/2) dt.

    Where the second one is made of waves, all of it lies within the period, and outside of it the
    first one does not matter: its coefficients are the integrals of it times (2 D)^{1/2}
    (2 pi)^{-1/4} exp(i w_m t) over one period, by the trapezoidal rule.
    """
    (x, v), weights = measures
    step, amplitudes, *_ = _frequencies(x.dtype)
    # So dense that no frequency of the waves is mistaken for another one.
    n = 5 * amplitudes.size // 2
    t = ((np.arange(n) + 0.5) / n - 0.5) * (2 * math.pi / step)
    angles = t[:, None] * step * (np.arange(amplitudes.size) + 0.5)
    waves = np.concatenate([np.cos(angles), np.sin(angles)], axis=1) * (t[1] - t[0])
    waves *= math.sqrt(2 * step) * (2 * math.pi) ** -0.25
    at = jnp.asarray(t[None, None], x.dtype), jnp.zeros((), x.dtype)
    density = of_normals((x[..., None], v[..., None] - 0.5), at)
    density = jnp.sum(weights[..., None] * density, axis=1) / math.sqrt(math.pi * 2)
    return dot(density, jnp.asarray(waves, x.dtype))


@jax.custom_jvp
def _waves(points: jax.Array, weights: jax.Array) -> tuple[jax.Array, jax.Array]:
    """(2 D phi(w_m))^{1/2} sum_s a_s exp(i w_m x_s) of points ``[S, R]``, real and imaginary.

    Both are ``[M, R]``.  They are linear in the weights a, and d/dx_s is that of the weights
    i w_m a_s: backwards no wave is stored, and each pass takes as long as the waves themselves.
    """
    step, amplitudes, *_ = _frequencies(points.dtype)
    # The angle of the first frequency, and by how much it grows to the next one.
    angle = points * step
    turn = jnp.cos(angle), jnp.sin(angle)
    first = weights * jnp.cos(angle / 2), weights * jnp.sin(angle / 2)

    def next_frequency(wave, amplitude):
        (a, b), (c, s) = wave, turn
        sums = amplitude * jnp.sum(a, axis=0), amplitude * jnp.sum(b, axis=0)
        return (a * c - b * s, a * s + b * c), sums

    return lax.scan(next_frequency, first, amplitudes, unroll=4)[1]


@functools.partial(_waves.defjvp, symbolic_zeros=True)
def _waves_jvp(primals, tangents):
    (points, weights), (of_points, of_weights) = primals, tangents
    waves = _waves.fun
    step, amplitudes, *_ = _frequencies(points.dtype)
    frequencies = jnp.asarray(step * (np.arange(amplitudes.size) + 0.5), points.dtype)[:, None]
    change = jnp.zeros((), points.dtype), jnp.zeros((), points.dtype)
    if not isinstance(of_points, SymbolicZero):
        real, imaginary = waves(points, weights * of_points)
        change = -frequencies * imaginary, frequencies * real
    if not isinstance(of_weights, SymbolicZero):
        change = jax.tree.map(jnp.add, change, waves(points, of_weights))
    found = waves(points, weights)
    return found, jax.tree.map(lambda x, d: jnp.broadcast_to(d, x.shape), found, change)


def _frequencies(dtype: DTypeLike) -> tuple[float, jax.Array, float, float]:
    """D, the roots of 2 D phi(w_m), a radius, and a probability.

    The frequencies end where phi has a tail within rounding.  Two points within the radius around
    the center are at least as far from the nearest copy of each other as the kernel reaches.  A
    distribution has coefficients if it is further from the center than the radius without the reach
    with at most that probability.
    """
    n, end, negligible = (256, 7.2, 1e-6) if dtype == jnp.float64 else (112, 5.0, 1e-3)
    step = end / n
    frequencies = (np.arange(n) + 0.5) * step
    density = np.exp(-np.square(frequencies) / 2) / math.sqrt(2 * math.pi)
    amplitudes = jnp.asarray(np.sqrt(2 * step * density), dtype)
    return step, amplitudes, math.pi / step - 0.75 * REACH[np.dtype(dtype).name], negligible


@residual_product_tile.register(FourierRows, GaussianKernel)
def fourier_residual_tile(
    ps: FourierRows, kernel: GaussianKernel, ys: jax.Array, qs: FourierRows, zs: jax.Array
) -> jax.Array:
    def product(ps, kernel, ys, qs, zs):
        return dot(ps.coefficients, qs.coefficients.T)

    def product_and_far_targets(ps, kernel, ys, qs, zs):
        predictions_are_near = ps.prediction_is_near[:, None] & qs.prediction_is_near[None, :]
        both = ps.target_is_near[:, None] & qs.target_is_near[None, :]
        far = jnp.where(both | ~predictions_are_near, 0.0, pairwise(kernel, ys, zs))
        return product(ps, kernel, ys, qs, zs) + far

    @jax.checkpoint
    def product_and_sums(ps, kernel, ys, qs, zs):
        # Near rows see the others in their coefficients.
        ours, theirs = (x.prediction_is_near & x.target_is_near for x in (ps, qs))
        predictions_are_near = ps.prediction_is_near[:, None] & qs.prediction_is_near[None, :]
        near = predictions_are_near | ours[:, None] | theirs[None, :]
        sums = sums_of_far_rows((ps.measure, ~ours), (qs.measure, ~theirs))
        return jnp.where(near, product_and_far_targets(ps, kernel, ys, qs, zs), sums)

    predictions_are_near = ~anywhere(
        jnp.any(~ps.prediction_is_near) | jnp.any(~qs.prediction_is_near)
    )
    targets_are_near = ~anywhere(jnp.any(~ps.target_is_near) | jnp.any(~qs.target_is_near))
    branch = jnp.where(predictions_are_near, jnp.where(targets_are_near, 0, 1), 2).astype(jnp.int32)
    branches = product, product_and_far_targets, product_and_sums
    return lax.switch(branch, branches, ps, kernel, ys, qs, zs)
