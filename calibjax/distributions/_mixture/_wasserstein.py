"""The Wasserstein distance between mixtures, by transport between their components."""

import jax
import jax.numpy as jnp
from jax import lax

from calibjax._distribution import Distribution
from calibjax._struct import struct
from calibjax.distributions._mixture._mixture import Mixture
from calibjax.distributions._mixture._transport import transport
from calibjax.kernels import NormDistance, squared_wasserstein


@struct
class MixtureWasserstein(NormDistance):
    """The mixture Wasserstein distance between two Mixture predictions, in units of the targets.

    MW(p, q)^2 = min sum_ij w_ij W(p_i, q_j)^2 over couplings w of the two vectors of weights, where
    W is the `Wasserstein` distance of components.  The minimum is exact optimal transport.  MW is
    at least the Wasserstein distance of the mixtures themselves, which has no formula.

    MW is *not* known to be Hilbertian, and a DistanceKernel of it need not be positive definite.  A
    DistanceKernel of `MeanEmbeddingDistance` always is.

    One pair of mixtures of K components costs about O(K^3).  In tiles on one core a pair takes
    0.2 µs at K = 3 and 6 µs at K = 10 with equal weights, and 0.5 µs and 28 µs with other weights.
    Only first derivatives are right; derivatives in the weights are along the simplex.

    Raises:
        TypeError: the predictions are no mixtures, or `Wasserstein` is not defined for their
            components.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> components = cj.Normal(jnp.array([[0.0, 4.0], [3.0, 0.0]]), jnp.ones((2, 2)))
        >>> predictions = cj.Mixture(jnp.array([[0.5, 0.5], [0.25, 0.75]]), components)
        >>> (cj.MixtureWasserstein().pairwise(predictions, predictions) ** 2).tolist()
        [[0.0, 4.25], [4.25, 0.0]]

    Reference: Delon and Desolneux, A Wasserstein-type distance in the space of Gaussian mixture
    models, SIAM J. Imaging Sciences 2020, Section 4; Widmann, Lindsten and Zachariah, Calibration
    tests beyond classification, ICLR 2021, Appendix D.
    """

    def squared(self, p: Distribution, q: Distribution) -> jax.Array:
        _check_mixtures(p, q)
        return _squared_to_batch(p, jax.tree.map(lambda x: x[None], q))[0]

    def pairwise_squared(self, ps: Distribution, qs: Distribution) -> jax.Array:
        _check_mixtures(ps, qs)
        return _squared_tile(ps, qs)


def _check_mixtures(p: Distribution, q: Distribution) -> None:
    if not (isinstance(p, Mixture) and isinstance(q, Mixture)):
        raise TypeError(
            "MixtureWasserstein is defined for Mixture predictions, got "
            f"{type(p).__name__} and {type(q).__name__}."
        )


@jax.jit
def _squared_tile(ps: Mixture, qs: Mixture) -> jax.Array:
    """MW(p, q)^2 for all pairs of two batches, ``[S, T]``."""
    # One row of the tile fits into the cache of a CPU; elsewhere one loop over all pairs is faster.
    all_at_once = jax.vmap(_squared_to_batch, (0, None))
    return lax.platform_dependent(ps, qs, cpu=_squared_tile_row_by_row, default=all_at_once)


def _squared_tile_row_by_row(ps: Mixture, qs: Mixture) -> jax.Array:
    return lax.map(lambda p: _squared_to_batch(p, qs), ps)


@jax.jit
def _squared_to_batch(p: Mixture, qs: Mixture) -> jax.Array:
    """MW(p, q)^2 from one mixture to a batch, ``[T]``."""
    over_batch = jax.vmap(squared_wasserstein, (None, 0))
    over_component_pairs = jax.vmap(jax.vmap(over_batch, (None, 1)), (0, None))
    costs = over_component_pairs(p.components, qs.components)
    a = p.probabilities()
    b = jax.vmap(Mixture.probabilities, out_axes=1)(qs)
    a = jnp.broadcast_to(a[:, None], (len(a), b.shape[1]))
    return transport(costs, a.astype(costs.dtype), b.astype(costs.dtype))
