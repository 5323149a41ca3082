"""The tables of the page: a module registers its own when it is imported."""

import importlib

from benchmarks.rows import TABLES as TABLES

#: In the order of the page.
_MODULES = (
    "estimates",
    "scaling",
    "families",
    "univariate",
    "training",
    "aggregated",
    "hypothesis_tests",
    "peers",
    "random_features",
    "sharding",
    "start",
    "floors",
)

for _module in _MODULES:
    importlib.import_module(f"benchmarks.tables.{_module}")
