"""The level of the aggregated test is a theorem: calibrated models are rejected that rarely."""

import numpy as np
import pytest

from benchmarks import levels as script
from benchmarks.works.levels import DATA_SETS, cases, levels

# `benchmarks.levels` has all data sets, and all numbers of rows for each family.
FEWER = 5
OF_ALL_SIZES = {"1 event", "10 classes", "normal", "10 samples"}


def some_cases():
    """All families with few rows, where the law of the statistic is far from any limit."""
    for family, n in cases():
        if n == 10 or family in OF_ALL_SIZES or (family.endswith("events") and n == 1000):
            yield family, n


@pytest.mark.slow
@pytest.mark.parametrize(("family", "n"), list(some_cases()))
def test_level(family, n):
    n_data_sets = DATA_SETS[n] // FEWER
    pvalues = levels(family, n, n_data_sets, 99)
    # NaN is no p-value, and none is 0.
    assert np.all((pvalues > 0.0099) & (pvalues <= 1))
    for level in (0.01, 0.05, 0.5):
        standard_error = np.sqrt(level * (1 - level) / n_data_sets)
        assert np.mean(pvalues <= level + 1e-6) <= level + 4 * standard_error


@pytest.mark.slow
@pytest.mark.parametrize("family", ["10 classes", "normal", "10 samples"])
def test_the_level_is_attained(family):
    # Without ties the p-value is uniform on its values.
    pvalues = levels(family, 30, 2000, 99)
    assert abs(np.mean(pvalues <= 0.05 + 1e-6) - 0.05) <= 4 * np.sqrt(0.05 * 0.95 / 2000)


@pytest.mark.slow
def test_the_page_of_levels(tmp_path):
    results = {"normal": {"5": script.run("normal", 5, 100)}}
    assert sum(results["normal"]["5"]["counts"]) == 100
    script.draw(results, tmp_path / "levels.png")
    assert (tmp_path / "levels.png").stat().st_size > 10_000
    assert f"| normal |  | {script.cell(results['normal']['5'])} |" in script.page(results)


def test_rates_are_read_off_the_counts():
    counts = np.zeros(100, int)
    counts[[0, 4, 5, 99]] = 1, 4, 5, 10
    result = {"counts": counts.tolist(), "seconds": 1.0, "device": "none"}
    assert script.cell(result) == "5.0 / 25.0"
    np.testing.assert_allclose(script.excess(result, 0.05), 0.2 / np.sqrt(0.05 * 0.95 / 20))
