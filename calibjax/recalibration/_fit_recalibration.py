"""The parameters of a recalibration that minimise an objective on data."""

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import optax
from jax import lax
from jax.flatten_util import ravel_pytree
from jax.typing import ArrayLike

from calibjax._check import check_array
from calibjax._compile import quick_jit
from calibjax._distribution import Distribution
from calibjax._numbers import dot
from calibjax._rows import Data, as_data, clean, fill_masked, padded
from calibjax._sharding import gathered
from calibjax._struct import PyTree, bind, is_array

Parameters = TypeVar("Parameters")

_MOST_STEPS = 1000
# The search ends after this number of steps without progress; rounding may cause a single one.
_PATIENCE = 5
# The curvature of so many parameters is computed at the start, one column of it at a time.
_MOST_COLUMNS = 64
# Relative differences below it may be rounding.
_MATTERS = 1e-3


def fit_recalibration(
    transform: Callable[[Any, Any], Any],
    parameters: Parameters,
    predictions: Distribution,
    targets: ArrayLike,
    *,
    objective: Callable[..., jax.Array] | None = None,
    where: ArrayLike | None = None,
    weights: ArrayLike | None = None,
) -> Parameters:
    """The parameters that minimise objective(transform(parameters, predictions), targets).

    `vector_scaling` and `affine_scaling` are ready transforms; any differentiable function from
    predictions to predictions is one.  Fit on data that neither train nor evaluate the model.  The
    default objective is the mean negative log likelihood, mean_i -log q_i(y_i).  A target of
    probability 0 at the given parameters would make it infinite; such targets are left out.

    The search is L-BFGS of optax, with its line search, from the given parameters.  It ends when
    neither the objective nor its gradient becomes smaller, or after 1000 steps.  It finds the
    minimum of a convex objective, and a local minimum else; the objective is never larger there
    than at the start.  Units of the parameters do not matter if there are at most 64 numbers: the
    search measures them by the second derivatives at the start, which the dtype must be able to
    hold (in float32 units of the targets from 1e-17 to 1e17).

    If the objective has no minimum, because all decisions are right or a class never came, and ever
    larger parameters are better, the result is where the search ended, without a warning: look at
    its size.  `evaluate` says so of its remedies.  A calibration error as the objective does not
    reward sharp predictions; see `fit_temperature`.

    No gradient flows through the result.  Memory and time of one step: some evaluations of the
    objective and its gradient.

    Args:
        transform: a function of (parameters, predictions) that returns predictions and can be
            traced and differentiated twice.
        parameters: where the search starts, a number, an array, or a pytree of these; usually the
            parameters that change nothing.
        predictions: a batch of n >= 2 predictions.
        targets: array ``[n]`` or ``[n, d]``; class labels are ``0 … m-1``.
        objective: None, or a function of (predictions, targets) that returns a scalar and can be
            traced and differentiated twice; it is called with ``where=where`` and
            ``weights=weights`` too if these are given.
        where: boolean mask ``[n]``; masked rows may hold anything.
        weights: how much each row counts, nonnegative numbers ``[n]``; the mean of the default
            objective has these weights.

    Returns:
        The fitted parameters, a pytree like `parameters`, in the widest dtype of predictions and
        real targets; NaN if the objective or its slope is not finite at the start.

    Raises:
        TypeError, ValueError: an argument of the wrong type, shape or, where it is concrete, value.
            Inside jit a bad value, or fewer than two kept rows, makes the result NaN.

    See also:
        `fit_temperature` for one number, `vector_scaling` and `affine_scaling` to fit.

    Example:
        >>> import jax, jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Normal(jnp.array([0.0, 1.0, 2.0, 3.0]), 1.0)
        >>> targets = jnp.array([1.0, 3.5, 4.5, 7.0])  # near 1.1 + 1.9 loc
        >>> start = (0.0, 1.0, 0.0)
        >>> fitted = cj.fit_recalibration(cj.affine_scaling, start, predictions, targets)
        >>> [round(float(x), 2) for x in fitted]
        [1.15, 1.9, -1.09]
        >>> cj.affine_scaling(fitted, predictions).loc.round(2).tolist()
        [1.15, 3.05, 4.95, 6.85]

    Reference: Guo et al., On calibration of modern neural networks, ICML 2017, Section 4; Nocedal
    and Wright, Numerical optimization, 2006, Chapter 7.
    """
    if not callable(transform):
        raise TypeError(f"transform must be a callable, got {type(transform).__name__}.")
    if objective is not None and not callable(objective):
        raise TypeError(f"objective must be a callable or None, got {type(objective).__name__}.")
    for leaf in jax.tree.leaves(parameters):
        if not is_array(leaf):
            raise TypeError(f"parameters must hold numbers, got {type(leaf).__name__}.")
        check_array("parameters", jnp.asarray(leaf), "real")
    data = as_data(predictions, targets, where=where, weights=weights)
    if objective is None:
        return fit_recalibration_of_data(transform, parameters, padded(data))[0]
    # The rows are not padded: a user's objective need not know that there are masked rows.
    return _search(gathered(data), bind(transform), parameters, bind(objective))[0]


