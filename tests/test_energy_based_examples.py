"""The examples of energy-based models run as a reader would run them."""

import re
from pathlib import Path

from scripts import output_of

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_the_normal_model_is_rejected_and_the_energy_based_one_is_better(tmp_path):
    printed = output_of(
        EXAMPLES / "energy_based.py", "--quick", "--figure", "figure.png", folder=tmp_path
    )
    rows = re.findall(r"^(\S.*?) +(\d) of 2 +(\d\.\d+) +(-?[\d.]+)$", printed, re.MULTILINE)
    (_, rejected, p, normal), (_, _, _, energy_based), *few = rows
    assert len(few) == 2, printed
    assert rejected == "2" and float(p) < 0.05
    assert float(energy_based) < float(normal) - 5
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")


def test_prints_what_a_penalty_changes(tmp_path):
    printed = output_of(EXAMPLES / "energy_based_penalty.py", "--quick", folder=tmp_path)
    rows = re.findall(r"^weight +(\d+): .* median p (\S+), .* (-?[\d.]+)$", printed, re.MULTILINE)
    assert [weight for weight, *_ in rows] == ["0", "1", "10", "100"], printed
    assert all(0 < float(p) <= 1 for _, p, _ in rows)
    # Ten epochs without a penalty do not overfit yet, and a weight of 100 is too much.
    assert float(rows[0][2]) < float(rows[3][2])
