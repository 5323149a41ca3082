r"""Residuals of a data set under H0 that keeps how rows depend on each other.

With the observed residuals r_i, random multipliers xi_i of their clusters or times, and the
residuals s_i of targets that are drawn from the predictions, a data set has the residuals

    xi_i r_i + lambda s_i,    lambda^2 = max(0, 1 - sum_i w_i^2 r_i^2 / sum_i w_i^2 E s_i^2)

for each number of a feature.  Where events are rare, the observed residuals may hardly vary, by
chance: lambda adds the variance that is missing.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from calibjax._sharding import Axis
from calibjax._struct import PyTree
from calibjax.features import Arguments, Feature
from calibjax.resampling import sum_over_rows


def multiplied(residuals: jax.Array, factors: jax.Array, missing: jax.Array) -> jax.Array:
    """The observed residuals ``[n, 1, M]``, and those of D data sets behind them.

    Args:
        residuals: of the observed targets and of D drawn ones, ``[n, 1 + D, M]``.
        factors: xi, ``[n, D]``.
        missing: lambda, ``[M]``.
    """
    observed, drawn = residuals[:, :1], residuals[:, 1:]
    data_sets = factors[..., None] * observed + missing[None, None] * drawn
    return jnp.concatenate([observed, data_sets], axis=1)


def centred(sums: jax.Array, factors: jax.Array) -> jax.Array:
    """The sums ``[F, 1 + D, M]`` that residuals less their mean have in the D data sets.

    `factors` are the means of xi, ``[1, D]``.  sum_i xi_i (r_i - sum_j r_j / n) is
    sum_i xi_i r_i - (sum_i xi_i / n) sum_j r_j.
    """
    observed, data_sets = sums[:, :1], sums[:, 1:]
    shifted = data_sets - factors[..., None] * observed
    return jnp.concatenate([observed, shifted], axis=1)


def missing_deviations(
    features: list[Feature],
    arguments_of: Callable[[PyTree], Arguments],
    rows: PyTree,
    weights: jax.Array,
    per_row: int,
    axis: Axis,
) -> list[jax.Array]:
    """lambda of each number of each feature, ``[M]``.

    ``arguments_of(rows)`` are what features take of the observed targets and of drawn ones, which
    stand for the expectation.  They hold `per_row` numbers of a row.
    """

    def variances(chunk: tuple[PyTree, jax.Array]) -> list[jax.Array]:
        rows, weights = chunk
        arguments, squares = arguments_of(rows), jnp.square(weights)[:, None]

        def variances_of(feature: Feature) -> jax.Array:
            residuals = jnp.square(feature.residuals(*arguments))
            both = jnp.stack([residuals[:, 0], jnp.mean(residuals[:, 1:], axis=1)])
            return jnp.sum(squares[None] * both, axis=1)

        return list(map(variances_of, features))

    sums = sum_over_rows(variances, rows, weights, per_row, axis)
    return [lacking(*found) for found in sums]


def lacking(observed: jax.Array, expected: jax.Array) -> jax.Array:
    """lambda, from the sums of squares of observed residuals and those that are expected."""
    is_possible = expected > 0
    share = observed / jnp.where(is_possible, expected, 1.0)
    return jnp.where(is_possible, jnp.sqrt(jnp.maximum(1 - share, 0.0)), 0.0)
