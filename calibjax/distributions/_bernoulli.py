"""Predictions of an event: its probability."""

import dataclasses
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from calibjax._distribution import Distribution
from calibjax._numbers import (
    TOLERANCE,
    as_before,
    integer_or_invalid,
    tempered_label_log_prob,
    tempered_probabilities,
    with_levels,
)
from calibjax._rows import valid_rows
from calibjax._struct import is_rounded, struct, widened, widened_integers
from calibjax.expectations import finite_sums
from calibjax.kernels import TotalVariation


@finite_sums
@struct
class Bernoulli(Distribution):
    """Binary predictions: P(Y = 1) = probs.

    All results are equal to the results of the two-class Categorical with probabilities
    ``[1 - probs, probs]``.

    Args:
        probs: array ``[n]`` with values in [0, 1].
        complement: P(Y = 0), ``[n]``, where 1 - probs would lose its digits: in float32 1 - 1e-9
            is 1.  None stands for 1 - probs; functions of rows take it from probabilities in
            float64 of NumPy, before jax rounds these.

    Predictions of `from_logits` and of maps have a complement: they are pytrees of two arrays,
    which ``jax.tree.map`` cannot combine with those of one, and other `probs` need another
    complement; ``Bernoulli(predictions.probs)`` has none.

    Targets are booleans or integers 0 and 1 of shape ``[n]``.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> cj.Bernoulli(jnp.array([0.25, 0.5])).variance().tolist()
        [0.1875, 0.25]
    """

    probs: jax.Array
    complement: jax.Array | None = dataclasses.field(default=None, kw_only=True)

    target_shape = "n"
    target_kind = "integer"

    @classmethod
    def from_logits(cls, logits: ArrayLike) -> "Bernoulli":
        """Predictions 1 / (1 + exp(-logits)), from logits ``[n]``.

        The probabilities are at least float32, and their gradients are always finite.
        """
        logits = widened(jnp.asarray(logits))
        return cls(jax.nn.sigmoid(logits), complement=jax.nn.sigmoid(-logits))

    @property
    def shapes(self) -> dict[str, str]:
        return {"probs": "n"} if self.complement is None else {"probs": "n", "complement": "n"}

    def keeping_digits(self) -> Self:
        if self.complement is not None or not is_rounded(self.probs):
            return self
        complement: Any = np.maximum(1 - self.probs, 0)
        return dataclasses.replace(self, complement=complement)

    def without_marks(self) -> Self:
        return dataclasses.replace(self, complement=None)

    def constraints(self) -> dict[str, tuple[str, jax.Array]]:
        words, valid = "in [0, 1]", (self.probs >= 0) & (self.probs <= 1)
        if self.complement is not None:
            valid &= (self.complement >= 0) & (abs(self.probs + self.complement - 1) <= TOLERANCE)
            words += ", and 1 together with complement"
        return {"probs": (words, valid)}

    def _of_zero(self) -> jax.Array:
        """P(Y = 0)."""
        return 1 - self.probs if self.complement is None else self.complement

    def supports(self, targets: jax.Array) -> tuple[str, jax.Array]:
        targets = widened_integers(targets)
        return "0 or 1", (targets == 0) | (targets == 1)

    def mean(self) -> jax.Array:
        """P(Y = 1), ``[n]``."""
        return widened(self.probs)

    def variance(self) -> jax.Array:
        """The variance of each target, ``[n]``."""
        p = widened(self)
        return p.probs * p._of_zero()

    def sample(self, key: jax.Array, shape: tuple[int, ...] = ()) -> jax.Array:
        """Draws: integers 0 and 1, ``[*shape, n]``."""
        probs = jnp.broadcast_to(widened(self.probs), (*shape, *self.probs.shape))
        return jax.random.bernoulli(key, probs).astype(jnp.int32)

    def log_prob(self, targets: jax.Array) -> jax.Array:
        """The log probability of targets 0 and 1, ``[n]``."""
        p, one = widened(self), targets == 1
        # The probability of the other target may be 0, and log has no finite derivative at 0.
        of_one = jnp.log(jnp.where(one, p.probs, 1.0))
        if p.complement is not None:
            return jnp.where(one, of_one, jnp.log(jnp.where(one, 1.0, p.complement)))
        return jnp.where(one, of_one, jnp.log1p(-jnp.where(one, 0.0, p.probs)))

    def cdf(self, targets: jax.Array) -> jax.Array:
        """The probability of labels up to targets[i], ``[n]``."""
        of_zero = widened(self)._of_zero()
        return jnp.where(targets >= 1, 1.0, jnp.where(targets >= 0, of_zero, 0.0))

    def survival(self, targets: jax.Array) -> jax.Array:
        """The probability of labels above targets[i], ``[n]``."""
        of_one = widened(self.probs)
        return jnp.where(targets >= 1, 0.0, jnp.where(targets >= 0, of_one, 1.0))

    def quantile(self, level: jax.Array) -> jax.Array:
        """0 where P(Y = 0) is at least the level, else 1, ``[n]``, int32."""
        p, level = with_levels(self, level)
        return integer_or_invalid(level, p._of_zero() < level)

    def label_probabilities(self) -> jax.Array:
        """The probabilities of 0 and 1, ``[n, 2]``."""
        return jnp.stack([self._of_zero(), self.probs], axis=-1)

    def binary_probability(self) -> jax.Array:
        """The probability of 1."""
        return self.probs

    def default_distance(self) -> TotalVariation:
        return TotalVariation()

    def tempered(self, temperature: jax.Array) -> Self:
        probs = self.label_probabilities().astype(temperature.dtype)
        probs = tempered_probabilities(probs, valid_rows(self), temperature)
        complement = None if self.complement is None else probs[..., 0]
        tempered = dataclasses.replace(self, probs=probs[..., 1], complement=complement)
        return jax.tree.map(as_before, self, tempered)

    def tempered_log_prob(self, targets: jax.Array, temperature: jax.Array) -> jax.Array:
        return tempered_label_log_prob(self.label_probabilities(), targets, temperature)
