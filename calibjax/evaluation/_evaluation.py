"""The result of `evaluate`."""

import dataclasses
import functools
import html
import json
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np

from calibjax._base.compile import quick_jit
from calibjax._base.progress import working
from calibjax._data.data import Data
from calibjax._data.distribution import Distribution
from calibjax._data.interval_censored import Between
from calibjax._data.padding import padded
from calibjax.estimators import contributions
from calibjax.evaluation._curves import curves_of, map_of, worst_cell, worst_level
from calibjax.evaluation._dependence import rows_in_words
from calibjax.evaluation._directions import (
    Direction,
    clear_directions,
    directions_in_words,
    directions_of,
)
from calibjax.evaluation._effect import Effect, effect_of
from calibjax.evaluation._groups import (
    GroupVerdicts,
    columns_of_segments,
    segments_in_words,
    verdicts_of_groups,
)
from calibjax.evaluation._measures import (
    Impossible,
    Measure,
    draws_for_intervals,
    impossible_rows,
    measures,
)
from calibjax.evaluation._recalibration_check import (
    RecalibrationCheck,
    recalibration_check,
    recalibration_checks,
)
from calibjax.evaluation._sentences import remarks, sentence, verdict
from calibjax.evaluation._serial_dependence import (
    Column,
    Neighbours,
    neighbour_dependence_test,
    neighbours_in_columns,
    remarks_on_order,
)
from calibjax.evaluation._summary import saved, summary
from calibjax.expectations import default_kernel
from calibjax.hypothesis_tests import CalibrationTestResult, calibration_test
from calibjax.intervals import Sampling
from calibjax.nulls.ranks import as_multiple
from calibjax.recalibration import fit_temperature
from calibjax.segments import Groups, ReadSegments, SegmentTestResult, segments_tested

# Contributions need all pairs, and nobody reads so many rows.
_MAX_CONTRIBUTIONS = 20_000
# What `print` computes.
_PRINTED = (
    "impossible segments effect measures pvalue_of_neighbours neighbours directions worst "
    "recalibration"
).split()
N_RESAMPLES = 999


class Keys(NamedTuple):
    """A key for each part that draws; the unused one keeps the others what they were."""

    test: jax.Array
    effect: jax.Array
    measures: jax.Array
    curves: jax.Array
    unused: jax.Array
    neighbours: jax.Array
    segments: jax.Array


def keys_of(seed: int) -> Keys:
    """The keys; each part draws the same numbers, whichever other parts are computed."""
    return Keys(*_split(jax.random.key(seed)))


@functools.partial(quick_jit, light=True)
def _split(key: jax.Array) -> tuple[jax.Array, ...]:
    return tuple(jax.random.split(key, len(Keys._fields)))


_T = TypeVar("_T")


