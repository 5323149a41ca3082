"""Estimates of calibration errors whose true values are known, published and ours.

    python neurips2019_estimates.py [--quick] [--figures FOLDER]

NeurIPS 2019, the synthetic experiments of the main text and of the supplement; `_dirichlet.py` has
the models.  The ECE takes total variation (TV) and 10 uniform bins a class, or dynamic bins: sets
halved at medians into bins of 5 or more.  The SKCE takes the kernel exp(-TV / nu) 1{y = y'}, where
nu is the mean TV of two predictions, or the median of all n x n of the data set.

Tables: the analytic ECE beside what its estimates are on average, which is something else: of a
calibrated model it is 0, and the estimates 0.03 to 0.99; elsewhere they can be too small as well.
Then means known in closed form, and the published ones.  All cells of one alpha and m come from the
same predictions: each is right, but they are not independent.

Figures: histograms of the estimates for alpha = 0.1 and labels of the first class, with the median.
The true SKCE is pi^2 times that at pi = 1, for which the mean of the unbiased estimate stands.
"""

import functools
import itertools
import math
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
from _comparison import Comparison, of_mean, report
from _dirichlet import (
    SIZE,
    kernel,
    median_total_variation,
    sample_labels,
    sample_predictions,
)
from _experiment import BLUE, ORANGE, arguments, legend_below, panels, print_table, progress, save
from published import FIRST, UNIFORM
from published import neurips2019_estimates as published
from published.neurips2019_estimates import MEAN_KERNEL, MEDIAN_KERNEL, MIXTURES
from scipy.special import betaln, xlogy

import calibjax as cj

LAWS = list(itertools.product((FIRST, UNIFORM), MIXTURES))
LINEAR = f"{published.UNBIASED} of blocks of 2"
BINNINGS = {
    published.ECE_UNIFORM: cj.UniformBinning(10),
    published.ECE_DYNAMIC: cj.MedianVarianceBinning(5),
}
SHOWN = 0.0, 0.5, 1.0  # pi, where there is no room for all

# Estimates ``[N, laws]`` of N data sets, by name; by m and alpha.
Estimates = dict[str, np.ndarray]
Results = dict[tuple[int, float], Estimates]


def mean_total_variation(m: int, alpha: float) -> float:
    """Of two independent draws from the symmetric Dirichlet distribution."""
    rest = (m - 1) * alpha
    log = betaln(m * alpha, m * alpha) - betaln(alpha, alpha) - betaln(rest, rest)
    return 2 / alpha * math.exp(log)


def analytic_ece(m: int, alpha: float, beta: str) -> float:
    """At pi = 1, the mean total variation of g and beta; otherwise pi times that."""
    if beta == FIRST:
        return (m - 1) / m
    log = alpha * (xlogy(m - 1, m - 1) - xlogy(m, m)) - betaln(alpha, (m - 1) * alpha)
    return math.exp(log) / alpha


@functools.partial(jax.jit, static_argnames="m")
def estimates(keys, alpha, mean, m) -> Estimates:
    """All estimates of data sets of m classes, `mean` being the mean total variation."""

    def of_data(key):
        keys = jax.random.split(key)
        predictions = sample_predictions(keys[0], alpha, m)
        labels = sample_labels(keys[1], predictions, LAWS)
        lengthscales = jnp.stack([mean, median_total_variation(predictions)])

        def of_kernel(lengthscale, labels):
            data = kernel(lengthscale), predictions, labels
            return {
                published.UNBIASED: cj.skce(*data),
                published.BIASED: cj.skce(*data, unbiased=False),
                LINEAR: cj.skce(*data, block_size=2),
            }

        def of_labels(labels):
            by_kernel = jax.vmap(of_kernel, (0, None))(lengthscales, labels)
            values = {
                f"{name}, {which}": both[i]
                for name, both in by_kernel.items()
                for i, which in enumerate([MEAN_KERNEL, MEDIAN_KERNEL])
            }
            for name, binning in BINNINGS.items():
                values[name] = cj.ece(predictions, labels, binning=binning)
            return values

        return jax.vmap(of_labels)(labels)

    return jax.lax.map(of_data, keys)


def select(values: Estimates, name: str, beta: str, pi: float) -> np.ndarray:
    """One estimate ``[N]`` in one setting."""
    return values[name][:, LAWS.index((beta, pi))]


def with_published(ours: Results) -> Iterator[Comparison]:
    for (name, alpha, beta), means in published.MEANS.items():
        for m, row in means.items():
            for pi, mean in zip(MIXTURES, row, strict=True):
                if (m, alpha) in ours and mean is not None:
                    setting = f"{name}, alpha = {alpha:g}, {beta}, m = {m}"
                    values = select(ours[m, alpha], name, beta, pi)
                    yield of_mean(setting, f"pi = {pi:g}", mean, published.N_SETS, values)


