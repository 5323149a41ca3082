"""Poisson predictions of counts."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy import stats

from calibjax._check import check_integer
from calibjax._struct import is_array, is_traced, static, struct
from calibjax.distributions._base import Distribution

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
            If it is not given and rates are concrete (outside of jit), it is the power of two
            beyond which the largest finite rate has probability less than 4e-18 (rates up to some
            3500).  A rate with more than that beyond max_count gives NaN, never a truncated sum.

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

    def __post_init__(self) -> None:
        if self.max_count is not None:
            check_integer("max_count", self.max_count, 1)
        elif is_array(self.rate) and not is_traced(self.rate):
            object.__setattr__(self, "max_count", _sufficient_count(self.rate))

    def constraints(self) -> dict[str, tuple[str, jax.Array]]:
        return {"rate": ("nonnegative and finite", (self.rate >= 0) & jnp.isfinite(self.rate))}

    def supports(self, targets: jax.Array) -> tuple[str, jax.Array]:
        return "counts 0, 1, …", targets >= 0

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
        """The log probability of targets ``[n]``, ``[n]``."""
        return stats.poisson.logpmf(targets.astype(self.rate.dtype), self.rate)


def count_bound(rate: Any, sqrt: Any = jnp.sqrt) -> Any:
    """A count that a Poisson variable exceeds with probability less than exp(-40) = 4e-18.

    By Bernstein's inequality: P(Y >= rate + x) <= exp(-x^2 / (2 (rate + x / 3))).
    """
    return rate + _TAIL / 3 + sqrt(_TAIL**2 / 9 + 2 * _TAIL * rate)


def _sufficient_count(rate: Any) -> int | None:
    """The smallest power of two above the bound; None if there is none or it is too large."""
    # Masked rows may hold anything; what no row may hold is reported by the checks.
    rates = np.asarray(rate, dtype=float)
    rates = rates[np.isfinite(rates) & (rates >= 0)]
    bound = count_bound(rates.max(initial=0.0), np.sqrt)
    return 2 ** math.ceil(math.log2(bound)) if bound <= _LARGEST_AUTOMATIC else None
