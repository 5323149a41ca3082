"""Digits of rows in several dtypes: comparisons in the coarser one, and whether float32 has enough.

0.1 in float32 is another number than 0.1 in float64, and a target of the one would be no tie with a
sample of the other.  Both are rounded to the coarser dtype before they are compared.  This keeps
ties, and a target that could be exchanged for the samples remains exchangeable.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from calibjax._base.struct import PyTree, is_floating, is_rounded, is_traced, on_host
from calibjax._data.capabilities import OwnPIT
from calibjax._data.distribution import Distribution

# Maximum number of rows looked at, evenly spaced.
_MOST_ROWS = 1000
# Maximum rounding error of a difference that float32 keeps, as a share of the difference.
_MOST_ERROR = 0.05
# Maximum relative difference of values of float64 that are meant to be equal.
_EQUAL = 1e-12


def compared_in_one_precision(
    predictions: Distribution, targets: PyTree
) -> tuple[Distribution, PyTree]:
    """Predictions and targets, those parameters that targets are compared with in one precision."""
    if not isinstance(predictions, OwnPIT):
        return predictions, targets
    names = predictions.compared_with_targets
    leaves = [*map(predictions.parameter, names), *jax.tree.leaves(targets)]
    rounded = in_one_precision(*leaves)
    if all(x is y for x, y in zip(leaves, rounded, strict=True)):
        return predictions, targets
    of_leaf = dict(zip(map(id, leaves), rounded, strict=True))
    return jax.tree.map(lambda x: of_leaf.get(id(x), x), (predictions, targets))


def in_one_precision(*arrays: Any) -> list[Any]:
    """The arrays, those of floating-point numbers rounded to the coarsest dtype among them.

    Numbers stay in their dtypes, and integers as they are.
    """
    dtypes = {jnp.result_type(x) for x in arrays if is_floating(x)}
    if len(dtypes) < 2:
        return list(arrays)
    coarsest = max(dtypes, key=lambda dtype: jnp.finfo(dtype).eps)
    return [_rounded(x, coarsest) if is_floating(x) else x for x in arrays]


def _rounded(x: Any, dtype: np.dtype) -> Any:
    if isinstance(x, np.ndarray):
        with np.errstate(over="ignore"):  # Masked rows may hold anything.
            return x.astype(dtype).astype(x.dtype)
    # XLA may leave out two conversions, but not this.
    digits = jnp.finfo(dtype)
    return lax.reduce_precision(x, digits.nexp, digits.nmant)


def check_digits(
    predictions: Distribution,
    targets: Any,
    kept: np.ndarray | None,
    of_batch: str = "",
    targets_name: str = "targets",
) -> None:
    """A ValueError if float32 cannot tell most targets from values of their own predictions.

    Dates as large numbers are such rows.  Only what jax would round is looked at: numbers of
    float64 in NumPy, unless jax_enable_x64 is set.

    Args:
        predictions: n predictions.
        targets: concrete ones; only arrays of real numbers or vectors are looked at.
        kept: which rows count, ``[n]``.
        of_batch: stands behind the names of parameters in the error.
        targets_name: what the error calls the targets.
    """
    is_real = predictions.target_kind == "real" and not predictions.score_only
    if not (is_real and isinstance(targets, np.ndarray | jax.Array)):
        return
    assert kept is not None  # Neither the mask nor weights are traced here.
    of_names = {name: predictions.parameter(name) for name in predictions.shapes}
    rounded = [
        name
        for name, values in of_names.items()
        if not is_traced(values) and (is_rounded(values) or is_rounded(targets))
    ]
    if not rounded or not kept.any():
        return
    rows = np.flatnonzero(kept)
    rows = rows[:: max(len(rows) // _MOST_ROWS, 1)]
    for name in rounded:
        axes, values = predictions.shapes[name], of_names[name]
        y, v = (np.asarray(x)[rows].astype(np.float64) for x in (targets, values))
        if axes.split()[0] != "n" or (y.ndim > 1 and axes.split()[-1] != "d"):
            continue
        # The values of each coordinate of a row, [rows, …, values].
        v = v.reshape(len(y), -1) if y.ndim == 1 else np.moveaxis(v, -1, 1).reshape(*y.shape, -1)
        if not _share_lost(y, v).max() > 0.5:
            continue
        with jax.enable_x64(True):
            some = jax.tree.map(lambda x: np.asarray(x)[rows].astype(np.float64), predictions)
            spread = np.asarray(some.spread())
        share = np.atleast_1d(_share_lost(y, v, spread))
        if share.max() > 0.5:
            k = int(share.argmax())
            y, v = y.reshape(len(y), -1)[:, k], v.reshape(len(y), share.size, -1)[:, k]
            both, common = np.append(y, v), np.round(np.median(y))
            cure = 'Call jax.config.update("jax_enable_x64", True) first'
            if not _share_lost(y - common, v - common) > 0.5:
                cure += f", or subtract a common number such as {common:.16g} from both in float64"
            raise ValueError(
                f"{targets_name} and {name}{of_batch} must not lose their differences in float32, "
                f"in which jax computes: {np.unique(both).size} different values become "
                f"{np.unique(on_host(both)).size}. {cure}."
            )


def _share_lost(y: np.ndarray, v: np.ndarray, spread: np.ndarray | None = None) -> np.ndarray:
    """The share of rows where rounding moves y too far from most of its v, of each coordinate."""
    with np.errstate(all="ignore"):
        exact, rounded = y[..., None] - v, on_host(y)[..., None].astype(float) - on_host(v)
        size = np.median(np.abs(exact), axis=-1)
        error = np.median(np.abs(rounded - exact), axis=-1)
        is_lost = (error > _MOST_ERROR * size) & (size > _EQUAL * np.abs(y))
        if spread is not None:
            is_lost &= error > _MOST_ERROR * spread
        return np.mean(is_lost, axis=0)
