"""Predictions of one real number: by their quantiles or their cdf, or by a location and a scale."""

import dataclasses
import math
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr
from jax.typing import DTypeLike

from calibjax._base.struct import repeated, struct, widened, widest_dtype
from calibjax._data.distribution import Distribution, has_own, row_methods
from calibjax._numbers.arithmetic import complex_exponential, quotient, root_mean_square
from calibjax._numbers.unit_interval import cdf_from_quantile, quantile_from_cdf
from calibjax._numbers.validity import POSITIVE
from calibjax.expectations.default_features import location_and_spread
from calibjax.expectations.dispatch import sums_over_atoms
from calibjax.kernels import EmbeddingDistance, Wasserstein

#: The number of points that stand for a prediction.
N_ATOMS = 64


@sums_over_atoms
@struct
class Univariate(Distribution):
    """A family of distributions of one real number, for every target kernel without closed forms.

    A family of your own is a subclass with its parameters as fields.  It defines `quantile`, or
    `cdf` and `log_prob`, written in jax.numpy, because JAX traces them.  `cdf` is found from
    `quantile`, and `quantile` from `cdf`, by bisection; `log_prob` is found from the slope of
    `quantile`, and levels off where the cdf rounds to 0 or 1: define it if targets lie far out in
    the tails.  Each method takes the whole batch, with targets or levels ``[n]``, and returns
    ``[n]``.

    Expectations of kernels are sums over 64 points.  With z on an even grid, from -5.5 to 5.5 in
    float32 and from -7 to 7 in float64, and the normal density phi, the points are

    .. math::
        x(z) = F^{-1}(\\Phi(z)) \\quad\\text{with weights proportional to}\\quad \\phi(z),

    the trapezoidal rule for E f(Y) = E f(x(Z)) with a standard normal Z.  Its error falls faster
    than any power of the distance of the points if x is smooth, and f is smooth at that distance;
    kinks of a LaplacianKernel are corrected.  The largest errors of E k(Y, y) over y between the
    quantiles 0.003 and 0.997, for lengthscales of 1.4, 0.5 and 0.2 times `spread`:

    ==========================  ===================  ===================  ===================
    distribution                Gaussian             Matern 3/2           Laplacian
    ==========================  ===================  ===================  ===================
    Student t, df = 5           2e-7, 1e-6, 2e-4     8e-6, 2e-4, 2e-3     6e-5, 2e-4, 1e-3
    Student t, df = 3           5e-7, 3e-4, 2e-3     3e-5, 4e-4, 3e-3     1e-4, 3e-4, 1e-3
    Student t, df = 1           6e-3, 8e-3, 5e-3     3e-3, 7e-3, 2e-2     1e-3, 2e-3, 2e-3
    log-normal, scale = 0.5     1e-7, 4e-6, 2e-3     2e-5, 4e-4, 5e-3     1e-4, 3e-4, 3e-3
    log-normal, scale = 1       4e-5, 2e-3, 8e-3     2e-4, 2e-3, 8e-3     2e-4, 3e-3, 2e-3
    ==========================  ===================  ===================  ===================

    With a kernel that is narrower still, the points of a GaussianKernel or LaplacianKernel become
    intervals, and errors fall to less than 1e-3 at 0.01 spreads; other kernels see single points,
    and are wrong by up to 0.05.

    One h, for a pair of rows with 64 points and a target each, costs 65^2 values of the target
    kernel.  With a GaussianKernel an estimate from n rows takes O(n) time to make 112 waves of each
    row (256 in float64), and then one product of two vectors of 224 numbers (512) for each pair.
    Rows whose distributions have a probability above 1e-3 (1e-6 in float64) more than 60
    lengthscales (97) away from the median target, or are wider than some 10 lengthscales, take
    coefficients of what the other rows see of them, and sums over 65^2 points only for pairs of two
    such rows that see each other.

    Raises:
        TypeError: at the first use, if the subclass has neither `quantile` nor `cdf` and
            `log_prob`.

    See also:
        `Distribution` for families with closed forms.

    Example:
        >>> import jax, jax.numpy as jnp, calibjax as cj
        >>> class Gumbel(cj.Univariate):
        ...     loc: jax.Array
        ...     scale: jax.Array
        ...     def quantile(self, level):
        ...         return self.loc - self.scale * jnp.log(-jnp.log(level))
        >>> predictions = Gumbel(jnp.zeros(300), jnp.ones(300))
        >>> targets = predictions.sample(jax.random.key(0))
        >>> float(cj.calibration_test(jax.random.key(1), predictions, targets).pvalue)
        0.651
        >>> zeros = jnp.zeros(300)
        >>> float(predictions.cdf(zeros)[0]), float(predictions.log_prob(zeros)[0])
        (0.368, -1.0)

    Reference: Trefethen and Weideman, The exponentially convergent trapezoidal rule, SIAM Review
    2014.
    """

    @property
    def shapes(self) -> dict[str, str]:
        """By default each parameter is one number for each prediction."""
        return {field.name: "n" for field in dataclasses.fields(self)}

    def cdf(self, targets: jax.Array) -> jax.Array:
        """P(Y <= targets[i]), ``[n]``; by default the inverse of `quantile`, by bisection."""
        if has_own(type(self), "tails"):
            return super().cdf(targets)
        self._check_that_quantile_is_given()
        return cdf_from_quantile(self, targets)

    def log_prob(self, targets: jax.Array) -> jax.Array:
        """The log density, ``[n]``; by default -log dQ(u)/du of the quantiles Q at u = F(y).

        It levels off where u rounds to 0 or 1.
        """
        self._check_that_quantile_is_given()
        limits = jnp.finfo(targets.dtype)
        # Q may have no slope at 0 and 1.
        level = jnp.clip(self.cdf(targets), limits.tiny, 1 - limits.epsneg)
        slope = jax.jvp(self.quantile, (level,), (jnp.ones_like(level),))[1]
        return -jnp.log(slope)

    def _check_that_quantile_is_given(self) -> None:
        if type(self).quantile is Univariate.quantile:
            raise TypeError(f"{type(self).__name__} must have quantile, or cdf and log_prob.")

    def quantile(self, level: jax.Array) -> jax.Array:
        """The smallest y with P(Y <= y) >= level, ``[n]``; by default the inverse of `cdf`."""
        return quantile_from_cdf(self, level)

    def sample(self, key: jax.Array, shape: tuple[int, ...] = ()) -> jax.Array:
        """Draws ``[*shape, n]``, by default quantiles at uniform random levels."""
        p = widened(self)
        leaf = jax.tree.leaves(p)[0]
        size = (math.prod(shape), leaf.shape[0])
        limits = jnp.finfo(leaf.dtype)
        levels = jax.random.uniform(key, size, leaf.dtype, limits.tiny, 1 - limits.epsneg)
        return jax.vmap(p.quantile)(levels).reshape(*shape, size[1])

    def mean(self) -> jax.Array:
        """The means ``[n]``, by default those of the points of the quadrature."""
        return jax.vmap(lambda p: jnp.sum(jnp.prod(jnp.stack(p.atoms()), axis=0)))(self)

    def standard_deviation(self) -> jax.Array:
        """The standard deviations ``[n]``, by default those of the points of the quadrature."""
        # A family that knows its variance may have no such points.
        if type(self).variance is not Distribution.variance:
            return super().standard_deviation()

        def of_one(p: Univariate) -> jax.Array:
            points, weights = p.atoms()
            return root_mean_square(weights, points - jnp.sum(weights * points))

        return jax.vmap(of_one)(self)

    def location(self) -> jax.Array:
        """The medians, ``[n]``."""
        return self.quantile(jnp.asarray(0.5, widest_dtype(*jax.tree.leaves(self))))

    def spread(self) -> jax.Array:
        """Half the distance of the quantiles at 0.159 and 0.841, as of one normal deviation."""
        dtype = widest_dtype(*jax.tree.leaves(self))
        low, high = (self.quantile(ndtr(jnp.asarray(z, dtype))) for z in (-1.0, 1.0))
        return (high - low) / 2

    def default_distance(self) -> EmbeddingDistance:
        return EmbeddingDistance(location_and_spread)

    def characteristic(self, v: jax.Array) -> jax.Array:
        """E exp(i <v, Z>) for Z from *one* prediction, a complex number."""
        points, weights = self.atoms()
        return jnp.sum(complex_exponential(v * points, weights))

    def atoms(self) -> tuple[jax.Array, jax.Array]:
        """The points and weights of the quadrature for *one* prediction, ``[Q]`` and ``[Q]``.

        A family for which quantiles are slow overrides it with points and weights of its own.
        """
        z, weights = standard_normal_rule(widest_dtype(*jax.tree.leaves(self)))
        levels = jnp.minimum(ndtr(z), 1 - jnp.finfo(z.dtype).epsneg)
        copies = jax.tree.map(lambda x: jnp.broadcast_to(x, (z.size, *x.shape)), self)
        return copies.quantile(levels), weights


