"""Which rows matter most: those whose targets had the probability 0, and large contributions."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._base.struct import widest_dtype
from calibjax._base.text import named_rows
from calibjax._data.capabilities import KnownLevels
from calibjax._data.data import Data
from calibjax._data.distribution import Labels
from calibjax._data.interval_censored import Between
from calibjax._data.padding import padded
from calibjax.distributions import SurvivalCurve
from calibjax.estimators import contributions
from calibjax.evaluation._section import N_RESAMPLES, Case, Section
from calibjax.expectations import default_kernel
from calibjax.hypothesis_tests import calibration_test
from calibjax.measures.families import log_scores
from calibjax.nulls.ranks import as_multiple
from calibjax.scores import pit_interval

# Maximum number of rows whose contributions are computed: they need all pairs.
_MOST_CONTRIBUTIONS = 20_000


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
        """Whether nothing else is wrong: the model is rejected with these rows and not without."""
        return (self.of(case).pvalue_without or 0.0) > case.level

    def leaves_error(self, case: Case) -> bool:
        """Whether the whole model is wrong, and not only in these rows; targets are known."""
        is_known = not isinstance(case.data.targets, Between)
        return is_known and case.rejected and not self.is_all(case)

    def clause(self, case: Case) -> str | None:
        """How many rows there are, which, and what the p-value is without them; None if none."""
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
        without = "" if pvalue is None else f"; without {it} p = {pvalue:.3g}"
        named = named_rows(found.rows)
        return f"{n} {target} came to which the model gave the {zero} ({named}){without}"

    def to_dict(self, case: Case) -> dict[str, Any]:
        found = self.of(case)
        return {
            "impossible_rows": found.rows,
            "pvalue_without_impossible_rows": found.pvalue_without,
        }


ZERO_PROBABILITY = _ZeroProbability()


class _Contributions(Section[np.ndarray | None]):
    """How much each row contributes to the SKCE, ``[n]``.

    None above 20 000 rows, for targets that are not known exactly, and for rows with weights.
    Contributions need all pairs, and their mean is the unbiased SKCE with the default kernel.
    """

    is_printed = False

    def compute(self, case: Case) -> np.ndarray | None:
        is_unknown = case.data.weights is not None or isinstance(case.data.targets, Between)
        if is_unknown or case.n > _MOST_CONTRIBUTIONS:
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
        return {"worst_rows": case.row_names[self.largest(case)]}


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
