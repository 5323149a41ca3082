r"""The PIT U of each target of a prediction that gives the cdf at some levels only.

Of a distribution with an atom, such as the amount of rain, the quantile v at level u is right if
P(Y < v) <= u <= P(Y <= v).  A target at v may then be anywhere in a jump of the cdf, which is known
up to a mixture of the R intervals of `pit_intervals`, and its U is drawn from a mixture with
weights w that speak for the model.  The features of U are the cell between two levels that it is
in, and the levels that it is above.  The weights minimise

    sum_ij k_P(p_i, p_j) <f_i, f_j>,    f_i = sum_r w_ir (E[feature | interval r] - E feature),

for the sum k_P of the default kernels on predictions: nearly the statistic of `calibration_test`.
If the model is calibrated, the weights of the true distribution are among those that could be
chosen: with them U is uniform given the prediction, and with the chosen ones it is rather too even.
An error that no jump explains remains.
"""

import functools

import jax
import jax.numpy as jnp
from jax import lax

from calibjax._base.sharding import Axis, all_sum, axis_size, global_offset, row_by_row_on_devices
from calibjax._base.struct import as_pytree
from calibjax._data import Data, clean, kept_first
from calibjax._numbers import dot
from calibjax.expectations import default_kernel, default_prediction_kernels
from calibjax.features import choose_landmarks, landmarks_with_base
from calibjax.kernels import KernelLike

# The numbers of landmarks and of steps towards the minimum.
_LANDMARKS, _STEPS = 128, 50


def pit_between_levels(key: jax.Array, data: Data) -> jax.Array:
    """U of checked rows of predictions with a `pit_distribution`, ``[n]``; NaN for an invalid row.

    That of a row depends on (key, the number of the row among the kept rows) and on all rows.
    For K levels O(n K (landmarks + R)) time for each step, and O(n K R) memory.
    """
    rows = Data.unchecked(data.predictions, where=data.where)
    base, *kernels = map(
        as_pytree,
        (default_kernel(rows).prediction_kernel, *default_prediction_kernels(rows)),
    )
    levels = data.predictions.pit_distribution().levels
    return _pit_between_levels((key, base, kernels), data, levels)


@row_by_row_on_devices
def _pit_between_levels(
    axis: Axis,
    shared: tuple[jax.Array, KernelLike, list[KernelLike]],
    data: Data,
    levels: tuple[float, ...],
) -> jax.Array:
    key, base, kernels = shared
    valid = data.valid()
    counted = valid if data.where is None else valid & data.where
    rows = *clean(data, axis).samples, counted, jnp.arange(data.n, dtype=jnp.int32)
    (predictions, targets, counted, index), n_kept = kept_first(rows, data.where)
    first, n_rows = global_offset(n_kept, axis)
    low, high = predictions.pit_intervals(targets)
    size = min(_LANDMARKS, data.n * axis_size(axis))
    points = choose_landmarks(predictions, n_kept, n_rows, size, axis)
    landmarks = landmarks_with_base(points, n_rows, base, size < data.n * axis_size(axis))
    matrix = functools.reduce(jnp.add, map(landmarks.matrix, kernels))
    numbers = first + jnp.arange(data.n, dtype=jnp.int32)
    coordinates = jnp.where(counted[:, None], landmarks.coordinates(predictions, numbers), 0.0)
    residuals = _residuals(levels, low, high)
    residuals = jnp.where(counted[:, None, None], residuals, 0.0)
    weights = _favourable_weights(coordinates, matrix, residuals, axis)

    def draw(row: jax.Array, weights: jax.Array, low: jax.Array, high: jax.Array) -> jax.Array:
        choice, between = jax.random.uniform(jax.random.fold_in(key, row), (2,), low.dtype)
        # Rounding may make the sum of the weights smaller than the choice.
        chosen = jnp.sum(choice > jnp.cumsum(weights)[:-1], dtype=jnp.int32)
        return low[chosen] + between * (high[chosen] - low[chosen])

    drawn = jax.vmap(draw)(numbers, weights, low, high)
    return jnp.where(valid, jnp.zeros_like(drawn).at[index].set(drawn), jnp.nan)


def _residuals(levels: tuple[float, ...], low: jax.Array, high: jax.Array) -> jax.Array:
    """Features of U on intervals ``[n, R]``, minus their expectations, ``[n, R, M]``.

    They are whether U is in a cell between two levels, and whether it is above a level.
    """
    edges = jnp.array([0.0, *levels, 1.0], low.dtype)
    of_cells, of_levels = jnp.diff(edges), 1 - edges[1:-1]
    scale_of_cells = jnp.sqrt(1 - jnp.sum(jnp.square(of_cells)))
    scale_of_levels = jnp.sqrt(jnp.sum(of_levels * (1 - of_levels)))

    def residual(low: jax.Array, high: jax.Array) -> jax.Array:
        below = jnp.clip((edges - low) / (high - low), 0.0, 1.0)
        in_cells = (jnp.diff(below) - of_cells) / scale_of_cells
        return jnp.concatenate([in_cells, (1 - below[1:-1] - of_levels) / scale_of_levels])

    return jax.vmap(jax.vmap(residual))(low, high)


def _favourable_weights(
    coordinates: jax.Array, matrix: jax.Array, residuals: jax.Array, axis: Axis
) -> jax.Array:
    """The weights ``[n, R]``, by the algorithm of Frank and Wolfe.

    Args:
        coordinates: w(p) with respect to F landmarks, ``[n, F]``.
        matrix: the kernel at the landmarks, ``[F, F]``.
        residuals: f of each interval, ``[n, R, M]``.
        axis: the devices.
    """
    n_intervals, dtype = residuals.shape[1], residuals.dtype

    def step(
        _: int, state: tuple[jax.Array, jax.Array, jax.Array]
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        weights, mixed, sums = state
        slopes = jnp.sum(residuals * dot(coordinates, dot(matrix, sums))[:, None], axis=2)
        best = jax.nn.one_hot(jnp.argmin(slopes, axis=1), n_intervals, dtype=dtype)
        change = jnp.sum(best[:, :, None] * residuals, axis=1) - mixed
        change_of_sums = all_sum(dot(coordinates.T, change), axis)
        curvature = dot(matrix, change_of_sums)
        square = jnp.sum(curvature * change_of_sums)
        size = -jnp.sum(curvature * sums) / jnp.where(square > 0, square, 1.0)
        size = jnp.clip(size, 0.0, 1.0)
        return (
            weights + size * (best - weights),
            mixed + size * change,
            sums + size * change_of_sums,
        )

    weights = jnp.full(residuals.shape[:2], 1 / n_intervals, dtype)
    mixed = jnp.mean(residuals, axis=1)
    sums = all_sum(dot(coordinates.T, mixed), axis)
    return lax.fori_loop(0, _STEPS, step, (weights, mixed, sums))[0]
