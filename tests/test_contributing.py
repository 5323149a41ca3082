"""The changes of docs/extend.md work, and the map of the code has all subpackages."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from marks import slow
from test_structure import SUBPACKAGES

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "extend.md").read_text()
SECTIONS = dict(re.findall(r"^### (.*?)\n(.*?)(?=^##|\Z)", PAGE, flags=re.DOTALL | re.MULTILINE))


def test_subpackages_are_in_the_order_of_imports():
    page = (ROOT / "docs" / "house.md").read_text()
    _, _, section = page.partition("## Subpackages")
    rows = re.findall(r"^\| (`.*?) \|", section.partition("\n## ")[0], flags=re.MULTILINE)
    assert [name.strip("/") for row in rows for name in re.findall("`(.*?)`", row)] == SUBPACKAGES


def apply_changes(section, folder):
    """Writes the files of a section, each after its path, and applies its diffs; returns the files.

    A diff has no line numbers: what a hunk keeps and removes must be there exactly once.
    """
    files = re.findall(r"`(\S+\.py)`:\n\n```python\n(.*?)```", section, flags=re.DOTALL)
    for path, text in files:
        (folder / path).write_text(text)
    (diff,) = re.findall(r"```diff\n(.*?)```", section, flags=re.DOTALL)
    for path, hunks in re.findall(
        r"^\+\+\+ (\S+)\n(.*?)(?=^\+\+\+ |\Z)", diff, re.DOTALL | re.MULTILINE
    ):
        text = (folder / path).read_text()
        for hunk in re.split(r"^@@\n", hunks, flags=re.MULTILINE):
            lines = hunk.splitlines(keepends=True)
            old, new = ("".join(x[1:] for x in lines if x[0] in kinds) for kinds in (" -", " +"))
            # Whole lines.
            assert text.count("\n" + old) == 1, f"{path} must have once\n{old}"
            text = text.replace("\n" + old, "\n" + new)
        (folder / path).write_text(text)
    return [path for path, _ in files]


# For each change the file of tests in tests/contributing/, and those generic tests that are quick
# and show that the change is complete.
CHANGES = {
    "Add a family": (
        "family",
        [
            "test_distributions.py::test_every_family_is_here",
            "test_distributions.py::test_moments_and_density[exponential]",
            "test_distributions.py::test_draws[exponential]",
            "test_cdf.py::test_cdf_and_quantile[float64-exponential]",
            "test_cdf.py::test_levels_at_the_ends_and_outside[exponential]",
            "test_default_kernel.py::test_gradient_is_stopped[exponential]",
            "test_readme.py::test_the_table_is_that_of_the_registry",
            "test_expectations.py::test_every_rule_has_its_twin_and_an_instance",
            "test_expectations.py::test_against_quadrature[exponential-laplacian]",
        ],
    ),
    "Add a kernel": (
        "kernel",
        [
            "test_kernels.py::test_target_kernels[rational_quadratic-True-3]",
            "test_random_features.py::test_target_kernels_are_means_over_frequencies[0.7-rational_quadratic]",
            "test_expectations.py::test_against_quadrature[empirical-rational_quadratic]",
        ],
    ),
    "Add a hypothesis test": (
        "hypothesis_test",
        ["test_hypothesis_tests.py::test_a_model_that_is_certain_and_right[cantelli]"],
    ),
    "Add a statistic of segments": ("statistic", []),
    "Add a measure": ("measure", []),
    "Add a metric": ("metric", []),
    "Add a plot": ("plot", []),
}


def test_every_change_is_tried():
    assert CHANGES.keys() == SECTIONS.keys()


@pytest.mark.parametrize("heading", slow(CHANGES, CHANGES))
def test_change(heading, tmp_path):
    for name in ("calibjax", "tests", "docs", ".ci"):
        ignored = shutil.ignore_patterns("__pycache__", "_build")
        shutil.copytree(ROOT / name, tmp_path / name, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    added = apply_changes(SECTIONS[heading], tmp_path)
    own, generic = CHANGES[heading]
    tests = [f"contributing/{own}.py", "test_structure.py", *generic]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        + [*added, *(f"tests/{test}" for test in tests)],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
