"""Ridge regression of what is left of the error in segments, drawn towards the map for all rows.

Three kinds of numbers have a strength each: shifts of levels, shifts of pairs of levels, and slopes
of levels.  One kind after another is added if rows left out are predicted better with it.
"""

from typing import NamedTuple

import numpy as np

from calibjax._rows import NamedColumns
from calibjax.recalibration._groups._coding import Coding
from calibjax.recalibration._groups._curve import FARTHEST, GroupCurve
from calibjax.recalibration._labels import LabelRows, Regression, log_odds, logistic_regression

# Of a penalty strength t^2 / n: 1 / (2 strength) is the variance of a number that is likely.
STRENGTHS = (256.0, 64.0, 16.0, 4.0, 1.0)


class FittedGroups(NamedTuple):
    """A map of segments, whether the searches for it found minima, and it in words."""

    curve: GroupCurve
    converged: bool
    words: str


class _Curve(NamedTuple):
    """Shifts and slopes of segments ``[S]``, and losses of rows left out before and after."""

    shifts: np.ndarray
    slopes: np.ndarray
    converged: bool
    gain: np.ndarray
    kinds: tuple[str, ...]


def fit_groups(
    groups: NamedColumns, kept: np.ndarray, rows: LabelRows, part: np.ndarray | None
) -> FittedGroups:
    """The map of segments for rows whose probabilities are those of the map for all rows.

    Args:
        groups: columns of all rows.
        kept: which rows count, ``[n]``; `rows` holds these.
        rows: probabilities after the map for all rows, labels and weights.
        part: the number of the part of each row that is left out together; None for rows alone.
    """
    coding = Coding.of(groups, kept)
    members = coding.members(groups, kept)
    probs = np.maximum(rows.probs, 1e-15)
    logits = log_odds(np, probs)
    centres, spreads = logits.mean(axis=0), np.maximum(logits.std(axis=0), 1e-3)
    x = np.clip((logits - centres) / spreads, -FARTHEST, FARTHEST)
    curves = []
    for c in range(logits.shape[1]):
        happened = rows.targets == (1 if rows.n_classes == 2 else c)
        of_class = logits[:, c], x[:, c], happened
        curves.append(_curve(members, coding.n_single, *of_class, rows, part))
    kinds = tuple(dict.fromkeys(kind for curve in curves for kind in curve.kinds))
    gain = float(np.mean([curve.gain.mean() for curve in curves]))
    curve = GroupCurve(
        shifts=np.stack([curve.shifts for curve in curves]),
        slopes=np.stack([curve.slopes for curve in curves]),
        centres=centres,
        spreads=spreads,
        coding=coding,
    )
    names = ", ".join(column.name for column in coding.columns)
    words = f"no segment of {names} differs"
    if kinds:
        words = f"{' and '.join(kinds)} of {names}, which gain {gain:.2g} of rows left out"
    return FittedGroups(curve, all(curve.converged for curve in curves), words)


def _curve(
    members: np.ndarray,
    n_single: int,
    logits: np.ndarray,
    x: np.ndarray,
    happened: np.ndarray,
    rows: LabelRows,
    part: np.ndarray | None,
) -> _Curve:
    n, size = len(happened), rows.size()
    share = rows.weights / rows.weights.sum()
    sign = np.where(happened, 1.0, -1.0)
    before = losses = np.logaddexp(0.0, -sign * logits)
    single, pairs = members[:, :n_single], members[:, n_single:]
    features, strengths = np.zeros((n, 0)), np.zeros(0)
    fit: Regression | None = None
    kinds, sizes = [], []
    parts = {"shifts": single, "slopes": single * x[:, None], "shifts of pairs": pairs}
    for kind, added in parts.items():
        # Nobody knows a segment without rows.
        if not added.any():
            continue
        best, start = None, None
        trial = np.concatenate([features, added], axis=1)
        for strength in STRENGTHS:
            ridge = np.concatenate([strengths, np.full(added.shape[1], strength)]) / size
            found = logistic_regression(trial, happened, rows.weights, ridge, start, logits, part)
            start = found.numbers
            gain = losses - found.left_out
            mean = float(share @ gain)
            if part is None:
                error = np.sqrt(float(share @ (gain - mean) ** 2) / size)
            else:
                of_parts = np.bincount(part, share * gain)
                error = np.sqrt(of_parts.size) * np.std(of_parts, ddof=1)
            if mean > error and (best is None or mean > best[0]):
                best = mean, strength, found
        if best is None:
            continue
        _, strength, fit = best
        losses, features = fit.left_out, trial
        strengths = np.concatenate([strengths, np.full(added.shape[1], strength)])
        kinds.append(kind)
        sizes.append(added.shape[1])
    shifts, slopes = np.zeros(members.shape[1]), np.zeros(members.shape[1])
    if fit is not None:
        of_kind = dict(zip(kinds, np.split(fit.numbers, np.cumsum(sizes)[:-1]), strict=True))
        shifts[:n_single] = of_kind.get("shifts", 0.0)
        shifts[n_single:] = of_kind.get("shifts of pairs", 0.0)
        slopes[:n_single] = of_kind.get("slopes", 0.0)
    converged = fit is None or fit.converged
    return _Curve(shifts, slopes, converged, share * n * (before - losses), tuple(kinds))
