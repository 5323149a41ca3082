"""The result of a test, and what its kernels and covariates say."""

import functools
import itertools
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from calibjax._base.compile import quick_jit
from calibjax._base.struct import PyTree, is_array, is_traced, static, struct
from calibjax.intervals.skce_interval import ConfidenceInterval, IntervalOf
from calibjax.kernels.base import KernelLike, describe
from calibjax.nulls.ranks import checked_level

# The number of kernels that are printed, those with the largest scores.
_MOST_SHOWN = 20


@struct
class NamedKernel:
    """A kernel of the result of a test that users cannot pass, because the test makes it.

    It is one of covariates, or of predictions and covariates, with a feature of targets; or it is
    constant, so that its statistic is the square of a sum over all rows.

    Args:
        description: the columns and the feature, "age x sex, location"; or "all rows, location".
        columns: the columns that it compares; none for a mean over all columns, and for all rows.
    """

    description: str = static()
    columns: tuple[str, ...] = static(default=())


class CovariateEvidence(NamedTuple):
    """What a test with covariates finds in one column.

    Args:
        name: of the column.
        score: the largest score of the kernels that compare this column, where residuals that vary
            more than predicted in all rows count in units of their own variance.
        pvalue: the rank of this score among the draws of the largest score of all columns: the
            p-value of this column, adjusted for all columns and kinds of errors.
        kernel: the kernel with this score, in words.
    """

    name: str
    score: float
    pvalue: float
    kernel: str


def named_kernels(names: Sequence[str], features: Sequence[str]) -> list[NamedKernel]:
    """The kernels of columns with these names in the order of `ColumnKernels`, for each feature."""
    kinds: list[tuple[list[tuple[str, tuple[str, ...]]], str]] = [
        ([(f"column {a}", (a,)) for a in names], "all columns"),
        ([(f"{a} x {b}", (a, b)) for a, b in itertools.combinations(names, 2)], "all pairs"),
        ([(f"predictions x {a}", (a,)) for a in names], "predictions x all columns"),
    ]
    every: list[tuple[str, tuple[str, ...]]] = []
    for kernels, together in kinds:
        every += [*kernels, (together, ())] if len(kernels) > 1 else kernels
    return [
        NamedKernel(f"{words}, {feature}", columns)
        for feature in features
        for words, columns in every
    ]


def evidence_of_columns(
    kernels: Sequence[object], scores: np.ndarray, pvalues: np.ndarray
) -> list[CovariateEvidence]:
    """The columns, those with the largest scores first."""
    found: dict[str, CovariateEvidence] = {}
    for kernel, score, pvalue in zip(kernels, scores.tolist(), pvalues.tolist(), strict=True):
        assert isinstance(kernel, NamedKernel)
        for name in kernel.columns:
            if name not in found or score > found[name].score:
                found[name] = CovariateEvidence(name, score, pvalue, kernel.description)
    return sorted(found.values(), key=lambda evidence: -evidence.score)


@struct
class KernelResults:
    """The numbers of each of K kernels in `aggregated_skce_test`.

    Args:
        kernels: the kernels, a list of K.
        estimates: the unbiased SKCE for each kernel, ``[K]``.
        scores: the biased SKCE on a scale on which it is nearly standard normal under H0, ``[K]``;
            a negative estimate can have a positive score.
        pvalues: the p-value that each kernel would have as the only one, ``[K]``.
        adjusted_pvalues: the rank of each score among the draws of the largest one, ``[K]``: the
            p-value of each kernel, adjusted for all of them.  The least is that of the test.
        interval: what `confidence_interval` evaluates.
        of_columns: the scores and adjusted p-values of the kernels of covariates alone, without
            what an error of all rows adds to the variance of residuals; None without covariates.
        draws: the scores of each draw of the null distribution, ``[K, n_resamples]``, or None.
    """

    kernels: list[KernelLike]
    estimates: jax.Array
    scores: jax.Array
    pvalues: jax.Array
    adjusted_pvalues: jax.Array
    interval: IntervalOf
    of_columns: tuple[jax.Array, jax.Array] | None = None
    draws: jax.Array | None = None

    def confidence_interval(self, confidence_level: ArrayLike = 0.95) -> ConfidenceInterval:
        """Intervals (low, high) for the SKCE with each kernel, ``[K]``, that hold simultaneously.

        With a probability of confidence_level all K contain the SKCE with their kernel, so that any
        of them may be picked afterwards.  `CalibrationTestResult.confidence_interval` says more.

        Args:
            confidence_level: numbers in (0, 1), of any shape that broadcasts with the estimates.

        Raises:
            ValueError: a level is not in (0, 1).
        """
        level = checked_level(confidence_level, jnp.result_type(self.estimates))
        return _interval_at(self.interval, level)

    @property
    def best(self) -> jax.Array:
        """The index of the kernel with the largest score, which decides the test."""
        return jnp.argmax(self.scores, axis=-1)

    def __repr__(self) -> str:
        numbers = self.estimates, self.scores, self.pvalues
        if any(is_traced(x) or not is_array(x) or np.ndim(x) != 1 for x in numbers):
            return f"KernelResults({', '.join(map(describe, self.kernels))})"
        rows = list(zip(*map(np.asarray, numbers), map(describe, self.kernels), strict=True))
        left_out = len(rows) - _MOST_SHOWN
        if left_out > 0:
            rows = sorted(rows, key=lambda row: -row[1])[:_MOST_SHOWN]
        header = f"{'estimate':>10}{'score':>7}{'pvalue':>8}  kernel"
        lines = [f"{e:10.3g}{s:7.2f}{p:8.3g}  {name}" for e, s, p, name in rows]
        more = [f"and {left_out} kernels with smaller scores"] if left_out > 0 else []
        return "\n".join([header, *lines, *more])


