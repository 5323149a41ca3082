"""Methods of predictions as one program: outside of jit each of their operations is a program."""

import functools

import jax


@functools.partial(jax.jit, static_argnums=1)
def call(predictions, method, *arguments):
    """``predictions.method(*arguments)``."""
    return getattr(predictions, method)(*arguments)


@functools.partial(jax.jit, static_argnums=1)
def draw(predictions, n_draws, key):
    """Draws ``[n_draws, n, …]``, and which of them the law can make."""
    draws = predictions.sample(key, (n_draws,))
    supports = jax.vmap(lambda y: predictions.supports(y)[1])
    return draws, supports(draws)


@jax.jit
def moments(predictions):
    """Means and variances."""
    return predictions.mean(), predictions.variance()
