"""What a forecast says about a target."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from calibjax._between import Targets, unit_interval
from calibjax._distribution import Distribution
from calibjax._rows import Data, first_rows, padded
from calibjax._struct import PyTree
from calibjax.scores._rows import check_numbers, score_rows


class PITInterval(NamedTuple):
    """The interval of the unit line that U = F(y) is in, for each row."""

    low: jax.Array
    high: jax.Array


def pit_interval(predictions: Distribution, targets: Targets) -> PITInterval:
    """Where U = F_i(y_i) lies, which is all that a forecast says about its target.

    If the forecasts are right, U is uniform in [0, 1], and uniform in this interval given it.

    - A density: both ends are F(y).
    - Counts and ordered classes: from F(y-) to F(y).
    - `Quantiles`: the two levels that y lies between.  Where y is equal to quantiles, the cdf
      jumps, and it is not known how far: the ends are in the middle of where they may be.
    - `SurvivalCurve`: the values of F at the two times that y lies between, and after the last time
      all above F there.
    - `Empirical` without weights: from (r - 1) / (S + 1) to r / (S + 1) for the rank r of the
      target among the S samples and itself, and the union of these intervals for ties.
    - `Between`, where low < y <= high is known: from F(low) to F(high).

    `PITKernel` is made of it.

    Args:
        predictions: n >= 1 predictions of numbers.
        targets: the observed targets, ``[n]``, or `Between` where they are censored or binned.

    Returns:
        PITInterval(low, high), each ``[n]``.  Inside jit an invalid row is NaN.

    Raises:
        TypeError: predictions of vectors, or without a `cdf`; another wrong type.
        ValueError: an argument of the wrong shape or, where it is concrete, value.

    See also:
        `pit`, a point in it; `PITKernel`.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> low, high = cj.pit_interval(cj.Bernoulli(jnp.array([0.75, 0.75])), jnp.array([0, 1]))
        >>> low.tolist(), high.tolist()
        ([0.0, 0.25], [0.25, 1.0])

    Reference: Czado, Gneiting and Held, Predictive model assessment for count data, Biometrics
    2009.
    """
    data = check_numbers(predictions, targets, intervals=True)
    return first_rows(pit_interval_of_data(padded(data)), data.n)


def pit_interval_of_data(data: Data) -> PITInterval:
    """`pit_interval` of checked data; masked rows hold any number or NaN."""
    return score_rows(None, (data,), _interval)


def _interval(predictions: Distribution, targets: PyTree) -> PITInterval:
    place = unit_interval(*predictions.pool_target(targets))
    return PITInterval(place.low, place.high)


def mass_below(place: PITInterval, z: jax.Array) -> jax.Array:
    """The cdf of U given where it lies, at points z of the unit line ``[g]``: ``[n, g]``.

    It is (z - low) / (high - low) in the interval, and a step where both ends are equal.  As no U
    is below 0, it is 0 at z = 0.
    """
    low, high, z = place.low[:, None], place.high[:, None], z[None]
    is_point = low == high
    share = jnp.clip((z - low) / jnp.where(is_point, 1.0, high - low), 0.0, 1.0)
    return jnp.where(z > 0, jnp.where(is_point, (low <= z).astype(share.dtype), share), 0.0)
