r"""The log score and the continuous ranked probability score.

For labels and counts the CRPS is sum_k (F(k) - 1{y <= k})^2.  For real numbers without a closed
form it comes from the cdf alone.  With any location m it is the sum of three integrals, each of a
function that decreases smoothly from m to the end of the interval:

.. math::
    \int_{-\infty}^m F^2 + \int_m^\infty (1 - F)^2 + \int_m^y (2 F - 1).

A point at the share s of the way from m to m + g is x = m + g s.  With a scale c, the points of the
double exponential rule are evenly spaced in t, where

.. math::
    s = E / (a + b E), \quad E = \exp(\tfrac{\pi}{2} \sinh t).

For a half-line g is c, a = 1 and b = 0; for an interval of length L to the end of the support g is
c, a = 1 and b = c / L, and s goes from 0 to L / c; for the interval to y, g is y - m, b = 1 and
a = 1 + |g| / c.  Points are dense near both ends, where F may be singular, and at the distance c
from m.
"""

from collections.abc import Callable
from typing import TypeVar, Unpack

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike

from calibjax._base.compile import first_rows
from calibjax._base.sharding import Axis, as_varying, row_by_row_on_devices
from calibjax._base.struct import PyTree, struct
from calibjax._data.capabilities import ClosedFormCRPS
from calibjax._data.data import Data, DataOptions, as_data, clean
from calibjax._data.distribution import CountLike, Distribution, Labels
from calibjax._data.interval_censored import IntervalCensored, Targets, known_point, unit_interval
from calibjax._data.padding import padded


def numbers_as_data(
    predictions: Distribution | Data, targets: Targets | None, **options: Unpack[DataOptions]
) -> Data:
    """`as_data` of n >= 1 rows, which must be of single labels, counts or numbers."""
    data = as_data(predictions, targets, at_least=1, **options)
    if data.predictions.target_shape != "n":
        raise TypeError(
            "predictions must be of labels, counts or real numbers, got "
            f"{type(data.predictions).__name__} predictions of vectors."
        )
    return data


T = TypeVar("T")


@row_by_row_on_devices
def score_rows(axis: Axis, _: None, rows: tuple[Data, ...], function: Callable[..., T]) -> T:
    """function(predictions, targets, …) of all rows in one floating dtype; NaN for invalid rows.

    `rows` holds `Data` and what else the function takes of each row.  The function gives ``[n]``,
    or a tree of such arrays.
    """
    data, *others = rows
    scores = function(*clean(data, axis).samples, *others)
    valid = data.valid()
    return scores if valid is None else jax.tree.map(lambda x: jnp.where(valid, x, jnp.nan), scores)


def without_masked(scores: T, data: Data) -> T:
    """The scores of the rows of `data`, of which what fills them up is cut; masked ones are NaN."""
    scores = first_rows(scores, data.n)
    if data.where is None:
        return scores
    return jax.tree.map(lambda x: jnp.where(jnp.asarray(data.where), x, jnp.nan), scores)


def log_score(predictions: Distribution | Data, targets: Targets | None = None) -> jax.Array:
    """The log score of each row, -log p_i(y_i), in nats: smaller is better.

    p_i is the density of prediction i, or the probabilities of labels and counts.  The mean over
    the rows is the negative log likelihood.  For an interval-censored target it is
    -log(F_i(high) - F_i(low)), where F_i is the cdf, computed from the upper tails where these are
    smaller.  In float32 each tail has some 6 digits, down to 1e-38: a probability below that has an
    infinite score, and of a narrow interval fewer digits are left.

    Args:
        predictions, targets: as in `Data`, or one `Data`: n >= 1 predictions of a family that has
            `log_prob`.

    Returns:
        An array ``[n]``; infinite where the target was impossible.  A masked row is NaN, and
        inside jit an invalid one.

    Raises:
        TypeError: predictions without `log_prob`, such as `Empirical`, or a `Univariate` family of
            your own that defines only `quantile`; another wrong type.
        ValueError: an argument of the wrong shape or, where it is concrete, value.

    See also:
        `crps`, `pit`.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> cj.log_score(cj.Bernoulli(jnp.array([0.5, 0.9])), jnp.array([1, 0])).round(3).tolist()
        [0.693, 2.303]

    Reference: Good, Rational decisions, Journal of the Royal Statistical Society B 1952.
    """
    data = as_data(predictions, targets, at_least=1, intervals=True)
    return without_masked(score_rows(None, (padded(data),), _log_score), data)


def _log_score(predictions: Distribution, targets: PyTree) -> jax.Array:
    if not isinstance(targets, IntervalCensored):
        return -predictions.log_prob(targets)
    exact = predictions.log_prob(known_point(predictions, targets))
    width = unit_interval(predictions, targets).width()
    # The derivative of a log at 0 would be NaN.
    is_possible = width > 0
    hidden = jnp.where(is_possible, jnp.log(jnp.where(is_possible, width, 1.0)), -jnp.inf)
    return -jnp.where(targets.is_exact(), exact, hidden)


