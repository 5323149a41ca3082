"""The 2-Wasserstein distance."""

import jax

from calibjax._distribution import Distribution, families_with, wasserstein_refused
from calibjax._struct import struct
from calibjax.kernels._distance import Coordinates, Embedded, NormDistance


@struct
class Wasserstein(NormDistance):
    """The 2-Wasserstein distance between two predictions of a family, in units of the targets.

    W(p, q)^2 = |loc_p - loc_q|^2 + B, where B = |scale_p - scale_q|^2 for Normal and
    MultivariateNormalDiag, B = 2 (scale_p - scale_q)^2 for Laplace, and
    B = tr S_p + tr S_q - 2 tr (S_p^1/2 S_q S_p^1/2)^1/2 for MultivariateNormalFullCovariance with
    covariance matrices S (Widmann et al., ICLR 2021, Appendix D).

    A kernel exp(-(W / l)^nu), nu <= 2, is positive definite for Normal, MultivariateNormalDiag and
    Laplace predictions.  For full covariances it is known to be positive definite only if the
    covariances commute.

    With full covariances a pair costs O(d^3), and only first derivatives are right.

    Raises:
        TypeError: the predictions are of two families, or their family has no formula.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Normal(jnp.array([0.0, 3.0]), jnp.array([1.0, 5.0]))
        >>> float(cj.Wasserstein().pairwise(predictions, predictions)[0, 1])
        5.0
    """

    def squared(self, p: Distribution, q: Distribution) -> jax.Array:
        return squared_wasserstein(p, q)

    def coordinates_of_pair(
        self, p: Distribution, q: Distribution
    ) -> tuple[Coordinates, Coordinates] | None:
        _check_families(p, q)
        return super().coordinates_of_pair(p, q)

    def coordinates_of_batches(
        self, ps: Distribution, qs: Distribution
    ) -> tuple[Coordinates, Coordinates] | None:
        _check_families(ps, qs)
        return super().coordinates_of_batches(ps, qs)

    def coordinates(self, p: Distribution) -> Coordinates | None:
        return p.wasserstein_coordinates()

    def embedding(self, p: Distribution) -> jax.Array:
        """A vector for one prediction; the distance is the norm of the difference of vectors."""
        vector = p.wasserstein_embedding()
        if vector is None:
            families = families_with("wasserstein_embedding")
            raise TypeError(
                f"random features of Wasserstein are defined for {families} predictions, got "
                f"{type(p).__name__}; EmbeddingDistance takes a function of any prediction."
            )
        return vector


def squared_wasserstein(p: Distribution, q: Distribution) -> jax.Array:
    """The squared 2-Wasserstein distance of one pair."""
    _check_families(p, q)
    return p.squared_wasserstein(q)


def _check_families(p: Distribution, q: Distribution) -> None:
    if isinstance(p, Embedded) and isinstance(q, Embedded):
        return
    if type(p) is not type(q):
        raise TypeError(
            "Wasserstein is defined for two predictions of one family, got "
            f"{type(p).__name__} and {type(q).__name__}."
        )
    if not isinstance(p, Distribution):
        raise wasserstein_refused(p)
