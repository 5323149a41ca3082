"""Which way a whole model is wrong, such as too low or over-confident, if one number says it.

Of the directions of `_judged_directions` those are told that chance does not explain.
"""

import dataclasses
import functools
import math
from collections.abc import Sequence
from statistics import NormalDist

import jax
import numpy as np
from jax.typing import ArrayLike

from calibjax._base.compile import quick_jit
from calibjax._base.text import shares_in_words
from calibjax._data.capabilities import restricted
from calibjax._data.data import Data, clean
from calibjax._data.distribution import Labels
from calibjax._data.interval_censored import Between
from calibjax.distributions import Quantiles
from calibjax.evaluation import _effect
from calibjax.evaluation._judged_directions import (
    Direction,
    directions_of_labels,
    directions_of_numbers,
    directions_of_vectors,
)
from calibjax.evaluation._rows import ZERO_PROBABILITY
from calibjax.evaluation._section import Case, Section
from calibjax.evaluation._wording import temperature_text
from calibjax.measures.families import moments
from calibjax.measures.measure import MeasureResult
from calibjax.measures.risk_by_time import RISK_BY
from calibjax.measures.sampling import Sampling
from calibjax.measures.survival import EVENTS, MEAN_PIT
from calibjax.recalibration import is_end_of_range
from calibjax.scores import pit

# The share of the SKCE that a temperature must explain beyond a shift to be named first.
_AS_GOOD = 0.2


def _directions_of(case: Case, data: Data, temperature: float | None) -> Sequence[Direction]:
    """All directions in which a model may be wrong, of which `clear_directions` chooses.

    Args:
        case: the key of its measures draws the PITs, and it has the names of the classes.
        data: n predictions and targets.
        temperature: the one that suits the rows best, or None.
    """
    predictions, n = data.predictions, data.n_kept()
    is_vector = not isinstance(predictions, Labels) and predictions.target_shape != "n"
    if isinstance(data.targets, Between) or (is_vector and predictions.score_only):
        return ()
    sampling = Sampling.of_data(data)
    counts = sampling.shares() > 0
    if data.weights_depend_on_labels():
        # The model's variance is that of residuals of known weights: take that of the rows.
        sampling = dataclasses.replace(sampling, clusters=np.arange(n))

    def counted(*columns: ArrayLike) -> list[np.ndarray]:
        return [np.asarray(x, np.float64)[:n][counts] for x in columns]

    if isinstance(predictions, Labels):
        (p,) = counted(predictions.label_probabilities())
        p, labels = p / p.sum(axis=1, keepdims=True), np.asarray(data.targets)[:n][counts]
        sampling = sampling.of_rows(counts)
        return directions_of_labels(p, labels, sampling, temperature, case.data.classes)
    if is_vector:
        centres, deviations, y = counted(*moments(predictions), data.targets)
        if not (np.isfinite([centres, deviations]).all() and deviations.all()):
            return ()
        return directions_of_vectors(centres, deviations, y, sampling.of_rows(counts))
    rows = pit(case.random_keys.measures, data), *_locations_and_spreads(data)
    counts &= np.isfinite([np.asarray(x)[:n] for x in rows]).all(axis=0)
    means = levels = None
    if isinstance(predictions, Quantiles):
        levels = np.asarray(predictions.levels)
    else:
        both = moments(predictions)[0], restricted(predictions, data.targets)
        of_means, targets = (np.asarray(x)[:n][counts] for x in both)
        means = (of_means, targets) if np.isfinite(of_means).all() else None
    pits, locations, spreads = counted(*rows)
    sampling = sampling.of_rows(counts)
    return directions_of_numbers(pits, locations, spreads, sampling, means, levels)


@functools.partial(quick_jit, light=True)
def _locations_and_spreads(data: Data) -> tuple[jax.Array, jax.Array]:
    predictions = clean(data).predictions
    return predictions.location(), predictions.spread()


