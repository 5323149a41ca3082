"""What all tables in Python have in common."""

import warnings

from calibjax.evaluation._frames._table import Table


class PythonTable(Table):
    """What errors call a table in Python, and how arguments are written there."""

    @property
    def source(self) -> str:
        return "data"

    def option(self, name: str, value: object = None) -> str:
        return name if value is None else f"{name}={value!r}"

    def say(self, message: str) -> None:
        warnings.warn(message, stacklevel=2)
