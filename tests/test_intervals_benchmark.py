"""The benchmark of intervals runs, and its page says how far rates are from their levels."""

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import intervals
from tests.scripts import QUICK

ROOT = Path(__file__).parents[1]


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
