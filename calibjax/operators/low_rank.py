"""H of random features: H = Psi Psi^T, where Psi has few columns."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from calibjax._base.sharding import Axis
from calibjax._base.struct import PyTree, indexed, static, struct
from calibjax._data.data import Rows
from calibjax._numbers.arithmetic import dot, eigh_of_kernel
from calibjax.discrepancy import SumOfTerms
from calibjax.features.random_features import Features, draw_features
from calibjax.features.weighted_sums import map_rows, sum_rows
from calibjax.kernels.base import Sample, times
from calibjax.operators.gram_matrix import DiscrepancyMatrix


@struct
class LowRankH(DiscrepancyMatrix):
    """H = Psi Psi^T of a random kernel, where row i of Psi is psi(p_i, y_i).

    A row holds the real and imaginary parts of the features of one sample, for each tensor product
    in the kernel: D numbers in all.  Sums over H cost O(n D), and `reduced` costs O(n D^2).
    """

    features: list[Features]
    projections: list[jax.Array]
    samples: Sample
    weights: jax.Array
    axis: Axis = static(default=None)

    def psi(self, samples: Sample) -> jax.Array:
        """The rows of Psi for a batch of samples, ``[S, D]``."""
        columns: list[jax.Array] = []
        for features, projection in zip(self.features, self.projections, strict=True):
            parts, residuals = jax.vmap(features)(samples)
            columns += [part * dot(residuals, projection.T) for part in parts]
        return jnp.concatenate(columns, axis=1)

    def standard_error(self, row_sums: jax.Array) -> None:
        """None, because the row sums do not show the error of the features."""
        return None

    @functools.cached_property
    def diagonal(self) -> jax.Array:
        return self._map_rows_of_psi(lambda rows: jnp.sum(jnp.square(rows), axis=1))

    def row_sums_and_squares(self) -> tuple[jax.Array, jax.Array]:
        matrix, total = self._moments_of_psi()
        return self._row_sums(total), jnp.sum(jnp.square(matrix)) - self.trace(power=2)

    def quadratic_forms(self, vectors: jax.Array) -> tuple[jax.Array, jax.Array]:
        def products(rows: tuple[Sample, jax.Array], weights: jax.Array) -> list[jax.Array]:
            psi, vectors = self.psi(rows[0]), rows[1].astype(self.weights.dtype)
            squares = jnp.sum(jnp.square(psi), axis=1)
            return [dot(vectors.T, psi), dot(jnp.square(vectors).T, squares), dot(weights, psi)]

        products_with_psi, diagonal_forms, total = self._summed(products, (self.samples, vectors.T))
        forms = jnp.sum(jnp.square(products_with_psi), axis=1) - diagonal_forms
        return forms, self._row_sums(total)

    def reduced(self) -> jax.Array:
        return self._moments_of_psi()[0]

    def _moments_of_psi(self) -> list[jax.Array]:
        """Psi^T W^2 Psi and Psi^T w, where w are the weights and W = diag(w)."""

        def moments(samples: Sample, weights: jax.Array) -> list[jax.Array]:
            rows = self.psi(samples) * weights[:, None]
            return [dot(rows.T, rows), jnp.sum(rows, axis=0)]

        return self._summed(moments, self.samples)

    def _row_sums(self, total: jax.Array) -> jax.Array:
        """sum_{j != i} w_j h_ij for each row i of weight 1, ``[n]``, from `total` = Psi^T w."""
        return self._map_rows_of_psi(
            lambda rows: dot(rows, total) - jnp.sum(jnp.square(rows), axis=1)
        )

    def _map_rows_of_psi(self, function: Callable[[jax.Array], jax.Array]) -> jax.Array:
        n_features = self.features[0].n_features
        return map_rows(lambda x: function(self.psi(x)), self.samples, self.weights, n_features)

    def _summed(
        self, function: Callable[[Any, jax.Array], list[jax.Array]], rows: PyTree
    ) -> list[jax.Array]:
        return sum_rows(function, rows, self.weights, self.features[0].n_features, self.axis)


def low_rank_h(
    key: jax.Array, kernel: SumOfTerms, data: Rows, n_features: int, axis: Axis
) -> LowRankH:
    """H of `n_features` random features on clean data.

    The features depend on the key, the kernel and the shapes of the data, but not on its values.
    """
    draw_key, sign_key = jax.random.split(key)
    one = indexed(data.samples, 0)
    features = draw_features(draw_key, kernel, one, n_features)
    keys = jax.random.split(sign_key, len(features))
    projections = [_draw_projection(k, part) for k, part in zip(keys, features, strict=True)]
    return LowRankH(features, projections, data.samples, data.weights, axis)


def _draw_projection(key: jax.Array, features: Features) -> jax.Array:
    """For each feature a random vector s with E s s^T = factor K / D, ``[D, m]``.

    For labels, s^T (e_y - p) replaces the residual e_y - p of m numbers by one number.
    """
    values, vectors = eigh_of_kernel(times(features.factor, features.metric))
    shape = features.n_features, values.shape[0]
    # jax.random.rademacher would draw other signs when jax_enable_x64 is set.
    heads = jax.random.bernoulli(key, jnp.asarray(0.5, values.dtype), shape)
    signs = jnp.where(heads, 1.0, -1.0).astype(values.dtype)
    return dot(signs, (vectors * jnp.sqrt(values / features.n_features)[None, :]).T)
