"""Rows that fit a map of class probabilities, and the rule for zeros."""

from typing import NamedTuple

import numpy as np

from calibjax.distributions import LEAST_OF_CLASS
from calibjax.recalibration._labels._steps import Floor, MixedWithUniform

# Smaller probabilities than this are rounding, whatever a model says.
_LEAST = 1e-15
# Classes that a row does not have: what a temperature makes of them should be next to nothing.
_LEAST_ABSENT = 1e-37


class LabelRows(NamedTuple):
    """Probabilities ``[n, m]`` in float64, labels and weights; a row of weight 0 is left out.

    `ragged` says that zeros are no probabilities, but classes that a row does not have, and that
    what is up to `LEAST_OF_CLASS` is 0.  `by_one` says that an event was given by one number, from
    1 - p of which nothing more is known.
    """

    probs: np.ndarray
    targets: np.ndarray
    weights: np.ndarray
    ragged: bool = False
    by_one: bool = False

    @property
    def n_classes(self) -> int:
        return self.probs.shape[1]

    @property
    def zero(self) -> float:
        """Up to this a number is the probability 0."""
        return LEAST_OF_CLASS if self.ragged else 0.0

    def kept(self) -> "LabelRows":
        """The rows whose weight is not 0."""
        keep = self.weights > 0
        return self._replace(
            probs=self.probs[keep], targets=self.targets[keep], weights=self.weights[keep]
        )

    def size(self) -> float:
        """How many rows of equal weights have a mean as exact as that of these (Kish 1965)."""
        total = np.sum(self.weights)
        return float(total * (total / np.sum(np.square(self.weights))))

    def of_targets(self, probs: np.ndarray | None = None) -> np.ndarray:
        """The probabilities of the targets, ``[n]``."""
        probs = self.probs if probs is None else probs
        return np.take_along_axis(probs, self.targets[:, None], axis=1)[:, 0]


def floor_of(rows: LabelRows) -> Floor:
    """Zeros become half of the smallest positive probability, if there are zeros in these rows.

    A zero means "rarer than whatever the model gives a number to".  Without this rule one target of
    probability 0 decides over the whole fit.  Classes that a row does not have are next to nothing.
    """
    kept = rows.kept().probs
    positive, n_probs = kept[kept > rows.zero], np.sum(kept > 0) if rows.ragged else kept.size
    least = max(positive.min() / 2, _LEAST) if positive.size < n_probs else _LEAST
    return Floor(np.array(least), np.array(_LEAST_ABSENT if rows.ragged else least))


def with_floor(rows: LabelRows) -> tuple[Floor, LabelRows]:
    """The rule for zeros, and the rows after it."""
    floor = floor_of(rows)
    return floor, rows._replace(probs=floor.applied(np, rows.probs))


def mixed_with_uniform(rows: LabelRows) -> MixedWithUniform:
    """As if one more row had any label: what never happened in n rows may happen."""
    return MixedWithUniform(np.array(1 / (rows.size() + 1)))
