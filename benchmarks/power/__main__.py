"""Power of all tests at level 0.05: ``python -m benchmarks.power``.

    python -m benchmarks.power                  # all, minutes on a GPU, hours on a CPU
    python -m benchmarks.power --quick          # tiny sizes, only to see that all runs
    python -m benchmarks.power --only binary    # some settings, and the others as they were
    python -m benchmarks.power --only           # the page and the figure again

Writes `POWER.md`, `figures/power.png` and `power.json` in `benchmarks/`, the quick run in
`build/benchmarks/`; `--output` names another folder.  Results are kept after every setting.
"""

import argparse
import datetime
import functools
import json
import os
import pathlib
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import numpy as np

from benchmarks import figures, harness
from benchmarks.power import columns, figure, one_set_of_draws, report
from benchmarks.power.columns import Test
from benchmarks.power.scenario import Scenario
from benchmarks.power.settings import SETTINGS, Setting

show = functools.partial(print, flush=True)

#: The quick run has labels, numbers, samples and T-Cal's setting; `--only` names others.
QUICK_SETTINGS = "binary", "regression", "samples", "t_cal_2000"


class Sizes(NamedTuple):
    """How much is done of a setting.

    Args:
        n: rows of a data set.
        n_data_sets: data sets of each scenario.
        batch_size: data sets that are tested at a time, a divisor of their number.
        n_draws: draws from the model, of all tests that draw.
        n_scenarios: how many scenarios, from the first one; None means all.
        repeats: timed calls.
    """

    n: int
    n_data_sets: int
    batch_size: int
    n_draws: int
    n_scenarios: int | None
    repeats: int


def sizes_of(setting: Setting, args: argparse.Namespace) -> Sizes:
    if args.quick:
        # One n and one data set: fewer programs are compiled.
        return Sizes(40, 1, 1, 19, n_scenarios=2, repeats=1)
    n_data_sets = args.data_sets if setting.n <= 1000 else max(1, args.data_sets // 2)
    most = max(1, min(n_data_sets, args.rows // setting.n))
    # Batches of equal size are one program.
    batch_size = max(b for b in range(1, most + 1) if n_data_sets % b == 0)
    return Sizes(setting.n, n_data_sets, batch_size, 199, n_scenarios=None, repeats=5)


def run(setting: Setting, sizes: Sizes) -> dict[str, Any]:
    """The fraction of data sets that each test rejects in each scenario, and seconds of a test."""
    date, start = datetime.datetime.now(datetime.UTC), time.perf_counter()
    scenarios = dict(list(setting.scenarios.items())[: sizes.n_scenarios])
    keys, test_keys = jax.random.split(jax.random.key(0), (2, len(scenarios), sizes.n_data_sets))
    # Threads compile side by side.
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        data = list(pool.map(functools.partial(make_data, n=sizes.n), scenarios.values(), keys))
        predictions = data[0][0]
        tests = columns.tests_of(setting, predictions)
        rates = {}
        for i, name in enumerate(scenarios):
            reject = functools.partial(
                columns.rejections,
                *(test_keys[i], data[i]),
                n_draws=sizes.n_draws,
                batch_size=sizes.batch_size,
            )
            found = pool.map(lambda test, reject=reject: jax.device_get(reject(test=test)), tests)
            rates[name] = {
                column: float(np.mean(x)) for by_column in found for column, x in by_column.items()
            }
            show(f"{name}: {time.perf_counter() - start:.0f} s")
        if setting.is_ensemble:
            seconds = {}
        else:
            seconds = times(test_keys[0], data[0], tests, sizes, pool)
    return {
        "date": f"{date:%Y-%m-%d %H:%M} UTC",
        "minutes": (time.perf_counter() - start) / 60,
        "environment": harness.environment(),
        **{key: getattr(sizes, key) for key in ("n", "n_data_sets", "n_draws")},
        "members": [*([] if setting.is_ensemble else one_set_of_draws.member_names(predictions))],
        "rates": rates,
        "seconds": seconds,
    }


def make_data(scenario: Scenario, keys: jax.Array, *, n: int) -> Any:
    """Data sets of a scenario, with a leading axis."""
    return jax.jit(jax.vmap(functools.partial(scenario, n=n)))(keys)


def times(
    keys: jax.Array, data: Any, tests: Sequence[Test], sizes: Sizes, pool: ThreadPoolExecutor
) -> dict[str, float]:
    """Seconds of each test of the first data set."""
    one = jax.tree.map(lambda x: x[:1], (keys, data))
    calls = {
        columns.NAMES[test]: functools.partial(
            columns.rejections, *one, test=test, n_draws=sizes.n_draws, batch_size=1
        )
        for test in (columns.one_kernel, *tests)
    }
    list(pool.map(harness.seconds, calls.values()))
    measured = harness.time_calls(calls, repeats=sizes.repeats)
    return {name: each["median"] for name, each in measured.items()}


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="tiny sizes")
    parser.add_argument(
        "--only", nargs="*", choices=SETTINGS, help="these settings; none: the page"
    )
    parser.add_argument(
        "--data-sets", type=int, default=400, metavar="N", help="half of it for large n"
    )
    parser.add_argument(
        "--rows", type=int, default=2**15, help="rows of data sets that are tested at a time"
    )
    parser.add_argument("--output", type=pathlib.Path, metavar="FOLDER")
    args = parser.parse_args(argv)
    if args.output is None:
        args.output = harness.ROOT / ("build/benchmarks" if args.quick else "benchmarks")
    args.output.mkdir(parents=True, exist_ok=True)
    return args


def main() -> None:
    args = arguments()
    if args.quick:
        # Most of a quick run is compilation.
        jax.config.update("jax_disable_most_optimizations", True)
    path = args.output / "power.json"
    results = json.loads(path.read_text()) if path.exists() else {}
    names = args.only
    if names is None:
        names = QUICK_SETTINGS if args.quick else SETTINGS
    for name in names:
        setting = SETTINGS[name]
        show(f"\n{setting.title}, n = {setting.n}")
        results[name] = run(setting, sizes_of(setting, args))
        path.write_text(json.dumps(results, indent=2) + "\n")
    results = {name: results[name] for name in SETTINGS if name in results}
    figures.save(figure.draw(results), args.output / "figures" / "power.png")
    (args.output / "POWER.md").write_text(report.page(results))
    show(f"\n{args.output / 'POWER.md'}")


if __name__ == "__main__":
    main()
