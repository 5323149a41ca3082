"""The example of the monitor runs as a reader would run it."""

import re
from pathlib import Path

import pytest
from scripts import output_of

SCRIPT = Path(__file__).parents[1] / "examples" / "monitor.py"


@pytest.mark.slow
def test_it_rings_after_the_writers_change(tmp_path):
    printed = output_of(SCRIPT, "--figure", "figure.png", folder=tmp_path)
    (numbers,) = re.findall(r"^Alarm after (\d+) images; new .* after (\d+)", printed, re.MULTILINE)
    alarm, change = map(int, numbers)
    assert change < alarm < 1000, printed
    sure, right = zip(
        *re.findall(r"writers: ([\d.]+)% sure.* ([\d.]+)% right", printed), strict=True
    )
    # As sure as before, and wrong more often.
    assert abs(float(sure[0]) - float(sure[1])) < 3 < float(right[0]) - float(right[1])
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")


def test_it_is_short():
    source = SCRIPT.read_text().partition('"""\n\n')[2]
    assert len([line for line in source.splitlines() if line.strip()]) < 50
