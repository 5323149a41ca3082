"""Checks of predictions, targets and the columns beside them, before they become `Data`.

Shapes and dtypes are always checked, and values where they are concrete: in NumPy, which compiles
nothing, or where the rows lie, if they lie on several devices.

0.1 in float32 differs from 0.1 in float64, and a target in one would not tie with a sample in the
other.  Both are rounded to the coarser dtype before they are compared.  This keeps ties, and a
target that could be exchanged for the samples remains exchangeable.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike

from calibjax._base.check import check_array, check_shapes, check_values
from calibjax._base.compile import filled_up
from calibjax._base.parameters import family_name
from calibjax._base.sharding import Axis, all_sum, devices_of, on_devices, on_one_device
from calibjax._base.struct import PyTree, is_array, is_floating, is_rounded, is_traced, on_host
from calibjax._data.capabilities import KnownLevels, OwnPIT, is_exchangeable
from calibjax._data.distribution import Binary, Distribution, Labels
from calibjax._data.interval_censored import IntervalCensored, Targets
from calibjax._data.row_columns import kept_rows
from calibjax._numbers.validity import is_nonnegative

#: Predictions, targets, mask and weights; each but the first may be None.
_Given = tuple[Distribution, PyTree, Any, Any]


def check_distribution(name: str, predictions: Any) -> None:
    """TypeError unless these are predictions; of an array it says which family it may be for."""
    if isinstance(predictions, Distribution):
        return
    actual, example = type(predictions).__name__, "Categorical(probs)"
    if is_array(predictions):
        shape = list(jnp.shape(predictions))
        actual = f"an array of shape {shape}"
        if len(shape) == 1:
            example = "Bernoulli(probs) of the probabilities of an event"
        elif shape[1:] == [1]:
            example = "Bernoulli(probs[:, 0]) of the probabilities of an event"
    raise TypeError(
        f"{name} must be a distribution of calibjax, such as {example}, got {actual}; "
        "as_predictions converts those of numpyro, distrax, TFP and scipy.stats."
    )


def check_shapes_of_predictions(
    predictions: Distribution, where: ArrayLike | None, name: str = "predictions", at_least: int = 2
) -> dict[str, int]:
    """The size of each axis that the family names, "n" for that of rows; checks types and shapes.

    `name` is what errors call the predictions, which must have `at_least` rows.
    """
    if not isinstance(predictions, Distribution):
        check_distribution(name, predictions)
    of_batch = "" if name == "predictions" else f" of {name}"
    arrays: dict[str, tuple[ArrayLike, str]] = {**parameters(predictions, of_batch)}
    if where is not None:
        check_array("where", where, "boolean")
        arrays["where"] = where, "n"
    sizes = check_shapes(arrays, None, *hints_of_axes(predictions))
    if sizes["n"] < at_least:
        raise too_few_rows(name, sizes["n"], at_least)
    return sizes


_ONE_OF_SEVERAL = "; each of several labels is an event, Bernoulli(probs[:, 0]) and targets[:, 0]"


def hints_of_axes(predictions: Distribution) -> tuple[str, str]:
    """What parameters with one axis more, or one less, may be: the ends of error messages."""
    is_binary, family = isinstance(predictions, Binary), type(predictions).__name__
    several = f"; classes are Categorical(probs){_ONE_OF_SEVERAL}" * is_binary
    models = (
        f"; K models for each target are Mixture.ensemble({family}(…)) of arrays [n, K, …], which "
        "jnp.moveaxis(array, 0, 1) makes of [K, n, …]"
    )
    return several + models, predictions.one_axis_less


def too_few_rows(name: str, n: int, at_least: int) -> ValueError:
    """The error for fewer than `at_least` rows."""
    rows = "row" if at_least == 1 else "rows"
    return ValueError(f"{name} must hold at least {at_least} {rows}, got {n}.")


def parameters(predictions: Distribution, of_batch: str = "") -> dict[str, tuple[jax.Array, str]]:
    """Each parameter with its symbolic shape; TypeError if it is not an array of real numbers."""
    arrays: dict[str, tuple[jax.Array, str]] = {}
    for name, axes in predictions.shapes.items():
        value = predictions.parameter(name)
        check_array(f"{name}{of_batch}", value, "boolean" if name == "where" else "real")
        arrays[f"{name}{of_batch}"] = value, axes
    return arrays


def check_dtype_of_targets(name: str, targets: Targets, predictions: Distribution) -> None:
    """A TypeError unless targets are of the kind of predictions; booleans are of two labels."""
    check_array(name, targets, predictions.target_kind)
    if jnp.result_type(targets) != jnp.bool_ or isinstance(predictions, Binary):
        return
    n_labels = predictions.n_labels
    if n_labels is None or n_labels > 2:
        kind = "counts" if n_labels is None else f"labels 0 … {n_labels - 1}"
        raise TypeError(f"{name} must be {kind}, got booleans, which are targets of events.")


def check_shapes_of_targets(
    predictions: Distribution, targets: Targets, sizes: dict[str, int]
) -> Targets:
    """The targets, of the right types and shapes; ends of intervals in one dtype."""
    if not isinstance(targets, IntervalCensored):
        check_dtype_of_targets("targets", targets, predictions)
        hint = f"; labels of one-hot rows are jnp.argmax(targets, axis=1){_ONE_OF_SEVERAL}"
        hint *= isinstance(predictions, Labels)
        check_shapes({"targets": (targets, predictions.target_shape)}, sizes, hint)
        return targets
    has_cdf = predictions.is_ordered or isinstance(predictions, Labels)
    if not has_cdf or is_exchangeable(predictions) or isinstance(predictions, KnownLevels):
        raise TypeError(
            "targets must be an array, got IntervalCensored: it is for predictions of one number "
            f"whose cdf is known everywhere, got {family_name(predictions)}."
        )
    ends = targets.named_ends()
    for name, end in ends.items():
        check_array(name, end, "real")
    check_shapes({name: (end, "n") for name, end in ends.items()}, sizes)
    return targets.in_one_dtype()


def check_values_of_rows(
    predictions: Distribution,
    targets: Any = None,
    where: Any = None,
    weights: Any = None,
    of_batch: str = "",
    targets_name: str = "targets",
) -> None:
    """Checks the values of kept rows, of each argument only if it is concrete."""
    given: _Given = predictions, targets, where, weights
    are_traced = tuple(map(is_traced, given))
    if are_traced[2]:
        return
    is_cut = devices_of(given) is not None
    if is_cut and not any(are_traced):
        # It evaluates as below, but folds no constants: jax cannot within the rows of one device.
        with jax.core.eval_context():
            if _are_valid(None, given):
                return
    with jax.ensure_compile_time_eval(), np.errstate(all="ignore"):
        predictions, targets, where, weights = here = on_one_device(given) if is_cut else given
        # Arrays of NumPy: checks compile nothing, or little for a bucket of sizes.
        leaves, structure = jax.tree.flatten(here)
        for i, x in enumerate(leaves):
            if not is_traced(x):
                leaves[i] = on_host(x) if any(are_traced) else filled_up(on_host(x))
        rows: _Given = jax.tree.unflatten(structure, leaves)
        masked = False if rows[2] is None else ~rows[2]
        if not are_traced[0]:
            for parameter, (words, valid) in rows[0].constraints().items():
                value = predictions.parameter(parameter)
                check_values(f"{parameter}{of_batch}", value, words, np.asarray(valid) | masked)
        if targets is not None and not are_traced[1]:
            if isinstance(targets, IntervalCensored):
                conditions = rows[1].conditions(rows[0])
            else:
                conditions = [(targets_name, targets, *rows[0].supports(rows[1]))]
            for name, value, words, valid in conditions:
                # The support of some families depends on their parameters.
                if not is_traced(valid):
                    check_values(name, value, words, np.asarray(valid) | masked)
        if are_traced[3]:
            return
        if weights is not None:
            of_labels = "positive and finite for all labels, or 0 for all"
            words = of_labels if np.ndim(weights) == 2 else "nonnegative and finite"
            check_values("weights", weights, words, np.asarray(_are_weights(rows[3])) | masked)
        if any(map(is_rounded, jax.tree.leaves(given[:2]))) and not are_traced[1]:
            kept = kept_rows(len(predictions), *rows[2:])
            check_digits(predictions, targets, kept, of_batch, targets_name)


def valid_rows(predictions: Distribution, targets: Any = None, weights: Any = None) -> jax.Array:
    """Which rows have valid predictions, and targets and weights if these are given, ``[n]``."""
    conditions: list[tuple[Any, ...]] = [*predictions.constraints().values()]
    if isinstance(targets, IntervalCensored):
        conditions += targets.conditions(predictions)
    elif targets is not None:
        conditions.append(predictions.supports(targets))
    if weights is not None:
        conditions.append(("weights", _are_weights(weights)))
    valid = conditions[0][-1]
    for *_, other in conditions[1:]:
        valid = valid & other
    return valid


def _are_weights(weights: Any) -> jax.Array:
    """Whether a row has a valid weight, or one for each label: each may be sampled, or none."""
    valid = is_nonnegative(weights)
    if weights.ndim == 1:
        return valid
    return valid.all(axis=1) & ((weights > 0).all(axis=1) | (weights == 0).all(axis=1))


@on_devices
def _are_valid(axis: Axis, _: None, rows: _Given) -> jax.Array:
    """Whether all kept rows are valid."""
    predictions, targets, where, weights = rows
    valid = valid_rows(predictions, targets, weights)
    return all_sum(jnp.sum(~valid if where is None else ~valid & where), axis) == 0


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

    Dates as large numbers are such rows.  Only values that jax would round are checked: float64 in
    NumPy, unless jax_enable_x64 is set.

    Args:
        predictions: n predictions.
        targets: concrete ones; only arrays of real numbers or vectors are checked.
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
