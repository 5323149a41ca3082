"""Errors that name the argument, what was expected and what was given.

Shapes and dtypes are known while tracing and are always checked.  Values are checked only where
they are concrete.  Inside a user's jit they are tracers, and a bad value makes the result NaN
instead (see `clean` of `_data`).
"""

import operator
from collections.abc import Collection, Mapping
from typing import Any, SupportsIndex

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from calibjax._base.struct import is_traced, on_host


def check_array(name: str, value: object, kind: str) -> None:
    """Raises a TypeError unless `value` is an array of the kind "real", "integer" or "boolean"."""
    if not isinstance(value, (jax.Array, np.ndarray, np.generic, jax.ShapeDtypeStruct)):
        # A column of a table, for example, would be quoted in full by an error of jax.
        is_column = hasattr(value, "__array__") and hasattr(value, "ndim")
        what = "an array of NumPy or JAX" if is_column else "an array"
        hint = "; numpy.asarray makes one of it" * (is_column or isinstance(value, (list, tuple)))
        raise TypeError(f"{name} must be {what}, got {type(value).__name__}{hint}.")
    if isinstance(value, np.ndarray) and value.dtype.kind in "OSU":
        hint = "number class labels by [columns.index(label) for label in labels]"
        if "covariates" in name:
            hint = "pass categories as groups"
            if name == "covariates":
                hint += ', or to tests in a mapping, {"region": region}'
        raise TypeError(f"{name} must hold {kind} values, got strings or objects; {hint}.")
    if isinstance(value, np.ma.MaskedArray) and np.ma.getmaskarray(value).any():
        words = f"got {np.ma.count_masked(value)}; fill them, and leave their rows out by where="
        raise ValueError(f"{name} must not have masked values, {words}.")
    # JAX has no times, and durations are integers for it.
    is_time = isinstance(value, np.ndarray) and value.dtype.kind in "mM"
    dtype = value.dtype if is_time else jnp.result_type(value)
    fits = {
        "real": jnp.issubdtype(dtype, jnp.floating) or jnp.issubdtype(dtype, jnp.integer),
        "integer": jnp.issubdtype(dtype, jnp.integer) or dtype == jnp.bool_,
        "boolean": dtype == jnp.bool_,
    }
    if is_time or not fits[kind]:
        hint = ""
        if kind == "integer" and jnp.issubdtype(dtype, jnp.floating):
            hint = "; whole numbers become integers by .astype(int)"
            if value.ndim == 2:
                hint = "; one-hot rows become labels by jnp.argmax(array, axis=1)"
        raise TypeError(f"{name} must hold {kind} values, got dtype {dtype}{hint}.")


def check_shapes(
    arrays: Mapping[str, tuple[Any, str]],
    sizes: Mapping[str, int] | None = None,
    one_axis_more: str = "",
    one_axis_less: str = "",
) -> dict[str, int]:
    """Matches arrays with symbolic shapes such as "n m"; a symbol has one size in all of them.

    Any further axes may stand for a "..." at the end.  Returns the size of each symbol,
    including the known ones of `sizes`.  The words `one_axis_more` and `one_axis_less`
    end the error message for an array that has one more, or one less.
    """
    sizes = dict(sizes or {})
    for name, (value, symbols) in arrays.items():
        axes = symbols.split()
        expected = f"shape [{', '.join(axes)}]"
        shape = value.shape
        if axes[-1:] == ["..."]:
            axes = axes[:-1]
            shape = shape[: len(axes)]
        if len(shape) != len(axes):
            hints = {len(axes) + 1: one_axis_more, len(axes) - 1: one_axis_less}
            hint = hints.get(value.ndim, "")
            raise ValueError(f"{name} must have {expected}, got shape {list(value.shape)}{hint}.")
        for axis, size in zip(axes, shape, strict=True):
            if sizes.setdefault(axis, size) != size:
                raise ValueError(
                    f"{name} must have {expected} with {axis} = {sizes[axis]} as in the "
                    f"predictions, got shape {list(value.shape)}{_swapped(axis, size, sizes)}."
                )
    return sizes


def _swapped(axis: str, size: int, sizes: Mapping[str, int]) -> str:
    """A hint where another axis of the predictions has the size that their rows should have."""
    others = [other for other, known in sizes.items() if known == size and axis == "n" != other]
    if not others:
        return ""
    return (
        f"; {others[0]} = {size} in the predictions: if their first two axes are swapped, "
        "jnp.moveaxis(array, 0, 1) puts n first"
    )


def check_values(name: str, value: ArrayLike, expected: str, valid: ArrayLike) -> None:
    """Raises a ValueError unless all of `valid` is true; it has the shape ``[]`` or ``[n]``."""
    valid = np.asarray(valid)
    if valid.all():
        return
    if valid.ndim == 0 or np.ndim(value) == 0:
        raise ValueError(f"{name} must be {expected}, got {value}.")
    row = int(valid.argmin())
    # A number that is too large for its dtype in jax is infinite, and is not called finite.
    with np.errstate(over="ignore"), np.printoptions(threshold=10, linewidth=1000):
        found = f"is {on_host(value)[row]!s}"
    raise ValueError(f"{name} must be {expected}; row {row} {found}.")


def check_integer(
    name: str, value: SupportsIndex, least: int, most: int | None = None, of: str = ""
) -> int:
    """`value` as an int; it must be a Python or NumPy integer from `least` to `most`.

    `of` stands in front of `most` in the message, for example "n = ".
    """
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool):
        raise TypeError(f"{name} must be an integer, got {_type_or_traced(value)}.")
    if most is None and number < least:
        raise ValueError(f"{name} must be at least {least}, got {number}.")
    if most is not None and not least <= number <= most:
        raise ValueError(f"{name} must be between {least} and {of}{most}, got {number}.")
    return number


def check_flag(name: str, value: object) -> bool:
    """`value` as a bool; it must be a Python or NumPy boolean."""
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name} must be a bool, got {_type_or_traced(value)}.")
    return bool(value)


def _type_or_traced(value: object) -> str:
    if is_traced(value):
        return "an argument of jit: close over it, or name it in static_argnames"
    return type(value).__name__


def check_choice(name: str, value: object, choices: Collection[str]) -> None:
    """Raises a ValueError unless `value` is one of the words in `choices`."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, got {value!r}.")


def check_key(key: jax.Array | None) -> None:
    """Raises a TypeError or ValueError unless `key` is one typed key of `jax.random`."""
    dtype = getattr(key, "dtype", None)
    if key is None or dtype is None or not jnp.issubdtype(dtype, jax.dtypes.prng_key):
        actual = type(key).__name__ if dtype is None else f"an array of dtype {dtype}"
        raise TypeError(
            f"key must be a typed key such as jax.random.key(0), got {actual}; "
            "jax.random.wrap_key_data makes one of a jax.random.PRNGKey."
        )
    if key.shape:
        raise ValueError(f"key must be one key, of shape [], got shape {list(key.shape)}.")
