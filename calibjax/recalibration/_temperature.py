"""Predictions made more or less confident by a temperature, and the temperature that fits data."""

import functools
import math
from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike

from calibjax._base.check import check_array
from calibjax._base.compile import first_rows, quick_jit
from calibjax._base.sharding import gathered
from calibjax._base.struct import bind, is_array, is_traced, rows_of, widest_dtype
from calibjax._data.capabilities import tempered, tempering_refused
from calibjax._data.data import Data, Rows, as_data, clean
from calibjax._data.distribution import Distribution
from calibjax._data.interval_censored import Targets
from calibjax._data.padding import filled, padded
from calibjax._numbers.arithmetic import exact_sum, fast_where
from calibjax._numbers.tempering import tempered_label_log_prob
from calibjax._numbers.validity import POSITIVE, valid_or_nan
from calibjax.distributions import Bernoulli, Categorical

Family = TypeVar("Family", bound=Distribution)
# Temperatures are 100^u with u in [-1, 1].  The grid contains both ends and T = 1 in the middle.
_LARGEST = 100.0
_GRID_POINTS = 33
# Golden section search evaluates a point at this fraction of the larger part of a bracket.
_GOLDEN = 0.381966


def apply_temperature(predictions: Family, temperature: ArrayLike) -> Family:
    """Predictions with densities proportional to p^(1/T): less confident for T > 1, more for T < 1.

    - Categorical, Bernoulli: probs^(1/T), normalised, which is softmax(logits / T).  Classes keep
      their order, and a probability 0 stays 0, with derivative 0.
    - Normal, MultivariateNormalDiag, MultivariateNormalFullCovariance: variances and covariances
      are multiplied by T, and means do not change.
    - Laplace: the scale is multiplied by T, and the mean does not change.
    - Mixture: each component is tempered and the weights do not change, because a power of a
      mixture is not a mixture.  The mean does not change if the means of the components do not.

    If a softmax has underflowed to 0, use its logits: ``Categorical.from_logits(logits / T)``.
    Differentiable; O(size of predictions).

    Args:
        predictions: a batch of predictions.  An invalid row, such as padding, stays invalid
            (NaN, for probabilities).
        temperature: T, a positive number without units.

    Returns:
        Predictions of the same family, shapes and floating dtypes.

    Raises:
        TypeError: the family of the predictions has no tempering, or temperature is not a number.
        ValueError: temperature is not a positive and finite scalar.  Inside jit a bad temperature
            makes the tempered parameters NaN.

    See also:
        `fit_temperature` to find the temperature.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> cj.apply_temperature(cj.Categorical(jnp.array([[0.9, 0.1, 0.0]])), 2.0).probs.tolist()
        [[0.75, 0.25, 0.0]]
        >>> cj.apply_temperature(cj.Normal(jnp.zeros(1), jnp.ones(1)), 4.0).scale.tolist()
        [2.0]

    Reference: Widmann, Lindsten and Zachariah, Calibration tests beyond classification, ICLR 2021,
    Definition F.1; Guo et al., On calibration of modern neural networks, ICML 2017.
    """
    if not isinstance(predictions, Distribution):
        raise tempering_refused("an array" if is_array(predictions) else type(predictions).__name__)
    _check_temperature(temperature)
    rows, n = predictions.with_full_precision(), len(predictions)
    return first_rows(_apply_temperature(filled(rows, n), temperature), n)


def _check_temperature(temperature: ArrayLike) -> None:
    """TypeError or ValueError unless the temperature is a positive and finite scalar."""
    if not is_array(temperature):
        raise TypeError(f"temperature must be a number, got {type(temperature).__name__}.")
    with jax.ensure_compile_time_eval():
        value = jnp.asarray(temperature)
        check_array("temperature", value, "real")
        if value.ndim:
            raise ValueError(f"temperature must be a scalar, got shape {list(value.shape)}.")
        if not is_traced(value):
            valid_or_nan(POSITIVE, value, "temperature")


@functools.partial(quick_jit, light=True)
def _apply_temperature(predictions: Family, temperature: ArrayLike) -> Family:
    temperature = jnp.asarray(temperature, widest_dtype(*jax.tree.leaves(predictions)))
    return tempered(predictions, valid_or_nan(POSITIVE, temperature, "temperature"))


