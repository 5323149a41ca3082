"""From the files of a hub to predictions and targets of each model."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import polars as pl

from calibjax._base.text import listed
from calibjax._data import Distribution, as_data
from calibjax.distributions import Categorical, Empirical, Ordinal, Quantiles
from calibjax.hub._forecasts import HubForecasts, check_days
from calibjax.hub._tables import (
    FILE,
    OBSERVED,
    check_dates,
    check_zeros,
    models_in,
    observed_of,
    one_observation,
    one_of,
    read_observed,
)
from calibjax.hub._wide_table import (
    check_crossing,
    tasks_of,
    usual_columns,
    why_incomplete,
    why_unobserved,
    wide_table,
)

_TYPES = ("quantile", "sample", "cdf", "pmf")


def read_hub(
    model_output: str | Path,
    target_data: str | Path,
    *,
    target: str | None = None,
    output_type: str | None = None,
    ordered: Sequence[str] | None = None,
    sort: bool = False,
) -> dict[str, HubForecasts]:
    """All forecasts of a hub whose outcome is known, by model.

    The files are those of the hubverse: long tables with the columns output_type, output_type_id
    and value, and columns that say what a forecast is about, its task.

    ============  =============================================================================
    ``quantile``  `Quantiles` at the levels that most forecasts of the model have
    ``sample``    `Empirical`, the samples of each task
    ``pmf``       `Categorical`, or `Ordinal` if the order of the categories is given
    ``cdf``       `Ordinal`, probabilities of the bins between thresholds; targets are bins
    ============  =============================================================================

    Args:
        model_output: a folder with a folder for each model, a folder of one model, or a file with
            a column ``model_id``; .csv, .csv.gz and .parquet files.
        target_data: a file of oracle output (``oracle_value``) or of a time series
            (``observation``, of which the last ``as_of`` counts), with some columns of the tasks.
        target: the value of the column ``target``, if there are several.
        output_type: one of the table; None for the one that there is, means and medians apart.
        ordered: the categories of ``pmf`` in their order.
        sort: whether to sort quantiles that cross, which are an error without it.

    Returns:
        HubForecasts of each model: predictions, targets, tasks, times, horizon; print them to see
        what was left out.  A model without forecasts of the target or of the type of output is
        left out, with a warning.

    Raises:
        ValueError: a file or column is missing, a choice must be made, or a task has two values.

    Complexity: linear in the number of rows, of which all are in memory at once.

    Example:
        >>> import pathlib, tempfile
        >>> from calibjax.hub import read_hub
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> _ = (folder / "forecasts.csv").write_text(
        ...     "model_id,day,output_type,output_type_id,value\\n"
        ...     "a,1,quantile,0.25,2\\na,1,quantile,0.75,5\\n"
        ...     "a,2,quantile,0.25,3\\na,2,quantile,0.75,4\\n"
        ... )
        >>> _ = (folder / "observed.csv").write_text("day,observation\\n1,4\\n2,1\\n")
        >>> hub = read_hub(folder / "forecasts.csv", folder / "observed.csv")
        >>> hub["a"]
        2 forecasts (Quantiles) of a
        >>> hub["a"].targets.tolist()
        [4.0, 1.0]

    Reference: Consortium of Infectious Disease Modeling Hubs, hubverse (format of model output and
    target data).
    """
    if output_type is not None and output_type not in _TYPES:
        raise ValueError(f"output_type must be one of {listed(_TYPES)}, got {output_type!r}.")
    path, observed_path = Path(model_output), Path(target_data)
    observed = read_observed(observed_path)
    found, seen, without = {}, set(), []
    offered: dict[str, set[str]] = {"output_type": set(), "target": set()}
    for model, frame in models_in(path):
        for column in offered.keys() & set(frame.columns):
            offered[column] |= set(frame[column].drop_nulls())
        rows = _rows_of(path / model, frame, "output_type", output_type)
        if rows is not None and "target" in rows.columns:
            rows = _rows_of(path / model, rows, "target", target)
        if rows is None:
            without.append(model)
            continue
        kind = rows["output_type"][0]
        seen.add((kind, rows["target"][0] if "target" in rows.columns else None))
        source = _Source(path / model, observed_path, observed, kind, ordered, sort)
        found[model] = _of_model(model, rows, source)
    wanted = f"a type of {listed(_TYPES)}" if output_type is None else f"the type {output_type}"
    if target is not None:
        wanted += f", of the target {target}"
    if not found:
        there = "; ".join(f"{name} {listed(sorted(x))}" for name, x in offered.items() if x)
        raise ValueError(f"{path}: there is no output of {wanted}, only {there}.")
    for column, values in zip(("output_type", "target"), zip(*seen, strict=True), strict=True):
        if len(set(values)) > 1:
            one_of(path, column, sorted(set(map(str, values))), None)
    if without:
        warnings.warn(f"{listed(without)} left out, without output of {wanted}.", stacklevel=2)
    return found


class _Source(NamedTuple):
    """Files, the type of output, and what else says how it is read; see `read_hub`."""

    path: Path
    observed_path: Path
    observed: pl.DataFrame
    kind: str
    ordered: Sequence[str] | None
    sort: bool


def _rows_of(
    path: Path, frame: pl.DataFrame, column: str, chosen: str | None
) -> pl.DataFrame | None:
    """The rows of one type of output, or of one target; None if there are none."""
    values = sorted(set(frame[column].drop_nulls()))
    if column == "output_type":
        values = [x for x in _TYPES if x in values]
    if chosen is None and not values:
        return frame if column == "target" else None
    if chosen is not None and chosen not in values:
        return None
    return frame.filter(pl.col(column) == one_of(path, column, values, chosen))


def _of_model(model: str, frame: pl.DataFrame, source: _Source) -> HubForecasts:
    path, observed_path, observed, kind, ordered, sort = source
    tasks = tasks_of(frame)
    check_dates(frame)
    wide = wide_table(path, frame, kind)
    names = [name for name in wide.columns if name not in (*tasks, FILE)]
    names = _in_order(names, kind, ordered)
    known, keys = observed_of(observed_path, observed, tasks, kind)
    wide = wide.select([*tasks, FILE, *names])
    with_targets = _with_targets(observed_path, wide, known, keys, kind, names)
    others = wide.join(with_targets, on=tasks, how="anti", nulls_equal=True)
    used = names if kind in ("pmf", "cdf") else usual_columns(with_targets, names)
    complete = with_targets.drop_nulls(used)
    left_out = why_unobserved(others, known, keys)
    if incomplete := why_incomplete(with_targets, names, used, kind):
        left_out.append(incomplete)
    if not len(complete):
        raise ValueError(
            f"{path}: no forecast is complete and has an outcome in {observed_path}, which is "
            f"looked up by {listed(keys)}{': ' * bool(left_out)}{'; '.join(left_out)}."
        )
    if kind == "quantile" and not sort:
        check_crossing(complete, used, tasks)
    values = complete.select(used).to_numpy()
    targets = complete[_TARGET].to_numpy().astype(np.int32 if kind in ("pmf", "cdf") else float)
    try:
        predictions = _predictions(values, used, source)
        as_data(predictions, targets)
        texts = {name: complete[name].to_numpy().astype(str) for name in tasks}
        check_days(texts)
        return HubForecasts(
            model=model,
            predictions=predictions,
            targets=targets,
            tasks=texts,
            categories=names if kind == "pmf" else None,
            n_unobserved=len(wide) - len(with_targets),
            n_incomplete=len(with_targets) - len(complete),
            left_out=tuple(left_out),
        )
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


_TARGET = "calibjax_target"


def _in_order(names: list[str], kind: str, ordered: Sequence[str] | None) -> list[str]:
    """Levels and thresholds ascending, categories as given."""
    if kind in ("quantile", "cdf"):
        return sorted(names, key=float)
    if kind == "pmf" and ordered is not None:
        if sorted(ordered) != sorted(names):
            raise ValueError(f"ordered must name {listed(names)}, got {listed(ordered)}.")
        return list(ordered)
    return names


def _with_targets(
    path: Path,
    wide: pl.DataFrame,
    known: pl.DataFrame,
    keys: list[str],
    kind: str,
    names: list[str],
) -> pl.DataFrame:
    """The forecasts whose outcome is known, with the outcome as a column."""
    has_types = "output_type_id" in known.columns and kind in ("pmf", "cdf")
    if kind == "pmf" and has_types:  # the category with the value 1
        known = known.filter(pl.col(OBSERVED).cast(pl.Float64, strict=False) == 1)
        known = known.with_columns(pl.col("output_type_id").alias(OBSERVED))
    if kind == "cdf" and has_types:  # 1 at all thresholds that are not below
        below = (pl.col(OBSERVED).cast(pl.Float64) < 0.5).sum()
        known = known.group_by(keys, maintain_order=True).agg(below.alias(OBSERVED))
    check_zeros(path, wide, known, keys)
    joined = wide.join(one_observation(path, known, keys), on=keys, how="inner")
    if kind == "pmf":
        labels = pl.col(OBSERVED).replace_strict(
            names, list(range(len(names))), default=None, return_dtype=pl.Int64
        )
        joined = joined.with_columns(labels.alias(_TARGET))
        words = f"one of the categories {listed(names)}"
    else:
        number = pl.col(OBSERVED).cast(pl.Float64, strict=False)
        if kind == "cdf" and not has_types:
            thresholds = np.array(names, float)
            number = number.map_batches(
                lambda x: pl.Series(np.searchsorted(thresholds, x.to_numpy(), "left") * 1.0),
                return_dtype=pl.Float64,
            )
        joined, words = joined.with_columns(number.alias(_TARGET)), "a number"
    is_number = pl.col(_TARGET).is_finite().fill_null(False)
    if not joined.select(is_number.all()).item():
        bad = joined.filter(~is_number)[OBSERVED][0]
        raise ValueError(f"{path}: expected {words} as {OBSERVED}, got {bad}.")
    return joined


def _predictions(values: np.ndarray, names: list[str], source: _Source) -> Distribution:
    numbers: Any = np.sort(values, axis=1) if source.sort else values
    array = jnp.asarray(values.astype(float))
    if source.kind in ("pmf", "cdf") and values.max() > 1.5:
        raise ValueError(f"expected probabilities, got {values.max():g}; divide percents by 100.")
    match source.kind:
        case "quantile":
            return Quantiles(numbers.astype(float), [float(name) for name in names])
        case "sample":
            return Empirical(numbers.astype(float))
        case "cdf":
            if np.any(values[:, 1:] < values[:, :-1]) or values.max() > 1:
                raise ValueError("expected probabilities of cdf that ascend along the thresholds.")
            zeros, ones = np.zeros((len(values), 1)), np.ones((len(values), 1))
            bins = np.diff(np.concatenate([zeros, values, ones], axis=1), axis=1)
            return Ordinal(jnp.asarray(bins.astype(array.dtype)))
        case _:
            return Ordinal(array) if source.ordered is not None else Categorical(array)
