"""The benchmark of intervals runs, and its page says how far rates are from their levels."""

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import intervals
from tests.scripts import QUICK

ROOT = Path(__file__).parents[1]


def test_the_page_of_made_up_results():
    rates = {"coverage": [0.93, 0.95], "certificate": [0.95, 0.975], "width": 2.0}
    low = {"coverage": [0.9, 0.5], "width": 1.0}
    result = {"n_data_sets": 100, "skce": 0.5, "ours": rates, "Hájek": low, "blocks": low}
    page = intervals.page({"normal, wide, 50, 0": result})
    assert "| 0 | 0.5 | 93 / 95 | 90 / 50 | 90 / 50 | 2.00 | 1.00 | 1.00 |" in page
    assert "is 0.0 standard errors below its level" in page
    # (0.95 - 0.5) / sqrt(0.95 * 0.05 / 100)
    assert "Hájek standard error: 21." in page


@pytest.mark.slow
def test_a_quick_run():
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.intervals", "--quick"],
        cwd=ROOT,
        env=QUICK,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert "## n = 50" in (ROOT / "build" / "benchmarks" / "INTERVALS.md").read_text()