def _lazy(compute: Callable[[Any], _T]) -> functools.cached_property[_T]:
    """A property that is computed when it is first asked for, in the precision of `evaluate`."""

    @functools.wraps(compute)
    def in_precision(evaluation: Any) -> _T:
        with jax.enable_x64(evaluation.is_x64):
            return compute(evaluation)

    return functools.cached_property(in_precision)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Evaluation:
    """What `evaluate` found out about predictions; it prints a summary.

    `evaluate` runs the test.  All else is computed when it is first asked for or printed, and kept.

    Args:
        data: the predictions, as a distribution, the observed targets, labels as ``0 … m-1``, how
            rows count, and what classes and rows are called.
        test: the result of `calibration_test`, with what each kernel says.
        level: the level; intervals hold with the confidence 1 - level.
        seed: what all random numbers come from.
        columns: other columns of a file, which may say which rows depend on each other.
        groups: the segments that are tested; None without groups.
        is_x64: whether numbers have 64 bits: people may set this for `evaluate` alone.

    Example:
        >>> import calibjax as cj
        >>> evaluation = cj.evaluate([[0.9, 0.1], [0.2, 0.8]] * 30, [1, 0] * 30)
        >>> evaluation.rejected, evaluation.pvalue, evaluation.n
        (True, 0.001, 60)
    """

    data: Data
    test: CalibrationTestResult
    level: float
    seed: int
    columns: Sequence[Column] = ()
    groups: ReadSegments | None = None
    is_x64: bool = False

    @functools.cached_property
    def pvalue(self) -> float:
        """The p-value of `calibration_test`, a multiple of 1/1000."""
        return as_multiple(self.test.pvalue, N_RESAMPLES)

    @property
    def classes(self) -> list[Any] | None:
        """The names of the classes, or None."""
        return self.data.classes

    @functools.cached_property
    def row_names(self) -> np.ndarray:
        """What each row is called, ``[n]``: its number among the rows that were given, from 0.

        Of a text file it is the line, and of several files both number and file.
        """
        return self.data.names_of_rows()

    @functools.cached_property
    def random_keys(self) -> Keys:
        """The keys of the parts that draw."""
        return keys_of(self.seed)

    @functools.cached_property
    def _rows(self) -> Data:
        return padded(self.data)

    @_lazy
    def effect(self) -> Effect:
        """The SKCE with its interval, and the temperatures that say how much it is."""
        return effect_of(self.random_keys.effect, self._rows, 1 - self.level, N_RESAMPLES)

    @_lazy
    def measures(self) -> dict[str, Measure]:
        """Accuracy, scores and classical calibration errors, by their names."""
        rows = self._rows, 1 - self.level, self._n_draws, self.row_names
        return measures(self.random_keys.measures, *rows)

    @_lazy
    def impossible(self) -> Impossible:
        """The rows whose targets came although the model gave them the probability 0."""
        indices = impossible_rows(self._rows)
        found = Impossible(self.row_names[indices])
        if not (self.rejected and 2 <= self.n - len(indices) < self.n):
            return found
        others = np.arange(self._rows.n) < self.n
        others[indices] = False
        possible = self._rows.replace(where=jax.device_put(others))
        without = calibration_test(self.random_keys.test, possible, n_resamples=N_RESAMPLES)
        return dataclasses.replace(found, pvalue_without=as_multiple(without.pvalue, N_RESAMPLES))

    @_lazy
    def segments(self) -> SegmentTestResult | None:
        """The result of `segment_test` of the groups; None without groups."""
        if self.groups is None:
            return None
        return segments_tested(self.random_keys.segments, self.data, self.groups, N_RESAMPLES)

    @_lazy
    def pvalue_of_neighbours(self) -> float | None:
        """That of a test whether rows next to each other are independent of each other.

        None with clusters or times, for vectors, and for fewer than 50 rows.
        """
        if self.units is not None:
            return None
        return neighbour_dependence_test(self.random_keys.neighbours, self._rows)

    @_lazy
    def neighbours(self) -> tuple[Neighbours, ...]:
        """The same in the order of other columns of a file, of dates and of names."""
        if self.units is not None:
            return ()
        return neighbours_in_columns(self.random_keys.neighbours, self._rows, self.columns)

    @property
    def _n_draws(self) -> int:
        return draws_for_intervals(self.data, 1 - self.level, N_RESAMPLES)

    @property
    def _is_explained(self) -> bool:
        """Whether the whole model is wrong, and not only at impossible targets."""
        is_known = not isinstance(self.data.targets, Between)
        return is_known and self.rejected and not self.impossible.is_all(self.level)

    @_lazy
    def directions(self) -> tuple[Direction, ...]:
        """Which way the whole model is wrong, "too low" or "over-confident", the main one first.

        They are clear beyond chance; none if the model is not rejected.
        """
        if not self._is_explained:
            return ()
        return self._directions_of(self._rows, self.effect.best_temperature)

    def _directions_of(self, data: Data, temperature: float | None) -> tuple[Direction, ...]:
        found = directions_of(self.random_keys.measures, data, temperature, self.classes)
        return clear_directions(found, self.level)

    @_lazy
    def worst(self) -> str | None:
        """Where the model is wrong most of all, in words; None if that is not known."""
        if not self._is_explained:
            return None
        of_levels = worst_level(self.data, 1 - self.level)
        return worst_cell(self._maps, self.classes) if of_levels is None else of_levels

    @_lazy
    def _maps(self) -> dict[str, Any]:
        return map_of(self.random_keys.curves, self._rows, 1 - self.level, self._n_draws)

    @_lazy
    def recalibration(self) -> RecalibrationCheck | None:
        """What a map does to rows that did not fit it.

        It has ``method``, the log loss of labels or the CRPS of numbers, ``before`` and ``after``,
        and the ``pvalue`` and what is ``left`` after it, segments included; None unless labels,
        quantiles, samples or normal predictions are rejected, for fewer than 200 rows or 10^5 and
        more, and for rows that have weights or depend on each other.
        """
        if not (self._is_explained and self.data.is_plain):
            return None
        return recalibration_check(self.random_keys.test, self.data, N_RESAMPLES, self._left)

    def _left(self, data: Data, pvalue: float) -> str:
        """What is wrong with these predictions of the same rows, in words."""
        if self.groups is not None:
            key, groups = self.random_keys.segments, self.groups
            of_segments = segments_tested(key, data, groups, N_RESAMPLES)
            found = segments_in_words(of_segments, self.level)
            if found is not None:
                return f"{found} (fit_recalibrator(groups=...) recalibrates segments, too)"
        if pvalue > self.level:
            return ""
        return directions_in_words(self._directions_of(padded(data), None))

    @property
    def predictions(self) -> Distribution:
        """The n predictions."""
        return self.data.predictions

    @functools.cached_property
    def targets(self) -> np.ndarray | Between:
        """The observed targets, ``[n]`` or ``[n, d]``, labels as ``0 … m-1``, or `Between`."""
        return jax.tree.map(np.asarray, self.data.targets)

    @property
    def weights(self) -> np.ndarray | None:
        """How much each row counts, ``[n]``; None if all count the same."""
        return None if self.data.weights is None else np.asarray(self.data.weights)

    @property
    def rejected(self) -> bool:
        """Whether the p-value is at most the level: the model is not calibrated."""
        return self.pvalue <= self.level

    @_lazy
    def verdict(self) -> str:
        """The result in up to three lines: whether, how far and where, and what mends it."""
        return verdict(self)

    @property
    def sentence(self) -> str:
        """The size of the error with its interval and the result of the test, for a paper."""
        return sentence(self)

    @property
    def n(self) -> int:
        """The number of rows."""
        return self.data.n

    @property
    def remarks(self) -> list[str]:
        """What is left out, and why intervals may be too narrow: few rows; mostly empty."""
        found = remarks_on_order(self.pvalue_of_neighbours, self.neighbours)
        return found + remarks(self.data)

    @property
    def units(self) -> str | None:
        """What the p-value takes for independent of each other, "60 clusters"; None for rows."""
        return rows_in_words(self.data)

    @property
    def n_effective(self) -> float | None:
        """(sum w)^2 / sum w^2 of the weights w; None without weights."""
        return None if self.weights is None else Sampling.of_data(self.data).n_effective()

    @property
    def family(self) -> str:
        """The name of the family of the predictions."""
        return type(self.predictions).__name__

    @property
    def data_sets_under_h0(self) -> str:
        """What the test compares the targets with, in words."""
        if self.test.is_exact:
            return "targets drawn from the predictions"
        return "the observed errors with random signs and sizes"

    def _compute(self, *others: str) -> None:
        """Computes what is printed, and tells of what takes long."""
        names = *_PRINTED, *others
        with working(f"Evaluating {self.n} rows") as say:
            for k, name in enumerate(names):
                say(f"{'█' * k}{'░' * (len(names) - k)} {name}")
                getattr(self, name)

    def __repr__(self) -> str:
        self._compute()
        return summary(self)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(repr(self))}</pre>"

    def worst_rows(self, count: int = 10) -> np.ndarray:
        """What rows are called: impossible ones, then those that contribute most to the SKCE."""
        return self.row_names[self.worst_indices(count)]

    def worst_indices(self, count: int = 10) -> np.ndarray:
        """The indices of the same rows in `predictions` and `targets`, from 0.

        They differ from `worst_rows` where rows with missing values were left out, and in files.
        """
        is_impossible = np.isin(self.row_names, self.impossible.rows)
        if self.contributions is None:
            return np.flatnonzero(is_impossible)[:count]
        shares = np.where(is_impossible, np.inf, self.contributions)
        return np.argsort(-shares, kind="stable")[:count]

    @_lazy
    def curves(self) -> dict[str, Any]:
        """What the pictures show, by name, each with arrays as fields.

        The names are "reliability", "corp" and "witness" for labels, with "pit" for Ordinal ones,
        and "pit", "coverage" and "residuals" for numbers, with "spread_skill" for members of
        ensembles; they are the functions of calibjax that made them.  There are none of targets
        that are not known exactly.
        """
        if isinstance(self.targets, Between):
            return {}
        rows = self._rows, 1 - self.level, N_RESAMPLES
        return curves_of(self.random_keys.curves, *rows) | self._maps

    @_lazy
    def contributions(self) -> np.ndarray | None:
        """How much each row contributes to the SKCE, ``[n]``; None above 20 000 rows, for
        targets that are not known exactly, and for rows with weights.

        They need all pairs, and their mean is the unbiased SKCE with the default kernel.
        """
        is_weighted = self.weights is not None
        if is_weighted or isinstance(self.targets, Between) or self.n > _MAX_CONTRIBUTIONS:
            return None
        data = padded(self.data.replace(clusters=None, times=None))
        return np.asarray(contributions(default_kernel(data), data))[: self.n]

    @_lazy
    def recalibrations(self) -> list[RecalibrationCheck]:
        """What would a recalibration gain?  Maps, judged on rows that did not fit them.

        They are a temperature, and the method that is best on average, for families that have
        these.  There are none for few rows, for targets that are not known exactly, and for rows
        that have weights or depend on each other.
        """
        if isinstance(self.targets, Between) or not self.data.is_plain:
            return []
        return recalibration_checks(
            self.random_keys.test, self.data, N_RESAMPLES, self.recalibration
        )

    def by(self, groups: Groups | str | Sequence[str]) -> GroupVerdicts:
        """The test of each group alone, with p-values adjusted for all groups, by Holm.

        Groups are all combinations of the levels of the columns.  They share what is compiled.
        `evaluate(groups=)` finds segments with more power, where they are not known beforehand.

        Args:
            groups: columns ``[n]`` by their names, a dict or a frame, as in `segment_test`; or the
                names of columns among the `groups` of `evaluate`, one or a list, whose numbers
                are cut as in `segments`.

        Raises:
            TypeError, ValueError: groups are not what they should be.
        """
        columns: Any = [groups] if isinstance(groups, str) else groups
        if isinstance(columns, (list, tuple)):
            columns = columns_of_segments(self.groups, columns)

        def directions(data: Data) -> tuple[Direction, ...]:
            is_tempered = self.effect.best_temperature is not None
            return self._directions_of(data, float(fit_temperature(data)) if is_tempered else None)

        with jax.enable_x64(self.is_x64):
            rows = self.data, columns, self.level, N_RESAMPLES
            return verdicts_of_groups(self.random_keys.test, *rows, directions)

    def plot(self) -> Any:
        """All pictures in one figure of matplotlib, which notebooks show.

        Raises:
            ImportError: matplotlib is not installed; ``pip install 'calibjax[plot]'``.
        """
        from calibjax.evaluation._report._figures import overview

        with jax.enable_x64(self.is_x64):
            return overview(self)

    def to_html(self, path: str | Path | None = None, *, by: GroupVerdicts | None = None) -> str:
        """A report as the text of one HTML file, which is also written if a path is given.

        The same arguments of `evaluate` give the same text.

        Args:
            path: where it is written, or None.
            by: what `by` returns, for a table of the verdict of each group, or None.

        Raises:
            ImportError: matplotlib or jinja2 is not installed; ``pip install 'calibjax[report]'``.
        """
        for name in ("jinja2", "matplotlib"):
            if find_spec(name) is None:
                words = "to_html needs jinja2 and matplotlib: pip install 'calibjax[report]'"
                raise ModuleNotFoundError(words, name=name)
        from calibjax.evaluation._report._page import page

        self._compute("curves", "contributions", "recalibrations")
        with jax.enable_x64(self.is_x64):
            text = page(self, by)
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return text

    def to_dict(self) -> dict[str, Any]:
        """All numbers as Python floats, lists and strings, which `json` can write.

        NaN and infinity are None, and curves of more than 1000 points are thinned.
        """
        self._compute("curves", "contributions")
        return saved(self)

    def to_json(self, path: str | Path | None = None) -> str:
        """`to_dict` as JSON text, which is also written to a file if a path is given."""
        text = json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False, indent=1)
        if path is not None:
            # Letters without a code in UTF-8 become what JSON has for them.
            Path(path).write_text(text + "\n", encoding="utf-8", errors="backslashreplace")
        return text
