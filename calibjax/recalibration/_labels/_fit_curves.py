"""Fits of curves of one class: beta, quadratic, spline, isotonic, Venn-Abers."""

from collections.abc import Callable

import numpy as np

from calibjax._numbers import isotonic_frequencies
from calibjax.recalibration._labels._curves import (
    END,
    LEAST,
    SMALL,
    BetaCurve,
    IsotonicCurve,
    QuadraticCurve,
    SplineCurve,
    VennAbersCurve,
    log_odds,
    of_curves,
    scores_of,
)
from calibjax.recalibration._labels._fitted import Fitted
from calibjax.recalibration._labels._logistic import Regression, logistic_regression
from calibjax.recalibration._labels._rows import LabelRows, mixed_with_uniform, with_floor
from calibjax.recalibration._labels._venn_abers import venn_abers
from calibjax.recalibration._splines import natural_spline, smooth_basis

# Of the spline: eight knots at quantiles, and strengths of the penalty of which one is chosen.
_LEVELS = np.linspace(0.01, 0.99, 8)
_STRENGTHS = 10.0 ** np.arange(1, -7, -1)
# Scores are one that differ by at most 8 units in the last place of float32, or by half of the last
# one near 1, where an event is known by one number.  Chains of them are cut at a length of eight.
_ROUNDING, _NEAR_ONE = 2.0**-20, 2.0**-25
_LONGEST = 8


def _happened(rows: LabelRows, curve: int) -> np.ndarray:
    """Whether the event of a curve happened: its class, or the second one of two."""
    return rows.targets == (1 if rows.n_classes == 2 else curve)


def _has_option(rows: LabelRows, curve: int) -> np.ndarray:
    """Which rows have the class of a curve, or all if there is none."""
    has_option = rows.probs[:, curve] > 0
    is_used = rows.ragged and has_option.any()
    return has_option if is_used else np.ones(len(has_option), bool)


def fit_beta(rows: LabelRows) -> Fitted:
    """logit q = c + a ln p - b ln(1 - p) with a, b >= 0 (Kull 2017), of each class alone."""
    floor, raised = with_floor(rows)
    kept = raised.kept()
    p, rest = of_curves(np, kept.probs)
    coefficients, converged = [], True
    for curve in range(p.shape[1]):
        features = np.stack([np.ones(len(p)), np.log(p[:, curve]), -np.log(rest[:, curve])], axis=1)
        used = np.array([True, True, True])
        found = np.zeros(3)
        while True:
            fit = logistic_regression(features[:, used], _happened(kept, curve), kept.weights)
            found[:] = 0.0
            found[used] = fit.numbers
            negative = found[1:] < 0
            if not negative.any():
                break
            # Of two negative slopes the larger in size is dropped first.
            used[1 + int(np.argmin(found[1:]))] = False
        coefficients.append(found.copy())
        converged &= fit.converged
    table = np.stack(coefficients)
    steps = floor, BetaCurve(table), mixed_with_uniform(rows)
    return Fitted(steps, converged, f"a {_range(table[:, 1])}, b {_range(table[:, 2])}")


def fit_quadratic(rows: LabelRows) -> Fitted:
    """logit q = c + a l + b l^2 with l = logit p, of two classes."""
    floor, raised = with_floor(rows)
    kept = raised.kept()
    x = log_odds(np, kept.probs)[:, 0]
    features = np.stack([np.ones(len(x)), x, x**2], axis=1)
    fit = logistic_regression(features, _happened(kept, 0), kept.weights)
    steps = floor, QuadraticCurve(fit.numbers[None]), mixed_with_uniform(rows)
    c, a, b = fit.numbers
    return Fitted(steps, fit.converged, f"logit q = {c:.2g} {a:+.2g} l {b:+.2g} l²")


def fit_spline(rows: LabelRows) -> Fitted:
    """logit q a natural cubic spline of logit p, of each class alone, with a penalty on f''."""
    floor, raised = with_floor(rows)
    kept = raised.kept()
    x = log_odds(np, kept.probs)
    before, fits = rows.kept(), []
    for c in range(x.shape[1]):
        used = _has_option(before, c)
        fits.append(_spline(x[used, c], _happened(kept, c)[used], kept.weights[used]))
    knots, values, curvatures, converged = zip(*fits, strict=True)
    steps = (
        floor,
        SplineCurve(np.stack(knots), np.stack(values), np.stack(curvatures)),
        mixed_with_uniform(rows),
    )
    return Fitted(steps, all(converged), "8 knots, strength by cross-validation")


