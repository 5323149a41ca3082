"""The data sets that a test compares with: redrawn targets, or residuals with multipliers."""

from typing import NamedTuple

import jax

from calibjax._interval_censored import Between
from calibjax._rows import Data, bucket
from calibjax._sharding import Axis
from calibjax.resampling import Multipliers, multipliers

# Up to so many rows that are censored by an unknown law have Webb's multipliers, as clusters have.
_FEW_ROWS = 50
# Folded into the key for multipliers.
MULTIPLIERS = 2**31 - 1


class Law(NamedTuple):
    """Where the data sets under H0 come from.

    Args:
        kind: "redrawn" targets, or residuals with multipliers, "webb" or "normal".
        n_times: at least as many as there are different times, or None if that is not known.
    """

    kind: str
    n_times: int | None = None


REDRAWN = Law("redrawn")


def law_under_h0(data: Data) -> Law:
    """The law that is right for these rows."""
    is_coarse = isinstance(data.targets, Between) and data.targets.censored_at is None
    if data.clusters is None and data.times is None:
        if not is_coarse:
            return REDRAWN
        return Law("webb" if data.n_kept() <= _FEW_ROWS else "normal")
    kind = "normal" if data.predictions.has_labels else "webb"
    n_times = None if data.times is None else data.n_units()
    return Law(kind, None if n_times is None else bucket(n_times))


def describe_law(data: Data, law: Law) -> str:
    """The law in words, such as "multipliers of 60 clusters", to stand behind a number."""
    if law == REDRAWN:
        return "draws from the model"
    if data.clusters is None and data.times is None:
        return "multipliers of rows, as the law of the censoring is not known"
    return f"multipliers of {data.describe_units()}"


def multipliers_of_law(
    key: jax.Array, data: Data, numbers: jax.Array, law: Law, axis: Axis
) -> Multipliers | None:
    """The multipliers of clean data, whose rows have these numbers in all data; None if redrawn.

    Rows in neither clusters nor times have one each.
    """
    if law == REDRAWN:
        return None
    if data.clusters is None and data.times is None:
        data = data.replace(clusters=numbers)
    multiplier_key = jax.random.fold_in(key, MULTIPLIERS)
    return multipliers(multiplier_key, data, law.kind == "normal", law.n_times, axis)
