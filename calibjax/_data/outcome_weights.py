"""Weights that depend on the label of a row: the weight that it would have had with each label.

A row with the label c is sampled with a probability proportional to 1 / w_c.  If the model is
calibrated, the label of a row that was sampled is c with a probability q_c proportional to
p_c / w_c, and every weighted residual w_y (f(y) - E f(Z)), Z ~ p, has the mean 0.

Reference: Prentice and Pyke, Logistic disease incidence models and case-control studies, Biometrika
1979, for the probabilities q.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._base.sharding import devices_of
from calibjax._base.struct import is_traced, on_host


def weights_of_labels(weights: Any, labels: Any) -> Any:
    """The weights ``[n]`` of observed labels, of all ``[n, m]``; a masked row may hold anything."""
    is_known = not is_traced((weights, labels)) and devices_of((weights, labels)) is None
    numpy: Any = np if is_known else jnp
    weights, labels = map(on_host if is_known else jnp.asarray, (weights, labels))
    labels = numpy.clip(labels.astype(np.int32), 0, weights.shape[1] - 1)
    return numpy.take_along_axis(weights, labels[:, None], axis=1)[:, 0]


def sampled(probabilities: jax.Array, weights: jax.Array | None) -> jax.Array:
    """q, the probabilities of labels in rows that were sampled, ``[…, m]``; without weights p."""
    if weights is None:
        return probabilities
    odds = probabilities / weights
    return odds / odds.sum(axis=-1, keepdims=True)
