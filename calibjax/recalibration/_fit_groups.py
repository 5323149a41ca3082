"""Ridge regression of what is left of the error in segments, drawn towards the map for all rows.

Three kinds of numbers have a strength each: shifts of levels, slopes of levels, and shifts of pairs
of levels.  One kind after another is added if rows left out are predicted better with it, by more
than a standard error, or of m classes by so many that chance adds one of them as seldom.  All
classes together must predict the labels of rows left out better by more than a standard error, too.

A row has the event of a class, or of a map of the unit line at each level u_k the event U <= u_k,
of which the map for all rows says G(u_k).  With its logit l the logit in segments s of the row is
l + sum_s (a_s + b_s x), with x = l at levels, and else l in units of its spread.
"""

from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from calibjax._data import NamedColumns
from calibjax.recalibration._beta_and_spline_maps import happened, log_odds
from calibjax.recalibration._group_coding import FARTHEST, Coding, GroupCurve
from calibjax.recalibration._penalised_regression import Regression, Slopes, logistic_regression
from calibjax.recalibration._probability_maps import LabelRows

# Of a penalty strength t^2 / n: 1 / (2 strength) is the variance of a number that is likely.
_STRENGTHS = (256.0, 64.0, 16.0, 4.0, 1.0)


class FittedGroups(NamedTuple):
    """A map of segments, whether the searches for it found minima, and it in words."""

    curve: GroupCurve
    converged: bool
    words: str


class _Rows(NamedTuple):
    """Members of segments ``[n, S]``, weights, how many rows these are worth, and parts or None."""

    coding: Coding
    members: np.ndarray
    weights: np.ndarray
    size: float
    part: np.ndarray | None

    @classmethod
    def of(
        cls, groups: NamedColumns, kept: np.ndarray, weights: np.ndarray, part: np.ndarray | None
    ) -> "_Rows":
        coding = Coding.of(groups, kept)
        total = float(weights.sum())
        size = total * (total / float(np.sum(weights**2)))
        return cls(coding, coding.members(groups, kept), weights, size, part)

    def mean_and_error(self, gain: np.ndarray) -> tuple[float, float]:
        """The mean of a gain and its standard error, between parts if there are any."""
        share = self.weights / self.weights.sum()
        mean = float(share @ gain)
        if self.part is None:
            return mean, float(np.sqrt(share @ (gain - mean) ** 2 / self.size))
        of_parts = np.bincount(self.part, share * gain)
        return mean, float(np.sqrt(of_parts.size) * np.std(of_parts, ddof=1))


class _Curve(NamedTuple):
    """Shifts and slopes of segments ``[S]``, and losses of rows left out after them, ``[n]``."""

    shifts: np.ndarray
    slopes: np.ndarray
    converged: bool
    losses: np.ndarray
    kinds: tuple[str, ...]


def fit_groups(
    groups: NamedColumns, kept: np.ndarray, labels: LabelRows, part: np.ndarray | None
) -> FittedGroups:
    """The map of segments for rows whose probabilities are those of the map for all rows.

    Args:
        groups: columns of all rows.
        kept: which rows count, ``[n]``; `labels` holds these.
        labels: probabilities after the map for all rows, labels and weights.
        part: the number of the part of each row that is left out together; None for rows alone.
    """
    rows = _Rows.of(groups, kept, labels.weights, part)
    logits = log_odds(np, np.maximum(labels.probs, 1e-15))
    centres, spreads = logits.mean(axis=0), np.maximum(logits.std(axis=0), 1e-3)
    x = np.clip((logits - centres) / spreads, -FARTHEST, FARTHEST)
    normal, n_curves = NormalDist(), logits.shape[1]
    n_errors = -normal.inv_cdf(normal.cdf(-1.0) / n_curves)
    curves = [
        _curve(rows, logits[:, [c]], x[:, [c]], happened(labels, c)[:, None], n_errors)
        for c in range(n_curves)
    ]
    losses = np.maximum(np.stack([curve.losses for curve in curves], axis=1), 1e-300)
    sign = np.stack([np.where(happened(labels, c), 1.0, -1.0) for c in range(n_curves)], axis=1)
    if n_curves == 1:
        gain = (np.logaddexp(0.0, -sign * logits) - losses)[:, 0]
    else:
        # A loss is log(1 + exp(-sign l)) of a logit l.
        moved = -sign * (losses + np.log(-np.expm1(-losses)))
        gain = _log_probs_of_targets(labels, moved) - _log_probs_of_targets(labels, logits)
    return _together(rows, curves, gain, centres, spreads)


