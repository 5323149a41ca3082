"""What every test runs under: strict promotion, and a stated precision."""

import os
from pathlib import Path

import jax
import pytest

# Scripts that compute reference numbers are run by hand: they need mpmath, which the tests do not.
collect_ignore = ["golden", "contributing"]

# Simulated, for tests/test_sharding.py.
jax.config.update("jax_num_cpu_devices", 8)


def pytest_configure(config):
    # Most of the time of a fast test is compilation, and half of that are optimisations of machine
    # code: the slow tests run with them.
    fast = config.option.markexpr == "not slow"
    jax.config.update("jax_disable_most_optimizations", fast)


@pytest.fixture(autouse=True)
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
