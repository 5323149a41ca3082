"""What `CalibrationMonitor` is measured against: ``python -m benchmarks.monitor``.

    python -m benchmarks.monitor                    # all, an hour
    python -m benchmarks.monitor --quick            # tiny sizes, only to see that all runs
    python -m benchmarks.monitor --only speed       # some parts, and the others as they were
    python -m benchmarks.monitor --only             # the page again

Writes `MONITOR.md` and `monitor.json` in `benchmarks/`, the quick run in `build/benchmarks/`;
`--output` names another folder.  Results are kept after every part.  probcal and River are needed
for their own rows only.
"""

import argparse
import datetime
import json
import pathlib
import time
from collections.abc import Mapping
from typing import Any

from benchmarks import harness
from benchmarks.monitor import (
    false_alarms,
    friedman_drift,
    peeking,
    probcal_simulation,
    speed,
)

#: Title and module of each part, in the order of the page; a module has `measure` and `section`.
PARTS = {
    "false_alarms": ("False alarms", false_alarms),
    "peeking": ("Tests that are checked every day", peeking),
    "probcal": ("Rare events: probcal's simulation", probcal_simulation),
    "friedman": ("Normal predictions: FriedmanDrift", friedman_drift),
    "speed": ("Speed and state", speed),
}

_TEXT = """\
# The monitor: false alarms, delays, speed

Made by `python -m benchmarks.monitor`, on a CPU in about an hour; `--help` says how to run parts.
`CalibrationMonitor` has its default options and level 0.05."""


def page(results: Mapping[str, Any]) -> str:
    parts = [_TEXT]
    for name, (title, module) in PARTS.items():
        if name in results:
            result = results[name]
            environment = ", ".join(f"{k} {v}" for k, v in result["environment"].items())
            note = (
                f"*`--only {name}`, {result['date']}, {result['minutes']:.1f} minutes; "
                f"{environment}.*{result.get('remark', '')}"
            )
            parts += [f"## {title}", module.section(result), note]
    return "\n\n".join(parts) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="tiny sizes")
    parser.add_argument("--only", nargs="*", choices=PARTS, help="these parts; none: the page")
    parser.add_argument("--output", type=pathlib.Path, metavar="FOLDER")
    args = parser.parse_args()
    folder = args.output or harness.ROOT / ("build/benchmarks" if args.quick else "benchmarks")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "monitor.json"
    results = json.loads(path.read_text()) if path.exists() else {}
    for name in PARTS if args.only is None else args.only:
        title, module = PARTS[name]
        print(f"\n{title}", flush=True)
        date, start = datetime.datetime.now(datetime.UTC), time.perf_counter()
        results[name] = {
            "date": f"{date:%Y-%m-%d %H:%M} UTC",
            **module.measure(args.quick),
            "minutes": (time.perf_counter() - start) / 60,
            "environment": harness.environment(),
        }
        path.write_text(json.dumps(results, indent=2) + "\n")
    (folder / "MONITOR.md").write_text(page(results))
    print(f"\n{folder / 'MONITOR.md'}")


if __name__ == "__main__":
    main()
