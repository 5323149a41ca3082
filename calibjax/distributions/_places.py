"""The place of a target among the levels of quantiles, as the target of a prediction."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from calibjax._distribution import Distribution
from calibjax._numbers import UnitInterval, interval
from calibjax._struct import static, struct, widest_dtype


@struct
class Places(Distribution):
    """U = F(Y), uniform in [0, 1], of which the levels on both sides are judged.

    Args:
        quantiles: the predictions, which kernels on predictions compare.
        levels: their K levels.
    """

    quantiles: Distribution
    levels: Sequence[float] = static()

    shapes = {"quantiles.values": "n k"}
    target_shape = "n"
    target_kind = "real"
    has_atoms = True

    def constraints(self) -> dict[str, tuple[str, jax.Array]]:
        return {f"quantiles.{name}": x for name, x in self.quantiles.constraints().items()}

    def supports(self, targets: jax.Array) -> tuple[str, jax.Array]:
        return "in [0, 1]", (targets >= 0) & (targets <= 1)

    def mean(self) -> jax.Array:
        return jnp.full_like(self.quantiles.location(), 1 / 2)

    def variance(self) -> jax.Array:
        return jnp.full_like(self.quantiles.location(), 1 / 12)

    def location(self) -> jax.Array:
        """The location of the quantiles."""
        return self.quantiles.location()

    def spread(self) -> jax.Array:
        """The spread of the quantiles."""
        return self.quantiles.spread()

    def sample(self, key: jax.Array, shape: tuple[int, ...] = ()) -> jax.Array:
        (values,) = jax.tree.leaves(self)
        return jax.random.uniform(key, (*shape, values.shape[0]), widest_dtype(values))

    @property
    def pieces_of_pit(self) -> tuple[float, ...]:
        return tuple(self.levels)

    def cdf(self, targets: jax.Array) -> jax.Array:
        """P(U <= u) = u."""
        return targets

    def unit_interval(self, targets: jax.Array) -> UnitInterval:
        """The levels on both sides of a place: a forecast says no more about it."""
        levels = jnp.array([0.0, *self.levels, 1.0], targets.dtype)
        cell = jnp.sum(targets[:, None] > levels[None, 1:-1], axis=1, dtype=jnp.int32)
        return interval(levels[cell], levels[cell + 1])
