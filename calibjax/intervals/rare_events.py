"""How many rare events predictions expect, and a note where they are too few.

An asymptotic test estimates the distribution of its statistic from the data.  If nearly all targets
are the most probable ones, the data show little but what happens without any other target.
"""

import dataclasses
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

from calibjax._base.sharding import Axis, all_sum, on_devices
from calibjax._base.struct import is_traced, widened
from calibjax._data.data import Data
from calibjax._data.distribution import Discrete, Distribution

Result = TypeVar("Result")

#: With fewer expected events the asymptotic tests reject calibrated models too often.
FEW_EVENTS = 10


def note_on_rare_events(result: Result, data: Data, instead: str) -> Result:
    """The result, a dataclass whose `method` says so if fewer than ten rare events are expected.

    Inside jit, where values are unknown, it adds nothing.  `instead` names an alternative, such as
    an exact test.
    """
    rows = data.predictions, data.where
    if is_traced((result, rows)):
        return result
    expected = float(expected_rare_events(None, rows))
    if not expected < FEW_EVENTS:
        return result
    note = (
        f"; only {expected:.2g} rare events are expected, and this p-value is not reliable: use "
        f"{instead}"
    )
    described: Any = result
    return dataclasses.replace(described, method=described.method + note)


@on_devices
def expected_rare_events(
    axis: Axis, _: None, rows: tuple[Distribution, jax.Array | None]
) -> jax.Array:
    """sum_i P(Y_i is not its most probable value), over the kept rows of all devices."""
    predictions, where = rows
    if not isinstance(predictions, Discrete):
        return jnp.array(jnp.inf)
    probabilities = widened(predictions).off_mode_probability()
    if where is not None:
        probabilities = jnp.where(where, probabilities, 0.0)
    return all_sum(jnp.sum(probabilities), axis)
