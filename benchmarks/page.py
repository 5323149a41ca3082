"""The page of tables: the committed README, of which all between two marks is made anew."""

from collections.abc import Mapping
from typing import Any

from benchmarks.harness import ROOT
from benchmarks.rows import Row, Table, number, quantity
from benchmarks.tables import TABLES

README = ROOT / "benchmarks" / "README.md"
BEGIN, END = "<!-- tables: made by benchmarks.run -->", "<!-- end of the tables -->"

#: A run of one table: when, where, how busy the machine was, and its rows.
Result = Mapping[str, Any]


def cell(row: Row, column: str) -> str:
    value = row.get(column)
    if value is None:
        return ""
    if isinstance(value, str):
        return f"{value} (missed)" if column == "target" and row.get("met") is False else value
    return quantity(value, row["unit"]) if column in ("ours", "peer") else number(value)


def header(table: Table) -> str:
    return f"| {' | '.join(table.columns)} |\n{'|---' * len(table.columns)}|"


def line(table: Table, row: Row) -> str:
    return f"| {' | '.join(cell(row, column) for column in table.columns)} |"


def section(table: Table, result: Result, figures: list[str]) -> str:
    parts = [f"### {table.title}"]
    if table.text:
        parts.append(table.text)
    parts.append("\n".join([header(table), *(line(table, row) for row in result["rows"])]))
    parts += [f"![{table.title}](figures/{name})" for name in figures]
    parts.append(
        f"*`--only {table.name}`, {result['date']}, {result['minutes']:.1f} minutes; beside it "
        f"other processes kept {result['others']:.1f} cores busy.*"
    )
    return "\n\n".join(parts)


def machines(results: Mapping[str, Result]) -> str:
    """Versions and machine: once, or for each table that was run with others."""
    of_tables: dict[str, list[str]] = {}
    for name, result in results.items():
        words = ", ".join(f"{key} {value}" for key, value in result["environment"].items())
        of_tables.setdefault(words, []).append(name)
    if len(of_tables) == 1:
        return f"{next(iter(of_tables))}."
    return "\n".join(f"* {', '.join(names)}: {words}." for words, names in of_tables.items())


def page(results: Mapping[str, Result], figures: Mapping[str, list[str]]) -> str:
    """The README with these results, of all tables in their order; figures by table."""
    present = {name: table for name, table in TABLES.items() if name in results}
    results = {name: results[name] for name in present}
    rows = [row for result in results.values() for row in result["rows"]]
    met = [row["met"] for row in rows if row.get("met") is not None]
    parts = [
        BEGIN,
        "## The last full run",
        machines(results),
        f"{len(met)} rows have a target, and {sum(met)} reach it.",
        *(section(t, results[name], figures.get(name, [])) for name, t in present.items()),
        END,
    ]
    text = "\n\n".join(parts)
    before, _, rest = README.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise ValueError(f"{README} must have the lines {BEGIN!r} and {END!r}.")
    return before + text + after
