"""The page of the benchmark of comparisons."""

from benchmarks import comparison


def test_the_page_of_made_up_results():
    levels = {"labels": {"both calibrated": {"50": (10, 100), "300": (0, 400)}}}
    row = {"network": "b", "estimate": 3e-3, "difference": 2e-3, "low": 1e-3, "high": 4e-3}
    rows = [{"network": "a", "estimate": 1e-3}, {**row, "pvalue": 0.02}]
    networks = {"file": "x.npz", "n": 7, "n_resamples": 99, "rows": rows}
    power = {"normal": {"0.8": (1, 8)}}
    page = comparison.page({"levels": levels, "power": power, "networks": networks})
    assert "| labels | both calibrated | 10.0 | 0.0 |  |" in page
    # (0.1 - 0.05) / sqrt(0.05 * 0.95 / 100)
    assert "The highest of 2 rates is 2.3 standard errors" in page
    assert "| rejected, % |  |  | 12.5 |  |  |" in page
    assert "| b | 3.000 | 2.000 | [1.000, 4.000] | 0.02 |" in page
