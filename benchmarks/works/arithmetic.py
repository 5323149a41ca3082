"""The arithmetic of one pair, counted in its jaxpr, and how fast this machine does it.

Only what depends on both sides is counted, since what needs one side is done once a row, and
neither negations nor loads, stores and sums of tiles.
"""

import collections
import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks import harness

Counts = collections.Counter

#: On which sides it depends (or "branch k", for the index of the branch of a CPU), and what it is.
Value = tuple[set[str], Any]

#: Of x and c, to be applied to x again and again: x stays a number of usual size, and no two of
#: them are simplified to one.
CHEAP: dict[str, Callable[[jax.Array, jax.Array], jax.Array]] = {
    "add": lambda x, c: x + c,
    "multiply": lambda x, c: x * c,
    "multiply-add": lambda x, c: x * c + c,
    "abs-subtract-add": lambda x, c: c + jnp.abs(x - c),
}
DEAR: dict[str, Callable[[jax.Array, jax.Array], jax.Array]] = {
    "divide": lambda x, c: c / x,
    "sqrt": lambda x, c: jnp.sqrt(x),
    "exp": lambda x, c: jnp.exp(x),
    "expm1": lambda x, c: jnp.expm1(x),
    "log": lambda x, c: jnp.log(x),
    "log1p": lambda x, c: jnp.log1p(x),
    "tanh": lambda x, c: jnp.tanh(x),
    "erf": lambda x, c: jax.lax.erf(x),
}

#: What a primitive of jax is taken for; those not named here cost an addition.
KINDS = {
    **{kind: kind for kind in ("sqrt", "exp", "expm1", "log", "log1p", "tanh", "erf")},
    **dict.fromkeys(("exp2", "erfc"), "exp"),
    **dict.fromkeys(("mul", "integer_pow", "square"), "multiply"),
    **dict.fromkeys(("div", "rem"), "divide"),
    **{"logistic": "tanh", "rsqrt": "sqrt", "cbrt": "sqrt", "pow": "log"},
}
#: Moves of data and signs, which the compiler puts into other operations.
FREE = {
    *("broadcast_in_dim", "reshape", "squeeze", "transpose", "slice", "concatenate", "copy"),
    *("convert_element_type", "stop_gradient", "iota", "expand_dims", "dynamic_slice", "gather"),
    *("pad", "rev", "split", "optimization_barrier", "reduce_precision", "neg"),
}
#: Multiplications with additions in factorizations and solves, of n^3 or n^2 k.
FACTORIZATIONS = {"cholesky": 1 / 6, "lu": 1 / 3, "triangular_solve": 1 / 2, "eigh": 2 / 3}


def rates(repeats: int) -> dict[str, float]:
    """Seconds of one operation on one number, on all cores, in a loop over a tile of pairs.

    Each element of the tile is the sum of four chains, which start at a_i + b_j; the time of that
    tile without operations is taken off.  XLA makes one loop of it, which it cuts between its
    threads.  Cheap operations are four in a chain, which wait for each other while the other chains
    go on; dear ones in chains, or within a loop of tiles, XLA does not vectorize.
    """
    a, b = jnp.linspace(0.2, 0.4, 1024), jnp.linspace(0.3, 0.5, 4 * 1024).reshape(4, 1024)

    def loop(operation, length):
        def chain(a, row):
            steps = (operation,) * length
            return functools.reduce(lambda x, f: f(x, row), steps, a[:, None] + row)

        return functools.partial(
            jax.jit(lambda a, b: sum(chain(a, row[None, :]) for row in b)), a, b
        )

    lengths = dict.fromkeys(CHEAP, 4) | dict.fromkeys(DEAR, 1)
    calls = {name: loop(f, lengths[name]) for name, f in (CHEAP | DEAR).items()}
    matrix = jnp.ones((512, 512))
    product = functools.partial(jax.jit(jnp.matmul), matrix, matrix)
    timed = harness.time_calls(calls | {"nothing": loop(None, 0), "product": product}, repeats)
    times = {name: time["min"] for name, time in timed.items()}
    found = {
        name: (times[name] - times["nothing"]) / (a.size * b.size * length)
        for name, length in lengths.items()
    }
    return found | {"of a product of matrices": times["product"] / matrix.shape[0] ** 3}


