"""Arguments and options that several commands have, and what --help says of them."""

import functools
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_origin

import typer

from calibjax._data.column_options import FLAGS, OPTIONS, command_help, option_name
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
# Options of all commands that read columns, beside those that say how files are read.
_OF_COLUMNS = OPTIONS[: OPTIONS.index("survival")]
_OF_FILES = {
    "separator": "What is between columns of text, such as ';' or tab, if it is not seen.",
    "decimal": "What is before decimals, a point or a comma, if it is not seen.",
    "where": "Only some rows, such as \"lead == 3 and region = 'north'\", in SQL.",
}
# What is no text among options of columns.
_KINDS = dict.fromkeys(FLAGS, bool) | {"horizon": float | None}


def names_of_list(given: str | None) -> list[str]:
    """The names of a list such as "region,lead"."""
    return [name for name in map(str.strip, (given or "").split(",")) if name]


# What a command returns: whether its exit status is 1.
Command = Callable[..., bool | None]


def with_options(*columns: str, **help: str) -> Callable[[Command], Callable[..., None]]:
    """Decorator: arguments of a command are options, and `columns` is one for each of its fields.

    The classes are not an option: names of columns say them.  Errors end the command in one line.

    Args:
        columns: options of `ColumnOptions` that not all commands have.
        help: what --help says of options, by their names, if not what `ColumnOptions` says.
    """

    def decorate(command: Command) -> Callable[..., None]:
        parameters: list[inspect.Parameter] = []
        arguments, texts = inspect.signature(command).parameters, command_help() | _OF_FILES | help
        names = [*_OF_COLUMNS, *_OF_FILES, *columns] if "columns" in arguments else []
        for argument in arguments.values():
            if argument.name != "columns":
                parameters.append(_option(argument, texts))
                continue
            for name in names:
                kind, default = _KINDS.get(name, str | None), False if name in FLAGS else None
                option = argument.replace(name=name, default=default, annotation=kind)
                parameters.append(_option(option, texts))

        def run(**given: Any) -> None:
            with one_line_errors():
                check_options(given)
                if names:
                    from calibjax.cli._columns import Columns

                    of_files = {name: given.pop(name) for name in _OF_FILES}
                    of_columns = {name: given.pop(name) for name in (*_OF_COLUMNS, *columns)}
                    if "groups" in columns:
                        of_columns["groups"] = names_of_list(of_columns["groups"]) or None
                    given["columns"] = Columns(**of_columns)
                    vars(given["columns"]).update(of_files)
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
    return argument.replace(default=typer.Option(default, option_name(name), help=help.get(name)))
