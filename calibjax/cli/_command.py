"""What all commands share: options and their help, errors of one line, and what is printed."""

import functools
import inspect
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_origin

import typer

from calibjax._base.text import plain
from calibjax._data.column_options import FLAGS, OPTIONS, command_help, option_name

if TYPE_CHECKING:
    from calibjax.cli._columns import Columns
else:
    Columns = Any  # its module takes long to import

FORMATS = ".csv, .tsv, .jsonl, .json, .parquet, .arrow or .npz, also with .gz; - is standard input"
Files = Annotated[
    list[Path],
    typer.Argument(help=f"Predictions and outcomes: {FORMATS}. Several files are joined."),
]
Level = Annotated[float, typer.Option(help="Significance level of the test.")]
Seed = Annotated[int, typer.Option(help="Random seed.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON in place of text.")]
# Options of all commands that read columns, beside those that say how files are read.
_OF_COLUMNS = OPTIONS[: OPTIONS.index("survival")]
_OF_FILES = {
    "separator": "Column separator, such as ';' or tab (default: detected).",
    "decimal": "Decimal separator, a point or a comma (default: detected).",
    "where": "Use only rows that satisfy this SQL condition: \"lead == 3 and region = 'north'\".",
}
# The types of column options other than text.
_KINDS = dict.fromkeys(FLAGS, bool) | {"horizon": float | None}
# The least numbers of options that have one.
_LEAST = {"reserve": 0, "lag": 1}
# The exit statuses of bad input and of Ctrl-C; 0, 1 and 3 are verdicts.
_BAD_INPUT, _INTERRUPTED = 2, 130


def names_of_list(given: str | None) -> list[str]:
    """The names of a list such as "region,lead"."""
    return [name for name in map(str.strip, (given or "").split(",")) if name]


# What a command returns: its exit status.
Command = Callable[..., int | None]


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
                    for name in {"groups", "weights"} & {*columns}:
                        of_columns[name] = names_of_list(of_columns[name]) or None
                    given["columns"] = Columns(**of_columns)
                    vars(given["columns"]).update(of_files)
                status = command(**given)
            raise typer.Exit(int(status or 0))

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
    words, least = help.get(name), _LEAST.get(name)
    option = typer.Option(default, option_name(name), help=words, min=least)
    return argument.replace(default=option)


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Whatever goes wrong inside ends the program with one line on stderr and the status 2.

    An exception that leaves Python ends it with the status 1, which would look like a verdict.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        _end(f"{error.name} is missing: install it with pip install 'calibjax[cli]'.")
    except OSError as error:
        _end(f"{error.filename}: {error.strerror}" if error.strerror else str(error))
    except (TypeError, ValueError) as error:
        _end(str(error))
    except KeyboardInterrupt:
        raise typer.Exit(_INTERRUPTED) from None
    except Exception as error:
        _end(f"{type(error).__name__}: {error}")


def _end(message: str) -> None:
    typer.echo(" ".join(message.split()), err=True)
    raise typer.Exit(_BAD_INPUT) from None


def check_options(given: Mapping[str, Any]) -> None:
    """An error before long work, and not after it, if a level is none, or a folder is not there."""
    level = given.get("level")
    if level is not None and not 0 < level < 1:
        raise ValueError(f"--level must be between 0 and 1, got {level:g}.")
    for path in (given.get(name) for name in ("html", "out", "plot", "save", "state")):
        if path is not None and not path.parent.is_dir():
            raise ValueError(f"{path}: folder not found: {path.parent}.")


def echo(text: object, otherwise: str = "") -> None:
    """Prints a result, or says in an error that this was not possible, and what became of it."""
    try:
        typer.echo(text)
    except OSError as error:  # as of head, which has read enough
        # Python would try again at its end, and fail with a status of its own.
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        message = f"The result could not be printed ({error.strerror}){otherwise}."
        raise ValueError(message) from error


def as_text(found: object) -> str:
    """JSON, which has no infinity: it is a text, and NaN is null."""
    found = plain(found, says_infinity=True)
    return json.dumps(found, ensure_ascii=False, allow_nan=False, indent=1)