def crps(predictions: Distribution | Data, targets: ArrayLike | None = None) -> jax.Array:
    """The continuous ranked probability score of each row, in units of the targets.

    For independent Y, Y' from the prediction with the cdf F, and the target y, it is

    .. math::
        E|Y - y| - E|Y - Y'| / 2 = \\int (F(x) - 1\\{y \\le x\\})^2 dx.

    Smaller is better.  It is |Y - y| for a prediction that is certain, and on average it is
    smallest for the distribution of the targets, given the features.  For labels, which are ordered
    as numbers, it is the ranked probability score, and the Brier score (p - y)^2 for binary ones.

    There are formulas, exact up to rounding, for Normal, Laplace, StudentT, LogNormal, Gamma,
    Quantiles, SurvivalCurve (up to its last time), Poisson, Binomial, mixtures of Normal, Laplace
    or SurvivalCurve, and samples; for labels and other counts it is a sum over all of them.  For
    samples it is the score of their own distribution, in O(S log S); with ``fair=True`` it is the
    fair score, which on average over independent draws is the score of the distribution that they
    come from.

    All other predictions of numbers are integrated by a double exponential rule: 123 values of the
    cdf in float32, 315 in float64.  If the density is smooth inside its support, the relative error
    is below 2e-6 in float32 and 1e-9 in float64, even with tails as heavy as Cauchy's; a corner
    of the density costs some digits.  It is NaN for tails heavier than
    |x|^(-3/4), for which the integral nearly diverges.

    Args:
        predictions, targets: as in `Data`, or one `Data`: n >= 1 predictions of labels, counts or
            real numbers.

    Returns:
        An array ``[n]``, differentiable in real targets, and in all parameters in which the cdf has
        a derivative.  A masked row is NaN, and inside jit an invalid one; counts are NaN if they
        may exceed max_count.

    Raises:
        TypeError: predictions of vectors, or without a `cdf`; another wrong type.
        ValueError: an argument of the wrong shape or, where it is concrete, value; counts without
            max_count.

    See also:
        `log_score`, `pit`.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Normal(jnp.zeros(3), jnp.array([0.5, 1.0, 2.0]))
        >>> cj.crps(predictions, jnp.ones(3)).round(3).tolist()
        [0.726, 0.602, 0.663]

    Reference: Gneiting and Raftery, Strictly proper scoring rules, prediction, and estimation,
    Journal of the American Statistical Association 2007, Section 4.2; Jordan, Krüger and Lerch,
    Evaluating probabilistic forecasts with scoringRules, Journal of Statistical Software 2019, for
    the formulas; Ferro, Fair scores for ensemble forecasts, Quarterly Journal of the Royal
    Meteorological Society 2014.
    """
    data = numbers_as_data(predictions, targets)
    return without_masked(score_rows(None, (padded(data),), _crps), data)


def _crps(predictions: Distribution, targets: jax.Array) -> jax.Array:
    if isinstance(predictions, Labels):
        return crps_of_labels(predictions.label_probabilities(), targets)
    if isinstance(predictions, ClosedFormCRPS):
        closed_form = predictions.crps_closed_form(targets)
        if closed_form is not None:
            return closed_form
    of_kind = crps_of_numbers if predictions.target_kind == "real" else crps_of_counts
    return of_kind(predictions, targets)


def crps_of_labels(probabilities: jax.Array, targets: jax.Array) -> jax.Array:
    """The score from the probabilities ``[n, m]`` of all labels, ``[n]``."""
    total = jnp.sum(probabilities, axis=1, keepdims=True)
    below = jnp.cumsum(probabilities, axis=1) / total
    # Sums from the other end keep the digits of a small 1 - F.
    above = jnp.cumsum(probabilities[:, :0:-1], axis=1)[:, ::-1] / total
    labels = jnp.arange(probabilities.shape[1] - 1, dtype=jnp.int32)
    tail = jnp.where(targets[:, None] <= labels[None, :], above, below[:, :-1])
    return jnp.sum(jnp.square(tail), axis=1)


