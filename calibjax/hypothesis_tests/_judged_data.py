"""What a test judges: samples with the target among them, and places between quantiles."""

import jax

from calibjax._rows import Data
from calibjax.scores import pit_between_levels


def pooled(data: Data) -> Data:
    """The data that a test draws: samples with the target among them."""
    predictions, targets = data.predictions.exchangeable_pool(data.targets)
    return data.replace(predictions=predictions, targets=targets)


def at_places(key: jax.Array, number: int, data: Data) -> Data:
    """The laws of U = F(Y) and places of the targets, where predictions say no more than these.

    Places are drawn with the key into which the number is folded.
    """
    law = data.predictions.pit_distribution()
    if law is None:
        return data
    places = pit_between_levels(jax.random.fold_in(key, number), data)
    return data.replace(predictions=law, targets=places)
