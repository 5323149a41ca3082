"""Reproduce published error rates of calibration tests.

    python examples/papers/error_rates.py [--quick]

prints the published rates (`published.py`) beside ours, and fails where the two differ by more
than 4 standard errors of their difference.

ICLR 2021, Appendix A.2: predictions N(c 1_d, 0.1^2 I_d) with c ~ U(0, 1).  Calibrated targets are
drawn from them; otherwise the first coordinate is drawn from N(0.1, 0.1^2) instead.  The kernel is
exp(-W_2) exp(-|y - y'|^2 / 2), the level 0.05.

NeurIPS 2019: n = 250 predictions g ~ Dirichlet(alpha, ..., alpha) and labels drawn from them.  The
kernel is exp(-TV / nu) 1{y = y'}, with nu the median total variation in the data set.

`_comparison.py` says what a standard error is.  The CME rates of ICLR 2021 are those of one draw of
the 10 locations, ours of several.  The few data sets whose covariance at the locations is singular
even in double precision have no p-value and do not count.
"""

import argparse
import functools
import itertools
import math
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import published as paper
from _comparison import Comparison, errors_at, report
from jax import lax
from jax.scipy.special import ndtr

import calibjax as cj

# Deviations at ten locations are almost linearly dependent: in single precision many more
# covariances would be singular.
jax.config.update("jax_enable_x64", True)

N_LOCATIONS = 10


@functools.partial(jax.jit, static_argnames=("n", "d"))
def iclr_pvalues(location_keys, keys, calibrated, n, d):
    """P-values ``[L, N]`` of each test, with L draws of locations and N data sets for each."""
    kernel = cj.TensorProduct(cj.DistanceKernel(cj.Wasserstein(), 1.0), cj.GaussianKernel(1.0))

    def normal(loc):
        return cj.MultivariateNormalDiag(loc, jnp.full_like(loc, 0.1))

    def of_locations(keys):
        location_key, data_keys = keys
        loc_key, target_key = jax.random.split(location_key)
        locations = normal(jax.random.uniform(loc_key, (N_LOCATIONS, d)))
        location_targets = 0.1 * jax.random.normal(target_key, (N_LOCATIONS, d))

        def of_data(key):
            keys = jax.random.split(key, 4)
            predictions = normal(jnp.tile(jax.random.uniform(keys[0], (n, 1)), d))
            targets = predictions.sample(keys[1])
            first = 0.1 + 0.1 * jax.random.normal(keys[2], (n,))
            targets = jnp.where(calibrated, targets, targets.at[:, 0].set(first))
            data = kernel, predictions, targets
            results = {
                paper.BLOCKS_2: cj.asymptotic_block_skce_test(*data),
                paper.BLOCKS_SQRT: cj.asymptotic_block_skce_test(*data, block_size=math.isqrt(n)),
                paper.BOOTSTRAP: cj.asymptotic_skce_test(keys[3], *data),
            }
            if n > N_LOCATIONS:
                results[paper.CME] = cj.asymptotic_cme_test(*data, locations, location_targets)
            return {test: result.pvalue for test, result in results.items()}

        return lax.map(of_data, data_keys)

    return lax.map(of_locations, (location_keys, keys))


def iclr(quick: bool) -> Iterator[Comparison]:
    for d, published in paper.ICLR.items():
        data_key, location_key = jax.random.split(jax.random.key(d))
        for i, n in enumerate(paper.ICLR_SIZES):
            if quick and (d, n) != (1, 16):
                continue
            # Fewer data sets where the bootstrap takes long.
            n_draws, n_sets = (2, 2) if quick else (20, min(100, 20 * 1024 // n))
            location_keys = jax.random.split(location_key, n_draws)
            keys = jax.random.split(jax.random.fold_in(data_key, n), (n_draws, n_sets))
            for calibrated in True, False:
                setting = f"ICLR, d = {d}, type {'I' if calibrated else 'II'}"
                pvalues = iclr_pvalues(location_keys, keys, calibrated, n, d)
                for test, values in pvalues.items():
                    rate = published[test][0 if calibrated else 1][i]
                    errors = errors_at(paper.ICLR_LEVEL, np.asarray(values), calibrated)
                    if test != paper.CME:
                        errors = errors.reshape(1, -1)
                    yield Comparison(setting, test, n, rate, paper.ICLR_SETS, errors)


def median(distances):
    """By bisection of [0, 1], where total variations are: a sort would take most of the time."""

    def halve(_, interval):
        low, high = interval
        middle = (low + high) / 2
        below = 2 * jnp.sum(distances <= middle) < distances.size
        return jnp.where(below, middle, low), jnp.where(below, high, middle)

    return lax.fori_loop(0, 50, halve, (0.0, 1.0))[1]


@functools.partial(jax.jit, static_argnames=("m",))
def neurips_pvalues(keys, alpha, m):
    def of_data(key):
        keys = jax.random.split(key, 3)
        # jax works with the logarithms of gamma draws, which do not underflow where alpha is small.
        probs = jax.random.dirichlet(keys[0], jnp.full(m, alpha), (paper.NEURIPS_SIZE,))
        predictions = cj.Categorical(probs)
        # All n x n distances, zeros of the diagonal included, as published; `median_heuristic`
        # takes pairs i < j.
        distance = cj.TotalVariation()
        lengthscale = median(distance.pairwise(predictions, predictions))
        kernel = cj.TensorProduct(cj.DistanceKernel(distance, lengthscale), cj.WhiteKernel())
        data = kernel, predictions, predictions.sample(keys[1])
        # As published, with the standard deviation of ddof = 0.
        n_blocks = paper.NEURIPS_SIZE // 2
        z = cj.asymptotic_block_skce_test(*data).statistic * math.sqrt(n_blocks / (n_blocks - 1))
        return {
            paper.BOOTSTRAP: cj.asymptotic_skce_test(keys[2], *data).pvalue,
            paper.BLOCKS_2: ndtr(-z),
            paper.DISTRIBUTION_FREE: cj.distribution_free_skce_test(*data).pvalue,
        }

    return lax.map(of_data, keys)


def neurips(quick: bool) -> Iterator[Comparison]:
    for i, ((m, alpha), published) in enumerate(paper.NEURIPS.items()):
        if quick and i > 0:
            continue
        keys = jax.random.split(jax.random.key(i), 4 if quick else paper.NEURIPS_SETS)
        for test, values in neurips_pvalues(keys, alpha, m).items():
            for level, rate in zip(paper.NEURIPS_LEVELS, published[test], strict=True):
                setting = f"NeurIPS, m = {m}, alpha = {alpha}, level {level}"
                errors = errors_at(level, np.asarray(values)[None], calibrated=True)
                yield Comparison(
                    setting, test, paper.NEURIPS_SIZE, rate, paper.NEURIPS_SETS, errors
                )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="few data sets, and nothing checked")
    args = parser.parse_args()
    report(itertools.chain(iclr(args.quick), neurips(args.quick)), check=not args.quick)


if __name__ == "__main__":
    main()
