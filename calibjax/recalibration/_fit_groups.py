"""Maps of groups: corrections of the error that is left in the segments of a row.

They are a ridge regression, shrunk towards the map for all rows.  Shifts of levels, slopes of
levels, and shifts of pairs of levels each have a penalty of their own.  They are added in this
order, each if held-out rows gain by more than a standard error, and with m classes by more
standard errors (Bonferroni).  The held-out log probability of labels under all classes must also
increase by more than a standard error.

The event of a row is that of a class, or, for maps of the unit interval, U <= u_k at each level
u_k, with probability G(u_k) under the map for all rows.  With its logit l, the logit in segments s
of the row is l + sum_s (a_s + b_s x), where x = l for levels u_k, and else l in units of its
spread.
"""

from statistics import NormalDist
from types import ModuleType
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from calibjax._base.struct import static, struct
from calibjax._data.typed_column import NamedColumns
from calibjax._numbers.validity import ArrayT
from calibjax.recalibration._groups import Coding, sums_of_segments
from calibjax.recalibration._label_curves import from_logits, happened, log_odds
from calibjax.recalibration._penalised_regression import Regression, Slopes, logistic_regression
from calibjax.recalibration._pit_map_fits import PITMapRows
from calibjax.recalibration._probability_maps import Fitted, LabelRows, Numbers, Step

#: Maximum size of x, in standard deviations of logits; beyond it the change is constant.
FARTHEST = 4.0
#: Minimum slope of a map of the unit interval in a segment, relative to that for all rows.
LEAST_SLOPE = 0.2


@struct
class GroupCurve(Step):
    """logit q = l + sum_s (a_s + b_s x) over the segments s of a row, with l = logit p.

    x = (l - centre) / spread, cut off at -4 and 4.  With more than two classes, each class has a
    curve, and rows are divided by their sums.  For a map of the unit interval, l are the logits of
    G at its levels, centre is 0, spread is 1, and x is not cut off.

    Args:
        shifts: a of each curve and segment, ``[c, S]``.
        slopes: b, ``[c, S]``.
        centres: the centre of each curve, ``[c]``.
        spreads: the positive spread of each curve, ``[c]``.
        coding: the segments.
    """

    shifts: Numbers
    slopes: Numbers
    centres: Numbers
    spreads: Numbers
    coding: Coding = static()

    def __call__(self, probs: ArrayT, segments: ArrayLike, xp: ModuleType = jnp) -> ArrayT:
        """New probabilities of rows in segments ``[n, J]``; S means no segment."""
        logits = log_odds(xp, xp.maximum(probs, xp.finfo(probs.dtype).tiny))
        x = (logits - xp.asarray(self.centres)[None]) / xp.asarray(self.spreads)[None]
        x = xp.clip(x, -FARTHEST, FARTHEST)
        a, b = (sums_of_segments(xp, table, segments) for table in (self.shifts, self.slopes))
        # Classes that a row lacks keep probability 0.
        return xp.where(probs > 0, from_logits(xp, logits + a + b * x), 0.0)

    def of_pit_map(self, g: jax.Array, segments: np.ndarray | jax.Array) -> jax.Array:
        """A map of the unit interval at levels, ``[n, K]``, after the change in segments."""
        raised = jnp.clip(g, jnp.finfo(g.dtype).tiny, 1 - jnp.finfo(g.dtype).epsneg)
        logits = jnp.log(raised) - jnp.log1p(-raised)
        a, b = (sums_of_segments(jnp, table, segments) for table in (self.shifts, self.slopes))
        # The map increases for any sum over segments.
        return jax.nn.sigmoid(a + jnp.maximum(1 + b, LEAST_SLOPE) * logits)


# Strengths of the penalty strength t^2 / n; the prior variance of t is 1 / (2 strength).
_STRENGTHS = (256.0, 64.0, 16.0, 4.0, 1.0)


