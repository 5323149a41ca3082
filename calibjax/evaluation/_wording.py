"""Numbers, rows and classes, and a table of numbers, as text."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from calibjax._base.text import class_name, cut, pvalue_text
from calibjax.measures.measure import MeasureResult
from calibjax.measures.sampling import Interval
from calibjax.recalibration import is_end_of_range

#: The name of a number that may be an end of the range that was searched.
BEST_TEMPERATURE = "fitted temperature"
#: The name of the p-value of the test, before what it assumes.
P_VALUE = "p-value"
#: The text for a rejected model without a clear overall error.
NO_OVERALL_ERROR = "no overall bias or dispersion error detected; errors may be local or in shape"
# Below it whole numbers have all their digits, instead of a power of ten.
_LARGE = 1e6
# Maximum number of decimals; smaller numbers have a power of ten.
_MOST_DECIMALS = 7


def number(value: float, digits: int = 3, decimals: int | None = None) -> str:
    """A number, finite or not, with this number of digits or decimals; empty for NaN."""
    if math.isnan(value):
        return ""
    if decimals is not None and math.isfinite(value):
        text = f"{value:.{decimals}f}"
        return text if float(text) else f"{value + 0.0:.2g}"
    if 10**digits - 0.5 <= abs(value) < _LARGE:
        return f"{value:.0f}"
    # Print -0.0 as 0.
    return f"{value + 0.0:.{digits}g}".replace("inf", "∞")


def _decimals(size: float, digits: int) -> int | None:
    """How many decimals show this number of digits of a size; None for powers of ten."""
    if not 0 < size < _LARGE:
        return None
    n_decimals = max(digits - 1 - math.floor(math.log10(size)), 0)
    return n_decimals if n_decimals <= _MOST_DECIMALS else None


def aligned_numbers(values: Sequence[float], like: Sequence[float] | None = None) -> list[str]:
    """Numbers with the decimals that the largest of them, or of others, needs for three digits."""
    sizes = [abs(x) for x in like or values if math.isfinite(x)]
    are_whole = all(x == round(x) for x in sizes)
    decimals = 0 if are_whole else _decimals(max(sizes), 3)
    return [number(x, decimals=decimals) for x in values]


def interval_text(
    interval: Interval | None, between: str = " … ", decimals: int | None = None
) -> str:
    """Both ends of an interval, or nothing."""
    return between.join(number(x, decimals=decimals) for x in interval or ())


def _decimals_of(interval: Interval | None) -> int | None:
    """How many decimals show two digits of half of the width, but at most three of the ends."""
    if interval is None:
        return None
    of_width = _decimals((interval[1] - interval[0]) / 2, 2)
    of_ends = _decimals(max(map(abs, interval)), 3)
    return None if of_width is None or of_ends is None else min(of_width, of_ends)


def with_interval(text: str, value: float, interval: Interval | None, level: float) -> str:
    """A text with a number in it and its CI, "O/E 1.67 (95 % CI 1.60 to 1.74)"."""
    decimals = _decimals_of(interval)
    said = text.format(number(value, decimals=decimals))
    if interval is None:
        return said
    return f"{said} ({100 * (1 - level):.3g} % CI {interval_text(interval, ' to ', decimals)})"


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
    if low == high:
        return number(low)
    return f"≤ {number(high)}" if low == -np.inf else interval_text((low, high))


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
    rows, of_level = list(rows), f"{100 * (1 - level):.3g} %"
    last = "unadjusted p" if any(measure.pvalue is not None for _, measure in rows) else ""
    width = max([26, *(len(name) for name, _ in rows)])
    titles = f"{of_level + ' CI':<20}{of_level + ' range if calibrated':<26}{last}"
    lines = [f"{'':<{width}}{'value':>10}  {titles}"]
    for name, measure in rows:
        value, interval, expected, pvalue = cells(name, measure)
        rest = measure.note or f"{interval:<19} {expected:<25} {pvalue}"
        lines.append(f"{name:<{width}}{value:>10}  {rest}")
    return lines


def cells(name: str, measure: MeasureResult) -> tuple[str, str, str, str]:
    """The value, the interval, the range if calibrated and the p-value of a line of the table."""
    interval, expected = measure.interval, ""
    decimals = _decimals_of(interval or measure.if_calibrated)
    if measure.if_calibrated is not None:
        low, high = measure.if_calibrated
        expected = interval_text((low, high), decimals=decimals)
        expected = f"expected {number(low)}" if low == high else expected
    elif interval is not None and measure.value < interval[0]:
        expected = "unbiased: can be negative"
    value, ends = number(measure.value, decimals=decimals), interval_text(interval, " … ", decimals)
    if name == BEST_TEMPERATURE and is_end_of_range(measure.value):
        value = f"{'≥' if measure.value > 1 else '≤'} {value}"
    least = None if measure.n_draws is None else 1 / (measure.n_draws + 1)
    value = pvalue_text(measure.value, least) if name.startswith(P_VALUE) else value
    pvalue = pvalue_text(measure.pvalue, least)
    return value, ends, expected, pvalue
