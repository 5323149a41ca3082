r"""Directions in which predictions in arrays are wrong on average, and what each of them explains.

A direction is a mean of the rows that a calibrated model has with mean 0: targets less means, or
sizes of errors less expected ones.  It is clear if it is farther from 0 than chance explains.

A clear direction need not be *the* error.  So one number is fitted that takes it out, a shift or a
temperature, and what is left is measured on residuals r_i, which are vectors with mean 0 under a
calibrated model, in cells of similar predictions:

    sum_cells (|sum_i r_i|^2 - sum_i |r_i|^2) = sum_cells sum_{i != j} <r_i, r_j>,

the unbiased SKCE whose kernel on predictions is 1 within a cell, up to a factor.  The same rows fit
and judge.  A test of them would find the corrected model too good; the SKCE falls by no more than a
fitted number takes of its noise, which is little beside the half of it that we ask for.

In NumPy: compiling it would take longer than it takes.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from calibjax._base.text import class_name, format_distinct, shares_in_words
from calibjax.evaluation._wording import event_name
from calibjax.measures.sampling import Sampling

# Minimum share of the SKCE that the main direction explains.
_MAIN_ERROR = 0.5
# The number of cells of equally many rows for each class, by its probability; and for numbers, of
# bins of the location, and of the spread.
_CELLS, _BINS = 10, 5
# Newton's steps for a shift, which has one root; each step is at most _STEP.
_STEPS, _STEP = 30, 2.0
# Normal scores of PITs closer to 0 or 1 are no larger.
_LEAST_PIT = 1e-5
_COSINES = 4
# Shares of the probability in central intervals whose coverage is told.
_COVERAGES = 0.9, 0.5
#: The names of directions that a temperature corrects.
_CONFIDENCE = "over-confident", "under-confident", "too narrow", "too wide"


@dataclasses.dataclass(frozen=True)
class Direction:
    """A way in which predictions are wrong on average.

    Args:
        name: the way, such as "too low" or "over-confident".
        predicted: the mean that was predicted, of what the details say.
        observed: the observed mean.
        details: both means in words.
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
        return f"{self.name} ({self.details})"


class _Error(NamedTuple):
    """A direction that is looked at.

    Args:
        names: what it is called if the mean of the rows is positive, and if it is not.
        values: numbers of rows with mean 0 under a calibrated model, ``[n]``.
        variances: those of the numbers under a calibrated model.
        words: what was predicted, what was observed, and both in words.
        corrected: what is compared with targets, without this error; None if that is not known.
    """

    names: tuple[str, str]
    values: np.ndarray
    variances: np.ndarray | float
    words: Callable[[bool], tuple[float, float, str]]
    corrected: Callable[[], np.ndarray | None]


def _judged(
    shifts: list[_Error],
    spread: _Error,
    left: Callable[[np.ndarray], float],
    whole: np.ndarray,
    sampling: Sampling,
) -> list[Direction]:
    """What is found of all errors; of shifts only the clearest is named, so that only it is fitted.

    Args:
        shifts: errors of locations or of classes.
        spread: the error of confidence.
        left: the SKCE of predictions, up to a factor.
        whole: the predictions with all errors.
        sampling: how rows count.
    """
    errors, before, found = [*shifts, spread], left(whole), []
    scores = [_score_of_mean(x.values, x.variances, sampling) for x in errors]
    fitted = int(np.argmax(np.abs(scores[:-1]))), len(shifts)
    for k, (error, score) in enumerate(zip(errors, scores, strict=True)):
        corrected = error.corrected() if k in fitted else None
        after = math.nan if corrected is None else left(corrected)
        explained = min(max(1 - after / before, 0.0), 1.0) if before > 0 else math.nan
        name = error.names[not score > 0]
        found.append(Direction(name, *error.words(score > 0), score, explained))
    return found


