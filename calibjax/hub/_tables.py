"""Files of a hub as tables of texts, and the joining of forecasts with what was observed."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import polars as pl

from calibjax._base.text import listed
from calibjax.hub._forecasts import DATE, DAYS, ORIGINS

OUTPUT = ("output_type", "output_type_id", "value")
MODEL = "model_id"
# The file of each row, beside the columns that it has.
FILE = "calibjax_file"
OBSERVED = "oracle_value"
_ENDINGS = (".csv", ".csv.gz", ".parquet")
# Tasks whose numbers were observed have one of these types in tables of oracle output, or none.
_OF_NUMBERS = ("quantile", "sample", "mean", "median")


def read_text(path: Path) -> pl.DataFrame:
    """A table of texts, in which whole numbers have no decimals and dates are as in 2026-03-31."""
    try:
        if path.suffix != ".parquet":
            frame = pl.read_csv(path, infer_schema=False, null_values=["", "NA"])
        else:
            frame = pl.read_parquet(path)
    except (pl.exceptions.PolarsError, OSError) as error:
        reason = str(error).split("\n")[0].rstrip(".")
        raise ValueError(f"{path}: this is no table that can be read: {reason}.") from None
    twice = [name for name in frame.columns if name.endswith("_duplicated_0")]
    if twice:
        name = twice[0].removesuffix("_duplicated_0")
        raise ValueError(f"{path}: expected different names of columns, got {name} twice.")
    days = [name for name, kind in frame.schema.items() if kind == pl.Datetime]
    frame = frame.with_columns(
        pl.col(name).cast(pl.Date)
        for name in days
        if (frame[name].dt.truncate("1d") == frame[name]).all()
    )
    floats = [name for name, kind in frame.schema.items() if kind.is_float() and name != "value"]
    whole = pl.col(floats)
    whole = pl.when(whole == whole.round()).then(whole.cast(pl.Int64, strict=False).cast(pl.String))
    return frame.with_columns(whole.otherwise(pl.col(floats).cast(pl.String))).cast(pl.String)


def models_in(path: Path) -> Iterator[tuple[str, pl.DataFrame]]:
    """Each model and its rows: a folder of folders, a folder of files, or one file."""
    if not path.exists():
        raise ValueError(f"{path}: there is no such file or folder.")
    if path.is_file():
        frame = _check(path, read_text(path))
        if MODEL in frame.columns:
            for (name,), rows in frame.group_by([MODEL], maintain_order=True):
                yield str(name), rows.drop(MODEL)
        else:
            yield path.name.split(".")[0], frame
        return
    folders = sorted(x for x in path.iterdir() if x.is_dir()) or [path]
    found = False
    for folder in folders:
        files = sorted(x for x in folder.iterdir() if x.name.endswith(_ENDINGS))
        if files:
            found = True
            frames = [_check(file, read_text(file)) for file in files]
            rows = pl.concat(frames, how="diagonal")
            yield folder.name, rows.drop(MODEL, strict=False)
    if not found:
        raise ValueError(f"{path}: there are no files that end in {listed(_ENDINGS)}.")


def _check(path: Path, frame: pl.DataFrame) -> pl.DataFrame:
    missing = [name for name in OUTPUT if name not in frame.columns]
    if missing:
        raise ValueError(
            f"{path}: expected the columns {listed(OUTPUT)} of a hub, got no "
            f"{listed(missing)}, only {listed(frame.columns)}; a table with a column for "
            "each quantile is read by calibjax evaluate, with --quantiles."
        )
    return frame.with_columns(pl.lit(str(path)).alias(FILE))


def one_of(path: Path, column: str, values: Sequence[str], chosen: str | None) -> str:
    """The value of a column that is meant, which must be said if there are several."""
    if chosen is None and len(values) == 1:
        return values[0]
    if chosen is None or chosen not in values:
        raise ValueError(
            f"{path}: {column} must be one of {listed(values)}, got {chosen}; on the command "
            f"line --{column.replace('_', '-')} chooses."
        )
    return chosen


def read_observed(path: Path) -> pl.DataFrame:
    """What was observed, as `oracle_value`: oracle output, or the last version of a series."""
    if not path.is_file():
        raise ValueError(f"{path}: there is no such file.")
    frame = read_text(path)
    if OBSERVED not in frame.columns and "observation" in frame.columns:
        frame = frame.rename({"observation": OBSERVED})
    if OBSERVED not in frame.columns:
        raise ValueError(
            f"{path}: expected a column {OBSERVED}, or observation of a time series, got only "
            f"{listed(frame.columns)}."
        )
    if "as_of" in frame.columns:
        keys = [name for name in frame.columns if name not in ("as_of", OBSERVED)]
        frame = frame.sort("as_of").unique(keys, keep="last", maintain_order=True).drop("as_of")
    return frame.filter(pl.col(OBSERVED).str.to_lowercase() != "nan")


def observed_of(
    path: Path, observed: pl.DataFrame, tasks: Sequence[str], output_type: str
) -> tuple[pl.DataFrame, list[str]]:
    """The rows about one type of output, and the columns that they share with the tasks."""
    if "output_type" in observed.columns:
        wanted = [output_type] if output_type in ("pmf", "cdf") else _OF_NUMBERS
        is_wanted = pl.col("output_type").is_in(wanted) | pl.col("output_type").is_null()
        observed = observed.filter(is_wanted).drop("output_type")
    keys = [name for name in tasks if name in observed.columns]
    if not keys:
        raise ValueError(
            f"{path}: expected columns that forecasts have too, of {listed(tasks)}, got "
            f"{listed(observed.columns)}."
        )
    return observed, keys


def check_zeros(
    path: Path, forecasts: pl.DataFrame, observed: pl.DataFrame, keys: Sequence[str]
) -> None:
    """An error if a column lost the zeros of its texts, such as 01, in one of two tables."""
    for key in keys:
        ours, theirs = (set(x[key].drop_nulls()) for x in (forecasts, observed))
        numbers = {text.lstrip("0"): text for text in sorted(theirs) if text.isdigit()}
        for text in sorted(ours - theirs):
            there = numbers.get(text.lstrip("0")) if text.isdigit() else None
            if there is None:
                continue
            if len(text) < len(there):
                file = forecasts.filter(pl.col(key) == text)[FILE][0]
                of, expected, got = "observations", there, text
            else:
                file, of, expected, got = str(path), "forecasts", text, there
            raise ValueError(
                f"{file}, column {key}: expected the texts of the {of}, such as {expected}, got "
                f"{got}: a program took them for numbers."
            )


def check_dates(frame: pl.DataFrame) -> None:
    """An error if a column of days has something else than dates; it names the file."""
    for name in set(frame.columns) & set(DAYS + ORIGINS):
        bad = frame.filter(~pl.col(name).str.contains(f"^{DATE.pattern}"))
        if len(bad):
            raise ValueError(
                f"{bad[FILE][0]}, column {name}: expected dates such as 2026-03-31, got "
                f"{bad[name][0]}."
            )


def one_observation(path: Path, observed: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    """One number for each task."""
    observed = observed.select([*keys, OBSERVED]).unique(maintain_order=True)
    twice = observed.filter(pl.struct(keys).is_duplicated())
    if len(twice):
        raise ValueError(
            f"{path}: expected one {OBSERVED} for each of {listed(keys)}, got two for "
            f"{task_in_words(twice, 0, keys)}."
        )
    return observed


def task_in_words(frame: pl.DataFrame, row: int, names: Sequence[str]) -> str:
    """What a row of a table is about."""
    return ", ".join(f"{name} = {frame[name][row]}" for name in names)
