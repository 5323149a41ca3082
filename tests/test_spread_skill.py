"""The spread of ensembles against the error of their mean, beside sums over rows and exchanges."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import calibjax as cj
from calibjax import plot

N, S, B = 120, 5, 3
KEY = jax.random.key(7)
OPTIONS = {"n_bins": B, "n_resamples": 199}


def ensembles(rng, width=1.0, missing=0.3):
    """Members, which of them exist, and targets of one law for each row."""
    scale = np.exp(rng.normal(size=N))
    members = 5 + scale[:, None] * width * rng.normal(size=(N, S))
    where = rng.random((N, S)) >= missing
    where[:, 0] = True
    return members, where, 5 + scale * rng.normal(size=N)


def by_hand(members, where, targets):
    """The variance, the squared error, and what both are on average over exchanges, of each row."""
    found = []
    for row, exists, y in zip(members, where, targets, strict=True):
        x = row[exists]
        k = len(x)
        pool = np.append(x, y)
        others = [np.delete(pool, i) for i in range(k + 1)]
        squares = [(pool[i] - others[i].mean()) ** 2 for i in range(k + 1)]
        variances = [(k + 1) / k * rest.var(ddof=1) for rest in others] if k > 1 else [np.nan]
        np.testing.assert_allclose(np.mean(squares), np.mean(variances) if k > 1 else squares[0])
        found.append((variances[-1], squares[-1], np.mean(squares)))
    return np.array(found).T


def test_both_curves_are_means_over_bins_of_what_both_are_on_average(float64):
    members, where, targets = ensembles(np.random.default_rng(0))
    assert (where.sum(axis=1) == 1).any()  # Such a row has no spread.
    variance, square, expected = by_hand(members, where, targets)
    known = ~np.isnan(variance)
    edges = np.quantile(np.sqrt(expected[known]), np.arange(B + 1) / B, method="inverted_cdf")
    bins = np.where(known, np.searchsorted(edges[1:-1], np.sqrt(expected)), B)
    garbage = np.where(where, members, np.nan)
    found = cj.spread_skill_curve(KEY, cj.Empirical(garbage, where=where), targets, **OPTIONS)
    for b in range(B):
        rows = bins == b
        assert int(found.count[b]) == rows.sum()
        np.testing.assert_allclose(found.spread[b] ** 2, variance[rows].mean())
        np.testing.assert_allclose(found.error[b] ** 2, square[rows].mean())
    np.testing.assert_allclose(found.edges, edges)
    scaled = cj.Empirical(1e30 * garbage, where=where), 1e30 * targets
    for x, y in zip(
        *(
            map(np.asarray, (c.error, c.error_high))
            for c in (found, cj.spread_skill_curve(KEY, *scaled, **OPTIONS))
        ),
        strict=True,
    ):
        np.testing.assert_allclose(1e30 * x, y)


def test_weights_count_as_copies_in_the_means(float64):
    members, where, targets = ensembles(np.random.default_rng(1), missing=0.0)
    weights = 1.0 + np.arange(N) % 2
    _, square, expected = by_hand(members, where, targets)
    found = cj.spread_skill_curve(
        KEY, cj.Empirical(members), targets, weights=weights, n_bins=1, n_resamples=199
    )
    np.testing.assert_allclose(found.error[0] ** 2, np.average(square, weights=weights))
    clusters = cj.spread_skill_curve(
        KEY, cj.Empirical(members), targets, clusters=np.arange(N) // 4, n_bins=1, n_resamples=199
    )
    np.testing.assert_allclose(clusters.error[0] ** 2, square.mean())
    assert clusters.error_low[0] < clusters.spread[0] < clusters.error_high[0]


@jax.jit
def _leaves(keys, width, missing):
    def one(key):
        row, member, target, lost, test = jax.random.split(key, 5)
        scale = jnp.exp(0.5 * jax.random.normal(row, (N,)))
        members = scale[:, None] * width * jax.random.normal(member, (N, S))
        where = (jax.random.uniform(lost, (N, S)) >= missing) | (jnp.arange(S)[None] < 1)
        targets = scale * jax.random.normal(target, (N,))
        found = cj.spread_skill_curve(test, cj.Empirical(members, where=where), targets, **OPTIONS)
        return jnp.any((found.error < found.error_low) | (found.error > found.error_high))

    return jax.lax.map(one, keys)


@pytest.mark.slow
def test_calibrated_ensembles_leave_the_band_as_rarely_as_it_says():
    n_sets = 200
    keys = jax.random.split(jax.random.key(3), n_sets)
    for width, missing, least, most in (
        (1.0, 0.0, 0.0, 0.05),
        (1.0, 0.3, 0.0, 0.05),
        (0.6, 0.3, 0.6, 1.0),
    ):
        share = float(jnp.mean(_leaves(keys, width, missing)))
        assert least <= share <= most + 2.5 * (0.05 * 0.95 / n_sets) ** 0.5


def test_who_has_no_spread_is_refused():
    targets = np.zeros(20, np.float32)
    with pytest.raises(TypeError, match="residual_map compares other predicted spreads"):
        cj.spread_skill_curve(KEY, cj.Normal(targets, 1.0), targets)
    alone = cj.spread_skill_curve(KEY, cj.Empirical(targets[:, None]), targets, **OPTIONS)
    assert np.isnan(alone.spread).all() and (np.asarray(alone.count) == 0).all()
    with pytest.raises(ValueError, match="curve must hold numbers"):
        plot.spread_skill(alone)


def test_equal_members_have_no_spread():
    targets = np.repeat(np.float32([1, 2]), 10)
    found = cj.spread_skill_curve(
        KEY, cj.Empirical(np.ones((20, 3), np.float32)), targets, **OPTIONS
    )
    filled = np.asarray(found.count) > 0
    np.testing.assert_allclose(found.spread[filled], 0.0, atol=1e-6)
    assert not np.isnan(found.error_high[filled]).any()
