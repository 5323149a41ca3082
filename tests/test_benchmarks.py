"""The benchmarks run: tiny sizes, no claims about speed."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[1]


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is read from /proc")
def test_quick_run_measures_every_row(tmp_path):
    output = tmp_path / "results.json"
    subprocess.run(
        [sys.executable, "-m", "benchmarks.run", "--quick", "--output", str(output)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True,
        timeout=300,
    )

    results = json.loads(output.read_text())
    assert set(results) == {"environment", "quick", "rows"}
    assert {"jax", "numpy", "cpu", "cores", "date"} <= set(results["environment"])
    names = {row["name"] for row in results["rows"]}
    assert names >= {"vmap", "scipy", "gradient", "normal", "large", "blocks", "bootstrap", "tests"}
    for row in results["rows"]:
        assert {"work", "ours", "peer", "ratio", "target", "met"} <= set(row)
        assert row["ours"] >= 0
        assert (row["ratio"] is None) == (row["peer"] is None)
        assert row["ratio"] is None or row["ratio"] > 0
