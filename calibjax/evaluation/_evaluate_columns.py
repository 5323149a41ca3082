"""From predictions and targets that were read to a verdict."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from calibjax._base.check import check_integer
from calibjax._data import Between, Data, Dependence, Distribution, as_data, padded
from calibjax.evaluation._dependence import (
    INDEPENDENT,
    remarks_on_few_units,
    rows_in_words,
)
from calibjax.evaluation._evaluation import N_RESAMPLES, Evaluation, keys_of
from calibjax.evaluation._other_columns import columns_of_rows
from calibjax.evaluation._serial_dependence import (
    Column,
    neighbour_dependence_test,
    neighbours_in_columns,
    remarks_on_order,
)
from calibjax.frames import Model
from calibjax.hypothesis_tests import calibration_test
from calibjax.segments import Groups, read_segments

# How many columns make a segment.
_ORDER = 2
# The smallest p-value there can be; no model could be rejected at a smaller level.
_LEAST_LEVEL = 1 / (N_RESAMPLES + 1)
# A larger level is meant as a confidence, and intervals so narrow need not contain the estimate.
_LARGEST_LEVEL = 0.5


def evaluate_model(
    model: Model,
    columns: Mapping[str, Any],
    targets: Any,
    weights: np.ndarray | None,
    dependence: Dependence,
    groups: Groups | None,
    *,
    seed: int,
    level: float,
) -> Evaluation:
    """`evaluate` of the columns of a table that were read.

    Args:
        model: the table, predictions and targets.
        columns: which columns hold what; others may say which rows depend on each other.
        targets: what was observed, of which some may be censored.
        weights: as in `evaluate_read`, as all that follow.
        dependence: which rows are known to depend on each other.
        groups: columns whose segments are tested, or None.
        seed: as in `evaluate`.
        level: as in `evaluate`.
    """
    return evaluate_read(
        model.predictions,
        targets,
        seed=seed,
        classes=model.classes,
        level=level,
        weights=weights,
        dependence=dependence,
        columns=columns_of_rows(model, columns),
        row_names=model.row_names,
        groups=groups,
    )


def remarks_on_independence(
    model: Model, columns: Mapping[str, Any], dependence: Dependence, seed: int
) -> list[str]:
    """Warnings as those of `evaluate`: rows that depend on each other; few clusters or horizons.

    Args:
        model: the table, predictions and targets.
        columns: which columns hold what; others may say which rows depend on each other.
        dependence: which rows are known to depend on each other.
        seed: what random numbers come from.
    """
    if rows_in_words(dependence) is not None:
        return remarks_on_few_units(dependence)
    key, data = keys_of(seed).neighbours, padded(as_data(model.predictions, model.targets))
    found = neighbours_in_columns(key, data, columns_of_rows(model, columns))
    return remarks_on_order(neighbour_dependence_test(key, data), found)


def evaluate_read(
    predictions: Distribution,
    observed: np.ndarray | Between,
    *,
    seed: int,
    classes: list[Any] | None,
    level: float,
    weights: np.ndarray | None = None,
    dependence: Dependence = INDEPENDENT,
    columns: Sequence[Column] = (),
    groups: Groups | None = None,
    row_names: np.ndarray | None = None,
) -> Evaluation:
    """`evaluate` of a distribution, and of targets as it counts them, which need no more reading.

    Args:
        predictions: n predictions.
        observed: targets ``[n]`` or ``[n, d]``, or Between; labels are ``0 … m-1``.
        seed: as in `evaluate`.
        classes: the names of the m classes, or None.
        level: as in `evaluate`.
        weights: how much each row counts, ``[n]``, or None.
        dependence: clusters as integers ``[n]``, or times as numbers ``[n]`` and a horizon.
        columns: other columns of the table, which may say which rows depend on each other.
        groups: columns whose segments are tested, or None.
        row_names: what rows are called, ``[n]``; None for their numbers, from 0.
    """
    seed = check_integer("seed", seed, 0, 2**63 - 1)
    if not (isinstance(level, (float, np.floating)) and _LEAST_LEVEL <= level <= _LARGEST_LEVEL):
        raise ValueError(
            f"level must be a number from {_LEAST_LEVEL} to {_LARGEST_LEVEL}, such as 0.05 for a "
            f"confidence of 95 %, got {level!r}."
        )
    level = float(level)
    rows: dict[str, Any] = dependence._asdict() | {"weights": weights}
    checked = as_data(predictions, observed, intervals=True, **rows)
    checked = jax.tree.map(_in_dtype_of_jax, checked)
    row_names = np.arange(checked.n) if row_names is None else row_names
    read = None if groups is None else read_segments(checked, groups, _ORDER)
    key = keys_of(seed).test
    test = calibration_test(key, padded(checked), n_resamples=N_RESAMPLES)
    if np.isnan(test.pvalue):
        raise ValueError(f"predictions cannot be tested{_first_nan(checked, row_names)}.")
    return Evaluation(
        data=checked,
        test=test,
        level=level,
        seed=seed,
        classes=classes,
        row_names=row_names,
        dependence=dependence,
        columns=columns,
        groups=read,
        is_x64=jax.config.read("jax_enable_x64"),
    )


def _in_dtype_of_jax(x: Any) -> Any:
    return jax.device_put(x) if isinstance(x, np.ndarray) else x


def _first_nan(data: Data, row_names: np.ndarray) -> str:
    """In words, of which row something is NaN."""
    predictions, targets = data.samples
    found: dict[str, Callable[[], Any]] = {
        "location": predictions.location,
        "spread": predictions.spread,
    }
    if not isinstance(targets, Between):
        found["log_prob"] = lambda: predictions.log_prob(targets)
        found["cdf"] = lambda: predictions.cdf(targets)
    for name, compute in found.items():
        try:
            values = np.asarray(compute())
        except TypeError:
            continue
        is_nan = np.isnan(values).reshape(len(values), -1).any(axis=1)
        if is_nan.any():
            row = row_names[np.argmax(is_nan)]
            return f": the {name} of row {row} is NaN, as where quantiles fall as levels rise"
    return ": the p-value is NaN"
