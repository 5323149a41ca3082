"""Binomial predictions of counts.

Probabilities and tails have no cancellation, and there are draws of up to 2^30 trials.
`jax.random.binomial` compares probabilities as differences of large logarithms: in float32 it is
wrong for more than some 10^6 trials.

With k successes and r = n - k failures, P(Y = k) is the largest probability of any distribution at
k, that of k / n, times exp(-D): the deviance D = k log(k / (n p)) + r log(r / (n (1 - p))) is a sum
of two terms that are 0 at k = n p (Loader, Fast and accurate computation of binomial probabilities,
2000).
"""

import math
from types import ModuleType

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy import special

from calibjax._base.struct import is_floating, repeated, static, struct, widened_integers
from calibjax._numbers.arithmetic import complex_exponential, mean_by_gauss
from calibjax._numbers.derivatives import safe_sqrt
from calibjax._numbers.special_functions import log_gamma_ratio, log_quotient_beyond_linear
from calibjax._numbers.unit_interval import integer_or_invalid, smallest_count_with
from calibjax.distributions._counts import Counts
from calibjax.distributions._incomplete_beta import beta_tails
from calibjax.distributions._incomplete_gamma import END, NODES
from calibjax.kernels import EmbeddingDistance


@jax.custom_jvp
def log_probability(count: jax.Array, total: jax.Array, p: jax.Array) -> jax.Array:
    """log P(Y = count), -inf for counts that are not in 0 … total."""
    k, rest = count.astype(p.dtype), total - count.astype(p.dtype)
    inside = (k > 0) & (rest > 0)
    a, b = jnp.where(inside, k, 1.0), jnp.where(inside, rest, 1.0)
    n = a + b
    excess = a - n * p
    deviance = _excess_deviance(a, n * p, excess) + _excess_deviance(b, n * (1 - p), -excess)
    log_largest = log_gamma_ratio(a) + log_gamma_ratio(b) - log_gamma_ratio(n)
    log_largest += jnp.log(n) - jnp.log(a) - jnp.log(b)
    at_end = jnp.where(k == 0, special.xlog1py(total, -p), special.xlogy(total, p))
    at_end = jnp.where((k < 0) | (rest < 0), -jnp.inf, at_end)
    return jnp.where(inside, log_largest - deviance, at_end)


@log_probability.defjvp
def _log_probability_jvp(primals, tangents):
    """The derivative in p is k / p - r / (1 - p) = (k - n p) / (p (1 - p))."""
    (count, total, p), (_, _, dp) = primals, tangents
    k, rest = count.astype(p.dtype), total - count.astype(p.dtype)
    inside = (k > 0) & (rest > 0)
    of_inside = (k - total * p) / jnp.where(inside, p * (1 - p), 1.0)
    at_end = jnp.where(k == 0, -total / (1 - p), total / p)
    at_end = jnp.where(total > 0, at_end, 0.0)
    return log_probability(count, total, p), jnp.where(inside, of_inside, at_end) * dp


@jax.custom_jvp
def probability(count: jax.Array, total: jax.Array, p: jax.Array) -> jax.Array:
    """P(Y = count), 0 for counts that are not in 0 … total."""
    return jnp.exp(log_probability(count, total, p))


@probability.defjvp
def _probability_jvp(primals, tangents):
    """The derivative in p is P(Y = k) (k - n p) / (p (1 - p)).

    It is also n (P(Y' = k - 1) - P(Y' = k)) for the count Y' of n - 1 trials, which for p = 0 is n
    at k = 1 and -n at k = 0, and for p = 1 it is n at k = n and -n at k = n - 1.
    """
    (count, total, p), (_, _, dp) = primals, tangents
    value = probability(count, total, p)
    k = count.astype(p.dtype)
    variance = p * (1 - p)
    of_inside = value * ((k - total * p) / jnp.where(variance > 0, variance, 1.0))
    up, down = jnp.where(p < 0.5, 1.0, total), jnp.where(p < 0.5, 0.0, total - 1)
    of_end = jnp.where(k == up, total, 0.0) - jnp.where(k == down, total, 0.0)
    return value, jnp.where(variance > 0, of_inside, of_end) * dp


