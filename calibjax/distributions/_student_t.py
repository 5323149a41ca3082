"""Student t predictions of real numbers."""

import math

import jax
import jax.numpy as jnp

from calibjax._base.struct import repeated, struct
from calibjax._numbers.arithmetic import mean_by_gauss, quotient
from calibjax._numbers.derivatives import mirrored, safe_sqrt
from calibjax._numbers.special_functions import log_gamma_step
from calibjax._numbers.unit_interval import quantile_from_cdf
from calibjax._numbers.validity import POSITIVE
from calibjax.distributions._divided_differences import first_difference
from calibjax.distributions._univariate import Univariate, standard_normal_rule


@struct
class StudentT(Univariate):
    """Student t predictions: Y = loc + scale T, where T has df degrees of freedom.

    The density of T at t is proportional to (1 + t^2 / df)^(-(df + 1) / 2).

    Args:
        df: degrees of freedom ``[n]``, positive.  The mean exists for df > 1 and else is NaN; the
            variance is finite for df > 2, infinite for 1 < df <= 2 and else NaN.
        loc: medians ``[n]``, in units of the targets.
        scale: scales ``[n]``, positive; for large df they are standard deviations.

    Targets are real numbers of shape ``[n]``.  Expectations of kernels are sums over 64 points, as
    for every `Univariate` family.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.StudentT(jnp.array([3.0, 1.0]), jnp.zeros(2), jnp.ones(2))
        >>> predictions.variance().tolist(), predictions.cdf(jnp.ones(2)).round(3).tolist()
        ([3.0, nan], [0.804, 0.75])
    """

    df: jax.Array
    loc: jax.Array
    scale: jax.Array

    conditions = {"df": POSITIVE, "scale": POSITIVE}

    def mean(self) -> jax.Array:
        """The means ``[n]``, NaN where df <= 1."""
        return jnp.where(self.df > 1, self.loc, jnp.nan)

    def standard_deviation(self) -> jax.Array:
        """The standard deviations ``[n]``, infinite where 1 < df <= 2 and NaN where df <= 1."""
        ratio = jnp.where(self.df > 2, self.df / jnp.where(self.df > 2, self.df - 2, 1.0), jnp.inf)
        return jnp.where(self.df > 1, self.scale * jnp.sqrt(ratio), jnp.nan)

    def location(self) -> jax.Array:
        return self.loc

    def spread(self) -> jax.Array:
        """The scales times a number that is near the 0.841 quantile of T."""
        return self.scale * _stretch(self.df, jnp.ones_like(self.df))[0]

    def sample(self, key: jax.Array, shape: tuple[int, ...] = ()) -> jax.Array:
        """Draws ``[*shape, n]``, limited to the finite numbers of their dtype."""
        p = repeated(self, shape)
        t = jax.random.t(key, p.df, p.df.shape, p.df.dtype)
        most = jnp.finfo(t.dtype).max
        return jnp.clip(p.loc + p.scale * t, -most, most)

    def log_prob(self, targets: jax.Array) -> jax.Array:
        """The log density at targets ``[n]``, ``[n]``."""
        return log_density(self.df, quotient(targets - self.loc, self.scale)) - jnp.log(self.scale)

    def cdf(self, targets: jax.Array) -> jax.Array:
        """P(Y <= targets), ``[n]``, in half of the time of both tails."""
        return cdf(self.df, quotient(targets - self.loc, self.scale))

    def tails(self, targets: jax.Array) -> tuple[jax.Array, jax.Array]:
        t = quotient(targets - self.loc, self.scale)
        return cdf(self.df, t), cdf(self.df, -t)

    def quantile(self, level: jax.Array) -> jax.Array:
        """The quantiles ``[n]``, by bisection on the cdf; -inf at level 0 and inf at level 1."""
        standard = StudentT(self.df, jnp.zeros_like(self.loc), jnp.ones_like(self.scale))
        # The cdf has more digits in the lower tail.
        is_above = level > 0.5
        found = quantile_from_cdf(standard, jnp.where(is_above, 1 - level, level))
        return self.loc + self.scale * jnp.where(is_above, -found, found)

    def crps_closed_form(self, targets: jax.Array) -> jax.Array:
        """The continuous ranked probability score, ``[n]``; infinite where df <= 1/2."""
        deviation = targets - self.loc
        t = quotient(deviation, self.scale)
        # In one product with the scale, t would cancel in the derivative where it is large.
        return deviation * (1 - 2 * cdf(self.df, -t)) + self.scale * crps_beside_sign(self.df, t)

    def atoms(self) -> tuple[jax.Array, jax.Array]:
        """Points t(z) on an even grid of z, with their density times dt/dz for weights.

        With a = (c z)^2 / df the points satisfy 1 + t^2 / df = exp(a), so that t = c z r for r =
        sqrt((exp(a) - 1) / a), and dt/dz = c exp(a) / r.  The weight is proportional to exp(-a (df
        + 1) / 2) dt/dz, which is c exp(-a (df - 1) / 2) / r.
        """
        z, _ = standard_normal_rule(self.loc.dtype)
        t, log_weights = _stretch(self.df, z)
        return self.loc + self.scale * t, jax.nn.softmax(log_weights)


