"""A readable effect size: the temperature that produces an equal error.

If the target of row i followed q_i, the prediction p_i at the temperature T, independently of all
others, then for i != j

    E h_ij = k_P(p_i, p_j) <mu(q_i) - mu(p_i), mu(q_j) - mu(p_j)>

with the mean embeddings mu, which are sums over labels if there are labels.
"""

import math
from typing import Unpack

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike

from calibjax._base.check import check_integer, check_key
from calibjax._base.sharding import Axis, on_devices
from calibjax._base.struct import is_array, is_traced, rows_of, struct, widest_dtype
from calibjax._data.capabilities import tempered
from calibjax._data.data import Data, RowOptions, Rows, as_data, clean, in_dtype, spaced_rows
from calibjax._data.distribution import Distribution
from calibjax._data.padding import padded
from calibjax._numbers.arithmetic import fast_where
from calibjax.discrepancy import SumOfTerms, Term, check_kernel_of
from calibjax.intervals.skce_interval import ConfidenceInterval, skce_and_interval
from calibjax.kernels.base import KernelLike, pairwise, times
from calibjax.nulls.ranks import checked_level, one_level


def tempered_sums(
    kernel: SumOfTerms, predictions: Distribution, weights: jax.Array, temperatures: jax.Array
) -> jax.Array:
    """sum_{i != j} w_i w_j E h_ij at each temperature, ``[T]``; n x n numbers are in memory."""

    def term_sums(term: Term) -> jax.Array:
        # The kernel on predictions is made once for all temperatures.
        pairs = pairwise(term.prediction_kernel, predictions, predictions)
        row, column = (lax.broadcasted_iota(jnp.int32, pairs.shape, axis) for axis in (0, 1))
        pairs = fast_where(row != column, weights[:, None] * pairs * weights[None, :], 0.0)

        def sum_of(temperature: jax.Array) -> jax.Array:
            others = tempered(predictions, temperature)
            return jnp.sum(pairs * term.residual.products_under(predictions, others))

        return times(term.factor, lax.map(sum_of, temperatures))

    return kernel.total(term_sums)


# The number of rows whose pairs show what a temperature does: n x n numbers are in memory, and n^2
# products of numbers of labels are made for each temperature.
_MAX_ROWS, _MAX_PRODUCTS = 2048, 2**30
# T - 1 at which the error is computed.  Below the first one it grows with the square of T - 1, and
# the last one stands for infinity.
_SMALLEST, _LARGEST, _N_TEMPERATURES = 1e-2, 1e4, 64


@struct
class EquivalentTemperature:
    """The temperature T >= 1 with the same SKCE, if it were the only error.

    It is a pytree: it can leave jit, and vmap over data sets returns one result with arrays.  It
    prints the numbers.

    Args:
        temperature: T; 1 if the estimated SKCE is not positive, infinite if even the largest T
            shows less.
        confidence_interval: the temperatures of both ends of `skce_confidence_interval`.
        sd_ratio: for real targets, the standard deviation of a prediction, in units of the
            standard deviation that it has at the temperature T (the median of all rows); None for
            labels.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> cj.EquivalentTemperature(jnp.array(1.31), (jnp.array(1.1), jnp.array(1.64)))
        EquivalentTemperature(1.31, interval 1.1 … 1.64)
    """

    temperature: jax.Array
    confidence_interval: ConfidenceInterval
    sd_ratio: jax.Array | None = None

    def __repr__(self) -> str:
        numbers = [self.temperature, *self.confidence_interval]
        if any(is_traced(x) or not is_array(x) or np.ndim(x) for x in numbers):
            shape = getattr(self.temperature, "shape", None)
            return f"EquivalentTemperature(temperature of shape {shape})"
        value, low, high = (f"{float(x):.3g}" for x in numbers)
        ratio = ""
        if self.sd_ratio is not None:
            ratio = f"; SDs {float(self.sd_ratio):.3g} times the correct ones"
        return f"EquivalentTemperature({value}, interval {low} … {high}{ratio})"


