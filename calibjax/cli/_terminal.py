"""What all commands do before and after their work, and errors that end them in one line."""

import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import typer

from calibjax._base.text import plain

# 0 and 1 are verdicts.
_BAD_INPUT = 2


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Whatever goes wrong inside ends the program with one line on stderr and the status 2.

    An exception that leaves Python ends it with the status 1, which would look like a verdict.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        _end(f"{error.name} is missing: pip install 'calibjax[cli]' brings it.")
    except OSError as error:
        _end(f"{error.filename}: {error.strerror}" if error.strerror else str(error))
    except (TypeError, ValueError) as error:
        _end(str(error))
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
            raise ValueError(f"{path}: there is no folder {path.parent}.")


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
