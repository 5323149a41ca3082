"""A table of the test and the measures of each group, such as each hospital."""

import dataclasses
import math
import operator
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from calibjax._base.compile import bucket
from calibjax._base.struct import on_host
from calibjax._base.text import plain, pvalue_text, text_table
from calibjax._data.distribution import Labels
from calibjax._data.typed_column import named_columns
from calibjax.evaluation._directions import Direction, clear_directions_of
from calibjax.evaluation._effect import BEST_TEMPERATURE
from calibjax.evaluation._section import N_RESAMPLES, Case
from calibjax.evaluation._wording import aligned_numbers, numbers_with_intervals
from calibjax.frames import groups_of
from calibjax.hypothesis_tests import calibration_test
from calibjax.hypothesis_tests.adjusted import adjusted_pvalues
from calibjax.measures.events import EVENTS, EXPECTED, RATIO, SLOPE
from calibjax.measures.families import measures
from calibjax.measures.measure import OBSERVED, PREDICTED, MeasureResult, Pooled, pooled_ratio
from calibjax.nulls.ranks import as_multiple
from calibjax.nulls.sampler import why_not_tested
from calibjax.recalibration import fit_temperature
from calibjax.segments import Groups, read_columns

# Minimum number of rows of a group that is tested.
_LEAST_ROWS = 8
# The measures of a table, by the kind of predictions, and what their columns are called.
_OF_EVENTS = {EVENTS: "observed", EXPECTED: "expected", RATIO: RATIO, SLOPE: "slope"}
_OF_CLASSES = {PREDICTED: "mean confidence", "accuracy": "accuracy", "top-label ECE": "ECE"}
_OF_CLASSES["temperature"] = "temperature"
_OF_NUMBERS = {PREDICTED: "predicted", OBSERVED: "observed", "weighted interval score": "WIS"}
_OF_NUMBERS |= {x: x for x in ("CRPS", "bias", "spread", "RMSE of the mean", "mean PIT", "events")}
_OF_NUMBERS |= {f"coverage of {x} % intervals": f"coverage {x} %" for x in (50, 90)}
_OF_NUMBERS |= {"integrated Brier score": "integrated Brier score"}
# The columns of a ratio and its interval, which have the same decimals in a row.
_RATIO = RATIO, "low", "high"
# A column of texts of the table.
_ERROR = "error"


@dataclasses.dataclass(frozen=True)
class GroupVerdict:
    """What the rows of one group say of a model.

    Args:
        name: the group in words, such as "north, lead time 3".
        levels: its levels in the columns of groups.
        n: the number of rows.
        measures: accuracy, scores and others, by their names, as an `Evaluation` has them.
        skce: the unbiased SKCE with the kernel of the largest score; NaN without a test.
        pvalue: that of `calibration_test` of these rows alone.
        adjusted_pvalue: the p-value adjusted for all groups.
        directions: which way the model is wrong for the group; none if the adjusted p-value is
            above the level.
        why_not_tested: the reason why p-values are missing, such as too few clusters; or None.
    """

    name: str
    levels: dict[str, str]
    n: int
    measures: dict[str, MeasureResult]
    skce: float = math.nan
    pvalue: float = math.nan
    adjusted_pvalue: float = math.nan
    directions: tuple[Direction, ...] = ()
    why_not_tested: str | None = None

    def row(self) -> dict[str, Any]:
        """Its line of the table, by the names of columns."""
        error = self.directions[0].name if self.directions else ""
        last = {"p": self.adjusted_pvalue, _ERROR: self.why_not_tested or error}
        return self.levels | {"rows": self.n} | self._numbers() | last

    def _numbers(self) -> dict[str, float]:
        found = {}
        for name, title in _titles(self.measures).items():
            if name in self.measures:
                found[title] = self.measures[name].value
            if name == RATIO and name in self.measures:
                ends = self.measures[name].interval or (math.nan, math.nan)
                found |= dict(zip(_RATIO[1:], ends, strict=True))
        return found


def _titles(measures: dict[str, MeasureResult]) -> dict[str, str]:
    if RATIO in measures:
        return _OF_EVENTS
    return _OF_CLASSES if "accuracy" in measures else _OF_NUMBERS


