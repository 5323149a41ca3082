"""From the files of a hub to predictions and targets of each model."""

import datetime
import itertools
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import polars as pl

from calibjax._base.text import listed
from calibjax._data.data import Data, as_data
from calibjax._data.distribution import Distribution
from calibjax._data.typed_column import typed_column
from calibjax.distributions import Categorical, Empirical, Ordinal, Quantiles
from calibjax.frames import read_times

_TYPES = ("quantile", "sample", "cdf", "pmf")
_OUTPUT = ("output_type", "output_type_id", "value")
_ENDINGS = (".csv", ".csv.gz", ".parquet")
# The columns of the day that a forecast is about, and of the day when it was made.
_DAYS = "target_end_date", "target_date"
ORIGINS = "reference_date", "origin_date", "forecast_date", "nowcast_date"
_MODEL, _OBSERVED, _TARGET = "model_id", "oracle_value", "calibjax_target"
# The file of each row, and when a version was made, beside the columns that it has.
_FILE, _VERSION = "calibjax_file", "calibjax_version"
# Levels that differ by less are one level, such as 0.3 and 0.1 + 0.2.
_DECIMALS_OF_LEVELS = 9


def with_days(data: Data) -> Data:
    """The data set with times and a horizon, if its groups say them: which forecasts may depend.

    When a forecast is made, what happened before the last forecast is known, and the rest is not:
    the horizon is the largest lead, and the least time between two days when forecasts were made.
    """
    named = [[x for x in names if x in data.groups][:1] for names in (_DAYS, ORIGINS)]
    if not all(named):
        return data
    about, made = (data.groups[x].astype("datetime64[D]").astype(float) for (x,) in named)
    gaps = np.diff(np.unique(made))
    horizon = float(max((about - made).max(), 0.0) + (gaps.min() if len(gaps) else 1.0))
    dated = Data(*data.samples, times=about, horizon=horizon)
    return dated.replace(groups=data.groups, classes=data.classes)


def read_hub(
    model_output: str | Path,
    target_data: str | Path,
    *,
    target: str | None = None,
    output_type: str | None = None,
    ordered: Sequence[str] | None = None,
    sort: bool = False,
    as_of: str | float | datetime.date | None = None,
) -> dict[str, Data]:
    """All forecasts of a hub whose outcome is known, by model.

    The files are those of the hubverse: long tables with the columns output_type, output_type_id
    and value, and columns that say what a forecast is about, its task.

    ============  =============================================================================
    ``quantile``  `Quantiles` at the levels that most forecasts of the model have, but 0 and 1
    ``sample``    `Empirical`, the samples of each task
    ``pmf``       `Categorical`, or `Ordinal` if the order of the categories is given
    ``cdf``       `Ordinal`, probabilities of the bins between thresholds; targets are bins
    ============  =============================================================================

    Quantiles at the levels 0 and 1 bound the support and are not evaluated.  Texts that differ by
    leading zeros only, such as 01 and 1, are taken for equal, since programs lose them, unless both
    are among what was observed.

    Args:
        model_output: a folder with a folder for each model, a folder of one model, or a file with
            a column ``model_id``; .csv, .csv.gz and .parquet files.
        target_data: a file of oracle output (``oracle_value``) or of a time series
            (``observation``, or ``value``), with some columns of the tasks; `date` is the day that
            a forecast is about.  Or a folder of such files, in folders such as as_of=2026-03-31.
        target: the value of the column ``target``, if there are several.
        output_type: one of the table; None for the one that there is, means and medians apart.
        ordered: the categories of ``pmf`` in their order.
        sort: whether to sort quantiles that cross, which are an error without it.
        as_of: a date, or a number if versions are numbered; the last version of each observation
            up to then is used, of those in the column ``as_of``.  None for the last of all.

    Returns:
        A data set of each model, with times and a horizon in days if tasks say on which day a
        forecast was made and which day it is about.  Its `groups` are the columns of the tasks, as
        texts, and `classes` the names of categories.  Warnings say which forecasts, and which
        models without any of the target and of the type of output, are left out.

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
        >>> hub["a"].targets.tolist(), hub["a"].groups["day"].tolist()
        ([4.0, 1.0], ['1', '2'])

    Reference: Consortium of Infectious Disease Modeling Hubs, hubverse (format of model output and
    target data).
    """
    path, of_targets = Path(model_output), Path(target_data)
    frame, observed = _read_models(path), _read_observed(of_targets, as_of)
    names, wanted = frame[_MODEL].unique(maintain_order=True).to_list(), []
    for column, chosen, possible in ("output_type", output_type, _TYPES), ("target", target, None):
        if column in frame.columns:
            there = sorted(set(frame[column].drop_nulls()) & set(possible or frame[column]))
            if chosen not in there and (chosen is not None or len(there) != 1):
                raise ValueError(
                    f"{path}: {column} must be one of {listed(there) or listed(_TYPES)}, got "
                    f"{chosen}; on the command line --{column.replace('_', '-')} chooses."
                )
            wanted.append(chosen or there[0])
            frame = frame.filter(pl.col(column) == wanted[-1])
    models = frame.partition_by(_MODEL, include_key=False, as_dict=True, maintain_order=True)
    found = {}
    for (name,), rows in models.items():
        try:
            found[name], left_out = _forecasts(rows, observed, ordered, sort)
        except ValueError as error:
            raise ValueError(f"{path}, {name}, with {of_targets}: {error}") from None
        if left_out:
            said = f"{found[name].n} forecasts ({type(found[name].predictions).__name__}) of {name}"
            warnings.warn("; ".join([said, *left_out]), stacklevel=2)
    if without := [name for name in names if name not in found]:
        warnings.warn(f"{listed(without)} left out, without {listed(wanted)}.", stacklevel=2)
    return found


