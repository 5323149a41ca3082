"""Exact optimal transport between the weights of points, for many problems at a time."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from calibjax._base.sharding import as_varying

# For N problems, an array over rows has the shape [K, 1, N], an array over columns [1, L, N], and
# one number for each problem [1, 1, N].
_ROWS, _COLUMNS = 0, 1


def transport(costs: jax.Array, a: jax.Array, b: jax.Array) -> jax.Array:
    """min <plan, costs> over nonnegative plans with row sums a and column sums b.

    N problems lie on the *last* axis, because a CPU runs fastest along it: costs ``[K, L, N]``,
    weights ``[K, N]`` and ``[L, N]``, values ``[N]``.  Weights are divided by their sums.  Values
    are exact up to rounding.  Equal weights take K augmentations of O(K L) each, other weights two
    to five times as many; all problems run until the slowest one is solved.

    By duality the value is also max sum_i u_i a_i + sum_j v_j b_j over potentials with
    u_i + v_j <= costs_ij.  Hence (envelope theorem) the plan is the derivative in the costs, and u
    and v are the derivatives in the normalised weights.  Only first derivatives are right.  If
    several plans or potentials are optimal, the derivative is one of them.  The value is NaN for
    NaN costs, NaN or negative weights, and after too many augmentations.
    """
    a, b = (x / jnp.sum(x, 0, keepdims=True) for x in (a, b))
    a, b = a[:, None], b[None]
    plan, u, v, valid = lax.stop_gradient(_solve(*lax.stop_gradient((costs, a, b))))
    values = jnp.sum(plan * costs, (0, 1)) + _zero_with_slope(u, a) + _zero_with_slope(v, b)
    return jnp.where(valid[0, 0], values, jnp.nan)


def _zero_with_slope(slope: jax.Array, x: jax.Array) -> jax.Array:
    """0 for each problem, ``[N]``, with the derivative `slope` in x."""
    return jnp.sum(slope * (x - lax.stop_gradient(x)), (0, 1))


class _Flow(NamedTuple):
    """A partial plan with potentials: u_i + v_j <= costs_ij, and equality where plan > 0.

    These conditions make the plan optimal for the weight that it carries.
    """

    plan: jax.Array
    supply: jax.Array  # the weight of each row that the plan does not carry yet
    demand: jax.Array  # the weight of each column that the plan does not carry yet
    u: jax.Array
    v: jax.Array
    n_steps: jax.Array


def _solve(costs: jax.Array, a: jax.Array, b: jax.Array):
    """(plan, u, v, whether they are optimal), by successive shortest paths."""
    finite = _all(jnp.isfinite(costs), _ROWS, _COLUMNS)
    valid = finite & _all(a >= 0, _ROWS) & _all(b >= 0, _COLUMNS)
    costs, a, b = (jnp.where(valid, x, 0.0) for x in (costs, a, b))
    # Random problems take about a fifth of these steps; in theory a problem may need more.
    max_steps = (costs.shape[0] + costs.shape[1]) ** 2 + 8

    def is_open(flow):
        return ~_all(flow.supply == 0, _ROWS) & ~_all(flow.demand == 0, _COLUMNS)

    def cond(flow):
        return jnp.any(is_open(flow)) & (flow.n_steps < max_steps)

    start = _Flow(
        plan=jnp.zeros_like(costs),
        supply=a,
        demand=b,
        u=_min(costs, _COLUMNS),
        v=jnp.zeros_like(b),
        n_steps=jnp.zeros((), jnp.int32),
    )
    start = as_varying(start, (costs, a, b))
    flow = lax.while_loop(cond, lambda flow: _augment(costs, a, b, flow), start)
    # The plan does not determine the potential of a row or column of weight 0.  The derivative in
    # that weight is the largest feasible potential.
    u = _min(jnp.where(b > 0, costs - flow.v, jnp.inf), _COLUMNS)
    return flow.plan, u, _min(costs - u, _ROWS), valid & ~is_open(flow)


def _augment(costs: jax.Array, a: jax.Array, b: jax.Array, flow: _Flow) -> _Flow:
    """Adds as much weight as one shortest path can carry; in solved problems it adds nothing."""
    slack = jnp.maximum(costs - flow.u - flow.v, 0.0)
    rows, columns, from_row, from_column = _shortest_paths(slack, flow.plan > 0, flow.supply > 0)
    to_open = jnp.where(flow.demand > 0, columns, jnp.inf)
    length = _min(to_open, _COLUMNS)
    found = length < jnp.inf
    length = jnp.where(found, length, 0.0)
    end = jnp.where(found, _argmin(to_open, _COLUMNS), -1)

    in_rows, in_columns = _path_masks(end, from_row, from_column)
    adds = in_columns & (from_row == _index(rows, _ROWS))
    removes = in_rows & (from_column == _index(columns, _COLUMNS))
    starts, ends = in_rows & (from_column < 0), _index(columns, _COLUMNS) == end
    amount = _min(jnp.where(removes, flow.plan, jnp.inf), _ROWS, _COLUMNS)
    amount = jnp.minimum(amount, _min(jnp.where(starts, flow.supply, jnp.inf), _ROWS))
    amount = jnp.minimum(amount, _min(jnp.where(ends, flow.demand, jnp.inf), _COLUMNS))
    amount = jnp.where(found, amount, 0.0)
    return _Flow(
        plan=flow.plan + jnp.where(adds, amount, 0.0) - jnp.where(removes, amount, 0.0),
        supply=_without_rounding_error(flow.supply - jnp.where(starts, amount, 0.0), a),
        demand=_without_rounding_error(flow.demand - jnp.where(ends, amount, 0.0), b),
        u=flow.u + (length - jnp.minimum(rows, length)),
        v=flow.v - (length - jnp.minimum(columns, length)),
        n_steps=flow.n_steps + 1,
    )


def _without_rounding_error(x: jax.Array, weights: jax.Array) -> jax.Array:
    """x, or 0 where x is within rounding of 0; else rounding errors would travel along paths."""
    return jnp.where(x <= 4 * jnp.finfo(x.dtype).eps * weights, 0.0, x)


def _shortest_paths(slack: jax.Array, carries: jax.Array, sources: jax.Array):
    """The distances of rows and columns from the source rows, and their predecessors.

    An edge leads from each row to each column, and its length is the slack.  An edge of length 0
    leads back from a column to each row that carries weight to it.  The predecessor of a column is
    a row, the predecessor of a row is a column, and a source has the predecessor -1.  Bellman and
    Ford's rounds are repeated until no distance changes; edges have no negative length, so that
    paths have no cycles.
    """

    def relax(state):
        rows, columns, from_row, from_column, _ = state
        through = rows + slack
        nearest = _min(through, _ROWS)
        from_row = jnp.where(nearest < columns, _argmin(through, _ROWS), from_row)
        columns = jnp.minimum(columns, nearest)
        back = jnp.where(carries, columns, jnp.inf)
        nearest = _min(back, _COLUMNS)
        closer = nearest < rows
        from_column = jnp.where(closer, _argmin(back, _COLUMNS), from_column)
        return jnp.minimum(rows, nearest), columns, from_row, from_column, jnp.any(closer)

    rows = jnp.where(sources, jnp.zeros_like(slack[:, :1]), jnp.inf)
    columns = jnp.full_like(slack[:1], jnp.inf)
    from_row, from_column = (jnp.full(x.shape, -1, jnp.int32) for x in (columns, rows))
    state = (rows, columns, from_row, from_column, jnp.array(True))
    state = as_varying(state, (slack, carries, sources))
    return lax.while_loop(lambda state: state[-1], relax, state)[:-1]


def _path_masks(end: jax.Array, from_row: jax.Array, from_column: jax.Array):
    """Masks of the rows and columns on the path to column `end`; nothing where `end` is -1."""

    def step(state):
        column, in_rows, in_columns = state
        is_column = _index(from_row, _COLUMNS) == column
        row = jnp.max(jnp.where(is_column, from_row, -1), _COLUMNS, keepdims=True)
        is_row = _index(from_column, _ROWS) == row
        column = jnp.max(jnp.where(is_row, from_column, -1), _ROWS, keepdims=True)
        return column, in_rows | is_row, in_columns | is_column

    empty = (jnp.zeros(x.shape, bool) for x in (from_column, from_row))
    state = as_varying((end, *empty), (end, from_row, from_column))
    return lax.while_loop(lambda state: jnp.any(state[0] >= 0), step, state)[1:]


def _min(x: jax.Array, *axes: int) -> jax.Array:
    return jnp.min(x, axes, keepdims=True)


def _all(x: jax.Array, *axes: int) -> jax.Array:
    return jnp.all(x, axes, keepdims=True)


def _argmin(x: jax.Array, axis: int) -> jax.Array:
    return jnp.expand_dims(lax.argmin(x, axis, jnp.int32), axis)


def _index(x: jax.Array, axis: int) -> jax.Array:
    return lax.broadcasted_iota(jnp.int32, x.shape, axis)
