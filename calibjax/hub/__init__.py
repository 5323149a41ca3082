"""Forecast hubs: long tables of what many models predicted, and of what was observed."""

from importlib.util import find_spec

if find_spec("polars") is None:
    raise ModuleNotFoundError("calibjax.hub needs polars: pip install 'calibjax[cli]'")

from calibjax.hub._hub_table import HubTable as HubTable
from calibjax.hub._hub_table import hub_table as hub_table
from calibjax.hub._read_hub import read_hub as read_hub

# What help shows.
__all__ = ["HubTable", "hub_table", "read_hub"]
