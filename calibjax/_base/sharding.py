"""Computations with rows that are spread over several devices.

An estimator or test is written for the rows of one device.  Its argument `axis` names the mesh axes
along which the rows are cut, and is None on one device.  Devices exchange only sums, a few rows,
and the tiles that go round the ring (`_pairwise/ring.py`).
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec

from calibjax._base.compile import quick_jit
from calibjax._base.struct import PyTree, is_traced, rows_of

P = ParamSpec("P")
T = TypeVar("T")

#: Names of mesh axes, or None on one device.
Axis = str | tuple[str, ...] | None


class Devices(NamedTuple):
    """A mesh of devices, and the axes of the mesh along which the rows are cut."""

    mesh: Mesh | AbstractMesh
    axis: Axis

    def sharding(self, *axes: Axis) -> NamedSharding:
        return NamedSharding(self.mesh, PartitionSpec(*axes))


def devices_of(rows: PyTree) -> Devices | None:
    """The devices that hold the rows; None if the rows are not cut, or if that is unknown.

    An array knows its NamedSharding.  A tracer knows it if the axes of the mesh are Explicit, which
    is JAX's default; if they are Auto, only the compiler chooses it, later.
    """
    for leaf in jax.tree.leaves(rows):
        if (sharding := _cut_of(leaf)) is not None and sharding.spec[0]:
            return Devices(sharding.mesh, sharding.spec[0])
    return None


def _cut_of(x: object) -> NamedSharding | None:
    """How an array is cut among devices; None if it is not, or if that is unknown."""
    is_concrete = isinstance(x, (jax.Array, np.ndarray)) and not isinstance(x, jax.core.Tracer)
    sharding = getattr(x if is_concrete else jax.typeof(x), "sharding", None)
    return sharding if isinstance(sharding, NamedSharding) and any(sharding.spec) else None


def on_devices(core: Callable[..., T], **compilation: Any) -> Callable[..., T]:
    """Decorator: compiles ``core(axis, shared, rows, *options)`` and runs it on all devices.

    The decorated function has the arguments ``(shared, rows, *options)``.  The first axis of all
    leaves of `rows` is cut among the devices.  `shared` is the same on all devices, and the result
    of `core` must be the same too.  Options are hashable.  `compilation` is what `quick_jit` takes.
    """
    return _on_devices(
        core, lambda axis: PartitionSpec(), functools.partial(quick_jit, **compilation)
    )


#: Decorator: as `on_devices`, for what loops call: it takes longer to compile and runs faster.
optimised_on_devices = functools.partial(on_devices, optimised=True)


def row_by_row_on_devices(core: Callable[..., T]) -> Callable[..., T]:
    """As `on_devices`, but the result of `core` has a row for each of the rows, and is cut too."""
    return _on_devices(core, PartitionSpec, functools.partial(quick_jit, light=True))


def _on_devices(
    core: Callable[..., T],
    out_specs: Callable[[Axis], PartitionSpec],
    jit: Callable[..., Callable[..., T]],
) -> Callable[..., T]:
    def on_mesh(devices, shared, rows, *options):
        if devices is None:
            # An Explicit mesh has cut another axis than that of the rows.
            return core(None, *jax.tree.map(_replicated, (shared, rows)), *options)
        local = jax.shard_map(
            lambda shared, rows: core(devices.axis, shared, rows, *options),
            mesh=devices.mesh,
            in_specs=(PartitionSpec(), PartitionSpec(devices.axis)),
            out_specs=out_specs(devices.axis),
            check_vma=False,
        )
        return local(_resharded(shared, devices), _resharded(rows, devices, devices.axis))

    # Profiles show the name of the core.
    on_mesh.__name__ = core.__name__
    n_arguments = len(inspect.signature(core).parameters)
    of_structure = (0, *range(3, n_arguments))
    alone, together = (jit(f, static_argnums=of_structure) for f in (core, on_mesh))

    @functools.wraps(core)
    def on_all_devices(shared, rows, *options):
        if not any(map(_cut_of, jax.tree.leaves((shared, rows)))):
            return alone(None, shared, rows, *options)
        return together(devices_of(rows), shared, rows, *options)

    return on_all_devices


def _replicated(x: jax.Array) -> jax.Array:
    """The array, whole on each device."""
    sharding = _cut_of(x)
    if sharding is None:
        return x
    return jax.sharding.reshard(x, NamedSharding(sharding.mesh, PartitionSpec()))


def _resharded(tree: T, devices: Devices, *axes: Axis) -> T:
    """The arrays, cut as `shard_map` expects them; only an Explicit mesh needs that."""
    if AxisType.Explicit not in devices.mesh.axis_types:
        return tree
    return jax.tree.map(lambda x: jax.sharding.reshard(x, devices.sharding(*axes)), tree)


def gathered(tree: T) -> T:
    """All rows on each device, for functions that do not work on the rows of one device."""
    devices = devices_of(tree)
    if devices is None:
        return tree
    return _copy_to(devices.sharding())(tree)


@functools.cache
def _copy_to(sharding: NamedSharding) -> Callable[[PyTree], PyTree]:
    return jax.jit(lambda tree: tree, out_shardings=sharding)


def on_all_rows(core: Callable[P, T]) -> Callable[P, T]:
    """Decorator: compiles `core` and runs it with all rows on each device.

    Its arguments by name alone are hashable options.
    """
    parameters = inspect.signature(core).parameters.values()
    names = [x.name for x in parameters if x.kind is x.KEYWORD_ONLY]
    compiled = quick_jit(core, static_argnames=names)

    @functools.wraps(core)
    def run(*args: P.args, **options: P.kwargs) -> T:
        # Empty cells are NaN, which is not an error.
        with jax.debug_nans(False):
            return compiled(*gathered(args), **options)

    return run


def on_one_device(tree: T) -> T:
    """All rows on one device, for checks of their values; tracers stay as they are."""
    if devices_of(tree) is None:
        return tree

    def move(x: jax.Array) -> jax.Array:
        if is_traced(x) or devices_of(x) is None:
            return x
        return jnp.asarray(np.asarray(gathered(x)))

    return jax.tree.map(move, tree)


def as_varying(tree: T, like: PyTree) -> T:
    """The arrays of `tree`, declared to vary between the devices of a user's shard_map.

    `jax.shard_map` tracks which arrays can vary between devices, and a loop must start and end with
    carries that vary alike.  A constant does not vary, but the data `like` that the loop adds to it
    may.  `tree` becomes a choice by a condition on the data that is never true, which makes it
    vary; the compiler removes the choice.
    """
    if not jax.sharding.get_abstract_mesh().manual_axes:
        return tree
    data = [x.reshape(-1)[0] for x in map(jnp.asarray, jax.tree.leaves(like)) if x.size]
    never = functools.reduce(jnp.logical_or, [(x != x) & False for x in data])
    return jax.tree.map(lambda x: jnp.where(never, x, x), tree)


def axis_size(axis: Axis) -> int:
    """The number of devices along the axes."""
    return 1 if axis is None else lax.axis_size(axis)


def all_sum(x: T, axis: Axis) -> T:
    """The sum of each leaf over the devices."""
    return x if axis is None else lax.psum(x, axis)


def all_max(x: jax.Array, axis: Axis) -> jax.Array:
    """The elementwise maximum over the devices, with derivative 0."""
    x = lax.stop_gradient(x)
    return x if axis is None else lax.pmax(x, axis)


def all_of(x: jax.Array, axis: Axis) -> jax.Array:
    """The arrays x of all devices, ``[D, …]``."""
    return x[None] if axis is None else lax.all_gather(x, axis)


def index_on(axis: Axis) -> jax.Array:
    """The index of this device."""
    return jnp.zeros((), jnp.int32) if axis is None else lax.axis_index(axis)


def global_offset(n: jax.Array | int, axis: Axis) -> tuple[jax.Array, jax.Array]:
    """The number of rows on all devices before this one, and the number on all devices.

    This device has n rows, and n may differ between devices.
    """
    n_here = jnp.asarray(n, jnp.int32)
    if axis is None:
        return jnp.zeros((), jnp.int32), n_here
    n_rows = all_of(n_here, axis)
    is_before = jnp.arange(n_rows.shape[0], dtype=jnp.int32) < index_on(axis)
    n_before = jnp.sum(jnp.where(is_before, n_rows, 0), dtype=jnp.int32)
    return n_before, jnp.sum(n_rows, dtype=jnp.int32)


def evenly_spaced(n_rows: jax.Array, count: jax.Array | int, size: int) -> jax.Array:
    """The global index floor(j n / count) for j = 0 … size - 1, ``[size]``."""
    j = jnp.arange(size, dtype=jnp.int32)
    count = jnp.asarray(count, jnp.int32)
    # Without the product, which int32 may not hold; `//` would ask for the signs.
    return j * lax.div(n_rows, count) + lax.div(j * lax.rem(n_rows, count), count)


def rows_at(rows: T, n: jax.Array | int, index: jax.Array, axis: Axis) -> T:
    """The rows with a global `index`, on each device; the index counts n rows of each device.

    No index is beyond the last row of all devices.
    """
    if axis is None:
        return jax.tree.map(lambda x: rows_of(x, index), rows)
    index = index - global_offset(n, axis)[0]
    here = (index >= 0) & (index < n)
    index = jnp.clip(index, 0, jax.tree.leaves(rows)[0].shape[0] - 1)

    def rows_on_all_devices(x):
        chosen = rows_of(x, index)
        is_here = here.reshape(-1, *(1,) * (x.ndim - 1))
        here_only = jnp.where(is_here, chosen, jnp.zeros_like(chosen))
        # A sum of booleans is an integer.
        return all_sum(here_only, axis).astype(x.dtype)

    return jax.tree.map(rows_on_all_devices, rows)


def rows_from_here(x: jax.Array, n_rows: int, axis: Axis) -> jax.Array:
    """`n_rows` global rows, from the first row of this device on; row 0 follows the last row."""
    parts, missing, offset = [x], n_rows - x.shape[0], 1
    while missing > 0:
        parts.append(from_device(x[:missing], offset, axis))
        missing, offset = missing - x.shape[0], offset + 1
    return jnp.concatenate(parts)


def from_device(x: jax.Array, offset: int, axis: Axis) -> jax.Array:
    """The array x of the device that is `offset` further on in the ring of devices."""
    n = axis_size(axis)
    return lax.ppermute(x, axis, [((i + offset) % n, i) for i in range(n)])