def seconds_of(counts: Counts, rates: dict[str, float]) -> float:
    """The floor; multiplications and additions go together as far as they can."""
    pairs = min(counts["add"], counts["multiply"])
    fused = Counts({"multiply-add": pairs, "add": -pairs, "multiply": -pairs})
    return sum((counts[kind] + fused[kind]) * rates[kind] for kind in rates)


def count(function: Callable, left: Any, right: Any) -> Counts:
    """Operations of function(left, right), by kind, that depend on both; equal ones once."""
    jaxpr, n = jax.make_jaxpr(function)(left, right), len(jax.tree.leaves(left))
    inputs = [({"left"} if i < n else {"right"}, i) for i in range(len(jaxpr.in_avals))]
    return _count(jaxpr, inputs, {})[0]


def _count(jaxpr: Any, inputs: list[Value], seen: dict) -> tuple[Counts, list[Value]]:
    jaxpr = getattr(jaxpr, "jaxpr", jaxpr)
    known, total = dict(zip(jaxpr.invars, inputs, strict=True)), Counts()

    def of(atom):
        if hasattr(atom, "val"):
            return set(), (str(atom.val), str(atom.aval))
        return known.get(atom, (set(), atom))

    for equation in jaxpr.eqns:
        name, params = equation.primitive.name, equation.params
        inputs, counts = [of(atom) for atom in equation.invars], Counts()
        both = set().union(*(sides for sides, _ in inputs))
        outputs = [(both, (object(), i)) for i, _ in enumerate(equation.outvars)]
        if name == "platform_index":
            names = [platforms or ("cpu",) for platforms in params["platforms"]]
            branch = next(k for k, some in enumerate(names) if "cpu" in some)
            outputs = [({f"branch {branch}"}, branch)]
        elif name == "cond":
            branches = params["branches"]
            if chosen := [side for side in inputs[0][0] if side.startswith("branch")]:
                branches = [branches[int(chosen[0].split()[1])]]
            found = (_count(branch, inputs[1:], dict(seen))[0] for branch in branches)
            counts = max(found, key=Counts.total)
            outputs = [(sides & {"left", "right"}, value) for sides, value in outputs]
        elif name in ("scan", "while"):
            # Where its length is not known, one pass.  What is carried may come from later sides.
            is_scan = name == "scan"
            n = params["num_consts"] if is_scan else params["body_nconsts"]
            inputs = inputs if is_scan else inputs[params["cond_nconsts"] :]
            last = n + (params["num_carry"] if is_scan else len(inputs) - n)
            body, of_inputs = params["jaxpr" if is_scan else "body_jaxpr"], [x[0] for x in inputs]
            for _ in range(2):
                counts, found = _count(body, [(x, object()) for x in of_inputs], dict(seen))
                after = (x | y[0] for x, y in zip(of_inputs[n:last], found, strict=False))
                of_inputs[n:last] = list(after)
            counts = Counts({kind: k * params.get("length", 1) for kind, k in counts.items()})
        elif inner := params.get("jaxpr") or params.get("call_jaxpr"):
            counts, outputs = _count(inner, inputs, seen)
        else:
            key = name, str(params), *(value for _, value in inputs)
            if key not in seen and {"left", "right"} <= both and name not in FREE:
                counts[_kind(equation, inputs)] = _size(equation)
            outputs = seen.setdefault(key, outputs)
        total.update(counts)
        known.update(zip(equation.outvars, outputs, strict=True))
    return total, [of(atom) for atom in jaxpr.outvars]


def _kind(equation: Any, inputs: list[Value]) -> str:
    name = equation.primitive.name
    if name == "dot_general" or name in FACTORIZATIONS:
        return "of a product of matrices"
    if name == "div" and len(inputs[1][0]) < 2:
        return "multiply"  # by the reciprocal of one side
    return KINDS.get(name, "add")


def _size(equation: Any) -> float:
    name, (out, *_) = equation.primitive.name, equation.outvars
    shape = equation.invars[0].aval.shape
    size = math.prod(out.aval.shape)
    if name == "dot_general":
        (contracted, _), _ = equation.params["dimension_numbers"]
        return size * math.prod(shape[i] for i in contracted)
    if name in FACTORIZATIONS:
        return (
            FACTORIZATIONS[name] * shape[-1] * max(math.prod(v.aval.shape) for v in equation.invars)
        )
    if name.startswith("reduce_"):
        return math.prod(shape) - size
    return size