def fit_line_groups(
    groups: NamedColumns,
    kept: np.ndarray,
    g: np.ndarray,
    below: np.ndarray,
    weights: np.ndarray,
    part: np.ndarray | None,
) -> FittedGroups:
    """The map of segments for a map of the unit line.

    Args:
        groups: columns of all rows.
        kept: which rows count, ``[n]``; all else is of these.
        g: the map for all rows, at the levels, ``[n, K]``.
        below: how much of U is at most each level, ``[n, K]``.
        weights: how much each row counts, ``[n]``.
        part: the number of the part of each row that is left out together, or None.
    """
    rows, logits = _Rows.of(groups, kept, weights, part), np.log(g) - np.log1p(-g)
    curve = _curve(rows, logits, logits, below, n_errors=1.0)
    gain = np.mean(np.logaddexp(0.0, logits) - below * logits, axis=1) - curve.losses
    return _together(rows, [curve], gain, np.zeros(1), np.ones(1))


def _curve(
    rows: _Rows, logits: np.ndarray, x: np.ndarray, events: np.ndarray, n_errors: float
) -> _Curve:
    """The curve of events ``[n, K]``; a gain must be larger than so many standard errors."""
    losses = np.mean(np.logaddexp(0.0, logits) - events * logits, axis=1)
    levels, pairs = np.split(np.arange(rows.coding.n_segments), [rows.coding.n_single])
    # Which segments have a shift and which have a slope, and strengths of their penalties.
    segments = {"shifts": levels[:0], "slopes": levels[:0]}
    strengths = {"shifts": np.zeros(0), "slopes": np.zeros(0)}
    fit: Regression | None = None
    kinds = []
    for kind, of, added in (
        ("shifts", "shifts", levels),
        ("slopes", "slopes", levels),
        ("shifts of pairs", "shifts", pairs),
    ):
        # Nobody knows a segment without rows.
        if not rows.members[:, added].any():
            continue
        trial = segments | {of: np.concatenate([segments[of], added])}
        sloping = Slopes(rows.members[:, trial["slopes"]], x)
        best, start = None, None
        for strength in _STRENGTHS:
            new = np.full(added.size, strength)
            penalties = strengths | {of: np.concatenate([strengths[of], new])}
            ridge = np.concatenate([*penalties.values()]) / rows.size
            shifting = rows.members[:, trial["shifts"]]
            found = logistic_regression(
                shifting, events, rows.weights, ridge, start, logits, rows.part, sloping
            )
            start = found.numbers
            mean, error = rows.mean_and_error(losses - found.left_out)
            if mean > n_errors * error and (best is None or mean > best[0]):
                best = mean, penalties, found
        if best is not None:
            _, strengths, fit = best
            segments, losses = trial, fit.left_out
            kinds.append(kind)
    shifts, slopes = np.zeros((2, rows.coding.n_segments))
    if fit is not None:
        found_shifts, found_slopes = np.split(fit.numbers, [segments["shifts"].size])
        shifts[segments["shifts"]], slopes[segments["slopes"]] = found_shifts, found_slopes
    return _Curve(shifts, slopes, fit is None or fit.converged, losses, tuple(kinds))


def _together(
    rows: _Rows, curves: list[_Curve], gain: np.ndarray, centres: np.ndarray, spreads: np.ndarray
) -> FittedGroups:
    """The curves, if what all gain of rows left out is more than its standard error."""
    mean, error = rows.mean_and_error(gain)
    kinds = tuple(dict.fromkeys(kind for curve in curves for kind in curve.kinds))
    shifts, slopes = (np.stack(x) for x in zip(*(curve[:2] for curve in curves), strict=True))
    if mean <= error:
        shifts, slopes, kinds = np.zeros_like(shifts), np.zeros_like(slopes), ()
    names = ", ".join(column.name for column in rows.coding.columns)
    words = f"no segment of {names} differs"
    if kinds:
        words = f"{' and '.join(kinds)} of {names}, which gain {mean:.2g} of rows left out"
    curve = GroupCurve(shifts, slopes, centres, spreads, rows.coding)
    return FittedGroups(curve, all(curve.converged for curve in curves), words)


def _log_probs_of_targets(rows: LabelRows, logits: np.ndarray) -> np.ndarray:
    logs = -np.logaddexp(0.0, -logits)
    return rows.of_targets(logs) - np.logaddexp.reduce(logs, axis=1)
