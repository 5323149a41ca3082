"""The examples run as a reader would run them."""

import math
import pathlib
import re

import pytest
from scripts import output_of

EXAMPLES = pathlib.Path(__file__).parents[1] / "examples"


@pytest.mark.parametrize(
    ("script", "options"),
    [
        pytest.param("train_digits.py", []),
        pytest.param("train_digits.py", ["--block-size", "16", "--unbiased"]),
        pytest.param("train_diabetes.py", []),
    ],
)
def test_prints_a_table_and_saves_a_figure(script, options, tmp_path):
    arguments = "--quick", "--figure", "figure.png", *options
    printed = output_of(EXAMPLES / script, *arguments, folder=tmp_path)
    rows = re.findall(r"^ +(?:0|30) +.*±.*$", printed, flags=re.MULTILINE)
    assert len(rows) == 2, printed
    for row in rows:
        numbers = [float(word) for word in row.replace("±", " ").split()]
        assert len(numbers) >= 9 and all(map(math.isfinite, numbers))
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.example
@pytest.mark.parametrize("framework", ["optax", "nnx", "equinox"])
def test_loops(framework, tmp_path):
    printed = output_of(EXAMPLES / f"train_{framework}.py", folder=tmp_path)
    accuracy, loss, _ = map(float, re.findall(r"-?\d+\.\d+", printed))
    # Without a penalty the log loss is 1.22.
    assert 0.58 < accuracy < 0.68 and 1.0 < loss < 1.17


def test_a_newcomer_sees_a_sentence_and_a_picture_first(tmp_path):
    files = "--figure", "figure.png", "--report", "report.html", "--csv", "digits.csv"
    printed = output_of(EXAMPLES / "is_it_calibrated.py", *files, folder=tmp_path)
    verdicts = re.findall(
        r"^(Not calibrated|No miscalibration) .*?p = ([\d.]+)", printed, flags=re.MULTILINE
    )
    assert len(verdicts) == 2 and float(verdicts[0][1]) == 0.001
    assert "). Over-confident: mean confidence" in " ".join(printed.split())
    assert "fitted temperature 1.6" in " ".join(printed.split())
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "report.html").read_text()
    # The file that the README evaluates.
    assert (tmp_path / "digits.csv").read_text() == (EXAMPLES / "digits.csv").read_text()


def test_prints_what_a_temperature_changes(tmp_path):
    printed = output_of(EXAMPLES / "recalibrate.py", folder=tmp_path)
    tables = re.split(r"\n(?=\S.* held-out rows)", printed)[-2:]
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
