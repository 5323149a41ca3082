r"""Kernels on pairs that use where a target, a number or a vector, lies in its own forecast.

They use functions of mean 0 on the unit interval, and their means over subintervals.

A forecast F places a target y at U = F(y): at one point, or somewhere in an interval [a, b] if the
cdf jumps at y or if y is not known exactly.  If the forecast is right, U is uniform, and given
[a, b] it is uniform in [a, b].  For a function phi with :math:`\int_0^1 \phi = 0` the feature is
what is known of it,

    phibar(a, b) = E[phi(U) | a <= U <= b] = 1 / (b - a) int_a^b phi(u) du,

and its mean over the intervals is again int phi = 0.

**Cosines.**  phi_k(u) = sqrt(2) cos(pi k u) has mean 0 and variance 1, and with m = (a + b) / 2

    phibar_k = sqrt(2) (sin(pi k b) - sin(pi k a)) / (pi k (b - a))
             = sqrt(2) cos(pi k m) sin(pi k (b - a) / 2) / (pi k (b - a) / 2).

With the weights 1 / (pi k)^2 and all k,

    sum_k phi_k(u) phi_k(v) / (pi k)^2 = (u^2 + v^2) / 2 - max(u, v) + 1 / 3,

whose mean over independent U and V with the cdf G is int (G(u) - u)^2 du, the distance of Cramér
and von Mises.

**Normal scores.**  phi_k(u) = He_k(z) / sqrt(k!) with the normal score z of u and Hermite's
polynomials He_1 = z, He_2 = z^2 - 1, …, which have mean 0 and variance 1 for a normal z.  The
derivative of f(z) He_{k-1}(z), with the normal density f, is -f(z) He_k(z), so that

    int_a^b He_k(z(u)) du = f(z_a) He_{k-1}(z_a) - f(z_b) He_{k-1}(z_b).

**Standard scores.**  Of few samples the rank of a target is coarse.  If the target is as good as
one of S samples, any of all S + 1 values may be the target, and every function of a value and of
their set, less its mean over the set, has the mean 0: He_k(z) with

    z = (y - mean) / deviation,    |z| <= sqrt(S),

of the set.  z and z^2 - 1 have the mean 0 as they are.
"""

import math
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from calibjax._base.check import check_choice
from calibjax._base.struct import PyTree, batch_of_one, indexed, is_traced, on_host, static, struct
from calibjax._data.capabilities import Exchangeable, UnitBox, exchangeable_pool
from calibjax._data.distribution import Distribution
from calibjax._data.interval_censored import unit_interval
from calibjax._numbers.arithmetic import dot, quotient
from calibjax._numbers.derivatives import sinc
from calibjax._numbers.unit_interval import UnitInterval, normal_score
from calibjax._numbers.validity import NONNEGATIVE, valid_or_nan
from calibjax.kernels.base import Kernel, KernelLike, Sample, kernel_value, upper_bound

# An interval is narrow if it is less than this share of the tail beyond it.  Gauss' rule of two
# points then errs by less than 1e-7, and a difference of two values of its integral would lose
# more than a digit.
_NARROW = 0.05
# The normal scores of smaller tails are those of this one, -11.5 and 11.5 in every dtype, and have
# the derivative 0: one target that a model calls impossible must not outweigh a batch.  Derivatives
# of larger tails, up to the inverse of this number, may be multiplied by 1e8 in float32.
_LEAST_TAIL = 2.0**-100
# The two points of Gauss' rule on [0, 1].
_FIRST, _SECOND = (1 - 1 / math.sqrt(3)) / 2, (1 + 1 / math.sqrt(3)) / 2


#: Which k count.
Orders = tuple[int, ...]


def cosines(u: jax.Array, above: jax.Array, orders: Orders) -> jax.Array:
    """phi_k for the orders k, ``[K]`` behind the axes of u."""
    return math.sqrt(2) * jnp.cos(math.pi * _multiples(u, orders))


def mean_cosines(interval: UnitInterval, orders: Orders) -> jax.Array:
    """phibar_k for the orders k, ``[K]`` behind the axes of the interval."""
    middle, half = (interval.low + interval.high) / 2, interval.width() / 2
    return cosines(middle, 1 - middle, orders) * sinc(_multiples(half, orders))


def _multiples(x: jax.Array, orders: Orders) -> jax.Array:
    """k x for the orders k, ``[K]`` behind the axes of x."""
    return x[..., None] * jnp.expand_dims(jnp.array(orders, x.dtype), range(x.ndim))


