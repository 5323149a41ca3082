"""Ridge regression of what is left of the error in segments, drawn towards the map for all rows.

Three kinds of numbers have a strength each: shifts of levels, shifts of pairs of levels, and slopes
of levels.  One kind after another is added if rows left out are predicted better with it, by more
than a standard error, or of m classes by so many that chance adds one of them as seldom.  All
classes together must predict the labels of rows left out better by more than a standard error, too.
"""

from statistics import NormalDist
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
    """Shifts and slopes of segments ``[S]``, and losses of rows left out after them, ``[n]``."""

    shifts: np.ndarray
    slopes: np.ndarray
    converged: bool
    losses: np.ndarray
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
    normal, curves = NormalDist(), []
    n_errors = -normal.inv_cdf(normal.cdf(-1.0) / logits.shape[1])
    for c in range(logits.shape[1]):
        happened = rows.targets == (1 if rows.n_classes == 2 else c)
        of_class = logits[:, c], x[:, c], happened
        curves.append(_curve(members, coding.n_single, *of_class, rows, part, n_errors))
    mean, error = _mean_and_error(_gain(rows, logits, curves), rows, part)
    if mean <= error:
        nothing = np.zeros(members.shape[1])
        curves = [x._replace(shifts=nothing, slopes=nothing, kinds=()) for x in curves]
    kinds = tuple(dict.fromkeys(kind for curve in curves for kind in curve.kinds))
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
        words = f"{' and '.join(kinds)} of {names}, which gain {mean:.2g} of rows left out"
    return FittedGroups(curve, all(curve.converged for curve in curves), words)


def _curve(
    members: np.ndarray,
    n_single: int,
    logits: np.ndarray,
    x: np.ndarray,
    happened: np.ndarray,
    rows: LabelRows,
    part: np.ndarray | None,
    n_errors: float,
) -> _Curve:
    """The curve of one class; `n_errors` is how many standard errors a gain must have."""
    n, size = len(happened), rows.size()
    sign = np.where(happened, 1.0, -1.0)
    losses = np.logaddexp(0.0, -sign * logits)
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
            mean, error = _mean_and_error(gain, rows, part)
            if mean > n_errors * error and (best is None or mean > best[0]):
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
    return _Curve(shifts, slopes, converged, losses, tuple(kinds))


def _gain(rows: LabelRows, logits: np.ndarray, curves: list[_Curve]) -> np.ndarray:
    """How much larger the log probabilities of targets left out are after the curves, ``[n]``."""
    losses = np.maximum(np.stack([curve.losses for curve in curves], axis=1), 1e-300)
    if rows.n_classes == 2:
        sign = np.where(rows.targets == 1, 1.0, -1.0)[:, None]
        return (np.logaddexp(0.0, -sign * logits) - losses)[:, 0]
    sign = np.where(np.arange(rows.n_classes) == rows.targets[:, None], 1.0, -1.0)
    # A loss is log(1 + exp(-sign l)) of a logit l.
    moved = -sign * (losses + np.log(-np.expm1(-losses)))
    before, after = (_log_probs_of_targets(rows, x) for x in (logits, moved))
    return after - before


def _log_probs_of_targets(rows: LabelRows, logits: np.ndarray) -> np.ndarray:
    logs = -np.logaddexp(0.0, -logits)
    return rows.of_targets(logs) - np.logaddexp.reduce(logs, axis=1)


def _mean_and_error(
    gain: np.ndarray, rows: LabelRows, part: np.ndarray | None
) -> tuple[float, float]:
    """The mean of a gain and its standard error, between parts if there are any."""
    share = rows.weights / rows.weights.sum()
    mean = float(share @ gain)
    if part is None:
        return mean, float(np.sqrt(share @ (gain - mean) ** 2 / rows.size()))
    of_parts = np.bincount(part, share * gain)
    return mean, float(np.sqrt(of_parts.size) * np.std(of_parts, ddof=1))
