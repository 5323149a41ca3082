"""What a map does to rows that did not fit it."""

import dataclasses
from typing import Any

import jax
import numpy as np

from calibjax._data import Data, Dependence, Distribution
from calibjax.frames import Model
from calibjax.hypothesis_tests import calibration_test
from calibjax.intervals import Interval, Sampling, mean_interval
from calibjax.recalibration import held_out as judged_on_held_out
from calibjax.resampling import as_multiple

_FOLDS = 5
_LEVEL = 0.95
# That of `calibration_test`.
_N_RESAMPLES = 999


@dataclasses.dataclass(frozen=True)
class HeldOut:
    """Scores and p-values of rows, before and after maps that did not see them.

    Args:
        score: what the score is, in words; smaller is better.
        folds: how many parts of the rows there were, each mended by a map of the others.
        by: how rows came into folds, in words.
        before: the mean score and the p-value of `calibration_test` of the predictions as they are.
        after: both of the mended predictions.
        interval: 95 % for the difference of the mean scores, after minus before; None if a score is
            infinite.
    """

    score: str
    folds: int
    by: str
    before: tuple[float, float]
    after: tuple[float, float]
    interval: Interval | None

    def __str__(self) -> str:
        width = len(self.score)
        lines = [
            f"What such maps do to rows that did not fit them ({self.folds} folds {self.by}):",
            f"          {self.score}   p of the calibration test",
        ]
        for name, (score, pvalue) in (("before", self.before), ("after", self.after)):
            lines.append(f"  {name:6}  {score:{width}.4g}   {pvalue:25.3g}")
        if self.interval is not None:
            low, high = self.interval
            words = "which may be chance"
            if low > 0:
                words = "worse: the predictions are better as they are"
            elif high < 0:
                words = "better"
            difference = self.after[0] - self.before[0]
            interval = f"95 % interval {low:.3g} … {high:.3g}"
            lines.append(f"  after - before: {difference:.3g} ({interval}), {words}.")
        elif self.after[0] > self.before[0]:
            lines.append("  It is worse after than before: the predictions are better as they are.")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """The same for other programs; JSON has no infinity."""

        def numbers(score: float, pvalue: float) -> dict[str, Any]:
            return {"score": score if np.isfinite(score) else "Infinity", "pvalue": pvalue}

        return {
            "score": self.score,
            "folds": self.folds,
            "by": self.by,
            "before": numbers(*self.before),
            "after": numbers(*self.after),
            "interval": self.interval,
        }


def held_out(
    model: Model,
    method: str,
    beside: dict[str, Any],
    dependence: Dependence,
    lower: float | None,
    seed: int,
) -> HeldOut | None:
    """The judgement by `cross_fit`; None if there are fewer than three clusters or times."""
    predictions, targets = model.predictions, model.targets
    n, (clusters, times, _) = len(targets), dependence
    units = times if clusters is None else clusters
    n_units = n if units is None else np.unique(np.asarray(units)).size
    # A map may leave out one more of those that fit it.
    if units is not None and n_units < 3:
        return None
    count = min(_FOLDS, n_units)
    folds: Any = count
    if clusters is not None:
        by = "of clusters, by chance"
    elif times is not None:
        by = "of times one after another"
    elif predictions.has_labels:
        by = "by chance"
    else:  # forecasts of one week are wrong together
        folds, by = np.arange(n) * count // n, "of rows one after another"
    data = Data(predictions, targets, **dependence._asdict())
    held = judged_on_held_out(
        data, method, folds, in_order=times is not None, lower=lower, **beside
    )
    key = jax.random.key(seed)

    def pvalue(predictions: Distribution) -> float:
        test = calibration_test(key, data.replace(predictions=predictions))
        return as_multiple(test.pvalue, _N_RESAMPLES)

    with np.errstate(invalid="ignore"):  # an infinite score before and after
        gaps = held.after - held.before
    return HeldOut(
        "mean log score" if predictions.has_labels else "mean CRPS",
        count,
        by,
        (float(held.before.mean()), pvalue(predictions)),
        (float(held.after.mean()), pvalue(held.predictions)),
        mean_interval(gaps, _LEVEL, sampling=Sampling.of_data(data)),
    )
