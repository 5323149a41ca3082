"""Shifts and scales of groups of forecasts of numbers, such as the bias of a weather station.

With the error r_i of a forecast and the mean size h_i of errors that its spread implies, group g
has the shift and the log scale

    m_g = mean_g(r),    s_g = log(mean_g |r - m| / mean_g h),

with the mean m of the errors after the shifts.  Each has a standard error e_g, between clusters or
times where rows depend on each other, and is compared with a mean c over groups with the weights
1 / e_g^2.  Two ways shrink d_g = m_g - c to 0, at which a group has the map of all rows:

- **single**: the group with the largest |d_g| / e_g leaves the mean c, if it is significant at the
  level 0.05 over all groups (t test, Bonferroni), and so on.  All others have d_g = 0: they keep
  the map of all rows;
- **pooled**: d_g t^2 / (t^2 + e_g^2), with the variance t^2 between groups of DerSimonian and Laird
  (1986); the weights of the mean c are 1 / (t^2 + e_g^2).  Equal groups have no shift.

Held-out rows decide between the two and no shifts.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._base.struct import static, struct
from calibjax.recalibration._groups import Coding, sums_of_segments
from calibjax.recalibration._member_by_member import shifted_values
from calibjax.recalibration._probability_maps import Numbers, Step
from calibjax.recalibration._shift_scale import ShiftScale

WAYS = ("single", "pooled")
_LEVEL = 0.05
# Minimum number of groups for an estimate of the variance between them.
_MANY = 10


@struct
class GroupScale(Step):
    """Forecasts shifted, and scaled around their middle, by sums over the groups of a row.

    Args:
        shifts: the shift of each level of the columns, ``[S]``, in units of the targets for
            quantiles and samples, in normal scores for densities.
        log_scales: logarithms of the factors of spreads, ``[S]``.
        coding: the levels.
    """

    shifts: Numbers
    log_scales: Numbers
    coding: Coding = static()

    def moved(self, predictions: Any, segments: np.ndarray | jax.Array) -> Any:
        """Forecasts after shifts and scales of their segments ``[n, J]``; S means no segment."""
        shift, log_scale = (
            sums_of_segments(jnp, x, segments) for x in (self.shifts, self.log_scales)
        )
        scale = jnp.exp(log_scale)
        if hasattr(predictions, "known_quantiles"):
            return shifted_values(predictions, shift, scale)
        return ShiftScale(-shift / scale, 1 / scale)(predictions)


class GroupScales(NamedTuple):
    """Shifts and log scales of levels ``[S]``, those of rows by other parts ``[n]``, and a text."""

    shifts: np.ndarray
    log_scales: np.ndarray
    held_shift: np.ndarray
    held_log: np.ndarray
    description: str


def fit_group_scales(
    coding: Coding, segments: np.ndarray, rows: Any, units: np.ndarray, way: str, has_common: bool
) -> GroupScales:
    """Fits shifts and scales of the levels of each column, after those of the columns before it.

    Args:
        coding: the columns, without pairs.
        segments: the level of each row in each column, S for none, ``[n, J]``.
        rows: the rows that count, with a method `spread`.
        units: the cluster, time or number of each row, ``[n]``.
        way: one of `WAYS`.
        has_common: whether a map of all rows follows, which takes c; else the common shift is 0.
    """
    r, h = rows.spread()
    one, held, words, first = np.ones_like(r), np.zeros((2, r.size)), [], 0
    of_levels: list[np.ndarray] = []
    for column, segment in zip(coding.columns, segments.T, strict=True):
        code = np.where(segment < coding.n_segments, segment - first, -1)
        first += column.n_levels
        found = []
        for is_log in (False, True):
            # The common shift is left to the map of all rows and does not widen the spread.
            pair = (np.abs(r - np.average(r, weights=rows.weights)), h) if is_log else (r, one)
            ratios = _Ratios.of(*pair, rows, units, code, column.n_levels, is_log)
            levels, of_rows = ratios.deviations(way, is_log or has_common)
            held[int(is_log)] += of_rows
            moved = np.append(levels, 0.0)[code]
            r, h = (r, h * np.exp(moved)) if is_log else (r - moved, h)
            found.append(levels)
        names = [x for x, of in zip(("bias", "spread"), found, strict=True) if of.any()]
        if names:
            n_moved = np.sum(found[0].astype(bool) | found[1].astype(bool))
            of_column = f"{n_moved} of {column.n_known} groups of {column.name}"
            words.append(f"{' and '.join(names)} corrected in {of_column}")
        of_levels.append(np.stack(found))
    shifts, log_scales = np.concatenate(of_levels, axis=1)
    return GroupScales(shifts, log_scales, held[0], held[1], ", ".join(words))


class _Ratios(NamedTuple):
    """Ratios of two means in groups ``[G]``, or their logarithms.

    `without` are the ratios without each part, ``[G, P]``, and `errors` standard errors, infinite
    for groups of one unit.  `code` and `part` are those of rows, ``[n]``.
    """

    values: np.ndarray
    without: np.ndarray
    errors: np.ndarray
    n_units: np.ndarray
    code: np.ndarray
    part: np.ndarray

    @classmethod
    def of(
        cls,
        top: np.ndarray,
        bottom: np.ndarray,
        rows: Any,
        units: np.ndarray,
        code: np.ndarray,
        n_groups: int,
        is_log: bool,
    ) -> "_Ratios":
        """Ratios of rows with codes ``[n]``, -1 for no group."""
        known, n_parts = code >= 0, int(rows.part.max()) + 1
        g, weights, shape = code[known], rows.weights[known], (n_groups, n_parts)
        top, bottom = weights * top[known], weights * bottom[known]
        cell = g * n_parts + rows.part[known]
        tops, bottoms = (
            np.bincount(cell, x, minlength=n_groups * n_parts).reshape(shape) for x in (top, bottom)
        )
        sums = [(x.sum(axis=1), x.sum(axis=1, keepdims=True) - x) for x in (tops, bottoms)]
        (every, others), (of_every, of_others) = sums
        mean, without = (
            x / np.where(y > 0, y, np.inf) for x, y in ((every, of_every), (others, of_others))
        )
        _, unit = np.unique(g * (units.max() + 1) + units[known], return_inverse=True)
        of_units = np.bincount(unit, top - mean[g] * bottom)
        group = np.zeros(of_units.size, int)
        group[unit] = g
        count = np.bincount(group, minlength=n_groups)
        squares = np.bincount(group, of_units**2, minlength=n_groups)
        variance = squares * count / np.maximum(count - 1, 1)
        least = np.maximum(of_every, 1e-300) * (np.maximum(mean, 1e-300) if is_log else 1.0)
        is_known = (count > 1) & (variance > 0) & (of_every > 0)
        errors = np.where(is_known, np.sqrt(variance) / np.maximum(least, 1e-300), np.inf)
        if is_log:
            mean, without = (np.log(np.maximum(x, 1e-300)) for x in (mean, without))
        return cls(mean, without, errors, count, code, rows.part)

    def deviations(self, way: str, has_common: bool) -> tuple[np.ndarray, np.ndarray]:
        """The shrunken d of each group ``[G]``, and that of each row by the other parts ``[n]``."""
        if not np.isfinite(self.errors).any():
            return np.zeros(self.errors.size), np.zeros(self.code.size)
        draw = self._single if way == "single" else self._pooled
        by_others = np.stack([draw(x, has_common) for x in self.without.T], axis=1)
        table = np.vstack([by_others, np.zeros(by_others.shape[1])])
        return draw(self.values, has_common), table[self.code, self.part]

    def _single(self, values: np.ndarray, has_common: bool) -> np.ndarray:
        """d of the groups that leave the mean c, the farthest first; 0 for all others."""
        from scipy.special import stdtrit

        rest, own = self.errors**-2.0, np.zeros(values.size, bool)
        limit = stdtrit(np.maximum(self.n_units - 1, 1), 1 - _LEVEL / (2 * np.sum(rest > 0)))
        while True:
            total = rest.sum() if has_common else np.inf
            common = float(rest @ values / total)
            if np.sum(rest > 0) <= has_common:
                break
            with np.errstate(divide="ignore"):
                size = np.abs(values - common) / np.sqrt(1 / rest + 1 / total) / limit
            farthest = int(np.argmax(size))
            if size[farthest] <= 1:
                break
            own[farthest], rest[farthest] = True, 0.0
        return np.where(own, values - common, 0.0)

    def _pooled(self, values: np.ndarray, has_common: bool) -> np.ndarray:
        """d of all groups, shrunk to 0 by the variance between them."""
        precision = self.errors**-2.0
        if np.sum(precision > 0) < _MANY:
            return self._single(values, has_common)
        common = float(precision @ values / precision.sum()) if has_common else 0.0
        excess = precision @ (values - common) ** 2 - (np.sum(precision > 0) - has_common)
        total = precision.sum() - precision @ precision / precision.sum()
        between = max(excess / total, 0.0) if total > 0 else 0.0
        if not between:
            return np.zeros(values.size)
        factor = between / (between + self.errors**2)
        common = float(factor @ values / factor.sum()) if has_common else 0.0
        return factor * (values - common)
