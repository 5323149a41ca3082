"""What a PIT curve holds."""

import jax

from calibjax._struct import struct

# The least number of cells of the grid on which the distribution function is looked at.
_LEAST_CELLS = 100


@struct
class PITCurve:
    """The histogram of the PIT and its distribution function; see `pit_curve`.

    Args:
        edges: the ends of the bins of the histogram, ``[b + 1]``.
        count: the number of rows in each bin, ``[b]``; of `Between` targets parts of rows count,
            and with weights their share of the weight, times all rows.
        density: the height of the histogram, near 1 for a calibrated model, ``[b]``.
        pointwise_low, pointwise_high: a band of heights that holds for each bin alone, ``[b]``.
        density_low, density_high: a band of heights that holds for all bins at once, ``[b]``.
        grid: numbers z from 0 to 1, ``[g]``.
        difference: the fraction of rows with a PIT of at most z, minus z, ``[g]``.
        difference_low, difference_high: a band that holds on the whole grid at once, ``[g]``.
        confidence_level: the probability with which each band holds.

    Example:
        >>> import jax, jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Normal(jnp.zeros(4), jnp.ones(4))
        >>> targets = jnp.array([-0.7, -0.1, 0.2, 0.6])  # the PIT is 0.24, 0.46, 0.58, 0.73
        >>> curve = cj.pit_curve(jax.random.key(0), predictions, targets, n_bins=5)
        >>> curve.count.tolist(), curve.density.round(2).tolist()
        ([0, 1, 2, 1, 0], [0.0, 1.25, 2.5, 1.25, 0.0])
    """

    edges: jax.Array
    count: jax.Array
    density: jax.Array
    pointwise_low: jax.Array
    pointwise_high: jax.Array
    density_low: jax.Array
    density_high: jax.Array
    grid: jax.Array
    difference: jax.Array
    difference_low: jax.Array
    difference_high: jax.Array
    confidence_level: jax.Array


def cells_per_bin(n_bins: int) -> int:
    """How many cells of the grid of the distribution function a bin of the histogram has."""
    return -(-_LEAST_CELLS // n_bins)
