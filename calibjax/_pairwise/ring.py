"""The sum over all pairs of rows, with its derivatives, on one device or on many.

Nothing larger than one tile of pairs and a few copies of the rows of a device is ever in memory.

Take all K D tiles of the D devices as a ring.  In step d = 0, 1, …, K D / 2 each tile meets the one
d further on.  A device keeps its own K tiles, and holds as many others, the next ones of the ring:
the other of its tile k is in slot (k + d) mod K.  Between two steps one slot moves on: what leaves
slot d mod K goes to the device before, and what the device after sends replaces it.  So no
device ever holds more rows than twice its own.
"""

import functools
from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_derivatives import SymbolicZero

from calibjax._base.sharding import Axis, all_sum, as_varying, axis_size, from_device
from calibjax._base.struct import PyTree, indexed, merge, split
from calibjax._loops.coordinate_sums import row_at
from calibjax._loops.fusion import has_loops, made_once
from calibjax._numbers.arithmetic import compensated_add
from calibjax._pairwise.tiles import DiffPartition, Tile, Weighted, value_and_gradient, weighted_sum

T = TypeVar("T")

#: What a pair of tiles adds: to a tree that all pairs share, to one of the left tile, to one of the
#: right tile.
Trees = tuple[PyTree, PyTree, PyTree]
#: What a visit to a pair of tiles returns: a number for their sum, and what they add to trees.
Added = tuple[jax.Array, Trees]


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def ring_sum(tile: Tile, axis: Axis, parameters: PyTree, tiles: Weighted) -> jax.Array:
    """sum_{i < j} w_i w_j tile_ij over all rows of all devices, a scalar.

    `tiles` are the rows of this device and their weights, by tile.  Differentiable in all floating
    leaves of `parameters` and `tiles`, forwards, backwards and again.
    """

    def visit(left: Weighted, right: Weighted, same: jax.Array, factor: jax.Array) -> Added:
        return factor * weighted_sum(tile, parameters, left, right, same), ([], [], [])

    return all_sum(ring(visit, tiles, jnp.zeros((), tiles[1].dtype), [], [], axis)[0], axis)


@functools.partial(ring_sum.defjvp, symbolic_zeros=True)
def _ring_sum_jvp(tile, axis, primals, tangents):
    # The sum is a scalar: its whole derivative is one gradient, made along with the value in a
    # single pass.  Going back over all tiles would evaluate each of them once more.
    selected = tuple(tuple(map(_has_tangent, jax.tree.leaves(tree))) for tree in tangents)
    total, *gradient = _ring_gradient(tile, axis, selected, *primals)
    tangents = [split(*pair)[0] for pair in zip(tangents, selected, strict=True)]
    products = jax.tree.map(lambda g, t: jnp.sum(g * t), gradient, tangents)
    tangent = sum(jax.tree.leaves(products), jnp.zeros_like(total))
    return all_sum((total, tangent), axis)


def _has_tangent(tangent: jax.Array | SymbolicZero) -> bool:
    return not isinstance(tangent, SymbolicZero) and tangent.dtype != jax.dtypes.float0


def _value_and_gradient(
    tile: Tile,
    axis: Axis,
    selected: tuple[tuple[bool, ...], tuple[bool, ...]],
    parameters: PyTree,
    tiles: Weighted,
) -> tuple[jax.Array, PyTree, PyTree]:
    """The sum over the pairs of this device, its gradient in the parameters, and the gradient of
    the sum over all devices in the tiles of this one."""
    selected_parameters, rest_parameters, of_parameters = split(parameters, selected[0])
    selected_tiles, rest_tiles, of_tiles = split(tiles, selected[1])
    # Where a tile meets only itself, its rows have one derivative on either side.
    is_one = tiles[1].shape[0] * axis_size(axis) == 1
    is_alone = is_one and not _has_loops_over_points(tile, parameters, tiles[0])
    of_left = split(tiles, [x and not is_alone for x in selected[1]])[2]

    def visit(left: PyTree, right: PyTree, same: jax.Array, factor: jax.Array) -> Added:
        if is_alone:
            left = [], jax.tree.leaves(merge(left[0], left[1], of_tiles))
        arguments = (
            DiffPartition(selected_parameters, rest_parameters),
            DiffPartition(*left),
            DiffPartition(*right),
        )
        structures = of_parameters, of_left, of_tiles
        value, (*rest, in_left, in_right) = value_and_gradient(tile, structures, arguments, same)
        found = value, (*rest, in_right if is_alone else in_left, in_right)
        return jax.tree.map(lambda x: factor * x, found)

    zero = jnp.zeros((), tiles[1].dtype)
    in_parameters, in_tiles = jax.tree.map(jnp.zeros_like, (selected_parameters, selected_tiles))
    return ring(visit, (selected_tiles, rest_tiles), zero, in_parameters, in_tiles, axis)


