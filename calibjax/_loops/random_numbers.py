"""Random numbers of a key in few operations, of which XLA makes little code."""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import DTypeLike

from calibjax._base.compile import on_cpu
from calibjax._base.sharding import as_varying
from calibjax._loops.fusion import in_one_loop


def uniform_numbers(key: jax.Array, shape: tuple[int, ...], dtype: DTypeLike) -> jax.Array:
    """Uniform numbers above 0 and below 1, as likely below 1/2 as above.

    They are odd multiples of a power of two that a number of the dtype holds without rounding.
    """
    digits = min(jnp.finfo(dtype).nmant, 32)
    # XLA makes ten times as much code of random bits in short rows as of those in a vector.
    bits = random_bits(key, math.prod(shape))
    # A part of the numbers would else make all bits again.
    bits, _ = in_one_loop([bits, ~bits])
    numbers = ((bits >> (32 - digits)).astype(dtype) + 0.5) * 2.0**-digits
    return numbers.reshape(shape)


def normal_of(uniform: jax.Array) -> jax.Array:
    """Standard normal numbers of `uniform_numbers`."""
    return math.sqrt(2) * lax.erf_inv(2 * uniform - 1)


def cauchy_of(uniform: jax.Array) -> jax.Array:
    """Standard Cauchy numbers of `uniform_numbers`."""
    return jnp.tan(jnp.pi * (uniform - 0.5))


def positive_stable_of(uniform: jax.Array, index: float) -> jax.Array:
    """Draws a > 0 ``[n, 1]`` with E exp(-t a) = exp(-t^index), of uniform numbers ``[n, 2]``.

    0 < index <= 1.  Kanter, Stable densities under change of scale and total variation
    inequalities, 1975.
    """
    if index == 1:
        return jnp.ones_like(uniform[:, :1])
    if index == 0.5:
        # Lévy's distribution, which belongs to the exponent that most kernels have.
        return 1 / (2 * jnp.square(normal_of(uniform[:, :1])))
    angle, exponential = jnp.pi * uniform[:, :1], -jnp.log(uniform[:, 1:])
    # pi is rounded, and where it is rounded up its sine is negative.
    logs = [jnp.log(jnp.abs(jnp.sin(c * angle))) for c in (1 - index, 1.0, index)]
    log_power = (1 - index) * (logs[0] - jnp.log(exponential)) - logs[1]
    return jnp.exp(jnp.minimum(log_power / index + logs[2], _LARGEST_LOG))


# A frequency of 1e10 already makes the feature noise; the bound keeps its products finite.
_LARGEST_LOG = 50.0


def random_bits(key: jax.Array, size: int) -> jax.Array:
    """The bits of ``jax.random.bits(key, (size,))``, on a CPU in a third of the time.

    There jax runs the rounds of threefry in a loop, whose steps pass through memory.  Straight code
    stays in registers, and compiles in a quarter of the time.
    """
    if str(jax.random.key_impl(key)) != "threefry2x32" or not on_cpu():
        return jax.random.bits(key, (size,), jnp.uint32)
    # The two numbers of the key must not be computed for each draw again.
    words = lax.optimization_barrier(jax.random.key_data(key))
    return _threefry(words, jnp.arange(size, dtype=jnp.uint32))


# By how much the rounds rotate, four between two additions of the key.
_ROTATIONS = np.array([(13, 15, 26, 6), (17, 29, 16, 24)] * 2 + [(13, 15, 26, 6)], np.uint32)


def _threefry(key: jax.Array, count: jax.Array) -> jax.Array:
    """Both words of threefry2x32 of (0, count), combined by exclusive or.

    Salmon, Moraes, Dror and Shaw, Parallel random numbers: as easy as 1, 2, 3, SC 2011.
    """
    left, right = lax.split(key, (1, 1))
    keys = left, right, left ^ right ^ jnp.uint32(0x1BD11BDA)

    def four_rounds(state, of_step):
        x, y, (first, second, third) = state
        rotations, number = of_step
        for left in rotations:
            x = x + y
            y = x ^ ((y << left) | (y >> (32 - left)))
        return (x + second, y + (third + number), (second, third, first)), None

    start = jnp.broadcast_to(left, count.shape), count + right, keys
    steps = _ROTATIONS, np.arange(1, 6, dtype=np.uint32)
    # Unrolled, this is straight code that is lowered once.
    (x, y, _), _ = lax.scan(four_rounds, as_varying(start, key), steps, unroll=5)
    return x ^ y
