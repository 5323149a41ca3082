"""Arrays with named dimensions, such as datasets of xarray, as tables."""

import dataclasses
import math
from typing import Any, Self

import numpy as np

from calibjax._rows import text_of
from calibjax._text import listed
from calibjax.evaluation._frames._cells import cells_of
from calibjax.evaluation._frames._python_table import PythonTable


@dataclasses.dataclass(frozen=True)
class Variable:
    """An array with the names of its dimensions."""

    dims: tuple[str, ...]
    values: np.ndarray

    @staticmethod
    def of(name: str, dims: Any, values: Any) -> "Variable":
        named = (dims,) if isinstance(dims, str) else tuple(map(str, dims))
        array = cells_of(name, values, at_least=0)
        if array.ndim != len(named):
            raise ValueError(
                f"data, variable {name}: expected {len(named)} dimensions, {listed(named)}, got "
                f"shape {list(array.shape)}."
            )
        return Variable(named, array)


@dataclasses.dataclass(frozen=True)
class Grid(PythonTable):
    """Arrays with named dimensions, whose rows are the places of the targets.

    Args:
        variables: the arrays by their names; one that has the name of its only dimension says what
            the places there are called.
        target: the array of targets.
        dims: the dimensions of the targets, which are the rows.
        sizes: how long all dimensions are.
    """

    variables: dict[str, Variable]
    target: str
    dims: tuple[str, ...]
    sizes: dict[str, int]

    @staticmethod
    def of(variables: dict[str, Variable], target: str | None) -> "Grid":
        """All places of the targets."""
        sizes: dict[str, int] = {}
        for name, variable in variables.items():
            for dim, size in zip(variable.dims, variable.values.shape, strict=True):
                if sizes.setdefault(dim, size) != size:
                    raise ValueError(
                        f"data, variable {name}: expected {sizes[dim]} places along {dim} as in "
                        f"other variables, got {size}."
                    )
        for dim, size in sizes.items():
            variables.setdefault(dim, Variable((dim,), np.arange(size)))
        dims = variables[target].dims if target in variables else ()
        n = math.prod(sizes[dim] for dim in dims)
        return Grid(np.arange(n), variables, target or "", dims, sizes)

    @property
    def names(self) -> list[str]:
        return list(self.variables)

    def _cells(self, name: str) -> np.ndarray:
        """An array in the order of the rows, ``[n]``, or ``[n, m]`` if it has one dimension more.

        It is the same along dimensions of the targets that it does not have.
        """
        variable, dims = self.variables[name], self.dims
        others = self._within(name)
        if len(others) > 1:
            raise ValueError(
                f"data, variable {name}: expected the dimensions {listed(dims) or 'none'} of the "
                f"target {self.target} and at most one more, got {listed(variable.dims)}"
                f"{self._how_to_pair(name)}."
            )
        present = [dim for dim in dims if dim in variable.dims]
        axes = [variable.dims.index(dim) for dim in (*present, *others)]
        shape = [self.sizes[dim] if dim in present else 1 for dim in dims]
        within = [self.sizes[dim] for dim in others]
        values = variable.values.transpose(axes).reshape(*shape, *within)
        places = [self.sizes[dim] for dim in dims]
        full = np.broadcast_to(values, [*places, *within])
        return full.reshape(math.prod(places), *within)[self.rows]

    def _kept(self, kept: np.ndarray) -> Self:
        return dataclasses.replace(self, rows=self.rows[kept])

    def _within(self, name: str) -> list[str]:
        return [dim for dim in self.variables[name].dims if dim not in self.dims]

    def _how_to_pair(self, name: str) -> str:
        """How a target of one time goes to forecasts made at one time for some time ahead."""
        lacking = [dim for dim in self.dims if dim not in self.variables[name].dims]
        others = self._within(name)
        if len(lacking) != 1 or len(others) != 3:
            return ""
        (time,), target, made, lead = lacking, self.target, *others[:2]
        return (
            f"; if {time} is {made} + {lead}, bring the target to the dimensions of {name} first: "
            f"valid = ds.{made} + ds.{lead}; {target} = ds.{target}.sel({time}=valid)."
            f"drop_vars({time!r}); ds = ds.drop_dims({time!r}).assign({target}={target})"
        )

    def names_within(self, name: str) -> list[Any] | None:
        """The places along the dimension that targets do not have, such as levels or classes."""
        others = self._within(name) if name in self.variables else []
        if len(others) != 1 or others[0] not in self.variables:
            return None
        return [text_of(x) for x in self.variables[others[0]].values]

    def place_of(self, name: str, row: int) -> str:
        shape = [self.sizes[dim] for dim in self.dims]
        places = np.unravel_index(self.rows[row], shape)
        at = [
            f"{dim} {text_of(self.variables[dim].values[place])}"
            for dim, place in zip(self.dims, places, strict=True)
        ]
        return f"{self.source}, variable {name}, {', '.join(at)}"
