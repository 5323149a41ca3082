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

Null distributions and distributions of errors are pytrees with a method ``quantile(level)``.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp

from calibjax._base.struct import struct
from calibjax.resampling import normal_quantile, upper_quantile


class ConfidenceInterval(NamedTuple):
    """The lower and the upper bound of a confidence interval."""

    low: jax.Array
    high: jax.Array


#: The interval of each level of confidence.
IntervalOf = Callable[[jax.Array], ConfidenceInterval]


class HasQuantiles(Protocol):
    """The distribution of a number."""

    def quantile(self, level: jax.Array) -> jax.Array:
        """The smallest number that is not exceeded with the probability `level`."""
        ...


@struct
class NormInterval:
    """The interval of the triangle inequality around the biased estimate |w_n|^2.

    Args:
        biased: |w_n|^2.
        errors: the distribution of |delta|^2.
        null: that of |w_n|^2 if w is 0, beyond which alone the interval is above 0; or None.
    """

    biased: jax.Array
    errors: HasQuantiles
    null: HasQuantiles | None = None

    def __call__(self, level: jax.Array) -> ConfidenceInterval:
        low, high = norm_interval(jnp.asarray(self.biased), self.errors.quantile(level))
        if self.null is not None:
            low = jnp.where(self.biased <= self.null.quantile(level), 0.0, low)
        return ConfidenceInterval(low, high)


def norm_interval(biased: jax.Array, squared_radius: jax.Array) -> ConfidenceInterval:
    """[max(0, |w_n| - r)^2, (|w_n| + r)^2] from |w_n|^2 and r^2."""
    norm, radius = (jnp.sqrt(jnp.maximum(x, 0.0)) for x in (biased, squared_radius))
    # A number that is larger by rounding alone is not above 0.
    low = jnp.where(biased > squared_radius, jnp.square(norm - radius), 0.0)
    low = jnp.where(jnp.isnan(norm + radius), jnp.nan, low)
    return ConfidenceInterval(low, jnp.square(norm + radius))


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


@struct
class DrawnErrors:
    """The distribution of R draws, ``[..., R]``."""

    draws: jax.Array

    def quantile(self, level: jax.Array) -> jax.Array:
        """The draw of rank ceil(level (R + 1)): at most R + 1 times 1 - level draws exceed it.

        So a number exceeds the quantile exactly if its `counted_pvalue` is at most 1 - level.
        Above the level R / (R + 1), which draws do not reach, the largest draw grows as the squared
        normal quantiles do.  A sum of several squares with weights grows less.
        """
        draws = jnp.asarray(self.draws)
        found, beyond = upper_quantile(draws, level)
        return found * jnp.square(jnp.maximum(beyond, 1.0))
