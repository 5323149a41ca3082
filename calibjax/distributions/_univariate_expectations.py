"""Univariate predictions with target kernels that make use of the gaps between their points.

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
"""

import functools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_derivatives import SymbolicZero
from jax.typing import DTypeLike

from calibjax._base.sharding import Axis, all_of, as_varying
from calibjax._base.struct import PyTree, indexed, struct
from calibjax._loops import anywhere
from calibjax._numbers import absolute
from calibjax.distributions._univariate import Univariate
from calibjax.expectations import (
    double_sum_tile,
    inner_product,
    mean_embedding,
    measure_of_residual,
    prepare_rows,
    register_sums,
    residual_product_tile,
)
from calibjax.kernels import (
    GaussianKernel,
    LaplacianKernel,
    LengthscaleKernel,
    WhiteKernel,
    in_lengthscales,
    pairwise,
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
        of_points=lambda kernel: of_points,
    )


# In units of the gaps, the deviation of the distribution of a point.  A sum of such distributions
# over an even grid is even within 2e-3.
_WIDTH = 0.6


@struct
class _OfNormals:
    """E exp(-(X - Z)^2 / 2) for independent X ~ N(x, v) and Z ~ N(z, u).

    In units of the lengthscale, the points x_s of a prediction stand for normal variables of the
    variances v_s: E k(Y, y) = sum_s a_s (1 + v_s)^{-1/2} exp(-(x_s - y)^2 / (2 (1 + v_s))).  All
    v_s are 0 unless the points are so far from each other that the kernel would see single ones.
    """

    def __call__(self, a: Points, b: Points) -> jax.Array:
        shrinkage = 1 / (1 + a[1] + b[1])
        return jnp.sqrt(shrinkage) * jnp.exp(-jnp.square(a[0] - b[0]) * shrinkage / 2)


def variances(gaps: jax.Array, mean_gap: jax.Array) -> jax.Array:
    """The variances of the distributions of all points, proportional to the squares of the gaps."""
    relative = gaps / jnp.where(mean_gap > 0, mean_gap, 1.0)
    return jnp.maximum(jnp.square(_WIDTH * mean_gap) - 1, 0.0) * jnp.square(relative)


sums_for(GaussianKernel, _OfNormals(), variances)


@struct
class _OfIntervals:
    """exp(-|d|) for two points, with the correction for the wider one of their intervals.

    The trapezoidal rule has an error of order g^2 at the kink of exp(-|d|), for points at distances
    g.  Near the kink the kernel is 1 - |d|.  The integral of |d| over the interval of length g
    around a point is g |d|, and in the interval with the kink it is larger by (g / 2 - |d|)^2.  The
    mean of this over all positions of the kink in its interval, g^2 / 12, is no error: by the
    Euler-Maclaurin formula it comes from the ends of the range, where exp(-|d|) is 0 and |d| is
    not.  So the values of the kernel become

        exp(-|d|) - (g / 2 - |d|)_+^2 / g + (g / 12) (1 - |d| / g)_+,

    where the last term adds up to g^2 / 12 for every position of the kink.  What is left is of
    order g^3.

    Gaps that are wider than the kernel take the mean of the kernel over the interval, which is
    (exp(-(|d| - g / 2)) - exp(-(|d| + g / 2))) / g outside of the interval and
    (2 - exp(|d| - g / 2) - exp(-(|d| + g / 2))) / g inside.
    """

    def __call__(self, a: Points, b: Points) -> jax.Array:
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


