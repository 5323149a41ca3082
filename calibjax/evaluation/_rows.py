"""Numbers of rows in words."""

import numpy as np

# Words name so many rows, and count the others.
_MOST_ROWS = 5


def named_rows(rows: np.ndarray) -> str:
    """Rows by their numbers, from 0: "row 17", or "rows 0, 1, 2, 3, 4 and 12 more"."""
    named = ", ".join(map(str, rows[:_MOST_ROWS].tolist()))
    others = len(rows) - _MOST_ROWS
    more = f" and {others} more" if others > 0 else ""
    return f"{'row' if len(rows) == 1 else 'rows'} {named}{more}"
