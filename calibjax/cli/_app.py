"""The commands of `calibjax`."""

import json
import math
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from decimal import Decimal
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import typer
from rich.console import Console

from calibjax import evaluation
from calibjax.cli._columns import Columns, Model
from calibjax.cli._errors import BadInput, one_line_errors
from calibjax.cli._kept_monitor import KeptMonitor, kept_monitor
from calibjax.cli._lock import one_at_a_time
from calibjax.cli._options import (
    AsJson,
    Draws,
    Event,
    File,
    Level,
    Levels,
    Mean,
    Normalize,
    Prob,
    Probs,
    Quantiles,
    Sd,
    Seed,
    SortQuantiles,
    Target,
)
from calibjax.intervals import compare_calibration
from calibjax.monitoring import replacing

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"calibjax {version('calibjax')}")
        raise typer.Exit


@app.callback()
def _calibjax(
    _: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Can the probabilities of a model be believed?

    It is calibrated if what it predicts with a probability of 30 % happens in 30 % of such cases.
    calibjax tests this for class probabilities, normal predictions, quantiles and draws.

    \b
    Example: a file preds.csv
      p_cat,p_dog,label
      0.9,0.1,cat
      0.3,0.7,dog
    is tested with
      calibjax evaluate preds.csv --probs 'p_*' --target label

    The exit status is 0 if nothing was found, 1 if the model is not calibrated, and 2 if the input
    is bad.  Errors count rows as lines of a CSV file, whose header is line 1; rows of npz and
    Parquet files are counted from 0.

    Compiled programs are kept in the folder of the user's caches, in calibjax: the first call for
    a number of rows and columns takes some seconds longer.
    """


@app.command()
def evaluate(
    file: File,
    target: Target,
    probs: Probs = None,
    prob: Prob = None,
    event: Event = None,
    mean: Mean = None,
    sd: Sd = None,
    quantiles: Quantiles = None,
    levels: Levels = None,
    sort_quantiles: SortQuantiles = False,
    draws: Draws = None,
    normalize: Normalize = False,
    html: Annotated[Path | None, typer.Option(help="Write a report for browsers here.")] = None,
    as_json: AsJson = False,
    level: Level = 0.05,
    seed: Seed = 0,
) -> None:
    """Is a model calibrated, how far off is it, and where?

    The exit status is 1 if the p-value of the test is at most the level.

    \b
    Examples:
      calibjax evaluate preds.csv --probs 'p_*' --target label --html report.html
      calibjax evaluate rain.csv --prob p_rain --target rained
      calibjax evaluate heights.parquet --mean mu --sd sigma --target height
      calibjax evaluate demand.csv --quantiles 'q*' --target sold
    """
    with one_line_errors():
        _check_level(level)
        if html is not None:
            _check_folder(html)
        columns = Columns(
            target,
            probs,
            prob,
            event,
            mean,
            sd,
            quantiles,
            levels,
            sort_quantiles,
            draws,
            normalize,
        )
        model = columns.read(file)
        with _working(f"Testing {len(model.targets)} rows"):
            found = evaluation.evaluate_read(
                model.predictions, model.targets, seed=seed, classes=model.classes, level=level
            )
            if html is not None:
                found.to_html(html)
        typer.echo(found.to_json() if as_json else found)
    raise typer.Exit(int(found.rejected))


@app.command()
def compare(
    files: Annotated[list[Path], typer.Argument(help="Two files or more, with the same targets.")],
    target: Target,
    probs: Probs = None,
    prob: Prob = None,
    event: Event = None,
    mean: Mean = None,
    sd: Sd = None,
    quantiles: Quantiles = None,
    levels: Levels = None,
    sort_quantiles: SortQuantiles = False,
    draws: Draws = None,
    normalize: Normalize = False,
    as_json: AsJson = False,
    level: Level = 0.05,
    seed: Seed = 0,
) -> None:
    """Which of several models is better calibrated, on the same targets?

    The files have the same rows in the same order, and their columns the same names.  All models
    are compared with the first one by their squared kernel calibration error (SKCE).  The exit
    status is 1 if the first two models differ at the level.

    \b
    Example:
      calibjax compare old.csv new.csv --probs 'p_*' --target label
    """
    with one_line_errors():
        _check_level(level)
        if len(files) < 2:
            raise BadInput(f"{files[0]}: expected at least one more file to compare it with.")
        columns = Columns(
            target,
            probs,
            prob,
            event,
            mean,
            sd,
            quantiles,
            levels,
            sort_quantiles,
            draws,
            normalize,
        )
        first, *others = (columns.read(file) for file in files)
        others = [_of_same_targets(first, other, target) for other in others]
        with _working(f"Comparing {len(files)} models on {len(first.targets)} rows"):
            result = compare_calibration(
                jax.random.key(seed),
                None,
                first.predictions,
                [other.predictions for other in others],
                jnp.asarray(first.targets),
            )
            interval = result.confidence_interval(1 - level)
        pairs: list[dict[str, Any]] = [
            {
                "first": str(files[0]),
                "second": str(file),
                "difference": float(result.difference[k]),
                "interval": [float(interval.low[k]), float(interval.high[k])],
                "pvalue": float(result.pvalue[k]),
                "rejected": bool(result.pvalue[k] <= level),
            }
            for k, file in enumerate(files[1:])
        ]
        estimates = [
            {"file": str(file), "skce": float(estimate)}
            for file, estimate in zip(files, result.estimates, strict=True)
        ]
        if as_json:
            found = {"method": result.method, "level": level, "models": estimates, "pairs": pairs}
            typer.echo(_as_json(found))
        else:
            for model in estimates:
                typer.echo(f"{model['file']}: SKCE {model['skce']:.4g}")
            for pair in pairs:
                typer.echo(_sentence(pair))
            typer.echo(f"({result.method}, intervals with confidence {1 - level:g})")
    raise typer.Exit(int(pairs[0]["rejected"]))


@app.command()
def monitor(
    file: File,
    target: Target,
    state: Annotated[
        Path,
        typer.Option(help="Where the evidence is kept, an npz file; the first call creates it."),
    ],
    by: Annotated[
        str | None,
        typer.Option(
            help="The column of the day, or of whatever batch a row belongs to: the evidence is "
            "looked at after each of them, and an alarm says when it rang. Its values must ascend: "
            "dates such as 2026-03-31, numbers, or names with numbers."
        ),
    ] = None,
    again: Annotated[
        bool,
        typer.Option(
            "--again",
            help="Count rows that were counted before, or days before the last one, once more.",
        ),
    ] = False,
    probs: Probs = None,
    prob: Prob = None,
    event: Event = None,
    mean: Mean = None,
    sd: Sd = None,
    quantiles: Quantiles = None,
    levels: Levels = None,
    sort_quantiles: SortQuantiles = False,
    draws: Draws = None,
    normalize: Normalize = False,
    as_json: AsJson = False,
    level: Annotated[
        float | None,
        typer.Option(
            help="How often a calibrated model may ever raise an alarm, 0.05 if nothing is said; "
            "the first call decides it."
        ),
    ] = None,
    seed: Seed = 0,
) -> None:
    """Is a model still calibrated, asked after every new file?

    Each call adds the rows of one file to the evidence against the model, in the order of time.
    The targets of a file must be known before the next file is predicted; if they come later, use
    CalibrationMonitor in Python, with its argument lag.  The probability that a calibrated model
    ever raises an alarm is at most the level, however many files there are: the evidence, called
    e-value, must reach 1 / level once, 20 for 0.05.  The exit status is 1 from the first alarm on,
    for ever.

    The state remembers what it has counted.  A file that was counted before, under whatever name,
    one that begins with it, and days that do not come after the last one are refused; so are other
    columns, classes or levels than those of the first call.  Calls for one state wait for each
    other.  If a call fails, with the exit status 2, then it has counted nothing, and can be made
    again.

    \b
    Examples, every evening, and for a log of many days:
      calibjax monitor today.csv --state model.npz --probs 'p_*' --target label
      calibjax monitor log.csv --state model.npz --by date --prob p_churn --target churned
    """
    with one_line_errors():
        if level is not None:
            _check_level(level)
        if state.suffix != ".npz":
            raise BadInput(f"{state}: expected a file that ends in .npz.")
        _check_folder(state)
        columns = Columns(
            target,
            probs,
            prob,
            event,
            mean,
            sd,
            quantiles,
            levels,
            sort_quantiles,
            draws,
            normalize,
        )
        model = columns.read(file, at_least=1)
        # The same on each day, in whatever order the columns are.
        model = model.in_order(model.classes and sorted(model.classes))
        with one_at_a_time(state):
            with _working(f"Adding {len(model.targets)} rows"):
                kept = kept_monitor(state, model, columns, by, level, seed).after(model, again)
            text = _as_json(_found(kept)) if as_json else _in_words(kept)
            # A result that nobody has seen is not counted.
            with replacing(state, kept.as_file()):
                _print_or_fail(text)
    raise typer.Exit(int(kept.first_alarm is not None))


def _found(kept: KeptMonitor) -> dict[str, Any]:
    """What a monitor says, for other programs."""
    log_e_value, alarm = float(kept.monitor.log_e_value), kept.first_alarm
    changed_at = None if alarm is None else int(kept.monitor.changed_at)
    return {
        "n_rows": kept.n_rows,
        # JSON has no infinity.
        "log_e_value": log_e_value if math.isfinite(log_e_value) else "Infinity",
        "pvalue": float(kept.monitor.pvalue),
        "level": kept.level,
        "alarm": alarm is not None,
        "first_alarm": None if alarm is None else alarm.name,
        "first_alarm_row": None if alarm is None else alarm.row,
        "changed_at": changed_at,
        "changed_in": None if changed_at is None else kept.batch_of(changed_at),
    }


def _in_words(kept: KeptMonitor) -> str:
    # It may be too large for a float.
    largest = Decimal(float(kept.monitor.log_max)).exp()
    beginning, since = "No alarm", ""
    if kept.first_alarm is not None:
        row = int(kept.monitor.changed_at)
        beginning = f"ALARM since {kept.first_alarm.name} (row {kept.first_alarm.row})"
        since = f", wrong since about {kept.batch_of(row)} (row {row})"
    return (
        f"{beginning}: the largest e-value of {kept.n_rows} rows is {largest:.3g}, and an alarm "
        f"needs {1 / kept.level:g}{since}."
    )


def _of_same_targets(first: Model, other: Model, target: str) -> Model:
    """The other model, with classes in the order of the first; an error unless targets agree."""
    other = other.in_order(first.classes)
    if len(other.targets) != len(first.targets):
        raise BadInput(
            f"{other.table.path}: expected {len(first.targets)} rows as in {first.table.path}, got "
            f"{len(other.targets)}."
        )
    words = f"the same target as in this row of {first.table.path}"
    other.table.check(target, other.targets == first.targets, words)
    return other


def _sentence(pair: dict[str, Any]) -> str:
    first, second = pair["first"], pair["second"]
    low, high = pair["interval"]
    numbers = (
        f"p = {pair['pvalue']:.3g}, difference {pair['difference']:.3g} in {low:.3g} … {high:.3g}"
    )
    if not pair["rejected"]:
        return f"No sign that one of {first} and {second} is better calibrated ({numbers})."
    better, worse = (first, second) if pair["difference"] < 0 else (second, first)
    return f"{better} is better calibrated than {worse} ({numbers})."


def _check_level(level: float) -> None:
    if not 0 < level < 1:
        raise BadInput(f"--level must be between 0 and 1, got {level:g}.")


def _check_folder(path: Path) -> None:
    """An error before long work, and not after it."""
    if not path.parent.is_dir():
        raise BadInput(f"{path}: there is no folder {path.parent}.")


def _as_json(found: dict[str, Any]) -> str:
    return json.dumps(found, ensure_ascii=False, allow_nan=False, indent=1)


def _print_or_fail(text: str) -> None:
    """Prints, or says in an error that this was not possible, such as into a closed pipe."""
    try:
        typer.echo(text)
    except OSError as error:
        # Python would try again at its end, and fail with a status of its own.
        with suppress(OSError):
            stdout = sys.stdout.fileno()
            os.dup2(os.open(os.devnull, os.O_WRONLY), stdout)
        raise BadInput(
            f"The result could not be printed ({error.strerror}), and nothing was counted."
        ) from error


@contextmanager
def _working(text: str) -> Iterator[None]:
    """Shows on a terminal that something is going on."""
    console = Console(stderr=True, force_terminal=sys.stderr.isatty())
    with console.status(f"{text} …"):
        yield
