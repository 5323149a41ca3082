"""The observed targets and draws of them under H0, as the features of a test take them."""

import jax
import jax.numpy as jnp

from calibjax._distribution import Distribution
from calibjax._interval_censored import Between, unit_interval
from calibjax._numbers import UnitInterval
from calibjax._struct import PyTree
from calibjax.features import DrawnPIT, Hidden
from calibjax.resampling import draw_groups, draw_places


def target_sets(
    key: jax.Array,
    samples: tuple[Distribution, PyTree],
    hidden: Between | None,
    numbers: jax.Array,
    groups: jax.Array,
    by_place: bool,
) -> jax.Array | UnitInterval | DrawnPIT:
    """Targets ``[n, 1 + D, …]``, the observed ones first, or their places on the unit line.

    Args:
        key: a key of `jax.random`.
        samples: n predictions and their targets.
        hidden: between which ends a draw of each row is hidden; None if draws are known.
        numbers: the numbers of the rows in all data, ``[n]``.
        groups: the groups of draws.
        by_place: whether U is all that counts.  Where it is continuous it is uniform, and neither
            targets nor their cdf are needed.
    """
    predictions, targets = samples
    if by_place and not predictions.has_atoms:
        observed = unit_interval(predictions, targets)
        u, above = draw_places(key, numbers, groups, observed.low.dtype)
        if hidden is None:
            return DrawnPIT(observed, (u, above))
        interval = unit_interval(predictions, hidden)
        return DrawnPIT(observed, (u, above), Hidden(interval, _contains(interval, u, above)))
    drawn = draw_groups(key, predictions, numbers, groups)
    intervals_of = jax.vmap(predictions.unit_interval, 1, 1)
    if hidden is None:
        sets = jnp.concatenate([targets[:, None], drawn], axis=1)
        return intervals_of(sets) if by_place else sets
    low, high, values = hidden.low[:, None], hidden.high[:, None], drawn.astype(hidden.low.dtype)
    contains = (low < values) & (values <= high)
    return DrawnPIT(
        unit_interval(predictions, targets),
        intervals_of(drawn),
        Hidden(unit_interval(predictions, hidden), contains),
    )


def _contains(interval: UnitInterval, u: jax.Array, above: jax.Array) -> jax.Array:
    """Which u ``[n, D]`` lie in the intervals ``[n]``, from the tail that has more digits."""
    low, high, above_low, above_high = (x[:, None] for x in interval)
    is_above_low = jnp.where(u < 0.5, u > low, above < above_low)
    return is_above_low & jnp.where(u < 0.5, u <= high, above >= above_high)
