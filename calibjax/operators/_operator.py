"""The interface of H: sums over its entries, for any representation of the matrix."""

from abc import ABC, abstractmethod

import jax
import jax.numpy as jnp

from calibjax._sharding import Axis, all_sum


class DiscrepancyMatrix(ABC):
    """The symmetric matrix of h_ij over n samples, accessed only through sums of its entries.

    Tests use only these sums, so that each test runs on each operator: on tiles that are computed
    and discarded (`TiledH`), on a product of two thin matrices (`LowRankH`), and on a matrix in
    memory (`DenseH`).

    Attributes:
        weights: how much each row counts, ``[n]``: 1 or 0 for tests, NaN if the data are invalid.
        axis: the mesh axes along which rows are cut among devices, or None.  Sums run over the rows
            of all devices, and arrays ``[n]`` hold the n rows of this device.
    """

    weights: jax.Array
    axis: Axis

    def count(self) -> jax.Array:
        """sum_i w_i, which is the number of kept rows if all weights are 0 or 1."""
        return all_sum(jnp.sum(self.weights), self.axis)

    def trace(self, power: int = 1) -> jax.Array:
        """sum_i w_i^2 h_ii^power."""
        terms = jnp.square(self.weights) * self.diagonal**power
        return all_sum(jnp.sum(terms), self.axis)

    def unbiased(self, row_sums: jax.Array) -> jax.Array:
        """The unbiased SKCE, the mean of h_ij over i != j, from the row sums."""
        n = self.count()
        return all_sum(jnp.sum(self.weights * row_sums), self.axis) / (n * (n - 1))

    def standard_error(self, row_sums: jax.Array) -> jax.Array | None:
        """The standard error of `unbiased` if the model is not calibrated, from the row sums.

        It is 2 / sqrt(n) times the standard deviation of E[h((p, y), .)], which the mean of a row
        of H estimates (Hájek projection).  None if the operator cannot tell it.
        """
        n, estimate = self.count(), self.unbiased(row_sums)
        deviations = self.weights * (row_sums / (n - 1) - estimate)
        return 2 * jnp.sqrt(all_sum(jnp.sum(jnp.square(deviations)), self.axis) / (n * (n - 1)))

    @property
    @abstractmethod
    def diagonal(self) -> jax.Array:
        """h_ii, ``[n]``."""

    @abstractmethod
    def row_sums_and_squares(self) -> tuple[jax.Array, jax.Array]:
        """The row sums sum_{j != i} w_j h_ij ``[n]``, and sum_{i != j} w_i w_j h_ij^2.

        Both come from one pass over H.
        """

    @abstractmethod
    def quadratic_forms(self, vectors: jax.Array) -> tuple[jax.Array, jax.Array]:
        """sum_{i != j} v_i v_j h_ij for each row v of `vectors` ``[R, n]``, and the row sums.

        The row sums are sum_{j != i} w_j h_ij, ``[n]``.  Both come from one pass over H.
        """

    @abstractmethod
    def core(self) -> jax.Array:
        """A symmetric matrix with the nonzero eigenvalues of the matrix of w_i h_ij w_j.

        It is that matrix itself, or a smaller one.
        """
