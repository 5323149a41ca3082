"""Sums over the points of rows that are far from all others, for univariate predictions.

There are few such rows: they are ordered by their medians and taken in groups, and pairs of groups
that see nothing of each other are left out.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from calibjax._base.sharding import as_varying
from calibjax._base.struct import PyTree, indexed
from calibjax._loops.branches import anywhere
from calibjax.distributions._univariate_expectations import Measure, of_normals

# The rows of a group.
_ROWS = 4
#: In lengthscales, the distance from which on a kernel of points is within rounding of 0.
REACH = {"float32": 5.5, "float64": 8.0}

#: Rows ``[groups, _ROWS, …]``, and whether any row of a group is far.
Groups = tuple[PyTree, jax.Array]


def far_first(rows: Measure, are_far: jax.Array) -> tuple[Groups, jax.Array]:
    """The rows in groups, those that are far first, by their medians, and where each row is."""
    median = rows[0][0][:, rows[1].shape[1] // 2]
    order = jnp.argsort(jnp.where(are_far, lax.stop_gradient(median), jnp.inf))
    index = jnp.pad(order, (0, -order.size % _ROWS), mode="edge").reshape(-1, _ROWS)
    return (indexed(rows, index), jnp.any(are_far[index], axis=1)), jnp.argsort(order)


def of_groups(function: Callable[[Any], jax.Array], groups: Groups) -> jax.Array:
    """A function of the rows of each group with rows that are far, and zeros for other rows."""

    def zeros(rows: PyTree) -> jax.Array:
        shape = jax.eval_shape(function, rows)
        return as_varying(jnp.zeros(shape.shape, shape.dtype), rows)

    @jax.checkpoint
    def of_group(group: Groups) -> jax.Array:
        rows, are_any = group
        return lax.cond(anywhere(are_any), function, zeros, rows)

    made = lax.map(of_group, groups)
    return made.reshape(-1, *made.shape[2:])


def sums_of_far_rows(ps: tuple[Measure, jax.Array], qs: tuple[Measure, jax.Array]) -> jax.Array:
    """The residual products of rows that are not near, ``[S, T]``, by sums over points."""
    # Weights are constants, but their derivative varies.
    (ours, at), (theirs, at_too) = (far_first(*as_varying(x, (ps, qs))) for x in (ps, qs))
    number, other = (jnp.arange(are_far.size) for _, are_far in (ours, theirs))
    both = map(jax.tree.leaves, (ps[0], qs[0]))
    are_same = jnp.all(jnp.stack([jnp.array_equal(x, y) for x, y in zip(*both, strict=True)]))

    def of_ours(rows: tuple[Measure, jax.Array]) -> jax.Array:
        left, number = rows
        (low, high), (from_, to) = (_reach_of(x) for x in (left, theirs[0]))
        # Of rows with themselves, what is below the diagonal is the mirror image.
        seen = theirs[1] & (low <= to) & (from_ <= high) & ~(are_same & (other < number))
        return of_groups(lambda right: _sums_over_points(left, right).T, (theirs[0], seen)).T

    sums = of_groups(of_ours, ((ours[0], number), ours[1]))[at[:, None], at_too[None, :]]
    if at.size != at_too.size:
        return sums
    is_below = (at // _ROWS)[:, None] > (at_too // _ROWS)[None, :]
    return jnp.where(are_same & is_below, sums.T, sums)


def _reach_of(rows: Measure) -> tuple[jax.Array, jax.Array]:
    """The interval outside of which the kernel sees no point of a group of rows."""
    (x, v), weights = lax.stop_gradient(rows)
    width = REACH[weights.dtype.name] * jnp.sqrt(v + 0.5)
    return jnp.min(x - width, axis=(-2, -1)), jnp.max(x + width, axis=(-2, -1))


@jax.custom_vjp
def _sums_over_points(left: Measure, right: Measure) -> jax.Array:
    """sum_st a_is b_jt E k(X_is, Z_jt) of two groups of rows, ``[R, R']``."""
    of_rows = jnp.sum(_values(left, right)[0] * right[1][None, None], axis=-1)
    return jnp.sum(of_rows * left[1][..., None], axis=1)


def _values(left: Measure, right: Measure) -> tuple[jax.Array, jax.Array, jax.Array]:
    """E k(X, Z), X - Z, and 1 / (1 + v + u), each ``[R, S, R', T]``."""
    x, v = (y[..., None, None] for y in left[0])
    z, u = (y[None, None] for y in right[0])
    return of_normals((x, v), (z, u)), x - z, 1 / (1 + v + u)


def _sums_forward(left, right):
    return _sums_over_points(left, right), (left, right)


def _sums_backward(rows, cotangent):
    # k = s^{1/2} exp(-s d^2 / 2) with s = 1 / (1 + v + u) has the derivatives -s d k in x, s d k in
    # z, and s (s d^2 - 1) k / 2 in v and u.
    left, right = rows
    a, b = left[1], right[1]
    to_left, to_right = b[None, None], a[..., None, None]
    values, d, s = _values(left, right)
    values = lax.optimization_barrier(values * cotangent[:, None, :, None])
    of_x = lax.optimization_barrier(values * s * d)
    # Numbers beyond all bounds have no kernel, and 0 times infinity would be NaN.
    square = jnp.minimum(jnp.square(d * jnp.sqrt(s)), jnp.finfo(d.dtype).max)
    of_v = lax.optimization_barrier(values * s * (square - 1) / 2)
    ours = [jnp.sum(x * to_left, axis=(2, 3)) for x in (of_x, of_v, values)]
    theirs = [jnp.sum(x * to_right, axis=(0, 1)) for x in (of_x, of_v, values)]
    return ((-a * ours[0], a * ours[1]), ours[2]), ((b * theirs[0], b * theirs[1]), theirs[2])


_sums_over_points.defvjp(_sums_forward, _sums_backward)
