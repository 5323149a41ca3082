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
BEST_TEMPERATURE, VARIANCE_FACTOR = "fitted temperature", "fitted variance factor"
#: What tables call the bias of ranks or quantiles, which has a range and a sign.
BIAS_LABEL = "bias (-1 to 1, + too high)"
#: The text for a rejected model without a clear overall error.
NO_OVERALL_ERROR = "no overall bias or dispersion error detected; errors may be local or in shape"
# Below it whole numbers have all their digits, instead of a power of ten.
_LARGE = 1e6
# Maximum number of decimals, and a larger number for a power of ten instead.
_MOST_DECIMALS, _POWER = 7, 99


def number(value: float, digits: int = 3, decimals: int = _POWER) -> str:
    """A number, finite or not, with this number of digits or decimals; empty for NaN."""
    if math.isnan(value):
        return ""
    if decimals <= _MOST_DECIMALS and abs(value) < _LARGE:
        text = f"{value:.{decimals}f}"
        return text if float(text) and (decimals or abs(value) >= 1) else f"{value + 0.0:.2g}"
    if 10**digits - 0.5 <= abs(value) < _LARGE:
        return f"{value:.0f}"
    # Print -0.0 as 0.
    return f"{value + 0.0:.{digits}g}".replace("inf", "∞")


def _decimals(size: float, digits: int) -> int:
    """How many decimals show this number of digits of a size."""
    return max(digits - 1 - math.floor(math.log10(size)), 0) if 0 < size < math.inf else _POWER


def aligned_numbers(values: Sequence[float]) -> list[str]:
    """Numbers with the decimals that the largest of them needs for three digits.

    Those that this would change by more than a tenth have two digits.
    """
    sizes = [abs(x) for x in values if math.isfinite(x)]
    decimals = 0 if all(x == round(x) for x in sizes) else _decimals(max(sizes), 3)
    are_far = [abs(round(x, decimals) - x) > abs(x) / 10 for x in values]
    return [number(x, 2, _POWER if y else decimals) for x, y in zip(values, are_far, strict=True)]


def interval_text(interval: Interval | None, between: str = " … ", decimals: int = _POWER) -> str:
    """Both ends of an interval, or nothing if they are unknown."""
    return between.join(number(x, decimals=decimals) for x in interval or () if not math.isnan(x))


def decimals_of(interval: Interval | None) -> int:
    """How many decimals show two digits of half of the width, but at most three of the ends."""
    low, high = interval or (math.nan, math.nan)
    return min(_decimals((high - low) / 2, 2), _decimals(max(abs(low), abs(high)), 3))


def numbers_with_intervals(values: Sequence[float], intervals: Sequence[Interval]) -> list[str]:
    """Estimates, or ends of their intervals, each with the decimals of its own interval."""
    pairs = zip(values, intervals, strict=True)
    return [number(x, decimals=decimals_of(interval)) for x, interval in pairs]


def with_interval(text: str, value: float, interval: Interval | None, level: float) -> str:
    """A text with a number in it and its CI, "O/E 1.67 (95 % CI 1.60 to 1.74)"."""
    decimals = decimals_of(interval)
    said = text.format(number(value, decimals=decimals))
    ends = interval_text(interval, " to ", decimals)
    return f"{said} ({100 * (1 - level):.3g} % CI {ends})" if ends else said


def temperature_text(best_temperature: float) -> str:
    """The fitted temperature; it may be the end of the range that was searched."""
    bound = "≥ " if best_temperature > 1 else "≤ "
    return f"{bound * is_end_of_range(best_temperature)}{best_temperature:.3g}"


def target_in_words(low: float, high: float) -> str:
    """An interval low < y <= high, or the target itself."""
    if low < high == np.inf:
        return f"> {number(low)}"
    said = " … ".join(dict.fromkeys(map(number, (low, high))))
    return f"≤ {number(high)}" if low == -np.inf < high else said


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
    ranges = [measure.if_calibrated or (0.0, 0.0) for _, measure in rows]
    if any(low < high for low, high in ranges):
        lines += [
            "",
            "Range if calibrated: if targets were drawn from these predictions as they are.",
        ]
    return lines


def cells(name: str, measure: MeasureResult) -> tuple[str, str, str, str]:
    """The value, the interval, the range if calibrated and the p-value of a line of the table."""
    low, high = measure.if_calibrated or (math.nan, math.nan)
    decimals = decimals_of(measure.interval or measure.if_calibrated)
    ends = (interval_text(x, " … ", decimals) for x in (measure.interval, measure.if_calibrated))
    interval, expected = ends
    expected = f"expected {number(low)}" if low == high else expected
    if measure.interval is not None and measure.value < min(measure.interval[0], 0):
        expected = "unbiased; CI cut at 0"
    value = number(measure.value, decimals=decimals)
    if name.startswith("p-value"):
        value = pvalue_text(measure.value, measure.n_draws)
    if name in (BEST_TEMPERATURE, VARIANCE_FACTOR) and measure.interval is None:
        value = temperature_text(measure.value)
    return value, interval, expected, pvalue_text(measure.pvalue, measure.n_draws)
