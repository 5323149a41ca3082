"""The sum over all pairs of rows, with its derivatives.

Nothing larger than one tile of pairs and a few copies of the rows of a device is ever held.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero

from calibjax._pairwise._ring import ring
from calibjax._pairwise._tile_sums import DiffPartition, value_and_gradient, weighted_sum
from calibjax._sharding import all_sum
from calibjax._struct import split


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def ring_sum(tile, axis, parameters, tiles):
    """sum_{i < j} w_i w_j tile_ij over all rows of all devices, a scalar.

    `tiles` are the rows of this device and their weights, by tile.  Differentiable in all floating
    leaves of `parameters` and `tiles`, forwards, backwards and again.
    """

    def visit(left, right, same, factor):
        return factor * weighted_sum(tile, parameters, left, right, same), ([], [], [])

    zero = jnp.zeros((), tiles[1].dtype)
    return all_sum(ring(visit, tiles, zero, [], [], axis)[0], axis)


@functools.partial(ring_sum.defjvp, symbolic_zeros=True)
def _ring_sum_jvp(tile, axis, primals, tangents):
    # The sum is a scalar: its whole derivative is one gradient, made along with the value in a
    # single pass.  Going back over all tiles would evaluate each of them once more.
    asked = tuple(tuple(map(_is_asked, jax.tree.leaves(tree))) for tree in tangents)
    total, *gradient = _ring_gradient(tile, axis, asked, *primals)
    tangents = [split(*pair)[0] for pair in zip(tangents, asked, strict=True)]
    products = jax.tree.map(lambda g, t: jnp.sum(g * t), gradient, tangents)
    tangent = sum(jax.tree.leaves(products), jnp.zeros_like(total))
    return all_sum((total, tangent), axis)


def _is_asked(tangent: Any) -> bool:
    return not isinstance(tangent, SymbolicZero) and tangent.dtype != jax.dtypes.float0


def _value_and_gradient(tile, axis, asked, parameters, tiles):
    """The sum over the pairs of this device, its gradient in the parameters, and the gradient of
    the sum over all devices in the tiles of this one."""
    asked_parameters, rest_parameters, of_parameters = split(parameters, asked[0])
    asked_tiles, rest_tiles, of_tiles = split(tiles, asked[1])

    def visit(left, right, same, factor):
        arguments = (
            DiffPartition(asked_parameters, rest_parameters),
            DiffPartition(*left),
            DiffPartition(*right),
        )
        found = value_and_gradient(tile, (of_parameters, of_tiles), *arguments, same)
        return jax.tree.map(lambda x: factor * x, found)

    zero = jnp.zeros((), tiles[1].dtype)
    zeros = jax.tree.map(jnp.zeros_like, (asked_parameters, asked_tiles))
    return ring(visit, (asked_tiles, rest_tiles), zero, *zeros, axis)


# A rule that changes no derivative: it only hides the loops from jax's partial evaluation, which
# would move what does not change in them out of them, one small array at a time.
_ring_gradient = jax.custom_jvp(_value_and_gradient, nondiff_argnums=(0, 1, 2))


@_ring_gradient.defjvp
def _ring_gradient_jvp(tile, axis, asked, primals, tangents):
    return jax.jvp(functools.partial(_value_and_gradient, tile, axis, asked), primals, tangents)
