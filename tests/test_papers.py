"""The published experiments run as a reader would run them, in their quick settings."""

import itertools
import math
import pathlib
import re

import numpy as np
import pytest
from scripts import output_of

PAPERS = pathlib.Path(__file__).parents[1] / "examples" / "papers"
# Each script with the number of tables that it prints when quick, and its figures then.
SCRIPTS = {
    "iclr2021_ols": (2, ["iclr2021_ols"]),
    "iclr2021_estimates": (
        4,
        ["iclr2021_estimates_calibrated_1", "iclr2021_estimates_uncalibrated_1"],
    ),
    "iclr2021_tests": (2, ["iclr2021_tests_1"]),
    "iclr2021_friedman": (6, ["iclr2021_friedman"]),
    "iclr2021_friedman_calibrated": (2, ["iclr2021_friedman_calibrated"]),
    "neurips2019_estimates": (3, ["neurips2019_ece", "neurips2019_skce"]),
    "neurips2019_tests": (3, ["neurips2019_tests"]),
    "neurips2019_cifar10": (3, ["neurips2019_cifar10"]),
    "uai2023_kccsd": (2, ["uai2023_kccsd"]),
}


def test_every_script_is_tested():
    scripts = {path.stem for path in PAPERS.glob("*.py") if not path.stem.startswith("_")}
    assert scripts == set(SCRIPTS)


def tables(markdown):
    """The cells of the rows of each table."""
    lines = re.findall(r"(?:^\|.*\|\n)+", markdown, flags=re.MULTILINE)
    return [[row.split("|")[1:-1] for row in table.splitlines()[2:]] for table in lines]


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS)
def test_prints_tables_and_saves_figures(script, tmp_path):
    n_tables, figures = SCRIPTS[script]
    options = ["--quick"]
    if script == "neurips2019_cifar10":
        options.append(save_predictions(tmp_path / "predictions.npz"))
    output = output_of(PAPERS / f"{script}.py", *options, folder=tmp_path)
    printed = tables(output)
    assert len(printed) == n_tables, output
    for name, *cells in itertools.chain(*printed):
        numbers = re.findall(r"(?<![\w.])-?(?:\d[\d.e+-]*|nan|inf)", "|".join(cells))
        assert numbers and all(math.isfinite(float(x)) for x in numbers), name
    for figure in figures:
        content = (tmp_path / "quick-figures" / f"{figure}.png").read_bytes()
        assert content.startswith(b"\x89PNG")


def save_predictions(path):
    """Of one network with published numbers, which these are not, and of another one."""
    rng = np.random.default_rng(0)
    probs = rng.dirichlet(np.ones(3), (2, 100))
    np.savez(path, labels=rng.integers(0, 3, 100), resnet18=probs[0], mine=probs[1])
    return path


def test_figures_are_small_and_shown():
    for figure in (PAPERS / "figures").glob("*.png"):
        assert figure.stat().st_size < 150_000, figure
        assert f"figures/{figure.name}" in (PAPERS / "README.md").read_text()
