"""What every test runs under: strict promotion, and a stated precision."""

import gc
import itertools
import os
import platform
from pathlib import Path

import jax
import pytest

# Scripts that compute reference numbers are run by hand: they need mpmath, which the tests do not.
collect_ignore = ["golden", "contributing"]

# Simulated, for tests/test_sharding.py.
jax.config.update("jax_num_cpu_devices", 8)

# Most of the time of a test is compilation, most of that optimisations of machine code. With the
# simpler emitter of XLA, and each program as one module of LLVM, the same program compiles in a
# quarter of the time. Later versions have that emitter no more, and abort at an unknown flag.
SIMPLE_CODE = "--xla_cpu_parallel_codegen_split_count=1"
if jax.__version_info__ < (0, 11):
    SIMPLE_CODE += " --xla_cpu_use_fusion_emitters=false"


def pytest_addoption(parser):
    parser.addoption(
        "--optimised",
        action="store_true",
        help="compile as users do, not as fast as possible: for slow tests, and in CI",
    )


def pytest_configure(config):
    if not config.option.optimised:
        jax.config.update("jax_disable_most_optimizations", True)
        # Which line of Python an operation comes from is for profiles.
        jax.config.update("jax_include_full_tracebacks_in_locations", False)
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {SIMPLE_CODE}"
    # Programs that took long to compile are there in the next run; --cache-clear removes them. Each
    # worker has a folder, since jax does not write a file in one step, and each machine its code.
    if hasattr(config, "cache") and jax.config.jax_compilation_cache_dir is None:
        worker = os.environ.get("PYTEST_XDIST_WORKER", "alone")
        folder = config.cache.mkdir(f"programs-{platform.node()}-{worker}")
        jax.config.update("jax_compilation_cache_dir", str(folder))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)


# Compiled programs have dozens of parts of memory each, and Linux gives a process 65530: at one
# more it ends with a segmentation fault.
MEMORY_PARTS, MOST_PARTS = Path("/proc/self/maps"), 40_000
# A count takes milliseconds, and one test adds a few hundred parts.
counts_of_parts = itertools.cycle([True, *[False] * 15])


def pytest_runtest_teardown(nextitem):
    if nextitem is not None and next(counts_of_parts) and MEMORY_PARTS.exists():
        if MEMORY_PARTS.read_bytes().count(b"\n") > MOST_PARTS:
            jax.clear_caches()


# What takes a seventh of a second or more on a machine of two cores, nearly all of it compilation,
# unless no other fast test runs the lines of the library that it runs, and the longest examples of
# docstrings: a line names a case, a test with all its cases, or a file.
LONG = frozenset((Path(__file__).parent / "long.txt").read_text().splitlines())


def pytest_ignore_collect(collection_path, config):
    """Not even reads files of slow tests only, if none of those shall run."""
    return config.option.markexpr == "not slow" and collection_path.name in LONG or None


def names_in_the_list(item):
    """The name of a docstring behind that of its subpackage, whichever file it is in."""
    if isinstance(item, pytest.DoctestItem):
        path = item.path.relative_to(item.config.rootpath).with_suffix("").parts
        subpackage = ".".join(part for part in path[:2] if not part.startswith("_"))
        return [subpackage + item.name.removeprefix(".".join(path))]
    name = item.nodeid.removeprefix("tests/")
    return [name, name.partition("[")[0], item.path.name]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Marks the tests of long.txt as slow, and the code of docstrings as examples."""
    found = {path.name for path in Path(__file__).parent.glob("test_*.py")}
    for item in items:
        names = LONG.intersection(names_in_the_list(item))
        found |= names
        if names:
            item.add_marker("slow")
        if isinstance(item, pytest.DoctestItem):
            item.add_marker("example")
    is_all = config.args == config.getini("testpaths") and not config.option.ignore
    if is_all and (gone := sorted(LONG - found)):
        raise pytest.UsageError(f"tests/long.txt names tests that do not exist: {gone}")


def pytest_collection_finish():
    # What is there now stays until the end, and so do most of the many objects of a trace.
    gc.freeze()
    gc.set_threshold(1_000_000, 20, 1000)


# Of a module, so that it comes before the other fixtures of modules: under another rule of
# promotion each program is another one.  Examples in docstrings run as users would run them.
@pytest.fixture(autouse=True, scope="module")
def strict():
    """No silent promotion of dtypes or ranks, whether in the library or in a test."""
    with jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"):
        yield


@pytest.fixture(params=["float32", "float64"])
def dtype(request):
    """Runs the test once for each floating dtype."""
    with jax.enable_x64(request.param == "float64"):
        yield request.param


@pytest.fixture
def float64():
    """Runs the test in double precision only."""
    with jax.enable_x64(True):
        yield


@pytest.fixture
def key():
    return jax.random.key(20240817)


@pytest.fixture(scope="session")
def reference_folder():
    """The folder with golden/ and data/ that is not part of this repository."""
    folder = os.environ.get("CALIBJAX_REFERENCE")
    if not folder:
        pytest.skip("CALIBJAX_REFERENCE is not set")
    return Path(folder)
