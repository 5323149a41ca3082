"""All models of a hub in one table: is each of them calibrated, and which one better?"""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
import polars as pl

from calibjax._base.text import listed, plain, pvalue_text, text_table
from calibjax._data.data import Data
from calibjax._data.distribution import Labels
from calibjax.distributions import Quantiles
from calibjax.evaluation import (
    BIAS_LABEL,
    Evaluation,
    aligned_numbers,
    notes_on_few_units,
    numbers_with_intervals,
)
from calibjax.hub._read_hub import ORIGINS, with_days
from calibjax.hypothesis_tests import calibration_test
from calibjax.intervals import compare_calibration
from calibjax.measures.measure import Measure, MeasureResult, Subset
from calibjax.measures.quantiles import are_in_pairs, pinball_losses
from calibjax.nulls.ranks import holm
from calibjax.scores import crps, log_score

# Names of measures, beside the score, and of their columns.
_MEASURES = {
    "bias": "bias",
    "coverage of 50 % intervals": "50 % coverage",
    "coverage of 90 % intervals": "90 % coverage",
}
# The score of each kind of forecasts: the name of the measure, and its function of rows.
_SCORES: dict[str, tuple[str, Callable[..., Any]]] = {
    "WIS": ("weighted interval score", lambda *rows: 2 * pinball_losses(*rows)),
    "CRPS": ("CRPS", crps),
    "log loss": ("log loss", log_score),
}
_LEVEL = 0.95
_COLUMNS = "difference", "low", "high", "pvalue"
_HEADS = dict(low="CI low", high="CI high", pvalue="adjusted p", bias=BIAS_LABEL)
#: Numbers by model, and for each model by name.
Numbers = dict[str, dict[str, float]]


@dataclasses.dataclass(frozen=True)
class HubTable:
    """What `hub_table` found; it prints the tables.

    Args:
        models: for each model, of all its own forecasts, their number ``n``; the mean score, WIS of
            quantiles, CRPS of other numbers or log loss of categories; ``relative WIS``, the mean
            score over that of the reference, on the tasks that all models have; of numbers the
            bias and the coverage of central 50 % and 90 % intervals; and the p-value ``p`` of
            `calibration_test`.
        common: by measure, the score, and SKCE if there are several models: the ``value`` of each
            model on the tasks that all models have.  All but the reference have ``difference``,
            model minus reference, negative if the model is better, ``low`` and ``high``, the
            ends of its 95 % interval, and ``pvalue``, adjusted for all models; not where a score is
            infinite.
        n_common: the number of these tasks.
        dependence: which forecasts may depend on each other, in words.
        groups: with `by`, the numbers of `models` for each group, on the tasks that all models
            have; p-values are adjusted for all groups of a model.
        notes: warnings, such as few stretches of the horizon.
        n_resamples: the number of data sets that p-values of `models` and of SKCE are from.
    """

    models: Numbers
    common: dict[str, Numbers]
    n_common: int
    dependence: str
    groups: dict[str, Numbers] = dataclasses.field(default_factory=dict)
    notes: tuple[str, ...] = ()
    n_resamples: int = 999

    def to_dict(self) -> dict[str, Any]:
        """The same as numbers and texts, for JSON, where infinity is a text."""
        return plain(dataclasses.asdict(self), says_infinity=True)

    def __repr__(self) -> str:
        n, reference = self.n_resamples, [*self.models][0]
        tasks = f"the {self.n_common} tasks that all models forecast"
        lines = [*_table(["model"], self.models, n), f"p: calibration test; {self.dependence}."]
        lines.append(f"Relative to {reference}: ratio of means on {tasks}.")
        lines += self.notes
        if self.groups:
            lines += ["", f"By group, on {tasks}; p-values adjusted for all groups of a model:"]
            both = {
                (group, x): row for group, rows in self.groups.items() for x, row in rows.items()
            }
            lines += [*_table(["group", "model"], both, 999), ""]
        if len(self.models) > 1:
            lines += [f"On {tasks}; SKCE by one kernel for all, so that it depends on the models;"]
            lines += [f"difference = model minus {reference}, negative is better; 95 % CI:"]
        for measure, rows in self.common.items():
            lines += _table([measure], rows, n if measure == "SKCE" else None)
        return "\n".join(lines)


