"""Rows of predictions and targets: checked, and scored one by one."""

from collections.abc import Callable
from typing import TypeVar, Unpack

import jax
import jax.numpy as jnp

from calibjax._base.compile import first_rows
from calibjax._base.sharding import Axis, row_by_row_on_devices
from calibjax._data import Data, Distribution, RowOptions, Targets, as_data, clean


def numbers_as_data(
    predictions: Distribution | Data,
    targets: Targets | None,
    *,
    intervals: bool = False,
    without: tuple[str, ...] = (),
    **rows: Unpack[RowOptions],
) -> Data:
    """`as_data` of n >= 1 rows, which must be of single labels, counts or numbers."""
    data = as_data(predictions, targets, at_least=1, intervals=intervals, without=without, **rows)
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
    valid, scores = data.valid(), function(*clean(data, axis).samples, *others)
    return jax.tree.map(lambda x: jnp.where(valid, x, jnp.nan), scores)


def without_masked(scores: T, data: Data) -> T:
    """The scores of the rows of `data`, of which what fills them up is cut; masked ones are NaN."""
    scores = first_rows(scores, data.n)
    if data.where is None:
        return scores
    return jax.tree.map(lambda x: jnp.where(jnp.asarray(data.where), x, jnp.nan), scores)
