"""Error, variance and time of four estimators of the SKCE, whose true value is known.

    python iclr2021_estimates.py [--quick] [--figures FOLDER]

ICLR 2021, Appendix A.2, Figures 6 to 9.  `_gaussian.py` has the two models, `_kernel.py`
the kernel.

The truth of the second model, in the paper a mean of many estimates, is an integral here.  All
targets and draws from predictions have standard deviation 0.1, so that any two of them differ by a
normal variable of variance 2 0.1^2 in each coordinate; with b = 1 + 2 0.1^2 and
g(t) = exp(-t^2 / (2 b)),

    SKCE = b^(-d/2) E e^(-sqrt(d) |c - c'|) g(c - c')^(d-1)
                      (1 - g(c - 0.1) - g(c' - 0.1) + g(c - c')).

Times are the least of a compiled function on one data set.
"""

import functools
import math

import jax
import numpy as np
from _comparison import of_mean, of_variance, report
from _experiment import (
    BLUE,
    GREEN,
    ORANGE,
    RED,
    arguments,
    legend_below,
    panels,
    print_seconds,
    progress,
    save,
    seconds,
)
from _gaussian import SCALE, WRONG_MEAN, sample
from _kernel import KERNEL
from published import iclr2021_estimates as published

import calibjax as cj

# Estimates of calibrated models are around 1e-5 at n = 1024.
jax.config.update("jax_enable_x64", True)

STYLES = {
    published.BIASED: {"color": RED, "marker": "s", "linestyle": "--"},
    published.BLOCKS_2: {"color": ORANGE, "marker": "^", "linestyle": ":"},
    published.BLOCKS_SQRT: {"color": GREEN, "marker": "D", "linestyle": "-."},
    published.UNBIASED: {"color": BLUE, "marker": "o", "linestyle": "-"},
}


def estimators(n):
    skce = functools.partial(cj.skce, KERNEL)
    return {
        published.BIASED: functools.partial(skce, unbiased=False),
        published.BLOCKS_2: functools.partial(skce, block_size=2),
        published.BLOCKS_SQRT: functools.partial(skce, block_size=max(2, math.isqrt(n))),
        published.UNBIASED: skce,
    }


def exact(d, calibrated):
    """SKCE, and the mean of the terms h((p, y), (p, y)) of the biased estimator."""
    b = 1 + 2 * SCALE**2
    if calibrated:
        return 0.0, 1 - b ** (-d / 2)

    def g(t):
        return np.exp(-(t**2) / (2 * b))

    nodes, weights = np.polynomial.legendre.leggauss(50)
    nodes, weights = (nodes + 1) / 2, weights / 2
    # Twice over c' < c, where the integrand is smooth.
    c, other = nodes[:, None], nodes[:, None] * nodes
    gap = np.exp(-math.sqrt(d) * (c - other)) * g(c - other) ** (d - 1)
    terms = gap * (1 - g(c - WRONG_MEAN) - g(other - WRONG_MEAN) + g(c - other))
    skce = 2 * b ** (-d / 2) * np.sum(weights[:, None] * weights * nodes[:, None] * terms)
    diagonal = 1 + b ** (-d / 2) * (1 - 2 * np.sum(weights * g(nodes - WRONG_MEAN)))
    return skce, diagonal


@functools.partial(jax.jit, static_argnames=("n", "d"))
def estimate(keys, calibrated, n, d):
    """Estimates ``[N]`` of each estimator."""

    def of_data(key):
        data = sample(key, n, d, calibrated)
        return {name: estimator(*data) for name, estimator in estimators(n).items()}

    return jax.lax.map(of_data, keys)


def plot(folder, calibrated, d, errors, variances, times) -> None:
    figure, axes = panels(2, 2, sharey="row")
    sizes = list(times)
    for name, style in STYLES.items():
        published_values = published.ESTIMATES[calibrated, d][name]
        for row, values, theirs in zip(axes, (errors, variances), published_values, strict=True):
            values = [values[name, n] for n in sizes]
            theirs = [theirs[published.SIZES.index(n)] for n in sizes]
            row[0].loglog(sizes, values, label=name, markersize=4, **style)
            row[0].plot(sizes, theirs, "x", color=style["color"], markersize=8)
            row[1].loglog([times[n][name] for n in sizes], values, markersize=4, **style)
    for ax in axes[:, 0]:
        ax.set_xticks(sizes, sizes)
        ax.set_xticks([], minor=True)
    axes[0, 0].plot([], [], "kx", label="published")
    axes[0, 0].set(ylabel="mean absolute error")
    axes[1, 0].set(ylabel="variance", xlabel="data set size n")
    axes[1, 1].set(xlabel="time [s]")
    which = "calibrated" if calibrated else "uncalibrated"
    figure.suptitle(f"{which} model, d = {d}")
    legend_below(figure, axes[0, 0], 5)
    save(figure, folder, f"iclr2021_estimates_{which}_{d}.png")


def main() -> None:
    args = arguments(__doc__)
    dimensions, sizes = ([1], [16]) if args.quick else ([1, 10], published.SIZES)
    comparisons = {"mean absolute error: published / ours": [], "variance: published / ours": []}
    means, all_times = [], {}
    n_sets = 4 if args.quick else published.SETS
    for d in dimensions:
        all_times[d] = {}
        for n in sizes:
            data = sample(jax.random.key(n), n, d, False)
            all_times[d][n] = {
                name: seconds(jax.jit(f), *data, at_least=0.01 if args.quick else 0.5)
                for name, f in estimators(n).items()
            }
            progress(f"times, d = {d}, n = {n}")
        for calibrated in (True, False):
            setting = f"{'calibrated' if calibrated else 'uncalibrated'}, d = {d}"
            skce, diagonal = exact(d, calibrated)
            errors, variances = {}, {}
            for n in sizes:
                i = published.SIZES.index(n)
                keys = jax.random.split(jax.random.key(1000 * d + n), n_sets)
                for name, values in estimate(keys, calibrated, n, d).items():
                    row, column, values = f"{setting}, {name}", f"n = {n}", np.asarray(values)
                    of_errors, of_variances = published.ESTIMATES[calibrated, d][name]
                    cells = (
                        of_mean(row, column, of_errors[i], published.SETS, abs(values - skce)),
                        of_variance(row, column, of_variances[i], published.SETS, values),
                    )
                    errors[name, n], variances[name, n] = (cell.ours for cell in cells)
                    for cell, table in zip(cells, comparisons.values(), strict=True):
                        table.append(cell)
                    bias = (diagonal - skce) / n if name == published.BIASED else 0.0
                    means.append(of_mean(row, column, skce + bias, math.inf, values))
                progress(f"{setting}, n = {n}")
            plot(args.figures, calibrated, d, errors, variances, all_times[d])

    print_seconds(published.SECONDS, all_times)
    report(comparisons | {"mean: exact / ours": means}, check=not args.quick)


if __name__ == "__main__":
    main()
