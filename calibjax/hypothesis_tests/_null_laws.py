"""Approximations of the law under H0 of the unbiased SKCE over all pairs, as functions of H."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from calibjax.hypothesis_tests._weighted_chi_squared import (
    gamma_pvalue,
    pearson_pvalue,
    spectrum_draws,
)
from calibjax.hypothesis_tests._wild_bootstrap import wild_draws
from calibjax.intervals._bootstrap import bootstrap_draws
from calibjax.intervals._counting import counted_pvalue
from calibjax.intervals._errors import DrawnErrors, three_moment_errors, two_moment_errors
from calibjax.intervals._skce_interval import resampled_errors
from calibjax.operators import DiscrepancyMatrix


class NullComparison(NamedTuple):
    """What a law says of the estimate.

    Args:
        statistic, pvalue: the statistic, and how probable a larger one is under H0.
        row_sums: the row sums of H without its diagonal.
        draws: draws of the statistic under H0, or None.
        errors: the law of the squared error of the mean whose squared norm is the biased SKCE, for
            a `NormInterval`; or None.
    """

    statistic: jax.Array
    pvalue: jax.Array
    row_sums: jax.Array
    draws: jax.Array | None = None
    errors: Any = None


#: ``law(key, H, n_kept, n_resamples)``; the first `n_kept` rows of this device have weight 1, the
#: other rows 0.
Law = Callable[[jax.Array, DiscrepancyMatrix, jax.Array | int, int], NullComparison]


def bootstrap(
    key: jax.Array, h: DiscrepancyMatrix, n_kept: jax.Array | int, n_resamples: int
) -> NullComparison:
    """Compares S = n/(n-1) SKCE_u - SKCE_b with its centred multinomial bootstrap."""
    n = h.count()
    draws, row_sums = bootstrap_draws(key, h, n_kept, n_resamples)
    estimate = h.unbiased(row_sums)
    biased = (n - 1) / n * estimate + h.trace() / jnp.square(n)
    statistic = n / (n - 1) * estimate - biased
    errors = resampled_errors(draws, n, biased, estimate)
    return NullComparison(statistic, counted_pvalue(statistic, draws), row_sums, draws, errors)


def wild(
    key: jax.Array, h: DiscrepancyMatrix, n_kept: jax.Array | int, n_resamples: int
) -> NullComparison:
    """Compares n SKCE_u with its wild bootstrap."""
    n = h.count()
    draws, row_sums = wild_draws(key, h, n_kept, n_resamples)
    statistic = n * h.unbiased(row_sums)
    errors = DrawnErrors(_mean_error(h, row_sums) + draws / n)
    return NullComparison(statistic, counted_pvalue(statistic, draws), row_sums, draws, errors)


def gamma(
    key: jax.Array, h: DiscrepancyMatrix, n_kept: jax.Array | int, n_resamples: int
) -> NullComparison:
    """Compares n SKCE_u with the gamma law that has its first two moments under H0."""
    n = h.count()
    row_sums, squares = h.row_sums_and_squares()
    statistic = n * h.unbiased(row_sums)
    t1, t2 = h.trace() / n, (squares + h.trace(power=2)) / jnp.square(n)
    errors = two_moment_errors(_mean_error(h, row_sums), t1 / n, t2 / jnp.square(n))
    return NullComparison(statistic, gamma_pvalue(statistic, t1, t2), row_sums, errors=errors)


def pearson(
    key: jax.Array, h: DiscrepancyMatrix, n_kept: jax.Array | int, n_resamples: int
) -> NullComparison:
    """Compares n SKCE_u with Pearson's curve that has its first three moments under H0."""
    n = h.count()
    row_sums, _ = h.row_sums_and_squares()
    statistic = n * h.unbiased(row_sums)
    core = h.core() / n
    errors = three_moment_errors(_mean_error(h, row_sums), core / n)
    return NullComparison(statistic, pearson_pvalue(statistic, core), row_sums, errors=errors)


def spectrum(
    key: jax.Array, h: DiscrepancyMatrix, n_kept: jax.Array | int, n_resamples: int
) -> NullComparison:
    """Compares n SKCE_u with draws of its limit under H0, with the eigenvalues of H / n."""
    n = h.count()
    row_sums, _ = h.row_sums_and_squares()
    statistic = n * h.unbiased(row_sums)
    draws = spectrum_draws(key, h.core() / n, n_resamples)
    errors = DrawnErrors(_mean_error(h, row_sums) + draws / n)
    return NullComparison(statistic, counted_pvalue(statistic, draws), row_sums, draws, errors)


def _mean_error(h: DiscrepancyMatrix, row_sums: jax.Array) -> jax.Array:
    """SKCE_b - SKCE_u, the unbiased estimate of the mean squared error of the mean."""
    n = h.count()
    return h.trace() / jnp.square(n) - h.unbiased(row_sums) / n
