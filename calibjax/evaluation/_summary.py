"""An evaluation as text: the verdict in one sentence, a table of numbers, and JSON."""

import dataclasses
import math
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from calibjax._data import Between, Distribution
from calibjax.evaluation._direction import Direction, directions_in_words
from calibjax.evaluation._effect import Effect, deviation_ratio
from calibjax.evaluation._expected_events import n_unknown, shift_in_words
from calibjax.evaluation._groups import segments_in_words
from calibjax.evaluation._metrics import EVENTS, MEAN_PIT, Measure
from calibjax.evaluation._remarks import in_words
from calibjax.evaluation._wording import interval_text, number, plain
from calibjax.kernels import describe
from calibjax.recalibration import is_end_of_range


def verdict(evaluation: Any) -> str:
    """Whether the model is calibrated, which way it is wrong, how far off, and where most of all.

    If the rows without impossible targets are not rejected, nothing else is said to be wrong.
    """
    level, effect, predictions = evaluation.level, evaluation.effect, evaluation.predictions
    certain, towards = in_words(evaluation.impossible, predictions), None
    segments = segments_in_words(evaluation.segments, level)
    rows = f"{evaluation.n} rows" + ("" if evaluation.units is None else f", {evaluation.units}")
    if isinstance(evaluation.targets, Between):
        rows += f", {n_unknown(evaluation.targets)} of hidden targets"
        towards = shift_in_words(evaluation.measures[MEAN_PIT], evaluation.measures.get(EVENTS))
    found = f"(p = {evaluation.pvalue:.3g}, {rows})"
    if not evaluation.rejected:
        certificate = ""
        if effect.equivalent is not None:
            upper = _too_sure(predictions, float(effect.equivalent.confidence_interval.high))
            if upper:
                confidence = f"{100 * (1 - level):.3g} % confidence"
                certificate = f"; at most as far off as if {upper}, with {confidence}"
        if segments is not None:
            said = "" if certain is None else f"{certain}; "
            return f"{said}No sign of miscalibration on the whole {found}, but {segments}."
        if certain is None:
            return f"No sign of miscalibration {found}{certificate}."
        refuted = f"{certain}, which never happens to a calibrated model"
        return f"{refuted}; no other sign of miscalibration {found}{certificate}."
    details = [certain]
    if not evaluation.impossible.is_all(level):
        how = towards or _how_far_off(predictions, effect, evaluation.directions)
        details += [how, segments, evaluation.worst]
    said = "; ".join(detail for detail in details if detail)
    check = evaluation.recalibration
    then = "" if check is None else check.in_words(level, segments is not None)
    return f"Not calibrated {found}{': ' if said else ''}{said}.{' ' if then else ''}{then}"


def temperature_text(best_temperature: float) -> str:
    """The temperature that suits a model best; it may be the end of the range that was searched."""
    words = ""
    if is_end_of_range(best_temperature):
        words = "at least " if best_temperature > 1 else "at most "
    return f"{words}{best_temperature:.3g}"


def _how_far_off(predictions: Distribution, effect: Effect, directions: Sequence[Direction]) -> str:
    """The direction and the size of an error.

    A temperature is named if it is the main error.  One that is close to 1, or that leaves most of
    the error, is not.  The temperature that shows as large an error is left out where nobody knows
    how large that is, and where it would say something else than the best one.
    """
    said, best = directions_in_words(directions), effect.best_temperature
    if best is not None and directions and directions[0].is_main and directions[0].is_sureness:
        if best < 1:
            return f"{said}, {_not_sure_enough(predictions, best)}"
        if is_end_of_range(best):
            said += f", its best temperature is {temperature_text(best)}"
    if effect.equivalent is None:
        return said
    temperature = float(effect.equivalent.temperature)
    if temperature == math.inf:
        return f"{said}, farther off than any temperature shows"
    size = _too_sure(predictions, temperature) if _suits(effect, directions) else None
    return f"{said}, about as far off as if {size}" if size else said


