"""The commands of `calibjax`."""

from importlib.metadata import version
from typing import Annotated

import typer

from calibjax.cli._compare import compare
from calibjax.cli._evaluate import evaluate
from calibjax.cli._hub import hub
from calibjax.cli._monitor import monitor
from calibjax.cli._recalibrate import recalibrate

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
    """Test whether probabilistic predictions are calibrated.

    A model is calibrated if events predicted with a probability of 30 % occur in 30 % of cases.
    calibjax tests this for probabilities of events and classes, normal predictions, quantiles,
    draws and survival curves.  To correct predictions, use calibjax recalibrate.

    \b
    Example: a file preds.csv
      p_cat,p_dog,label
      0.9,0.1,cat
      0.3,0.7,dog
    is tested with
      calibjax evaluate preds.csv --probs 'p_*' --target label

    The exit status is 0 if no miscalibration is detected, 1 if the model is not calibrated, 2 after
    an error, and 3 if calibjax monitor raises a new alarm.  In messages, rows of CSV and JSON Lines
    files are line numbers, the header is line 1; rows of other files are counted from 0.

    The first call for a number of columns takes some seconds longer, as does one with a third more
    rows.  Compiled programs are cached in the folder calibjax of the user's cache.
    """


for command in (evaluate, recalibrate, compare, monitor, hub):
    app.command()(command)
