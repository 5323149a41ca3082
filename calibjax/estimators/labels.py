"""Binary problems made from a problem with several classes, and an error of confidences."""

from typing import Any, Unpack, overload

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from calibjax._base.check import check_integer, check_shapes
from calibjax._base.compile import first_rows
from calibjax._base.struct import is_array, saturated, widened, with_fields
from calibjax._data.checks import check_dtype_of_targets, hints_of_axes, parameters, valid_rows
from calibjax._data.data import Data, DataOptions, PerRow, RowOptions, Rows, as_data
from calibjax._data.distribution import Binary, Distribution, Labels
from calibjax._data.padding import padded
from calibjax._data.row_columns import weights_of_labels
from calibjax._numbers.arithmetic import fast_where
from calibjax._numbers.derivatives import safe_sqrt
from calibjax.distributions import Bernoulli
from calibjax.estimators._skce import skce
from calibjax.kernels import DistanceKernel, TensorProduct, TotalVariation, WhiteKernel


@overload
def top_label(predictions: Distribution, targets: ArrayLike) -> tuple[Bernoulli, jax.Array]: ...
@overload
def top_label(predictions: Data, targets: None = None) -> Data: ...
def top_label(
    predictions: Distribution | Data, targets: ArrayLike | None = None
) -> tuple[Bernoulli, jax.Array] | Data:
    """Confidences and hits: the probability of the most likely class, and whether it is the target.

    Calibrated confidences are a weaker condition than calibrated predictions; "the" ECE or MMCE of
    a network usually means the error of its confidences.  Ties go to the first class; for a
    Bernoulli prediction it is 1 where probs > 1/2, else 0.  Differentiable in the probabilities.
    O(n m).

    Args:
        predictions, targets: as in `Data`, or one `Data`: n Categorical or Bernoulli predictions,
            or mixtures of these.

    Returns:
        Bernoulli predictions and integer targets 0 and 1, ``[n]``, for every estimator and test; of
        `Data` the `Data` with these.
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
    return _binary(predictions, targets, None)


@overload
def one_vs_rest(
    predictions: Distribution, targets: ArrayLike, label: int
) -> tuple[Bernoulli, jax.Array]: ...
@overload
def one_vs_rest(predictions: Data, targets: None = None, *, label: int) -> Data: ...
@overload
def one_vs_rest(predictions: Data, targets: None, label: int) -> Data: ...
def one_vs_rest(
    predictions: Distribution | Data, targets: ArrayLike | None = None, label: Any = None
) -> tuple[Bernoulli, jax.Array] | Data:
    """The probability of one class, and whether each target is that class.

    The mean of an error over all labels is the classwise error:
    ``sum(ece(*one_vs_rest(predictions, targets, c)) for c in range(m)) / m``.  Differentiable in
    the probabilities.  O(n).

    Args:
        predictions, targets: as in `Data`, or one `Data`: n Categorical or Bernoulli
            predictions, or mixtures of these.
        label: the class, ``0 … m-1``.

    Returns:
        Bernoulli predictions and integer targets 0 and 1, ``[n]``, or `Data`, as in `top_label`.

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
    return _binary(predictions, targets, check_integer("label", label, 0))


def _binary(predictions: Distribution | Data, targets: ArrayLike | None, label: int | None) -> Any:
    """Hits of a label, or of the most likely ones, as samples of arrays and as `Data` of `Data`."""
    if isinstance(predictions, Data):
        # What is returned is the user's, who may change it by jax: it is no more than checked.
        data: Rows = as_data(predictions, targets, at_least=1)
        data = data.replace(is_valid=predictions.is_valid)
    else:
        data = Rows(predictions, None if targets is None else saturated(targets))
    # Values are not checked: which rows are masked, and may hold anything, is not known yet.
    n_labels = check_classes(data.predictions)
    check_dtype_of_targets("targets", data.targets, data.predictions)
    shape = data.predictions.target_shape
    check_shapes(parameters(data.predictions) | {"targets": (data.targets, shape)})
    if label is not None:
        check_integer("label", label, 0, n_labels - 1, "m - 1 = ")
    is_data = isinstance(predictions, Data)
    rows = data if is_data else padded(data)
    found = with_fields(rows, **_hits_of_labels(*rows.samples, label, rows.outcome_weights))
    return found if is_data else first_rows(found.samples, data.n)


def check_classes(predictions: Distribution) -> int:
    """The number of labels; TypeError if the predictions have no probabilities of labels."""
    if isinstance(predictions, Distribution):
        check_shapes(parameters(predictions), None, *hints_of_axes(predictions))
        n_labels = predictions.n_labels
        if n_labels is not None:
            return n_labels
    actual = "an array" if is_array(predictions) else type(predictions).__name__
    raise TypeError(
        "predictions must be Categorical(probs) or Bernoulli(probs), or a Mixture of these, got "
        f"{actual}."
    )


