"""POWER.md, from the results."""

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.power.columns import LEVEL
from benchmarks.power.one_set_of_draws import DEFAULT, GRID, RULES
from benchmarks.power.scenario import CALIBRATED
from benchmarks.power.settings import SETTINGS
from benchmarks.rows import quantity

#: Below this fraction of the power of the best kernel of the grid, a row is marked.
GOAL = 0.9

_TEXT = """\
# Power of the tests

Made by `python -m benchmarks.power`, on a GPU in some minutes; `--help` says how to run parts.
Values are the fractions of data sets that a test rejects at level {level}. All tests use the same
data sets, and the same number of draws. The first row of each table is a calibrated model. If a
test rejects it far more often than {level}, its other rows say little. NaN counts as no rejection.
The standard error of a fraction f of N data sets is sqrt(f (1 - f) / N): with 400 data sets 0.025
at f = 0.5 and 0.011 at f = 0.05, with 200 data sets 0.035 and 0.015.

* **aggregated**: `aggregated_skce_test` with its default options and kernels: the largest z.
* **of the best**: its power divided by that of the best kernel of the grid, if the latter is at
  least 0.1. The largest of nine noisy rates slightly overestimates the power of the best kernel.
  **Bold with a mark (!)**: the ratio is below {goal}.
* **previous default**: `asymptotic_skce_test` with the bootstrap and `default_kernel`.
* **default kernel**: `default_kernel` alone, with targets redrawn from the predictions. **median
  lengthscale**: the same for `product_kernel`, the kernel of the papers. Tables without the first
  column are older: then `default_kernel` was `product_kernel`, and numbers had six
  `default_kernels`.
* **best of the grid**: the lengthscale with the highest power, among 2^-6, 2^-5, …, 2^2 times the
  median. In practice it is unknown. **best default kernel**: the same among the `default_kernels`.
* **largest z**, **max T/s**, **min-p**, **log-sum-exp**: four ways to aggregate the
  `default_kernels` with one set of draws. T/s is the statistic divided by the root of the mean of
  its squares, and log-sum-exp is log sum exp(T/s), as in MMD-FUSE. Ties of min-p are ordered by
  T/s. "aggregated" differs from "largest z" only in the number of landmarks: it has 512. The
  columns of single kernels and rules have one per row, but at most 1024.
* **distribution-free** (biased estimate), **block** (sqrt(n) rows in a block, but at least 30
  blocks) and **CME** (one random location for each 100 rows, at most 10) use `default_kernel`.
  **ECE** is the `consistency_test` of the top-label ECE with 15 bins, with redrawn targets.
* **ranks** and **units of the pool** are the aggregated test with parts of its kernels of members:
  those of ranks among members, and those of the target in units of the members and itself.
* **T-Cal** (Lee, Huang, Hassani and Dobriban, JMLR 2023), our implementation: the adaptive test
  over dyadic numbers of bins, and the test with the best number of bins for the known smoothness of
  the bumps. Each data set has 999 trials under H0; the authors use 3000."""

_TIMES = """\
## Time

Time of one test of one data set, median of five, after compilation. "one kernel" is
`aggregated_skce_test` with only `default_kernel`; "all kernels" computes all columns of single
kernels and rules together."""

_DETAILS = """\
## All kernels, and the rules with the grid

"2^j" is `product_kernel` with 2^j times its lengthscale. The last columns are the four rules on the
nine kernels of this grid."""

_TEST_COLUMNS = (
    "distribution-free",
    "block",
    "CME",
    "ECE",
    "T-Cal, adaptive",
    "T-Cal, known bins",
)

Rates = Mapping[str, float]


def best(rates: Rates, names: Sequence[str]) -> tuple[str, float]:
    """The name with the largest rate, and this rate."""
    name = max(names, key=lambda name: rates[name])
    return name, rates[name]


def page(results: Mapping[str, Any]) -> str:
    parts = [_TEXT.format(level=LEVEL, goal=GOAL)]
    parts += [_summary(results)] if results else []
    parts += ["![Power of the tests](figures/power.png)"]
    parts += [_section(name, result) for name, result in results.items()]
    parts += [_TIMES, _times(results), _DETAILS]
    parts += [_details(name, result) for name, result in results.items() if result["members"]]
    return "\n\n".join(parts) + "\n"


def _ratio(rates: Rates) -> float | None:
    power = best(rates, GRID)[1]
    return rates["aggregated"] / power if power >= 0.1 else None


def _summary(results: Mapping[str, Any]) -> str:
    ratios = [
        _ratio(rates)
        for result in results.values()
        for name, rates in result["rates"].items()
        if name != CALIBRATED and result["members"]
    ]
    known = [ratio for ratio in ratios if ratio is not None]
    reached = sum(ratio >= GOAL for ratio in known)
    return (
        f"The aggregated test reaches {GOAL} of the best kernel of the grid in {reached} of "
        f"{len(known)} rows."
    )


def _heading(name: str, result: Any) -> str:
    return f"### {SETTINGS[name].title}, n = {result['n']}"


def _section(name: str, result: Any) -> str:
    members = result["members"]
    rows = []
    for scenario, rates in result["rates"].items():
        if not members:
            rows.append({"": scenario} | {test: _number(rate) for test, rate in rates.items()})
            continue
        grid, default = best(rates, GRID), best(rates, members)
        ratio = None if scenario == CALIBRATED else _ratio(rates)
        words = "" if ratio is None else f"{ratio:.2f}"
        rows.append(
            {
                "": scenario,
                "aggregated": _number(rates["aggregated"]),
                "of the best": f"**{words} (!)**" if ratio and ratio < GOAL else words,
                "previous default": _number(rates["previous default"]),
                **({DEFAULT: _number(rates[DEFAULT])} if DEFAULT in rates else {}),
                "median lengthscale": _number(rates["2^0"]),
                "best of the grid": f"{_number(grid[1])} ({grid[0]})",
                "best default kernel": f"{_number(default[1])} ({default[0]})",
                **{rule: _number(rates[rule]) for rule in RULES},
                **{test: _number(rates[test]) for test in _TEST_COLUMNS if test in rates},
            }
        )
    environment = ", ".join(f"{key} {value}" for key, value in result["environment"].items())
    note = (
        f"*`--only {name}`, {result['date']}, {result['minutes']:.1f} minutes, "
        f"{result['n_data_sets']} data sets, {result['n_draws']} draws; {environment}.*"
        f"{result.get('remark', '')}"
    )
    return "\n\n".join([_heading(name, result), _table(rows), note])


def _details(name: str, result: Any) -> str:
    columns = [*GRID, *result["members"], *(f"grid, {rule}" for rule in RULES)]
    rows = [
        {"": scenario} | {column: _number(rates[column]) for column in columns}
        for scenario, rates in result["rates"].items()
    ]
    return "\n\n".join([_heading(name, result), _table(rows)])


def _times(results: Mapping[str, Any]) -> str:
    tests = dict.fromkeys(test for result in results.values() for test in result["seconds"])
    rows = []
    for test in tests:
        row = {"": test}
        for name, result in results.items():
            if not result["seconds"]:
                continue
            seconds = result["seconds"].get(test)
            row[name] = "" if seconds is None else quantity(seconds, "s")
        rows.append(row)
    return _table(rows)


def _number(rate: float) -> str:
    return f"{rate:.2f}"


def _table(rows: Sequence[Mapping[str, str]]) -> str:
    """A table of rows with the same keys."""
    columns = list(rows[0]) if rows else []
    lines = [list(columns), ["---"] * len(columns), *([row[c] for c in columns] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
