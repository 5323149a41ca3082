"""All Python code of the README runs, in order, as one program."""

import pathlib
import re

import closed_forms
import jax
import numpy as np

import calibjax as cj

README = pathlib.Path(__file__).parents[1] / "README.md"


def test_nothing_is_left_to_fill_in():
    assert "@@" not in README.read_text()


def test_readme_code_runs(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # it saves the state of a monitor
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)
    namespace: dict = {}
    # As a user has it: optax's own arithmetic needs the standard promotion.
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        for block in blocks:
            exec(compile(block, str(README), "exec"), namespace)
    output = capsys.readouterr().out.splitlines()
    verdict, calibrated, biased, errors, of_quantiles, scores, result = output[:7]
    *ensembles, gumbel, custom, placed, pvalue = output[-6:]
    members = output[7:14]
    temperature, *comparison = output[14:-6]
    assert verdict.startswith("Not calibrated (p = 0.001, 1000 rows): too sure, about as far off")
    assert "logits were 1.4 times too large" in verdict
    assert abs(float(calibrated)) < float(biased)
    honest, overconfident = map(float, errors.split())
    assert abs(honest) < 0.1 * overconfident
    assert "6 kernels, 999 draws from the model" in result and "pvalue = 0." in result
    assert "pvalue  kernel" in members[0] and len(members) == 7
    assert "(4.6" in temperature and "deviations 0.46" in temperature
    assert len(comparison) == 3 and "first is better calibrated" in comparison[2]
    assert len(ensembles) == 2 and all(abs(float(value)) < 1e-2 for value in ensembles)
    assert float(of_quantiles) == 0.001
    score, *places = map(float, re.findall(r"[0-9.]+", scores))
    assert 0.5 < score < 0.7 and len(places) == 3 and all(0 < place < 1 for place in places)
    of_gumbel, score = map(float, gumbel.split())
    assert of_gumbel > 1e-3 and 0.5 < score < 1.2
    assert abs(float(custom)) < 0.05
    on_one = (namespace[name] for name in ("kernel", "overconfident", "y"))
    np.testing.assert_allclose(float(placed), cj.skce(*on_one), atol=1e-6)
    assert float(pvalue) < 0.01
    monitor = namespace["monitor"]
    assert bool(monitor.alarm(0.05)) and 5e-9 < float(monitor.pvalue) < 3e-8
    assert int(monitor.changed_at) == 500
    assert float(namespace["value"]) > 0
    assert abs(float(namespace["temperature"]) - 4) < 0.5
    assert 0.001 < float(namespace["test"].pvalue) <= 1


def test_the_table_is_that_of_the_registry():
    assert closed_forms.table() in README.read_text()
    public = [x for x in vars(cj).values() if isinstance(x, type)]
    families = {x for x in public if issubclass(x, cj.Distribution)}
    assert set(closed_forms.FAMILIES) == families - {cj.Distribution, cj.Univariate, cj.Counts}
