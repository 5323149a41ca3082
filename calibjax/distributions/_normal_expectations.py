r"""Expectations of kernels under normal predictions.

**A Gaussian kernel.**  In units of the lengthscale, with variance v = sigma^2 and d = mu - y,
numbers and independent coordinates have E k(Z, y) = prod_c (1 + v)^{-1/2} exp(-d^2 / (2 (1 + v))),
and Z - Z' is normal, so that two predictions only add their variances.

With a covariance V and b = mu - y, E k(Z, y) = |I + V|^{-1/2} exp(-b^T (I + V)^{-1} b / 2), and
that of Z - Z' is V + V'.  A tile is computed row by row in arrays ``[d, d, pairs]``: a CPU runs
fastest along the last axis, and the d^2 numbers of each pair are in memory for one row only.

**Laplacian and Matern kernels** of numbers or of independent coordinates.  For d = |mu - y| and g =
1 / lengthscale, with q = d / sigma and x_-+ = (g sigma -+ q) / sqrt(2), E exp(-g |Z - y|) =
exp(-q^2/2) (erfcx(x_-) + erfcx(x_+)) / 2.  The difference Z - Z' of two predictions is normal and
its variance is the sum of theirs, so that one formula serves both primitives.  The expectations of
independent coordinates are multiplied.

A Matern kernel of numbers is, in units of the lengthscale, (1 + g r) exp(-g r) with g = sqrt(3) and
(1 + g r + g^2 r^2 / 3) exp(-g r) with g = sqrt(5).  Each factor r is minus a derivative in g of
exp(-g r).  With E(g) = E exp(-g |Z - y|) the expectations of the kernels are therefore E - g E' and
E - g E' + g^2 E'' / 3.
"""

import functools
import math
from collections.abc import Callable, Iterator, Sequence

import jax
import jax.numpy as jnp

from calibjax._loops.coordinate_sums import row_by_row
from calibjax._loops.fusion import in_one_loop
from calibjax._numbers.derivatives import SMALL, absolute, mirrored, small_expm1
from calibjax._numbers.special_functions import erfcx, erfcx_and_slope
from calibjax._numbers.validity import POSITIVE, valid_or_nan
from calibjax.distributions._normal import (
    MultivariateNormalDiag,
    MultivariateNormalFullCovariance,
    Normal,
)
from calibjax.expectations.dispatch import (
    register_row_by_row,
    register_rules,
    squared_distance_tile,
)
from calibjax.kernels import GaussianKernel, LaplacianKernel, Matern32Kernel, Matern52Kernel
from calibjax.kernels.targets import LengthscaleKernel, in_lengthscales

Law = Normal | MultivariateNormalDiag


def normal_gaussian_mean(p: Law, kernel: GaussianKernel, y: jax.Array) -> jax.Array:
    loc, variance, y = _moments(p, kernel, y)
    return _expectation(loc - y, variance)


def normal_gaussian_inner(p: Law, kernel: GaussianKernel, q: Law) -> jax.Array:
    p_loc, p_scale, q_loc, q_scale = in_lengthscales(kernel, *_parameters(p), *_parameters(q))
    return _expectation(p_loc - q_loc, jnp.square(p_scale) + jnp.square(q_scale))


def normal_gaussian_residual(
    p: Normal, kernel: GaussianKernel, y: jax.Array, q: Normal, z: jax.Array
) -> jax.Array:
    """The four terms of h of numbers, as for vectors."""
    return _residual_of_numbers(*_moments(p, kernel, y), *_moments(q, kernel, z))


def _in_lengthscales(p: Law, kernel: LengthscaleKernel, y: jax.Array) -> list[jax.Array]:
    """Location, scale and target, in units of the lengthscale."""
    return in_lengthscales(kernel, *_parameters(p), y)


def _moments(p: Law, kernel: GaussianKernel, y: jax.Array) -> tuple[jax.Array, ...]:
    """Location, variance and target, in units of the lengthscale."""
    loc, scale, y = _in_lengthscales(p, kernel, y)
    return loc, jnp.square(scale), y


# What follows is for numbers, or for vectors, coordinates first, of pairs on any further axes.


def _sum(x: jax.Array) -> jax.Array:
    """The sum over coordinates."""
    return x if x.ndim == 0 else jnp.sum(x, axis=0)


