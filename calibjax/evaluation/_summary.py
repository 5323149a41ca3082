"""An evaluation as a table of numbers, and as JSON."""

import dataclasses
import textwrap
from collections.abc import Iterator
from typing import Any

import numpy as np

from calibjax._base.text import plain
from calibjax.evaluation._expected_events import n_unknown
from calibjax.evaluation._measures import Measure
from calibjax.evaluation._wording import interval_text, number
from calibjax.kernels import describe
from calibjax.recalibration import is_end_of_range

_WIDTH = 88
# Curves with more points than this are thinned in files.
_MAX_POINTS = 1000
BEST_TEMPERATURE = "best temperature"


def summary(evaluation: Any) -> str:
    """What `print` shows of an `Evaluation`: the verdict, and a table of numbers."""
    confidence = f"{100 * (1 - evaluation.level):.3g} % interval"
    rows = list(rows_of_summary(evaluation))
    last = "p" if any(measure.pvalue is not None for _, measure in rows) else ""
    lines = [textwrap.fill(line, _WIDTH) for line in evaluation.verdict.splitlines()] + [""]
    lines.append(f"{'':<26}{'value':>10}  {confidence:<20}{'if calibrated':<20}{last}")
    for name, measure in rows:
        pvalue = "" if measure.pvalue is None else number(measure.pvalue)
        ends = map(interval_text, (measure.interval, measure.if_calibrated))
        rest = measure.note or "".join(f"{end:<19} " for end in ends) + pvalue
        lines.append(f"{name:<26}{value_text(name, measure):>10}  {rest}")
    if evaluation.segments is not None:
        lines += ["", repr(evaluation.segments)]
    for remark in evaluation.remarks:
        lines += ["", textwrap.fill(remark, _WIDTH)]
    lines += ["", textwrap.fill(f"To cite: {evaluation.sentence}", _WIDTH)]
    return "\n".join(line.rstrip() for line in lines)


def rows_of_summary(evaluation: Any) -> Iterator[tuple[str, Measure]]:
    """Names and numbers, in the order in which people should read them."""
    effect = evaluation.effect
    yield "p-value", Measure(evaluation.pvalue, note=evaluation.units or "assumes independent rows")
    if evaluation.n_effective is not None:
        words = f"(Σ w)² / Σ w² of {evaluation.n} rows with weights w"
        yield "effective rows", Measure(evaluation.n_effective, note=words)
    yield "SKCE", effect.skce
    if effect.equivalent is not None:
        ends = effect.equivalent.confidence_interval
        interval = float(ends.low), float(ends.high)
        yield "equivalent temperature", Measure(float(effect.equivalent.temperature), interval)
    yield from evaluation.measures.items()
    if effect.best_temperature is not None:
        yield BEST_TEMPERATURE, Measure(effect.best_temperature, effect.of_temperature)


def value_text(name: str, measure: Measure) -> str:
    """The number of a line of the summary, or which bound it has reached."""
    if name == BEST_TEMPERATURE and is_end_of_range(measure.value):
        return f"{'≥' if measure.value > 1 else '≤'} {number(measure.value)}"
    return number(measure.value)


# What a file has as the evaluation has it.
_SAVED = (
    "verdict sentence remarks rejected pvalue level n n_effective pvalue_of_neighbours family "
    "classes seed"
).split()


def saved(evaluation: Any) -> dict[str, Any]:
    """What `Evaluation.to_dict` returns."""
    members, equivalent = evaluation.test.members, evaluation.effect.equivalent
    best, check = evaluation.effect.best_temperature, evaluation.recalibration
    assert members is not None
    found = {name: getattr(evaluation, name) for name in _SAVED} | {
        "n_hidden": n_unknown(evaluation.targets),
        "assumes": evaluation.units or "independent rows",
        "pvalues_of_neighbours_in": {x.name: x.pvalue for x in evaluation.neighbours},
        "horizon": evaluation.data.horizon or None,
        "skce": dataclasses.asdict(evaluation.effect.skce),
        "equivalent_temperature": None
        if equivalent is None
        else {"value": equivalent.temperature, "interval": equivalent.confidence_interval},
        "deviation_ratio": None if equivalent is None else equivalent.deviation_ratio,
        "directions": [dataclasses.asdict(x) for x in evaluation.directions],
        "impossible_rows": evaluation.impossible.rows,
        "pvalue_without_impossible_rows": evaluation.impossible.pvalue_without,
        "best_temperature": best,
        "best_temperature_interval": evaluation.effect.of_temperature,
        "best_temperature_is_end_of_range": None if best is None else is_end_of_range(best),
        "recalibration": None if check is None else dataclasses.asdict(check),
        "measures": {name: dataclasses.asdict(m) for name, m in evaluation.measures.items()},
        "kernels": [
            {"kernel": describe(kernel), "estimate": e, "score": s, "pvalue": p}
            for kernel, e, s, p in zip(
                members.kernels, members.estimates, members.scores, members.pvalues, strict=True
            )
        ],
        "segments": None if evaluation.segments is None else evaluation.segments.to_dict(),
        "curves": {
            name: {f.name: _thinned(getattr(curve, f.name)) for f in dataclasses.fields(curve)}
            for name, curve in evaluation.curves.items()
        },
        "worst_rows": evaluation.worst_rows(),
    }
    return plain(found)


def _thinned(value: Any) -> Any:
    """An array, or evenly spaced entries of one that is long."""
    if np.ndim(value) != 1 or len(value) <= _MAX_POINTS:
        return value
    return np.asarray(value)[np.linspace(0, len(value) - 1, _MAX_POINTS).round().astype(int)]
