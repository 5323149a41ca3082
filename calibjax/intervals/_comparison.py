"""The result of a comparison of several models, or of several groups."""

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._struct import is_array, is_traced, static, struct
from calibjax.intervals._norm_intervals import ConfidenceInterval
from calibjax.resampling import one_level


@struct
class CalibrationComparison:
    """Which of two models, or of K + 1 models or groups of rows, is better calibrated.

    It is a pytree: it can leave jit, and vmap over data sets returns one result with arrays.  It
    prints the numbers.

    Args:
        estimates: the unbiased SKCE of the first model and of each other one, ``[2]`` or
            ``[K + 1]``.
        difference: the SKCE of the first model minus the SKCE of the second, ``[]``, or of each
            other model ``[K]``; negative if the first model is better calibrated.
        pvalue: two-sided, of the hypothesis H0 that both SKCE are equal, ``[]`` or ``[K]``.  For K
            models they are adjusted: under H0 one of them is at most a with a probability of a.
        standard_error: the root mean square error of each difference, as resamples show it.
        deviations: the largest error of any difference in each resample, in units of its standard
            error, upwards and downwards, ``[2, n_resamples]``.
        several: whether the first one is compared with a list of others.
        names: what is compared.
        method: the number of resamples, in words.

    Example:
        >>> import jax, jax.numpy as jnp, calibjax as cj
        >>> loc_key, target_key = jax.random.split(jax.random.key(0))
        >>> loc = jax.random.normal(loc_key, (300,))
        >>> targets = loc + jax.random.normal(target_key, (300,))
        >>> models = cj.Normal(loc, 1.0), cj.Normal(loc, 0.5)
        >>> result = cj.compare_calibration(jax.random.key(1), None, *models, targets)
        >>> bool(result.pvalue < 0.01), bool(result.confidence_interval().high < 0)
        (True, True)
    """

    estimates: jax.Array
    difference: jax.Array
    pvalue: jax.Array
    standard_error: jax.Array
    deviations: jax.Array
    several: bool = static(default=False)
    names: tuple[str, ...] = static(default=())
    method: str = static(default="")

    def confidence_interval(self, confidence_level: float | jax.Array = 0.95) -> ConfidenceInterval:
        """An interval (low, high) for the difference, difference ± c standard_error.

        c is the larger one of the quantiles of the errors upwards and downwards, each at the level
        (1 + confidence_level) / 2.  For K models all K intervals hold at once.  0 is outside of an
        interval exactly if the p-value is at most 1 - confidence_level.

        Args:
            confidence_level: a number in (0, 1).

        Raises:
            ValueError: the level is not in (0, 1), or so high that it needs more resamples.  Inside
                jit both ends are NaN instead.
        """
        n_resamples = self.deviations.shape[-1]
        level = one_level(confidence_level, self.deviations.dtype)
        # The p-value of the m-th largest draw is 2 m / (R + 1).  A thousandth keeps whole numbers
        # whole: 1 - 0.9 is less than 0.1.
        m = jnp.floor((1 - level) * (n_resamples + 1) / 2 + 1e-3)
        if not is_traced(m) and m < 1:
            raise ValueError(
                f"confidence_level must be at most 1 - 2 / {n_resamples + 1} with {n_resamples} "
                f"resamples, got {confidence_level}."
            )
        largest = jnp.sort(self.deviations, axis=-1, descending=True)
        place = jnp.nan_to_num(jnp.maximum(m - 1, 0.0)).astype(jnp.int32)
        quantile = jnp.max(jnp.take(largest, place, axis=-1), axis=-1)
        quantile = jnp.where(m >= 1, quantile, jnp.nan)
        error = (quantile[..., None] if self.several else quantile) * self.standard_error
        return ConfidenceInterval(self.difference - error, self.difference + error)

    def __repr__(self) -> str:
        rank = 1 if self.several else 0
        numbers = self.estimates, self.difference, self.pvalue
        if any(is_traced(x) or not is_array(x) for x in numbers) or np.ndim(self.pvalue) != rank:
            shape = getattr(self.pvalue, "shape", None)
            return f"CalibrationComparison({self.method}; pvalue of shape {shape})"
        first, *others = np.atleast_1d(self.estimates)
        first_name, *names = self.names
        columns = map(np.atleast_1d, (self.difference, self.standard_error, self.pvalue))
        lines = [
            f"  {name}: SKCE {other:.4g}, difference {difference:.3g} ± {error:.2g}, "
            f"pvalue {pvalue:.3g}{_words(first_name, difference, pvalue)}"
            for name, other, difference, error, pvalue in zip(names, others, *columns, strict=True)
        ]
        return "\n".join([f"{self.method}\n  {first_name}: SKCE {first:.4g}", *lines])


def _words(first: str, difference: float, pvalue: float) -> str:
    """Which one is better calibrated, where the p-value is small."""
    if not pvalue <= 0.05:
        return ""
    return f": {first} is {'better' if difference < 0 else 'worse'} calibrated"