def _suits(effect: Effect, directions: Sequence[Direction]) -> bool:
    """Whether an error may be told as a temperature that is too low."""
    assert effect.equivalent is not None
    low, high = map(float, effect.equivalent.confidence_interval)
    best = effect.best_temperature
    if not math.isfinite(high) or (best is not None and best < 1):
        return False
    has_other = any(x.is_main and not x.is_sureness for x in directions)
    return not has_other or best is None or low <= best <= high


def _too_sure(predictions: Distribution, temperature: float) -> str | None:
    """What is wrong with a model whose best temperature is above 1; None unless it is finite."""
    if not 1 < temperature < math.inf:
        return None
    if predictions.has_labels:
        return f"its logits were {temperature:.3g} times too large"
    ratio = deviation_ratio(predictions, temperature)
    return f"its standard deviations were {ratio:.2g} of the right ones"


def _not_sure_enough(predictions: Distribution, temperature: float) -> str:
    least = "at least " if is_end_of_range(temperature) else ""
    if predictions.has_labels:
        return f"its logits should be {least}{1 / temperature:.3g} times as large"
    ratio = deviation_ratio(predictions, temperature)
    return f"its standard deviations are {least}{ratio:.3g} times too large"


def sentence(evaluation: Any) -> str:
    """The size of the error with its interval, and the test, as a paper reports them."""
    effect, confidence = evaluation.effect, 100 * (1 - evaluation.level)
    size = (
        "The squared kernel calibration error (SKCE) with the default kernel was "
        f"{_skce_in_words(effect.skce.value, effect.skce.interval, confidence)}"
    )
    if effect.equivalent is not None:
        ends = effect.equivalent.confidence_interval
        temperatures = float(effect.equivalent.temperature), float(ends.low), float(ends.high)
        size += f", {_equivalent(evaluation.predictions, *temperatures)}"
    test, n_sets = "aggregated kernel test", evaluation.test.null_distribution.shape[0]
    test = f"exact {test}, {n_sets} redraws" if evaluation.is_redrawn else f"{test}, multipliers"
    units = "" if evaluation.units is None else f" in {evaluation.units}"
    rejected = "rejected" if evaluation.rejected else "not rejected"
    return (
        f"{size}; calibration was {rejected} ({test}, p = {evaluation.pvalue:.3g}, "
        f"n = {evaluation.n}{units})."
    )


def _skce_in_words(value: float, interval: tuple[float, float], confidence: float) -> str:
    """The size of an error with its interval; an estimate without bias may be negative."""
    shown, low, high = _decimals(value, *interval)
    ends = f"{confidence:.3g} % CI {low} to {high}"
    if value >= 0:
        return f"{shown} ({ends})"
    return f"0 ({ends}; the unbiased estimate is {value:.2g})"


def _decimals(*values: float) -> list[str]:
    """Numbers with as many decimals as the largest one needs for two digits, or with two digits."""
    size = max((abs(x) for x in values if math.isfinite(x)), default=0.0)
    n_decimals = min(max(1 - math.floor(math.log10(size)), 0), 12) if size > 0 else 0
    found = [f"{x:.{n_decimals}f}" for x in values]
    return [
        text if math.isnan(x) or float(text) != 0 else f"{x + 0.0:.2g}"
        for x, text in zip(values, found, strict=True)
    ]


def _equivalent(predictions: Distribution, temperature: float, low: float, high: float) -> str:
    """The error of predictions with another temperature that is as large."""
    if predictions.has_labels:
        ends = f"{number(low)} to {number(high)}"
        return f"as large as if logits were {number(temperature)} times too large ({ends})"
    # A large temperature is a small deviation.
    value, upper, lower = (
        number(deviation_ratio(predictions, x) if math.isfinite(x) else 0.0)
        for x in (temperature, low, high)
    )
    words = "as large as if standard deviations were"
    return f"{words} {value} of the right ones ({lower} to {upper})"


_WIDTH = 88
# Curves with more points than this are thinned in files.
_MAX_POINTS = 1000
BEST_TEMPERATURE = "best temperature"


