"""What an evaluation says, in sentences: the verdict, what a paper reports, and what to know."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from calibjax import intervals
from calibjax._base.struct import widest_dtype
from calibjax._base.text import format_distinct, shares_in_words
from calibjax._data.data import Data, Rows
from calibjax._data.distribution import Distribution, Labels
from calibjax._data.interval_censored import Between
from calibjax._data.padding import padded
from calibjax.distributions import SurvivalCurve
from calibjax.evaluation._dependence import remarks_on_rows
from calibjax.evaluation._directions import directions_in_words
from calibjax.evaluation._expected_events import n_unknown, remark_on_censoring
from calibjax.evaluation._groups import segments_in_words
from calibjax.evaluation._measures import EVENTS, MEAN_PIT, Measure
from calibjax.evaluation._recalibration_check import best_method
from calibjax.evaluation._wording import named_rows, number, temperature_text
from calibjax.intervals import FEW_EVENTS, expected_rare_events
from calibjax.recalibration import is_end_of_range

# A bound on an error that is larger than this temperature is no news.
_TIGHT_BOUND = 1.5
# With fewer rows intervals of means, and of the SKCE, miss more often than they say.
_FEW_ROWS = 50


def verdict(evaluation: Any) -> str:
    """Whether the model is calibrated; which way it is wrong, how far and where; what mends it.

    Each of the three is a line.  If the rows without impossible targets are not rejected, nothing
    else is said to be wrong.
    """
    level, effect, predictions = evaluation.level, evaluation.effect, evaluation.predictions
    certain, towards = impossible_in_words(evaluation), None
    segments = segments_in_words(evaluation.segments, level)
    rows = f"{evaluation.n} rows" + ("" if evaluation.units is None else f", {evaluation.units}")
    if isinstance(evaluation.targets, Between):
        rows += f", {n_unknown(evaluation.targets)} censored"
        measures = evaluation.measures
        said = time_in_words(measures), shift_in_words(measures[MEAN_PIT], measures.get(EVENTS))
        towards = "; ".join(filter(None, said)) or None
    found = f"(p = {evaluation.pvalue:.3g}, {rows})"
    mends = None
    if segments is not None and not isinstance(evaluation.targets, Between):
        mends = "segments are recalibrated by fit_recalibrator(groups=...)"
    if evaluation.rejected:
        details, check = [certain], evaluation.recalibration
        then = None if check is None else check.in_words(level)
        if not evaluation.impossible.is_all(level):
            details = [towards or _how_far_off(evaluation), segments, evaluation.worst, certain]
            if check is None and (method := best_method(evaluation.data)) is not None:
                call = f"fit_recalibrator(method={method!r})"
                then = f"recalibrate it with {call}; cross_fit shows the gain"
            if check is None or not check.helps:
                then = "; ".join(filter(None, [then, mends]))
        return _lines(f"Not calibrated {found}", "; ".join(filter(None, details)), then)
    if segments is not None:
        whole = f"No sign of miscalibration on the whole {found}"
        return _lines(whole, "; ".join(filter(None, [certain, segments])), mends)
    if certain is not None:
        others = f"No other sign of miscalibration {found}"
        return _lines(f"{certain}, which never happens to a calibrated model", others)
    certificate = ""
    if effect.equivalent is not None:
        bound = float(effect.equivalent.confidence_interval.high)
        upper = _over_confident(predictions, bound) if bound <= _TIGHT_BOUND else None
        if upper:
            confidence = f"{100 * (1 - level):.3g} % confidence"
            certificate = f"; at most as far off as if {upper}, with {confidence}"
    return _lines(f"No sign of miscalibration {found}{certificate}")


def _lines(*sentences: str | None) -> str:
    """Each sentence on a line, with a capital letter and a full stop."""
    return "\n".join(f"{x[0].upper()}{x[1:].removesuffix('.')}." for x in sentences if x)


def _how_far_off(evaluation: Any) -> str:
    """The direction and the size of an error.

    A temperature says the size where it is the main error: one that leaves most of the error says
    nothing about how large that is.
    """
    predictions, effect = evaluation.predictions, evaluation.effect
    directions = evaluation.directions
    said, best = directions_in_words(directions), effect.best_temperature
    is_confidence = directions and directions[0].is_main and directions[0].is_confidence
    if best is not None and is_confidence and best < 1:
        return f"{said}, {_under_confident(predictions, best)}"
    if best is not None and is_confidence and is_end_of_range(best):
        said += f", its best temperature is {temperature_text(best)}"
    if effect.equivalent is None:
        return said
    temperature = float(effect.equivalent.temperature)
    high = float(effect.equivalent.confidence_interval.high)
    if temperature == math.inf:
        return f"{said}, farther off than any temperature shows"
    is_known = is_confidence and math.isfinite(high)
    size = _over_confident(predictions, temperature) if is_known else None
    return f"{said}, about as far off as if {size}" if size else said


def _over_confident(predictions: Distribution, temperature: float) -> str | None:
    """What is wrong with a model whose best temperature is above 1; None unless it is finite."""
    if not 1 < temperature < math.inf:
        return None
    if isinstance(predictions, Labels):
        return f"its logits were {format_distinct(temperature, 1.0)[0]} times too large"
    ratio, _ = format_distinct(_deviation_ratio(predictions, temperature), 1.0, 2)
    return f"its standard deviations were {ratio} of the right ones"


def _under_confident(predictions: Distribution, temperature: float) -> str:
    least = "at least " if is_end_of_range(temperature) else ""
    if isinstance(predictions, Labels):
        return (
            f"its logits should be {least}{format_distinct(1 / temperature, 1.0)[0]} times as large"
        )
    ratio, _ = format_distinct(_deviation_ratio(predictions, temperature), 1.0)
    return f"its standard deviations are {least}{ratio} times too large"


def _deviation_ratio(predictions: Distribution, temperature: float) -> float:
    """The standard deviation of a prediction over the one at a temperature; the median of rows."""
    if not math.isfinite(temperature):
        return 0.0
    dtype = widest_dtype(*jax.tree.leaves(predictions))
    rows = padded(Rows(predictions))
    return float(intervals.deviation_ratio(rows, jnp.asarray(temperature, dtype)))


def impossible_in_words(evaluation: Any) -> str | None:
    """How many rows there are, which, and what the p-value is without them; None if none."""
    rows, predictions = evaluation.impossible.rows, evaluation.predictions
    pvalue, n = evaluation.impossible.pvalue_without, len(rows)
    if n == 0:
        return None
    zero = "probability 0"
    if isinstance(predictions, SurvivalCurve):
        zero += ", before the curve falls or after it has reached 0"
    elif not isinstance(predictions, Labels):
        least = float(jnp.finfo(widest_dtype(*jax.tree.leaves(predictions))).tiny)
        kind = "probability" if predictions.target_kind == "integer" else "density"
        zero = f"{kind} 0 or less than {least:.2g}"
    target, it = ("target", "it") if n == 1 else ("targets", "them")
    without = "" if pvalue is None else f"; without {it} p = {pvalue:.3g}"
    return f"{n} {target} came to which the model gave the {zero} ({named_rows(rows)}){without}"


def shift_in_words(mean_pit: Measure, events: Measure | None = None) -> str | None:
    """Whether targets are higher or lower than predicted, by their mean PIT; None if not clear.

    Of events it is said whether they come later or earlier, and how many of them.
    """
    interval, said = mean_pit.interval, f"mean PIT {mean_pit.value:.3g}, 0.5 if calibrated"
    if interval is None or interval[0] <= 0.5 <= interval[1]:
        return None
    is_high = mean_pit.value > 0.5
    if events is None or events.if_calibrated is None:
        return f"targets are {'higher' if is_high else 'lower'} than predicted ({said})"
    expected = " to ".join(f"{end:.0f}" for end in sorted({*events.if_calibrated}))
    said = f"{events.value:.0f} events where {expected} were expected; {said}"
    return f"events come {'later' if is_high else 'earlier'} than predicted ({said})"


def time_in_words(measures: dict[str, Measure]) -> str | None:
    """The time by which events differ most clearly from predicted ones; None if by none."""
    clearest, found = 1.0, None
    for name, x in measures.items():
        if not name.startswith(f"{EVENTS} by ") or x.interval is None or x.if_calibrated is None:
            continue
        low, high, predicted = *x.interval, x.if_calibrated[0]
        score = abs(2 * predicted - low - high) / (high - low) if high > low else 0.0
        if score > clearest:
            clearest, found = score, f"{name}: {shares_in_words(predicted, x.value)} (Kaplan-Meier)"
    return found


def sentence(evaluation: Any) -> str:
    """The size of the error with its interval, and the test, as a paper reports them."""
    effect, confidence = evaluation.effect, 100 * (1 - evaluation.level)
    said = (
        "The squared kernel calibration error (SKCE) with the default kernel was "
        f"{skce_in_words(effect.skce.value, effect.skce.interval, confidence)}"
    )
    if effect.equivalent is not None:
        ends = effect.equivalent.confidence_interval
        numbers = [float(x) for x in (effect.equivalent.temperature, ends.low, ends.high)]
        what, than = "logits were", "times too large"
        if not isinstance(evaluation.predictions, Labels):
            # A large temperature is a small deviation.
            of_value, *of_ends = (_deviation_ratio(evaluation.predictions, x) for x in numbers)
            numbers = [of_value, *of_ends[::-1]]
            what, than = "standard deviations were", "of the right ones"
        shown = list(map(number, numbers))
        said += f", as large as if {what} {shown[0]} {than} ({shown[1]} to {shown[2]})"
    test, n_sets = "aggregated kernel test", evaluation.test.null_distribution.shape[0]
    test = f"exact {test}, {n_sets} redraws" if evaluation.test.is_exact else f"{test}, multipliers"
    units = "" if evaluation.units is None else f" in {evaluation.units}"
    rejected = "rejected" if evaluation.rejected else "not rejected"
    return (
        f"{said}; calibration was {rejected} ({test}, p = {evaluation.pvalue:.3g}, "
        f"n = {evaluation.n}{units})."
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


def remarks(data: Data) -> list[str]:
    """Sentences about what is missing, and intervals that may be too narrow; mostly none."""
    found = []
    if data.n < _FEW_ROWS:
        found.append(
            f"Few rows: with fewer than {_FEW_ROWS}, intervals of the SKCE and of means may be too "
            "narrow."
        )
    found += remarks_on_rows(data)
    if isinstance(data.targets, Between):
        return [*found, remark_on_censoring(data)]
    # Data that happen to lack a rare event look as if there were none: the model counts, too.
    rows = padded(Rows(data.predictions))
    expected = float(expected_rare_events(None, (rows.predictions, rows.where)))
    # Where no number has a positive probability, nothing is a rare event.
    observed = math.inf
    if math.isfinite(expected):
        # All but the most common target.
        observed = data.n - int(np.unique(np.asarray(data.targets), return_counts=True)[1].max())
    if min(expected, observed) < FEW_EVENTS:
        differ = "target differs" if observed == 1 else "targets differ"
        found.append(
            f"Few events: {observed} {differ} from the most common one, and {expected:.2g} are "
            "expected not to be the most probable one; intervals may be too narrow, above all "
            "where none came."
        )
    return found