def with_exact(ours: Results) -> Iterator[Comparison]:
    names = published.UNBIASED, published.BIASED, LINEAR
    unbiased, biased, linear = (f"{name}, {MEAN_KERNEL}" for name in names)
    for (m, alpha), values in ours.items():
        exact = {
            # Only the diagonal is left of calibrated predictions: E(1 - |g|^2) / n, any kernel.
            (biased, FIRST, 0.0): (1 - (alpha + 1) / (m * alpha + 1)) / SIZE,
            (unbiased, FIRST, 0.0): 0.0,
            (linear, FIRST, 0.0): 0.0,
            # Where all labels are of one class, bins do not matter.
            (published.ECE_UNIFORM, FIRST, 1.0): (m - 1) / m,
        }
        if (m, alpha) == (2, 1):
            # Integrals over two independent uniform variables, with nu = 1/3.
            for name in (unbiased, linear):
                exact[name, FIRST, 1.0] = (22 - 16 * math.exp(-3)) / 81
                exact[name, UNIFORM, 1.0] = (4 - 25 * math.exp(-3)) / 81
        for (name, beta, pi), value in exact.items():
            row = f"{name}, {beta}, pi = {pi:g}, alpha = {alpha:g}"
            yield of_mean(row, f"m = {m}", value, math.inf, select(values, name, beta, pi))


def print_analytic_ece(ours: Results) -> None:
    rows = []
    for ((m, alpha), values), beta in itertools.product(ours.items(), (FIRST, UNIFORM)):
        cells = []
        for pi in SHOWN:
            estimated = (select(values, name, beta, pi).mean() for name in BINNINGS)
            numbers = pi * analytic_ece(m, alpha, beta), *estimated
            cells.append(" / ".join(f"{number:.3f}" for number in numbers))
        rows.append([f"alpha = {alpha:g}, {beta}, m = {m}", *cells])
    header = "analytic ECE / mean of ours, uniform / dynamic bins"
    print_table([header, *(f"pi = {pi:g}" for pi in SHOWN)], rows)


def plot(folder, file, names, ours: Results, truth, label, sharex=False) -> None:
    """Histograms of one or two estimates, with their means and `truth(m, pi)`, called `label`."""
    ours = {m: values for (m, alpha), values in ours.items() if alpha == 0.1 and m <= 100}
    figure, axes = panels(len(ours), len(SHOWN), size=(3.2, 2.3), sharex=sharex)
    # Of the histogram, the width of the line of the mean: two means may coincide.
    styles = (
        ({"histtype": "stepfilled", "color": BLUE, "alpha": 0.35}, 2.4),
        ({"histtype": "step", "color": ORANGE, "linewidth": 1.3}, 1.2),
    )
    for ax, (m, pi) in zip(axes.flat, itertools.product(ours, SHOWN), strict=True):
        drawn = [select(ours[m], name, FIRST, pi) for name in names]
        bins = np.histogram_bin_edges(np.concatenate(drawn), 30)
        for name, values, (style, width) in zip(names, drawn, styles, strict=False):
            ax.hist(values, bins, label=name, **style)
            ax.axvline(values.mean(), color=style["color"], linewidth=width, label="its mean")
        ax.axvline(truth(m, pi), color="black", linewidth=1.2, linestyle="--", label=label)
        ax.set_title(f"m = {m}, pi = {pi:g}")
        ax.locator_params(axis="x", nbins=4)
    for ax in axes[-1]:
        ax.set_xlabel("estimate")
    for ax in axes[:, 0]:
        ax.set_ylabel("data sets")
    legend_below(figure, axes[0, 0], 3)
    save(figure, folder, file)


def main() -> None:
    args = arguments(__doc__)
    # Drawing gammas takes most of the time where classes are many.
    n_sets = {2: 20} if args.quick else {2: 2000, 10: 2000, 100: 1000, 1000: 250}
    ours = {}
    for alpha, (m, n) in itertools.product(published.ALPHAS, n_sets.items()):
        keys = jax.random.split(jax.random.fold_in(jax.random.key(m), int(10 * alpha)), n)
        values = estimates(keys, alpha, mean_total_variation(m, alpha), m)
        ours[m, alpha] = {name: np.asarray(x) for name, x in values.items()}
        progress(f"alpha = {alpha:g}, m = {m}: {n} data sets")

    unbiased, biased, linear = (
        f"{name}, {MEDIAN_KERNEL}" for name in (published.UNBIASED, published.BIASED, LINEAR)
    )

    def ece(m, pi):
        return pi * analytic_ece(m, 0.1, FIRST)

    def skce(m, pi):
        return pi**2 * select(ours[m, 0.1], unbiased, FIRST, 1.0).mean()

    label = "pi² mean unbiased SKCE at pi = 1"
    plot(args.figures, "neurips2019_ece.png", BINNINGS, ours, ece, "analytic ECE", sharex="col")
    plot(args.figures, "neurips2019_skce.png", (unbiased, biased), ours, skce, label)
    plot(args.figures, "neurips2019_skce_blocks.png", (linear,), ours, skce, label)

    print_analytic_ece(ours)
    tables = {
        "exact / mean of ours": with_exact(ours),
        "published / mean of ours": with_published(ours),
    }
    report(tables, check=not args.quick)


if __name__ == "__main__":
    main()
