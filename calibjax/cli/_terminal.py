"""What all commands do before and after their work."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console

from calibjax.cli._errors import BadInput


def check_level(level: float) -> None:
    if not 0 < level < 1:
        raise BadInput(f"--level must be between 0 and 1, got {level:g}.")


def check_folder(path: Path) -> None:
    """An error before long work, and not after it."""
    if not path.parent.is_dir():
        raise BadInput(f"{path}: there is no folder {path.parent}.")


def as_text(found: dict[str, Any]) -> str:
    return json.dumps(found, ensure_ascii=False, allow_nan=False, indent=1)


@contextmanager
def working(text: str) -> Iterator[None]:
    """Shows on a terminal that something is going on."""
    console = Console(stderr=True, force_terminal=sys.stderr.isatty())
    with console.status(f"{text} …"):
        yield
