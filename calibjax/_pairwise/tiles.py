"""Rows cut into tiles, and the weighted sum of one tile of pairs, along with its gradient."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax import lax

from calibjax._base.compile import on_cpu
from calibjax._base.struct import PyTree, Split, indexed, merge
from calibjax._loops.fusion import in_one_loop, is_of_numbers, materialised
from calibjax._numbers.arithmetic import dot
from calibjax.kernels.base import vmap_pairs

T = TypeVar("T")

#: ``tile(parameters, rows, rows) -> [S, T]``, the values of all pairs of two batches of rows.
Tile = Callable[[PyTree, PyTree, PyTree], jax.Array]
#: Rows and their weights.
Weighted = tuple[PyTree, jax.Array]

# The number of rows of the left side that an accelerator takes at a time with one of the right,
# which it reads once for all of them, and the most classes for which it does: with few classes it
# spends most of its time on reading rows, and this takes half of it on an H100.
_SIDE_BY_SIDE = 4
_FEW_CLASSES = 32


def most_tile_rows() -> int:
    """Rows of a tile: enough to hide the cost of a step, few enough for the caches of a CPU."""
    return 512 if on_cpu() else 4096


def tile_sizes(n: int) -> tuple[int, int]:
    """How many tiles n rows make, an odd number, and how many rows are in each."""
    tile_rows = most_tile_rows()
    if n <= tile_rows:
        return 1, n
    # An even ring has opposite tiles, which meet twice.
    n_tiles = -(-n // tile_rows) | 1
    # Rows in whole vectors of the widest registers.
    return n_tiles, -(-n // (16 * n_tiles)) * 16


def pad(rows_and_weights: tuple[T, jax.Array], n: int) -> tuple[T, jax.Array]:
    """Repeats the last row up to n rows, with weight 0."""
    rows, weights = rows_and_weights
    extra = n - weights.shape[0]
    if extra == 0:
        return rows_and_weights

    def with_last(x: jax.Array) -> jax.Array:
        last = lax.slice_in_dim(x, x.shape[0] - 1, x.shape[0])
        return jnp.concatenate([x, jnp.broadcast_to(last, (extra, *x.shape[1:]))])

    zeros = jnp.zeros((extra, *weights.shape[1:]), weights.dtype)
    return jax.tree.map(with_last, rows), jnp.concatenate([weights, zeros])


def cut(tree: T, size: int) -> T:
    """Cuts the leading axis of all leaves into pieces of one size, ``[n // size, size, …]``."""
    return jax.tree.map(lambda x: x.reshape(-1, size, *x.shape[1:]), tree)


def in_chunks(rows: T, weights: jax.Array, most: int) -> tuple[T, jax.Array]:
    """Rows and weights in chunks of nearly one size, at most of `most`, ``[chunks, size, …]``.

    Rows that are added have weight 0.
    """
    n = weights.shape[0]
    n_chunks = -(-n // max(1, most))
    size = -(-n // n_chunks)
    return cut(pad((rows, weights), n_chunks * size), size)


def weighted_sum(
    tile: Tile, parameters: PyTree, left: Weighted, right: Weighted, same: jax.Array
) -> jax.Array:
    """sum_ij w_i tile_ij w_j, of the pairs i != j where both sides are the same."""
    n = left[1].shape[0]
    right_rows, right_weights = right
    if on_cpu() or n % _SIDE_BY_SIDE or not _are_few_classes(left[0]):
        return _sum_of_tile(tile, parameters, left, right, same)
    size = n // _SIDE_BY_SIDE
    total = jnp.zeros((size, right_weights.shape[0]), right_weights.dtype)
    for start in range(0, n, size):
        rows, weights = jax.tree.map(lambda x, at=start: x[at : at + size], left)
        values = tile(parameters, rows, right_rows)
        with_itself = jnp.eye(size, n, start, dtype=bool) & same
        values = jnp.where(with_itself, 0.0, values)
        total += values * (weights[:, None] * right_weights[None, :])
    return jnp.sum(total)


def _are_few_classes(rows: PyTree) -> bool:
    """Whether a row is an integer and few other numbers."""
    leaves = jax.tree.leaves(rows)
    numbers = [x for x in leaves if jnp.issubdtype(x.dtype, jnp.floating)]
    are_few = all(x.ndim == 2 and x.shape[1] <= _FEW_CLASSES for x in numbers)
    return len(numbers) < len(leaves) and are_few


def weighted(values: jax.Array, left: jax.Array, right: jax.Array) -> jax.Array:
    """sum_ij left_i values_ij right_j."""
    if on_cpu():
        return jnp.sum(dot(left, values) * right)
    # A product of matrices would need the values in memory; a sum takes them as they are made.
    return jnp.sum(values * (left[:, None] * right[None, :]))


# The number of partial derivatives that one loop makes beside the value; `in_one_loop` says why.
_PARTIALS_PER_LOOP = 4


class DiffPartition(NamedTuple):
    """The leaves of a tree whose derivative is wanted, and the others."""

    leaves: list[jax.Array]
    rest: list[jax.Array]


#: Parameters, left and right.
Arguments = tuple[DiffPartition, DiffPartition, DiffPartition]
#: Derivatives in the selected leaves of each argument.
Gradient = tuple[list[jax.Array], list[jax.Array], list[jax.Array]]


def tile_values(tile: Tile, parameters: PyTree, left: PyTree, right: PyTree) -> jax.Array:
    """The values of all pairs, ``[S, T]``, in few loops on a CPU."""
    return tile(parameters, materialised(left), materialised(right))


def _sum_of_tile(
    tile: Tile, parameters: PyTree, left: Weighted, right: Weighted, same: jax.Array
) -> jax.Array:
    """`weighted_sum`, of all values at once."""
    values = tile(parameters, left[0], right[0])
    values = jnp.where(jnp.eye(left[1].shape[0], dtype=bool) & same, 0.0, values)
    return weighted(values, left[1], right[1])


def value_and_gradient(
    tile: Tile, structures: tuple[Split, Split, Split], arguments: Arguments, same: jax.Array
) -> tuple[jax.Array, Gradient]:
    """`weighted_sum`, and its gradient in the selected leaves of parameters, left and right.

    Args:
        structures: what `merge` needs for the parameters, and for either side.
    """
    of_parameters, *of_sides = structures

    def total(*selected: list[jax.Array]) -> jax.Array:
        every = zip(selected, arguments, structures, strict=True)
        parameters, left, right = (merge(leaves, x.rest, of_one) for leaves, x, of_one in every)
        return _sum_of_tile(tile, parameters, *materialised((left, right)), same)

    def pair_value(parameters: DiffPartition, *sides: DiffPartition) -> jax.Array:
        pairs = zip(sides, of_sides, strict=True)
        x, y = (indexed(merge(*side, of_side)[0], None) for side, of_side in pairs)
        return tile(merge(*parameters, of_parameters), x, y).reshape(())

    if not on_cpu() or not _is_of_numbers(pair_value, arguments):
        return jax.value_and_grad(total, (0, 1, 2))(*(argument.leaves for argument in arguments))
    sides = zip(arguments[1:], of_sides, strict=True)
    left_weights, right_weights = (merge(*side, of_side)[1] for side, of_side in sides)
    weights, are_selected = (left_weights, right_weights), [kinds[-1] for _, kinds in of_sides]
    return _by_partials(pair_value, arguments, weights, same, are_selected)


def _is_of_numbers(pair_value: Callable[..., jax.Array], arguments: Arguments) -> bool:
    parameters, *sides = arguments
    if any(x.ndim > 0 for x in parameters.leaves):
        return False
    if any(x.ndim > 1 for x in jax.tree.leaves(sides)):
        return False
    return is_of_numbers(pair_value, parameters, *indexed(sides, 0))


def _by_partials(
    pair_value: Callable[..., jax.Array],
    arguments: Arguments,
    weights: tuple[jax.Array, jax.Array],
    same: jax.Array,
    are_weights_selected: Sequence[bool],
) -> tuple[jax.Array, Gradient]:
    """The sum and its gradient where all that makes the value of a pair is numbers.

    With the partial derivatives of one pair, g_ij = d tile_ij / d x_i, the derivative in x_i is
    w_i sum_j g_ij w_j: a product of a tile with a vector, and so are those in y_j and in weights.
    The value and a few partial derivatives come out of one loop.  More of them are made side by
    side, each time from the values on: rows that are held once more keep XLA from merging the
    loops, which would hold in memory what they share.
    """
    left_weights, right_weights = weights
    same_row = jnp.eye(left_weights.shape[0], dtype=bool) & same
    # The weights are the last leaves of either side, and no pair has a derivative in them.
    parameters, left, right = arguments
    sizes = (len(argument.leaves) for argument in arguments)
    counts = [n - is_one for n, is_one in zip(sizes, (False, *are_weights_selected), strict=True)]
    arrays: list[jax.Array] = []
    for group in _groups(counts):
        left, right = materialised((left, right))
        values, partials = _values_and_partials(pair_value, group, parameters, left, right)
        made = [values, *partials] if not arrays else partials
        arrays += in_one_loop([jnp.where(same_row, 0.0, x) for x in made])
    values, *partials = arrays

    first, last = counts[0], counts[0] + counts[1]
    in_parameters = [dot(left_weights, dot(x, right_weights)) for x in partials[:first]]
    in_left = [left_weights * dot(x, right_weights) for x in partials[first:last]]
    in_right = [right_weights * dot(left_weights, x) for x in partials[last:]]
    in_left += [dot(values, right_weights)] * are_weights_selected[0]
    in_right += [dot(left_weights, values)] * are_weights_selected[1]
    return weighted(values, left_weights, right_weights), (in_parameters, in_left, in_right)


#: Partial derivatives, by the argument (parameters, left, right) and the leaf.
Group = Sequence[tuple[int, int]]


def _groups(counts: Sequence[int]) -> list[Group]:
    """All partial derivatives together if they are few, else those of each argument."""
    selected = [[(argument, k) for k in range(count)] for argument, count in enumerate(counts)]
    every = [index for of_argument in selected for index in of_argument]
    if len(every) <= _PARTIALS_PER_LOOP:
        return [every]
    starts = [(one, k) for one in selected for k in range(0, len(one), _PARTIALS_PER_LOOP)]
    return [one[k : k + _PARTIALS_PER_LOOP] for one, k in starts]


def _values_and_partials(
    pair_value: Callable[..., jax.Array],
    group: Group,
    parameters: DiffPartition,
    *sides: DiffPartition,
) -> tuple[jax.Array, list[jax.Array]]:
    """The values of all pairs and their partial derivatives, each ``[S, T]``."""

    def value_and_partials(*pair: DiffPartition) -> tuple[jax.Array, list[jax.Array]]:
        arguments = parameters, *pair

        def value(chosen: list[jax.Array]) -> jax.Array:
            leaves = [list(argument.leaves) for argument in arguments]
            for (argument, k), x in zip(group, chosen, strict=True):
                leaves[argument][k] = x
            changed = [
                DiffPartition(new, old.rest) for new, old in zip(leaves, arguments, strict=True)
            ]
            return pair_value(*changed)

        return jax.value_and_grad(value)([arguments[argument].leaves[k] for argument, k in group])

    return vmap_pairs(value_and_partials)(*sides)
