"""Calibration errors and p-values of networks, such as those of NeurIPS 2019 on CIFAR-10.

    python neurips2019_cifar10.py PREDICTIONS.npz [--quick] [--figures FOLDER]

The file holds one array of softmax rows ``[n, m]`` for each network, by its name, and `labels`
``[n]``, which are 0 ... m-1:

    np.savez("mine.npz", labels=labels, first=first_softmax, second=second_softmax)

The published predictions (github.com/devmotion/CalibrationPaper, experiments/data/PyTorch-CIFAR10,
n = 10 000, m = 10) are text files with labels from 1:

    def read(name): return np.loadtxt(f"{name}.csv", delimiter=",")
    names = "densenet121", "resnet18", "mobilenet_v2"
    np.savez("cifar10.npz", labels=read("labels") - 1, **{name: read(name) for name in names})

Widmann, Lindsten and Zachariah, NeurIPS 2019: the ECE by total variation in 10 uniform bins for
each class and in dynamic bins of at least 100; the SKCE with the kernel exp(-TV / nu) 1{y = y'},
nu the median total variation; distribution-free p-values, and that of the normal law of blocks of
2 in the order of the file.  Nothing here is random: networks with a published name must agree with
the published numbers to 1e-9.  Then the p-values of the resampling tests: the consistency tests of
both ECE (100 resamples, 1000 when published), and the bootstrap of the unbiased SKCE (1000).  The
published ones are all 0; ours count the observed value too, and are at least 1 / (resamples + 1).
"""

import math
import pathlib
import sys
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from _experiment import BLUE, GREEN, ORANGE, RED, arguments, panels, print_table, progress, save
from jax.scipy.special import ndtr
from jax.tree_util import Partial
from published import neurips2019_cifar10 as published
from scipy.spatial.distance import pdist

import calibjax as cj

jax.config.update("jax_enable_x64", True)

TOLERANCE = 1e-9
BINNINGS = {
    published.ECE_UNIFORM: cj.UniformBinning(10),
    published.ECE_DYNAMIC: cj.MedianVarianceBinning(100),
}


