"""Error rates and times of four calibration tests, beside the published ones.

    python iclr2021_tests.py [--quick] [--figures FOLDER]

ICLR 2021, Appendix A.2, Figures 2, 10 and 11, at level 0.05.  `_gaussian.py` has the calibrated
model, whose rejection is an error of type I, and the other one; `_kernel.py` has the kernel.

The CME rates of the paper are those of one draw of the 10 locations, ours of several.  The few data
sets whose covariance at the locations is singular even in double precision have no p-value and do
not count.
"""

import functools
import math

import jax
import numpy as np
from _comparison import errors_at, of_rate, report
from _experiment import (
    BLACK,
    BLUE,
    GREEN,
    ORANGE,
    PINK,
    arguments,
    legend_below,
    panels,
    print_seconds,
    progress,
    save,
    seconds,
)
from _gaussian import SCALE, normal, sample
from _kernel import KERNEL
from published import iclr2021_tests as published

import calibjax as cj

# Deviations at ten locations are almost linearly dependent: in single precision many more
# covariances would be singular.
jax.config.update("jax_enable_x64", True)

N_LOCATIONS = 10
STYLES = {
    published.BLOCKS_2: {"color": ORANGE, "marker": "^", "linestyle": ":"},
    published.BLOCKS_SQRT: {"color": GREEN, "marker": "D", "linestyle": "-."},
    published.BOOTSTRAP: {"color": BLUE, "marker": "o", "linestyle": "-"},
    published.CME: {"color": PINK, "marker": "s", "linestyle": "--"},
}


def sample_locations(key, d):
    keys = jax.random.split(key)
    predictions = normal(jax.random.uniform(keys[0], (N_LOCATIONS, d)))
    return predictions, SCALE * jax.random.normal(keys[1], (N_LOCATIONS, d))


def tests(n):
    """Functions of a key, predictions, targets and locations."""

    def blocks(size):
        return lambda key, p, y, _: cj.asymptotic_block_skce_test(KERNEL, p, y, block_size=size)

    every = {
        published.BLOCKS_2: blocks(2),
        published.BLOCKS_SQRT: blocks(math.isqrt(n)),
        published.BOOTSTRAP: lambda key, p, y, _: cj.asymptotic_skce_test(key, KERNEL, p, y),
    }
    if n > N_LOCATIONS:
        every[published.CME] = lambda key, p, y, z: cj.asymptotic_cme_test(KERNEL, p, y, *z)
    return every


@functools.partial(jax.jit, static_argnames=("n", "d"))
def pvalues(location_keys, keys, calibrated, n, d):
    """P-values ``[L, N]`` of each test, with L draws of locations and N data sets for each."""

    def of_locations(keys):
        location_key, data_keys = keys
        locations = sample_locations(location_key, d)

        def of_data(key):
            keys = jax.random.split(key)
            data = sample(keys[0], n, d, calibrated)
            return {name: test(keys[1], *data, locations).pvalue for name, test in tests(n).items()}

        return jax.lax.map(of_data, data_keys)

    return jax.lax.map(of_locations, (location_keys, keys))


def plot(folder, d, rates, times) -> None:
    figure, axes = panels(2, 2, sharey="row")
    for name, style in STYLES.items():
        for row, type_of_error in zip(axes, rates, strict=True):
            values = rates[type_of_error][name]
            row[0].plot(values.keys(), values.values(), label=name, markersize=4, **style)
            theirs = published.RATES[d][name][type_of_error == "type II"]
            theirs = [theirs[published.SIZES.index(n)] for n in values]
            row[0].plot(values.keys(), theirs, "x", color=style["color"], markersize=8)
            seconds_of = [times[n][name] for n in values]
            row[1].plot(seconds_of, values.values(), markersize=4, **style)
            row[0].set(ylabel=f"rate of {type_of_error} errors", ylim=(-0.03, 1.03))
    for ax in axes.flat:
        ax.set_xscale("log")
        ax.axhline(published.LEVEL, color=BLACK, linewidth=0.8, linestyle=(0, (1, 1)))
    for ax in axes[:, 0]:
        ax.set_xticks(list(times), list(times))
        ax.set_xticks([], minor=True)
    axes[1, 0].set(xlabel="data set size n")
    axes[1, 1].set(xlabel="time [s]")
    figure.suptitle(f"d = {d}, level {published.LEVEL} dotted")
    axes[0, 0].plot([], [], "kx", label="published")
    legend_below(figure, axes[0, 0], 3)
    save(figure, folder, f"iclr2021_tests_{d}.png")


def main() -> None:
    args = arguments(__doc__)
    dimensions, sizes = ([1], [16]) if args.quick else (published.RATES, published.SIZES)
    comparisons, all_times = [], {}
    for d in dimensions:
        data_key, location_key, time_key = jax.random.split(jax.random.key(d), 3)
        rates = {kind: {name: {} for name in STYLES} for kind in ("type I", "type II")}
        all_times[d] = {}
        for n in sizes:
            locations = sample_locations(time_key, d)
            data = jax.random.key(0), *sample(time_key, n, d, True), locations
            all_times[d][n] = {
                name: seconds(jax.jit(test), *data, at_least=0.01 if args.quick else 1.0)
                for name, test in tests(n).items()
            }
            progress(f"times, d = {d}, n = {n}")
            # Of locations, and of data sets for each; at least as many as published.
            n_draws, n_sets = (2, 2) if args.quick else (20, 100 if n < 1024 else 25)
            location_keys = jax.random.split(location_key, n_draws)
            keys = jax.random.split(jax.random.fold_in(data_key, n), (n_draws, n_sets))
            for calibrated, (kind, of_kind) in zip((True, False), rates.items(), strict=True):
                values = pvalues(location_keys, keys, calibrated, n, d)
                for test, of_test in values.items():
                    errors = errors_at(published.LEVEL, np.asarray(of_test), calibrated)
                    if test != published.CME:
                        errors = errors.reshape(1, -1)
                    rate = published.RATES[d][test][not calibrated][published.SIZES.index(n)]
                    row = f"d = {d}, {kind}, {test}"
                    cell = of_rate(row, f"n = {n}", rate, published.SETS, errors)
                    comparisons.append(cell)
                    of_kind[test][n] = cell.ours
                progress(f"d = {d}, {kind}, n = {n}")
        plot(args.figures, d, rates, all_times[d])

    print_seconds(published.SECONDS, all_times)
    report({"rate of errors: published / ours": comparisons}, check=not args.quick)


if __name__ == "__main__":
    main()
