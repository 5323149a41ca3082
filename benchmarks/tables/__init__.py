"""The tables of the page, in its order: a module registers its own when it is imported.

A new one is a module with a function under `benchmarks.rows.table`, and a line here.
"""

from benchmarks.tables import estimates as estimates  # isort: skip
from benchmarks.tables import scaling as scaling  # isort: skip
from benchmarks.tables import families as families  # isort: skip
from benchmarks.tables import training as training  # isort: skip
from benchmarks.tables import hypothesis_tests as hypothesis_tests  # isort: skip
from benchmarks.tables import peers as peers  # isort: skip
from benchmarks.tables import random_features as random_features  # isort: skip
from benchmarks.tables import sharding as sharding  # isort: skip
from benchmarks.tables import start as start  # isort: skip
from benchmarks.tables import floors as floors  # isort: skip
