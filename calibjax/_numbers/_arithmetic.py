"""Functions with a derivative where the textbook form has none, and sums that keep their digits."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy import special
from jax.typing import ArrayLike

from calibjax._check import check_values
from calibjax._struct import is_traced, on_host


@jax.custom_jvp
def absolute(x: jax.Array) -> jax.Array:
    """|x| with derivative sign(x), hence 0 at 0, where jax's own is 1.

    With slope 1 at ties the total variation of two equal predictions would push them apart.
    """
    return jnp.abs(x)


@absolute.defjvp
def _absolute_jvp(primals, tangents):
    (x,), (dx,) = primals, tangents
    return jnp.abs(x), jnp.sign(x) * dx


def mirrored(x: jax.Array) -> jax.Array:
    """|x| with slope 1 at 0, for functions that are even and smooth.

    With the slope 0 of `absolute` at 0 their second derivatives would be 0 there.
    """
    return jnp.where(x < 0, -x, x)


def safe_sqrt(x: jax.Array) -> jax.Array:
    """sqrt(x) for x >= 0 with derivative 0 at 0: the subgradient of a norm at its kink."""
    zero = x <= 0  # false for NaN, which stays one
    return jnp.where(zero, 0.0, jnp.sqrt(jnp.where(zero, 1.0, x)))


def dot(a: jax.Array, b: jax.Array) -> jax.Array:
    """a b, with all digits: accelerators round the factors of float32 products by default."""
    return jnp.dot(a, b, precision=jax.lax.Precision.HIGHEST)


def eigh_of_kernel(matrix: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Eigenvalues and eigenvectors of the matrix of a kernel; NaN if it is not positive definite.

    It has no negative eigenvalues, but rounding can make a zero one negative.
    """
    values, vectors = jnp.linalg.eigh(matrix)
    return jnp.where(values >= -1e-3 * values[-1], jnp.maximum(values, 0.0), jnp.nan), vectors


def is_positive(x: Any) -> Any:
    """Whether x, an array of NumPy or of jax, is positive and finite."""
    return (x > 0) & _is_finite(x)


def is_nonnegative(x: Any) -> Any:
    """Whether x, an array of NumPy or of jax, is nonnegative and finite."""
    return (x >= 0) & _is_finite(x)


def _is_finite(x: Any) -> Any:
    return np.isfinite(x) if isinstance(x, np.ndarray) else jnp.isfinite(x)


def positive_or_nan(x: ArrayLike, name: str = "lengthscale") -> jax.Array:
    """x where it is positive and finite, else NaN: an invalid scale must poison the result.

    A number that can be looked at is a ValueError instead.  It may be a constant in compiled code,
    where XLA turns exp(-nan x) on CPUs into any number.
    """
    return _valid_or_nan(x, name, "positive and finite", is_positive)


def nonnegative_or_nan(x: ArrayLike, name: str) -> jax.Array:
    """x where it is nonnegative and finite, else NaN, or a ValueError as of `positive_or_nan`."""
    return _valid_or_nan(x, name, "nonnegative and finite", is_nonnegative)


def level_or_nan(x: jax.Array) -> jax.Array:
    """x where it is a level of quantiles, else NaN, or a ValueError as of `positive_or_nan`."""
    return _valid_or_nan(x, "level", "in [0, 1]", lambda x: (x >= 0) & (x <= 1))


def _valid_or_nan(x: ArrayLike, name: str, words: str, is_valid: Callable[[Any], Any]) -> jax.Array:
    if not is_traced(x):
        check_values(name, x, words, is_valid(on_host(x)))
    return jnp.where(is_valid(jnp.asarray(x)), x, jnp.nan)


@jax.custom_jvp
def reciprocal(x: jax.Array) -> jax.Array:
    """1/x, whose derivative needs no second division."""
    return 1 / x


@reciprocal.defjvp
def _reciprocal_jvp(primals, tangents):
    """(1/x)' = -1/x^2 = -(1/x)^2, from the value."""
    (x,), (dx,) = primals, tangents
    value = reciprocal(x)
    return value, -jnp.square(value) * dx


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


def power_of_two(x: jax.Array) -> jax.Array:
    """A power of two near x > 0, without a derivative: units by which division is exact; 1 for 0.

    It is at most a factor of 1.5 away, and neither it nor its inverse overflows.
    """
    x = jax.lax.stop_gradient(jnp.asarray(x))
    limits = jnp.finfo(x.dtype)
    rounded = jax.lax.reduce_precision(jnp.clip(x, limits.tiny, 0.25 / limits.tiny), limits.nexp, 0)
    return jnp.where(x > 0, rounded, 1.0)


def root_mean_square(weights: jax.Array, values: jax.Array) -> jax.Array:
    """sqrt(sum_k w_k v_k^2) over the first axis, in units of the largest |v_k|, to be squared."""
    largest = jnp.max(jnp.abs(values), axis=0)
    unit = jnp.where(largest > 0, largest, 1.0)
    return unit * jnp.sqrt(jnp.tensordot(weights, jnp.square(values / unit[None]), axes=1))


#: Where `small_expm1` is expm1.
SMALL = 0.25


#: x / expm1(x) = 1 - x / 2 + sum_k B_2k x^2k / (2k)! with Bernoulli's numbers; highest k first.
_BERNOULLI = (1 / 47900160, -1 / 1209600, 1 / 30240, -1 / 720, 1 / 12)


