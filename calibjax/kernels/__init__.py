"""Kernels on targets, on predictions, and on pairs of both."""

from calibjax.kernels.bandwidth import median_heuristic
from calibjax.kernels.base import Kernel
from calibjax.kernels.distances import (
    EmbeddingDistance,
    Euclidean,
    FisherDistance,
    KernelizedFisherDistance,
    TotalVariation,
    Wasserstein,
)
from calibjax.kernels.pit import PITKernel, VectorPITKernel
from calibjax.kernels.predictions import Distance, DistanceKernel, FeatureKernel, TensorProduct
from calibjax.kernels.stein import SteinKernel
from calibjax.kernels.targets import (
    GaussianKernel,
    LaplacianKernel,
    Matern32Kernel,
    Matern52Kernel,
    WhiteKernel,
)

__all__ = [
    "Distance", "DistanceKernel", "EmbeddingDistance", "Euclidean", "FeatureKernel",
    "FisherDistance", "GaussianKernel", "Kernel", "KernelizedFisherDistance", "LaplacianKernel",
    "Matern32Kernel", "Matern52Kernel", "PITKernel", "SteinKernel", "TensorProduct",
    "TotalVariation", "VectorPITKernel", "Wasserstein", "WhiteKernel", "median_heuristic",
]  # fmt: skip
__dir__ = __all__.copy
