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

**Weights, and rows that depend on each other.**  The estimates leave out the pairs of rows that may
depend on each other, and the errors u* = delta* have random multipliers (`_dependent_sums.py`):

    T* = 2 <w_n, u*>_Q + Q(u*) - mean of Q(u*) over all draws.

The tails of T* and of the error can be mirror images: T* is bounded below by -|w_n|^2 if B is
certain and right, and the quantile of that tail is no bound for anything.  An interval is therefore
as wide on both sides as the wider tail of T* demands.
"""

import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calibjax._between import Targets
from calibjax._check import check_integer, check_key
from calibjax._compile import quick_jit
from calibjax._distribution import Distribution
from calibjax._rows import (
    Data,
    Dependence,
    as_data,
    check_predictions,
    clean_kept_first,
    padded,
    parameters,
    with_dependence,
)
from calibjax._sharding import Axis, all_sum, on_devices
from calibjax._struct import widest_dtype
from calibjax.discrepancy import SumOfTerms, check_kernel_of
from calibjax.intervals._common_kernel import common_kernel
from calibjax.intervals._comparison import CalibrationComparison
from calibjax.intervals._dependent_interval import depends, sums_of_data
from calibjax.intervals._rare_events import remark_on_rare_events
from calibjax.kernels import KernelLike
from calibjax.operators import tiled_h
from calibjax.resampling import resampled_forms, rounding_of


def compare_calibration(
    key: jax.Array,
    kernel: KernelLike | None,
    first: Distribution,
    second: Distribution | Sequence[Distribution],
    targets: Targets,
    *,
    n_resamples: int = 999,
    where: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    clusters: ArrayLike | None = None,
    times: ArrayLike | None = None,
    horizon: float | None = None,
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
    with n = 1000.  Rows must be independent, or `clusters` or `times` say which ones are not: the
    estimates leave out pairs that may depend on each other, and random multipliers of clusters or
    times take the place of resamples.

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
        targets: array ``[n]`` or ``[n, d]``; class labels are ``0 … m-1``.  Of single numbers also
            `Between`, where they are censored or binned.
        n_resamples: R; resample r depends only on (key, r).
        where: boolean mask ``[n]``; masked rows may hold anything.
        weights: how much each row counts, nonnegative numbers ``[n]`` that are known before the
            targets; None for equal weights.
        clusters: integers ``[n]``: rows of one cluster may depend on each other in any way.
        times: numbers ``[n]``: rows of one time may depend on each other in any way.
        horizon: a number in units of the times: rows less than it apart may depend on each other;
            None for rows of one time only.

    Returns:
        CalibrationComparison with the `difference`, first minus second, its `pvalue`, its
        `confidence_interval` and all `estimates`; for a list of K models differences and p-values
        are ``[K]``.  Inside jit a bad value of any model, or fewer than two kept rows, makes all
        p-values and intervals NaN.

    Raises:
        TypeError, ValueError: as in `skce`; `second` has another number of rows, or is empty.

    See also:
        `skce_confidence_interval` for one model, `compare_groups` for one model and groups of rows.

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
        if isinstance(other, Distribution):
            (shape, *_) = (x.shape for x, _ in parameters(other, f" of {name}").values())
            if shape and shape[0] != n:
                raise ValueError(f"{name} must hold n = {n} rows as first does, got {shape[0]}.")
        check_predictions(other, where, name=name)
    # The targets are checked for each family.
    checked = [
        as_data(model, targets, where=where, weights=weights, intervals=True)
        for model in [first, *others.values()]
    ]
    dependence = Dependence(clusters, times, horizon)
    checked = [with_dependence(data, dependence) for data in checked]
    checked[0].check_unrelated()
    # All models have the same rows, and those that are known by draws are not padded.
    score_only = any(data.predictions.score_only for data in checked)
    models = checked if score_only else [padded(data) for data in checked]
    if kernel is None:
        kernel = common_kernel([data.predictions for data in models], models[0].where)
    (terms, *_) = [check_kernel_of(kernel, data) for data in checked]
    # All models have the same multipliers.
    is_normal = any(data.predictions.has_labels for data in models)
    found = [resampled_skce((key, terms), data, n_resamples, is_normal) for data in models]
    draws = f"multipliers of {checked[0].describe_units()}" if depends(checked[0]) else "resamples"
    result = comparison_of(
        found, several, ("first", *others), f"compare_calibration, {n_resamples} {draws}"
    )
    # A model that expects no event at all may be sure and right: another one speaks for the rows.
    remarks = [remark_on_rare_events(result, data, "more rows") for data in models]
    return remarks[0] if all(x.method != result.method for x in remarks) else result


def _others(second: Distribution | Sequence[Distribution]) -> dict[str, Distribution]:
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
def resampled_skce(
    axis: Axis, shared: tuple[jax.Array, SumOfTerms], data: Data, n_resamples: int, is_normal: bool
) -> tuple[jax.Array, jax.Array]:
    """The unbiased SKCE, and its errors T* in the resamples ``[R]``, with H in the place of D."""
    if depends(data):
        _, _, sums = sums_of_data(axis, shared, data, n_resamples, is_normal)
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


@functools.partial(quick_jit, static_argnums=(1, 2, 3))
def comparison_of(
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