@jax.custom_jvp
def small_expm1(x: jax.Array) -> jax.Array:
    """expm1(x) for |x| <= 1/4, constant outside: a few products, where expm1 costs three exp."""
    x = jnp.clip(x, -SMALL, SMALL)
    square = jnp.square(x)
    terms = _BERNOULLI if x.dtype == jnp.float64 else _BERNOULLI[3:]
    series = functools.reduce(lambda sum, c: sum * square + c, terms, jnp.zeros_like(x))
    return x / (1 - x / 2 + square * series)


@small_expm1.defjvp
def _small_expm1_jvp(primals, tangents):
    """expm1'(x) = exp(x) = 1 + expm1(x), from the value; 0 where the function is constant."""
    (x,), (dx,) = primals, tangents
    value = small_expm1(x)
    return value, jnp.where(jnp.abs(x) <= SMALL, 1 + value, 0.0) * dx


def mean_by_gauss(
    function: Callable[[jax.Array], jax.Array], n_nodes: int, like: jax.Array
) -> jax.Array:
    """The mean over (0, 1) of a function that adds an axis in front, by Gauss' rule."""
    nodes, weights = (
        jnp.asarray(x, like.dtype).reshape(-1, *(1,) * like.ndim)
        for x in np.polynomial.legendre.leggauss(n_nodes)
    )
    return jnp.sum(weights / 2 * function((1 + nodes) / 2), axis=0)


def compensated_add(total: tuple[jax.Array, jax.Array], x: jax.Array):
    """Adds x to the unevaluated sum (high, low), exactly but for the rounding of low (Knuth)."""
    high, low = total
    rounded = high + x
    shifted = rounded - high
    return rounded, low + ((high - (rounded - shifted)) + (x - shifted))


def fractions_of(largest: jax.Array, x: jax.Array) -> jax.Array:
    """x / largest.

    XLA multiplies by 1 / largest, which above 8e37 is too small for a normal float32 and becomes 0.
    """
    unit = jnp.where(largest > 2.0**64, 2.0**-64, 1.0).astype(x.dtype)
    return (x * unit) / (largest * unit)


def pairs_weight(weights: jax.Array) -> jax.Array:
    """sum_{i != j} w_i w_j of nonnegative weights, over the last axis.

    By partial sums, all terms of one sign: (sum w)^2 - sum w^2 cancels when one weight dominates.
    """
    # The sum of all weights before each: cumsum(w) - w would cancel in the derivative.
    before = jnp.cumsum(weights[..., :-1], axis=-1)
    return 2 * jnp.sum(weights[..., 1:] * before, axis=-1)


#: The least number for which `stirling_remainder` is exact in float64.
MANY_COUNTS = 16


def stirling_remainder(k: jax.Array) -> jax.Array:
    """log(k! / (sqrt(2 pi k) k^k exp(-k))) for k >= 16, whether or not k is an integer."""
    inverse = 1 / jnp.square(k)
    series = 1 / 1260 - inverse * (1 / 1680 - inverse / 1188)
    return (1 / 12 - inverse * (1 / 360 - inverse * series)) / k


def log_gamma_ratio(a: jax.Array) -> jax.Array:
    """log(a^a exp(-a) / Gamma(a)) for a > 0, without the cancellation of large terms."""
    # What float32 needs of the series is exact for smaller numbers.
    least = MANY_COUNTS if a.dtype == jnp.float64 else MANY_COUNTS / 4
    is_large = a >= least
    small, large = jnp.where(is_large, 1.0, a), jnp.where(is_large, a, least)
    of_small = special.xlogy(small, small) - small - special.gammaln(small)
    of_large = jnp.log(large / (2 * jnp.pi)) / 2 - stirling_remainder(large)
    return jnp.where(is_large, of_large, of_small)


def log_quotient(a: jax.Array, b: jax.Array) -> jax.Array:
    """log(a / b) for positive numbers, with all its digits where a / b is near 1."""
    excess = (a - b) / b
    near = jnp.abs(excess) < 0.5
    return jnp.where(near, jnp.log1p(jnp.where(near, excess, 0.0)), jnp.log(a) - jnp.log(b))


def log_gamma_step(x: jax.Array) -> jax.Array:
    """log Gamma(x + 1/2) - log Gamma(x), without the cancellation of large terms.

    Gamma(x + 1/2) / Gamma(x) is Gamma(x + 17/2) / Gamma(x + 8) times the product over k < 8 of
    (x + k) / (x + k + 1/2); and for large s, log Gamma(s + 1/2) - log Gamma(s) has the asymptotic
    series log(s) / 2 - 1 / (8 s) + 1 / (192 s^3) - 1 / (640 s^5) + 17 / (14336 s^7) - ….
    """
    shifted = x + _STEP_SHIFT
    inverse = 1 / jnp.square(shifted)
    series = functools.reduce(lambda sum, c: sum * inverse + c, _STEP_SERIES, jnp.zeros_like(x))
    ratios = [(x + k) / (x + k + 0.5) for k in range(_STEP_SHIFT)]
    product = functools.reduce(jnp.multiply, ratios)
    return jnp.log(shifted) / 2 + series / shifted + jnp.log(product)


_STEP_SHIFT = 8
#: Coefficients of s^-11, s^-9, …, s^-1.
_STEP_SERIES = (691 / 180224, -31 / 18432, 17 / 14336, -1 / 640, 1 / 192, -1 / 8)
