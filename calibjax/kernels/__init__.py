"""Kernels on targets, on predictions, and on pairs of both."""

from calibjax.kernels._bandwidth import median_heuristic, median_heuristic_of_data
from calibjax.kernels._base import (
    Kernel,
    KernelLike,
    Product,
    Scaled,
    Sum,
    kernel_value,
    pairwise,
    sum_of_products,
    times,
    upper_bound,
    vmap_pairs,
)
from calibjax.kernels._check import check_kernel, users_functions
from calibjax.kernels._check_formula import check_formula, check_symmetric, is_symmetric
from calibjax.kernels._describe import describe
from calibjax.kernels._distance import Distance, DistanceLike, NormDistance, embedding
from calibjax.kernels._embedding_distance import EmbeddingDistance
from calibjax.kernels._feature_kernel import FeatureKernel, VectorFeature
from calibjax.kernels._fisher import FisherDistance, KernelizedFisherDistance
from calibjax.kernels._label_distances import Euclidean, TotalVariation
from calibjax.kernels._pit import PITKernel, UnitFeature, judged, prepare_pit
from calibjax.kernels._predictions import DistanceKernel, embedded_rows
from calibjax.kernels._stein import (
    SteinKernel,
    prepare_scores,
    stein,
    stein_scores,
    stein_tile,
    with_score,
)
from calibjax.kernels._targets import (
    GaussianKernel,
    LaplacianKernel,
    Lengthscaled,
    Matern32Kernel,
    Matern52Kernel,
    WhiteKernel,
    in_lengthscales,
)
from calibjax.kernels._tensor import TensorProduct
from calibjax.kernels._vector_pit import VectorPITKernel
from calibjax.kernels._wasserstein import Wasserstein, squared_wasserstein
