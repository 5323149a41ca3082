"""The distance between the mean embeddings of two predictions."""

import jax

from calibjax._distribution import Distribution
from calibjax._struct import struct
from calibjax.expectations._dispatch import (
    squared_embedding_distance,
    squared_embedding_distance_tile,
)
from calibjax.kernels import KernelLike, NormDistance


@struct
class MeanEmbeddingDistance(NormDistance):
    """The maximum mean discrepancy (MMD) between two predictions, |mu_p - mu_q|.

    mu_p = E k(Z, .) with Z ~ p is the mean embedding of p, and the squared distance is
    E k(Z, Z') + E k(W, W') - 2 E k(Z, W) with independent Z, Z' ~ p and W, W' ~ q.  It is defined
    for every family that has closed forms with k.  It is the distance of a Hilbert space, so that
    a DistanceKernel of it is positive definite for every exponent in (0, 2].

    The three terms are subtracted: distances below some 1e-3 sqrt(k(y, y)) in float32 (2e-8 in
    float64) are noise, and distances within rounding of 0 are 0.  Categorical and Bernoulli
    predictions, and Normal and MultivariateNormalDiag predictions with a GaussianKernel, have
    forms that keep all digits.

    Args:
        kernel: a target kernel k, such as a GaussianKernel.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Normal(jnp.array([0.0, 3.0]), jnp.array([1.0, 5.0]))
        >>> distance = cj.MeanEmbeddingDistance(cj.GaussianKernel(1.0))
        >>> float(distance.pairwise(predictions, predictions)[0, 1])
        0.6258

    Reference: Gretton et al., A kernel two-sample test, JMLR 2012, Lemma 6.
    """

    kernel: KernelLike

    inner_functions = {"kernel": "targets"}

    def squared(self, p: Distribution, q: Distribution) -> jax.Array:
        return squared_embedding_distance(p, self.kernel, q)

    def pairwise_squared(self, ps: Distribution, qs: Distribution) -> jax.Array:
        return squared_embedding_distance_tile(ps, self.kernel, qs)