def _refuse(bad: pl.DataFrame, expected: str) -> None:
    """An error that shows the first of the rows that are not as expected."""
    if len(bad):
        raise ValueError(f"expected {expected}, got {_first(bad)}.")


def _first(rows: pl.DataFrame) -> str:
    """The first row in words, and its file."""
    return ", ".join(f"{x} = {y}" for x, y in rows.row(0, named=True).items() if y is not None)


def _read_texts(path: Path) -> pl.DataFrame:
    """A table of texts, in which whole numbers have no decimals and dates are as in 2026-03-31."""
    try:
        if path.suffix == ".parquet":
            frame = pl.read_parquet(path)
        else:
            frame = pl.read_csv(path, infer_schema=False, null_values=["", "NA"])
    except (pl.exceptions.PolarsError, OSError) as error:
        reason = str(error).split("\n")[0].rstrip(".")
        raise ValueError(f"{path}: not a readable table: {reason}.") from None
    if twice := [name for name in frame.columns if name.endswith("_duplicated_0")]:
        raise ValueError(f"{path}: expected different names of columns, got {listed(twice)}.")
    texts = pl.exclude("value").str.replace(r"^(-?\d+)\.0+$", "$1")
    return frame.cast(pl.String).with_columns(texts.str.replace(r"[ T]00:00:00(\.0+)?$", ""))


def _read_models(path: Path) -> pl.DataFrame:
    """The rows of all models: of a folder of folders, of a folder of files, or of one file."""
    frames, files = [], [path]
    if not path.is_file():
        found = sorted(path.glob("*/*")) or sorted(path.glob("*"))
        files = [file for file in found if file.name.endswith(_ENDINGS)]
    for file in files:
        frame = _read_texts(file)
        if missing := [x for x in _OUTPUT if x not in frame.columns]:
            raise ValueError(
                f"{file}: expected the columns {listed(_OUTPUT)} of a hub, got no "
                f"{listed(missing)}, only {listed(frame.columns)}; a table with a column for "
                "each quantile is read by calibjax evaluate, with --quantiles."
            )
        if file != path or _MODEL not in frame.columns:
            model = file.name.split(".")[0] if file == path else file.parent.name
            frame = frame.with_columns(pl.lit(model).alias(_MODEL))
        frames.append(frame.with_columns(pl.lit(file.name).alias(_FILE)))
    if not frames:
        raise ValueError(f"{path}: no file or folder with files that end in {listed(_ENDINGS)}.")
    return pl.concat(frames, how="diagonal")


