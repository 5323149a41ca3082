"""Approximations of the law under H0 of the unbiased SKCE over all pairs, as functions of H."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from calibjax.hypothesis_tests._weighted_chi_squared import (
    gamma_pvalue,
    pearson_pvalue,
    spectrum_draws,
)
from calibjax.intervals._bootstrap import bootstrap_draws
from calibjax.intervals._counting import counted_pvalue
from calibjax.operators import H


class Verdict(NamedTuple):
    """The statistic and the p-value of a law, the row sums of H, and draws of the statistic."""

    statistic: jax.Array
    pvalue: jax.Array
    row_sums: jax.Array
    draws: jax.Array | None = None


#: ``law(key, H, n_kept, n_resamples)``; the first `n_kept` rows of this device have weight 1, the
#: other rows 0.
Law = Callable[[jax.Array, H, jax.Array | int, int], Verdict]


def bootstrap(key: jax.Array, h: H, n_kept: jax.Array | int, n_resamples: int) -> Verdict:
    """Compares S = n/(n-1) SKCE_u - SKCE_b with its centred multinomial bootstrap."""
    n = h.count()
    draws, row_sums = bootstrap_draws(key, h, n_kept, n_resamples)
    estimate = h.unbiased(row_sums)
    biased = (n - 1) / n * estimate + h.trace() / jnp.square(n)
    statistic = n / (n - 1) * estimate - biased
    return Verdict(statistic, counted_pvalue(statistic, draws), row_sums, draws)


def gamma(key: jax.Array, h: H, n_kept: jax.Array | int, n_resamples: int) -> Verdict:
    """Compares n SKCE_u with the gamma law that has its first two moments under H0."""
    n = h.count()
    row_sums, squares = h.row_sums_and_squares()
    statistic = n * h.unbiased(row_sums)
    t2 = (squares + h.trace(power=2)) / jnp.square(n)
    return Verdict(statistic, gamma_pvalue(statistic, h.trace() / n, t2), row_sums)


def pearson(key: jax.Array, h: H, n_kept: jax.Array | int, n_resamples: int) -> Verdict:
    """Compares n SKCE_u with Pearson's curve that has its first three moments under H0."""
    n = h.count()
    row_sums, _ = h.row_sums_and_squares()
    statistic = n * h.unbiased(row_sums)
    return Verdict(statistic, pearson_pvalue(statistic, h.core() / n), row_sums)


def spectrum(key: jax.Array, h: H, n_kept: jax.Array | int, n_resamples: int) -> Verdict:
    """Compares n SKCE_u with draws of its limit under H0, with the eigenvalues of H / n."""
    n = h.count()
    row_sums, _ = h.row_sums_and_squares()
    statistic = n * h.unbiased(row_sums)
    draws = spectrum_draws(key, h.core() / n, n_resamples)
    return Verdict(statistic, counted_pvalue(statistic, draws), row_sums, draws)
