"""All Python code of the README runs, in order, as one program."""

import pathlib
import re

import closed_forms
import jax
import numpy as np

import calibjax as cj

README = pathlib.Path(__file__).parents[1] / "README.md"


def test_readme_code_runs(capsys):
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)
    namespace: dict = {}
    # As a user has it: optax's own arithmetic needs the standard promotion.
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        for block in blocks:
            exec(compile(block, str(README), "exec"), namespace)
    calibrated, biased, errors, result, *ensembles, custom, placed, pvalue = (
        capsys.readouterr().out.splitlines()
    )
    assert abs(float(calibrated)) < float(biased)
    honest, overconfident = map(float, errors.split())
    assert abs(honest) < 0.1 * overconfident
    assert "bootstrap of 1000" in result and "pvalue = 0." in result
    assert len(ensembles) == 3 and all(abs(float(value)) < 1e-2 for value in ensembles)
    assert abs(float(custom)) < 0.05
    on_one = (namespace[name] for name in ("kernel", "overconfident", "y"))
    np.testing.assert_allclose(float(placed), cj.skce(*on_one), atol=1e-6)
    assert float(pvalue) < 0.01
    assert float(namespace["value"]) > 0
    assert abs(float(namespace["temperature"]) - 4) < 0.5
    assert 0.001 < float(namespace["test"].pvalue) <= 1


def test_the_table_is_that_of_the_registry():
    assert closed_forms.table() in README.read_text()
    assert set(closed_forms.FAMILIES) == set(cj.Distribution.__subclasses__())
