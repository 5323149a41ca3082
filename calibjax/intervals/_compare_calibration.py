"""Which of several models, or of several groups of rows, is better calibrated."""

from collections.abc import Sequence
from typing import Any, Unpack

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from calibjax._base.check import check_integer, check_key
from calibjax._base.struct import widest_dtype
from calibjax._data import (
    ColumnCode,
    Data,
    Distribution,
    RowOptions,
    Targets,
    as_data,
    check_predictions,
    padded,
    parameters,
    typed_column,
)
from calibjax.discrepancy import check_kernel_of
from calibjax.expectations import (
    JointKernel,
    default_kernel,
    default_kernel_of_models,
    gaussian_kernel,
    location_and_spread,
)
from calibjax.intervals._comparison import CalibrationComparison, compare, describe_resamples
from calibjax.kernels import (
    DistanceKernel,
    EmbeddingDistance,
    GaussianKernel,
    KernelLike,
    SteinKernel,
    TensorProduct,
    TotalVariation,
    WhiteKernel,
    median_heuristic,
)

# The SKCE of a group needs pairs of its rows.
_LEAST_ROWS = 2


def compare_groups(
    key: jax.Array,
    kernel: KernelLike | None,
    predictions: Distribution | Data,
    targets: Targets | None = None,
    groups: Any = None,
    *,
    n_resamples: int = 999,
    **rows: Unpack[RowOptions],
) -> CalibrationComparison:
    """Is a model better calibrated for one group of rows than for another one?

    .. math::
        \\mathrm{SKCE}_A - \\mathrm{SKCE}_B,
        \\quad \\mathrm{SKCE}_g = E[h((P, Y), (P', Y')) \\mid \\text{both rows are of group } g],

    with one kernel for all groups.  The first group in the order of the names is compared with each
    other one, as `compare_calibration` compares models: two-sided p-values of the hypothesis that
    both SKCE are equal, however large they are, and intervals that hold for all groups at once.
    The rows of each group are resampled by themselves.  With `clusters` or `times` one multiplier
    serves all rows of a cluster or time, whatever their groups: what two groups have in common
    there, such as two measurements of each person, cancels.

    It is about calibration within groups and says nothing else about what is fair.  A group for
    which predictions say less, such as the overall frequency for all of its rows, may be better
    calibrated, and is not better served.  To find out for whom a model is wrong at all, take
    `segment_test`, whose level is exact.

    Where all groups are calibrated, the test rejects in far less than a fraction a of all cases at
    the level a.  Take at least ten rows and ten rare events in each group; outside of jit `method`
    says so if a group expects less.

    O(n^2 n_resamples) time for each group, memory O(n).

    Args:
        key: a key of `jax.random`.
        kernel: as in `skce`, or None for the `default_kernel` of all predictions.
        predictions, targets: as in `Data`, or one `Data`; of single numbers also `Between`.
        groups: the name of the group of each row, ``[n]``: texts, numbers, times or truth values,
            which are known outside of jit, and before the targets.
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


def _read_groups(groups: Any, data: Data) -> tuple[tuple[str, ...], np.ndarray]:
    """The names of the groups, and the number of the group of each row, -1 if it does not count."""
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
    second: Distribution | Sequence[Distribution],
    targets: Targets | None = None,
    *,
    n_resamples: int = 999,
    **rows: Unpack[RowOptions],
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
    times replace resamples.

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
        first: a batch of n >= 2 predictions of one family, or one `Data` with the targets.
        second: a batch of n predictions for the same targets, of any family, or a list of batches.
        targets: as in `Data`; of single numbers also `Between`.
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
    several = not isinstance(second, Distribution)
    others = _others(second)
    n_resamples = check_integer("n_resamples", n_resamples, 1)
    if not isinstance(first, Data):
        check_predictions(first, rows.get("where"), name="first")
    data = as_data(first, targets, intervals=True, **rows)
    data.check_unrelated()
    for name, other in others.items():
        if isinstance(other, Distribution):
            (shape, *_) = (x.shape for x, _ in parameters(other, f" of {name}").values())
            if shape and shape[0] != data.n:
                raise ValueError(
                    f"{name} must hold n = {data.n} rows as first does, got {shape[0]}."
                )
        check_predictions(other, data.where, name=name)
    # The targets are checked for each family.
    given = data.targets if targets is None else targets
    options = {"where": data.where, "weights": data.weights}
    units = {"clusters": data.clusters, "times": data.times}
    checked = [data]
    for other in others.values():
        checked.append(as_data(other, given, intervals=True, **options).replace(**units))
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


def _common_kernel(models: Sequence[Distribution], where: ArrayLike | None) -> JointKernel:
    """A kernel that takes the predictions of all models, from the predictions alone.

    Of numbers, and of one family and shape, it is the `default_kernel` of all predictions together.
    Different families have in common the probabilities of labels, or else locations and spreads:
    then it is exp(-d(p, q) / l) k(y, z) of their distance d, with the mean of the models'
    lengthscales.
    """
    if len({_family_and_shapes(p) for p in models}) == 1:
        together = jax.tree.map(lambda *x: jnp.concatenate(_in_one_dtype(x)), *models)
        masks = None if where is None else jnp.concatenate([jnp.asarray(where)] * len(models))
        return default_kernel(Data.unchecked(together, where=masks))
    if all(p.is_ordered for p in models):
        return default_kernel_of_models([(p, where) for p in models])
    are_labels = all(p.has_labels for p in models)
    distance = TotalVariation() if are_labels else EmbeddingDistance(location_and_spread)
    lengthscale = _mean(
        [median_heuristic(distance, Data.unchecked(p, where=where)) for p in models]
    )
    real = [p for p in models if p.target_kind == "real"]
    # A family of real numbers has no closed form with a white kernel, and counts are real, too.
    lengthscales = [
        jnp.asarray(gaussian_kernel(Data.unchecked(p, where=where)).lengthscale) for p in real
    ]
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
