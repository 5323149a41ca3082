"""Rows that lie on several devices, computed where they lie.

An estimator or test is written for the rows of one device and the name of the mesh axes along which
the others are, None if there are none.  Nothing but sums and what goes round the ring
(`_pairwise/_ring.py`) leaves a device.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from calibjax._struct import is_traced

T = TypeVar("T")

#: Names of mesh axes, or None on one device.
Axis = Any


class Devices(NamedTuple):
    """The devices of a mesh, and along which of its axes the rows are cut."""

    mesh: Any
    axis: Axis

    def sharding(self, *axes: Axis) -> NamedSharding:
        return NamedSharding(self.mesh, PartitionSpec(*axes))


def devices_of(rows: Any) -> Devices | None:
    """On which devices the rows lie; None if they are not cut, or if it cannot be known.

    An array knows its NamedSharding.  A tracer knows it where the axes of the mesh are Explicit,
    as they are by default; in those that are Auto only the compiler will.
    """
    for leaf in jax.tree.leaves(rows):
        is_array = isinstance(leaf, jax.Array) and not is_traced(leaf)
        sharding = leaf.sharding if is_array else getattr(jax.typeof(leaf), "sharding", None)
        if isinstance(sharding, NamedSharding) and sharding.spec and sharding.spec[0]:
            return Devices(sharding.mesh, sharding.spec[0])
    return None


def on_devices(core: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: compiles ``core(axis, shared, rows, *options)``, and runs it where the rows lie.

    The function that it makes is called without `axis`.  All leaves of `rows` have the rows as
    their first axis; `shared` is the same on all devices, and so must be what is returned.
    Options are hashable.
    """

    @functools.partial(jax.jit, static_argnums=(2, 3))
    def compiled(shared, rows, devices, options):
        if devices is None:
            return core(None, *jax.tree.map(_uncut, (shared, rows)), *options)
        local = jax.shard_map(
            lambda shared, rows: core(devices.axis, shared, rows, *options),
            mesh=devices.mesh,
            in_specs=(PartitionSpec(), PartitionSpec(devices.axis)),
            out_specs=PartitionSpec(),
            check_vma=False,
        )
        return local(_placed(shared, devices), _placed(rows, devices, devices.axis))

    @functools.wraps(core)
    def placed(shared, rows, *options):
        return compiled(shared, rows, devices_of(rows), options)

    return placed


def _uncut(x: jax.Array) -> jax.Array:
    """Without Explicit axes, along which something else than the rows is cut."""
    sharding = jax.typeof(x).sharding
    if not any(sharding.spec):
        return x
    return jax.sharding.reshard(x, NamedSharding(sharding.mesh, PartitionSpec()))


def _placed(tree: Any, devices: Devices, *axes: Axis) -> Any:
    """Where a mesh is Explicit, arrays must be where `shard_map` expects them."""
    if AxisType.Explicit not in devices.mesh.axis_types:
        return tree
    return jax.tree.map(lambda x: jax.sharding.reshard(x, devices.sharding(*axes)), tree)


def gathered(tree: Any) -> Any:
    """All rows on all devices, for what is not written for the rows of one device."""
    devices = devices_of(tree)
    if devices is None:
        return tree
    return _to(devices.sharding())(tree)


@functools.cache
def _to(sharding: NamedSharding) -> Callable[[Any], Any]:
    return jax.jit(lambda tree: tree, out_shardings=sharding)


def on_one_device(tree: Any) -> Any:
    """All rows as if there were one device, to look at their values; tracers have none."""

    def of_leaf(x):
        if is_traced(x) or devices_of(x) is None:
            return x
        return jnp.asarray(np.asarray(gathered(x)))

    return jax.tree.map(of_leaf, tree)


def as_varying(tree: T, like: Any) -> T:
    """The same arrays, declared to differ between the devices of a user's shard_map as `like` may.

    `jax.shard_map` keeps track of which arrays can differ between devices.  A loop that starts from
    a constant, the same on all devices, must declare it as different before it adds data to it.
    Here the constant is chosen by a condition on the data, which is never true: the compiler sees
    that and drops the choice.
    """
    data = [x.reshape(-1)[0] for x in map(jnp.asarray, jax.tree.leaves(like)) if x.size]
    never = functools.reduce(jnp.logical_or, [(x != x) & False for x in data])
    return jax.tree.map(lambda x: jnp.where(never, x, x), tree)


def axis_size(axis: Axis) -> int:
    """The number of devices."""
    return 1 if axis is None else lax.axis_size(axis)


def all_sum(x: Any, axis: Axis) -> Any:
    """The sum over the devices of each leaf."""
    return x if axis is None else lax.psum(x, axis)


def all_max(x: jax.Array, axis: Axis) -> jax.Array:
    """The largest over the devices; without a derivative."""
    x = lax.stop_gradient(x)
    return x if axis is None else lax.pmax(x, axis)


def all_of(x: jax.Array, axis: Axis) -> jax.Array:
    """The x of each device, ``[D, …]``."""
    return x[None] if axis is None else lax.all_gather(x, axis)


def index_on(axis: Axis) -> jax.Array:
    """The number of this device."""
    return jnp.zeros((), jnp.int32) if axis is None else lax.axis_index(axis)


def global_offset(n: Any, axis: Axis) -> tuple[jax.Array, jax.Array]:
    """How many rows lie on the devices before this one, and how many on all devices.

    This device has n rows, and n may differ between devices.
    """
    of_devices = all_of(jnp.asarray(n, jnp.int32), axis)
    before = jnp.arange(of_devices.shape[0], dtype=jnp.int32) < index_on(axis)
    first = jnp.sum(jnp.where(before, of_devices, 0), dtype=jnp.int32)
    return first, jnp.sum(of_devices, dtype=jnp.int32)


def rows_at(rows: Any, n: Any, index: jax.Array, axis: Axis) -> Any:
    """Some of all rows, on all devices; `index` counts the first n of each device."""
    index = index - global_offset(n, axis)[0]
    here = (index >= 0) & (index < n)
    index = jnp.clip(index, 0, jax.tree.leaves(rows)[0].shape[0] - 1)

    def of_leaf(x):
        chosen = x[index]
        return jnp.where(here.reshape(-1, *(1,) * (x.ndim - 1)), chosen, jnp.zeros_like(chosen))

    return all_sum(jax.tree.map(of_leaf, rows), axis)


def rows_from_here(x: jax.Array, n_rows: int, axis: Axis) -> jax.Array:
    """So many rows of all from the first one of this device on; after the last comes the first."""
    parts, missing, places = [x], n_rows - x.shape[0], 1
    while missing > 0:
        parts.append(from_places_on(x[:missing], places, axis))
        missing, places = missing - x.shape[0], places + 1
    return jnp.concatenate(parts)


def from_places_on(x: jax.Array, places: int, axis: Axis) -> jax.Array:
    """The x of the device that is some places on, in a ring."""
    n = axis_size(axis)
    return lax.ppermute(x, axis, [((i + places) % n, i) for i in range(n)])
