"""A family of counts that a user wrote, whose cdf is a sum over 0 … max_count."""

import jax
import jax.numpy as jnp

import calibjax as cj
from calibjax._base.struct import static, struct


@struct
class Geometric(cj.Counts):
    """What a user would write: P(Y = k) = (1 - q) q^k."""

    q: jax.Array
    max_count: int | None = static(default=None)

    shapes = {"q": "n"}

    def constraints(self):
        return {"q": ("in [0, 1)", (self.q >= 0) & (self.q < 1))}

    def mean(self):
        return self.q / (1 - self.q)

    def variance(self):
        return self.q / jnp.square(1 - self.q)

    def sample(self, key, shape=()):
        return (jax.random.geometric(key, 1 - self.q, (*shape, *self.q.shape)) - 1).astype("int32")

    def log_prob(self, targets):
        return jnp.log1p(-self.q) + targets.astype(self.q.dtype) * jnp.log(self.q)

    def probability(self, count):
        return (1 - self.q) * self.q ** count.astype(self.q.dtype)

    def tail_exponent(self, count, numpy=jnp):
        return -(count + 1) * numpy.log(self.q)
