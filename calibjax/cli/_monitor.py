"""The command `calibjax monitor`."""

import math
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from filelock import FileLock, Timeout

from calibjax._base.files import replacing
from calibjax._base.text import listed, text_table
from calibjax.cli._batch_deduplication import NewFile
from calibjax.cli._columns import Columns, in_order
from calibjax.cli._monitor_state import MonitorState, Stream, read_state
from calibjax.cli._options import AsJson, File, Seed, with_options
from calibjax.cli._terminal import (
    BadInput,
    as_text,
    check_folder,
    check_level,
    check_picture,
    one_line_errors,
    working,
)
from calibjax.frames import Model

# What is said of a p-value that float32 cannot tell from 0.
_UNDERFLOW = "< 1e-37"
# What an alarm takes for granted, unless the user has said how late targets are.
_IN_TIME = (
    "This takes for granted that the targets of each batch were known before the next one was "
    "predicted; if they were not, begin a new --state with --lag."
)
# For how many seconds a call waits for others.
_PATIENCE = 300.0
# The least number of pairs, the share of rows in them, and the rounding of their probabilities.
_PAIRS, _MOST, _ROUNDING = 10, 0.9, 2e-3


@with_options(
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
        new = NewFile.of(in_order(model, model.classes and sorted(model.classes)), by)
        if cluster is None:
            _say_if_pairs(new.model)
        options: dict[str, Any] = {"--by": by, "--cluster": cluster, "--stream": stream}
        options |= {"--reserve": reserve, "--lag": lag, "--level": level}
        with _one_at_a_time(state):
            with working(f"Adding {len(model.targets)} rows"):
                found = read_state(state, new, columns, options, seed).after(new, again)
            # A result that nobody has seen is not counted.
            with replacing(state, found.as_file()):
                _print_or_fail(as_text(_to_dict(found)) if as_json else _in_words(found))
            if plot is not None:
                _draw(found, plot)
    raise typer.Exit(int(bool(found.alarms)))


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
def _one_at_a_time(path: Path) -> Iterator[None]:
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


def _say_if_pairs(model: Model) -> None:
    """Says so if rows 1 and 2, 3 and 4 and so on say the same of an event and of its complement.

    The second row of such a pair is known from the first one, and evidence would count it twice.
    """
    n = len(model.targets) // 2 * 2
    if not model.predictions.has_labels or n < 2 * _PAIRS:
        return
    probabilities = np.asarray(model.predictions.label_probabilities())
    if probabilities.shape[1] != 2:
        return
    stated = probabilities[:n, 1].reshape(-1, 2).sum(axis=1)
    events = model.targets[:n].reshape(-1, 2).sum(axis=1)
    n_pairs = np.sum((np.abs(stated - 1) <= _ROUNDING) & (events == 1))
    if 2 * n_pairs >= _MOST * n:
        model.table.say(
            f"{model.table.source}: rows come in pairs whose probabilities and events add up to 1, "
            "such as both teams of a game. The second one is known from the first, which makes "
            "alarms false: keep one row of each, or name a column of pairs with --cluster."
        )


def _to_dict(state: MonitorState) -> dict[str, Any]:
    """What monitors say, for other programs."""
    pvalues, level = state.pvalues(), state.level
    found = {name: _of_stream(x, pvalues[name]) for name, x in state.streams.items()}
    if state.meaning["--stream"] is None:
        return found[""] | {"level": level, "lag": state.lag, "new_alarm": bool(state.new_alarms)}
    of_all: dict[str, Any] = {"n_rows": state.history.n_rows, "level": level, "lag": state.lag}
    of_all |= {"alarm": bool(state.alarms), "new_alarms": state.new_alarms}
    return of_all | {"streams": found}


def _of_stream(stream: Stream, pvalue: float) -> dict[str, Any]:
    log_e_value, alarm = float(stream.monitor.log_e_value), stream.first_alarm
    return {
        "n_rows": stream.n_rows,
        # JSON has no infinity.
        "log_e_value": log_e_value if math.isfinite(log_e_value) else "Infinity",
        "pvalue": pvalue or _UNDERFLOW,
        "alarm": alarm is not None,
        "first_alarm": None if alarm is None else alarm.name,
        "first_alarm_row": None if alarm is None else alarm.row,
        "changed_at": None if alarm is None else alarm.changed_at,
        "changed_in": None if alarm is None else stream.batch_of(alarm.changed_at),
        "impossible": stream.impossible,
    }


def _in_words(state: MonitorState) -> str:
    text = _of_all_rows(state) if state.meaning["--stream"] is None else _table(state)
    impossible = [x.impossible for x in state.streams.values() if x.impossible is not None]
    in_time = [_IN_TIME] if state.alarms and state.lag == 1 else []
    return "\n".join([text, *impossible, *in_time])


def _of_all_rows(state: MonitorState) -> str:
    stream = state.streams[""]
    beginning, since = "No alarm", ""
    if stream.first_alarm is not None:
        row = stream.first_alarm.changed_at
        beginning = f"ALARM since {stream.first_alarm.name} (row {stream.first_alarm.row})"
        since = f", wrong since about {stream.batch_of(row)} (row {row})"
    return (
        f"{beginning}: the largest e-value of {stream.n_rows} rows is {_largest(stream)}, and an "
        f"alarm needs {1 / state.level:g}{since}."
    )


def _table(state: MonitorState) -> str:
    """A line for each stream, those with the largest evidence first."""
    pvalues = state.pvalues()
    names = sorted(pvalues, key=lambda name: -float(state.streams[name].monitor.log_max))
    head = "stream", "rows", "largest e-value", "adjusted p", "alarm since", "wrong since about"
    lines = [list(head)]
    for name in names:
        stream, since = state.streams[name], ["", ""]
        if stream.first_alarm is not None:
            since = [stream.first_alarm.name, stream.batch_of(stream.first_alarm.changed_at)]
        pvalue = f"{pvalues[name]:.2g}" if pvalues[name] else _UNDERFLOW
        lines.append([name, str(stream.n_rows), _largest(stream), pvalue, *since])
    shown = text_table(lines, "<" * len(head))
    of_streams = f"{len(names)} stream{'s' * (len(names) > 1)} of {state.meaning['--stream']}"
    beginning = f"No alarm in {of_streams}"
    if state.alarms:
        new = listed(state.new_alarms) or "none"
        beginning = f"ALARM in {len(state.alarms)} of {of_streams}, new: {new}"
    to_come = f" or of {len(state.reserve)} to come" if state.reserve else ""
    said = (
        f"{beginning}; {state.history.n_rows} rows; a false one ever rings in any of them{to_come} "
        f"with a probability of at most {state.level:g}."
    )
    return "\n".join([said, *shown])


def _largest(stream: Stream) -> str:
    # It may be too large for a float.
    return f"{Decimal(float(stream.monitor.log_max)).exp():.3g}"


def _draw(state: MonitorState, path: Path) -> None:
    """Draws the evidence of each stream after each of its batches, and the line of its alarm."""
    from matplotlib.figure import Figure  # takes long to import

    from calibjax.plot import e_process

    drawn = {name: x for name, x in state.streams.items() if x.batches}
    figure = Figure(figsize=(6.4, 4.8 * len(drawn) ** 0.8), layout="constrained")
    all_axes = figure.subplots(len(drawn), squeeze=False)[:, 0]
    for ax, (name, stream) in zip(all_axes, drawn.items(), strict=True):
        alarm = stream.first_alarm
        n_sharing = state.n_sharing if alarm is None else alarm.n_sharing
        e_process(
            [batch.log_e_value for batch in stream.batches],
            ax=ax,
            level=state.level / n_sharing,
            names=[batch.name for batch in stream.batches],
            alarm=None if alarm is None else stream.number_of(alarm.row - 1),
            changed=None if alarm is None else stream.number_of(alarm.changed_at),
        )
        ax.set_xlabel(state.meaning["--by"] or "file")
        if name:
            ax.set_title(f"Evidence against calibration: {name}", loc="left")
    figure.savefig(path, dpi=200, bbox_inches="tight")
