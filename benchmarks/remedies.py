"""A penalty beside other losses, early stopping, temperatures: ``python -m benchmarks.remedies``.

    python -m benchmarks.remedies          # some minutes on two CPU cores; writes REMEDIES.md
    python -m benchmarks.remedies --quick  # few seeds and epochs, into build/benchmarks/

The networks are those of `examples/train_digits.py`, trained until they know the training data by
heart, or stopped at their best.  Each is judged as it is, and behind a temperature that is fitted
to rows which neither trained nor judge it; the same rows say when to stop.  The data are
scikit-learn's digits and simulated ones of ten classes, of which a fifth of the labels are noise.
It needs ``pip install -e '.[examples]'``.
"""

import argparse
import sys
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from sklearn.datasets import make_classification

import calibjax as cj
from benchmarks.harness import ROOT

sys.path.insert(0, str(ROOT / "examples"))

import train_digits
from _common import init_mlp, mean_and_error, mlp, over_grid, train

N_TRAIN, N_FIT, N_JUDGE = 1000, 397, 400
SHOWN = {"accuracy": 3, "NLL": 3, "1000 unbiased SKCE": 2}

_TEXT = """\
# A penalty beside other losses, early stopping and temperatures

Made by `python -m benchmarks.remedies`. The networks of `examples/train_digits.py` (one hidden
layer of 128 units, 1000 rows, batches of 64, Adam at 0.003, {epochs} epochs) with a biased penalty
of some weight, labels smoothed by some share, the focal loss, the MMCE times a weight, the Brier
score in place of the log loss, or with none of these. "Stopped" is the best of 10, 20, … {epochs}
epochs. Each network is evaluated on {judge} held-out rows, without and with a fitted temperature.
Temperature and number of epochs minimise the log loss of {fit} other rows; without these remedies,
these rows could be used for training. Means over {seeds} seeds ± standard errors; each seed has its
own data or split. Below the first row of a table, values are differences from that row, paired by
seed."""


def simulated(key: jax.Array) -> Any:
    """Ten classes of two clusters each in 64 dimensions; a fifth of all labels are drawn anew."""
    seed = np.asarray(jax.random.key_data(key))[-1] % 2**31
    x, y = make_classification(
        n_samples=N_TRAIN + N_FIT + N_JUDGE,
        n_features=64,
        n_informative=16,
        n_redundant=0,
        n_classes=10,
        n_clusters_per_class=2,
        class_sep=2.0,
        flip_y=0.2,
        random_state=int(seed),
    )
    data = jnp.asarray(x, jnp.float32) / 3, jnp.asarray(y, jnp.int32)
    return jax.tree.map(lambda x: x[:N_TRAIN], data), jax.tree.map(lambda x: x[N_TRAIN:], data)


def digits(key: jax.Array) -> Any:
    return train_digits.load(key, 0.4)


DATA: dict[str, Callable[[jax.Array], Any]] = {
    "Digits with 40 % of their pixels": digits,
    "Simulated classes": simulated,
}


def penalised(params: Any, x: jax.Array, y: jax.Array, weight: jax.Array) -> jax.Array:
    logits = mlp(params, x)
    nll = optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()
    predictions = cj.Categorical.from_logits(logits)
    return nll + weight * cj.skce(train_digits.KERNEL, predictions, y, unbiased=False)


def smoothed(params: Any, x: jax.Array, y: jax.Array, share: jax.Array) -> jax.Array:
    labels = optax.smooth_labels(jax.nn.one_hot(y, train_digits.N_CLASSES), share)
    return optax.softmax_cross_entropy(mlp(params, x), labels).mean()


def focal(params: Any, x: jax.Array, y: jax.Array, gamma: jax.Array) -> jax.Array:
    nll = optax.softmax_cross_entropy_with_integer_labels(mlp(params, x), y)
    return jnp.mean((-jnp.expm1(-nll)) ** gamma * nll)


def with_mmce(params: Any, x: jax.Array, y: jax.Array, weight: jax.Array) -> jax.Array:
    predictions = cj.Categorical.from_logits(mlp(params, x))
    return cj.log_score(predictions, y).mean() + weight * cj.mmce(predictions, y)


def brier(params: Any, x: jax.Array, y: jax.Array, weight: jax.Array) -> jax.Array:
    residuals = jax.nn.softmax(mlp(params, x)) - jax.nn.one_hot(y, train_digits.N_CLASSES)
    return weight * jnp.mean(jnp.sum(residuals**2, axis=1))


#: How each remedy is called, its loss, and its strengths; of the first loss 0 is no remedy.
TRIALS: dict[str, tuple[Callable[..., jax.Array], list[float]]] = {
    "penalty {:g}": (penalised, [0.0, 10.0, 30.0, 100.0]),
    "smoothing {:g}": (smoothed, [0.05, 0.1, 0.2]),
    "focal loss, exponent {:g}": (focal, [1.0, 2.0, 4.0]),
    "MMCE {:g}": (with_mmce, [1.0, 4.0, 16.0]),
    "Brier score": (brier, [1.0]),
}


