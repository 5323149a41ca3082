"""Functions that compile in less time are programs of their own, and parts of any other."""

import functools
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, PartitionSpec

from calibjax._base.compile import _is_known, quick_jit


@functools.partial(quick_jit, light=True, static_argnums=1)
def doubled(x, power=1):
    return 2 * x**power


@pytest.fixture
def optimised():
    """Tests have asked for no optimisations, which `quick_jit` leaves as it is."""
    before = jax.config.values["jax_disable_most_optimizations"]
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


X = np.arange(8, dtype=np.float32)


def at_compile_time(x):
    with jax.ensure_compile_time_eval():
        constant = doubled(X)
    return constant + x


def in_shard_map(x):
    mesh = jax.make_mesh((8,), ("rows",), axis_types=(AxisType.Auto,))
    rows = PartitionSpec("rows")
    return jax.shard_map(lambda x: doubled(x), mesh=mesh, in_specs=rows, out_specs=rows)(x)


CALLS = {
    "eager": (doubled, 2 * X),
    "static": (lambda x: doubled(x, 2), 2 * X**2),
    "jit": (jax.jit(lambda x: doubled(x)), 2 * X),
    "jit of a constant": (jax.jit(lambda x: x + doubled(X)), 3 * X),
    "compile time": (jax.jit(at_compile_time), 3 * X),
    "grad": (jax.grad(lambda x: doubled(x, 2).sum()), 4 * X),
    "grad beside a constant": (jax.grad(lambda x: (x * doubled(X)).sum()), 2 * X),
    "jvp": (lambda x: jax.jvp(doubled, (x,), (x,))[1], 2 * X),
    "vmap": (jax.vmap(doubled), 2 * X),
    "vmap beside a constant": (jax.vmap(lambda x: x + doubled(X)[3]), X + 6),
    "checkpoint": (jax.checkpoint(lambda x: x + doubled(X)), 3 * X),
    "scan": (lambda x: jax.lax.map(doubled, x), 2 * X),
    "shard_map": (in_shard_map, 2 * X),
}


@pytest.mark.parametrize("name", CALLS)
def test_every_way_to_call(optimised, name):
    function, expected = CALLS[name]
    np.testing.assert_array_equal(function(X), expected)


def test_an_option_that_is_not_known_is_no_error():
    assert _is_known(("xla_backend_optimization_level", 1))
    assert not _is_known(("xla_no_such_option", True))


def long_program(x):
    # A number of this run: no folder of jax has the program.
    x = x + time.time()
    for k in range(1, 40):
        x = jnp.sin(x) / k + jnp.cumsum(x * k)[::-1]
    return x


@pytest.mark.slow
def test_xla_still_compiles_faster_with_options(optimised):
    """Once it does not, the options can go: docs/house.md says how."""

    def seconds(jit):
        start = time.process_time()
        jit(long_program)(X)
        return time.process_time() - start

    light = functools.partial(quick_jit, light=True)
    light(jnp.sin)(X)
    assert seconds(light) < 0.8 * seconds(jax.jit)
