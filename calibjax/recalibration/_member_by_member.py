"""Maps of ensembles that shift and scale each member, and keep the order of members.

A member m of a row with the mean M and the mean difference D of two members becomes

    m' = M + a + (b - 1) (M - centre) + (c + d / D) (m - M),

so that D becomes c D + d.  Mean and spread are those of ensemble model output statistics (EMOS),
for members in place of a normal distribution.  The CRPS of the ensemble, with means over all S
members,

    mean_j |m'_j - y| - (c + d / D) mean_jk |m_j - m_k| / 2,

is convex in a, b, c and d: the members and the last term are linear in them.

**Why not the fair CRPS.**  If the target is exchangeable with the members, swapping the target and
member j gives E sign(m_j - y) m_j = E|m_j - y| / 2 and E sign(m_j - y) m_k = 0 for other k.  The
derivative of the first term in c, at the identity map, is therefore E mean_j sign(m_j - y)
(m_j - M) = (1 - 1 / S) E|m_j - y| / 2, equal to that of the last term.  So the CRPS of all S
members leaves a calibrated ensemble unchanged, for every distribution and S.  The last term of the
fair CRPS is larger by S / (S - 1): it would spread 20 normal members 1.11 times.

**Inflation only where it is needed.**  With d > 0 spreads differ less between rows.  The CRPS of a
calibrated ensemble of 20 then improves by 0.7 %, but its outer ranks become rarer by a seventh.  So
d is fitted only if narrow ensembles are too narrow.  Let z be the standard score of the target in
the pool of S + 1 values, and v the population variance of the pool.  In a calibrated ensemble
E z^2 = 1 given the pool, and the mean of (z^2 - 1) log v is 0 after log v is centred.  It must be
negative by more than three standard errors; with two, one of twenty ensembles with the right
differences of spread lost them.
"""

from collections.abc import Sequence
from types import ModuleType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._base.struct import struct, widest_dtype, with_fields
from calibjax._data.data import in_dtype
from calibjax._numbers.validity import ArrayT
from calibjax.distributions import Empirical, Quantiles
from calibjax.recalibration._conditional_pit_map import MOST_ROWS
from calibjax.recalibration._cross_validation import LEAST_ROWS, is_clear
from calibjax.recalibration._pit_map_fits import LEAST_SLOPE, least
from calibjax.recalibration._probability_maps import Numbers, Step
from calibjax.recalibration._shift_scale import spread_in_words

#: Forecasts given by values at ascending levels.
Values = Empirical | Quantiles

# |x| is smoothed near 0: within this share of the spread of a row, and of the mean error.
_OF_SPREAD, _OF_UNIT = 0.04, 1e-5
# Whether shift, slope, scale and inflation are free.
_SCALE, _SHIFT_SCALE, _SLOPE, _ALL = (0, 0, 1, 0), (1, 0, 1, 0), (1, 1, 1, 0), (1, 1, 1, 1)
_ERRORS_OF_INFLATION = 3.0


@struct
class MemberByMember(Step):
    """The map of the formula above with the scalars a, b, centre, c and d."""

    shift: Numbers
    slope: Numbers
    centre: Numbers
    scale: Numbers
    inflation: Numbers

    def __call__(self, predictions: Values, covariates: jax.Array | None = None) -> Values:
        mean, deviations, _, inverse, _ = parts_of_members(jnp, predictions)
        moved, factor = in_dtype(self, widest_dtype(mean)).moved(mean, inverse)
        return _with_values(predictions, moved[:, None] + factor[:, None] * deviations)

    def moved(self, mean: ArrayT, inverse: ArrayT) -> tuple[Any, Any]:
        """New means, and the factors of deviations from them, each ``[n]``."""
        moved = mean + (self.shift + (self.slope - 1.0) * (mean - self.centre))
        return moved, self.scale + self.inflation * inverse


