"""Tables of the page."""

import math
from collections.abc import Sequence


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def percent(fraction: float) -> str:
    """Of a fraction, with one digit below 99.95 %."""
    return f"{100 * fraction:.1f} %" if fraction < 0.9995 else f"{100 * fraction:.0f} %"


def rounded(x: float) -> str:
    """One digit below 10, an integer above, nothing for NaN."""
    if math.isnan(x):
        return ""
    return f"{x:.1f}" if abs(x) < 10 and x != round(x) else f"{x:.0f}"
