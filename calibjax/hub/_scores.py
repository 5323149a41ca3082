"""Which of several models predicts better: mean scores of the same tasks, and differences."""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.special import stdtr

from calibjax.hub._forecasts import HubForecasts
from calibjax.intervals import Sampling, mean_interval
from calibjax.resampling import holm
from calibjax.scores import crps, log_score

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


def mean_scores(models: Sequence[HubForecasts]) -> MeanScores:
    """The scores of forecasts for the same tasks in the same order, of which the first may depend.

    Errors of means over dependent days are those of `Sampling`, from sums over windows of three
    horizons, with Student's law.
    """
    score = "log score" if models[0].predictions.has_labels else "CRPS"
    rows = {model.model: _scores(model) for model in models}
    means = {name: float(np.mean(x)) for name, x in rows.items()}
    first, *others = rows
    gaps = {name: rows[first] - rows[name] for name in others if np.isfinite(means[name])}
    sampling = _sampling(models[0])
    if not np.isfinite(means[first]) or sampling is None:
        return MeanScores(score, means, {})
    pvalues = holm(np.array([_pvalue(gap, sampling) for gap in gaps.values()]))
    differences = {}
    for (name, gap), pvalue in zip(gaps.items(), pvalues.tolist(), strict=True):
        low, high = mean_interval(gap, _LEVEL, sampling=sampling) or (np.nan, np.nan)
        differences[name] = ScoreDifference(float(gap.mean()), low, high, pvalue)
    return MeanScores(score, means, differences)


def _scores(model: HubForecasts) -> np.ndarray:
    score = log_score if model.predictions.has_labels else crps
    return np.asarray(score(model.predictions, model.targets), float)


def _sampling(model: HubForecasts) -> Sampling | None:
    """How the forecasts count; None if all are about one day, which has no error."""
    n, times, horizon = len(model.targets), model.times, model.horizon
    if times is None or horizon is None:
        return Sampling(n)
    return Sampling(n, times=times / horizon) if np.unique(times).size > 1 else None


def _pvalue(gaps: np.ndarray, sampling: Sampling) -> float:
    error, freedom = sampling.error(gaps)
    size = abs(float(gaps.mean()))
    if error == 0:
        return float(size == 0)
    return float(2 * stdtr(freedom, -size / error))
