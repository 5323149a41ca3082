"""Names in a sentence, and tables of text."""

from collections.abc import Sequence


def listed(items: Sequence[object], most: int = 10) -> str:
    """Names or numbers with commas between them; of many, the first ones and how many there are."""
    shown = [f"{x:g}" if isinstance(x, float) else str(x) for x in items[:most]]
    return ", ".join([*shown, f"… {len(items)} in all"] if len(items) > most else shown)


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
