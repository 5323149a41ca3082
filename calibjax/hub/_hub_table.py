"""All models of a hub in one table: is each of them calibrated, and which one better?"""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
import polars as pl

from calibjax._base.text import listed, plain, text_table
from calibjax._data.data import Data
from calibjax._data.distribution import Labels
from calibjax.distributions import Quantiles
from calibjax.hub._read_hub import with_days
from calibjax.hypothesis_tests import calibration_test
from calibjax.intervals import compare_calibration
from calibjax.measures.measure import Measure, Subset
from calibjax.nulls.ranks import holm
from calibjax.scores import crps, log_score

_INTERVALS = {"covers 50 %": (0.25, 0.75), "covers 90 %": (0.05, 0.95)}
_LEVEL = 0.95
_COLUMNS = "difference", "low", "high", "pvalue"
#: Numbers by model, and for each model by name.
Numbers = dict[str, dict[str, float]]


@dataclasses.dataclass(frozen=True)
class HubTable:
    """What `hub_table` found; it prints the tables.

    Args:
        models: for each model, of all its own forecasts, their number ``n``, the p-value ``p`` of
            `calibration_test`, and for quantiles how often central intervals contain the target.
        common: by measure, CRPS of numbers or log score of categories, and SKCE if there are
            several models: the ``value`` of each model on the tasks that all models have.  Models
            but the first have the ``difference``, the first model's value minus theirs, negative if
            the first is better, ``low`` and ``high``, the ends of its 95 % interval, and
            ``pvalue``, adjusted for all models; not where a score is infinite.
        n_common: the number of these tasks.
        dependence: which forecasts may depend on each other, in words.
    """

    models: Numbers
    common: dict[str, Numbers]
    n_common: int
    dependence: str

    def to_dict(self) -> dict[str, Any]:
        """The same as numbers and texts, for JSON, where infinity is a text."""
        return plain(dataclasses.asdict(self), says_infinity=True)

    def __repr__(self) -> str:
        lines = [*_table("model", self.models), f"p-values: {self.dependence}."]
        lines.append(
            f"On the {self.n_common} tasks of all models, with the first model's value minus that "
            "of each other, its 95 % interval, and p-values adjusted for all models:"
        )
        for measure, rows in self.common.items():
            lines += _table(measure, rows)
        return "\n".join(lines)


def _table(title: str, rows: Numbers) -> list[str]:
    """A line for each model, a column for each of its numbers."""
    columns = max(map(list, rows.values()), key=len)
    texts = [[f"{row[x]:.4g}" if x in row else "" for x in columns] for row in rows.values()]
    texts = [[name, *row] for name, row in zip(rows, texts, strict=True)]
    return text_table([[title, *columns], *texts], "<" + ">" * len(columns))


def hub_table(
    key: jax.Array,
    hub: Mapping[str, Data],
    *,
    first: str | None = None,
    n_resamples: int = 999,
    watch: Callable[[str], None] = lambda name: None,
) -> HubTable:
    """Tests of all models of a hub, and comparisons with the first one.

    Every model is tested by `calibration_test` on all of its forecasts.  On the tasks that all
    models have it is compared with the first: calibration errors by `compare_calibration`, and mean
    scores, which say who predicts better, by Student's interval of their difference.  Forecasts
    about times that are closer than the horizon of `Data` may depend on each other.

    Args:
        key: a key of ``jax.random``.
        hub: forecasts by model, as `read_hub` returns them: `groups` name the task of each row.
        first: the model that the others are compared with; None for the first one of the hub.
        n_resamples: the number of data sets that the p-values come from, at least 39.
        watch: a function of the name of a model, called before its test, which may take minutes.

    Returns:
        HubTable; print it.

    Raises:
        ValueError: there is no model of this name, or models have no task in common.

    Complexity: that of `calibration_test` for each model, and of `compare_calibration`.

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
    if first is not None and first not in hub:
        raise ValueError(f"first must be one of {listed(names)}, got {first}.")
    names.sort(key=lambda name: name != first)
    # The first key is that of `evaluate` for its test: both have the same p-value.
    of_tests, of_comparison = jax.random.split(key)
    models, in_common = {}, _on_common_tasks({name: hub[name] for name in names})
    for name in names:
        watch(name)
        test = calibration_test(of_tests, hub[name], n_resamples=n_resamples)
        models[name] = {"n": hub[name].n, "p": float(test.pvalue)}
        models[name] |= _coverages(hub[name])
    common = mean_scores(in_common)
    if len(names) > 1:
        data, *others = in_common.values()
        found = compare_calibration(
            of_comparison, None, data, [x.predictions for x in others], n_resamples=n_resamples
        )
        columns = found.difference, *found.confidence_interval(_LEVEL), found.pvalue
        of_others = np.array(columns, float).T
        for name, value, row in zip(names, found.estimates, [[], *of_others], strict=True):
            numbers = zip(("value", *_COLUMNS), (value, *row), strict=False)
            common.setdefault("SKCE", {})[name] = {x: float(y) for x, y in numbers}
    horizons, words = [x.horizon or 0 for x in hub.values()], "taken for independent"
    if min(horizons) > 0:
        words = f"about days less than {max(horizons):g} days apart may depend on each other"
    return HubTable(models, common, in_common[names[0]].n, f"forecasts {words}")


def _coverages(data: Data) -> dict[str, float]:
    """The share of targets in central intervals, of quantiles."""
    (predictions, targets), of = data.samples, {}
    if isinstance(predictions, Quantiles):
        of = dict(zip(predictions.levels, np.asarray(predictions.values).T, strict=True))
    (rows,) = Subset.of(data, _LEVEL)
    return {
        name: Measure((of[low] <= targets) & (targets <= of[high]))(rows).value
        for name, (low, high) in _INTERVALS.items()
        if low in of and high in of
    }


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
    measure, score = "CRPS", crps
    first_model, data = next(iter(models.items()))
    if isinstance(data.predictions, Labels):
        measure, score = "log score", log_score
    (rows,) = Subset.of(data, _LEVEL)
    scores = {name: np.asarray(score(*x.samples), float) for name, x in models.items()}
    found = {name: {"value": Measure(x)(rows).value} for name, x in scores.items()}
    first = scores.pop(first_model)
    with np.errstate(invalid="ignore"):  # Both scores may be infinite.
        gaps = {name: first - x for name, x in scores.items()}
    differences = {name: Measure(gap)(rows) for name, gap in gaps.items()}
    # There is no interval where a score is infinite, or if all forecasts are about one day.
    known = {name: (x.value, *x.interval) for name, x in differences.items() if x.interval}
    pvalues = holm(np.array([rows.sampling.pvalue(gaps[name]) for name in known]))
    for (name, numbers), pvalue in zip(known.items(), pvalues.tolist(), strict=True):
        found[name] |= dict(zip(_COLUMNS, (*numbers, pvalue), strict=True))
    return {measure: found}
