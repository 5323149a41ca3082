"""Columns by the types that they have: numbers, truth values, times or texts.

Equality is decided here, once, by values and never by how they are printed.
"""

import datetime
import math
import numbers
from collections.abc import Hashable, Iterable, Mapping
from decimal import Decimal
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import numpy as np

from calibjax._base.check import check_shapes
from calibjax._base.struct import is_traced


@runtime_checkable
class Frame(Protocol):
    """A table with named columns, of pandas, Polars or others."""

    @property
    def columns(self) -> Iterable[Hashable]: ...

    def __getitem__(self, name: Hashable, /) -> object: ...


#: Columns by their names: arrays, lists or series ``[n]`` in a mapping, or a frame.
NamedColumns = Mapping[Hashable, object] | Mapping[str, object] | Frame


def named_columns(argument: str, given: NamedColumns) -> dict[str, object]:
    """The columns by their names as texts; `argument` is what errors call them."""
    if isinstance(given, Mapping):
        check_same_order(**{argument: given})
        found = [(str(name), values) for name, values in given.items()]
    elif isinstance(given, Frame):
        found = [(str(name), given[name]) for name in given.columns]
    else:
        raise TypeError(
            f'{argument} must be a mapping of names to arrays, such as {{"region": region}}, or a '
            f"frame, got {type(given).__name__}."
        )
    names = [name for name, _ in found]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{argument} must have different names, got {twice} twice.")
    return dict(found)


def check_same_order(**given: object) -> None:
    """A ValueError if arguments of pandas have one index in two orders.

    Items of a mapping, such as groups, and of a tuple, such as times and events, are checked.
    """
    known: dict[str, Any] = {}
    for name, value in given.items():
        parts: Any = dict(enumerate(value)) if isinstance(value, tuple) else value
        named = isinstance(parts, Mapping)
        found = {f"{name}[{k!r}]": x for k, x in parts.items()} if named else {name: parts}
        for called, index in ((k, x.index) for k, x in found.items() if hasattr(x, "iloc")):
            others = [x for x, y in known.items() if len(y) == len(index) and not y.equals(index)]
            for other in (x for x in others if set(known[x]) == set(index)):
                raise ValueError(
                    f"{called} must have its index in the order of {other}: {called}.loc[{other}."
                    f"index] has it; if rows match by position, pass {called}.to_numpy()."
                )
            known[called] = index


_HOUR = np.timedelta64(1, "h")
# What pandas and R write where a value is missing.
NO_VALUE = frozenset({"", "NA", "N/A", "NaN", "nan", "NaT", "null", "NULL", "None", "<NA>"})


class TypedColumn(NamedTuple):
    """A column, whose values are compared as what they are.

    Args:
        name: what errors call it, such as "column region of groups".
        values: ``[n]``, booleans, int64, or uint64 beyond it, floats, times of UTC as
            datetime64[us], or texts, which are objects.
        missing: which rows have no value, ``[n]``; `values` hold anything there.
        given: the original column, which says how values are printed.
    """

    name: str
    values: np.ndarray
    missing: np.ndarray
    given: Any

    @property
    def is_number(self) -> bool:
        """Whether values have distances, as numbers and times have, and not categories."""
        is_categorical = str(getattr(self.given, "dtype", "")) == "category"  # of pandas
        return self.values.dtype.kind in "iufM" and not is_categorical

    def text(self, row: np.integer[Any] | int) -> str:
        """The value of a row, as text."""
        value = np.asarray(getattr(self.given, "iloc", self.given)[row : row + 1])[0]
        is_float = isinstance(value, (float, np.floating)) and self.values.dtype.kind != "O"
        if is_float and float(value).is_integer() and abs(value) < 2**53:
            return str(int(value))
        return f"{value + 0:.4g}" if is_float else text_of(value)

    def texts(self) -> np.ndarray:
        """The values as texts ``[n]``, which an item has whatever items stand beside it."""
        is_list = isinstance(self.given, (list, tuple))
        items = self.given if is_list else read_array(self.given)
        return np.array([text_of(x) for x in items], object)


