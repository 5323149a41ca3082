"""The result of `evaluate`."""

import dataclasses
import functools
import html
import json
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._data import Between, Data, Dependence, Distribution, padded
from calibjax.estimators import contributions
from calibjax.evaluation._curves import curves_of
from calibjax.evaluation._dependence import INDEPENDENT, rows_in_words
from calibjax.evaluation._direction import Direction
from calibjax.evaluation._directions_by_family import directions_of
from calibjax.evaluation._effect import Effect
from calibjax.evaluation._groups import GroupVerdicts, columns_of_segments, verdicts_of_groups
from calibjax.evaluation._keys import keys_of
from calibjax.evaluation._metrics import Measure
from calibjax.evaluation._recalibration_check import RecalibrationCheck, recalibration_checks
from calibjax.evaluation._remarks import Impossible, impossible_rows, remarks
from calibjax.evaluation._serial_dependence import Neighbours, remarks_on_order
from calibjax.evaluation._summary import saved, sentence, summary, verdict
from calibjax.expectations import default_kernel
from calibjax.hypothesis_tests import CalibrationTestResult
from calibjax.intervals import Sampling
from calibjax.recalibration import fit_temperature
from calibjax.segments import Groups, SegmentTestResult

# Contributions need all pairs, and nobody reads so many rows.
_MAX_CONTRIBUTIONS = 20_000


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Evaluation:
    """What `evaluate` found out about predictions; it prints a summary.

    Args:
        pvalue: the p-value of `calibration_test`.
        level: the level; intervals hold with the confidence 1 - level.
        test: the result of `calibration_test`, with what each kernel says.
        effect: the SKCE with its interval, and the temperatures that say how much it is.
        directions: which way the whole model is wrong, "too low" or "too sure", where that is clear
            beyond chance and the model is rejected; the main one first.
        measures: accuracy, scores and classical calibration errors, by their names.
        impossible: the rows whose targets came although the model gave them the probability 0.
        data: the predictions, as a distribution, the observed targets, labels as ``0 … m-1``, and
            how rows count.
        worst: where the model is wrong most of all, in words, if that is known.
        classes: the names of the classes, or None.
        seed: what all random numbers came from.
        row_names: what each row is called, ``[n]``: its number among the rows that were given, from
            0; of a text file its line, and of several files both number and file.
        dependence: the clusters as integers, or the times, as numbers or days, and the horizon.
        pvalue_of_neighbours: that of a test whether rows next to each other are independent of each
            other; None with clusters or times, for vectors, and for fewer than 50 rows.
        neighbours: the same in the order of other columns of a file, of dates and of names.
        segments: the result of `segment_test` of the groups; None without groups.
        recalibration: what a map does to rows that did not fit it, ``method``, the mean log
            scores of labels or the CRPS of numbers, ``before`` and ``after``, and the ``pvalue``
            after it; None unless labels, quantiles, samples or normal predictions are rejected, for
            fewer than 200 rows or 10^5 and more, and for rows that have weights or depend on each
            other.

    Example:
        >>> import calibjax as cj
        >>> evaluation = cj.evaluate([[0.9, 0.1], [0.2, 0.8]] * 30, [1, 0] * 30)
        >>> evaluation.rejected, evaluation.pvalue, evaluation.n
        (True, 0.001, 60)
    """

    pvalue: float
    level: float
    test: CalibrationTestResult
    effect: Effect
    directions: tuple[Direction, ...]
    measures: dict[str, Measure]
    impossible: Impossible
    data: Data
    worst: str | None
    classes: list[Any] | None
    seed: int
    row_names: np.ndarray
    dependence: Dependence = INDEPENDENT
    pvalue_of_neighbours: float | None = None
    neighbours: tuple[Neighbours, ...] = ()
    segments: SegmentTestResult | None = None
    recalibration: RecalibrationCheck | None = None

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

    @functools.cached_property
    def verdict(self) -> str:
        """The result in one sentence."""
        with self._precision():
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
        return found + remarks(self.data, self.dependence)

    @property
    def units(self) -> str | None:
        """What the p-value takes for independent of each other, "60 clusters"; None for rows."""
        return rows_in_words(self.dependence)

    @property
    def n_effective(self) -> float | None:
        """(sum w)^2 / sum w^2 of the weights w; None without weights."""
        return None if self.weights is None else Sampling.of_data(self.data).n_effective()

    @property
    def family(self) -> str:
        """The name of the family of the predictions."""
        return type(self.predictions).__name__

    @property
    def is_redrawn(self) -> bool:
        """Whether the test compares with targets drawn from the predictions, so that p is exact."""
        return self.test.method.endswith("draws from the model")

    @property
    def data_sets_under_h0(self) -> str:
        """What the test compares the targets with, in words."""
        if self.is_redrawn:
            return "targets drawn from the predictions"
        return "the observed errors with random signs and sizes"

    @property
    def _n_resamples(self) -> int:
        assert self.test.null_distribution is not None
        return len(self.test.null_distribution)

    def _precision(self) -> AbstractContextManager[Any]:
        """64 bits if the predictions have them: people may set 64 bits for `evaluate` alone."""
        arrays = (x for x in jax.tree.leaves(self.predictions) if isinstance(x, jax.Array))
        return jax.enable_x64(any(x.dtype == jnp.float64 for x in arrays))

    def __repr__(self) -> str:
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

    @functools.cached_property
    def curves(self) -> dict[str, Any]:
        """What the pictures show, by name, each with arrays as fields.

        The names are "reliability", "corp" and "witness" for labels, with "pit" for Ordinal ones,
        and "pit", "coverage" and "residuals" for numbers; they are the functions of calibjax that
        made them.  There are none of targets that are not known exactly.
        """
        if isinstance(self.targets, Between):
            return {}
        with self._precision():
            key, data = keys_of(self.seed).curves, padded(self.data)
            return curves_of(key, data, 1 - self.level, self._n_resamples)

    @functools.cached_property
    def contributions(self) -> np.ndarray | None:
        """How much each row contributes to the SKCE, ``[n]``; None above 20 000 rows, for
        targets that are not known exactly, and for rows with weights.

        They need all pairs, and their mean is the unbiased SKCE with the default kernel.
        """
        if isinstance(self.targets, Between) or self.weights is not None:
            return None
        if self.n > _MAX_CONTRIBUTIONS:
            return None
        with self._precision():
            data = padded(Data.unchecked(*self.data.samples))
            return np.asarray(contributions(default_kernel(data), data))[: self.n]

    @functools.cached_property
    def recalibrations(self) -> list[RecalibrationCheck]:
        """Would a few numbers mend it?  Recalibrations, judged on rows that did not fit them.

        They are a temperature, and the method that is best on average, for families that have
        these.  There are none for few rows, for targets that are not known exactly, and for rows
        that have weights or depend on each other.
        """
        if isinstance(self.targets, Between) or self.units or self.weights is not None:
            return []
        with self._precision():
            return recalibration_checks(keys_of(self.seed).test, self.data, self._n_resamples)

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
        names = [groups] if isinstance(groups, str) else groups
        if isinstance(names, (list, tuple)):
            columns: Groups = columns_of_segments(self.segments, names)
        else:
            columns = cast("Groups", names)

        def directions(data: Data) -> tuple[Direction, ...]:
            best = self.effect.best_temperature
            if best is not None:
                best = float(fit_temperature(data))
            rows = impossible_rows(data)
            return directions_of(keys.measures, data, best, rows, self.level, self.classes)

        with self._precision():
            keys = keys_of(self.seed)
            rows = self.data, columns, self.level, self._n_resamples
            return verdicts_of_groups(keys.test, *rows, directions)

    def plot(self) -> Any:
        """All pictures in one figure of matplotlib, which notebooks show.

        Raises:
            ImportError: matplotlib is not installed; ``pip install 'calibjax[plot]'``.
        """
        from calibjax.evaluation._report._figures import overview

        with self._precision():
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
        from calibjax.evaluation._report._page import page

        with self._precision():
            text = page(self, by)
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return text

    def to_dict(self) -> dict[str, Any]:
        """All numbers as Python floats, lists and strings, which `json` can write.

        NaN and infinity are None, and curves of more than 1000 points are thinned.
        """
        return saved(self)

    def to_json(self, path: str | Path | None = None) -> str:
        """`to_dict` as JSON text, which is also written to a file if a path is given."""
        text = json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False, indent=1)
        if path is not None:
            # Letters without a code in UTF-8 become what JSON has for them.
            Path(path).write_text(text + "\n", encoding="utf-8", errors="backslashreplace")
        return text
