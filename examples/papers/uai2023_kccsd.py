"""Rejection rates of the KCCSD and the SKCE, with kernels of scores, beside the authors' program.

    python uai2023_kccsd.py [--quick] [--figures FOLDER]

Glaser, Widmann, Lindsten and Gretton, "Fast and scalable score-based kernel calibration tests",
UAI 2023: the synthetic models, each calibrated (delta = 0) and not, at level 0.05.  The KCCSD is
the SKCE of a SteinKernel and needs scores only; the SKCE of a TensorProduct needs expectations,
which normal predictions have.  Kernels are exp(-D^2 / (2 m^2)) of distances D between predictions,
and of the distance of targets, with their median m.

Where all predictions have one scale, a distance of scores is a multiple of the distance of means,
and that is the Wasserstein distance: with the median heuristic all kernels on predictions are the
same.  So there is one of them for each test, and all are compared on the heteroscedastic model.

The numbers beside ours are those of the authors' program, run on other data sets.
"""

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from _comparison import errors_at, of_rate, report
from _experiment import (
    BLACK,
    BLUE,
    GREEN,
    ORANGE,
    PINK,
    SKY,
    arguments,
    legend_below,
    panels,
    print_table,
    progress,
    save,
)
from published import uai2023_kccsd as published

import calibjax as cj

N_POINTS = 100  # of the base measure, where it is not integrated
STYLES = {
    published.KCCSD_FISHER: {"color": BLUE, "marker": "o", "linestyle": "-"},
    published.KCCSD_POINTS: {"color": SKY, "marker": "x", "linestyle": "--"},
    published.KCCSD_KERNELIZED: {"color": GREEN, "marker": "D", "linestyle": "-."},
    published.SKCE_FISHER: {"color": ORANGE, "marker": "^", "linestyle": "-"},
    published.SKCE_WASSERSTEIN: {"color": PINK, "marker": "s", "linestyle": ":"},
}


def isotropic(loc, scale) -> cj.MultivariateNormalDiag:
    return cj.MultivariateNormalDiag(loc, jnp.broadcast_to(scale, loc.shape))


def shifted_mean(shift, key, n, delta):
    """P = N(c + delta shift, I) with c ~ N(0, I), and Y ~ N(c, I)."""
    keys = jax.random.split(key)
    shift = jnp.array(shift)
    loc = jax.random.normal(keys[0], (n, shift.size))
    return isotropic(loc + delta * shift, 1.0), loc + jax.random.normal(keys[1], loc.shape)


def linear(key, n, delta):
    """LGM: P = N(m + delta, 1) with m = sum_i i Z_i of Z ~ N(0, I_5), and Y ~ N(m, 1)."""
    keys = jax.random.split(key)
    loc = jax.random.normal(keys[0], (n, 5)) @ jnp.arange(1.0, 6.0)[:, None]
    return isotropic(loc + delta, 1.0), loc + jax.random.normal(keys[1], loc.shape)


def heteroscedastic(key, n, delta):
    """HGM: P = N(m, 1 + 10 delta exp(-|Z - 2/3|^2 / (2 0.8^2))), m = sum_i Z_i of Z ~ N(0, I_3).

    Y ~ N(m, 1).
    """
    keys = jax.random.split(key)
    z = jax.random.normal(keys[0], (n, 3))
    loc = z.sum(axis=1, keepdims=True)
    bump = jnp.exp(-jnp.sum(jnp.square((z - 2 / 3) / 0.8), axis=1, keepdims=True) / 2)
    predictions = isotropic(loc, jnp.sqrt(1 + 10 * delta * bump))
    return predictions, loc + jax.random.normal(keys[1], loc.shape)


def quadratic(key, n, delta):
    """QGM: P = N(0.1 (1 - delta) Z^2 + Z + 1, 1), Z ~ U(-2, 2), and Y ~ N(0.1 Z^2 + Z + 1, 1)."""
    keys = jax.random.split(key)
    z = jax.random.uniform(keys[0], (n, 1), minval=-2, maxval=2)
    loc = 0.1 * z**2 + z + 1
    predictions = isotropic(loc - 0.1 * delta * z**2, 1.0)
    return predictions, loc + jax.random.normal(keys[1], loc.shape)


# Functions of a key, n and delta, which return predictions and targets [n, d].
EXPERIMENTS = {
    published.MEAN: functools.partial(shifted_mean, (1.0, 1.0)),
    published.ONE_MEAN: functools.partial(shifted_mean, (1.0, 0.0)),
    published.LINEAR: linear,
    published.HETEROSCEDASTIC: heteroscedastic,
    published.QUADRATIC: quadratic,
}


def gaussian(distance, predictions) -> cj.DistanceKernel:
    """exp(-D^2 / (2 m^2)) with the median m of all distances D."""
    median = cj.median_heuristic(distance, predictions)
    return cj.DistanceKernel(distance, math.sqrt(2) * median, exponent=2.0)


def fisher(points) -> cj.FisherDistance:
    """Under the base measure N(0, I), of which `points` are draws."""
    return cj.FisherDistance.under_normal(jnp.zeros(points.shape[1]), 1.0)


def kernelized(points) -> cj.KernelizedFisherDistance:
    return cj.KernelizedFisherDistance(points, cj.GaussianKernel(1.0))


