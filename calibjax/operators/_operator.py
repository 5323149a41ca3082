"""H as a symmetric linear operator, whatever it is made of."""

from abc import ABC, abstractmethod

import jax
import jax.numpy as jnp

from calibjax._sharding import Axis, all_sum


class H(ABC):
    """The symmetric matrix of h_ij over n samples, seen only through sums of its entries.

    Every test is written against these sums, and runs on each operator that gives them: on tiles
    that are made and forgotten (`TiledH`), on a product of two thin matrices (`LowRankH`), and on a
    matrix in memory (`DenseH`).

    Attributes:
        weights: how much each row counts, ``[n]``: 1 or 0 for tests, NaN where data are bad.
        axis: the mesh axes along which further rows lie on other devices, or None.  Sums run over
            all rows; arrays ``[n]`` are those of the rows of this device.
    """

    weights: jax.Array
    axis: Axis

    def count(self) -> jax.Array:
        """The number of rows that count, on all devices."""
        return all_sum(jnp.sum(self.weights), self.axis)

    def trace(self, power: int = 1) -> jax.Array:
        """sum_i w_i^2 h_ii^power."""
        of_rows = jnp.square(self.weights) * self.diagonal() ** power
        return all_sum(jnp.sum(of_rows), self.axis)

    def unbiased(self, row_sums: jax.Array) -> jax.Array:
        """The unbiased SKCE, the mean of h_ij over i != j, from the row sums."""
        n = self.count()
        return all_sum(jnp.sum(self.weights * row_sums), self.axis) / (n * (n - 1))

    def standard_error(self, row_sums: jax.Array) -> jax.Array | None:
        """The standard error of `unbiased` where the model is not calibrated, from the row sums.

        It is 2 / sqrt(n) times the standard deviation of E[h((p, y), .)], which means of rows
        estimate (Hájek projection).
        """
        n, estimate = self.count(), self.unbiased(row_sums)
        deviations = self.weights * (row_sums / (n - 1) - estimate)
        return 2 * jnp.sqrt(all_sum(jnp.sum(jnp.square(deviations)), self.axis) / (n * (n - 1)))

    @abstractmethod
    def diagonal(self) -> jax.Array:
        """h_ii, ``[n]``."""

    @abstractmethod
    def row_sums_and_squares(self) -> tuple[jax.Array, jax.Array]:
        """sum_{j != i} w_j h_ij ``[n]``, and sum_{i != j} w_i w_j h_ij^2, in one pass over H."""

    @abstractmethod
    def quadratic_forms(self, vectors: jax.Array) -> tuple[jax.Array, jax.Array]:
        """sum_{i != j} v_i v_j h_ij for each row v of `vectors` ``[R, n]``, and the row sums
        sum_{j != i} w_j h_ij ``[n]``, in one pass over H."""

    @abstractmethod
    def core(self) -> jax.Array:
        """A symmetric matrix with the nonzero eigenvalues of H (w_i h_ij w_j where rows have
        weights): H itself, or a smaller one."""
