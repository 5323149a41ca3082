"""Errors in one line, and the exit status that tells them from a verdict."""

from collections.abc import Iterator
from contextlib import contextmanager

import typer

# 0 and 1 are verdicts.
_BAD_INPUT = 2


class BadInput(Exception):
    """Something in a file or an option is not what it should be; the message says where."""


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Whatever goes wrong inside ends the program with one line on stderr and the status 2.

    An exception that leaves Python ends it with the status 1, which would look like a verdict.
    """
    try:
        yield
    except BadInput as error:
        _end(str(error))
    except OSError as error:
        _end(f"{error.filename}: {error.strerror}" if error.strerror else str(error))
    except (TypeError, ValueError) as error:
        _end(str(error))
    except Exception as error:
        _end(f"{type(error).__name__}: {error}")


def _end(message: str) -> None:
    typer.echo(" ".join(message.split()), err=True)
    raise typer.Exit(_BAD_INPUT) from None
