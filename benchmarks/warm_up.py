"""A penalty from the start, or one that grows: ``python -m benchmarks.warm_up``.

    python -m benchmarks.warm_up          # some three minutes; writes WARM_UP.md
    python -m benchmarks.warm_up --quick  # few seeds and epochs, into build/benchmarks/

It trains the networks of `examples/train_digits.py` for some lengths of the training, and needs
``pip install -e '.[examples]'``.
"""

import argparse
import sys
from collections.abc import Mapping

import numpy as np

from benchmarks.harness import ROOT

sys.path.insert(0, str(ROOT / "examples"))

from _common import mean_and_error
from train_digits import measure

WEIGHTS = [0.0, 10.0, 30.0, 100.0]
#: Epochs and learning rate, and what they make of a network without a penalty.
LENGTHS = {
    (20, 1e-3): "underfits",
    (20, 3e-3): "is near its best",
    (60, 1e-3): "is near its best",
    (60, 3e-3): "overfits",
}
#: Fractions of the steps during which the weight grows from 0.
WARM_UPS = {0.0: "from the start", 0.5: "grows over the first half"}
SHOWN = {"accuracy": 3, "NLL": 3, "1000 unbiased SKCE": 2}


def cell(values: np.ndarray, digits: int, signed: bool = True) -> str:
    mean, error = mean_and_error(values)
    return f"{mean:{'+' if signed else ''}.{digits}f} ± {error:.{digits}f}"


def rows(metrics: Mapping[str, np.ndarray], schedule: str) -> list[str]:
    """What each weight changes against none, paired over seeds."""
    changes = {name: metrics[name] - metrics[name][:1] for name in SHOWN}
    return [
        f"| {weight:g}, {schedule} | "
        + " | ".join(cell(changes[name][i], digits) for name, digits in SHOWN.items())
        + " |"
        for i, weight in enumerate(WEIGHTS)
        if weight
    ]


def section(epochs: int, learning_rate: float, state: str, seeds: int) -> list[str]:
    found = [
        (schedule, measure(WEIGHTS, seeds, epochs, learning_rate=learning_rate, warm_up=fraction))
        for fraction, schedule in WARM_UPS.items()
    ]
    plain = {name: values[0] for name, values in found[0][1].items()}
    values = [cell(plain[name], digits, signed=False) for name, digits in SHOWN.items()]
    return [
        f"## {epochs} epochs, learning rate {learning_rate:g}: the network {state}",
        "",
        f"| weight | {' | '.join(SHOWN)} |",
        "|---|" + "---|" * len(SHOWN),
        f"| none | {' | '.join(values)} |",
        *(row for schedule, metrics in found for row in rows(metrics, schedule)),
        "",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="few seeds and epochs")
    quick = parser.parse_args().quick
    lengths = {(10, 3e-3): "is young"} if quick else LENGTHS
    seeds = 2 if quick else 10
    lines = [
        "# Constant or growing weight of a penalty",
        "",
        "Made by `python -m benchmarks.warm_up`. Networks of `examples/train_digits.py` (1000 "
        "digits with 40 % of their pixels, batches of 64, Adam, biased penalty) with the penalty "
        "at its full weight from the start, or at a weight that grows linearly from 0 during the "
        f"first half of all steps. Values are means ± standard errors over {seeds} seeds, on 797 "
        "held-out images. The first row of each table has values, the other rows differences "
        "from it, paired by seed: all start from the same parameters and use the same batches.",
        "",
    ]
    for (epochs, learning_rate), state in lengths.items():
        lines += section(epochs, learning_rate, state, seeds)
    folder = ROOT / "build" / "benchmarks" if quick else ROOT / "benchmarks"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "WARM_UP.md"
    path.write_text("\n".join(lines[:-1]) + "\n")
    print(path)


if __name__ == "__main__":
    main()
