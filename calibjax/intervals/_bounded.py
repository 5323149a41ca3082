r"""Intervals that hold for every n, because kernels with values in [0, K] are bounded.

With the notation of `_of_norms`, |xi|^2 = h_ii <= 2 K.  Let c = sqrt(2 K / n) and a = 1 - level.

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

import jax
import jax.numpy as jnp

from calibjax._struct import struct
from calibjax.intervals._confidence_interval import ConfidenceInterval


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