def checked_levels(levels: Sequence[float]) -> tuple[float, ...]:
    """The levels of quantiles or of a map; ValueError unless they increase inside of (0, 1)."""
    numbers = np.asarray(levels, float)
    is_vector = numbers.ndim == 1 and numbers.size >= 2
    if not is_vector or not np.all(np.diff(numbers, prepend=0, append=1) > 0):
        raise ValueError(
            "levels must be at least 2 increasing numbers in (0, 1), got "
            f"{np.array2string(numbers, threshold=10)}."
        )
    return tuple(numbers.tolist())


def positive_points(log_unit: jax.Array, log_multiples: jax.Array) -> jax.Array:
    """exp(log_unit + log_multiples), of which squared differences in units must not overflow.

    Kernels look at points in lengthscales, which are near the unit.
    """
    largest = math.log(float(jnp.finfo(log_multiples.dtype).max))
    multiples = jnp.clip(log_multiples, -0.8 * largest, 0.4 * largest)
    return jnp.exp(jnp.clip(log_unit + multiples, -0.95 * largest, 0.9 * largest))


def standard_normal_rule(dtype: DTypeLike) -> tuple[jax.Array, jax.Array]:
    """An even grid of z and weights proportional to exp(-z^2 / 2), ``[64]`` and ``[64]``."""
    end = 7.0 if dtype == jnp.float64 else 5.5
    z = np.linspace(-end, end, N_ATOMS)
    weights = np.exp(-np.square(z) / 2)
    return jnp.asarray(z, dtype), jnp.asarray(weights / weights.sum(), dtype)


