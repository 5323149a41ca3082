"""Covariates: other columns of a row, known before its target."""

from typing import cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from calibjax._base.check import check_array, check_shapes, check_values
from calibjax._base.sharding import devices_of, on_one_device
from calibjax._base.struct import is_array, is_traced, static, struct, widest_dtype
from calibjax._data.typed_column import Frame, NamedColumns, named_columns, numbered, typed_column

# With more categories than this, the less frequent ones are one category.
_MOST_CATEGORIES = 64


#: An array ``[n, d]``, or columns ``[n]`` by their names.
CovariatesLike = ArrayLike | NamedColumns


@struct
class Covariates:
    """d columns of what is known of each row beside its prediction.

    Args:
        values: numbers, or numbers of categories, ``[n, d]``.
        names: of the columns.
        sizes: how many categories each column has, and 0 if it holds numbers.
    """

    values: jax.Array
    names: tuple[str, ...] = static()
    sizes: tuple[int, ...] = static()


def coded_covariates(given: CovariatesLike, n: int, kept: np.ndarray | None) -> Covariates:
    """Covariates ``[n, d]``, or named columns ``[n]``, as numbers.

    Only the order of numbers counts: where they are known, they become whole numbers, so that no
    digit is lost.
    """
    columns = covariate_columns(given, n)
    found = {name: _column(name, values, n, kept) for name, values in columns.items()}
    values, sizes = zip(*found.values(), strict=True)
    if all(isinstance(x, np.ndarray) for x in values):
        together = jax.device_put(np.stack(values, axis=1))
    else:
        dtype = widest_dtype(*values)
        together = jnp.stack([jnp.asarray(x, dtype) for x in values], axis=1)
    return Covariates(together, tuple(found), sizes)


def covariate_columns(covariates: CovariatesLike, n: int) -> dict[str, object]:
    """The columns of covariates by their names, in an array by their numbers."""
    columns: dict[str, object]
    # A frame can be made an array too.
    if is_array(covariates) and not isinstance(covariates, Frame):
        check_array("covariates", covariates, "real")
        hint = "; array[:, None] makes one column of [n]"
        check_shapes({"covariates": (covariates, "n d")}, {"n": n}, one_axis_less=hint)
        array = cast("jax.Array", covariates)
        columns = {str(j): array[:, j] for j in range(array.shape[1])}
    else:
        columns = named_columns("covariates", cast("NamedColumns", covariates))
    if not columns:
        raise ValueError("covariates must have at least one column, got none.")
    return columns


def _column(
    name: str, values: object, n: int, kept: np.ndarray | None
) -> tuple[np.ndarray | jax.Array, int]:
    """Numbers ``[n]`` in the order of the values, and 0; or numbers of categories, and how many."""
    of_column = f"column {name} of covariates"
    is_sharded = isinstance(values, jax.Array) and devices_of(values) is not None
    if is_traced(values) or kept is None or is_sharded:
        check_array(of_column, values, "real")
        check_shapes({of_column: (values, "n")}, {"n": n})
        if not is_traced(values) and kept is not None:
            at = np.asarray(on_one_device(values))
            check_values(of_column, at, "known in every row", ~(np.isnan(at) & kept))
        return jnp.asarray(values), 0
    column = typed_column(of_column, values, n, kept, known=True)
    levels, indices = numbered(column.values[kept])
    numbers, size = np.zeros(n, np.int32), 0
    if levels.dtype.kind == "O":
        # The most frequent category is 0.
        ranks = np.argsort(np.argsort(-np.bincount(indices), kind="stable"))
        size = min(levels.size, _MOST_CATEGORIES)
        indices = np.minimum(ranks[indices], size - 1)
    numbers[kept] = indices
    return numbers, size
