"""Checks of the values of rows, in NumPy, or where the rows lie."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from calibjax._between import conditions
from calibjax._check import check_values
from calibjax._numbers import is_nonnegative
from calibjax._rows._data import Data
from calibjax._rows._digits import check_digits
from calibjax._rows._ladder import filled_up
from calibjax._sharding import Axis, all_sum, devices_of, on_devices, on_one_device
from calibjax._struct import is_traced, on_host


def check_values_of_rows(
    data: Data, at_least: int, of_batch: str = "", targets_name: str = "targets"
) -> None:
    """Checks the values of kept rows, of each argument only if it is concrete."""
    if is_traced(data.where):
        return
    with jax.ensure_compile_time_eval(), np.errstate(all="ignore"):
        rows = data
        if devices_of(data):
            if not is_traced(data) and _are_valid(None, data, at_least):
                return
            rows = on_one_device(data)
        rows = _on_host(rows)
        masked = False if rows.where is None else ~rows.where
        if not is_traced(rows.predictions):
            for parameter, (words, valid) in rows.predictions.constraints().items():
                value = data.predictions.parameter(parameter)
                check_values(f"{parameter}{of_batch}", value, words, np.asarray(valid) | masked)
        if rows.targets is not None and not is_traced(rows.targets):
            for name, value, words, valid in conditions(
                rows.predictions, rows.targets, targets_name
            ):
                # The support of some families depends on their parameters.
                if not is_traced(valid):
                    check_values(name, value, words, np.asarray(valid) | masked)
        kept = np.ones(data.n, bool) if rows.where is None else rows.where[: data.n]
        if is_traced(rows.weights):
            return
        if rows.weights is not None:
            valid = is_nonnegative(rows.weights) | masked
            check_values("weights", data.weights, "nonnegative and finite", valid)
            kept = kept & (rows.weights[: data.n] > 0)
        if kept.sum() < at_least:
            raise ValueError(
                f"where and weights must keep at least {at_least} rows, got {kept.sum()}."
            )
        if isinstance(data.targets, np.ndarray | jax.Array) and not is_traced(data.targets):
            check_digits(data.predictions, data.targets, kept, of_batch, targets_name)


def _on_host(rows: Data) -> Data:
    """Rows as arrays of NumPy, filled up to the next rung by copies of the last row.

    Checks of their values compile nothing, and what few families compile serves all numbers of rows
    of the rung.  Tracers remain, and then nothing is filled up.
    """
    traced = is_traced(rows)

    def move(x: ArrayLike) -> ArrayLike:
        if is_traced(x):
            return x
        return on_host(x) if traced else filled_up(on_host(x))

    return jax.tree.map(move, rows)


@on_devices
def _are_valid(axis: Axis, _: None, data: Data, at_least: int) -> jax.Array:
    """Whether all kept rows are valid, and so many."""
    valid = data.valid()
    counted = valid if data.weights is None else valid & (data.weights > 0)
    if data.where is not None:
        valid, counted = valid | ~data.where, counted & data.where
    n_bad, n_counted = all_sum((jnp.sum(~valid), jnp.sum(counted)), axis)
    return (n_bad == 0) & (n_counted >= at_least)
