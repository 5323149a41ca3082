r"""The result of a test of segments: how large errors are, in words and units that people read.

Scores between -c and c are chance in all segments at once.  They belong to sums between z_- and z_+
in units of the model's deviation d.  With the sum S of a segment, its weight W and its information
I = sum w E r^2, the error and its interval are

- of a frequency with the mean prediction p: observed o = p + S / W.  The interval holds the q with
  z_- <= (o - q) / (k sqrt(q (1 - q))) <= z_+, where k sqrt(p (1 - p)) = d / W, as that of Wilson;
- of a slope, or a location: S / I, with the interval (S - z d) / I;
- of the spread: the ratio t of what is observed to what is predicted, t^2 = 1 + sqrt(2) S / I.  The
  interval holds the t with z_- d / I <= (t_observed^2 / t^2 - 1) / sqrt(2) <= z_+ d / I.

S / I is one step of Newton to the most likely slope, location or log of the spread.  Each interval
holds what is predicted if and only if the score is between -c and c.

Of ensembles and quantiles S / I of location and spread is between z d / I, and
`in_units_of_forecast` brings all of these to units of the forecast.

For this the intervals of slopes and locations take the deviation d that the model says.  Where the
spread of the segment is wrong as well, they are too narrow or too wide by this factor, and hold the
true value less or more often than they promise.

**Units of the forecast.**  The normal score z of a target is the mean over a piece of the unit
line:

- of an ensemble, the target is one of S + 1 values of which any may be the target, and the pieces
  are those between k / (S + 1);
- of quantiles, the pieces are those between the levels.

No score is larger than that of the last piece, so that targets d deviations too high have a mean
score below d, and of a spread that is t times too small less is seen than t.  With a normal
distribution of forecasts and targets, d and t, each alone, are known from the mean scores that they
give,

    m(d) = E sum_k P(k | d + t X) m_k,

where m_k is the mean score of the piece k, X is standard normal, and P(k | y) is the probability
that a target y falls into the piece: among S standard normal members, with their cdf F, it is
C(S, k) F(y)^k (1 - F(y))^{S-k}; between quantiles it is 0 or 1.

Reference: Wilson, Probable inference, the law of succession, and statistical inference, Journal of
the American Statistical Association 1927.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.typing import ArrayLike

from calibjax._base.struct import is_array, is_traced, static, struct
from calibjax._base.text import class_name, shares_in_words, text_table, told_apart
from calibjax.resampling import rank_of_level
from calibjax.segments._segment_sums import SegmentSums, sums_at
from calibjax.segments._segments import LEAST_ROWS

# Of larger shifts and factors, and of smaller factors, pieces say hardly more.
_MOST_SHIFT, _MOST_FACTOR, _NO_FACTOR, _GRID = 6.0, 20.0, 1e-6, 301
_X = np.linspace(-8.0, 8.0, 401)
_Y = np.linspace(-14.0, 14.0, 701)

#: What is known of a PIT: a rank among so many members, or between which levels it is.
Pieces = int | tuple[float, ...]


def in_units_of_forecast(statistic: str, steps: np.ndarray, pieces: Pieces) -> np.ndarray:
    """Shifts in deviations of the forecast, or ratios of deviations, from steps S / I."""
    return np.interp(steps, *_sizes(pieces)[statistic])


@functools.lru_cache(maxsize=8)
def _sizes(pieces: Pieces) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Increasing steps that the pieces show, and sizes of the forecast that give them."""
    from scipy.special import ndtri

    if isinstance(pieces, int):
        cuts, means = np.arange(1, pieces + 1) / (pieces + 1), means_of_ranks(pieces)
    else:
        cuts, means = np.asarray(pieces), _means_of_levels(ndtri(pieces))
    ends = ndtri(np.concatenate([[0.0], cuts, [1.0]]))
    widths = np.diff(cuts, prepend=0.0, append=1.0)
    density = np.exp(-np.square(ends) / 2) / np.sqrt(2 * np.pi)
    product = np.where(density > 0, ends, 0.0) * density
    # The means of z and of (z^2 - 1) / sqrt(2) over each piece.
    scores = -np.stack([np.diff(density), np.diff(product) / np.sqrt(2)]) / widths
    of_location, of_spread = scores / (np.square(scores) @ widths)[:, None]
    shifts = np.linspace(-_MOST_SHIFT, _MOST_SHIFT, _GRID)
    factors = np.append(_NO_FACTOR, np.geomspace(1 / _MOST_FACTOR, _MOST_FACTOR, _GRID))
    locations = means(of_location, shifts, np.ones_like(shifts))
    spreads = means(of_spread, np.zeros_like(factors), factors)
    factors[0] = 0.0
    return {"location": (locations, shifts), "spread": (spreads, factors)}


