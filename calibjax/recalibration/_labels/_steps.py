"""Steps from class probabilities ``[n, m]`` to class probabilities; a map is a tuple of steps."""

from types import ModuleType

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._numbers import ArrayT, dot
from calibjax._rows import filled_up, in_dtype
from calibjax._struct import struct

#: Numbers of a map: of NumPy from a fit, and traced where it is used.
Numbers = jax.Array | np.ndarray


@struct
class Floor:
    """Probabilities raised to `least`, and divided by their sum: no logarithm is infinite.

    What takes the place of 0 is `of_zero`.
    """

    least: Numbers
    of_zero: Numbers

    def __call__(self, probs: jax.Array) -> jax.Array:
        return self.applied(jnp, probs)

    def applied(self, xp: ModuleType, probs: ArrayT) -> ArrayT:
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
class TemperedAndUniform:
    """w_0 softmax(log(p) / T) + w_1 p + w_2 / m, with `slope` 1 / T and weights ``[3]``."""

    slope: Numbers
    weights: Numbers

    def __call__(self, probs: jax.Array) -> jax.Array:
        tempered = jax.nn.softmax(self.slope * jnp.log(probs), axis=1)
        parts = tempered, probs, jnp.full_like(probs, 1 / probs.shape[1])
        return jnp.tensordot(self.weights, jnp.stack(parts), axes=1)


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


def of_present(xp: ModuleType, mended: ArrayT, probs: ArrayT) -> ArrayT:
    """New probabilities of the classes that ragged rows have: zeros stay zeros."""
    found = xp.where(probs > 0, mended, 0.0)
    return found / xp.sum(found, axis=1, keepdims=True)


def run(steps: tuple, probs: np.ndarray, ragged: bool = False) -> np.ndarray:
    """What a map makes of probabilities of NumPy, on the ladder, in float64."""
    rows = filled_up(probs).astype(jnp.result_type(float))
    mended = np.asarray(apply_jit(steps, rows), np.float64)[: len(probs)]
    return of_present(np, mended, probs) if ragged else mended


@jax.jit
def apply_jit(steps: tuple, probs: jax.Array) -> jax.Array:
    """`apply` as one program, in the dtype of the probabilities."""
    return apply(in_dtype(steps, probs.dtype), probs)
