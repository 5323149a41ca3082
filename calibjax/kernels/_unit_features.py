r"""Functions of mean 0 on the unit line, and their means over intervals of it.

What a forecast F says about a target y is where U = F(y) lies: at one point, or somewhere in an
interval [a, b] if the cdf jumps at y or if y is not known exactly.  If the forecast is right, U is
uniform, and given [a, b] it is uniform in [a, b].  For a function phi with
:math:`\int_0^1 \phi = 0` the feature is what is known of it,

    phibar(a, b) = E[phi(U) | a <= U <= b] = 1 / (b - a) int_a^b phi(u) du,

and its mean over the intervals is again int phi = 0.

**Cosines.**  phi_k(u) = sqrt(2) cos(pi k u) has mean 0 and variance 1, and with m = (a + b) / 2

    phibar_k = sqrt(2) (sin(pi k b) - sin(pi k a)) / (pi k (b - a))
             = sqrt(2) cos(pi k m) sin(pi k (b - a) / 2) / (pi k (b - a) / 2).

With the weights 1 / (pi k)^2 and all k,

    sum_k phi_k(u) phi_k(v) / (pi k)^2 = (u^2 + v^2) / 2 - max(u, v) + 1 / 3,

whose mean over independent U and V with the cdf G is int (G(u) - u)^2 du, the distance of Cramér
and von Mises.

**Normal scores.**  phi_k(u) = He_k(z) / sqrt(k!) with the normal score z of u and Hermite's
polynomials He_1 = z, He_2 = z^2 - 1, …, which have mean 0 and variance 1 for a normal z.  The
derivative of f(z) He_{k-1}(z), with the normal density f, is -f(z) He_k(z), so that

    int_a^b He_k(z(u)) du = f(z_a) He_{k-1}(z_a) - f(z_b) He_{k-1}(z_b).
"""

import math

import jax
import jax.numpy as jnp

from calibjax._numbers import UnitInterval, normal_score, quotient, sinc

# An interval is narrow if it is less than this share of the tail beyond it.  Gauss' rule of two
# points then errs by less than 1e-7, and a difference of two values of its integral would lose
# more than a digit.
_NARROW = 0.05
# The normal scores of smaller tails are those of this one, -11.5 and 11.5 in every dtype, and have
# the derivative 0: one target that a model calls impossible must not outweigh a batch.  Derivatives
# of larger tails, up to the inverse of this number, may be multiplied by 1e8 in float32.
_LEAST_TAIL = 2.0**-100
# The two points of Gauss' rule on [0, 1].
_FIRST, _SECOND = (1 - 1 / math.sqrt(3)) / 2, (1 + 1 / math.sqrt(3)) / 2


#: Which k count.
Orders = tuple[int, ...]


def cosines(u: jax.Array, above: jax.Array, orders: Orders) -> jax.Array:
    """phi_k for the orders k, ``[K]`` behind the axes of u."""
    return math.sqrt(2) * jnp.cos(math.pi * _multiples(u, orders))


def mean_cosines(interval: UnitInterval, orders: Orders) -> jax.Array:
    """phibar_k for the orders k, ``[K]`` behind the axes of the interval."""
    middle, half = (interval.low + interval.high) / 2, interval.width() / 2
    return cosines(middle, 1 - middle, orders) * sinc(_multiples(half, orders))


def _multiples(x: jax.Array, orders: Orders) -> jax.Array:
    """k x for the orders k, ``[K]`` behind the axes of x."""
    return x[..., None] * jnp.expand_dims(jnp.array(orders, x.dtype), range(x.ndim))


def hermite(u: jax.Array, above: jax.Array, orders: Orders) -> jax.Array:
    """He_k(z) / sqrt(k!) for the orders k and the normal scores z of u, ``[K]`` behind its axes."""
    return _hermite(normal_score(*_within_bound(u, above)), orders)


def _hermite(z: jax.Array, orders: Orders) -> jax.Array:
    """He_k(z) / sqrt(k!) for the orders k, ``[K]`` behind the axes of z."""
    values = _polynomials(z, max(orders))
    return _normalised([values[k] for k in orders], orders)


def mean_hermite(interval: UnitInterval, orders: Orders) -> jax.Array:
    """The means of He_k(z) / sqrt(k!) for the orders k, ``[K]`` behind the axes of the interval."""
    width, tail = interval.width(), jnp.minimum(interval.high, interval.above_low)
    narrow = (width <= _NARROW * tail) | (tail <= _LEAST_TAIL)
    inner = (_within_bound(*interval.at(node)) for node in (_FIRST, _SECOND))
    points = *inner, interval[0::2], interval[1::2]
    # In one call, whose program is long: two points within, and both ends.
    z = normal_score(*map(jnp.stack, zip(*points, strict=True)))
    low, high = _integrals(z[2:], orders)
    of_wide = quotient(low - high, jnp.where(narrow, 1.0, width)[..., None])
    return jnp.where(narrow[..., None], jnp.mean(_hermite(z[:2], orders), axis=0), of_wide)


def _within_bound(u: jax.Array, above: jax.Array) -> tuple[jax.Array, jax.Array]:
    return jnp.maximum(u, _LEAST_TAIL), jnp.maximum(above, _LEAST_TAIL)


def _integrals(z: jax.Array, orders: Orders) -> jax.Array:
    """f(z) He_{k-1}(z) / sqrt(k!) for the orders k, ``[K]`` behind the axes of z."""
    density = jnp.exp(-jnp.square(z) / 2) / math.sqrt(2 * math.pi)
    lower = _polynomials(z, max(orders) - 1)
    return _normalised([density * lower[k - 1] for k in orders], orders)


def _polynomials(z: jax.Array, last: int) -> list[jax.Array]:
    """He_0(z), …, He_last(z): He_{k+1} = z He_k - k He_{k-1}."""
    values = [jnp.ones_like(z), z]
    for k in range(1, last):
        values.append(z * values[k] - k * values[k - 1])
    return values


def _normalised(values: list[jax.Array], orders: Orders) -> jax.Array:
    """The values for the orders k over sqrt(k!), ``[K]`` behind their axes."""
    scaled = [x / math.sqrt(math.factorial(k)) for k, x in zip(orders, values, strict=True)]
    return jnp.stack(scaled, axis=-1)
