"""The function h, whose expectation is the squared kernel calibration error, and deviations.

h((p, y), (q, z)) = k((p, y), (q, z)) - E k((p, Z), (q, z)) - E k((p, y), (q, Z'))
+ E k((p, Z), (q, Z')) with independent Z ~ p and Z' ~ q
(Widmann, Lindsten and Zachariah, ICLR 2021, Lemma 2 and Eq. 5).

The deviation of (p, y) at a location t = (q, z) is k((p, y), t) - E k((p, Z), t) with Z ~ p, the
first half of h (Definition C.1 there).
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp

from calibjax._numerics import dot
from calibjax.expectations import (
    all_labels,
    label_residual,
    mean_embedding,
    residual_product,
    residual_product_tile,
)
from calibjax.kernels import (
    FeatureKernel,
    FormulaDispatch,
    Scaled,
    Sum,
    TensorProduct,
    VectorFeature,
    of_pair,
    pairwise,
    vmap_pairs,
)

#: A prediction and a target, or a batch of both.
Sample = tuple[Any, jax.Array]


@FormulaDispatch
def h(kernel: Any, a: Sample, b: Sample) -> jax.Array:
    """h of one pair of samples, a scalar; by default for a joint kernel, with finite sums."""
    (p, y), (q, z) = a, b
    labels, ours = _labels_and_residual(kernel, p, y)
    _, theirs = _labels_and_residual(kernel, q, z)
    joint = vmap_pairs(lambda y, z: kernel((p, y), (q, z)))(labels, labels).astype(ours.dtype)
    return jnp.sum(ours[:, None] * joint * theirs[None, :])


def _labels_and_residual(kernel: Any, p: Any, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    """All labels, and e_y - p."""
    if p.label_probabilities() is None:
        raise NotImplementedError(
            f"h with a joint kernel of type {type(kernel).__name__} needs predictions over "
            f"finitely many labels (Categorical, Bernoulli), got {type(p).__name__}; use a "
            "TensorProduct, or sums and multiples of them."
        )
    return all_labels(p), label_residual(p, y)


@h.register
def _h_of_product(kernel: TensorProduct, a: Sample, b: Sample) -> jax.Array:
    (p, y), (q, z) = a, b
    return of_pair(kernel.prediction_kernel, p, q) * residual_product(
        p, kernel.target_kernel, y, q, z
    )


@h.register
def _h_of_features(kernel: FeatureKernel, a: Sample, b: Sample) -> jax.Array:
    def residual(p, y):
        labels, residual = _labels_and_residual(kernel, p, y)
        feature = VectorFeature(kernel.feature)
        return dot(residual, jax.vmap(lambda label: feature(p, label))(labels))

    return of_pair(kernel.prediction_kernel, a[0], b[0]) * dot(residual(*a), residual(*b))


@h.register
def _h_of_sum(kernel: Sum, a: Sample, b: Sample) -> jax.Array:
    return h(kernel.left, a, b) + h(kernel.right, a, b)


@h.register
def _h_of_multiple(kernel: Scaled, a: Sample, b: Sample) -> jax.Array:
    return kernel.valid_factor() * h(kernel.kernel, a, b)


@FormulaDispatch
def h_tile(kernel: Any, a: Sample, b: Sample) -> jax.Array:
    """h of all pairs of two batches of samples, ``[S, T]``."""
    return vmap_pairs(functools.partial(h, kernel))(a, b)


@h_tile.register
def _h_tile_of_product(kernel: TensorProduct, a: Sample, b: Sample) -> jax.Array:
    (ps, ys), (qs, zs) = a, b
    if _is_a_few_numbers(ps, ys):
        return vmap_pairs(functools.partial(h, kernel))(a, b)
    targets = residual_product_tile(ps, kernel.target_kernel, ys, qs, zs)
    return pairwise(kernel.prediction_kernel, ps, qs) * targets


def _is_a_few_numbers(ps: Any, ys: jax.Array) -> bool:
    """Whether one pair is best taken as a whole; more numbers have faster tiles."""
    return all(x.ndim == 1 for x in jax.tree.leaves((ps, ys)))


@h_tile.register
def _h_tile_of_sum(kernel: Sum, a: Sample, b: Sample) -> jax.Array:
    return h_tile(kernel.left, a, b) + h_tile(kernel.right, a, b)


@h_tile.register
def _h_tile_of_multiple(kernel: Scaled, a: Sample, b: Sample) -> jax.Array:
    return kernel.valid_factor() * h_tile(kernel.kernel, a, b)


@FormulaDispatch
def deviation(kernel: Any, a: Sample, location: Sample) -> jax.Array:
    """The deviation of one sample at one location; by default for a joint kernel, a finite sum."""
    p, y = a
    labels, residual = _labels_and_residual(kernel, p, y)
    joint = jax.vmap(lambda y: kernel((p, y), location))(labels).astype(residual.dtype)
    return jnp.sum(residual * joint)


@deviation.register
def _deviation_of_product(kernel: TensorProduct, a: Sample, location: Sample) -> jax.Array:
    (p, y), (q, z) = a, location
    target_kernel = kernel.target_kernel
    of_targets = jnp.asarray(target_kernel(y, z)).astype(jax.tree.leaves(p)[0].dtype)
    return of_pair(kernel.prediction_kernel, p, q) * (
        of_targets - mean_embedding(p, target_kernel, z)
    )


@deviation.register
def _deviation_of_sum(kernel: Sum, a: Sample, location: Sample) -> jax.Array:
    return deviation(kernel.left, a, location) + deviation(kernel.right, a, location)


@deviation.register
def _deviation_of_multiple(kernel: Scaled, a: Sample, location: Sample) -> jax.Array:
    return kernel.valid_factor() * deviation(kernel.kernel, a, location)


def deviation_tile(kernel: Any, a: Sample, locations: Sample) -> jax.Array:
    """The deviations of a batch of samples at a batch of locations, ``[S, J]``."""
    return vmap_pairs(functools.partial(deviation, kernel))(a, locations)