def _table(titles: list[str], rows: Mapping[Any, Any], n_draws: int | None) -> list[str]:
    """A line for each row, with its names below the titles, and a column for each number."""
    columns = max(map(list, rows.values()), key=len)
    numbers = {x: [row.get(x, math.nan) for row in rows.values()] for x in columns}
    ends = [(row.get("low", math.nan), row.get("high", math.nan)) for row in rows.values()]

    def texts(x: str) -> list[str]:
        if x in ("p", "pvalue"):
            # P-values of differences are two-sided: twice the share of the larger resamples.
            return [pvalue_text(y, n_draws, 1 if x == "p" else 2) for y in numbers[x]]
        if x in _COLUMNS:
            return numbers_with_intervals(numbers[x], ends)
        return aligned_numbers(numbers[x])

    names = zip(*([x] if isinstance(x, str) else x for x in rows), strict=True)
    lines = zip(*names, *map(texts, columns), strict=True)
    heads = [*titles, *(_HEADS.get(x, x) for x in columns)]
    return text_table([heads, *lines], "<" * len(titles) + ">" * len(columns))


def hub_table(
    key: jax.Array,
    hub: Mapping[str, Data],
    *,
    reference: str | None = None,
    by: str | Sequence[str] = (),
    n_resamples: int = 999,
    on_progress: Callable[[str], None] = lambda name: None,
) -> HubTable:
    """Tests of all models of a hub, and comparisons with a reference model.

    Every model is tested by `calibration_test` on all of its forecasts.  On the tasks that all
    models have it is compared with the reference: calibration errors by `compare_calibration`, and
    mean scores, which say who predicts better, by Student's interval of their difference. Forecasts
    about times that are closer than the horizon of `Data` may depend on each other.

    Args:
        key: a key of ``jax.random``.
        hub: forecasts by model, as `read_hub` returns them: `groups` name the task of each row.
        reference: the model that the others are compared with; None for the first of the hub.
        by: a column of the tasks, or several, such as ``["horizon", "location"]``: each combination
            of their levels is a group, with the numbers of each model and a p-value from 999 data
            sets, adjusted for all groups of a model.
        n_resamples: the number of data sets that other p-values come from, at least 39.
        on_progress: called with the name of each model before its test, which may take minutes.

    Returns:
        HubTable; print it.

    Raises:
        ValueError: the model or column does not exist, all forecasts were made on one day, or
            models have no task in common.

    Complexity: that of `calibration_test` for each model and each group, and of
    `compare_calibration`.

    Example:
        >>> import jax, numpy as np, calibjax as cj
        >>> from calibjax.hub import hub_table
        >>> rng = np.random.default_rng(0)
        >>> x = rng.normal(size=200)
        >>> y, tasks = x + rng.normal(size=200), {"day": np.arange(200).astype(str)}
        >>> hub = {
        ...     name: cj.Data(cj.Normal(x, scale), y).replace(groups=tasks)
        ...     for name, scale in (("calibrated", 1.0), ("too narrow", 0.4))
        ... }
        >>> table = hub_table(jax.random.key(0), hub, n_resamples=199)
        >>> table.models["too narrow"]["p"] < 0.01, table.models["calibrated"]["p"] < 0.01
        (True, False)

    Reference: see `calibration_test` and `compare_calibration`.
    """
    names = list(hub)
    if reference is not None and reference not in hub:
        raise ValueError(f"reference must be one of {listed(names)}, got {reference}.")
    names.sort(key=lambda name: name != reference)
    hub, by = {name: hub[name] for name in names}, [by] if isinstance(by, str) else by
    for column in by:
        if not all(column in data.groups for data in hub.values()):
            words = f"must name columns of the tasks, {listed(list(hub[names[0]].groups))}"
            raise ValueError(f"by {words}, got {column}.")
    made = {day for x in hub.values() for c in ORIGINS for day in x.groups.get(c, np.empty(0))}
    if len(made) == 1 and all(data.times is not None for data in hub.values()):
        raise ValueError(
            f"hub must have forecasts of several days, got only those made on {made.pop()}, which "
            "may all depend on each other; add files of other days."
        )
    # The first key is that of `evaluate` for its test: both have the same p-value.
    of_tests, of_comparison = jax.random.split(key)
    in_common, score = _on_common_tasks(hub), _score_of(hub)
    common, models = mean_scores(in_common), {}
    notes: dict[str, list[str]] = {}
    groups: dict[str, Numbers] = {}
    for name, data in hub.items():
        on_progress(name)
        test = calibration_test(of_tests, data, n_resamples=n_resamples)
        # The last word of the key of a seed is the seed.
        options = test, 1 - _LEVEL, int(jax.random.key_data(key).ravel()[-1])
        measures, said = Evaluation(data, *options).measures, notes_on_few_units(data)
        values = common[score][name]["value"], common[score][names[0]]["value"]
        models[name] = _numbers(score, data.n, measures, _ratio(*values), float(test.pvalue))
        if by:
            columns = {x: in_common[name].groups[x] for x in by}
            by_group = Evaluation(in_common[name], *options).by(columns)
            untested = [x.name for x in by_group.groups if math.isnan(x.skce)]
            if untested:
                said.append(f"Not tested, with too few rows: {listed(untested)}.")
            for x in by_group.groups:
                rows, value = groups.setdefault(x.name, {}), x.measures[_SCORES[score][0]].value
                ratio = _ratio(value, rows[names[0]][score] if rows else value)
                rows[name] = _numbers(score, x.n, x.measures, ratio, x.adjusted_pvalue)
        for text in said:
            notes.setdefault(text, []).append(name)
    if len(names) > 1:
        data, *others = in_common.values()
        compared = [x.predictions for x in others]
        found = compare_calibration(of_comparison, None, data, compared, n_resamples=n_resamples)
        ends = (-x for x in reversed(found.confidence_interval(_LEVEL)))
        numbers = -found.difference, *ends, found.pvalue
        of_others = np.array(numbers, float).T
        for name, value, row in zip(names, found.estimates, [[], *of_others], strict=True):
            named = zip(("value", *_COLUMNS), (value, *row), strict=False)
            common.setdefault("SKCE", {})[name] = {x: float(y) for x, y in named}
    horizons, words = [x.horizon or 0 for x in hub.values()], "assumed independent"
    if min(horizons) > 0:
        words = f"for dates less than {max(horizons):g} d apart count as dependent"
    return HubTable(
        models,
        common,
        in_common[names[0]].n,
        f"forecasts {words}",
        dict(sorted(groups.items())),
        tuple(x if len(y) == len(names) else f"{listed(y)}: {x}" for x, y in notes.items()),
        n_resamples,
    )


