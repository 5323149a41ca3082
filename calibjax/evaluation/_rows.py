"""What rows say: few rows, weights, dependence and censoring, and those that matter most."""

import dataclasses
import math
from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._base.struct import widest_dtype
from calibjax._base.text import named_rows, p_in_words, percent
from calibjax._data.capabilities import KnownLevels
from calibjax._data.data import Data, Rows
from calibjax._data.distribution import Labels
from calibjax._data.interval_censored import IntervalCensored, Targets
from calibjax._data.padding import padded
from calibjax.distributions import SurvivalCurve
from calibjax.estimators import contributions
from calibjax.evaluation import _serial_dependence as serial
from calibjax.evaluation._section import N_RESAMPLES, Case, Section
from calibjax.expectations import default_kernel
from calibjax.hypothesis_tests import calibration_test
from calibjax.intervals.rare_events import FEW_EVENTS, expected_rare_events
from calibjax.measures.families import log_scores
from calibjax.measures.measure import MeasureResult
from calibjax.measures.risk_by_time import Lifetimes
from calibjax.measures.sampling import Sampling
from calibjax.nulls.ranks import as_multiple
from calibjax.scores import pit_interval

# With fewer clusters or stretches of a horizon, only large errors are detectable.
_FEW_CLUSTERS, _FEW_STRETCHES = 10, 8
# With fewer rows intervals of means, and of the SKCE, miss more often than they say.
_FEW_ROWS = 50
# The p-value may be too small if a larger share of rows is censored between two times of a curve
# that falls by more than this between them.
_MOST_INSIDE, _LARGE_CELL = 0.05, 0.1
# The p-value up to which censoring is reported to depend on the predicted risk.
_DEPENDENT_CENSORING = 0.01
# Maximum number of rows whose contributions are computed: they need all pairs.
_MOST_CONTRIBUTIONS = 20_000


def rows_in_words(data: Data) -> str | None:
    """How many clusters or times there are, such as "60 clusters"; None if rows are independent."""
    if not data.is_dependent:
        return None
    return data.describe_units() + (f", horizon {data.horizon:g}" if data.horizon else "")


def notes_on_rows(data: Data) -> list[str]:
    """Why intervals may be too narrow, and what does not allow for weights and dependence."""
    found, units = [], rows_in_words(data)
    if data.n < _FEW_ROWS:
        found.append(
            f"Few rows (fewer than {_FEW_ROWS}): intervals of the SKCE and means may be too narrow."
        )
    if data.weights is not None:
        left_out = "temperatures, recalibrations and influential rows"
        maps = f"Error maps and the worst cells are unweighted; {left_out}"
        if data.weights_depend_on_labels():
            maps = f"Error maps, worst cells, {left_out}"
        found.append(f"Weights: the p-value, measures and curves use them. {maps} are omitted.")
    if data.weights_depend_on_labels() and data.outcome_weights is None:
        found.append(
            "Weights depend on the outcome: no weight occurs with two labels. The p-value is "
            "approximate. For an exact one, pass the weight of each row under every label, a "
            "column for each label, such as w_none,w_event."
        )
    if units is not None:
        found.append(
            f"Dependent rows ({units}): the p-value, the intervals above and the bands of "
            "reliability, PIT and coverage allow for it. The CORP curve, error maps and worst "
            "cells assume independent rows. Recalibration was not tried."
        )
    found += notes_on_few_units(data)
    if data.is_censored:
        return found
    # A data set may lack a rare event by chance: the model's expectation counts as well.
    rows = padded(Rows(data.predictions))
    expected, observed = float(expected_rare_events(None, (rows.predictions, rows.where))), math.inf
    # Where no number has a positive probability, nothing is a rare event.
    if math.isfinite(expected):
        # All but the most common target.
        observed = data.n - int(np.unique(np.asarray(data.targets), return_counts=True)[1].max())
    if min(expected, observed) < FEW_EVENTS:
        differ = "target differs" if observed == 1 else "targets differ"
        found.append(
            f"Few events: {observed} {differ} from the most common one, {expected:.2g} are "
            "expected to differ from the most probable one. Intervals may be too narrow, "
            "especially where no events were observed."
        )
    return found


