"""Two kernels as penalties of regression networks: ``python -m benchmarks.penalties``.

    python -m benchmarks.penalties          # a minute on a GPU; writes PENALTIES.md
    python -m benchmarks.penalties --quick  # few seeds and epochs, into build/benchmarks/

The loss is the negative log likelihood plus a weight times the biased SKCE of blocks of 25 rows,
with the `product_kernel` or with the `default_kernel`, a `PITKernel`.  Both kernels come from the
predictions of a network that is trained without a penalty, and stay as they are.  The data are
scikit-learn's diabetes patients, and simulated ones whose locations span four decades.  It needs
``pip install -e '.[examples]'``.
"""

import argparse
import functools
import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

import calibjax as cj
from benchmarks.harness import ROOT

sys.path.insert(0, str(ROOT / "examples"))

import train_diabetes
from _common import init_mlp, mean_and_error, mlp, over_grid, train

WEIGHTS = [3.0, 10.0, 30.0, 100.0]
N_TRAIN, N_TEST = 1000, 500
_BLOCK, _HIDDEN = 25, 64

_TEXT = """\
# Penalties of regression networks

Made by `python -m benchmarks.penalties`. The loss is the negative log likelihood (NLL) plus a
weight times the biased SKCE of blocks of {block} rows in batches of 50, with one of two kernels:
"Normal x Gaussian" is the `product_kernel`, and "PIT" is the `default_kernel`. Both are chosen on
the predictions of a network trained without a penalty, and are the same for all seeds. Values are
means over {seeds} seeds on held-out rows ± standard errors; each seed has its own data or split.
Below "none", the NLL and the SKCEs are differences from "none", paired by seed. The p-value is the
median of `calibration_test`, and "rejected" is the number of seeds with p at most 0.05. The SKCEs
are unbiased estimates, times 1000."""


class Data(NamedTuple):
    """One kind of data: ``load(key)`` gives training and test rows, ``predict(params, x)`` laws."""

    title: str
    load: Callable[[jax.Array], Any]
    predict: Callable[[Any, jax.Array], cj.Normal]


def simulated(key: jax.Array) -> Any:
    """Locations from 0.01 to 100, and deviations of 10 to 40 % of them, which other inputs tell."""
    keys = jax.random.split(key)
    n = N_TRAIN + N_TEST
    x = jax.random.uniform(keys[0], (n, 5), minval=-1.0, maxval=1.0)
    loc = 10.0 ** (2 * x[:, 0]) * (1 + 0.3 * jnp.sin(3 * x[:, 1]))
    y = loc + loc * (0.1 + 0.3 * jax.nn.sigmoid(4 * x[:, 2])) * jax.random.normal(keys[1], (n,))
    return (x[:N_TRAIN], y[:N_TRAIN]), (x[N_TRAIN:], y[N_TRAIN:])


def predict_scales(params: Any, x: jax.Array) -> cj.Normal:
    """The network knows that targets span decades: it predicts logarithms."""
    log_loc, raw = jnp.moveaxis(mlp(params, x), -1, 0)
    loc = jnp.exp(log_loc)
    return cj.Normal(loc, loc * (0.01 + jax.nn.softplus(raw)))


DATA = (
    Data("Diabetes patients", train_diabetes.load, train_diabetes.predict),
    Data("Locations over four decades", simulated, predict_scales),
)


def loss(kernel: Any, predict: Any, params: Any, x: Any, y: Any, weight: jax.Array) -> jax.Array:
    predictions = predict(params, x)
    penalty = cj.skce(kernel, predictions, y, block_size=_BLOCK, unbiased=False)
    return weight * penalty - jnp.mean(predictions.log_prob(y))


