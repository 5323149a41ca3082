"""The command `calibjax monitor`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from calibjax._base.text import working
from calibjax.cli._command import FORMATS, AsJson, Columns, Seed, as_text, echo, with_options

# The exit status of the call that raises an alarm; those after it have 1.
_NEW_ALARM = 3


@with_options(
    event="Label of the event of --prob, such as rain.",
    state="State database, such as model.sqlite; the first call creates it.",
    by="Column of the day (or week): rows with the same value are one batch. The evidence is "
    "tested after each batch, and an alarm has the date of its batch. Values: dates such as "
    "2026-03-31 or 31.03.2026, numbers, or names with numbers.",
    id="Column that identifies a row within its batch, such as an order number: a row counts once, "
    "even if its other columns change. Default: prediction and target identify a row.",
    cluster="Column such as station: rows of one batch with the same value may depend on each "
    "other. For any dependence within batches, pass the column of --by.",
    stream="Column such as region: one monitor for each value. The probability of any false alarm "
    "in any of them, ever, is at most --level.",
    reserve="Number of new streams that later files may add; each has its share of the level. The "
    "first call sets it.",
    lag="Number of batches that are predicted before the targets of the first of them are known "
    "(default 1): 4 for weekly forecasts three weeks ahead. A value that is too small causes false "
    "alarms. The first call sets it.",
    again="Count all rows, including rows already counted. This may cause false alarms.",
    show="Plot the evidence over time in the terminal. Needs no file.",
    plot="Write a plot of the evidence to this file, such as evidence.png. Needs no file.",
    level="Maximum probability that a calibrated model ever has an alarm (default 0.05). The first "
    "call sets it.",
)
def monitor(
    columns: Columns,
    state: Path,
    file: Annotated[
        Path | None, typer.Argument(help=f"New predictions and outcomes: {FORMATS}.")
    ] = None,
    by: str | None = None,
    id: str | None = None,
    cluster: str | None = None,
    stream: str | None = None,
    reserve: int | None = None,
    lag: int | None = None,
    again: bool = False,
    show: bool = False,
    plot: Path | None = None,
    as_json: AsJson = False,
    level: float | None = None,
    seed: Seed = 0,
) -> int:
    """Test after every new file whether a model is calibrated.

    Each call adds the rows of one file to the evidence against the model.  There is an alarm once
    the e-value reaches 1 / level, 20 for 0.05; it is permanent.  The probability that a calibrated
    model ever has an alarm is at most the level, for any number of calls.  A batch is a file, or
    with --by a day.  Give batches in the order of time.  The targets of a batch must be known
    before the next batch is predicted; if not, use --lag.

    The exit status is 0 without an alarm, 1 if an earlier call raised one, 2 after an error, and 3
    if this call raised one.

    Each row counts once.  With --by or --id, a file may be the whole log: rows that were counted
    are skipped.  Rows without a target, skipped with --drop-missing, count once they have one.  New
    rows of earlier batches are late: they count in the next batch, and the output has their number.
    Targets must not be late because of their value.

    From cron, use --by.  Without --by and --id, a file with most rows of an earlier one is
    rejected, even if it was renamed, sorted, extended or corrected.  Copies may not be recognised
    if they have fewer than 13 rows, or 24 after 1000 files, or few different rows.  Columns,
    classes and levels must be those of the first call.

    Calls for one state wait for each other.  If a call fails with the exit status 2 or is killed,
    it counted no row: repeat it.

    \b
    Examples: the file of a day, then logs of many days:
      calibjax monitor today.csv --state model.sqlite --probs 'p_*' --target label
      calibjax monitor log.csv --state model.sqlite --by date --prob p_churn --target churned
      calibjax monitor rain.csv --state rain.sqlite --by day --cluster day --prob p --target rained
      calibjax monitor log.csv --state model.sqlite --by week --id order --drop-missing --lag 4
        --prob p --target label
      calibjax monitor flu.csv --state flu.sqlite --by week --lag 4 --quantiles 'q*' --target cases
      calibjax monitor log.csv --state log.sqlite --by day --stream region --prob p --target bought
      calibjax monitor --state model.sqlite --show
    """
    from calibjax.cli._columns import in_order
    from calibjax.cli._monitor_report import curves, draw, in_words, to_dict
    from calibjax.cli._monitor_state import (
        checked,
        count,
        opened,
        options_of,
        read_state,
        write_state,
    )
    from calibjax.cli._new_rows import batches_of, new_rows, say_if_pairs

    if reserve and stream is None:
        raise ValueError("--reserve expects --stream, the column of the streams, got none.")
    if file is None and not (show or plot):
        raise ValueError("A file of predictions must be given, or --show, got neither.")
    if file is None and not state.is_file():
        raise ValueError(f"{state}: file not found.")
    model = None
    batches: list[Any] = []
    if file is not None:
        model = columns.read(file, at_least=1, others=(by, id, cluster, stream))
        # The same on each day, in whatever order the columns are.
        model = in_order(model, model.classes and sorted(model.classes))
        model, batches = batches_of(model, by, id)
        if cluster is None:
            say_if_pairs(model)
        options = options_of(model, columns)
        options |= {"--by": by, "--id": id, "--cluster": cluster, "--stream": stream}
        options |= {"--reserve": reserve, "--lag": lag, "--level": level}
    with opened(state) as database:
        found, counted = read_state(database)
        if model is not None:
            with working(f"Adding {len(model.targets)} rows"):
                found = checked(state, found, model, batches, options, seed)
                new = new_rows(model, batches, counted, by, id is not None, again)
                count(found, state, new)
                write_state(database, found, new.batches, model.table.source)
        if found is None:
            raise ValueError(f"{state}: nothing was counted so far.")
        if plot is not None:
            draw(found, plot)
        # A result that was not printed is not counted.
        text = as_text(to_dict(found)) if as_json else in_words(found)
        text = f"{text}\n{curves(found)}" if show and not as_json else text
        echo(text, ", and nothing was counted")
    return _NEW_ALARM if found.new_alarms else int(bool(found.alarms))
