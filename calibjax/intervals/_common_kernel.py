"""A kernel for the predictions of several models."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calibjax._distribution import Distribution
from calibjax._rows import Data
from calibjax._struct import widest_dtype
from calibjax.expectations import (
    JointKernel,
    default_kernel,
    default_kernel_of_models,
    gaussian_kernel,
    location_and_spread,
)
from calibjax.kernels import (
    DistanceKernel,
    EmbeddingDistance,
    GaussianKernel,
    SteinKernel,
    TensorProduct,
    TotalVariation,
    WhiteKernel,
    median_heuristic,
)


def common_kernel(models: Sequence[Distribution], where: ArrayLike | None) -> JointKernel:
    """A kernel that takes the predictions of all models, from the predictions alone.

    Of numbers, and of one family and shape, it is the `default_kernel` of all predictions together.
    Different families have in common the probabilities of labels, or else locations and spreads:
    then it is exp(-d(p, q) / l) k(y, z) of their distance d, with the mean of the models'
    lengthscales.
    """
    if len({_family_and_shapes(p) for p in models}) == 1:
        together = jax.tree.map(lambda *x: jnp.concatenate(_in_one_dtype(x)), *models)
        masks = None if where is None else jnp.concatenate([jnp.asarray(where)] * len(models))
        return default_kernel(Data.unchecked(together, where=masks))
    if all(p.is_ordered for p in models):
        return default_kernel_of_models([(p, where) for p in models])
    are_labels = all(p.has_labels for p in models)
    distance = TotalVariation() if are_labels else EmbeddingDistance(location_and_spread)
    lengthscale = _mean(
        [median_heuristic(distance, Data.unchecked(p, where=where)) for p in models]
    )
    real = [p for p in models if p.target_kind == "real"]
    # A family of real numbers has no closed form with a white kernel, and counts are real, too.
    lengthscales = [
        jnp.asarray(gaussian_kernel(Data.unchecked(p, where=where)).lengthscale) for p in real
    ]
    target_kernel = GaussianKernel(_mean(lengthscales)) if real else WhiteKernel()
    on_pairs = SteinKernel if any(p.score_only for p in models) else TensorProduct
    return on_pairs(DistanceKernel(distance, lengthscale), target_kernel)


def _family_and_shapes(
    model: Distribution,
) -> tuple[jax.tree_util.PyTreeDef, tuple[tuple[int, ...], ...]]:
    leaves, structure = jax.tree.flatten(model)
    return structure, tuple(jnp.shape(leaf)[1:] for leaf in leaves)


def _in_one_dtype(arrays: Sequence[ArrayLike]) -> list[jax.Array]:
    """Numbers of one dtype: models may differ in theirs."""
    dtypes = {jnp.result_type(x) for x in arrays}
    dtype = dtypes.pop() if len(dtypes) == 1 else widest_dtype(*arrays)
    return [jnp.asarray(x, dtype) for x in arrays]


def _mean(scales: Sequence[jax.Array]) -> jax.Array:
    return jnp.mean(jnp.stack(_in_one_dtype(scales)), axis=0)
