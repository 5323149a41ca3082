"""Reproduce published error rates of calibration tests in classification.

    python neurips2019_tests.py [--quick] [--figures FOLDER]

NeurIPS 2019, the p-values of the synthetic experiments; `_dirichlet.py` has the models, of 2 or 10
classes.  The tests are

- three of the SKCE, with the kernel exp(-TV / nu) 1{y = y'} and nu the median total variation in
  the data set: the bootstrap of the unbiased estimate (1000 resamples), the normal law of its
  blocks of 2, and the distribution-free bound, on 10 000 data sets as published;
- consistency tests of the ECE with 10 uniform bins for each class, and with dynamic bins of at
  least 5: 200 data sets of 200 resamples, 1000 when published.  Beside them, without published
  numbers, those that keep the predictions and resample the labels alone.

A test rejects if p is at most the level, 0.05 for errors of type II.  The p-value of the bootstrap
is k / R, as published, where k of R resamples are as large as what is observed; that of consistency
tests is (k + 1) / (R + 1), which is nearer to the published k / R for our smaller R.

All (beta, pi) share the predictions and the draws of the resampling of a data set: rates are valid
one by one, and their rows are dependent.
"""

import functools
import math
import pathlib
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
from _comparison import Comparison, errors_at, of_rate, report
from _dirichlet import (
    SIZE,
    kernel,
    median_total_variation,
    sample_labels,
    sample_predictions,
)
from _experiment import (
    BLACK,
    BLUE,
    GREEN,
    ORANGE,
    RED,
    arguments,
    legend_below,
    panels,
    print_table,
    progress,
    save,
)
from jax.scipy.special import ndtr
from jax.tree_util import Partial
from published import FIRST, UNIFORM
from published import neurips2019_tests as published

import calibjax as cj

N_ECE_SETS = 200
N_ECE_RESAMPLES = 200

UNIFORM_KEPT = f"{published.ECE_UNIFORM}, predictions kept"
DYNAMIC_KEPT = f"{published.ECE_DYNAMIC}, predictions kept"
# Binning, and the null of `consistency_test`.
ECE_TESTS = {
    published.ECE_UNIFORM: (cj.UniformBinning(10), "consistency"),
    UNIFORM_KEPT: (cj.UniformBinning(10), "model"),
    published.ECE_DYNAMIC: (cj.MedianVarianceBinning(5), "consistency"),
    DYNAMIC_KEPT: (cj.MedianVarianceBinning(5), "model"),
}
STYLES = {
    published.BOOTSTRAP: {"color": BLUE, "linewidth": 2.5},
    published.BLOCKS_2: {"color": ORANGE, "linestyle": "--", "linewidth": 2.5},
    published.DISTRIBUTION_FREE: {"color": BLACK, "linestyle": ":", "linewidth": 2.5},
    published.ECE_UNIFORM: {"color": RED, "marker": "s"},
    UNIFORM_KEPT: {"color": RED, "marker": "s", "linestyle": "--", "fillstyle": "none"},
    published.ECE_DYNAMIC: {"color": GREEN, "marker": "o"},
    DYNAMIC_KEPT: {"color": GREEN, "marker": "o", "linestyle": "--", "fillstyle": "none"},
}
# (beta, pi); where pi = 0 any beta will do.
CALIBRATED, SHOWN = (FIRST, 0.0), (UNIFORM, 0.5)
LAWS = CALIBRATED, *published.DEVIATIONS

# Of (m, alpha): the p-values ``[5, N]`` of each test, in the order of LAWS.
Results = dict[tuple[int, float], dict[str, np.ndarray]]


def skce_pvalues(key, predictions, labels):
    data = kernel(median_total_variation(predictions)), predictions, labels
    # As published, with the standard deviation of ddof = 0.
    n_blocks = SIZE // 2
    z = cj.asymptotic_block_skce_test(*data).statistic * math.sqrt(n_blocks / (n_blocks - 1))
    bootstrap = cj.asymptotic_skce_test(key, *data, n_resamples=published.RESAMPLES)
    return {
        published.BOOTSTRAP: jnp.mean(bootstrap.null_distribution >= bootstrap.statistic),
        published.BLOCKS_2: ndtr(-z),
        published.DISTRIBUTION_FREE: cj.distribution_free_skce_test(*data).pvalue,
    }


def ece_pvalues(key, predictions, labels):
    return {
        name: cj.consistency_test(
            key,
            Partial(cj.ece, binning=binning),
            predictions,
            labels,
            n_resamples=N_ECE_RESAMPLES,
            null=null,
        ).pvalue
        for name, (binning, null) in ECE_TESTS.items()
    }