def hermite(u: jax.Array, above: jax.Array, orders: Orders) -> jax.Array:
    """He_k(z) / sqrt(k!) for the orders k and the normal scores z of u, ``[K]`` behind its axes."""
    return _hermite(normal_score(*_within_bound(u, above)), orders)


def _hermite(z: jax.Array, orders: Orders) -> jax.Array:
    """He_k(z) / sqrt(k!) for the orders k, ``[K]`` behind the axes of z."""
    values = _polynomials(z, max(orders))
    return _normalised([values[k] for k in orders], orders)


def mean_hermite(interval: UnitInterval, orders: Orders) -> jax.Array:
    """The means of He_k(z) / sqrt(k!) for the orders k, ``[K]`` behind the axes of the interval."""
    width, tail = interval.width(), jnp.minimum(interval.high, interval.above_low)
    narrow = (width <= _NARROW * tail) | (tail <= _LEAST_TAIL)
    inner = (_within_bound(*interval.at(node)) for node in (_FIRST, _SECOND))
    points = *inner, interval[0::2], interval[1::2]
    # In one call, whose program is long: two points within, and both ends.
    z = normal_score(*map(jnp.stack, zip(*points, strict=True)))
    low, high = _integrals(z[2:], orders)
    of_wide = quotient(low - high, jnp.where(narrow, 1.0, width)[..., None])
    return jnp.where(narrow[..., None], jnp.mean(_hermite(z[:2], orders), axis=0), of_wide)


def _within_bound(u: jax.Array, above: jax.Array) -> tuple[jax.Array, jax.Array]:
    return jnp.maximum(u, _LEAST_TAIL), jnp.maximum(above, _LEAST_TAIL)


def _integrals(z: jax.Array, orders: Orders) -> jax.Array:
    """f(z) He_{k-1}(z) / sqrt(k!) for the orders k, ``[K]`` behind the axes of z."""
    density = jnp.exp(-jnp.square(z) / 2) / math.sqrt(2 * math.pi)
    lower = _polynomials(z, max(orders) - 1)
    return _normalised([density * lower[k - 1] for k in orders], orders)


def _polynomials(z: jax.Array, last: int) -> list[jax.Array]:
    """He_0(z), …, He_last(z): He_{k+1} = z He_k - k He_{k-1}."""
    values = [jnp.ones_like(z), z]
    for k in range(1, last):
        values.append(z * values[k] - k * values[k - 1])
    return values


def _normalised(values: list[jax.Array], orders: Orders) -> jax.Array:
    """The values for the orders k over sqrt(k!), ``[K]`` behind their axes."""
    scaled = [x / math.sqrt(math.factorial(k)) for k, x in zip(orders, values, strict=True)]
    return jnp.stack(scaled, axis=-1)


_OF_INTERVALS = {"cosines": mean_cosines, "normal scores": mean_hermite}
_OF_POINTS = {"cosines": cosines, "normal scores": hermite}
_STANDARD = "standard scores"
# 1 / (pi k)^2 for k = 1 … 16, which omits 4 % of Cramér and von Mises' sum of 1/6.  For normal
# scores, location and spread.
_USUAL_WEIGHTS = {
    "cosines": tuple(1 / (math.pi * k) ** 2 for k in range(1, 17)),
    "normal scores": (1.0, 1.0),
    _STANDARD: (1.0, 1.0),
}