#: Means of scores of the pieces ``[K + 1]`` by shifts and factors ``[G]``, ``[G]``.
Means = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]


def means_of_ranks(n_members: int) -> Means:
    """E s_k of the rank k of d + t X among S standard normal members."""
    from scipy.special import gammaln, log_ndtr

    k = np.arange(n_members + 1)
    counts = gammaln(n_members + 1) - gammaln(k + 1) - gammaln(n_members - k + 1)
    below, above = log_ndtr(_Y)[:, None], log_ndtr(-_Y)[:, None]
    of_y = np.exp(counts + k * below + (n_members - k) * above)
    weights = np.exp(-np.square(_X) / 2)
    weights /= weights.sum()

    def means(scores: np.ndarray, shifts: np.ndarray, factors: np.ndarray) -> np.ndarray:
        y = shifts[:, None] + factors[:, None] * _X
        return np.interp(y, _Y, of_y @ scores) @ weights

    return means


def _means_of_levels(quantiles: np.ndarray) -> Means:
    """The same of the cell between K quantiles of a standard normal distribution."""
    from scipy.special import ndtr

    def means(scores: np.ndarray, shifts: np.ndarray, factors: np.ndarray) -> np.ndarray:
        below = ndtr((quantiles - shifts[:, None]) / factors[:, None])
        return np.diff(below, prepend=0.0, append=1.0) @ scores

    return means


# Factors of logits between this one and its inverse are stated.
_LEAST_FACTOR = 0.75


class Effects(NamedTuple):
    """What was observed of some statistics, and ranges, arrays of one shape.

    Args:
        observed: in the units of `predicted`.
        predicted: what a calibrated model has on average.
        low, high: the interval of the true value.
        expected_low, expected_high: the range of `observed` if the model is calibrated.
    """

    observed: np.ndarray
    predicted: np.ndarray
    low: np.ndarray
    high: np.ndarray
    expected_low: np.ndarray
    expected_high: np.ndarray


def effects_of(
    statistic: str, sums: SegmentSums, j: int, critical: float, pieces: Pieces | None = None
) -> Effects:
    """The effects of statistic j in all segments; `critical` is c.

    Of ensembles and quantiles, whose PITs are known in pieces, sizes become those of the forecast.
    """
    total = np.asarray(sums.total, np.float64)
    observed_sums, variance, skewness, information, p = (
        np.asarray(x[:, j], np.float64)
        for x in (sums.sums, sums.variance, sums.skewness, sums.information, sums.predicted)
    )
    deviation = np.sqrt(variance)
    least, most = (sums_at(c, skewness) * deviation for c in (-critical, critical))
    if pieces is not None and statistic in ("spread", "location"):
        step, least, most = (s / information for s in (observed_sums, least, most))
        steps = step, step - most, step - least, least, most
        observed, *ends = (in_units_of_forecast(statistic, x, pieces) for x in steps)
        return Effects(observed, p, *ends)
    if statistic == "spread":
        square, least, most = (
            np.maximum(1 + np.sqrt(2) * s / information, 0.0) for s in (observed_sums, least, most)
        )
        low, high = (np.sqrt(square / np.where(s > 0, s, np.nan)) for s in (most, least))
        high = np.where(least > 0, high, np.inf)
        return Effects(np.sqrt(square), p, low, high, np.sqrt(least), np.sqrt(most))
    if statistic in ("calibration slope", "location"):
        step, least, most = (s / information for s in (observed_sums, least, most))
        observed = p + step
        return Effects(observed, p, observed - most, observed - least, p + least, p + most)
    observed = np.clip(p + observed_sums / total, 0.0, 1.0)
    of_variance = p * (1 - p)
    low, high = (
        _end(observed, np.square(s / total) / np.where(of_variance > 0, of_variance, np.nan), sign)
        for s, sign in ((most, -1), (least, 1))
    )
    expected = (np.clip(p + s / total, 0.0, 1.0) for s in (least, most))
    return Effects(observed, p, low, high, *expected)


