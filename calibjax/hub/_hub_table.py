"""All models of a hub in one table: is each of them calibrated, and which one better?"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from scipy.special import stdtr

from calibjax._base.text import listed, text_table
from calibjax.distributions import Quantiles
from calibjax.hub._forecasts import HubForecasts
from calibjax.hypothesis_tests import calibration_test
from calibjax.intervals import CalibrationComparison, Sampling, compare_calibration, mean_interval
from calibjax.resampling import holm
from calibjax.scores import crps, log_score

_INTERVALS = {"covers 50 %": (0.25, 0.75), "covers 90 %": (0.05, 0.95)}

_LEVEL = 0.95


class ScoreDifference(NamedTuple):
    """The mean score of the first model minus that of another one; negative if the first is better.

    Args:
        difference: the difference.
        low: the lower end of its 95 % interval.
        high: the upper end.
        pvalue: two-sided, of no difference, adjusted for all other models by Holm.
    """

    difference: float
    low: float
    high: float
    pvalue: float


@dataclasses.dataclass(frozen=True)
class MeanScores:
    """Mean scores of models on the same tasks; smaller is better.

    Args:
        score: CRPS of numbers, log score of categories.
        means: the mean of each model.
        differences: of each model but the first; none if a score is infinite.
    """

    score: str
    means: dict[str, float]
    differences: dict[str, ScoreDifference]

    def to_dict(self) -> dict[str, Any]:
        """The same for JSON, which has no infinity."""
        means = {name: x if np.isfinite(x) else "Infinity" for name, x in self.means.items()}
        differences = {name: x._asdict() for name, x in self.differences.items()}
        return {"score": self.score, "means": means, "differences": differences}

    def lines(self) -> list[str]:
        """A line for each model."""
        found, first = [], next(iter(self.means))
        for name, mean in self.means.items():
            line = f"  {name}: {self.score} {mean:.4g}"
            if name in self.differences:
                of, low, high, pvalue = self.differences[name]
                line += f", difference {of:.3g} ({low:.3g} … {high:.3g}), pvalue {pvalue:.3g}"
                if pvalue <= 1 - _LEVEL:
                    line += f": {first} is {'better' if of < 0 else 'worse'}"
            found.append(line)
        return found


@dataclasses.dataclass(frozen=True)
class HubTable:
    """What `hub_table` found; it prints the table.

    Args:
        models: for each model, of all its own forecasts, their number, the p-value of
            `calibration_test`, and for quantiles how often central intervals contain the target.
        scores: the mean scores on the tasks that all models have, CRPS of numbers and log scores of
            categories, and the differences from the first model, with 95 % intervals and p-values
            that know which forecasts may depend on each other, adjusted for all of these.
        comparison: the squared kernel calibration errors on the tasks that all models have, the
            differences from the first model, and p-values adjusted for all of these; None for one
            model.
        n_common: the number of these tasks.
        dependence: which forecasts may depend on each other, in words.
    """

    models: dict[str, dict[str, float]]
    scores: MeanScores
    comparison: CalibrationComparison | None
    n_common: int
    dependence: str

    def to_dict(self) -> dict[str, Any]:
        """The same as numbers and texts, for JSON."""
        found: dict[str, Any] = {"dependence": self.dependence, "models": self.models}
        found["scores"] = {"n_tasks": self.n_common} | self.scores.to_dict()
        if self.comparison is not None:
            arrays = (self.comparison.difference, self.comparison.pvalue)
            first, *others = self.comparison.names
            pairs = zip(others, *(np.asarray(x).tolist() for x in arrays), strict=True)
            found["comparison"] = {
                "n_tasks": self.n_common,
                "skce": dict(
                    zip(self.comparison.names, self.comparison.estimates.tolist(), strict=True)
                ),
                "first": first,
                "others": [{"model": x, "difference": d, "pvalue": p} for x, d, p in pairs],
            }
        return found

    def __repr__(self) -> str:
        columns = list(next(iter(self.models.values())))
        cells = [["model", *columns]]
        for name, row in self.models.items():
            cells.append([name, *(_shown(column, row[column]) for column in columns)])
        lines = text_table(cells, "<" + ">" * len(columns))
        lines.append(f"p-values: {self.dependence}.")
        if self.comparison is None:
            return "\n".join([*lines, "Mean score:", *self.scores.lines()])
        lines.append(
            f"Mean scores on the {self.n_common} tasks of all models, with 95 % intervals of "
            "differences from the first, and p-values adjusted for all of them:"
        )
        lines += self.scores.lines()
        lines.append(f"Calibration errors on the {self.n_common} tasks of all models:")
        lines.append(str(self.comparison).split("\n", 1)[1])
        return "\n".join(lines)


def hub_table(
    key: jax.Array,
    hub: Mapping[str, HubForecasts],
    *,
    first: str | None = None,
    n_resamples: int = 999,
    watch: Callable[[str], None] = lambda name: None,
) -> HubTable:
    """Is each model of a hub calibrated, and which one is better calibrated than the first?

    Every model is tested by `calibration_test` on all of its forecasts.  On the tasks that all
    models have it is compared with the first: calibration errors by `compare_calibration`, and mean
    scores, which say who predicts better, by Student's interval of their difference.  If tasks say
    on which day a forecast was made and which day it is about, forecasts about days that are closer
    than `HubForecasts.horizon` may depend on each other, and else they are taken for independent.

    Args:
        key: a key of ``jax.random``.
        hub: forecasts by model, as `read_hub` returns them.
        first: the model that the others are compared with; None for the first one of the hub.
        n_resamples: the number of data sets that the p-values come from.
        watch: a function of the name of a model, called before its test, which may take minutes.

    Returns:
        HubTable; print it.

    Raises:
        ValueError: there is no model of this name, or models have no task in common.

    Complexity: that of `calibration_test` for each model, and of `compare_calibration`.

    Example:
        >>> import jax, numpy as np, calibjax as cj
        >>> from calibjax.hub import HubForecasts, hub_table
        >>> rng = np.random.default_rng(0)
        >>> x = rng.normal(size=200)
        >>> y, tasks = x + rng.normal(size=200), {"day": np.arange(200).astype(str)}
        >>> hub = {
        ...     name: HubForecasts(name, cj.Normal(x, scale), y, tasks)
        ...     for name, scale in (("calibrated", 1.0), ("too narrow", 0.4))
        ... }
        >>> table = hub_table(jax.random.key(0), hub, n_resamples=199)
        >>> table.models["too narrow"]["p"] < 0.01, table.models["calibrated"]["p"] < 0.01
        (True, False)

    Reference: see `calibration_test` and `compare_calibration`.
    """
    names = list(hub)
    if first is not None and first not in hub:
        raise ValueError(f"first must be one of {listed(names)}, got {first}.")
    names = names if first is None else [first, *(name for name in names if name != first)]
    # The first key is that of `evaluate` for its test: both have the same p-value.
    of_tests, of_comparison = jax.random.split(key)
    common, comparison = _on_common_tasks([hub[name] for name in names]), None
    models, horizons = {}, []
    for name in names:
        watch(name)
        forecasts = hub[name]
        horizons.append(forecasts.horizon)
        test = calibration_test(of_tests, forecasts.data, n_resamples=n_resamples)
        found = {"n": len(forecasts.targets), "p": float(test.pvalue)}
        models[name] = found | _coverages(forecasts)
    if len(names) > 1:
        others = [forecasts.predictions for forecasts in common[1:]]
        comparison = compare_calibration(
            of_comparison, None, common[0].data, others, n_resamples=n_resamples
        )
        comparison = dataclasses.replace(comparison, names=tuple(names))
    words = "forecasts are taken for independent of each other"
    known = [x for x in horizons if x is not None]
    if len(known) == len(names):
        words = f"forecasts about days less than {max(known):g} days apart may depend on each other"
    return HubTable(models, mean_scores(common), comparison, len(common[0].targets), words)


def _coverages(forecasts: HubForecasts) -> dict[str, float]:
    """The share of targets in central intervals, of quantiles."""
    predictions, targets = forecasts.predictions, forecasts.targets
    found = {}
    if isinstance(predictions, Quantiles):
        levels, values = list(predictions.levels), np.asarray(predictions.values)
        for name, (low, high) in _INTERVALS.items():
            if low in levels and high in levels:
                inside = (values[:, levels.index(low)] <= targets) & (
                    targets <= values[:, levels.index(high)]
                )
                found[name] = float(np.mean(inside))
    return found


def _on_common_tasks(models: list[HubForecasts]) -> list[HubForecasts]:
    """The forecasts for tasks of all models, in the same order."""
    names = [name for name in models[0].tasks if all(name in model.tasks for model in models)]
    of_models = []
    for model in models:
        columns = [model.tasks[name].tolist() for name in names]
        of_models.append({task: row for row, task in enumerate(zip(*columns, strict=True))})
    common = [task for task in of_models[0] if all(task in rows for rows in of_models[1:])]
    if not common:
        raise ValueError(f"models must have tasks in common, got none of the same {listed(names)}.")
    return [
        model[np.array([rows[task] for task in common])]
        for model, rows in zip(models, of_models, strict=True)
    ]


def _shown(column: str, value: float) -> str:
    if column == "n":
        return str(value)
    return f"{value:.3f}"


def mean_scores(models: Sequence[HubForecasts]) -> MeanScores:
    """The scores of forecasts for the same tasks in the same order, of which the first may depend.

    Errors of means over dependent days are those of `Sampling`, from sums over windows of three
    horizons, with Student's law.
    """
    name, score = ("log score", log_score) if models[0].predictions.has_labels else ("CRPS", crps)
    rows = {x.model: np.asarray(score(x.predictions, x.targets), float) for x in models}
    means = {name: float(np.mean(x)) for name, x in rows.items()}
    first, *others = rows
    gaps = {name: rows[first] - rows[name] for name in others if np.isfinite(means[name])}
    data = models[0].data
    # Forecasts that are all about one day have no error.
    if not np.isfinite(means[first]) or data.n_units() == 1:
        return MeanScores(name, means, {})
    sampling = Sampling.of_data(data)
    pvalues = holm(np.array([_pvalue(gap, sampling) for gap in gaps.values()]))
    differences = {}
    for (other, gap), pvalue in zip(gaps.items(), pvalues.tolist(), strict=True):
        low, high = mean_interval(gap, _LEVEL, sampling=sampling) or (np.nan, np.nan)
        differences[other] = ScoreDifference(float(gap.mean()), low, high, pvalue)
    return MeanScores(name, means, differences)


def _pvalue(gaps: np.ndarray, sampling: Sampling) -> float:
    error, freedom = sampling.error(gaps)
    size = abs(float(gaps.mean()))
    if error == 0:
        return float(size == 0)
    return float(2 * stdtr(freedom, -size / error))
