"""Intervals for a squared norm that hold for every size of it, 0 included.

The SKCE is |w|^2 for the mean w = E xi of a random function xi = k((p, Y), .) - E k((p, Z), .),
Z ~ p, and the biased estimate is |w_n|^2 for the mean w_n of n such functions.  With the error
delta = w_n - w the triangle inequality says

    | |w_n| - |w| | <= |delta|,

so that [max(0, |w_n| - r)^2, (|w_n| + r)^2] contains |w|^2 with a probability of at least 1 - a, if
r^2 is the (1 - a)-quantile of |delta|^2 (`NormInterval`).  If w = 0, this is the test that compares
|w_n|^2 with r^2.  A normal interval is too short there: |w_n|^2 is not nearly normal.

**The upper end alone holds with a probability of 1 - a/2.**  Let u = w / |w|, which is a fixed
direction.  Then |w| = <u, w_n> - <u, delta> <= |w_n| - <u, delta>.  In the limit <u, delta> is
normal with the mean 0, so that P(-<u, delta> > r) = P(|<u, delta>| > r) / 2 <= a / 2.

**Kernels with values in [0, K] are bounded, and their intervals hold for every n**, too
(`BoundedNormInterval`): |xi|^2 = h_ii <= 2 K.  Let c = sqrt(2 K / n) and a = 1 - level.

Below: another xi_i changes |delta| by 2 c / sqrt(n) at most, and E |delta| <= (E |delta|^2)^(1/2)
<= c.  By the inequality of bounded differences (McDiarmid 1989)

    P(|delta| >= c (1 + sqrt(2 log(2/a)))) <= a / 2,    and    |w| >= |w_n| - |delta|.

Above: |w| <= |w_n| - <u, delta> for the fixed direction u = w / |w|, and <u, xi_i> is in the
interval of length 2 sqrt(2 K) around 0.  By Hoeffding's inequality (1963)

    P(-<u, delta> >= c sqrt(2 log(2/a))) <= a / 2.

An unbiased estimate is a mean over pairs with |h| <= 2 K, of which M are independent at a time, and
Hoeffding's inequality says P(|SKCE_u - SKCE| >= 2 K sqrt(2 log(2/a) / M)) <= a.  No SKCE exceeds
2 K.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp

from calibjax._struct import struct
from calibjax.resampling import normal_quantile


class ConfidenceInterval(NamedTuple):
    """The lower and the upper bound of a confidence interval."""

    low: jax.Array
    high: jax.Array


#: The interval of each level of confidence.
IntervalOf = Callable[[jax.Array], ConfidenceInterval]


class HasQuantiles(Protocol):
    """The law of a number."""

    def quantile(self, level: jax.Array) -> jax.Array:
        """The smallest number that is not exceeded with the probability `level`."""
        ...


@struct
class NormInterval:
    """The interval of the triangle inequality around the biased estimate |w_n|^2.

    Args:
        biased: |w_n|^2.
        errors: the law of |delta|^2, which has a method ``quantile(level)``.
    """

    biased: jax.Array
    errors: HasQuantiles

    def __call__(self, level: jax.Array) -> ConfidenceInterval:
        return norm_interval(jnp.asarray(self.biased), self.errors.quantile(level))


def norm_interval(biased: jax.Array, squared_radius: jax.Array) -> ConfidenceInterval:
    """[max(0, |w_n| - r)^2, (|w_n| + r)^2] from |w_n|^2 and r^2."""
    norm, radius = (jnp.sqrt(jnp.maximum(x, 0.0)) for x in (biased, squared_radius))
    # A number that is larger by rounding alone is not above 0.
    low = jnp.where(biased > squared_radius, jnp.square(norm - radius), 0.0)
    low = jnp.where(jnp.isnan(norm + radius), jnp.nan, low)
    return ConfidenceInterval(low, jnp.square(norm + radius))


@struct
class NormIntervalWithNull:
    """The interval of the triangle inequality, above 0 only if a test rejects w = 0.

    Args:
        biased: |w_n|^2.
        errors: the law of |delta|^2, which has a method ``quantile(level)``.
        null: the law of |w_n|^2 if w is 0.
    """

    biased: jax.Array
    errors: HasQuantiles
    null: HasQuantiles

    def __call__(self, level: jax.Array) -> ConfidenceInterval:
        low, high = norm_interval(jnp.asarray(self.biased), self.errors.quantile(level))
        is_zero = self.biased <= self.null.quantile(level)
        return ConfidenceInterval(jnp.where(is_zero, 0.0, low), high)


def with_score_end(
    interval: ConfidenceInterval,
    unbiased: jax.Array,
    largest: jax.Array,
    variance: jax.Array,
    z: jax.Array,
) -> ConfidenceInterval:
    """The interval with the upper end of the score interval, if that is smaller.

    `largest` is the largest variance c / n of a projection of delta, `variance` that of the
    unbiased estimate if w is 0, and P(|Z| <= z) is the level.
    """
    low, high = interval
    estimate, shift = jnp.maximum(unbiased, 0.0), 2 * jnp.square(z) * largest
    root = jnp.sqrt(4 * largest * estimate + 2 * largest * shift + variance)
    high = jnp.minimum(high, estimate + shift + z * root)
    # At small levels the second bound may be the smaller one of all three.
    return ConfidenceInterval(jnp.minimum(low, high), high)


@struct
class MeanInterval:
    """estimate ± z standard_error for a mean of independent estimates, cut off below 0."""

    estimate: jax.Array
    standard_error: jax.Array

    def __call__(self, level: jax.Array) -> ConfidenceInterval:
        error = normal_quantile(level) * jnp.asarray(self.standard_error)
        return ConfidenceInterval(
            jnp.maximum(self.estimate - error, 0.0), jnp.maximum(self.estimate + error, 0.0)
        )


@struct
class BoundedNormInterval:
    """The interval around the biased estimate of n samples."""

    biased: jax.Array
    kernel_bound: jax.Array
    n: jax.Array

    def __call__(self, level: jax.Array) -> ConfidenceInterval:
        largest = 2 * jnp.asarray(self.kernel_bound)
        norm, c = (jnp.sqrt(jnp.maximum(x, 0.0)) for x in (self.biased, largest / self.n))
        deviation = jnp.sqrt(2 * jnp.log(2 / (1 - level)))
        low = jnp.square(jnp.maximum(norm - c * (1 + deviation), 0.0))
        return ConfidenceInterval(low, jnp.minimum(jnp.square(norm + c * deviation), largest))


@struct
class BoundedMeanInterval:
    """The interval around the unbiased estimate of M independent pairs at a time."""

    unbiased: jax.Array
    kernel_bound: jax.Array
    n_pairs: jax.Array

    def __call__(self, level: jax.Array) -> ConfidenceInterval:
        largest = 2 * jnp.asarray(self.kernel_bound)
        error = largest * jnp.sqrt(2 * jnp.log(2 / (1 - level)) / self.n_pairs)
        ends = self.unbiased - error, self.unbiased + error
        return ConfidenceInterval(*(jnp.clip(end, 0.0, largest) for end in ends))
