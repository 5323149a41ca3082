"""What a PIT curve holds."""

import jax
import numpy as np

from calibjax._struct import is_array, is_traced, struct

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

    def __str__(self) -> str:
        """The bins, their heights and the band for all of them."""
        if is_traced(self) or not is_array(self.count) or np.ndim(self.count) != 1:
            return repr(self)
        columns = self.edges[:-1], self.edges[1:], self.density, self.density_low, self.density_high
        lines = [
            f"{low:.3g} … {high:.3g}: height {height:.3g}, if calibrated {least:.3g} … {most:.3g}"
            for low, high, height, least, most in zip(*map(np.asarray, columns), strict=True)
        ]
        shown = f"PIT of {float(np.sum(np.asarray(self.count))):g} rows in {len(lines)} bins"
        return "\n".join([f"{shown}, bands at {float(self.confidence_level):g}:", *lines])


def cells_per_bin(n_bins: int) -> int:
    """How many cells of the grid of the distribution function a bin of the histogram has."""
    return -(-_LEAST_CELLS // n_bins)
