"""How far tiles of pairs are from what their arithmetic costs: ``python -m benchmarks.floors``.

The floor of a pair is the sum, over the operations of its formula that need both sides, of the time
that one such operation takes in a loop over a cached tile, measured in the same run.  What needs
one side only is done once a row and is not counted; neither are loads, stores and sums of tiles.
With the gradient it is the arithmetic of jax's derivative of one pair: products of matrices, which
share work between pairs, can do with less.
"""

import collections
import functools
import math
import sys
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import calibjax as cj
from benchmarks import harness, works
from benchmarks.run import Row, markdown, row
from calibjax.discrepancy import h
from calibjax.expectations import inner_product

#: Operations side by side, none waiting for another, on numbers of a tile in the caches.
COPIES, TILE = 8, (128, 512)

PRIMITIVES: dict[str, Callable[[jax.Array, jax.Array], jax.Array]] = {
    "nothing": lambda x, y: x,
    "add": lambda x, y: x + y,
    "multiply": lambda x, y: x * y,
    "fma": lambda x, y: x * y + y,
    "divide": lambda x, y: y / x,
    "sqrt": lambda x, y: jnp.sqrt(x),
    "exp": lambda x, y: jnp.exp(x),
    "log1p": lambda x, y: jnp.log1p(x),
    "abs-sum": lambda x, y: y + jnp.abs(x - y),
}

#: What a primitive of jax is taken for; those not named here cost an addition.
KINDS = {
    **dict.fromkeys(("exp", "exp2", "expm1", "tanh", "logistic", "erf", "erfc"), "exp"),
    **dict.fromkeys(("log", "log1p", "pow"), "log1p"),
    **dict.fromkeys(("div", "rem"), "divide"),
    **dict.fromkeys(("sqrt", "rsqrt", "cbrt"), "sqrt"),
    # A reduction or product of matrices: one multiplication and addition in one for each term.
    **dict.fromkeys(("dot_general", "reduce_sum"), "fma"),
    **dict.fromkeys(("mul", "integer_pow", "square"), "multiply"),
}
#: Moves of data, which the compiler does not make.
FREE = {
    *("broadcast_in_dim", "reshape", "squeeze", "transpose", "slice", "concatenate", "copy"),
    *("convert_element_type", "stop_gradient", "iota", "expand_dims", "dynamic_slice", "gather"),
    *("pad", "rev", "split", "optimization_barrier", "reduce_precision"),
}


def primitive_times(repeats: int) -> dict[str, float]:
    """Seconds of one operation on one number of a cached tile."""
    y = jnp.full(TILE, 0.5, jnp.float32)
    n_loops = 64

    def loop(operation):
        def step(_, x):
            return sum(operation(x + 0.1 * k, y) for k in range(1, COPIES + 1)) / (8 * COPIES)

        return jax.jit(lambda x: lax.fori_loop(0, n_loops, step, x))

    calls = {name: functools.partial(loop(f), y) for name, f in PRIMITIVES.items()}
    times = harness.time_calls(calls, repeats)
    each = {name: t["min"] / (n_loops * COPIES * math.prod(TILE)) for name, t in times.items()}
    nothing = each.pop("nothing")
    return {name: max(time - nothing, nothing / 2) for name, time in each.items()}


def bandwidth(repeats: int) -> float:
    """Bytes a second of y = 2 x, far larger than the caches."""
    x = jnp.ones(1 << 26, jnp.float32)
    call = {"copy": functools.partial(jax.jit(lambda x: 2 * x), x)}
    return 2 * x.nbytes / harness.time_calls(call, repeats)["copy"]["min"]


def count(function: Callable, left: Any, right: Any) -> collections.Counter[str]:
    """Operations of function(left, right), by kind, that depend on both."""
    jaxpr = jax.make_jaxpr(function)(left, right)
    sides = [{"left"}] * len(jax.tree.leaves(left)) + [{"right"}] * len(jax.tree.leaves(right))
    return _count(jaxpr.jaxpr, sides)[0]


def _count(jaxpr: Any, sides: list[set[str]]) -> tuple[collections.Counter[str], list[set[str]]]:
    known: dict[Any, set[str]] = dict(zip(jaxpr.invars, sides, strict=True))
    total: collections.Counter[str] = collections.Counter()

    def of(atom):
        return set() if hasattr(atom, "val") else known.get(atom, set())

    for equation in jaxpr.eqns:
        inputs = [of(atom) for atom in equation.invars]
        outputs = [set().union(*inputs)] * len(equation.outvars)
        inner = [
            getattr(value, "jaxpr", value)
            for key, value in equation.params.items()
            if key in ("jaxpr", "call_jaxpr", "fun_jaxpr", "body_jaxpr")
        ]
        if inner and len(inner[0].invars) == len(inputs):
            counted, found = _count(inner[0], inputs)
            length = equation.params.get("length", 1)
            total.update({kind: n * length for kind, n in counted.items()})
            outputs = outputs if "length" in equation.params else found
        elif len(outputs[0]) == 2 and equation.primitive.name not in FREE:
            kind = KINDS.get(equation.primitive.name, "add")
            variables = equation.invars[:1] if kind == "fma" else equation.outvars
            size = max(math.prod(v.aval.shape) for v in variables)
            if equation.primitive.name == "dot_general":
                (contracted, _), _ = equation.params["dimension_numbers"]
                shape = equation.invars[0].aval.shape
                size = math.prod(equation.outvars[0].aval.shape)
                size *= math.prod(shape[i] for i in contracted)
            total[kind] += size
        known.update(zip(equation.outvars, outputs, strict=True))
    return total, [of(atom) for atom in jaxpr.outvars]


