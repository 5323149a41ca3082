"""Runs the benchmarks and rewrites the page of tables: ``python -m benchmarks.run``.

    python -m benchmarks.run                # all, half an hour
    python -m benchmarks.run --quick        # tiny sizes, only to see that all run
    python -m benchmarks.run --only normal  # some of them, and the others as they were

The full run rewrites `README.md`, `results.json` and `figures/` in `benchmarks/`, the quick one in
`build/benchmarks/`; `--output` names another folder.  Results are kept after every table.
"""

import argparse
import datetime
import functools
import json
import pathlib
import sys
import time
import traceback
from collections.abc import Sequence
from typing import Any

from benchmarks import figures, harness, page
from benchmarks.rows import Table
from benchmarks.tables import TABLES

show = functools.partial(print, flush=True)


def run(table: Table, quick: bool) -> page.Result:
    """The rows of one table, which are shown as they come."""
    date, start = datetime.datetime.now(datetime.UTC), time.perf_counter()
    busy, own = harness.busy_seconds()
    show(f"\n### {table.title}\n\n{page.header(table)}")
    rows = []
    for row in table.rows(quick):
        if quick:
            row["met"] = None
        rows.append(row)
        show(page.line(table, row))
    elapsed = time.perf_counter() - start
    busy_after, own_after = harness.busy_seconds()
    return {
        "date": f"{date:%Y-%m-%d %H:%M} UTC",
        "minutes": elapsed / 60,
        # Far above 0, the machine is shared: trust ratios more than seconds.
        "others": max(0.0, (busy_after - busy) - (own_after - own)) / elapsed,
        "environment": harness.environment(),
        "quick": quick,
        "rows": rows,
    }


def write_page(results: dict[str, Any], folder: pathlib.Path) -> None:
    """README.md and figures, of all results that there are."""
    drawn = {}
    for name, draw in figures.FIGURES.items():
        if name in results:
            figures.save(draw(results[name]["rows"]), folder / "figures" / f"{name}.png")
            drawn[name] = [f"{name}.png"]
    (folder / "README.md").write_text(page.page(results, drawn))
    show(f"\n{folder / 'README.md'}")


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="tiny sizes")
    parser.add_argument("--only", nargs="*", choices=TABLES, help="these tables; none: the page")
    parser.add_argument("--output", type=pathlib.Path, metavar="FOLDER")
    args = parser.parse_args(argv)
    if args.output is None:
        args.output = harness.ROOT / ("build/benchmarks" if args.quick else "benchmarks")
    args.output.mkdir(parents=True, exist_ok=True)
    return args


def main() -> None:
    args = arguments()
    path = args.output / "results.json"
    results = json.loads(path.read_text()) if path.exists() else {}
    failed = []
    for name in TABLES if args.only is None else args.only:
        try:
            results[name] = run(TABLES[name], args.quick)
        except Exception:
            traceback.print_exc()
            results.pop(name, None)
            failed.append(name)
        path.write_text(json.dumps(results, indent=2) + "\n")
    write_page(results, args.output)
    if failed:
        sys.exit(f"Failed: {', '.join(failed)}.")


if __name__ == "__main__":
    main()
