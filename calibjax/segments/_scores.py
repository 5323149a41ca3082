r"""Sums over rows of a segment on a scale on which they are nearly standard normal under H0.

With the mean 0, the variance V and the third moment M of a sum, Z = S / sqrt(V) has the skewness
g = M / V^{3/2}.  A gamma variable of this skewness, to the power 1/3, is nearly normal:

    score = 6 / g ((1 + g Z / 2)^{1/3} - 1) + g / 6,

which tends to Z as g tends to 0.  Large g are cut off: sums of few rare events are no gamma
variables, and a strong transformation would hide large sums.

Reference: Wilson and Hilferty, The distribution of chi-square, PNAS 1931.
"""

import jax
import jax.numpy as jnp
import numpy as np

_MOST_SKEW = 0.5
_LEAST_SKEW = 1e-6


def scores_of(z: jax.Array, skewness: jax.Array) -> jax.Array:
    """The scores of sums z in units of their deviations."""
    g = jnp.clip(skewness, -_MOST_SKEW, _MOST_SKEW)
    is_skew = jnp.abs(g) > _LEAST_SKEW
    g = jnp.where(is_skew, g, 1.0)
    x = g * z / 2
    # Near 0 the difference of a root and 1 would lose its digits.
    of_small = jnp.expm1(jnp.log1p(jnp.maximum(x, -0.5)) / 3)
    change = jnp.where(x > -0.5, of_small, jnp.cbrt(1 + x) - 1)
    return jnp.where(is_skew, 6 / g * change + g / 6, z)


def sums_at(score: float, skewness: np.ndarray) -> np.ndarray:
    """The sums in units of their deviations that have a score."""
    g = np.clip(skewness, -_MOST_SKEW, _MOST_SKEW)
    is_skew = np.abs(g) > _LEAST_SKEW
    g = np.where(is_skew, g, 1.0)
    return np.where(is_skew, 2 / g * ((1 + g * (score - g / 6) / 6) ** 3 - 1), score)
