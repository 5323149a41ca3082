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

from calibjax._numbers import UnitInterval, normal_score

# An interval is narrow if it is less than this share of the tail beyond it.  Gauss' rule of two
# points then errs by less than 1e-7, and a difference of two values of its integral would lose
# more than a digit.
_NARROW = 0.05
# The two points of Gauss' rule on [0, 1].
_FIRST, _SECOND = (1 - 1 / math.sqrt(3)) / 2, (1 + 1 / math.sqrt(3)) / 2


def cosines(u: jax.Array, above: jax.Array, n_features: int) -> jax.Array:
    """phi_k for k = 1 … K, ``[K]`` behind the axes of u."""
    return math.sqrt(2) * jnp.cos(math.pi * _multiples(u, n_features))


def mean_cosines(interval: UnitInterval, n_features: int) -> jax.Array:
    """phibar_k for k = 1 … K, ``[K]`` behind the axes of the interval."""
    middle, half = (interval.low + interval.high) / 2, interval.width() / 2
    return cosines(middle, 1 - middle, n_features) * jnp.sinc(_multiples(half, n_features))


def _multiples(x: jax.Array, n_features: int) -> jax.Array:
    """k x for k = 1 … K, ``[K]`` behind the axes of x."""
    k = jnp.arange(1, n_features + 1, dtype=jnp.int32).astype(x.dtype)
    return x[..., None] * jnp.expand_dims(k, range(x.ndim))


def hermite(u: jax.Array, above: jax.Array, n_features: int) -> jax.Array:
    """He_k(z) / sqrt(k!) for k = 1 … K and the normal scores z of u, ``[K]`` behind its axes."""
    return _normalised(_polynomials(normal_score(u, above), n_features))


def mean_hermite(interval: UnitInterval, n_features: int) -> jax.Array:
    """The means of He_k(z) / sqrt(k!) for k = 1 … K, ``[K]`` behind the axes of the interval."""
    width = interval.width()
    narrow = width <= _NARROW * jnp.minimum(interval.high, interval.above_low)
    first, second = (hermite(*interval.at(x), n_features) for x in (_FIRST, _SECOND))
    low = _integrals(normal_score(interval.low, interval.above_low), n_features)
    high = _integrals(normal_score(interval.high, interval.above_high), n_features)
    of_wide = _normalised((low - high) / jnp.where(narrow, 1.0, width)[..., None])
    return jnp.where(narrow[..., None], (first + second) / 2, of_wide)


def _normalised(values: jax.Array) -> jax.Array:
    """Values for k = 1 … K along the last axis, over sqrt(k!)."""
    roots = [math.sqrt(math.factorial(k)) for k in range(1, values.shape[-1] + 1)]
    return values / jnp.expand_dims(jnp.array(roots, values.dtype), range(values.ndim - 1))


def _polynomials(z: jax.Array, n_features: int) -> jax.Array:
    """He_1(z), …, He_K(z), ``[K]`` behind the axes of z: He_{k+1} = z He_k - k He_{k-1}."""
    values = [jnp.ones_like(z), z]
    for k in range(1, n_features):
        values.append(z * values[k] - k * values[k - 1])
    return jnp.stack(values[1:], axis=-1)


def _integrals(z: jax.Array, n_features: int) -> jax.Array:
    """f(z) He_{k-1}(z) for k = 1 … K, ``[K]`` behind the axes of z."""
    density = jnp.exp(-jnp.square(z) / 2) / math.sqrt(2 * math.pi)
    lower = jnp.concatenate([jnp.ones_like(z)[..., None], _polynomials(z, n_features)], axis=-1)
    return density[..., None] * lower[..., :-1]
