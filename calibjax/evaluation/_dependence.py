"""What is said of weights and of rows that depend on each other."""

import numpy as np

from calibjax._data import Data, Dependence

#: What is assumed if people say nothing.
INDEPENDENT = Dependence()
# With fewer, tests of calibrated models at the level 0.05 reject next to none of them: they cannot
# see a wrong model either.
_FEW_CLUSTERS, _FEW_HORIZONS = 8, 10


def rows_in_words(dependence: Dependence) -> str | None:
    """How many clusters or times there are, such as "60 clusters"; None if rows are independent."""
    clusters, times, horizon = dependence
    if clusters is not None:
        return f"{np.unique(np.asarray(clusters)).size} clusters"
    if times is None:
        return None
    within = "" if horizon is None else f", horizon {horizon:g}"
    return f"{np.unique(np.asarray(times)).size} times{within}"


def remarks_on_rows(data: Data, dependence: Dependence) -> list[str]:
    """What of an evaluation does not know about weights, and about dependence."""
    found, units = [], rows_in_words(dependence)
    if data.weights is not None:
        found.append(
            "Weights: the p-value, the numbers and the curves know them. Maps, and where it is "
            "worst, count every row once; temperatures, recalibrations and rows that contribute "
            "most are left out."
        )
    if units is not None:
        found.append(
            f"Dependent rows, {units}: the p-value, the intervals above, and the bands of "
            "reliability, PIT and coverage allow for it. The CORP curve, maps, and where it is "
            "worst, assume independent rows; recalibrations are left out."
        )
    return found + remarks_on_few_units(dependence)


def remarks_on_few_units(dependence: Dependence) -> list[str]:
    """Whether there are too few clusters or horizons to learn much from."""
    clusters, times, horizon = dependence
    if clusters is not None:
        is_few = np.unique(np.asarray(clusters)).size < _FEW_CLUSTERS
        words = f"clusters: with fewer than {_FEW_CLUSTERS},"
    elif times is not None and horizon is not None:
        is_few = np.ptp(np.asarray(times)) < _FEW_HORIZONS * horizon
        words = f"horizons: where times span fewer than {_FEW_HORIZONS},"
    else:
        return []
    return [f"Few {words} tests find only large errors, and intervals are wide."] if is_few else []
