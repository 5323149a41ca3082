"""For which of several groups of rows one model is better calibrated."""

from typing import Any, Unpack

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._base.check import check_integer, check_key
from calibjax._data import (
    ColumnCode,
    Data,
    Distribution,
    RowOptions,
    Targets,
    as_data,
    padded,
    typed_column,
)
from calibjax.discrepancy import check_kernel_of
from calibjax.expectations import default_kernel
from calibjax.intervals._comparison import CalibrationComparison, compare, describe_resamples
from calibjax.kernels import KernelLike

# The SKCE of a group needs pairs of its rows.
_LEAST_ROWS = 2


def compare_groups(
    key: jax.Array,
    kernel: KernelLike | None,
    predictions: Distribution | Data,
    targets: Targets | None,
    groups: Any,
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
        predictions, targets: as in `Data`, or one `Data` and None; of single numbers also
            `Between`.
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