def notes_on_few_units(data: Data) -> list[str]:
    """Whether there are too few clusters or stretches of a horizon to learn much from."""
    number, least = data.n_stretches(), _FEW_STRETCHES
    if number is not None:
        words = f"stretches ({number:.1f} of the horizon {data.horizon or 1:g}"
    elif data.is_dependent:
        number, least = data.n_units(), _FEW_CLUSTERS
        words = f"{data.describe_units().split()[-1]} ({number}"
    if number is None or number >= least:
        return []
    return [f"Few {words}, fewer than {least}): only large errors are detectable."]


def notes_on_independence(
    key: jax.Array, data: Data, columns: list[serial.Column], option: Callable[[str], str]
) -> list[str]:
    """Warnings as those of `evaluate`: dependent rows; few clusters or horizons.

    Args:
        key: a key of `jax.random`.
        data: predictions and targets, of which rows may be known to depend on each other.
        columns: others, which may say which rows depend on each other.
        option: how users write the name of an argument.
    """
    if data.is_dependent:
        return notes_on_few_units(data) + serial.notes_on_horizon(key, data)
    data = padded(data)
    of_rows = serial.neighbour_dependence_test(key, data)
    return serial.notes_on_order(of_rows, serial.neighbours_in_columns(key, data, columns), option)


class _NeighbourPvalue(Section[float | None]):
    """The p-value of a test whether neighbouring rows are independent.

    None with clusters or times, for vectors, and for fewer than 50 rows.
    """

    def compute(self, case: Case) -> float | None:
        if case.data.is_dependent:
            return None
        return serial.neighbour_dependence_test(case.random_keys.neighbours, case.padded)


class _Neighbours(Section[tuple[serial.Column, ...]]):
    """The same in the order of other columns of a file, of dates and of names."""

    def compute(self, case: Case) -> tuple[serial.Column, ...]:
        if case.data.is_dependent:
            return ()
        return serial.neighbours_in_columns(case.random_keys.neighbours, case.padded, case.columns)

    def notes(self, case: Case) -> list[str]:
        return serial.notes_on_order(NEIGHBOUR_PVALUE.of(case), self.of(case), case.option)

    def to_dict(self, case: Case) -> dict[str, Any]:
        return {"pvalues_of_neighbours_in": {x.name: x.pvalue for x in self.of(case)}}


class _EffectiveRows(Section[float | None]):
    """(sum w)^2 / sum w^2 of the weights w; None without weights."""

    def compute(self, case: Case) -> float | None:
        return None if case.data.weights is None else Sampling.of_data(case.data).n_effective()

    def rows(self, case: Case) -> Iterable[tuple[str, MeasureResult]]:
        n = self.of(case)
        words = f"(Σ w)² / Σ w² of {case.n} rows with weights w"
        return () if n is None else (("effective sample size", MeasureResult(n, note=words)),)

    def notes(self, case: Case) -> list[str]:
        key = case.random_keys.neighbours
        return notes_on_rows(case.data) + serial.notes_on_horizon(key, case.padded)

    def to_dict(self, case: Case) -> dict[str, Any]:
        return {
            "n_effective": self.of(case),
            "assumes": rows_in_words(case.data) or "independent rows",
            "horizon": case.data.horizon or None,
        }


NEIGHBOUR_PVALUE, NEIGHBOURS, EFFECTIVE_ROWS = _NeighbourPvalue(), _Neighbours(), _EffectiveRows()


