"""The result of a test of segments: a sentence and a table, and all that is in them."""

import dataclasses
import math
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.typing import ArrayLike

from calibjax._base.struct import is_array, is_traced, static, struct
from calibjax._base.text import first_of, listed, p_in_words, percent, pvalue_text, text_table
from calibjax.nulls.ranks import rank_of_level
from calibjax.segments._effects import NOT_SHARES, Effects, Partition, effects_of, in_words
from calibjax.segments._segment_sums import SegmentSums
from calibjax.segments._segments import LEAST_ROWS

# Intervals and expected ranges hold for all segments and statistics with this probability.
_CONFIDENCE = 0.95
_SHOWN = 10


class Range(NamedTuple):
    """Two ends, both included."""

    low: float
    high: float


@dataclasses.dataclass(frozen=True)
class Segment:
    """One statistic of one segment.

    Args:
        name: the segment in words, such as "north, lead time 3".
        conditions: the level of each column, none for all rows.
        n: the number of rows.
        n_effective: (sum w)^2 / sum w^2, which is n if all rows weigh the same.
        statistic: "rate" and "calibration slope" of events; "class 0", …, "top label" and
            "calibration slope" of classes; "location", "spread" and "coverage" of numbers.
        observed: frequencies as they are; of a slope about the factor by which logits should be
            multiplied, one step of Newton from 1 to the most likely one: far from 1 it says which
            way, and not how far; of location the shift in predicted SDs; of spread the ratio
            of what was observed, around the location of the segment, to what was predicted, both as
            if forecasts were normal; of coverage the share of central intervals that hold their
            target, of 90 % or of the two levels of quantiles that are nearest to it.
        predicted: what a calibrated model has on average, in the same units.
        value: observed - predicted.
        interval: of the value; all intervals hold the true values with a probability of 95 %.
            It holds 0 if and only if pvalue > 0.05.  Those of calibration slope and location take
            the variance that the model says: where the spread is wrong too, see its own interval.
        expected: the range of `observed` if the model is calibrated, with 95 % for all at once.
        score: nearly standard normal if the model is calibrated.
        pvalue: adjusted for all segments and statistics.
        description: the error, such as "over-dispersive: predicted spread 18 % too large".

    Example:
        >>> import jax, numpy as np, calibjax as cj
        >>> predictions, night = cj.Bernoulli(np.full(200, 0.5)), np.arange(200) % 2 == 0
        >>> result = cj.segment_test(jax.random.key(0), predictions, night, {"night": night})
        >>> worst = result.segments[0]
        >>> worst.conditions, worst.n, worst.observed, worst.predicted, round(worst.interval.low, 2)
        ({'night': 'False'}, 100, 0.0, 0.5, -0.5)
    """

    name: str
    conditions: dict[str, str]
    n: int
    n_effective: float
    statistic: str
    observed: float
    predicted: float
    value: float
    interval: Range
    expected: Range
    score: float
    pvalue: float
    description: str

    @property
    def expected_text(self) -> str:
        """The range `expected` as text, in % for shares."""
        if self.statistic in NOT_SHARES:
            return f"{self.expected.low:.3g} … {self.expected.high:.3g}"
        low, high = map(percent, self.expected)
        return f"{low.removesuffix(' %')} … {high}"

    def __str__(self) -> str:
        return f"{self.name}, {self.description}, n = {self.n}"


class Names(NamedTuple):
    """What the segments of a test are called, and made of.

    Args:
        segments: of each segment, in words.
        conditions: pairs of a column and its level for each segment, in words.
        statistics: of each statistic.
        levels: pairs of a column and all its levels, in words.
        left_out: columns that make no segments, each with the reason.
        cut: columns of whole numbers that are cut at their quartiles, and that may be names.
        partition: in which pieces of the unit line the PIT is known, as `OwnPIT.pit_partition`.
        classes: the names of the classes, or None.
    """

    segments: tuple[str, ...]
    conditions: tuple[tuple[tuple[str, str], ...], ...]
    statistics: tuple[str, ...]
    levels: tuple[tuple[str, tuple[str, ...]], ...]
    left_out: tuple[tuple[str, str], ...]
    cut: tuple[str, ...]
    partition: Partition | None
    classes: tuple[Any, ...] | None


