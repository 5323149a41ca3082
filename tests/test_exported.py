"""Lowered programs in files: read in place of tracing, and made anew when anything is wrong."""

import functools
import importlib
import os
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import calibjax as cj
from calibjax._base import exported
from calibjax._base.compile import program_folder, quick_jit
from calibjax.measures.sampling import Estimate


def scaled(predictions, factor, kind=Estimate):
    low = predictions.loc - factor * predictions.scale
    return predictions, kind(low, -low, jnp.sum(low))


def and_one(x):
    return x, 1.0


# Programs of calibjax alone are kept.
scaled.__module__ = and_one.__module__ = "calibjax.tests"

PREDICTIONS = cj.Normal(jnp.arange(5.0), jnp.full(5, 2.0))
EXPECTED = np.arange(5.0) - 6.0


@pytest.fixture
def folder(tmp_path):
    before = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", str(tmp_path / "new"))
    yield tmp_path / "new" / "calibjax"
    jax.config.update("jax_compilation_cache_dir", before)


def is_traced(*args, function=scaled, **options):
    """Whether a program is traced that no function of this process has made before."""
    calls = []

    @functools.wraps(function)
    def counted(*args, **kwargs):
        calls.append(args)
        return function(*args, **kwargs)

    made = exported.kept(counted, Path(jax.config.jax_compilation_cache_dir, "calibjax"))
    returned, found = jax.jit(made, static_argnames=list(options))(*args, **options)
    assert type(returned) is type(args[0]) and type(found) is options.get("kind", Estimate)
    np.testing.assert_array_equal(found[0], EXPECTED)
    assert float(found[2]) == EXPECTED.sum()
    return bool(calls)


def test_a_program_is_traced_once(folder):
    assert is_traced(PREDICTIONS, 3.0)
    assert not is_traced(PREDICTIONS, 3.0)
    assert len(list(folder.iterdir())) == 1


def test_the_dtypes_of_results_are_those_that_are_read(folder):
    """Else the next program would be another one in the process that has made this."""
    for _ in range(2):
        results = jax.jit(exported.kept(and_one, folder))(jnp.ones(2))
        assert not any(x.weak_type for x in results)


def test_jax_still_traces_what_it_has_compiled(folder):
    """Once it does not, the folder of programs can go: docs/house.md says how."""
    calls = []

    @jax.jit
    def traced(x):
        calls.append(x)
        return x + 1

    for _ in range(2):
        jax.clear_caches()
        traced(1.0)
    assert len(calls) == 2


def test_other_arguments_are_other_programs(folder):
    is_traced(PREDICTIONS, 3.0)
    assert is_traced(PREDICTIONS, jnp.full(5, 3.0))
    assert is_traced(cj.Laplace(PREDICTIONS.loc, PREDICTIONS.scale), 3.0)
    with jax.numpy_dtype_promotion("standard"):
        assert is_traced(PREDICTIONS, 3.0)
    assert is_traced(PREDICTIONS, 3.0, kind=Estimate)
    assert len(list(folder.iterdir())) == 5


def halved(file, other, monkeypatch):
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def of_another_version(file, other, monkeypatch):
    before = file.read_bytes()
    monkeypatch.setattr(jax, "__version__", "of the last release")
    assert is_traced(PREDICTIONS, 3.0) and file.read_bytes() != before


def foreign(file, other, monkeypatch):
    file.write_bytes(other.read_bytes())


@pytest.mark.parametrize("damage", [halved, of_another_version, foreign])
def test_a_bad_file_is_made_again(folder, damage):
    assert is_traced(PREDICTIONS, 3.0)
    (file,) = folder.iterdir()
    is_traced(PREDICTIONS, jnp.full(5, 3.0))
    (other,) = {*folder.iterdir()} - {file}
    with pytest.MonkeyPatch.context() as patch:
        damage(file, other, patch)
    assert is_traced(PREDICTIONS, 3.0)
    assert not is_traced(PREDICTIONS, 3.0)


def test_a_folder_that_cannot_be_written(folder):
    folder.parent.write_text("a file")
    assert is_traced(PREDICTIONS, 3.0) and is_traced(PREDICTIONS, 3.0)


@pytest.mark.filterwarnings("ignore:Error .* persistent compilation cache")
def test_a_folder_without_permission(folder):
    assert is_traced(PREDICTIONS, 3.0)
    folder.chmod(0o555)
    user, other = os.geteuid(), jnp.full(5, 3.0)
    # No permission stops root.
    os.seteuid(user or 65534)
    try:
        assert is_traced(PREDICTIONS, other) and is_traced(PREDICTIONS, other)
    finally:
        os.seteuid(user)
        folder.chmod(0o755)
    assert len(list(folder.iterdir())) == 1
    assert is_traced(PREDICTIONS, other) and not is_traced(PREDICTIONS, other)


