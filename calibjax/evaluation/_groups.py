"""For whom a model is wrong: segments, and the verdict of each group.

Calibration within a group is what is tested: whether its targets follow its predictions.  That two
groups differ, or that a model is fair to them, is another question, and no words here answer it.
"""

import dataclasses
import operator
import re
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from calibjax._base.compile import bucket
from calibjax._base.struct import on_host
from calibjax._base.text import first_of, plain, text_table
from calibjax._data.data import Data
from calibjax._data.interval_censored import Between
from calibjax.evaluation._directions import clear_directions_of
from calibjax.evaluation._effect import BEST_TEMPERATURE
from calibjax.evaluation._judged_directions import Direction
from calibjax.evaluation._rows import ZERO_PROBABILITY
from calibjax.evaluation._section import N_RESAMPLES, Case, Section
from calibjax.evaluation._wording import number, pvalue_text
from calibjax.frames import groups_of
from calibjax.hypothesis_tests import calibration_test
from calibjax.hypothesis_tests.adjusted import adjusted_pvalues
from calibjax.measures.families import measures
from calibjax.measures.measure import MeasureResult
from calibjax.nulls.ranks import as_multiple
from calibjax.nulls.sampler import why_not_tested
from calibjax.recalibration import fit_temperature
from calibjax.segments import Groups, Segment, SegmentTestResult, read_columns, segments_tested

# Minimum number of rows of a group that is tested.
_LEAST_ROWS = 8
# Measures that tables of groups have.
_IN_TABLE = re.compile(
    r"predicted|observed|(top-label )?ECE|CRPS|weighted interval score|spread|error of the mean"
    r"|bias|coverage of (50|80|90) % intervals|mean PIT|events|integrated Brier score"
)
# Maximum number of small groups listed.
_SHOWN = 10


@dataclasses.dataclass(frozen=True)
class GroupVerdict:
    """What the rows of one group say of a model.

    Args:
        name: the group in words, such as "north, lead time 3".
        n: the number of rows.
        skce: the unbiased SKCE with the kernel of the largest score.
        pvalue: that of `calibration_test` of these rows alone.
        adjusted: the p-value adjusted for all groups.
        directions: which way the model is wrong for the group; none if the adjusted p-value is
            above the level.
        why_not_tested: why there are no p-values, such as too few clusters; None if there are.
        measures: accuracy, scores and others, by their names, as an `Evaluation` has them.
    """

    name: str
    n: int
    skce: float
    pvalue: float
    adjusted: float
    directions: tuple[Direction, ...]
    why_not_tested: str | None
    measures: dict[str, MeasureResult]


@dataclasses.dataclass(frozen=True)
class GroupVerdicts:
    """The verdicts of all groups, the smallest p-values first; printed, it is a table.

    Args:
        groups: what the rows of each group say.
        level: the probability that any group is wrongly called not calibrated, at most.
        too_small: the groups with fewer than eight rows, which are not tested.
        n_draws: the number of data sets that p-values are from.

    Example:
        >>> import calibjax as cj
        >>> evaluation = cj.evaluate([[0.9, 0.1], [0.2, 0.8]] * 30, [1, 0] * 30)
        >>> print(str(evaluation.by({"half": ["first"] * 30 + ["second"] * 30})).splitlines()[0])
        group   rows  predicted  observed   ECE  p        adjusted
    """

    groups: tuple[GroupVerdict, ...]
    level: float
    too_small: tuple[str, ...]
    n_draws: int

    def rejected(self) -> list[GroupVerdict]:
        """The groups for which the model is not calibrated, all at once."""
        return [x for x in self.groups if x.adjusted <= self.level]

    def to_dict(self) -> dict[str, Any]:
        """Numbers, strings, lists and dicts of Python, as JSON takes them."""
        return plain(dataclasses.asdict(self))

    def columns(self) -> list[str]:
        """Names of the measures that are printed."""
        names = dict.fromkeys(name for group in self.groups for name in group.measures)
        return [name for name in names if _IN_TABLE.fullmatch(name)]

    def __repr__(self) -> str:
        columns = self.columns()
        rows = [["group", "rows", *columns, "p", "adjusted", ""]]
        for x in self.groups:
            words = x.why_not_tested or (str(x.directions[0]) if x.directions else "")
            values = [number(x.measures[y].value) if y in x.measures else "" for y in columns]
            pvalues = [pvalue_text(p, self.n_draws) for p in (x.pvalue, x.adjusted)]
            rows.append([x.name, str(x.n), *values, *pvalues, words])
        lines = text_table(rows, "<>" + ">" * len(columns) + "<<<")
        return "\n".join([*lines, *self.notes()])

    def notes(self) -> list[str]:
        """What the least p-value means, and which groups are not tested."""
        found, n_small, least = [], len(self.too_small), 1 / (self.n_draws + 1)
        if any(x.pvalue <= least for x in self.groups):
            words = f"the smallest p-value that {self.n_draws} draws can give"
            found.append(f"≤ {number(least)}: {words}")
        if n_small:
            found.append(
                f"{n_small} of {n_small + len(self.groups)} groups are not tested (fewer than "
                f"{_LEAST_ROWS} rows): {first_of(self.too_small, _SHOWN, '; ')}"
            )
        return found


