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

#: Operations that XLA takes for so expensive that it never makes one of them twice.
_EXPENSIVE = {
    primitives.acos_p, primitives.acosh_p, primitives.asin_p, primitives.asinh_p,
    primitives.atan2_p, primitives.atan_p, primitives.atanh_p, primitives.bessel_i0e_p,
    primitives.bessel_i1e_p, primitives.cbrt_p, primitives.cos_p, primitives.cosh_p,
    primitives.digamma_p, primitives.div_p, primitives.erf_inv_p, primitives.erf_p,
    primitives.erfc_p, primitives.exp2_p, primitives.exp_p, primitives.expm1_p,
    primitives.lgamma_p, primitives.log1p_p, primitives.log_p, primitives.logistic_p,
    primitives.pow_p, primitives.rem_p, primitives.rsqrt_p, primitives.sin_p,
    primitives.sinh_p, primitives.sqrt_p, primitives.tan_p, primitives.tanh_p,
}  # fmt: skip

#: Operations that call one function, and the name of the parameter that holds it.
_CALLS = {
    primitives.call_p: "call_jaxpr",
    primitives.closed_call_p: "call_jaxpr",
    primitives.custom_jvp_call_p: "call_jaxpr",
    primitives.custom_vjp_call_p: "call_jaxpr",
    primitives.jit_p: "jaxpr",
    primitives.remat_p: "jaxpr",
}

Arrays = Sequence[jax.Array]

_LOOPS = {primitives.scan_p, primitives.while_p}


@jax.custom_jvp
def in_one_loop(arrays: Sequence[jax.Array]) -> list[jax.Array]:
    """The same arrays, all of one shape, which a CPU makes in one loop.

    The CPU backend fuses one operation that has several results: a reduction of several arrays at
    once.  Each array is stacked with a slice of zeros, and all of them are summed over that new
    axis of two slices in one reduction: x + 0 = x, and -0 becomes 0.  What makes the arrays is
    fused into the reduction, which visits each position once, so what they share is made once.

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

    XLA would make both anew in each loop that uses them.
    """
    cosine, sine = in_one_loop([jnp.cos(angle), jnp.sin(angle)])
    return cosine, sine


@wave.defjvp
def _wave_jvp(primals, tangents):
    # d exp(i x) = i exp(i x) dx, of the same two numbers.
    (angle,), (tangent,) = primals, tangents
    cosine, sine = wave(angle)
    return (cosine, sine), (-sine * tangent, cosine * tangent)


def materialised(rows: T) -> T:
    """The same rows, of which a CPU holds the numbers in memory before any loop runs over pairs.

    Rows that are taken out of a larger array at an index that changes would be looked up again for
    every pair, and LLVM does not vectorise a loop with such a look-up.  XLA fuses nothing that has
    several results into the loops that use it: arrays out of `in_one_loop` are always in memory.
    Only arrays of numbers, ``[S]``, go through it, if there are two or more.
    """
    leaves, structure = jax.tree.flatten(rows)
    numbers = [i for i, x in enumerate(leaves) if x.ndim == 1]
    if len(numbers) > 1:
        for i, x in zip(numbers, in_one_loop([leaves[i] for i in numbers]), strict=True):
            leaves[i] = x
    return jax.tree.unflatten(structure, leaves)


def with_fusion_hints(function: Callable[..., T]) -> Callable[..., T]:
    """The same function of pytrees, of which a CPU can make all results in one loop.

    An expensive operation with two users is not fused into either: XLA holds its result in memory
    and, with it, all that leads to it.  Here each such result is rounded, once, to as many digits
    as it has and to an exponent of one bit more than it has, which changes nothing.  The expensive
    operation then has one user, the rounding, and XLA repeats a rounding gladly wherever code
    uses it: the whole chain is fused into the loop, where LLVM merges the equal parts.  With the
    bits of its own type XLA would remove the rounding.

    The derivative is that of the function itself, without roundings.
    """
    if not on_cpu():
        return function

    @jax.custom_jvp
    def rounding(*args: PyTree) -> T:
        leaves, structure = jax.tree.flatten(args)

        def on_leaves(*leaves: jax.Array) -> T:
            return function(*jax.tree.unflatten(structure, leaves))

        closed, shapes = jax.make_jaxpr(on_leaves, return_shape=True)(*leaves)
        results = _evaluate(closed.jaxpr, closed.consts, leaves)
        return jax.tree.unflatten(jax.tree.structure(shapes), results)

    @rounding.defjvp
    def rule(primals, tangents):
        return jax.jvp(function, primals, tangents)

    return rounding


def _evaluate(jaxpr: core.Jaxpr, constants: Arrays, arguments: Arrays) -> list[jax.Array]:
    """The results of a jaxpr, with roundings; loops and branches are bound as they are."""
    variables = [*jaxpr.constvars, *jaxpr.invars]
    values = dict(zip(variables, [*constants, *arguments], strict=True))

    def read(atom: core.Var | core.Literal) -> jax.Array:
        return atom.val if isinstance(atom, core.Literal) else values[atom]

    for equation in jaxpr.eqns:
        primitive, inputs = equation.primitive, [read(atom) for atom in equation.invars]
        if primitive in _CALLS:
            results = _evaluate(*_called(equation), inputs)
        else:
            bound = primitive.bind(*inputs, **equation.params)
            results = bound if primitive.multiple_results else [bound]
        if primitive in _EXPENSIVE:
            results = [_rounded(x) for x in results]
        values.update(zip(equation.outvars, results, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _called(equation: core.JaxprEqn) -> tuple[core.Jaxpr, Arrays]:
    """The jaxpr that an equation calls, and its constants."""
    called = equation.params[_CALLS[equation.primitive]]
    return (called.jaxpr, called.consts) if isinstance(called, core.ClosedJaxpr) else (called, ())


def _rounded(x: jax.Array) -> jax.Array:
    if not jnp.issubdtype(x.dtype, jnp.floating):
        return x
    info = jnp.finfo(x.dtype)
    return lax.reduce_precision(x, info.nexp + 1, info.nmant)


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
    """The equations of a jaxpr, and in place of calls those of what they call."""
    for equation in jaxpr.eqns:
        if equation.primitive in _CALLS:
            yield from _equations(_called(equation)[0])
        else:
            yield equation
