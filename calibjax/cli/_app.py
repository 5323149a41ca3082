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
    calibjax tests this for class probabilities, normal predictions, quantiles and draws.

    \b
    Example: a file preds.csv
      p_cat,p_dog,label
      0.9,0.1,cat
      0.3,0.7,dog
    is tested with
      calibjax evaluate preds.csv --probs 'p_*' --target label

    The exit status is 0 if no miscalibration is detected, 1 if the model is not calibrated, 3 if
    that is new to a monitor, and 2 after an error.  Rows of CSV and JSON Lines files are named by
    line, where a header is line 1; rows of other files are counted from 0.

    calibjax recalibrate corrects predictions that are not calibrated.

    Compiled programs are cached in the folder calibjax of the user's cache: the first call for a
    number of columns, and for numbers of rows that differ by a third, takes some seconds longer.
    """


for command in (evaluate, recalibrate, compare, monitor, hub):
    app.command()(command)