def _read_observed(path: Path, as_of: object) -> pl.DataFrame:
    """What was observed, with a number for each version, by which later ones are larger."""
    found = [path] if path.is_file() else sorted(path.glob("**/*"))
    tables = []
    for file in (x for x in found if x == path or x.name.endswith(_ENDINGS)):
        # Folders of partitioned files are called as_of=2026-03-31.
        parts = (part.split("=", 1) for part in file.relative_to(path).parts if "=" in part)
        tables.append(_read_texts(file).with_columns(pl.lit(y).alias(x) for x, y in parts))
    if not tables:
        raise ValueError(f"{path}: file not found.")
    frame = pl.concat(tables, how="diagonal")
    name = next((x for x in (_OBSERVED, "observation", "value") if x in frame.columns), None)
    if name is None:
        got = listed(frame.columns)
        raise ValueError(f"{path}: expected a column {_OBSERVED} or observation, got only {got}.")
    frame = frame.rename({name: _OBSERVED})
    if "as_of" not in frame.columns:
        if as_of is not None:
            raise ValueError(f"{path}: as_of={as_of} needs a column as_of, got none.")
        return frame.with_columns(pl.lit(0.0).alias(_VERSION))
    versions, are_dates = _versions(frame["as_of"].fill_null(""))
    words = "dates such as 2026-03-31, or numbers, in the column as_of"
    _refuse(frame.filter(pl.Series(np.isnan(versions))), f"{path}: {words}")
    if as_of is not None:
        (last,), is_date = _versions(pl.Series([str(as_of)]))
        if is_date != are_dates or np.isnan(last):
            kind = "date such as 2026-03-31" if are_dates else "number"
            raise ValueError(f"as_of must be a {kind}, as in {path}, got {as_of}.")
        # A date without a time of the day is all of that day.
        is_later = (np.floor(versions) if are_dates and last % 1 == 0 else versions) > last
        frame, versions = frame.filter(pl.Series(~is_later)), versions[~is_later]
    return frame.with_columns(pl.Series(_VERSION, versions))


def _versions(texts: pl.Series) -> tuple[np.ndarray, bool]:
    """Numbers that order versions, NaN of unclear ones, and whether they are days since 1970."""
    versions, are_dates = read_times(typed_column("as_of", texts.to_numpy(), len(texts)))
    if np.isnan(versions).all():
        # The month is first in the United States, and the day elsewhere.
        read = [texts.str.to_date(form, strict=False) for form in ("%m/%d/%Y", "%d/%m/%Y")]
        read = [days for days in read if not days.null_count()]
        if read and (read[0].rank("dense") == read[-1].rank("dense")).all():
            return read[0].cast(pl.Int32).cast(pl.Float64).to_numpy(), True
    return versions, are_dates


