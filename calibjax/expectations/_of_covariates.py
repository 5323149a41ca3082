"""What a test with covariates looks at: features of targets, and coordinates of predictions."""

import jax
import jax.numpy as jnp

from calibjax._distribution import Distribution
from calibjax._rows import Data
from calibjax.expectations._features import confidence_of
from calibjax.expectations._rank_scores import location_and_log_spread

# With more classes, the frequency of each in every pair of columns is more than a test can see.
_MANY_CLASSES = 32


def judging_kernels(data: Data) -> dict[str, int]:
    """Which of the `default_kernels` has each feature of targets that covariates may explain.

    They are features that people read: of labels their frequencies, whether the most likely class
    was right, and whether the model was too sure; of numbers and vectors location and spread.  More
    features cost power.
    """
    predictions = data.predictions
    n_labels = predictions.n_labels
    if n_labels is not None:
        places = {"frequencies": 0} if n_labels <= _MANY_CLASSES else {}
        places |= {"most likely class": 3, "log probability": 5}
        return places | ({"order": 6} if predictions.is_ordered else {})
    if predictions.is_ordered or predictions.has_unit_box:
        return {"location": 0, "spread": 1}
    return {"location": 0, "spread": 4}


def prediction_coordinates(predictions: Distribution) -> jax.Array:
    """A few numbers of each prediction that covariates may change the meaning of, ``[n, c]``.

    They are the probability of label 1 of two, or of the most likely label of more; location and
    logarithm of the spread of numbers; and all locations of vectors.
    """
    if predictions.has_labels:
        probabilities = predictions.label_probabilities()
        if probabilities.shape[1] == 2:
            return probabilities[:, 1:]
        return jax.vmap(confidence_of)(predictions)[:, None]
    if predictions.is_ordered:
        return jnp.stack(location_and_log_spread(predictions), axis=1)
    return predictions.location().reshape(len(predictions), -1)
