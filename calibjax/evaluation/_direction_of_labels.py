"""Which way predictions of labels are wrong: which class comes too often, too sure or not."""

import math
from typing import Any

import numpy as np

from calibjax._data import Distribution
from calibjax.evaluation._direction import (
    Direction,
    pairs_in_cells,
    part_explained,
    score_of_mean,
)
from calibjax.evaluation._wording import class_name, event_name
from calibjax.intervals import Sampling

# So many cells of equally many rows for each class, by its probability.
_CELLS = 10
# Newton's steps for a shift, which has one root; each step is at most _STEP.
_STEPS, _STEP = 30, 2.0


def probabilities_of_labels(predictions: Distribution) -> np.ndarray:
    """The probabilities of all labels ``[n, m]``, which add up to 1."""
    found = np.asarray(predictions.label_probabilities(), np.float64)
    return found / found.sum(axis=1, keepdims=True)


def directions_of_labels(
    probabilities: np.ndarray,
    targets: np.ndarray,
    sampling: Sampling,
    temperature: float | None,
    classes: list[Any] | None,
) -> list[Direction]:
    """Of each class whether it comes more often, and whether the model is too sure.

    Args:
        probabilities: those of all labels ``[n, m]``.
        targets: labels ``[n]``, each of a positive probability.
        sampling: how rows count.
        temperature: the one that suits the rows best, or None.
        classes: their names, or None.
    """
    n, m = probabilities.shape
    came = np.zeros((n, m))
    came[np.arange(n), targets] = 1
    judged = [1] if m == 2 else range(m)
    cells = {c: _cells(probabilities[:, c]) for c in judged}
    shares = sampling.shares()

    def left(q: np.ndarray) -> float:
        return sum(
            pairs_in_cells((came - q)[:, c, None], of_class, shares)
            for c, of_class in cells.items()
        )

    before = left(probabilities)
    found = []
    scores = {c: _score_of_class(probabilities[:, c], came[:, c], sampling) for c in judged}
    # Only the clearest class is named, so that only its shift is fitted.
    clearest = max(scores, key=lambda c: abs(scores[c]))
    for c, score in scores.items():
        predicted, observed = (float(shares @ x[:, c]) for x in (probabilities, came))
        after = left(_shifted(probabilities, c, observed, shares)) if c == clearest else math.nan
        of_class = "" if classes is None and m == 2 else f" for {class_name(classes, c)}"
        found.append(
            Direction(
                f"too {'low' if observed > predicted else 'high'}{of_class}",
                predicted,
                observed,
                f"predicted {predicted:.1%} on average, observed {observed:.1%}",
                score,
                part_explained(before, after),
            )
        )
    after = left(_tempered(probabilities, temperature)) if temperature else math.nan
    explained = part_explained(before, after)
    found.append(_sureness(probabilities, targets, sampling, explained, classes))
    return found


def _score_of_class(p: np.ndarray, came: np.ndarray, sampling: Sampling) -> float:
    return score_of_mean(came - p, p * (1 - p), sampling)


def _sureness(
    probabilities: np.ndarray,
    targets: np.ndarray,
    sampling: Sampling,
    explained: float,
    classes: list[Any] | None,
) -> Direction:
    """Whether the log score is worse than predicted: a model that is too sure is surprised."""
    rows, shares = np.arange(len(targets)), sampling.shares()
    with np.errstate(divide="ignore"):
        surprise = -np.log(probabilities)
    of_possible = np.where(probabilities > 0, surprise, 0.0)
    expected = (probabilities * of_possible).sum(axis=1)
    variance = (probabilities * np.square(of_possible)).sum(axis=1) - np.square(expected)
    score = score_of_mean(surprise[rows, targets] - expected, variance, sampling)
    name = "too sure" if score > 0 else "not sure enough"
    most_likely = probabilities.argmax(axis=1)
    predicted = float(shares @ probabilities[rows, most_likely])
    observed = float(shares @ (most_likely == targets))
    if (observed < predicted) == (score > 0):
        is_event = probabilities.shape[1] == 2
        judged = "the likelier of two outcomes" if is_event else "the most likely class"
        details = f"{judged}: predicted {predicted:.1%} on average, observed {observed:.1%}"
        if is_event:
            rates = float(shares @ probabilities[:, 1]), float(shares @ (targets == 1))
            details += f"; {event_name(classes)}: predicted {rates[0]:.1%}, observed {rates[1]:.1%}"
    else:
        predicted = float(shares @ expected)
        observed = float(shares @ surprise[rows, targets])
        details = f"predicted a log score of {predicted:.3g}, observed {observed:.3g}"
    return Direction(name, predicted, observed, details, score, explained)


def _cells(p: np.ndarray) -> np.ndarray:
    """The cell of each row, by the rank of its probability; equal ones are in one cell."""
    ordered = np.sort(p)
    edges = ordered[np.linspace(0, len(p) - 1, _CELLS + 1).round().astype(int)[1:-1]]
    return np.searchsorted(edges, p, side="left")


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
