"""H as a matrix in memory, for methods that need the matrix."""

import jax
import jax.numpy as jnp

from calibjax._numbers import dot
from calibjax._struct import static, struct
from calibjax.operators._operator import DiscrepancyMatrix


@struct
class DenseH(DiscrepancyMatrix):
    """H as a matrix ``[n, n]`` in memory; all rows are on one device."""

    matrix: jax.Array
    weights: jax.Array
    axis: None = static(default=None)

    @property
    def diagonal(self) -> jax.Array:
        return jnp.diagonal(self.matrix)

    def row_sums_and_squares(self) -> tuple[jax.Array, jax.Array]:
        off_diagonal = self._off_diagonal()
        squares = dot(self.weights, dot(jnp.square(off_diagonal), self.weights))
        return dot(off_diagonal, self.weights), squares

    def quadratic_forms(self, vectors: jax.Array) -> tuple[jax.Array, jax.Array]:
        off_diagonal = self._off_diagonal()
        vectors = vectors.astype(off_diagonal.dtype)
        forms = jnp.sum(dot(vectors, off_diagonal) * vectors, axis=1)
        return forms, dot(off_diagonal, self.weights)

    def core(self) -> jax.Array:
        return self.weights[:, None] * self.matrix * self.weights[None, :]

    def _off_diagonal(self) -> jax.Array:
        return jnp.fill_diagonal(self.matrix, 0, inplace=False)
