"""How far tiles of pairs are from what their arithmetic costs on this machine.

Operations are counted in the jaxpr of one pair: only those that depend on both sides, since what
needs one side is done once a row, and neither negations nor loads, stores and sums of tiles.
"""

import collections
import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import calibjax as cj
from benchmarks import harness
from benchmarks.rows import Row, table
from benchmarks.works.data import label_data, real_data
from benchmarks.works.families import GAUSSIAN, LAPLACIAN, MATERN, WHITE, root_of_rate
from calibjax.discrepancy import h

Counts = collections.Counter[str]

#: Of x and c, to be applied to x again and again: x stays a number of usual size, and no two of
#: them are simplified to one.
PRIMITIVES: dict[str, Callable[[jax.Array, jax.Array], jax.Array]] = {
    "add": lambda x, c: x + c,
    "multiply": lambda x, c: x * c,
    "divide": lambda x, c: c / (x + c),
    "sqrt": lambda x, c: jnp.sqrt(x),
    "exp": lambda x, c: jnp.exp(-x),
    "expm1": lambda x, c: -jnp.expm1(-x),
    "log": lambda x, c: jnp.log(x + 2),
    "log1p": lambda x, c: jnp.log1p(x),
    "tanh": lambda x, c: jnp.tanh(x),
    "erf": lambda x, c: jax.lax.erf(x),
    "abs-subtract-add": lambda x, c: c + jnp.abs(x - c),
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
    """Seconds of one operation on one number, on all cores as XLA uses them.

    The fastest of chains of 1, 4, 16 and 64 in one loop over an array that is read and written
    once.  All chains of the array are independent, and the core overlaps them: what counts is
    throughput, of which dear operations have most in short chains and cheap ones in long chains.
    """
    x, c = jnp.linspace(0.5, 0.9, 1 << 18), jnp.linspace(0.6, 0.8, 1 << 18)

    def chain(operation, length):
        return jax.jit(
            lambda x, c: functools.reduce(lambda x, _: operation(x, c), range(length), x)
        )

    lengths = (1, 4, 16, 64)
    calls = {
        (name, k): functools.partial(chain(f, k), x, c)
        for name, f in PRIMITIVES.items()
        for k in lengths
    }
    matrix = jnp.ones((512, 512))
    product = functools.partial(jax.jit(lambda a, b: a @ b), matrix, matrix)
    times = harness.time_calls(calls | {"product": product}, repeats)
    found = {
        name: min(times[name, k]["min"] / (k * x.size) for k in lengths) for name in PRIMITIVES
    }
    return found | {"of a product of matrices": times["product"]["min"] / 512**3}


def count(function: Callable, left: Any, right: Any) -> Counts:
    """Operations of function(left, right), by kind, that depend on both."""
    jaxpr = jax.make_jaxpr(function)(left, right).jaxpr
    n = len(jax.tree.leaves(left))
    return _count(jaxpr, [{"left"}] * n + [{"right"}] * (len(jaxpr.invars) - n))[0]


def _count(jaxpr: Any, sides: list[set]) -> tuple[Counts, list[set]]:
    """Counts, and on which sides the results depend; "cpu k" is the branch of a CPU."""
    jaxpr = getattr(jaxpr, "jaxpr", jaxpr)
    known, total = dict(zip(jaxpr.invars, sides, strict=True)), collections.Counter()

    def of(atom):
        return set() if hasattr(atom, "val") else known.get(atom, set())

    for equation in jaxpr.eqns:
        name, params = equation.primitive.name, equation.params
        inputs = [of(atom) for atom in equation.invars]
        counts: Counts = collections.Counter()
        outputs = [set().union(*inputs)] * len(equation.outvars)
        if name == "platform_index":
            names = [platforms or ("cpu",) for platforms in params["platforms"]]
            outputs = [{f"cpu {next(k for k, some in enumerate(names) if 'cpu' in some)}"}]
        elif name == "cond":
            branches = params["branches"]
            chosen = [s for s in inputs[0] if s.startswith("cpu ")]
            if chosen:
                branches = [branches[int(chosen[0].split()[1])]]
            results = [_count(branch, inputs[1:]) for branch in branches]
            counts = max((counts for counts, _ in results), key=Counts.total)
            of_branches = zip(*(found for _, found in results), strict=True)
            outputs = [(inputs[0] & {"left", "right"}).union(*some) for some in of_branches]
        elif name in ("scan", "while"):
            # Of a loop whose length is not known, one pass.
            n = params["num_consts"] if name == "scan" else params["body_nconsts"]
            inputs = inputs if name == "scan" else inputs[params["cond_nconsts"] :]
            carried = params["num_carry"] if name == "scan" else len(inputs) - n
            body = params["jaxpr"] if name == "scan" else params["body_jaxpr"]
            for _ in range(2):
                counts, outputs = _count(body, inputs)
                after = [a | b for a, b in zip(inputs[n:], outputs[:carried], strict=False)]
                inputs = inputs[:n] + after + inputs[n + carried :]
            counts = Counts({k: v * params.get("length", 1) for k, v in counts.items()})
        elif inner := params.get("jaxpr") or params.get("call_jaxpr"):
            counts, outputs = _count(inner, inputs)
        elif {"left", "right"} <= outputs[0] and name not in FREE:
            counts[_kind(equation, inputs)] = _size(equation)
        total.update(counts)
        known.update(zip(equation.outvars, outputs, strict=True))
    return total, [of(atom) for atom in jaxpr.outvars]


def _kind(equation: Any, inputs: list[set]) -> str:
    name = equation.primitive.name
    if name == "dot_general" or name in FACTORIZATIONS:
        return "of a product of matrices"
    if name == "div" and len(inputs[1]) < 2:
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


def cases(n: int) -> Iterator[tuple[str, Any, Any, jax.Array]]:
    """Names, kernels, predictions and targets of every family with its target kernels."""
    rng = np.random.default_rng(1)
    loc, scale, y = map(jnp.asarray, real_data(n))
    wasserstein, real = cj.Wasserstein(), GAUSSIAN | LAPLACIAN
    batches: list[tuple[str, Any, Any, Any, Any]] = []
    for m in (2, 10, 100, 1000):
        p, labels = map(jnp.asarray, label_data(n, m))
        if m == 2:
            bernoulli = cj.Bernoulli(p[:, 1])
            batches.append(("Bernoulli", bernoulli, labels, cj.TotalVariation(), WHITE))
        batches.append(
            (f"Categorical, m = {m}", cj.Categorical(p), labels, cj.TotalVariation(), WHITE)
        )
    batches += [
        ("Normal", cj.Normal(loc, scale), y, wasserstein, real | MATERN),
        ("Laplace", cj.Laplace(loc, scale), y, wasserstein, real),
    ]
    for d in (1, 2, 8, 64):
        a, b, z = map(jnp.asarray, real_data(n, d))
        diag = cj.MultivariateNormalDiag(a, b)
        batches.append((f"MultivariateNormalDiag, d = {d}", diag, z, wasserstein, real))
    rates = jnp.exp(loc)
    few = max(32, n // 2)
    for d in (2, 8):
        a, b, z = (jnp.asarray(x[:few]) for x in real_data(n, d))
        covariance = jax.vmap(lambda s: jnp.outer(s, s) * (1 + jnp.eye(s.size)) / 2)(b)
        full = cj.MultivariateNormalFullCovariance(a, covariance)
        batches.append((f"MultivariateNormalFullCovariance, d = {d}", full, z, None, GAUSSIAN))
    a, b, _ = (jnp.asarray(x[:few]) for x in real_data(n, 3))
    weights = jnp.asarray(rng.dirichlet(np.ones(3), few), jnp.float32)
    draws = jnp.asarray(rng.normal(size=(few, 20)), jnp.float32)
    counts = jnp.asarray(rng.poisson(rates), jnp.int32)
    roots = cj.EmbeddingDistance(root_of_rate)
    batches += [
        ("Poisson", cj.Poisson(rates, max_count=64), counts, roots, WHITE),
        ("Mixture of 3 Normal", cj.Mixture(weights, cj.Normal(a, b)), y[:few], None, GAUSSIAN),
        ("Empirical, S = 20", cj.Empirical(loc[:few, None] + draws), y[:few], None, GAUSSIAN),
    ]
    for name, p, y, distance, kernels in batches:
        for of_targets, kernel in kernels.items():
            between = cj.DistanceKernel(distance or cj.MeanEmbeddingDistance(kernel))
            yield f"{name}, {of_targets}", cj.TensorProduct(between, kernel), p, y


def counts_of(kernel: Any, p: Any, y: jax.Array) -> tuple[Counts, Counts]:
    """Of one pair: of the value, and of the value with the gradient."""
    if isinstance(p, cj.Categorical | cj.Bernoulli):
        # By hand: products of matrices share work between pairs, which autodiff of one pair hides.
        m = p.probs.shape[1] if p.probs.ndim == 2 else 1
        each = {"abs-subtract-add": m, "of a product of matrices": m}
        last = Counts({"exp": 1, "multiply": 2})
        return last + Counts(each), last + Counts({kind: 3 * m for kind in each})
    one = jax.tree.map(lambda x: x[0], (p, y))

    def both(a, b):
        return jax.value_and_grad(lambda p, q: h(kernel, (p, a[1]), (q, b[1])), (0, 1))(a[0], b[0])

    return count(functools.partial(h, kernel), one, one), count(both, one, one)


COLUMNS = ("case", "n", "value [ns]", "floor [ns]", "value / floor")
OF_GRADIENTS = ("value and gradient [ns]", "its floor [ns]", "of the value")


@table("Arithmetic of a pair", columns=COLUMNS + OF_GRADIENTS)
def floors(quick: bool) -> Iterator[Row]:
    """Nanoseconds of each of the n (n - 1) / 2 pairs of `skce`, beside a floor: the operations of
    its formula that depend on both sides, each at the speed of a loop that does nothing else, on
    all cores. Additions stand for comparisons and minima too; terms of products of matrices and
    factorizations have the speed of a product [512, 512] x [512, 512]. The floor with the gradient
    is that of autodiff of one pair, and of labels three times the value's sums over classes."""
    repeats = 1 if quick else 5
    seconds = rates(1 if quick else 15)
    for name, time in seconds.items():
        yield {"case": f"one {name}", "floor [ns]": 1e9 * time}
    for name, kernel, p, y in list(cases(64 if quick else 1024))[: 2 if quick else None]:
        value = functools.partial(lambda kernel, y, p: cj.skce(kernel, p, y), kernel, y)
        functions = {"value": jax.jit(value), "gradient": jax.jit(jax.value_and_grad(value))}
        calls = {key: functools.partial(f, p) for key, f in functions.items()}
        pairs = len(y) * (len(y) - 1) / 2
        times = harness.time_calls(calls, repeats)
        ours, more = (1e9 * times[key]["min"] / pairs for key in calls)
        counts = counts_of(kernel, p, y)
        of_value, of_gradient = (
            sum(k * 1e9 * seconds[kind] for kind, k in c.items()) for c in counts
        )
        numbers = (name, len(y), ours, of_value, ours / of_value, more, of_gradient, more / ours)
        row = dict(zip(COLUMNS + OF_GRADIENTS, numbers, strict=True))
        yield row | {"counts": [dict(c) for c in counts]}
