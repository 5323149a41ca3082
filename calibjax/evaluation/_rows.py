"""What is said of few rows, weights, rows that depend on each other, and censored targets."""

import math
from collections.abc import Callable, Iterable
from typing import Any

import jax
import numpy as np

from calibjax._data.data import Data, Rows
from calibjax._data.interval_censored import Between, Targets
from calibjax._data.padding import padded
from calibjax.distributions import SurvivalCurve
from calibjax.evaluation import _serial_dependence as serial
from calibjax.evaluation._section import Case, Section
from calibjax.intervals.rare_events import FEW_EVENTS, expected_rare_events
from calibjax.measures.measure import MeasureResult
from calibjax.measures.sampling import Sampling

# Minimum numbers of clusters and of horizons: with fewer, tests at the level 0.05 reject almost no
# calibrated model, and so have no power.
_FEW_CLUSTERS, _FEW_HORIZONS = 8, 10
# With fewer rows intervals of means, and of the SKCE, miss more often than they say.
_FEW_ROWS = 50
# The p-value may be too small if a larger share of rows is censored between two times of a curve
# that falls by more than this between them.
_MOST_INSIDE, _LARGE_CELL = 0.05, 0.1


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
            f"Few rows: with fewer than {_FEW_ROWS}, intervals of the SKCE and of means may be too "
            "narrow."
        )
    if data.weights is not None:
        found.append(
            "Weights: the p-value, the numbers and the curves know them. Maps, and where it is "
            "worst, count every row once; temperatures, recalibrations and rows that contribute "
            "most are left out."
        )
    if units is not None:
        found.append(
            f"Dependent rows, {units}: the p-value, the intervals above, and the bands of "
            "reliability, PIT and coverage allow for it. The CORP curve, maps, and where it is "
            "worst, assume independent rows; recalibrations are left out."
        )
    return found + notes_on_few_units(data) + _notes_on_few_events(data)


def _notes_on_few_events(data: Data) -> list[str]:
    """Whether targets differ, or are expected to, so rarely that intervals may be too narrow."""
    if isinstance(data.targets, Between):
        return []
    # Data that happen to lack a rare event look as if there were none: the model counts, too.
    rows = padded(Rows(data.predictions))
    expected = float(expected_rare_events(None, (rows.predictions, rows.where)))
    # Where no number has a positive probability, nothing is a rare event.
    observed = math.inf
    if math.isfinite(expected):
        # All but the most common target.
        observed = data.n - int(np.unique(np.asarray(data.targets), return_counts=True)[1].max())
    if min(expected, observed) >= FEW_EVENTS:
        return []
    differ = "target differs" if observed == 1 else "targets differ"
    return [
        f"Few events: {observed} {differ} from the most common one, and {expected:.2g} are "
        "expected not to be the most probable one; intervals may be too narrow, above all "
        "where none came."
    ]


def notes_on_few_units(data: Data) -> list[str]:
    """Whether there are too few clusters or horizons to learn much from."""
    if data.times is not None:
        is_few = np.ptp(np.asarray(data.times)) < _FEW_HORIZONS
        words = f"horizons: where times span fewer than {_FEW_HORIZONS},"
    elif data.clusters is not None and data.horizon is None:
        is_few = (data.n_units() or 0) < _FEW_CLUSTERS
        words = f"clusters: with fewer than {_FEW_CLUSTERS},"
    else:
        return []
    return [f"Few {words} tests find only large errors, and intervals are wide."] if is_few else []


def notes_on_independence(
    key: jax.Array, data: Data, columns: list[serial.Column], option: Callable[[str], str]
) -> list[str]:
    """Warnings as those of `evaluate`: rows that depend on each other; few clusters or horizons.

    Args:
        key: a key of `jax.random`.
        data: predictions and targets, of which rows may be known to depend on each other.
        columns: others, which may say which rows depend on each other.
        option: how users write the name of an argument.
    """
    if data.is_dependent:
        return notes_on_few_units(data)
    data = padded(data)
    of_rows = serial.neighbour_dependence_test(key, data)
    return serial.notes_on_order(of_rows, serial.neighbours_in_columns(key, data, columns), option)


class _NeighbourPvalue(Section[float | None]):
    """The p-value of a test whether rows next to each other are independent of each other.

    None with clusters or times, for vectors, and for fewer than 50 rows.
    """

    def compute(self, case: Case) -> float | None:
        if case.data.is_dependent:
            return None
        return serial.neighbour_dependence_test(case.random_keys.neighbours, case.padded)


class _Neighbours(Section[tuple[serial.Neighbours, ...]]):
    """The same in the order of other columns of a file, of dates and of names."""

    def compute(self, case: Case) -> tuple[serial.Neighbours, ...]:
        if case.data.is_dependent:
            return ()
        key = case.random_keys.neighbours
        return serial.neighbours_in_columns(key, case.padded, case.columns)

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
        return () if n is None else (("effective rows", MeasureResult(n, note=words)),)

    def notes(self, case: Case) -> list[str]:
        return notes_on_rows(case.data)

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
        is_known = not isinstance(case.data.targets, Between)
        return [] if is_known else [note_on_censoring(case.data)]

    def to_dict(self, case: Case) -> dict[str, Any]:
        return {"n_hidden": self.of(case)}


CENSORING = _Censoring()


def n_censored(targets: Targets) -> int:
    """How many targets are not known exactly."""
    if not isinstance(targets, Between):
        return 0
    return int(np.sum(np.asarray(targets.low) != np.asarray(targets.high)))


def note_on_censoring(data: Data) -> str:
    """What an evaluation lacks because only intervals of targets are known."""
    targets, share = data.targets, _share_in_large_cells(data)
    if targets.censored_at is not None:
        said = "The p-value draws targets and censors them as their rows would be censored."
    elif share <= _MOST_INSIDE:
        said = "The p-value needs no law of the censoring, and is right for many rows."
    else:
        said = (
            f"The p-value may be too small: {share:.0%} of rows are censored between two times of "
            f"a curve with a probability above {_LARGE_CELL:g} between them, where S is taken to "
            "be linear. Give curves at more times, or censored_at of all rows."
        )
    return (
        f"Censored targets: of {n_censored(targets)} of {len(targets.low)} an interval is known. "
        f"{said} Coverage, CRPS, temperatures, recalibrations and pictures of errors need exact "
        "targets and are left out."
    )


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
