"""The models of NeurIPS 2019: predictions g ~ Dirichlet(alpha, ..., alpha) of m classes.

The label is drawn from beta with probability pi, and else from g: the model is calibrated if pi is
0.  One data set has the labels of several laws (beta, pi) for the same predictions, so that what
depends on predictions alone is computed once.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from published import FIRST, UNIFORM

import calibjax as cj

SIZE = 250
TV = cj.TotalVariation()


def sample_predictions(key, alpha, m) -> cj.Categorical:
    # Of the logarithms of gamma draws, which do not underflow where alpha is small.
    return cj.Categorical(jax.random.dirichlet(key, jnp.full(m, alpha), (SIZE,)))


def sample_labels(key, predictions, laws: Sequence[tuple[str, float]]):
    """Labels ``[laws, n]``."""
    keys, (n, m) = jax.random.split(key, 3), predictions.probs.shape
    own, position = predictions.sample(keys[0]), jax.random.uniform(keys[1], (n,))
    others = {FIRST: jnp.zeros(n, int), UNIFORM: jax.random.randint(keys[2], (n,), 0, m)}
    return jnp.stack([jnp.where(position < pi, others[beta], own) for beta, pi in laws])


def median_total_variation(predictions):
    """Of all n x n, zeros of the diagonal included, as published; `median_heuristic` takes i < j.

    By bisection of [0, 1], where total variations are: a sort would take most of the time.
    """
    distances = TV.pairwise(predictions, predictions)

    def halve(_, interval):
        low, high = interval
        middle = (low + high) / 2
        below = 2 * jnp.sum(distances <= middle) < distances.size
        return jnp.where(below, middle, low), jnp.where(below, high, middle)

    return jax.lax.fori_loop(0, 30, halve, (0.0, 1.0))[1]


def kernel(lengthscale) -> cj.TensorProduct:
    return cj.TensorProduct(cj.DistanceKernel(TV, lengthscale), cj.WhiteKernel())