@functools.partial(jax.jit, static_argnames=("pvalues", "m"))
def of_data_sets(pvalues, keys, alpha, m):
    """P-values ``[N, 5]`` of each test."""

    def of_data(key):
        keys = jax.random.split(key, 3)
        predictions = sample_predictions(keys[0], alpha, m)
        labels = sample_labels(keys[1], predictions, LAWS)
        # What does not depend on labels is computed once.
        return jax.vmap(functools.partial(pvalues, keys[2], predictions))(labels)

    return jax.lax.map(of_data, keys)


def all_pvalues(settings, n_sets: int, n_ece_sets: int) -> Results:
    results = {}
    for i, (m, alpha) in enumerate(settings):
        keys = jax.random.split(jax.random.key(i), n_sets)
        values = of_data_sets(skce_pvalues, keys, alpha, m)
        progress(f"m = {m}, alpha = {alpha}, SKCE")
        values |= of_data_sets(ece_pvalues, keys[:n_ece_sets], alpha, m)
        # jit sorts keys by name; a row for each law.
        results[m, alpha] = {test: np.asarray(values[test]).T for test in STYLES}
        progress(f"m = {m}, alpha = {alpha}, ECE")
    return results


def errors_of(pvalues: np.ndarray) -> dict[str, np.ndarray]:
    """All kinds of errors of a test, ``[1, N]`` each, in the order of the published rates."""
    errors = {
        f"type I, {level:.2f}": errors_at(level, pvalues[:1], calibrated=True)
        for level in published.LEVELS
    }
    for (beta, pi), of_law in zip(published.DEVIATIONS, pvalues[1:], strict=True):
        column = f"type II at {published.LEVEL}, {beta}, pi = {pi}"
        errors[column] = errors_at(published.LEVEL, of_law[None], calibrated=False)
    return errors


def row_name(setting: tuple[int, float], test: str) -> str:
    return f"m = {setting[0]}, alpha = {setting[1]}, {test}"


def comparisons(results: Results) -> Iterator[Comparison]:
    for setting, values in results.items():
        for test, (type_1, type_2) in published.RATES[setting].items():
            errors = errors_of(values[test])
            for column, rate in zip(errors, type_1 + type_2, strict=True):
                yield of_rate(row_name(setting, test), column, rate, published.SETS, errors[column])


def print_kept(results: Results) -> None:
    """The same table for the tests without published rates."""
    rows = {
        row_name(setting, test): errors_of(values[test])
        for setting, values in results.items()
        for test in (UNIFORM_KEPT, DYNAMIC_KEPT)
    }
    header = ["rate of errors, ours", *next(iter(rows.values()))]
    print_table(
        header,
        [[row, *(f"{x.mean():.3g}" for x in errors.values())] for row, errors in rows.items()],
    )


def plot(results: Results, folder: pathlib.Path) -> None:
    """The rate at which tests reject calibrated models, and others; crosses are published."""
    levels = np.geomspace(0.005, 0.2, 41)
    figure, axes = panels(2, len(results), (2.35, 2.3), sharex=True, sharey="row")
    for column, (setting, values) in zip(axes.T, results.items(), strict=True):
        for ax, law in zip(column, (CALIBRATED, SHOWN), strict=True):
            ax.plot(levels, levels, color="0.8", linewidth=6, label="level")
            for test, pvalues in values.items():
                of_law = np.sort(pvalues[LAWS.index(law)])
                rates = np.searchsorted(of_law, levels) / of_law.size
                ax.plot(levels, rates, label=test, markevery=10, **STYLES[test])
        for test, (type_1, type_2) in published.RATES[setting].items():
            cross = {"marker": "x", "color": STYLES[test]["color"], "markersize": 9}
            column[0].plot(published.LEVELS, type_1, linestyle="none", **cross)
            power = 1 - type_2[published.DEVIATIONS.index(SHOWN)]
            column[1].plot(published.LEVEL, power, **cross)
        column[0].set_title("m = {}, alpha = {}".format(*setting))
        column[1].set_xlabel("significance level")
    axes[0, 0].set_xscale("log")
    axes[0, 0].set_yscale("symlog", linthresh=0.005)  # logarithmic, with a zero
    axes[0, 0].set_ylabel("rejected\nif calibrated")
    axes[1, 0].set_ylabel("rejected if beta\nis {}, pi = {}".format(*SHOWN))
    axes[0, 0].plot([], [], "kx", markersize=9, label="published")
    legend_below(figure, axes[0, 0], 3)
    save(figure, folder, "neurips2019_tests.png")


def main() -> None:
    args = arguments(__doc__)
    settings = list(published.RATES)
    if args.quick:
        results = all_pvalues(settings[:1], 4, 1)
    else:
        results = all_pvalues(settings, published.SETS, N_ECE_SETS)
    print_kept(results)
    plot(results, args.figures)
    cells = list(comparisons(results))
    tables = {
        f"rate of errors: published / ours, {kind}": [
            cell for cell in cells if cell.column.startswith(f"{kind},")
        ]
        for kind in ("type I", "type II at 0.05")
    }
    report(tables, check=not args.quick)


if __name__ == "__main__":
    main()
