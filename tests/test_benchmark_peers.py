"""Peers that benchmarks compute themselves, beside SciPy and plain loops; their data sets."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from scipy import stats

import calibjax as cj
from benchmarks import segments
from benchmarks.monitor import pit_monitor
from benchmarks.monitor.alarms import Alarms, chunks, first
from benchmarks.power import t_cal
from benchmarks.works import covariates
from benchmarks.works.dependence import ahead, clusters, piet, pot, prit, stations, sums
from benchmarks.works.segments import _yekutieli
from benchmarks.works.survival import Case, pearson

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


def test_planted_segments_are_segments():
    for name, case in segments.power_cases().items():
        levels = {
            column: segments._quarters(values)
            if np.unique(values).size > 12
            else list(map(str, np.unique(values)))
            for column, values in case.groups.items()
        }
        assert case.planted, name
        for conditions in case.planted:
            assert all(level in levels[column] for column, level in conditions.items()), name


def test_adjusted_pvalues_by_scipy():
    pvalues = np.array([0.001, 0.2, 0.03, 0.8, 0.0004])
    expected = scipy.stats.false_discovery_control(pvalues, method="by").min()
    assert _yekutieli(pvalues) == pytest.approx(expected)


def test_errors_of_t_cal_are_sums_over_bins():
    rng = np.random.default_rng(0)
    n, n_bins = 200, [2, 16, 64, 1024]
    scores = np.sort(rng.random(n).astype(np.float32))
    rows = rng.integers(0, n, n)
    r = (rng.random(n) < scores[rows]) - scores[rows]
    bins = [np.floor(scores[rows] * k) for k in n_bins]
    expected = [
        sum((r[b == j].sum() ** 2 - (r[b == j] ** 2).sum()) / (b == j).sum() for j in set(b)) / n
        for b in bins
    ]
    sums = np.zeros((n, 3), np.float32)
    np.add.at(sums, rows, np.stack([np.ones(n), r, r**2], axis=1))
    found = t_cal.squared_errors(t_cal.partitions_of(scores, n_bins), sums)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_cells_of_events_by_hand():
    """Times, and cells that rows are at risk in for equally long, by a loop over a fine grid."""
    predictions, lifetimes, ends = Case(0.65).draw(jax.random.key(0), 60)
    time, observed = np.minimum(lifetimes, ends), np.asarray(lifetimes <= ends)
    assert 10 < observed.sum() < 35
    x = (time / np.asarray(predictions.scale)) ** 1.5
    grid = np.linspace(0, x.max(), 20_001)
    spent = np.minimum(grid[:, None], x[None]).sum(axis=1)
    for n_cells in 1, 5:
        edges = np.interp(np.arange(n_cells + 1) / n_cells * spent[-1], spent, grid)
        events, expected = np.histogram(x[observed], edges)[0], x.sum() / n_cells
        pvalue = stats.chi2(n_cells).sf(np.sum((events - expected) ** 2) / expected)
        found = pearson(predictions, jnp.asarray(time), jnp.asarray(observed), n_cells)
        np.testing.assert_allclose(found, pvalue, rtol=1e-3)


def test_first_alarms_and_what_they_say():
    rings = np.array([[0, 0, 0, 0], [0, 1, 0, 1], [0, 0, 1, 1], [0, 0, 0, 1]], bool)
    found = first(rings)
    assert found.tolist() == [4, 1, 2, 3]
    assert Alarms.of(found, drift=2, end=4) == Alarms(4, 0.25, 0.5, 0.5, 0.5)
    assert chunks(10, 4) == [4, 4, 4] and chunks(3, 4) == [3]


def test_ranks_among_all_so_far():
    pit = np.random.default_rng(0).integers(0, 5, 40) / 5
    found = pit_monitor.ranks(np.random.default_rng(1), pit)
    uniform = np.random.default_rng(1).random(40)
    for t, value in enumerate(pit):
        so_far = pit[: t + 1].tolist()
        smaller, equal = sum(u < value for u in so_far), so_far.count(value)
        np.testing.assert_allclose(found[t], (smaller + uniform[t] * equal) / (t + 1))


def test_evidence_of_pit_monitor_is_a_martingale_on_average():
    # M_t + 1 / (t + 1) has the mean 1 for exchangeable values.
    pit = np.random.default_rng(0).random((4000, 20))
    last = pit_monitor.evidence(np.random.default_rng(1), pit)[:, -1]
    assert abs(last.mean() + 1 / 21 - 1) < 4 * last.std() / np.sqrt(4000)


def _of_columns(model):
    def draw(key):
        rows = model(key)
        return rows.predictions, rows.targets

    return draw


# Data sets of calibrated models: a function of a key, and the rows that hardly depend on others.
CALIBRATED = {
    "clusters": clusters("spread", 400, 20, 0.5),
    "ahead": ahead(4, 400),
    "sums": sums(4, 400),
    "stations": stations(4, 100, 2, 0.5),
    **{x: segments.level_cases()[x] for x in ("normal", "counts", "five quantiles")},
}
WITH_COLUMNS = {
    "normal with columns": _of_columns(covariates.normal(covariates.ERRORS["none"], 3)),
    "posterior with columns": _of_columns(covariates.simulation("posterior")),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", [*CALIBRATED, *WITH_COLUMNS])
def test_calibrated_models_have_uniform_pit_values(name, key):
    case = CALIBRATED.get(name)
    draw = WITH_COLUMNS[name] if case is None else case.draw
    kept = getattr(case, "kept", np.arange(10**6))

    def pit(key):
        of_data, of_pit = jax.random.split(key)
        return cj.pit(of_pit, *draw(of_data))

    found = np.asarray(jax.jit(jax.vmap(pit))(jax.random.split(key, 20)))
    rows = np.intersect1d(kept[::2], np.arange(found.shape[1]))
    assert stats.kstest(found[:, rows].ravel(), "uniform").pvalue > 0.001