sums_for(LaplacianKernel, _OfIntervals(), widths)


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
        law: the prediction.
        coefficients: r times the root of its weight, real parts and imaginary parts, ``[2 M]``.
        target_is_near: whether the target is part of the coefficients.
        law_is_near: whether no target that has no coefficients sees more than a negligible part
            of it.
        measure: the measure of the residual, of points from the center on.
        is_wide: whether its points stand for distributions, which have no coefficients.
    """

    law: Univariate
    coefficients: jax.Array
    target_is_near: jax.Array
    law_is_near: jax.Array
    measure: Measure
    is_wide: jax.Array

    def cross_fit_pairs(self) -> tuple[tuple[Univariate, "FourierRows"], ...]:
        return ((self.law, self),)


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

    @jax.checkpoint
    def chunk_coefficients(chunk):
        ps, ys = chunk
        return _fourier_chunk(ps, ys, kernel, center)

    made = lax.map(chunk_coefficients, chunks)
    return FourierRows(ps, *jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:])[:n], made))


def _fourier_chunk(
    ps: Univariate, ys: jax.Array, kernel: GaussianKernel, center: jax.Array
) -> tuple[PyTree, ...]:
    def measure(p, y):
        return residual_measure(p, kernel, y, variances)

    # Rows come last, so that sums over points run along whole registers.
    (points, v), weights = jax.vmap(measure, out_axes=1)(ps, ys)
    *_, radius, reach, negligible = _frequencies(points.dtype)
    points, is_wide = points - center, jnp.any(v > 0, axis=0)
    is_near = (jnp.abs(points) <= radius) & ~is_wide[None, :]
    in_reach = jnp.abs(points[1:]) > radius - reach
    law_is_near = jnp.sum(jnp.where(in_reach, -weights[1:], 0.0), axis=0) <= negligible
    sums = _waves(jnp.where(is_near, points, 0.0), jnp.where(is_near, weights, 0.0))
    measures = (points.T, v.T), weights.T
    return jnp.concatenate(sums).T, is_near[0], law_is_near & ~is_wide, measures, is_wide


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


def _frequencies(dtype: DTypeLike) -> tuple[float, jax.Array, float, float, float]:
    """D, the roots of 2 D phi(w_m), a radius, a reach, and a probability.

    The frequencies end where phi has a tail within rounding.  The kernel is within rounding of 0 at
    the reach.  Two points within the radius around the center are at least that far from the
    nearest copy of each other.  A distribution has coefficients if it is further from the center
    than the radius without the reach with at most that probability.
    """
    n, end, reach, negligible = (
        (256, 7.2, 8.0, 1e-6) if dtype == jnp.float64 else (112, 5.0, 5.5, 1e-3)
    )
    step = end / n
    frequencies = (np.arange(n) + 0.5) * step
    density = np.exp(-np.square(frequencies) / 2) / math.sqrt(2 * math.pi)
    amplitudes = jnp.asarray(np.sqrt(2 * step * density), dtype)
    return step, amplitudes, (2 * math.pi / step - reach) / 2, reach, negligible


@residual_product_tile.register(FourierRows, GaussianKernel)
def fourier_residual_tile(
    ps: FourierRows, kernel: GaussianKernel, ys: jax.Array, qs: FourierRows, zs: jax.Array
) -> jax.Array:
    def product(ps, kernel, ys, qs, zs):
        return lax.dot_general(
            ps.coefficients,
            qs.coefficients,
            (((1,), (1,)), ((), ())),
            precision=lax.Precision.HIGHEST,
        )

    def product_and_far_targets(ps, kernel, ys, qs, zs):
        both = ps.target_is_near[:, None] & qs.target_is_near[None, :]
        far = jnp.where(both, 0.0, pairwise(kernel, ys, zs))
        return product(ps, kernel, ys, qs, zs) + far

    def product_and_sums(ps, kernel, ys, qs, zs):
        # Both sides have as many rows, and one program makes the sums of either.
        sides = [(x.measure, x.is_wide, x.law_is_near) for x in (ps, qs)]
        ours, theirs = (jax.tree.map(lambda *x: jnp.stack(x), *two) for two in (sides, sides[::-1]))
        of_ps, of_qs = lax.map(lambda both: _sums_of_far_laws(*both), (ours, theirs))
        far, far_too = ~ps.law_is_near[:, None], ~qs.law_is_near[None, :]
        rest = jnp.where(far & ~qs.is_wide[None, :], of_ps, of_qs.T)
        tile = product(ps, kernel, ys, qs, zs) + rest
        return jnp.where(far | far_too, tile, product_and_far_targets(ps, kernel, ys, qs, zs))

    laws_are_near = ~anywhere(jnp.any(~ps.law_is_near) | jnp.any(~qs.law_is_near))
    targets_are_near = ~anywhere(jnp.any(~ps.target_is_near) | jnp.any(~qs.target_is_near))
    branch = jnp.where(laws_are_near, jnp.where(targets_are_near, 0, 1), 2).astype(jnp.int32)
    branches = product, product_and_far_targets, product_and_sums
    return lax.switch(branch, branches, ps, kernel, ys, qs, zs)


# Rows whose sums over points are made together, and how many points of each if they are enough.
_FAR_ROWS, _FEW_POINTS = 8, 32

#: Measures ``[S, Q]``, whether they are wide, and whether the distributions are near.
_Side = tuple[Measure, jax.Array, jax.Array]


@struct
class _OutsideOfWaves:
    """The kernel of two points, and 0 if the waves have both."""

    def __call__(self, a: tuple[Points, jax.Array], b: tuple[Points, jax.Array]) -> jax.Array:
        return jnp.where(a[1] & b[1], 0.0, _OfNormals()(a[0], b[0]))


def _sums_of_far_laws(ours: _Side, theirs: _Side) -> jax.Array:
    """What coefficients leave out of the residual products, ``[S, T]``, by sums over points.

    Only rows of laws that are not near are right, and not those of a narrow one and a wide one.
    Points that see others which no wave has come first, and only these are summed if they are few.
    """

    def outermost_first(side: _Side) -> tuple[tuple[PyTree, jax.Array], jax.Array]:
        (points, weights), is_wide, _ = side
        *_, radius, reach, _ = _frequencies(weights.dtype)
        distance = lax.stop_gradient(jnp.abs(points[0]))
        measure = (points, (distance <= radius) & ~is_wide[:, None]), weights
        order = jnp.argsort(-distance, axis=1)
        ordered = jax.tree.map(lambda x: jnp.take_along_axis(x, order, axis=1), measure)
        return ordered, jnp.sum((distance > radius - reach) | is_wide[:, None], axis=1)

    (measures, n_ours), (others, n_theirs) = outermost_first(ours), outermost_first(theirs)
    n_ours = jnp.where(ours[2], 0, n_ours)
    n_theirs = jnp.max(jnp.where(theirs[1], 0, n_theirs))
    most_first = jnp.argsort(-n_ours)
    groups = jnp.pad(most_first, (0, -most_first.size % _FAR_ROWS), mode="edge")

    def zeros(group: PyTree, others: PyTree) -> jax.Array:
        shape = group[1].shape[0], others[1].shape[0]
        return as_varying(jnp.zeros(shape, others[1].dtype), (group, others))

    def of_few(group: PyTree, others: PyTree) -> jax.Array:
        return of_all(*indexed((group, others), (slice(None), slice(_FEW_POINTS))))

    def of_all(group: PyTree, others: PyTree) -> jax.Array:
        return double_sum_tile(_OutsideOfWaves(), group, others)

    @jax.checkpoint
    def sums_of_group(index: jax.Array) -> jax.Array:
        group, most, is_wide = indexed((measures, n_ours, ours[1]), index)
        are_many = jnp.any(is_wide) | (jnp.max(most) > _FEW_POINTS) | (n_theirs > _FEW_POINTS)
        are_any = jnp.any(most > 0)
        of_some = jnp.where(anywhere(are_any & are_many), 2, 1)
        branch = jnp.where(anywhere(are_any), of_some, 0).astype(jnp.int32)
        return lax.switch(branch, (zeros, of_few, of_all), group, others)

    tiles = lax.map(sums_of_group, groups.reshape(-1, _FAR_ROWS))
    return tiles.reshape(-1, others[1].shape[0])[jnp.argsort(most_first)]
