"""Negative binomial predictions of counts."""

from types import ModuleType

import jax
import jax.numpy as jnp

from calibjax._numbers import complex_exponential, is_nonnegative, is_positive, safe_sqrt
from calibjax._struct import static, struct, widened, widened_integers
from calibjax.distributions._counts import Counts
from calibjax.distributions._negative_binomial._probability import (
    deviance,
    log_probability,
    probability,
    tails,
)
from calibjax.kernels import EmbeddingDistance

# The rate of a Poisson draw is at most this: counts are int32.
_LARGEST_RATE = 2e9


@struct
class NegativeBinomial(Counts):
    """Negative binomial predictions: Poisson counts whose rate has a gamma distribution.

    P(Y = k) = Gamma(k + r) / (k! Gamma(r)) (r / (r + m))^r (m / (r + m))^k for the mean m and the
    concentration r.  The variance is m + m^2 / r, and r -> infinity is Poisson with rate m.

    Args:
        mu: means ``[n]``, nonnegative.
        concentration: ``[n]``, positive, also called size, dispersion or 1 / alpha.  SciPy's nbinom
            has n = concentration and p = concentration / (concentration + mu).
        max_count: expectations of target kernels, the CRPS and quantiles are sums over
            0 … max_count.  None chooses a power of two of at most 4096 for concrete parameters
            (outside of jit), such that larger counts have a probability of less than 4e-18; they
            have by Chernoff's bound
            P(Y >= k) <= exp(-(k log(k / m) - (k + r) log((k + r) / (m + r)))) for k > m.  Where it
            cannot be chosen, because 4096 is not enough or inside jit, these sums are a ValueError
            until you give it.  A row for which a given max_count is not enough gives NaN, never a
            truncated sum.  For m >> r some 40 (1 + m / r) counts are needed.  max_count is part of
            the structure of the pytree.

    Targets are integers of shape ``[n]``.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.NegativeBinomial(jnp.array([0.5, 10.0]), jnp.array([2.0, 5.0]))
        >>> predictions.max_count, predictions.variance().tolist()
        (256, [0.625, 30.0])
    """

    mu: jax.Array
    concentration: jax.Array
    max_count: int | None = static(default=None)

    shapes = {"mu": "n", "concentration": "n"}
    untempered = ", of which a power is no negative binomial distribution"

    def constraints(self) -> dict[str, tuple[str, jax.Array]]:
        return {
            "mu": ("nonnegative and finite", is_nonnegative(self.mu)),
            "concentration": ("positive and finite", is_positive(self.concentration)),
        }

    def mean(self) -> jax.Array:
        """The means, ``[n]``."""
        return widened(self).mu

    def variance(self) -> jax.Array:
        """m + m^2 / r, ``[n]``."""
        p = widened(self)
        return p.mu * (1 + p.mu / p.concentration)

    def sample(self, key: jax.Array, shape: tuple[int, ...] = ()) -> jax.Array:
        """Counts ``[*shape, n]``, at most some 2e9."""
        p, (rate_key, count_key) = widened(self), jax.random.split(key)
        shape = (*shape, *p.mu.shape)
        r = jnp.broadcast_to(p.concentration, shape)
        # A rate may be too small for its dtype, but hardly its logarithm.
        log_rate = (
            jax.random.loggamma(rate_key, r, dtype=r.dtype)
            - jnp.log(r)
            + jnp.log(p.mu)[*[None] * (len(shape) - 1)]
        )
        rate = jnp.minimum(jnp.exp(log_rate), _LARGEST_RATE)
        return jax.random.poisson(count_key, rate, shape, jnp.int32)

    def log_prob(self, targets: jax.Array) -> jax.Array:
        """The log probability at targets ``[n]``, ``[n]``."""
        p = widened(self)
        return log_probability(targets, p.mu, p.concentration)

    def cdf(self, targets: jax.Array) -> jax.Array:
        """P(Y <= targets[i]), ``[n]``: 1 - I_q(targets[i] + 1, r) for q = m / (m + r)."""
        return self.tails(targets)[0]

    def survival(self, targets: jax.Array) -> jax.Array:
        """P(Y > targets[i]), ``[n]``: I_q(targets[i] + 1, r) for q = m / (m + r)."""
        return self.tails(targets)[1]

    def tails(self, targets: jax.Array) -> tuple[jax.Array, jax.Array]:
        p = widened(self)
        return tails(widened_integers(targets), p.mu, p.concentration)

    def probability(self, count: jax.Array) -> jax.Array:
        return probability(count, self.mu, self.concentration)

    def tail_exponent(self, count: jax.Array, numpy: ModuleType = jnp) -> jax.Array:
        exponent = deviance(count + 1, self.mu, self.concentration, numpy)
        return numpy.where(count + 1 > self.mu, exponent, 0.0)

    def off_mode_probability(self) -> jax.Array:
        """P(Y != floor((r - 1) m / r)), or P(Y != 0) where r <= 1, ``[n]``."""
        p = widened(self)
        r = jnp.maximum(p.concentration, 1.0)
        return -jnp.expm1(p.log_prob(jnp.floor((r - 1) * (p.mu / r)).astype(jnp.int32)))

    def default_distance(self) -> EmbeddingDistance:
        return EmbeddingDistance(_stabilised)

    def characteristic(self, v: jax.Array) -> jax.Array:
        # (1 + q (1 - exp(i v)))^(-r) with q = m / r, and 1 - cos v = 2 sin(v / 2)^2.
        q, half = self.mu / self.concentration, jnp.square(jnp.sin(v / 2))
        real, imaginary = 1 + 2 * q * half, -q * jnp.sin(v)
        small_q = jnp.minimum(q, 1.0)
        log_modulus = jnp.where(
            q < 1,
            jnp.log1p(4 * half * small_q * (1 + small_q)) / 2,
            jnp.log(jnp.hypot(real, imaginary)),
        )
        angle = -self.concentration * jnp.arctan2(imaginary, real)
        return complex_exponential(angle, jnp.exp(-self.concentration * log_modulus))


def _stabilised(p: NegativeBinomial) -> jax.Array:
    """Where the counts are and how much wider they are than those of a Poisson variable.

    The variance of sqrt(r) arsinh(sqrt(Y / r)) hardly depends on the mean.  For r -> infinity it
    is the root of the mean, which embeds Poisson predictions.
    """
    ratio = p.mu / p.concentration
    root = jnp.sqrt(p.concentration) * jnp.arcsinh(safe_sqrt(ratio))
    return jnp.stack([root, jnp.log1p(ratio) / 2])
