r"""The comparison of the SKCE of several models, or of several groups of rows.

Let D = H_A - H_B be the difference of the matrices of h of two models, d its diagonal, and e the
centred counts of a multinomial resample of the rows.  The difference of both SKCE is a difference
of two squared norms, |w_A|^2 - |w_B|^2, and with the quadratic form Q(w) = |w_A|^2 - |w_B|^2 the
error of its estimate is 2 <w, u>_Q + Q(u) - E Q(u) for the errors u of the estimates of w.  The
bootstrap puts the mean of n terms with the weights e instead of u:

    T* = [2 e^T D 1 + e^T D e - E e^T D e] / (n (n-1)),    E e^T D e = sum_i d_i - 1^T D 1 / n.

One resample of the rows serves all models, so that whatever their targets have in common cancels.

Where at least one model is not calibrated, the linear term decides, and T* is right in the
limit.  Where all are calibrated, <w, u> is 0, but T* has 2 <w_n, u*> for an estimate w_n of
w = 0: its variance is up to 3 times too large, and the test rejects more rarely than stated.  The
linear term is not made smaller where it seems to be noise: then nearly calibrated models with few
large eigenvalues of H would be said to differ too often.

**Weights, and rows that depend on each other.**  The estimates leave out the pairs of rows that may
depend on each other, and the errors u* = delta* have random multipliers (`_bootstrap.py`):

    T* = 2 <w_n, u*>_Q + Q(u*) - mean of Q(u*) over all draws.

The tails of T* and of the error can be mirror images: T* is bounded below by -|w_n|^2 if B is
certain and right, and the quantile of that tail is no bound for anything.  An interval is therefore
as wide on both sides as the wider tail of T* demands.
"""

import functools
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._base.compile import quick_jit
from calibjax._base.sharding import Axis, all_sum, on_devices
from calibjax._base.struct import is_array, is_traced, static, struct, widest_dtype
from calibjax._data import Data, clean_kept_first
from calibjax.discrepancy import SumOfTerms
from calibjax.intervals._norm_intervals import ConfidenceInterval
from calibjax.intervals._rare_events import remark_on_rare_events
from calibjax.intervals._skce_interval import h_and_dependent_sums
from calibjax.operators import tiled_h
from calibjax.resampling import one_level, resampled_forms, rounding_of


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
        index = jnp.nan_to_num(jnp.maximum(m - 1, 0.0)).astype(jnp.int32)
        quantile = jnp.max(jnp.take(largest, index, axis=-1), axis=-1)
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


@on_devices
def _resampled_skce(
    axis: Axis, shared: tuple[jax.Array, SumOfTerms], data: Data, n_resamples: int, is_normal: bool
) -> tuple[jax.Array, jax.Array]:
    """The unbiased SKCE, and its errors T* in the resamples ``[R]``, with H instead of D."""
    if not data.is_plain:
        _, _, sums = h_and_dependent_sums(axis, shared, data, n_resamples, is_normal)
        return sums.estimate, 2 * sums.linear + (sums.errors - jnp.mean(sums.errors))
    key, kernel = shared
    data, n_kept = clean_kept_first(data, axis)
    h = tiled_h(kernel, data, axis)
    forms, row_sums = resampled_forms(key, h, n_kept, n_resamples)
    n, trace = h.count(), h.trace()
    total = all_sum(jnp.sum(h.weights * row_sums), axis)
    mean = trace - (total + trace) / n
    linear, quadratic = forms.rows + forms.diagonal, forms.pairs + forms.squares
    return h.unbiased(row_sums), (2 * linear + (quadratic - mean)) / (n * (n - 1))


def describe_resamples(data: Data, n_resamples: int) -> str:
    """The number of resamples, such as "999 resamples" or "999 multipliers of 60 clusters"."""
    draws = "resamples" if data.is_plain else f"multipliers of {data.describe_units()}"
    return f"{n_resamples} {draws}"


def compare(
    keys: Sequence[jax.Array],
    kernel: SumOfTerms,
    data: Sequence[Data],
    n_resamples: int,
    *,
    names: tuple[str, ...],
    several: bool,
    method: str,
    instead: str,
    speaks: Callable[[list[bool]], bool],
) -> CalibrationComparison:
    """The comparison of the SKCE of the first data with those of the others.

    Args:
        keys: one for each of the data; equal keys stand for the same resamples, or multipliers.
        kernel: one kernel for all data.
        data: checked rows of each model or group.
        n_resamples: the number of resamples.
        names: what is compared.
        several: whether the first one is compared with a list of others.
        method: the name of the test, and the resamples.
        instead: what to use where few rare events are expected.
        speaks: `any`, if a remark says that few events are expected in any of the data, or `all`.
    """
    # All models have the same multipliers.
    is_normal = any(rows.predictions.has_labels for rows in data)
    found = [
        _resampled_skce((key, kernel), rows, n_resamples, is_normal)
        for key, rows in zip(keys, data, strict=True)
    ]
    result = _comparison(found, several, names, method)
    remarks = [remark_on_rare_events(result, rows, instead) for rows in data]
    are_few = [remark.method != result.method for remark in remarks]
    return remarks[are_few.index(True)] if speaks(are_few) else result


@functools.partial(quick_jit, static_argnums=(1, 2, 3))
def _comparison(
    found: Sequence[tuple[jax.Array, jax.Array]],
    several: bool,
    names: tuple[str, ...],
    method: str,
) -> CalibrationComparison:
    """The comparison of the first of K + 1 estimates and their errors with the others."""
    dtype = widest_dtype(*jax.tree.leaves(found))
    estimates, draws = (jnp.stack([x.astype(dtype) for x in xs]) for xs in zip(*found, strict=True))
    differences, errors = estimates[:1] - estimates[1:], draws[:1] - draws[1:]
    # Models that are the same up to rounding do not differ: their errors are rounding, too.
    sizes = jnp.concatenate([draws, estimates[:, None]], axis=1)
    rounding = jnp.maximum(rounding_of(sizes[:1]), rounding_of(sizes[1:]))
    scale = jnp.sqrt(jnp.mean(jnp.square(errors), axis=1))
    # Written so that it is false for NaN, which is no rounding.
    are_same = scale <= rounding
    unit = jnp.where(are_same, 1.0, scale)
    errors = jnp.where(are_same[:, None], 0.0, errors / unit[:, None])
    deviations = jnp.stack([jnp.max(errors, axis=0), jnp.max(-errors, axis=0)])
    excess = jnp.abs(differences) - rounding
    # Data that do not vary at all decide, as if the errors were infinitely small.
    certain = jnp.where(excess > 0, jnp.inf, excess)
    statistic = jnp.where(are_same, certain, excess / unit)
    at_least = jnp.sum(~(deviations[:, None, :] < statistic[None, :, None]), axis=-1)
    counts = 1 + jnp.max(at_least, axis=0).astype(dtype)
    pvalues = jnp.minimum(1.0, 2 * counts / (deviations.shape[-1] + 1))
    # The largest error of any difference is unknown if one of them is.
    unknown = jnp.isnan(statistic) | jnp.any(jnp.isnan(deviations))
    pvalues = jnp.where(unknown, jnp.nan, pvalues)
    standard_errors = jnp.where(are_same, 0.0, scale)
    if not several:
        differences, pvalues, standard_errors = differences[0], pvalues[0], standard_errors[0]
    return CalibrationComparison(
        estimates, differences, pvalues, standard_errors, deviations, several, names, method
    )
