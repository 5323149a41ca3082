"""Our families by parameters that other packages prefer, arrays of one shape."""

import jax
import jax.numpy as jnp

from calibjax.distributions._negative_binomial import NegativeBinomial
from calibjax.distributions._student_t import StudentT


def cauchy(loc: jax.Array, scale: jax.Array) -> StudentT:
    """A Cauchy variable is a t variable with one degree of freedom."""
    return StudentT(jnp.ones_like(loc), loc, scale)


def failures(successes: jax.Array, probability: jax.Array) -> NegativeBinomial:
    """The number of failures before so many successes, each of which has a probability."""
    return NegativeBinomial(successes * (1 - probability) / probability, successes)
