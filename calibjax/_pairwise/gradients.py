"""The gradient of the weighted sum of one tile of pairs, along with its value."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp

from calibjax._base.compile import on_cpu
from calibjax._base.struct import PyTree, Split, indexed, merge
from calibjax._loops.fusion import in_one_loop, is_of_numbers, materialised
from calibjax._numbers.arithmetic import dot
from calibjax._pairwise.tiles import Tile, Weighted, weighted
from calibjax.kernels.base import vmap_pairs

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
    """`weighted_sum`, for its derivative."""
    (left, left_weights), (right, right_weights) = materialised((left, right))
    values = tile(parameters, left, right)
    values = jnp.where(jnp.eye(left_weights.shape[0], dtype=bool) & same, 0.0, values)
    return weighted(values, left_weights, right_weights)


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
        return _sum_of_tile(tile, parameters, left, right, same)

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