def median_total_variation(probs: np.ndarray) -> float:
    """The median of all n x n, the n zeros of the diagonal included, from those of pairs."""
    n = len(probs)
    middle = (np.array([(n * n - 1) // 2, n * n // 2]) - n) // 2
    pairs = pdist(probs, "cityblock") / 2
    return np.partition(pairs, middle)[middle].mean()


class Network(NamedTuple):
    numbers: dict[str, float]  # by published names
    tests: dict[str, cj.CalibrationTestResult]  # by names of estimates


def evaluate(probs: np.ndarray, labels: np.ndarray, quick: bool) -> Network:
    """`quick`: few rows and resamples, and without the slower consistency tests."""
    if quick:
        probs, labels = probs[:500], labels[:500]
    n_resamples, n_ece_resamples = (20, 20) if quick else (1000, 100)
    predictions = cj.Categorical(jnp.asarray(probs, float))
    prediction_kernel = cj.DistanceKernel(cj.TotalVariation(), median_total_variation(probs))
    data = predictions, jnp.asarray(labels, int)
    skce_data = cj.TensorProduct(prediction_kernel, cj.WhiteKernel()), *data
    keys = jax.random.split(jax.random.key(0))
    tests = {
        published.UNBIASED: cj.asymptotic_skce_test(keys[0], *skce_data, n_resamples=n_resamples),
        published.BLOCKS_2: cj.asymptotic_block_skce_test(*skce_data),
    }
    for name, binning in BINNINGS.items():
        for null in ("model",) if quick else ("consistency", "model"):
            tests[kept(name) if null == "model" else name] = cj.consistency_test(
                keys[1],
                Partial(cj.ece, binning=binning),
                *data,
                n_resamples=n_ece_resamples,
                null=null,
            )

    biased, unbiased, blocks_2 = (
        cj.distribution_free_skce_test(*skce_data, **options)
        for options in ({"unbiased": False}, {}, {"block_size": 2})
    )
    # As published, with the standard deviation of ddof = 0.
    n_blocks = len(labels) // 2
    z = tests[published.BLOCKS_2].statistic * math.sqrt(n_blocks / (n_blocks - 1))
    numbers = {
        published.ECE_UNIFORM: tests[kept(published.ECE_UNIFORM)].estimate,
        published.ECE_DYNAMIC: tests[kept(published.ECE_DYNAMIC)].estimate,
        published.BIASED: biased.estimate,
        published.UNBIASED: unbiased.estimate,
        published.BLOCKS_2: blocks_2.estimate,
        published.P_BIASED: biased.pvalue,
        published.P_UNBIASED: unbiased.pvalue,
        published.P_BLOCKS_2: blocks_2.pvalue,
        published.P_NORMAL: ndtr(-z),
    }
    return Network({name: float(number) for name, number in numbers.items()}, tests)


def kept(name: str) -> str:
    """Of the consistency test that resamples the labels alone."""
    return f"{name}, predictions kept"


def print_numbers(networks: dict[str, Network], check: bool) -> None:
    """A table of what is not random; if `check`, large differences are errors."""
    largest, rows = 0.0, []
    for network, (numbers, _) in networks.items():
        for name, ours in numbers.items():
            theirs = published.NUMBERS.get(network, {}).get(name)
            if theirs is None:
                texts = "", ""
            elif name == published.P_BLOCKS_2 and numbers[published.BLOCKS_2] < 0:
                # The bound holds for positive estimates; they squared all.
                texts = f"{theirs:.6g}", "negative estimate"
            else:
                difference = ours / theirs - 1
                largest = max(largest, abs(difference))
                texts = f"{theirs:.6g}", f"{difference:+.0e}"
            rows.append([network, name, texts[0], f"{ours:.6g}", texts[1]])
    print_table(["network", "number", "published", "ours", "relative difference"], rows)
    print(f"\nLargest relative difference: {largest:.0e}.")
    if check and largest > TOLERANCE:
        sys.exit(f"A number differs by more than {TOLERANCE} of it.")


def print_pvalues(networks: dict[str, Network]) -> None:
    tests = next(iter(networks.values())).tests
    names = [name for name in tests if name != published.BLOCKS_2]
    print_table(
        ["p-value by resampling, ours", *names],
        [
            [network, *(f"{tests[name].pvalue:.4f}" for name in names)]
            for network, (_, tests) in networks.items()
        ],
    )
    skce = published.UNBIASED, published.BLOCKS_2
    print_table(
        ["10 000 times the estimate ± standard error, ours", *skce],
        [
            [
                network,
                *(
                    f"{1e4 * tests[x].estimate:.3g} ± {1e4 * tests[x].standard_error:.2g}"
                    for x in skce
                ),
            ]
            for network, (_, tests) in networks.items()
        ],
    )


def plot(networks: dict[str, Network], folder: pathlib.Path) -> None:
    """All networks, published and ours, in the order of their unbiased SKCE."""
    ours = {name: network.numbers for name, network in networks.items()}
    all_numbers = published.NUMBERS | ours
    order = sorted(all_numbers, key=lambda name: all_numbers[name][published.UNBIASED])
    figure, axes = panels(1, 2, (4.6, 1.8 + 0.25 * len(order)), sharey=True)
    ece_ax, skce_ax = axes[0]

    def draw_points(ax, name, scale, color, marker):
        for numbers, style in (
            (published.NUMBERS, {"label": f"{name}, published"}),
            (ours, {"label": f"{name}, ours", "fillstyle": "none", "markersize": 11}),
        ):
            values = [scale * numbers[network][name] for network in numbers]
            heights = [order.index(network) for network in numbers]
            ax.plot(values, heights, marker, color=color, **style)

    for name, color, marker in (
        (published.ECE_UNIFORM, RED, "s"),
        (published.ECE_DYNAMIC, GREEN, "o"),
    ):
        draw_points(ece_ax, name, 1, color, marker)
        draws = [network.tests[kept(name)].null_distribution for network in networks.values()]
        low, high = np.quantile(draws, [0.025, 0.975], axis=1)
        heights = [order.index(network) for network in networks]
        label = f"{name}, 95 % if calibrated"
        ece_ax.hlines(heights, low, high, color=color, linewidth=8, alpha=0.4, label=label)

    for name, color, marker in (
        (published.UNBIASED, BLUE, "o"),
        (published.BLOCKS_2, ORANGE, "D"),
    ):
        draw_points(skce_ax, name, 1e4, color, marker)
        for network, (numbers, tests) in networks.items():
            error = 2e4 * tests[name].standard_error
            height = order.index(network)
            skce_ax.errorbar(1e4 * numbers[name], height, xerr=error, color=color, capsize=4)

    skce_ax.axvline(0, color="0.5")
    ece_ax.set_yticks(range(len(order)), order)
    ece_ax.set_xlim(left=0)
    ece_ax.set_xlabel("ECE")
    skce_ax.set_xlabel("SKCE x 10 000, ours ± 2 standard errors")
    for ax in axes[0]:
        ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), fontsize="small")
    save(figure, folder, "neurips2019_cifar10.png")


def main() -> None:
    args = arguments(__doc__, predictions="an npz file of softmax rows and labels")
    with np.load(args.predictions) as data:
        arrays = {name: data[name] for name in data.files}
    labels = arrays.pop("labels")
    networks = {}
    for name, probs in arrays.items():
        networks[name] = evaluate(probs, labels, args.quick)
        progress(name)
    print_numbers(networks, check=not args.quick)
    print_pvalues(networks)
    plot(networks, args.figures)


if __name__ == "__main__":
    main()
