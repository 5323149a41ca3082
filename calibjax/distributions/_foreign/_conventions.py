"""Our families by parameters that other packages prefer, arrays of one shape."""

import jax
import jax.numpy as jnp

from calibjax.distributions._student_t import StudentT


def cauchy(loc: jax.Array, scale: jax.Array) -> StudentT:
    """A Cauchy variable is a t variable with one degree of freedom."""
    return StudentT(jnp.ones_like(loc), loc, scale)