def parts_of_members(xp: ModuleType, predictions: Values) -> tuple[Any, ...]:
    """Means M ``[n]``, m - M and shares of members ``[n, S]``, 1 / D and E|m - m'| / 2 ``[n]``.

    A missing member has share 0.  D is the mean difference of two different members; E|m - m'| is
    that of two draws, which may be the same member.  Where members are equal up to rounding, 1 / D,
    E|m - m'| and m - M are 0.  For quantiles M is the median, shares sum to 1/2, 1 / D is 0, and
    the last is mean_k (u_k - 1/2) (m_k - M) over levels u_k.  `xp` is NumPy for a fit.
    """
    dtype = widest_dtype(*jax.tree.leaves(predictions))
    if isinstance(predictions, Quantiles):
        values, levels = xp.asarray(predictions.values, dtype), np.asarray(predictions.levels)
        middle = values @ xp.asarray(_at_median(levels), dtype)
        deviations = values - middle[:, None]
        half = xp.mean(xp.asarray(levels - 0.5, dtype)[None] * deviations, axis=1)
        shares = xp.full_like(deviations, 0.5 / levels.size)
        return middle, deviations, shares, xp.zeros_like(half), half
    samples, exists = xp.asarray(predictions.samples, dtype), predictions.where
    exists = xp.ones_like(samples) if exists is None else xp.asarray(exists, dtype)
    shares = exists / xp.sum(exists, axis=1, keepdims=True)
    # The mean of equal members is this number, up to its last digit.
    first = samples[:, :1]
    of_gaps = xp.sum(shares * (samples - first), axis=1, keepdims=True)
    deviations = samples - first - of_gaps
    ordered, _, tilts = _in_order(xp, deviations, shares)
    half = xp.sum(tilts * ordered, axis=1)
    rounding = 2 * xp.finfo(dtype).eps * xp.max(xp.abs(samples), axis=1)
    is_known, rest = half > rounding, 1 - xp.sum(xp.square(shares), axis=1)
    # All three are 0: a deviation without its part of the last term would shrink the scale.
    half, deviations = xp.where(is_known, half, 0.0), xp.where(is_known[:, None], deviations, 0.0)
    inverse = xp.where(is_known, rest / xp.where(is_known, 2 * half, 1.0), 0.0)
    return (first + of_gaps)[:, 0], deviations, shares, inverse, half


def _in_order(xp: ModuleType, deviations: ArrayT, shares: ArrayT) -> tuple[Any, Any, Any]:
    """Deviations in ascending order, their shares, and shares times 2 u - 1 for levels u."""
    # Members that exist have one share; those that are missing are the last ones.
    ordered = xp.sort(xp.where(shares > 0, deviations, xp.inf), axis=1)
    shares = xp.where(ordered < xp.inf, xp.max(shares, axis=1, keepdims=True), 0.0)
    numbers = xp.arange(1, shares.shape[1] + 1, dtype=shares.dtype)[None]
    tilts = shares * ((2 * numbers - 1) * shares - 1)
    return xp.where(ordered < xp.inf, ordered, 0.0), shares, tilts


def _at_median(levels: np.ndarray) -> np.ndarray:
    """Weights ``[K]`` with which the sum of quantiles is the median."""
    return np.array([np.interp(0.5, levels, one) for one in np.eye(levels.size)])


