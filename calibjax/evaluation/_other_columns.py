"""Columns of a table that hold no predictions, and may say which rows depend on each other."""

import numpy as np

from calibjax._data.distribution import Labels
from calibjax._data.typed_column import different
from calibjax.evaluation._serial_dependence import Column
from calibjax.frames import Model, as_floats, cluster_numbers, is_missing, read_times


def columns_of_rows(model: Model, event: str | None) -> list[Column]:
    """The first other column of dates, and one of names that come again and again.

    Names are texts, or integers of a column whose name ends with id.  Such a column comes before
    others: rows of one question are nearer to each other than rows of one topic.  Of the days when
    forecasts were made and those that they are about, it is the latter.  Names that say the outcome
    or the prediction are none: rows of one outcome are alike whatever they depend on.  `event` is
    that of `read_data`.
    """
    # Rows of one group may depend on each other as rows of another column may.
    table, used = model.table, {model.target, *model.columns.names, event}
    found: dict[bool, Column] = {}
    for name in sorted(table.columns, key=lambda name: not name.lower().endswith("id")):
        cells = table.columns[name]
        if name in used or cells.ndim > 1 or len(cells) != len(table):
            continue
        is_id = cells.dtype.kind in "iu" and name.lower().endswith("id")
        are_names = (isinstance(x, str) or hasattr(x, "isoformat") for x in cells)
        is_text = cells.dtype == object and all(are_names)
        if not (is_text or is_id or cells.dtype.kind == "M") or is_missing(cells).any():
            continue
        column = table.typed(name)
        n_names = different(column.values).size
        if n_names < 2:
            continue
        times, are_dates = read_times(column)
        is_time = are_dates and bool(np.isfinite(times).all())
        if is_time:
            days = Column(name, is_time, times)
            found[is_time] = _of_leads(found[is_time], days) if is_time in found else days
        elif is_time not in found and n_names <= len(cells) / 2:
            codes = cluster_numbers(column)
            if not _say_outcome(model, codes):
                found[is_time] = Column(name, is_time, codes)
    return list(found.values())


def _say_outcome(model: Model, codes: np.ndarray) -> bool:
    """Whether names follow from the target and what was predicted, as a copy or a band does."""
    names = model.columns.names
    middle = as_floats(model.table.cells(names[(len(names) - 1) // 2]))
    keys = [getattr(model.targets, "low", model.targets), middle]
    if isinstance(model.predictions, Labels):
        probs = np.asarray(model.predictions.label_probabilities())
        keys.append(probs.shape[1] * probs.argmax(axis=1) + model.targets)
    return any(key.ndim == 1 and _follows(codes, key) for key in keys)


def _follows(codes: np.ndarray, numbers: np.ndarray) -> bool:
    """Whether codes are a function of numbers; of numbers that hardly repeat, one of few steps."""
    key = np.unique(numbers, return_inverse=True)[1]
    n_keys, n_pairs = key.max() + 1, np.unique(np.stack([key, codes]), axis=1).shape[1]
    n_steps = np.count_nonzero(np.diff(codes[np.lexsort([codes, key])]))
    return bool(n_pairs == n_keys and (2 * n_keys <= len(key) or n_steps == codes.max()))


def _of_leads(first: Column, other: Column) -> Column:
    """The column of the days that forecasts are about, if the other has those when they were made.

    Then there are few leads among many days.  If not, it is the first column.
    """
    made, about = sorted((first, other), key=lambda column: float(np.mean(column.values)))
    leads = np.unique(about.values - made.values)
    days = np.unique(made.values)
    if first.horizon is not None or len(leads) > len(days) / 2:
        return first
    horizon = max(float(leads[-1]), 0.0) + float(np.diff(days).min())
    return about._replace(horizon=horizon)
