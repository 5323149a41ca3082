"""The matrix of h, for small n."""

import functools
from typing import Any

import jax
from jax.typing import ArrayLike

from calibjax._sharding import gathered
from calibjax._struct import as_pytree
from calibjax.discrepancy import h
from calibjax.estimators._inputs import Inputs, check_inputs
from calibjax.estimators._rows import clean
from calibjax.kernels import vmap_pairs


def h_matrix(kernel: Any, predictions: Any, targets: ArrayLike) -> jax.Array:
    """h((p_i, y_i), (p_j, y_j)) for all pairs, the symmetric matrix that `skce` averages.

    O(n^2) time and memory: for looking at, and for small n.

    Args:
        kernel: usually a TensorProduct, or what `default_kernel` returns.
        predictions: a batch of n >= 2 predictions of one family.
        targets: array ``[n]`` or ``[n, d]``; class labels are ``0 … m-1``.

    Returns:
        Array ``[n, n]``.

    Raises:
        TypeError, ValueError: as in `skce`.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Bernoulli(jnp.array([0.5, 0.5]))
        >>> kernel = cj.TensorProduct(cj.DistanceKernel(cj.TotalVariation()), cj.WhiteKernel())
        >>> cj.h_matrix(kernel, predictions, jnp.array([0, 1])).tolist()
        [[0.5, -0.5], [-0.5, 0.5]]

    Reference: Widmann, Lindsten and Zachariah, Calibration tests beyond classification, ICLR 2021,
    Eq. 5.
    """
    inputs = Inputs(as_pytree(kernel), predictions, targets)
    check_inputs(inputs)
    return _h_matrix(gathered(inputs))


@jax.jit
def _h_matrix(inputs: Inputs) -> jax.Array:
    kernel, rows = clean(*inputs)
    samples = rows.predictions, rows.targets
    # By pairs: tiles can only be differentiated backwards.  The weights are 1, or NaN.
    return vmap_pairs(functools.partial(h, kernel))(samples, samples) * rows.weights[:, None]