class MemberRows(NamedTuple):
    """Rows in float64 that fit or score a map: `parts_of_members`, tilts, targets, weights, parts.

    Values are in ascending order.  `tilts` are (2 u - 1) times the share of each value, u being its
    level, ``[n, S]``; targets, positive weights, and the parts that are held out, ``[n]``.
    `is_bound` marks values that stay at the bound, ``[n, S]``; it is None without a bound.
    """

    mean: np.ndarray
    deviations: np.ndarray
    shares: np.ndarray
    inverse: np.ndarray
    half: np.ndarray
    tilts: np.ndarray
    targets: np.ndarray
    weights: np.ndarray
    part: np.ndarray
    is_bound: np.ndarray | None = None
    lower: float | None = None
    is_whole: bool = False

    @classmethod
    def of(
        cls,
        predictions: Values,
        kept: np.ndarray,
        targets: np.ndarray,
        weights: np.ndarray,
        part: np.ndarray,
    ) -> "MemberRows":
        """The kept rows of predictions ``[n]``, with their targets, weights and parts."""
        given = jax.tree.map(lambda x: np.asarray(x)[: kept.size][kept], predictions)
        parts = (np.asarray(x, float) for x in parts_of_members(np, given))
        mean, deviations, shares, inverse, half = parts
        if isinstance(predictions, Quantiles):
            tilts = np.broadcast_to(2 * np.asarray(predictions.levels) - 1, shares.shape) * shares
        else:
            deviations, shares, tilts = _in_order(np, deviations, shares)
        return cls(mean, deviations, shares, inverse, half, tilts, targets, weights, part)

    def in_form(self, lower: float | None, is_whole: bool) -> "MemberRows":
        """The same rows, whose recalibrated values keep a bound or are whole numbers."""
        is_bound = None if lower is None else self.mean[:, None] + self.deviations <= lower
        return self._replace(is_bound=is_bound, lower=lower, is_whole=is_whole)

    def chosen(self, rows: np.ndarray) -> "MemberRows":
        """Some of the rows."""
        of_rows: Any = (x[rows] if isinstance(x, np.ndarray) else x for x in self)
        return MemberRows(*of_rows)

    def in_groups(self, shift: np.ndarray, log_scale: np.ndarray) -> "MemberRows":
        """The same rows after shifts and scales of their groups, each ``[n]``."""
        scale = np.exp(log_scale)
        return self._replace(
            mean=self.mean + shift,
            deviations=self.deviations * scale[:, None],
            inverse=self.inverse / scale,
            half=self.half * scale,
        )

    def moved(self, line: MemberByMember) -> "MemberRows":
        """The same rows: later maps are scored by their values after all maps."""
        return self

    def name_of_score(self) -> str:
        return "CRPS" if self.shares[0].sum() > 0.75 else "pinball loss"

    def spread(self) -> tuple[np.ndarray, np.ndarray]:
        """Errors of the middle, and the mean sizes that the spread implies, each ``[n]``."""
        return self.targets - self.mean, self.half

    def scores(self, line: MemberByMember | None) -> np.ndarray:
        """The CRPS of all members after a map, or the mean pinball loss of quantiles, ``[n]``."""
        moved, factor = (self.mean, 1.0) if line is None else line.moved(self.mean, self.inverse)
        factor = np.broadcast_to(factor, moved.shape)
        return self.scores_of(moved[:, None] + factor[:, None] * self.deviations)

    def scores_of(self, values: np.ndarray) -> np.ndarray:
        """The score of other values in the same order, ``[n, S]``, after the bound and rounding."""
        if self.is_whole:
            values = np.round(values)
        if self.lower is not None and self.is_bound is not None:
            values = np.where(self.is_bound, self.lower, np.maximum(values, self.lower))
        errors = self.targets[:, None] - values
        return np.sum(self.shares * np.abs(errors) + self.tilts * errors, axis=1)

    def fits(
        self, kinds: Sequence[tuple[int, ...]], chosen: np.ndarray | slice = slice(None)
    ) -> list[tuple[MemberByMember, bool]]:
        """The map of each kind with the least mean CRPS of chosen rows; if the search converged.

        The numbers are in units of typical errors, and |x| is (x^2 + h^2)^(1/2) with a small h.
        Each search starts at the map before it.
        """
        which = np.arange(len(self.weights))[chosen]
        if which.size > MOST_ROWS:
            which = which[np.linspace(0, which.size - 1, MOST_ROWS).astype(int)]
        mean, inverse, half = (x[which] for x in (self.mean, self.inverse, self.half))
        weights = self.weights[which] / self.weights[which].sum()
        # Sums over members take less time along columns.
        deviations, shares = (np.take(x.T, which, axis=1) for x in (self.deviations, self.shares))
        shares *= weights
        of_pairs, errors, centre = weights * half, mean - self.targets[which], weights @ mean
        typical = of_pairs.sum() or 1.0
        unit = weights @ np.abs(errors) + of_pairs.sum() or 1.0
        width = np.sqrt(weights @ np.square(mean - centre)) or 1.0
        of_middle = np.stack([np.ones_like(mean), (mean - centre) / width])
        of_factor = np.stack([np.full_like(mean, 1 / typical), inverse])
        corner = np.square(np.maximum(_OF_SPREAD * half / unit, _OF_UNIT))
        lean = weights * self.tilts[which].sum(axis=1)
        linear = np.concatenate([of_middle @ lean, of_factor @ of_pairs])

        def loss(x: np.ndarray) -> tuple[float, np.ndarray]:
            moved = (x[2:] @ of_factor) * deviations
            moved += errors / unit + x[:2] @ of_middle
            size = np.sqrt(moved**2 + corner)
            moved *= shares
            moved /= size
            of_factors = of_factor @ np.einsum("sn,sn->n", moved, deviations)
            slope = np.concatenate([of_middle @ moved.sum(axis=0), of_factors]) - linear
            return float(np.vdot(shares, size) - linear @ x), slope

        x, found = np.array([0.0, 0.0, typical / unit, 0.0]), []
        ends = (None, None), (None, None), (LEAST_SLOPE * x[2], None), (0.0, None)
        for free in kinds:
            bounds = [ends[k] if is_free else (x[k], x[k]) for k, is_free in enumerate(free)]
            x, converged = least(loss, x, bounds, has_slope=True)
            of_units = x * [unit, unit / width, unit / typical, unit] + [0.0, 1.0, 0.0, 0.0]
            line = MemberByMember(of_units[0], of_units[1], centre, of_units[2], of_units[3])
            found.append((line, converged))
        return found


