"""Arguments and options that several commands have, and what --help says of them."""

import functools
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_origin

import typer

from calibjax.cli._terminal import check_options, one_line_errors

if TYPE_CHECKING:
    from calibjax.cli._columns import Columns
else:
    Columns = Any  # its module takes long to import

FORMATS = (
    "a .csv, .tsv, .jsonl, .json, .parquet, .arrow or .npz file, also with .gz; - is standard input"
)
Files = Annotated[
    list[Path],
    typer.Argument(help=f"The predictions: {FORMATS}. Rows of several files are joined."),
]
Level = Annotated[float, typer.Option(help="How often chance alone may give the exit status 1.")]
Seed = Annotated[int, typer.Option(help="What all random numbers come from.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else.")]
# What --help says of which columns hold what, and how they are read.
COLUMNS = {
    "target": "The column of what was observed: the names of classes; if no class has such a name, "
    "numbers from 0 in the order of the columns; for other predictions real numbers.",
    "probs": "The columns of class probabilities, such as 'p_*': the * stands for the names of the "
    "classes. In an npz file also one array [n, m].",
    "prob": "The column of the probability of an event, whose label is 1, true, yes, on or "
    "positive; --event says another one.",
    "event": "The label of the event of --prob, such as rain of labels rain and dry; with "
    "--survival the column that says whether there was an event.",
    "mean": "The column of means of normal predictions.",
    "sd": "The column of their standard deviations.",
    "quantiles": "The columns of predicted quantiles, such as 'q*': the * stands for the level, as "
    "in q0.1 or q10.",
    "levels": "The levels of the quantiles, such as 0.1,0.5,0.9, if the columns do not name them.",
    "sort_quantiles": "Sort the quantiles of each row, if they cross.",
    "draws": "The columns of draws from each prediction, such as 'draw_*'.",
    "normalize": "Divide class probabilities by their sum.",
    "drop_missing": "Leave out rows that miss a value of a column that is used.",
    "separator": "What is between columns of text, such as ';' or tab, if it is not seen.",
    "decimal": "What is before decimals, a point or a comma, if it is not seen.",
    "where": "Only some rows, such as \"lead == 3 and region = 'north'\", in SQL.",
}
#: Those that have no value; all others are texts.
FLAGS = "sort_quantiles", "normalize", "drop_missing"
# What it says of other options, unless a command says something else.
HELP = COLUMNS | {
    "survival": "The columns of survival curves, such as 'S_*': the * stands for the time. "
    "--target is then the time of an event or of censoring, and --event the column that says "
    "which.",
    "by": "Columns such as region,lead: a table of the test of each group alone, with p-values "
    "adjusted for all groups.",
    "segments": "Columns such as region,lead,age: for whom is the model wrong? All segments of one "
    "or two of them are tested at once.",
    "weight": "A column of how much each row counts.",
    "cluster": "A column of names: rows of one cluster, such as a hospital, may depend on each "
    "other.",
    "time": "A column of numbers or dates: rows of one time may depend on each other, or with "
    "--horizon rows that are closer.",
    "horizon": "Rows that are closer may depend on each other: in units of --time, of dates in "
    "days.",
    "censored": "A column of truth values, for --mean: true if the target is only known to be "
    "larger.",
}


def names_of_list(given: str | None) -> list[str]:
    """The names of a list such as "region,lead"."""
    return [name for name in map(str.strip, (given or "").split(",")) if name]


# What a command returns: whether its exit status is 1.
Command = Callable[..., bool | None]


def with_options(**help: str) -> Callable[[Command], Callable[..., None]]:
    """Decorator: arguments of a command are options, and `columns` is one for each of its fields.

    The classes are no option, because names of columns are theirs.  Errors end it in one line.

    Args:
        help: what --help says of options, by their names; of others it says what `HELP` does.
    """

    def decorate(command: Command) -> Callable[..., None]:
        parameters: list[inspect.Parameter] = []
        for name, argument in inspect.signature(command).parameters.items():
            if name == "columns":
                for field in COLUMNS:
                    kind, default = (bool, False) if field in FLAGS else (str | None, None)
                    option = argument.replace(name=field, default=default, annotation=kind)
                    parameters.append(_option(option, COLUMNS))
            else:
                parameters.append(_option(argument, HELP | help))

        takes_columns = "columns" in inspect.signature(command).parameters

        def run(**given: Any) -> None:
            with one_line_errors():
                check_options(given)
                if takes_columns:
                    from calibjax.cli._columns import Columns

                    given["columns"] = Columns(**{name: given.pop(name) for name in COLUMNS})
                is_found = command(**given)
            raise typer.Exit(int(bool(is_found)))

        with_options: Any = functools.update_wrapper(run, command)
        # typer reads both.
        with_options.__signature__ = inspect.Signature(parameters)
        with_options.__annotations__ = {x.name: x.annotation for x in parameters}
        return run

    return decorate


def _option(argument: inspect.Parameter, help: Mapping[str, str]) -> inspect.Parameter:
    """The argument as an option with its help, unless it says what it is itself."""
    argument, name = argument.replace(kind=inspect.Parameter.KEYWORD_ONLY), argument.name
    if get_origin(argument.annotation) is Annotated:
        return argument
    default = ... if argument.default is argument.empty else argument.default
    return argument.replace(
        default=typer.Option(default, f"--{name.replace('_', '-')}", help=help[name])
    )
