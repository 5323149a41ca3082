"""What an accelerator takes: ``python -m benchmarks.gpu``, on a machine that has one.

    python -m benchmarks.gpu          # five minutes; writes gpu.json and GPU.md
    python -m benchmarks.gpu --quick  # tiny sizes on any machine, into build/benchmarks/

Every work is one function under `jax.jit`, compiled with the option that calibjax gives its own
programs on a GPU.  Its memory is what the compiled program holds beside its inputs, as the compiler
says.
"""

import argparse
import datetime
import json
import pathlib
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import calibjax as cj
from benchmarks import harness
from benchmarks.rows import quantity
from benchmarks.works.data import LABEL_KERNEL, NORMAL_KERNEL, label_data, real_data

SECONDS_OF_A_WORK = 1.0
#: Without it XLA searches among kernels of Triton for each product of matrices.
OPTIONS = {"xla_gpu_enable_triton_gemm": False}


class Work(NamedTuple):
    """A function of arrays, how many rows they have, and the arrays of so many rows."""

    name: str
    function: Callable[..., Any]
    rows: Callable[[int], tuple[np.ndarray, ...]]
    sizes: tuple[int, ...]
    # Numbers that a CPU computes otherwise, because it draws otherwise, are not compared.
    compared: bool = True


def _labels(m: int) -> Callable[[int], tuple[np.ndarray, ...]]:
    return lambda n: label_data(n, m)


