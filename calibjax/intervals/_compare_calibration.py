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

**Weights, and dependent rows.**  The estimates leave out the pairs of rows that may
depend on each other, and the errors u* = delta* are turned (`nulls.bootstrap`):

    T* = 2 <w_n, u*>_Q + Q(u*) - mean of Q(u*) over all draws.

The tails of T* and of the error can be mirror images: T* is bounded below by -|w_n|^2 if B is
certain and right, and the quantile of that tail does not bound the error.  An interval is therefore
as wide on both sides as the wider tail of T* demands.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Unpack

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from calibjax._base.check import check_integer, check_key
from calibjax._base.compile import quick_jit
from calibjax._base.sharding import Axis, all_sum, on_devices
from calibjax._base.struct import is_array, is_traced, static, struct, widest_dtype
from calibjax._base.text import listed, p_in_words
from calibjax._data.checks import parameters
from calibjax._data.column_encoding import ColumnCode
from calibjax._data.data import Data, RowOptions, Rows, as_data, clean_kept_first
from calibjax._data.distribution import Distribution, Labels
from calibjax._data.interval_censored import Targets
from calibjax._data.padding import check_predictions, padded
from calibjax._data.typed_column import Frame, named_columns, typed_column
from calibjax.discrepancy import SumOfTerms, check_kernel_of
from calibjax.expectations import default_kernel
from calibjax.expectations.default_features import location_and_spread
from calibjax.expectations.defaults import JointKernel, default_kernel_of_models, gaussian_kernel
from calibjax.intervals.rare_events import note_on_rare_events
from calibjax.intervals.skce_interval import ConfidenceInterval, h_and_dependent_sums
from calibjax.kernels.bandwidth import median_heuristic
from calibjax.kernels.base import KernelLike
from calibjax.kernels.distances import EmbeddingDistance, TotalVariation
from calibjax.kernels.predictions import DistanceKernel, TensorProduct
from calibjax.kernels.stein import SteinKernel
from calibjax.kernels.targets import GaussianKernel, WhiteKernel
from calibjax.nulls.bootstrap import resampled_forms
from calibjax.nulls.ranks import one_level, rounding_of
from calibjax.nulls.sampler import why_not_tested
from calibjax.operators.gram_matrix import tiled_h


@struct
class CalibrationComparison:
    """The comparison of the calibration of two models, or of K + 1 models or groups of rows.

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
        n_draws = self.deviations.shape[-1]
        lines = [
            f"  {name}: SKCE {other:.3g}, {first_name} minus {name} {difference:.3g} "
            f"(SE {error:.2g}), {p_in_words(pvalue, n_draws, sides=2)}"
            f"{_words(first_name, difference, pvalue)}"
            for name, other, difference, error, pvalue in zip(names, others, *columns, strict=True)
        ]
        title = f"Unbiased SKCE (can be negative), one kernel for all; {self.method}"
        return "\n".join([title, f"  {first_name}: SKCE {first:.3g}", *lines])


def _words(first: str, difference: float, pvalue: float) -> str:
    """Which one is better calibrated, where the p-value is small."""
    if not pvalue <= 0.05:
        return ""
    return f": {first} is {'better' if difference < 0 else 'worse'} calibrated"


@on_devices
def _resampled_skce(
    axis: Axis, shared: tuple[jax.Array, SumOfTerms], data: Rows, n_resamples: int
) -> tuple[jax.Array, jax.Array]:
    """The unbiased SKCE, and its errors T* in the resamples ``[R]``, with H instead of D."""
    if not data.is_plain:
        _, _, sums = h_and_dependent_sums(axis, shared, data, n_resamples)
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
    """The number of resamples, such as "999 resamples" or "999 turns of 60 clusters"."""
    draws = "resamples" if data.is_plain else f"turns of {data.describe_units()}"
    return "; ".join(filter(None, (f"{n_resamples} {draws}", why_not_tested(data))))


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
        keys: one for each of the data; equal keys stand for the same resamples, or turns.
        kernel: one kernel for all data.
        data: checked rows of each model or group.
        n_resamples: the number of resamples.
        names: what is compared.
        several: whether the first one is compared with a list of others.
        method: the name of the test, and the resamples.
        instead: what to use where few rare events are expected.
        speaks: `any`, if a note says that few events are expected in any of the data, or `all`.
    """
    # All models have the same turns.
    found = [
        _resampled_skce((key, kernel), rows, n_resamples)
        for key, rows in zip(keys, data, strict=True)
    ]
    result = _comparison(found, several, names, method)
    if all(map(why_not_tested, data)):
        result = dataclasses.replace(result, pvalue=jnp.full_like(result.pvalue, jnp.nan))
    notes = [note_on_rare_events(result, rows, instead) for rows in data]
    are_few = [note.method != result.method for note in notes]
    return notes[are_few.index(True)] if speaks(are_few) else result


