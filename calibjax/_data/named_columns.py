"""Columns by their names, as people have them: in a mapping, or in a frame."""

from collections.abc import Hashable, Iterable, Mapping
from typing import Protocol, runtime_checkable


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