@struct
class CalibrationTestResult:
    """The result of a test of the hypothesis H0 that a model is calibrated.

    It is a pytree: it can leave jit, and vmap over data sets returns one result with arrays.  It
    prints the method and the numbers.

    Args:
        statistic: the number that is compared with its distribution under H0; large values speak
            against H0.
        pvalue: the probability under H0 of a statistic that is at least as large.
        estimate: the estimated calibration error, squared for the tests of a kernel calibration
            error.
        standard_error: the standard error of the estimate, or None.
        null_distribution: draws of the statistic under H0, ``[n_resamples]``, or None.
        kernels: the numbers of each kernel of `aggregated_skce_test`, or None.
        interval: what `confidence_interval` evaluates, or None.
        pvalue_without_covariates: of a test with covariates the p-value that it has without them,
            in the same draws; else None.
        scores_without_covariates: the statistic and the null_distribution of that test,
            ``[1 + n_resamples]``, or None.
        method: the test and its options, in words.
        is_exact: whether null_distribution is of targets drawn from the predictions, so that the
            level is exact.

    Example:
        >>> import jax, jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Bernoulli(jnp.linspace(0.05, 0.95, 100))
        >>> targets = predictions.sample(jax.random.key(0))
        >>> result = cj.calibration_test(jax.random.key(1), predictions, targets)
        >>> bool(result.pvalue > 0.05)
        True
    """

    statistic: jax.Array
    pvalue: jax.Array
    estimate: jax.Array
    standard_error: jax.Array | None = None
    null_distribution: jax.Array | None = None
    kernels: KernelResults | None = None
    interval: IntervalOf | None = None
    pvalue_without_covariates: jax.Array | None = None
    scores_without_covariates: jax.Array | None = None
    method: str = static(default="")
    is_exact: bool = static(default=False)

    def confidence_interval(self, confidence_level: ArrayLike = 0.95) -> ConfidenceInterval:
        """An interval (low, high) for the true value of the estimate, whose ends are finite.

        For a kernel calibration error it is an interval for the SKCE, which is the squared error.
        Its high is a certificate, which a large p-value is not: "at most high, with 95 %
        confidence".

        - Tests of all pairs: `skce_confidence_interval` derives it.  It contains the SKCE with a
          probability of at least confidence_level, whether the model is calibrated or not, and its
          low is above 0 only if the p-value is at most 1 - confidence_level.  With few rare events
          take `skce_confidence_interval` itself.
        - `aggregated_skce_test` and `calibration_test`: the interval for the kernel with the
          largest score.  The intervals of all kernels hold simultaneously, so that it does not
          matter that the data have chosen this one.  At a clear error they are wide.
        - Tests of a mean over blocks, and `SKCEState`: estimate ± z standard_error, cut off below
          0.  It needs some 30 blocks.
        - `distribution_free_skce_test` with ``null="bound"``: a bound, for every n.

        Args:
            confidence_level: numbers in (0, 1), of any shape that broadcasts with the estimate.

        Raises:
            ValueError: the test gives no interval; the level is not in (0, 1).
        """
        if self.interval is None:
            raise ValueError(
                f"{self.method} gives no interval; skce_confidence_interval gives one for the SKCE."
            )
        level = checked_level(confidence_level, jnp.result_type(self.estimate))
        return _interval_at(self.interval, level)

    @property
    def columns(self) -> list[CovariateEvidence]:
        """Which covariates carry what `calibration_test` finds, the largest scores first.

        Each has a name, a score, and a p-value that is adjusted for all columns: if the model is
        calibrated given predictions and covariates, the probability that any is at most a is at
        most a.  An error that all rows share, such as too small a spread, makes none of them small:
        the p-value of a column tells whether the error differs along it.  `kernel` says how the
        column takes part: alone, with another one, or with the predictions.

        Raises:
            ValueError: the test had no covariates, or its numbers are traced.
        """
        of_kernels = self.kernels
        if of_kernels is None or is_traced(of_kernels) or np.ndim(of_kernels.scores) != 1:
            raise ValueError(f"{self.method} has no columns here.")
        if of_kernels.of_columns is None:
            raise ValueError(f"columns are those of covariates, which {self.method} had not.")
        scores, pvalues = map(np.asarray, of_kernels.of_columns)
        return evidence_of_columns(of_kernels.kernels[-scores.size :], scores, pvalues)

    def __repr__(self) -> str:
        shown = [self.statistic, self.pvalue, self.estimate]
        shown += [] if self.standard_error is None else [self.standard_error]
        # Placeholders, tracers and batches have no numbers to show.
        if not all(map(_is_number, shown)) or is_traced(self.interval):
            batch = getattr(self.pvalue, "shape", None)
            return f"CalibrationTestResult({self.method}; pvalue of shape {batch})"
        error = "" if self.standard_error is None else f" ± {float(self.standard_error):.2g}"
        if self.interval is not None:
            low, high = self.confidence_interval(0.95)
            error += f", 95 % CI = [{float(low):.3g}, {float(high):.3g}]"
        decided = ""
        if self.kernels is not None:
            best = self.kernels.kernels[int(np.argmax(self.kernels.scores))]
            decided = f"; largest score: {describe(best)}"
        return (
            f"CalibrationTestResult({self.method}; pvalue = {float(self.pvalue):.3g}, "
            f"statistic = {float(self.statistic):.4g}, "
            f"estimate = {float(self.estimate):.4g}{error}{decided})"
        )


@functools.partial(quick_jit, light=True)
def _interval_at(interval: IntervalOf, level: jax.Array) -> ConfidenceInterval:
    return interval(level)


def _is_number(x: PyTree) -> bool:
    return is_array(x) and not is_traced(x) and np.ndim(x) == 0