def crps_of_counts(predictions: Distribution, targets: jax.Array) -> jax.Array:
    """The score from the probabilities of the counts 0 … max_count, ``[n]``, in memory of O(n).

    It is NaN unless larger counts are improbable.
    """
    if not isinstance(predictions, CountLike) or predictions.max_count is None:
        raise ValueError(
            f"max_count must be given for the CRPS of {type(predictions).__name__} predictions of "
            "counts, which is a sum over 0 … max_count."
        )

    @jax.checkpoint
    def step(sums, count):
        cdf, score = sums
        cdf = cdf + jax.vmap(lambda p: p.probability(count))(predictions)
        return (cdf, score + jnp.square(cdf - (targets <= count).astype(cdf.dtype))), None

    dtype = jnp.result_type(jax.tree.leaves(predictions)[0])
    start = as_varying((jnp.zeros(targets.shape, dtype),) * 2, (predictions, targets))
    counts = jnp.arange(predictions.max_count + 1, dtype=targets.dtype)
    (_, score), _ = lax.scan(step, start, counts)
    # Between max_count and a larger target the cdf is 1.
    beyond = jnp.maximum(targets - predictions.max_count - 1, 0).astype(dtype)
    # False where the cdf is NaN, because too many counts are above max_count.
    in_sum = predictions.cdf(jnp.full_like(targets, counts.size))
    is_complete = in_sum >= 1 - 8 * jnp.finfo(dtype).eps
    return jnp.where(is_complete, score + beyond, jnp.nan)


# The distance of points in t, and the last t: exp(-pi / 2 sinh t) is less than the rounding error.
_STEP = {"float32": 0.15, "float64": 0.075}
_END = {"float32": 3.1, "float64": 3.9}


@struct
class _Interval:
    """Where a tail of F is integrated, for each row: from m to `end`, by way of m + gap s."""

    gap: jax.Array
    a: jax.Array
    b: jax.Array
    end: jax.Array
    is_below: jax.Array


def crps_of_numbers(predictions: Distribution, targets: jax.Array) -> jax.Array:
    """The score ``[n]`` of predictions that have a cdf and quantiles at the levels 0 and 1."""
    dtype = targets.dtype
    fixed = lax.stop_gradient(predictions)
    # The score does not depend on where the integral is cut, and has no derivative in it.
    center, spread = (lax.stop_gradient(x) for x in (fixed.location(), fixed.spread()))
    spread = jnp.where(spread > 0, spread, 1.0)
    below = _to_end_of_support(center, spread, -1.0, fixed.quantile(jnp.zeros((), dtype)))
    above = _to_end_of_support(center, spread, 1.0, fixed.quantile(jnp.ones((), dtype)))
    gap = targets - center
    between = _Interval(
        gap=gap,
        a=lax.stop_gradient(1 + jnp.abs(gap) / spread),
        b=jnp.ones_like(gap),
        end=targets,
        is_below=gap < 0,
    )
    score = -2 * _integral(predictions, center, between, lambda tail: tail)[0]
    score += jnp.where(gap < 0, -gap, gap)
    for interval in (below, above):
        squares, last = _integral(predictions, center, interval, jnp.square)
        # If the last point still counts, the tail is heavier than |x|^(-3/4).
        converged = last <= np.sqrt(jnp.finfo(dtype).eps) * squares
        score += jnp.where(converged, squares, jnp.nan)
    return score


def _to_end_of_support(
    center: jax.Array, spread: jax.Array, sign: float, end: jax.Array
) -> _Interval:
    length = sign * (end - center)
    finite = jnp.isfinite(length) & (length > 0)
    return _Interval(
        gap=sign * spread,
        a=jnp.ones_like(spread),
        b=jnp.where(finite, spread / jnp.where(finite, length, 1.0), 0.0),
        end=jnp.where(finite, end, center),
        is_below=jnp.full(spread.shape, sign < 0),
    )


def _integral(
    predictions: Distribution,
    center: jax.Array,
    interval: _Interval,
    power: Callable[[jax.Array], jax.Array],
) -> tuple[jax.Array, jax.Array]:
    """The integral of a power of the tail, P(Y <= x) below m and P(Y > x) above, and its last term.

    The derivative evaluates each point again instead of storing it.
    """
    i, dtype = interval, str(center.dtype)
    t = np.arange(-(_END[dtype] // _STEP[dtype]), _END[dtype] // _STEP[dtype] + 1) * _STEP[dtype]
    factors = np.exp(np.pi / 2 * np.sinh(t))
    weights = _STEP[dtype] * np.pi / 2 * np.cosh(t)

    @jax.checkpoint
    def term(factor, weight):
        share = factor / (i.a + i.b * factor)
        left = i.a / (i.a + i.b * factor)
        # Near the end the way that is left keeps more digits than the way that is made.
        near_end = i.b * share > 0.5
        x = jnp.where(near_end, i.end - (i.end - center) * left, center + i.gap * share)
        cdf = predictions.cdf(x)
        return weight * share * left * power(jnp.where(i.is_below, cdf, 1 - cdf))

    def step(sums, point):
        new = term(*point)
        return (sums[0] + new, new), None

    zeros = as_varying((jnp.zeros_like(center),) * 2, (predictions, center, interval))
    points = jnp.asarray(factors, center.dtype), jnp.asarray(weights, center.dtype)
    sums, _ = lax.scan(step, zeros, points)
    length = jnp.where(i.is_below, -i.gap, i.gap)
    return length * sums[0], length * sums[1]
