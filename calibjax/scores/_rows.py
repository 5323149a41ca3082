"""Rows of predictions and targets: checked, and scored one by one."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calibjax._batch import valid_rows
from calibjax._data import Data, check_data, clean
from calibjax._distribution import Distribution


def check_numbers(predictions: Distribution, targets: ArrayLike) -> Data:
    """Rows of single labels, counts or numbers as `Data`; an error names a wrong argument."""
    data = check_data(predictions, targets, at_least=1)
    if predictions.target_shape != "n":
        raise TypeError(
            "predictions must be of labels, counts or real numbers, got "
            f"{type(predictions).__name__} predictions of vectors."
        )
    return data


def of_valid_rows(function: Callable[[Any, jax.Array], jax.Array], data: Data) -> jax.Array:
    """function(predictions, targets), ``[n]``, for all rows in one floating dtype."""
    valid = valid_rows(data.predictions) & data.predictions.supports(data.targets)[1]
    return jnp.where(valid, function(*clean(data).samples), jnp.nan)
