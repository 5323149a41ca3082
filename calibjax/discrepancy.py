"""The function h, whose expectation is the squared kernel calibration error.

h((p, y), (q, z)) = k((p, y), (q, z)) - E k((p, Z), (q, z)) - E k((p, y), (q, Z'))
+ E k((p, Z), (q, Z')) with independent Z ~ p and Z' ~ q
(Widmann, Lindsten and Zachariah, ICLR 2021, Lemma 2 and Eq. 5).
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp

from calibjax.expectations import residual_product, residual_product_tile
from calibjax.kernels import Scaled, Sum, TensorProduct, pairwise, vmap_pairs

#: A prediction and a target, or a batch of both.
Sample = tuple[Any, jax.Array]


@functools.singledispatch
def h(kernel: Any, a: Sample, b: Sample) -> jax.Array:
    """h of one pair of samples, a scalar; by default for a joint kernel, with finite sums."""
    (p, y), (q, z) = a, b
    if not hasattr(p, "probability_vector"):
        raise NotImplementedError(
            f"h with a joint kernel of type {type(kernel).__name__} needs predictions over "
            f"finitely many labels (Categorical, Bernoulli), got {type(p).__name__}; use a "
            "TensorProduct, or sums and multiples of them."
        )
    ours, theirs = p.probability_vector(), q.probability_vector()
    labels = jnp.arange(ours.shape[-1], dtype=jnp.int32)
    joint = vmap_pairs(lambda y, z: kernel((p, y), (q, z)))(labels, labels).astype(ours.dtype)
    ours = (labels == y).astype(ours.dtype) - ours
    theirs = (labels == z).astype(ours.dtype) - theirs
    return jnp.sum(ours[:, None] * joint * theirs[None, :])


@h.register
def _tensor_product(kernel: TensorProduct, a: Sample, b: Sample) -> jax.Array:
    (p, y), (q, z) = a, b
    return kernel.prediction_kernel(p, q) * residual_product(p, kernel.target_kernel, y, q, z)


@h.register
def _sum(kernel: Sum, a: Sample, b: Sample) -> jax.Array:
    return h(kernel.left, a, b) + h(kernel.right, a, b)


@h.register
def _scaled(kernel: Scaled, a: Sample, b: Sample) -> jax.Array:
    return kernel.factor * h(kernel.kernel, a, b)


@functools.singledispatch
def h_tile(kernel: Any, a: Sample, b: Sample) -> jax.Array:
    """h of all pairs of two batches of samples, ``[S, T]``."""
    return vmap_pairs(functools.partial(h, kernel))(a, b)


@h_tile.register
def _tensor_product_tile(kernel: TensorProduct, a: Sample, b: Sample) -> jax.Array:
    (ps, ys), (qs, zs) = a, b
    targets = residual_product_tile(ps, kernel.target_kernel, ys, qs, zs)
    return pairwise(kernel.prediction_kernel, ps, qs) * targets


@h_tile.register
def _sum_tile(kernel: Sum, a: Sample, b: Sample) -> jax.Array:
    return h_tile(kernel.left, a, b) + h_tile(kernel.right, a, b)


@h_tile.register
def _scaled_tile(kernel: Scaled, a: Sample, b: Sample) -> jax.Array:
    return kernel.factor * h_tile(kernel.kernel, a, b)
