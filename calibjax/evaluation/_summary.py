"""An evaluation as text."""

import math
import textwrap
from collections.abc import Iterator
from typing import Any

from calibjax.evaluation._measures import Measure
from calibjax.evaluation._verdict import direction
from calibjax.recalibration import is_end_of_range

_WIDTH = 88
BEST_TEMPERATURE = "best temperature"


def summary(evaluation: Any) -> str:
    """What `print` shows of an `Evaluation`: the verdict, and a table of numbers."""
    confidence = f"{100 * (1 - evaluation.level):.3g} % interval"
    rows = list(rows_of_summary(evaluation))
    last = "p" if any(measure.pvalue is not None for _, measure in rows) else ""
    lines = [textwrap.fill(evaluation.verdict, _WIDTH), ""]
    lines.append(f"{'':<26}{'value':>10}  {confidence:<20}{'if calibrated':<20}{last}")
    for name, measure in rows:
        pvalue = "" if measure.pvalue is None else number(measure.pvalue)
        ends = map(interval_text, (measure.interval, measure.if_calibrated))
        lines.append(
            f"{name:<26}{value_text(name, measure):>10}  "
            + (measure.note or "".join(f"{end:<19} " for end in ends) + pvalue)
        )
    towards = direction(evaluation.effect.best_temperature)
    if towards:
        lines[-1] += f"  {towards}"
    for remark in evaluation.remarks:
        lines += ["", textwrap.fill(remark, _WIDTH)]
    return "\n".join(line.rstrip() for line in lines)


def rows_of_summary(evaluation: Any) -> Iterator[tuple[str, Measure]]:
    """Names and numbers, in the order in which people should read them."""
    effect = evaluation.effect
    yield "SKCE", effect.skce
    if effect.equivalent is not None:
        ends = effect.equivalent.confidence_interval
        interval = float(ends.low), float(ends.high)
        yield "equivalent temperature", Measure(float(effect.equivalent.temperature), interval)
    yield from evaluation.measures.items()
    if effect.best_temperature is not None:
        yield BEST_TEMPERATURE, Measure(effect.best_temperature)


def value_text(name: str, measure: Measure) -> str:
    """The number of a line of the summary, or which bound it has reached."""
    if name == BEST_TEMPERATURE and is_end_of_range(measure.value):
        return f"{'≥' if measure.value > 1 else '≤'} {number(measure.value)}"
    return number(measure.value)


def number(value: float, digits: int = 3) -> str:
    """A number with so many digits, also if it is infinite; nothing if there is none."""
    if math.isnan(value):
        return ""
    # Zero has no sign for people.
    return f"{value + 0.0:.{digits}g}".replace("inf", "∞")


def interval_text(interval: tuple[float, float] | None) -> str:
    """Both ends of an interval, one number if they are equal, or nothing."""
    if interval is None:
        return ""
    low, high = map(number, interval)
    return low if low == high else f"{low} … {high}"