def fit_recalibration_of_data(
    transform: Callable[[Any, Any], Any], parameters: Parameters, data: Data
) -> tuple[Parameters, jax.Array]:
    """`fit_recalibration` of checked arguments by the likelihood, and if it found a minimum."""
    return _search(gathered(data), bind(transform), parameters, None)


@quick_jit
def _search(
    data: Data,
    transform: Callable[[Parameters, Distribution], Distribution],
    parameters: Parameters,
    objective: Callable[..., jax.Array] | None,
) -> tuple[Parameters, jax.Array]:
    """The parameters, and whether the objective has a minimum there."""
    is_weighted, data = data.weights is not None, clean(data)
    dtype = data.weights.dtype
    extra = {} if data.where is None else {"where": data.where}
    if is_weighted:
        extra["weights"] = data.weights
    start = jax.tree.map(lambda x: lax.stop_gradient(jnp.asarray(x, dtype)), parameters)

    def recalibrated(parameters: Parameters) -> Distribution:
        predictions = transform(parameters, data.predictions)
        if not isinstance(predictions, Distribution):
            actual = type(predictions).__name__
            raise TypeError(f"transform must return predictions, got {actual}.")
        return predictions

    counted = data.weights > 0
    if objective is None:
        # A row that is NaN counts, and makes the result NaN.
        counted = counted & (recalibrated(start).log_prob(data.targets) != -jnp.inf)

    def loss(parameters: Parameters) -> jax.Array:
        predictions = recalibrated(parameters)
        if objective is None:
            # The logarithm of 0 has no derivative that a weight of 0 would take away.
            predictions, targets = fill_masked((predictions, data.targets), counted)
            log_prob = data.weights * predictions.log_prob(targets)
            total, weight = (jnp.sum(x, where=counted) for x in (log_prob, data.weights))
            return (-total / jnp.where(weight > 0, weight, 1.0)).astype(dtype)
        value = jnp.asarray(objective(predictions, data.targets, **extra))
        if value.shape:
            raise ValueError(f"objective must return a scalar, got shape {list(value.shape)}.")
        return value.astype(dtype)

    numbers, unravel = ravel_pytree(start)
    units = _units(lambda x: loss(unravel(x)), numbers)

    def at(steps: jax.Array) -> Parameters:
        return unravel(numbers + dot(units, steps))

    steps, value, norm, ended = _minimise(lambda steps: loss(at(steps)), jnp.zeros_like(numbers))
    fitted = at(steps)
    # All weights are NaN if a row is invalid, and then the comparison is false.
    valid = (jnp.sum(data.weights > 0) >= 2) & jnp.isfinite(value) & jnp.isfinite(norm)
    found = jax.tree.map(lambda x: lax.stop_gradient(jnp.where(valid, x, jnp.nan)), fitted)
    is_minimum = _has_minimum(lambda x: loss(unravel(x)), numbers, ravel_pytree(fitted)[0])
    return found, valid & ended & is_minimum