def _residual(p_loc, p_variance, y, q_loc, q_variance, z) -> jax.Array:
    """The four terms of h, without cancellation where the predictions are narrow.

    With D = mu - mu', a term with mean D + t and variance v is exp(-D^2/2) r exp(e) with
    r = (1 + v)^{-1/2} and e = (v D^2 - 2 t D - t^2) / (2 (1 + v)).  If all four e are small, which
    narrow predictions make them, h is exp(-D^2/2) times a difference of r exp(e) - 1 =
    r expm1(e) + (r - 1); elsewhere it is the difference of the terms themselves.
    """
    is_near, common, near, far = _terms(p_loc, p_variance, y, q_loc, q_variance, z)
    return jnp.where(is_near, common * alternating(near), alternating(far))


def _terms(
    p_loc, p_variance, y, q_loc, q_variance, z
) -> tuple[jax.Array, jax.Array, list[jax.Array], list[jax.Array]]:
    """Whether all four e are small, exp(-D^2/2), r exp(e) - 1 if so, and exp(-D^2/2) r exp(e)."""
    between, near, far, exponents = p_loc - q_loc, [], [], []
    for t, v in _shifts_and_variances(p_loc, p_variance, y, q_loc, q_variance, z):
        r, r_minus_1 = _shrinkage(v)
        e = _sum(((v * between - 2 * t) * between - jnp.square(t)) / (1 + v)) / 2
        exponents.append(jnp.abs(e))
        near.append(r * small_expm1(e) + r_minus_1)
        far.append(r * jnp.exp(-_sum(jnp.square(between + t) / (1 + v)) / 2))
    is_near = functools.reduce(jnp.maximum, exponents) < SMALL
    return is_near, jnp.exp(-_sum(jnp.square(between)) / 2), near, far


def _shifts_and_variances(
    p_loc, p_variance, y, q_loc, q_variance, z
) -> Iterator[tuple[jax.Array, jax.Array]]:
    u, w, zero = y - p_loc, z - q_loc, jnp.zeros_like(p_variance)
    return zip(
        (u - w, -w, u, zero), (zero, p_variance, q_variance, p_variance + q_variance), strict=True
    )


_residual_of_numbers = jax.custom_jvp(_residual)


@_residual_of_numbers.defjvp
def _residual_jvp(primals, tangents):
    """All partial derivatives of h, term by term: half the time of what jax derives.

    With r = (1 + v)^{-1/2}, a term F = r exp(-b^2 / (2 (1 + v))) of mean b and variance v has the
    derivative -m in b, where m = b F / (1 + v).  As r has the derivative -r / (2 (1 + v)), that of
    F in v is (b m - F) / (2 (1 + v)).  Here h = F1 - F2 - F3 + F4; the means are y - z, mu - z,
    y - mu' and mu - mu', and the variances 0, those of the two predictions, and the sum of both.
    The chain rule then gives the partial derivatives below.

    The four m only occur in differences, which cancel if all four e are small.  There D exp(-D^2/2)
    is left out of each m: with n = r exp(e) - 1 and b = D + t, F is exp(-D^2/2) (1 + n), and
    b / (1 + v) is D + shift for shift = t - v b / (1 + v), so that
    m - D exp(-D^2/2) = D exp(-D^2/2) n + shift F.
    """
    is_near, common, near, far = _terms(*primals)
    between = primals[0] - primals[3]
    of_mean, of_variance = [], []
    for (t, v), n, term in zip(_shifts_and_variances(*primals), near, far, strict=True):
        inverse = 1 / (1 + v)
        b = between + t
        m = b * inverse * term
        shift = t - v * b * inverse
        of_mean.append(jnp.where(is_near, between * (common * n) + shift * term, m))
        of_variance.append((b * m - term) * inverse / 2)
    (m1, m2, m3, m4), (_, v2, v3, v4) = of_mean, of_variance
    partials = m2 - m4, v4 - v2, m3 - m1, m4 - m3, v4 - v3, m1 - m2
    value = jnp.where(is_near, common * alternating(near), alternating(far))
    return value, sum(a * b for a, b in zip(partials, tangents, strict=True))


