"""Predictions of one real number that is known to lie in an interval."""

import jax
import jax.numpy as jnp

from calibjax._base.struct import struct, widened, widest_dtype
from calibjax._data import Distribution, of_part
from calibjax._numbers import is_finite, with_levels
from calibjax.distributions._univariate import LocationScale, Univariate

# The smallest tail of the base of which quantiles are found.
_LEAST_TAIL = 1e-30


@struct
class Truncated(Univariate):
    """The distribution of a variable given that it lies between low and high.

    The density is that of the base, divided by the probability P(low <= Y <= high) of the base.

    Args:
        base: predictions of a `Univariate` family, or Normal or Laplace, ``[n]``.
        low: ``[n]``, in units of the targets, or -inf.
        high: ``[n]``, above low, or inf.  The interval must have at least the share 0.01 (1e-6 in
            float64) of the tail of the base that begins at one of its ends: less has too few digits
            as a difference of two tails.  That tail may be as small as 1e-30; but an upper tail of
            a base that is not symmetric has digits only down to 1e-4 (1e-10 in float64).

    Targets are real numbers between low and high, of shape ``[n]``.  Expectations of kernels take
    64 quantiles of the base, which are slow where it finds them by bisection (StudentT, Gamma,
    Beta).

    Raises:
        TypeError: base is not of one of these families: counts, samples and vectors are refused.
        ValueError: at the first use outside of jit, low is not below high, or the interval has too
            small a probability.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> base = cj.Normal(jnp.array([0.0, 1.0]), jnp.array([1.0, 1.0]))
        >>> predictions = cj.Truncated(base, 0.0, jnp.inf)
        >>> predictions.mean().round(3).tolist(), predictions.quantile(0.5).round(3).tolist()
        ([0.798, 1.288], [0.674, 1.2])
    """

    base: Distribution
    low: jax.Array
    high: jax.Array

    compared_with_targets = ("low", "high")

    def _complete(self) -> None:
        if not isinstance(self.base, (Univariate, LocationScale)):
            raise TypeError(
                "base must be predictions of one real number with a density, such as Normal(loc, "
                f"scale), got {type(self.base).__name__}."
            )
        super()._complete()

    @property
    def shapes(self) -> dict[str, str]:
        return of_part("base", self.base.shapes) | {"low": "n", "high": "n"}

    def constraints(self) -> dict[str, tuple[str, jax.Array]]:
        digits = (
            "so far above low that the probability of the interval has digits in "
            f"{jnp.dtype(widest_dtype(self.low)).name}"
        )
        return of_part("base", self.base.constraints()) | {
            "low": ("below high", self.low < self.high),
            "high": (digits, _has_digits(self)),
        }

    def supports(self, targets: jax.Array) -> tuple[str, jax.Array]:
        inside = (targets >= self.low) & (targets <= self.high)
        return "finite and between low and high", inside & is_finite(targets)

    def log_prob(self, targets: jax.Array) -> jax.Array:
        """The log density at targets ``[n]``, ``[n]``; -inf outside of the interval."""
        p, targets = widened((self, targets))
        value = p.base.log_prob(jnp.clip(targets, p.low, p.high)) - jnp.log(p._mass()[2])
        return jnp.where((targets < p.low) | (targets > p.high), -jnp.inf, value)

    def has_stein_identity(self) -> tuple[str, jax.Array]:
        """At a finite end the density jumps to 0."""
        whole = (self.low == -jnp.inf) & (self.high == jnp.inf)
        words, of_base = self.base.has_stein_identity()
        return f"{words} without finite ends", whole & of_base

    def tails(self, targets: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Both from that tail of the base which is thinner, at low or at the target."""
        p, targets = widened((self, targets))
        below, above, mass = p._mass()
        of_base, rest = _tails(p.base, targets)
        up_to, beyond = _tails(p.base, p.high)
        lower = jnp.where(below > 0.5, above - rest, of_base - below) / mass
        upper = jnp.where(of_base > 0.5, rest - beyond, up_to - of_base) / mass
        is_below, is_above = targets < p.low, targets > p.high
        return (
            jnp.where(is_below, 0.0, jnp.where(is_above, 1.0, lower)),
            jnp.where(is_below, 1.0, jnp.where(is_above, 0.0, upper)),
        )

    def quantile(self, level: jax.Array) -> jax.Array:
        """The quantiles at a level, a number or ``[n]``."""
        p, level = with_levels(self, level)
        below, _, mass = p._mass()
        # At an end of the support the derivative of the base's quantile is infinite.
        inner = jnp.where((level > 0) & (level < 1), level, 0.5)
        most = 1 - jnp.finfo(level.dtype).epsneg
        of_base, tail = below + inner * mass, _tails(p.base, p.high)[1] + (1 - inner) * mass
        if p.base.is_symmetric:
            is_upper = of_base > 0.5
            value = p.base.quantile(jnp.where(is_upper, tail, of_base))
            value = jnp.where(is_upper, 2 * p.base.location() - value, value)
        else:
            of_base = jnp.where(below > 0.5, 1 - tail, of_base)
            value = p.base.quantile(jnp.minimum(of_base, most))
        # Rounding of the level may lead out of the interval.
        value = jnp.where(level <= 0, p.low, jnp.where(level >= 1, p.high, value))
        value = jnp.where(jnp.isnan(level), jnp.nan, value)
        return jnp.clip(value, p.low, p.high)

    def _mass(self) -> tuple[jax.Array, jax.Array, jax.Array]:
        """P(Y < low), P(Y > low) and P(low <= Y <= high) of the base, NaN without digits."""
        p = widened(self)
        (below, above), (up_to, beyond) = (_tails(p.base, x) for x in (p.low, p.high))
        is_upper = below > 0.5
        mass = jnp.where(is_upper, above - beyond, up_to - below)
        share, least = (1e-6, 1e-10) if p.low.dtype == jnp.float64 else (0.01, 1e-4)
        has_all = ~is_upper | p.base.is_symmetric
        tail, least_tail = jnp.minimum(above, up_to), jnp.where(has_all, _LEAST_TAIL, least)
        return below, above, jnp.where((mass >= share * tail) & (tail >= least_tail), mass, jnp.nan)


def _tails(base: Distribution, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """P(Y <= x) and P(Y > x) of the base, where x may be infinite."""
    is_finite = jnp.isfinite(x)
    below, above = base.tails(jnp.where(is_finite, x, 0.0))
    return (
        jnp.where(is_finite, below, jnp.where(x > 0, 1.0, 0.0)),
        jnp.where(is_finite, above, jnp.where(x > 0, 0.0, 1.0)),
    )


@jax.jit
def _has_digits(predictions: Truncated) -> jax.Array:
    return ~jnp.isnan(predictions._mass()[2])
