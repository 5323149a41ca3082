r"""A basis of errors: products of functions of the prediction and of the outcome.

An error of a model, a function w(p, y) with E w(p, Z) = 0 for Z from p, is sought as

    w(p, y) = sum_jk theta_jk phi_j(p) psi_k(p, y).

phi_j are eigenfunctions of the kernel k_P on predictions: with landmarks l_a, weights v_a, and
D = diag(v / L),

    D^1/2 K D^1/2 = U diag(lambda) U^T,    phi_j(p) = lambda_j^-1 sum_a k_P(p, l_a) D_a^1/2 U_aj,

so that sum_a D_a phi_i(l_a) phi_j(l_a) = 1{i = j} (Nyström's method).  psi_k are linear functions
of features of the outcome, centred, with the mean covariance 1{k = l} under the predictions; mu_k
are the variances of the features in their directions.  v_a is the mean variance of the psi_k at
landmark a.  Then all products have the variance 1, and are uncorrelated where the variances of
psi_k factorise, while the kernel k_P(p, q) <f(y), f(z)> has the eigenvalues lambda_j mu_k: they say
how large an error is expected in each direction.

Landmarks, kernels and features are fixed before the first target.  That k_P fits the predictions
matters for the power of a monitor, and not for its guarantee.
"""

import functools

import jax
import jax.numpy as jnp

from calibjax._base.struct import as_pytree, struct
from calibjax._data import Distribution
from calibjax._numbers import dot, eigh_of_kernel
from calibjax.kernels import KernelLike, pairwise

# The number of functions of an outcome, the smallest eigenvalue that counts, in units of the
# largest one, and the largest function of an outcome, in standard deviations.
_OUTCOME_FUNCTIONS, _LEAST_EIGENVALUE, _LARGEST = 10, 1e-5, 6.0


@struct
class Basis:
    """The functions of one kind of features.

    Args:
        of_kernels: the coefficients of phi_j in the kernels at the landmarks, ``[L, J]``.
        of_features: the coefficients of psi_k in the features, ``[M, K]``.
        prior: lambda_j mu_k, with the sum 1, ``[J, K]``; 0 where a function is 0.
    """

    of_kernels: jax.Array
    of_features: jax.Array
    prior: jax.Array

    def prediction_functions(self, values: jax.Array) -> jax.Array:
        """phi_j for values of the kernel at the landmarks ``[n, L]``, ``[n, J]``."""
        return dot(values, self.of_kernels)

    def outcome_functions(self, features: jax.Array, probabilities: jax.Array) -> jax.Array:
        """psi_k at all cells, ``[n, A, K]``, or ``[1, A, K]`` if all rows are the same."""
        centred = _centred(_combined(features, self.of_features), probabilities)
        return _centred(jnp.clip(centred, -_LARGEST, _LARGEST), probabilities)


def kernel_at(
    kernels: list[KernelLike], predictions: Distribution, landmarks: Distribution
) -> jax.Array:
    """The mean of kernels and of the constant 1, ``[n, L]``.

    The constant sees an error that all predictions share, also far from the landmarks.
    """
    values = [pairwise(as_pytree(kernel), predictions, landmarks) for kernel in kernels]
    return (1.0 + functools.reduce(jnp.add, values)) / (1 + len(values))


def make_basis(
    values: jax.Array, features: jax.Array, probabilities: jax.Array, n_functions: int
) -> Basis:
    """The basis of one kind, from values of the kernel and features at landmarks.

    Args:
        values: the kernel at all pairs of landmarks, ``[L, L]``.
        features: the features of their outcomes, ``[L, A, M]`` or ``[1, A, M]``.
        probabilities: the probabilities of their outcomes, ``[L, A]`` or ``[1, A]``.
        n_functions: J, the number of functions of a prediction.
    """
    n = values.shape[0]
    probabilities = jnp.broadcast_to(probabilities, (n, probabilities.shape[1]))
    covariance = _mean_covariance(features, probabilities)
    mu, of_features = _whitening(covariance, _OUTCOME_FUNCTIONS)
    psi = _centred(_combined(features, of_features), probabilities)
    n_psi = jnp.maximum(jnp.sum(mu > 0, dtype=mu.dtype), 1.0)
    root = jnp.sqrt(jnp.einsum("na,nak->n", probabilities, jnp.square(psi)) / n_psi / n)
    matrix = root[:, None] * values * root[None, :]
    eigenvalues, vectors = _whitening(matrix, n_functions)
    inverse_roots = jnp.where(eigenvalues > 0, jax.lax.rsqrt(eigenvalues), 0.0)
    prior = eigenvalues[:, None] * mu[None, :]
    total = jnp.sum(prior)
    return Basis(
        # `_whitening` divides by the root of an eigenvalue, and phi by the eigenvalue itself.
        of_kernels=root[:, None] * vectors * inverse_roots[None, :],
        of_features=of_features,
        prior=prior / jnp.where(total > 0, total, 1.0),
    )


def _combined(features: jax.Array, coefficients: jax.Array) -> jax.Array:
    """Linear functions of features ``[n, A, M]``, ``[n, A, K]``."""
    return jnp.einsum("nam,mk->nak", features, coefficients, precision="highest")


def _mean_covariance(features: jax.Array, probabilities: jax.Array) -> jax.Array:
    """The mean over rows of the covariance of the features, ``[M, M]``."""
    n = probabilities.shape[0]
    if features.shape[0] == 1:
        # Many classes have many features: nothing of the size n A M is made.
        table = features[0]
        second_moments = dot(table.T * jnp.mean(probabilities, axis=0)[None, :], table)
        means = dot(probabilities, table)
    else:
        weighted = probabilities[:, :, None] * features
        second_moments = jnp.einsum("nam,nal->ml", weighted, features, precision="highest") / n
        means = jnp.sum(weighted, axis=1)
    return second_moments - dot(means.T, means) / n


def _centred(values: jax.Array, probabilities: jax.Array) -> jax.Array:
    """Values at cells ``[n, A, K]`` minus their means under the predictions."""
    weights = jnp.where(probabilities > 0, probabilities, 0.0)
    return values - jnp.sum(weights[:, :, None] * values, axis=1, keepdims=True)


def _whitening(matrix: jax.Array, size: int) -> tuple[jax.Array, jax.Array]:
    """The largest eigenvalues of a matrix and its eigenvectors over their roots.

    Both are 0 for eigenvalues that are nearly 0.
    """
    values, vectors = eigh_of_kernel(matrix)
    largest = jnp.argsort(-values)[:size]
    values, vectors = values[largest], vectors[:, largest]
    counts = values > _LEAST_EIGENVALUE * jnp.maximum(values[0], jnp.finfo(values.dtype).tiny)
    roots = jnp.sqrt(jnp.where(counts, values, 1.0))
    return jnp.where(counts, values, 0.0), jnp.where(counts[None], vectors / roots[None], 0.0)
