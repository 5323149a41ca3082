"""The benchmark of censored lifetimes runs, its tests have their levels, and its page adds up."""

import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from benchmarks import survival
from benchmarks.works.survival import TESTS, Case, pearson
from tests.scripts import QUICK

ROOT = Path(__file__).parents[1]


def test_the_page_of_made_up_results():
    rates = dict.fromkeys(TESTS, 0.05) | {"a": 0.08}
    name, *_ = survival.cases()
    page = survival.page(
        {name: {"chapter": "level", "n_data_sets": 100, "events": 12.3, "rates": rates}}
    )
    assert f"| {name} | 12 | 5.0 | 5.0 | 5.0 | 8.0 | 5.0 |" in page
    # (0.08 - 0.05) / sqrt(0.05 * 0.95 / 100)
    assert "A-calibration: 1.4;" in page


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


@pytest.mark.slow
@pytest.mark.parametrize("n_cells", [1, 10])
def test_the_level_of_the_peers(n_cells):
    """The sum over cells is chi-squared only if the intensities are right in all of them."""

    def pvalue(key):
        predictions, lifetimes, ends = Case(0.65).draw(key, 400)
        return pearson(predictions, jnp.minimum(lifetimes, ends), lifetimes <= ends, n_cells)

    found = jax.jit(lambda keys: jax.lax.map(pvalue, keys))(
        jax.random.split(jax.random.key(0), 2000)
    )
    assert abs(np.mean(np.asarray(found) <= 0.05) - 0.05) < 3 * np.sqrt(0.05 * 0.95 / 2000)


@pytest.mark.slow
def test_a_quick_run(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.survival", "--quick", "--output", str(tmp_path)],
        cwd=ROOT,
        env=QUICK,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "SURVIVAL.md").read_text()
    assert all(f"| {name} |" in text for name in survival.cases())