@struct
class SegmentTestResult:
    """The result of `segment_test`; it prints a sentence and a table.

    It is a pytree: it can leave jit, and vmap over data sets returns one result with arrays.

    Args:
        statistic: the largest absolute score.
        pvalue: the p-value of the test that the model is calibrated in all segments; the least of
            the adjusted p-values.
        null_distribution: the largest absolute score of each data set under H0, ``[n_resamples]``.
        sums: the sums behind `segments`, ``[S, J]`` for S segments and J statistics.
        n_rows: the number of rows of each segment, ``[S]``.
        codes: the level of each column of groups, -1 for rows that do not count, ``[n, C]``.
        names: what segments and statistics are called.
        method: the test and its options, in words.

    Example:
        >>> import jax, jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Bernoulli(jnp.full(400, 0.3))
        >>> targets, region = jnp.arange(400) % 4 == 0, ["north", "south"] * 200
        >>> result = cj.segment_test(jax.random.key(0), predictions, targets, {"region": region})
        >>> [segment.name for segment in result.rejected()], result.segments[0].description
        (['south', 'north'], 'risk over-estimated (predicted 30.0 %, observed 0.0 %)')
    """

    statistic: jax.Array
    pvalue: jax.Array
    null_distribution: jax.Array
    sums: SegmentSums
    n_rows: ArrayLike
    codes: ArrayLike
    names: Names = static()
    method: str = static(default="")

    @property
    def segments(self) -> list[Segment]:
        """All statistics of all segments with enough variance, the smallest p-values first."""
        sums = jax.tree.map(np.asarray, self.sums)
        critical, found = self.critical(_CONFIDENCE), []
        for j, statistic in enumerate(self.names.statistics):
            with np.errstate(all="ignore"):
                effects = effects_of(statistic, sums, j, critical, self.names.partition)
            tested = np.flatnonzero(sums.is_tested[:, j])
            found += [self._segment(sums, effects, int(s), j) for s in tested]
        return sorted(found, key=lambda x: (x.pvalue, -abs(x.score)))

    def _segment(self, sums: SegmentSums, effects: Effects, s: int, j: int) -> Segment:
        observed, predicted, low, high, *expected = (float(x[s]) for x in effects)
        statistic, pvalue = self.names.statistics[j], float(sums.pvalues[s, j])
        is_chance = pvalue > 1 - _CONFIDENCE
        return Segment(
            name=self.names.segments[s],
            conditions=dict(self.names.conditions[s]),
            n=int(np.asarray(self.n_rows)[s]),
            n_effective=float(sums.total[s] ** 2 / sums.squares[s]),
            statistic=statistic,
            observed=observed,
            predicted=predicted,
            value=observed - predicted,
            interval=Range(low - predicted, high - predicted),
            expected=Range(*expected),
            score=float(sums.scores[s, j]),
            pvalue=pvalue,
            description=in_words(statistic, observed, predicted, self.names.classes, is_chance),
        )

    def critical(self, confidence_level: float) -> float:
        """The largest absolute score that is chance, in all segments and statistics at once."""
        draws = np.sort(np.asarray(self.null_distribution, np.float64))
        rank = min(rank_of_level(confidence_level, draws.size), draws.size)
        return float(draws[rank - 1])

    def rejected(self, level: float = 0.05) -> list[Segment]:
        """What is not chance: with a probability of 1 - level, none of it is a false alarm."""
        # A p-value of single precision may be an ulp above the level that it is.
        return [x for x in self.segments if x.pvalue <= level * (1 + 1e-6)]

    def rows(self, segment: Segment) -> np.ndarray:
        """The numbers of the rows of a segment."""
        codes = np.asarray(self.codes)
        is_member = np.all(codes != _NO_ROW, axis=1)
        of_columns = {name: (c, levels) for c, (name, levels) in enumerate(self.names.levels)}
        for name, level in segment.conditions.items():
            column, levels = of_columns[name]
            is_member &= codes[:, column] == levels.index(level)
        return np.flatnonzero(is_member)

    @property
    def n_segments(self) -> int:
        """How many segments have enough variance for a test."""
        return int(np.sum(np.any(np.asarray(self.sums.is_tested), axis=1)))

    @property
    def too_small(self) -> dict[str, list[str]]:
        """The levels of each column that have too few rows, or events, for a test of their own."""
        tested = np.any(np.asarray(self.sums.is_tested), axis=1)
        is_tested = dict(zip(self.names.conditions, tested.tolist(), strict=False))
        codes, found = np.asarray(self.codes), {}
        for c, (name, levels) in enumerate(self.names.levels):
            counts = np.bincount(codes[codes[:, c] != _NO_ROW, c], minlength=len(levels))
            # A level with the rows of another column's level is tested there.
            found[name] = [
                level
                for level, n in zip(levels, counts, strict=True)
                if not is_tested.get(((name, level),), n >= LEAST_ROWS)
            ]
        return {name: levels for name, levels in found.items() if levels}

    def notes(self) -> list[str]:
        """Which columns and levels are not tested and why, and which whole numbers are cut."""
        small = [
            f"not tested (too few rows): {name} {first_of(levels, _SHOWN)}"
            for name, levels in self.too_small.items()
        ]
        small += [f"not tested: {name} {reason}" for name, reason in self.names.left_out]
        if self.names.cut:
            words = "as numbers; if they name things, pass texts"
            small.append(f"cut at quartiles: {listed(self.names.cut)}, {words}")
        return small

    def verdict(self, level: float = 0.05) -> str:
        """The first segment, or that none is significant."""
        if not self.n_segments:
            return "No segment has enough rows for a test."
        segments = self.segments
        if math.isnan(segments[0].pvalue):
            return "Segments cannot be tested."
        found = self.adjusted(segments[0])
        if not self.rejected(level):
            return f"No significant segment: smallest {found}."
        return f"Clearest segment: {segments[0]}, {found}."

    def adjusted(self, segment: Segment) -> str:
        """A p-value, and what it is adjusted for."""
        tests, n = f"{np.sum(np.asarray(self.sums.is_tested))} tests", self.n_segments
        words = f"adjusted for {tests} of {n} segment{'s' if n > 1 else ''}"
        return f"{p_in_words(segment.pvalue, self._n_draws())} {words}"

    def _n_draws(self) -> int:
        return np.shape(self.null_distribution)[-1]

    def to_dict(self) -> dict[str, Any]:
        """Numbers, strings, lists and dicts of Python, as JSON takes them."""
        return {
            "method": self.method,
            "statistic": float(self.statistic),
            "pvalue": float(self.pvalue),
            "n_segments": self.n_segments,
            "left_out": dict(self.names.left_out),
            "too_small": self.too_small,
            "segments": [
                dataclasses.asdict(x) | {"interval": [*x.interval], "expected": [*x.expected]}
                for x in self.segments
            ],
        }

    def __repr__(self) -> str:
        if is_traced(self) or not is_array(self.pvalue) or np.ndim(self.pvalue) != 0:
            batch = getattr(self.pvalue, "shape", None)
            return f"SegmentTestResult({self.method}; pvalue of shape {batch})"
        shown = self.segments[:_SHOWN]
        range_ = f"simultaneous {100 * _CONFIDENCE:g} % range if calibrated"
        rows = [("segment", "rows", "deviation", range_, "z", "adjusted p")]
        for x in shown:
            score, pvalue = f"{x.score:.1f}", pvalue_text(x.pvalue, self._n_draws())
            rows.append((x.name, str(x.n), x.description, x.expected_text, score, pvalue))
        lines, n_rejected = text_table(rows, "<><<><"), len(self.rejected())
        if n_rejected < len(shown) and not math.isnan(shown[0].pvalue):
            lines.insert(1 + n_rejected, "not significant:")
        n_left = sum(map(int, np.asarray(self.sums.is_tested).ravel())) - len(shown)
        notes = [f"and {n_left} more tests"] if n_left else []
        return "\n".join([self.verdict(), f"({self.method})", "", *lines, *notes, *self.notes()])


#: The code of rows that do not count.
_NO_ROW = -1
