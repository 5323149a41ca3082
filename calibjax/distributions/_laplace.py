r"""Laplace predictions, and their expectations of kernels.

**A Gaussian kernel** is, in units of its lengthscale, a multiple of a normal density.  With
d = |mu - y|, a = 1 / beta and F(beta) = a E exp(-a |X|) for X ~ N(d, 1),
E k(Z, y) = sqrt(pi / 2) F(beta).  For two predictions, with d = |mu - mu'| and the divided
difference F(beta, beta') of F,
E k(Z, Z') = sqrt(pi / 2) (F(beta) + beta'^2 F(beta, beta') / (beta + beta')).

With x = (a - d) / sqrt(2) and x' = (a + d) / sqrt(2), F(beta) is
a e^{-d^2/2} (erfcx(x) + erfcx(x')) / 2, or, left of 0, where erfcx(x) overflows,
a e^{-a (d - a/2)} + a e^{-d^2/2} (erfcx(x') - erfcx(-x)) / 2.  F(beta, beta') divides these term by
term, so that nothing cancels where the scales meet.

**A Laplacian kernel.**  In units of its lengthscale, with d = |mu - y| and the divided differences
Phi of e^{-x}, E k(Z, y) = (e^{-d} + d Phi(d, d / beta)) / (1 + beta).  For two predictions the
kernel is a third Laplace distribution: with the scales s_0, s_1, s_2 = beta, beta', 1 in any order
and t_i = d / s_i, where d is the distance of the locations,

    E k(Z, Z') = c (e^{-t_0} + t_0 Phi(t_0, t_1)) + c_2 t_0 t_1 Phi2(t_0, t_1, t_2),
    c = (s_0 s_1 + s_1 s_2 + s_0 s_2) / ((s_0 + s_1) (s_1 + s_2) (s_0 + s_2)),
    c_2 = s_2 / ((s_0 + s_2) (s_1 + s_2)).

All terms are positive: nothing cancels where scales meet.
"""

import dataclasses
import math
from typing import Self

import jax
import jax.numpy as jnp

from calibjax._base.struct import struct
from calibjax._loops.fusion import recomputed, recomputed_exp
from calibjax._numbers.arithmetic import complex_exponential, quotient
from calibjax._numbers.derivatives import absolute, mirrored
from calibjax._numbers.tempering import tempered_scale
from calibjax.distributions._divided_differences import (
    ERFCX_BELOW_ZERO,
    differences_and_slopes,
    erfcx_factors,
    first_and_second_difference,
    first_difference,
    first_slopes,
)
from calibjax.distributions._normal import Normal
from calibjax.distributions._normal_expectations import normal_gaussian_residual
from calibjax.distributions._univariate import LocationScale
from calibjax.expectations.dispatch import inner_product, mean_embedding, residual_product
from calibjax.kernels.targets import GaussianKernel, LaplacianKernel, in_lengthscales


def _standard_cdf(z: jax.Array) -> jax.Array:
    """The cdf for loc 0 and scale 1, with all digits of the lower tail."""
    tail = jnp.exp(-mirrored(z)) / 2
    return jnp.where(z < 0, tail, 1 - tail)


def _standard_quantile(level: jax.Array) -> jax.Array:
    below = level < 0.5
    # 1 - level is exact where it is used.
    tail = jnp.log(2 * jnp.where(below, level, 1 - level))
    return jnp.where(below, tail, -tail)


