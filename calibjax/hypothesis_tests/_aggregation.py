r"""One p-value from the statistics of several kernels and their draws under H0.

The statistics of one kernel, T^0 of the observed targets and T^1, …, T^B of targets drawn from the
predictions, are exchangeable if the model is calibrated, and so are the vectors of all kernels.
They remain so if each kernel's numbers are transformed by a function that does not depend on their
order.  The transformation here brings all kernels to one scale: with the mean, the standard
deviation and the skewness g of the B + 1 numbers, X = (T - mean) / deviation is nearly a shifted
gamma variable, and

    z = (6 / g) ((1 + g X / 2)^(1/3) - 1) + g / 6

is nearly standard normal (Wilson and Hilferty, The distribution of chi-square, 1931).  Wide kernels
have few large eigenvalues and a skew law under H0, narrow ones have a nearly normal law: the
maximum of X would be one of wide kernels, the maximum of z is fair.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from calibjax.intervals._counting import counted_pvalue, rounding_of

# The law of a kernel with one eigenvalue, chi-squared with one degree of freedom, has 2.8.  Rare
# events have more, and z would be large for all draws: no other kernel could decide.
_LEAST_SKEWNESS, _LARGEST_SKEWNESS = 0.05, 2.83
# The cube root has an infinite slope at 0, far below all that decides.
_LEAST_RATIO = 0.01


class Aggregate(NamedTuple):
    """The p-value of the largest z, and what it is made of.

    Args:
        statistic: the largest z of the observed targets.
        pvalue: its rank among the draws.
        draws: the largest z of each draw, ``[B]``.
        scores: z of the observed targets for each kernel, ``[K]``.
        pvalues: the p-value that each kernel would have alone, ``[K]``.
    """

    statistic: jax.Array
    pvalue: jax.Array
    draws: jax.Array
    scores: jax.Array
    pvalues: jax.Array


def aggregate(values: jax.Array) -> Aggregate:
    """The aggregate of statistics ``[K, 1 + B]``, the observed ones first.

    Statistics that differ by rounding errors only are equal: where events are rare, many draws are
    the same data.  The errors are proportional to the largest statistic, which is a sum of squares.
    """
    rounding = rounding_of(values)[:, None]
    mean = jnp.mean(values, axis=1, keepdims=True)
    deviation = jnp.sqrt(jnp.mean(jnp.square(values - mean), axis=1, keepdims=True))
    # A kernel whose numbers differ by little more than rounding errors says nothing.
    constant = deviation <= 2 * rounding
    safe = jnp.where(constant, 1.0, deviation)
    standardised = jnp.where(constant, 0.0, values - mean) / safe
    skewness = jnp.mean(standardised**3, axis=1, keepdims=True)
    skewness = jnp.clip(skewness, _LEAST_SKEWNESS, _LARGEST_SKEWNESS)

    def score(x: jax.Array) -> jax.Array:
        shift = jnp.maximum(skewness * x / 2, _LEAST_RATIO - 1)
        root = jnp.cbrt(1 + shift)
        # (1 + s)^(1/3) - 1 = s / (r^2 + r + 1) keeps the digits of a small s.
        z = 6 / skewness * (shift / (jnp.square(root) + root + 1)) + skewness / 6
        # If all kernels say nothing, all draws are equal.
        return jnp.where(constant, jnp.where(jnp.all(constant), 0.0, -jnp.inf), z)

    scores = score(standardised)
    largest = jnp.max(scores, axis=0)
    # Data that are equal up to rounding have a z not less than this for the same kernel.
    least = score(standardised[:, :1] - rounding / safe)[jnp.argmax(scores[:, 0]), 0]
    return Aggregate(
        statistic=largest[0],
        pvalue=counted_pvalue(least, largest[1:]),
        draws=largest[1:],
        scores=scores[:, 0],
        pvalues=jax.vmap(counted_pvalue)(values[:, 0] - rounding[:, 0], values[:, 1:]),
    )
