"""Kernels on targets, on predictions, and on pairs of both."""

from calibjax.kernels._bandwidth import median_heuristic as median_heuristic
from calibjax.kernels._base import Kernel as Kernel
from calibjax.kernels._base import Product as Product
from calibjax.kernels._base import Scaled as Scaled
from calibjax.kernels._base import Sum as Sum
from calibjax.kernels._base import pairwise as pairwise
from calibjax.kernels._base import vmap_pairs as vmap_pairs
from calibjax.kernels._bounds import upper_bound as upper_bound
from calibjax.kernels._distances import Distance as Distance
from calibjax.kernels._distances import EmbeddingDistance as EmbeddingDistance
from calibjax.kernels._distances import Euclidean as Euclidean
from calibjax.kernels._distances import NormDistance as NormDistance
from calibjax.kernels._distances import TotalVariation as TotalVariation
from calibjax.kernels._mixture_wasserstein import MixtureWasserstein as MixtureWasserstein
from calibjax.kernels._predictions import DistanceKernel as DistanceKernel
from calibjax.kernels._targets import GaussianKernel as GaussianKernel
from calibjax.kernels._targets import LaplacianKernel as LaplacianKernel
from calibjax.kernels._targets import Matern32Kernel as Matern32Kernel
from calibjax.kernels._targets import Matern52Kernel as Matern52Kernel
from calibjax.kernels._targets import WhiteKernel as WhiteKernel
from calibjax.kernels._targets import in_lengthscales as in_lengthscales
from calibjax.kernels._tensor import TensorProduct as TensorProduct
from calibjax.kernels._wasserstein import Wasserstein as Wasserstein
