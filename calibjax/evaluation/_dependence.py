"""What is said of weights and of rows that depend on each other."""

import jax
import numpy as np

from calibjax._data.data import Data
from calibjax._data.padding import padded
from calibjax.evaluation import _serial_dependence as serial

# With fewer, tests of calibrated models at the level 0.05 reject next to none of them: they cannot
# see a wrong model either.
_FEW_CLUSTERS, _FEW_HORIZONS = 8, 10


def rows_in_words(data: Data) -> str | None:
    """How many clusters or times there are, such as "60 clusters"; None if rows are independent."""
    if not data.is_dependent:
        return None
    return data.describe_units() + (f", horizon {data.horizon:g}" if data.horizon else "")


def remarks_on_rows(data: Data) -> list[str]:
    """What of an evaluation does not know about weights, and about dependence."""
    found, units = [], rows_in_words(data)
    if data.weights is not None:
        found.append(
            "Weights: the p-value, the numbers and the curves know them. Maps, and where it is "
            "worst, count every row once; temperatures, recalibrations and rows that contribute "
            "most are left out."
        )
    if units is not None:
        found.append(
            f"Dependent rows, {units}: the p-value, the intervals above, and the bands of "
            "reliability, PIT and coverage allow for it. The CORP curve, maps, and where it is "
            "worst, assume independent rows; recalibrations are left out."
        )
    return found + remarks_on_few_units(data)


def remarks_on_few_units(data: Data) -> list[str]:
    """Whether there are too few clusters or horizons to learn much from."""
    if data.times is not None:
        is_few = np.ptp(np.asarray(data.times)) < _FEW_HORIZONS
        words = f"horizons: where times span fewer than {_FEW_HORIZONS},"
    elif data.clusters is not None and data.horizon is None:
        is_few = (data.n_units() or 0) < _FEW_CLUSTERS
        words = f"clusters: with fewer than {_FEW_CLUSTERS},"
    else:
        return []
    return [f"Few {words} tests find only large errors, and intervals are wide."] if is_few else []


def remarks_on_independence(key: jax.Array, data: Data, columns: list[serial.Column]) -> list[str]:
    """Warnings as those of `evaluate`: rows that depend on each other; few clusters or horizons.

    Args:
        key: a key of `jax.random`.
        data: predictions and targets, of which rows may be known to depend on each other.
        columns: others, which may say which rows depend on each other.
    """
    if data.is_dependent:
        return remarks_on_few_units(data)
    data = padded(data)
    of_rows = serial.neighbour_dependence_test(key, data)
    return serial.remarks_on_order(of_rows, serial.neighbours_in_columns(key, data, columns))
