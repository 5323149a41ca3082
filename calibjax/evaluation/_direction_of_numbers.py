"""Which way predictions of numbers are wrong: too high or low, too narrow or wide."""

import math

import numpy as np

from calibjax.evaluation._direction import (
    Direction,
    pairs_in_cells,
    part_explained,
    score_of_mean,
)
from calibjax.intervals import Sampling

# Cells of similar predictions: so many bins of the location, and of the spread.
_BINS = 5
# Normal scores of PITs closer to 0 or 1 are no larger.
_LEAST_PIT = 1e-5
_COSINES = 4
# Shares of the probability in central intervals whose coverage is told.
_COVERAGES = 0.9, 0.5


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
    cells = _bins(locations) * _BINS + _bins(spreads)
    before = pairs_in_cells(_residuals(pits, scores), cells, shares)

    def explained(mended: np.ndarray) -> float:
        after = pairs_in_cells(_residuals(ndtr(mended), mended), cells, shares)
        return part_explained(before, after)

    middle, size = float(shares @ scores), float(shares @ np.square(scores)) ** 0.5
    of_location = score_of_mean(sides, 1 / 3, sampling)
    of_spread = score_of_mean(np.abs(sides) - 1 / 2, 1 / 12, sampling)
    return [
        Direction(
            "too low" if of_location > 0 else "too high",
            *_location_in_words(pits, of_location > 0, shares, means, levels),
            of_location,
            explained(scores - middle),
        ),
        Direction(
            "too narrow" if of_spread > 0 else "too wide",
            *_spread_in_words(sides, of_spread > 0, shares, levels),
            of_spread,
            explained(scores / size) if size > 0 else math.nan,
        ),
    ]


def _residuals(pits: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Features of PITs, each with mean 0 and variance 1 if these are uniform, ``[n, f]``."""
    angles = np.pi * pits[:, None] * np.arange(1, _COSINES + 1)
    moments = np.stack([scores, (np.square(scores) - 1) / 2**0.5], axis=1)
    return np.concatenate([moments, 2**0.5 * np.cos(angles)], axis=1)


def _bins(x: np.ndarray) -> np.ndarray:
    edges = np.sort(x)[np.linspace(0, len(x) - 1, _BINS + 1).round().astype(int)[1:-1]]
    return np.searchsorted(edges, x, side="left")


def _location_in_words(
    pits: np.ndarray,
    is_low: bool,
    shares: np.ndarray,
    means: tuple[np.ndarray, np.ndarray] | None,
    levels: np.ndarray | None,
) -> tuple[float, float, str]:
    """What was predicted and what was observed, as numbers and in words.

    The means, if they differ in the same direction; a few large targets may turn them round.
    """
    if means is not None and levels is None:
        predicted, observed = (float(shares @ x) for x in means)
        if (observed > predicted) == is_low:
            return predicted, observed, _means_in_words(predicted, observed)
    level = 0.5 if levels is None else float(levels[np.argmin(np.abs(levels - 0.5))])
    above = float(shares @ (pits > level))
    of_level = "predicted medians" if level == 0.5 else f"quantiles of level {level:.3g}"
    details = f"{above:.1%} of the targets lie above the {of_level}, predicted {1 - level:.1%}"
    return 1 - level, above, details


def _means_in_words(predicted: float, observed: float) -> str:
    """Both means, with as many digits as tell them apart."""
    for digits in range(3, 8):
        words = f"{predicted:.{digits}g}", f"{observed:.{digits}g}"
        if words[0] != words[1]:
            break
    return f"predicted {words[0]} on average, observed {words[1]}"


def _spread_in_words(
    sides: np.ndarray, is_narrow: bool, shares: np.ndarray, levels: np.ndarray | None
) -> tuple[float, float, str]:
    """The coverage of the central interval that shows it best."""
    coverages = np.array(_COVERAGES)
    if levels is not None:
        of_pairs = [abs(2 * x - 1) for x in levels if np.isclose(1 - x, levels).any() and x != 0.5]
        coverages = np.unique(np.round(of_pairs or _COVERAGES, 6))[::-1]
    found = np.array([float(shares @ (np.abs(sides) <= c + 1e-6)) for c in coverages])
    gaps = (coverages - found if is_narrow else found - coverages) / np.sqrt(
        coverages * (1 - coverages)
    )
    best = int(np.argmax(gaps))
    predicted, observed = float(coverages[best]), float(found[best])
    details = f"{observed:.1%} of the targets lie in intervals of {100 * predicted:.3g} %"
    return predicted, observed, details


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
    cells = [_bins(column) for column in means.T]
    sizes = np.square(errors).mean(axis=1)

    def left(errors: np.ndarray) -> float:
        residuals = np.stack([errors, (np.square(errors) - 1) / 2**0.5], axis=2)
        return sum(pairs_in_cells(residuals[:, j], c, shares) for j, c in enumerate(cells))

    before, middles = left(errors), shares @ errors
    scores = [score_of_mean(column, 1.0, sampling) for column in errors.T]
    worst = int(np.argmax(np.abs(scores)))
    found = []
    for j, score in enumerate(scores):
        predicted, observed = float(shares @ means[:, j]), float(shares @ targets[:, j])
        shift = middles * (np.arange(middles.size) == j)
        details = (
            f"targets are {abs(middles[j]):.2g} deviations {'higher' if score > 0 else 'lower'}"
        )
        found.append(
            Direction(
                f"too {'low' if score > 0 else 'high'} in coordinate {j}",
                predicted,
                observed,
                details,
                score,
                part_explained(before, left(errors - shift)) if j == worst else math.nan,
            )
        )
    size = float(shares @ sizes) ** 0.5
    of_spread = score_of_mean(sizes - 1, float(np.var(sizes)), sampling)
    found.append(
        Direction(
            "too narrow" if of_spread > 0 else "too wide",
            1.0,
            size,
            f"errors are {size:.3g} times as large as predicted",
            of_spread,
            part_explained(before, left(errors / size)) if size > 0 else math.nan,
        )
    )
    return found
