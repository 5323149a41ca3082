"""The examples run as a reader would run them."""

import math
import os
import pathlib
import re
import subprocess
import sys

import pytest

EXAMPLES = pathlib.Path(__file__).parents[1] / "examples"
# Most of a quick run is compilation.
QUICK = os.environ | {"XLA_FLAGS": "--xla_backend_optimization_level=0"}


@pytest.mark.parametrize(
    ("script", "options"),
    [
        ("train_digits.py", []),
        pytest.param(
            "train_digits.py", ["--block-size", "16", "--unbiased"], marks=pytest.mark.slow
        ),
        ("train_diabetes.py", []),
    ],
)
def test_prints_a_table_and_saves_a_figure(script, options, tmp_path):
    command = [sys.executable, EXAMPLES / script, "--quick", "--figure", "figure.png", *options]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, env=QUICK, timeout=300
    )
    assert done.returncode == 0, done.stderr
    rows = re.findall(r"^ +(?:0|30) +.*±.*$", done.stdout, flags=re.MULTILINE)
    assert len(rows) == 2, done.stdout
    for row in rows:
        numbers = [float(word) for word in row.replace("±", " ").split()]
        assert len(numbers) >= 9 and all(map(math.isfinite, numbers))
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")


def test_prints_all_tests_and_saves_a_figure(tmp_path):
    script = EXAMPLES / "is_it_calibrated.py"
    command = [sys.executable, script, "--quick", "--figure", "figure.png"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, env=QUICK, timeout=300
    )
    assert done.returncode == 0, done.stderr
    rows = re.findall(r"^\w+_test\b.*?((?: +\S+){4})$", done.stdout, flags=re.MULTILINE)
    assert len(rows) == 12, done.stdout
    pvalues = [[float(word) for word in row.split()[1::2]] for row in rows]
    assert all(0 <= p <= 1 for row in pvalues for p in row)
    overconfident, scaled = zip(*pvalues, strict=True)
    # The last three are the bounds, which hold at any n and find nothing here.
    assert max(overconfident[:-3]) < 0.05 < min(scaled)
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_prints_what_a_temperature_changes(tmp_path):
    command = [sys.executable, EXAMPLES / "recalibrate.py"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, env=QUICK, timeout=300
    )
    assert done.returncode == 0, done.stderr
    tables = re.split(r"\n(?=\S.* held-out rows)", done.stdout)[-2:]
    for table in tables:
        rows = dict(re.findall(r"^(\S.*?)((?: +-?[\d.]+){3})$", table, flags=re.MULTILINE))
        values = {name: [float(word) for word in row.split()] for name, row in rows.items()}
        assert len(values) == 5, table
        assert values["temperature"][0] == 1 and min(values["temperature"][1:]) > 1.5
        for name in "NLL", "1000 unbiased SKCE":
            before, *after = values[name]
            assert max(after) < before
        assert all(0 <= p <= 1 for p in values["p-value"])
    # One number is enough for the forest on this split.
    assert values["p-value"][0] < 0.05 < min(values["p-value"][1:])