def judged(params: Any, x: jax.Array, y: jax.Array) -> tuple[Any, ...]:
    """The numbers of the rows that judge, as they are and behind a temperature; the other NLL."""
    predictions = cj.Categorical.from_logits(mlp(params, x))
    temperature = cj.fit_temperature(predictions[:N_FIT], y[:N_FIT])
    rest, targets = predictions[N_FIT:], y[N_FIT:]

    def numbers(p: cj.Categorical) -> dict[str, jax.Array]:
        hits = jnp.argmax(p.label_probabilities(), axis=1) == targets
        error = 1000 * cj.skce(train_digits.KERNEL, p, targets)
        return dict(zip(SHOWN, (hits.mean(), cj.log_score(p, targets).mean(), error), strict=True))

    validation = cj.log_score(predictions[:N_FIT], y[:N_FIT]).mean()
    return numbers(rest), numbers(cj.apply_temperature(rest, temperature)), validation


def measure(
    load: Callable[[jax.Array], Any], seeds: int, epochs: int
) -> dict[str, dict[str, np.ndarray]]:
    """For each remedy its numbers, ``[seeds]``."""
    keys = jax.random.split(jax.random.key(0), (3, seeds))
    parts = [load(key) for key in keys[0]]
    training, held_out = jax.tree.map(lambda *x: jnp.stack(x), *parts)
    sizes = training[0].shape[-1], 128, train_digits.N_CLASSES
    params = jax.vmap(lambda key: init_mlp(key, sizes))(keys[1])
    judge = over_grid(judged, (0, None, None), (0, 0, 0))

    def tried(loss: Callable[..., jax.Array], strengths: list[float], epochs: int) -> Any:
        trained = train(
            *(loss, optax.adam(3e-3), params, training, jnp.asarray(strengths), keys[2]),
            epochs=epochs,
            batch_size=64,
        )
        return jax.tree.map(np.asarray, judge(trained, *held_out))

    found: dict[str, dict[str, np.ndarray]] = {}

    def keep(names: list[str], as_it_is: Any, tempered: Any) -> None:
        for values, behind in ((as_it_is, ""), (tempered, "temperature")):
            for i, name in enumerate(names):
                title = " and ".join(filter(None, [name, behind])) or "nothing"
                found[title] = {key: x[i] for key, x in values.items()}

    for form, (loss, strengths) in TRIALS.items():
        names = [form.format(strength) if strength else "" for strength in strengths]
        keep(names, *tried(loss, strengths, epochs)[:2])
    lengths = [tried(penalised, [0.0, 30.0], length) for length in range(10, epochs + 1, 10)]
    *values, validation = jax.tree.map(lambda *x: np.stack(x), *lengths)
    best = np.argmin(validation, axis=0)[None]
    chosen = jax.tree.map(lambda x: np.take_along_axis(x, best, axis=0)[0], values)
    keep(["stopped", "penalty 30 and stopped"], *chosen)
    return found


def row(name: str, values: Mapping[str, np.ndarray], plain: Mapping[str, np.ndarray]) -> str:
    """A line of the table: the numbers of the first remedy, or what another one changes."""
    cells, is_change = [name], values is not plain
    for key, digits in SHOWN.items():
        mean, error = mean_and_error(values[key] - plain[key] if is_change else values[key])
        cells.append(f"{mean:{'+' if is_change else ''}.{digits}f} ± {error:.{digits}f}")
    return f"| {' | '.join(cells)} |"


def best_pairs(found: Mapping[str, Mapping[str, np.ndarray]]) -> str:
    """How the best single remedy and the best pair compare, on the same seeds."""
    singles = [name for name in found if " and " not in name]
    pairs = [name for name in found if name.count(" and ") == 1]
    single, pair = (min(names, key=lambda x: found[x]["NLL"].mean()) for names in (singles, pairs))
    gains = found[single]["NLL"] - found[pair]["NLL"]
    mean, error = mean_and_error(gains)
    return (
        f"Lowest NLL of one remedy: {single}; of two: {pair}. The latter is lower by "
        f"{mean:.3f} ± {error:.3f}, in {np.sum(gains > 0)} of {len(gains)} seeds."
    )


def section(title: str, load: Callable[[jax.Array], Any], seeds: int, epochs: int) -> list[str]:
    found = measure(load, seeds, epochs)
    plain = found["nothing"]
    header = [f"| remedy | {' | '.join(SHOWN)} |", "|---|" + "---|" * len(SHOWN)]
    rows = [row(name, values, plain) for name, values in found.items()]
    return [f"## {title}", "\n".join(header + rows), best_pairs(found)]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="few seeds and epochs")
    parser.add_argument("--seeds", type=int, default=12)
    args = parser.parse_args()
    seeds, epochs = (2, 10) if args.quick else (args.seeds, 60)
    folder = ROOT / ("build/benchmarks" if args.quick else "benchmarks")
    folder.mkdir(parents=True, exist_ok=True)
    parts = [_TEXT.format(seeds=seeds, epochs=epochs, judge=N_JUDGE, fit=N_FIT)]
    for title, load in DATA.items():
        parts += section(title, load, seeds, epochs)
    (folder / "REMEDIES.md").write_text("\n\n".join(parts) + "\n")
    print(f"\n{folder / 'REMEDIES.md'}")


if __name__ == "__main__":
    main()