class _Rows(NamedTuple):
    """Members of segments ``[n, S]``, weights, effective sample size, and parts or None."""

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
        """The mean of a gain and its standard error, between parts if they are given."""
        share = self.weights / self.weights.sum()
        mean = float(share @ gain)
        if self.part is None:
            return mean, float(np.sqrt(share @ (gain - mean) ** 2 / self.size))
        of_parts = np.bincount(self.part, share * gain)
        return mean, float(np.sqrt(of_parts.size) * np.std(of_parts, ddof=1))


class _Curve(NamedTuple):
    """Shifts and slopes of segments ``[S]``, and losses of held-out rows after them, ``[n]``."""

    shifts: np.ndarray
    slopes: np.ndarray
    converged: bool
    losses: np.ndarray
    kinds: tuple[str, ...]


def fit_groups(
    groups: NamedColumns, kept: np.ndarray, labels: LabelRows, part: np.ndarray | None
) -> Fitted:
    """Fits the map of segments to probabilities after the map for all rows.

    Args:
        groups: columns of all rows.
        kept: mask of the rows that count, ``[n]``, which are those of `labels`.
        labels: probabilities after the map for all rows, labels and weights.
        part: the part of each row, held out together; None to hold out single rows.
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


def fit_pit_map_groups(
    groups: NamedColumns, kept: np.ndarray, g: np.ndarray, of_unit: PITMapRows
) -> Fitted:
    """Fits the map of segments for a map of the unit interval.

    Args:
        groups: columns of all rows.
        kept: mask of the rows that count, ``[n]``; all other arguments have only these.
        g: the map for all rows at the levels, ``[n, K]``.
        of_unit: the rows of the fit.
    """
    rows, below = _Rows.of(groups, kept, of_unit.weights, of_unit.part), of_unit.below
    logits = np.log(g) - np.log1p(-g)
    curve = _curve(rows, logits, logits, below, n_errors=1.0)
    gain = np.mean(np.logaddexp(0.0, logits) - below * logits, axis=1) - curve.losses
    return _together(rows, [curve], gain, np.zeros(1), np.ones(1))


def _curve(
    rows: _Rows, logits: np.ndarray, x: np.ndarray, events: np.ndarray, n_errors: float
) -> _Curve:
    """Fits the curve of events ``[n, K]``; gains must exceed `n_errors` standard errors."""
    losses = np.mean(np.logaddexp(0.0, logits) - events * logits, axis=1)
    levels, pairs = np.split(np.arange(rows.coding.n_segments), [rows.coding.n_single])
    # Segments with a shift, segments with a slope, and strengths of their penalties.
    segments = {"shifts": levels[:0], "slopes": levels[:0]}
    strengths = {"shifts": np.zeros(0), "slopes": np.zeros(0)}
    fit: Regression | None = None
    kinds = []
    for kind, added in (("shifts", levels), ("slopes", levels), ("shifts of pairs", pairs)):
        of = kind.removesuffix(" of pairs")
        # No row is in these segments.
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
) -> Fitted:
    """The curves, if their joint gain on held-out rows exceeds its standard error."""
    mean, error = rows.mean_and_error(gain)
    kinds = tuple(dict.fromkeys(kind for curve in curves for kind in curve.kinds))
    shifts, slopes = (np.stack(x) for x in zip(*(curve[:2] for curve in curves), strict=True))
    if mean <= error:
        shifts, slopes, kinds = np.zeros_like(shifts), np.zeros_like(slopes), ()
    names = ", ".join(rows.coding.names)
    words = f"no segment of {names} differs"
    if kinds:
        words = f"{' and '.join(kinds)} of {names}, which gain {mean:.2g} of rows left out"
    curve = GroupCurve(shifts, slopes, centres, spreads, rows.coding)
    return Fitted((curve,), all(curve.converged for curve in curves), words)


def _log_probs_of_targets(rows: LabelRows, logits: np.ndarray) -> np.ndarray:
    logs = -np.logaddexp(0.0, -logits)
    return rows.of_targets(logs) - np.logaddexp.reduce(logs, axis=1)
