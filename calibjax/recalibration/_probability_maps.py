"""Steps from class probabilities ``[n, m]`` to class probabilities; a map is a tuple of steps.

And the rows that fit them, with the rule for zeros.
"""

from types import ModuleType
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._base.compile import filled_up
from calibjax._base.struct import struct
from calibjax._data import in_dtype
from calibjax._numbers import ArrayT, dot
from calibjax.distributions import LEAST_OF_CLASS

#: Numbers of a map: of NumPy from a fit, and traced where it is used.
Numbers = jax.Array | np.ndarray
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


class Fitted(NamedTuple):
    """The steps of a map, whether the search for them found a minimum, and its numbers in words."""

    steps: tuple
    converged: bool
    words: str


@struct
class Floor:
    """Probabilities raised to `least`, and divided by their sum: no logarithm is infinite.

    0 becomes `of_zero`.
    """

    least: Numbers
    of_zero: Numbers

    def __call__(self, probs: ArrayT, xp: ModuleType = jnp) -> ArrayT:
        raised = xp.where(probs > 0, xp.maximum(probs, self.least), self.of_zero)
        return raised / xp.sum(raised, axis=1, keepdims=True)


@struct
class Scaling:
    """softmax(W log p + b); `weight` is W, as a number, as its diagonal ``[m]``, or ``[m, m]``."""

    weight: Numbers
    bias: Numbers

    def __call__(self, probs: jax.Array) -> jax.Array:
        logs = jnp.log(probs)
        weight, bias = jnp.asarray(self.weight), jnp.broadcast_to(self.bias, logs.shape)
        if weight.ndim == 2:
            return jax.nn.softmax(dot(logs, weight.T) + bias, axis=1)
        return jax.nn.softmax(jnp.broadcast_to(weight, logs.shape) * logs + bias, axis=1)


@struct
class MixedWithUniform:
    """(1 - share) p + share / m: no class is impossible."""

    share: Numbers

    def __call__(self, probs: jax.Array) -> jax.Array:
        share = jnp.asarray(self.share)
        return (1 - share) * probs + share / probs.shape[1]


@struct
class Average:
    """The mean of what several maps make of the probabilities, with weights ``[k]``."""

    weights: Numbers
    maps: tuple[tuple, ...]

    def __call__(self, probs: jax.Array) -> jax.Array:
        return jnp.tensordot(
            self.weights, jnp.stack([apply(steps, probs) for steps in self.maps]), axes=1
        )


def apply(steps: tuple, probs: jax.Array) -> jax.Array:
    """What all steps make of probabilities, one after another."""
    for step in steps:
        probs = step(probs)
    return probs


def of_present(xp: ModuleType, recalibrated: ArrayT, probs: ArrayT) -> ArrayT:
    """New probabilities of the classes that ragged rows have: zeros stay zeros."""
    found = xp.where(probs > 0, recalibrated, 0.0)
    return found / xp.sum(found, axis=1, keepdims=True)


def run(steps: tuple, probs: np.ndarray, ragged: bool = False) -> np.ndarray:
    """What a map makes of probabilities of NumPy, in float64, padded to a bucket."""
    rows = filled_up(probs).astype(jnp.result_type(float))
    recalibrated = np.asarray(apply_jit(steps, rows), np.float64)[: len(probs)]
    return of_present(np, recalibrated, probs) if ragged else recalibrated


@jax.jit
def apply_jit(steps: tuple, probs: jax.Array) -> jax.Array:
    """`apply` as one program, in the dtype of the probabilities."""
    return apply(in_dtype(steps, probs.dtype), probs)


def with_floor(rows: LabelRows) -> tuple[Floor, LabelRows]:
    """The rule for zeros, and the rows after it.

    Zeros become half of the smallest positive probability, if there are zeros in these rows: a zero
    means "rarer than whatever the model gives a number to".  Without this rule one target of
    probability 0 decides over the whole fit.  Classes that a row does not have are next to nothing.
    """
    kept = rows.kept().probs
    positive, n_probs = kept[kept > rows.zero], np.sum(kept > 0) if rows.ragged else kept.size
    least = max(positive.min() / 2, _LEAST) if positive.size < n_probs else _LEAST
    floor = Floor(np.array(least), np.array(_LEAST_ABSENT if rows.ragged else least))
    return floor, rows._replace(probs=floor(rows.probs, np))


def mixed_with_uniform(rows: LabelRows) -> MixedWithUniform:
    """As if one more row had any label: what never happened in n rows may happen."""
    return MixedWithUniform(np.array(1 / (rows.size() + 1)))
