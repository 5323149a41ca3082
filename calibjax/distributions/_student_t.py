"""Student t predictions of real numbers."""

import functools
import math

import jax
import jax.numpy as jnp
from jax.scipy.special import betainc, ndtr

from calibjax._inversion import quantile_from_cdf, with_levels
from calibjax._numerics import is_positive
from calibjax._struct import struct, widened
from calibjax.distributions._univariate import Univariate, standard_normal_rule


@struct
class StudentT(Univariate):
    """Student t predictions: Y = loc + scale T, where T has df degrees of freedom.

    The density of T at t is proportional to (1 + t^2 / df)^(-(df + 1) / 2).

    Args:
        df: degrees of freedom ``[n]``, positive.  The mean exists for df > 1, and the variance is
            finite for df > 2.
        loc: medians ``[n]``, in units of the targets.
        scale: scales ``[n]``, positive; for large df they are standard deviations.

    Targets are real numbers of shape ``[n]``.  Expectations of kernels are sums over 64 points, as
    for every `Univariate` family, and `cdf` has no derivative in df.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.StudentT(jnp.array([3.0, 1.0]), jnp.zeros(2), jnp.ones(2))
        >>> predictions.variance().tolist(), predictions.cdf(jnp.ones(2)).round(3).tolist()
        ([3.0, nan], [0.804, 0.75])
    """

    df: jax.Array
    loc: jax.Array
    scale: jax.Array

    def constraints(self) -> dict[str, tuple[str, jax.Array]]:
        return {
            "df": ("positive and finite", is_positive(self.df)),
            "loc": ("finite", jnp.isfinite(self.loc)),
            "scale": ("positive and finite", is_positive(self.scale)),
        }

    def mean(self) -> jax.Array:
        """The means ``[n]``, NaN where df <= 1."""
        p = widened(self)
        return jnp.where(p.df > 1, p.loc, jnp.nan)

    def variance(self) -> jax.Array:
        """The variances ``[n]``, infinite where 1 < df <= 2 and NaN where df <= 1."""
        return jnp.square(self.standard_deviation())

    def standard_deviation(self) -> jax.Array:
        p = widened(self)
        ratio = jnp.where(p.df > 2, p.df / jnp.where(p.df > 2, p.df - 2, 1.0), jnp.inf)
        return jnp.where(p.df > 1, p.scale * jnp.sqrt(ratio), jnp.nan)

    def location(self) -> jax.Array:
        return widened(self.loc)

    def spread(self) -> jax.Array:
        """The scales times a number that is near the 0.841 quantile of T."""
        p = widened(self)
        return p.scale * _stretch(p.df, jnp.ones_like(p.df))[0]

    def sample(self, key: jax.Array, shape: tuple[int, ...] = ()) -> jax.Array:
        """Draws ``[*shape, n]``."""
        p = widened(self)
        leading = (None,) * len(shape)
        size = (*shape, *p.df.shape)
        t = jax.random.t(key, jnp.broadcast_to(p.df[leading], size), size, p.df.dtype)
        return p.loc[leading] + p.scale[leading] * t

    def log_prob(self, targets: jax.Array) -> jax.Array:
        """The log density at targets ``[n]``, ``[n]``."""
        p, targets = widened((self, targets))
        t = (targets - p.loc) / p.scale
        # t^2 may overflow where log(1 + t^2 / df) does not.
        relative = jnp.abs(t) / jnp.sqrt(p.df)
        large = relative > 1e6
        of_small = jnp.log1p(jnp.square(jnp.where(large, 0.0, relative)))
        of_t = jnp.where(large, 2 * jnp.log(jnp.where(large, relative, 1.0)), of_small)
        constant = _log_gamma_ratio(p.df / 2) - 0.5 * jnp.log(jnp.pi * p.df)
        return constant - jnp.log(p.scale) - (p.df + 1) / 2 * of_t

    def cdf(self, targets: jax.Array) -> jax.Array:
        """P(Y <= targets), ``[n]``."""
        p, targets = widened((self, targets))
        return _cdf(p.df, (targets - p.loc) / p.scale)

    def quantile(self, level: jax.Array) -> jax.Array:
        """The quantiles at a level, a number or ``[n]``: by bisection on the cdf."""
        p, level = with_levels(self, level)
        standard = StudentT(p.df, jnp.zeros_like(p.loc), jnp.ones_like(p.scale))
        return p.loc + p.scale * quantile_from_cdf(standard, level)

    def atoms(self) -> tuple[jax.Array, jax.Array]:
        """Points t(z) on an even grid of z, with their density times dt/dz for weights.

        With a = (c z)^2 / df the points satisfy 1 + t^2 / df = exp(a), hence t = c z r for
        r = sqrt((exp(a) - 1) / a), and dt/dz = c exp(a) / r.  The weight is proportional to
        exp(-a (df + 1) / 2) dt/dz, which is c exp(-a (df - 1) / 2) / r.
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


def _cdf(df: jax.Array, t: jax.Array) -> jax.Array:
    """P(T <= t), from the incomplete beta function or, for many degrees of freedom, a series.

    With x = t^2 / (df + t^2), I_x(1/2, df/2) is the probability of |T| <= |t|, and I_{1-x}(df/2,
    1/2) is the probability of both tails.  Each is computed where it is small.
    """
    size = jnp.abs(t)
    # Rounding of x changes the result by some df times as much.
    many = df > (1e4 if df.dtype == jnp.float64 else 200)
    few = jnp.where(many, 1.0, df)
    half = jnp.full_like(df, 0.5)
    is_center = size < 1
    center, outside = jnp.where(is_center, size, 0.5), jnp.where(is_center, 2.0, size)
    relative = outside / jnp.sqrt(few)
    square = jnp.square(center) / few
    inner = betainc(half, few / 2, square / (1 + square))
    tails = betainc(few / 2, half, 1 / (1 + jnp.square(relative)))
    tail = jnp.where(is_center, 1 - inner, tails) / 2
    tail = jnp.where(many, _normal_tail(jnp.where(many, df, 1e9), size), tail)
    return jnp.where(t < 0, tail, 1 - tail)


def _normal_tail(df: jax.Array, t: jax.Array) -> jax.Array:
    """P(T > t) for t >= 0 and many degrees of freedom, up to terms of order 1 / df^3.

    Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.8.
    """
    near = jnp.minimum(t, 20.0)
    square = jnp.square(near)
    first = (square + 1) / (4 * df)
    second = (((3 * square - 7) * square - 5) * square - 3) / (96 * jnp.square(df))
    density = jnp.exp(-square / 2) / math.sqrt(2 * math.pi)
    return ndtr(-near) + density * near * (first + second)


def _log_gamma_ratio(x: jax.Array) -> jax.Array:
    """log Gamma(x + 1/2) - log Gamma(x), without the cancellation of large terms.

    Gamma(x + 1/2) / Gamma(x) is Gamma(x + 17/2) / Gamma(x + 8) times the product over k < 8 of
    (x + k) / (x + k + 1/2); and for large s, log Gamma(s + 1/2) - log Gamma(s) has the asymptotic
    series log(s) / 2 - 1 / (8 s) + 1 / (192 s^3) - 1 / (640 s^5) + 17 / (14336 s^7) - ….
    """
    shifted = x + _SHIFT
    inverse = 1 / jnp.square(shifted)
    series = functools.reduce(lambda sum, c: sum * inverse + c, _SERIES, jnp.zeros_like(x))
    ratios = [(x + k) / (x + k + 0.5) for k in range(_SHIFT)]
    product = functools.reduce(jnp.multiply, ratios)
    return jnp.log(shifted) / 2 + series / shifted + jnp.log(product)


_SHIFT = 8
#: Coefficients of s^-9, s^-7, …, s^-1.
_SERIES = (-31 / 18432, 17 / 14336, -1 / 640, 1 / 192, -1 / 8)
