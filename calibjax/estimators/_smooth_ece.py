r"""The smooth calibration error of binary predictions.

With the residuals r_i = p_i - y_i and the normal density K_s of standard deviation s, reflected at
0 and 1, the error at the bandwidth s is

    S(s) = int_0^1 |sum_i K_s(t, p_i) r_i| dt / int_0^1 sum_i K_s(t, p_i) dt.

It decreases in s, and the smooth ECE is its fixed point, s = S(s).  The published code fixes how
both integrals and the fixed point are computed, and we compute the same:

- Residuals are shared between the two nearest of `cells` + 1 nodes, in proportion to how near they
  are; `cells` is 1000, or 10 / s for small s.
- Sums over nodes are smoothed with K_s, which is cut at distances above 1/2.  The first and the
  last node have no image behind 0 or 1, so that what is there counts half.
- Both integrals are sums over max(200, 10 / s) points, with linear interpolation between nodes.
- s is a multiple of 1/1024, at least 2/1024: ten bisections find where S(s) <= s begins.

One convolution of at most 5121 nodes by FFT makes S(s) from the sums over nodes, in which alone the
rows appear.  Only for s < 1/100, after six bisections, are the rows shared out again.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike

from calibjax._base.sharding import as_varying, on_all_rows
from calibjax._base.struct import rows_of
from calibjax._data.data import Data, Rows, clean
from calibjax._data.distribution import Distribution, as_binary
from calibjax._data.padding import padded
from calibjax._numbers.arithmetic import fast_where
from calibjax._numbers.derivatives import absolute
from calibjax.estimators.labels import binary_as_data

_BISECTIONS = 10
_LEAST_STEPS = 2
_COARSE_CELLS = 1000
_MOST_CELLS = 10 * 2**_BISECTIONS // _LEAST_STEPS
_LEAST_POINTS = 200
# The kernel reaches over half of 1000 cells; of more cells this is more than 45 s.
_REACH = _COARSE_CELLS // 2
# The nodes with their images, and a few more: a length that has only the factors 2 and 3.
_LENGTH = 6144
# What is added to the density at each point.
_LEAST_DENSITY = 1e-4
# The number of partial sums of the rounding errors.
_PARTS = 16


def smooth_ece(
    predictions: Distribution | Data,
    targets: ArrayLike | None = None,
    *,
    where: ArrayLike | None = None,
    weights: ArrayLike | None = None,
) -> jax.Array:
    """The smooth calibration error of binary predictions: residuals averaged by a kernel, not bins.

    .. math::
        \\int_0^1 \\Big| \\frac{1}{n} \\sum_i K_s(t, p_i) (p_i - y_i) \\Big| \\, dt

    with the normal density K_s, reflected at 0 and 1.  Its bandwidth s is the one at which the
    error is s, so that there is nothing to choose, and the error is continuous in the predictions
    but for rounding of s to 1/1024.  It is small for calibrated predictions and never 0: it has a
    bias of the order n^(-1/3), which `consistency_test` takes into account.

    The numbers are equal to `relplot.smECE`, the published code, within 1e-6 (in float32 too, for
    n <= 10^6), because its grid is taken over: sums over 1000 cells or more differ from the
    integral by some 1e-3, but that forecasts in the first and the last cell lose up to half of
    their weight, with which forecasts of exactly 0 or 1 count.  The gradient holds the bandwidth
    fixed, and is steep in these two cells.  O(n) time and memory.

    Args:
        predictions, targets: as in `Data`, or one `Data`: n >= 2 Bernoulli predictions, such as
            `top_label` or `one_vs_rest` make.
        where, weights: as in `Data`; all sums have these weights in units of the largest one, and n
            is their sum.

    Returns:
        A scalar in the floating dtype of the predictions, at least float32.  Inside jit it is NaN
        if a kept row is invalid or no row is kept.

    Raises:
        TypeError, ValueError: an argument of the wrong type, shape or, where it is concrete, value.

    See also:
        `ece` with bins, `reliability_curve` for a plot.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Bernoulli(jnp.array([0.1, 0.1, 0.8, 0.8]))
        >>> float(cj.smooth_ece(predictions, jnp.array([0, 1, 1, 0])))
        0.295

    Reference: Błasiok and Nakkiran, Smooth ECE: principled reliability diagrams via kernel
    smoothing, ICLR 2024; their code is https://github.com/apple/ml-calibration.
    """
    return _smooth_ece(padded(binary_as_data(predictions, targets, where=where, weights=weights)))


@on_all_rows
def _smooth_ece(data: Rows) -> jax.Array:
    data = clean(data)
    forecasts, weights = as_binary(data.predictions).binary_probability(), data.weights
    residuals = weights * (forecasts - data.targets.astype(forecasts.dtype))
    error = smooth_error((forecasts, residuals, weights), _sums)
    # Weights of invalid data are NaN.
    return fast_where(jnp.sum(weights) > 0, error, jnp.nan)


#: Forecasts, residuals and weights, ``[n]`` each.
_Rows = tuple[jax.Array, jax.Array, jax.Array]
_Sums = Callable[[jax.Array, jax.Array], jax.Array]
#: Both ends of the bandwidth, the number of cells, and the sums over their nodes.
_State = tuple[jax.Array, jax.Array, jax.Array, jax.Array]


def smooth_error(rows: _Rows, sums: _Sums) -> jax.Array:
    """S at its fixed point; `sums` adds what is in each cell."""
    bandwidth = _bandwidth(lax.stop_gradient(rows))
    cells = _n_cells(bandwidth)
    return _error_of_sums(_sums_over_nodes(rows, cells, sums), cells, bandwidth)


def _bandwidth(rows: _Rows) -> jax.Array:
    """The smallest multiple of 1/1024 at which the error is not larger, from 2/1024 to 1."""
    dtype = rows[0].dtype

    def bisect(_: int, state: _State) -> _State:
        # In steps of 1/1024: the error is larger than the bandwidth at `low`, but not at `high`.
        low, high, n_before, sums = state
        middle = (low + high) >> 1
        bandwidth = middle.astype(dtype) / 2**_BISECTIONS
        cells = _n_cells(bandwidth)
        sums = lax.cond(
            cells == n_before, lambda: sums, lambda: _sums_over_nodes(rows, cells, quick_sums)
        )
        too_small = bandwidth < _error_of_sums(sums, cells, bandwidth)
        too_small |= middle < _LEAST_STEPS
        low, high = lax.select(too_small, middle, low), lax.select(too_small, high, middle)
        return low, high, cells, sums

    zero, one = jnp.asarray(0, jnp.int32), jnp.asarray(2**_BISECTIONS, jnp.int32)
    none = jnp.zeros((_MOST_CELLS + 1, 2), dtype)
    _, high, *_ = lax.fori_loop(0, _BISECTIONS, bisect, as_varying((zero, one, zero, none), rows))
    return high.astype(dtype) / 2**_BISECTIONS


def _rounded(x: jax.Array) -> jax.Array:
    return lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN).astype(jnp.int32)


def _n_cells(bandwidth: jax.Array) -> jax.Array:
    return jnp.maximum(2 * _COARSE_CELLS, _rounded(20 / bandwidth)) >> 1


def _sums_over_nodes(rows: _Rows, cells: jax.Array, sums: _Sums) -> jax.Array:
    """The residuals and the weights of each node, ``[_MOST_CELLS + 1, 2]``.

    A row between two nodes is shared between them, as linear interpolation does.
    """
    forecasts, residuals, weights = rows
    cell, right = _cell_and_share(forecasts * cells.astype(forecasts.dtype), cells)
    values = jnp.stack([residuals, weights], axis=1)
    shares = jnp.concatenate([(1 - right)[:, None] * values, right[:, None] * values], axis=1)
    of_cells = sums(shares, cell)
    zero = jnp.zeros((), of_cells.dtype)
    return of_cells[:, :2] + lax.pad(of_cells[:, 2:], zero, ((1, -1, 0), (0, 0, 0)))


def quick_sums(shares: jax.Array, cell: jax.Array) -> jax.Array:
    """The sums of shares ``[n, k]`` in each cell, good enough to choose the bandwidth."""
    return _add_at((cell,), shares, (_MOST_CELLS + 1,))


def _add_at(index: tuple[jax.Array, ...], x: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    zeros = jnp.zeros((*shape, x.shape[1]), x.dtype)
    return zeros.at[index].add(x, mode="promise_in_bounds", wrap_negative_indices=False)


def _sums(shares: jax.Array, cell: jax.Array) -> jax.Array:
    """The sums of shares ``[n, k]`` between -1 and 1 in each cell.

    A float32 sum of 10^6 equal numbers is off by percents.  The leading digits of each share are
    therefore summed as integers, without rounding, and only the rest as floating-point numbers.
    """
    if shares.dtype == jnp.float64:
        return quick_sums(shares, cell)
    n = shares.shape[0]
    unit = jnp.asarray(2.0 ** (30 - int(np.ceil(np.log2(n)))), shares.dtype)
    leading = jnp.round(lax.stop_gradient(shares) * unit).astype(jnp.int32)
    rest = shares - leading.astype(shares.dtype) / unit
    exact = _add_at((cell,), leading, (_MOST_CELLS + 1,))
    part = lax.rem(jnp.arange(n, dtype=jnp.int32), np.int32(_PARTS))
    parts = _add_at((part, cell), rest, (_PARTS, _MOST_CELLS + 1))
    return exact.astype(shares.dtype) / unit + jnp.sum(parts, axis=0)


def _error_of_sums(sums: jax.Array, cells: jax.Array, bandwidth: jax.Array) -> jax.Array:
    """S at the bandwidth, from the sums over the nodes 0 … cells."""
    dtype, period = sums.dtype, 2 * cells
    # The nodes -reach … cells + reach, reflected at both ends: the period is 2 cells.
    # They start one period later: `rem` of a negative number is negative.
    node = jnp.arange(-_REACH, sums.shape[0] + _REACH, dtype=jnp.int32) + period
    node = lax.rem(node, period)
    reflected = rows_of(sums, jnp.minimum(node, period - node))
    length = cells.astype(dtype)
    steps = jnp.arange(-_REACH, _REACH + 1, dtype=dtype) / (length * bandwidth)
    kernel = jnp.exp(-jnp.square(steps) / 2)
    smoothed = _convolved(reflected.T, kernel).T

    points = jnp.maximum(_LEAST_POINTS, _rounded(10 / bandwidth))
    number = jnp.arange(_MOST_CELLS, dtype=jnp.int32)
    position = number.astype(dtype) * (length / (points - 1).astype(dtype))
    cell, right = _cell_and_share(position, cells)
    right = right[:, None]
    values = (1 - right) * rows_of(smoothed, cell) + right * rows_of(smoothed, cell + 1)
    values = fast_where((number < points)[:, None], values, 0.0)
    errors, densities = lax.split(values, (1, 1), axis=1)
    least = points.astype(dtype) * (_LEAST_DENSITY * np.sqrt(2 * np.pi)) * bandwidth
    return jnp.sum(absolute(errors)) / (jnp.sum(densities) + least)


def _convolved(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """The sums over the kernel at each position of x ``[k, l]`` where it fits in."""
    # A circular convolution goes wrong only where it wraps around, in the omitted part.
    zero, behind = jnp.zeros((), x.dtype), _LENGTH - np.array([x.shape[1], kernel.size])
    x_of, kernel_of = (
        lax.fft(lax.pad(y, zero, ((0, 0, 0), (0, k, 0))), lax.FftType.RFFT, (_LENGTH,))
        for y, k in zip((x, kernel[None]), behind, strict=True)
    )
    product = lax.fft(x_of * kernel_of, lax.FftType.IRFFT, (_LENGTH,))
    return product[:, kernel.size - 1 : x.shape[1]]


def _cell_and_share(position: jax.Array, cells: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The node to the left of each position, and the share of the node to the right."""
    cell = jnp.minimum(jnp.maximum(position.astype(jnp.int32), 0), cells - 1)
    return cell, position - cell.astype(position.dtype)
