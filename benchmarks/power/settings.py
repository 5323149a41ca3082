"""The settings of the study, each with scenarios of one family."""

from collections.abc import Mapping
from typing import NamedTuple

from benchmarks.power.labels import BINARY, BUMPS, CLASSES, MORE_CLASSES
from benchmarks.power.members import MEMBERS
from benchmarks.power.numbers import (
    COUNTS,
    COUNTS_DECADES,
    N_SAMPLES,
    REGRESSION,
    REGRESSION_DECADES,
    SAMPLES,
    SAMPLES_DECADES,
)
from benchmarks.power.scenario import Scenario


class Setting(NamedTuple):
    """Scenarios with predictions of one family and n rows; the first one is calibrated.

    Args:
        is_t_cal: whether data sets are large, and the number of bins that T-Cal needs is known.
        is_ensemble: whether what the aggregated test sees of ensembles is compared, and no other
            test.
    """

    title: str
    n: int
    scenarios: Mapping[str, Scenario]
    is_t_cal: bool = False
    is_ensemble: bool = False


SETTINGS = {
    "binary": Setting("Probabilities of two classes", 400, BINARY),
    "classes": Setting("Ten classes", 400, CLASSES),
    "classes_1000": Setting("Ten classes", 1000, MORE_CLASSES),
    "regression": Setting("Normal predictions", 400, REGRESSION),
    "counts": Setting("Poisson predictions", 400, COUNTS),
    "samples": Setting(f"Ensembles of {N_SAMPLES}", 400, SAMPLES),
    "regression_decades": Setting("Normal predictions over four decades", 400, REGRESSION_DECADES),
    "counts_decades": Setting("Poisson predictions over four decades", 400, COUNTS_DECADES),
    "samples_decades": Setting(f"Ensembles of {N_SAMPLES} over four decades", 400, SAMPLES_DECADES),
    "t_cal_2000": Setting("The bumps of T-Cal", 2000, BUMPS, is_t_cal=True),
    "t_cal_5000": Setting("The bumps of T-Cal", 5000, BUMPS, is_t_cal=True),
    "t_cal_10000": Setting("The bumps of T-Cal", 10_000, BUMPS, is_t_cal=True),
    **{
        name: Setting(title, 400, scenarios, is_ensemble=True)
        for name, (title, scenarios) in MEMBERS.items()
    },
}