@struct
class UnitFeature:
    """sqrt(a_k) phibar_k for some k, whose mean is 0 under every forecast.

    Args:
        weights: a_k of each of the K `orders` k, ``[K]``.
        features: which functions phi_k are.
        orders: k.
    """

    weights: jax.Array | np.ndarray
    features: str = static()
    orders: tuple[int, ...] = static()

    #: Whether the PIT of a target is all that counts.
    is_of_pit = True

    def __call__(self, p: Distribution, y: PyTree) -> jax.Array:
        """The feature of one prediction and one target, ``[K]``."""
        predictions, targets = batch_of_one((p, y))
        return self.of_rows(*exchangeable_pool(predictions, targets))[0]

    def of_rows(self, predictions: Distribution, targets: PyTree) -> jax.Array:
        """The features of n rows that are pooled already, ``[n, K]``."""
        if predictions.target_shape != "n":
            raise TypeError(
                "PITKernel is defined for predictions of one number, got vectors "
                f"({type(predictions).__name__}); VectorPITKernel or TensorProduct take them."
            )
        return self.of_intervals(unit_interval(predictions, targets))

    def of_intervals(self, interval: UnitInterval) -> jax.Array:
        """The features of intervals of the unit line, ``[K]`` behind their axes."""
        return _scaled(self.valid_weights(), self.unscaled(interval, self.orders))

    def unscaled(self, interval: UnitInterval, orders: tuple[int, ...]) -> jax.Array:
        """phibar_k for the orders k, ``[K]`` behind the axes of the intervals."""
        if interval.low is interval.high:  # Points are a third of what XLA compiles of intervals.
            return _OF_POINTS[self.features](interval.low, interval.above_low, orders)
        return _OF_INTERVALS[self.features](interval, orders)

    def of_points(self, u: jax.Array, above: jax.Array) -> jax.Array:
        """The features of points u of the unit line, ``[K]`` behind their axes; above = 1 - u."""
        return _scaled(self.valid_weights(), _OF_POINTS[self.features](u, above, self.orders))

    def valid_weights(self) -> jax.Array:
        """The weights ``[K]``, NaN where they are invalid."""
        return valid_or_nan(NONNEGATIVE, self.weights, "weights of PITKernel")


@struct
class StandardFeature(UnitFeature):
    """sqrt(a_k) He_k(z) / sqrt(k!) of standard scores, less the mean over all that have one.

    For vectors there are those of d coordinates, and sqrt(a_2) times the products of two z.
    """

    is_of_pit = False

    def of_rows(self, predictions: Distribution, targets: PyTree) -> jax.Array:
        """The features of n rows, ``[n, M]``."""
        if not isinstance(predictions, Exchangeable):
            raise TypeError(
                "standard scores are defined for samples (Empirical), got "
                f"{type(predictions).__name__} predictions; normal scores are defined for all."
            )
        z, of_pool, probabilities = predictions.standard_scores(targets)
        n, n_samples = probabilities.shape
        values = self._of_coordinates(of_pool.reshape(n, n_samples, -1))
        mean = jnp.sum(probabilities[..., None] * values, axis=1)
        return self._of_coordinates(z.reshape(n, -1)) - mean

    def _of_coordinates(self, z: jax.Array) -> jax.Array:
        """The functions of z ``[…, d]``, ``[…, M]``."""
        weights = self.valid_weights()
        values = _scaled(weights, _hermite(z, self.orders)).reshape(*z.shape[:-1], -1)
        if 2 not in self.orders or z.shape[-1] == 1:
            return values
        of_products = jnp.sqrt(weights[self.orders.index(2)].astype(z.dtype))
        return jnp.concatenate([values, of_products * _products(z)], axis=-1)


def _products(x: jax.Array) -> jax.Array:
    """Each coordinate ``[…, d]`` times each later one, behind the axes of x."""
    of_one, of_other = np.triu_indices(x.shape[-1], 1)
    return x[..., of_one] * x[..., of_other]


def _scaled(weights: jax.Array, features: jax.Array) -> jax.Array:
    """sqrt(a_k) times features along the last axis."""
    scales = jnp.sqrt(weights.astype(features.dtype))
    return features * jnp.expand_dims(scales, range(features.ndim - 1))


@struct
class VectorFeatures(UnitFeature):
    """sqrt(a_k) phi_k of d coordinates and sqrt(a_2) times the products of two of them."""

    def of_rows(self, predictions: Distribution, targets: PyTree) -> jax.Array:
        """The features of n rows that `PITKernel` compares, ``[n, M]``."""
        if predictions.target_shape == "n":
            raise TypeError(
                "VectorPITKernel is defined for predictions of vectors, got "
                f"{type(predictions).__name__} predictions of one number; take a PITKernel."
            )
        if not isinstance(predictions, UnitBox):
            raise TypeError(
                f"{type(predictions).__name__} predictions of vectors have no known PIT of each "
                "coordinate; TensorProduct compares vectors."
            )
        box = predictions.unit_box(targets)
        n, d = box.low.shape
        features = self.of_intervals(box).reshape(n, -1)
        if 2 not in self.orders or d == 1:
            return features
        products = self._products(box)
        pool = predictions.unit_boxes_of_pool() if isinstance(predictions, Exchangeable) else None
        if pool is not None:
            boxes, exist = pool
            products = products - jnp.mean(self._products(boxes), axis=1, where=exist)
        scale = jnp.sqrt(self.valid_weights()[self.orders.index(2)].astype(features.dtype))
        return jnp.concatenate([features, scale * products], axis=1)

    def _products(self, box: UnitInterval) -> jax.Array:
        """phi_1 of each coordinate times phi_1 of each later one, behind the axes of the box."""
        return _products(self.unscaled(box, (1,))[..., 0])


