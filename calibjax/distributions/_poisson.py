"""Poisson predictions of counts, with the white target kernel in closed form."""

import math
from types import ModuleType

import jax
import jax.numpy as jnp
from jax.scipy import special

from calibjax._base.struct import static, struct
from calibjax._numbers.arithmetic import complex_exponential
from calibjax._numbers.derivatives import safe_sqrt
from calibjax._numbers.special_functions import MANY_COUNTS, stirling_remainder
from calibjax._numbers.validity import NONNEGATIVE
from calibjax.distributions._counts import Counts, counts_white_mean
from calibjax.distributions._incomplete_gamma import gamma_tails
from calibjax.expectations.dispatch import register_rules
from calibjax.kernels import EmbeddingDistance, WhiteKernel


@struct
class Poisson(Counts):
    """Poisson predictions of counts: P(Y = k) = rate^k exp(-rate) / k!.

    Args:
        rate: means ``[n]``, nonnegative.
        max_count: quantiles, and expectations of target kernels other than WhiteKernel, are found
            by sums over 0 … max_count.
            None chooses a power of two of at most 4096 for concrete rates (outside of jit), such
            that larger counts have a probability of less than 4e-18; they have by Chernoff's bound
            P(Y >= k) <= exp(-(k log(k / rate) - k + rate)) for k > rate.  Where it cannot be
            chosen, for rates above some 3500 or inside jit, these sums are a ValueError until you
            give it (6000 for a rate of 5000).  A rate for which a given max_count is not enough
            gives NaN, never a truncated sum.  max_count is part of the structure of the pytree:
            give it to stack batches, or to carry a batch through a scan.

    Targets are integers of shape ``[n]``.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Poisson(jnp.array([0.5, 10.0]))
        >>> predictions.max_count, predictions.log_prob(jnp.array([0, 10])).round(3).tolist()
        (64, [-0.5, -2.078])
    """

    rate: jax.Array
    max_count: int | None = static(default=None)

    shapes = {"rate": "n"}
    conditions = {"rate": NONNEGATIVE}
    untempered = ", and a power of a Poisson distribution is not one"

    def mean(self) -> jax.Array:
        """The rates, ``[n]``."""
        return self.rate

    def variance(self) -> jax.Array:
        """The rates, ``[n]``."""
        return self.rate

    def sample(self, key: jax.Array, shape: tuple[int, ...] = ()) -> jax.Array:
        """Counts ``[*shape, n]``."""
        return jax.random.poisson(key, self.rate, (*shape, *self.rate.shape), jnp.int32)

    def log_prob(self, targets: jax.Array) -> jax.Array:
        """The log probability at targets ``[n]``, ``[n]``."""
        return log_probability(targets, self.rate)

    def tails(self, targets: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Those of a gamma variable, the time of the next event, at the rate."""
        return tails(targets, self.rate)

    def probability(self, count: jax.Array) -> jax.Array:
        return probability(count, self.rate)

    def tail_exponent(self, count: jax.Array, numpy: ModuleType = jnp) -> jax.Array:
        k = count + 1
        exponent = k * numpy.log(k / self.rate) - (k - self.rate)
        return numpy.where(k > self.rate, exponent, 0.0)

    def crps_closed_form(self, targets: jax.Array) -> jax.Array:
        """(y - r) (2 F(y) - 1) + 2 r P(Y = y) - r exp(-2 r) (I_0(2 r) + I_1(2 r)), ``[n]``.

        The first two terms are E|Y - y|, and the last one is E|Y - Y'| / 2, for the rate r.
        """
        rate, sign = self.rate, 2 * self.cdf(targets) - 1
        at_target = probability(targets, rate)
        deviation = (targets.astype(rate.dtype) - rate) * sign + 2 * rate * at_target
        return deviation - rate * (special.i0e(2 * rate) + special.i1e(2 * rate))

    def off_mode_probability(self) -> jax.Array:
        """P(Y != floor(rate)), ``[n]``."""
        return -jnp.expm1(self.log_prob(jnp.floor(self.rate).astype(jnp.int32)))

    def default_distance(self) -> EmbeddingDistance:
        return EmbeddingDistance(_sqrt_of_rate)

    def characteristic(self, v: jax.Array) -> jax.Array:
        """E exp(i <v, Z>) for Z from *one* prediction, a complex number."""
        # exp(rate (exp(i v) - 1)), where cos v - 1 = -2 sin(v / 2)^2 does not cancel.
        amplitude = jnp.exp(-2 * self.rate * jnp.square(jnp.sin(v / 2)))
        return complex_exponential(self.rate * jnp.sin(v), amplitude)


def _sqrt_of_rate(p: Poisson) -> jax.Array:
    # The variance of sqrt(Y) hardly depends on the rate.
    return safe_sqrt(p.rate)


def poisson_white_inner(p: Poisson, kernel: WhiteKernel, q: Poisson) -> jax.Array:
    """P(Z = Z') = exp(-(rate + other)) I_0(2 sqrt(x)) with x = rate other.

    Where x < 1 it is computed from I_0(2 sqrt(x)) = sum_k x^k / k!^2, which is smooth at rate 0.
    """
    rate, other = p.rate, q.rate
    x = rate * other
    small = x < 1
    root, other_root = (jnp.sqrt(jnp.where(small, 1.0, r)) for r in (rate, other))
    decay = jnp.exp(-jnp.square(root - other_root))
    large = decay * special.i0e(2 * root * other_root)
    x, series = jnp.where(small, x, 0.0), jnp.ones_like(x)
    for k in range(12, 0, -1):
        series = 1 + series * x / k**2
    return jnp.where(small, jnp.exp(-(rate + other)) * series, large)


register_rules(
    Poisson, WhiteKernel, mean_embedding=counts_white_mean, inner_product=poisson_white_inner
)

_LOG_FACTORIALS = [math.log(math.factorial(k)) for k in range(MANY_COUNTS)]
# At a smaller rate, 16 or more counts have the probability 0 in float64.
_TINY_RATE = 1e-30


@jax.custom_jvp
def probability(count: jax.Array, rate: jax.Array) -> jax.Array:
    """P(Z = count), elementwise, for count >= 0 and rate >= 0."""
    k = count.astype(rate.dtype)
    few = jnp.exp(-rate)
    for j in range(1, MANY_COUNTS):
        few *= jnp.where(k >= j, rate / j, 1.0)
    large = jnp.maximum(k, MANY_COUNTS)
    many = jnp.exp(_log_relative_to_stirling(large, rate)) / jnp.sqrt(2 * jnp.pi * large)
    return jnp.where(k < MANY_COUNTS, few, many)


@probability.defjvp
def _probability_jvp(primals, tangents):
    """The derivative of rate^k exp(-rate) / k! in the rate is P(Z = k - 1) - P(Z = k).

    This form is exact and finite at rate 0, where log(rate) has no derivative.
    """
    (count, rate), (_, tangent) = primals, tangents
    value = probability(count, rate)
    before = jnp.where(count > 0, probability(jnp.maximum(count - 1, 0), rate), 0.0)
    return value, (before - value) * tangent


@jax.custom_jvp
def tails(count: jax.Array, rate: jax.Array) -> tuple[jax.Array, jax.Array]:
    """P(Z <= count) and P(Z > count), elementwise; each has all its digits.

    Z > count if the time of event count + 1, which has a gamma distribution, is below the rate.
    Negative counts have 0 and 1.
    """
    above, up_to = gamma_tails(jnp.maximum(count, 0).astype(rate.dtype) + 1, rate)
    is_negative = count < 0
    return jnp.where(is_negative, 0.0, up_to), jnp.where(is_negative, 1.0, above)


@tails.defjvp
def _tails_jvp(primals, tangents):
    """The derivative of P(Z > count) in the rate is P(Z = count), also at rate 0."""
    (count, rate), (_, tangent) = primals, tangents
    slope = jnp.where(count < 0, 0.0, probability(jnp.maximum(count, 0), rate)) * tangent
    return tails(count, rate), (-slope, slope)


@jax.custom_jvp
def log_probability(count: jax.Array, rate: jax.Array) -> jax.Array:
    """log P(Z = count), elementwise, for count >= 0 and rate >= 0."""
    k = count.astype(rate.dtype)
    # gammaln(1) is not quite 0, and P(Z != 0) may be smaller than its error.
    log_factorials = jnp.asarray(_LOG_FACTORIALS, k.dtype)[jnp.clip(count, 0, MANY_COUNTS - 1)]
    log_factorial = jnp.where(k < MANY_COUNTS, log_factorials, special.gammaln(k + 1))
    few = special.xlogy(k, rate) - rate - log_factorial
    large = jnp.maximum(k, MANY_COUNTS)
    many = _log_relative_to_stirling(large, rate) - jnp.log(2 * jnp.pi * large) / 2
    return jnp.where((k < MANY_COUNTS) | (rate < _TINY_RATE), few, many)


@log_probability.defjvp
def _log_probability_jvp(primals, tangents):
    """The derivative of k log(rate) - rate - log k! in the rate is k / rate - 1.

    For k = 0 it is -1, also at rate 0, where the derivative of k log(rate) is 0 / 0.
    """
    (count, rate), (_, tangent) = primals, tangents
    slope = jnp.where(count > 0, count.astype(rate.dtype) / rate, 0.0) - 1
    return log_probability(count, rate), slope * tangent


def _log_relative_to_stirling(k: jax.Array, rate: jax.Array) -> jax.Array:
    """log(P(Z = k) sqrt(2 pi k)) for k >= 16, where log(rate^k exp(-rate) / k!) would cancel.

    With x = (k - rate) / rate it is -rate ((1 + x) log(1 + x) - x) minus the remainder of
    Stirling's formula, log(k! / (sqrt(2 pi k) k^k exp(-k))) (Loader, Fast and accurate computation
    of binomial probabilities, 2000).
    """
    rate = jnp.maximum(rate, _TINY_RATE)
    x = (k - rate) / rate
    return -rate * ((1 + x) * jnp.log1p(x) - x) - stirling_remainder(k)
