"""From predictions and targets that were read to a verdict."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from calibjax._base.check import check_integer
from calibjax._data import Between, Data, Dependence, Distribution, as_data, padded
from calibjax.evaluation._curves import map_of, worst_cell, worst_level
from calibjax.evaluation._dependence import (
    INDEPENDENT,
    remarks_on_few_units,
    rows_in_words,
)
from calibjax.evaluation._direction import Direction
from calibjax.evaluation._directions_by_family import directions_of
from calibjax.evaluation._effect import effect_of
from calibjax.evaluation._evaluation import Evaluation
from calibjax.evaluation._groups import segments_of_groups
from calibjax.evaluation._keys import keys_of
from calibjax.evaluation._metrics import measures
from calibjax.evaluation._other_columns import columns_of_rows
from calibjax.evaluation._recalibration_check import recalibration_check
from calibjax.evaluation._remarks import Impossible, impossible_rows
from calibjax.evaluation._serial_dependence import (
    Column,
    Neighbours,
    neighbour_dependence_test,
    neighbours_in_columns,
    remarks_on_order,
)
from calibjax.frames import (
    ColumnNames,
    Model,
    dependence_of,
    groups_of,
    targets_of,
    weights_of,
)
from calibjax.hypothesis_tests import calibration_test
from calibjax.resampling import as_multiple
from calibjax.segments import Groups

_N_RESAMPLES = 999
# The smallest p-value there can be; no model could be rejected at a smaller level.
_LEAST_LEVEL = 1 / (_N_RESAMPLES + 1)
# A larger level is meant as a confidence, and intervals so narrow need not contain the estimate.
_LARGEST_LEVEL = 0.5


def evaluate_model(
    model: Model,
    names: ColumnNames,
    *,
    seed: int,
    level: float,
    censored: str | None,
    weights: str | None,
    clusters: str | None,
    times: str | None,
    horizon: Any,
    groups: Sequence[str],
) -> Evaluation:
    """`evaluate` of the columns of a table, whose predictions and targets are read.

    Args:
        model: the table, predictions and targets.
        names: which columns hold what; others may say which rows depend on each other.
        seed: as in `evaluate`.
        level: as in `evaluate`.
        censored: a column, or None, as for all that follow.
        weights: a column.
        clusters: a column.
        times: a column.
        horizon: as in `evaluate`.
        groups: columns whose segments are tested.
    """
    return evaluate_read(
        model.predictions,
        targets_of(model, censored),
        seed=seed,
        classes=model.classes,
        level=level,
        weights=weights_of(model, weights),
        dependence=dependence_of(model, clusters, times, horizon),
        columns=columns_of_rows(model, names),
        row_names=model.row_names,
        groups=groups_of(model, groups) or None,
    )


def remarks_on_independence(
    model: Model, names: ColumnNames, dependence: Dependence, seed: int
) -> list[str]:
    """Warnings as those of `evaluate`: rows that depend on each other; few clusters or horizons.

    Args:
        model: the table, predictions and targets.
        names: which columns hold what; others may say which rows depend on each other.
        dependence: which rows are known to depend on each other.
        seed: what random numbers come from.
    """
    if rows_in_words(dependence) is not None:
        return remarks_on_few_units(dependence)
    key, data = keys_of(seed).neighbours, padded(as_data(model.predictions, model.targets))
    columns = neighbours_in_columns(key, data, columns_of_rows(model, names))
    return remarks_on_order(neighbour_dependence_test(key, data), columns)


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
    data, n, keys = padded(checked), checked.n, keys_of(seed)
    row_names = np.arange(n) if row_names is None else row_names
    test = calibration_test(keys.test, data, n_resamples=_N_RESAMPLES)
    if np.isnan(test.pvalue):
        raise ValueError(f"predictions cannot be tested{_first_nan(checked, row_names)}.")
    pvalue = as_multiple(test.pvalue, _N_RESAMPLES)
    indices = impossible_rows(data)
    impossible = Impossible(row_names[indices])
    if pvalue <= level and 2 <= n - len(indices) < n:
        others = np.arange(data.n) < n
        others[indices] = False
        possible = data.replace(where=jax.device_put(others))
        without = calibration_test(keys.test, possible, n_resamples=_N_RESAMPLES)
        pvalue_without = as_multiple(without.pvalue, _N_RESAMPLES)
        impossible = dataclasses.replace(impossible, pvalue_without=pvalue_without)
    segments = segments_of_groups(keys.segments, checked, groups, _N_RESAMPLES)
    effect = effect_of(keys.effect, data, 1 - level, _N_RESAMPLES)
    found = measures(keys.measures, data, 1 - level, _N_RESAMPLES, row_names)
    units = rows_in_words(dependence)
    worst = neighbours = recalibration = None
    directions: tuple[Direction, ...] = ()
    in_columns: tuple[Neighbours, ...] = ()
    if units is None:
        neighbours = neighbour_dependence_test(keys.neighbours, data)
        in_columns = neighbours_in_columns(keys.neighbours, data, columns)
    is_known = not isinstance(checked.targets, Between)
    if is_known and pvalue <= level and not impossible.is_all(level):
        directions = directions_of(
            keys.measures, data, effect.best_temperature, indices, level, classes
        )
        worst = worst_level(checked, 1 - level)
        if worst is None:
            worst = worst_cell(map_of(keys.curves, data, 1 - level, _N_RESAMPLES), classes)
        if units is None and weights is None:
            recalibration = recalibration_check(keys.test, checked, _N_RESAMPLES)
    return Evaluation(
        pvalue=pvalue,
        level=level,
        test=test,
        effect=effect,
        directions=directions,
        measures=found,
        impossible=impossible,
        data=checked,
        worst=worst,
        classes=classes,
        seed=seed,
        row_names=row_names,
        dependence=dependence,
        pvalue_of_neighbours=neighbours,
        neighbours=in_columns,
        segments=segments,
        recalibration=recalibration,
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
