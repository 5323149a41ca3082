"""Binary predictions and targets, checked."""

from typing import Any

from jax.typing import ArrayLike

from calibjax._distribution import Distribution
from calibjax._rows import Data, check_data


def check_binary(predictions: Any, targets: ArrayLike, where: ArrayLike | None) -> Data:
    """The arguments as `Data`; a TypeError says how predictions of classes become binary ones."""
    if isinstance(predictions, Distribution) and predictions.binary_probability() is None:
        raise TypeError(
            f"predictions must be Bernoulli(probs), got {type(predictions).__name__}; of class "
            "probabilities, top_label(predictions, targets) or one_vs_rest(predictions, targets, "
            "label) makes binary predictions and targets."
        )
    return check_data(predictions, targets, where)
