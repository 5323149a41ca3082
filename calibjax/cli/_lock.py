"""Calls that use the same file, one after the other."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer
from filelock import FileLock, Timeout

from calibjax.cli._errors import BadInput

# For how many seconds a call waits for others.
_PATIENCE = 300.0


@contextmanager
def one_at_a_time(path: Path) -> Iterator[None]:
    """Waits until no other call is inside of such a block for the same file.

    The lock is a file beside it, which remains.  It is open again when the process ends, however it
    ends.

    Raises:
        BadInput: other calls are inside for too long.
    """
    lock = FileLock(f"{os.path.realpath(path)}.lock")
    try:
        held = lock.acquire(timeout=0)
    except Timeout:
        typer.echo(f"{path}: another call is using this file; waiting for it.", err=True)
        try:
            held = lock.acquire(timeout=_PATIENCE)
        except Timeout:
            raise BadInput(
                f"{path}: other calls have been using this file for {_PATIENCE:g} seconds; nothing "
                "was counted, try again."
            ) from None
    with held:
        yield
