"""What default kernels look at: numbers of a prediction, and of its target."""

import jax
import jax.numpy as jnp
from jax.scipy.special import ndtri

from calibjax._distribution import Distribution
from calibjax._numbers import dot
from calibjax._struct import batch_of_one, static, struct

# The number of frequencies v, of numbers and of vectors.
_FREQUENCIES, _VECTOR_FREQUENCIES = 8, 32
# No user is likely to choose this seed, and no draw of it is one of the targets: kernels must not
# depend on them.
_DIRECTIONS = 0x5CA1E
# The log probability of an impossible label is -infinity.
_LEAST_LOG_PROB = -1000.0
_LARGEST_DEVIATION = 1e6


def confidence_of(p: Distribution) -> jax.Array:
    """The probability of the most likely label."""
    return jnp.max(p.label_probabilities())


def is_top_label(p: Distribution, y: jax.Array) -> jax.Array:
    """Whether y is the most likely label, of several the first one."""
    return y == jnp.argmax(p.label_probabilities()).astype(y.dtype)


def log_probability_of(p: Distribution, y: jax.Array) -> jax.Array:
    """log p(y), at least -1000."""
    return jnp.maximum(p.log_prob(y), _LEAST_LOG_PROB)


def squared_deviation(p: Distribution, y: jax.Array) -> jax.Array:
    """|u|^2 for the standardised target u."""
    return jnp.sum(jnp.square(standardised(p, y)))


def location_and_spread(p: Distribution) -> jax.Array:
    """The locations and spreads of all coordinates, a vector."""
    p = batch_of_one(p)
    return jnp.concatenate([jnp.ravel(p.location()), jnp.ravel(p.spread())])


def standardised(p: Distribution, y: jax.Array) -> jax.Array:
    """u = (y - location) / spread of each coordinate, a vector; where that is 0, y - location.

    No |u| is larger than a million, so that sums of fourth powers are finite.
    """
    p = batch_of_one(p)
    location, spread = jnp.ravel(p.location()), jnp.ravel(p.spread())
    u = (jnp.ravel(y).astype(location.dtype) - location) / jnp.where(spread > 0, spread, 1.0)
    return jnp.clip(u, -_LARGEST_DEVIATION, _LARGEST_DEVIATION)


@struct
class StandardisedFourierFeatures:
    """cos(<v, u>) and sin(<v, u>) of the standardised target u, for some frequencies v.

    They are features of a Gaussian kernel on standardised targets: |v| times the lengthscale takes
    the even quantiles of its half-normal law, and the directions are fixed.

    Args:
        lengthscale: a number, in standard deviations of the predictions.
    """

    lengthscale: float = static()

    def __call__(self, p: Distribution, y: jax.Array) -> jax.Array:
        u = standardised(p, y)
        size = _FREQUENCIES if u.size == 1 else _VECTOR_FREQUENCIES
        length = ndtri((1 + (jnp.arange(size, dtype=u.dtype) + 0.5) / size) / 2)
        direction = jax.random.normal(jax.random.key(_DIRECTIONS), (size, u.size), u.dtype)
        direction = direction / jnp.linalg.norm(direction, axis=1, keepdims=True)
        angles = dot(length[:, None] / self.lengthscale * direction, u)
        return jnp.concatenate([jnp.cos(angles), jnp.sin(angles)])
