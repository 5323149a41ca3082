"""What a map does to rows that did not fit it."""

from typing import Any

import jax
import numpy as np

from calibjax._base.text import pvalue_text
from calibjax._data.data import Data
from calibjax._data.distribution import Distribution
from calibjax.hypothesis_tests import calibration_test
from calibjax.measures.measure import Measure, Subset
from calibjax.nulls.ranks import as_multiple
from calibjax.recalibration import cross_fitting

_FOLDS = 5
_SCORES = {
    "log": "mean log loss",
    "pinball": "mean pinball loss",
    "crps": "mean CRPS",
    "brier": "integrated Brier score",
}
_LEVEL = 0.95
# That of `calibration_test`.
_N_DRAWS = 999


def held_out(
    data: Data, method: str, beside: dict[str, Any], lower: float | None, seed: int
) -> dict[str, Any] | None:
    """Scores and p-values before and after maps of other folds; None with fewer than three units.

    Units are rows, or clusters or times.  The interval is that of the difference of the mean
    scores, after minus before, of which smaller is better; None if a score is infinite.
    """
    n, n_units = data.n, data.n_units()
    # A map may leave out one more of those that fit it.
    if n_units is not None and n_units < 3:
        return None
    count = min(_FOLDS, n_units or n)
    by = "random folds of clusters" if data.is_dependent else "random folds"
    by = by if data.horizon is None else "consecutive folds of times"

    def tested(predictions: Distribution) -> jax.Array:
        # Recalibrated rows are not checked, and both tests are one program.
        rows = data.replace(predictions=predictions, is_checked=False)
        return calibration_test(jax.random.key(seed), rows).pvalue

    def evaluated(pvalue: jax.Array, scores: np.ndarray) -> dict[str, Any]:
        return {"score": float(scores.mean()), "pvalue": as_multiple(pvalue, _N_DRAWS)}

    # jax runs the first test while NumPy fits the maps.
    before = tested(data.predictions)
    held = cross_fitting.held_out(data, method, count, lower=lower, **beside)
    after = tested(held.predictions)

    with np.errstate(invalid="ignore"):  # an infinite score before and after
        difference = Measure(held.after - held.before)(*Subset.of(data, _LEVEL))
    return {
        "score": _SCORES[cross_fitting.default_score(data.predictions, data.targets)],
        "folds": count,
        "by": by,
        "before": evaluated(before, held.before),
        "after": evaluated(after, held.after),
        "interval": difference.interval,
    }


def in_words(found: dict[str, Any]) -> str:
    """What `held_out` found, as text."""
    score, (before, after) = found["score"], (found["before"], found["after"])
    lines = [
        f"Cross-validated performance ({found['folds']} {found['by']}):",
        f"          {score}   p of the calibration test",
        *(
            f"  {name:6}  {x['score']:{len(score)}.4g}   {pvalue_text(x['pvalue'], _N_DRAWS):>25}"
            for name, x in (("before", before), ("after", after))
        ),
    ]
    difference = after["score"] - before["score"]
    if found["interval"] is not None:
        low, high = found["interval"]
        words = "better" if high < 0 else "not significant"
        words = "worse: keep the original predictions" if low > 0 else words
        interval = f"95 % CI {low:.3g} to {high:.3g}"
        lines.append(f"  after - before: {difference:.3g} ({interval}), {words}.")
    elif difference > 0:
        lines.append("  Worse after than before: keep the original predictions.")
    return "\n".join(lines)