def _has_loops_over_points(tile: Tile, parameters: PyTree, tiles: PyTree) -> bool:
    """Whether the value of a pair is a loop over samples or components.

    There the derivative of one side alone is a sum whose terms XLA does not vectorise: of samples
    it takes nine times as long as the derivatives of both.
    """
    leaves = jax.tree.leaves(tiles)
    are_labels = any(jnp.issubdtype(x.dtype, jnp.integer) for x in leaves)
    if are_labels or all(x.ndim <= 2 for x in leaves):  # They have none, and tracing takes time.
        return False
    rows = indexed(tiles, 0)
    return has_loops(tile, parameters, rows, rows)


# A rule that changes no derivative: it only hides the loops from jax's partial evaluation, which
# would move what does not change in them out of them, one small array at a time.
_ring_gradient = jax.custom_jvp(_value_and_gradient, nondiff_argnums=(0, 1, 2))


@_ring_gradient.defjvp
def _ring_gradient_jvp(tile, axis, selected, primals, tangents):
    # XLA may recompute rows in loops over pairs, with different code for each side: equal rows
    # would differ by a rounding, and have a slope where there is a kink.
    primals = jax.tree.map(made_once, primals)
    return jax.jvp(functools.partial(_value_and_gradient, tile, axis, selected), primals, tangents)


def ring(
    visit: Callable[[PyTree, PyTree, jax.Array, jax.Array], Added],
    tiles: PyTree,
    zero: jax.Array,
    shared: PyTree,
    of_tiles: PyTree,
    axis: Axis,
) -> tuple[jax.Array, PyTree, PyTree]:
    """Adds up what `visit` gives for all unordered pairs of tiles, a tile with itself included.

    Args:
        visit: ``visit(left, right, same, factor)`` of two tiles returns a value and three trees:
            one that is shared by all pairs, one for left and one for right.  Pairs that are visited
            twice have the factor 1/2: two tiles opposite in the ring, and each pair of rows of a
            tile that meets itself.
        tiles: arrays ``[K, …]``.
        zero: of the shape of the value.
        shared, of_tiles: zeros of the shape of the trees; of_tiles ``[K, …]``.

    Returns:
        The sum of the values and of the shared trees over the pairs of this device, and the sums
        for its tiles over the pairs of all devices.
    """
    n_tiles = jax.tree.leaves(tiles)[0].shape[0]
    n_all = n_tiles * axis_size(axis)
    if n_all == 1:  # No loop is traced, and nothing is added.
        one = indexed(tiles, 0)
        value, (shared, *both) = visit(one, one, jnp.ones((), bool), jnp.full((), 0.5))
        return value, shared, indexed(jax.tree.map(jnp.add, *both), None)
    n_steps = n_all // 2 + 1

    def step(carry, d):
        others, sums = carry

        def pair(k, sums):
            total, shared, of_own, of_others = sums
            slot = lax.rem(k + d, n_tiles)
            left, right = _get(tiles, k), _get(tiles if axis is None else others, slot)
            factor = jnp.where((d == 0) | (2 * d == n_all), 0.5, 1.0)
            value, (ours, of_left, of_right) = visit(left, right, d == 0, factor)
            return (
                compensated_add(total, value),
                jax.tree.map(jnp.add, shared, ours),
                jax.tree.map(functools.partial(_add_at, k), of_own, of_left),
                jax.tree.map(functools.partial(_add_at, slot), of_others, of_right),
            )

        sums = lax.fori_loop(0, n_tiles, pair, sums)
        if axis is not None:
            *rest, of_others = sums
            others, of_others = _pass_on((others, of_others), d % n_tiles, axis)
            sums = (*rest, of_others)
        return (others, sums), None

    others = () if axis is None else tiles
    carry = others, as_varying(((zero, zero), shared, of_tiles, of_tiles), tiles)
    (_, sums), _ = lax.scan(step, carry, jnp.arange(n_steps))
    (high, low), shared, of_own, of_others = sums
    if axis is not None:
        of_others = _home(of_others, n_steps, axis)
    return high + low, shared, jax.tree.map(jnp.add, of_own, of_others)


def _get(tiles: T, k: jax.Array) -> T:
    return jax.tree.map(lambda x: row_at(x, k), tiles)


def _set(x: jax.Array, k: jax.Array, value: jax.Array) -> jax.Array:
    return lax.dynamic_update_index_in_dim(x, value, k, 0, allow_negative_indices=False)


def _add_at(k: jax.Array, x: jax.Array, term: jax.Array) -> jax.Array:
    return _set(x, k, row_at(x, k) + term)


def _pass_on(tiles: T, slot: jax.Array, axis: Axis) -> T:
    return jax.tree.map(lambda x: _set(x, slot, from_device(row_at(x, slot), 1, axis)), tiles)


def _home(tiles: T, n_steps: int, axis: Axis) -> T:
    """What has moved on in each of n_steps, back to where it came from."""

    def bring_home(x: jax.Array) -> jax.Array:
        far, n_farther = divmod(n_steps, x.shape[0])
        farther, rest = x[:n_farther], x[n_farther:]
        parts = (from_device(farther, -far - 1, axis), from_device(rest, -far, axis))
        return jnp.concatenate(parts)

    return jax.tree.map(bring_home, tiles)
