"""What needs an extra says which one, in one sentence."""

import importlib
import sys

import jax
import numpy as np
import pytest

import calibjax as cj

SAID = "pip install 'calibjax[{}]'"

# What is missing, the subpackage that needs it, and the extra that brings it.
SUBPACKAGES = [
    ("matplotlib", "calibjax.plot", "plot"),
    ("sklearn", "calibjax.sklearn", "sklearn"),
    ("polars", "calibjax.hub", "cli"),
    ("polars", "calibjax.frames.files", "frames"),
]


@pytest.fixture
def without(monkeypatch):
    def hide(missing, *subpackages):
        monkeypatch.setitem(sys.modules, missing, None)
        for subpackage in subpackages:
            monkeypatch.delitem(sys.modules, subpackage, raising=False)

    return hide


@pytest.mark.parametrize(("missing", "subpackage", "extra"), SUBPACKAGES)
def test_subpackages(missing, subpackage, extra, without):
    without(missing, subpackage)
    with pytest.raises(ModuleNotFoundError) as error:
        importlib.import_module(subpackage)
    assert str(error.value).endswith(SAID.format(extra))


def test_calls(without, tmp_path):
    polars = pytest.importorskip("polars")
    path, frame = tmp_path / "a.csv", polars.DataFrame({"p": [0.1, 0.9], "y": [0, 1]})
    frame.write_csv(path)
    without("polars", "calibjax.frames.files")
    with pytest.raises(ModuleNotFoundError) as error:
        cj.evaluate(path, prob="p", target="y")
    assert str(error.value) == "files need polars: " + SAID.format("frames")
    without("narwhals")
    with pytest.raises(ModuleNotFoundError) as error:
        cj.evaluate(frame, prob="p", target="y")
    assert str(error.value) == "data: a frame needs narwhals: " + SAID.format("frames")


@pytest.mark.parametrize("missing", ["jinja2", "matplotlib"])
def test_reports(missing, without):
    without(missing, "calibjax.plot", "calibjax.evaluation._report")
    with pytest.raises(ModuleNotFoundError) as error:
        cj.Evaluation.to_html(None)
    assert str(error.value).endswith(SAID.format("report")) and error.value.name == missing


def test_arrays_need_no_extra(without):
    for missing in ("matplotlib", "sklearn", "polars", "narwhals", "xarray", "jinja2", "optax"):
        without(missing)
    predictions, targets = cj.Bernoulli(np.linspace(0.1, 0.9, 20)), np.arange(20) % 2
    loss = jax.jit(lambda p: cj.skce(cj.default_kernel(p), p, targets))
    assert np.isfinite(loss(predictions))
    assert cj.Data(predictions, targets).n == 20