def _score_of_mean(values: np.ndarray, variances: np.ndarray | float, sampling: Sampling) -> float:
    """The mean of rows in units of its standard deviation, given their variances under H0.

    Rows that depend on each other vary as they do in the data.
    """
    shares = sampling.shares()
    mean = float(shares @ values)
    if sampling.is_dependent:
        error, _ = sampling.error(values)
    else:
        error = float(np.square(shares) @ np.broadcast_to(variances, values.shape)) ** 0.5
    return mean / error if error > 0 else 0.0


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
    """Of each class whether it comes more often, and whether the model is over-confident.

    A model that is over-confident is surprised: the log loss is larger than predicted.

    Args:
        probabilities: those of all labels ``[n, m]``.
        targets: labels ``[n]``.
        sampling: how rows count.
        temperature: the one that suits the rows best, or None.
        classes: their names, or None.
    """
    (n, m), rows, shares = probabilities.shape, np.arange(len(targets)), sampling.shares()
    came = np.zeros((n, m))
    came[rows, targets] = 1
    cells = {c: _cells(probabilities[:, c], _CELLS) for c in ([1] if m == 2 else range(m))}

    def left(q: np.ndarray) -> float:
        residuals = came - q
        return sum(_pairs_in_cells(residuals[:, c, None], x, shares) for c, x in cells.items())

    def error_of_class(c: int) -> _Error:
        of_class = "" if classes is None and m == 2 else f" for {class_name(classes, c)}"
        p = probabilities[:, c]
        predicted, observed = (float(shares @ x) for x in (p, came[:, c]))
        words = shares_in_words(predicted, observed)
        return _Error(
            (f"too low{of_class}", f"too high{of_class}"),
            came[:, c] - p,
            p * (1 - p),
            lambda _: (predicted, observed, words),
            lambda: _shifted(probabilities, c, observed, shares),
        )

    with np.errstate(divide="ignore"):
        surprise = -np.log(probabilities)
    # n rows show that a probability of 0 is wrong, and not that it is below 1 / (n + 1).
    surprise[probabilities == 0] = math.log(n + 1)
    of_possible = np.where(probabilities > 0, surprise, 0.0)
    expected = (probabilities * of_possible).sum(axis=1)
    surprise = surprise[rows, targets]

    def confidence(is_over: bool) -> tuple[float, float, str]:
        most_likely = probabilities.argmax(axis=1)
        predicted = float(shares @ probabilities[rows, most_likely])
        observed = float(shares @ (most_likely == targets))
        if (observed < predicted) != is_over:
            means = float(shares @ expected), float(shares @ surprise)
            return *means, f"predicted a log loss of {means[0]:.3g}, observed {means[1]:.3g}"
        judged = "the likelier of two outcomes" if m == 2 else "the most likely class"
        words = f"{judged}: {shares_in_words(predicted, observed)}"
        if m == 2:
            event = event_name(classes)
            rates = float(shares @ probabilities[:, 1]), float(shares @ came[:, 1])
            words += f"; {event}: {shares_in_words(*rates, '')}"
        return predicted, observed, words

    of_confidence = _Error(
        ("over-confident", "under-confident"),
        surprise - expected,
        (probabilities * np.square(of_possible)).sum(axis=1) - np.square(expected),
        confidence,
        lambda: _tempered(probabilities, temperature) if temperature else None,
    )
    return _judged([error_of_class(c) for c in cells], of_confidence, left, probabilities, sampling)


def _tempered(probabilities: np.ndarray, temperature: float) -> np.ndarray:
    largest = probabilities.max(axis=1, keepdims=True)
    powers = (probabilities / largest) ** (1 / temperature)
    return powers / powers.sum(axis=1, keepdims=True)


def _shifted(
    probabilities: np.ndarray, label: int, frequency: float, shares: np.ndarray
) -> np.ndarray:
    """The probabilities, where one number is added to the logit of a label so that it has, on
    average, the frequency with which it came."""
    p, shift = probabilities[:, label], 0.0
    if not 0 < frequency < 1:
        shifted = np.full_like(p, frequency)
    else:
        for _ in range(_STEPS):
            odds = math.exp(shift)
            shifted = odds * p / (1 - p + odds * p)
            slope = float(shares @ (shifted * (1 - shifted)))
            if slope <= 0:
                break
            shift += float(np.clip((frequency - shares @ shifted) / slope, -_STEP, _STEP))
    others = np.where(p < 1, (1 - shifted) / np.where(p < 1, 1 - p, 1), 0.0)
    found = probabilities * others[:, None]
    found[:, label] = shifted
    return found


