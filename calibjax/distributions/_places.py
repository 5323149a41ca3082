"""The place of a target among the levels of quantiles, as the target of a prediction."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from calibjax._distribution import Distribution
from calibjax._numbers import UnitInterval, interval, is_finite
from calibjax._struct import static, struct, widest_dtype
from calibjax.kernels import EmbeddingDistance


@struct
class Places(Distribution):
    """U = F(Y), uniform in [0, 1], of which the levels on both sides are judged.

    Args:
        values: the quantiles ``[n, K]``, by which predictions are compared.
        levels: their K levels.
    """

    values: jax.Array
    levels: Sequence[float] = static()

    shapes = {"values": "n k"}
    target_shape = "n"
    target_kind = "real"

    def constraints(self) -> dict[str, tuple[str, jax.Array]]:
        return {"values": ("finite", is_finite(self.values).all(axis=1))}

    def supports(self, targets: jax.Array) -> tuple[str, jax.Array]:
        return "in [0, 1]", (targets >= 0) & (targets <= 1)

    def mean(self) -> jax.Array:
        return jnp.full(self.values.shape[:1], 1 / 2, widest_dtype(self.values))

    def variance(self) -> jax.Array:
        return jnp.full(self.values.shape[:1], 1 / 12, widest_dtype(self.values))

    def sample(self, key: jax.Array, shape: tuple[int, ...] = ()) -> jax.Array:
        return jax.random.uniform(key, (*shape, self.values.shape[0]), widest_dtype(self.values))

    def unit_interval(self, targets: jax.Array) -> UnitInterval:
        """The levels on both sides of a place: a forecast says no more about it."""
        levels = jnp.array([0.0, *self.levels, 1.0], targets.dtype)
        cell = jnp.sum(targets[:, None] > levels[None, 1:-1], axis=1, dtype=jnp.int32)
        return interval(levels[cell], levels[cell + 1])

    def default_distance(self) -> EmbeddingDistance:
        return EmbeddingDistance(mean_square_of_values)

    def default_features(self) -> tuple[Any, ...]:
        return is_above_level, cell_of


def mean_square_of_values(p: Any) -> jax.Array:
    """The values, so that a distance is the root of a mean square over the levels."""
    return p.values / len(p.levels) ** 0.5


def is_above_level(p: Places, u: jax.Array) -> jax.Array:
    """Whether a place is above each of the levels, ``[K]``."""
    return u > jnp.asarray(p.levels, u.dtype)


def cell_of(p: Places, u: jax.Array) -> jax.Array:
    """Which of the K + 1 intervals between levels a place is in, as an indicator ``[K + 1]``."""
    cell = jnp.sum(is_above_level(p, u), dtype=jnp.int32)
    return jnp.arange(len(p.levels) + 1, dtype=jnp.int32) == cell