def typed_column(
    name: str, given: object, n: int, kept: np.ndarray | bool = True, known: bool = False
) -> TypedColumn:
    """A column ``[n]``; `name` is what errors call it, such as "column region of groups".

    Naive times are taken for those of UTC, a period is its start, a duration is its hours, and
    decimals are numbers.  Texts of numbers are texts.  Objects of several kinds are their texts.
    Rows that are not `kept` may hold anything.

    Raises:
        TypeError, ValueError: the column is traced, has another shape, holds lists or complex
            numbers, or misses a value although all must be `known`.
    """
    if isinstance(given, TypedColumn):  # It was read before, and takes longer than to use it.
        return given
    if is_traced(given):
        raise TypeError(f"{name} must be an array of NumPy outside of jit, got a traced one.")
    given = np.asarray(given) if isinstance(given, jax.Array) else given
    array = _in_utc(given)
    check_shapes({name: (array, "n")}, {"n": n})
    if array.dtype.kind not in "bifuOSUTMm":
        raise TypeError(f"{name} must hold real numbers, times or categories, got {array.dtype}.")
    if array.dtype.kind in "OST":
        values, missing = _of_objects(name, np.where(kept, array.astype(object), np.array(None)))
    else:
        values = _in_kind(array)
        missing = values != values
    column = TypedColumn(name, values, missing, given)
    for row in np.flatnonzero(missing & kept & known)[:1]:
        raise ValueError(f"{name} must be known in every row; row {row} is {column.text(row)}.")
    return column


def typed_columns(
    argument: str, given: NamedColumns, n: int, kept: np.ndarray | bool = True
) -> dict[str, TypedColumn]:
    """`typed_column` of each of some columns by their names; `argument` is what errors call all."""
    columns = named_columns(argument, given).items()
    return {x: typed_column(f"column {x} of {argument}", y, n, kept) for x, y in columns}


def different(values: np.ndarray) -> np.ndarray:
    """The different values, in ascending order."""
    if values.dtype.kind == "O":
        return np.array(sorted(set(values.tolist())), object)
    ordered = np.sort(values)
    return ordered[np.append(True, ordered[1:] != ordered[:-1])[: ordered.size]]


