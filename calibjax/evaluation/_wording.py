"""Numbers, rows and classes, and a table of numbers, as text."""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from calibjax._base.text import class_name, cut
from calibjax.measures.measure import MeasureResult
from calibjax.recalibration import is_end_of_range

#: The name of a number that may be an end of the range that was searched.
BEST_TEMPERATURE = "fitted temperature"
#: The text for a rejected model without a clear overall error.
NO_OVERALL_ERROR = "no overall bias or dispersion error detected; errors may be local or in shape"
# Below it whole numbers have all their digits, instead of a power of ten.
_LARGE = 1e6


def number(value: float, digits: int = 3) -> str:
    """A number, finite or not, with this number of digits; empty for NaN."""
    if math.isnan(value):
        return ""
    if 10**digits - 0.5 <= abs(value) < _LARGE:
        return f"{value:.0f}"
    # Print -0.0 as 0.
    return f"{value + 0.0:.{digits}g}".replace("inf", "∞")


def pvalue_text(pvalue: float | None, n_draws: int | None) -> str:
    """A p-value, with ≤ if it is the least of n draws: none of them shows as much."""
    if pvalue is None:
        return ""
    is_least = n_draws is not None and pvalue <= 1 / (n_draws + 1)
    return f"≤ {number(pvalue)}" if is_least else number(pvalue)


def interval_text(interval: tuple[float, float] | None, between: str = " … ") -> str:
    """Both ends of an interval, one number if they are equal, or nothing."""
    if interval is None:
        return ""
    low, high = map(number, interval)
    return low if low == high else f"{low}{between}{high}"


def with_interval(text: str, interval: tuple[float, float] | None, level: float) -> str:
    """A number as text with its confidence interval, "1.67 (95 % CI 1.6 to 1.74)"."""
    ends = interval_text(interval, " to ")
    return f"{text} ({100 * (1 - level):.3g} % CI {ends})" if ends else text


def temperature_text(best_temperature: float) -> str:
    """The fitted temperature; it may be the end of the range that was searched."""
    words = ""
    if is_end_of_range(best_temperature):
        words = "at least " if best_temperature > 1 else "at most "
    return f"{words}{best_temperature:.3g}"


def target_in_words(low: float, high: float) -> str:
    """An interval low < y <= high, or the target itself."""
    if low < high == np.inf:
        return f"> {number(low)}"
    return f"≤ {number(high)}" if low == -np.inf < high else interval_text((low, high))


def event_name(classes: list[Any] | None) -> str:
    """The second of two classes: its name in quotes, or the event if classes have no names."""
    return "the event" if classes is None else class_name(classes, 1)


def shown_names(classes: list[Any] | None) -> list[str] | None:
    """The names of the classes as pages and plots can show them.

    Lines and control characters are written as Python writes them.
    """
    if classes is None:
        return None
    names = [cut(str(name)) for name in classes]
    return ["".join(x if x.isprintable() else repr(x)[1:-1] for x in name) for name in names]


def table_of_numbers(rows: Iterable[tuple[str, MeasureResult]], level: float) -> list[str]:
    """The lines of a table of numbers by their names."""
    rows, confidence = list(rows), f"{100 * (1 - level):.3g} % CI"
    last = "unadjusted p" if any(measure.pvalue is not None for _, measure in rows) else ""
    width = max([26, *(len(name) for name, _ in rows)])
    lines = [f"{'':<{width}}{'value':>10}  {confidence:<20}{'range if calibrated':<21}{last}"]
    for name, measure in rows:
        pvalue = pvalue_text(measure.pvalue, measure.n_draws)
        ends = interval_text(measure.interval), interval_text(measure.if_calibrated)
        rest = measure.note or f"{ends[0]:<19} {ends[1]:<20} {pvalue}"
        lines.append(f"{name:<{width}}{value_text(name, measure):>10}  {rest}")
    return lines


def value_text(name: str, measure: MeasureResult) -> str:
    """The number of a line of the table, or which bound it has reached."""
    if name == BEST_TEMPERATURE and is_end_of_range(measure.value):
        return f"{'≥' if measure.value > 1 else '≤'} {number(measure.value)}"
    return number(measure.value)