def summary(evaluation: Any) -> str:
    """What `print` shows of an `Evaluation`: the verdict, and a table of numbers."""
    confidence = f"{100 * (1 - evaluation.level):.3g} % interval"
    rows = list(rows_of_summary(evaluation))
    last = "p" if any(measure.pvalue is not None for _, measure in rows) else ""
    lines = [textwrap.fill(evaluation.verdict, _WIDTH), ""]
    lines.append(f"{'':<26}{'value':>10}  {confidence:<20}{'if calibrated':<20}{last}")
    for name, measure in rows:
        pvalue = "" if measure.pvalue is None else number(measure.pvalue)
        ends = map(interval_text, (measure.interval, measure.if_calibrated))
        lines.append(
            f"{name:<26}{value_text(name, measure):>10}  "
            + (measure.note or "".join(f"{end:<19} " for end in ends) + pvalue)
        )
    if evaluation.segments is not None:
        lines += ["", repr(evaluation.segments)]
    for remark in evaluation.remarks:
        lines += ["", textwrap.fill(remark, _WIDTH)]
    lines += ["", textwrap.fill(f"To cite: {evaluation.sentence}", _WIDTH)]
    return "\n".join(line.rstrip() for line in lines)


def rows_of_summary(evaluation: Any) -> Iterator[tuple[str, Measure]]:
    """Names and numbers, in the order in which people should read them."""
    effect = evaluation.effect
    assumed = evaluation.units or "assumes independent rows"
    yield "p-value", Measure(evaluation.pvalue, note=assumed)
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
        yield BEST_TEMPERATURE, Measure(effect.best_temperature)


def value_text(name: str, measure: Measure) -> str:
    """The number of a line of the summary, or which bound it has reached."""
    if name == BEST_TEMPERATURE and is_end_of_range(measure.value):
        return f"{'≥' if measure.value > 1 else '≤'} {number(measure.value)}"
    return number(measure.value)


def saved(evaluation: Any) -> dict[str, Any]:
    """What `Evaluation.to_dict` returns."""
    members = evaluation.test.members
    assert members is not None
    equivalent, best = evaluation.effect.equivalent, evaluation.effect.best_temperature
    found = {
        "verdict": evaluation.verdict,
        "sentence": evaluation.sentence,
        "remarks": evaluation.remarks,
        "rejected": evaluation.rejected,
        "pvalue": evaluation.pvalue,
        "level": evaluation.level,
        "n": evaluation.n,
        "n_hidden": n_unknown(evaluation.targets),
        "n_effective": evaluation.n_effective,
        "assumes": evaluation.units or "independent rows",
        "pvalue_of_neighbours": evaluation.pvalue_of_neighbours,
        "pvalues_of_neighbours_in": {x.name: x.pvalue for x in evaluation.neighbours},
        "horizon": evaluation.dependence.horizon,
        "family": evaluation.family,
        "classes": evaluation.classes,
        "seed": evaluation.seed,
        "skce": dataclasses.asdict(evaluation.effect.skce),
        "equivalent_temperature": None
        if equivalent is None
        else {"value": equivalent.temperature, "interval": equivalent.confidence_interval},
        "deviation_ratio": None if equivalent is None else equivalent.deviation_ratio,
        "directions": [dataclasses.asdict(x) for x in evaluation.directions],
        "impossible_rows": evaluation.impossible.rows,
        "pvalue_without_impossible_rows": evaluation.impossible.pvalue_without,
        "best_temperature": best,
        "best_temperature_is_end_of_range": None if best is None else is_end_of_range(best),
        "recalibration": None
        if evaluation.recalibration is None
        else dataclasses.asdict(evaluation.recalibration),
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
    return {name: plain(value) for name, value in found.items()}


def _thinned(value: Any) -> Any:
    """An array, or evenly spaced entries of one that is long."""
    if np.ndim(value) != 1 or len(value) <= _MAX_POINTS:
        return value
    return np.asarray(value)[np.linspace(0, len(value) - 1, _MAX_POINTS).round().astype(int)]
