"""Binary problems made from a problem with several classes."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calibjax._check import check_integer, check_shapes
from calibjax._distribution import Distribution
from calibjax._rows import (
    Data,
    as_data,
    check_dtype_of_targets,
    first_rows,
    padded,
    parameters,
    valid_rows,
)
from calibjax._struct import is_array, saturated, widened
from calibjax.distributions import Bernoulli


def top_label(predictions: Distribution, targets: ArrayLike) -> tuple[Bernoulli, jax.Array]:
    """Confidences and hits: the probability of the most likely class, and whether it is the target.

    Calibrated confidences are a weaker condition than calibrated predictions; "the" ECE or MMCE of
    a network usually means the error of its confidences.  Of several most likely classes the first
    one is taken; for a Bernoulli prediction this is 1 where probs > 1/2, else 0.  Differentiable in
    the probabilities.  O(n m).

    Args:
        predictions: n Categorical or Bernoulli predictions, or mixtures of these.
        targets: labels ``0 … m-1``, array ``[n]``.

    Returns:
        Bernoulli predictions and integer targets 0 and 1, ``[n]``, for every estimator and test.
        A confidence above 1, which the tolerance of sums allows, becomes 1.  An invalid row stays
        invalid (confidence -1, target -1): mask it with the `where` of the estimator or test.

    Raises:
        TypeError, ValueError: an argument of the wrong type or shape.  Values are not checked.

    See also:
        `one_vs_rest` for one class after the other.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Categorical(jnp.array([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3]]))
        >>> confidences, hits = cj.top_label(predictions, jnp.array([0, 2]))
        >>> confidences.probs.tolist(), hits.tolist()
        ([0.7, 0.6], [1, 0])
    """
    check_labels(predictions, targets)
    data = top_label_of_data(padded(Data.unchecked(predictions, saturated(targets))))
    return first_rows(data.samples, len(predictions))


def top_label_of_data(data: Data) -> Data:
    """`top_label` of checked data."""
    return data.replace(**_top_label(data.predictions, data.targets))


def one_vs_rest(
    predictions: Distribution, targets: ArrayLike, label: int
) -> tuple[Bernoulli, jax.Array]:
    """The probability of one class, and whether each target is that class.

    The mean of an error over all labels is the classwise error:
    ``sum(ece(*one_vs_rest(predictions, targets, c)) for c in range(m)) / m``.  Differentiable in
    the probabilities.  O(n).

    Args:
        predictions: n Categorical or Bernoulli predictions, or mixtures of these.
        targets: labels ``0 … m-1``, array ``[n]``.
        label: the class, ``0 … m-1``.

    Returns:
        Bernoulli predictions and integer targets 0 and 1, ``[n]``, as in `top_label`.

    Raises:
        TypeError, ValueError: an argument of the wrong type or shape; the label is out of range.

    See also:
        `top_label` for the most likely class.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Categorical(jnp.array([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3]]))
        >>> binary, targets = cj.one_vs_rest(predictions, jnp.array([0, 2]), 2)
        >>> binary.probs.tolist(), targets.tolist()
        ([0.1, 0.3], [0, 1])
    """
    n_labels = check_labels(predictions, targets)
    label = check_integer("label", label, 0, n_labels - 1, "m - 1 = ")
    data = one_vs_rest_of_data(padded(Data.unchecked(predictions, saturated(targets))), label)
    return first_rows(data.samples, len(predictions))


def one_vs_rest_of_data(data: Data, label: int) -> Data:
    """`one_vs_rest` of checked data."""
    return data.replace(**_one_vs_rest(data.predictions, data.targets, label))


def check_classes(predictions: Distribution) -> int:
    """The number of labels; TypeError if the predictions have no probabilities of labels."""
    if isinstance(predictions, Distribution):
        check_shapes(parameters(predictions), one_axis_less=predictions.one_axis_less)
        n_labels = predictions.n_labels
        if n_labels is not None:
            return n_labels
    actual = "an array" if is_array(predictions) else type(predictions).__name__
    raise TypeError(
        "predictions must be Categorical(probs) or Bernoulli(probs), or a Mixture of these, got "
        f"{actual}."
    )


def check_labels(predictions: Distribution, targets: ArrayLike) -> int:
    """The number of labels; checks types and shapes.

    Values are not checked: which rows are masked, and may hold anything, is not known yet.
    """
    n_labels = check_classes(predictions)
    check_dtype_of_targets("targets", targets, predictions)
    check_shapes(parameters(predictions) | {"targets": (targets, predictions.target_shape)})
    return n_labels


def check_binary(
    predictions: Distribution,
    targets: ArrayLike,
    where: ArrayLike | None,
    weights: ArrayLike | None = None,
) -> Data:
    """The arguments as `Data`; a TypeError says how predictions of classes become binary ones."""
    if isinstance(predictions, Distribution) and not predictions.is_binary:
        raise TypeError(
            f"predictions must be Bernoulli(probs), got {type(predictions).__name__}; of class "
            "probabilities, top_label(predictions, targets) or one_vs_rest(predictions, targets, "
            "label) makes binary predictions and targets."
        )
    return as_data(predictions, targets, where=where, weights=weights)


@jax.jit
def _top_label(
    predictions: Distribution, targets: jax.Array
) -> dict[str, Distribution | jax.Array]:
    return _hits_of_labels(
        predictions, targets, jnp.argmax(predictions.label_probabilities(), axis=-1)
    )


@jax.jit
def _one_vs_rest(
    predictions: Distribution, targets: jax.Array, label: int
) -> dict[str, Distribution | jax.Array]:
    return _hits_of_labels(predictions, targets, jnp.full(targets.shape, label))


def _hits_of_labels(
    predictions: Distribution, targets: jax.Array, labels: jax.Array
) -> dict[str, Distribution | jax.Array]:
    """The probability of one label for each row, and whether the target is that label."""
    supported = predictions.supports(targets)[1]
    valid = valid_rows(predictions)
    probs = widened(predictions).label_probabilities()
    chosen = jnp.take_along_axis(probs, labels[:, None], axis=1)[:, 0]
    # `clip` would halve the gradient at exactly 1, which a saturated softmax reaches.
    chosen = jnp.where(chosen > 1, 1.0, chosen)
    is_hit = (targets.astype(jnp.int32) == labels.astype(jnp.int32)).astype(jnp.int32)
    confidences = Bernoulli(jnp.where(valid, chosen, -1.0))
    return {"predictions": confidences, "targets": jnp.where(supported, is_hit, -1)}