def _has_minimum(
    function: Callable[[jax.Array], jax.Array], start: jax.Array, end: jax.Array
) -> jax.Array:
    """Whether a function becomes larger beyond the end of a search, in each number.

    Near a minimum it grows as much on the way on, by the same length, as on the way back to the
    start.  It does not grow on the way on if it falls for ever.
    """
    least = function(end)

    def goes_on(change: jax.Array) -> jax.Array:
        back, on = function(end - change) - least, function(end + change) - least
        matters = back > _MATTERS * jnp.abs(least)
        return matters & (on < _MATTERS * back)

    return ~jnp.any(lax.map(goes_on, jnp.diag(end - start)))


def _units(function: Callable[[jax.Array], jax.Array], start: jax.Array) -> jax.Array:
    """A matrix A such that s -> f(start + A s) curves by ±1 in all directions, if f curves there.

    The curvature is that at the start.  A direction without any keeps its length.  It is the
    identity for more than `_MOST_COLUMNS` numbers.
    """
    identity = jnp.eye(start.size, dtype=start.dtype)
    if start.size > _MOST_COLUMNS:
        return identity

    # Reverse mode twice: a function with a rule for reverse mode has no forward mode.
    def column(direction: jax.Array) -> jax.Array:
        return jax.grad(lambda x: jnp.vdot(jax.grad(function)(x), direction))(start)

    hessian = lax.map(column, identity)
    hessian = jnp.where(jnp.all(jnp.isfinite(hessian)), (hessian + hessian.T) / 2, identity)
    diagonal = jnp.abs(jnp.diagonal(hessian))
    lengths = 1 / jnp.sqrt(jnp.where(diagonal > 0, diagonal, 1))
    # With ones on the diagonal an eigenvalue near 0 is a direction without curvature, whatever the
    # units of the parameters.
    curvatures, directions = jnp.linalg.eigh(lengths[:, None] * hessian * lengths[None, :])
    curvatures = jnp.abs(curvatures)
    is_flat = curvatures <= 4 * start.size * jnp.finfo(start.dtype).eps
    return lengths[:, None] * directions / jnp.sqrt(jnp.where(is_flat, 1, curvatures))[None, :]


def _minimise(
    function: Callable[[jax.Array], jax.Array], start: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """The best point that L-BFGS finds from the start, the function there, and its slope.

    The last result says whether the search ended before the last step.

    A point is better than another one if the function is smaller there.  Where rounding hides the
    difference, the point with the smaller gradient is better, unless the function is larger there
    than at the start.
    """
    solver = optax.lbfgs()
    value_and_gradient = optax.value_and_grad_from_state(function)
    of_start, slope_of_start = jax.value_and_grad(function)(start)
    norm_of_start = jnp.linalg.norm(slope_of_start)
    first = start, solver.init(start), start, of_start, norm_of_start, 0, 0

    def unfinished(carry: PyTree) -> jax.Array:
        *_, norm, n_steps, n_idle = carry
        return (norm > 0) & (n_steps < _MOST_STEPS) & (n_idle < _PATIENCE)

    def step(carry: PyTree) -> PyTree:
        point, state, best, least, least_norm, n_steps, n_idle = carry
        value, gradient = value_and_gradient(point, state=state)
        updates, state = solver.update(
            gradient, state, point, value=value, grad=gradient, value_fn=function
        )
        point = point + updates
        # The line search has computed both at the new point.
        value, gradient = value_and_gradient(point, state=state)
        norm = jnp.linalg.norm(gradient)
        rounding = 8 * jnp.finfo(least.dtype).eps * jnp.abs(least)
        flatter = (value <= least + rounding) & (value <= of_start) & (norm < least_norm)
        better = jnp.isfinite(norm) & ((value < least - rounding) | flatter)
        best, least, least_norm = (
            jnp.where(better, new, old)
            for new, old in ((point, best), (value, least), (norm, least_norm))
        )
        return point, state, best, least, least_norm, n_steps + 1, jnp.where(better, 0, n_idle + 1)

    _, _, best, least, norm, n_steps, _ = lax.while_loop(unfinished, step, first)
    return best, least, norm, jnp.less(n_steps, _MOST_STEPS)