@struct
class PITKernel(Kernel):
    r"""k((p, y), (q, z)) = k_P(p, q) sum_k a_k phibar_k(y | p) phibar_k(z | q), for numbers.

    U = F_p(Y) is uniform in [0, 1] if the forecast p is right. phi_k are functions of mean 0 on
    [0, 1], and phibar_k(y | p) is phi_k at F_p(y), or its mean over the PIT interval of y
    (`pit_interval`): from F(y-) to F(y) for counts, between two levels for quantiles, between two
    ranks for draws, between the values at both ends for `IntervalCensored` targets.  The mean of
    phibar_k under *every* forecast is 0, so that h = k: no expectation is needed.  The kernel
    replaces a TensorProduct, and

    .. math::
        \mathrm{SKCE} = E\, k_P(P, P') \sum_k a_k\,
        E[\phi_k(U) \mid P]\, E[\phi_k(U') \mid P'].

    Monotone changes of the targets, such as logs or other units, do not change it.  With the usual
    weights a_k = 1 / (pi k)^2 and k_P = 1 it is the mean square :math:`\int (G(u) - u)^2 du` of the
    difference between the cdf G of U and the diagonal (Cramér and von Mises), at most 1/3.

    Samples (`Empirical` without weights) are treated as draws from the predicted distribution: k_P
    compares the sets of the S samples and the target, and U is the rank of the target in it.  If
    both are from one distribution, the mean of h is 0 for every S.

    A row costs one cdf and O(K), a pair O(K): estimates take O(n^2 K) time, and O(n) memory.

    Args:
        prediction_kernel: k_P, for example a DistanceKernel; that of `default_kernel` does not
            depend on units either.
        weights: a_k >= 0 of the K features, ``[K]``; None stands for 1 / (pi k)^2 with K = 16
            cosines, and for 1, 1 with normal scores.
        features: "cosines", phi_k = sqrt(2) cos(pi k u), where k = 1 detects a wrong location, 2 a
            wrong spread, and larger k the shape; or "normal scores", Hermite's polynomials He_k(z)
            / sqrt(k!) of the normal score z of u: z detects location and (z^2 - 1) / sqrt(2) spread
            errors best, but they grow with the tail: where the probability of the target and all
            beyond it is at most 2^-100 = 8e-31, |z| is 11.5 and has the derivative 0, and it is
            never above 11.6: no row outweighs a batch.  For samples also "standard scores", He_k(z)
            / sqrt(k!) of z = (y - mean) / deviation of the S samples and the target, less the mean
            over all of them: few samples show more in their own units than by ranks, and not only
            monotone changes of the targets matter.

    Raises:
        TypeError: at its use, predictions of vectors or without a cdf.
        ValueError: features is none of these, or weights are not such a vector.

    See also:
        `pit_interval`, `pit`; `VectorPITKernel` for vectors; `TensorProduct` for labels without an
        order.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> kernel = cj.PITKernel(lambda p, q: 1.0)
        >>> predictions = cj.Normal(jnp.zeros(3), jnp.ones(3))
        >>> float(cj.skce(kernel, predictions, jnp.array([0.0, 0.0, 0.0]), unbiased=False))
        0.0774

    Reference: Anderson and Darling, Asymptotic theory of certain goodness of fit criteria based on
    stochastic processes, Annals of Mathematical Statistics 1952; Dawid, Statistical theory: the
    prequential approach, Journal of the Royal Statistical Society A 1984; Czado, Gneiting and Held,
    Predictive model assessment for count data, Biometrics 2009.
    """

    prediction_kernel: KernelLike
    weights: ArrayLike | None = None
    features: str = static(default="cosines")

    domain = "pairs"
    parameter_constraints = {"weights": NONNEGATIVE}
    inner_functions = {"prediction_kernel": "predictions"}
    #: The class of features of the unit line.
    feature_of_line: ClassVar[type[UnitFeature]] = UnitFeature

    def _complete(self) -> None:
        super()._complete()
        check_choice("features", self.features, tuple(_USUAL_WEIGHTS))
        if self.weights is not None and (np.ndim(self.weights) != 1 or np.size(self.weights) == 0):
            raise ValueError(
                "weights of PITKernel must be a vector of at least one number, got shape "
                f"{list(np.shape(self.weights))}."
            )

    def __call__(self, x: Sample, y: Sample) -> jax.Array:
        feature = self.unit_feature()
        of_predictions = kernel_value(self.prediction_kernel, pooled(x)[0], pooled(y)[0])
        return of_predictions * dot(feature(*x), feature(*y))

    def upper_bound(self) -> float | jax.Array:
        """K such that h = k is in [-2 K, 2 K]."""
        if self.features != "cosines":
            return super().upper_bound()
        return upper_bound(self.prediction_kernel) * jnp.sum(self.unit_feature().valid_weights())

    def unit_feature(self) -> UnitFeature:
        """The vector of sqrt(a_k) phibar_k; a weight that is known to be 0 leaves its k out."""
        weights: Any = self.weights
        if weights is None:
            weights = np.array(_USUAL_WEIGHTS[self.features], np.float32)
        orders = list(range(1, weights.size + 1))
        if not is_traced(weights):
            weights = on_host(weights)
            orders = [k for k in orders if weights[k - 1] != 0] or [1]
            weights = weights[np.array(orders) - 1]
        kind = StandardFeature if self.features == _STANDARD else self.feature_of_line
        return kind(weights, self.features, tuple(orders))