def _stretch(df: jax.Array, z: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Near quantiles t of T at the levels of normal quantiles z, and the logs of their weights.

    The approximation, c = (8 df + 3) / (8 df + 1) in the formula of `atoms`, is due to Wallace
    (Annals of Mathematical Statistics, 1959).
    """
    c = (8 * df + 3) / (8 * df + 1)
    a = jnp.square(c * z) / df
    # Points further away than this are all alike, and squares of their distances must not overflow.
    most = jnp.asarray(0.9 * math.log(float(jnp.finfo(a.dtype).max)), a.dtype)
    near = jnp.minimum(a, most)
    # log r = (a + log((1 - exp(-a)) / a)) / 2.
    log_r = (near + jnp.log(-jnp.expm1(-near) / near)) / 2
    return c * z * jnp.exp(log_r), -near * (df - 1) / 2 - log_r


# The integral of the tail ends where the density has fallen by exp(-END / 2).
_NODES, _END = 64, 80.0
# In units of sqrt(df), where s^2 / (1 - exp(-s^2 / df)) is s^2 up to rounding.
_CENTER = 6.0
# Maximum number of degrees of freedom: above, t^2 / df underflows in float32.
_AS_GOOD_AS_NORMAL = 1e30
# The distance of df from 1 up to which a difference that is 0 there is computed from its slope.
_NEAR_ONE = 0.1


def log_density(df: jax.Array, t: jax.Array) -> jax.Array:
    """The log density of T at t."""
    df = jnp.minimum(df, _AS_GOOD_AS_NORMAL)
    constant = log_gamma_step(df / 2) - 0.5 * jnp.log(jnp.pi * df)
    return constant - (df + 1) / 2 * log_square(df, t)


def cdf(df: jax.Array, t: jax.Array) -> jax.Array:
    """P(T <= t), with all digits of the lower tail."""
    tail = _tail(jnp.minimum(df, _AS_GOOD_AS_NORMAL), mirrored(t))
    return jnp.where(t < 0, tail, 1 - tail)


@jax.custom_jvp
def _tail(df: jax.Array, t: jax.Array) -> jax.Array:
    """P(T > t) for t >= 0."""
    return _tail_integral(df, t)


@_tail.defjvp
def _tail_jvp(primals, tangents):
    """The derivative in t is minus the density; in the integral s(t) has no derivative at 0."""
    (df, t), (d_df, dt) = primals, tangents
    value, by_df = jax.jvp(lambda df: _tail_integral(df, t), (df,), (d_df,))
    return value, by_df - jnp.exp(log_density(df, t)) * dt


def _tail_integral(df: jax.Array, t: jax.Array) -> jax.Array:
    """P(T > t) for t >= 0 by Gauss' rule.

    In terms of s with 1 + t^2 / df = exp(s^2 / df) the density at t, times dt/ds, is
    f(0) exp(-s^2 / 2) / sqrt((1 - exp(-a)) / a) for a = s^2 / df and the density f of T.  This is
    nearly normal for all df, and with s = s(t) + u the integral over u >= 0 has the factor
    exp(-s(t)^2 / 2) = (1 + t^2 / df)^(-df / 2) in front.  Gauss' rule ends where the rest,
    exp(-s(t) u - u^2 / 2), has fallen by exp(-40).

    The last factor bends where s is near sqrt(df).  Near there the integral from 0 to s(t), which
    is as short as the bend, takes the place of the tail.
    """
    end = safe_sqrt(df * log_square(df, t))
    is_center = end < jnp.minimum(_CENTER * jnp.sqrt(df), 1.0)
    start = jnp.where(is_center, 0.0, end)
    width = jnp.where(is_center, end, _END / (jnp.sqrt(jnp.square(end) + _END) + end))

    def rest(x: jax.Array) -> jax.Array:
        u = width[None] * x
        a = jnp.square(start[None] + u) / df[None]
        return jnp.exp(-(start[None] + u / 2) * u) / jnp.sqrt(_fall(a))

    integral = width * mean_by_gauss(rest, _NODES, df)
    mass = _density_at_zero(df) * jnp.exp(-jnp.square(start) / 2) * integral
    return jnp.where(is_center, 0.5 - mass, mass)


def crps_beside_sign(df: jax.Array, t: jax.Array) -> jax.Array:
    """The continuous ranked probability score of T at t, minus t (2 F(t) - 1).

    It is infinite for df <= 1/2.  With g(x) = log Gamma(x + 1/2) - log Gamma(x),
    l = log(1 + t^2 / df) and psi(u) = (1 - exp(-u)) / u it is

    .. math::
        \\nu f(0) (m \\, \\psi(v) - l \\, \\psi((\\nu - 1) l / 2)),

    where v = g(df - 1/2) - g(df / 2), and m = 2 v / (df - 1) is the mean slope of g in between.
    Derivation: E|T - t| = t (2 F(t) - 1) + 2 f(t) (df + t^2) / (df - 1), E|T - T'| / 2 is
    2 df f(0) exp(-v) / (df - 1), and f(t) (df + t^2) = df f(0) exp(-(df - 1) l / 2).  Both are
    infinite for df <= 1, and written with psi their difference is not.
    """
    valid = df > 0.5
    n = jnp.where(valid, df, 1.0)
    log_of_t = log_square(n, t)
    gap = log_gamma_step(n - 0.5) - log_gamma_step(n / 2)
    is_near = jnp.abs(n - 1) < _NEAR_ONE
    near = jnp.where(is_near, n, 1.0)

    def slope_between(x: jax.Array) -> jax.Array:
        points = near[None] / 2 + x * (near[None] - 1) / 2
        return jax.jvp(log_gamma_step, (points,), (jnp.ones_like(points),))[1]

    slope = mean_by_gauss(slope_between, 5, n)
    slope = jnp.where(is_near, slope, 2 * gap / jnp.where(is_near, 1.0, n - 1))
    constant = slope * _fall((n - 1) * slope / 2)
    difference = constant - log_of_t * _fall((n - 1) * log_of_t / 2)
    return jnp.where(valid, n * _density_at_zero(n) * difference, jnp.inf)


def log_square(df: jax.Array, t: jax.Array) -> jax.Array:
    """log(1 + t^2 / df), also where t^2 overflows."""
    relative = jnp.abs(t) / jnp.sqrt(df)
    large = relative > 1e6
    of_small = jnp.log1p(jnp.square(jnp.where(large, 0.0, relative)))
    # Even t / sqrt(df) may overflow.
    of_large = 2 * jnp.log(jnp.where(large, jnp.abs(t), 1.0)) - jnp.log(df)
    return jnp.where(large, of_large, of_small)


def _density_at_zero(df: jax.Array) -> jax.Array:
    return jnp.exp(log_gamma_step(df / 2)) / jnp.sqrt(jnp.pi * df)


def _fall(u: jax.Array) -> jax.Array:
    """(1 - exp(-u)) / u, which is 1 at 0, for all u."""
    size = mirrored(u)
    return first_difference(size, jnp.zeros_like(u)) * jnp.exp(jnp.where(u < 0, size, 0.0))
