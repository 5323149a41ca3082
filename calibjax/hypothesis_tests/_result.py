"""The result of a test."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtri
from jax.typing import ArrayLike

from calibjax._struct import is_array, is_traced, static, struct
from calibjax.intervals._confidence_interval import ConfidenceInterval
from calibjax.kernels import describe


@struct
class Members:
    """What each of K kernels says in `aggregated_skce_test`.

    Args:
        kernels: the kernels, a list of K.
        estimates: the unbiased SKCE for each kernel, ``[K]``.
        scores: the biased SKCE on a scale on which it is nearly standard normal under H0, ``[K]``;
            a negative estimate can have a positive score.
        pvalues: the p-value that each kernel would have as the only one, ``[K]``.
    """

    kernels: list[Any]
    estimates: jax.Array
    scores: jax.Array
    pvalues: jax.Array

    @property
    def best(self) -> jax.Array:
        """The index of the kernel with the largest score, which decides the test."""
        return jnp.argmax(self.scores, axis=-1)

    def __repr__(self) -> str:
        numbers = self.estimates, self.scores, self.pvalues
        if any(is_traced(x) or not is_array(x) or np.ndim(x) != 1 for x in numbers):
            return f"Members({', '.join(map(describe, self.kernels))})"
        rows = zip(*map(np.asarray, numbers), map(describe, self.kernels), strict=True)
        header = f"{'estimate':>10}{'score':>7}{'pvalue':>8}  kernel"
        lines = [f"{e:10.3g}{s:7.2f}{p:8.3g}  {name}" for e, s, p, name in rows]
        return "\n".join([header, *lines])


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
        members: what each kernel of `aggregated_skce_test` says, or None.
        method: the test and its options, in words.

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
    members: Members | None = None
    method: str = static(default="")

    def confidence_interval(self, confidence_level: ArrayLike = 0.95) -> ConfidenceInterval:
        """A one-sided interval (low, high) for the calibration error, where high is infinite.

        low = max(0, estimate - z standard_error), where z is the normal quantile of
        `confidence_level`.  O(1).

        Args:
            confidence_level: numbers in (0, 1), of any shape that broadcasts with the estimate.

        Raises:
            ValueError: the test has no standard error; the level is not in (0, 1).
        """
        if self.standard_error is None:
            raise ValueError(f"{self.method} gives no standard_error, hence no interval.")
        if not is_traced(confidence_level):
            level = np.asarray(confidence_level)
            if not np.all((level > 0) & (level < 1)):
                raise ValueError(f"confidence_level must be in (0, 1), got {confidence_level}.")
        quantile = ndtri(jnp.asarray(confidence_level, jnp.result_type(self.estimate)))
        low = jnp.maximum(0.0, self.estimate - quantile * self.standard_error)
        return ConfidenceInterval(low, jnp.full_like(low, jnp.inf))

    def __repr__(self) -> str:
        shown = [self.statistic, self.pvalue, self.estimate]
        shown += [] if self.standard_error is None else [self.standard_error]
        # Placeholders, tracers and batches have no numbers to show.
        if not all(map(_is_number, shown)):
            batch = getattr(self.pvalue, "shape", None)
            return f"CalibrationTestResult({self.method}; pvalue of shape {batch})"
        error = "" if self.standard_error is None else f" ± {float(self.standard_error):.2g}"
        decided = "" if self.members is None else f"; largest score: {self._best_kernel()}"
        return (
            f"CalibrationTestResult({self.method}; pvalue = {float(self.pvalue):.3g}, "
            f"statistic = {float(self.statistic):.4g}, "
            f"estimate = {float(self.estimate):.4g}{error}{decided})"
        )

    def _best_kernel(self) -> str:
        """The kernel that decides, in words."""
        assert self.members is not None
        return describe(self.members.kernels[int(self.members.best)])


def _is_number(x: Any) -> bool:
    return is_array(x) and not is_traced(x) and np.ndim(x) == 0
