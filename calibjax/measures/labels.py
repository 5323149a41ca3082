"""Measures of predictions of labels, for the observed targets and for those that are drawn.

They are in NumPy: a program that computes all of them takes longer to compile than to run.  The
draws are those of `nulls`.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from calibjax._base.compile import bucket, filled_up
from calibjax._data.data import Data
from calibjax._data.row_columns import sampled
from calibjax._numbers.arithmetic import in_blocks
from calibjax.distributions import Bernoulli
from calibjax.estimators import UniformBinning, one_vs_rest, smooth_ece, top_label
from calibjax.measures.events import (
    EVENTS,
    EXPECTED,
    INTERCEPT,
    RATIO,
    SLOPE,
    auc,
    logits_of,
    regression_measures,
    spline_basis,
    total,
)
from calibjax.measures.measure import (
    OBSERVED,
    PREDICTED,
    Measure,
    MeasureResult,
    NumberOfRows,
    Subset,
    ratio_of_means,
)
from calibjax.nulls.on_host import drawn_labels, label_probabilities, under_model_on_host

#: The measures of events, in the order of tables.
EVENT_MEASURES = (
    *(PREDICTED, OBSERVED, EVENTS, EXPECTED, RATIO, INTERCEPT, SLOPE, "ICI", "E50", "E90"),
    *("log loss", "Brier score", "scaled Brier score", "ECE", "smooth ECE", "AUC"),
    "accuracy at 1/2",
)
# The sums that regressions of an event depend on, which are not a measure.
_SUMS = "sums"
# The bins of an ECE.
_BINNING = UniformBinning(10)


def as_event(data: Data) -> Data:
    """The probabilities of ECE and reliability diagrams, and whether the event occurred.

    For two labels it is the probability of 1, else that of the most likely label.
    """
    if data.predictions.n_labels == 2:
        return one_vs_rest(data, label=1)
    return top_label(data)


class LabelMeasure(NamedTuple):
    """A `Measure` of labels, whose columns are known for every label that a row may have.

    Args:
        tables: the columns of each row if its label is c, each of them ``[n, m]``.
        bins: which of b bins a row is in, ``[n, b]``: a column becomes one for each bin.
        options: those of `Measure`.
    """

    tables: Sequence[np.ndarray]
    bins: np.ndarray
    options: dict[str, Any]

    def columns(self, labels: np.ndarray) -> np.ndarray:
        """The columns ``[n, k]`` of some labels ``[n]``."""
        return np.stack([x[np.arange(len(x)), labels] for x in self.tables], axis=1) * self.bins


def label_measures(
    key: jax.Array, data: Data, groups: Sequence[Subset], n_resamples: int
) -> dict[str, NumberOfRows]:
    """Scores of labels, whether the most likely one is right, and the ECE of `as_event`.

    Draw r of a row depends only on (key, row, r).
    """
    n, (probabilities, weights) = data.n_kept(), label_probabilities(data)
    observed, held = np.asarray(data.targets)[:n], np.asarray(probabilities)[:n]
    event = np.ones(n, int) if held.shape[1] == 2 else held.argmax(axis=1)
    confidences = np.minimum(held[np.arange(n), event], 1)
    of_event = "" if held.shape[1] == 2 else "top-label "
    hits = (event[:, None] == np.arange(held.shape[1])).astype(np.float64)
    measures = {OBSERVED: LabelMeasure([hits], np.ones((n, 1)), {"is_share": True})}
    measures |= _scores(held.astype(np.float64), data.predictions.is_ordered)
    measures[f"{of_event}ECE"] = _ece(hits - confidences[:, None], confidences)
    if not of_event:
        logits = logits_of(held.astype(np.float64))
        measures |= _of_events(confidences, measures["Brier score"].tables[0])
        if len(groups) == 1:
            basis = spline_basis(logits[groups[0].index])
            of_rows = np.zeros((n, basis.shape[1]))
            of_rows[groups[0].index] = basis
            tables = [x[:, None] * np.array([0.0, 1.0]) for x in of_rows.T]
            measures[_SUMS] = LabelMeasure(tables, np.ones((n, 1)), {})
    draw = functools.partial(drawn_labels, key, np.asarray(sampled(probabilities, weights)))
    summed = [*measures.values()]
    if weights is not None:
        of_labels = np.asarray(weights, np.float64)[:n]
        summed = [x._replace(tables=[of_labels * table for table in x.tables]) for x in summed]
        summed.append(LabelMeasure([of_labels], np.ones((n, 1)), {}))
    means = under_model_on_host(_sums(summed, groups), draw, observed, n_resamples)
    if weights is not None:
        means = means[..., :-1] / means[..., -1:]
    is_known = weights is not None or not data.weights_depend_on_labels()
    found: dict[str, NumberOfRows] = {PREDICTED: Measure(confidences)}
    of_draws: dict[str, np.ndarray | None] = {}
    for name, x in measures.items():
        columns = x.columns(observed)
        drawn, means = np.split(means, [columns.shape[1]], axis=2)
        of_draws[name] = drawn if is_known else None
        found[name] = Measure(columns, drawn=of_draws[name], **x.options)

    if not of_event:
        sums = of_draws.get(_SUMS) if weights is None else None
        found |= regression_measures(logits, observed, None if sums is None else sums[:, 0])
        found |= {EVENTS: total(observed), "AUC": auc(confidences, observed)}
        found[EXPECTED] = total(confidences, of_draws[RATIO])

    # All groups share a program.
    size = bucket(max(rows.index.size for rows in groups))

    def smooth(rows: Subset) -> MeasureResult | None:
        if rows.index.size < 2:
            return None
        some, where = filled_up(rows.index, size), np.arange(size) < rows.index.size
        pairs = Bernoulli(confidences[some]), (observed == event)[some].astype(np.int32)
        weights = None if data.weights is None else np.asarray(data.weights)[some]
        return MeasureResult(float(smooth_ece(*pairs, where=where, weights=weights)))

    found[f"{of_event}smooth ECE"] = smooth
    return found if of_event else {name: found[name] for name in EVENT_MEASURES}


def _scores(probabilities: np.ndarray, is_ordered: bool) -> dict[str, LabelMeasure]:
    (n, n_classes), most_likely = probabilities.shape, probabilities.argmax(axis=1)
    is_event = n_classes == 2
    hits = (most_likely[:, None] == np.arange(n_classes)).astype(float)
    squared_norm = np.square(probabilities).sum(axis=1, keepdims=True)
    # Sum over classes of (p_c - 1{y = c})^2, of which (p - y)^2 of an event is one half.
    brier = (squared_norm - 2 * probabilities + 1) * (0.5 if is_event else 1)
    with np.errstate(divide="ignore"):
        log_loss = -np.log(probabilities)

    def mean(table: np.ndarray, most: float, **options: Any) -> LabelMeasure:
        return LabelMeasure([table], np.ones((n, 1)), {"possible": (0.0, most)} | options)

    found = {
        "accuracy at 1/2" if is_event else "accuracy": mean(hits, 1.0, is_share=True),
        "log loss": mean(log_loss, np.inf),
        "Brier score": mean(brier, 1.0 if is_event else 2.0),
    }
    if is_ordered:
        found["RPS"] = mean(_ranked_scores(probabilities), n_classes - 1.0)
    return found


def _of_events(probabilities: np.ndarray, brier: np.ndarray) -> dict[str, LabelMeasure]:
    """Measures of events that are functions of the means of y, p, and the Brier score."""
    every, label = np.ones((len(brier), 1)), np.array([0.0, 1.0])
    y, p = every * label, np.stack([probabilities] * 2, axis=1)

    @np.errstate(divide="ignore", invalid="ignore")
    def scaled(means: np.ndarray) -> np.ndarray:
        brier, variance = means[..., 0], means[..., 1] * (1 - means[..., 1])
        return np.where(variance > 0, 1 - brier / variance, np.nan)

    return {
        RATIO: LabelMeasure([y, p], every, {"function": ratio_of_means, "is_ratio": True}),
        "scaled Brier score": LabelMeasure([brier, y], every, {"function": scaled}),
    }


def _ece(residuals: np.ndarray, confidences: np.ndarray) -> LabelMeasure:
    """The sum over bins of |frequency - mean confidence|, each times the share of the bin."""
    ends = _BINNING.ends(np.arange(1, _BINNING.n_bins, dtype=confidences.dtype))
    bins = np.eye(_BINNING.n_bins)[np.searchsorted(ends, confidences)]

    def error(means: np.ndarray) -> np.ndarray:
        return np.abs(means).sum(axis=-1)

    options = {"function": error, "error": error, "has_interval": False}
    return LabelMeasure([residuals], bins, options)


def _sums(
    measures: Sequence[LabelMeasure], groups: Sequence[Subset]
) -> Callable[[np.ndarray, slice], np.ndarray]:
    """Parts of the means of all columns in each group: sums over some rows, ``[D, G, k]``."""
    n, n_classes = measures[0].tables[0].shape

    def of_events(targets: np.ndarray, at: slice) -> np.ndarray:
        """Columns are linear in a label of two."""
        slopes = _of_groups(targets.astype(float), of_one - of_zero, groups, at)
        return slopes + _of_groups(np.ones((1, targets.shape[1])), of_zero, groups, at)

    def of_classes(targets: np.ndarray, at: slice) -> np.ndarray:
        cells = n_classes * np.arange(targets.shape[1]) + targets
        parts = [
            _of_groups(table[at].ravel().take(cells), x.bins, groups, at)
            for x in measures
            for table in x.tables
        ]
        return np.concatenate(parts, axis=2)

    if n_classes > 2:
        return of_classes
    of_zero, of_one = (
        np.concatenate([x.columns(np.full(n, label)) for x in measures], axis=1) for label in (0, 1)
    )
    # Draws never have the probability 0, where scores are infinite.
    of_zero, of_one = (np.where(np.isfinite(x), x, 0.0) for x in (of_zero, of_one))
    return of_events


def _of_groups(
    values: np.ndarray, columns: np.ndarray, groups: Sequence[Subset], at: slice
) -> np.ndarray:
    """Parts of weighted means of products, of values ``[D, rows]`` and columns ``[n, k]``.

    They are the sums over those rows of each group that are among the rows `at`, ``[D, G, k]``.
    """
    found = []
    for group in groups:
        first, last = np.searchsorted(group.index, [at.start, at.stop])
        rows, shares = group.index[first:last], group.sampling.shares()[first:last]
        some = values if rows.size == values.shape[1] else values[:, rows - at.start]
        found.append(in_blocks(some, shares[:, None] * columns[rows]))
    return np.stack(found, axis=1)


def _ranked_scores(probabilities: np.ndarray) -> np.ndarray:
    """The ranked probability score of each row, if its label is c, ``[n, m]``.

    It is the sum of P(Y <= k)^2 over the k below c, and of P(Y > k)^2 over the others.
    """
    up_to = np.square(np.cumsum(probabilities, axis=1)[:, :-1])
    above = np.square(np.cumsum(probabilities[:, :0:-1], axis=1)[:, ::-1])
    none = np.zeros((len(probabilities), 1))
    of_lower = np.concatenate([none, np.cumsum(up_to, axis=1)], axis=1)
    return of_lower + np.concatenate([np.cumsum(above[:, ::-1], axis=1)[:, ::-1], none], axis=1)
