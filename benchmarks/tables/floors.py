"""How far tiles of pairs are from what their arithmetic costs on this machine."""

import functools
import operator
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp

import calibjax as cj
from benchmarks import harness
from benchmarks.rows import Row, table
from benchmarks.works.arithmetic import Counts, count, rates, seconds_of
from benchmarks.works.data import label_data, real_data
from benchmarks.works.families import GAUSSIAN, LAPLACIAN, Batch, batches
from calibjax.discrepancy import h, normal_form


def cases(n: int) -> Iterator[tuple[str, Any, Any, jax.Array]]:
    """Names, kernels, predictions and targets of every family with its target kernels."""
    found = {name: batch for name, batch in batches(n).items() if "d = 10" not in name}
    classes = found.pop("Categorical")
    for m in (2, 10, 100, 1000):
        probs, labels = map(jnp.asarray, label_data(n, m))
        p = cj.Categorical(probs)
        found[f"Categorical (m = {m})"] = classes._replace(predictions=p, targets=labels)
    for d in (1, 2, 8, 64):
        loc, scale, y = map(jnp.asarray, real_data(n, d))
        diag = cj.MultivariateNormalDiag(loc, scale)
        kernels = GAUSSIAN | LAPLACIAN
        found[f"MultivariateNormalDiag (d = {d})"] = Batch(diag, y, cj.Wasserstein(), kernels)
        if d == 8:
            covariance = scale[:, :, None] * scale[:, None, :] * (1 + jnp.eye(d)) / 2
            full = cj.MultivariateNormalFullCovariance(loc, covariance)
            found[f"MultivariateNormalFullCovariance (d = {d})"] = Batch(full, y, None, GAUSSIAN)
    for name, batch in found.items():
        few = n // 2 if name.startswith(("Mixture", "Empirical")) else n
        few = n // 4 if "FullCovariance" in name or "d = 64" in name else few
        p, y = jax.tree.map(operator.itemgetter(slice(few)), (batch.predictions, batch.targets))
        for kernel_name, kernel in batch.kernels().items():
            yield f"{name}, {kernel_name}", kernel, p, y


def counts_of(kernel: Any, p: Any, y: jax.Array) -> tuple[Counts, Counts]:
    """Of one pair: of the value, and of the value with the gradient."""
    if isinstance(p, cj.Categorical | cj.Bernoulli):
        # By hand: products of matrices share work between pairs, which autodiff of one pair hides.
        m = p.probs.shape[1] if p.probs.ndim == 2 else 1
        each = {"abs-subtract-add": m, "of a product of matrices": m}
        last = Counts({"exp": 1, "multiply": 2})
        return last + Counts(each), last + Counts({kind: 3 * m for kind in each})
    one = jax.tree.map(lambda x: x[0], (p, y))
    of_pair = functools.partial(h, normal_form(kernel))

    def both(a, b):
        return jax.value_and_grad(lambda p, q: of_pair((p, a[1]), (q, b[1])), (0, 1))(a[0], b[0])

    return count(of_pair, one, one), count(both, one, one)


COLUMNS = ("case", "n", "value [ns]", "floor [ns]", "value / floor")
OF_GRADIENTS = ("value and gradient [ns]", "its floor [ns]", "of the value")


@table("Arithmetic of a pair", columns=COLUMNS + OF_GRADIENTS)
def floors(quick: bool) -> Iterator[Row]:
    """Nanoseconds per pair of `skce`, of n (n - 1) / 2 pairs, and a lower bound (floor). The floor
    counts the operations of the formula that depend on both rows, each at the speed of a loop with
    only this operation, on all cores. Comparisons and minima count as additions. Matrix products
    and factorizations have the speed of a product [512, 512] x [512, 512]. The floor with the
    gradient is that of autodiff of one pair; for labels, three times the value's sums over
    classes."""
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
        of_value, of_gradient = (1e9 * seconds_of(c, seconds) for c in counts)
        numbers = (name, len(y), ours, of_value, ours / of_value, more, of_gradient, more / ours)
        row = dict(zip(COLUMNS + OF_GRADIENTS, numbers, strict=True))
        yield row | {"counts": [dict(c) for c in counts]}
