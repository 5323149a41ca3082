"""The median heuristic."""

import functools

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from calibjax._base.sharding import Axis, all_sum, on_devices
from calibjax._base.struct import as_pytree, widest_dtype
from calibjax._data.data import Rows, fill_masked, spaced_rows
from calibjax._data.distribution import Distribution
from calibjax._data.padding import check_rows
from calibjax._numbers.arithmetic import fast_where
from calibjax._numbers.unit_interval import smallest_with
from calibjax.kernels.base import pairwise
from calibjax.kernels.check import check_distance_formula, check_kernel
from calibjax.kernels.predictions import DistanceLike, NormDistance, squares_keep_digits

_MAX_ROWS = 1024


def median_heuristic(
    distance: DistanceLike, predictions: Distribution | Rows, *, where: ArrayLike | None = None
) -> jax.Array:
    """The median distance over all pairs i < j of predictions, a lengthscale.

    Above 1024 predictions every k-th is taken, k = n // 1024.  If the median is 0 (more than half
    of the pairs coincide) it is the mean distance, and if that is 0 (all coincide) then 1.  Works
    inside jit and vmap; its gradient is stopped.  O(min(n, 1024)^2).

    Args:
        distance: for example TotalVariation() or Wasserstein().
        predictions: a batch of n >= 2 predictions, or `Data` of them.
        where: boolean mask ``[n]``; masked rows may hold anything.

    Returns:
        A scalar, in units of the distance; NaN where the dtype cannot hold the differences between
        predictions, or, for MixtureWasserstein and full covariances, their squares (in float32
        where predictions differ by less than 1e-12 or more than 1e17).

    Raises:
        TypeError, ValueError: predictions or where of the wrong type, shape or, where concrete,
            value.  Inside jit a bad value makes the result NaN.

    See also:
        `default_kernel`, which uses it.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Bernoulli(jnp.array([0.0, 0.25, 1.0]))
        >>> float(cj.median_heuristic(cj.TotalVariation(), predictions))
        0.75
    """
    check_kernel(distance, "distance", "a distance")
    data = check_rows(predictions, where)
    one = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), data.predictions)
    check_distance_formula(distance, one)
    return median_distance(distance, data)


def median_distance(distance: DistanceLike, data: Rows) -> jax.Array:
    """`median_heuristic` of a distance and checked data, of which targets do not matter."""
    rows = Rows(data.predictions, where=data.where, is_valid=data.is_valid)
    return _median_distance(as_pytree(distance), rows)


@on_devices
def _median_distance(axis: Axis, distance: DistanceLike, rows: Rows) -> jax.Array:
    rows = lax.stop_gradient(rows)
    given, where, valid = rows.predictions, rows.where, rows.valid()
    dtype = widest_dtype(*jax.tree.leaves(given))
    predictions = jax.tree.map(lambda x: x.astype(dtype), given)
    if where is not None and valid is not None:
        predictions = fill_masked(predictions, where, axis)
    # Rows that do not count are copies of the first one: others might have no distance in its unit.
    chosen, kept = spaced_rows(predictions, where, _MAX_ROWS, axis)
    median = _median(pairwise(distance, chosen, chosen).astype(dtype), kept)
    if (
        isinstance(distance, NormDistance)
        and distance.coordinates_of_both(chosen, chosen, are_batches=True) is None
    ):
        # A distance of 0 between different predictions may be one whose square is too small.
        spread = jax.tree.map(lambda x: jnp.max(jnp.max(x, axis=0) - jnp.min(x, axis=0)), chosen)
        largest = functools.reduce(jnp.maximum, jax.tree.leaves(spread))
        coincide = (median != 1) | (largest == 0) | squares_keep_digits(largest)
        median = fast_where(coincide & squares_keep_digits(median), median, jnp.nan)
    median = lax.stop_gradient(median)
    if valid is None:
        return median
    return fast_where(all_sum(jnp.sum(~valid), axis) == 0, median, jnp.nan)


def _median(distances: jax.Array, kept: jax.Array) -> jax.Array:
    """The median of distances over pairs of kept rows, else their mean, else 1.

    Kept rows come first.
    """
    i, j = (lax.broadcasted_iota(jnp.int32, distances.shape, axis) for axis in (0, 1))
    pairs = (i < j) & kept[None, :]
    n_pairs = jnp.sum(pairs)
    last = jnp.maximum(n_pairs - 1, 0)
    # Pairs that do not count come last in the order.
    ordered = fast_where(pairs, distances, jnp.inf)
    # The lower median by bisection, a pass for each bit: sorting on a CPU takes many times as long.
    zero = jnp.zeros((), ordered.dtype)
    lower = smallest_with(lambda x: jnp.sum(ordered <= x) > last >> 1, zero)
    above = jnp.min(fast_where(ordered > lower, ordered, jnp.inf))
    enough = jnp.sum(ordered <= lower) > (last + 1) >> 1
    median = (lower + lax.select(enough, lower, above)) / 2
    total = jnp.sum(fast_where(pairs, distances, 0.0))
    mean = total / jnp.maximum(n_pairs, 1).astype(total.dtype)
    fallback = fast_where(mean > 0, mean, 1.0)
    # By the least one, which is NaN if one is: where XLA knows that no distance is negative, it
    # would spend a second of compiling on the conjunction of a million truths.
    are_distances = jnp.min(ordered) >= 0
    median = lax.select((median > 0) & (n_pairs > 0), median, fallback)
    return fast_where(are_distances, median, jnp.nan)
