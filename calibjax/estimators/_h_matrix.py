"""The matrix of h for all pairs of samples, for small n."""

import jax

from calibjax._between import Targets
from calibjax._distribution import Distribution
from calibjax._rows import Data, clean, in_dtype
from calibjax._sharding import gathered
from calibjax.discrepancy import SumOfTerms, check_inputs, h
from calibjax.kernels import KernelLike, vmap_pairs


def h_matrix(kernel: KernelLike, predictions: Distribution, targets: Targets) -> jax.Array:
    """The symmetric matrix of h((p_i, y_i), (p_j, y_j)) for all pairs, which `skce` averages.

    O(n^2) time and memory: use it for small n.

    Args:
        kernel: usually a TensorProduct, or what `default_kernel` returns.
        predictions: a batch of n >= 2 predictions of one family.
        targets: array ``[n]`` or ``[n, d]``; class labels are ``0 … m-1``.  With a `PITKernel` also
            `Between`, where they are censored or binned.

    Returns:
        Array ``[n, n]``.

    Raises:
        TypeError, ValueError: as in `skce`.

    See also:
        `skce` for its mean without the matrix in memory.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Bernoulli(jnp.array([0.5, 0.5]))
        >>> kernel = cj.TensorProduct(cj.DistanceKernel(cj.TotalVariation()), cj.WhiteKernel())
        >>> cj.h_matrix(kernel, predictions, jnp.array([0, 1])).tolist()
        [[0.5, -0.5], [-0.5, 0.5]]

    Reference: Widmann, Lindsten and Zachariah, Calibration tests beyond classification, ICLR 2021,
    Eq. 5.
    """
    terms, data = check_inputs(kernel, predictions, targets, intervals=True)
    return _h_matrix(terms, gathered(data))


@jax.jit
def _h_matrix(kernel: SumOfTerms, data: Data) -> jax.Array:
    data = clean(data)
    kernel = in_dtype(kernel, data.weights.dtype)
    # The pairs of `vmap_pairs` have forward-mode derivatives; tiles have only reverse mode.  The
    # weights are 1, or all NaN if a row is invalid.
    matrix = vmap_pairs(lambda a, b: h(kernel, a, b))(data.samples, data.samples)
    return matrix * data.weights[:, None]
