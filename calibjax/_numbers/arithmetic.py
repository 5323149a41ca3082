"""Products, sums, quotients and units that keep their digits; complex numbers, and averages."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike

from calibjax._base.sharding import as_varying
from calibjax._base.struct import PyTree
from calibjax._numbers.derivatives import safe_sqrt

#: By how many units of the precision of their dtype equal numbers may differ: terms of a row, and
#: sums over rows, which two programs may add up in another order.
ROUNDINGS_OF_TERMS, ROUNDINGS_OF_SUMS = 64, 256


def dot(a: jax.Array, b: jax.Array) -> jax.Array:
    """a b, with all digits: accelerators round the factors of float32 products by default."""
    return jnp.dot(a, b, precision=jax.lax.Precision.HIGHEST)


def in_blocks(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a b of ``[n, k]`` and ``[k, m]``, in blocks of one thread if b is small.

    Threads use their cores while they wait for the next product.
    """
    size = 2**17 // max(b.size, 1)
    if size < 4:
        return a @ b
    return np.concatenate([a[k : k + size] @ b for k in range(0, max(len(a), 1), size)])


def eigh_of_kernel(matrix: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Eigenvalues and eigenvectors of the matrix of a kernel; NaN if it is not positive definite.

    It has no negative eigenvalues, but rounding can make a zero one negative.
    """
    values, vectors = jnp.linalg.eigh(matrix)
    return jnp.where(values >= -1e-3 * values[-1], jnp.maximum(values, 0.0), jnp.nan), vectors


def fast_where(condition: ArrayLike, x: ArrayLike, other: ArrayLike) -> jax.Array:
    """x where the condition holds, else another: arrays, or an array and a number.

    `jnp.where` is a program of its own in each place, and four operations; this is one or two.
    """
    dtype = jnp.result_type(x, other)
    shape = np.broadcast_shapes(*map(np.shape, (condition, x, other)))
    x = x.astype(dtype) if isinstance(x, jax.Array) else np.asarray(x, dtype)
    other = other.astype(dtype) if isinstance(other, jax.Array) else np.asarray(other, dtype)
    broadcast = functools.partial(jnp.broadcast_to, shape=shape)
    return lax.select(*map(broadcast, (condition, x, other)))


# Comparisons with all of 32 numbers take a tenth of the time of a search; with 64, ten times it.
_COMPARED = 32


def place_among(ordered: jax.Array, x: jax.Array, side: str) -> jax.Array:
    """`jnp.searchsorted`, which compares all of few numbers; a search is a loop."""
    method = "compare_all" if ordered.size <= _COMPARED else "scan"
    return jnp.searchsorted(ordered, x, side=side, method=method)


def diagonal_of(matrix: jax.Array) -> jax.Array:
    """The diagonal of a square matrix; `jnp.diagonal` is many operations."""
    i, j = (lax.broadcasted_iota(jnp.int32, matrix.shape, axis) for axis in (0, 1))
    return jnp.sum(fast_where(i == j, matrix, 0.0), axis=1)


def power_of_two(x: jax.Array) -> jax.Array:
    """A power of two near x > 0, without a derivative: units by which division is exact; 1 for 0.

    It is at most a factor of 1.5 away, and neither it nor its inverse overflows.
    """
    x = jax.lax.stop_gradient(jnp.asarray(x))
    limits = jnp.finfo(x.dtype)
    in_range = jnp.minimum(jnp.maximum(x, limits.tiny), 0.25 / limits.tiny)
    rounded = jax.lax.reduce_precision(in_range, limits.nexp, 0)
    return fast_where(x > 0, rounded, 1.0)


def root_mean_square(weights: jax.Array, values: jax.Array) -> jax.Array:
    """sqrt(sum_k w_k v_k^2) over the first axis, in units of the largest |v_k|, to be squared."""
    largest = jnp.max(jnp.abs(values), axis=0)
    unit = jnp.where(largest > 0, largest, 1.0)
    return unit * safe_sqrt(jnp.tensordot(weights, jnp.square(values / unit[None]), axes=1))


def compensated_add(total: tuple[jax.Array, jax.Array], x: jax.Array):
    """Adds x to the unevaluated sum (high, low), exactly but for the rounding of low (Knuth)."""
    high, low = total
    rounded = high + x
    # What rounding lost has no derivative.
    high, x, constant = map(lax.stop_gradient, (high, x, rounded))
    shifted = constant - high
    return rounded, low + ((high - (constant - shifted)) + (x - shifted))


def exact_sum(x: jax.Array) -> jax.Array:
    """The sum of x ``[n]`` with one rounding error, without a derivative.

    Zeros among the terms do not change it.
    """
    x, zero = jax.lax.stop_gradient(x), jnp.zeros((), x.dtype)

    def add(a: tuple[jax.Array, jax.Array], b: tuple[jax.Array, jax.Array]):
        high, low = compensated_add(a, b[0])
        return high, low + b[1]

    high, low = jax.lax.reduce((x, jnp.zeros_like(x)), (zero, zero), add, (0,))
    return high + fast_where(jnp.isfinite(high), low, 0.0)


def fractions_of(largest: jax.Array, x: jax.Array) -> jax.Array:
    """x / largest.

    XLA multiplies by 1 / largest, which above 8e37 is too small for a normal float32 and becomes 0.
    """
    unit = jnp.where(largest > 2.0**64, 2.0**-64, 1.0).astype(x.dtype)
    return (x * unit) / (largest * unit)


@jax.custom_jvp
def quotient(a: jax.Array, b: jax.Array) -> jax.Array:
    """a / b, whose derivative never forms b^2, which may underflow.

    d(a / b) = (da - (a / b) db) / b.
    """
    return a / b


@quotient.defjvp
def _quotient_jvp(primals, tangents):
    (a, b), (da, db) = primals, tangents
    value = quotient(a, b)
    # A compiler may turn (a / b) / b into a / b^2, but not this form.
    return value, (da - value * db) / b


# The number of weights that are added one after the other.
_WEIGHTS_OF_PART = 256


def pairs_weight(weights: jax.Array) -> jax.Array:
    """sum_{i != j} w_i w_j of nonnegative weights, over the last axis.

    By partial sums, all terms of one sign: (sum w)^2 - sum w^2 cancels when one weight dominates.
    """
    *front, n = weights.shape
    if n <= _WEIGHTS_OF_PART:
        return _pairs_weight(weights)
    n_parts = -(-n // _WEIGHTS_OF_PART)
    ends = [(0, 0)] * len(front) + [(0, n_parts * _WEIGHTS_OF_PART - n)]
    parts = jnp.pad(weights, ends).reshape(*front, n_parts, _WEIGHTS_OF_PART)
    return jnp.sum(_pairs_weight(parts), axis=-1) + pairs_weight(jnp.sum(parts, axis=-1))


@jax.custom_jvp
def _pairs_weight(weights: jax.Array) -> jax.Array:
    # One loop, where XLA makes seven of the partial sums: a sixth of a first value of `skce`.
    def add(a: tuple[jax.Array, jax.Array], b: tuple[jax.Array, jax.Array]):
        return a[0] + b[0], a[1] + b[1] + a[0] * b[0]

    zero = jnp.zeros((), weights.dtype)
    both = weights, jnp.zeros_like(weights)
    return 2 * lax.reduce(both, (zero, zero), add, (weights.ndim - 1,))[1]


@_pairs_weight.defjvp
def _pairs_weight_jvp(primals, tangents):
    def by_partial_sums(weights: jax.Array) -> jax.Array:
        # The sum of all weights before each: cumsum(w) - w would cancel in the derivative.
        before = jnp.cumsum(weights[..., :-1], axis=-1)
        return 2 * jnp.sum(weights[..., 1:] * before, axis=-1)

    return jax.jvp(by_partial_sums, primals, tangents)


def mean_by_gauss(
    function: Callable[[jax.Array], jax.Array], n_nodes: int, like: jax.Array
) -> jax.Array:
    """The mean over (0, 1) of a function that adds an axis in front, by Gauss' rule."""
    nodes, weights = (
        jnp.asarray(x, like.dtype).reshape(-1, *(1,) * like.ndim)
        for x in np.polynomial.legendre.leggauss(n_nodes)
    )
    return jnp.sum(weights / 2 * function((1 + nodes) / 2), axis=0)


T = TypeVar("T")


def complex_exponential(angle: jax.Array, amplitude: jax.Array | float = 1.0) -> jax.Array:
    """amplitude exp(i angle)."""
    return lax.complex(amplitude * jnp.cos(angle), amplitude * jnp.sin(angle))


def complex_average(weights: jax.Array, items: T, function: Callable[[T], jax.Array]) -> jax.Array:
    """sum_k weights[k] function(items[k]), for a function with complex values.

    The sum is a loop, and its derivative evaluates each term again instead of storing it.
    """

    @jax.checkpoint
    def term(weight: jax.Array, item: T) -> jax.Array:
        value = function(item)
        return weight.astype(value.dtype) * value

    def step(total: jax.Array, weighted: tuple[jax.Array, T]) -> tuple[jax.Array, None]:
        return total + term(*weighted), None

    zero = as_varying(lax.complex(*(jnp.zeros((), weights.dtype),) * 2), (weights, items))
    return lax.scan(step, zero, (weights, items))[0]


def sum_over_pairs(
    term: Callable[[Any, Any], jax.Array], ours: PyTree, theirs: PyTree, zero: jax.Array
) -> jax.Array:
    """The sum of ``term(a, b)`` over all pairs of items of two trees, added to zero.

    It is a loop over pairs, and its derivative evaluates each term again instead of storing it.
    """
    term = jax.checkpoint(term)

    def over_ours(total: jax.Array, a: PyTree) -> tuple[jax.Array, None]:
        def over_theirs(total: jax.Array, b: PyTree) -> tuple[jax.Array, None]:
            return total + term(a, b), None

        return lax.scan(over_theirs, total, theirs)[0], None

    return lax.scan(over_ours, zero, ours)[0]


def isotonic_frequencies(events: np.ndarray, count: np.ndarray) -> np.ndarray:
    """The nondecreasing probabilities that are nearest to the frequencies, ``[u]``.

    They minimise sum_u count_u (x_u - events_u / count_u)^2, where x is ordered as the forecasts.
    Counts, and events among them, may be sums of weights.
    """
    # These parts of SciPy would make `import calibjax` a third of a second longer.
    from scipy.optimize import isotonic_regression

    return np.clip(isotonic_regression(events / count, weights=count).x, 0.0, 1.0)
