"""Laws of the unbiased SKCE over all pairs if the model is calibrated, each a function of H."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from calibjax.hypothesis_tests._bootstrap import bootstrap_draws
from calibjax.hypothesis_tests._counting import counted_pvalue
from calibjax.hypothesis_tests._weighted_chi_squared import (
    gamma_pvalue,
    pearson_pvalue,
    spectrum_draws,
)
from calibjax.operators import H


class Verdict(NamedTuple):
    """What a law says of the data."""

    statistic: jax.Array
    pvalue: jax.Array
    row_sums: jax.Array
    draws: jax.Array | None = None


#: ``law(key, H, n_kept, n_resamples)``, where the first `n_kept` rows of this device count.
Law = Callable[[jax.Array, H, jax.Array | int, int], Verdict]


def bootstrap(key: jax.Array, h: H, n_kept: jax.Array | int, n_resamples: int) -> Verdict:
    """S = n/(n-1) SKCE_u - SKCE_b against its centred multinomial bootstrap."""
    n = h.count()
    draws, row_sums = bootstrap_draws(key, h, n_kept, n_resamples)
    estimate = h.unbiased(row_sums)
    biased = (n - 1) / n * estimate + h.trace() / jnp.square(n)
    statistic = n / (n - 1) * estimate - biased
    return Verdict(statistic, counted_pvalue(statistic, draws), row_sums, draws)


def gamma(key: jax.Array, h: H, n_kept: jax.Array | int, n_resamples: int) -> Verdict:
    """n SKCE_u against the gamma law with its first two moments."""
    n = h.count()
    row_sums, squares = h.row_sums_and_squares()
    statistic = n * h.unbiased(row_sums)
    t2 = (squares + h.trace(power=2)) / jnp.square(n)
    return Verdict(statistic, gamma_pvalue(statistic, h.trace() / n, t2), row_sums)


def pearson(key: jax.Array, h: H, n_kept: jax.Array | int, n_resamples: int) -> Verdict:
    """n SKCE_u against Pearson's curve with its first three moments."""
    n = h.count()
    row_sums, _ = h.row_sums_and_squares()
    statistic = n * h.unbiased(row_sums)
    return Verdict(statistic, pearson_pvalue(statistic, h.core() / n), row_sums)


def spectrum(key: jax.Array, h: H, n_kept: jax.Array | int, n_resamples: int) -> Verdict:
    """n SKCE_u against draws of its limit, with the eigenvalues of H / n."""
    n = h.count()
    row_sums, _ = h.row_sums_and_squares()
    statistic = n * h.unbiased(row_sums)
    draws = spectrum_draws(key, h.core() / n, n_resamples)
    return Verdict(statistic, counted_pvalue(statistic, draws), row_sums, draws)