@jax.custom_jvp
def tails(count: jax.Array, total: jax.Array, p: jax.Array) -> tuple[jax.Array, jax.Array]:
    """P(Y <= count) and P(Y > count), which is P(B <= p) for a beta variable B.

    B is the one of n uniform numbers that has count of them below it.
    """
    k, rest = count.astype(p.dtype), total - count.astype(p.dtype)
    inside = (k >= 0) & (rest > 0)
    above, up_to = beta_tails(jnp.where(inside, k, 0.0) + 1, jnp.where(inside, rest, 1.0), p)
    return (
        jnp.where(inside, up_to, jnp.where(k < 0, 0.0, 1.0)),
        jnp.where(inside, above, jnp.where(k < 0, 1.0, 0.0)),
    )


@tails.defjvp
def _tails_jvp(primals, tangents):
    """The derivative of P(Y > k) in p is n P(Y' = k) = r P(Y = k) / (1 - p), n at p = 1 = r.

    It is the sum of the derivatives of P(Y = j) over j > k, where all other terms cancel.
    """
    (count, total, p), (_, _, dp) = primals, tangents
    rest = total - count.astype(p.dtype)
    below_one = p < 1
    slope = rest * probability(count, total, p) / jnp.where(below_one, 1 - p, 1.0)
    slope = jnp.where(below_one, slope, jnp.where(rest == 1, total, 0.0)) * dp
    return tails(count, total, p), (-slope, slope)


def _excess_deviance(k: jax.Array, mean: jax.Array, excess: jax.Array) -> jax.Array:
    """k log(k / mean) - excess, for excess = k - mean, given with all its digits, and k > 0."""
    return -k * log_quotient_beyond_linear(mean, k, -excess)


# Fewer successes than this, on average, are counted one by one; the rejection needs as many.
_FEW = 10.0
# Further from the mean than any count.
_FAR = 2.0**30 - 2.0**6


def draw(key: jax.Array, total: jax.Array, p: jax.Array) -> jax.Array:
    """A count for each total and probability, int32; -1 where these are NaN."""
    of_few, of_many = jax.random.split(key)
    invalid = jnp.isnan(total) | jnp.isnan(p)
    total, p = jnp.where(invalid, 0.0, total), jnp.where(invalid, 0.0, p)
    # The rarer outcome is counted.
    is_mirrored = p > 0.5
    rare = jnp.where(is_mirrored, 1 - p, p)
    few = total * rare < _FEW
    by_gaps = _by_gaps(of_few, jnp.where(few, total, 0.0), rare)
    many = jnp.where(few, 4 * _FEW, total), jnp.where(few, 0.5, rare)
    count = jnp.where(few, by_gaps, _by_rejection(of_many, *many))
    count = jnp.where(is_mirrored, total.astype(jnp.int32) - count, count)
    return jnp.where(invalid, -1, count)


def _by_gaps(key: jax.Array, total: jax.Array, p: jax.Array) -> jax.Array:
    """The number of successes from the numbers of trials up to each, which are geometric."""
    log_failure = jnp.log1p(-p)

    def step(state):
        key, trial, count = state
        key, own = jax.random.split(key)
        gap = jnp.ceil(jnp.log(jax.random.uniform(own, p.shape, p.dtype)) / log_failure)
        trial = trial + gap
        return key, trial, count + (trial <= total).astype(jnp.int32)

    start = key, jnp.zeros_like(total), jnp.zeros_like(total, jnp.int32)
    return lax.while_loop(lambda state: jnp.any(state[1] <= total), step, start)[2]


