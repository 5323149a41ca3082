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

# So many rows share a weight, on average, of weights that are looked at.
_LEAST_REPEATS = 8


def weights_of_labels(weights: Any, labels: Any) -> Any:
    """The weights ``[n]`` of observed labels, of all ``[n, m]``; a masked row may hold anything."""
    is_known = not is_traced((weights, labels)) and devices_of((weights, labels)) is None
    numpy: Any = np if is_known else jnp
    weights, labels = map(on_host if is_known else jnp.asarray, (weights, labels))
    labels = numpy.clip(labels.astype(np.int32), 0, weights.shape[1] - 1)
    return numpy.take_along_axis(weights, labels[:, None], axis=1)[:, 0]


def follow_labels(weights: np.ndarray, labels: np.ndarray) -> bool:
    """Whether weights ``[n]`` repeat, and none of them occurs with two of the labels ``[n]``."""
    (values, rows), (of_labels, columns) = (
        np.unique(x, return_inverse=True) for x in (weights, labels)
    )
    n_pairs = np.unique(rows * of_labels.size + columns).size
    are_few = values.size * _LEAST_REPEATS <= labels.size
    return are_few and n_pairs == values.size and of_labels.size > 1


def sampled(probabilities: jax.Array, weights: jax.Array | None) -> jax.Array:
    """q, the probabilities of labels in rows that were sampled, ``[…, m]``; without weights p."""
    if weights is None:
        return probabilities
    odds = probabilities / weights
    return odds / odds.sum(axis=-1, keepdims=True)
