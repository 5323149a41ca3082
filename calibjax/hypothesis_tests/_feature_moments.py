"""H by random features: H = Psi Psi^T, whose eigenvalues are those of a small matrix."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from calibjax._numerics import dot
from calibjax._sharding import Axis
from calibjax.features import Features, draw_features, map_rows, sum_rows


def feature_moments(
    key: jax.Array, kernel: Any, samples: Any, weights: jax.Array, n_features: int, axis: Axis
) -> tuple[jax.Array, jax.Array]:
    """Psi^T Psi, and the row sums of H = Psi Psi^T without its diagonal ``[n]``.

    A row of Psi is real and imaginary part of the features of one sample, D for each tensor product
    of the kernel.  O(n D^2) time; memory O(n + D^2).

    Args:
        weights: 1 for rows that count, 0 for others.
    """
    draw_key, sign_key = jax.random.split(key)
    features = draw_features(draw_key, kernel, jax.tree.map(lambda x: x[0], samples), n_features)
    keys = jax.random.split(sign_key, len(features))
    projections = [_projection(k, part) for k, part in zip(keys, features, strict=True)]

    def psi(samples):
        parts = zip(features, projections, strict=True)
        columns = [_projected(*part, samples) for part in parts]
        return jnp.concatenate([x for psi in columns for x in (psi.real, psi.imag)], axis=1)

    def moments(samples, weights):
        rows = psi(samples) * weights[:, None]
        return [dot(rows.T, rows), jnp.sum(rows, axis=0)]

    matrix, total = sum_rows(moments, samples, weights, n_features, axis)

    def row_sums(samples):
        rows = psi(samples)
        return dot(rows, total) - jnp.sum(jnp.square(rows), axis=1)

    return matrix, map_rows(row_sums, samples, weights, n_features)


def _projection(key: jax.Array, features: Features) -> jax.Array:
    """For each feature a random vector s with E s s^T = factor K / D, ``[D, m]``.

    So a feature of labels is one number too, however many labels there are.
    """
    values, vectors = jnp.linalg.eigh(features.factor * features.metric)
    # What rounding makes of 0 may be negative; a matrix of a kernel has no other negative ones.
    values = jnp.where(values >= -1e-3 * values[-1], jnp.maximum(values, 0.0), jnp.nan)
    shape = features.n_features, values.shape[0]
    # `rademacher` would draw others where doubled precision is enabled.
    heads = jax.random.bernoulli(key, jnp.asarray(0.5, values.dtype), shape)
    signs = jnp.where(heads, 1.0, -1.0).astype(values.dtype)
    return dot(signs, (vectors * jnp.sqrt(values / features.n_features)[None, :]).T)


def _projected(features: Features, projection: jax.Array, samples: Any) -> jax.Array:
    """psi of a batch of samples, ``[S, D]``."""
    waves, residuals = jax.vmap(features)(samples)
    projection = projection.astype(residuals.dtype)
    return waves * jnp.einsum("sdm,dm->sd", residuals, projection, precision=lax.Precision.HIGHEST)