@struct
class Laplace(LocationScale):
    """Laplace predictions of real targets: density exp(-|y - loc| / scale) / (2 scale).

    Args:
        loc: means ``[n]``, in units of the targets.
        scale: mean absolute deviations ``[n]``, positive; standard deviations are sqrt(2) scale.

    Targets are real numbers of shape ``[n]``.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Laplace(loc=jnp.array([0.0, 1.0]), scale=jnp.array([1.0, 2.0]))
        >>> predictions.variance().tolist()
        [2.0, 8.0]
    """

    loc: jax.Array
    scale: jax.Array

    noise = staticmethod(jax.random.laplace)
    standard_cdf = staticmethod(_standard_cdf)
    standard_quantile = staticmethod(_standard_quantile)

    def variance(self) -> jax.Array:
        """The variances, ``[n]``."""
        return 2 * jnp.square(self.scale)

    def standard_deviation(self) -> jax.Array:
        return math.sqrt(2) * self.scale

    def log_prob(self, targets: jax.Array) -> jax.Array:
        """The log density at targets ``[n]``, ``[n]``."""
        distance = quotient(absolute(targets - self.loc), self.scale)
        return -distance - jnp.log(self.scale) - math.log(2)

    def crps_closed_form(self, targets: jax.Array) -> jax.Array:
        """|y - loc| + scale (exp(-|y - loc| / scale) - 3 / 4), ``[n]``."""
        distance = mirrored(targets - self.loc)
        return distance + self.scale * (jnp.exp(-quotient(distance, self.scale)) - 0.75)

    def mean_absolute_difference(self, other: Self) -> jax.Array:
        """d + t exp(-d / t) + s^2 (s exp(-d / s) - t exp(-d / t)) / (s^2 - t^2).

        d is the distance of the locations, and the last term is computed from divided differences,
        which do not cancel for scales s and t that are nearly equal.
        """
        distance = mirrored(self.loc - other.loc)
        x, y = distance / self.scale, distance / other.scale
        quotient = jnp.exp(-x) + x * first_difference(x, y)
        weight = jnp.square(self.scale) / (self.scale + other.scale)
        return distance + other.scale * jnp.exp(-y) + weight * quotient

    def characteristic(self, v: jax.Array) -> jax.Array:
        """E exp(i <v, Z>) for Z from *one* prediction, a complex number."""
        return complex_exponential(v * self.loc, 1 / (1 + jnp.square(v * self.scale)))

    def tempered(self, temperature: jax.Array) -> Self:
        """The predictions with densities proportional to p^(1 / temperature)."""
        return dataclasses.replace(self, scale=tempered_scale(self.scale, temperature))


_ROOT_HALF_PI = math.sqrt(math.pi / 2)


@mean_embedding.register(Laplace, GaussianKernel)
def laplace_gaussian_mean(p: Laplace, kernel: GaussianKernel, y: jax.Array) -> jax.Array:
    loc, scale, y = in_lengthscales(kernel, p.loc, p.scale, y)
    # What only the difference needs is never compiled.
    return _ROOT_HALF_PI * _value_and_difference(scale, scale, mirrored(loc - y))[0]


@inner_product.register(Laplace, GaussianKernel)
def laplace_gaussian_inner(p: Laplace, kernel: GaussianKernel, q: Laplace) -> jax.Array:
    p_loc, p_scale, q_loc, q_scale = in_lengthscales(kernel, p.loc, p.scale, q.loc, q.scale)
    # The value of the wider prediction, for the other way round the two terms cancel.
    exchange = p_scale < q_scale
    s, t = jnp.where(exchange, q_scale, p_scale), jnp.where(exchange, p_scale, q_scale)
    value, difference = _value_and_difference(s, t, mirrored(p_loc - q_loc))
    return _ROOT_HALF_PI * (value + t * (t / (s + t)) * difference)


@residual_product.register(Laplace, GaussianKernel)
def laplace_gaussian_residual(
    p: Laplace, kernel: GaussianKernel, y: jax.Array, q: Laplace, z: jax.Array
) -> jax.Array:
    """The four terms of h, without cancellation where both predictions are narrow.

    A Laplace distribution of scale beta has the characteristic function 1 / (1 + beta^2 w^2), whose
    powers of -w^2 are second derivatives of the kernel k(d) = exp(-d^2 / 2).  Hence the scales add
    c(beta, beta', d) = sum_j h_j(beta^2, beta'^2) k^(2j)(d) over j >= 1 to the kernel of the two
    locations, where h_j is the sum of all monomials of degree j and k^(2j)(d) = He_2j(d) exp(-d^2 /
    2).  For narrow predictions h is the sum of four such series, each cut after j = 4, which omits
    1e-7 of the largest, and of the kernels of locations and targets, which are the h of normal
    predictions of scale 0.
    """
    wide = residual_product.fallback(p, kernel, y, q, z)
    p_loc, p_scale, q_loc, q_scale, y, z = in_lengthscales(
        kernel, p.loc, p.scale, q.loc, q.scale, y, z
    )
    certain = [Normal(loc, jnp.zeros_like(loc)) for loc in (p_loc, q_loc)]
    unit = GaussianKernel(jnp.ones_like(p_loc))
    of_locations = normal_gaussian_residual(certain[0], unit, y, certain[1], z)
    narrow = jnp.maximum(p_scale, q_scale) < (1e-3 if p_scale.dtype == jnp.float64 else 0.05)
    # The eighth powers of wide scales overflow: their unused derivatives would be inf, and NaN
    # where the choice between both forms multiplies them by 0.
    s, t = (jnp.square(jnp.where(narrow, scale, 0.0)) for scale in (p_scale, q_scale))
    zero = jnp.zeros_like(s)
    of_scales = _added_by_scales(s, t, p_loc - q_loc)
    of_scales -= _added_by_scales(s, zero, p_loc - z) + _added_by_scales(zero, t, y - q_loc)
    return jnp.where(narrow, of_locations + of_scales, wide)


