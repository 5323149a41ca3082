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
from calibjax._numbers.arithmetic import dot
from calibjax.distributions._univariate_expectations import Measure

# The rows of a group.
_ROWS = 4
#: In lengthscales, the distance from which on a kernel of points is within rounding of 0.
REACH = {"float32": 5.5, "float64": 8.0}

#: Rows ``[groups, _ROWS, …]``, and whether any row of a group is far.
Groups = tuple[PyTree, jax.Array]


def far_first(rows: Measure, are_far: jax.Array, n: int) -> tuple[Groups, jax.Array]:
    """The rows in groups, those that are far first, by their medians, and where each row is.

    Copies of one row fill the groups up to n rows at least.
    """
    median = rows[0][0][:, rows[1].shape[1] // 2]
    order = jnp.argsort(jnp.where(are_far, lax.stop_gradient(median), jnp.inf))
    copies = n - order.size + -n % _ROWS
    index = jnp.pad(order, (0, copies), mode="edge").reshape(-1, _ROWS)
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
    n = max(are_far.size for _, are_far in (ps, qs))
    # Weights are constants, but their derivative varies.
    (ours, at), (theirs, at_too) = (far_first(*as_varying(x, (ps, qs)), n) for x in (ps, qs))
    both = map(jax.tree.leaves, (ps[0], qs[0]))
    are_same = jnp.all(jnp.stack([jnp.array_equal(x, y) for x, y in zip(*both, strict=True)]))
    numbers = jnp.arange(ours[1].size)

    def of_ours(rows: tuple[Twins, jax.Array]) -> jax.Array:
        left, number = rows
        (low, high), (from_, to) = (_reach_of(x) for x in (left[0], theirs[0]))
        # For rows with themselves, what is below the diagonal is the mirror image.
        seen = theirs[1] & (low <= to) & (from_ <= high) & ~(are_same & (numbers < number))
        right = (theirs[0], ours[0]), seen
        return jnp.swapaxes(of_groups(lambda x: _sums_over_points(left, x).T, right), 0, 1)

    sums = of_groups(of_ours, (((ours[0], theirs[0]), numbers), ours[1]))
    i, j = jnp.broadcast_arrays(at[:, None], at_too[None, :])
    is_below = are_same & (i // _ROWS > j // _ROWS)
    i, j = jnp.where(is_below, j, i), jnp.where(is_below, i, j)
    return sums[i, j, is_below.astype(int)]


def _reach_of(rows: Measure) -> tuple[jax.Array, jax.Array]:
    """The interval outside of which the kernel sees no point of a group of rows."""
    (x, v), weights = lax.stop_gradient(rows)
    width = REACH[weights.dtype.name] * jnp.sqrt(v + 0.5)
    return jnp.min(x - width, axis=(-2, -1)), jnp.max(x + width, axis=(-2, -1))


#: A group of rows, and the group that it becomes where both sides are exchanged.
Twins = tuple[Measure, Measure]


@jax.custom_vjp
def _sums_over_points(left: Twins, right: Twins) -> jax.Array:
    """sum_st a_is b_jt E k(X_is, Z_jt) of two groups of rows, ``[2, R, R']``.

    Twins are equal, or their sums, which come second, are not used: only derivatives are theirs.
    """
    (_, a), (_, b) = left[0], right[0]
    of_points = jax.vmap(dot)(a, lax.optimization_barrier(_values(left[0], right[0])[0]))
    sums = jnp.sum(of_points.reshape(-1, *b.shape) * b[None], axis=-1)
    return jnp.stack([sums, sums])


def _values(left: Measure, right: Measure) -> tuple[jax.Array, jax.Array, jax.Array]:
    """E k(X, Z), X - Z, and 1 / (1 + v + u) of all pairs of points, each ``[R, S, R' T]``."""
    x, v = (y[..., None] for y in left[0])
    z, u = (y.reshape(1, 1, -1) for y in right[0])
    s, d = 1 / (1 + v + u), x - z
    # A square of d could overflow, and 0 times infinity would be NaN.
    return jnp.sqrt(s) * jnp.exp(-d * s * d / 2), d, s


def _sums_forward(left, right):
    return _sums_over_points(left, right), (left[0], right[0])


def _sums_backward(rows, cotangents):
    # k = s^{1/2} exp(-s d^2 / 2) with s = 1 / (1 + v + u) has the derivatives -s d k in x, s d k in
    # z, and s (s d^2 - 1) k / 2 in v and u.
    (_, a), (_, b) = left, right = rows
    # In memory, so that products with vectors read them and no sum makes them again.
    values, d, s = lax.optimization_barrier(_values(left, right))
    of_x = lax.optimization_barrier(values * s * d)
    of_v = lax.optimization_barrier((of_x * d - values) * s / 2)
    each = of_x, of_v, values
    of_left = [jax.vmap(dot)(a, x).reshape(-1, *b.shape) for x in each]

    def gradient(cotangent: jax.Array) -> tuple[Measure, Measure]:
        weights = (cotangent[..., None] * b[None]).reshape(a.shape[0], -1)
        ours = [jax.vmap(dot)(x, weights) for x in each]
        theirs = [jnp.sum(cotangent[..., None] * x, axis=0) for x in of_left]
        in_left = (-a * ours[0], a * ours[1]), ours[2]
        return in_left, ((b * theirs[0], b * theirs[1]), theirs[2])

    return tuple(zip(*map(gradient, cotangents), strict=True))


_sums_over_points.defvjp(_sums_forward, _sums_backward)