def _end(observed: np.ndarray, a: np.ndarray, sign: int) -> np.ndarray:
    """The root q of (o - q)^2 = a q (1 - q) below or above o."""
    root = np.sqrt(a * (a + 4 * observed * (1 - observed)))
    return np.clip((2 * observed + a + sign * root) / (2 * (1 + a)), 0.0, 1.0)


def in_words(
    statistic: str,
    observed: float,
    predicted: float,
    classes: Sequence[Any] | None = None,
    is_chance: bool = False,
) -> str:
    """The error as part of a sentence; a slope by chance is only a number."""
    if statistic == "calibration slope":
        if is_chance:
            return f"calibration slope {observed:.2g}"
        # Farther from 1 a step of Newton goes too far, or not far enough.
        if not _LEAST_FACTOR <= observed <= 1 / _LEAST_FACTOR:
            return "strongly over-confident" if observed < 1 else "strongly under-confident"
        words = "over-confident" if observed < 1 else "under-confident"
        factor, _ = told_apart(observed, 1.0, 2)
        return f"{words}, logits should be about {factor} times as large"
    if statistic == "location":
        words = "higher" if observed > 0 else "lower"
        return f"targets {abs(observed):.2g} predicted deviations {words}"
    if statistic == "spread":
        if observed <= 0:
            return "predicted spread much too large"
        change, words = (1 - 1 / observed, "small") if observed > 1 else (1 / observed - 1, "large")
        percent = f"{100 * change:.{0 if change >= 0.01 else 1}f}"
        return f"predicted spread {percent} % too {words}"
    if statistic == "coverage":
        return f"{100 * predicted:.0f} % intervals hold {100 * observed:.0f} %"
    shares = shares_in_words(predicted, observed, "")
    if statistic == "top label":
        words = "over" if observed < predicted else "under"
        return f"{words}-confident (the most likely class: {shares})"
    of_class = "" if statistic == "rate" else f" for {class_name(classes, int(statistic[6:]))}"
    return f"too {'low' if observed > predicted else 'high'}{of_class} ({shares})"


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
            way, and not how far; of location the shift in predicted deviations; of spread the ratio
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
        words: the error in words, such as "predicted spread 18 % too small".

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
    words: str

    def __str__(self) -> str:
        return f"{self.name}: {self.words}, {self.n} rows, p = {self.pvalue:.3g}"


class Names(NamedTuple):
    """What the segments of a test are called, and made of.

    Args:
        segments: of each segment, in words.
        conditions: pairs of a column and its level for each segment, in words.
        statistics: of each statistic.
        levels: pairs of a column and all its levels, in words.
        left_out: columns that make no segments, each with the reason.
        pieces: in which pieces of the unit line the PIT is known, as `Distribution.pieces_of_pit`.
        classes: the names of the classes, or None.
    """

    segments: tuple[str, ...]
    conditions: tuple[tuple[tuple[str, str], ...], ...]
    statistics: tuple[str, ...]
    levels: tuple[tuple[str, tuple[str, ...]], ...]
    left_out: tuple[tuple[str, str], ...]
    pieces: Pieces | None
    classes: tuple[Any, ...] | None