def _added_by_scales(s: jax.Array, t: jax.Array, d: jax.Array) -> jax.Array:
    """sum_j h_j(s, t) He_2j(d) exp(-d^2 / 2) for j = 1, …, 4 and small s, t."""
    # Beyond 40 lengthscales the exponential is 0 even in float64, and He_8 may overflow.
    d = jnp.clip(d, -40.0, 40.0)
    even, odd = jnp.ones_like(d), d
    power, h, total = jnp.ones_like(s), jnp.ones_like(s), jnp.zeros_like(d)
    for j in range(1, 5):
        even = d * odd - (2 * j - 1) * even
        odd = d * even - 2 * j * odd
        power *= t
        h = s * h + power
        total += h * even
    return total * jnp.exp(-jnp.square(d) / 2)


def _value_and_difference(s: jax.Array, t: jax.Array, d: jax.Array) -> tuple[jax.Array, jax.Array]:
    """F(s) and F(s, t), for s >= t and d >= 0.

    With a = 1 / s and b = 1 / t, the terms a e^{-u} for u = a (d - a/2) and b e^{-v} for
    v = b (d - b/2), which are there left of 0, have the divided difference
    a b (b (d - (a + b) / 2) Phi(u, v) - e^{-u}), because a - b = -a b (s - t) and
    u - v = (a - b) (d - (a + b) / 2).  `_erfcx_terms` makes the other terms.
    """
    # From here on e^{-d^2/2} and e^{-a (d - a/2)} are 0 even in float64, and products may overflow.
    d = jnp.minimum(d, 2e3 * jnp.where(s < 1, 1.0, s))
    x, y = (1 / s - d) / math.sqrt(2), (1 / t - d) / math.sqrt(2)
    # Both scales take the same form, a little beyond 0 if need be; where neither form serves both,
    # they are so far apart that the quotient keeps its digits.
    right = jnp.minimum(x, y) > -ERFCX_BELOW_ZERO
    x_left, y_left = ~right & (x < ERFCX_BELOW_ZERO), ~right & (y < ERFCX_BELOW_ZERO)
    x_sign, y_sign = jnp.where(x_left, -1.0, 1.0), jnp.where(y_left, -1.0, 1.0)
    near = _erfcx_terms(s, t, d, x_sign, y_sign)
    far = _erfcx_terms(s, t, -d, 1.0, 1.0)
    tail = recomputed_exp(-jnp.square(d) / 2) / 2

    # Rates of 0 leave no exponential.  The rates of narrow scales, whose squares overflow, would
    # spoil the derivatives even of a branch that is not taken.
    a = jnp.where(x_left, 1 / jnp.where(x_left, s, 1.0), 0.0)
    b = jnp.where(y_left, 1 / jnp.where(y_left, t, 1.0), 0.0)
    u, v = a * (d - a / 2), b * (d - b / 2)
    decay = b * first_difference(u, v) * (d - (a + b) / 2)
    difference = a * b * (decay - recomputed_exp(-u)) + tail * (far[2] + x_sign * near[2])
    value = a * recomputed_exp(-u) + tail * (far[0] + x_sign * near[0])
    other = b * recomputed_exp(-v) + tail * (far[1] + y_sign * near[1])

    apart = x_left != y_left
    quotient = (value - other) / jnp.where(apart, s - t, 1.0)
    return value, jnp.where(apart, quotient, difference)