def normal_gaussian_squared_distance(p: Law, kernel: GaussianKernel, q: Law) -> jax.Array:
    """|mu_p - mu_q|^2 = (A - B)^2 + 2 A B (1 - cos), with norms A, B and the cosine of the angle.

    With variances a and b and t = (a - b) / (1 + a + b), B^4 = prod_c 1 / (1 + 2b),
    A^4 / B^4 = prod_c (1 - t) / (1 + t), and cos^4 = prod_c (1 - t^2) exp(-2 D^2 / (1 + a + b)).
    """
    (p_loc, p_scale), (q_loc, q_scale) = _parameters(p), _parameters(q)
    # Differences first, which are exact for near predictions.
    between, wider, p_scale, q_scale = in_lengthscales(
        kernel, p_loc - q_loc, p_scale - q_scale, p_scale, q_scale
    )
    a, b = jnp.square(p_scale), jnp.square(q_scale)
    total = 1 + a + b
    t = wider * (p_scale + q_scale) / total
    # Near 1 or -1, t has lost the digits that log(1 - t^2) needs.
    near = jnp.abs(t) < 0.5
    t = jnp.where(near, t, 0.0)
    log_a, log_b = jnp.log1p(2 * a), jnp.log1p(2 * b)
    log_ratio = jnp.where(near, jnp.log1p(-t) - jnp.log1p(t), log_b - log_a)
    log_cos = jnp.where(near, jnp.log1p(-jnp.square(t)), log_a + log_b - 2 * jnp.log(total))
    log_cos -= 2 * jnp.square(between) / total
    relative = jnp.expm1(jnp.sum(log_ratio) / 4)
    angle = -jnp.expm1(jnp.sum(log_cos) / 4)
    return jnp.exp(-jnp.sum(log_b) / 2) * (jnp.square(relative) + 2 * (relative + 1) * angle)


def _parameters(p) -> tuple[jax.Array, jax.Array]:
    return (p.loc, p.scale) if isinstance(p, Normal) else (p.loc, p.scale_diag)


def _expectation(d: jax.Array, variance: jax.Array) -> jax.Array:
    """E k for a difference with mean d and the given variance, over all coordinates."""
    return _shrinkage(variance)[0] * jnp.exp(-_sum(jnp.square(d) / (1 + variance)) / 2)


def _shrinkage(variance: jax.Array) -> tuple[jax.Array, jax.Array]:
    """r = prod_c (1 + v_c)^{-1/2}, and r - 1 with all its digits."""
    if variance.ndim == 0:
        r = jnp.sqrt(1 / (1 + variance))
        return r, -variance / ((1 + variance) * (1 + r))
    log_r = -_sum(jnp.log1p(variance)) / 2
    return jnp.exp(log_r), jnp.expm1(log_r)


def alternating(terms: Sequence[jax.Array] | jax.Array) -> jax.Array:
    """The four terms of h, put together."""
    return (terms[0] - terms[1]) - (terms[2] - terms[3])


for family in (Normal, MultivariateNormalDiag):
    register_rules(
        family,
        GaussianKernel,
        mean_embedding=normal_gaussian_mean,
        inner_product=normal_gaussian_inner,
        squared_embedding_distance=normal_gaussian_squared_distance,
    )
register_rules(Normal, GaussianKernel, residual_product=normal_gaussian_residual)
register_row_by_row(MultivariateNormalDiag, GaussianKernel, _moments, _residual)


# Correlated coordinates.  The functions below take vectors ``[d, …]`` and matrices ``[d, d, …]``
# with any axes of pairs.

Full = MultivariateNormalFullCovariance


