"""Data filled up to a bucket of sizes; predictions alone and locations, checked."""

from typing import TypeVar

import jax
import numpy as np
from jax.typing import ArrayLike

from calibjax._base.check import check_shapes
from calibjax._base.compile import LARGEST_BUCKET, bucket, filled_up
from calibjax._base.parameters import family_name
from calibjax._base.sharding import devices_of
from calibjax._base.struct import PyTree, is_traced, on_host
from calibjax._data.checks import (
    check_dtype_of_targets,
    check_shapes_of_predictions,
    check_values_of_rows,
    compared_in_one_precision,
    too_few_rows,
)
from calibjax._data.data import AnyRows, Data, Rows, check_none_beside_data
from calibjax._data.distribution import Distribution

T = TypeVar("T")


def check_predictions(
    predictions: Distribution, where: ArrayLike | None = None, name: str = "predictions"
) -> dict[str, int]:
    """The size of each axis that the family names; an error says what is wrong with predictions."""
    sizes = check_shapes_of_predictions(predictions, where, name)
    of_batch = "" if name == "predictions" else f" of {name}"
    check_values_of_rows(predictions, None, where, of_batch=of_batch)
    return sizes


def check_rows(predictions: Distribution | Rows, where: ArrayLike | None) -> Rows:
    """Checked predictions without targets, filled up to a bucket; or `Data` as they are."""
    if isinstance(predictions, Rows):
        check_none_beside_data(where=where)
        if predictions.n < 2:
            raise too_few_rows("predictions", predictions.n, 2)
        return padded(predictions)
    check_predictions(predictions, where)
    is_checked = not is_traced((predictions, where))
    return padded(Rows(predictions, where=where, is_checked=is_checked))


def check_locations(
    predictions: Distribution, at_predictions: Distribution, at_targets: ArrayLike, prefix: str
) -> Rows:
    """The locations of a witness function as rows; `predictions` must be checked already."""
    name, targets_name = f"{prefix}_predictions", f"{prefix}_targets"
    sizes = check_shapes_of_predictions(at_predictions, None, name, at_least=1)
    check_like(name, at_predictions, predictions, "predictions")
    check_dtype_of_targets(targets_name, at_targets, predictions)
    check_shapes({targets_name: (at_targets, predictions.target_shape)}, sizes)
    samples = compared_in_one_precision(at_predictions, at_targets)
    check_values_of_rows(*samples, of_batch=f" of {name}", targets_name=targets_name)
    return Rows(*samples)


def check_like(name: str, predictions: Distribution, like: Distribution, whose: str) -> None:
    """An error unless predictions have the family and, but for their number, shapes of others."""
    expected, actual = family_name(like), family_name(predictions)
    if actual != expected:
        raise TypeError(f"{name} must be of the family of {whose}, {expected}, got {actual}.")
    both = (p.with_common_structure() for p in (like, predictions))
    ours, theirs = ([list(np.shape(p.parameter(x))[1:]) for x in p.shapes] for p in both)
    if ours != theirs:
        raise ValueError(f"{name} must have the shapes of {whose} but for n, {ours}, got {theirs}.")


def padded(data: AnyRows) -> AnyRows:
    """The data, filled up by masked rows to the size of a bucket; `where` is an array then.

    What `filled` returns as it is, is returned as it is.  So are predictions that are known by
    draws, because default kernels draw from all of their rows.  The rows that are added are copies
    of the last one, and checked rows that were masked of a kept one.
    """
    if data.predictions.score_only or not can_be_filled(data, data.n):
        return data
    where = np.zeros(bucket(data.n), bool)
    where[: data.n] = True if data.where is None else data.where
    is_valid = data.is_valid or bool(data.is_checked and where.any())
    rows, source = data.replace(where=None), None
    if is_valid and not where[: data.n].all():
        source = np.where(where[: data.n], np.arange(data.n), np.argmax(where))
    rows = _filled(rows, data.n, source)
    mask = jax.device_put(where)
    kept = {"horizon": data.horizon} if isinstance(data, Data) else {}
    return rows.replace(where=mask, is_valid=is_valid, **kept)


def can_be_filled(rows: PyTree, n: int) -> bool:
    """Whether n rows are few enough, with known values: outside of jit, on one device."""
    # Nothing changes inside of a user's jit, where rows may be constants.
    is_fixed = n > LARGEST_BUCKET or is_traced((rows, jax.device_put(0.0)))
    return not (is_fixed or devices_of(rows))


def filled(rows: T, n: int) -> T:
    """A tree of n rows, filled up to the size of a bucket by copies of the last one.

    Traced rows, rows on several devices, more than 2^14 rows, and all inside of a user's jit are
    returned as they are.
    """
    return _filled(rows, n) if can_be_filled(rows, n) else rows


def _filled(rows: T, n: int, source: np.ndarray | None = None) -> T:
    """The rows, filled up; `source` says which row stands in the place of each one."""
    leaves, structure = jax.tree.flatten(rows)
    with np.errstate(over="ignore"):  # Masked rows may hold anything.
        found = leaves if source is None else [on_host(x)[source] for x in leaves]
        found = found if n == bucket(n) else [filled_up(on_host(x)) for x in found]
    shardings = [x.sharding if isinstance(x, jax.Array) and x.committed else None for x in leaves]
    return jax.tree.unflatten(structure, jax.device_put(found, shardings))
