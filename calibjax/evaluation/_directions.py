r"""Bias and dispersion errors of a whole model, of which those are told that are significant.

A direction, one of these errors, is a mean of the rows that a calibrated model has with mean 0:
targets less means, or sizes of errors less expected ones.  It is clear if it is farther from 0
than chance explains.

A clear direction of labels may not be *the* error.  So one number is fitted that removes it, a
shift or a temperature, and the remaining error is measured on residuals r_i, which are vectors with
mean 0 under a calibrated model, in cells of similar predictions:

    sum_cells (|sum_i r_i|^2 - sum_i |r_i|^2) = sum_cells sum_{i != j} <r_i, r_j>,

the unbiased SKCE whose kernel on predictions is 1 within a cell, up to a factor.  The same rows are
used to fit and to evaluate.  A test of them would find the corrected model too good; the fitted
number lowers the SKCE by little of its noise, compared with the half of it that we require.

In NumPy: compiling it would take longer than it takes.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from jax.typing import ArrayLike

from calibjax._base.text import class_name, format_distinct, p_in_words, percent, shares_in_words
from calibjax._data.capabilities import restricted
from calibjax._data.data import Data
from calibjax._data.distribution import Labels
from calibjax.distributions import Quantiles
from calibjax.evaluation import _effect
from calibjax.evaluation._overall_error import LEVELS, widening, with_fitted_logits
from calibjax.evaluation._rows import ZERO_PROBABILITY
from calibjax.evaluation._section import Case, Section
from calibjax.evaluation._wording import NO_OVERALL_ERROR, event_name, with_interval
from calibjax.measures.events import RATIO, SLOPE
from calibjax.measures.families import EVENTS, MEAN_PIT, moments
from calibjax.measures.measure import MeasureResult
from calibjax.measures.quantiles import shares_of_levels
from calibjax.measures.risk_by_time import RISK_BY
from calibjax.measures.sampling import Sampling
from calibjax.scores import pit

# Minimum share of the SKCE that the main direction explains.
_MAIN_ERROR = 0.5
# The number of cells of equally many rows for each class, by its probability.
_CELLS = 10
# Shares of the probability in central intervals whose coverage is told.
_COVERAGES = 0.9, 0.5
#: The names of directions that a temperature corrects.
_DISPERSION = "under-dispersive", "over-dispersive"
_CONFIDENCE = "over-confident", "under-confident"
#: The predicted and the observed mean, and both as text.
Words = tuple[float, float, str]


@dataclasses.dataclass(frozen=True)
class Direction:
    """A way in which predictions are wrong on average.

    Args:
        name: the way, such as "biased low" or "over-confident".
        predicted: the mean that was predicted, of what the details say.
        observed: the observed mean.
        details: both means as text.
        score: how many standard deviations of a calibrated model lie between both.
        explained: the part of the SKCE that goes away with it, from 0 to 1; NaN if that is unknown.
    """

    name: str
    predicted: float
    observed: float
    details: str
    score: float
    explained: float

    @property
    def is_main(self) -> bool:
        """Whether it explains at least half of the error."""
        return self.explained >= _MAIN_ERROR

    @property
    def is_confidence(self) -> bool:
        """Whether it is what a temperature changes."""
        return self.name in _CONFIDENCE

    def __str__(self) -> str:
        return f"{self.name}: {self.details}"


class _Error(NamedTuple):
    """A candidate direction.

    Args:
        names: what it is called if the mean of the rows is positive, and if it is not.
        values: numbers of rows with mean 0 under a calibrated model, ``[n]``.
        variances: those of the numbers under a calibrated model.
        words: what was predicted, what was observed, and both as text; None if these do not show
            the error.
        corrected: what is compared with targets, without this error; None if that is not known.
            Bias and dispersion of numbers do not depend on each other, and need none.
    """

    names: tuple[str, str]
    values: np.ndarray
    variances: np.ndarray | float
    words: Callable[[bool], Words | None]
    corrected: Callable[[], np.ndarray | None] | None = None


def _found_directions(
    shifts: list[_Error],
    spread: _Error,
    sampling: Sampling,
    left: Callable[[np.ndarray | None], float] = lambda _: math.nan,
    whole: np.ndarray | None = None,
) -> list[Direction]:
    """What is found of all errors; of shifts only the clearest is named, so that only it is fitted.

    Args:
        shifts: errors of locations or of classes.
        spread: the error of confidence.
        sampling: how rows count.
        left: the SKCE of predictions, up to a factor.
        whole: the predictions with all errors.
    """
    errors, before, found = [*shifts, spread], left(whole), []
    scores = [_score_of_mean(x.values, x.variances, sampling) for x in errors]
    fitted = int(np.argmax(np.abs(scores[:-1]))), len(shifts)
    for k, (error, score) in enumerate(zip(errors, scores, strict=True)):
        corrected = error.corrected() if error.corrected and k in fitted else None
        after = math.nan if corrected is None else left(corrected)
        explained = min(max(1 - after / before, 0.0), 1.0) if before > 0 else math.nan
        words = error.words(score > 0)
        if words is not None:
            found.append(Direction(error.names[not score > 0], *words, score, explained))
    return found


def _score_of_mean(values: np.ndarray, variances: np.ndarray | float, sampling: Sampling) -> float:
    """The mean of rows in units of its standard deviation, given their variances under H0.

    Dependent rows vary as they do in the data.
    """
    shares = sampling.shares()
    mean = float(shares @ values)
    if sampling.is_dependent:
        error, _ = sampling.error(values)
    else:
        error = float(np.square(shares) @ np.broadcast_to(variances, values.shape)) ** 0.5
    if error == 0:
        # Errors of one sign where a model is certain of all rows are infinitely clear.
        is_clear = mean and (np.sign(values) != -np.sign(mean)).all()
        return math.copysign(math.inf, mean) if is_clear else 0.0
    return mean / error


def _pairs_in_cells(residuals: np.ndarray, cells: np.ndarray, shares: np.ndarray) -> float:
    """The sum over pairs of rows of one cell of products of their residuals ``[n, f]``."""
    weighted = shares[:, None] * residuals
    sums = [np.bincount(cells, column) for column in weighted.T]
    return float(np.square(sums).sum() - np.square(weighted).sum())


def _cells(x: np.ndarray, n_cells: int) -> np.ndarray:
    """The cell of each row, by the rank of its number; equal ones are in one cell."""
    edges = np.sort(x)[np.linspace(0, len(x) - 1, n_cells + 1).round().astype(int)[1:-1]]
    return np.searchsorted(edges, x, side="left")


def directions_of_labels(
    probabilities: np.ndarray,
    targets: np.ndarray,
    sampling: Sampling,
    temperature: float | None,
    classes: list[Any] | None,
) -> list[Direction]:
    """Which classes are under-estimated, and whether the model is over-confident.

    A model that is over-confident is surprised: the log loss is larger than predicted.

    Args:
        probabilities: those of all labels ``[n, m]``.
        targets: labels ``[n]``.
        sampling: how rows count.
        temperature: the one that suits the rows best, or None.
        classes: their names, or None.
    """
    (n, m), rows, shares = probabilities.shape, np.arange(len(targets)), sampling.shares()
    outcomes = np.zeros((n, m))
    outcomes[rows, targets] = 1
    cells = {c: _cells(probabilities[:, c], _CELLS) for c in ([1] if m == 2 else range(m))}

    def left(q: Any) -> float:
        residuals = outcomes - q
        return sum(_pairs_in_cells(residuals[:, c, None], x, shares) for c, x in cells.items())

    def error_of_class(c: int) -> _Error:
        name = "risk" if classes is None and m == 2 else class_name(classes, c)
        p = probabilities[:, c]
        predicted, observed = (float(shares @ x) for x in (p, outcomes[:, c]))
        # O/E of an event has its own text.
        words = shares_in_words(predicted, observed).partition(" (O/E" if m == 2 else "\n")[0]
        return _Error(
            (f"{name} under-estimated", f"{name} over-estimated"),
            outcomes[:, c] - p,
            p * (1 - p),
            lambda _: (predicted, observed, words),
            lambda: with_fitted_logits(probabilities, outcomes, shares, c),
        )

    with np.errstate(divide="ignore"):
        surprise = -np.log(probabilities)
    # n rows show that a probability of 0 is wrong, and not that it is below 1 / (n + 1).
    surprise[probabilities == 0] = math.log(n + 1)
    of_possible = np.where(probabilities > 0, surprise, 0.0)
    expected = (probabilities * of_possible).sum(axis=1)
    surprise = surprise[rows, targets]

    def confidence(is_over: bool) -> Words:
        most_likely = probabilities.argmax(axis=1)
        predicted = float(shares @ probabilities[rows, most_likely])
        observed = float(shares @ (most_likely == targets))
        if (observed < predicted) != is_over:
            means = float(shares @ expected), float(shares @ surprise)
            return *means, f"expected log loss {means[0]:.3g}, observed {means[1]:.3g}"
        words = shares_in_words(predicted, observed, ("mean confidence", "accuracy"))
        if m == 2:
            rates = float(shares @ probabilities[:, 1]), float(shares @ outcomes[:, 1])
            words += f"; {event_name(classes)}: {shares_in_words(*rates)}"
        return predicted, observed, words

    of_confidence = _Error(
        _CONFIDENCE,
        surprise - expected,
        (probabilities * np.square(of_possible)).sum(axis=1) - np.square(expected),
        confidence,
        lambda: _tempered(probabilities, temperature) if temperature else None,
    )
    shifts = [error_of_class(c) for c in cells]
    return _found_directions(shifts, of_confidence, sampling, left, probabilities)


def _tempered(probabilities: np.ndarray, temperature: float) -> np.ndarray:
    largest = probabilities.max(axis=1, keepdims=True)
    powers = (probabilities / largest) ** (1 / temperature)
    return powers / powers.sum(axis=1, keepdims=True)


def directions_of_numbers(
    pits: np.ndarray,
    sampling: Sampling,
    means: tuple[np.ndarray, np.ndarray] | None,
    quantiles: tuple[np.ndarray, np.ndarray, np.ndarray] | None,
    factor: MeasureResult | None = None,
    level: float = 0.05,
    are_counts: bool = False,
) -> list[Direction]:
    """Bias and dispersion errors of predictions of numbers.

    If the model is calibrated, PITs U are uniform, so that 2 U - 1 has the mean 0 and the
    variance 1 / 3, and |2 U - 1| the mean 1 / 2 and the variance 1 / 12.  No single target counts
    much for them.

    Args:
        pits: U = F(y) of each row, drawn evenly where a range of it is known, ``[n]``.
        sampling: how rows count.
        means: predicted means and targets, ``[n]`` both; None if the means are not finite.
        quantiles: levels, and whether targets are below the quantiles, and at most these, as
            `shares_of_levels` has them; None for others.
        factor: how many times as wide intervals should be once the bias is removed, and an interval
            of it; None if that is not known.
        level: the level of this interval.
        are_counts: whether the ratio of the means is told as well.
    """
    shares, sides = sampling.shares(), 2 * pits - 1
    is_biased = abs(_score_of_mean(sides, 1 / 3, sampling)) > NormalDist().inv_cdf(1 - level / 4)

    def location(is_low: bool) -> Words | None:
        # The means, if they differ in the same direction; a few large targets may turn them round.
        if means is not None:
            predicted, observed = (float(shares @ x) for x in means)
            if (observed > predicted) == is_low:
                p, y = format_distinct(predicted, observed)
                ratio = f" (O/E {observed / predicted:.2f})" if are_counts and predicted > 0 else ""
                return predicted, observed, f"mean predicted {p}, observed {y}{ratio}"
        at, above = 0.5, float(shares @ (pits > 0.5))
        up_to = above
        if quantiles is not None:
            levels, below, at_most = quantiles
            k = np.argmin(np.abs(levels - 0.5))
            at = float(levels[k])
            above, up_to = (1 - float(shares @ x[:, k]) for x in (at_most, below))
        observed = above if is_low else up_to
        # Where targets are equal to the median, both shares of a right one are beside 1/2.
        if (observed > 1 - at) != is_low:
            return None
        place = "predicted median" if at == 0.5 else f"{at:.3g} quantile"
        words = f"{percent(above)} of targets above the {place}"
        words += f", {percent(up_to)} at or above" if percent(up_to) != percent(above) else ""
        return 1 - at, observed, f"{words}, {percent(1 - at)} if calibrated"

    def coverage(is_narrow: bool) -> Words | None:
        # That of the central interval that shows it best.
        ends = factor.interval if factor is not None else None
        if ends is not None and ends[0] <= 1 <= ends[1]:
            return None
        is_narrow = is_narrow if ends is None else ends[0] > 1
        c, inside = np.array(_COVERAGES), [np.abs(sides) <= x + 1e-6 for x in _COVERAGES]
        if quantiles is not None:
            levels, below, at_most = quantiles
            n_pairs = len(levels) // 2 if np.allclose(levels + levels[::-1], 1) else 1
            pairs = [(k, len(levels) - 1 - k) for k in range(n_pairs)]
            c = np.round([levels[b] - levels[a] for a, b in pairs], 6)
            # Ends count as inside where intervals are too narrow, and as outside if too wide.
            first, last = (below, at_most) if is_narrow else (at_most, below)
            inside = [~first[:, a] & last[:, b] for a, b in pairs]
        gaps = c - [float(shares @ x) for x in inside]
        best = np.argmax((gaps if is_narrow else -gaps) / np.sqrt(c * (1 - c)))
        predicted, observed = float(c[best]), float(c[best] - gaps[best])
        if not 0 < predicted < 1 or (observed < predicted) != is_narrow:
            return None
        words = f"{100 * predicted:.3g} % interval coverage {percent(observed)}"
        if factor is not None and ends is not None:
            corrected = "after bias correction, " if is_biased else ""
            # Where no target or each one is outside all quantiles, they do not tell how far.
            is_bound = bool(np.isclose(*ends))
            bound = ("at most " if factor.value < 1 else "at least ") if is_bound else ""
            change = f"{corrected}intervals should be {bound}{{}} times as wide"
            interval = None if is_bound else ends
            words += f"; {with_interval(change, factor.value, interval, level)}"
        return predicted, observed, words

    names = _DISPERSION
    if factor is not None and factor.interval is not None:
        names = 2 * (_DISPERSION[factor.value < 1],)
    low = _Error(("biased low", "biased high"), sides, 1 / 3, location)
    narrow = _Error(names, np.abs(sides) - 1 / 2, 1 / 12, coverage)
    return _found_directions([low], narrow, sampling)


def directions_of_vectors(
    means: np.ndarray, deviations: np.ndarray, targets: np.ndarray, sampling: Sampling
) -> list[Direction]:
    """Bias of a coordinate, and whether all standard deviations are too small or large.

    Args:
        means: predicted means ``[n, d]``.
        deviations: predicted standard deviations ``[n, d]``, positive.
        targets: the targets ``[n, d]``.
        sampling: how rows count.
    """
    shares, errors = sampling.shares(), (targets - means) / deviations
    middles = shares @ errors
    sizes = np.square(errors - middles).mean(axis=1)
    size = float(shares @ sizes) ** 0.5

    def error_of_coordinate(j: int) -> _Error:
        both = float(shares @ means[:, j]), float(shares @ targets[:, j])
        return _Error(
            (f"biased low in coordinate {j}", f"biased high in coordinate {j}"),
            errors[:, j],
            1.0,
            lambda _: (*both, f"by {abs(middles[j]):.2g} predicted SDs"),
        )

    narrow = _Error(
        _DISPERSION,
        sizes - 1,
        float(np.var(sizes)),
        lambda _: (1.0, size, f"errors {format_distinct(size, 1)[0]} times as large as predicted"),
    )
    shifts = [error_of_coordinate(j) for j in range(middles.size)]
    return _found_directions(shifts, narrow, sampling)


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
    if data.is_censored or (is_vector and predictions.score_only):
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
    options = factor, case.level, predictions.target_kind == "integer"
    return directions_of_numbers(pits, sampling, means, quantiles, *options)


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
        if not case.rejected or case.data.is_censored:
            return ()
        best = _effect.BEST_TEMPERATURE.of(case)
        return clear_directions_of(case, case.padded, best and best.value)

    def clause(self, case: Case) -> str | None:
        if not case.rejected or (ZERO_PROBABILITY.is_all(case) and not self.of(case)):
            return None
        if not case.data.is_censored:
            return self._in_words(case)
        measures = _effect.MEASURES.of(case)
        of_time = time_in_words(measures, case.level)
        said = of_time, shift_in_words(measures[MEAN_PIT], measures.get(EVENTS))
        return "; ".join(filter(None, said)) or self._in_words(case)

    def _in_words(self, case: Case) -> str:
        sizes, confidence = {}, _effect.confidence_of(case)
        if confidence is not None:
            sizes["over-confident" if confidence[0] else "under-confident"] = confidence[1]
        events = _effect.events_of(case)
        if (ratio := events.get(RATIO)) is not None:
            name = "under-estimated" if ratio.value > 1 else "over-estimated"
            sizes[name] = _effect.ratio_in_words(ratio, case.level)
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
    said = f"{events.value:.0f} observed, {expected} expected during the same follow-up; {said}"
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
    later = " (and at later times)" if first < last and len(clear) == len(found) - first else ""
    value, ends = measures[name].value, measures[name].if_calibrated
    assert ends is not None
    said = f"{shares_in_words(ends[0], value)} (Kaplan-Meier), {p_in_words(pvalue)}"
    return f"{name}{later}: {said}" + (f" adjusted for {len(found)} time points" if last else "")
