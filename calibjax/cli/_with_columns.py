"""The options that say which columns hold what, once for all commands."""

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any, get_origin

import typer

from calibjax.cli._columns import Columns
from calibjax.cli._options import COLUMNS, HELP

Command = Callable[..., None]


def with_columns(**help: str) -> Callable[[Command], Command]:
    """Decorator: in place of its argument `columns` a command has an option for each field.

    The classes are no option, because names of columns are theirs.

    Args:
        help: what --help says of options, by their names; of others it says what `HELP` does.
    """

    def decorate(command: Command) -> Command:
        fields, parameters = inspect.signature(Columns).parameters, []
        for name, argument in inspect.signature(command).parameters.items():
            if name == "columns":
                for field in map(fields.__getitem__, COLUMNS):
                    kind = bool if field.default is False else str | None
                    parameters.append(_option(field.replace(annotation=kind), COLUMNS))
            else:
                parameters.append(_option(argument, HELP | help))

        def run(**given: Any) -> None:
            columns = Columns(**{name: given.pop(name) for name in COLUMNS})
            command(**given, columns=columns)

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
