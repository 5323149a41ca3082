"""W and b of the least penalised loss of softmax(W log p + b).

One program computes the loss and its slope; the search is L-BFGS-B of SciPy, outside of jit.  A
search inside of jit takes the same steps, and its line search ten times as long to compile.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._numbers import dot
from calibjax._rows import filled_up
from calibjax.recalibration._labels._rows import LabelRows

_MOST_STEPS = 1000


class Penalty(NamedTuple):
    """Strengths of squared entries of W - 1, on and off its diagonal, and of squared biases."""

    diagonal: float = 0.0
    others: float = 0.0
    bias: float = 0.0


def least_penalised_loss(
    rows: LabelRows, penalty: Penalty, is_full: bool
) -> tuple[np.ndarray, np.ndarray, bool]:
    """W, as its diagonal ``[m]`` or ``[m, m]`` if it is full, b, and if they are a minimum."""
    # These parts of SciPy would make `import calibjax` a third of a second longer.
    from scipy.optimize import minimize

    m, dtype = rows.n_classes, jnp.result_type(float)
    ones = np.eye(m) if is_full else np.ones(m)
    strengths = np.where(ones > 0, penalty.diagonal, penalty.others)
    share = rows.weights / rows.weights.sum()
    logs = np.log(rows.probs)

    # The curvature at the start, with which all numbers have steps of one size.
    variances = share[:, None] * rows.probs * (1 - rows.probs)
    of_change = variances.T @ logs**2 if is_full else np.sum(variances * logs**2, axis=0)
    of_bias = np.sum(variances, axis=0) + 2 * penalty.bias
    curvature = np.concatenate([(of_change + 2 * strengths).ravel(), of_bias])
    units = 1 / np.sqrt(np.maximum(curvature, 1e-6 * curvature.max() + 1e-300))

    # On the ladder; the rows that are added have no share.
    padding = np.zeros(len(filled_up(share)) - len(share))
    data = jax.device_put(
        (
            filled_up(logs).astype(dtype),
            filled_up(rows.targets).astype(np.int32),
            np.concatenate([share, padding]).astype(dtype),
        )
    )

    def numbers(steps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        moved = units * steps
        return moved[:-m].reshape(ones.shape), moved[-m:]

    def loss(steps: np.ndarray) -> tuple[float, np.ndarray]:
        change, bias = numbers(steps)
        value, slopes = _loss_and_slopes((change.astype(dtype), bias.astype(dtype)), data)
        slope_of_change = np.asarray(slopes[0], float) + 2 * strengths * change
        slope_of_bias = np.asarray(slopes[1], float) + 2 * penalty.bias * bias
        penalised = np.sum(strengths * change**2) + penalty.bias * np.sum(bias**2)
        slope = np.concatenate([slope_of_change.ravel(), slope_of_bias])
        return float(value) + float(penalised), units * slope

    # Differences of the loss below this are rounding.
    rounding = 2 * float(jnp.finfo(dtype).eps)
    options = {"maxiter": _MOST_STEPS, "maxfun": 2 * _MOST_STEPS, "ftol": rounding, "gtol": 1e-7}
    found = minimize(loss, np.zeros_like(units), jac=True, method="L-BFGS-B", options=options)
    # Status 1 is the last step.  A line search that rounding has ended is one that is at a minimum.
    ended = found.status != 1 and np.all(np.isfinite(found.x))
    # If all decisions are right, larger numbers are always better.
    is_minimum = bool(ended) and not loss(1.5 * found.x)[0] < found.fun
    change, bias = numbers(found.x)
    return ones + change, bias, is_minimum


@jax.jit
def _loss_and_slopes(numbers: tuple, data: tuple) -> tuple[jax.Array, tuple]:
    """The mean loss of softmax(log p + W log p + b), and its slope in W and b."""
    logs, targets, share = data

    def loss(numbers: tuple) -> jax.Array:
        change, bias = numbers
        scaled = dot(logs, change.T) if change.ndim == 2 else logs * change[None]
        logits = logs + scaled + bias[None]
        of_target = jnp.take_along_axis(logits, targets[:, None], axis=1)[:, 0]
        return jnp.sum(share * (jax.nn.logsumexp(logits, axis=1) - of_target))

    return jax.value_and_grad(loss)(numbers)