def directions_of_numbers(
    pits: np.ndarray,
    locations: np.ndarray,
    spreads: np.ndarray,
    sampling: Sampling,
    means: tuple[np.ndarray, np.ndarray] | None,
    levels: np.ndarray | None,
) -> list[Direction]:
    """Whether predictions of numbers are too high or low, and too narrow or too wide.

    If the model is calibrated, PITs U are uniform, so that 2 U - 1 has the mean 0 and the
    variance 1 / 3, and |2 U - 1| the mean 1 / 2 and the variance 1 / 12.  No single target counts
    much for them.

    Args:
        pits: U = F(y) of each row, drawn evenly where a range of it is known, ``[n]``.
        locations: predicted locations ``[n]``.
        spreads: predicted spreads ``[n]``.
        sampling: how rows count.
        means: predicted means and targets, ``[n]`` both; None if the means are not finite.
        levels: the levels at which quantiles were predicted; None for others.
    """
    from scipy.special import ndtr, ndtri

    shares, sides = sampling.shares(), 2 * pits - 1
    scores = np.asarray(ndtri(np.clip(pits, _LEAST_PIT, 1 - _LEAST_PIT)))
    cells = _cells(locations, _BINS) * _BINS + _cells(spreads, _BINS)
    middle, size = float(shares @ scores), float(shares @ np.square(scores)) ** 0.5

    def left(x: np.ndarray) -> float:
        """Of features of PITs, each with mean 0 and variance 1 if these are uniform."""
        angles = np.pi * (pits if x is scores else ndtr(x))[:, None] * np.arange(1, _COSINES + 1)
        powers = np.stack([x, (np.square(x) - 1) / 2**0.5], axis=1)
        features = np.concatenate([powers, 2**0.5 * np.cos(angles)], axis=1)
        return _pairs_in_cells(features, cells, shares)

    def location(is_low: bool) -> tuple[float, float, str]:
        # The means, if they differ in the same direction; a few large targets may turn them round.
        if means is not None and levels is None:
            predicted, observed = (float(shares @ x) for x in means)
            if (observed > predicted) == is_low:
                p, y = format_distinct(predicted, observed)
                return predicted, observed, f"predicted {p} on average, observed {y}"
        level = 0.5 if levels is None else float(levels[np.argmin(np.abs(levels - 0.5))])
        above = float(shares @ (pits > level))
        of_level = "predicted medians" if level == 0.5 else f"quantiles of level {level:.3g}"
        words = f"{above:.1%} of the targets lie above the {of_level}, predicted {1 - level:.1%}"
        return 1 - level, above, words

    def coverage(is_narrow: bool) -> tuple[float, float, str]:
        # That of the central interval that shows it best.
        c = np.array(_COVERAGES)
        if levels is not None:
            pairs = [abs(2 * x - 1) for x in levels if np.isclose(1 - x, levels).any() and x != 0.5]
            c = np.unique(np.round(pairs or _COVERAGES, 6))[::-1]
        found = np.array([float(shares @ (np.abs(sides) <= x + 1e-6)) for x in c])
        best = np.argmax((c - found if is_narrow else found - c) / np.sqrt(c * (1 - c)))
        predicted, observed = float(c[best]), float(found[best])
        words = f"{observed:.1%} of the targets lie in intervals of {100 * predicted:.3g} %"
        return predicted, observed, words

    low = _Error(("too low", "too high"), sides, 1 / 3, location, lambda: scores - middle)
    narrow = _Error(
        ("too narrow", "too wide"),
        np.abs(sides) - 1 / 2,
        1 / 12,
        coverage,
        lambda: scores / size if size > 0 else None,
    )
    return _judged([low], narrow, left, scores, sampling)


def directions_of_vectors(
    means: np.ndarray, deviations: np.ndarray, targets: np.ndarray, sampling: Sampling
) -> list[Direction]:
    """Whether a coordinate is too high or low, and whether all deviations are too small or large.

    Args:
        means: predicted means ``[n, d]``.
        deviations: predicted standard deviations ``[n, d]``, positive.
        targets: the targets ``[n, d]``.
        sampling: how rows count.
    """
    shares, errors = sampling.shares(), (targets - means) / deviations
    cells = [_cells(column, _BINS) for column in means.T]
    sizes, middles = np.square(errors).mean(axis=1), shares @ errors
    size = float(shares @ sizes) ** 0.5

    def left(errors: np.ndarray) -> float:
        residuals = np.stack([errors, (np.square(errors) - 1) / 2**0.5], axis=2)
        return sum(_pairs_in_cells(residuals[:, j], c, shares) for j, c in enumerate(cells))

    def error_of_coordinate(j: int) -> _Error:
        both = float(shares @ means[:, j]), float(shares @ targets[:, j])
        words = f"targets are {abs(middles[j]):.2g} deviations"
        return _Error(
            (f"too low in coordinate {j}", f"too high in coordinate {j}"),
            errors[:, j],
            1.0,
            lambda is_low: (*both, f"{words} {'higher' if is_low else 'lower'}"),
            lambda: errors - middles * (np.arange(middles.size) == j),
        )

    narrow = _Error(
        ("too narrow", "too wide"),
        sizes - 1,
        float(np.var(sizes)),
        lambda _: (
            1.0,
            size,
            f"errors are {format_distinct(size, 1)[0]} times as large as predicted",
        ),
        lambda: errors / size if size > 0 else None,
    )
    shifts = [error_of_coordinate(j) for j in range(middles.size)]
    return _judged(shifts, narrow, left, errors, sampling)
