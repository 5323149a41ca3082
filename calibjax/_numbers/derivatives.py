"""Functions with a derivative where the textbook form has none, or one that keeps its digits."""

import functools
import math
from collections.abc import Iterable

import jax
import jax.numpy as jnp


def polynomial(coefficients: Iterable[float], x: jax.Array) -> jax.Array:
    """A polynomial in x, elementwise, from its coefficients, highest power first."""
    return functools.reduce(lambda sum, c: sum * x + c, coefficients, jnp.zeros_like(x))


@jax.custom_jvp
def absolute(x: jax.Array) -> jax.Array:
    """|x| with derivative sign(x), which is 0 at 0, where jax's own is 1.

    With slope 1 at ties the total variation of two equal predictions would push them apart.
    """
    return jnp.abs(x)


absolute.defjvps(lambda dx, _, x: jnp.sign(x) * dx)


def mirrored(x: jax.Array) -> jax.Array:
    """|x| with slope 1 at 0, for functions that are even and smooth.

    With the slope 0 of `absolute` at 0 their second derivatives would be 0 there.
    """
    return jnp.where(x < 0, -x, x)


@jax.custom_jvp
def safe_sqrt(x: jax.Array) -> jax.Array:
    """sqrt(x) for x >= 0 with derivative 0 at 0: the subgradient of a norm at its kink.

    Another number instead of x = 0 would be wrong: a compiler may compute x twice, and round it to
    0 where the number is chosen, and not where it is used.
    """
    return jnp.sqrt(jnp.maximum(x, 0.0))


def _change_of_root(dx: jax.Array, root: jax.Array, x: jax.Array) -> jax.Array:
    """sqrt(x)' = 1 / (2 sqrt(x)), from the value, and 0 at 0."""
    is_positive = root > 0
    slope = jnp.where(is_positive, 0.5 / jnp.where(is_positive, root, 1.0), 0.0)
    # A NaN stays one.
    return jnp.where(jnp.isnan(root), root, slope) * dx


safe_sqrt.defjvps(_change_of_root)


# Where the slope of `sinc` is a series in t = pi x: sum_j 2 j (-1)^j t^(2 j - 1) / (2 j + 1)!.
_SINC_SERIES = [2 * j * (-1) ** j / math.factorial(2 * j + 1) for j in range(10, 0, -1)]


@jax.custom_jvp
def sinc(x: jax.Array) -> jax.Array:
    """sin(pi x) / (pi x), also where x^2 underflows, by which jax's own derivative divides."""
    return jnp.sinc(x)


def _change_of_sinc(dx: jax.Array, value: jax.Array, x: jax.Array) -> jax.Array:
    """sinc'(x) = (cos(pi x) - sinc(x)) / x, which cancels near 0: there it is its power series."""
    near = jnp.abs(x) < 0.5
    t = math.pi * jnp.where(near, x, 0.0)
    square = jnp.square(t)
    series = polynomial(_SINC_SERIES, square)
    of_far = (jnp.cos(math.pi * x) - value) / jnp.where(near, 1.0, x)
    return jnp.where(near, math.pi * t * series, of_far) * dx


sinc.defjvps(_change_of_sinc)


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
    return x / (1 - x / 2 + square * polynomial(terms, square))


# expm1'(x) = exp(x) = 1 + expm1(x), from the value; 0 where the function is constant.
small_expm1.defjvps(lambda dx, value, x: jnp.where(jnp.abs(x) <= SMALL, 1 + value, 0.0) * dx)
