"""Negative binomial predictions of counts."""

from types import ModuleType

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy import special

from calibjax._base.struct import repeated, static, struct
from calibjax._numbers.arithmetic import complex_exponential
from calibjax._numbers.derivatives import safe_sqrt
from calibjax._numbers.special_functions import (
    MANY_COUNTS,
    log_gamma_ratio,
    log_quotient_beyond_linear,
)
from calibjax._numbers.validity import NONNEGATIVE, POSITIVE
from calibjax.distributions._counts import Counts
from calibjax.distributions._incomplete_beta import beta_tails
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
    conditions = {"mu": NONNEGATIVE, "concentration": POSITIVE}
    untempered = ", and a power of a negative binomial distribution is not one"

    def mean(self) -> jax.Array:
        """The means, ``[n]``."""
        return self.mu

    def variance(self) -> jax.Array:
        """m + m^2 / r, ``[n]``."""
        return self.mu * (1 + self.mu / self.concentration)

    def sample(self, key: jax.Array, shape: tuple[int, ...] = ()) -> jax.Array:
        """Counts ``[*shape, n]``, at most some 2e9."""
        p, (rate_key, count_key) = repeated(self, shape), jax.random.split(key)
        r = p.concentration
        # A rate may be too small for its dtype, but hardly its logarithm.
        log_rate = jax.random.loggamma(rate_key, r, dtype=r.dtype) - jnp.log(r) + jnp.log(p.mu)
        rate = jnp.minimum(jnp.exp(log_rate), _LARGEST_RATE)
        return jax.random.poisson(count_key, rate, dtype=jnp.int32)

    def log_prob(self, targets: jax.Array) -> jax.Array:
        """The log probability at targets ``[n]``, ``[n]``."""
        return log_probability(targets, self.mu, self.concentration)

    def tails(self, targets: jax.Array) -> tuple[jax.Array, jax.Array]:
        """1 - I_q(targets[i] + 1, r) and I_q(targets[i] + 1, r), for q = m / (m + r)."""
        return tails(targets, self.mu, self.concentration)

    def probability(self, count: jax.Array) -> jax.Array:
        return probability(count, self.mu, self.concentration)

    def tail_exponent(self, count: jax.Array, numpy: ModuleType = jnp) -> jax.Array:
        exponent = deviance(count + 1, self.mu, self.concentration, numpy)
        return numpy.where(count + 1 > self.mu, exponent, 0.0)

    def off_mode_probability(self) -> jax.Array:
        """P(Y != floor((r - 1) m / r)), or P(Y != 0) where r <= 1, ``[n]``."""
        r = jnp.maximum(self.concentration, 1.0)
        return -jnp.expm1(self.log_prob(jnp.floor((r - 1) * (self.mu / r)).astype(jnp.int32)))

    def default_distance(self) -> EmbeddingDistance:
        return EmbeddingDistance(_stabilised)

    def characteristic(self, v: jax.Array) -> jax.Array:
        """E exp(i <v, Z>) for Z from *one* prediction, a complex number."""
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


# The largest ratio a / b whose log1p is taken: larger ones might overflow.
_LARGE_RATIO = 2.0**40


def log_one_plus(a: jax.Array, b: jax.Array, numpy: ModuleType = jnp) -> jax.Array:
    """log(1 + a / b) for a > -b and b >= 0, where a / b may overflow."""
    far = a > _LARGE_RATIO * b
    near = numpy.log1p(numpy.where(far, 0.0, a) / numpy.where(far, 1.0, b))
    return numpy.where(far, numpy.log(numpy.where(far, a, 1.0)) - numpy.log(b), near)


def deviance(k: jax.Array, m: jax.Array, r: jax.Array, numpy: ModuleType = jnp) -> jax.Array:
    """k log(k / m) - (k + r) log((k + r) / (m + r)) for k > 0, the exponent of the probabilities.

    It is k log(1 + x r / (m (k + r))) - r log(1 + x / (m + r)) for x = k - m.
    """
    excess = k - m
    ratio = excess / (m + r)
    log_ratio = numpy.where(ratio < -0.5, numpy.log((k + r) / (m + r)), numpy.log1p(ratio))
    return k * log_one_plus(excess * (r / (k + r)), m, numpy) - r * log_ratio


@jax.custom_jvp
def log_probability(count: jax.Array, m: jax.Array, r: jax.Array) -> jax.Array:
    """log P(Y = count) for count >= 0, mean m >= 0 and concentration r > 0."""
    k = count.astype(m.dtype)
    # k log(m / (r + m)) + log(r (r + 1) … (r + k - 1) / k!), with r in units of max(r, 1).
    unit = jnp.maximum(r, 1.0)
    j = _counts_before(k)
    factors = (r[..., None] + j) / unit[..., None] / (j + 1)
    product = jnp.prod(jnp.where(k[..., None] > j, factors, 1.0), axis=-1)
    few = special.xlogy(k, m / ((r + m) / unit)) + jnp.log(product) - r * log_one_plus(m, r)
    # Gamma(k + r) / (k! Gamma(r)) without the factor that the deviance has.
    large = jnp.maximum(k, MANY_COUNTS)
    largest = log_gamma_ratio(large) + log_gamma_ratio(r) - log_gamma_ratio(large + r)
    many = largest - jnp.log(large) - deviance(large, m, r)
    return jnp.where(k < 0, -jnp.inf, jnp.where(k < MANY_COUNTS, few, many))


