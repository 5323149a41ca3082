"""The two models of ICLR 2021, Appendix A.2: calibrated, and wrong in the first coordinate."""

import jax
import jax.numpy as jnp

import calibjax as cj

SCALE = 0.1
WRONG_MEAN = 0.1  # of the first coordinate


def normal(loc) -> cj.MultivariateNormalDiag:
    return cj.MultivariateNormalDiag(loc, jnp.full_like(loc, SCALE))


def sample(key, n, d, calibrated):
    """Predictions N(c 1_d, 0.1^2 I_d) with c ~ U(0, 1), and their targets.

    They are drawn from the predictions, unless it is not `calibrated`: then the first coordinate is
    drawn from N(0.1, 0.1^2).
    """
    keys = jax.random.split(key, 3)
    predictions = normal(jnp.tile(jax.random.uniform(keys[0], (n, 1)), d))
    targets = predictions.sample(keys[1])
    first = WRONG_MEAN + SCALE * jax.random.normal(keys[2], (n,))
    return predictions, jnp.where(calibrated, targets, targets.at[:, 0].set(first))
