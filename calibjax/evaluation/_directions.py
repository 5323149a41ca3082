"""Bias and dispersion errors of a whole model, of which those are told that are significant."""

import dataclasses
from collections.abc import Mapping, Sequence
from statistics import NormalDist

import numpy as np
from jax.typing import ArrayLike

from calibjax._base.text import shares_in_words
from calibjax._data.capabilities import restricted
from calibjax._data.data import Data
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
from calibjax.evaluation._overall_error import LEVELS, widening
from calibjax.evaluation._rows import ZERO_PROBABILITY
from calibjax.evaluation._section import Case, Section
from calibjax.evaluation._wording import NO_OVERALL_ERROR, number, with_interval
from calibjax.measures.events import RATIO, SLOPE
from calibjax.measures.families import EVENTS, MEAN_PIT, moments
from calibjax.measures.measure import MeasureResult
from calibjax.measures.quantiles import shares_of_levels
from calibjax.measures.risk_by_time import RISK_BY
from calibjax.measures.sampling import Sampling
from calibjax.scores import pit

# The share of the SKCE that a temperature must explain beyond a shift to be named first.
_AS_GOOD = 0.2


def _directions_of(case: Case, data: Data, temperature: float | None) -> Sequence[Direction]:
    """All candidate errors of a whole model, from which `clear_directions` chooses.

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
    every = np.asarray(pit(case.random_keys.measures, data), np.float64)[:n]
    counts &= np.isfinite(every)
    pits, sampling = every[counts], sampling.of_rows(counts)
    means = quantiles = None
    if isinstance(predictions, Quantiles):
        levels, *of_levels = shares_of_levels(*data.samples)
        quantiles = levels, of_levels[0][:n][counts], of_levels[1][:n][counts]
    else:
        both = moments(predictions)[0], restricted(predictions, data.targets)
        of_means, targets = (np.asarray(x)[:n][counts] for x in both)
        means = (of_means, targets) if np.isfinite(of_means).all() else None
    below = LEVELS, pits[:, None] <= LEVELS
    if quantiles is not None:
        # Half of the targets that are equal to a quantile are below it.
        below = quantiles[0], (quantiles[1].astype(float) + quantiles[2]) / 2
    factor = widening(data, np.flatnonzero(counts), below, sampling, case.level)
    return directions_of_numbers(pits, sampling, means, quantiles, factor, case.level)


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
        return -x.is_main, -shown if x.is_main else 0.0, -abs(x.score)

    return tuple(sorted(clear, key=rank))


def directions_in_words(
    directions: Sequence[Direction], sizes: Mapping[str, str] | None = None
) -> str:
    """What `clear_directions` found, as text, with the size of an error by the end of its name.

    A main error of labels is reported alone: confidence and the frequency of a class are related.
    """
    if not directions:
        return NO_OVERALL_ERROR
    said = _said(directions)
    texts = [str(x) for x in said]
    # The confidence in an event also gives its frequency.
    if len(said) == 2 and said[1].details in texts[0]:
        texts[1] = said[1].name
    of_names = [[y for end, y in (sizes or {}).items() if x.name.endswith(end)] for x in said]
    return "; ".join("; ".join([x, *y]) for x, y in zip(texts, of_names, strict=True))


def _said(directions: Sequence[Direction]) -> Sequence[Direction]:
    return directions[:1] if directions and directions[0].is_main else directions[:2]


def clear_directions_of(case: Case, data: Data, temperature: float | None) -> tuple[Direction, ...]:
    """The clear directions of other predictions, or of some rows, of a case."""
    return clear_directions(_directions_of(case, data, temperature), case.level)


class _Directions(Section[tuple[Direction, ...]]):
    """Errors of the whole model, such as "biased low" or "over-confident", the main one first.

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
            return self._in_words(case)
        measures = _effect.MEASURES.of(case)
        of_time = time_in_words(measures, case.level)
        said = of_time, shift_in_words(measures[MEAN_PIT], measures.get(EVENTS))
        return "; ".join(filter(None, said)) or self._in_words(case)

    def _in_words(self, case: Case) -> str:
        sizes, confidence = {}, _effect.confidence_of(case)
        if confidence is not None:
            sizes["over-confident" if confidence[0] else "under-confident"] = confidence[1]
        events = _effect.MEASURES.of(case) if case.data.predictions.n_labels == 2 else {}
        if (ratio := events.get(RATIO)) is not None:
            name = "under-estimated" if ratio.value > 1 else "over-estimated"
            sizes[name] = with_interval(f"O/E {number(ratio.value)}", ratio.interval, case.level)
            low, high = events[SLOPE].interval or (1.0, 1.0)
            is_said = any(x.is_confidence for x in _said(self.of(case)))
            if confidence is not None and not (low <= 1 <= high or is_said):
                sizes[name] += f"; {confidence[1]}"
        return directions_in_words(self.of(case), sizes)


DIRECTIONS = _Directions()


def shift_in_words(mean_pit: MeasureResult, events: MeasureResult | None = None) -> str | None:
    """Whether predictions are biased, by the mean PIT of targets; None if that is not significant.

    For events: whether they occur later or earlier than predicted, and their number.
    """
    interval, said = mean_pit.interval, f"mean PIT {mean_pit.value:.3g}, 0.5 if calibrated"
    if interval is None or interval[0] <= 0.5 <= interval[1]:
        return None
    is_high = mean_pit.value > 0.5
    if events is None or events.if_calibrated is None:
        return f"biased {'low' if is_high else 'high'}: {said}"
    expected = " to ".join(f"{end:.0f}" for end in sorted({*events.if_calibrated}))
    said = f"{events.value:.0f} observed, {expected} expected if calibrated; {said}"
    return f"events {'later' if is_high else 'earlier'} than predicted: {said}"


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
    said = f"{shares_in_words(ends[0], value)} (Kaplan-Meier; p = {pvalue:.2g}"
    return f"{name}{onwards}: {said}" + (f" adjusted for {len(found)} times)" if last else ")")