def measure(data: Data, seeds: int, epochs: int) -> dict[str, dict[str, np.ndarray]]:
    """For each kernel and number its values ``[weights, seeds]``."""
    keys = jax.random.split(jax.random.key(0), (3, seeds))
    training, held_out = jax.vmap(data.load)(keys[0])
    sizes = training[0].shape[-1], _HIDDEN, 2
    params = jax.vmap(lambda key: init_mlp(key, sizes))(keys[1])

    def trained(kernel: Any, weights: list[float]) -> Any:
        return train(
            functools.partial(loss, kernel, data.predict),
            *(optax.adam(3e-3), params, training, jnp.asarray(weights), keys[2]),
            epochs=epochs,
            batch_size=50,
        )

    plain = trained(cj.PITKernel(_everywhere), [0.0])
    first_params, first_inputs = jax.tree.map(lambda x: x[0, 0], plain), training[0][0]
    pilot = data.predict(first_params, first_inputs)
    kernels = {"Normal x Gaussian": cj.product_kernel(pilot), "PIT": cj.default_kernel(pilot)}

    def judged(params: Any, x: jax.Array, y: jax.Array) -> tuple[jax.Array, ...]:
        predictions = data.predict(params, x)
        errors = [1000 * cj.skce(kernel, predictions, y) for kernel in kernels.values()]
        test = cj.calibration_test(jax.random.key(1), predictions, y)
        return jnp.mean(cj.log_score(predictions, y)), test.pvalue, *errors

    judge = over_grid(judged, (0, None, None), (0, 0, 0))
    names = "NLL", "p", *(f"SKCE, {name}" for name in kernels)
    found = {"": plain}
    found |= {name: trained(kernel, WEIGHTS) for name, kernel in kernels.items()}
    return {
        name: dict(zip(names, map(np.asarray, judge(params, *held_out)), strict=True))
        for name, params in found.items()
    }


def _everywhere(p: Any, q: Any) -> jax.Array:
    """The kernel of no penalty."""
    return jnp.ones(())


def row(name: str, values: Mapping[str, np.ndarray], plain: Mapping[str, np.ndarray]) -> str:
    """A line of the table: one penalty, each value ``[seeds]``, or what it changes in `plain`."""
    pvalues = values["p"]
    cells = [f"{np.median(pvalues):.3f}, {np.sum(pvalues <= 0.05)} of {len(pvalues)}"]
    for key, digits in {key: 3 if key == "NLL" else 2 for key in values if key != "p"}.items():
        is_change = values is not plain
        mean, error = mean_and_error(values[key] - plain[key] if is_change else values[key])
        cells.append(f"{mean:{'+' if is_change else ''}.{digits}f} ± {error:.{digits}f}")
    return f"| {' | '.join([name, *cells])} |"


def section(data: Data, seeds: int, epochs: int) -> list[str]:
    found = measure(data, seeds, epochs)
    plain = {key: x[0] for key, x in found[""].items()}
    header = ["penalty", "p-value, rejected", *(key for key in plain if key != "p")]
    rows = [row("none", plain, plain)]
    rows += [
        row(f"{name}, {weight:g}", {key: x[i] for key, x in values.items()}, plain)
        for name, values in found.items()
        if name
        for i, weight in enumerate(WEIGHTS)
    ]
    lines = [f"| {' | '.join(header)} |", f"|{'---|' * len(header)}", *rows]
    return [f"## {data.title}, {epochs} epochs", "\n".join(lines)]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="few seeds and epochs")
    parser.add_argument("--seeds", type=int, default=20)
    args = parser.parse_args()
    seeds, epochs = (2, 10) if args.quick else (args.seeds, 60)
    folder = ROOT / ("build/benchmarks" if args.quick else "benchmarks")
    folder.mkdir(parents=True, exist_ok=True)
    parts = [_TEXT.format(block=_BLOCK, seeds=seeds)]
    for data in DATA:
        parts += section(data, seeds, epochs)
    (folder / "PENALTIES.md").write_text("\n\n".join(parts) + "\n")
    print(f"\n{folder / 'PENALTIES.md'}")


if __name__ == "__main__":
    main()
