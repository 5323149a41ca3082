"""Statistics of ten networks for Friedman 1 and of their ensemble (ICLR 2021, A.3)."""

import jax
import jax.numpy as jnp
import numpy as np
from _kernel import KERNEL, TARGET_KERNEL
from jax import lax
from jax.scipy.special import ndtr, ndtri

import calibjax as cj
from calibjax.expectations.dispatch import residual_product

# Of the quantiles whose pinball losses are averaged.
LEVELS = np.arange(1, 20) / 20
MIXTURE_KERNEL = cj.TensorProduct(cj.DistanceKernel(cj.MixtureWasserstein(), 1.0), TARGET_KERNEL)


class WithMissingTerms(cj.Mixture):
    """A mixture whose h lacks the pairs of components (i, 1) with i >= 2.

    The four terms of h at once are `residual_product`, which only such a deviation needs: closed
    forms of your own are a `mean_embedding` and an `inner_product`.
    """


@residual_product.register(WithMissingTerms, cj.GaussianKernel)
def with_missing_terms(p, kernel, y, q, z):
    of_row = jax.vmap(lambda c, d: residual_product(c, kernel, y, d, z), (None, 0))
    terms = jax.vmap(of_row, (0, None))(p.components, q.components)
    return jnp.mean(terms.at[1:, 0].set(0.0))


def statistics(key, kernel, predictions, quantiles, targets):
    """All six, for predictions with these quantiles ``[n, levels]``."""
    errors = targets[:, None] - quantiles
    pinball = jnp.mean(jnp.maximum(LEVELS * errors, (LEVELS - 1) * errors))
    test = cj.asymptotic_skce_test(key, kernel, predictions, targets)
    # Its statistic is n / (n - 1) times the unbiased SKCE, less the biased one.
    n = len(targets)
    return jnp.stack(
        [
            jnp.mean((predictions.mean() - targets) ** 2),
            -jnp.mean(predictions.log_prob(targets)),
            pinball,
            test.estimate,
            n / (n - 1) * test.estimate - test.statistic,
            # As published, 0 if no resample is as large.
            jnp.mean(test.null_distribution >= test.statistic),
        ]
    )


def mixture_quantiles(loc, scale):
    """Of the mixtures of normals ``[n, K]``, by bisection between those of their components."""
    of_components = loc[:, None] + scale[:, None] * ndtri(LEVELS)[:, None]

    def halve(_, interval):
        low, high = interval
        middle = (low + high) / 2
        below = jnp.mean(ndtr((middle[..., None] - loc[:, None]) / scale[:, None]), -1) < LEVELS
        return jnp.where(below, middle, low), jnp.where(below, high, middle)

    return lax.fori_loop(0, 40, halve, (of_components.min(-1), of_components.max(-1)))[1]


@jax.jit
def evaluate(keys, means, scales, targets):
    """Statistics ``[S, K, 6]`` of models, and ``[S, 2, 6]`` of ensembles: all terms, some missing.

    S settings, each with f(x) ``[K, n]``, sigma ``[K]`` and targets ``[n]``.
    """

    def of_setting(setting):
        key, means, scales, targets = setting

        def of_model(mean, scale):
            predictions = cj.Normal(mean, jnp.full_like(mean, scale))
            quantiles = mean[:, None] + scale * ndtri(LEVELS)
            return statistics(key, KERNEL, predictions, quantiles, targets)

        loc, scale = means.T, jnp.broadcast_to(scales, means.T.shape)
        quantiles = mixture_quantiles(loc, scale)
        components = cj.Normal(loc, scale)
        ensembles = [
            statistics(key, MIXTURE_KERNEL, family.ensemble(components), quantiles, targets)
            for family in (cj.Mixture, WithMissingTerms)
        ]
        return jax.vmap(of_model)(means, scales), jnp.stack(ensembles)

    return lax.map(of_setting, (keys, means, scales, targets))
