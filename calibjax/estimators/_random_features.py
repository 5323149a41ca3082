"""The squared kernel calibration error in linear time, with all pairs."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from calibjax._check import check_integer, check_key
from calibjax._numerics import pairs_weight, safe_sqrt
from calibjax._struct import as_pytree, struct
from calibjax.discrepancy import Sample
from calibjax.estimators._inputs import Inputs, check_inputs, clean
from calibjax.features import Features, draw_features, one_feature, sum_rows


@struct
class RandomFeatureEstimate:
    """An estimate by random features, and how far it may be from that of all pairs.

    A pytree, so that it can leave jit and vmap.

    Args:
        estimate: of the SKCE.
        standard_error: of the features, given the data: that of `estimate` as an estimate of the
            U-statistic `skce`.  How far that is from the truth it does not say.

    Example:
        >>> import jax, jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Bernoulli(jnp.linspace(0.0, 1.0, 100))
        >>> kernel = cj.TensorProduct(cj.DistanceKernel(cj.Euclidean()), cj.WhiteKernel())
        >>> data = kernel, predictions, jnp.arange(100) % 2
        >>> found = cj.random_feature_skce(jax.random.key(0), *data)
        >>> bool(abs(found.estimate - cj.skce(*data)) < 3 * found.standard_error)
        True
    """

    estimate: jax.Array
    standard_error: jax.Array


def random_feature_skce(
    key: jax.Array,
    kernel: Any,
    predictions: Any,
    targets: ArrayLike,
    *,
    n_features: int = 1000,
    where: ArrayLike | None = None,
) -> RandomFeatureEstimate:
    """TODO"""
    check_key(key)
    inputs = Inputs(as_pytree(kernel), predictions, targets, where)
    check_inputs(inputs, one_feature)
    n_features = check_integer("n_features", n_features, 2)
    return _random_feature_skce(key, inputs, n_features)


@functools.partial(jax.jit, static_argnames=("n_features",))
def _random_feature_skce(key: jax.Array, inputs: Inputs, n_features: int) -> RandomFeatureEstimate:
    kernel, rows = clean(inputs)
    samples = rows.predictions, rows.targets
    features = draw_features(key, kernel, jax.tree.map(lambda x: x[0], samples), n_features)
    pairs = pairs_weight(rows.weights)
    too_few = pairs == 0
    values = sum(part.factor * _pair_sums(part, samples, rows.weights) for part in features)
    values = jnp.where(too_few, 0.0, values / jnp.where(too_few, 1.0, pairs))
    return RandomFeatureEstimate(jnp.mean(values), safe_sqrt(jnp.var(values, ddof=1) / n_features))


def _pair_sums(features: Features, samples: Sample, weights: jax.Array) -> jax.Array:
    """sum_{i != j} w_i w_j psi_i conj(psi_j) for each feature, ``[D]``."""

    def sums(samples, weights):
        waves, residuals = jax.vmap(features)(samples)
        weighted = residuals * weights[:, None, None].astype(residuals.dtype)
        squares = jnp.sum(_squared_norm(features.metric, weighted), axis=0)
        return [_einsum("nd,ndc->dc", waves, weighted), squares]

    total, squares = sum_rows(sums, samples, weights, features.n_features)
    return _squared_norm(features.metric, total) - squares


def _squared_norm(metric: jax.Array, z: jax.Array) -> jax.Array:
    """z^* K z over the last axis."""
    product = _einsum("...c,cb->...b", z, metric.astype(z.dtype))
    return jnp.sum(z.real * product.real + z.imag * product.imag, axis=-1)


_einsum = functools.partial(jnp.einsum, precision=lax.Precision.HIGHEST)
