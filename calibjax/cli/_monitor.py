"""The command `calibjax monitor`."""

import math
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import typer
from filelock import FileLock, Timeout

from calibjax.cli._columns import Columns, in_order
from calibjax.cli._kept_monitor import KeptMonitor, kept_monitor
from calibjax.cli._options import AsJson, File, Seed
from calibjax.cli._terminal import (
    BadInput,
    as_text,
    check_folder,
    check_level,
    check_picture,
    one_line_errors,
    working,
)
from calibjax.cli._with_columns import with_columns
from calibjax.monitoring import replacing


@with_columns
def monitor(
    file: File,
    columns: Columns,
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
    cluster: Annotated[
        str | None,
        typer.Option(
            help="A column of names: rows of one cluster and one batch, such as stations under one "
            "weather, may depend on each other; with the column of --by, all rows of a day."
        ),
    ] = None,
    again: Annotated[
        bool,
        typer.Option(
            "--again",
            help="Count rows that were counted before, or days before the last one, once more.",
        ),
    ] = False,
    plot: Annotated[
        Path | None,
        typer.Option(help="Draw the evidence after each batch here, such as evidence.png."),
    ] = None,
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
      calibjax monitor rain.csv --state rain.npz --by day --cluster day --prob p --target rained
    """
    with one_line_errors():
        if level is not None:
            check_level(level)
        if state.suffix != ".npz":
            raise BadInput(f"{state}: expected a file that ends in .npz.")
        check_folder(state)
        if plot is not None:
            check_picture(plot)
        model = columns.read(file, at_least=1, others=(by, cluster))
        # The same on each day, in whatever order the columns are.
        model = in_order(model, model.classes and sorted(model.classes))
        with one_at_a_time(state):
            with working(f"Adding {len(model.targets)} rows"):
                kept = kept_monitor(state, model, columns, by, cluster, level, seed)
                kept = kept.after(model, again)
            text = as_text(_found(kept)) if as_json else _in_words(kept)
            # A result that nobody has seen is not counted.
            with replacing(state, kept.as_file()):
                _print_or_fail(text)
            if plot is not None:
                _draw(kept, plot)
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


def _draw(kept: KeptMonitor, path: Path) -> None:
    from matplotlib.figure import Figure  # takes long to import

    from calibjax.plot import e_process

    figure = Figure()
    evidence = [batch.log_e_value for batch in kept.counted]
    ax = e_process(evidence, ax=figure.add_subplot(), level=kept.level)
    ax.set_xlabel(f"batches, from {kept.counted[0].name} to {kept.counted[-1].name}")
    figure.savefig(path, dpi=200, bbox_inches="tight")


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


# For how many seconds a call waits for others.
_PATIENCE = 300.0


@contextmanager
def one_at_a_time(path: Path) -> Iterator[None]:
    """Waits until no other call is inside of such a block for the same file.

    The lock is a file beside it, which remains.  It is open again when the process ends, however it
    ends.

    Raises:
        BadInput: other calls are inside for too long.
    """
    lock = FileLock(f"{os.path.realpath(path)}.lock")
    try:
        held = lock.acquire(timeout=0)
    except Timeout:
        typer.echo(f"{path}: another call is using this file; waiting for it.", err=True)
        try:
            held = lock.acquire(timeout=_PATIENCE)
        except Timeout:
            raise BadInput(
                f"{path}: other calls have been using this file for {_PATIENCE:g} seconds; nothing "
                "was counted, try again."
            ) from None
    with held:
        yield
