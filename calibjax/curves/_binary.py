"""Binary predictions and targets, checked."""

from typing import Any

from jax.typing import ArrayLike

from calibjax._data import Data, check_data
from calibjax._distribution import Distribution


def check_binary(predictions: Any, targets: ArrayLike, where: ArrayLike | None) -> Data:
    """The arguments as `Data`; a TypeError says how predictions of classes become binary ones."""
    if isinstance(predictions, Distribution) and predictions.label_probabilities() is not None:
        if predictions.binary_probability() is None:
            raise TypeError(
                "predictions must be Bernoulli(probs), got "
                f"{type(predictions).__name__}; top_label(predictions, targets) or "
                "one_vs_rest(predictions, targets, label) makes binary predictions and targets."
            )
    elif isinstance(predictions, Distribution):
        raise TypeError(f"predictions must be Bernoulli(probs), got {type(predictions).__name__}.")
    return check_data(predictions, targets, where)
