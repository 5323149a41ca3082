"""Numbers as people read them."""

import math

# Below it whole numbers have all their digits, in place of a power of ten.
_LARGE = 1e6


def number(value: float, digits: int = 3) -> str:
    """A number with so many digits, also if it is infinite; nothing if there is none."""
    if math.isnan(value):
        return ""
    if 10**digits <= abs(value) < _LARGE:
        return f"{value:.0f}"
    # Zero has no sign for people.
    return f"{value + 0.0:.{digits}g}".replace("inf", "∞")
