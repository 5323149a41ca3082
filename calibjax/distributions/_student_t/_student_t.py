"""Student t predictions of real numbers."""

import dataclasses
import math
from typing import Self

import jax
import jax.numpy as jnp

from calibjax._numbers import (
    is_finite,
    is_positive,
    moved,
    quantile_from_cdf,
    quotient,
    tempered_scale,
    with_levels,
)
from calibjax._struct import struct, widened
from calibjax.distributions._student_t._functions import cdf, crps_beside_sign, log_density
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

    def constraints(self) -> dict[str, tuple[str, jax.Array]]:
        return {
            "df": ("positive and finite", is_positive(self.df)),
            "loc": ("finite", is_finite(self.loc)),
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
        """Draws ``[*shape, n]``, limited to the finite numbers of their dtype."""
        p = widened(self)
        leading = (None,) * len(shape)
        size = (*shape, *p.df.shape)
        t = jax.random.t(key, jnp.broadcast_to(p.df[leading], size), size, p.df.dtype)
        most = jnp.finfo(t.dtype).max
        return jnp.clip(p.loc[leading] + p.scale[leading] * t, -most, most)

    def log_prob(self, targets: jax.Array) -> jax.Array:
        """The log density at targets ``[n]``, ``[n]``."""
        p, targets = widened((self, targets))
        return log_density(p.df, quotient(targets - p.loc, p.scale)) - jnp.log(p.scale)

    def cdf(self, targets: jax.Array) -> jax.Array:
        """P(Y <= targets), ``[n]``."""
        p, targets = widened((self, targets))
        return cdf(p.df, quotient(targets - p.loc, p.scale))

    def survival(self, targets: jax.Array) -> jax.Array:
        """P(Y > targets), ``[n]``."""
        p, targets = widened((self, targets))
        return cdf(p.df, quotient(p.loc - targets, p.scale))

    def quantile(self, level: jax.Array) -> jax.Array:
        """The quantiles ``[n]``, by bisection on the cdf; -inf at level 0 and inf at level 1."""
        p, level = with_levels(self, level)
        standard = StudentT(p.df, jnp.zeros_like(p.loc), jnp.ones_like(p.scale))
        # The cdf has more digits in the lower tail.
        is_above = level > 0.5
        found = quantile_from_cdf(standard, jnp.where(is_above, 1 - level, level))
        return p.loc + p.scale * jnp.where(is_above, -found, found)

    def crps_closed_form(self, targets: jax.Array) -> jax.Array:
        """The continuous ranked probability score, ``[n]``; infinite where df <= 1/2."""
        p, targets = widened((self, targets))
        deviation = targets - p.loc
        t = quotient(deviation, p.scale)
        # In one product with the scale, t would cancel in the derivative where it is large.
        return deviation * (1 - 2 * cdf(p.df, -t)) + p.scale * crps_beside_sign(p.df, t)

    def shift_and_scale(self, intercept: jax.Array, slope: jax.Array, factor: jax.Array) -> Self:
        loc = moved(self.loc, intercept, slope)
        return dataclasses.replace(self, loc=loc, scale=tempered_scale(self.scale, factor))

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
