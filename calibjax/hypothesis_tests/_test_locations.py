"""Locations at which a test looks for deviations."""

from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from calibjax._check import check_integer, check_key
from calibjax._distribution import Distribution
from calibjax._rows import Data, check_predictions, in_dtype, padded
from calibjax._sharding import Axis, all_of, axis_size, on_devices, rows_at
from calibjax._struct import widest_dtype

Family = TypeVar("Family", bound=Distribution)


def sample_test_locations(
    key: jax.Array, predictions: Family, n_locations: int, *, where: ArrayLike | None = None
) -> tuple[Family, jax.Array]:
    """Locations for `asymptotic_cme_test`: some of the predictions, and a target drawn from each.

    The predictions are drawn without replacement.  The locations do not depend on the targets of
    the data, so that the test with them is valid.

    Args:
        key: a key of `jax.random`.
        predictions: a batch of n predictions of one family.
        n_locations: J, from 1 to n.
        where: boolean mask ``[n]``; masked rows may hold anything and are not drawn.

    Returns:
        J predictions, and targets ``[J]`` or ``[J, d]``.  Inside jit, where kept rows cannot be
        counted beforehand, the predictions are NaN if fewer than J rows are kept.

    Raises:
        TypeError, ValueError: an argument of the wrong type, shape or, where it is concrete, value.

    Example:
        >>> import jax, jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Bernoulli(jnp.linspace(0, 1, 100))
        >>> locations, targets = cj.sample_test_locations(jax.random.key(0), predictions, 5)
        >>> locations.probs.shape, targets.shape
        ((5,), (5,))
    """
    check_key(key)
    check_predictions(predictions, where)
    data = Data.unchecked(predictions, where=where)
    n_locations = check_integer("n_locations", n_locations, 1, data.n_kept(), "n = ")
    return _sample_test_locations(key, padded(data), n_locations)


@on_devices
def _sample_test_locations(
    axis: Axis, key: jax.Array, data: Data, n_locations: int
) -> tuple[Any, jax.Array]:
    predictions, n, where = data.predictions, data.n, data.where
    row_key, target_key = jax.random.split(key)
    # The rows with the J largest of n random numbers are drawn; masked rows have the number -1.
    order = jax.random.uniform(row_key, (n * axis_size(axis),), jnp.float32)
    if where is not None:
        where = all_of(where, axis).reshape(-1)
        order = jnp.where(where, order, -1.0)
    locations = rows_at(predictions, n, lax.top_k(order, n_locations)[1], axis)
    locations = in_dtype(locations, widest_dtype(*jax.tree.leaves(locations)))
    targets = locations.sample(target_key)
    if where is not None:
        # Inside jit too few kept rows cannot be an error.
        enough = jnp.sum(where) >= n_locations
        locations = jax.tree.map(lambda x: jnp.where(enough, x, jnp.nan), locations)
    return locations, targets
