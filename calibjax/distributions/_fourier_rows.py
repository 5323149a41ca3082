"""Univariate predictions with kernels of the gaps between points, or by Fourier coefficients.

A point x with a gap g stands for an interval of the length g, or whatever a kernel makes of it.  A
target is a point with the gap 0.

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

Rows that are far from all others are few.  Their part is a sum over points: they are ordered by
their medians and taken in groups, and pairs of groups that see nothing of each other are left out.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_derivatives import SymbolicZero
from jax.tree_util import Partial
from jax.typing import DTypeLike

from calibjax._base.sharding import Axis, all_of, as_varying
from calibjax._base.struct import PyTree, indexed, struct
from calibjax._loops.coordinate_sums import anywhere
from calibjax._numbers.arithmetic import dot
from calibjax._numbers.derivatives import absolute
from calibjax.distributions._univariate import Univariate
from calibjax.expectations import inner_product, mean_embedding
from calibjax.expectations.dispatch import (
    measure_of_residual,
    prepare_rows,
    register_sums,
    residual_product_tile,
)
from calibjax.kernels import WhiteKernel
from calibjax.kernels.base import pairwise
from calibjax.kernels.targets import (
    GaussianKernel,
    LaplacianKernel,
    LengthscaleKernel,
    in_lengthscales,
)

#: Points and gaps (x, g) in units of the lengthscale, each ``[S]``.
Points = tuple[jax.Array, jax.Array]
#: Points and their weights ``[S]``.
Measure = tuple[Points, jax.Array]


#: A function of the gaps ``[S]`` of a prediction, and of their mean, that takes their place.
OfGaps = Callable[[jax.Array, jax.Array], jax.Array]


def _measure(p: Univariate, kernel: LengthscaleKernel, of_gaps: OfGaps) -> Measure:
    """The points of a prediction."""
    points, weights = p.atoms()
    (x,) = in_lengthscales(kernel, points)
    between = jnp.diff(x)
    inner = (between[1:] + between[:-1]) / 2
    gaps = jnp.abs(jnp.concatenate([between[:1], inner, between[-1:]]))
    return (x, of_gaps(gaps, jnp.sum(weights * gaps))), weights


def residual_measure(
    p: Univariate, kernel: LengthscaleKernel, y: jax.Array, of_gaps: OfGaps
) -> Measure:
    """The signed measure delta_y - p."""
    return measure_of_residual(_measure(p, kernel, of_gaps), _point(kernel, y))


def _point(kernel: LengthscaleKernel, y: jax.Array) -> Points:
    (y,) = in_lengthscales(kernel, y)
    return y[None], jnp.zeros_like(y)[None]


def sums_for(
    kernel_type: type, of_points: Callable[[Points, Points], jax.Array], of_gaps: OfGaps
) -> None:
    """Registers sums of a function of (x, g) and (z, f) over all pairs of points."""
    register_sums(
        Univariate,
        kernel_type,
        measure=lambda p, kernel: _measure(p, kernel, of_gaps),
        point=_point,
        of_points=lambda kernel: Partial(of_points),
    )


# In units of the gaps, the deviation of the distribution of a point.  A sum of such distributions
# over an even grid is even within 2e-3.
_WIDTH = 0.6


def of_normals(a: Points, b: Points) -> jax.Array:
    """E exp(-(X - Z)^2 / 2) for independent X ~ N(x, v) and Z ~ N(z, u).

    In units of the lengthscale, the points x_s of a prediction stand for normal variables of the
    variances v_s: E k(Y, y) = sum_s a_s (1 + v_s)^{-1/2} exp(-(x_s - y)^2 / (2 (1 + v_s))).  All
    v_s are 0 unless the points are so far from each other that the kernel would see single ones.
    """
    (x, v), (z, u) = a, b
    root = lax.rsqrt(1 + v + u)
    return root * jnp.exp(-jnp.square((x - z) * root) / 2)


def variances(gaps: jax.Array, mean_gap: jax.Array) -> jax.Array:
    """The variances of the distributions of all points, proportional to the squares of the gaps."""
    relative = gaps / jnp.where(mean_gap > 0, mean_gap, 1.0)
    # An infinite square would make the derivative NaN.
    square = jnp.minimum(jnp.square(_WIDTH * mean_gap), jnp.finfo(gaps.dtype).max)
    return jnp.maximum(square - 1, 0.0) * jnp.square(relative)


sums_for(GaussianKernel, of_normals, variances)


def of_intervals(a: Points, b: Points) -> jax.Array:
    """exp(-|d|) for two points, with the correction for the wider one of their intervals.

    The trapezoidal rule has an error of order g^2 at the kink of exp(-|d|), for points at distances
    g.  Near the kink the kernel is 1 - |d|.  The integral of |d| over the interval of length g
    around a point is g |d|, and in the interval with the kink it is larger by (g / 2 - |d|)^2.  The
    mean of this over all positions of the kink in its interval, g^2 / 12, is not an error: by the
    Euler-Maclaurin formula it comes from the ends of the range, where exp(-|d|) is 0 and |d| is
    not.  So the values of the kernel become

        exp(-|d|) - (g / 2 - |d|)_+^2 / g + (g / 12) (1 - |d| / g)_+,

    where the last term adds up to g^2 / 12 for every position of the kink.  The error is of order
    g^3.

    Gaps that are wider than the kernel take the mean of the kernel over the interval, which is
    (exp(-(|d| - g / 2)) - exp(-(|d| + g / 2))) / g outside of the interval and
    (2 - exp(|d| - g / 2) - exp(-(|d| + g / 2))) / g inside.
    """
    distance, gap = absolute(a[0] - b[0]), jnp.maximum(a[1], b[1])
    value, excess = jnp.exp(-distance), distance - gap / 2
    width = jnp.where(gap > 0, gap, 1.0)
    missed = jnp.square(jnp.minimum(excess, 0.0)) / width
    of_point = value - missed + jnp.maximum(gap - distance, 0.0) / 12
    near_end = jnp.exp(-jnp.abs(excess))
    near_end = jnp.where(excess < 0, 2 - near_end, near_end)
    return jnp.where(gap > 1, (near_end - value * jnp.exp(-gap / 2)) / width, of_point)


def widths(gaps: jax.Array, mean_gap: jax.Array) -> jax.Array:
    """The lengths of the intervals, at most 1 unless most of them are wider than the kernel."""
    return jnp.where(mean_gap > 1, gaps, jnp.minimum(gaps, 1.0))


sums_for(LaplacianKernel, of_intervals, widths)


def refuse_white_kernel(
    p: Univariate, kernel: WhiteKernel, other: jax.Array | Univariate
) -> jax.Array:
    # Single points of a quadrature would be as probable as their weights.
    raise TypeError(
        "WhiteKernel is for labels and counts, but targets of "
        f"{type(p).__name__} predictions are real numbers, of which no two are equal."
    )


for function in (mean_embedding, inner_product):
    function.register(Univariate, WhiteKernel)(refuse_white_kernel)


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

    Where the second factor is a sum of waves, it lies within the period, outside of which the first
    does not matter: the coefficients are the integrals of the first times (2 D)^{1/2} (2 pi)^{-1/4}
    exp(i w_m t) over one period, by the trapezoidal rule.
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


# The rows of a group.
_ROWS = 4
#: In lengthscales, the distance from which on a kernel of points is within rounding of 0.
REACH = {"float32": 5.5, "float64": 8.0}

#: Rows ``[groups, _ROWS, …]``, and whether any row of a group is far.
Groups = tuple[PyTree, jax.Array]


def far_first(rows: Measure, are_far: jax.Array, n: int) -> tuple[Groups, jax.Array]:
    """The rows in groups, those that are far first, by their medians, and where each row is.

    Copies of one row fill the groups up to n rows at least.
    """
    median = rows[0][0][:, rows[1].shape[1] // 2]
    order = jnp.argsort(jnp.where(are_far, lax.stop_gradient(median), jnp.inf))
    copies = n - order.size + -n % _ROWS
    index = jnp.pad(order, (0, copies), mode="edge").reshape(-1, _ROWS)
    return (indexed(rows, index), jnp.any(are_far[index], axis=1)), jnp.argsort(order)


def of_groups(function: Callable[[Any], jax.Array], groups: Groups) -> jax.Array:
    """A function of the rows of each group with rows that are far, and zeros for other rows."""

    def zeros(rows: PyTree) -> jax.Array:
        shape = jax.eval_shape(function, rows)
        return as_varying(jnp.zeros(shape.shape, shape.dtype), rows)

    @jax.checkpoint
    def of_group(group: Groups) -> jax.Array:
        rows, are_any = group
        return lax.cond(anywhere(are_any), function, zeros, rows)

    made = lax.map(of_group, groups)
    return made.reshape(-1, *made.shape[2:])


def sums_of_far_rows(ps: tuple[Measure, jax.Array], qs: tuple[Measure, jax.Array]) -> jax.Array:
    """The residual products of rows that are not near, ``[S, T]``, by sums over points."""
    n = max(are_far.size for _, are_far in (ps, qs))
    # Weights are constants, but their derivative varies.
    (ours, at), (theirs, at_too) = (far_first(*as_varying(x, (ps, qs)), n) for x in (ps, qs))
    both = map(jax.tree.leaves, (ps[0], qs[0]))
    are_same = jnp.all(jnp.stack([jnp.array_equal(x, y) for x, y in zip(*both, strict=True)]))
    numbers = jnp.arange(ours[1].size)

    def of_ours(rows: tuple[Twins, jax.Array]) -> jax.Array:
        left, number = rows
        (low, high), (from_, to) = (_reach_of(x) for x in (left[0], theirs[0]))
        # For rows with themselves, what is below the diagonal is the mirror image.
        seen = theirs[1] & (low <= to) & (from_ <= high) & ~(are_same & (numbers < number))
        right = (theirs[0], ours[0]), seen
        return jnp.swapaxes(of_groups(lambda x: _sums_over_points(left, x).T, right), 0, 1)

    sums = of_groups(of_ours, (((ours[0], theirs[0]), numbers), ours[1]))
    i, j = jnp.broadcast_arrays(at[:, None], at_too[None, :])
    is_below = are_same & (i // _ROWS > j // _ROWS)
    i, j = jnp.where(is_below, j, i), jnp.where(is_below, i, j)
    return sums[i, j, is_below.astype(int)]


def _reach_of(rows: Measure) -> tuple[jax.Array, jax.Array]:
    """The interval outside of which the kernel sees no point of a group of rows."""
    (x, v), weights = lax.stop_gradient(rows)
    width = REACH[weights.dtype.name] * jnp.sqrt(v + 0.5)
    return jnp.min(x - width, axis=(-2, -1)), jnp.max(x + width, axis=(-2, -1))


#: A group of rows, and the group that it becomes where both sides are exchanged.
Twins = tuple[Measure, Measure]


@jax.custom_vjp
def _sums_over_points(left: Twins, right: Twins) -> jax.Array:
    """sum_st a_is b_jt E k(X_is, Z_jt) of two groups of rows, ``[2, R, R']``.

    Twins are equal, or the sums of the second twins are used for derivatives only.
    """
    (_, a), (_, b) = left[0], right[0]
    of_points = jax.vmap(dot)(a, lax.optimization_barrier(_values(left[0], right[0])[0]))
    sums = jnp.sum(of_points.reshape(-1, *b.shape) * b[None], axis=-1)
    return jnp.stack([sums, sums])


def _values(left: Measure, right: Measure) -> tuple[jax.Array, jax.Array, jax.Array]:
    """E k(X, Z), X - Z, and 1 / (1 + v + u) of all pairs of points, each ``[R, S, R' T]``."""
    x, v = (y[..., None] for y in left[0])
    z, u = (y.reshape(1, 1, -1) for y in right[0])
    s, d = 1 / (1 + v + u), x - z
    # A square of d could overflow, and 0 times infinity would be NaN.
    return jnp.sqrt(s) * jnp.exp(-d * s * d / 2), d, s


def _sums_forward(left, right):
    return _sums_over_points(left, right), (left[0], right[0])


def _sums_backward(rows, cotangents):
    # k = s^{1/2} exp(-s d^2 / 2) with s = 1 / (1 + v + u) has the derivatives -s d k in x, s d k in
    # z, and s (s d^2 - 1) k / 2 in v and u.
    (_, a), (_, b) = left, right = rows
    # In memory, so that products with vectors read them and no sum makes them again.
    values, d, s = lax.optimization_barrier(_values(left, right))
    of_x = lax.optimization_barrier(values * s * d)
    of_v = lax.optimization_barrier((of_x * d - values) * s / 2)
    each = of_x, of_v, values
    of_left = [jax.vmap(dot)(a, x).reshape(-1, *b.shape) for x in each]

    def gradient(cotangent: jax.Array) -> tuple[Measure, Measure]:
        weights = (cotangent[..., None] * b[None]).reshape(a.shape[0], -1)
        ours = [jax.vmap(dot)(x, weights) for x in each]
        theirs = [jnp.sum(cotangent[..., None] * x, axis=0) for x in of_left]
        in_left = (-a * ours[0], a * ours[1]), ours[2]
        return in_left, ((b * theirs[0], b * theirs[1]), theirs[2])

    return tuple(zip(*map(gradient, cotangents), strict=True))


_sums_over_points.defvjp(_sums_forward, _sums_backward)
