"""Many arrays out of one loop on a CPU: what a value and its partial derivatives need.

XLA's CPU backend makes one loop for each array that it keeps, and repeats in each of them what the
arrays share, or keeps that in memory too.  The functions here change no number but the sign of 0.
They give XLA the same work in a form which its CPU backend puts into one vectorised loop.  Where
the default backend is another one they do nothing, because an accelerator fuses several results by
itself.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend import core
from jax.extend.core import primitives

from calibjax._base.compile import on_cpu
from calibjax._base.struct import PyTree

T = TypeVar("T")

Arrays = Sequence[jax.Array]

_LOOPS = {primitives.scan_p, primitives.while_p}


@jax.custom_jvp
def in_one_loop(arrays: Sequence[jax.Array]) -> list[jax.Array]:
    """The same arrays, all of one shape, which a CPU makes in one loop.

    The CPU backend fuses one operation that has several results: a reduction of several arrays at
    once.  Each array is stacked with a slice of zeros, and all of them are summed over that new
    axis of two slices in one reduction: x + 0 = x, and -0 becomes 0.  The operations that make the
    arrays are fused into the reduction, which visits each position once, so that shared ones run
    once.

    LLVM must see that the second slice holds nothing but zeros, or it does not vectorise the loop:
    it then is fifteen times slower.  Five arrays were vectorised in all loops that were measured,
    six in some of them.
    """
    if not on_cpu():
        return list(arrays)
    stacked = [jnp.pad(x[None], ((0, 1), *((0, 0),) * x.ndim)) for x in arrays]
    zeros = [jnp.zeros((), x.dtype) for x in arrays]

    def add(xs: Arrays, ys: Arrays) -> tuple[jax.Array, ...]:
        return tuple(x + y for x, y in zip(xs, ys, strict=True))

    return list(lax.reduce(tuple(stacked), tuple(zeros), add, (0,)))


@in_one_loop.defjvp
def _in_one_loop_jvp(primals, tangents):
    # The function is the identity.
    return in_one_loop(*primals), list(tangents[0])


@jax.custom_jvp
def wave(angle: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The cosine and the sine of an angle: the real and the imaginary part of exp(i angle).

    XLA would recompute both in each loop that uses them.
    """
    cosine, sine = in_one_loop([jnp.cos(angle), jnp.sin(angle)])
    return cosine, sine


# d exp(i x) = i exp(i x) dx, of the same two numbers.
wave.defjvps(lambda change, both, _: (-both[1] * change, both[0] * change))


def made_once(x: jax.Array) -> jax.Array:
    """The same array, which a CPU makes in a loop of its own and not in each loop that uses it."""
    return in_one_loop([x, x])[0]


def materialised(rows: T) -> T:
    """The same rows, of which a CPU holds the numbers in memory before any loop runs over pairs.

    Rows of a larger array at an index that changes would be looked up again for every pair, and
    LLVM does not vectorise a loop with such a look-up.  XLA fuses nothing that has several results
    into the loops that use it: arrays out of `in_one_loop` are always in memory.  Only arrays of
    numbers, ``[S]``, go through it, if there are two or more.
    """
    leaves, structure = jax.tree.flatten(rows)
    numbers = [i for i, x in enumerate(leaves) if x.ndim == 1]
    if len(numbers) > 1:
        for i, x in zip(numbers, in_one_loop([leaves[i] for i in numbers]), strict=True):
            leaves[i] = x
    return jax.tree.unflatten(structure, leaves)


def recomputed(x: jax.Array) -> jax.Array:
    """The same numbers, which a CPU computes again in each loop that uses them.

    XLA never makes an expensive operation, such as exp or a division, twice: with two users it
    holds the result in memory and, with it, all that leads to it.  Here the result is rounded to as
    many digits as it has and to an exponent of one bit more than it has, which changes nothing.
    The expensive operation then has one user, the rounding, which XLA does repeat: the whole chain
    is fused into the loop, where LLVM merges the equal parts.
    """
    info = jnp.finfo(x.dtype)
    return lax.reduce_precision(x, info.nexp + 1, info.nmant) if on_cpu() else x


@jax.custom_jvp
def recomputed_exp(x: jax.Array) -> jax.Array:
    """`recomputed` of exp(x); so is its derivative."""
    return recomputed(jnp.exp(x))


recomputed_exp.defjvps(lambda change, value, _: value * change)


def is_of_numbers(function: Callable[..., PyTree], *args: PyTree) -> bool:
    """Whether every intermediate value of a function is a scalar, without loops or branches."""

    def makes_numbers(equation: core.JaxprEqn) -> bool:
        made: list[Any] = [atom.aval for atom in equation.outvars]
        is_plain = equation.primitive not in {*_LOOPS, primitives.cond_p}
        return is_plain and all(x.size == 1 for x in made)

    return all(map(makes_numbers, _equations(jax.make_jaxpr(function)(*args).jaxpr)))


def has_loops(function: Callable[..., PyTree], *args: PyTree) -> bool:
    """Whether a function has loops; those within branches do not count."""
    equations = _equations(jax.make_jaxpr(function)(*args).jaxpr)
    return any(equation.primitive in _LOOPS for equation in equations)


def _equations(jaxpr: core.Jaxpr) -> Iterator[core.JaxprEqn]:
    """The equations of a jaxpr and those of what they call, but not those inside of loops."""
    for equation in jaxpr.eqns:
        yield equation
        for called in () if equation.primitive in _LOOPS else equation.params.values():
            if isinstance(called, core.ClosedJaxpr):
                called = called.jaxpr
            if isinstance(called, core.Jaxpr):
                yield from _equations(called)
