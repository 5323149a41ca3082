"""Random numbers of a key in few operations, of which XLA makes little code."""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import DTypeLike

from calibjax._base.compile import on_cpu
from calibjax._base.sharding import as_varying
from calibjax._loops.fusion import made_once


def uniform_numbers(key: jax.Array, shape: tuple[int, ...], dtype: DTypeLike) -> jax.Array:
    """Uniform numbers above 0 and below 1, as likely below 1/2 as above.

    They are odd multiples of a power of two that a number of the dtype holds without rounding.
    """
    digits = min(jnp.finfo(dtype).nmant, 32)
    # XLA makes ten times as much code of random bits in short rows as of those in a vector.
    bits = bits_made_once(key, math.prod(shape))
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
    """The bits of ``jax.random.bits(key, (size,))`` of each key, ``[…, size]``.

    On a CPU they take a third of the time.  There jax runs the rounds of threefry in a loop, whose
    steps pass through memory.  Straight code stays in registers, and compiles in a quarter of the
    time.
    """
    if not _has_straight_code(key):
        bits = jax.vmap(lambda key: jax.random.bits(key, (size,), jnp.uint32))(key.ravel())
        return bits.reshape(*key.shape, size)
    left, right = _threefry(*_words(key[..., None]), jnp.arange(size, dtype=jnp.uint32))
    return left ^ right


def bits_made_once(key: jax.Array, size: int) -> jax.Array:
    """`random_bits` for several functions of each number, which would else make them again.

    Not for one function, nor under `vmap`: there the loop takes longer than what it saves.
    """
    return made_once(random_bits(key, size))


def folded(key: jax.Array, number: jax.Array | int) -> jax.Array:
    """``jax.random.fold_in(key, number)`` of each key and number, which are broadcast.

    Its code is that of `random_bits`.  For 0 and 1 these are the keys of ``jax.random.split(key)``.
    """
    number = jnp.asarray(number)
    if not _has_straight_code(key):
        keys, numbers = jnp.broadcast_arrays(key, number)
        return jax.vmap(jax.random.fold_in)(keys.ravel(), numbers.ravel()).reshape(keys.shape)
    words = _threefry(*_words(key), number.astype(jnp.uint32))
    return jax.random.wrap_key_data(jnp.stack(words, axis=-1), impl=_THREEFRY)


def random_integers(key: jax.Array, size: int, n: jax.Array | int) -> jax.Array:
    """``jax.random.randint(key, (size,), 0, n)`` for n > 0, in a third of the operations.

    A number of 64 bits, of which `key` makes two halves, modulo n, one number or ``[size]``.
    """
    n = jnp.maximum(n, 1).astype(jnp.uint32)
    high, low = random_bits(folded(key, jnp.arange(2)), size)
    of_high = lax.rem(jnp.full_like(n, 2**16), n)
    of_high, n_each = lax.rem(of_high * of_high, n), jnp.broadcast_to(n, (size,))
    sums = lax.rem(high, n_each) * of_high + lax.rem(low, n_each)
    return lax.rem(sums, n_each).astype(jnp.int32)


def random_signs(key: jax.Array, size: int, dtype: DTypeLike) -> jax.Array:
    """``jax.random.rademacher(key, (size,))``, which depends on jax_enable_x64."""
    return 1 - 2 * (random_bits(key, size) >> 31).astype(dtype)


_THREEFRY = "threefry2x32"


def _has_straight_code(key: jax.Array) -> bool:
    return str(jax.random.key_impl(key)) == _THREEFRY and on_cpu()


def _words(key: jax.Array) -> list[jax.Array]:
    """Both numbers of each key, which must not be computed for each draw again."""
    words = lax.optimization_barrier(jax.random.key_data(key))
    return [words[..., 0], words[..., 1]]


# By how much the rounds rotate, four between two additions of the key.
_ROTATIONS = np.array([(13, 15, 26, 6), (17, 29, 16, 24)] * 2 + [(13, 15, 26, 6)], np.uint32)


@jax.jit  # traced once for each shape
def _threefry(left: jax.Array, right: jax.Array, count: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Both words of threefry2x32 of (0, count) for keys of two words.

    Salmon, Moraes, Dror and Shaw, Parallel random numbers: as easy as 1, 2, 3, SC 2011.
    """
    left, right, count = jnp.broadcast_arrays(left, right, count)
    keys = left, right, left ^ right ^ jnp.uint32(0x1BD11BDA)

    def four_rounds(state, of_step):
        x, y, (first, second, third) = state
        rotations, number = of_step
        for left in rotations:
            x = x + y
            y = x ^ ((y << left) | (y >> (32 - left)))
        return (x + second, y + (third + number), (second, third, first)), None

    start = left, count + right, keys
    steps = _ROTATIONS, np.arange(1, 6, dtype=np.uint32)
    # Unrolled, this is straight code that is lowered once.
    (x, y, _), _ = lax.scan(four_rounds, as_varying(start, left), steps, unroll=5)
    return x, y