def _full_moments(
    p: Full, kernel: GaussianKernel, y: jax.Array | None = None
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Location, exactly symmetric covariance and target (if any), in units of the lengthscale."""
    loc, y = in_lengthscales(kernel, p.loc, p.loc if y is None else y)
    scale = jnp.broadcast_to(valid_or_nan(POSITIVE, kernel.lengthscale, "lengthscale"), p.loc.shape)
    covariance = p.covariance_matrix / (scale[:, None] * scale[None, :])
    return loc, (covariance + covariance.T) / 2, y


def full_gaussian_mean(p: Full, kernel: GaussianKernel, y: jax.Array) -> jax.Array:
    loc, covariance, y = _full_moments(p, kernel, y)
    return _full_expectation(covariance, loc - y)


def full_gaussian_inner(p: Full, kernel: GaussianKernel, q: Full) -> jax.Array:
    return _inner_from_moments(*_full_moments(p, kernel)[:2], *_full_moments(q, kernel)[:2])


def full_gaussian_squared_distance_tile(ps: Full, kernel: GaussianKernel, qs: Full) -> jax.Array:
    def inner(ps: Full, kernel: GaussianKernel, qs: Full) -> jax.Array:
        moments = jax.vmap(lambda p: _full_moments(p, kernel)[:2])
        return row_by_row(_inner_from_moments, moments(ps), moments(qs))

    return squared_distance_tile(ps, kernel, qs, inner)


def _inner_from_moments(p_loc, p_covariance, q_loc, q_covariance) -> jax.Array:
    return _full_expectation(p_covariance + q_covariance, p_loc - q_loc)


def _full_residual(p_loc, p_covariance, y, q_loc, q_covariance, z) -> jax.Array:
    """`residual_product` without cancellation where the predictions are narrow.

    The derivation is the one of `_residual`, for matrices.  A term with mean D + t
    and covariance V is exp(-|D|^2 / 2) r exp(e) with r = |I + V|^{-1/2} and
    2 e = (D + t)^T V (I + V)^{-1} (D + t) - 2 t^T D - |t|^2.
    """
    between, u, w = p_loc - q_loc, y - p_loc, z - q_loc
    both = p_covariance + q_covariance
    shifts = _broadcast_and_stack(1, u - w, -w, u, jnp.zeros_like(between))
    covariances = _broadcast_and_stack(2, jnp.zeros_like(both), p_covariance, q_covariance, both)
    between = between[:, None]
    log_det, quadratic, gain = _log_det_and_forms(covariances, between + shifts)

    e = (gain - jnp.sum(shifts * (2 * between + shifts), axis=0)) / 2
    r, r_minus_1 = jnp.exp(-log_det / 2), jnp.expm1(-log_det / 2)
    near = alternating(r * small_expm1(e) + r_minus_1)
    far = alternating(r * jnp.exp(-quadratic / 2))
    common = jnp.exp(-jnp.sum(jnp.square(between[:, 0]), axis=0) / 2)
    return jnp.where(jnp.all(jnp.abs(e) < SMALL, axis=0), common * near, far)


def _broadcast_and_stack(axis: int, *terms: jax.Array) -> jax.Array:
    return jnp.stack(jnp.broadcast_arrays(*terms), axis=axis)


def _full_expectation(covariance: jax.Array, b: jax.Array) -> jax.Array:
    """E exp(-|X|^2 / 2) for X normal with mean b."""
    log_det, quadratic, _ = _log_det_and_forms(covariance, b)
    return jnp.exp(-(log_det + quadratic) / 2)


def _log_det_and_forms(v: jax.Array, b: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """log |I + V|, b^T (I + V)^{-1} b and b^T V (I + V)^{-1} b.

    Gaussian elimination of I + V, one coordinate after the other, which stores V instead of I + V:
    the logarithm and the last form keep all digits where V is small.  V is ``[d, d, …]`` and b is
    ``[d, …]``.
    """
    log_det = quadratic = gain = jnp.zeros(b.shape[1:], b.dtype)
    while b.size:
        pivot, column = v[0, 0], v[1:, 0]
        solved = b[0] / (1 + pivot)
        rest = b[1:] - column * solved[None]
        log_det += jnp.log1p(pivot)
        quadratic += b[0] * solved
        gain += solved * (pivot * b[0] + jnp.sum(column * (b[1:] + rest), axis=0))
        v = v[1:, 1:] - column[:, None] * (column / (1 + pivot)[None])[None, :]
        b = rest
    return log_det, quadratic, gain


register_rules(
    Full,
    GaussianKernel,
    mean_embedding=full_gaussian_mean,
    inner_product=full_gaussian_inner,
    squared_embedding_distance_tile=full_gaussian_squared_distance_tile,
)
register_row_by_row(Full, GaussianKernel, _full_moments, _full_residual)


def laplacian_of_normal(rate: jax.Array, difference: jax.Array, scale: jax.Array) -> jax.Array:
    """E exp(-rate |D|) for D ~ N(difference, scale^2) and rate >= 1, smooth in all arguments."""
    reflected, tail, decay, lower, upper, _ = _erfcx_terms(rate, mirrored(difference), scale)
    left, right = erfcx(lower), erfcx(upper)
    return jnp.where(reflected, decay + tail * (right - left), tail * (left + right))


def _erfcx_terms(rate: jax.Array | float, d: jax.Array, scale: jax.Array) -> tuple[jax.Array, ...]:
    """The terms of the expectation, for a distance d >= 0.

    They are a mask of x_- < 0, where erfcx(x_-) is computed by reflection; exp(-q^2/2) / 2;
    exp((g sigma)^2 / 2 - g d), which is 1 outside of the mask; |x_-|; x_+; and q.
    """
    # At larger d the expectation is 0 even in float64, but its derivatives contain powers of d.
    d = jnp.minimum(d, 60 * scale + 1e3)
    # Beyond 60 standard deviations exp(-q^2/2) is 0 even in float64, and q^2 may overflow.  The
    # constant 60 replaces d / sigma: in reverse mode 0 times its overflowing slope would be NaN.
    far = d >= 60 * scale
    q = jnp.where(far, 60.0, d / jnp.where(far, 1.0, scale))
    tail = jnp.exp(-jnp.square(q) / 2) / 2
    lower, upper = (rate * scale - q) / math.sqrt(2), (rate * scale + q) / math.sqrt(2)
    # erfcx overflows at negative x, where erfcx(x) = 2 exp(x^2) - erfcx(-x) is used instead.
    reflected = lower < 0
    exponent = jnp.where(reflected, rate * (rate * jnp.square(scale) / 2 - d), 0.0)
    # The mask stands for |lower|, because the derivative must be 1 where lower is 0.
    return reflected, tail, jnp.exp(exponent), jnp.where(reflected, -lower, lower), upper, q


@jax.custom_jvp
def _expectation_at_rate_1(difference: jax.Array, scale: jax.Array) -> jax.Array:
    """`laplacian_of_normal` at rate 1, with the derivative rule below."""
    return laplacian_of_normal(jnp.ones_like(difference), difference, scale)


@_expectation_at_rate_1.defjvp
def _expectation_at_rate_1_jvp(primals, tangents):
    """The partial derivatives of `_value_and_slopes`, times the tangents."""
    value, by_difference, by_scale = _value_and_slopes(*primals)
    return value, by_difference * tangents[0] + by_scale * tangents[1]


def _value_and_slopes(difference: jax.Array, scale: jax.Array) -> list[jax.Array]:
    """The expectation and its derivatives in the mean m and the scale of D ~ N(m, sigma^2).

    Let f = exp(-|.|) and E = E f(D) = A + B, where B = E exp(-D) 1{D > 0} is the term with x_- and
    A = E exp(D) 1{D < 0} is the term with x_+.  A shift of D gives E_m = E f'(D), and f' is -f for
    D > 0 and f for D < 0, so that E_m = A - B.

    The normal density satisfies the heat equation, so that E_sigma = sigma E_mm.  As f'' = f - 2
    delta, E_mm = E - 2 phi, where phi = exp(-q^2/2) / (sqrt(2 pi) sigma) is the density of D at 0.
    This is `by_heat`.  It cancels for large sigma, where x_- >= 0 and nothing is reflected.  There
    `by_slopes` is the derivative of E = tail (erfcx(x_-) + erfcx(x_+)): in sigma, q has the
    derivative -q / sigma and x_-+ has (1 +- q / sigma) / sqrt(2), and with
    erfcx'(x) = 2 x erfcx(x) - 2 / sqrt(pi) all terms in q / sigma add up to -q (A - B).
    """
    reflected, tail, decay, lower, upper, q = _erfcx_terms(1.0, mirrored(difference), scale)
    (left, left_slope), (right, right_slope) = erfcx_and_slope(lower), erfcx_and_slope(upper)
    above, below = tail * right, tail * left
    by_slopes = tail * ((left_slope + right_slope) / math.sqrt(2)) - q * (above - below)
    below = jnp.where(reflected, decay - below, below)
    value = below + above
    by_heat = scale * value - math.sqrt(8 / math.pi) * tail
    by_scale = jnp.where(reflected, by_heat, by_slopes)
    by_difference = jnp.where(difference < 0, below - above, above - below)
    return [value, by_difference, by_scale]


def _laplacian(_: LaplacianKernel, difference: jax.Array, scale: jax.Array) -> jax.Array:
    """The expectation of the kernel, a product over coordinates."""
    found = _expectation_at_rate_1(difference, scale)
    return found if found.ndim == 0 else jnp.prod(found, axis=0)


def _vector_residual(p_loc, p_scale, y, q_loc, q_scale, z) -> jax.Array:
    """The four terms of h for vectors, coordinates first, of pairs on any further axes."""
    differences = (
        (p_loc - z, p_scale),
        (q_loc - y, q_scale),
        (p_loc - q_loc, _hypotenuse(p_scale, q_scale)),
    )
    ours, theirs, both = (jnp.prod(x, axis=0) for x in _expectations_in_memory(differences))
    of_targets = jnp.exp(-jnp.sum(absolute(y - z), axis=0))
    return (of_targets - ours) - (theirs - both)


@jax.custom_jvp
def _expectations_in_memory(differences: Sequence[tuple[jax.Array, jax.Array]]) -> list[jax.Array]:
    """`_expectation_at_rate_1` of several numbers, in memory before a CPU multiplies coordinates.

    XLA would make them inside of the loop over coordinates, which is not vectorised.
    """
    return in_one_loop([_expectation_at_rate_1(*pair) for pair in differences])


@_expectations_in_memory.defjvp
def _expectations_in_memory_jvp(primals, tangents):
    """The partial derivatives of `_value_and_slopes`, all of one distribution out of one loop."""
    values, products = [], []
    for pair, tangent in zip(primals[0], tangents[0], strict=True):
        value, by_difference, by_scale = in_one_loop(_value_and_slopes(*pair))
        values.append(value)
        products.append(by_difference * tangent[0] + by_scale * tangent[1])
    return values, products


def _difference(p: Law, kernel: LengthscaleKernel, q: Law) -> list[jax.Array]:
    """Location and scale of Z - Z' for independent Z ~ p and Z' ~ q, in lengthscales."""
    (p_loc, p_scale), (q_loc, q_scale) = _parameters(p), _parameters(q)
    return in_lengthscales(kernel, p_loc - q_loc, _hypotenuse(p_scale, q_scale))


@jax.custom_jvp
def _hypotenuse(a: jax.Array, b: jax.Array) -> jax.Array:
    """h = sqrt(a^2 + b^2) for a, b > 0."""
    return jnp.hypot(a, b)


# dh = (a / h) da + (b / h) db.  The derivative of jnp.hypot divides by squares, which underflow.
_hypotenuse.defjvps(lambda da, h, a, b: (a / h) * da, lambda db, h, a, b: (b / h) * db)


def _register_differences(
    family: type, kernel_type: type, expectation: Callable[..., jax.Array]
) -> None:
    """Registers means and inner products, which are E k(D, 0) for a normal D.

    They are ``expectation(kernel, mean of D, scale of D)``, in units of the lengthscale.
    """

    def mean(p: Law, kernel: LengthscaleKernel, y: jax.Array) -> jax.Array:
        loc, scale, y = _in_lengthscales(p, kernel, y)
        return expectation(kernel, loc - y, scale)

    def inner(p: Law, kernel: LengthscaleKernel, q: Law) -> jax.Array:
        return expectation(kernel, *_difference(p, kernel, q))

    register_rules(family, kernel_type, mean_embedding=mean, inner_product=inner)


_register_differences(Normal, LaplacianKernel, _laplacian)
_register_differences(MultivariateNormalDiag, LaplacianKernel, _laplacian)
register_row_by_row(MultivariateNormalDiag, LaplacianKernel, _in_lengthscales, _vector_residual)


def _matern(
    kernel: Matern32Kernel | Matern52Kernel, difference: jax.Array, scale: jax.Array
) -> jax.Array:
    """The expectation of the kernel, from E(g), E'(g) and E''(g).

    These are found by nested forward mode, which keeps the digits of each order.
    """
    is_32 = isinstance(kernel, Matern32Kernel)
    g = math.sqrt(3 if is_32 else 5)
    # A smaller scale changes the expectation by less than rounding, because the kernels are smooth
    # at 0 and the change is of the order of scale^2.  The derivative of difference / scale would
    # overflow in float32.
    scale = jnp.maximum(scale, 1e-15)
    rate = jnp.full_like(difference, g)

    def expectation(rate: jax.Array) -> jax.Array:
        return laplacian_of_normal(rate, difference, scale)

    def first(rate: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jax.jvp(expectation, (rate,), (jnp.ones_like(rate),))

    (value, slope), (_, curvature) = jax.jvp(first, (rate,), (jnp.ones_like(rate),))
    return value - g * slope if is_32 else value - g * slope + g**2 * curvature / 3


_register_differences(Normal, Matern32Kernel, _matern)
_register_differences(Normal, Matern52Kernel, _matern)
