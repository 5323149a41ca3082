"""The empirical cumulative calibration errors."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import ndtr
from jax.typing import ArrayLike

from calibjax._compile import quick_jit
from calibjax._distribution import Distribution
from calibjax._rows import Data, padded
from calibjax._sharding import gathered
from calibjax.estimators._cumulative import cumulative_residuals
from calibjax.estimators._top_label import check_binary

# Both series of a law have converged after so many terms, one below the place and one above.
_TERMS = 8
_SWITCH_OF_MAXIMUM, _SWITCH_OF_RANGE = 1.5, 2.0


class CumulativeErrors(NamedTuple):
    """Errors of cumulative sums, in probability, and what chance makes of them; see `ecce`.

    Args:
        mad: the largest absolute sum, ECCE-MAD.
        range: the largest minus the smallest sum, ECCE-R; Kuiper's statistic.
        sigma: the standard deviation of the sum of all rows, if the model is calibrated.
        mad_pvalue: of mad / sigma, by the law of the largest |B| of a Brownian motion.
        range_pvalue: of range / sigma, by the law of the range of B.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Bernoulli(jnp.array([0.25, 0.5, 0.75]))
        >>> found = cj.ecce(predictions, jnp.array([0, 1, 1]))
        >>> round(float(found.mad), 3), round(float(found.range), 3)
        (0.167, 0.25)
    """

    mad: jax.Array
    range: jax.Array
    sigma: jax.Array
    mad_pvalue: jax.Array
    range_pvalue: jax.Array


def ecce(
    predictions: Distribution,
    targets: ArrayLike,
    *,
    where: ArrayLike | None = None,
    weights: ArrayLike | None = None,
) -> CumulativeErrors:
    """Cumulative calibration errors: without bins, bandwidths or kernels.

    .. math::
        C_k = \\frac{1}{n} \\sum_{i \\le k} (y_i - p_i), \\quad
        \\text{ECCE-MAD} = \\max_k |C_k|, \\quad
        \\text{ECCE-R} = \\max_{k} C_k - \\min_{k} C_k, \\quad
        \\sigma^2 = \\frac{1}{n^2} \\sum_i p_i (1 - p_i),

    where rows are ordered by p, and k goes from 0, C_0 = 0, over the last rows of equal
    probabilities, since the order of equal ones means nothing.  ECCE-R is the largest error of any
    interval of probabilities, as a share of all rows.

    Of a calibrated model C is nearly a Brownian motion in time C's variance, so that errors over
    sigma have known laws, whose means are (pi / 2)^(1/2) = 1.25 and 2 (2 / pi)^(1/2) = 1.60.  The
    p-values are those of the limit, and too large where few different probabilities occur; exact
    ones at every n are those of `consistency_test` with a function that returns one of the errors.
    The verdict is that of `calibration_test`, which sees more than intervals of p.

    Args:
        predictions: n >= 2 Bernoulli predictions, such as `top_label` or `one_vs_rest` make.
        targets: booleans or integers 0 and 1, ``[n]``.
        where: boolean mask ``[n]``; masked rows may hold anything.
        weights: how much each row counts, nonnegative numbers ``[n]`` that are known before the
            targets: in sums and, squared, in sigma.

    Returns:
        CumulativeErrors, each a scalar; p-values of 0 where an impossible event happened and no
        probability lies between 0 and 1.  Inside jit all are NaN if a kept row is invalid.
        O(n log n).

    Raises:
        TypeError, ValueError: an argument of the wrong type, shape or, where it is concrete, value.

    See also:
        `atb`, which averages over places instead of taking the largest; `smooth_ece`.

    Example:
        >>> import jax, jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Bernoulli(jnp.linspace(0.05, 0.95, 400))
        >>> targets = predictions.sample(jax.random.key(0))
        >>> too_low = cj.Bernoulli(predictions.probs / 2)
        >>> for model in (predictions, too_low):
        ...     found = cj.ecce(model, targets)
        ...     print(round(float(found.range), 2), bool(found.range_pvalue < 0.01))
        0.03 False
        0.26 True

    Reference: Arrieta-Ibarra, Gujral, Tannen, Tygert and Xu, Metrics of calibration for
    probabilistic predictions, Journal of Machine Learning Research 2022; Feller, The asymptotic
    distribution of the range of sums of independent random variables, Annals of Mathematical
    Statistics 1951, for the law of the range.
    """
    return _ecce(*gathered((padded(check_binary(predictions, targets, where, weights)),)))


@quick_jit
def _ecce(data: Data) -> CumulativeErrors:
    found = cumulative_residuals(data)
    # Sums inside of rows of equal probabilities do not count, as C_0 = 0 does.
    sums = jnp.where(found.is_last, found.sums, 0.0)
    bad = jnp.where(jnp.isnan(found.variance), jnp.nan, 0.0)
    highest = jnp.maximum(jnp.max(sums), 0.0) + bad
    lowest = jnp.minimum(jnp.min(sums), 0.0) + bad
    mad, width = jnp.maximum(highest, -lowest), highest - lowest
    sigma = jnp.sqrt(found.variance)
    is_certain = sigma == 0

    def in_sigmas(error: jax.Array) -> jax.Array:
        without = jnp.where(error > 0, jnp.inf, 0.0)
        return jnp.where(is_certain, without, error / jnp.where(is_certain, 1.0, sigma))

    return CumulativeErrors(
        mad,
        width,
        sigma,
        tail_of_maximum(in_sigmas(mad)),
        tail_of_range(in_sigmas(width)),
    )


def tail_of_maximum(x: jax.Array) -> jax.Array:
    """P(max |B(t)| > x) of a Brownian motion on [0, 1]."""
    small, large = _parts(x, _SWITCH_OF_MAXIMUM)
    below, above = jnp.zeros_like(x), jnp.zeros_like(x)
    for k in range(_TERMS):
        odd, sign = 2 * k + 1, (-1) ** k
        below += sign * 4 / math.pi / odd * jnp.exp(-((odd * math.pi / small) ** 2) / 8)
        above += sign * 4 * ndtr(-odd * large)
    return _tail(x, below, above, _SWITCH_OF_MAXIMUM)


def tail_of_range(x: jax.Array) -> jax.Array:
    """P(max B(t) - min B(t) > x) of a Brownian motion on [0, 1]."""
    small, large = _parts(x, _SWITCH_OF_RANGE)
    below, above = jnp.zeros_like(x), jnp.zeros_like(x)
    for k in range(_TERMS):
        half, sign = (k + 0.5) * math.pi, (-1) ** k
        below += (8 / small**2 + 2 / half**2) * jnp.exp(-2 * (half / small) ** 2)
        above += sign * 8 * (k + 1) * ndtr(-(k + 1) * large)
    return _tail(x, below, above, _SWITCH_OF_RANGE)


def _parts(x: jax.Array, switch: float) -> tuple[jax.Array, jax.Array]:
    """x for the series that converges below the switch, and for the one above."""
    return jnp.clip(x, 0.05, switch), jnp.maximum(x, switch)


def _tail(x: jax.Array, cdf_below: jax.Array, tail_above: jax.Array, switch: float) -> jax.Array:
    tail = jnp.where(x < switch, 1 - cdf_below, tail_above)
    return jnp.where(jnp.isnan(x), jnp.nan, jnp.clip(tail, 0.0, 1.0))