def labels_as_data(
    predictions: Distribution | Data, targets: ArrayLike | None, **rows: Unpack[RowOptions]
) -> Data:
    """`as_data` of predictions of labels."""
    check_classes(predictions.predictions if isinstance(predictions, Data) else predictions)
    return as_data(predictions, targets, **rows)


def binary_as_data(
    predictions: Distribution | Data, targets: ArrayLike | None, **options: Unpack[DataOptions]
) -> Data:
    """`as_data` of binary predictions; a TypeError says how predictions of classes become these."""
    given = predictions.predictions if isinstance(predictions, Data) else predictions
    if isinstance(given, Distribution) and not isinstance(given, Binary):
        raise TypeError(
            f"predictions must be Bernoulli(probs), got {type(given).__name__}; of class "
            "probabilities, top_label(predictions, targets) or one_vs_rest(predictions, targets, "
            "label) makes binary predictions and targets."
        )
    return as_data(predictions, targets, **options)


@jax.jit
def _hits_of_labels(
    predictions: Labels, targets: jax.Array, label: int | None, weights: PerRow = None
) -> dict[str, Any]:
    """The probability of one label for each row, and whether the target is that label.

    Rows with the weights ``[n, m]`` of their labels get those of a miss and of a hit.
    """
    probs = widened(predictions).label_probabilities()
    if label is None:
        labels = jnp.argmax(predictions.label_probabilities(), axis=-1)
    else:
        labels = jnp.full(targets.shape, label)
    supported = predictions.supports(targets)[1]
    valid = valid_rows(predictions)
    chosen = jnp.take_along_axis(probs, labels[:, None], axis=1)[:, 0]
    # `clip` would halve the gradient at exactly 1, which a saturated softmax reaches.
    chosen = fast_where(chosen > 1, 1.0, chosen)
    is_hit = (targets.astype(jnp.int32) == labels.astype(jnp.int32)).astype(jnp.int32)
    confidences = Bernoulli(fast_where(valid, chosen, -1.0))
    found = {"predictions": confidences, "targets": fast_where(supported, is_hit, -1)}
    if weights is None:
        return found
    # A miss has the mean weight of the other labels in rows that are sampled.
    of_hit = weights_of_labels(weights, labels)
    is_miss = jnp.arange(probs.shape[1])[None] != labels[:, None]
    others = lax.stop_gradient(fast_where(is_miss, probs, 0.0))
    of_miss = jnp.sum(others, axis=1) / jnp.sum(others / weights, axis=1)
    table = jnp.stack([fast_where(jnp.isnan(of_miss), of_hit, of_miss), of_hit], axis=1)
    return found | {"outcome_weights": table, "weights": weights_of_labels(table, is_hit)}


def mmce(
    predictions: Distribution | Data,
    targets: ArrayLike | None = None,
    *,
    lengthscale: ArrayLike = 0.4,
    where: ArrayLike | None = None,
    weights: ArrayLike | None = None,
) -> jax.Array:
    """The maximum mean calibration error of the confidences r and hits c of `top_label`.

    .. math::
        \\Bigl( \\frac1{n^2} \\sum_{i, j} (c_i - r_i) (c_j - r_j)
        \\exp(-|r_i - r_j| / \\text{lengthscale}) \\Bigr)^{1/2}

    It is the square root of half the biased `skce` of `top_label`.  It is biased, of order n^(-1/2)
    for a calibrated model; call `skce` or a test on `top_label` for an unbiased or a blockwise
    estimate, or for a p-value.  Differentiable in predictions and lengthscale; the gradient is 0
    where the value is 0.  Time O(n^2), memory O(n).

    Args:
        predictions, targets: as in `Data`, or one `Data`: n >= 2 Categorical or Bernoulli
            predictions, or mixtures of these.
        lengthscale: a positive number, in units of confidences.
        where, weights: as in `Data`; with weights sums have w_i w_j, and n is their sum.

    Returns:
        A scalar.

    Raises:
        TypeError, ValueError: as in `skce`; the predictions have no classes.

    See also:
        `skce` for all classes instead of the most likely one.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Bernoulli(jnp.array([0.9, 0.9, 0.9, 0.9]))
        >>> float(cj.mmce(predictions, jnp.array([1, 1, 0, 0])))
        0.4

    Reference: Kumar, Sarawagi and Jain, Trainable calibration measures for neural networks from
    kernel mean embeddings, ICML 2018.
    """
    data = labels_as_data(predictions, targets, where=where, weights=weights)
    kernel = TensorProduct(DistanceKernel(TotalVariation(), lengthscale), WhiteKernel())
    # For two classes <e_c - p, e_c' - p'> is twice (c - r) (c' - r').
    rows = {"where": data.where, "weights": data.weights}
    square = skce(kernel, *top_label(data).samples, unbiased=False, **rows) / 2
    return safe_sqrt(square)  # rounding may make it negative