@row_methods
class LocationScale(Distribution):
    """Predictions loc + scale Z, for a symmetric Z of one known distribution."""

    loc: jax.Array
    scale: jax.Array

    shapes = {"loc": "n", "scale": "n"}
    conditions = {"scale": POSITIVE}

    #: ``noise(key, shape, dtype)``, draws of Z.
    noise: Callable[..., jax.Array]
    #: P(Z <= z), with all digits of the lower tail.
    standard_cdf: Callable[..., jax.Array]
    #: The quantiles of Z; -inf at level 0 and inf at level 1.
    standard_quantile: Callable[..., jax.Array]

    def mean(self) -> jax.Array:
        """The means, ``[n]``."""
        return self.loc

    def sample(self, key: jax.Array, shape: tuple[int, ...] = ()) -> jax.Array:
        """Draws ``[*shape, n]``."""
        p = repeated(self, shape)
        return self.noise(key, p.loc.shape, p.loc.dtype) * p.scale + p.loc

    def tails(self, targets: jax.Array) -> tuple[jax.Array, jax.Array]:
        z = quotient(targets - self.loc, self.scale)
        return self.standard_cdf(z), self.standard_cdf(-z)

    def quantile(self, level: jax.Array) -> jax.Array:
        """The quantiles ``[n]``; -inf at level 0 and inf at level 1."""
        return self.loc + self.scale * self.standard_quantile(level)

    def default_distance(self) -> Wasserstein:
        return Wasserstein()

    def wasserstein_embedding(self) -> tuple[jax.Array, ...]:
        """The mean and the standard deviation of *one* prediction."""
        return self.loc, self.standard_deviation()
