"""Binomial predictions of counts."""

import math
from types import ModuleType

import jax
import jax.numpy as jnp
from jax import lax

from calibjax._base.struct import is_floating, static, struct, widened, widened_integers
from calibjax._numbers import (
    complex_exponential,
    integer_or_invalid,
    mean_by_gauss,
    safe_sqrt,
    smallest_count_with,
    with_levels,
)
from calibjax.distributions._binomial_functions import draw, log_probability, probability, tails
from calibjax.distributions._counts import Counts
from calibjax.distributions._incomplete_gamma import END, NODES
from calibjax.kernels import EmbeddingDistance

# Sums and differences of two counts are int32.
_LARGEST_TOTAL = 2**30


@struct
class Binomial(Counts):
    """Binomial predictions of k successes in n trials: P(Y = k) = (n choose k) p^k (1 - p)^(n - k).

    Args:
        total: numbers of trials n, ``[n]``: integers in 0 … 2^30, as integers or as floating-point
            numbers.
        probs: probabilities p of a success, ``[n]``, in [0, 1].
        max_count: expectations of kernels are sums over 0 … max_count.  None chooses a power of two
            of at most 4096 for concrete parameters (outside of jit), such that larger counts have a
            probability of less than 4e-18; they have none above `total`, and by Chernoff's bound
            P(Y >= k) <= (n p / k)^k (n (1 - p) / (n - k))^(n - k) for k > n p.  Where it cannot be
            chosen, because 4096 is not enough or inside jit, these expectations are a ValueError
            until you give it.  A row for which a given max_count is not enough gives NaN, never a
            truncated sum.  max_count is part of the structure of the pytree.  The cdf, quantiles,
            the CRPS and default kernels, which judge the cdf, need no sums: they are there for
            every `total`.

    Targets are integers of shape ``[n]``, from 0 to the total of their row.

    Numbers of float32 have 24 binary digits.  A total above 2^24 = 1.7e7 loses its last digits, and
    so do probs: a count k is then up to 1e-7 sqrt(n p / (1 - p)) standard deviations from where it
    should be, which is 0.003 for n = 10^9 and p = 1/2, and 0.0003 for p = 0.01.  The log
    probability changes by so much times the distance of k from its mean, in standard deviations.
    All else has an error of a few 1e-6 times the log probability.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Binomial(jnp.array([10, 10**9]), jnp.array([0.5, 1e-8]))
        >>> predictions.mean().tolist(), predictions.max_count
        ([5.0, 10.0], 64)
        >>> predictions.cdf(jnp.array([5, 10])).round(3).tolist()
        [0.623, 0.583]
    """

    total: jax.Array
    probs: jax.Array
    max_count: int | None = static(default=None)

    shapes = {"total": "n", "probs": "n"}
    untempered = ", of which a power is no binomial distribution"

    def constraints(self) -> dict[str, tuple[str, jax.Array]]:
        total = self._whole_total()
        whole = (total >= 0) & (total <= _LARGEST_TOTAL) & (total % 1 == 0)
        return {
            "total": (f"integers in 0 … {_LARGEST_TOTAL}", whole),
            "probs": ("in [0, 1]", (self.probs >= 0) & (self.probs <= 1)),
        }

    def supports(self, targets: jax.Array) -> tuple[str, jax.Array]:
        total, targets = self._whole_total(), widened_integers(targets)
        # A total of float32 may be rounded, and then a count is rounded likewise.
        at_most_total = targets.astype(jnp.result_type(total)) <= total
        is_count = (targets >= 0) & (targets <= _LARGEST_TOTAL)
        return "counts 0, 1, … up to the total of their row", is_count & at_most_total

    def mean(self) -> jax.Array:
        """n p, ``[n]``."""
        p = widened(self)
        return p.total * p.probs

    def variance(self) -> jax.Array:
        """n p (1 - p), ``[n]``."""
        p = widened(self)
        return p.total * p.probs * (1 - p.probs)

    def sample(self, key: jax.Array, shape: tuple[int, ...] = ()) -> jax.Array:
        """Counts ``[*shape, n]``."""
        p = self.repeated(shape)
        return draw(key, p.total, p.probs)

    def log_prob(self, targets: jax.Array) -> jax.Array:
        """The log probability at targets ``[n]``, ``[n]``."""
        p = widened(self)
        return log_probability(targets, p.total, p.probs)

    def probability(self, count: jax.Array) -> jax.Array:
        return probability(count, self.total, self.probs)

    def tail_exponent(self, count: jax.Array, numpy: ModuleType = jnp) -> jax.Array:
        k, rest = count + 1, self.total - (count + 1)
        mean = self.total * self.probs
        # Where all trials succeed, the second term is 0.
        inner = numpy.where(rest > 0, rest, 1.0)
        of_rest = inner * numpy.log(inner / (self.total - mean))
        exponent = k * numpy.log(k / mean) + numpy.where(rest > 0, of_rest, 0.0)
        return numpy.where(rest < 0, numpy.inf, numpy.where(k > mean, exponent, 0.0))

    def tails(self, targets: jax.Array) -> tuple[jax.Array, jax.Array]:
        p = widened(self)
        return tails(widened_integers(targets), p.total, p.probs)

    def quantile(self, level: jax.Array) -> jax.Array:
        """The smallest count y with P(Y <= y) >= level, ``[n]``; `total` at level 1."""
        p, level = with_levels(self, level)
        total = p.total.astype(jnp.int32)
        found = smallest_count_with(lambda y: p.cdf(y) >= level, level)
        return integer_or_invalid(level, jnp.where(level < 1, jnp.minimum(found, total), total))

    def crps_closed_form(self, targets: jax.Array) -> jax.Array:
        r"""E|Y - y| - E|Y - Y'| / 2, ``[n]``.

        E|Y - y| is (y - n p) (2 F(y) - 1) + 2 p (n - y) P(Y = y).  Y - Y' is a sum of n numbers -1,
        0 and 1 with the characteristic function 1 - 4 p (1 - p) sin^2 a at 2 a, and

        .. math::
            E|Y - Y'| = \frac{8 n p (1 - p)}{\pi} \int_0^{\pi / 2} \cos^2 a
            \, (1 - 4 p (1 - p) \sin^2 a)^{n - 1} \, da

        follows by parts from E|S| = (1 / pi) times the integral of (1 - E cos(t S)) / (1 - cos t)
        over t from 0 to pi.
        """
        p, targets = widened(self), widened_integers(targets)
        y, mean, variance = targets.astype(p.probs.dtype), p.mean(), p.variance()
        sign = 2 * p.cdf(targets) - 1
        at_target = probability(targets, p.total, p.probs)
        deviation = (y - mean) * sign + 2 * p.probs * (p.total - y) * at_target

        width = 4 * p.probs * (1 - p.probs)
        # The integrand decreases faster than exp(-(n - 1) width sin^2 a).
        fallen = END[width.dtype.name] / jnp.maximum((p.total - 1) * width, 1e-3)
        end = lax.stop_gradient(jnp.arcsin(jnp.sqrt(jnp.minimum(fallen, 1.0))))

        def integrand(share: jax.Array) -> jax.Array:
            square = jnp.square(jnp.sin(end[None] * share))
            power = jnp.exp((p.total - 1)[None] * jnp.log1p(-width[None] * square))
            return (1 - square) * power

        integral = end * mean_by_gauss(integrand, NODES[width.dtype.name], width)
        return deviation - 4 / math.pi * variance * integral

    def off_mode_probability(self) -> jax.Array:
        """P(Y != floor((n + 1) p)), ``[n]``."""
        p = widened(self)
        mode = jnp.minimum(jnp.floor((p.total + 1) * p.probs), p.total)
        return -jnp.expm1(p.log_prob(mode))

    def default_distance(self) -> EmbeddingDistance:
        return EmbeddingDistance(_stabilised)

    def characteristic(self, v: jax.Array) -> jax.Array:
        # (1 - p + p exp(i v))^n, whose base has the squared modulus 1 - 4 p (1 - p) sin(v / 2)^2.
        half = jnp.square(jnp.sin(v / 2))
        square = 1 - 4 * self.probs * (1 - self.probs) * half
        amplitude = jnp.maximum(square, jnp.finfo(square.dtype).tiny) ** (self.total / 2)
        angle = jnp.arctan2(self.probs * jnp.sin(v), 1 - 2 * self.probs * half)
        return complex_exponential(self.total * angle, amplitude)

    def _whole_total(self) -> jax.Array:
        """The totals, to be compared with counts: small integers as int32."""
        return self.total if is_floating(self.total) else widened_integers(self.total)


def _stabilised(p: Binomial) -> jax.Array:
    """Where the counts are and how much narrower they are than those of a Poisson variable.

    The variance of sqrt(n) arcsin(sqrt(Y / n)) hardly depends on p.  For p -> 0 it is the root of
    the mean, which embeds Poisson predictions.
    """
    angle = jnp.arctan2(safe_sqrt(p.probs), safe_sqrt(1 - p.probs))
    return jnp.stack([safe_sqrt(p.total) * angle, angle])