class _Censoring(Section[int]):
    """The number of targets that are not known exactly."""

    def compute(self, case: Case) -> int:
        return n_censored(case.data.targets)

    def notes(self, case: Case) -> list[str]:
        is_known = not case.data.is_censored
        return [] if is_known else [note_on_censoring(case.data), *_note_on_risks(case.padded)]


CENSORING = _Censoring()


def n_censored(targets: Targets) -> int:
    """How many targets are not known exactly."""
    if not isinstance(targets, IntervalCensored):
        return 0
    return int(np.sum(np.asarray(targets.low) != np.asarray(targets.high)))


def note_on_censoring(data: Data) -> str:
    """What an evaluation lacks because only intervals of targets are known."""
    targets, share = data.targets, _share_in_large_cells(data)
    if targets.censored_at is not None:
        said = "The p-value redraws targets and censors them at the times of their rows."
    elif share <= _MOST_INSIDE:
        said = "The p-value needs no censoring model; it is asymptotically valid."
    else:
        said = (
            f"A small p-value may be too small: {percent(share, 0)} of rows are censored between "
            f"two times of a curve that falls by more than {_LARGE_CELL:g}, where it is taken to "
            "be linear. Give curves at more times, or the planned censoring time of every row "
            "(censored_at)."
        )
    return (
        f"Censored targets: {n_censored(targets)} of {len(targets.low)}. {said} Omitted, as "
        "they need the target of every row: coverage, CRPS, temperature, recalibration, error maps."
    )


def _note_on_risks(data: Data) -> list[str]:
    """Where censoring depends on the predicted risk, which biases what assumes that it does not."""
    lifetimes = Lifetimes.of(data) if data.is_plain else None
    if lifetimes is None or (pvalue := lifetimes.pvalue_of_censoring()) > _DEPENDENT_CENSORING:
        return []
    return [
        f"Censoring depends on the predicted risk ({p_in_words(pvalue)}): Kaplan-Meier risks, "
        "observed / expected and the integrated Brier score may be biased. The p-values of times "
        "are valid."
    ]


def _share_in_large_cells(data: Data) -> float:
    """The share of rows that are censored between two times of a curve that falls much there."""
    curves, targets = data.samples
    if not isinstance(curves, SurvivalCurve):
        return 0.0
    above, at, rows = np.asarray(curves.probs), np.asarray(targets.low), np.arange(data.n)
    falls = -np.diff(above, axis=1, prepend=1.0, append=above[:, -1:])
    ends = np.pad(np.asarray(curves.times), ((0, 0), (0, 1)), constant_values=np.inf)
    cells = np.sum(np.asarray(curves.times) < at[:, None], axis=1)
    is_inside = np.isposinf(targets.high) & (at > 0) & (at < ends[rows, cells])
    return float(np.mean(is_inside & (falls[rows, cells] > _LARGE_CELL)))


@dataclasses.dataclass(frozen=True)
class ZeroProbability:
    """The rows whose targets had the probability 0; one of them may decide a test.

    Args:
        rows: what they are called: their numbers in what was given, from 0, or in a file.
        pvalue_without: the p-value of `calibration_test` without them; None if all rows were not
            rejected, or too few are left.
    """

    rows: np.ndarray
    pvalue_without: float | None = None