class Test(NamedTuple):
    """A kernel on pairs, made of a kernel on predictions and one on targets, and a distance.

    ``distance(points)`` compares predictions, at draws from the base measure or without them.
    """

    kernel: Callable
    distance: Callable


TESTS = {
    published.KCCSD_FISHER: Test(cj.SteinKernel, fisher),
    published.KCCSD_POINTS: Test(cj.SteinKernel, cj.FisherDistance),
    published.KCCSD_KERNELIZED: Test(cj.SteinKernel, kernelized),
    published.SKCE_FISHER: Test(cj.TensorProduct, fisher),
    published.SKCE_WASSERSTEIN: Test(cj.TensorProduct, lambda points: cj.Wasserstein()),
}


def score(parameters, y):
    return (parameters["loc"] - y) / parameters["scale"] ** 2


@functools.partial(jax.jit, static_argnames=("name", "n", "tests"))
def pvalues(keys, delta, name, n, tests):
    """P-values ``[N]`` of each test, of N data sets."""

    def of_data(key):
        keys = jax.random.split(key)
        normal, targets = EXPERIMENTS[name](keys[0], n, delta)
        # Of the base measure N(0, I), the same for all data sets.
        points = jax.random.normal(jax.random.key(0), (N_POINTS, targets.shape[1]))
        parameters = {"loc": normal.loc, "scale": normal.scale_diag}
        known = {cj.SteinKernel: cj.Unnormalized(score, parameters), cj.TensorProduct: normal}
        # The Wasserstein distance of normal laws with the same scale is that of their means.
        median = cj.median_heuristic(cj.Wasserstein(), isotropic(targets, 1.0))
        result = {}
        for test in tests:
            make_kernel, distance = TESTS[test]
            predictions = known[make_kernel]
            kernel = make_kernel(gaussian(distance(points), predictions), cj.GaussianKernel(median))
            result[test] = cj.asymptotic_skce_test(keys[1], kernel, predictions, targets).pvalue
        return result

    return jax.lax.map(of_data, keys)


def plot(folder, rates) -> None:
    """`rates` are ours by experiment, delta, test and n."""
    figure, axes = panels(2, 3, size=(3.2, 2.6), sharey=True, sharex=True)
    for ax, (name, of_name) in zip(axes.flat, rates.items(), strict=False):
        for delta, of_delta in of_name.items():
            for test, values in of_delta.items():
                style = STYLES[test] | ({} if delta else {"linewidth": 0.8, "markersize": 3})
                ax.plot(values.keys(), values.values(), label=test if delta else None, **style)
                theirs = published.RATES[name][delta][test]
                ax.plot(theirs.keys(), theirs.values(), "+", color=style["color"], markersize=9)
        ax.axhline(published.LEVEL, color=BLACK, linewidth=0.8, linestyle=(0, (1, 1)))
        ax.set(title=f"{name}, delta = {max(of_name):g}", ylim=(-0.03, 1.03), xscale="log")
        ax.set_xticks(list(values), list(values))
        ax.set_xticks([], minor=True)
        if name == published.HETEROSCEDASTIC:
            ax.plot([], [], "k+", label="authors' program")
            legend_below(figure, ax, 3)
    for ax in axes.flat[len(rates) :]:
        ax.set_visible(False)
    for ax in axes[:, 0]:
        ax.set(ylabel="rejection rate")
    for ax in axes.flat[len(rates) - 3 : len(rates)]:
        ax.set(xlabel="data set size n")
        ax.tick_params(labelbottom=True)
    save(figure, folder, "uai2023_kccsd.png")


def main() -> None:
    args = arguments(__doc__)
    names = [published.HETEROSCEDASTIC] if args.quick else published.RATES
    n_sets = {100: 4} if args.quick else {100: 500, 200: 500, 400: 200, 1000: 100}
    comparisons, rates = [], {}
    for index, name in enumerate(names):
        rates[name] = {}
        for delta, of_delta in published.RATES[name].items():
            ours = rates[name][delta] = {test: {} for test in of_delta}
            for n, number in n_sets.items():
                key = jax.random.fold_in(jax.random.key(index), n)
                keys = jax.random.split(jax.random.fold_in(key, delta > 0), number)
                values = pvalues(keys, delta, name, n, tuple(of_delta))
                for test, of_test in values.items():
                    rejected = errors_at(published.LEVEL, np.asarray(of_test), True)[None]
                    ours[test][n] = rejected.mean()
                    if n in of_delta[test]:
                        row, column = f"{name}, delta = {delta:g}, {test}", f"n = {n}"
                        rate = of_delta[test][n]
                        cell = of_rate(row, column, rate, published.SETS, rejected)
                        comparisons.append(cell)
                progress(f"{name}, delta = {delta:g}, n = {n}: {number} data sets")
    plot(args.figures, rates)

    print_table(
        ["rejection rate, ours", *(f"n = {n}" for n in n_sets)],
        (
            [f"{name}, delta = {delta:g}, {test}", *(f"{rate:.3f}" for rate in values.values())]
            for name, of_name in rates.items()
            for delta, of_delta in of_name.items()
            for test, values in of_delta.items()
        ),
    )
    report({"rejection rate: authors' program / ours": comparisons}, check=not args.quick)


if __name__ == "__main__":
    main()