def numbered(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The different values in ascending order, and the index of each value among them."""
    if values.dtype.kind != "O":
        return np.unique(values, return_inverse=True)
    levels = different(values)
    return levels, indices_in(levels, values)


def indices_in(levels: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The index of each value among ascending levels, ``[n]``; -1 of those that are none.

    Numbers are compared in the coarser of the two precisions: the float32 that is nearest to 0.1
    is equal to 0.1.  False and True are 0 and 1.
    """
    floats = [x.dtype for x in (levels, values) if x.dtype.kind == "f"]
    if floats:
        common = min(floats, key=lambda x: x.itemsize)
        with np.errstate(over="ignore"):
            levels, values = levels.astype(common), values.astype(common)
    # NumPy has no integers that hold both int64 and uint64.
    if {levels.dtype.kind, values.dtype.kind} in ({"O"}, {"i", "u"}):
        index = {level: k for k, level in enumerate(levels.tolist())}
        return np.array([index.get(x, -1) for x in values.tolist()], int)
    indices = np.minimum(np.searchsorted(levels, values), levels.size - 1)
    return np.where(levels[indices] == values, indices, -1)


def of_kind(items: list[Any]) -> np.ndarray:
    """Known values of Python in an array of their kind; texts, if they are of several kinds."""
    types = set(map(type, items))

    def are(*kinds: type) -> bool:
        return all(issubclass(x, kinds) for x in types)

    if are(numbers.Real, Decimal, np.bool_):
        found = np.array(known := [_number(x) for x in items])
        if found.dtype.kind == "f" and _are_integers(known) and min(known, default=-1) >= 0:
            found = np.array(known, np.uint64)
        return _in_kind(found.astype(float) if found.dtype == object else found)
    if are(datetime.date, np.datetime64) or all(hasattr(x, "start_time") for x in types):
        return np.array([_time(x) for x in items], "M8[us]")
    if are(datetime.timedelta, np.timedelta64):
        return np.array([x / _HOUR for x in items], float)
    return np.array([text_of(x) for x in items], object)


def is_missing(item: object) -> bool:
    """Whether it is None, or does not equal itself, as NaN; pandas.NA and sNaN do not say."""
    try:
        return item is None or bool(item != item)
    except (TypeError, ArithmeticError):
        return True


def text_of(value: object) -> str:
    """A date, with the time of the day unless it is midnight; a duration in hours; all else."""
    if isinstance(value, np.timedelta64):
        return f"{value / _HOUR:g} h"
    if isinstance(value, np.datetime64):
        return str(np.datetime_as_string(value, unit="auto"))
    return value.decode() if isinstance(value, bytes) else str(value)


def read_array(value: Any) -> np.ndarray:
    """An array of whatever dtype NumPy finds; missing values are None, NaN or NaT."""
    if hasattr(value, "detach"):  # a tensor of torch, which may lie on a GPU or have a gradient
        value = value.detach().cpu()
    if hasattr(value, "__dlpack__") and not hasattr(value, "__array__"):
        return np.from_dlpack(value)
    array = np.asarray(value.to_numpy() if hasattr(value, "to_numpy") else value)
    if isinstance(value, np.ma.MaskedArray):
        array = array.astype(object)
        array[np.ma.getmaskarray(value)] = None
    if array.dtype.kind == "V" and np.can_cast(array.dtype, np.float32):  # bfloat16
        return array.astype(np.float32)
    # NumPy makes texts of all items if one is a text, and floats of integers if one is missing.
    # It also makes floats of integers on both sides of 2^63.
    is_list = isinstance(value, (list, tuple))
    is_large = array.dtype.kind == "f" and is_list and np.any(array >= 2**63)
    is_other = is_list and (array.dtype.kind in "SU" or (is_large and _are_integers(value)))
    name = str(getattr(value, "dtype", getattr(value, "type", ""))).lower()
    if array.ndim == 1 and (is_other or (array.dtype.kind == "f" and "int" in name)):
        return np.array([*getattr(value, "to_pylist", value.__iter__)()], object)
    return array


def _in_utc(given: Any) -> np.ndarray:
    """An array, with times instead of what pandas has for periods and for times of a zone."""
    dtype = getattr(given, "dtype", None)
    if hasattr(dtype, "tz"):
        return np.asarray(given.to_numpy("M8[us]"))
    if hasattr(dtype, "freq"):
        return np.asarray(getattr(given, "dt", given).start_time)
    return read_array(given)


def _of_objects(name: str, array: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    index: dict[Any, int] = {}
    items = array.tolist()
    # 1, 1.0 and True are one key of a dictionary, and have different texts.
    keys = zip(map(type, items), items, strict=True)
    try:
        rows = np.array([index.setdefault(x, len(index)) for x in keys], int)
    except TypeError:
        has_no_hash = np.array([isinstance(x, Decimal) and x.is_snan() for x in items])
        if has_no_hash.any():
            return _of_objects(name, np.where(has_no_hash, np.array(None), array))
        raise TypeError(f"{name} must hold one value in each row, got lists.") from None
    missing = np.array([is_missing(x) for _, x in index], bool)
    known = of_kind([x for (_, x), lacks in zip(index, missing, strict=True) if not lacks])
    values = np.zeros(missing.size, known.dtype)
    values[~missing] = known
    return values[rows], missing[rows]


def _in_kind(array: np.ndarray) -> np.ndarray:
    """An array in one of the few dtypes of values."""
    kind = array.dtype.kind
    if kind == "f":
        # -0.0 becomes 0.0.
        return array.astype(f"f{min(array.dtype.itemsize, 8)}") + np.float16(0)
    if kind == "m":
        return np.asarray(array / _HOUR)
    if kind == "u" and np.any(array > 2**63 - 1):
        return array
    return array.astype({"b": "bool", "M": "M8[us]", "U": "O"}.get(kind, "int64"))


def _are_integers(items: Iterable[Any]) -> bool:
    return all(type(x) is int for x in items)


def _number(x: Any) -> Any:
    """A number that NumPy has; whole decimals and fractions are integers, which lose no digit."""
    if isinstance(x, (int, float, np.generic)):
        return x
    return int(x) if math.isfinite(x) and x == int(x) else float(x)


def _time(x: Any) -> np.datetime64:
    x = getattr(x, "start_time", x)
    if getattr(x, "tzinfo", None) is not None:
        x = x.astimezone(datetime.UTC).replace(tzinfo=None)
    return np.datetime64(x)
