"""The benchmarks run: tiny sizes, no claims about speed."""

import json
import pathlib
import subprocess
import sys

import jax.numpy as jnp
import pytest
from jax import lax
from scripts import QUICK

from benchmarks import figures, page, survival
from benchmarks.monitor.__main__ import PARTS
from benchmarks.power.__main__ import QUICK_SETTINGS
from benchmarks.power.settings import SETTINGS
from benchmarks.tables import TABLES
from benchmarks.works.arithmetic import count
from benchmarks.works.families import cases

ROOT = pathlib.Path(__file__).parents[1]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """What a quick run writes, and that the committed page is not in it."""
    output = tmp_path_factory.mktemp("benchmarks")
    before = page.README.read_bytes()
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.run", "--quick", "--output", str(output)],
        cwd=ROOT,
        env=QUICK,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert page.README.read_bytes() == before
    return output


pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="memory is read from /proc"
)


def test_quick_run_measures_every_row(folder):
    results = json.loads((folder / "results.json").read_text())
    assert list(results) == list(TABLES)
    for name, result in results.items():
        assert {"date", "minutes", "others", "environment"} <= set(result)
        assert {"jax", "numpy", "cpu", "cores"} <= set(result["environment"])
        assert result["rows"], name
        for row in result["rows"]:
            assert set(row) & set(TABLES[name].columns), name
            if "ours" in row:
                assert row["ours"] > 0
                assert (row["ratio"] is None) == (
                    row["peer"] is None or isinstance(row["peer"], str)
                )
                assert row["ratio"] is None or row["ratio"] > 0
    measured = [row["work"] for row in results["gradient"]["rows"]]
    for name in cases(2):
        assert any(work.startswith(name) for work in measured), name


def test_page_has_every_table_and_figure(folder):
    text = (folder / "README.md").read_text()
    prose = page.README.read_text().split(page.BEGIN)[0]
    assert text.startswith(prose)
    for table in TABLES.values():
        assert f"### {table.title}\n" in text
        assert page.header(table) in text
    for name in figures.FIGURES:
        assert f"(figures/{name}.png)" in text
        assert 5_000 < (folder / "figures" / f"{name}.png").stat().st_size < 150_000


def test_count_of_operations():
    def product(a, b):
        return lax.platform_dependent(a, b, cpu=jnp.multiply, default=lambda a, b: jnp.exp(a * b))

    def pair(a, b):
        # Of one side only, the branch of a CPU, a loop, and the branch with more operations.
        x = jnp.exp(a) + product(a, b) + a * b
        x = lax.fori_loop(0, 3, lambda _, x: jnp.sqrt(x), x)
        return lax.cond(a > b, jnp.tanh, lambda x: jnp.log(x + b), x) + jnp.dot(b * a, jnp.ones(()))

    found = count(pair, 1.0, 2.0)
    kinds = {"multiply": 3, "add": 5, "sqrt": 3, "log": 1, "of a product of matrices": 1}
    assert found == kinds


# Each command with the page that it writes, and what stands in it.
COMMANDS = {
    "benchmarks.gpu": ("GPU.md", ["|"]),
    "benchmarks.monitor": ("MONITOR.md", [f"## {title}\n" for title, _ in PARTS.values()]),
    "benchmarks.power": ("POWER.md", [f"### {SETTINGS[name].title}" for name in QUICK_SETTINGS]),
    "benchmarks.survival": ("SURVIVAL.md", [f"| {name} |" for name in survival.cases()]),
}


@pytest.mark.parametrize("module", COMMANDS)
def test_quick_runs_write_their_pages(module, tmp_path):
    page, parts = COMMANDS[module]
    command = [sys.executable, "-m", module, "--quick", "--output", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, env=QUICK, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    text = (tmp_path / page).read_text()
    assert [part for part in parts if part not in text] == []
    if module == "benchmarks.gpu":
        rows = json.loads((tmp_path / "gpu.json").read_text())["rows"]
        assert all(row["error"] < 1e-4 for row in rows if "error" in row)
    elif module == "benchmarks.monitor":
        results = json.loads((tmp_path / "monitor.json").read_text())
        assert all(row["bit-equal"] for row in results["speed"]["rows"])
    elif module == "benchmarks.power":
        # With a landmark for each row, both compute the same test with the same draws.
        for result in json.loads((tmp_path / "power.json").read_text()).values():
            for rates in result["rates"].values():
                assert rates["aggregated"] == rates["largest z"]
