"""Covariates of a map: numbers of which the ranks among those of the fit count."""

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._base.check import check_array, check_shapes
from calibjax._base.struct import is_array
from calibjax._data import CovariatesLike, covariate_columns


def read_covariates(
    given: CovariatesLike | None, n: int, kept: np.ndarray
) -> tuple[tuple[str, ...], np.ndarray | None]:
    """Names of columns, and numbers ``[n, d]`` that are known in all rows that count."""
    columns = _columns(given, n)
    if not columns:
        return (), None
    found = np.stack([np.asarray(x, float) for x in columns.values()], axis=1)
    unknown = np.flatnonzero(kept & ~np.isfinite(found).all(axis=1))
    if unknown.size:
        raise ValueError(
            f"covariates must be finite in every row, got {found[unknown[0]].tolist()} in row "
            f"{unknown[0]}."
        )
    return tuple(columns), found


def covariates_of(given: CovariatesLike | None, names: tuple[str, ...], n: int) -> jax.Array | None:
    """The columns ``[n, d]`` that a map was fitted with, in their order."""
    if (given is None) != (not names):
        if names:
            raise ValueError(
                f"covariates must be given, since the map was fitted with them: {', '.join(names)}."
            )
        raise ValueError(
            "covariates must be None for a map that was fitted without covariates, got columns."
        )
    columns = _columns(given, n)
    lacking = [name for name in names if name not in columns]
    if lacking or (is_array(given) and len(columns) != len(names)):
        raise ValueError(
            f"covariates must have the columns of the fit, {', '.join(names)}, got "
            f"{', '.join(columns)}."
        )
    if not names:
        return None
    return jnp.stack([jnp.asarray(columns[name]) for name in names], axis=1)


def _columns(given: CovariatesLike | None, n: int) -> dict[str, jax.Array | np.ndarray]:
    columns = {} if given is None else covariate_columns(given, n)
    return {name: _numbers(name, values, n) for name, values in columns.items()}


def _numbers(name: str, values: object, n: int) -> jax.Array | np.ndarray:
    array = values if isinstance(values, jax.Array) else np.asarray(values)
    of_column = f"column {name} of covariates"
    if array.dtype == bool:
        array = array.astype(np.float32)
    check_array(of_column, array, "real")
    check_shapes({of_column: (array, "n")}, {"n": n})
    return array