def test_results_are_bound_to_no_device(folder):
    """Those of kept programs are, and go into no program with arrays on several."""
    setting = "jax_disable_most_optimizations"
    before = jax.config.values[setting]
    jax.config.update(setting, False)
    _, found = quick_jit(scaled)(PREDICTIONS, jnp.array(3.0))
    jax.config.update(setting, before)
    assert not found[0].committed and not folder.exists()


class OfUser(cj.Normal):
    pass


def test_nothing_of_a_user_is_kept(folder):
    for _ in range(2):
        assert is_traced(OfUser(PREDICTIONS.loc, PREDICTIONS.scale), 3.0)
    for kind in lambda *x: Estimate(*x), functools.wraps(cj.skce)(lambda *x: Estimate(*x)):
        jax.jit(exported.kept(scaled, folder), static_argnums=2)(PREDICTIONS, 3.0, kind)
    assert not folder.exists()


def test_nothing_is_written_of_other_code(folder, monkeypatch):
    """A source that changed after it was imported, a mock of a function, and one of a method."""
    monkeypatch.setattr(exported, "_SOURCES", "of the last release")
    assert is_traced(PREDICTIONS, 3.0) and not folder.exists()
    monkeypatch.undo()
    with mock.patch("calibjax.evaluation.evaluate"):
        assert is_traced(PREDICTIONS, 3.0) and not folder.exists()
    with mock.patch.object(cj.Normal, "sample", lambda self, key: self.loc):
        assert is_traced(PREDICTIONS, 3.0) and not folder.exists()
    assert is_traced(PREDICTIONS, 3.0) and not is_traced(PREDICTIONS, 3.0)


class Imports:
    def __init__(self, *name):
        self.name = name

    def __reduce__(self):
        return importlib.import_module, self.name


@pytest.mark.parametrize(
    "content",
    [
        pickle.dumps((jax.tree.structure(0), Imports("this"))),
        b"\x80\x04\x8c\x14calibjax._base.files\x8c\x09os.system\x93.",
    ],
)
def test_files_import_nothing_else(tmp_path, content):
    path = tmp_path / "program"
    path.write_bytes(exported._digest("", content) + content)
    with pytest.raises(pickle.UnpicklingError, match="is not of calibjax or jax"):
        exported._read(path, "")
    assert "this" not in sys.modules


def test_a_result_that_has_no_place_in_a_file(folder):
    def with_function(predictions):
        return jax.tree_util.Partial(jnp.add, predictions.loc)

    with_function.__module__, with_function.__qualname__ = "calibjax.tests", "with_function"
    returned = jax.jit(exported.kept(with_function, folder))(PREDICTIONS)
    np.testing.assert_array_equal(returned(1.0), np.arange(5.0) + 1)
    assert not folder.exists()


def test_a_rule_of_a_user_for_our_types(folder, monkeypatch):
    monkeypatch.setattr(cj.mean_embedding, "rules", dict(cj.mean_embedding.rules))
    monkeypatch.setattr("calibjax._base.compile.RULES_OF_USERS", rules := [])
    monkeypatch.setattr("calibjax.expectations.dispatch.RULES_OF_USERS", rules)
    cj.mean_embedding.register(OfUser, cj.GaussianKernel)(lambda p, kernel, y: y)
    assert program_folder() == folder
    cj.mean_embedding.register(cj.Unnormalized, cj.GaussianKernel)(lambda p, kernel, y: y)
    assert program_folder() is None


SCRIPT = """
import sys
import jax, jax.numpy as jnp, calibjax as cj
jax.config.update("jax_compilation_cache_dir", sys.argv[1])
print(cj.log_score(cj.Categorical(jnp.full((40, 2), 0.5)), jnp.arange(40) % 2))
"""


def test_threads_at_once(folder):
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: is_traced(PREDICTIONS, 3.0), range(4)))
        assert not pool.submit(is_traced, PREDICTIONS, 3.0).result()
    assert len(list(folder.iterdir())) == 1


@pytest.mark.slow
def test_two_processes_at_once(folder):
    command = [sys.executable, "-c", SCRIPT, str(folder.parent)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(2)]
    values = {process.communicate()[0] for process in running}
    assert all(process.returncode == 0 for process in running)
    files = {file: file.read_bytes() for file in folder.iterdir()}
    assert values == {subprocess.run(command, check=True, capture_output=True).stdout}
    assert files and files == {file: file.read_bytes() for file in folder.iterdir()}
