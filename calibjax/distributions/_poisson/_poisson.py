"""Poisson predictions of counts."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy import special

from calibjax._batch import widened_integers
from calibjax._check import check_integer
from calibjax._distribution import Distribution
from calibjax._incomplete_gamma import gammaincc
from calibjax._inversion import integer_or_invalid, smallest_count_with, with_levels
from calibjax._numerics import safe_sqrt
from calibjax._struct import is_array, is_traced, static, struct, widened
from calibjax._waves import wave
from calibjax.kernels import EmbeddingDistance

#: -log of the largest probability of counts above max_count, exp(-40) = 4e-18.
_TAIL = 40.0
# The largest max_count that is chosen automatically: the matrix of a kernel at all counts is held
# in memory.
_LARGEST_AUTOMATIC = 2**12


@struct
class Poisson(Distribution):
    """Poisson predictions of counts: P(Y = k) = rate^k exp(-rate) / k!.

    Args:
        rate: means ``[n]``, nonnegative.
        max_count: expectations of kernels other than WhiteKernel are sums over 0 … max_count.
            None chooses a power of two of at most 4096 for concrete rates (outside of jit), such
            that larger counts have a probability of less than 4e-18.  A rate for which they have
            more (above some 3500 for max_count = 4096) gives NaN, never a truncated sum.  max_count
            is part of the structure of the pytree: give it to stack batches, or to carry a batch
            through a scan.

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
    target_shape = "n"
    target_kind = "integer"
    untempered = ", of which a power is no Poisson distribution"

    def __post_init__(self) -> None:
        if self.max_count is not None:
            max_count = check_integer("max_count", self.max_count, 1)
            object.__setattr__(self, "max_count", max_count)
        elif is_array(self.rate) and not is_traced(self.rate):
            object.__setattr__(self, "max_count", _sufficient_count(self.rate))

    def constraints(self) -> dict[str, tuple[str, jax.Array]]:
        return {"rate": ("nonnegative and finite", (self.rate >= 0) & jnp.isfinite(self.rate))}

    def supports(self, targets: jax.Array) -> tuple[str, jax.Array]:
        # Computations use int32.
        targets, largest = widened_integers(targets), np.iinfo(np.int32).max
        return f"counts 0, 1, …, {largest}", (targets >= 0) & (targets <= largest)

    def mean(self) -> jax.Array:
        """The rates, ``[n]``."""
        return widened(self.rate)

    def variance(self) -> jax.Array:
        """The rates, ``[n]``."""
        return widened(self.rate)

    def sample(self, key: jax.Array, shape: tuple[int, ...] = ()) -> jax.Array:
        """Counts ``[*shape, n]``."""
        return jax.random.poisson(key, self.rate, (*shape, *self.rate.shape), jnp.int32)

    def log_prob(self, targets: jax.Array) -> jax.Array:
        """The log probability at targets ``[n]``, ``[n]``."""
        return _log_probability(targets, widened(self.rate))

    def cdf(self, targets: jax.Array) -> jax.Array:
        """P(Y <= targets[i]), ``[n]``."""
        return cumulative_probability(widened_integers(targets), widened(self.rate))

    def quantile(self, level: jax.Array) -> jax.Array:
        """The quantiles ``[n]``, int32; 0 at level 0 and the largest int32 at level 1."""
        p, level = with_levels(self, level)

        def reaches_level(count: jax.Array) -> jax.Array:
            return (cumulative_probability(count, p.rate) >= level) & (level < 1)

        return integer_or_invalid(level, smallest_count_with(reaches_level, level))

    def crps_closed_form(self, targets: jax.Array) -> jax.Array:
        """(y - r) (2 F(y) - 1) + 2 r P(Y = y) - r exp(-2 r) (I_0(2 r) + I_1(2 r)), ``[n]``.

        The first two terms are E|Y - y|, and the last one is E|Y - Y'| / 2, for the rate r.
        """
        rate, targets = widened(self.rate), widened_integers(targets)
        # The probability of a count that is impossible, at rate 0, has no log to differentiate.
        probability = jnp.exp(_log_probability(targets, jnp.maximum(rate, _TINY_RATE)))
        sign = 2 * cumulative_probability(targets, rate) - 1
        deviation = (targets.astype(rate.dtype) - rate) * sign + 2 * rate * probability
        return deviation - rate * (special.i0e(2 * rate) + special.i1e(2 * rate))

    def off_mode_probability(self) -> jax.Array:
        """P(Y != floor(rate)), ``[n]``."""
        return -jnp.expm1(self.log_prob(jnp.floor(self.rate).astype(jnp.int32)))

    def default_distance(self) -> EmbeddingDistance:
        return EmbeddingDistance(_sqrt_of_rate)

    def characteristic(self, v: jax.Array) -> jax.Array:
        # exp(rate (exp(i v) - 1)), where cos v - 1 = -2 sin(v / 2)^2 does not cancel.
        amplitude = jnp.exp(-2 * self.rate * jnp.square(jnp.sin(v / 2)))
        return wave(self.rate * jnp.sin(v), amplitude)


