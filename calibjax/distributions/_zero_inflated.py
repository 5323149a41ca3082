"""Predictions of counts with more zeros than a family has."""

from types import ModuleType

import jax
import jax.numpy as jnp

from calibjax._base.struct import struct, widened
from calibjax._data import Distribution, of_part
from calibjax._numbers import PROBABILITY
from calibjax.distributions._counts import Counts
from calibjax.expectations import inner_product, mean_embedding
from calibjax.kernels import KernelLike

# A derivative is at most exp(80), which float32 can hold.
_LARGEST_LOG = 80.0


@struct
class ZeroInflated(Counts):
    """Counts that are 0 with probability gate, and else have the distribution `base`.

    P(Y = 0) = gate + (1 - gate) P_base(0) and P(Y = k) = (1 - gate) P_base(k) for k > 0.

    Args:
        gate: probabilities ``[n]`` in [0, 1].
        base: predictions of counts ``[n]``, such as Poisson or NegativeBinomial.

    Targets are counts, integers of shape ``[n]``.  Sums over counts end at the max_count of
    the base, and expectations that have a closed form for the base have one here.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> base = cj.Poisson(jnp.array([2.0, 10.0]))
        >>> predictions = cj.ZeroInflated(jnp.array([0.5, 0.1]), base)
        >>> predictions.mean().tolist(), predictions.log_prob(jnp.array([0, 0])).round(3).tolist()
        ([1.0, 9.0], [-0.566, -2.302])

    Reference: Lambert, Zero-inflated Poisson regression, Technometrics 1992.
    """

    gate: jax.Array
    base: Counts

    untempered = ", of which a power is not zero-inflated"

    def _complete(self) -> None:
        if not isinstance(self.base, Counts):
            raise TypeError(
                "base must be predictions of counts, such as Poisson(rate), got "
                f"{type(self.base).__name__}."
            )
        # The base has its max_count already.
        Distribution._complete(self)

    @property
    def max_count(self) -> int | None:
        """The max_count of the base."""
        return self.base.max_count

    @property
    def shapes(self) -> dict[str, str]:
        return {"gate": "n"} | of_part("base", self.base.shapes)

    def constraints(self) -> dict[str, tuple[str, jax.Array]]:
        gate = PROBABILITY.of_rows(self.gate)
        return {"gate": gate} | of_part("base", self.base.constraints())

    def supports(self, targets: jax.Array) -> tuple[str, jax.Array]:
        return self.base.supports(targets)

    def mean(self) -> jax.Array:
        """(1 - gate) times the mean of the base, ``[n]``."""
        p = widened(self)
        return (1 - p.gate) * p.base.mean()

    def variance(self) -> jax.Array:
        """(1 - gate) (v + gate m^2) for the mean m and the variance v of the base, ``[n]``."""
        p = widened(self)
        return (1 - p.gate) * (p.base.variance() + p.gate * jnp.square(p.base.mean()))

    def sample(self, key: jax.Array, shape: tuple[int, ...] = ()) -> jax.Array:
        """Counts ``[*shape, n]``."""
        gate_key, key = jax.random.split(key)
        draws, gate = self.base.sample(key, shape), widened(self.gate)
        is_zero = jax.random.bernoulli(gate_key, jnp.broadcast_to(gate, draws.shape))
        return jnp.where(is_zero, 0, draws)

    def log_prob(self, targets: jax.Array) -> jax.Array:
        """The log probability at targets ``[n]``, ``[n]``."""
        p = widened(self)
        of_base = p.base.log_prob(targets)
        is_zero = targets == 0
        # Where the gate is 1 its logarithm has no derivative, which a target of 0 does not need.
        of_count = jnp.log1p(-jnp.where(is_zero, 0.0, p.gate)) + of_base
        return jnp.where(is_zero, _log_of_zero(p.gate, of_base), of_count)

    def probability(self, count: jax.Array) -> jax.Array:
        return jnp.where(count == 0, self.gate, 0.0) + (1 - self.gate) * self.base.probability(
            count
        )

    def tails(self, targets: jax.Array) -> tuple[jax.Array, jax.Array]:
        p = widened(self)
        (below, above), is_none = p.base.tails(targets), targets < 0
        below, above = p.gate + (1 - p.gate) * below, (1 - p.gate) * above
        return jnp.where(is_none, 0.0, below), jnp.where(is_none, 1.0, above)

    def tail_exponent(self, count: jax.Array, numpy: ModuleType = jnp) -> jax.Array:
        return self.base.tail_exponent(count, numpy)

    def off_mode_probability(self) -> jax.Array:
        """P(Y is not its most probable value), ``[n]``; that is 0 or the base's own."""
        p = widened(self)
        zeros = jnp.zeros(p.gate.shape, jnp.int32)
        not_zero = -(1 - p.gate) * jnp.expm1(p.base.log_prob(zeros))
        return jnp.minimum(not_zero, p.gate + (1 - p.gate) * p.base.off_mode_probability())

    def characteristic(self, v: jax.Array) -> jax.Array:
        of_base = self.base.characteristic(v)
        gate = self.gate.astype(of_base.dtype)
        return gate + (1 - gate) * of_base


def _log_of_zero(gate: jax.Array, log_base: jax.Array) -> jax.Array:
    """log(gate + (1 - gate) exp(log_base)) = log(1 + (1 - gate) (exp(log_base) - 1))."""
    # log(1 - gate) has no derivative where the gate is 1.
    is_likely = (log_base >= -1.0) | (gate == 1)
    likely = jnp.log1p((1 - gate) * jnp.expm1(jnp.where(is_likely, log_base, 0.0)))
    # At gate 0, where log(gate) has no derivative, it is log_base + gate (exp(-log_base) - 1).
    has_gate = gate > 0
    inner_gate = jnp.where(has_gate & ~is_likely, gate, 0.5)
    unlikely = jnp.where(
        has_gate,
        jnp.logaddexp(jnp.log(inner_gate), jnp.log1p(-inner_gate) + log_base),
        log_base + gate * jnp.expm1(jnp.minimum(-log_base, _LARGEST_LOG)),
    )
    return jnp.where(is_likely, likely, unlikely)


@mean_embedding.register(ZeroInflated, object)
def zero_inflated_mean(p: ZeroInflated, kernel: KernelLike, y: jax.Array) -> jax.Array:
    of_base = mean_embedding(p.base, kernel, y)
    at_zero = jnp.asarray(kernel(jnp.zeros_like(y), y)).astype(of_base.dtype)
    return p.gate * at_zero + (1 - p.gate) * of_base


@inner_product.register(ZeroInflated, object)
def zero_inflated_inner(p: ZeroInflated, kernel: KernelLike, q: ZeroInflated) -> jax.Array:
    zero = jnp.zeros((), jnp.int32)
    of_bases = inner_product(p.base, kernel, q.base)
    of_zeros = jnp.asarray(kernel(zero, zero)).astype(of_bases.dtype)
    ours, theirs = (mean_embedding(base, kernel, zero) for base in (p.base, q.base))
    with_zero = q.gate * of_zeros + (1 - q.gate) * theirs
    with_base = q.gate * ours + (1 - q.gate) * of_bases
    return p.gate * with_zero + (1 - p.gate) * with_base