def _covariance(scale: jax.Array) -> jax.Array:
    """With correlations of 1/2."""
    return jnp.outer(scale, scale) * (1 + jnp.eye(scale.size)) / 2


def predictions(family: Any, n: int) -> dict[str, tuple[Any, jax.Array]]:
    """Predictions of a family with targets, by what is said of their size."""
    loc, scale, targets = map(jnp.asarray, works.real_data(n))
    if family is cj.Categorical:
        data = {m: works.label_data(n, m) for m in (2, 10, 100, 1000)}
        return {
            f", m = {m}": (family(jnp.asarray(p)), jnp.asarray(y)) for m, (p, y) in data.items()
        }
    if family is cj.Bernoulli:
        probs, labels = map(jnp.asarray, works.label_data(n, 2))
        return {"": (cj.Bernoulli(probs[:, 1]), labels)}
    if family in (cj.MultivariateNormalDiag, cj.MultivariateNormalFullCovariance):
        data = {d: map(jnp.asarray, works.real_data(n, d)) for d in (1, 2, 8, 64)}
        made = {f", d = {d}": (cj.MultivariateNormalDiag(a, b), y) for d, (a, b, y) in data.items()}
        if family is cj.MultivariateNormalDiag:
            return made
        return {
            name: (family(p.loc, jax.vmap(_covariance)(p.scale_diag)), y)
            for name, (p, y) in made.items()
        }
    if family is cj.Poisson:
        counts = np.random.default_rng(0).poisson(5 * np.asarray(scale)).astype(np.int32)
        return {"": (cj.Poisson(5 * scale, max_count=64), jnp.asarray(counts))}
    if family is cj.Mixture:
        components = cj.Normal(*(jnp.asarray(x) for x in works.real_data(n, 3)[:2]))
        return {", K = 3": (cj.Mixture.ensemble(components), targets)}
    if family is cj.Empirical:
        return {", S = 20": (cj.Empirical(jnp.asarray(works.real_data(n, 20)[0])), targets)}
    return {"": (family(loc, scale), targets)}


def cases(n: int) -> Iterator[tuple[str, Any, Any, jax.Array]]:
    """Every family and target kernel that has a rule: name, kernel, predictions and targets."""
    for family, target in sorted(
        inner_product.rules, key=lambda pair: (str(pair[0]), str(pair[1]))
    ):
        if not hasattr(cj, family.__name__) or issubclass(
            target, (cj.kernels.Sum, cj.kernels.Scaled)
        ):
            continue
        target = cj.GaussianKernel if target is object else target
        for size, (p, y) in predictions(family, n).items():
            kernel = target() if target is cj.WhiteKernel else target(1.0 + math.sqrt(y[0].size))
            prediction_kernel = cj.default_kernel(p).prediction_kernel
            name = f"{family.__name__}{size}, {target.__name__}"
            yield name, cj.TensorProduct(prediction_kernel, kernel), p, y


def rows(quick: bool) -> Iterator[Row]:
    """Nanoseconds of a pair against its floor, of the value and of the value and gradient."""
    n, repeats = (64, 1) if quick else (1024, 5)
    times = primitive_times(repeats)
    for name, time in times.items():
        yield row(f"one {name}, float32, cached", time * 1e9, None, None, unit="ns")
    yield row("memory bandwidth", bandwidth(repeats) / 1e9, None, None, unit="GB/s")

    for case in cases(n):
        yield from _rows_of_case(*case, times, repeats)


def _rows_of_case(name, kernel, p, y, times, repeats) -> Iterator[Row]:
    n = len(y)

    def skce(p):
        return cj.skce(kernel, p, y)

    def of_pair(a, b):
        return h(kernel, a, b)

    def of_pair_and_gradient(a, b):
        of_predictions = jax.value_and_grad(lambda p, q: h(kernel, (p, a[1]), (q, b[1])), (0, 1))
        return of_predictions(a[0], b[0])

    one = jax.tree.map(lambda x: x[0], (p, y))
    functions = {"value": skce, "value and gradient": jax.value_and_grad(skce)}
    calls = {key: functools.partial(jax.jit(f), p) for key, f in functions.items()}
    measured = harness.time_calls(calls, repeats)
    for key, pair in zip(functions, (of_pair, of_pair_and_gradient), strict=True):
        counts = count(pair, one, one)
        floor = sum(k * times[kind] for kind, k in counts.items())
        ours = 2 * measured[key]["min"] / (n * (n - 1))
        work = f"{key} of a pair, {name}; peer: its arithmetic"
        result = row(work, ours * 1e9, floor * 1e9, None, "ns", counts=dict(counts))
        yield result | {"ratio": ours / floor}


if __name__ == "__main__":
    for result in rows("--quick" in sys.argv):
        print(markdown(result), result.get("counts", ""), flush=True)