def kinds_of_members(rows: MemberRows, is_ensemble: bool) -> tuple[tuple[int, ...], ...]:
    """Free numbers of maps: a scale, then a shift, then a slope, and inflation if needed."""
    return _SCALE, _SHIFT_SCALE, _ALL if is_ensemble and _needs_inflation(rows) else _SLOPE


def _needs_inflation(rows: MemberRows) -> bool:
    """Whether standard scores of targets are larger in narrow pools than in wide ones."""
    if len(rows.weights) < LEAST_ROWS:
        return False
    moved, factor = rows.fits([_SLOPE])[0][0].moved(rows.mean, rows.inverse)
    squares, share = np.square(rows.targets - moved), np.sum(np.square(rows.shares), axis=1)
    of_members = np.sum(rows.shares * np.square(factor[:, None] * rows.deviations), axis=1)
    # The variance of the pool, up to a factor that depends on S only.
    variance = (1 + share) * of_members + share * squares
    is_known = variance > 0
    variance = np.where(is_known, variance, 1.0)
    width = np.log(variance) - np.sum(np.log(variance)) / max(np.sum(is_known), 1)
    found = np.where(is_known, (squares / variance - 1) * width, 0.0)
    return is_clear(-np.bincount(rows.part, rows.weights * found), _ERRORS_OF_INFLATION)


def in_words(rows: MemberRows, line: MemberByMember) -> str:
    """The mean factor of the spread and the change of the mean, as text."""
    counts = rows.weights * rows.half
    factor = line.moved(rows.mean, rows.inverse)[1]
    times = counts @ factor / counts.sum() if counts.any() else line.scale
    words = spread_in_words(float(times))
    if line.inflation > 0:
        words += f" (mean difference d becomes {line.scale:.2g} d + {line.inflation:.2g})"
    if line.slope != 1:
        start = line.shift + (1 - line.slope) * line.centre
        return f"{words}, mean m becomes {start:.3g} + {line.slope:.3g} m"
    return f"{words}, shift {line.shift:+.2g}" if line.shift else words


def shifted_values(predictions: Values, shift: jax.Array, scale: jax.Array) -> Values:
    """Quantiles or samples shifted and scaled around their middle, by numbers ``[n]``."""
    mean, deviations, *_ = parts_of_members(jnp, predictions)
    return _with_values(predictions, (mean + shift)[:, None] + scale[:, None] * deviations)


def _with_values(predictions: Values, values: jax.Array) -> Any:
    name = "values" if isinstance(predictions, Quantiles) else "samples"
    return with_fields(predictions, **{name: values})