def _score_of(hub: Mapping[str, Data]) -> str:
    """The score of all models; WIS if quantiles have the same levels, which all come in pairs."""
    predictions = [data.predictions for data in hub.values()]
    if isinstance(predictions[0], Labels):
        return "log loss"
    levels = {x.levels if isinstance(x, Quantiles) else () for x in predictions}
    has_pairs = len(levels) == 1 and () not in levels and are_in_pairs([*levels][0])
    return "WIS" if has_pairs else "CRPS"


def _numbers(
    score: str, n: int, measures: Mapping[str, MeasureResult], relative: float, pvalue: float
) -> dict[str, float]:
    """A line of a table."""
    found: dict[str, float] = {"n": n, score: measures[_SCORES[score][0]].value}
    found[f"relative {score}"] = relative
    found |= {column: measures[x].value for x, column in _MEASURES.items() if x in measures}
    return found | {"p": pvalue}


def _ratio(value: float, reference: float) -> float:
    with np.errstate(divide="ignore", invalid="ignore"):  # Scores may be 0 or infinite.
        return float(np.divide(value, reference))


def _on_common_tasks(models: Mapping[str, Data]) -> dict[str, Data]:
    """The forecasts of the tasks that all models have, in one order."""
    first, *others = (data.groups for data in models.values())
    names = [name for name in first if all(name in groups for groups in others)]
    tables = [
        pl.DataFrame(groups).select(names).with_row_index(f"row {k}")
        for k, groups in enumerate([first, *others])
    ]
    common = functools.reduce(lambda a, b: a.join(b, on=names, maintain_order="left"), tables)
    if not len(common):
        raise ValueError(f"models must have tasks in common, got none of the same {listed(names)}.")
    rows = (common[f"row {k}"].to_numpy() for k in range(len(tables)))
    pairs = zip(models.items(), rows, strict=True)
    return {name: with_days(data.take(some)) for (name, data), some in pairs}


def mean_scores(models: Mapping[str, Data]) -> dict[str, Numbers]:
    """The scores of forecasts for the same tasks in the same order, of which the first may depend.

    Errors of means over dependent days are those of `Sampling`, from sums over windows of three
    horizons, with Student's distribution.
    """
    measure, (first_model, data) = _score_of(models), next(iter(models.items()))
    (rows,), (_, score) = Subset.of(data, _LEVEL), _SCORES[measure]
    scores = {name: np.asarray(score(*x.samples), float) for name, x in models.items()}
    found = {name: {"value": Measure(x)(rows).value} for name, x in scores.items()}
    first = scores.pop(first_model)
    with np.errstate(invalid="ignore"):  # Both scores may be infinite.
        gaps = {name: x - first for name, x in scores.items()}
    differences = {name: Measure(gap)(rows) for name, gap in gaps.items()}
    # The interval is unknown where a score is infinite, or if all forecasts are about one day.
    known = {name: (x.value, *x.interval) for name, x in differences.items() if x.interval}
    pvalues = holm(np.array([rows.sampling.pvalue(gaps[name]) for name in known]))
    for (name, numbers), pvalue in zip(known.items(), pvalues.tolist(), strict=True):
        found[name] |= dict(zip(_COLUMNS, (*numbers, pvalue), strict=True))
    return {measure: found}
