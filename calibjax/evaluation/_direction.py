r"""Which way a whole model is wrong, such as too low or too sure, if one number says it.

A direction is a mean of the rows that a calibrated model has with mean 0: targets less means, or
sizes of errors less expected ones.  It is clear if it is farther from 0 than chance explains.

A clear direction need not be *the* error.  So one number is fitted that takes it out, a shift or a
temperature, and what is left is measured on residuals r_i, which are vectors with mean 0 under a
calibrated model, in cells of similar predictions:

    sum_cells (|sum_i r_i|^2 - sum_i |r_i|^2) = sum_cells sum_{i != j} <r_i, r_j>,

the unbiased SKCE whose kernel on predictions is 1 within a cell, up to a factor.  The same rows fit
and judge.  A test of them would find the mended model too good; the SKCE falls by no more than a
fitted number takes of its noise, which is little beside the half of it that we ask for.
"""

import dataclasses
import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np

from calibjax.intervals import Sampling

# A direction is the error, and not beside it, if without it so much of the SKCE is gone.
_MAIN_ERROR = 0.5


@dataclasses.dataclass(frozen=True)
class Direction:
    """A way in which predictions are wrong on average.

    Args:
        name: the way, such as "too low" or "too sure".
        predicted: the mean that was predicted, of what the details say.
        observed: the observed mean.
        details: both means in words.
        score: how many standard deviations of a calibrated model lie between both.
        explained: the part of the SKCE that goes away with it, from 0 to 1; NaN if that is unknown.
    """

    name: str
    predicted: float
    observed: float
    details: str
    score: float
    explained: float

    @property
    def is_main(self) -> bool:
        """Whether it explains at least half of the error."""
        return self.explained >= _MAIN_ERROR

    @property
    def is_sureness(self) -> bool:
        """Whether it is what a temperature changes."""
        return self.name in SURENESS

    def __str__(self) -> str:
        return f"{self.name} ({self.details})"


#: The names of directions that a temperature mends.
SURENESS = "too sure", "not sure enough", "too narrow", "too wide"


def clear_directions(found: Sequence[Direction], level: float) -> tuple[Direction, ...]:
    """Those that chance does not explain, with the probability 1 - level for all; the main first.

    Scores are taken for normal, with Bonferroni's correction.
    """
    if not found:
        return ()
    critical = NormalDist().inv_cdf(1 - level / (2 * len(found)))
    clear = [x for x in found if abs(x.score) > critical]
    return tuple(sorted(clear, key=lambda x: (-x.is_main, -_known(x.explained), -abs(x.score))))


def directions_in_words(directions: Sequence[Direction]) -> str:
    """What `clear_directions` found, in words."""
    if not directions:
        return "no direction of the whole model is clear, so that it is wrong in places or in shape"
    if directions[0].is_main:
        return str(directions[0])
    said = " and ".join(map(str, directions[:2]))
    if math.isnan(directions[0].explained):
        return said
    each = "which is" if len(directions) == 1 else "each of which is"
    return f"{said}, {each} less than half of the error"


def score_of_mean(values: np.ndarray, variances: np.ndarray | float, sampling: Sampling) -> float:
    """The mean of rows in units of its standard deviation, given their variances under H0.

    Rows that depend on each other vary as they do in the data.
    """
    shares = sampling.shares()
    mean = float(shares @ values)
    if sampling.is_dependent:
        error, _ = sampling.error(values)
    else:
        error = float(np.square(shares) @ np.broadcast_to(variances, values.shape)) ** 0.5
    return mean / error if error > 0 else 0.0


def pairs_in_cells(residuals: np.ndarray, cells: np.ndarray, shares: np.ndarray) -> float:
    """The sum over pairs of rows of one cell of products of their residuals ``[n, f]``."""
    weighted = shares[:, None] * residuals
    sums = [np.bincount(cells, column) for column in weighted.T]
    return float(np.square(sums).sum() - np.square(weighted).sum())


def part_explained(before: float, after: float) -> float:
    """The part of an SKCE that is gone; NaN if there was none."""
    return min(max(1 - after / before, 0.0), 1.0) if before > 0 else math.nan


def _known(x: float) -> float:
    return -1.0 if math.isnan(x) else x