def equivalent_temperature(
    key: jax.Array,
    kernel: KernelLike,
    predictions: Distribution | Data,
    targets: ArrayLike | None = None,
    *,
    confidence_level: float = 0.95,
    n_resamples: int = 999,
    **rows: Unpack[RowOptions],
) -> EquivalentTemperature:
    """Translates a calibration error into a temperature T: equivalent to logits T times too large.

    T >= 1 is the smallest temperature such that targets from the predictions tempered by T would
    have the SKCE of the data:

    .. math::
        \\frac{\\sum_{i \\ne j} k_P(p_i, p_j)
        \\langle \\mu(q_i) - \\mu(p_i), \\mu(q_j) - \\mu(p_j) \\rangle}{n (n - 1)}
        = \\text{SKCE}, \\qquad q_i = \\text{apply\\_temperature}(p_i, T)

    For labels the error is equivalent to logits T times too large; for normal predictions, to
    variances 1 / T times the correct ones, with `sd_ratio` for standard deviations: 0.7 for
    "equivalent to SDs 0.7 times the correct ones".

    T is a size without a direction: it is never less than 1, and a wrong mean also has a T.
    `fit_temperature` says whether a model is over-confident or under-confident.

    The interval transforms both ends of `skce_confidence_interval` by the same increasing function
    of the SKCE.  It is 1 where the SKCE is not positive, and infinite where even T = 10^4 gives
    less.

    The left side is computed at 64 temperatures and interpolated, so that T - 1 is right within 1
    %, over the pairs of at most 2048 rows (1036 with 1000 classes): with more rows, every k-th kept
    one, k = n // 2048, which changes T - 1 by some 2 %.  Time O(n^2 n_resamples), as in
    `skce_confidence_interval`, and that of 128 inner products of all pairs of 2048 rows; no
    gradient.  An inner product of two `Univariate` predictions uses 4096 values of the kernel: half
    a minute for 40 rows.

    Args:
        key: a key of `jax.random`.
        kernel: a TensorProduct, or of labels a FeatureKernel or PITKernel, or sums and multiples of
            them.
        predictions, targets: as in `Data`, or one `Data`: n >= 2 predictions of a family that
            `apply_temperature` takes.
        confidence_level: a number in (0, 1).
        n_resamples: the number of resamples of `skce_confidence_interval`.
        rows: `where`, `weights`, `clusters`, `times` and `horizon` of `Data`; with weights both
            sides have the weights w_i w_j, and the interval accounts for dependent rows.

    Returns:
        EquivalentTemperature; inside jit a bad value, or fewer than two kept rows, makes all
        numbers NaN.

    Raises:
        TypeError: the family of the predictions cannot be tempered.
        TypeError, ValueError: as in `skce` and `skce_confidence_interval`.
        NotImplementedError: a joint kernel.

    See also:
        `fit_temperature` for the temperature that recalibrates a model.

    Example:
        >>> import jax, jax.numpy as jnp, calibjax as cj
        >>> key, target_key = jax.random.split(jax.random.key(0))
        >>> predictions = cj.Normal(jnp.zeros(1000), 1.0)
        >>> targets = jax.random.normal(target_key, (1000,)) / 0.7
        >>> kernel = cj.default_kernel(predictions)
        >>> result = cj.equivalent_temperature(key, kernel, predictions, targets)
        >>> round(float(result.sd_ratio), 1)
        0.7
    """
    check_key(key)
    one_level(confidence_level, jnp.float32)
    data = as_data(predictions, targets, **rows)
    terms = check_kernel_of(kernel, data)
    check_tempering(data.predictions)
    data.check_unrelated()
    n_resamples = check_integer("n_resamples", n_resamples, 1)
    level = checked_level(confidence_level, widest_dtype(*jax.tree.leaves(data.samples)))
    data = padded(data)
    found = skce_and_interval((key, terms, level), data, n_resamples)
    return temperature_of_errors((terms, *found), data)


def check_tempering(predictions: Distribution) -> None:
    """Raises a TypeError unless the family of the predictions can be tempered."""
    jax.eval_shape(tempered, predictions, jax.ShapeDtypeStruct((), jnp.result_type(float)))


def has_temperature(predictions: Distribution) -> bool:
    """Whether the family of the predictions can be tempered."""
    try:
        check_tempering(predictions)
    except TypeError:
        return False
    return True