def _erfcx_terms(
    s: jax.Array, t: jax.Array, d: jax.Array, x_sign: jax.Array | float, y_sign: jax.Array | float
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """erfcx(x) / s, erfcx(y) / t and their divided difference in the scales, for equal signs.

    Here x = x_sign (1 / s - d) / sqrt(2), and 1 / (x + 3) = s r with r = sqrt(2) / (x_sign + k s),
    k = 3 sqrt(2) - x_sign d.  The factor 1 / s goes into r: for small scales no derivative is a
    difference of large numbers.  With erfcx(x) / s = r P(s r), and r' and t for y, the divided
    difference is r' (P - P') / (s - t) + P (r - r') / (s - t), where
    s r - t r' = x_sign (s - t) r r' / sqrt(2) and r - r' = -k (s - t) r r' / sqrt(2).
    """
    k = 3 * math.sqrt(2) - x_sign * d
    x_r = math.sqrt(2) / (x_sign * (1 - s * d) + 3 * math.sqrt(2) * s)
    y_r = math.sqrt(2) / (y_sign * (1 - t * d) + 3 * math.sqrt(2) * t)
    x_factor, y_factor, quotient = erfcx_factors(s * x_r, t * y_r)
    difference = x_r * y_r * (x_sign * y_r * quotient - k * x_factor) / math.sqrt(2)
    return x_r * x_factor, y_r * y_factor, difference


@mean_embedding.register(Laplace, LaplacianKernel)
def laplace_laplacian_mean(p: Laplace, kernel: LaplacianKernel, y: jax.Array) -> jax.Array:
    loc, scale, y = in_lengthscales(kernel, p.loc, p.scale, y)
    return _one_prediction(mirrored(loc - y), scale)


@inner_product.register(Laplace, LaplacianKernel)
def laplace_laplacian_inner(p: Laplace, kernel: LaplacianKernel, q: Laplace) -> jax.Array:
    p_loc, p_scale, q_loc, q_scale = in_lengthscales(kernel, p.loc, p.scale, q.loc, q.scale)
    return _two_predictions(mirrored(p_loc - q_loc), p_scale, q_scale)


def _within_reach(d: jax.Array, widest: jax.Array) -> jax.Array:
    """The distance d, cut at 1000 times the widest scale.

    From there on exp(-d / s) is 0 for all scales s, even in float64.  A distance that grew further
    would only overflow, for in the narrowest scale it may be larger by many orders of magnitude.
    The distance in one scale alone must not be cut: the derivatives rely on d = s t for all scales.
    """
    return jnp.minimum(d, 1e3 * widest)


@jax.custom_jvp
def _one_prediction(d: jax.Array, scale: jax.Array) -> jax.Array:
    """E k(Z, y) at the distance d of y from the location."""
    d = _within_reach(d, jnp.maximum(scale, 1.0))
    return (jnp.exp(-d) + d * first_difference(d, d / scale)) / (1 + scale)


@_one_prediction.defjvp
def _one_prediction_jvp(primals, tangents):
    """The partial derivatives by d and beta, in closed form.

    With t = d / beta, E = (beta e^{-t} - e^{-d}) / (beta^2 - 1), whose derivative by d is
    (e^{-d} - e^{-t}) / (beta^2 - 1) = -t Phi(d, t) / (1 + beta).  By beta, the form above has the
    factor 1 / (1 + beta), whose derivative contributes -E / (1 + beta), and t, whose derivative
    -t / beta makes -d t Phi_t / beta = -t^2 Phi_t of d Phi, where Phi_t is the derivative of
    Phi(d, t) by t.
    """
    (d, scale), (d_tangent, scale_tangent) = primals, tangents
    d = _within_reach(d, jnp.maximum(scale, 1.0))
    t = d / scale
    difference = first_difference(d, t)
    value = (jnp.exp(-d) + d * difference) / (1 + scale)
    difference_by_t = first_slopes(d, t, difference)[1]
    by_d = -t * difference / (1 + scale)
    by_scale = -(value + t * (t * difference_by_t)) / (1 + scale)
    return value, by_d * d_tangent + by_scale * scale_tangent


@jax.custom_jvp
def _two_predictions(d: jax.Array, p_scale: jax.Array, q_scale: jax.Array) -> jax.Array:
    """E k(Z, Z') at the distance d of the locations."""
    s0, s1, s2 = _descending(p_scale, q_scale, jnp.ones_like(p_scale))
    d = _within_reach(d, s0)
    t0, t1, t2 = map(recomputed, (d / s0, d / s1, d / s2))
    first, second = first_and_second_difference(t0, t1, t2)
    q02, q12 = recomputed(s2 / (s0 + s2)), recomputed(s2 / (s1 + s2))
    a, b = recomputed_exp(-t0) + t0 * first, t0 * (t1 * second)
    return a * (1 - q02 * q12) / (s0 + s1) + b * (q02 / (s1 + s2))


@_two_predictions.defjvp
def _two_predictions_jvp(primals, tangents):
    r"""The partial derivatives by d and the scales, in closed form.

    By d: the distribution of the sum of three Laplace variables has the partial fractions
    E = u_0^2 u_1^2 u_2^2 sum_i e^{-d u_i} / (u_i prod_{j != i} (u_j^2 - u_i^2)) in the rates
    u_i = 1 / s_i.  Hence its derivative by d is -u_0^2 u_1^2 u_2^2 times the second divided
    difference of w -> e^{-d sqrt(w)} at the squares of the rates, and this is
    d (d Phi2 + Phi(t_1, t_2) / (u_1 + u_2)) / ((u_0 + u_1) (u_0 + u_2)), as its first one at
    u_i^2, u_j^2 is -d Phi(t_i, t_j) / (u_i + u_j).  Both terms have one sign.

    By the scales: E = c a + c_2 b with a = e^{-t_0} + t_0 Phi and b = t_0 t_1 Phi2.  The product
    rule is applied to s_i dE/ds_i, because t_i depends on s_i alone, with s_i dt_i/ds_i = -t_i.
    The factors give, with q_ij = s_j / (s_i + s_j),
    s_0 dc/ds_0 = -(1 - q_01) (1 - q_02) (q_01 + q_02) / (s_1 + s_2), where exchanging indices
    yields the other two, s_i dc_2/ds_i = -(1 - q_i2) c_2 for i = 0, 1, and
    s_2 dc_2/ds_2 = (1 - q_02 - q_12) c_2.
    """
    (d, p_scale, q_scale), (d_tangent, p_tangent, q_tangent) = primals, tangents
    one = jnp.ones_like(p_scale)
    scales, scale_tangents = jax.jvp(
        _descending, (p_scale, q_scale, one), (p_tangent, q_tangent, jnp.zeros_like(one))
    )
    s0, s1, s2 = scales
    d = _within_reach(d, s0)
    t0, t1, t2 = d / s0, d / s1, d / s2
    (first, second), last, slopes = differences_and_slopes(t0, t1, t2)
    by_t0, by_t1, second_by_t0, second_by_t1, second_by_t2 = slopes
    decay = jnp.exp(-t0)
    q01, q02, q12 = s1 / (s0 + s1), s2 / (s0 + s2), s2 / (s1 + s2)
    c, c2 = (1 - q02 * q12) / (s0 + s1), q02 / (s1 + s2)
    a, b = decay + t0 * first, t0 * (t1 * second)
    value = c * a + c2 * b
    by_d = -t0 * (t1 * second / s2 + last / (s1 + s2)) * (1 - q02) / (s0 + s1)
    by_s0 = (
        -(1 - q01) * (1 - q02) * (q01 + q02) / (s1 + s2) * a
        - c2 * (1 - q02) * b
        - t0 * (c * (first - decay + t0 * by_t0) + c2 * t1 * (second + t0 * second_by_t0))
    ) / s0
    by_s1 = (
        -q01 * (1 - q12) * (1 - q01 + q12) / (s0 + s2) * a
        - c2 * (1 - q12) * b
        - t0 * (t1 * (c * by_t1 + c2 * (second + t1 * second_by_t1)))
    ) / s1
    by_s2 = (
        -q02 * q12 * (2 - q02 - q12) / (s0 + s1) * a
        + c2 * (1 - q02 - q12) * b
        - t0 * (t1 * (t2 * (c2 * second_by_t2)))
    ) / s2
    partials = zip((by_d, by_s0, by_s1, by_s2), (d_tangent, *scale_tangents), strict=True)
    return value, sum(partial * tangent for partial, tangent in partials)


def _descending(a: jax.Array, b: jax.Array, c: jax.Array) -> tuple[jax.Array, ...]:
    """The three numbers, largest first.

    They are exchanged in pairs: a maximum splits its derivative at ties, which would make second
    derivatives wrong there.
    """
    a, b = _larger_first(a, b)
    b, c = _larger_first(b, c)
    a, b = _larger_first(a, b)
    return a, b, c


def _larger_first(a: jax.Array, b: jax.Array) -> tuple[jax.Array, jax.Array]:
    exchange = a < b
    return jnp.where(exchange, b, a), jnp.where(exchange, a, b)