@functools.partial(quick_jit, static_argnums=(1, 2, 3))
def _comparison(
    found: Sequence[tuple[jax.Array, jax.Array]], several: bool, names: tuple[str, ...], method: str
) -> CalibrationComparison:
    """The comparison of the first of K + 1 estimates and their errors with the others."""
    dtype = widest_dtype(*jax.tree.leaves(found))
    estimates, draws = (jnp.stack([x.astype(dtype) for x in xs]) for xs in zip(*found, strict=True))
    differences, errors = estimates[:1] - estimates[1:], draws[:1] - draws[1:]
    # Models that are equal up to rounding do not differ, and their errors are rounding.
    sizes = jnp.concatenate([draws, estimates[:, None]], axis=1)
    rounding = jnp.maximum(rounding_of(sizes[:1]), rounding_of(sizes[1:]))
    scale = jnp.sqrt(jnp.mean(jnp.square(errors), axis=1))
    # Written so that it is false for NaN.
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


# The SKCE of a group needs pairs of its rows.
_LEAST_ROWS = 2


def compare_groups(
    key: jax.Array,
    kernel: KernelLike | None,
    predictions: Distribution | Data,
    targets: Targets | None = None,
    groups: object = None,
    *,
    n_resamples: int = 999,
    **rows: Unpack[RowOptions],
) -> CalibrationComparison:
    """Compares the calibration of a model for groups of rows.

    .. math::
        \\mathrm{SKCE}_A - \\mathrm{SKCE}_B,
        \\quad \\mathrm{SKCE}_g = E[h((P, Y), (P', Y')) \\mid \\text{both rows are of group } g],

    with one kernel for all groups.  The first group in the order of the names is compared with each
    other one, as `compare_calibration` compares models: two-sided p-values of the hypothesis that
    both SKCE are equal, of any size, and simultaneous intervals for all groups.  The rows of each
    group are resampled separately.  With `clusters` or `times` all rows of a cluster or time share
    one multiplier, whatever their groups: what two groups have in common there, such as two
    measurements of each person, cancels.

    It compares calibration within groups, which is only one aspect of fairness.  A group with less
    informative predictions, such as the overall frequency for all of its rows, may be better
    calibrated, and is not better served.  To test for which group a model is wrong at all, use
    `segment_test`, whose level is exact.

    If all groups are calibrated, the test rejects in far less than a fraction a of cases at level
    a.  Use at least ten rows and ten rare events in each group; outside of jit `method` warns if a
    group expects fewer.

    O(n^2 n_resamples) time for each group, memory O(n).

    Args:
        key: a key of `jax.random`.
        kernel: as in `skce`, or None for the `default_kernel` of all predictions.
        predictions, targets: as in `Data`, or one `Data`; of single numbers also
            `IntervalCensored`.
        groups: the name of the group of each row, ``[n]``: texts, numbers, times or truth values,
            which are known outside of jit, and before the targets; or a dict or a frame with this
            column alone, as `segment_test` takes it.
        n_resamples: R; resample r depends only on (key, r).
        rows: `where`, `weights`, `clusters`, `times` and `horizon` of `Data`.

    Returns:
        CalibrationComparison, whose `names` are the groups, and whose differences are those of the
        first group minus each other one; numbers for two groups, else ``[K]``.

    Raises:
        TypeError, ValueError: as in `skce`; `groups` of another shape or type, of fewer than two
            groups, or with fewer than two rows in one of them.

    See also:
        `segment_test` for whom a model is wrong, `compare_calibration` for several models.

    Example:
        >>> import jax, jax.numpy as jnp, numpy as np, calibjax as cj
        >>> errors = jax.random.normal(jax.random.key(0), (600,))
        >>> region = np.repeat(["north", "south"], 300)
        >>> errors = jnp.where(region == "south", 2.0, 1.0) * errors
        >>> predictions = cj.Normal(jnp.zeros(600), jnp.ones(600))
        >>> result = cj.compare_groups(jax.random.key(1), None, predictions, errors, region)
        >>> result.names, bool(result.pvalue < 0.01), bool(result.difference < 0)
        (('north', 'south'), True, True)

    Reference: Arcones and Giné, On the bootstrap of U and V statistics, Annals of Statistics 20,
    1992, for the errors of one group; those of two groups are independent.
    """
    check_key(key)
    n_resamples = check_integer("n_resamples", n_resamples, 1)
    data = as_data(predictions, targets, intervals=True, **rows)
    if groups is None:
        raise TypeError("groups must be a column with the name of the group of each row, got None.")
    names, codes = _read_groups(groups, data)
    filled = data if data.predictions.score_only else padded(data)
    terms = check_kernel_of(default_kernel(filled) if kernel is None else kernel, filled)
    codes = np.pad(codes, (0, filled.n - data.n), constant_values=-1)
    kept = True if filled.where is None else filled.where
    parts = [
        filled.replace(where=jnp.asarray(of_group) & kept)
        for of_group in codes[None] == np.arange(len(names))[:, None]
    ]
    for part in parts:
        part.check_unrelated()
    # Rows of two groups that do not depend on each other have resamples of their own.
    keys = [jax.random.fold_in(key, g) if data.is_plain else key for g in range(len(names))]
    return compare(
        keys,
        terms,
        parts,
        n_resamples,
        names=names,
        several=len(names) > 2,
        method=f"compare_groups, {describe_resamples(data, n_resamples)}",
        instead="larger groups",
        speaks=any,
    )


