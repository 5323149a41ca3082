"""What is known of rows beside predictions: covariates, clusters and times, weights of labels.

**Covariates** are other columns of a row, known before its target.

**Clusters**, or times with a horizon, make rows depend on each other.

**Weights that depend on the label** of a row are those that it would have had with each label.  A
row with the label c is sampled with a probability proportional to 1 / w_c.  If the model is
calibrated, the label of a row that was sampled is c with a probability q_c proportional to
p_c / w_c, and every weighted residual w_y (f(y) - E f(Z)), Z ~ p, has the mean 0.

Reference: Prentice and Pyke, Logistic disease incidence models and case-control studies, Biometrika
1979, for the probabilities q.
"""

import math
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from calibjax._base.check import check_array, check_shapes, check_values
from calibjax._base.sharding import devices_of, on_one_device
from calibjax._base.struct import is_array, is_traced, on_host, static, struct, widest_dtype
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


def coded_dependence(
    clusters: ArrayLike | None,
    times: ArrayLike | None,
    horizon: float | None,
    n: int,
    where: ArrayLike | None,
    kept: np.ndarray | None,
) -> tuple[Any, Any]:
    """Clusters as numbers and times in units of the horizon, each None if there are none.

    Clusters are numbered from 0 where they are concrete, in the order of their names, so that
    random numbers depend on their order alone.  Without a horizon, times are clusters: rows of one
    time may depend on each other, and rows of two times do not.
    """
    if clusters is not None and times is not None:
        raise ValueError(
            "clusters and times must not both be given: pass clusters if rows of different "
            "clusters never depend on each other, else times."
        )
    if horizon is not None and times is None:
        raise ValueError("times must be given with a horizon, got None.")
    if clusters is not None:
        check_array("clusters", clusters, "integer")
        check_shapes({"clusters": (clusters, "n")}, {"n": n})
        return _numbered(clusters, n, where, kept), None
    if times is None:
        return None, None
    check_array("times", times, "real")
    check_shapes({"times": (times, "n")}, {"n": n})
    if kept is not None and not is_traced(times):
        at = np.asarray(times, np.float64)
        with jax.ensure_compile_time_eval():
            check_values("times", times, "finite", np.isfinite(at) | ~kept)
    if horizon is None:
        return _numbered(times, n, where, kept), None
    if isinstance(horizon, bool) or not isinstance(horizon, (int, float, np.number)):
        raise TypeError(f"horizon must be a number of Python, got {type(horizon).__name__}.")
    if not 0 < horizon < math.inf:
        raise ValueError(f"horizon must be positive and finite, got {horizon}.")
    if is_traced(times) or kept is None or devices_of(times):
        return None, jnp.asarray(times) / horizon
    # Differences of times are all that counts, and a date in seconds has more digits than float32.
    at = np.asarray(times, np.float64)
    at = (at - np.min(at[kept], initial=np.inf)) / float(horizon)
    return None, jax.device_put(at.astype(jax.dtypes.canonicalize_dtype(float)))


def _numbered(values: ArrayLike, n: int, where: ArrayLike | None, kept: np.ndarray | None) -> Any:
    """Clusters as numbers from 0 on; integers remain as they are where they are not known here.

    Those of 64 bits are always numbered: two of them may have the same 32 bits.
    """
    if is_traced(values) or devices_of(values):
        if jnp.result_type(values).itemsize == 8:
            if where is not None:  # What masked rows hold takes no number.
                values = jnp.where(where, values, jnp.asarray(values)[jnp.argmax(where)])
            return jnp.unique(values, return_inverse=True, size=n)[1].astype(jnp.int32)
        if not jnp.issubdtype(jnp.result_type(values), jnp.floating):
            return jnp.asarray(values).astype(jnp.int32)
        # Equal numbers are equal bits, but for the sign of 0.
        as_float32 = jnp.asarray(values).astype(jnp.float32) + 0.0
        return jax.lax.bitcast_convert_type(as_float32, jnp.int32)
    values = np.asarray(values)
    names = np.unique(values if kept is None else values[kept])
    numbers = np.minimum(np.searchsorted(names, values), max(names.size - 1, 0))
    return jax.device_put(numbers.astype(np.int32))


def kept_rows(n: int, where: ArrayLike | None, weights: ArrayLike | None) -> np.ndarray | None:
    """Which rows count, ``[n]``, or None if that is traced."""
    if is_traced((where, weights)):
        return None
    kept = np.ones(n, bool) if where is None else np.array(on_host(where)[:n])
    if weights is not None:
        # A row has one weight, or one for each label.
        kept &= (on_host(weights)[:n] > 0).reshape(n, -1).all(axis=1)
    return kept


def weights_of_labels(weights: Any, labels: Any) -> Any:
    """The weights ``[n]`` of observed labels, of all ``[n, m]``; a masked row may hold anything."""
    is_known = not is_traced((weights, labels)) and devices_of((weights, labels)) is None
    numpy: Any = np if is_known else jnp
    weights, labels = map(on_host if is_known else jnp.asarray, (weights, labels))
    labels = numpy.clip(labels.astype(np.int32), 0, weights.shape[1] - 1)
    return numpy.take_along_axis(weights, labels[:, None], axis=1)[:, 0]


def sampled(probabilities: jax.Array, weights: jax.Array | None) -> jax.Array:
    """q, the probabilities of labels in rows that were sampled, ``[…, m]``; without weights p."""
    if weights is None:
        return probabilities
    odds = probabilities / weights
    return odds / odds.sum(axis=-1, keepdims=True)
