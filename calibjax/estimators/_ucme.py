"""Deviations at test locations: the witness function and the mean of its squares."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calibjax._pairwise import column_sums
from calibjax._sharding import Axis, all_sum, on_devices
from calibjax._struct import as_pytree, widest_dtype
from calibjax.discrepancy import deviation, deviation_tile
from calibjax.estimators._inputs import Inputs, check_inputs, check_locations
from calibjax.estimators._rows import Rows, clean, clean_samples, in_dtype


def ucme(
    kernel: Any,
    predictions: Any,
    targets: ArrayLike,
    test_predictions: Any,
    test_targets: ArrayLike,
    *,
    where: ArrayLike | None = None,
) -> jax.Array:
    """The unnormalized calibration mean embedding: a calibration error seen from J test locations.

    .. math::
        \\frac1J \\sum_{j=1}^J \\Bigl( \\frac1n \\sum_{i=1}^n \\bigl[
        k((p_i, y_i), t_j) - E_{Z \\sim p_i} k((p_i, Z), t_j) \\bigr] \\Bigr)^2

    The mean of the squared `witness`.  It is the squared error, never its root; nonnegative, and on
    average of order 1/n for a calibrated model.  Differentiable, in locations too.  O(n J) time,
    O(n + J) memory.  Inside jit it is 0 where all rows are masked.

    Args:
        kernel: usually a TensorProduct, or what `default_kernel` returns.
        predictions: a batch of n >= 2 predictions of one family.
        targets: array ``[n]`` or ``[n, d]``; class labels are ``0 … m-1``.
        test_predictions: J >= 1 predictions of the same family.
        test_targets: their targets, ``[J]`` or ``[J, d]``.
        where: boolean mask ``[n]``; masked rows may hold anything.

    Returns:
        A scalar.

    Raises:
        TypeError, ValueError: as in `skce`.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Bernoulli(jnp.array([0.5, 0.5]))
        >>> kernel = cj.TensorProduct(cj.DistanceKernel(cj.TotalVariation()), cj.WhiteKernel())
        >>> locations = cj.Bernoulli(jnp.array([0.5])), jnp.array([1])
        >>> float(cj.ucme(kernel, predictions, jnp.array([1, 1]), *locations))
        0.25

    Reference: Widmann, Lindsten and Zachariah, Calibration tests beyond classification, ICLR 2021,
    Definition C.1.
    """
    inputs = Inputs(as_pytree(kernel), predictions, targets, where)
    check_inputs(inputs, deviation)
    check_locations(predictions, test_predictions, test_targets, "test")
    return _ucme((inputs.kernel, test_predictions, test_targets), inputs[1:])


def witness(
    kernel: Any,
    predictions: Any,
    targets: ArrayLike,
    at_predictions: Any,
    at_targets: ArrayLike,
    *,
    where: ArrayLike | None = None,
) -> jax.Array:
    """Where a model is wrong: the mean deviation of the data at each of J locations.

    .. math::
        f(t) = \\frac1n \\sum_{i=1}^n \\bigl[ k((p_i, y_i), t) - E_{Z \\sim p_i} k((p_i, Z), t)
        \\bigr]

    Near predictions p, targets near y come more often than predicted where f(p, y) > 0, and less
    often where f(p, y) < 0.  O(n J) time, O(n + J) memory, gradients included.  Inside jit it is 0
    where all rows are masked.

    Args:
        kernel: usually a TensorProduct, or what `default_kernel` returns.
        predictions: a batch of n >= 2 predictions of one family.
        targets: array ``[n]`` or ``[n, d]``; class labels are ``0 … m-1``.
        at_predictions: J >= 1 predictions of the same family, for example the same.
        at_targets: their targets, ``[J]`` or ``[J, d]``.
        where: boolean mask ``[n]``; masked rows may hold anything.

    Returns:
        Array ``[J]``.

    Raises:
        TypeError, ValueError: as in `skce`.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Bernoulli(jnp.array([0.5, 0.5]))
        >>> kernel = cj.TensorProduct(cj.DistanceKernel(cj.TotalVariation()), cj.WhiteKernel())
        >>> locations = cj.Bernoulli(jnp.array([0.5, 0.5])), jnp.array([0, 1])
        >>> cj.witness(kernel, predictions, jnp.array([1, 1]), *locations).tolist()
        [-0.5, 0.5]

    Reference: Widmann, Lindsten and Zachariah, Calibration tests beyond classification, ICLR 2021,
    Appendix C.
    """
    inputs = Inputs(as_pytree(kernel), predictions, targets, where)
    check_inputs(inputs, deviation)
    check_locations(predictions, at_predictions, at_targets)
    return _witness((inputs.kernel, at_predictions, at_targets), inputs[1:])


def clean_with_locations(shared: Any, rows: Any, axis: Axis) -> tuple[Any, Rows, Rows]:
    """The kernel, the rows and the locations, all of the widest floating dtype given."""
    kernel, at_predictions, at_targets = shared
    kernel, rows = clean(kernel, *rows, axis=axis)
    locations = clean_samples(at_predictions, at_targets)
    dtype = widest_dtype(rows.weights, locations.weights)
    kernel, rows, locations = in_dtype((kernel, rows, locations), dtype)
    return kernel, rows, locations


def _local_witness(axis: Axis, shared: Any, rows: Any) -> jax.Array:
    kernel, rows, locations = clean_with_locations(shared, rows, axis)
    n_kept = all_sum(jnp.sum(rows.weights), axis)
    samples = rows.predictions, rows.targets
    at = locations.predictions, locations.targets
    sums = column_sums(deviation_tile, kernel, samples, rows.weights, at, axis)
    # Their weights are 1, or NaN where a location is invalid.
    return sums / jnp.maximum(n_kept, 1.0) * locations.weights


_witness = on_devices(_local_witness)


@on_devices
def _ucme(axis: Axis, shared: Any, rows: Any) -> jax.Array:
    return jnp.mean(jnp.square(_local_witness(axis, shared, rows)))
