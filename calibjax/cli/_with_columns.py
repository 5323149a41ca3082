"""The options that say which columns hold what, once for all commands."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

from calibjax.cli._columns import Columns


def with_columns(command: Callable[..., None]) -> Callable[..., None]:
    """Decorator: in place of its argument `columns` the command has an option for each field."""
    own = inspect.signature(command).parameters
    # On a command line the names of classes are those of their columns, and one command takes
    # survival curves.
    unused = "classes", "survival"
    options = {k: x for k, x in inspect.signature(Columns).parameters.items() if k not in unused}
    parameters = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for name, argument in own.items()
        for parameter in (options.values() if name == "columns" else [argument])
    ]

    def run(**given: Any) -> None:
        columns = Columns(**{name: given.pop(name) for name in options})
        command(**given, columns=columns)

    with_options: Any = functools.update_wrapper(run, command)
    # typer reads both.
    with_options.__signature__ = inspect.Signature(parameters)
    with_options.__annotations__ = {x.name: x.annotation for x in parameters}
    return with_options
