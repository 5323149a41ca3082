"""What all commands do before and after their work, and errors that end them in one line."""

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

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
    except BrokenPipeError:  # as of head, which has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(_BAD_INPUT) from None
    except OSError as error:
        _end(f"{error.filename}: {error.strerror}" if error.strerror else str(error))
    except (TypeError, ValueError) as error:
        _end(str(error))
    except Exception as error:
        _end(f"{type(error).__name__}: {error}")


def _end(message: str) -> None:
    typer.echo(" ".join(message.split()), err=True)
    raise typer.Exit(_BAD_INPUT) from None


def check_level(level: float) -> None:
    if not 0 < level < 1:
        raise BadInput(f"--level must be between 0 and 1, got {level:g}.")


def check_folder(path: Path) -> None:
    """An error before long work, and not after it."""
    if not path.parent.is_dir():
        raise BadInput(f"{path}: there is no folder {path.parent}.")


def check_picture(path: Path) -> None:
    """The same of a picture, whose ending says its format."""
    if path.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise BadInput(f"{path}: expected a file that ends in .png, .svg or .pdf.")
    check_folder(path)


def as_text(found: dict[str, Any]) -> str:
    return json.dumps(found, ensure_ascii=False, allow_nan=False, indent=1)


@contextmanager
def working(text: str) -> Iterator[Callable[[str], None]]:
    """Shows on a terminal that something is going on; the function that it gives says what now."""
    console = Console(stderr=True, force_terminal=sys.stderr.isatty())
    with console.status(f"{text} …") as status:
        yield lambda now: status.update(f"{text}: {now} …")