def _forecasts(
    rows: pl.DataFrame, observed: pl.DataFrame, ordered: Sequence[str] | None, sort: bool
) -> tuple[Data, list[str]]:
    """Those of one model, from its rows of one target and type of output; what is left out."""
    kind = rows["output_type"][0]
    are_labels = kind in ("pmf", "cdf")
    tasks = [x.name for x in rows if x.name not in (*_OUTPUT, _FILE) and x.null_count() < len(rows)]
    for name in set(tasks) & {*_DAYS, *ORIGINS}:
        is_date = pl.col(name).str.contains(r"^\d{4}-\d{2}-\d{2}")
        _refuse(rows.filter(~is_date), f"dates such as 2026-03-31 as {name}")
    # Tables of oracle output have one of these types where numbers were observed, or none.
    if "output_type" in observed.columns:
        of_kind = [kind] if are_labels else ["quantile", "sample", "mean", "median"]
        is_wanted = pl.col("output_type").is_in(of_kind) | pl.col("output_type").is_null()
        observed = observed.filter(is_wanted)
    days = [name for name in _DAYS if name in tasks]
    if days and "date" not in tasks and not set(days) & set(observed.columns):
        observed = observed.rename({"date": days[0]}, strict=False)
    keys = [name for name in tasks if name in observed.columns]
    if not keys:
        raise ValueError(
            f"expected columns of what was observed among {listed(tasks)}, got only "
            f"{listed(observed.columns)}."
        )
    alike = {*keys, "target"} & {*observed.columns}
    is_last = pl.col(_VERSION) == pl.col(_VERSION).max().over(sorted(alike))
    observed = observed.filter(is_last, pl.col(_OBSERVED).str.to_lowercase() != "nan")
    rows = _with_numbers(_spelled_alike(rows, observed, keys), kind, tasks)
    index = [*tasks, _FILE]
    wide = rows.pivot("output_type_id", index=index, values="value", aggregate_function=None)
    names = wide.columns[len(index) :]
    if kind == "pmf" and ordered is not None:
        if sorted(ordered) != sorted(names):
            raise ValueError(f"ordered must name {listed(names)}, got {listed(ordered)}.")
        names = list(ordered)
    elif kind in ("quantile", "cdf"):
        names.sort(key=float)
    known = _targets(observed, keys, kind, names)
    joined = wide.join(known, on=keys, maintain_order="left")
    is_label = f"one of the categories {listed(names)}" if kind == "pmf" else "a number"
    bad = joined.filter(~pl.col(_TARGET).is_finite().fill_null(False))
    _refuse(bad.select(keys + [_OBSERVED]), f"{is_label} as {_OBSERVED}")
    used = names if kind != "quantile" or not len(joined) else _usual(joined, names)
    beyond = [name for name in names if name not in used]
    is_missing = pl.col(used).is_null()
    # One sample is enough.
    is_left_out = (pl.all_horizontal if kind == "sample" else pl.any_horizontal)(is_missing)
    complete = joined.filter(~is_left_out)
    kinds = [
        (wide.join(known, on=keys, how="anti"), "without an outcome"),
        (joined.filter(is_left_out), "incomplete"),
        (joined.drop_nulls(beyond) if beyond else joined[:0], f"with {listed(beyond)}, not used"),
    ]
    left_out = [f"{len(x)} {y}, such as {_first(x.select(index))}" for x, y in kinds if len(x)]
    if not len(complete):
        raise ValueError(
            f"no forecast is complete and has an outcome, which is looked up by {listed(keys)}: "
            f"{'; '.join(left_out)}."
        )
    values = complete.select(used).cast(pl.Float64).to_numpy()
    if kind == "cdf" or (kind == "quantile" and not sort):
        falls = pl.Series((np.diff(values, axis=1) < 0).any(axis=1))
        words = f"values that do not fall as the {kind} rises (--sort-quantiles sorts quantiles)"
        _refuse(complete.filter(falls), words)
    predictions = _predictions(values, used, kind, ordered, sort)
    targets = complete[_TARGET].to_numpy().astype(np.int32 if are_labels else float)
    texts = {name: complete[name].to_numpy().astype(str) for name in tasks}
    classes = names if kind == "pmf" else None
    data = Data(predictions, targets).replace(groups=texts, classes=classes)
    return as_data(with_days(data)).replace(is_valid=False), left_out


