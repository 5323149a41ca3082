"""Ridge regression of segments for maps of the unit line, drawn towards the map for all rows.

At each level u_k the data say whether U <= u_k, of which the map for all rows says G(u_k) with the
logit l_k.  In segments s of a row the logit is l_k + sum_s (a_s + b_s l_k): a shifts forecasts, and
b makes them wider or narrower.  The loss of a row is the mean over levels.
"""

from typing import NamedTuple

import numpy as np

from calibjax._rows import NamedColumns
from calibjax.recalibration._groups._coding import Coding
from calibjax.recalibration._groups._curve import GroupCurve
from calibjax.recalibration._groups._fit import STRENGTHS, FittedGroups
from calibjax.recalibration._newton import newton


class _Rows(NamedTuple):
    """Logits of the map for all rows and what is below each level ``[n, K]``, and shares ``[n]``.

    The number of the part of each row ``[n]`` says what is left out together.
    """

    logits: np.ndarray
    below: np.ndarray
    share: np.ndarray
    part: np.ndarray


class _Numbers(NamedTuple):
    """Fitted numbers, whether they are a minimum, and the losses of rows left out ``[n]``."""

    numbers: np.ndarray
    converged: bool
    left_out: np.ndarray


def fit_line_groups(
    groups: NamedColumns,
    kept: np.ndarray,
    g: np.ndarray,
    below: np.ndarray,
    weights: np.ndarray,
    part: np.ndarray | None,
) -> FittedGroups:
    """The map of segments, whose kinds are added one after another, as for labels.

    Args:
        groups: columns of all rows.
        kept: which rows count, ``[n]``; all else is of these.
        g: the map for all rows, at the levels, ``[n, K]``.
        below: how much of U is at most each level, ``[n, K]``.
        weights: how much each row counts, ``[n]``; their sum is how many rows that is.
        part: the number of the part of each row that is left out together, or None.
    """
    coding = Coding.of(groups, kept)
    members = coding.members(groups, kept)
    n, size = len(weights), float(weights.sum())
    rows = _Rows(
        logits=np.log(g) - np.log1p(-g),
        below=below,
        share=weights / size,
        part=np.arange(n) if part is None else part,
    )
    levels, pairs = np.split(np.arange(coding.n_segments), [coding.n_single])
    before = losses = _losses(rows, rows.logits)
    fit = _Numbers(np.zeros(0), True, losses)
    # Which segments have a shift and which have a slope, and strengths of penalties.
    numbers = {"shifts": np.zeros(0, int), "slopes": np.zeros(0, int)}
    strengths = {"shifts": np.zeros(0), "slopes": np.zeros(0)}
    kinds = []
    for kind, of, added in (
        ("shifts", "shifts", levels),
        ("slopes", "slopes", levels),
        ("shifts of pairs", "shifts", pairs),
    ):
        if not members[:, added].any():
            continue
        trial = numbers | {of: np.concatenate([numbers[of], added])}
        shifting, sloping = members[:, trial["shifts"]], members[:, trial["slopes"]]
        best: tuple[float, dict[str, np.ndarray], _Numbers] | None = None
        for strength in STRENGTHS:
            new = np.full(added.size, strength)
            every = strengths | {of: np.concatenate([strengths[of], new])}
            ridge = np.concatenate([every["shifts"], every["slopes"]]) / size
            found = _regression(rows, shifting, sloping, ridge)
            of_parts = np.bincount(rows.part, rows.share * (losses - found.left_out))
            gain, error = of_parts.sum(), np.sqrt(of_parts.size) * np.std(of_parts)
            if gain > error and (best is None or gain > best[0]):
                best = gain, every, found
        if best is not None:
            _, strengths, fit = best
            numbers, losses = trial, fit.left_out
            kinds.append(kind)
    shifts, slopes = np.zeros(coding.n_segments), np.zeros(coding.n_segments)
    of_shifts, of_slopes = np.split(fit.numbers, [numbers["shifts"].size])
    shifts[numbers["shifts"]], slopes[numbers["slopes"]] = of_shifts, of_slopes
    names = ", ".join(column.name for column in coding.columns)
    words = f"no segment of {names} differs"
    if kinds:
        gain_of_all = float(rows.share @ (before - losses))
        words = f"{' and '.join(kinds)} of {names}, which gain {gain_of_all:.2g} of rows left out"
    curve = GroupCurve(shifts[None], slopes[None], np.zeros(1), np.ones(1), coding)
    return FittedGroups(curve, fit.converged, words)


def _losses(rows: _Rows, logits: np.ndarray) -> np.ndarray:
    return np.mean(np.logaddexp(0.0, logits) - rows.below * logits, axis=1)


def _regression(
    rows: _Rows, shifting: np.ndarray, sloping: np.ndarray, penalty: np.ndarray
) -> _Numbers:
    """Shifts and slopes of the least mean loss with the penalty, by Newton's method.

    With gradients g_i of rows and the Hessian matrix H, leaving out the part P changes the fit by
    H^{-1} sum_P g_j w_j, and so the loss of its row i by g_i' H^{-1} sum_P g_j w_j.
    """
    n_shifts = shifting.shape[1]

    def logits_at(t: np.ndarray) -> np.ndarray:
        a, b = shifting @ t[:n_shifts], sloping @ t[n_shifts:]
        return rows.logits * (1 + b[:, None]) + a[:, None]

    def loss_at(t: np.ndarray) -> float:
        return float(rows.share @ _losses(rows, logits_at(t)) + penalty @ t**2)

    def derivatives_at(t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        of_rows, hessian = _derivatives(rows, shifting, sloping, logits_at(t))
        return of_rows, hessian + np.diag(2 * penalty)

    def slope_and_curvature(t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        of_rows, hessian = derivatives_at(t)
        return rows.share @ of_rows + 2 * penalty * t, hessian

    t, converged = newton(loss_at, slope_and_curvature, np.zeros(len(penalty)))
    of_rows, hessian = derivatives_at(t)
    together = np.zeros((rows.part.max() + 1, len(t)))
    np.add.at(together, rows.part, rows.share[:, None] * of_rows)
    moves = np.linalg.solve(hessian, together.T).T
    left_out = _losses(rows, logits_at(t)) + np.sum(of_rows * moves[rows.part], axis=1)
    return _Numbers(t, converged, left_out)


def _derivatives(
    rows: _Rows, shifting: np.ndarray, sloping: np.ndarray, logits: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The gradient of the loss of each row ``[n, S]``, and the curvature of the mean loss."""
    p = 1 / (1 + np.exp(-np.clip(logits, -700, 700)))
    gaps, variances = p - rows.below, p * (1 - p)
    first, second = gaps.mean(axis=1), np.mean(gaps * rows.logits, axis=1)
    of_rows = np.concatenate([shifting * first[:, None], sloping * second[:, None]], axis=1)
    h = [rows.share * np.mean(variances * rows.logits**power, axis=1) for power in (0, 1, 2)]
    corner = shifting.T @ (sloping * h[1][:, None])
    upper = np.concatenate([shifting.T @ (shifting * h[0][:, None]), corner], axis=1)
    lower = np.concatenate([corner.T, sloping.T @ (sloping * h[2][:, None])], axis=1)
    return of_rows, np.concatenate([upper, lower])
