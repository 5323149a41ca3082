"""Texts for display: names and shares of events, tables, JSON, and work that takes long."""

import dataclasses
import json
import math
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

# The share of events below which their ratio is also shown.
_RARE = 0.05
# The largest number of letters of a name of a class.
_MOST_LETTERS = 40
# The largest number of rows that are named.
_MOST_ROWS = 5


def percent(share: float, digits: int = 1) -> str:
    """A share such as 71.0 %; a small one has a digit."""
    is_small = 0 < share < 0.5 * 10 ** -(digits + 2)
    return f"{100 * share:.1g} %" if is_small else f"{100 * share:.{digits}f} %"


def shares_in_words(
    predicted: float, observed: float, names: tuple[str, str] = ("predicted", "observed")
) -> str:
    """Both shares of events, with as many digits as tell them apart, and the ratio of rare ones."""
    gap, least = 100 * abs(observed - predicted), 2 if 0 < predicted < _RARE else 1
    digits = min(max(1 - math.floor(math.log10(gap)), least), 6) if gap > 0 else least
    p, y = percent(predicted, digits), percent(observed, digits)
    said = f"{names[0]} {p}, {names[1]} {y}"
    ratio = f"{observed / predicted:.2g}" if 0 < predicted < _RARE and observed > 0 else "1"
    return said if ratio == "1" else f"{said} (O/E {ratio})"


def pvalue_text(pvalue: float | None, n_draws: int | None = None, sides: int = 1) -> str:
    """A p-value; "≤ 0.001" for the least that draws give, "< 0.001" for tiny ones, "" for NaN.

    It is a multiple of sides / (n_draws + 1); None draws for a p-value without draws.
    """
    if pvalue is None or math.isnan(pvalue):
        return ""
    least = 0.0 if n_draws is None else sides / (n_draws + 1)
    if pvalue <= 1.001 * least:
        return f"≤ {least:.3g}"
    return f"{pvalue:.3g}" if pvalue >= 0.0009995 else "< 0.001"


def p_in_words(pvalue: float, n_draws: int | None = None, sides: int = 1) -> str:
    """A p-value in a sentence, "p = 0.31", "p ≤ 0.001" or "p < 0.001"."""
    text = pvalue_text(pvalue, n_draws, sides)
    return f"p {text}" if text[:1] in ("≤", "<") else f"p = {text}"


def format_distinct(x: float, other: float, digits: int = 3) -> tuple[str, str]:
    """Both numbers with these digits, or with as many as make the texts differ, up to seven."""
    for n in range(digits, 8):
        texts = f"{x:.{n}g}", f"{other:.{n}g}"
        if texts[0] != texts[1]:
            break
    return texts


def class_name(classes: Sequence[Any] | None, label: int) -> str:
    """The name of a class in quotes, or its number if classes have no names."""
    name = label if classes is None else classes[label]
    return repr(cut(str(name))) if isinstance(name, str) else f"class {name}"


def cut(name: str) -> str:
    """A name that is not too long for a sentence."""
    return name if len(name) <= _MOST_LETTERS else name[: _MOST_LETTERS - 1] + "…"


def listed(items: Sequence[object], most: int = 10) -> str:
    """Names or numbers with commas between them; of many, the first ones and how many there are."""
    shown = [f"{x:g}" if isinstance(x, float) else str(x) for x in items[:most]]
    return ", ".join([*shown, f"… {len(items)} in all"] if len(items) > most else shown)


def first_of(names: Sequence[object], most: int, separator: str = ", ") -> str:
    """The first names, and how many more there are."""
    n_more = len(names) - most
    return separator.join(map(str, names[:most])) + (f" and {n_more} more" if n_more > 0 else "")


def named_rows(rows: np.ndarray) -> str:
    """Rows by their names: "row 17", or "rows 0, 1, 2, 3, 4 and 12 more"."""
    return f"{'row' if len(rows) == 1 else 'rows'} {first_of(rows.tolist(), _MOST_ROWS)}"


def text_table(rows: Sequence[Sequence[str]], sides: str) -> list[str]:
    """The lines of a table, each column as wide as its longest text.

    Args:
        rows: the texts of each row, of which the first one may be a header.
        sides: for each column "<" or ">", the side on which its texts stand.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(f"{x:{side}{n}}" for x, side, n in zip(row, sides, widths, strict=True)).rstrip()
        for row in rows
    ]


def plain(value: object, says_infinity: bool = False) -> Any:
    """What JSON has: arrays as lists, fields by their names, and infinity as None or its name.

    NaN is None.
    """
    if hasattr(value, "dtype"):
        array = np.asarray(value)
        if array.dtype == np.float32:  # 0.001, and not 0.0010000000474974513
            array = array.astype(str).astype(float)
        value = array.tolist()
    if hasattr(value, "to_dict"):
        value = value.to_dict()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {x.name: getattr(value, x.name) for x in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(name): plain(item, says_infinity) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item, says_infinity) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return json.dumps(value) if says_infinity and not math.isnan(value) else None
    return value


# After how many seconds a terminal shows what takes so long, and how often the seconds change; and
# after how many, and how often, anything else, such as a log, has a line.
_PATIENCE, _STEP, _LINE = 2.0, 1.0, 10.0

# Work within other work is told as that.
_told = threading.Lock()


@contextmanager
def working(text: str) -> Iterator[Callable[[str], None]]:
    """Tells on stderr of work that takes long; the function that it gives says what is done now.

    A terminal has one line, which changes and goes at the end; whatever else stderr is has a line
    every ten seconds.  A thread writes them while jax computes.
    """
    if not _told.acquire(blocking=False):
        yield lambda _: None
        return
    is_terminal, start, now = sys.stderr.isatty(), time.monotonic(), text
    ended = threading.Event()

    def tell() -> None:
        line = f"{now} … {time.monotonic() - start:.0f} s"
        whole = f"\r{line}\x1b[K" if is_terminal else f"{line}\n"
        print(whole, end="", file=sys.stderr, flush=True)

    def is_shown() -> bool:
        return is_terminal and time.monotonic() > start + _PATIENCE

    def say(done: str) -> None:
        nonlocal now
        now = f"{text}: {done}"
        if is_shown():
            tell()

    def keep_telling() -> None:
        wait = _PATIENCE if is_terminal else _LINE
        while not ended.wait(wait):
            tell()
            wait = _STEP if is_terminal else _LINE

    thread = threading.Thread(target=keep_telling, daemon=True)
    thread.start()
    try:
        yield say
    finally:
        ended.set()
        thread.join()
        if is_shown():
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
        _told.release()