def _spline(
    x: np.ndarray, happened: np.ndarray, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, bool]:
    """Knots, values and curvatures there ``[k]``, and if the fit found a minimum."""
    centre, spread = np.mean(x), max(float(np.std(x)), 1e-3)
    knots = np.quantile((x - centre) / spread, _LEVELS)
    # Knots that fall together, because predictions are few or equal, move apart a little.
    gap = max(1e-2, 1e-3 * (knots[-1] - knots[0]))
    knots = np.maximum.accumulate(knots - gap * np.arange(8)) + gap * np.arange(8)
    basis, curvature_of = smooth_basis(knots)
    features = natural_spline(np, (x - centre) / spread, knots, basis, curvature_of)
    # The first two functions are straight lines, which have no penalty.
    best: Regression | None = None
    start, least = None, np.inf
    for strength in _STRENGTHS:
        penalty = np.where(np.arange(8) < 2, 0.0, strength)
        fit = logistic_regression(features, happened, weights, penalty, start)
        start = fit.numbers
        loss = float(weights @ fit.left_out)
        if loss < least:
            best, least = fit, loss
    assert best is not None  # the losses are finite
    values, curvatures = basis @ best.numbers, curvature_of @ best.numbers
    return knots * spread + centre, values, curvatures / spread**2, best.converged


def fit_isotonic(rows: LabelRows) -> Fitted:
    """The nondecreasing curve of each class that is nearest to its frequencies (Zadrozny 2002)."""
    kept, least = rows.kept(), _least(rows)
    scores, curves = scores_of(np, kept.probs, least), []
    for curve in range(scores.shape[1]):
        edges, events, count = _ties(scores[:, curve], _happened(kept, curve), kept)
        values = np.repeat(isotonic_frequencies(events, count), 2)
        # Between equal values nothing is to be known.
        inner = np.r_[True, (values[1:-1] != values[:-2]) | (values[1:-1] != values[2:]), True]
        curves.append((edges[inner], values[inner]))
    size = _size(max(len(values) for _, values in curves))
    edges, values = (
        np.stack([_extended(x, size) for x in part]) for part in zip(*curves, strict=True)
    )
    steps = IsotonicCurve(edges, values, least), mixed_with_uniform(rows)
    most = max(len(np.unique(values)) for _, values in curves)
    return Fitted(steps, True, f"at most {most} different values of a class")


def fit_venn_abers(rows: LabelRows) -> Fitted:
    """Isotonic regression with the new row as an event and as none, of two classes (Vovk 2015)."""
    kept, least = rows.kept(), _least(rows)
    scores = scores_of(np, kept.probs, least)[:, 0]
    edges, events, count = _ties(scores, _happened(kept, 0), kept)
    # One more row counts as one of the rows of equal weights.
    unit = count.sum() / kept.size()
    at, between = venn_abers(events / unit, count / unit)
    # Below, at, between, at, …, above.
    values = np.append(np.stack([between[:-1], at], axis=1), between[-1])
    size = _size(len(edges))
    curve = VennAbersCurve(_extended(edges, size), _extended(values, size + 1), least)
    return Fitted((curve,), True, f"{len(at)} different probabilities")


def _least(rows: LabelRows) -> np.ndarray:
    """What is told from 0 beside a probability of 1: of one number what float32 tells from 1."""
    return np.array(_NEAR_ONE if rows.by_one else LEAST)


def _ties(
    scores: np.ndarray, happened: np.ndarray, rows: LabelRows
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Edges below and above each score ``[2 u]``, the weight of its events, and of all its rows.

    Scores of one chain of differences that may be rounding are one score.
    """
    order = np.argsort(scores)
    x, weights = scores[order], rows.weights[order]
    rounding = _ROUNDING * x
    if rows.by_one:
        # The score has the slope t / (1 - p) there.
        rounding += _NEAR_ONE * np.where(x > END, np.exp((x - END) / SMALL), 0.0)
    is_new = np.append(True, np.diff(x) > rounding[:-1])
    start = np.maximum.accumulate(np.where(is_new, np.arange(len(x)), 0))
    # Many rows may have scores so dense that a chain has no end.
    part = np.floor((x - x[start]) / (_LONGEST * rounding[start]))
    is_new[1:] |= part[1:] != part[:-1]
    is_last = np.append(is_new[1:], True)
    below, above = (x - rounding)[is_new], (x + rounding)[is_last]
    middle = (x[is_last][:-1] + x[is_new][1:]) / 2
    below[1:], above[:-1] = np.maximum(below[1:], middle), np.minimum(above[:-1], middle)
    place = np.cumsum(is_new) - 1
    events, count = (np.bincount(place, w) for w in (weights * happened[order], weights))
    return np.stack([below, above], axis=1).ravel(), events, count


def _size(n: int) -> int:
    """A length of which there are few, so that curves share what is compiled."""
    return max(64, 2 ** (n - 1).bit_length())


def _extended(x: np.ndarray, size: int) -> np.ndarray:
    """So many numbers, of which those behind the given ones are the last one again."""
    return np.concatenate([x, np.full(size - len(x), x[-1])])


def _range(x: np.ndarray) -> str:
    return f"{x[0]:.2g}" if len(x) == 1 else f"{x.min():.2g} … {x.max():.2g}"


CURVES: dict[str, Callable[[LabelRows], Fitted]] = {
    "beta": fit_beta,
    "quadratic": fit_quadratic,
    "spline": fit_spline,
    "isotonic": fit_isotonic,
    "venn_abers": fit_venn_abers,
}