@log_probability.defjvp
def _log_probability_jvp(primals, tangents):
    """The derivative in m is k / m - (k + r) / (m + r) = r (k - m) / (m (m + r)), at k = 0 too."""
    (count, m, r), (_, dm, dr) = primals, tangents
    k = count.astype(m.dtype)
    of_count = jnp.where(count > 0, (k - m) / jnp.where(count > 0, m, 1.0), -1.0)
    by_mean = r / (m + r) * of_count
    return log_probability(count, m, r), by_mean * dm + _slope_in_concentration(k, m, r) * dr


@jax.custom_jvp
def probability(count: jax.Array, m: jax.Array, r: jax.Array) -> jax.Array:
    """P(Y = count) for count >= 0, mean m >= 0 and concentration r > 0."""
    return jnp.exp(log_probability(count, m, r))


@probability.defjvp
def _probability_jvp(primals, tangents):
    """The derivative in m is ((k - 1 + r) P(Y = k - 1) - (k + r) P(Y = k)) / (m + r).

    It follows from k (m + r) P(Y = k) = (k - 1 + r) m P(Y = k - 1), and is finite at mean 0, where
    log P(Y = k) has no derivative.
    """
    (count, m, r), (_, dm, dr) = primals, tangents
    k = count.astype(m.dtype)
    value = probability(count, m, r)
    before = jnp.where(count > 0, probability(jnp.maximum(count - 1, 0), m, r), 0.0)
    by_mean = (k - 1 + r) / (m + r) * before - (k + r) / (m + r) * value
    return value, by_mean * dm + value * _slope_in_concentration(k, m, r) * dr


@jax.custom_jvp
def tails(count: jax.Array, m: jax.Array, r: jax.Array) -> tuple[jax.Array, jax.Array]:
    """P(Y <= count) and P(Y > count), elementwise; each has all its digits.

    P(Y > count) is I_q(count + 1, r) for q = m / (m + r).  Negative counts have 0 and 1.
    """
    after = jnp.maximum(count, 0).astype(m.dtype) + 1
    above, up_to = beta_tails(after, r, m / (m + r))
    is_negative = count < 0
    return jnp.where(is_negative, 0.0, up_to), jnp.where(is_negative, 1.0, above)


@tails.defjvp
def _tails_jvp(primals, tangents):
    """The derivative of P(Y > count) in m is (count + r) P(Y = count) / (m + r), also at mean 0.

    It is the sum of the derivatives of P(Y = k) over k > count, where all other terms cancel.
    """
    (count, m, r), (_, dm, dr) = primals, tangents
    values, (of_cdf, of_survival) = jax.jvp(lambda r: tails.fun(count, m, r), (r,), (dr,))
    by_mean = (count.astype(m.dtype) + r) / (m + r) * probability(jnp.maximum(count, 0), m, r)
    change = jnp.where(count < 0, 0.0, by_mean) * dm
    return values, (of_cdf - change, of_survival + change)


def _slope_in_concentration(k: jax.Array, m: jax.Array, r: jax.Array) -> jax.Array:
    """The derivative of log P(Y = k) in r.

    It is psi(k + r) - psi(r) - log(1 + m / r) - (k - m) / (m + r), where terms nearly cancel for
    large r.  With psi(k + r) - psi(r) = sum_{j < k} 1 / (r + j), it is for few counts
    log(r / (m + r)) + m / (m + r) + sum_{j < k} (m - j) / ((r + j) (m + r)).  With
    psi(x) = log x - 1 / (2 x) - s(x) and e = 1 / r - 1 / (k + r) for large r, it is
    log((k + r) / (m + r)) - (k - m) / (m + r) + e / 2 + s(r) - s(k + r).
    """
    of_zero = log_quotient_beyond_linear(r, m + r, -m)
    j = _counts_before(k)
    terms = (m[..., None] - j) / (r[..., None] + j) / (m + r)[..., None]
    few = of_zero + jnp.sum(jnp.where(k[..., None] > j, terms, 0.0), axis=-1)
    large = jnp.maximum(k, MANY_COUNTS)
    is_large = r >= MANY_COUNTS
    small_r, large_r = jnp.where(is_large, 1.0, r), jnp.where(is_large, r, MANY_COUNTS)
    digammas = special.digamma(large + small_r) - special.digamma(small_r)
    of_small_r = digammas - large / (m + small_r) + of_zero
    a, b = 1 / large_r, 1 / (large + large_r)
    # s(x) = 1 / (12 x^2) - 1 / (120 x^4) + 1 / (252 x^6) - 1 / (240 x^8) + ….
    difference_of_s = (
        1 / 12
        - (a**2 + b**2) / 120
        + (a**4 + a**2 * b**2 + b**4) / 252
        - (a**2 + b**2) * (a**4 + b**4) / 240
    ) * (a + b)
    of_large_r = log_quotient_beyond_linear(large + large_r, m + large_r, large - m)
    of_large_r += large * a * b * (1 / 2 + difference_of_s)
    many = jnp.where(is_large, of_large_r, of_small_r)
    return jnp.where(k < MANY_COUNTS, few, many)


def _counts_before(k: jax.Array) -> jax.Array:
    """0, 1, …, MANY_COUNTS - 2 along a last axis, for numbers in the shape of k."""
    return lax.broadcasted_iota(k.dtype, (*k.shape, MANY_COUNTS - 1), k.ndim)
