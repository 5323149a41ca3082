"""The benchmark of rows that depend on each other: its peers by scipy, its laws, and its page."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from benchmarks.works.dependence import ahead, clusters, piet, pot, prit, stations, sums

U = np.array([0.02, 0.9, 0.31, 0.31, 0.77, 0.05])


def combined(p, is_truncated):
    terms = np.where(p < 0.5, 1.0, 0.0 if is_truncated else 1.0) * stats.cauchy.isf(p)
    return stats.cauchy.sf(terms.mean())


def test_the_peers_by_scipy():
    n, u = len(U), np.sort(U)
    below = stats.beta(np.arange(1, n + 1), np.arange(n, 0, -1)).cdf(u)
    expected = combined(2 * np.minimum(below, 1 - below), True)
    np.testing.assert_allclose(pot(jnp.asarray(U)), expected, rtol=1e-4)
    rank = np.array([np.sum(x >= u) for x in u])
    middle = stats.binom(n, u).cdf(rank) - stats.binom(n, u).pmf(rank) / 2
    expected = combined(2 * np.minimum(middle, 1 - middle), True)
    np.testing.assert_allclose(prit(jnp.asarray(U)), expected, rtol=1e-4)
    expected = combined(2 * np.minimum(u, 1 - u), False)
    np.testing.assert_allclose(piet(jnp.asarray(U)), expected, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [clusters("spread", 400, 20, 0.5), ahead(4, 400), sums(4, 400), stations(4, 100, 2, 0.5)],
)
def test_the_models_are_calibrated(case, key):
    """PIT values of rows that hardly depend on each other, of many data sets, are uniform."""
    rows = case.kept[: len(case.kept) : 2]

    def places(key):
        predictions, targets = case.draw(key)
        return predictions.cdf(targets)[rows]

    found = np.asarray(jax.jit(jax.vmap(places))(jax.random.split(key, 20))).ravel()
    assert stats.kstest(found, "uniform").pvalue > 0.001
