"""Predictions of counts: expectations of kernels, the cdf and quantiles are sums over the counts.

A sum over 0 … max_count is NaN unless larger counts have a probability of less than 4e-18.
"""

from abc import abstractmethod
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from calibjax._base.check import check_integer
from calibjax._base.struct import is_array, is_traced, type_name, widened_integers
from calibjax._data.distribution import CountLike, has_own, row_methods
from calibjax._numbers.arithmetic import dot
from calibjax._numbers.unit_interval import integer_or_invalid
from calibjax.expectations import inner_product, mean_embedding
from calibjax.kernels import WhiteKernel
from calibjax.kernels.base import KernelLike

#: -log of the largest probability of counts above max_count, exp(-40) = 4e-18.
_TAIL = 40.0
# The same where max_count is chosen automatically: the dtype of the predictions rounds the bound.
_CHOSEN_TAIL = 41.0
# The max_counts that are chosen automatically.  With the smallest one the first 32 derivatives at
# mean 0 are right; with the largest one the matrix of a kernel at all counts still fits in memory.
_AUTOMATIC = [2**power for power in range(5, 13)]
_LARGEST_COUNT = int(np.iinfo(np.int32).max)


@row_methods
class Counts(CountLike):
    """A batch of n predictive distributions of counts 0, 1, ….

    A family is a `struct` with `probability`, `tail_exponent`, a field
    ``max_count: int | None = static(default=None)``, and what every `Distribution` has.  It then
    has expectations of every target kernel, a cdf and quantiles: sums over 0 … max_count.

    For concrete parameters (outside of jit) None chooses a power of two of at most 4096.
    Where P(Y > max_count) is not known to be less than 4e-18 a sum is NaN, never truncated.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> isinstance(cj.Poisson(jnp.ones(3)), cj.Counts), cj.Poisson(jnp.ones(3)).max_count
        (True, 32)
    """

    def _complete(self) -> None:
        super()._complete()
        if self.max_count is not None:
            max_count = check_integer("max_count", self.max_count, 1)
            vars(self)["max_count"] = max_count
        elif all(is_array(x) and not is_traced(x) for x in jax.tree.leaves(self)):
            vars(self)["max_count"] = self._sufficient_count()

    @abstractmethod
    def tail_exponent(self, count: jax.Array, numpy: ModuleType = jnp) -> jax.Array:
        """A number t such that P(Y > count) <= exp(-t), nondecreasing in the count.

        It is computed by the functions of `numpy`, which is `jax.numpy`, or NumPy for parameters
        that are concrete.
        """

    def supports(self, targets: jax.Array) -> tuple[str, jax.Array]:
        # Computations use int32.
        targets = widened_integers(targets)
        return f"counts 0, 1, …, {_LARGEST_COUNT}", (targets >= 0) & (targets <= _LARGEST_COUNT)

    def cdf(self, targets: jax.Array) -> jax.Array:
        """P(Y <= targets[i]), ``[n]``, by default in memory of ``[n, max_count]``.

        NaN above max_count unless larger counts have a probability of less than 4e-18.
        """
        if has_own(type(self), "tails"):
            return super().cdf(targets)

        def cdf_of_one(p: Counts, y: jax.Array) -> jax.Array:
            sums = _cumulative(p, "with a cdf")
            largest = sums.size - 1
            beyond = jnp.where(p.is_complete(), 1.0, jnp.nan)
            within = sums[jnp.clip(y, 0, largest)]
            return jnp.where(y < 0, 0.0, jnp.where(y <= largest, within, beyond))

        return jax.vmap(cdf_of_one)(self, targets)

    def quantile(self, level: jax.Array) -> jax.Array:
        """The smallest count y with P(Y <= y) >= level, ``[n]``; `level` is a number or ``[n]``.

        It is the largest int32 where no count up to max_count is known to be it.
        """

        def quantile_of_one(p: Counts, level: jax.Array) -> jax.Array:
            reached = _cumulative(p, "with quantiles") >= level
            is_known = jnp.any(reached) & (level < 1)
            return jnp.where(is_known, jnp.argmax(reached).astype(jnp.int32), _LARGEST_COUNT)

        return integer_or_invalid(level, jax.vmap(quantile_of_one)(self, level))

    def _sufficient_count(self) -> int | None:
        """The smallest automatic max_count for all rows that have one; None if no row has one."""
        rows = jax.tree.map(lambda x: np.asarray(x, float), self)
        if len({np.shape(x) for x in jax.tree.leaves(rows)} - {()}) > 1:
            return None  # The shapes are wrong, which is for others to say.
        # Masked rows may hold anything.
        with np.errstate(all="ignore"):
            enough = np.stack([rows.tail_exponent(k, np) >= _CHOSEN_TAIL for k in _AUTOMATIC])
        first = np.argmax(enough, axis=0)[np.any(enough, axis=0)]
        return _AUTOMATIC[np.max(first)] if first.size else None

    def is_complete(self) -> jax.Array:
        """Whether counts above max_count are improbable for *one* prediction."""
        count: Any = self.max_count
        return self.tail_exponent(count) >= _TAIL


def _all_counts(p: Counts, use: str) -> jax.Array:
    """The counts 0 … max_count; ValueError if max_count is not known."""
    if p.max_count is None:
        raise ValueError(
            f"max_count must be given for {type(p).__name__} predictions {use}, found by sums "
            "over 0 … max_count: it can be chosen only for parameters that are known outside of "
            f"jit, and up to {_AUTOMATIC[-1]}."
        )
    return jnp.arange(p.max_count + 1, dtype=jnp.int32)


def _cumulative(p: Counts, use: str) -> jax.Array:
    """P(Y <= 0), …, P(Y <= max_count) of one prediction, right even if larger counts are likely."""
    sums = jnp.cumsum(jax.vmap(p.probability)(_all_counts(p, use)))
    # What rounding adds to 1 is subtracted; `minimum` would halve the derivative at 1.
    return sums - lax.stop_gradient(jnp.maximum(sums - 1, 0.0))


def _probabilities(p: Counts, kernel: KernelLike) -> tuple[jax.Array, jax.Array]:
    """The counts 0 … max_count, and their probabilities, NaN if larger counts are likely."""
    counts = _all_counts(p, f"with a {type_name(kernel)}")
    return counts, jnp.where(p.is_complete(), jax.vmap(p.probability)(counts), jnp.nan)


@mean_embedding.register(Counts, object)
def counts_mean(p: Counts, kernel: KernelLike, y: jax.Array) -> jax.Array:
    counts, probabilities = _probabilities(p, kernel)
    at_counts = jax.vmap(kernel, in_axes=(0, None))(counts, y)
    return dot(probabilities, at_counts.astype(probabilities.dtype))


@inner_product.register(Counts, object)
def counts_inner(p: Counts, kernel: KernelLike, q: Counts) -> jax.Array:
    counts, probabilities = _probabilities(p, kernel)
    return dot(probabilities, jax.vmap(lambda z: counts_mean(q, kernel, z))(counts))


@mean_embedding.register(Counts, WhiteKernel)
def counts_white_mean(p: Counts, kernel: WhiteKernel, y: jax.Array) -> jax.Array:
    return p.probability(y)


@inner_product.register(Counts, WhiteKernel)
def counts_white_inner(p: Counts, kernel: WhiteKernel, q: Counts) -> jax.Array:
    return dot(_probabilities(p, kernel)[1], _probabilities(q, kernel)[1])