def clear_directions(found: Sequence[Direction], level: float) -> tuple[Direction, ...]:
    """Those that chance does not explain, with the probability 1 - level for all; the main first.

    Scores are taken for normal, with Bonferroni's correction.
    """
    if not found:
        return ()
    critical = NormalDist().inv_cdf(1 - level / (2 * len(found)))
    clear = [x for x in found if abs(x.score) > critical]

    def rank(x: Direction) -> tuple[float, ...]:
        # More rare events than predicted look like over-confidence, which explains hardly more.
        explained = float(np.nan_to_num(x.explained, nan=-1.0))
        shown = explained if x.is_confidence else explained + _AS_GOOD
        return -x.is_main, -shown, -abs(x.score)

    return tuple(sorted(clear, key=rank))


def directions_in_words(directions: Sequence[Direction]) -> str:
    """What `clear_directions` found, in words."""
    if not directions:
        return "no direction of the whole model is clear, so that it is wrong in places or in shape"
    if directions[0].is_main:
        return str(directions[0])
    said = " and ".join(map(str, directions[:2]))
    if math.isnan(directions[0].explained):
        return said
    each = "which is" if len(directions) == 1 else "each of which is"
    return f"{said}, {each} less than half of the error"


def clear_directions_of(case: Case, data: Data, temperature: float | None) -> tuple[Direction, ...]:
    """The clear directions of other predictions, or of some rows, of a case."""
    return clear_directions(_directions_of(case, data, temperature), case.level)


class _Directions(Section[tuple[Direction, ...]]):
    """Which way the whole model is wrong, "too low" or "over-confident", the main one first.

    They are clear beyond chance; none if the model is not rejected.
    """

    def compute(self, case: Case) -> tuple[Direction, ...]:
        if not case.rejected or isinstance(case.data.targets, Between):
            return ()
        best = _effect.BEST_TEMPERATURE.of(case)
        return clear_directions_of(case, case.padded, best and best.value)

    def clause(self, case: Case) -> str | None:
        if not case.rejected or (ZERO_PROBABILITY.is_all(case) and not self.of(case)):
            return None
        if not isinstance(case.data.targets, Between):
            return self._how_far_off(case)
        measures = _effect.MEASURES.of(case)
        of_time = time_in_words(measures, case.level)
        said = of_time, shift_in_words(measures[MEAN_PIT], measures.get(EVENTS))
        return "; ".join(filter(None, said)) or self._how_far_off(case)

    def _how_far_off(self, case: Case) -> str:
        """The direction and the size of an error.

        A temperature says the size where it is the main error: one that leaves most of the error
        says nothing about how large that is.
        """
        predictions, equivalent = case.data.predictions, _effect.EFFECT.of(case).equivalent
        directions, found = self.of(case), _effect.BEST_TEMPERATURE.of(case)
        best = found and found.value
        said = directions_in_words(directions)
        is_confidence = directions and directions[0].is_main and directions[0].is_confidence
        if best is not None and is_confidence and best < 1:
            return f"{said}, {_effect.under_confident(predictions, best)}"
        if best is not None and is_confidence and is_end_of_range(best):
            said += f", its best temperature is {temperature_text(best)}"
        if equivalent is None:
            return said
        temperature = float(equivalent.temperature)
        if temperature == math.inf:
            return f"{said}, farther off than any temperature shows"
        is_known = is_confidence and math.isfinite(float(equivalent.confidence_interval.high))
        size = _effect.over_confident(predictions, temperature) if is_known else None
        return f"{said}, about as far off as if {size}" if size else said


DIRECTIONS = _Directions()


def shift_in_words(mean_pit: MeasureResult, events: MeasureResult | None = None) -> str | None:
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


def time_in_words(measures: dict[str, MeasureResult], level: float) -> str | None:
    """The first time by which the risk is significantly wrong; None if by none.

    P-values are adjusted for the times by Bonferroni.
    """
    found = [(x, measures[x].pvalue) for x in measures if x.startswith(RISK_BY)]
    clear = [(x, len(found) * p) for x, p in found if p is not None and len(found) * p <= level]
    if not clear:
        return None
    (name, pvalue), last = clear[0], len(found) - 1
    first = [x for x, _ in found].index(name)
    onwards = " onwards" if first < last and len(clear) == len(found) - first else ""
    value, ends = measures[name].value, measures[name].if_calibrated
    assert ends is not None
    said = f"{shares_in_words(ends[0], value, mean='')} (Kaplan-Meier; p = {pvalue:.2g}"
    return f"{name}{onwards}: {said}" + (f" adjusted for {len(found)} times)" if last else ")")
