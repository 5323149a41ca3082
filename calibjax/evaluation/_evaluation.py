"""The result of `evaluate`: its sections, the verdict, and the sentence that a paper reports."""

import functools
import html
import json
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from calibjax._base.text import p_in_words, plain, working
from calibjax._data.distribution import Distribution
from calibjax.evaluation import _effect, _rows
from calibjax.evaluation._by_group import GroupVerdicts, verdicts_of_groups
from calibjax.evaluation._curves import CURVES, MAPS, WORST
from calibjax.evaluation._directions import DIRECTIONS
from calibjax.evaluation._groups import SEGMENTS
from calibjax.evaluation._recalibration_check import RECALIBRATION, RECALIBRATIONS
from calibjax.evaluation._section import N_RESAMPLES, Case, Section
from calibjax.evaluation._wording import table_of_numbers, with_interval
from calibjax.kernels.base import describe
from calibjax.measures.events import RATIO, SLOPE
from calibjax.measures.measure import MeasureResult
from calibjax.nulls.sampler import NullSampler
from calibjax.segments import Groups

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_WIDTH = 88
# What files have as the evaluation has it, beside its sections.
_SAVED = "verdict citation notes rejected pvalue level n family classes seed".split()


class Evaluation(Case):
    """The result of `evaluate`; it prints a summary.

    `evaluate` runs the test.  All else is computed when it is first asked for or printed, and kept.

    Args:
        data: the predictions, as a distribution, the observed targets, labels as ``0 … m-1``, how
            rows count, and what classes and rows are called.
        test: the result of `calibration_test`, with what each kernel says.
        level: the level; intervals hold with the confidence 1 - level.
        seed: the random seed.
        columns: other columns of a file, which may say which rows depend on each other.
        groups: the segments that are tested; None without groups.
        table: the frame or file whose rows these are; None for arrays.
        is_x64: whether numbers have 64 bits, which may be set for `evaluate` alone.

    Example:
        >>> import calibjax as cj
        >>> evaluation = cj.evaluate([[0.9, 0.1], [0.2, 0.8]] * 30, [1, 0] * 30)
        >>> evaluation.rejected, evaluation.pvalue, evaluation.n
        (True, 0.001, 60)
    """

    # The sections, in the order of the lines and notes that they add to what is printed.
    pvalue_of_neighbours = _rows.NEIGHBOUR_PVALUE
    neighbours = _rows.NEIGHBOURS
    n_effective = _rows.EFFECTIVE_ROWS
    n_censored = _rows.CENSORING
    zero_probability = _rows.ZERO_PROBABILITY
    segments = SEGMENTS
    skce = _effect.SKCE
    equivalent_temperature = _effect.EQUIVALENT_TEMPERATURE
    measures = _effect.MEASURES
    rank_histogram = _effect.RANK_HISTOGRAM
    best_temperature = _effect.BEST_TEMPERATURE
    directions = DIRECTIONS
    worst = WORST
    recalibration = RECALIBRATION
    _maps = MAPS
    curves = CURVES
    contributions = _rows.CONTRIBUTIONS
    recalibrations = RECALIBRATIONS

    @property
    def predictions(self) -> Distribution:
        """The n predictions."""
        return self.data.predictions

    @property
    def weights(self) -> np.ndarray | None:
        """The weights of the rows, ``[n]``; None if all are equal."""
        return None if self.data.weights is None else np.asarray(self.data.weights)

    @property
    def classes(self) -> list[Any] | None:
        """The names of the classes, or None."""
        return self.data.classes

    @property
    def family(self) -> str:
        """The name of the family of the predictions."""
        return type(self.predictions).__name__

    @property
    def units(self) -> str | None:
        """The independent units of the p-value, such as "60 clusters"; None for rows."""
        return _rows.rows_in_words(self.data)

    @functools.cached_property
    def verdict(self) -> str:
        """The result in up to three lines: whether, how far and where, and what fixes it."""
        with jax.enable_x64(self.is_x64):
            return verdict(self)

    @property
    def citation(self) -> str:
        """The result of the test and the size of the error with its interval, for a paper."""
        with jax.enable_x64(self.is_x64):
            return citation(self)

    @property
    def notes(self) -> list[str]:
        """What is omitted, and why intervals may be too narrow: few rows; mostly empty."""
        return [note for section in _SECTIONS.values() for note in section.notes(self)]

    def rows(self) -> list[tuple[str, MeasureResult]]:
        """The names and numbers of the printed table, in its order."""
        is_tested = self.why_not_tested is None
        units = self.units or "independent rows" if is_tested else "cannot be tested"
        first = MeasureResult(self.pvalue, n_draws=N_RESAMPLES)
        rows = (row for section in _SECTIONS.values() for row in section.rows(self))
        return [(f"p-value ({units})", first), *rows]

    def _compute(self, *others: str) -> None:
        """Computes the printed sections, and reports progress."""
        names = [name for name, x in _SECTIONS.items() if x.is_printed or name in others]
        with working(f"Evaluating {self.n} rows") as say:
            for k, name in enumerate(names):
                say(f"{'█' * k}{'░' * (len(names) - k)} {name}")
                getattr(self, name)

    def blocks(self) -> Iterator[str]:
        """What is printed: the verdict, which takes less time, and all else."""
        with working(f"Evaluating {self.n} rows"):
            said = self.verdict
        yield "\n".join(textwrap.fill(line, _WIDTH) for line in said.splitlines())
        self._compute()
        lines = ["", *table_of_numbers(self.rows(), self.level)]
        if self.segments is not None:
            lines += ["", repr(self.segments)]
        for note in *self.notes, f"To cite: {self.citation}":
            lines += ["", textwrap.fill(note, _WIDTH)]
        yield "\n".join(map(str.rstrip, lines))

    def __repr__(self) -> str:
        return "\n".join(self.blocks())

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(repr(self))}</pre>"

    def influential_rows(self, count: int = 10) -> np.ndarray:
        """The names of zero-probability rows, then of those with the largest contributions."""
        return self.row_names[self.influential_indices(count)]

    def influential_indices(self, count: int = 10) -> np.ndarray:
        """The indices of the same rows in `predictions` and `targets`, from 0.

        They differ from the names where rows with missing values were left out, and in files.
        """
        return _rows.CONTRIBUTIONS.largest(self, count)

    def by(self, groups: Groups | str | Sequence[str]) -> GroupVerdicts:
        """The test of each group alone, with p-values adjusted for all groups.

        Groups are all combinations of the levels of the columns.  They share what is compiled, and
        draws: each group is ranked among the largest scores of all groups in each draw (step-down),
        so that the least adjusted p-value is 1/1000 for any number of groups.
        `evaluate(groups=)` finds segments with more power, where they are not known beforehand.

        Args:
            groups: one or a list of names of columns of the frame or file that was evaluated, or
                among the `groups` of `evaluate` beside arrays; or columns ``[n]`` by their names, a
                dict or a frame, as in `segment_test`.

        Raises:
            TypeError, ValueError: groups are not what they should be.
        """
        with jax.enable_x64(self.is_x64):
            return verdicts_of_groups(self, [groups] if isinstance(groups, str) else groups)

    def plot(self) -> "Figure":
        """All plots in one figure of matplotlib, which notebooks show.

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
        with working("Drawing the report"), jax.enable_x64(self.is_x64):
            text = page(self, by)
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return text

    def to_dict(self) -> dict[str, Any]:
        """All numbers as Python floats, lists and strings, which `json` can write.

        NaN and infinity are None, and curves of more than 1000 points are thinned.
        """
        self._compute("curves", "contributions")
        kernels, names = self.test.kernels, ("kernel", "estimate", "score", "pvalue")
        assert kernels is not None
        columns = kernels.estimates, kernels.scores, kernels.pvalues
        lines = zip(map(describe, kernels.kernels), *columns, strict=True)
        found = {name: getattr(self, name) for name in _SAVED}
        found["kernels"] = [dict(zip(names, line, strict=True)) for line in lines]
        for section in _SECTIONS.values():
            found |= section.to_dict(self) if section.is_saved else {}
        return plain(found)

    def to_json(self, path: str | Path | None = None) -> str:
        """`to_dict` as JSON text, which is also written to a file if a path is given."""
        text = json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False, indent=1)
        if path is not None:
            # Letters without a code in UTF-8 become what JSON has for them.
            Path(path).write_text(text + "\n", encoding="utf-8", errors="backslashreplace")
        return text


_SECTIONS: dict[str, Section[Any]] = {
    name: x for name, x in vars(Evaluation).items() if isinstance(x, Section)
}


def verdict(case: Case) -> str:
    """Whether the model is calibrated; its overall error, and where it is worst; what corrects it.

    Each of the three is a line.  If the rows without targets of probability 0 are not rejected, no
    other error is reported.
    """
    rows, units = f"n = {case.n}", _rows.rows_in_words(case.data)
    if case.data.predictions.n_labels == 2:
        rows += f", {int(np.sum(np.asarray(case.data.targets) == 1))} events"
    rows += "" if units is None else f", {units}"
    if case.data.is_censored:
        rows += f", {_rows.CENSORING.of(case)} censored"
    if case.why_not_tested is not None:
        return _lines(f"Calibration {case.why_not_tested}", rows)
    found = f"({p_in_words(case.pvalue, N_RESAMPLES)}, {rows})"
    if case.rejected:
        sections = DIRECTIONS, SEGMENTS, WORST, _rows.ZERO_PROBABILITY
        details = [section.clause(case) for section in sections]
        check = RECALIBRATION.of(case)
        advice = [RECALIBRATION.advice(case)]
        if check is None or not check.helps:
            advice.append(SEGMENTS.advice(case))
        return _lines(f"Not calibrated {found}", _joined(details), _joined(advice))
    zero, segments = _rows.ZERO_PROBABILITY.clause(case), SEGMENTS.clause(case)
    if segments is not None:
        whole = f"No overall miscalibration detected {found}"
        return _lines(whole, _joined([zero, segments]), SEGMENTS.advice(case))
    if zero is not None:
        others = f"No other miscalibration detected {found}"
        return _lines(f"{zero}, which is impossible under a calibrated model", others)
    return _lines(f"No miscalibration detected {found}", _effect.BEST_TEMPERATURE.clause(case))


def _joined(clauses: Iterable[str | None]) -> str:
    return "; ".join(filter(None, clauses))


def _lines(*sentences: str | None) -> str:
    """Each sentence on a line, with a capital letter and a full stop."""
    return "\n".join(f"{x[0].upper()}{x[1:].removesuffix('.')}." for x in sentences if x)


def citation(case: Case) -> str:
    """The test, and the size of the error with its interval, as a paper reports them."""
    if case.why_not_tested is not None:
        return f"Calibration {case.why_not_tested}; n = {case.n}."
    skce, rejected = _effect.SKCE.of(case), "rejected" if case.rejected else "not rejected"
    drawn = f"{N_RESAMPLES} {NullSampler.of(case.data).describe(case.data)}"
    test = f"{'exact ' * case.test.is_exact}aggregated kernel test, {drawn}"
    size = with_interval("{}", skce.value, skce.interval, case.level)
    size += "" if skce.value >= 0 else "; this unbiased estimator can be negative"
    found = p_in_words(case.pvalue, N_RESAMPLES)
    return _lines(
        f"Calibration was {rejected} ({test}, {found}, n = {case.n})",
        *(_risk_in_words(case) or [DIRECTIONS.clause(case)]),
        f"The squared kernel calibration error (default kernel) was {size}",
    ).replace("\n", " ")


def _risk_in_words(case: Case) -> list[str | None]:
    """Observed / expected and the slope of events, as clinical papers report them."""
    ratio, slope = (_effect.MEASURES.of(case).get(name) for name in (RATIO, SLOPE))
    if ratio is None or ratio.interval is None:
        return []
    low, high = ratio.interval
    clear = "over" if high < 1 else "under" if low > 1 else ""
    risk = f"The model {clear}-estimated risk" if clear else "On average, risk agreed with events"
    said: list[str | None] = [f"{risk}: {_effect.ratio_in_words(ratio, case.level)}"]
    if slope is not None and slope.interval is not None:
        said.append(_effect.slope_in_words(slope, case, f"The {SLOPE} was {{}}"))
    return said
