"""Targets drawn from the predictions: data sets that a calibrated model would give.

If a model is calibrated and rows are independent given the predictions, the observed targets and
data sets drawn from the predictions are exchangeable, given the predictions.  So the rank of *any*
statistic of the observed targets among those of the drawn ones gives an exact p-value
(`counted_pvalue`), for every number of rows and draws.
"""

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import DTypeLike

from calibjax._base.sharding import Axis, global_offset
from calibjax._base.struct import indexed, rows_of
from calibjax._data.distribution import Distribution, Labels
from calibjax._loops.random_numbers import bits_made_once, folded, random_bits
from calibjax._numbers.arithmetic import fast_where, place_among

#: The number of draws that share one key.
DRAWS_PER_BATCH = 100


def row_numbers(weights: jax.Array, axis: Axis = None) -> jax.Array:
    """The number of each row among the kept rows of all devices, ``[n]``.

    The n rows are those of this device.  A row of weight 0 is not kept, and has any number.
    """
    counts = jnp.cumsum(weights != 0, dtype=jnp.int32)
    return global_offset(counts[-1], axis)[0] + counts - 1


def draw_targets(
    key: jax.Array, predictions: Distribution, rows: jax.Array, batch: jax.Array
) -> jax.Array:
    """One batch of draws from each prediction, ``[n, DRAWS_PER_BATCH, …]``; see `draw_batches`."""
    return draw_batches(key, predictions, rows, batch[None])


def draw_batches(
    key: jax.Array, predictions: Distribution, rows: jax.Array, batches: jax.Array
) -> jax.Array:
    """The draws of several batches, ``[n, len(batches) DRAWS_PER_BATCH, …]``.

    The draws of a row depend only on (key, ``rows[i]``, batch), where `rows` are numbers of the
    rows in all data: chunks of rows and rows on many devices get the draws of the whole batch.
    Batches share what depends on a prediction alone, such as sorted probabilities.
    """

    def draw(prediction: Distribution, key: jax.Array) -> jax.Array:
        if isinstance(prediction, Labels):
            return _draw_labels(key, prediction.label_probabilities())
        return indexed(prediction, None).sample(key, (DRAWS_PER_BATCH,))[:, 0]

    of_row = jax.vmap(draw, (None, 0))
    drawn = jax.vmap(of_row)(predictions, keys_of_draws(key, rows, batches))
    return drawn.reshape(drawn.shape[0], -1, *drawn.shape[3:])


def draw_pits(
    key: jax.Array, rows: jax.Array, batches: jax.Array, dtype: DTypeLike
) -> tuple[jax.Array, jax.Array]:
    """PITs U of several batches of draws from continuous predictions, and 1 - U.

    Both are ``[n, len(batches) DRAWS_PER_BATCH]``.  U is uniform whatever is predicted.  Both of
    its tails have steps of 2^-32, and no draw is 0.
    """
    bits = bits_made_once(keys_of_draws(key, rows, batches), DRAWS_PER_BATCH)
    bits = bits.reshape(rows.size, -1)
    return _uniform(bits, dtype), _uniform(~bits, dtype)


def keys_of_draws(key: jax.Array, rows: jax.Array, batches: jax.Array) -> jax.Array:
    """The key of each batch of draws of each row, ``[n, len(batches)]``."""
    return folded(folded(key, rows)[:, None], batches)


def _uniform(bits: jax.Array, dtype: DTypeLike) -> jax.Array:
    """Uniform numbers of 32 random bits; never 0."""
    return (bits.astype(dtype) + 0.5) * 2.0**-32


def _draw_labels(key: jax.Array, probabilities: jax.Array) -> jax.Array:
    """Labels ``[DRAWS_PER_BATCH]`` with probabilities ``[m]``, by the inverse of their sums.

    One uniform number makes a draw.  The sums are over increasing probabilities, so that small ones
    keep their digits, and labels of probability 0 are never drawn.
    """
    dtype = probabilities.dtype
    if dtype == jnp.float64:
        uniform = jax.random.uniform(key, (DRAWS_PER_BATCH,), dtype)
    else:
        # Steps of 2^-32, where `uniform` in float32 would have steps of 2^-23.
        uniform = _uniform(random_bits(key, DRAWS_PER_BATCH), dtype)
    if probabilities.size == 2:
        # The same label without sorting: the rarer one, of equal ones 0, comes first.
        rarer = (probabilities[1] < probabilities[0]).astype(jnp.int32)
        is_rarer = uniform * jnp.sum(probabilities) < jnp.min(probabilities)
        return fast_where(is_rarer, rarer, 1 - rarer)
    order = _increasing_order(probabilities)
    sums = increasing_sums(rows_of(probabilities, order))
    # Probabilities sum to one within 1e-3, and rounding may make a number as large as the sum.
    drawn = uniform * sums[-1:]
    return rows_of(order, jnp.minimum(place_among(sums, drawn, "right"), order.size - 1))


# Numbers of up to 64 labels use few digits, whose loss hardly ever changes the order.
_FEW_LABELS = 64


def _increasing_order(probabilities: jax.Array) -> jax.Array:
    """The labels by their probabilities ``[m]``, of many labels but for the last digits of these.

    A CPU sorts integers eight times faster than numbers with labels: bits of numbers that are not
    negative are in their order, and the last ones can hold the label.
    """
    m = probabilities.size
    if m <= _FEW_LABELS:
        return lax.sort((probabilities, jnp.arange(m, dtype=jnp.int32)), num_keys=1)[1]
    kind = jnp.uint64 if probabilities.dtype == jnp.float64 else jnp.uint32
    of_label = kind(2 ** (m - 1).bit_length() - 1)
    bits = lax.bitcast_convert_type(probabilities, kind)
    packed = jnp.sort((bits & ~of_label) | jnp.arange(m, dtype=kind))
    return (packed & of_label).astype(jnp.int32)


def increasing_sums(probabilities: jax.Array) -> jax.Array:
    """The sums up to each label, ``[m]``; they never decrease, nor increase by a probability 0."""
    # Rounding makes parallel sums fall, or rise where the probability is 0.
    return lax.cummax(fast_where(probabilities > 0, jnp.cumsum(probabilities), 0.0))