def _counts(n: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    rates = rng.uniform(1, 20, n)
    return rates.astype(np.float32), rng.poisson(rates).astype(np.int32)


def _draws(n: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    draws = rng.normal(size=(n, 20)) + rng.normal(size=(n, 1))
    return draws[:, 1:].astype(np.float32), draws[:, 0].astype(np.float32)


def _stein(loc: jax.Array, scale: jax.Array, targets: jax.Array) -> jax.Array:
    kernel = cj.SteinKernel(cj.DistanceKernel(cj.Wasserstein()), cj.GaussianKernel(1.0))
    return cj.skce(kernel, cj.Normal(loc, scale), targets)


def _of_labels(probs: jax.Array, labels: jax.Array) -> jax.Array:
    return cj.skce(LABEL_KERNEL, cj.Categorical(probs), labels)


def _of_normals(loc: jax.Array, scale: jax.Array, targets: jax.Array) -> jax.Array:
    return cj.skce(NORMAL_KERNEL, cj.Normal(loc, scale), targets)


def _of_vectors(loc: jax.Array, scale: jax.Array, targets: jax.Array) -> jax.Array:
    return cj.skce(NORMAL_KERNEL, cj.MultivariateNormalDiag(loc, scale), targets)


def _of_counts(rate: jax.Array, counts: jax.Array) -> jax.Array:
    distance = cj.EmbeddingDistance(lambda prediction: jnp.sqrt(prediction.rate))
    kernel = cj.TensorProduct(cj.DistanceKernel(distance), cj.GaussianKernel(2.0))
    return cj.skce(kernel, cj.Poisson(rate, max_count=128), counts)


def _of_draws(draws: jax.Array, targets: jax.Array) -> jax.Array:
    distance = cj.MeanEmbeddingDistance(cj.GaussianKernel(1.0))
    kernel = cj.TensorProduct(cj.DistanceKernel(distance), cj.GaussianKernel(1.0))
    return cj.skce(kernel, cj.Empirical(draws), targets)


def _test(probs: jax.Array, labels: jax.Array) -> Any:
    return cj.calibration_test(jax.random.key(0), cj.Categorical(probs), labels)


def _test_of_normals(loc: jax.Array, scale: jax.Array, targets: jax.Array) -> Any:
    return cj.calibration_test(jax.random.key(0), cj.Normal(loc, scale), targets)


def _bootstrap(probs: jax.Array, labels: jax.Array) -> Any:
    predictions = cj.Categorical(probs)
    return cj.asymptotic_skce_test(jax.random.key(0), LABEL_KERNEL, predictions, labels)


def _interval(probs: jax.Array, labels: jax.Array) -> Any:
    predictions = cj.Categorical(probs)
    return cj.skce_confidence_interval(jax.random.key(0), LABEL_KERNEL, predictions, labels)


WORKS = [
    Work("SKCE, 10 classes", _of_labels, _labels(10), (10_000, 100_000, 1_000_000)),
    Work("SKCE, 100 classes", _of_labels, _labels(100), (10_000, 100_000)),
    Work("SKCE, 1000 classes", _of_labels, _labels(1000), (10_000, 50_000)),
    Work("SKCE, normal", _of_normals, real_data, (10_000, 100_000, 1_000_000)),
    Work("SKCE, normal vectors of 5", _of_vectors, lambda n: real_data(n, 5), (10_000, 100_000)),
    Work("SKCE, Poisson", _of_counts, _counts, (10_000, 100_000)),
    Work("SKCE, 19 draws", _of_draws, _draws, (10_000, 50_000)),
    Work("SKCE by scores, normal", _stein, real_data, (10_000, 100_000)),
    Work(
        *("value and gradient, 10 classes", jax.value_and_grad(_of_labels), _labels(10)),
        (256, 10_000, 100_000),
    ),
    Work(
        *("value and gradient, 100 classes", jax.value_and_grad(_of_labels), _labels(100)),
        (256, 10_000),
    ),
    Work(
        *("value and gradient, normal", jax.value_and_grad(_of_normals), real_data),
        (256, 10_000, 100_000),
    ),
    Work(
        *("calibration_test, 10 classes", _test, _labels(10)),
        *((10_000, 100_000, 1_000_000), False),
    ),
    Work(
        *("calibration_test, normal", _test_of_normals, real_data),
        *((10_000, 100_000), False),
    ),
    Work("asymptotic_skce_test, 10 classes", _bootstrap, _labels(10), (10_000,), False),
    Work("skce_confidence_interval, 10 classes", _interval, _labels(10), (10_000,), False),
]


def measure(work: Work, n: int) -> dict[str, Any]:
    """Seconds of compilation, the median of seconds after it, and bytes."""
    arrays = work.rows(n)
    rows = [jax.device_put(x) for x in arrays]
    start = time.perf_counter()
    compiled = jax.jit(work.function).lower(*rows).compile(OPTIONS)
    compilation = time.perf_counter() - start
    memory = compiled.memory_analysis()
    result = jax.block_until_ready(compiled(*rows))
    times: list[float] = []
    while len(times) < 3 or (sum(times) < SECONDS_OF_A_WORK and len(times) < 50):
        times.append(harness.seconds(lambda: compiled(*rows)))
        if times[-1] > 5 * SECONDS_OF_A_WORK:
            break
    found = {
        "work": work.name,
        "n": n,
        "seconds": float(np.median(times)),
        "compilation": compilation,
        "megabytes": (memory.temp_size_in_bytes + memory.output_size_in_bytes) / 1e6,
        "number": float(jax.tree.leaves(result)[0].ravel()[0]),
    }
    if work.compared and n == min(work.sizes):
        cpu = jax.devices("cpu")[0]
        with jax.enable_x64(True):
            wide = [x.astype(np.float64) if x.dtype.kind == "f" else x for x in arrays]
            expected = jax.jit(work.function)(*jax.device_put(wide, cpu))
        found["error"] = max(
            float(np.max(np.abs(np.asarray(ours) - np.asarray(theirs))) / np.max(np.abs(theirs)))
            for ours, theirs in zip(jax.tree.leaves(result), jax.tree.leaves(expected), strict=True)
        )
    return found


TEXT = """# On a GPU

Made by `python -m benchmarks.gpu` on one {device}, with jax {jax} and float32, on {date}. Each row
is one compiled function of arrays on the device. Seconds are the median of repeats after
compilation, without XLA's search for Triton matrix-product kernels. Memory is that of the compiled
program, without its inputs. The error is the largest difference to the result in float64 on a CPU
(including gradients), divided by the largest of these values. It is not smaller because the SKCE of
a calibrated model is the difference of much larger sums. Tests draw 199 data sets
(`calibration_test`) or 1000 resamples.

| work | n | time | compilation | memory | error |
|---|---|---|---|---|---|
"""


def page(found: dict[str, Any]) -> str:
    """The table in Markdown."""
    lines = []
    for row in found["rows"]:
        cells = [
            row["work"],
            f"{row['n']:,}".replace(",", "\N{NO-BREAK SPACE}"),
            quantity(row["seconds"], "s"),
            quantity(row["compilation"], "s"),
            quantity(row["megabytes"], "MB"),
            f"{row['error']:.0e}" if "error" in row else "",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    environment = found["environment"] | {"date": found["date"]}
    return TEXT.format(**environment) + "\n".join(lines) + "\n"


def run(quick: bool) -> Iterator[dict[str, Any]]:
    for work in WORKS:
        for n in (200,) if quick else work.sizes:
            row = measure(work._replace(sizes=(200,)) if quick else work, n)
            print(json.dumps(row), flush=True)
            yield row


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="tiny sizes")
    parser.add_argument("--output", type=pathlib.Path, metavar="FOLDER")
    args = parser.parse_args()
    folder = args.output or harness.ROOT / ("build/benchmarks" if args.quick else "benchmarks")
    folder.mkdir(parents=True, exist_ok=True)
    date = f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}"
    found = {"date": date, "environment": harness.environment(), "rows": list(run(args.quick))}
    (folder / "gpu.json").write_text(json.dumps(found, indent=1) + "\n")
    (folder / "GPU.md").write_text(page(found))


if __name__ == "__main__":
    main()