@dataclasses.dataclass(frozen=True)
class GroupVerdicts:
    """The verdicts of all groups, the smallest p-values first; printed, it is a table.

    Args:
        groups: what the rows of each group say.
        level: the probability that any group is wrongly called not calibrated, at most.
        n_draws: the number of data sets that p-values are from.

    Example:
        >>> import calibjax as cj
        >>> evaluation = cj.evaluate([[0.9, 0.1], [0.2, 0.8]] * 30, [1, 0] * 30)
        >>> table = evaluation.by({"half": ["first"] * 30 + ["second"] * 30})
        >>> table.to_dict()["half"], table.to_dict()["observed"]
        (['first', 'second'], [15.0, 15.0])
    """

    groups: tuple[GroupVerdict, ...]
    level: float
    n_draws: int

    def rejected(self) -> list[GroupVerdict]:
        """The groups for which the model is not calibrated, all at once."""
        return [x for x in self.groups if x.adjusted_pvalue <= self.level]

    def to_dict(self) -> dict[str, list[Any]]:
        """The columns of the table as lists, as frames take them; NaN is None.

        They are the columns of groups, the number of ``rows``, measures, the p-value ``p`` adjusted
        for all groups, and the ``error`` in a word.
        """
        rows = self.rows()
        return {name: [plain(row[name]) for row in rows] for name in rows[0]}

    def rows(self) -> list[dict[str, Any]]:
        """The lines of the table, each with all columns."""
        rows = [x.row() for x in self.groups]
        names = dict.fromkeys(name for row in rows for name in row)
        last = {name: names.pop(name) for name in ("p", _ERROR)}
        return [{name: row.get(name, math.nan) for name in names | last} for row in rows]

    def cells(self) -> list[list[str]]:
        """The table as texts, of which the first line has the names of columns."""
        rows = self.rows()
        names = [x for x in rows[0] if x != _ERROR or any(row[x] for row in rows)]
        columns = (self._texts(x, rows) for x in names)
        return [names, *map(list, zip(*columns, strict=True))]

    def _texts(self, name: str, rows: list[dict[str, Any]]) -> list[str]:
        values = [row[name] for row in rows]
        if name in _RATIO:
            ends = [(row["low"], row["high"]) for row in rows]
            return numbers_with_intervals(values, ends)
        if name == "p":
            return [pvalue_text(x, self.n_draws) for x in values]
        if not all(isinstance(x, float) for x in values):
            return list(map(str, values))
        return aligned_numbers(values)

    def __repr__(self) -> str:
        cells, n_levels = self.cells(), len(self.groups[0].levels)
        sides = ["<" if k < n_levels or x in ("p", _ERROR) else ">" for k, x in enumerate(cells[0])]
        return "\n".join([*text_table(cells, "".join(sides)), *self.notes()])

    @property
    def pooled(self) -> Pooled | None:
        """Observed / expected over groups that differ; None for other than events in two groups."""
        return pooled_ratio([x.measures.get(RATIO) for x in self.groups], 1 - self.level)

    def notes(self) -> list[str]:
        """What the p-values account for, and the pooled ratio."""
        n_tested = sum(x.why_not_tested is None for x in self.groups)
        found = [f"p is adjusted for {n_tested} groups"] if n_tested > 1 else []
        smallest, pooled = pvalue_text(self.groups[0].adjusted_pvalue, self.n_draws), self.pooled
        if smallest.startswith("≤"):
            found.append(f"{smallest}: the smallest p-value that {self.n_draws} draws give")
        return found + ([] if pooled is None else [str(pooled)])


