"""The power study runs, at tiny sizes, and its own pieces compute what they say."""

import json
import pathlib
import subprocess
import sys

import jax
import numpy as np
import pytest

from benchmarks.power import columns, one_set_of_draws, t_cal
from benchmarks.power.__main__ import QUICK_SETTINGS
from benchmarks.power.labels import BINARY, BUMPS
from benchmarks.power.one_set_of_draws import GRID, RULES
from benchmarks.power.scenario import CALIBRATED
from benchmarks.power.settings import SETTINGS

ROOT = pathlib.Path(__file__).parents[1]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the machine is in /proc"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """What a quick run writes."""
    output = tmp_path_factory.mktemp("power")
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.power", "--quick", "--output", str(output)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return output


def test_quick_run_has_all_columns(folder):
    results = json.loads((folder / "power.json").read_text())
    assert list(results) == list(QUICK_SETTINGS)
    text = (folder / "POWER.md").read_text()
    for name, result in results.items():
        assert f"### {SETTINGS[name].title}, n = {result['n']}\n" in text
        assert next(iter(result["rates"])) == CALIBRATED
        for scenario, rates in result["rates"].items():
            assert f"| {scenario} |" in text
            rules = [*RULES, *(f"grid, {rule}" for rule in RULES)]
            assert {*GRID, *result["members"], *rules, "aggregated", "CME"} <= set(rates)
            assert all(0 <= rate <= 1 for rate in rates.values())
            # With a landmark for each row, both compute the same test with the same draws.
            assert rates["aggregated"] == rates["largest z"]
        assert all(seconds > 0 for seconds in result["seconds"].values())
    assert "T-Cal, known bins" in results["t_cal_2000"]["rates"][CALIBRATED]
    assert "ECE" not in results["samples"]["rates"][CALIBRATED]
    assert 5_000 < (folder / "figures" / "power.png").stat().st_size < 200_000


def test_one_set_of_draws_has_the_test_of_the_library():
    key = jax.random.key(0)
    for i in range(3):
        data = BINARY["waves, 1"](jax.random.key(i), 40)
        ours = columns.aggregated(key, *data, 19)
        assert ours == one_set_of_draws.pvalues(key, *data, 19)["largest z"]


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


def test_t_cal_sees_what_its_experiment_has():
    n, keys = 5000, jax.random.split(jax.random.key(0), 2)
    for scenario, expected in (CALIBRATED, False), ("40 bumps", True):
        predictions, labels = BUMPS[scenario](keys[0], n)
        n_bins = t_cal.dyadic_bins(n)
        assert t_cal.rejects(keys[1], predictions.probs, labels, n_bins, 199, 0.05) == expected