def _read_groups(groups: object, data: Data) -> tuple[tuple[str, ...], np.ndarray]:
    """The names of the groups, and the number of the group of each row, -1 if it does not count."""
    if isinstance(groups, (Mapping, Frame)):
        columns = named_columns("groups", groups)
        if len(columns) != 1:
            raise ValueError(f"groups must be one column, got {listed(list(columns))}.")
        (groups,) = columns.values()
    kept = data.counted_rows()
    column = typed_column("groups", groups, data.n, kept, known=True)
    code = ColumnCode.of("groups", column, kept, few=data.n)
    codes = np.where(kept, code.codes(column), -1)
    if code.n_known < 2:
        raise ValueError(f"groups must hold at least two groups, got {code.n_known}.")
    names, counts = code.names(column, codes), np.bincount(codes[kept])
    if np.min(counts) < _LEAST_ROWS:
        raise ValueError(
            f"groups must have at least {_LEAST_ROWS} rows each, got {np.min(counts)} of "
            f"{names[np.argmin(counts)]}."
        )
    return names, codes


def compare_calibration(
    key: jax.Array,
    kernel: KernelLike | None,
    first: Distribution | Data,
    second: Distribution | Data | Sequence[Distribution | Data],
    targets: Targets | None = None,
    *,
    n_resamples: int = 999,
    **rows: Unpack[RowOptions],
) -> CalibrationComparison:
    """Compares the calibration of models on the same targets and with the same kernel.

    The difference of their unbiased SKCE is compared with its errors T* in R = n_resamples
    multinomial resamples of the rows, the same rows for both models:
    p = min(1, 2 (1 + max(#{T* >= |difference|}, #{T* <= -|difference|})) / (R + 1)).  It tests the
    hypothesis that both SKCE are equal, of any size.  If at least one model is miscalibrated, the
    test and the interval are valid for large n.  If both are calibrated, the test rejects in far
    less than a fraction a of cases at level a: it does not call two calibrated models different.
    The price is power near calibration: against a calibrated model, logits twice too large were
    detected in 19 % of cases with n = 300, and in nearly all with n = 1000.  Rows must be
    independent; for dependent rows, pass `clusters` or `times`: the estimates omit pairs that may
    depend on each other, and random multipliers of clusters or times replace resamples.

    `second` may be a list of K models, each of which is compared with `first`.  All K differences
    share the resamples, and their p-values and intervals are from the largest error of any of them,
    in units of its standard error (single-step max-T): the 95 % intervals are simultaneous.

    All models are scored with one kernel, which decides which errors count.  A less informative
    model, such as the overall frequencies for everyone, may be better calibrated, and less useful.

    With few rows, or few events, the resamples under-estimate the variance of the difference, and
    the test rejects too often: use at least ten rows and ten rare events.  Outside of jit `method`
    warns if every model expects less than ten rare events.

    Time O(n^2 n_resamples) for each model, memory O(n), one byte for each row and each of at most
    1024 resamples.  Models on several devices stay there.

    Args:
        key: a key of `jax.random`.
        kernel: a kernel that takes the predictions of all models, or None for the usual one from
            all predictions together: for one family its `default_kernel`; else exp(-d(p, q) / l) of
            the total variation for labels, and of the Euclidean distance of locations and spreads
            for numbers, vectors and counts, times a GaussianKernel, or a WhiteKernel for labels and
            counts.
        first: a batch of n >= 2 predictions of one family, or one `Data` with the targets.
        second: a batch of n predictions for the same targets, of any family, or a list of batches;
            or `Data` of a model with its own targets on the same rows, such as whether its answers
            to the same questions are right.
        targets: as in `Data`; of single numbers also `IntervalCensored`.
        n_resamples: R; resample r depends only on (key, r).
        rows: `where`, `weights`, `clusters`, `times` and `horizon` of `Data`.

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
    several = not isinstance(second, (Distribution, Data))
    others = _others(second)
    n_resamples = check_integer("n_resamples", n_resamples, 1)
    if not isinstance(first, Data):
        check_predictions(first, rows.get("where"), name="first")
    data = as_data(first, targets, intervals=True, **rows)
    data.check_unrelated()
    given = data.targets if targets is None else targets
    own = {name: x.targets if isinstance(x, Data) else given for name, x in others.items()}
    others = {name: x.predictions if isinstance(x, Data) else x for name, x in others.items()}
    for name, other in others.items():
        if isinstance(other, Distribution):
            (shape, *_) = (x.shape for x, _ in parameters(other, f" of {name}").values())
            if shape and shape[0] != data.n:
                raise ValueError(f"{name} must hold n = {data.n} rows like first, got {shape[0]}.")
        check_predictions(other, data.where, name=name)
    # The targets are checked for each family.
    options = {"where": data.where, "weights": data.weights}
    units = {"clusters": data.clusters, "times": data.times}
    checked = [data]
    for name, other in others.items():
        checked.append(as_data(other, own[name], intervals=True, **options).replace(**units))
    # All models have the same rows, and those that are known by draws are not padded.
    score_only = any(data.predictions.score_only for data in checked)
    models = checked if score_only else [padded(data) for data in checked]
    if kernel is None:
        kernel = _common_kernel([data.predictions for data in models], models[0].where)
    (terms, *_) = [check_kernel_of(kernel, data) for data in checked]
    return compare(
        [key] * len(models),
        terms,
        models,
        n_resamples,
        names=("first", *others),
        several=several,
        method=f"compare_calibration, {describe_resamples(checked[0], n_resamples)}",
        instead="more rows",
        # A model that expects no event may be sure and right: another one speaks for the rows.
        speaks=all,
    )


def _others(second: Distribution | Data | Sequence[Distribution | Data]) -> dict[str, Any]:
    """The models that the first one is compared with, and what errors call them."""
    if isinstance(second, (Distribution, Data)):
        return {"second": second}
    if not isinstance(second, Sequence):
        raise TypeError(
            f"second must be predictions or a list of predictions, got {type(second).__name__}."
        )
    if not second:
        raise ValueError("second must hold at least one model, got an empty list.")
    return {f"second[{k}]": model for k, model in enumerate(second)}


def _common_kernel(models: Sequence[Distribution], where: ArrayLike | None) -> JointKernel:
    """A kernel that takes the predictions of all models, from the predictions alone.

    For numbers, and for one family and shape, it is the `default_kernel` of all predictions
    together.  Different families share the probabilities of labels, or else locations and spreads:
    then it is exp(-d(p, q) / l) k(y, z) of their distance d, with the mean of the models'
    lengthscales.
    """
    if len({_family_and_shapes(p) for p in models}) == 1:
        together = jax.tree.map(lambda *x: jnp.concatenate(_in_one_dtype(x)), *models)
        masks = None if where is None else jnp.concatenate([jnp.asarray(where)] * len(models))
        return default_kernel(Rows(together, where=masks))
    if all(p.is_ordered for p in models):
        return default_kernel_of_models([(p, where) for p in models])
    are_labels = all(isinstance(p, Labels) for p in models)
    distance = TotalVariation() if are_labels else EmbeddingDistance(location_and_spread)
    lengthscale = _mean([median_heuristic(distance, Rows(p, where=where)) for p in models])
    real = [p for p in models if p.target_kind == "real"]
    # A family of real numbers, counts included, has no closed form with a white kernel.
    lengthscales = [jnp.asarray(gaussian_kernel(Rows(p, where=where)).lengthscale) for p in real]
    target_kernel = GaussianKernel(_mean(lengthscales)) if real else WhiteKernel()
    on_pairs = SteinKernel if any(p.score_only for p in models) else TensorProduct
    return on_pairs(DistanceKernel(distance, lengthscale), target_kernel)


def _family_and_shapes(
    model: Distribution,
) -> tuple[jax.tree_util.PyTreeDef, tuple[tuple[int, ...], ...]]:
    leaves, structure = jax.tree.flatten(model)
    return structure, tuple(jnp.shape(leaf)[1:] for leaf in leaves)


def _in_one_dtype(arrays: Sequence[ArrayLike]) -> list[jax.Array]:
    """Numbers of one dtype: models may differ in theirs."""
    dtypes = {jnp.result_type(x) for x in arrays}
    dtype = dtypes.pop() if len(dtypes) == 1 else widest_dtype(*arrays)
    return [jnp.asarray(x, dtype) for x in arrays]


def _mean(scales: Sequence[jax.Array]) -> jax.Array:
    return jnp.mean(jnp.stack(_in_one_dtype(scales)), axis=0)