def verdicts_of_groups(case: Case, groups: Groups | Sequence[str]) -> GroupVerdicts:
    """The test of each combination of levels of the columns of groups.

    All groups have the number of rows of the largest one, the others masked, so that they share
    what is compiled.  Draw b of all groups is one data set: draws of independent rows are
    independent, and turns of dependent rows have one key: rows of one cluster have
    one sign, whatever their groups.  So `step_down` adjusts p-values for any number of groups.

    Args:
        case: what is evaluated.
        groups: columns by their names, or names of columns of the frame or file, or of groups.
    """
    columns = _columns_called(case, groups) if isinstance(groups, Sequence) else groups
    groups_found, every = _groups(columns, case.data.counted_rows())
    tested = [k for k, rows in enumerate(every) if rows.size >= _LEAST_ROWS]
    size = bucket(max(_LEAST_ROWS, *(rows.size for rows in every)))
    data, chosen, tests = jax.tree.map(on_host, case.data), {}, {}
    for number_of_test, k in enumerate(tested):
        # Behind the rows of the group there are copies of the last one, which are masked.
        rows = every[k]
        indices = np.pad(rows, (0, size - rows.size), mode="edge")
        of_group = jax.tree.map(operator.itemgetter(indices), data)
        where = np.arange(size) < rows.size
        chosen[k] = of_group.replace(where=where, horizon=case.data.horizon)
        key = jax.random.fold_in(case.random_keys.test, number_of_test)
        tests[k] = calibration_test(key, chosen[k], n_resamples=N_RESAMPLES)
    adjusted = dict(zip(tested, adjusted_pvalues([*tests.values()]), strict=True))
    options = 1 - case.level, case.n_draws, case.row_names, every
    of_groups = measures(case.random_keys.measures, case.padded, *options)
    # Only directions of labels, and their table, have a temperature.
    are_labels = isinstance(case.data.predictions, Labels)
    is_tempered = are_labels and BEST_TEMPERATURE.of(case) is not None
    found = []
    for k, (group, numbers) in enumerate(zip(groups_found, of_groups, strict=True)):
        verdict = dataclasses.replace(group, measures=numbers)
        if k not in tests:
            words = f"fewer than {_LEAST_ROWS} rows"
            found.append(dataclasses.replace(verdict, why_not_tested=words))
            continue
        best = float(fit_temperature(chosen[k])) if is_tempered else None
        if best is not None:
            numbers["temperature"] = MeasureResult(best)
        is_wrong = adjusted[k] <= case.level
        verdict = dataclasses.replace(
            verdict,
            skce=float(tests[k].estimate),
            pvalue=as_multiple(tests[k].pvalue, N_RESAMPLES),
            adjusted_pvalue=adjusted[k],
            directions=clear_directions_of(case, chosen[k], best) if is_wrong else (),
            why_not_tested=why_not_tested(chosen[k]),
        )
        found.append(verdict)
    found.sort(key=lambda x: (x.why_not_tested is not None, x.adjusted_pvalue, x.pvalue, -x.n))
    return GroupVerdicts(tuple(found), case.level, N_RESAMPLES)


def _groups(groups: Groups, counts: np.ndarray) -> tuple[list[GroupVerdict], list[np.ndarray]]:
    """Groups without a verdict yet, and the indices of their rows that count."""
    columns, _ = read_columns(groups, counts, uncut=True)
    kept = np.flatnonzero(counts)
    codes = np.stack([column.codes[kept] for column in columns], axis=1)
    levels, group = np.unique(codes, axis=0, return_inverse=True)
    order = kept[np.argsort(group, kind="stable")]
    parts, found = np.split(order, np.cumsum(np.bincount(group))[:-1]), []
    for row, rows in zip(levels, parts, strict=True):
        both = list(zip(columns, row, strict=True))
        name = ", ".join(column.phrases[k] for column, k in both)
        of_columns = {column.name: column.levels[k] for column, k in both}
        found.append(GroupVerdict(name, of_columns, rows.size, {}))
    return found, parts


def _columns_called(case: Case, names: Sequence[str]) -> Groups:
    """Columns of the frame or file, or those of groups.

    Raises:
        ValueError: the column does not exist.
    """
    if case.table is not None:
        return groups_of(case.table, names)
    known = {} if case.data.groups is None else named_columns("groups", case.data.groups)
    if not set(names) <= set(known) or not known:
        raise ValueError(
            f"groups must be columns, or names among the groups of evaluate, {list(known)}, got "
            f"{list(names)}."
        )
    return {x: known[x] for x in names}
