"""Which of several models is better calibrated, on the same targets.

Let D = H_A - H_B be the difference of the matrices of h of two models, d its diagonal, and e the
centred counts of a multinomial resample of the rows.  The difference of both SKCE is a difference
of two squared norms, |w_A|^2 - |w_B|^2, and with the quadratic form Q(w) = |w_A|^2 - |w_B|^2 the
error of its estimate is 2 <w, u>_Q + Q(u) - E Q(u) for the errors u of the estimates of w.  The
bootstrap puts the mean of n terms with the weights e in the place of u:

    T* = [2 e^T D 1 + e^T D e - E e^T D e] / (n (n-1)),    E e^T D e = sum_i d_i - 1^T D 1 / n.

One resample of the rows serves all models, so that whatever their targets have in common cancels.

Where at least one model is not calibrated, the linear term decides, and the law is exact in the
limit.  Where all are calibrated, <w, u> is 0, but T* has 2 <w_n, u*> for an estimate w_n of
w = 0: its variance is up to 3 times too large, and the test rejects more rarely than stated.  The
linear term is not made smaller where it seems to be noise: then nearly calibrated models with few
large eigenvalues of H would be said to differ too often.

The tails of T* and of the error can be mirror images: T* is bounded below by -|w_n|^2 if B is
certain and right, and the quantile of that tail is no bound for anything.  An interval is therefore
as wide on both sides as the wider tail of T* demands.
"""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from calibjax._batch import check_predictions, kept_first
from calibjax._check import check_integer, check_key
from calibjax._data import Data, clean
from calibjax._distribution import Distribution
from calibjax._door import check_inputs
from calibjax._sharding import Axis, all_sum, on_devices
from calibjax._struct import is_array, is_traced, static, struct, widest_dtype
from calibjax.intervals._bootstrap import resampled_forms
from calibjax.intervals._common_kernel import common_kernel
from calibjax.intervals._confidence_interval import ConfidenceInterval, one_level
from calibjax.intervals._counting import rounding_of
from calibjax.intervals._rare_events import remark_on_rare_events
from calibjax.kernels import KernelLike
from calibjax.operators import tiled_h_of_clean


