"""What to know before trusting an evaluation: few rows, rare events, impossible targets."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._base.struct import widest_dtype
from calibjax._data import Between, Data, Dependence, Distribution, padded
from calibjax.distributions import SurvivalCurve
from calibjax.evaluation._dependence import INDEPENDENT, remarks_on_rows
from calibjax.evaluation._expected_events import remark_on_censoring
from calibjax.evaluation._metric_intervals import log_scores
from calibjax.evaluation._wording import named_rows
from calibjax.intervals import FEW_EVENTS, expected_rare_events
from calibjax.scores import pit_interval

# With fewer rows intervals of means, and of the SKCE, miss more often than they say.
_FEW_ROWS = 50


def remarks(data: Data, dependence: Dependence = INDEPENDENT) -> list[str]:
    """Sentences about what is missing, and intervals that may be too narrow; mostly none."""
    found = []
    if data.n < _FEW_ROWS:
        found.append(
            f"Few rows: with fewer than {_FEW_ROWS}, intervals of the SKCE and of means may be too "
            "narrow."
        )
    found += remarks_on_rows(data, dependence)
    if isinstance(data.targets, Between):
        return [*found, remark_on_censoring(data)]
    # Data that happen to lack a rare event look as if there were none: the model counts, too.
    rows = padded(Data.unchecked(data.predictions))
    expected = float(expected_rare_events(None, (rows.predictions, rows.where)))
    # Where no number has a positive probability, nothing is a rare event.
    observed = math.inf
    if math.isfinite(expected):
        # All but the most common target.
        observed = data.n - int(np.unique(np.asarray(data.targets), return_counts=True)[1].max())
    if min(expected, observed) < FEW_EVENTS:
        differ = "target differs" if observed == 1 else "targets differ"
        found.append(
            f"Few events: {observed} {differ} from the most common one, and {expected:.2g} are "
            "expected not to be the most probable one; intervals may be too narrow, above all "
            "where none came."
        )
    return found


@dataclasses.dataclass(frozen=True)
class Impossible:
    """The rows whose targets the model called impossible; one of them may decide a test.

    Args:
        rows: what they are called: their numbers in what was given, from 0, or in a file.
        pvalue_without: the p-value of `calibration_test` without them; None if all rows were not
            rejected, or too few are left.
    """

    rows: np.ndarray
    pvalue_without: float | None = None

    def is_all(self, level: float) -> bool:
        """Whether nothing else is wrong: a model is rejected with these rows and not without."""
        return self.pvalue_without is not None and self.pvalue_without > level


def impossible_rows(data: Data) -> np.ndarray:
    """The kept rows with an infinite log score: of probability 0, or of less than can be held.

    Quantiles say nothing about densities beyond the last of them.  An estimated survival curve
    falls at the times of its own data: a target between two of them does not refute it, but one
    does that comes before the curve falls at all, or after it has reached 0.
    """
    scores = None if data.predictions.pit_distribution() is not None else log_scores(data)
    if scores is None:
        return np.empty(0, int)
    is_impossible = np.isposinf(scores)
    if isinstance(data.predictions, SurvivalCurve):
        low, high = (np.asarray(x)[: data.n_kept()] for x in pit_interval(data))
        is_impossible &= (high <= 0) | (low >= 1)
    return np.flatnonzero(is_impossible)


def in_words(impossible: Impossible, predictions: Distribution) -> str | None:
    """How many rows there are, which, and what the p-value is without them; None if none."""
    n = len(impossible.rows)
    if n == 0:
        return None
    said = (
        f"{n} {'target' if n == 1 else 'targets'} came to which the model gave the "
        f"{_zero(predictions)} ({named_rows(impossible.rows)})"
    )
    if impossible.pvalue_without is None:
        return said
    return f"{said}; without {'it' if n == 1 else 'them'} p = {impossible.pvalue_without:.3g}"


def _zero(predictions: Distribution) -> str:
    if predictions.has_labels:
        return "probability 0"
    if isinstance(predictions, SurvivalCurve):
        return "probability 0, before the curve falls or after it has reached 0"
    least = float(jnp.finfo(widest_dtype(*jax.tree.leaves(predictions))).tiny)
    kind = "probability" if predictions.target_kind == "integer" else "density"
    return f"{kind} 0 or less than {least:.2g}"
