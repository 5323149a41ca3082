r"""Landmarks: some of the predictions, which stand for all in kernels on predictions.

With landmarks l_1, …, l_F and a vector w(p) of F numbers for each prediction,

    k_P(p, q)  ~  w(p)^T K w(q),    K_ab = k_P(l_a, l_b),

so that sums over all pairs of rows become sums over rows and a form on F numbers.  w(p)
interpolates from the landmarks with a base kernel b, as kriging does: w(p) = B^-1 (b(l_1, p), …,
b(l_F, p)) with B_ab = b(l_a, l_b) (Nyström's method, if b = k_P).  One w serves all kernels of a
distance.  With S S^T = B^-1 the form is S^T K S on z(p) = S^T (b(l_1, p), …, b(l_F, p)), which is
one product for each row.  If there are at most F rows, all are landmarks, the coordinates of a row
are a unit vector, their matrix is K, and both sides are equal.

The right side is a positive definite kernel itself if k_P is one.  It depends on predictions only.
"""

import functools
from typing import TypeVar

import jax
import jax.numpy as jnp
from jax import lax

from calibjax._base.sharding import Axis, evenly_spaced, rows_at
from calibjax._base.struct import PyTree, struct, widest_dtype
from calibjax._numbers import diagonal_of, dot, x_where
from calibjax.kernels import KernelLike, pairwise

T = TypeVar("T")

# What is added to the diagonal of B, for each landmark, in units of the mean on the diagonal:
# predictions may coincide.
_NUGGET = 1e-6


@struct
class Landmarks:
    """F landmarks of a batch of predictions, and what interpolates from them.

    Args:
        points: the landmarks, F predictions or what stands for them in kernels.
        n_rows: the number of rows that they stand for.
        base: the kernel b.
        factor: S with S S^T = B^-1, ``[F, F]``; None if every batch of this size consists of
            landmarks.
    """

    points: PyTree
    n_rows: jax.Array
    base: KernelLike
    factor: jax.Array | None

    @property
    def n_points(self) -> int:
        """F."""
        return jax.tree.leaves(self.points)[0].shape[0]

    def coordinates(self, predictions: PyTree, rows: jax.Array) -> jax.Array:
        """z(p) of a batch of predictions with the numbers `rows` among all rows, ``[n, F]``."""
        dtype = widest_dtype(*jax.tree.leaves(predictions))
        # The first landmark that is this row, if all rows are landmarks.
        n_rows = jnp.maximum(self.n_rows, 1)
        first = lax.div(rows * self.n_points + n_rows - 1, n_rows)
        units = jax.nn.one_hot(first, self.n_points, dtype=dtype)
        if self.factor is None:
            return units
        # B^-1 itself has entries so large that sums with it are wrong by percents in float32.
        interpolated = dot(pairwise(self.base, predictions, self.points), self.factor)
        return lax.select(self.n_rows <= self.n_points, units, interpolated)

    def matrix(self, kernel: KernelLike) -> jax.Array:
        """S^T K S of a kernel on predictions, the form on coordinates, ``[F, F]``."""
        matrix = pairwise(kernel, self.points, self.points)
        if self.factor is None:
            return matrix
        whitened = dot(self.factor.T, dot(matrix, self.factor))
        return lax.select(self.n_rows <= self.n_points, matrix, whitened)


def choose_landmarks(
    predictions: T, n_kept: jax.Array | int, n_rows: jax.Array, size: int, axis: Axis
) -> T:
    """`size` predictions, evenly spaced among the rows of all devices.

    The first `n_kept` rows of this device count, and `n_rows` on all devices.
    """
    return rows_at(predictions, n_kept, evenly_spaced(n_rows, size, size), axis)


def landmarks_with_base(
    points: PyTree, n_rows: jax.Array, base: KernelLike, interpolates: bool
) -> Landmarks:
    """Landmarks that interpolate with a base kernel."""
    factor = None
    if interpolates:
        matrix = pairwise(base, points, points)
        nugget = _NUGGET * jnp.sum(diagonal_of(matrix))
        # Without a nugget the matrix of a kernel that is 0 at all landmarks has no inverse.
        nugget = x_where(nugget > 0, nugget, 1.0)
        factor = _inverse_factor(matrix, nugget)
    return Landmarks(points, n_rows, base, factor)


def _inverse_factor(matrix: jax.Array, nugget: jax.Array) -> jax.Array:
    """S with S S^T = (B + nugget I)^-1 = (L D L^T)^-1: S^T = D^(-1/2) L^-1.

    L^-1 is found by elimination.

    In exact arithmetic no entry of D is below the nugget.  Rounding makes B indefinite where
    predictions differ in their last digits alone: a hundred times the nugget is tried then.

    On CPUs, functions of `jnp.linalg` call LAPACK, and two such calls of one program, vectorised
    over data sets, can wait for each other forever on a machine with two cores (jaxlib 0.10.2).
    """
    size = matrix.shape[0]
    i, j = (lax.broadcasted_iota(jnp.int32, matrix.shape, axis) for axis in (0, 1))
    on_diagonal = i == j
    unit = on_diagonal.astype(matrix.dtype)

    def diagonal(a: jax.Array) -> jax.Array:
        return jnp.sum(x_where(on_diagonal, a, 0.0), axis=1)

    part_at = functools.partial(
        lax.dynamic_slice_in_dim, slice_size=1, allow_negative_indices=False
    )

    def eliminate(k: jax.Array, a: jax.Array) -> jax.Array:
        # L^-1 grows below the diagonal, where B becomes 0; its diagonal of ones is not stored.
        row, column = (part_at(a, k, axis=axis) for axis in (0, 1))
        multiple, others = column / part_at(row, k, axis=1), j != k
        row = lax.broadcast_in_dim(row, a.shape, (0, 1))
        reduced = x_where(others, a, 0.0) - multiple * x_where(others, row, 1.0)
        return lax.select(i > k, reduced, a)

    def is_indefinite(tried: tuple[jax.Array, jax.Array]) -> jax.Array:
        return jnp.any(diagonal(tried[1]) <= tried[0] / 2)

    def with_more(tried: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        more = 100 * tried[0]
        return more, lax.fori_loop(0, size, eliminate, matrix + more * unit)

    _, found = lax.while_loop(is_indefinite, with_more, (nugget / 100, 0 * matrix))
    return (lax.select(i > j, found, unit) / jnp.sqrt(diagonal(found))[:, None]).T
