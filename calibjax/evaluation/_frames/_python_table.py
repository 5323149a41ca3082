"""What all tables in Python have in common."""

import dataclasses
import warnings

import numpy as np

from calibjax.evaluation._frames._table import Table


@dataclasses.dataclass(frozen=True)
class PythonTable(Table):
    """What errors call a table in Python, and how arguments are written there.

    Args:
        rows: the number of each row among all that there were, counted from 0.
    """

    rows: np.ndarray

    @property
    def row_numbers(self) -> np.ndarray:
        return self.rows

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def source(self) -> str:
        return "data"

    def option(self, name: str, value: object = None) -> str:
        return name if value is None else f"{name}={value!r}"

    def say(self, message: str) -> None:
        warnings.warn(message, stacklevel=2)
