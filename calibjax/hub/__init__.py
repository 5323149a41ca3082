"""Forecast hubs: long tables of what many models predicted, and of what was observed."""

from importlib.util import find_spec

if find_spec("polars") is None:
    raise ModuleNotFoundError("calibjax.hub needs polars: pip install 'calibjax[cli]'")

from calibjax.hub._hub_table import HubTable, hub_table
from calibjax.hub._read_hub import read_hub

__all__ = ["HubTable", "hub_table", "read_hub"]
__dir__ = __all__.copy
