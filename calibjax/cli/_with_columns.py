"""The options that say which columns hold what, once for all commands."""

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any, get_origin

import typer

from calibjax.cli._columns import Columns
from calibjax.cli._options import COLUMNS, HELP


def with_columns(command: Callable[..., None]) -> Callable[..., None]:
    """Decorator: in place of its argument `columns` the command has an option for each field.

    Other options without a help of their own have that of all commands.  The classes are no option,
    because names of columns are theirs.
    """
    fields = inspect.signature(Columns).parameters
    options = [
        _option(fields[name], bool if fields[name].default is False else str | None)
        for name in COLUMNS
    ]
    parameters = []
    for name, argument in inspect.signature(command).parameters.items():
        has_help = name not in HELP or get_origin(argument.annotation) is Annotated
        option = argument if has_help else _option(argument, argument.annotation)
        parameters += options if name == "columns" else [option]
    parameters = [x.replace(kind=inspect.Parameter.KEYWORD_ONLY) for x in parameters]

    def run(**given: Any) -> None:
        columns = Columns(**{name: given.pop(name) for name in COLUMNS})
        command(**given, columns=columns)

    with_options: Any = functools.update_wrapper(run, command)
    # typer reads both.
    with_options.__signature__ = inspect.Signature(parameters)
    with_options.__annotations__ = {x.name: x.annotation for x in parameters}
    return with_options


def _option(argument: inspect.Parameter, kind: Any) -> inspect.Parameter:
    name = argument.name
    default = typer.Option(argument.default, f"--{name.replace('_', '-')}", help=HELP[name])
    return argument.replace(default=default, annotation=kind)
