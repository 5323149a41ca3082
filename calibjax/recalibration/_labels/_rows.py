"""Rows that fit a map of class probabilities, and the rule for zeros."""

from typing import NamedTuple

import numpy as np

from calibjax.recalibration._labels._steps import Floor, MixedWithUniform

# Smaller probabilities than this are rounding, whatever a model says.
_LEAST = 1e-15
# Classes that a row does not have: what a temperature makes of them should be next to nothing.
_LEAST_ABSENT = 1e-37


class LabelRows(NamedTuple):
    """Probabilities ``[n, m]`` in float64, labels and weights; a row of weight 0 is left out.

    `ragged` says that zeros are no probabilities, but classes that a row does not have, and
    `by_one` that an event was given by one number, from 1 - p of which nothing more is known.
    """

    probs: np.ndarray
    targets: np.ndarray
    weights: np.ndarray
    ragged: bool = False
    by_one: bool = False

    @property
    def n_classes(self) -> int:
        return self.probs.shape[1]

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
    probability 0 decides over the whole fit.  Zeros of ragged rows are next to nothing.
    """
    if rows.ragged:
        return Floor(np.array(_LEAST_ABSENT))
    kept = rows.kept().probs
    positive = kept[kept > 0]
    has_zeros = positive.size < kept.size
    return Floor(np.array(max(positive.min() / 2, _LEAST) if has_zeros else _LEAST))


def with_floor(rows: LabelRows) -> tuple[Floor, LabelRows]:
    """The rule for zeros, and the rows after it."""
    floor = floor_of(rows)
    raised = np.maximum(rows.probs, floor.least)
    return floor, rows._replace(probs=raised / raised.sum(axis=1, keepdims=True))


def mixed_with_uniform(rows: LabelRows) -> MixedWithUniform:
    """As if one more row had any label: what never happened in n rows may happen."""
    return MixedWithUniform(np.array(1 / (rows.size() + 1)))