def pooled(sample: Sample) -> Sample:
    """One sample as it is compared: draws with the target among them, and others as they are."""
    predictions, targets = batch_of_one(sample)
    return indexed(exchangeable_pool(predictions, targets), 0)


@struct
class VectorPITKernel(PITKernel):
    r"""The PITKernel of vectors, which does not depend on the units of coordinates.

    .. math::
        k((p, y), (q, z)) = k_P(p, q) \Big[
        \sum_k a_k \sum_j \phi_k(U_j) \phi_k(V_j)
        + a_2 \sum_{j < l} (\phi_1(U_j) \phi_1(U_l) - c_{jl})
        (\phi_1(V_j) \phi_1(V_l) - c'_{jl}) \Big].

    U_1, …, U_d are d independent and uniform numbers if the forecast p of the vector y is right,
    and V_1, …, V_d are those of q and z.  The products detect a wrong dependence of coordinates.
    With normal scores the features of the orders 1 and 2 are Hermite's polynomials in d numbers,
    all of one weight if a_1 = a_2.  The mean of each feature under every forecast is 0, so that
    h = k, as for a `PITKernel`.

    - MultivariateNormalDiag: U_j is the cdf of coordinate j, and c = 0.
    - MultivariateNormalFullCovariance: with the Cholesky factor L of the covariance, U_j is the
      normal cdf of number j of L^-1 (y - loc), and c = 0 (Rosenblatt).  If the correlations of all
      predictions are equal, the order of the coordinates does not matter for normal scores of the
      orders 1 and 2 together.
    - `Empirical` without weights: U_j is the rank of coordinate j of the target among the samples
      and the target, and c_jl is the mean of the product over all of them.  Any of them may be the
      target, so that the mean of h is 0 however few samples there are.

    No unit of a coordinate changes the kernel, and no monotone change of one does for samples.

    A pair costs O(d^2 + d K), and samples O(d S log S + d^2 S) for each row.

    Args:
        prediction_kernel: k_P, for example a DistanceKernel; those of `default_kernels` do not
            depend on units either.
        weights, features: as of a PITKernel.

    Raises:
        TypeError: at its use, predictions of numbers, or a family whose U_j are not known.
        ValueError: features is none of these, or weights are not such a vector.

    See also:
        `PITKernel` for numbers; `TensorProduct` for other families of vectors.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> kernel = cj.VectorPITKernel(lambda p, q: 1.0, features="normal scores")
        >>> scales = jnp.array([[1.0, 1000.0]] * 3)
        >>> predictions = cj.MultivariateNormalDiag(jnp.zeros((3, 2)), scales)
        >>> targets = jnp.array([[1.0, 1000.0], [1.0, 1000.0], [-1.0, -1000.0]])
        >>> float(cj.skce(kernel, predictions, targets, unbiased=False))
        1.2222

    Reference: Rosenblatt, Remarks on a multivariate transformation, Annals of Mathematical
    Statistics 1952; Gneiting, Stanberry, Grimit, Held and Johnson, Assessing probabilistic
    forecasts of multivariate quantities, TEST 2008.
    """

    feature_of_line = VectorFeatures

    def upper_bound(self) -> float | jax.Array:
        """Not known: it depends on the number of coordinates."""
        return Kernel.upper_bound(self)
