"""The command `calibjax monitor`."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated

import typer
from filelock import FileLock, Timeout

from calibjax._files import replacing
from calibjax.cli._batches import in_order_of
from calibjax.cli._columns import Columns, in_order
from calibjax.cli._monitor_picture import draw
from calibjax.cli._monitor_report import found_of, in_words
from calibjax.cli._monitor_state import as_file, read_state
from calibjax.cli._options import AsJson, File, Seed
from calibjax.cli._pairs import say_if_pairs
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


@with_columns(
    state="Where the evidence is kept, an npz file; the first call creates it.",
    by="The column of the day, or of whatever batch a row belongs to: the evidence is "
    "looked at after each of them, and an alarm says when it rang. Its values must ascend: "
    "dates such as 2026-03-31 or 31.03.2026, numbers, or names with numbers.",
    cluster="A column of names: rows of one cluster and one batch, such as stations under one "
    "weather, may depend on each other; with the column of --by, all rows of a day.",
    stream="A column of names, such as region: each has a monitor of its own, and a false "
    "alarm ever rings in any of them with a probability of at most --level.",
    again="Count all rows, also if they were counted before or are of days before the last one.",
    plot="Draw the evidence after each batch here, such as evidence.png.",
    level="How often a calibrated model may ever raise an alarm, 0.05 if nothing is said; "
    "the first call decides it.",
)
def monitor(
    file: File,
    columns: Columns,
    state: Path,
    by: str | None = None,
    cluster: str | None = None,
    stream: str | None = None,
    reserve: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="How many streams may come later that the first file does not have; they share "
            "the level from the start. The first call decides it.",
        ),
    ] = None,
    lag: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="How many batches are predicted before the targets of the first of them are "
            "known, 1 if nothing is said: 4 of weekly forecasts three weeks ahead. With too few, "
            "alarms are false. The first call decides it.",
        ),
    ] = None,
    again: bool = False,
    plot: Path | None = None,
    as_json: AsJson = False,
    level: float | None = None,
    seed: Seed = 0,
) -> None:
    """Is a model still calibrated, asked after every new file?

    Each call adds the rows of one file to the evidence against the model, in the order of time.
    The targets of a batch, which is a file or with --by a day, must be known before the next batch
    is predicted; if they come later, say --lag, because errors of forecasts that overlap are alike.
    The probability that a calibrated model ever raises an alarm is at most the level, however many
    batches there are: the evidence, called e-value, must reach 1 / level once, 20 for 0.05.  The
    exit status is 1 from the first alarm on, for ever.

    The state remembers what it has counted.  A file that was counted before, under whatever name,
    one that begins with it or has most of its rows, as after a correction, and days that do not
    come after the last one are refused; so are other columns, classes or levels than those of the
    first call.  From cron use --by, which knows days by their names.  Calls for one state wait for
    each other.  If a call fails, with the exit status 2, then it has counted nothing, and can be
    made again.

    \b
    Examples, every evening, and for a log of many days:
      calibjax monitor today.csv --state model.npz --probs 'p_*' --target label
      calibjax monitor log.csv --state model.npz --by date --prob p_churn --target churned
      calibjax monitor rain.csv --state rain.npz --by day --cluster day --prob p --target rained
      calibjax monitor flu.csv --state flu.npz --by week --lag 4 --quantiles 'q*' --target admitted
      calibjax monitor log.csv --state log.npz --by day --stream region --prob p --target bought
    """
    with one_line_errors():
        if level is not None:
            check_level(level)
        if state.suffix != ".npz":
            raise BadInput(f"{state}: expected a file that ends in .npz.")
        check_folder(state)
        if reserve and stream is None:
            raise BadInput("--reserve expects --stream, the column of the streams, got none.")
        if plot is not None:
            check_picture(plot)
        model = columns.read(file, at_least=1, others=(by, cluster, stream))
        # The same on each day, in whatever order the columns are.
        model = in_order_of(in_order(model, model.classes and sorted(model.classes)), by)
        if cluster is None:
            say_if_pairs(model)
        with one_at_a_time(state):
            with working(f"Adding {len(model.targets)} rows"):
                kept = read_state(
                    state, model, columns, by, cluster, stream, reserve, lag, level, seed
                )
                kept = kept.after(model, again)
            text = as_text(found_of(kept)) if as_json else in_words(kept)
            # A result that nobody has seen is not counted.
            with replacing(state, as_file(kept)):
                _print_or_fail(text)
            if plot is not None:
                draw(kept, plot)
    raise typer.Exit(int(kept.has_alarm))


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
