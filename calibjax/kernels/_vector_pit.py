"""Kernels on pairs of a forecast and a target of vectors: where d numbers U_1, …, U_d lie."""

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._distribution import Distribution
from calibjax._numbers import UnitInterval
from calibjax._struct import PyTree, struct
from calibjax.kernels._base import Kernel
from calibjax.kernels._pit import PITKernel, UnitFeature


@struct
class VectorPITKernel(PITKernel):
    r"""The PITKernel of vectors: it does not care for the units of any coordinate.

    .. math::
        k((p, y), (q, z)) = k_P(p, q) \Big[
        \sum_k a_k \sum_j \phi_k(U_j) \phi_k(V_j)
        + a_2 \sum_{j < l} (\phi_1(U_j) \phi_1(U_l) - c_{jl})
        (\phi_1(V_j) \phi_1(V_l) - c'_{jl}) \Big].

    U_1, …, U_d are d independent and uniform numbers if the forecast p of the vector y is right,
    and V_1, …, V_d are those of q and z.  The products see how coordinates depend on each other.
    With normal scores the features of the orders 1 and 2 are Hermite's polynomials in d numbers,
    all of one weight if a_1 = a_2.  The mean of each feature under every forecast is 0, so that
    h = k, as for a `PITKernel`.

    - MultivariateNormalDiag: U_j is the cdf of coordinate j, and c = 0.
    - MultivariateNormalFullCovariance: with the Cholesky factor L of the covariance, U_j is the
      normal cdf of number j of L^-1 (y - loc), and c = 0 (Rosenblatt).  If the correlations of all
      predictions are equal, the order of the coordinates does not matter for normal scores of the
      orders 1 and 2 together.
    - `Empirical` without weights: U_j is the rank of coordinate j of the target among the samples
      and the target, and c_jl is the mean of the product over all of them.  Any of them may be the
      target, so that the mean of h is 0 however few samples there are.

    No unit of a coordinate changes the kernel, and no monotone change of one does for samples.

    A pair costs O(d^2 + d K), and samples O(d S log S + d^2 S) for each row.

    Args:
        prediction_kernel: k_P, for example a DistanceKernel; those of `default_kernels` do not
            depend on units either.
        weights: a_k >= 0 of the K features, ``[K]``, as of a PITKernel.
        features: "cosines" or "normal scores", as of a PITKernel.

    Raises:
        TypeError: at its use, predictions of numbers, or a family whose U_j are not known.
        ValueError: features is none of these, or weights are no such vector.

    See also:
        `PITKernel` for numbers; `TensorProduct` for other families of vectors.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> kernel = cj.VectorPITKernel(lambda p, q: 1.0, features="normal scores")
        >>> scales = jnp.array([[1.0, 1000.0]] * 3)
        >>> predictions = cj.MultivariateNormalDiag(jnp.zeros((3, 2)), scales)
        >>> targets = jnp.array([[1.0, 1000.0], [1.0, 1000.0], [-1.0, -1000.0]])
        >>> float(cj.skce(kernel, predictions, targets, unbiased=False))
        1.2222

    Reference: Rosenblatt, Remarks on a multivariate transformation, Annals of Mathematical
    Statistics 1952; Gneiting, Stanberry, Grimit, Held and Johnson, Assessing probabilistic
    forecasts of multivariate quantities, TEST 2008.
    """

    def upper_bound(self) -> float | jax.Array:
        """Not known: it depends on the number of coordinates."""
        return Kernel.upper_bound(self)

    def unit_feature(self) -> "VectorFeatures":
        of_numbers = super().unit_feature()
        return VectorFeatures(of_numbers.weights, of_numbers.features, of_numbers.orders)


@struct
class VectorFeatures(UnitFeature):
    """sqrt(a_k) phi_k of d coordinates and sqrt(a_2) times the products of two of them."""

    def of_rows(self, predictions: Distribution, targets: PyTree) -> jax.Array:
        """The features of n rows as `PITKernel` judges them, ``[n, M]``."""
        if predictions.target_shape == "n":
            raise TypeError(
                "VectorPITKernel is defined for predictions of vectors, got "
                f"{type(predictions).__name__} predictions of one number; take a PITKernel."
            )
        box = predictions.unit_box(targets)
        n, d = box.low.shape
        features = self.of_intervals(box).reshape(n, -1)
        if 2 not in self.orders or d == 1:
            return features
        products = self._products(box)
        pool = predictions.unit_boxes_of_pool()
        if pool is not None:
            products = products - jnp.mean(self._products(pool), axis=1)
        scale = jnp.sqrt(self.valid_weights()[self.orders.index(2)].astype(features.dtype))
        return jnp.concatenate([features, scale * products], axis=1)

    def _products(self, box: UnitInterval) -> jax.Array:
        """phi_1 of each coordinate times phi_1 of each later one, behind the axes of the box."""
        first = self.unscaled(box, (1,))[..., 0]
        of_one, of_other = np.triu_indices(first.shape[-1], 1)
        return first[..., of_one] * first[..., of_other]
