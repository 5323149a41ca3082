"""Choice of shifts and scales of forecasts of numbers, for all rows and for groups of rows."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from calibjax._data.data import Data
from calibjax._data.typed_column import NamedColumns
from calibjax.distributions import Empirical, Quantiles
from calibjax.recalibration import _member_by_member as members
from calibjax.recalibration._choose_pit_map import Found
from calibjax.recalibration._cross_validation import LEAST_ROWS, choose_in_turn
from calibjax.recalibration._group_scales import WAYS, GroupScale, GroupScales, fit_group_scales
from calibjax.recalibration._groups import Coding
from calibjax.recalibration._pit_map import coordinates
from calibjax.recalibration._probability_maps import Fitted
from calibjax.recalibration._shift_scale import NormalScores, ShiftScale


class First(NamedTuple):
    """The chosen kind of shift and scale or None, and scores of held-out rows ``[n]``.

    `before` are the scores without a map, and `scores` those after the chosen one.
    """

    kind: Any
    before: np.ndarray
    scores: np.ndarray


def choose_first(rows: Any, kinds: Sequence[Any], must: bool) -> First:
    """Chooses among maps, from simple to complex: each must be better than the one before it.

    Args:
        rows: `NormalScores` or `MemberRows`, which fit and score maps.
        kinds: the free numbers of each map.
        must: whether a map is returned even if none is better.
    """
    before = rows.scores(None)
    if len(rows.weights) < LEAST_ROWS or not kinds:
        kind = kinds[min(1, len(kinds) - 1)] if kinds and must else None
        return First(kind, before, before)
    found = np.empty((len(kinds), before.size))
    for k in range(rows.part.max() + 1):
        inside = rows.part == k
        own = rows.chosen(inside)
        found[:, inside] = [own.scores(line) for line, _ in rows.fits(kinds, ~inside)]
    chosen = choose_in_turn(before, list(found), rows.weights, rows.part, must)
    if chosen is None:
        return First(None, before, before)
    return First(kinds[chosen], before, found[chosen])


class Scales(NamedTuple):
    """The shifts and scales, and scores of held-out rows ``[n]``.

    Args:
        steps: the shift and scale of all rows, if there is one.
        of_groups: the map of groups, or None without groups.
        rows: those of `rows_of` after these maps.
        start: scores of the original forecasts.
        first: scores after these maps.
        converged: whether the search found a minimum.
        description: the maps as text.
    """

    steps: tuple
    of_groups: Fitted | None
    rows: Any
    start: np.ndarray
    first: First
    converged: bool
    description: str

    def then(self, found: Found) -> Found:
        """These maps followed by one of the unit interval; their gains are added."""
        first, weights = self.first, self.rows.weights
        name, losses = found.name, {}
        if name == "identity" and first.kind is not None:
            name = "shift_scale"
        if len(weights) >= LEAST_ROWS:
            start, now = (np.average(x, weights=weights) for x in (self.start, first.scores))
            gain = now - found.losses.get("identity", 0.0)
            losses = {x: float(gain + loss) for x, loss in found.losses.items()}
            losses |= {"identity": float(start), "shift_scale": float(now)}
        words = "; ".join(filter(None, (self.description, found.fitted.description)))
        fitted = Fitted(
            self.steps + found.fitted.steps, self.converged and found.fitted.converged, words
        )
        return Found(name, fitted, losses, self.start, first.scores + (found.after - found.before))


def rows_of(
    data: Data, kept: np.ndarray, rows: tuple[np.ndarray, ...], form: tuple[float | None, bool]
) -> Any:
    """The kept rows of padded data for a shift and a scale; `rows` are weights and parts."""
    n, predictions = kept.size, data.predictions
    if isinstance(predictions, (Empirical, Quantiles)):
        targets = np.asarray(data.targets, float)[:n][kept]
        return members.MemberRows.of(predictions, kept, targets, *rows).in_form(*form)
    z = np.asarray(coordinates(data)[0], float)[:n][kept]
    return NormalScores(z, np.zeros_like(z), *rows)


def fit_scales(
    rows: Any,
    method: str,
    is_ensemble: bool,
    groups: NamedColumns | None,
    kept: np.ndarray,
    units: np.ndarray | None,
) -> Scales:
    """Fits shifts and scales of groups, if held-out rows gain, and then those of all rows.

    Args:
        rows: the rows that count.
        method: "shift_scale" always fits a map for all rows, "auto" and "conditional" one that must
            gain; any other method fits those of groups only.
        is_ensemble: whether forecasts are members, whose spread may be inflated.
        groups: columns of all rows, or None.
        kept: mask of the rows that count, ``[n]``.
        units: the cluster, time or number of each row that counts; None without groups.
    """
    is_density = isinstance(rows, NormalScores)
    kinds: tuple[Any, ...] = ()
    if method in ("auto", "conditional", "shift_scale"):
        kinds = (False, True) if is_density else members.kinds_of_members(rows, is_ensemble)
    if method == "shift_scale" and not is_ensemble:
        kinds = kinds[1:2]

    def choice(rows: Any) -> First:
        return choose_first(rows, kinds, method == "shift_scale")

    first, of_groups, words = choice(rows), None, ""
    start = first.before
    if groups is not None and units is not None:
        coding = Coding.of(groups, kept)._replace(pairs=())
        segments = coding.segments(groups, kept.size)[kept]
        has_common = method != "identity"
        found, first = _of_groups(rows, coding, segments, units, has_common, choice, first)
        none_differ = f"no group of {', '.join(coding.names)} differs"
        words = none_differ if found is None else found.description
        none = np.zeros(coding.n_segments)
        tables = (none, none) if found is None else (found.shifts, found.log_scales)
        of_groups = Fitted((GroupScale(tables[0], tables[1], coding),), True, "")
        rows = rows.in_groups(*(np.append(x, 0.0)[segments].sum(axis=1) for x in tables))
    if first.kind is None:
        # Maps of densities always have this step, so that they share a compiled program.
        steps = (ShiftScale(np.zeros(()), np.ones(())),) if is_density and kinds else ()
        return Scales(steps, of_groups, rows, start, first, True, words)
    ((line, converged),) = rows.fits([first.kind])
    own = line.in_words() if is_density else members.in_words(rows, line)
    words = "; ".join(filter(None, (words, own)))
    return Scales((line,), of_groups, rows.moved(line), start, first, converged, words)


def _of_groups(
    rows: Any,
    coding: Coding,
    segments: np.ndarray,
    units: np.ndarray,
    has_common: bool,
    choice: Any,
    plain: First,
) -> tuple[GroupScales | None, First]:
    """The shifts and scales of groups if held-out rows gain by them, after a plain choice."""
    tried = []
    if len(segments) >= LEAST_ROWS:
        for way in WAYS:
            found = fit_group_scales(coding, segments, rows, units, way, has_common)
            if found.shifts.any() or found.log_scales.any():
                tried.append((found, choice(rows.in_groups(found.held_shift, found.held_log))))
    if not tried:
        return None, plain
    scores = [x.scores for _, x in tried]
    chosen = choose_in_turn(plain.scores, scores, rows.weights, rows.part)
    return (None, plain) if chosen is None else tried[chosen]