def _spelled_alike(rows: pl.DataFrame, observed: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    """The forecasts with the texts of the observations, where only zeros in front differ."""
    for key in keys:
        theirs = set(observed[key].drop_nulls())
        spelled = {text.lstrip("0"): text for text in theirs if text.isdigit()}
        ours = (text for text in set(rows[key].drop_nulls()) - theirs if text.isdigit())
        new = {text: spelled.get(text.lstrip("0"), text) for text in ours}
        rows = rows.with_columns(pl.col(key).replace(new))
    return rows


def _with_numbers(rows: pl.DataFrame, kind: str, tasks: list[str]) -> pl.DataFrame:
    """Values as numbers, null where one is missing, and each level written in one way."""
    if kind == "sample":  # an index may go on from task to task
        rows = rows.with_columns(output_type_id=pl.int_range(pl.len()).over(tasks).cast(pl.String))
    elif kind != "pmf":
        level = pl.col("output_type_id").cast(pl.Float64, strict=False)
        _refuse(rows.filter(level.is_null()), f"numbers as output_type_id of {kind}")
        if kind == "quantile":
            level = level.round(_DECIMALS_OF_LEVELS)
            rows = rows.filter(~level.is_in([0.0, 1.0]))
        rows = rows.with_columns(output_type_id=level.cast(pl.String))
    value = pl.col("value").cast(pl.Float64, strict=False)
    is_missing = pl.col("value").str.to_lowercase().is_in(["nan"]) | pl.col("value").is_null()
    _refuse(rows.filter(~is_missing & ~value.is_finite().fill_null(False)), "finite numbers")
    twice = rows.filter(pl.struct([*tasks, "output_type_id"]).is_duplicated())
    _refuse(twice, "one value for each task, and not two")
    return rows.with_columns(value.fill_nan(None))


def _targets(observed: pl.DataFrame, keys: list[str], kind: str, names: list[str]) -> pl.DataFrame:
    """One target for each task: a number, the label of a category, or the number of a bin."""
    number = target = pl.col(_OBSERVED).cast(pl.Float64, strict=False)
    has_types = "output_type_id" in observed.columns and kind in ("pmf", "cdf")
    if kind == "pmf":
        if has_types:  # the category with the value 1
            observed = observed.filter(number == 1)
            observed = observed.with_columns(pl.col("output_type_id").alias(_OBSERVED))
        labels = {name: float(k) for k, name in enumerate(names)}
        target = pl.col(_OBSERVED).replace_strict(labels, default=None, return_dtype=pl.Float64)
    elif has_types:  # 1 at all thresholds that are not below
        below = (number < 0.5).sum().cast(pl.String)
        observed = observed.group_by(keys, maintain_order=True).agg(below.alias(_OBSERVED))
    elif kind == "cdf":
        target = pl.sum_horizontal(number > float(name) for name in names).cast(pl.Float64)
    observed = observed.select([*keys, _OBSERVED]).unique(maintain_order=True)
    twice = observed.filter(pl.struct(keys).is_duplicated())
    _refuse(twice, f"one {_OBSERVED} for each task ({listed(keys)}), and not two")
    return observed.with_columns(target.alias(_TARGET))


def _usual(wide: pl.DataFrame, names: list[str]) -> list[str]:
    """The levels that most forecasts have, so that one odd file does not count for all others."""
    known = wide.select(pl.col(names).is_not_null()).to_numpy()
    sets, counts = np.unique(known, axis=0, return_counts=True)
    most = max(range(len(sets)), key=lambda k: (counts[k], sets[k].sum()))
    return list(itertools.compress(names, sets[most]))


def _predictions(
    values: Any, names: list[str], kind: str, ordered: Sequence[str] | None, sort: bool
) -> Distribution:
    if kind == "quantile":
        return Quantiles(values, [float(name) for name in names], sort=sort)
    if kind == "sample":
        exists = ~np.isnan(values)
        return Empirical(values, where=None if exists.all() else exists)
    if values.max() > 1.5:
        raise ValueError(f"expected probabilities, got {values.max():g}; divide percents by 100.")
    if kind == "cdf":
        return Ordinal(jnp.asarray(np.diff(values, axis=1, prepend=0.0, append=1.0)))
    return (Categorical if ordered is None else Ordinal)(jnp.asarray(values))