@struct
class SegmentTestResult:
    """The result of `segment_test`; printed, it is a sentence and a table.

    It is a pytree: it can leave jit, and vmap over data sets returns one result with arrays.

    Args:
        statistic: the largest absolute score.
        pvalue: the p-value of the test that the model is calibrated in all segments; the least of
            the adjusted p-values.
        null_distribution: the largest absolute score of each data set under H0, ``[n_resamples]``.
        sums: what `segments` are made of, ``[S, J]`` for S segments and J statistics.
        n_rows: the number of rows of each segment, ``[S]``.
        codes: the level of each column of groups, -1 for rows that do not count, ``[n, C]``.
        names: what segments and statistics are called.
        method: the test and its options, in words.

    Example:
        >>> import jax, jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Bernoulli(jnp.full(400, 0.3))
        >>> targets, region = jnp.arange(400) % 4 == 0, ["north", "south"] * 200
        >>> result = cj.segment_test(jax.random.key(0), predictions, targets, {"region": region})
        >>> [segment.name for segment in result.rejected()], result.segments[0].words
        (['south', 'north'], 'too high (predicted 30.0%, observed 0.0%)')
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
                effects = effects_of(statistic, sums, j, critical, self.names.pieces)
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
            words=in_words(statistic, observed, predicted, self.names.classes, is_chance),
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
        """Which columns and levels are not tested, a line for each column with the reason."""
        n_levels = {name: len(levels) for name, levels in self.names.levels}
        small = [
            f"{len(levels)} of {n_levels[name]} levels of {name} have too few rows to tell: "
            f"{first_of(levels, _SHOWN)}"
            for name, levels in self.too_small.items()
        ]
        return small + [f"{name} is left out: it {reason}" for name, reason in self.names.left_out]

    def sentence(self, level: float = 0.05) -> str:
        """The first segment, or that none is beyond chance."""
        n = self.n_segments
        if n == 0:
            return "No segment has enough rows for a test."
        segments, words = self.segments, "segment" if n == 1 else "segments"
        if segments[0].pvalue > level * (1 + 1e-6):
            return f"No segment is beyond chance: p = {segments[0].pvalue:.3g} after {n} {words}."
        return f"{segments[0]} after {n} {words}."

    def to_dict(self) -> dict[str, Any]:
        """Numbers, strings, lists and dicts of Python, as JSON takes them."""
        return {
            "method": self.method,
            "statistic": float(self.statistic),
            "pvalue": float(self.pvalue),
            "n_segments": self.n_segments,
            "left_out": dict(self.names.left_out),
            "too_small": self.too_small,
            "segments": [dataclasses.asdict(x) | _as_lists(x) for x in self.segments],
        }

    def __repr__(self) -> str:
        if is_traced(self) or not is_array(self.pvalue) or np.ndim(self.pvalue) != 0:
            batch = getattr(self.pvalue, "shape", None)
            return f"SegmentTestResult({self.method}; pvalue of shape {batch})"
        shown = self.segments[:_SHOWN]
        rows = [("segment", "rows", "error", "if calibrated", "score", "p")]
        for x in shown:
            expected = f"{x.expected.low:.3g} … {x.expected.high:.3g}"
            rows.append((x.name, str(x.n), x.words, expected, f"{x.score:.1f}", f"{x.pvalue:.3g}"))
        lines = text_table(rows, "<><<><")
        n_left = sum(map(int, np.asarray(self.sums.is_tested).ravel())) - len(shown)
        notes = [f"and {n_left} more"] if n_left else []
        return "\n".join([self.sentence(), f"({self.method})", "", *lines, *notes, *self.notes()])


#: The code of rows that do not count.
_NO_ROW = -1


def first_of(names: Sequence[object], most: int, separator: str = ", ") -> str:
    """The first names, and how many more there are."""
    n_more = len(names) - most
    shown = separator.join(map(str, names[:most]))
    return shown + (f" and {n_more} more" if n_more > 0 else "")


def _as_lists(segment: Segment) -> dict[str, list[float]]:
    return {"interval": list(segment.interval), "expected": list(segment.expected)}
