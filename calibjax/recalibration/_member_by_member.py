"""Maps of ensembles that move and stretch each member by itself, and keep the order of members.

A member m of a row with the mean M and the mean difference D of two members becomes

    m' = M + a + (b - 1) (M - centre) + (c + d / D) (m - M),

so that D becomes c D + d.  These are mean and spread of ensemble model output statistics (EMOS), of
members in place of a normal distribution.  The CRPS of the ensemble, with the sums over all S
members,

    mean_j |m'_j - y| - (c + d / D) mean_jk |m_j - m_k| / 2,

is convex in a, b, c and d: the members are linear in them, and the last term is.

**Why not the fair CRPS.**  If the target is as good as one more member, so that any two of the
S + 1 values are alike, swapping the target and member j gives E sign(m_j - y) m_j = E|m_j - y| / 2
and E sign(m_j - y) m_k = 0 for other k.  So the derivative of the first term in c, at the map that
changes nothing, is E mean_j sign(m_j - y) (m_j - M) = (1 - 1 / S) E|m_j - y| / 2, which is just
that of the last term: the CRPS of all S members leaves a calibrated ensemble as it is, whatever its
distribution and S are.  The last term of the fair CRPS is larger by S / (S - 1): normal members, 20
of them, would be spread 1.11 times.

**Inflation only where it is needed.**  A spread that is the same in all rows makes an ensemble more
regular than draws, which the CRPS likes and ranks do not: with d > 0 a calibrated ensemble of 20
gains 0.7 %, and its outer ranks become rarer by a seventh.  So d is fitted only if narrow ensembles
are narrower than they should be: with z the score of the target in the pool of S + 1 values, of
population variance v, E z^2 = 1 given the pool, and the mean of (z^2 - 1) log v must be below that
of a calibrated ensemble, 0 after log v is centred, by more than three standard errors.  Nothing
else holds d back: with two, one of twenty ensembles with the right differences of spread lost them.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._base.compile import quick_jit
from calibjax._base.struct import struct, widened, widest_dtype, with_fields
from calibjax._data.data import in_dtype
from calibjax._numbers.validity import ArrayT
from calibjax.distributions import Empirical, weighted_samples
from calibjax.recalibration._conditional_pit_map import MOST_ROWS
from calibjax.recalibration._cross_validation import LEAST_ROWS, is_clear
from calibjax.recalibration._pit_map_fits import LEAST_SLOPE, least
from calibjax.recalibration._probability_maps import Chosen, Fitted, Numbers, Step

# Corners of |x| are rounded off within this share of the spread of a row, and of what is typical.
_OF_SPREAD, _OF_UNIT = 0.04, 1e-5
# Which of shift, slope, scale and inflation are fitted: each choice must be better than the last,
# by so many standard errors, since each number that is fitted is noise for new rows.
_SCALE, _SHIFT_SCALE, _SLOPE, _ALL = (0, 0, 1, 0), (1, 0, 1, 0), (1, 1, 1, 0), (1, 1, 1, 1)
_ERRORS, _ERRORS_OF_INFLATION = 2.0, 3.0


@struct
class MemberByMember(Step):
    """The map of the formula above, of scalars: a, b, the centre, c and d."""

    shift: Numbers
    slope: Numbers
    centre: Numbers
    scale: Numbers
    inflation: Numbers

    def __call__(self, predictions: Empirical, covariates: jax.Array | None = None) -> Empirical:
        mean, deviations, _, inverse, _ = parts_of_members(predictions)
        moved, factor = in_dtype(self, widest_dtype(mean)).moved(mean, inverse)
        return with_fields(predictions, samples=moved[:, None] + factor[:, None] * deviations)

    def moved(self, mean: ArrayT, inverse: ArrayT) -> tuple[Any, Any]:
        """The new means, and by what deviations are multiplied, each ``[n]``."""
        moved = mean + (self.shift + (self.slope - 1.0) * (mean - self.centre))
        return moved, self.scale + self.inflation * inverse


#: The map that changes nothing.
SAME = MemberByMember(*map(np.asarray, (0.0, 1.0, 0.0, 1.0, 0.0)))


@functools.partial(quick_jit, light=True)
def parts_of_members(predictions: Empirical) -> tuple[jax.Array, ...]:
    """Means M ``[n]``, m - M and shares of members ``[n, S]``, 1 / D and E|m - m'| / 2 ``[n]``.

    A member that is missing has no share.  D is the mean difference of two members, and E|m - m'|
    that of draws, which may be the same one.  Where members are equal up to rounding, 1 / D, this
    and m - M are 0.
    """
    p = widened(predictions)
    shares = jax.vmap(lambda one: one.probabilities())(p)
    # The mean of equal members is this number, up to its last digit.
    first = p.samples[:, :1]
    of_gaps = jnp.sum(shares * (p.samples - first), axis=1, keepdims=True)
    deviations = p.samples - first - of_gaps
    half = jax.vmap(weighted_samples.half_mean_difference)(shares, deviations)
    rounding = 2 * jnp.finfo(half.dtype).eps * jnp.max(jnp.abs(p.samples), axis=1)
    is_known, rest = half > rounding, 1 - jnp.sum(jnp.square(shares), axis=1)
    # All three: a spread without a penalty would make the fitted scale as small as it may be.
    half, deviations = jnp.where(is_known, half, 0.0), jnp.where(is_known[:, None], deviations, 0.0)
    inverse = jnp.where(is_known, rest / jnp.where(is_known, 2 * half, 1.0), 0.0)
    return (first + of_gaps)[:, 0], deviations, shares, inverse, half


class MemberRows(NamedTuple):
    """Rows in float64 that fit a map or judge it: `parts_of_members`, and of each row ``[n]``:

    its target, its positive weight, and the number of the part that is left out with it.
    """

    mean: np.ndarray
    deviations: np.ndarray
    shares: np.ndarray
    inverse: np.ndarray
    half: np.ndarray
    targets: np.ndarray
    weights: np.ndarray
    part: np.ndarray

    def chosen(self, rows: np.ndarray) -> "MemberRows":
        return MemberRows(*(x[rows] for x in self))

    def scores(self, line: MemberByMember) -> np.ndarray:
        """The CRPS of all members after a map, ``[n]``."""
        moved, factor = line.moved(self.mean, self.inverse)
        errors = np.abs((moved - self.targets)[:, None] + factor[:, None] * self.deviations)
        return np.sum(self.shares * errors, axis=1) - factor * self.half


def fit_members(rows: MemberRows, method: str) -> Chosen:
    """A scale, then a shift, then a slope and an inflation, each if parts are predicted better.

    Better is by more than two standard errors of the gain in parts that did not fit; all together
    must be better than no map by one.

    Args:
        rows: what fits and judges.
        method: "shift_scale", after which there is a map in any case, or one that chooses.

    Returns:
        "shift_scale" or "nothing", the map, which has no step then, and the mean CRPS of both on
        held-out rows.
    """
    must, fit = method == "shift_scale", None
    losses: dict[str, float] = {}
    if len(rows.weights) >= LEAST_ROWS:
        before, parts = rows.scores(SAME), [rows.part == k for k in range(rows.part.max() + 1)]
        held = before
        for free in (_SCALE, _SHIFT_SCALE, _ALL if _needs_inflation(rows) else _SLOPE):
            found = np.empty_like(held)
            for part in parts:
                found[part] = rows.chosen(part).scores(_fit(rows.chosen(~part), free)[0])
            gains = np.bincount(rows.part, rows.weights * (held - found))
            if fit is None or is_clear(gains, _ERRORS):
                held, fit = found, _fit(rows, free)
        for name, scores in (("nothing", before), ("shift_scale", held)):
            losses[name] = float(np.average(scores, weights=rows.weights))
        if not must and not is_clear(np.bincount(rows.part, rows.weights * (before - held))):
            fit = None
    elif must:
        fit = _fit(rows, _SHIFT_SCALE)
    if fit is None:
        return "nothing", Fitted((), True, ""), losses
    line, converged = fit
    return "shift_scale", Fitted((line,), converged, _in_words(rows, line)), losses


def one_after_another(first: Chosen, second: Chosen, keeps_second: bool) -> Chosen:
    """What `fit_members` found, and then a map of PIT values, which groups need in any case.

    The scores of the second are approximate; what they gain counts.
    """
    (name, members, losses), (of_pit, pit_map, others) = first, second
    if others:
        start = losses[name] - others["nothing"]
        losses = {x: start + loss for x, loss in others.items()} | losses
    steps, converged = members.steps, members.converged and pit_map.converged
    if of_pit != "nothing" or keeps_second or not steps:
        name, steps = (name if of_pit == "nothing" else of_pit), steps + pit_map.steps
    words = "; then ".join(filter(None, (members.description, pit_map.description)))
    return name, Fitted(steps, converged, words), losses


def _needs_inflation(rows: MemberRows) -> bool:
    """Whether pools that are narrow have the target far out, and wide ones have not."""
    moved, factor = _fit(rows, _SLOPE)[0].moved(rows.mean, rows.inverse)
    squares, share = np.square(rows.targets - moved), np.sum(np.square(rows.shares), axis=1)
    of_members = np.sum(rows.shares * np.square(factor[:, None] * rows.deviations), axis=1)
    # The variance of the pool, up to a factor of S alone.
    variance = (1 + share) * of_members + share * squares
    is_known = variance > 0
    variance = np.where(is_known, variance, 1.0)
    width = np.log(variance) - np.sum(np.log(variance)) / max(np.sum(is_known), 1)
    found = np.where(is_known, (squares / variance - 1) * width, 0.0)
    return is_clear(-np.bincount(rows.part, rows.weights * found), _ERRORS_OF_INFLATION)


def _fit(rows: MemberRows, free: tuple[int, ...]) -> tuple[MemberByMember, bool]:
    """The map of the least mean CRPS, and whether the search found it.

    It is a search in units of what is typical, in which |x| is (x^2 + h^2)^(1/2) for a small h.
    """
    if len(rows.weights) > MOST_ROWS:
        rows = rows.chosen(np.linspace(0, len(rows.weights) - 1, MOST_ROWS).astype(int))
    weights, inverse = rows.weights / rows.weights.sum(), rows.inverse
    of_pairs, errors, centre = weights * rows.half, rows.mean - rows.targets, weights @ rows.mean
    typical = of_pairs.sum() or 1.0
    unit = weights @ np.abs(errors) + of_pairs.sum() or 1.0
    width = np.sqrt(weights @ np.square(rows.mean - centre)) or 1.0
    tilt, shares = (rows.mean - centre) / width, weights[:, None] * rows.shares
    corner = np.maximum(_OF_SPREAD * rows.half / unit, _OF_UNIT)[:, None]

    def loss(x: np.ndarray) -> tuple[float, np.ndarray]:
        factor = x[2] / typical + x[3] * inverse
        moved = (errors / unit + x[0] + x[1] * tilt)[:, None] + factor[:, None] * rows.deviations
        size = np.sqrt(moved**2 + corner**2)
        slopes = shares * moved / size
        of_rows, of_factor = slopes.sum(axis=1), np.sum(slopes * rows.deviations, axis=1) - of_pairs
        slope = [of_rows.sum(), of_rows @ tilt, of_factor.sum() / typical, of_factor @ inverse]
        return float(np.sum(shares * size) - of_pairs @ factor), np.array(slope)

    start = np.array([0.0, 0.0, typical / unit, 0.0])
    ends = (None, None), (None, None), (LEAST_SLOPE * start[2], None), (0.0, None)
    bounds = [ends[k] if is_free else (start[k], start[k]) for k, is_free in enumerate(free)]
    x, converged = least(loss, start, bounds, has_slope=True)
    found = unit * x[0], 1 + unit * x[1] / width, centre, unit * x[2] / typical, unit * x[3]
    return MemberByMember(*map(np.asarray, found)), converged


def _in_words(rows: MemberRows, line: MemberByMember) -> str:
    """By how much members are spread around their mean, all in all, and where the mean goes."""
    counts = rows.weights * rows.half
    factor = line.moved(rows.mean, rows.inverse)[1]
    times = counts @ factor / counts.sum() if counts.any() else line.scale
    words = f"members are spread {times:.3g} times around their mean"
    if line.inflation > 0:
        words += f" (mean difference d becomes {line.scale:.2g} d + {line.inflation:.2g})"
    if line.slope != 1:
        start = line.shift + (1 - line.slope) * line.centre
        return f"{words}, which becomes {start:.3g} + {line.slope:.3g} times itself"
    return f"{words}, which moves by {line.shift:+.2g}" if line.shift else words
