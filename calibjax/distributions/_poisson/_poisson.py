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
from calibjax._numerics import safe_sqrt
from calibjax._struct import is_array, is_traced, static, struct, widened
from calibjax._waves import wave
from calibjax.kernels import EmbeddingDistance

#: -log of the probability that a series over 0 … max_count may leave out: 4e-18.
_TAIL = 40.0
# The matrix of a kernel at all counts is held in memory.
_LARGEST_AUTOMATIC = 2**12


@struct
class Poisson(Distribution):
    """Poisson predictions of counts: P(Y = k) = rate^k exp(-rate) / k!.

    Args:
        rate: means ``[n]``, nonnegative.
        max_count: expectations of kernels other than WhiteKernel are sums over 0 … max_count.
            If it is not given and rates are concrete (outside of jit), it is the power of two, at
            most 4096, beyond which they have probability less than 4e-18.  A rate with more than
            that beyond max_count (at 4096 some 3500) gives NaN, never a truncated sum.  It is part
            of the structure: give it to stack batches, or to carry one through a scan.

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
        # They are computed with as int32.
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
        """The log probability of targets ``[n]``, ``[n]``."""
        return _log_probability(targets, widened(self.rate))

    def default_distance(self) -> EmbeddingDistance:
        return EmbeddingDistance(_root_of_rate)

    def characteristic(self, v: jax.Array) -> jax.Array:
        # exp(rate (exp(i v) - 1)), with cos v - 1 as it keeps its digits.
        amplitude = jnp.exp(-2 * self.rate * jnp.square(jnp.sin(v / 2)))
        return wave(self.rate * jnp.sin(v), amplitude)


def _root_of_rate(p: Poisson) -> jax.Array:
    # The variance of the root of a Poisson variable hardly depends on its rate.
    return safe_sqrt(p.rate)


@jax.custom_jvp
def _log_probability(count: jax.Array, rate: jax.Array) -> jax.Array:
    k = count.astype(rate.dtype)
    few = special.xlogy(k, rate) - rate - special.gammaln(k + 1)
    large = jnp.maximum(k, MANY_COUNTS)
    many = log_relative_to_stirling(large, rate) - jnp.log(2 * jnp.pi * large) / 2
    return jnp.where((k < MANY_COUNTS) | (rate < _NO_RATE), few, many)


@_log_probability.defjvp
def _log_probability_jvp(primals, tangents):
    # That of the logarithm of the rate has no limit at count 0 and rate 0.
    (count, rate), (_, tangent) = primals, tangents
    slope = jnp.where(count > 0, count.astype(rate.dtype) / rate, 0.0) - 1
    return _log_probability(count, rate), slope * tangent


#: From here on the remainder of Stirling's formula below is exact in float64.
MANY_COUNTS = 16
# With less, so many counts have probability 0.
_NO_RATE = 1e-30


def log_relative_to_stirling(k: jax.Array, rate: jax.Array) -> jax.Array:
    """log(P(Z = k) sqrt(2 pi k)) for k >= 16, where log(rate^k exp(-rate) / k!) would cancel.

    With x = (k - rate) / rate it is -rate ((1 + x) log(1 + x) - x), less log k! relative to
    Stirling's formula (Loader, Fast and accurate computation of binomial probabilities, 2000).
    """
    rate = jnp.maximum(rate, _NO_RATE)
    x = (k - rate) / rate
    inverse = 1 / jnp.square(k)
    series = 1 / 1260 - inverse * (1 / 1680 - inverse / 1188)
    remainder = (1 / 12 - inverse * (1 / 360 - inverse * series)) / k
    return -rate * ((1 + x) * jnp.log1p(x) - x) - remainder


def count_bound(rate: Any, sqrt: Any = jnp.sqrt) -> Any:
    """A count that a Poisson variable exceeds with probability less than exp(-40) = 4e-18.

    By Bernstein's inequality: P(Y >= rate + x) <= exp(-x^2 / (2 (rate + x / 3))).
    """
    return rate + _TAIL / 3 + sqrt(_TAIL**2 / 9 + 2 * _TAIL * rate)


def _sufficient_count(rate: Any) -> int | None:
    """The smallest power of two above the bound of all rates for which it is not too large."""
    # Masked rows may hold anything; what no row may hold is reported by the checks.
    rates = np.asarray(rate, dtype=float)
    rates = rates[np.isfinite(rates) & (rates >= 0)]
    bounds = count_bound(rates, np.sqrt)
    bounds = bounds[bounds <= _LARGEST_AUTOMATIC]
    return 2 ** math.ceil(math.log2(bounds.max())) if bounds.size else None
