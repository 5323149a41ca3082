"""From the files of a hub to predictions and targets of each model."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import polars as pl

from calibjax._distribution import Distribution
from calibjax._rows import check_data
from calibjax.distributions import Categorical, Empirical, Ordinal, Quantiles
from calibjax.hub._forecasts import HubForecasts
from calibjax.hub._tables import (
    OBSERVED,
    OUTPUT,
    check_zeros,
    models_in,
    observed_of,
    one_observation,
    one_of,
    read_observed,
)

_TYPES = ("quantile", "sample", "cdf", "pmf")


def read_hub(
    model_output: str | Path,
    target_data: str | Path,
    *,
    target: str | None = None,
    output_type: str | None = None,
    ordered: Sequence[str] | None = None,
) -> dict[str, HubForecasts]:
    """All forecasts of a hub whose outcome is known, by model.

    The files are those of the hubverse: long tables with the columns output_type, output_type_id
    and value, and columns that say what a forecast is about, its task.

    ============  =============================================================================
    ``quantile``  `Quantiles` at the levels that all forecasts of the model have
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

    Returns:
        HubForecasts of each model: predictions, targets, tasks, times, horizon.

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
        raise ValueError(f"output_type must be one of {', '.join(_TYPES)}, got {output_type!r}.")
    path, observed_path = Path(model_output), Path(target_data)
    observed = read_observed(observed_path)
    found = {}
    for model, frame in models_in(path):
        types = [x for x in _TYPES if x in set(frame["output_type"])]
        kind = one_of(path / model, "output_type", types, output_type) if types else None
        if kind is None:
            raise ValueError(
                f"{path / model}: there is no output of a type of {', '.join(_TYPES)}."
            )
        frame = frame.filter(pl.col("output_type") == kind).drop("output_type")
        if "target" in frame.columns:
            targets = sorted(set(frame["target"].drop_nulls()))
            chosen = one_of(path / model, "target", targets, target)
            frame = frame.filter(pl.col("target") == chosen)
        found[model] = _of_model(model, path / model, frame, observed_path, observed, kind, ordered)
    return found


def _of_model(
    model: str,
    path: Path,
    frame: pl.DataFrame,
    observed_path: Path,
    observed: pl.DataFrame,
    kind: str,
    ordered: Sequence[str] | None,
) -> HubForecasts:
    tasks = [name for name in frame.columns if name not in OUTPUT]
    values = frame["value"].cast(pl.Float64, strict=False)
    if values.null_count() or not values.is_finite().all():
        bad = frame.filter(values.is_null() | ~values.is_finite())["value"][0]
        raise ValueError(f"{path}: expected finite numbers as values, got {bad}.")
    frame = frame.with_columns(value=values)
    if kind == "sample":  # an index may go on from task to task
        frame = frame.with_columns(
            output_type_id=pl.int_range(pl.len()).over(tasks).cast(pl.String)
        )
    elif kind != "pmf":
        levels = frame["output_type_id"].cast(pl.Float64, strict=False)
        if levels.null_count():
            bad = frame.filter(levels.is_null())["output_type_id"][0]
            raise ValueError(f"{path}: expected numbers as output_type_id of {kind}, got {bad}.")
        frame = frame.with_columns(output_type_id=levels.cast(pl.String))
    try:
        wide = frame.pivot(
            on="output_type_id", index=tasks, values="value", aggregate_function=None
        )
    except pl.exceptions.PolarsError:
        twice = frame.filter(pl.struct([*tasks, "output_type_id"]).is_duplicated())
        row = twice.select([*tasks, "output_type_id"]).row(0, named=True)
        words = ", ".join(f"{name} = {value}" for name, value in row.items())
        raise ValueError(
            f"{path}: expected one value for each task, got two for {words}."
        ) from None
    names = [name for name in wide.columns if name not in tasks]
    names = _in_order(path, names, kind, ordered)
    known, keys = observed_of(observed_path, observed, tasks, kind)
    with_targets = _with_targets(
        observed_path, wide.select([*tasks, *names]), known, keys, kind, names
    )
    n_unobserved = len(wide) - len(with_targets)
    complete = with_targets.drop_nulls(names)
    if not len(complete):
        raise ValueError(
            f"{path}: no forecast is complete and has an outcome in {observed_path}, which is "
            f"looked up by {', '.join(keys)}."
        )
    integer = kind in ("pmf", "cdf")
    targets = complete[_TARGET].to_numpy().astype(np.int32 if integer else float)
    try:
        predictions = _predictions(complete.select(names).to_numpy(), names, kind, ordered)
        check_data(predictions, targets, None)
        return HubForecasts(
            model=model,
            predictions=predictions,
            targets=targets,
            tasks={name: complete[name].to_numpy().astype(str) for name in tasks},
            categories=names if kind == "pmf" else None,
            n_unobserved=n_unobserved,
            n_incomplete=len(with_targets) - len(complete),
        )
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


_TARGET = "calibjax_target"


def _in_order(path: Path, names: list[str], kind: str, ordered: Sequence[str] | None) -> list[str]:
    """Levels and thresholds ascending, categories as given."""
    if kind in ("quantile", "cdf"):
        return sorted(names, key=float)
    if kind == "pmf" and ordered is not None:
        if sorted(ordered) != sorted(names):
            raise ValueError(f"ordered must name {', '.join(names)}, got {', '.join(ordered)}.")
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
        places = pl.col(OBSERVED).replace_strict(
            names, list(range(len(names))), default=None, return_dtype=pl.Int64
        )
        joined = joined.with_columns(places.alias(_TARGET))
        words = f"one of the categories {', '.join(names)}"
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


def _predictions(
    values: np.ndarray, names: list[str], kind: str, ordered: Sequence[str] | None
) -> Distribution:
    numbers: Any = values.astype(float)
    array = jnp.asarray(numbers)
    match kind:
        case "quantile":
            return Quantiles(numbers, [float(name) for name in names])
        case "sample":
            return Empirical(numbers)
        case "cdf":
            if np.any(values[:, 1:] < values[:, :-1]) or values.max() > 1:
                raise ValueError("expected probabilities of cdf that ascend along the thresholds.")
            zeros, ones = np.zeros((len(values), 1)), np.ones((len(values), 1))
            bins = np.diff(np.concatenate([zeros, values, ones], axis=1), axis=1)
            return Ordinal(jnp.asarray(bins.astype(array.dtype)))
        case _:
            return Ordinal(array) if ordered is not None else Categorical(array)
