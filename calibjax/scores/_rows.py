"""Rows of predictions and targets: checked, and scored one by one."""

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calibjax._between import Targets
from calibjax._distribution import Distribution
from calibjax._rows import Data, as_data, clean
from calibjax._sharding import Axis, row_by_row_on_devices


def check_numbers(
    predictions: Distribution,
    targets: Targets,
    where: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    intervals: bool = False,
) -> Data:
    """Rows of single labels, counts or numbers as `Data`; an error names a wrong argument.

    With `intervals` targets may be `Between`.
    """
    data = as_data(
        predictions, targets, where=where, weights=weights, at_least=1, intervals=intervals
    )
    if predictions.target_shape != "n":
        raise TypeError(
            "predictions must be of labels, counts or real numbers, got "
            f"{type(predictions).__name__} predictions of vectors."
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
    valid, scores = data.valid(), function(*clean(data, axis).samples, *others)
    return jax.tree.map(lambda x: jnp.where(valid, x, jnp.nan), scores)