def _by_rejection(key: jax.Array, total: jax.Array, p: jax.Array) -> jax.Array:
    """Transformed rejection with a squeeze, BTRS, for means of at least 10 and p <= 1/2.

    Hörmann, The generation of binomial random variates, Journal of Statistical Computation and
    Simulation 1993.  Counts are int32 numbers from the mode, so that none is rounded.
    """
    mean = total * p
    deviation = jnp.sqrt(mean * (1 - p))
    mode = jnp.floor(mean + p)
    b = 1.15 + 2.53 * deviation
    a = -0.0873 + 0.0248 * b + 0.01 * p
    alpha = (2.83 + 5.1 / b) * deviation
    enough = 0.92 - 4.2 / b
    center = mean - mode + 0.5
    at_mode = log_probability(mode, total, p)

    def step(state):
        key, count, accepted = state
        key, of_u, of_v = jax.random.split(key, 3)
        u = jax.random.uniform(of_u, p.shape, p.dtype) - 0.5
        v = jax.random.uniform(of_v, p.shape, p.dtype)
        margin = 0.5 - jnp.abs(u)
        step_from_mode = jnp.floor((2 * a / margin + b) * u + center)
        k = mode.astype(jnp.int32) + jnp.clip(step_from_mode, -_FAR, _FAR).astype(jnp.int32)
        log_ratio = log_probability(k, total, p) - at_mode
        accept = jnp.log(v * alpha / (a / jnp.square(margin) + b)) < log_ratio
        accept |= (margin >= 0.07) & (v <= enough)
        return key, jnp.where(accepted, count, k), accepted | accept

    start = key, jnp.zeros_like(total, jnp.int32), total < 0
    return lax.while_loop(lambda state: ~jnp.all(state[2]), step, start)[1]


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
            the CRPS and default kernels, which use the cdf, need no such sums: they work for every
            `total`.

    Targets are integers of shape ``[n]``, from 0 to the total of their row.

    Numbers of float32 have 24 binary digits.  A total above 2^24 = 1.7e7 loses its last digits, and
    so do probs: a count k is then up to 1e-7 sqrt(n p / (1 - p)) standard deviations from where it
    should be, which is 0.003 for n = 10^9 and p = 1/2, and 0.0003 for p = 0.01.  The log
    probability changes by this shift times the distance of k from its mean, both in standard
    deviations.  All else has an error of a few 1e-6 times the log probability.

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
    untempered = ", and a power of a binomial distribution is not one"

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
        return self.total * self.probs

    def variance(self) -> jax.Array:
        """n p (1 - p), ``[n]``."""
        return self.total * self.probs * (1 - self.probs)

    def sample(self, key: jax.Array, shape: tuple[int, ...] = ()) -> jax.Array:
        """Counts ``[*shape, n]``."""
        p = repeated(self, shape)
        return draw(key, p.total, p.probs)

    def log_prob(self, targets: jax.Array) -> jax.Array:
        """The log probability at targets ``[n]``, ``[n]``."""
        return log_probability(targets, self.total, self.probs)

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
        return tails(targets, self.total, self.probs)

    def quantile(self, level: jax.Array) -> jax.Array:
        """The smallest count y with P(Y <= y) >= level, ``[n]``; `total` at level 1."""
        total = self.total.astype(jnp.int32)
        found = smallest_count_with(lambda y: self.cdf(y) >= level, level)
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
        y, mean, variance = targets.astype(self.probs.dtype), self.mean(), self.variance()
        sign = 2 * self.cdf(targets) - 1
        at_target = probability(targets, self.total, self.probs)
        deviation = (y - mean) * sign + 2 * self.probs * (self.total - y) * at_target

        width = 4 * self.probs * (1 - self.probs)
        # The integrand decreases faster than exp(-(n - 1) width sin^2 a).
        fallen = END[width.dtype.name] / jnp.maximum((self.total - 1) * width, 1e-3)
        end = lax.stop_gradient(jnp.arcsin(jnp.sqrt(jnp.minimum(fallen, 1.0))))

        def integrand(share: jax.Array) -> jax.Array:
            square = jnp.square(jnp.sin(end[None] * share))
            power = jnp.exp((self.total - 1)[None] * jnp.log1p(-width[None] * square))
            return (1 - square) * power

        integral = end * mean_by_gauss(integrand, NODES[width.dtype.name], width)
        return deviation - 4 / math.pi * variance * integral

    def off_mode_probability(self) -> jax.Array:
        """P(Y != floor((n + 1) p)), ``[n]``."""
        mode = jnp.minimum(jnp.floor((self.total + 1) * self.probs), self.total)
        return -jnp.expm1(self.log_prob(mode))

    def default_distance(self) -> EmbeddingDistance:
        return EmbeddingDistance(_stabilised)

    def characteristic(self, v: jax.Array) -> jax.Array:
        """E exp(i <v, Z>) for Z from *one* prediction, a complex number."""
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
