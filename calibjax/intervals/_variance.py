"""How the variance of xi, with the notation of `_norm_intervals`, is spread over directions."""

import jax
import jax.numpy as jnp
from jax import lax

from calibjax._base.sharding import Axis, all_sum, axis_size, evenly_spaced, rows_at
from calibjax._data import Data, Distribution
from calibjax._numbers import dot
from calibjax.discrepancy import SumOfTerms, h_tile, h_with_itself, prepared
from calibjax.resampling import draw_targets

# The number of rows that show the largest eigenvalue.
_MATRIX_ROWS = 256
# The number of steps of the power iteration.
_STEPS = 32
# The number of rows whose targets are drawn at a time.
_ROWS = 2**12
# In standard errors of the observed variance.
_CHANCE = 2.0
# The number of rare events up to which data may not show how much they vary.
_FEW = 10


def largest_variance(
    kernel: SumOfTerms, data: Data, n_kept: jax.Array | int, n_rows: jax.Array, axis: Axis
) -> jax.Array:
    """The largest variance of <u, xi> for any unit vector u: the largest eigenvalue of H / n.

    It comes from the centred H of at most 256 rows that are evenly spaced among all.  It is convex
    in the covariance of xi, hence on average not smaller than for all rows.  `data` are clean,
    their first `n_kept` rows count on this device, and `n_rows` on all devices.
    """
    size = min(_MATRIX_ROWS, data.n * axis_size(axis))
    count = jnp.clip(n_rows, 1, size)
    is_row = jnp.arange(size, dtype=jnp.int32) < count
    # What does not count is a valid row too: of one that is 0, h may be NaN.
    index = jnp.where(is_row, evenly_spaced(n_rows, count, size), 0)
    samples = rows_at(data.samples, n_kept, index, axis)
    weights, count = is_row.astype(data.weights.dtype), count.astype(data.weights.dtype)
    rows = prepared(kernel, samples, None)
    matrix = h_tile(kernel, rows, rows)
    means = dot(matrix, weights) / count
    centred = matrix - means[:, None] - means[None, :] + dot(weights, means) / count
    return _largest_eigenvalue(weights[:, None] * centred * weights[None, :]) / (count - 1)


def _largest_eigenvalue(matrix: jax.Array) -> jax.Array:
    """The largest eigenvalue of a positive semidefinite matrix, by power iteration.

    It takes a tenth of the time of a factorisation, and errs by a few percent at most, where many
    eigenvalues are nearly as large.
    """

    def normalised(vector: jax.Array) -> tuple[jax.Array, jax.Array]:
        norm = jnp.sqrt(jnp.sum(jnp.square(vector)))
        return vector / jnp.where(norm == 0, 1.0, norm), norm

    def step(_: int, state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        return normalised(dot(matrix, state[0]))

    # The row of the largest variance points more to large eigenvectors than to others.
    start = normalised(matrix[jnp.argmax(jnp.diagonal(matrix))])
    return lax.fori_loop(0, _STEPS, step, start)[1]


def variance_under_model(
    key: jax.Array, kernel: SumOfTerms, data: Data, numbers: jax.Array, axis: Axis
) -> tuple[jax.Array, jax.Array]:
    """E |xi|^2 for targets from the model, and by how much the mean of n rows varies.

    Where events are rare, the data may show next to no variance, but the model knows it: 100
    targets are drawn from each prediction.  `data` are clean, and `numbers` are the numbers of the
    rows in all data.  A row counts as the square of its weight, as in the variance of the mean.
    """

    def mean_and_variance(row: tuple[Distribution, jax.Array]) -> tuple[jax.Array, jax.Array]:
        prediction, number = row
        batch, rows = jax.tree.map(lambda x: x[None], (prediction, number))
        targets = draw_targets(key, batch, rows, jnp.int32(0))[0].astype(data.targets.dtype)
        values = jax.vmap(lambda y: h_with_itself(kernel, (prediction, y)))(targets)
        return jnp.mean(values), jnp.var(values)

    moments = lax.map(mean_and_variance, (data.predictions, numbers), batch_size=_ROWS)
    squares = jnp.square(data.weights)
    sums = squares * moments[0], jnp.square(squares) * moments[1], squares
    mean, variance, n = all_sum(tuple(map(jnp.sum, sums)), axis)
    return mean / n, jnp.sqrt(variance) / n


def missing_variance(expected: jax.Array, chance: jax.Array, observed: jax.Array) -> jax.Array:
    """By how much data vary less than the model expects, as far as events are rare.

    `chance` is the standard error of the observed variance under the model.
    """
    missing = jnp.clip(expected - observed, 0.0, _CHANCE * chance)
    events = jnp.square(expected / jnp.where(chance == 0, 1.0, chance))
    return missing * _FEW / jnp.maximum(events, _FEW)
