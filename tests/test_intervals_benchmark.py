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


def test_chapters_of_misses():
    rates = {"a": {"10": {"above": 0.01, "below": 0.1, "normal": 0.2}}}
    means = intervals.chapter("means", rates)
    assert "| a | 1.0 \\| 10.0 (20.0) |" in means
    few = intervals.chapter("few", {"a": {"10": {"above": 0.0, "below": 0.1}}})
    assert "| a | 0.0 \\| 10.0 |" in few
    found = intervals.chapters_of(f"# Title\n\nText\n\n{few}\n{means}")
    assert found["skce"].strip() == "# Title\n\nText"
    assert found["few"].strip() == few.strip() and found["means"] == means


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
    text = (ROOT / "build" / "benchmarks" / "INTERVALS.md").read_text()
    assert all(heading in text for heading in ("## n = 50", *intervals.CHAPTERS.values()))
