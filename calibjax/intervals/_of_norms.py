r"""Intervals for a squared norm that hold for every size of it, 0 included.

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
"""

from typing import Any

import jax
import jax.numpy as jnp

from calibjax._struct import struct
from calibjax.intervals._confidence_interval import ConfidenceInterval
from calibjax.resampling import normal_quantile


@struct
class NormInterval:
    """The interval of the triangle inequality around the biased estimate |w_n|^2.

    Args:
        biased: |w_n|^2.
        errors: the law of |delta|^2, which has a method ``quantile(level)``.
    """

    biased: jax.Array
    errors: Any

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
class MeanInterval:
    """estimate ± z standard_error for a mean of independent estimates, cut off below 0."""

    estimate: jax.Array
    standard_error: jax.Array

    def __call__(self, level: jax.Array) -> ConfidenceInterval:
        error = normal_quantile(level) * jnp.asarray(self.standard_error)
        return ConfidenceInterval(
            jnp.maximum(self.estimate - error, 0.0), jnp.maximum(self.estimate + error, 0.0)
        )
