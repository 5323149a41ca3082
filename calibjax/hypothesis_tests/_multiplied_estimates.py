"""Estimates of data sets under H0 that keep how rows of labels depend on each other.

They are those of the residuals xi_i r_i + lambda s_i of `_multiplied`, where r_i = e_(y_i) - p_i is
the residual of a label.  Over times xi_i is less its weighted mean: sums of xi_i r_i in any cell
are then those of residuals in the cell less their mean over all rows.
"""

import jax
import jax.numpy as jnp
from jax import lax

from calibjax._rows import Data
from calibjax.estimators import Form
from calibjax.hypothesis_tests._multiplied import lacking
from calibjax.resampling import DRAWS_PER_GROUP, draw_targets, multipliers, row_numbers

# Folded into the key of the draws.
_MULTIPLIERS = 2**31 - 3


def multiplied_estimates(
    key: jax.Array, form: Form, data: Data, n_resamples: int, n_times: int | None, together: int
) -> jax.Array:
    """The estimates of R data sets, and last of the data, which are clean, ``[R + 1]``.

    Data set r depends only on (key, r) and the order of clusters or times; `together` of them are
    computed at once.
    """
    predictions, weights = data.predictions, data.weights
    probs = predictions.label_probabilities()
    numbers = row_numbers(weights)
    eta = multipliers(jax.random.fold_in(key, _MULTIPLIERS), data, True, n_times, None)

    def residuals_of(labels: jax.Array) -> jax.Array:
        return jax.nn.one_hot(labels, probs.shape[1], dtype=probs.dtype) - probs

    observed = residuals_of(data.targets)
    squares, shares = jnp.square(weights)[:, None], weights / jnp.sum(weights)
    missing = lacking(
        jnp.sum(squares * jnp.square(observed), axis=0),
        jnp.sum(squares * probs * (1 - probs), axis=0),
    )

    def estimates(group: jax.Array) -> jax.Array:
        xi = eta.values(eta.rows, eta.shared(group[None]))
        if data.times is not None:
            xi = xi - jnp.sum(shares[:, None] * xi, axis=0)[None]
        labels = draw_targets(key, predictions, numbers, group)

        def estimate(data_set: tuple[jax.Array, jax.Array]) -> jax.Array:
            factors, drawn = data_set
            residuals = factors[:, None] * observed + missing[None] * residuals_of(drawn)
            return form(predictions, residuals, weights)

        return lax.map(estimate, (xi.T, labels.T), batch_size=together)

    groups = jnp.arange(-(-n_resamples // DRAWS_PER_GROUP), dtype=jnp.int32)
    values = lax.map(estimates, groups).ravel()[:n_resamples]
    return jnp.append(values, form(predictions, observed, weights))
