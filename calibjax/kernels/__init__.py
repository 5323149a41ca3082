"""Kernels on targets, on predictions, and on pairs of both."""

from calibjax.kernels._bandwidth import median_distance, median_heuristic
from calibjax.kernels._base import (
    Kernel,
    KernelLike,
    Product,
    Sample,
    Scaled,
    Sum,
    describe,
    kernel_value,
    pairwise,
    sum_of_products,
    times,
    upper_bound,
    vmap_pairs,
)
from calibjax.kernels._check import (
    check_formula,
    check_kernel,
    check_symmetric,
    is_symmetric,
    users_functions,
)
from calibjax.kernels._distance import Distance, DistanceLike, NormDistance, embedding
from calibjax.kernels._distances import (
    EmbeddingDistance,
    Euclidean,
    TotalVariation,
    Wasserstein,
)
from calibjax.kernels._fisher_distances import FisherDistance, KernelizedFisherDistance
from calibjax.kernels._pit import PITKernel, UnitFeature, VectorPITKernel, pooled
from calibjax.kernels._predictions import (
    DistanceKernel,
    FeatureKernel,
    TensorProduct,
    VectorFeature,
    embedded_rows,
)
from calibjax.kernels._stein import SteinKernel, stein, stein_scores, stein_tile, with_score
from calibjax.kernels._targets import (
    GaussianKernel,
    LaplacianKernel,
    LengthscaleKernel,
    Matern32Kernel,
    Matern52Kernel,
    WhiteKernel,
    in_lengthscales,
)

__all__ = [
    "Distance", "DistanceKernel", "EmbeddingDistance", "Euclidean", "FeatureKernel",
    "FisherDistance", "GaussianKernel", "Kernel", "KernelizedFisherDistance", "LaplacianKernel",
    "Matern32Kernel", "Matern52Kernel", "PITKernel", "SteinKernel", "TensorProduct",
    "TotalVariation", "VectorPITKernel", "Wasserstein", "WhiteKernel", "median_heuristic",
]  # fmt: skip
__dir__ = __all__.copy
