r"""The probability integral transform, and the interval that it is known to be in.

**Predictions that give the cdf at some levels only.**  Of a distribution with an atom, such as the
amount of rain, the quantile v at level u is right if P(Y < v) <= u <= P(Y <= v).  A target at v may
then be anywhere in a jump of the cdf, which is known up to a mixture of the R intervals of
`pit_intervals`, and its U is drawn from a mixture with weights w that speak for the model.  The
features of U are the cell between two levels that it is in, and the levels that it is above.  The
weights minimise

    sum_ij k_P(p_i, p_j) <f_i, f_j>,    f_i = sum_r w_ir (E[feature | interval r] - E feature),

for the sum k_P of the default kernels on predictions: nearly the statistic of `calibration_test`.
If the model is calibrated, the weights of the true distribution are among those that could be
chosen: with them U is uniform given the prediction, and with the chosen ones it is rather too even.
An error that no jump explains remains.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from calibjax._base.check import check_key
from calibjax._base.compile import quick_jit
from calibjax._base.sharding import Axis, all_sum, axis_size, global_offset, row_by_row_on_devices
from calibjax._base.struct import PyTree, indexed, rows_of, widest_dtype
from calibjax._data.capabilities import KnownLevels, exchangeable_pool, pit_partition
from calibjax._data.data import Data, Rows, clean, kept_first
from calibjax._data.distribution import Distribution
from calibjax._data.interval_censored import IntervalCensored, Targets, unit_interval
from calibjax._data.padding import padded
from calibjax._numbers.arithmetic import dot
from calibjax._pairwise.tiles import in_chunks
from calibjax.expectations.defaults import default_prediction_kernels
from calibjax.features.weighted_sums import InCells, Landmarks, choose_landmarks, weighted_sums
from calibjax.kernels.base import KernelLike, pairwise
from calibjax.kernels.predictions import embedded_rows
from calibjax.scores._scores import numbers_as_data, score_rows, without_masked

# The numbers of landmarks and of steps towards the minimum.
_LANDMARKS, _STEPS = 128, 50
# The number of rows that choose between intervals at a time.
_CHOICES = 2**10
# Weights of intervals, the residuals that are mixed with them, and their sums; or changes of these.
_Mixed = tuple[jax.Array, jax.Array, jax.Array]


def pit_between_levels(key: jax.Array, data: Rows) -> jax.Array:
    """U of checked rows of predictions with a `pit_distribution`, ``[n]``; NaN for an invalid row.

    That of a row depends on (key, the number of the row among the kept rows) and on all rows.
    For K levels O(n K (landmarks + R)) time for each step, and O(n K R) memory.
    """
    rows = Rows(data.predictions, where=data.where)
    kernels = default_prediction_kernels(rows)
    return _pit_between_levels((key, kernels), data, pit_partition(data.predictions))


@row_by_row_on_devices
def _pit_between_levels(
    axis: Axis,
    shared: tuple[jax.Array, list[KernelLike]],
    data: Data,
    levels: tuple[float, ...],
) -> jax.Array:
    key, kernels = shared
    valid = data.valid()
    valid = jnp.ones(data.n, bool) if valid is None else valid
    counted = valid if data.where is None else valid & data.where
    rows = *clean(data, axis).samples, counted, jnp.arange(data.n, dtype=jnp.int32)
    (predictions, targets, counted, index), n_kept = kept_first(rows, data.where)
    first, n_rows = global_offset(n_kept, axis)
    low, high = predictions.pit_intervals(targets)
    size = min(_LANDMARKS, data.n * axis_size(axis))
    compared = [embedded_rows(kernel, predictions) for kernel in kernels]
    points = choose_landmarks(compared, n_kept, n_rows, size, axis)
    matrix = functools.reduce(jnp.add, map(pairwise, kernels, points, points))
    numbers = first + jnp.arange(data.n, dtype=jnp.int32)
    # The last kernel has the distance of `default_kernel`.
    landmarks = Landmarks(points[-1], n_rows, kernels[-1])
    cells = landmarks.cells(compared[-1], numbers, size < data.n * axis_size(axis))
    residuals = _residuals(levels, low, high)
    residuals = jnp.where(counted[:, None, None], residuals, 0.0)
    counts = landmarks.weighted(jnp.asarray(counted, residuals.dtype), jnp.minimum(cells, size - 1))
    weights = _favourable_weights(counts, matrix, residuals, axis)

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
    rows: InCells, matrix: jax.Array, residuals: jax.Array, axis: Axis
) -> jax.Array:
    """The weights ``[n, R]``, by the algorithm of Frank and Wolfe.

    Args:
        rows: the cells of F landmarks that rows are in.
        matrix: the kernel at the landmarks, ``[F, F]``.
        residuals: f of each interval, ``[n, R, M]``.
        axis: the devices.
    """
    n, n_intervals, _ = residuals.shape
    mixed = jnp.mean(residuals, axis=1)
    (sums,) = all_sum(weighted_sums([rows], mixed), axis)
    # Only where intervals differ there is a choice: few rows have a target at a quantile.
    has_choice = jnp.any(residuals != residuals[:, :1], axis=(1, 2))
    choices, index = (rows.cells, residuals, mixed), jnp.arange(n, dtype=jnp.int32)
    (choices, index), n_choices = kept_first((choices, index), has_choice)
    weights = jnp.full((n, n_intervals), 1 / n_intervals, residuals.dtype)
    (cells, residuals, mixed), weights = in_chunks(choices, weights, _CHOICES)
    n_chunks = lax.div(n_choices + weights.shape[1] - 1, weights.shape[1])

    def step(_: int, state: _Mixed) -> _Mixed:
        weights, mixed, sums = state
        slopes_of_cells = dot(matrix, sums)

        def of_chunk(k: jax.Array, found: _Mixed) -> _Mixed:
            vertices, changes, change_of_sums = found
            here, values, mean = indexed((cells, residuals, mixed), k)
            slopes = jnp.sum(values * rows_of(slopes_of_cells, here)[:, None], axis=2)
            best = jax.nn.one_hot(jnp.argmin(slopes, axis=1), n_intervals, dtype=values.dtype)
            change = jnp.sum(best[:, :, None] * values, axis=1) - mean
            change_of_sums = change_of_sums.at[here].add(change)
            return vertices.at[k].set(best), changes.at[k].set(change), change_of_sums

        zeros = jnp.zeros_like(mixed), jnp.zeros_like(sums)
        best, change, change_of_sums = lax.fori_loop(0, n_chunks, of_chunk, (weights, *zeros))
        change_of_sums = all_sum(change_of_sums, axis)
        curvature = dot(matrix, change_of_sums)
        square = jnp.sum(curvature * change_of_sums)
        size = -jnp.sum(curvature * sums) / jnp.where(square > 0, square, 1.0)
        size = jnp.clip(size, 0.0, 1.0)
        return (
            weights + size * (best - weights),
            mixed + size * change,
            sums + size * change_of_sums,
        )

    weights = lax.fori_loop(0, _STEPS, step, (weights, mixed, sums))[0]
    weights = weights.reshape(-1, n_intervals)[:n]
    return jnp.zeros_like(weights).at[index].set(weights)


class PITInterval(NamedTuple):
    """The interval of the unit interval that U = F(y) is in, for each row."""

    low: jax.Array
    high: jax.Array


def pit_interval(predictions: Distribution | Data, targets: Targets | None = None) -> PITInterval:
    """The interval in which U = F_i(y_i) lies, which is all that a forecast says about its target.

    If the forecasts are right, U is uniform in [0, 1], and uniform in this interval given it.

    - A density: both ends are F(y).
    - Counts and ordered classes: from F(y-) to F(y).
    - `Quantiles`: the two levels that y lies between.  Where y is equal to quantiles, the cdf
      jumps, and it is not known how far: the ends are in the middle of where they may be.
    - `SurvivalCurve`: the values of F at the two times that y lies between, and after the last time
      all above F there.
    - `Empirical` without weights: from (r - 1) / (S + 1) to r / (S + 1) for the rank r of the
      target among the S samples and itself, and the union of these intervals for ties.
    - `IntervalCensored`, where low < y <= high is known: from F(low) to F(high).

    `PITKernel` uses it.

    Args:
        predictions, targets: as in `Data`, or one `Data`: n >= 1 predictions of labels, which are
            ordered as numbers, of counts or of real numbers.

    Returns:
        PITInterval(low, high), each ``[n]``.  Inside jit an invalid row is NaN.

    Raises:
        TypeError: predictions of vectors, or without a `cdf`; another wrong type.
        ValueError: an argument of the wrong shape or, where it is concrete, value.

    See also:
        `pit`, a point in it; `PITKernel`.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> low, high = cj.pit_interval(cj.Bernoulli(jnp.array([0.75, 0.75])), jnp.array([0, 1]))
        >>> low.tolist(), high.tolist()
        ([0.0, 0.25], [0.25, 1.0])

    Reference: Czado, Gneiting and Held, Predictive model assessment for count data, Biometrics
    2009.
    """
    data = numbers_as_data(predictions, targets, intervals=True)
    return without_masked(score_rows(None, (padded(data),), _interval), data)


def _interval(predictions: Distribution, targets: PyTree) -> PITInterval:
    return PITInterval(*unit_interval(*exchangeable_pool(predictions, targets))[:2])


def mass_below(pit: PITInterval, z: jax.Array) -> jax.Array:
    """The cdf of U given where it lies, at points z of the unit interval ``[g]``: ``[n, g]``.

    It is (z - low) / (high - low) in the interval, and a step where both ends are equal.  As no U
    is below 0, it is 0 at z = 0.
    """
    low, high, z = pit.low[:, None], pit.high[:, None], z[None]
    is_point = low == high
    share = jnp.clip((z - low) / jnp.where(is_point, 1.0, high - low), 0.0, 1.0)
    return jnp.where(z > 0, jnp.where(is_point, (low <= z).astype(share.dtype), share), 0.0)


def pit(
    key: jax.Array, predictions: Distribution | Data, targets: ArrayLike | None = None
) -> jax.Array:
    """The probability integral transform of each row, uniform on (0, 1) for a calibrated model.

    For predictions with a density it is F_i(y_i), the cdf at the target.  For labels, counts and
    weighted samples, whose cdf may jump at the target, it is drawn between the limits of the cdf,

    .. math::
        F_i(y_i-) + U_i (F_i(y_i) - F_i(y_i-)), \\quad U_i \\sim \\text{Uniform}(0, 1).

    S equally likely samples are taken for draws from the distribution that the model predicts.
    Then it is (r_i + U_i) / (S + 1), where r_i is the number of samples that are smaller than the
    target, with ties in random order: if target and samples are independent draws from one
    distribution, it is exactly uniform.

    For quantiles it is drawn between the levels on both sides of the target, and for survival
    curves between the values at the times on both sides, since no more was predicted.  A
    distribution with an atom, such as the amount of rain, may have more than the level at or below
    a quantile, and less below it.  How a target at a quantile counts is then chosen in favour of
    the model, so that PITs are as even as they can be among predictions that are alike.

    A histogram is flat for a calibrated model, is a U for one that is over-confident, a hump for
    one that is under-confident, and a slope for one whose location is wrong.  A flat histogram does
    not show that a model is calibrated: `calibration_test` sees errors that cancel between
    predictions.

    Args:
        key: a key of `jax.random`; it does not matter for predictions with a density.
        predictions, targets: as in `Data`, or one `Data`: n >= 1 predictions of labels, which are
            ordered as numbers, of counts or of real numbers.

    Returns:
        An array ``[n]``.  Inside jit an invalid row is NaN.

    Raises:
        TypeError: predictions of vectors, or without a `cdf`; another wrong type.
        ValueError: an argument of the wrong shape or, where it is concrete, value; counts without
            max_count.

    See also:
        `pit_curve` for a histogram with a band.

    Example:
        >>> import jax, jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Normal(jnp.zeros(1000), jnp.ones(1000))
        >>> targets = 2 * predictions.sample(jax.random.key(0))  # the model is over-confident
        >>> u = cj.pit(jax.random.key(1), predictions, targets)
        >>> jnp.histogram(u, 5, (0.0, 1.0))[0].astype(int).tolist()
        [324, 107, 116, 119, 334]

    Reference: Dawid, Statistical theory: the prequential approach, Journal of the Royal Statistical
    Society A 1984; Czado, Gneiting and Held, Predictive model assessment for count data, Biometrics
    2009.
    """
    check_key(key)
    return pit_and_interval(key, numbers_as_data(predictions, targets))[0]


def pit_and_interval(key: jax.Array, data: Data) -> tuple[jax.Array, PITInterval]:
    """`pit` of checked data, and the interval that it is drawn from; U where levels are known."""
    rows = padded(data)
    if isinstance(data.predictions, KnownLevels):
        u = without_masked(pit_between_levels(key, rows), data)
        return u, PITInterval(u, u)
    return without_masked(score_rows(None, (rows, _uniform(key, rows)), _pit), data)


def drawn_pit_interval(key: jax.Array, data: Rows) -> PITInterval:
    """The PIT interval of `IntervalCensored` targets; `pit` is both ends where a target is exact.

    If the model is calibrated, the PIT of a target that is known and one drawn evenly from the
    interval of a target that is hidden are uniform on the unit interval.
    """
    return score_rows(None, (data, _uniform(key, data)), _range)


@functools.partial(quick_jit, light=True)
def _uniform(key: jax.Array, data: Data) -> jax.Array:
    """Uniform numbers ``[n]``, of all rows at once: devices with the same key would draw the same.

    Kept rows have the numbers that they would have without the others.
    """
    numbers = jax.random.uniform(key, (data.n,), widest_dtype(*jax.tree.leaves(data)))
    return numbers if data.where is None else numbers[jnp.cumsum(data.where) - 1]


def _pit(
    predictions: Distribution, targets: jax.Array, between: jax.Array
) -> tuple[jax.Array, PITInterval]:
    # Draws with the target among them have S + 1 equally likely ranks.
    low, high = _interval(predictions, targets)
    return low + between * (high - low), PITInterval(low, high)


def _range(predictions: Distribution, targets: IntervalCensored, between: jax.Array) -> PITInterval:
    low, high, *_ = unit_interval(predictions, targets)
    drawn, is_exact = low + between * (high - low), targets.is_exact()
    return PITInterval(jnp.where(is_exact, drawn, low), jnp.where(is_exact, drawn, high))
