"""All Python code of the README runs, in order, as one program."""

import pathlib
import re

import closed_forms
import jax
import jax.numpy as jnp
import pytest

import calibjax as cj

ROOT = pathlib.Path(__file__).parents[1]
README = ROOT / "README.md"


def test_nothing_is_left_to_fill_in():
    assert "@@" not in README.read_text()


@pytest.mark.example
@pytest.mark.slow
def test_readme_code_runs(capsys):
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)
    namespace: dict = {}
    # As a user has it: optax's own arithmetic needs the standard promotion.
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        for block in blocks:
            exec(compile(block, str(README), "exec"), namespace)
    *verdict, error, pvalue, tempered = capsys.readouterr().out.splitlines()
    first, second, *_ = verdict
    assert first == "Not calibrated (p ≤ 0.001, n = 1000)."
    assert second.startswith("Over-confident: mean confidence")
    assert "fitted temperature 1.4" in second
    assert 0.005 < float(error) < 0.05 and abs(float(tempered)) < 0.1 * float(error)
    assert abs(float(pvalue) - 0.001) < 1e-6
    assert abs(float(namespace["temperature"]) - 4) < 0.5
    gradient = namespace["gradient"]
    assert bool(jnp.all(jnp.isfinite(gradient))) and bool(jnp.any(gradient != 0))


def test_it_fits_on_a_screen():
    assert len(README.read_text().splitlines()) < 150


def test_the_table_is_that_of_the_registry():
    assert closed_forms.table() in (ROOT / "docs" / "families.md").read_text()
    public = [x for x in (getattr(cj, name) for name in cj.__all__) if isinstance(x, type)]
    families = {x for x in public if issubclass(x, cj.Distribution)}
    assert set(closed_forms.FAMILIES) == families - {cj.Distribution, cj.Univariate, cj.Counts}
