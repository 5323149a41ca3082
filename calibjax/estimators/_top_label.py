"""Binary problems in a problem of several classes."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calibjax._batch import parameters, valid_rows
from calibjax._check import check_array, check_integer, check_shapes
from calibjax._distribution import Distribution
from calibjax._struct import is_array, widened
from calibjax.distributions import Bernoulli


def top_label(predictions: Any, targets: ArrayLike) -> tuple[Bernoulli, jax.Array]:
    """The probability of the most likely class, and whether it came: the confidence and the hit.

    Calibration of these is weaker than that of all probabilities, and is what is called "the" ECE
    or MMCE of a network.  Among equal probabilities the first class counts: that of a Bernoulli
    prediction is 1 where probs > 1/2.  Differentiable in the confidences.  O(n m).

    Args:
        predictions: Categorical or Bernoulli, or a Mixture of these.
        targets: labels ``0 … m-1``, array ``[n]``.

    Returns:
        Bernoulli predictions and integer targets 0 and 1, ``[n]``, for every estimator and test.
        Confidences beyond 1, within the tolerance of sums, are 1.  An invalid row stays invalid
        (confidence -1, target -1): mask it there with `where`.

    Raises:
        TypeError, ValueError: an argument of the wrong type or shape.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Categorical(jnp.array([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3]]))
        >>> confidences, hits = cj.top_label(predictions, jnp.array([0, 2]))
        >>> confidences.probs.tolist(), hits.tolist()
        ([0.7, 0.6], [1, 0])
    """
    check_labels(predictions, targets)
    return _top_label(predictions, targets)


def one_vs_rest(predictions: Any, targets: ArrayLike, label: int) -> tuple[Bernoulli, jax.Array]:
    """The probability of one class, and whether it came.

    The mean over labels of an error of these is the classwise error:
    ``sum(ece(*one_vs_rest(predictions, targets, c)) for c in range(m)) / m``.  Differentiable.
    O(n).

    Args:
        predictions: Categorical or Bernoulli, or a Mixture of these.
        targets: labels ``0 … m-1``, array ``[n]``.
        label: the class, ``0 … m-1``.

    Returns:
        As of `top_label`.

    Raises:
        TypeError, ValueError: an argument of the wrong type, shape, or label out of range.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Categorical(jnp.array([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3]]))
        >>> binary, targets = cj.one_vs_rest(predictions, jnp.array([0, 2]), 2)
        >>> binary.probs.tolist(), targets.tolist()
        ([0.1, 0.3], [0, 1])
    """
    n_labels = check_labels(predictions, targets)
    label = check_integer("label", label, 0, n_labels - 1, "m - 1 = ")
    return _one_vs_rest(predictions, targets, label)


def check_classes(predictions: Any) -> int:
    """`predictions` must have probabilities of labels; returns how many labels there are."""
    if isinstance(predictions, Distribution):
        check_shapes(parameters(predictions))
        probabilities = jax.eval_shape(lambda p: widened(p).label_probabilities(), predictions)
        if probabilities is not None:
            return probabilities.shape[-1]
    actual = "an array" if is_array(predictions) else type(predictions).__name__
    raise TypeError(
        "predictions must be Categorical(probs) or Bernoulli(probs), or a Mixture of these, got "
        f"{actual}."
    )


def check_labels(predictions: Any, targets: Any) -> int:
    """Types and shapes only: which rows are masked, and may hold anything, is not known here."""
    n_labels = check_classes(predictions)
    check_array("targets", targets, "integer")
    check_shapes(parameters(predictions) | {"targets": (targets, predictions.target_shape)})
    return n_labels


@jax.jit
def _top_label(predictions: Any, targets: jax.Array) -> tuple[Bernoulli, jax.Array]:
    return _binary(predictions, targets, jnp.argmax(predictions.label_probabilities(), axis=-1))


@jax.jit
def _one_vs_rest(predictions: Any, targets: jax.Array, label: Any) -> tuple[Bernoulli, jax.Array]:
    return _binary(predictions, targets, jnp.full(targets.shape, label))


def _binary(predictions: Any, targets: jax.Array, labels: jax.Array) -> tuple[Bernoulli, jax.Array]:
    """The probability of one label for each row, and whether it came."""
    supported = predictions.supports(targets)[1]
    valid = valid_rows(predictions)
    probs = widened(predictions).label_probabilities()
    chosen = jnp.take_along_axis(probs, labels[:, None], axis=1)[:, 0]
    # Not `clip`: at 1, where softmax saturates, it would halve the gradient.
    chosen = jnp.where(chosen > 1, 1.0, chosen)
    came = (targets.astype(jnp.int32) == labels.astype(jnp.int32)).astype(jnp.int32)
    return Bernoulli(jnp.where(valid, chosen, -1.0)), jnp.where(supported, came, -1)