def _sqrt_of_rate(p: Poisson) -> jax.Array:
    # The variance of sqrt(Y) hardly depends on the rate.
    return safe_sqrt(p.rate)


@jax.custom_jvp
def _log_probability(count: jax.Array, rate: jax.Array) -> jax.Array:
    """log P(Z = count), elementwise, for count >= 0 and rate >= 0."""
    k = count.astype(rate.dtype)
    few = special.xlogy(k, rate) - rate - special.gammaln(k + 1)
    large = jnp.maximum(k, MANY_COUNTS)
    many = log_relative_to_stirling(large, rate) - jnp.log(2 * jnp.pi * large) / 2
    return jnp.where((k < MANY_COUNTS) | (rate < _TINY_RATE), few, many)


@_log_probability.defjvp
def _log_probability_jvp(primals, tangents):
    """The derivative of k log(rate) - rate - log k! in the rate is k / rate - 1.

    For k = 0 it is -1, also at rate 0, where the derivative of k log(rate) is 0 / 0.
    """
    (count, rate), (_, tangent) = primals, tangents
    slope = jnp.where(count > 0, count.astype(rate.dtype) / rate, 0.0) - 1
    return _log_probability(count, rate), slope * tangent


@jax.custom_jvp
def cumulative_probability(count: jax.Array, rate: jax.Array) -> jax.Array:
    """P(Z <= count), elementwise, for rate >= 0: the probability that gamma noise exceeds rate."""
    k = jnp.maximum(count, 0).astype(rate.dtype)
    return jnp.where(count < 0, 0.0, gammaincc(k + 1, rate))


@cumulative_probability.defjvp
def _cumulative_probability_jvp(primals, tangents):
    """The derivative of P(Z = k) in the rate is P(Z = k - 1) - P(Z = k): their sum telescopes."""
    (count, rate), (_, tangent) = primals, tangents
    slope = jnp.where(count < 0, 0.0, -jnp.exp(_log_probability(jnp.maximum(count, 0), rate)))
    return cumulative_probability(count, rate), slope * tangent


#: The remainder of Stirling's formula below is exact in float64 for counts of at least 16.
MANY_COUNTS = 16
# At a smaller rate, 16 or more counts have the probability 0 in float64.
_TINY_RATE = 1e-30


def log_relative_to_stirling(k: jax.Array, rate: jax.Array) -> jax.Array:
    """log(P(Z = k) sqrt(2 pi k)) for k >= 16, where log(rate^k exp(-rate) / k!) would cancel.

    With x = (k - rate) / rate it is -rate ((1 + x) log(1 + x) - x) minus the remainder of
    Stirling's formula, log(k! / (sqrt(2 pi k) k^k exp(-k))) (Loader, Fast and accurate computation
    of binomial probabilities, 2000).
    """
    rate = jnp.maximum(rate, _TINY_RATE)
    x = (k - rate) / rate
    inverse = 1 / jnp.square(k)
    series = 1 / 1260 - inverse * (1 / 1680 - inverse / 1188)
    remainder = (1 / 12 - inverse * (1 / 360 - inverse * series)) / k
    return -rate * ((1 + x) * jnp.log1p(x) - x) - remainder


def count_bound(rate: Any, sqrt: Any = jnp.sqrt) -> Any:
    """A count that a Poisson variable Y exceeds with probability less than exp(-40) = 4e-18.

    It is rate + x for the x at which Bernstein's inequality,
    P(Y >= rate + x) <= exp(-x^2 / (2 (rate + x / 3))), gives exp(-40).
    """
    return rate + _TAIL / 3 + sqrt(_TAIL**2 / 9 + 2 * _TAIL * rate)


def _sufficient_count(rate: Any) -> int | None:
    """The smallest power of two above `count_bound` of the rates; None if there is no such rate.

    Rates whose bound exceeds 4096 are left out.
    """
    # Masked rows may hold anything, so that invalid rates are left out too.
    rates = np.asarray(rate, dtype=float)
    rates = rates[np.isfinite(rates) & (rates >= 0)]
    bounds = count_bound(rates, np.sqrt)
    bounds = bounds[bounds <= _LARGEST_AUTOMATIC]
    return 2 ** math.ceil(math.log2(bounds.max())) if bounds.size else None