class _ZeroProbability(Section[ZeroProbability]):
    """The rows whose targets had the probability 0."""

    def compute(self, case: Case) -> ZeroProbability:
        indices = zero_probability_rows(case.padded)
        found = ZeroProbability(case.row_names[indices])
        if not (case.rejected and 2 <= case.n - len(indices) < case.n):
            return found
        others = np.arange(case.padded.n) < case.n
        others[indices] = False
        possible = case.padded.replace(where=jax.device_put(others))
        without = calibration_test(case.random_keys.test, possible, n_resamples=N_RESAMPLES)
        return dataclasses.replace(found, pvalue_without=as_multiple(without.pvalue, N_RESAMPLES))

    def is_all(self, case: Case) -> bool:
        """Whether they explain the rejection: the model is not rejected without these rows."""
        return (self.of(case).pvalue_without or 0.0) > case.level

    def leaves_error(self, case: Case) -> bool:
        """Whether the whole model is wrong, and not only in these rows; targets are known."""
        return case.rejected and not (case.data.is_censored or self.is_all(case))

    def clause(self, case: Case) -> str | None:
        """How many rows there are, which, and the p-value without them; None if there are none."""
        found, predictions = self.of(case), case.data.predictions
        pvalue, n = found.pvalue_without, len(found.rows)
        if n == 0:
            return None
        zero = "probability 0"
        if isinstance(predictions, SurvivalCurve):
            zero += ", before the curve falls or after it has reached 0"
        elif not isinstance(predictions, Labels):
            least = float(jnp.finfo(widest_dtype(*jax.tree.leaves(predictions))).tiny)
            kind = "probability" if predictions.target_kind == "integer" else "density"
            zero = f"{kind} 0 or less than {least:.2g}"
        target, it = ("target", "it") if n == 1 else ("targets", "them")
        without = "" if pvalue is None else f"; without {it} {p_in_words(pvalue, N_RESAMPLES)}"
        said = f"{n} observed {target} had predicted {zero}"
        if isinstance(predictions, Labels):
            certain = np.asarray(predictions.label_probabilities()).max(axis=1) == 1
            wrong = int(np.isin(case.row_names[certain], found.rows).sum())
            if wrong == n:
                were = "was" if n == 1 else "were"
                said = f"{n} of {certain.sum()} predictions with probability 1 {were} wrong"
        return f"{said} ({named_rows(found.rows)}){without}"

    def to_dict(self, case: Case) -> dict[str, Any]:
        found = self.of(case)
        return {
            "zero_probability_rows": found.rows,
            "pvalue_without_zero_probability_rows": found.pvalue_without,
        }


ZERO_PROBABILITY = _ZeroProbability()


class _Contributions(Section[np.ndarray | None]):
    """How much each row contributes to the SKCE, ``[n]``.

    None above 20 000 rows, for targets that are not known exactly, and for rows with weights.
    Contributions need all pairs, and their mean is the unbiased SKCE with the default kernel.
    """

    is_printed = False

    def compute(self, case: Case) -> np.ndarray | None:
        if case.data.is_censored or case.data.weights is not None or case.n > _MOST_CONTRIBUTIONS:
            return None
        data = padded(case.data.replace(clusters=None, times=None))
        return np.asarray(contributions(default_kernel(data), data))[: case.n]

    def largest(self, case: Case, count: int = 10) -> np.ndarray:
        """The indices of rows of probability 0, and then of those that contribute most."""
        has_zero = np.isin(case.row_names, ZERO_PROBABILITY.of(case).rows)
        shares = self.of(case)
        if shares is None:
            return np.flatnonzero(has_zero)[:count]
        return np.argsort(-np.where(has_zero, np.inf, shares), kind="stable")[:count]

    def to_dict(self, case: Case) -> dict[str, Any]:
        return {"influential_rows": case.row_names[self.largest(case)]}


CONTRIBUTIONS = _Contributions()


def zero_probability_rows(data: Data) -> np.ndarray:
    """The kept rows with an infinite log score: of probability 0, or of less than can be held.

    Quantiles say nothing about densities beyond the last of them.  An estimated survival curve
    falls at the times of its own data: a target between two of them does not refute it, but one
    does that comes before the curve falls at all, or after it has reached 0.
    """
    scores = None if isinstance(data.predictions, KnownLevels) else log_scores(data)
    if scores is None:
        return np.empty(0, int)
    has_zero = np.isposinf(scores)
    if isinstance(data.predictions, SurvivalCurve):
        low, high = (np.asarray(x)[: data.n_kept()] for x in pit_interval(data))
        has_zero &= (high <= 0) | (low >= 1)
    return np.flatnonzero(has_zero)
