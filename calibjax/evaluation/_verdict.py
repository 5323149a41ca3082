"""The verdict of an evaluation, and the sentence that a paper reports."""

import math
from collections.abc import Iterable

from calibjax._data.distribution import Labels
from calibjax._data.interval_censored import Between
from calibjax.evaluation._curves import WORST
from calibjax.evaluation._directions import DIRECTIONS
from calibjax.evaluation._effect import EFFECT, deviation_ratio
from calibjax.evaluation._groups import SEGMENTS
from calibjax.evaluation._influential_rows import ZERO_PROBABILITY
from calibjax.evaluation._recalibration_check import RECALIBRATION
from calibjax.evaluation._rows import CENSORING, rows_in_words
from calibjax.evaluation._section import N_RESAMPLES, Case
from calibjax.evaluation._wording import number


def verdict(case: Case) -> str:
    """Whether the model is calibrated; which way it is wrong, how far and where; what corrects it.

    Each of the three is a line.  If the rows without targets of probability 0 are not rejected,
    nothing else is said to be wrong.
    """
    rows, units = f"{case.n} rows", rows_in_words(case.data)
    rows += "" if units is None else f", {units}"
    if isinstance(case.data.targets, Between):
        rows += f", {CENSORING.of(case)} censored"
    found = f"(p = {case.pvalue:.3g}, {rows})"
    if case.rejected:
        sections = DIRECTIONS, SEGMENTS, WORST, ZERO_PROBABILITY
        details = [section.clause(case) for section in sections]
        check = RECALIBRATION.of(case)
        advice = [RECALIBRATION.advice(case)]
        if check is None or not check.helps:
            advice.append(SEGMENTS.advice(case))
        return _lines(f"Not calibrated {found}", _joined(details), _joined(advice))
    zero, segments = ZERO_PROBABILITY.clause(case), SEGMENTS.clause(case)
    if segments is not None:
        whole = f"No sign of miscalibration on the whole {found}"
        return _lines(whole, _joined([zero, segments]), SEGMENTS.advice(case))
    if zero is not None:
        others = f"No other sign of miscalibration {found}"
        return _lines(f"{zero}, which never happens to a calibrated model", others)
    return _lines(_joined([f"No sign of miscalibration {found}", EFFECT.clause(case)]))


def _joined(clauses: Iterable[str | None]) -> str:
    return "; ".join(filter(None, clauses))


def _lines(*sentences: str | None) -> str:
    """Each sentence on a line, with a capital letter and a full stop."""
    return "\n".join(f"{x[0].upper()}{x[1:].removesuffix('.')}." for x in sentences if x)


def citation(case: Case) -> str:
    """The size of the error with its interval, and the test, as a paper reports them."""
    effect, confidence = EFFECT.of(case), 100 * (1 - case.level)
    predictions, units = case.data.predictions, rows_in_words(case.data)
    assert effect.skce.interval is not None
    said = (
        "The squared kernel calibration error (SKCE) with the default kernel was "
        f"{skce_in_words(effect.skce.value, effect.skce.interval, confidence)}"
    )
    if effect.equivalent is not None:
        ends = effect.equivalent.confidence_interval
        numbers = [float(x) for x in (effect.equivalent.temperature, ends.low, ends.high)]
        what, than = "logits were", "times too large"
        if not isinstance(predictions, Labels):
            # A large temperature is a small deviation.
            of_value, *of_ends = (deviation_ratio(predictions, x) for x in numbers)
            numbers = [of_value, *of_ends[::-1]]
            what, than = "standard deviations were", "of the right ones"
        shown = list(map(number, numbers))
        said += f", as large as if {what} {shown[0]} {than} ({shown[1]} to {shown[2]})"
    test = "aggregated kernel test"
    test = f"exact {test}, {N_RESAMPLES} redraws" if case.test.is_exact else f"{test}, multipliers"
    units = "" if units is None else f" in {units}"
    rejected = "rejected" if case.rejected else "not rejected"
    return (
        f"{said}; calibration was {rejected} ({test}, p = {case.pvalue:.3g}, n = {case.n}{units})."
    )


def skce_in_words(value: float, interval: tuple[float, float], confidence: float) -> str:
    """The size of an error with its interval; an estimate without bias may be negative.

    Numbers have as many decimals as the largest one needs for two digits, or two digits.
    """
    numbers = value, *interval
    size = max((abs(x) for x in numbers if math.isfinite(x)), default=0.0)
    n_decimals = min(max(1 - math.floor(math.log10(size)), 0), 12) if size > 0 else 0
    texts = [f"{x:.{n_decimals}f}" for x in numbers]
    shown, low, high = (
        text if math.isnan(x) or float(text) != 0 else f"{x + 0.0:.2g}"
        for x, text in zip(numbers, texts, strict=True)
    )
    ends = f"{confidence:.3g} % CI {low} to {high}"
    return (
        f"{shown} ({ends})" if value >= 0 else f"0 ({ends}; the unbiased estimate is {value:.2g})"
    )