def verdicts_of_groups(case: Case, groups: Groups | Sequence[str]) -> GroupVerdicts:
    """The test of each combination of levels of the columns of groups.

    All groups have the number of rows of the largest one, the others masked, so that they share
    what is compiled.  Draw b of all groups is one data set: draws of independent rows are
    independent, and turns of rows that depend on each other have one key: rows of one cluster have
    one sign, whatever their groups.  So `step_down` adjusts p-values for any number of groups.

    Args:
        case: what is evaluated.
        groups: columns by their names, or names of columns of the frame or file, or of groups.
    """
    columns = _columns_called(case, groups) if isinstance(groups, Sequence) else groups
    members = _rows_of_groups(columns, case.data.counted_rows())
    tested = {name: rows for name, rows in members.items() if rows.size >= _LEAST_ROWS}
    if not tested:
        raise ValueError(f"groups must hold {_LEAST_ROWS} rows of a group, got none with so many.")
    size = bucket(max(rows.size for rows in tested.values()))
    data, chosen = jax.tree.map(on_host, case.data), {}
    for name, rows in tested.items():
        # Behind the rows of the group there are copies of the last one, which are masked.
        indices = np.pad(rows, (0, size - rows.size), mode="edge")
        of_group = jax.tree.map(operator.itemgetter(indices), data)
        where = np.arange(size) < rows.size
        chosen[name] = of_group.replace(where=where, horizon=case.data.horizon)
    tests = {}
    for group, (name, x) in enumerate(chosen.items()):
        key = jax.random.fold_in(case.random_keys.test, group)
        tests[name] = calibration_test(key, x, n_resamples=N_RESAMPLES)
    pvalues = [as_multiple(x.pvalue, N_RESAMPLES) for x in tests.values()]
    adjusted = adjusted_pvalues([*tests.values()])
    options = 1 - case.level, case.n_draws, case.row_names, [*tested.values()]
    of_groups = measures(case.random_keys.measures, case.padded, *options)
    found = []
    for (name, test), p, a, x in zip(tests.items(), pvalues, adjusted, of_groups, strict=True):
        clear: tuple[Direction, ...] = ()
        if a <= case.level:
            is_tempered = BEST_TEMPERATURE.of(case) is not None
            best = float(fit_temperature(chosen[name])) if is_tempered else None
            clear = clear_directions_of(case, chosen[name], best)
        numbers = tested[name].size, float(test.estimate), p, a
        found.append(GroupVerdict(name, *numbers, clear, why_not_tested(chosen[name]), x))
    found.sort(key=lambda x: (x.why_not_tested is not None, x.adjusted, x.pvalue, -x.n))
    too_small = tuple(x for x in members if x not in tested)
    return GroupVerdicts(tuple(found), case.level, too_small, N_RESAMPLES)


def _rows_of_groups(groups: Groups, counts: np.ndarray) -> dict[str, np.ndarray]:
    """The names of groups, and the indices of their rows among those that count, given ``[n]``."""
    columns, _ = read_columns(groups, np.ones(counts.size, bool))
    codes = np.stack([column.codes for column in columns], axis=1)
    levels, group = np.unique(codes, axis=0, return_inverse=True)
    names = [", ".join(c.phrases[x] for c, x in zip(columns, y, strict=True)) for y in levels]
    order = np.argsort(group, kind="stable")
    parts = np.split(order, np.cumsum(np.bincount(group))[:-1])
    return {name: rows[counts[rows]] for name, rows in zip(names, parts, strict=True)}


def _columns_called(case: Case, names: Sequence[str]) -> Groups:
    """Columns of the frame or file, or those of groups: their levels in words ``[n]``.

    Levels are None for rows that do not count.

    Raises:
        ValueError: there is no such column.
    """
    if case.table is not None:
        return groups_of(case.table, names)
    known = {} if case.groups is None else {column.name: column for column in case.groups.columns}
    if not set(names) <= set(known) or not known:
        raise ValueError(
            f"groups must be columns, or names among the groups of evaluate, {list(known)}, got "
            f"{list(names)}."
        )
    return {x: np.array([*known[x].levels, None], object)[known[x].codes] for x in names}


def worst_segment(result: SegmentTestResult, level: float) -> Segment | None:
    """The clearest segment whose error is not that of all rows; None if none is beyond chance.

    A model that is wrong on the whole is wrong in many segments, too.  One of these stands out if
    its simultaneous interval does not hold what is observed of all rows, or if that is chance.
    """
    rejected = result.rejected(level)
    of_all = {x.statistic: x.value for x in rejected if not x.conditions}
    for segment in rejected:
        low, high = segment.interval
        of_whole = of_all.get(segment.statistic, 0.0)
        if segment.conditions and not low <= of_whole <= high:
            return segment
    return None


def segments_in_words(result: SegmentTestResult | None, level: float) -> str | None:
    """The worst segment in words, for a verdict; None if none stands out."""
    segment = None if result is None else worst_segment(result, level)
    if result is None or segment is None:
        return None
    return f"wrong most clearly for {segment}, after {result.n_segments} segments"


class _Segments(Section[SegmentTestResult | None]):
    """The result of `segment_test` of the groups; None without groups or a test."""

    def compute(self, case: Case) -> SegmentTestResult | None:
        if case.groups is None or case.why_not_tested is not None:
            return None
        return self.of_data(case, case.data)

    def of_data(self, case: Case, data: Data) -> SegmentTestResult:
        """The result for other predictions of the same rows."""
        assert case.groups is not None
        return segments_tested(case.random_keys.segments, data, case.groups, N_RESAMPLES)

    def clause(self, case: Case) -> str | None:
        if case.rejected and ZERO_PROBABILITY.is_all(case):
            return None
        return segments_in_words(self.of(case), case.level)

    def advice(self, case: Case) -> str | None:
        if isinstance(case.data.targets, Between) or self.clause(case) is None:
            return None
        return f"segments are recalibrated by {recalibration_of_segments(case)}"


SEGMENTS = _Segments()


def recalibration_of_segments(case: Case) -> str:
    """What recalibrates segments."""
    return case.said_as("fit_recalibrator(groups=...)", "calibjax recalibrate --segments")