@struct
class CalibrationComparison:
    """Which of two models, or of K + 1 models, is better calibrated.

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
        several: whether the second models were given as a list.
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
        names = [f"second[{k}]" for k in range(len(others))] if self.several else ["second"]
        columns = map(np.atleast_1d, (self.difference, self.standard_error, self.pvalue))
        lines = [
            f"  {name}: SKCE {other:.4g}, difference {difference:.3g} ± {error:.2g}, "
            f"pvalue {pvalue:.3g}{_words(difference, pvalue)}"
            for name, other, difference, error, pvalue in zip(names, others, *columns, strict=True)
        ]
        return "\n".join([f"{self.method}\n  first: SKCE {first:.4g}", *lines])


def _words(difference: float, pvalue: float) -> str:
    """Which model is better, where the p-value is small."""
    if not pvalue <= 0.05:
        return ""
    return ": first is better calibrated" if difference < 0 else ": first is worse calibrated"


def compare_calibration(
    key: jax.Array,
    kernel: KernelLike | None,
    first: Distribution,
    second: Distribution | Sequence[Distribution],
    targets: ArrayLike,
    *,
    n_resamples: int = 999,
    where: ArrayLike | None = None,
) -> CalibrationComparison:
    """Which of two models is better calibrated, on the same targets and with the same kernel?

    The difference of their unbiased SKCE is compared with its errors T* in R = n_resamples
    multinomial resamples of the rows, the same rows for both models:
    p = min(1, 2 (1 + max(#{T* >= |difference|}, #{T* <= -|difference|})) / (R + 1)).  It is a test
    of the hypothesis that both SKCE are equal, however large they are.  Where at least one model is
    wrong, the test and the interval are right as n grows.  Where both are calibrated, the test
    rejects them in far less than a fraction a of all cases at level a: it does not call two
    calibrated models different.  The price is power near calibration: beside a calibrated model,
    logits that are twice too large were found in 19 % of all cases with n = 300, and in nearly all
    with n = 1000.  Rows must be independent.

    `second` may be a list of K models, each of which is compared with `first`.  All K differences
    share the resamples, and their p-values and intervals come from the largest error of any of
    them, in units of its standard error (single-step max-T): with a probability of 95 % all
    intervals at 95 % hold.

    Two models are compared by how they would be judged by one kernel: a kernel is an opinion about
    which errors count.  A model that says less, such as the overall frequencies for everyone, may
    be better calibrated, and of less use.

    With few rows, or few events among them, the resamples do not show how much the difference
    varies, and the test rejects too often: take at least ten rows and ten rare events.  Outside of
    jit `method` says so if every model expects less than ten rare events.

    Time O(n^2 n_resamples) for each model, memory O(n), one byte for each row and each of at most
    1024 resamples.  Models on several devices stay there.

    Args:
        key: a key of `jax.random`.
        kernel: a kernel that takes the predictions of all models, or None for the usual one from
            all predictions together: of one family its `default_kernel`; else exp(-d(p, q) / l) of
            the total variation for labels, and of the Euclidean distance of locations and spreads
            for numbers, vectors and counts, times a GaussianKernel, or a WhiteKernel for labels and
            counts.
        first: a batch of n >= 2 predictions of one family.
        second: a batch of n predictions for the same targets, of any family, or a list of batches.
        targets: array ``[n]`` or ``[n, d]``; class labels are ``0 … m-1``.
        n_resamples: R; resample r depends only on (key, r).
        where: boolean mask ``[n]``; masked rows may hold anything.

    Returns:
        CalibrationComparison with the `difference`, first minus second, its `pvalue`, its
        `confidence_interval` and all `estimates`; for a list of K models differences and p-values
        are ``[K]``.  Inside jit a bad value of any model, or fewer than two kept rows, makes all
        p-values and intervals NaN.

    Raises:
        TypeError, ValueError: as in `skce`; `second` has another number of rows, or is empty.

    Example:
        >>> import jax, jax.numpy as jnp, calibjax as cj
        >>> loc_key, target_key = jax.random.split(jax.random.key(0))
        >>> loc = jax.random.normal(loc_key, (300,))
        >>> targets = loc + jax.random.normal(target_key, (300,))
        >>> first, second = cj.Normal(loc, 1.0), cj.Normal(loc, 0.5)
        >>> result = cj.compare_calibration(jax.random.key(1), None, first, second, targets)
        >>> float(result.pvalue)
        0.002

    Reference: Arcones and Giné, On the bootstrap of U and V statistics, Annals of Statistics 20,
    1992; for several models Westfall and Young, Resampling-based multiple testing, 1993.
    """
    check_key(key)
    several = not isinstance(second, Distribution)
    others = _others(second)
    n_resamples = check_integer("n_resamples", n_resamples, 1)
    n = check_predictions(first, where, name="first", at_least=2)["n"]
    for name, other in others.items():
        size = check_predictions(other, name=name)["n"]
        if size != n:
            raise ValueError(f"{name} must hold n = {n} rows as first does, got {size}.")
        check_predictions(other, where, name=name, at_least=2)
    models = [first, *others.values()]
    if kernel is None:
        kernel = common_kernel(models, where)
    checked = [check_inputs(kernel, model, targets, where) for model in models]
    found = [_resampled_skce((key, kernel), data, n_resamples) for kernel, data in checked]
    result = _comparison(found, several, f"compare_calibration, {n_resamples} resamples")
    # A model that expects no event at all may be sure and right: another one speaks for the rows.
    remarks = [remark_on_rare_events(result, data, "more rows") for _, data in checked]
    return remarks[0] if all(x.method != result.method for x in remarks) else result


def _others(second: Any) -> dict[str, Distribution]:
    """The models that the first one is compared with, and what errors call them."""
    if isinstance(second, Distribution):
        return {"second": second}
    if not isinstance(second, Sequence):
        raise TypeError(
            f"second must be predictions or a list of predictions, got {type(second).__name__}."
        )
    if not second:
        raise ValueError("second must hold at least one model, got an empty list.")
    return {f"second[{k}]": model for k, model in enumerate(second)}


@on_devices
def _resampled_skce(
    axis: Axis, shared: Any, data: Data, n_resamples: int
) -> tuple[jax.Array, jax.Array]:
    """The unbiased SKCE, and its errors T* in the resamples ``[R]``, with H in the place of D."""
    key, kernel = shared
    data, n_kept = kept_first(clean(data, axis), data.where)
    # One row alone gives 0 / 0.
    enough = all_sum(jnp.asarray(n_kept), axis) > 1
    weights = jnp.where(enough, data.weights, jnp.nan)
    data = Data(data.predictions, data.targets, weights=weights)
    h = tiled_h_of_clean(kernel, data, axis)
    forms, row_sums = resampled_forms(key, h, n_kept, n_resamples)
    n, trace = h.count(), h.trace()
    total = all_sum(jnp.sum(h.weights * row_sums), axis)
    mean = trace - (total + trace) / n
    linear, quadratic = forms.rows + forms.diagonal, forms.pairs + forms.squares
    return h.unbiased(row_sums), (2 * linear + (quadratic - mean)) / (n * (n - 1))


@functools.partial(jax.jit, static_argnums=(1, 2))
def _comparison(
    found: Sequence[tuple[jax.Array, jax.Array]], several: bool, method: str
) -> CalibrationComparison:
    """The comparison of the first of K + 1 models with the others."""
    dtype = widest_dtype(*jax.tree.leaves(found))
    estimates, draws = (jnp.stack([x.astype(dtype) for x in xs]) for xs in zip(*found, strict=True))
    differences, errors = estimates[:1] - estimates[1:], draws[:1] - draws[1:]
    # Models that are the same up to rounding do not differ: their errors are rounding, too.
    sizes = jnp.concatenate([draws, estimates[:, None]], axis=1)
    rounding = jnp.maximum(rounding_of(sizes[:1]), rounding_of(sizes[1:]))
    scale = jnp.sqrt(jnp.mean(jnp.square(errors), axis=1))
    # Not negated: NaN is no rounding.
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
        estimates, differences, pvalues, standard_errors, deviations, several, method
    )