@on_devices
def temperature_of_errors(
    axis: Axis, shared: tuple[SumOfTerms, jax.Array, ConfidenceInterval], data: Rows
) -> EquivalentTemperature:
    """`equivalent_temperature` for a kernel, an SKCE and its interval that are known already."""
    kernel, estimate, interval = lax.stop_gradient(shared)
    data = clean(data, axis)
    dtype = data.weights.dtype
    most = min(_MAX_ROWS, math.isqrt(_MAX_PRODUCTS // (data.predictions.n_labels or 1)))
    rows = data.predictions, data.weights
    (chosen, weights), are_rows = spaced_rows(rows, data.where, most, axis)
    excess = jnp.asarray(np.geomspace(_SMALLEST, _LARGEST, _N_TEMPERATURES), dtype)
    weights = lax.stop_gradient(fast_where(are_rows, weights, 0.0))
    n, squares = jnp.sum(weights), jnp.sum(jnp.square(weights))
    sums = tempered_sums(in_dtype(kernel, dtype), lax.stop_gradient(chosen), weights, 1 + excess)
    shown = sums / (jnp.square(n) - squares)
    levels = jnp.stack([estimate, *interval]).astype(dtype)
    found = 1 + _excess_that_shows(levels, shown, excess)
    # All weights are NaN if a row is invalid; nothing is known of fewer than two rows.
    found = fast_where((jnp.sum(weights > 0) > 1) & ~jnp.isnan(levels), found, jnp.nan)
    ratio = None
    if chosen.target_kind == "real":
        ratio = sd_ratio(Rows(chosen, where=weights > 0), found[0])
    return EquivalentTemperature(found[0], ConfidenceInterval(found[1], found[2]), ratio)


def _excess_that_shows(levels: jax.Array, shown: jax.Array, excess: jax.Array) -> jax.Array:
    """The least T - 1 at which the error is at least a level: 0 … infinity.

    The error is |V(T)|^2 for the sum V of k_P(p_i, .) times the change of the mean embedding of row
    i, up to pairs i = j.  For two labels, or normal predictions with equal means, every row changes
    in one direction and further and further, so that it increases; in general rows may change in
    opposite directions, and the largest error so far is taken instead.  It starts as (T - 1)^2, and
    is interpolated as a power of T - 1 between two temperatures.
    """
    shown = lax.cummax(jnp.maximum(shown, 0.0))
    tiny = jnp.finfo(shown.dtype).tiny
    logs, positions = jnp.log(jnp.maximum(shown, tiny)), jnp.log(excess)
    positive = levels > 0
    level = jnp.log(fast_where(positive, levels, 1.0))
    # As `jnp.interp`, with a square below the first position and nothing beyond the last.
    after = jnp.sum(logs[None, :] <= level[:, None], axis=1)
    end = jnp.minimum(jnp.maximum(after, 1), shown.size - 1)
    (left, right), (low, high) = ((rows_of(x, end - 1), rows_of(x, end)) for x in (positions, logs))
    step = high - low
    inside = left + (right - left) * ((level - low) / fast_where(step > 0, step, 1.0))
    found = lax.select(after > 0, inside, positions[0] + (level - logs[0]) / 2)
    return fast_where(positive, jnp.exp(fast_where(~(level > logs[-1]), found, jnp.inf)), 0.0)


@jax.jit
def sd_ratio(data: Data, temperature: jax.Array) -> jax.Array:
    """The median of spread(p) / spread(q), q tempered by T, over all kept rows and coordinates."""
    predictions, is_finite = data.predictions, jnp.isfinite(temperature)
    after = tempered(predictions, fast_where(is_finite, temperature, 1.0))
    ratios = predictions.spread() / after.spread()
    kept = jnp.ones(len(predictions), bool) if data.where is None else data.where
    kept = kept.reshape(-1, *(1,) * (ratios.ndim - 1))
    ratio = jnp.nanmedian(fast_where(kept, ratios, jnp.nan))
    return fast_where(is_finite, ratio, jnp.where(jnp.isnan(temperature), jnp.nan, 0.0))