def fit_temperature(
    predictions: Distribution | Data,
    targets: Targets | None = None,
    *,
    objective: Callable[..., jax.Array] | None = None,
    where: ArrayLike | None = None,
    weights: ArrayLike | None = None,
) -> jax.Array:
    """The temperature T in [0.01, 100] that minimises an objective of the tempered predictions.

    Fit T on data that neither train nor evaluate the model.  The default objective is the mean
    negative log likelihood, mean_i -log q_T,i(y_i).  A target of probability 0 would make it
    infinite at every T; such targets are left out.

    A grid over log T is followed by a golden section search around the best point.  The objective
    needs no derivative.  The lowest of several minima is found unless it is narrower than a factor
    of 1.3 in T.  The relative error is some 1e-3 in float32 and 1e-7 in float64, because
    rounding of the objective hides smaller differences of T.  If smaller (or larger) T are always
    better, because all decisions are right (or no better than chance), the result is an end of the
    range.  If all T are equally good, it is 1.

    A calibration error does not reward sharp predictions.  If all classes are equally frequent, it
    is also 0 for uniform predictions, and with a fixed kernel the result may be 100.  For classes
    use an objective that calls ``skce(default_kernel(predictions), …)``, so that the kernel follows
    the predictions; for real targets fix the kernel in the units of the targets.

    Use `ece` as an objective for `top_label` only: with the many bins of full probability vectors
    its bias decides.  If probabilities have underflowed, fit to logits with a large c:
    ``c * fit_temperature(Categorical.from_logits(logits / c), targets)``.

    The objective is evaluated 56 times in float32 and 76 times in float64.  No gradient flows
    through the result.  Its dtype is the widest of predictions and real targets, at least float32.

    Args:
        predictions, targets: as in `Data`, or one `Data`, of a family that `apply_temperature`
            takes.
        objective: None, or a function of (predictions, targets) that returns a scalar in any units
            and can be traced; it is called with ``where=where`` and ``weights=weights`` too if
            these are given.  A function that is defined again is compiled again: define it once.  A
            `jax.tree_util.Partial` can change its arrays without a new compilation, and its
            booleans, Python integers and strings are options, for example ``unbiased=False``.
        where, weights: as in `Data`; the mean of the default objective has these weights.

    Returns:
        A scalar; NaN if the objective is NaN at all temperatures of the grid.

    Raises:
        TypeError, ValueError: an argument of the wrong type, shape or, where it is concrete, value.
            Inside jit a bad value, or fewer than two kept rows, makes the result NaN.

    See also:
        `apply_temperature` to use it, `fit_recalibrator` for maps with more than one number.

    Example:
        >>> import jax, jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Normal(jnp.zeros(4), jnp.ones(4))
        >>> targets = jnp.array([-3.0, -1.0, 1.0, 3.0])  # mean square 5 times the variance
        >>> round(float(cj.fit_temperature(predictions, targets)), 2)
        5.0
        >>> skce = jax.tree_util.Partial(cj.skce, cj.default_kernel(predictions), unbiased=False)
        >>> round(float(cj.fit_temperature(predictions, targets, objective=skce)), 1)
        7.0

    Reference: Guo et al., On calibration of modern neural networks, ICML 2017; Widmann, Lindsten
    and Zachariah, Calibration tests beyond classification, ICLR 2021, Appendix F.
    """
    if objective is not None and not callable(objective):
        raise TypeError(f"objective must be a callable or None, got {type(objective).__name__}.")
    data = as_data(predictions, targets, where=where, weights=weights)
    if objective is None:
        return _fit_temperature(gathered(padded(data)), None)
    # Rows are not padded, so that a user's objective gets no masked rows.
    return _fit_temperature(gathered(data), bind(objective))


def is_end_of_range(temperature: float) -> bool:
    """Whether a fitted temperature is an end of the range, so that the minimum may be outside."""
    return abs(math.log(temperature)) > math.log(_LARGEST / 1.01)


def _log_prob(data: Rows, temperature: jax.Array) -> jax.Array:
    """The log probabilities of the targets under the tempered predictions, ``[n]``."""
    if isinstance(data.predictions, Bernoulli | Categorical):
        probs = data.predictions.label_probabilities()
        return tempered_label_log_prob(probs, data.targets, temperature)
    return tempered(data.predictions, temperature).log_prob(data.targets)


@functools.partial(quick_jit, light=True)
def _fit_temperature(data: Rows, objective: Callable[..., jax.Array] | None) -> jax.Array:
    is_weighted, data = data.weights is not None, clean(data)
    dtype = data.weights.dtype
    extra = {} if data.where is None else {"where": data.where}
    if is_weighted:
        extra["weights"] = data.weights

    counted = data.weights > 0
    if objective is None:
        # The loss of a label of probability 0 is infinite at each temperature.
        counted &= _log_prob(data, jnp.ones((), dtype)) != -jnp.inf

    def loss(power):
        temperature = _LARGEST**power
        if objective is None:
            total = exact_sum(fast_where(counted, data.weights * _log_prob(data, temperature), 0.0))
            weight = jnp.sum(data.weights, where=counted)
            return -total / fast_where(weight > 0, weight, 1.0)  # 0 if no row counts
        recalibrated = apply_temperature(data.predictions, temperature)
        value = jnp.asarray(objective(recalibrated, data.targets, **extra))
        if value.shape:
            raise ValueError(f"objective must return a scalar, got shape {list(value.shape)}.")
        return value.astype(dtype)

    power = _minimise(loss, jnp.asarray(np.linspace(-1, 1, _GRID_POINTS), dtype))
    # All weights are NaN if a row is invalid, and then the comparison is false.
    return lax.stop_gradient(fast_where(jnp.sum(data.weights > 0) >= 2, _LARGEST**power, jnp.nan))


def _minimise(function: Callable[[jax.Array], jax.Array], grid: jax.Array) -> jax.Array:
    """The point at which a function is least, between the ends of a grid.

    It is the middle of the grid if the function is constant there, and NaN if the function is NaN
    at all points of the grid.
    """
    values = lax.map(function, grid)
    undefined = jnp.isnan(values)
    values = fast_where(undefined, jnp.inf, values)
    best = fast_where(jnp.all(values == values[0]), len(grid) // 2, jnp.argmin(values))
    ends = jnp.maximum(best - 1, 0), best, jnp.minimum(best + 1, len(grid) - 1)

    def narrow(_, state):
        low, middle, high, least = state
        upwards = high - middle > middle - low
        new = middle + _GOLDEN * (fast_where(upwards, high, low) - middle)
        value = function(new)
        better = value < least
        # The worse of the two inner points becomes a bound, and the better one is the new middle.
        bound = fast_where(better, middle, new)
        low = fast_where(better == upwards, bound, low)
        high = fast_where(better == upwards, high, bound)
        return low, fast_where(better, new, middle), high, fast_where(better, value, least)

    # After these steps the bracket is so narrow that rounding of the values decides.
    n_steps = 43 if grid.dtype == jnp.float64 else 23
    _, middle, _, _ = lax.fori_loop(
        0, n_steps, narrow, (*(rows_of(grid, i) for i in ends), rows_of(values, best))
    )
    return fast_where(jnp.all(undefined), jnp.nan, middle)
