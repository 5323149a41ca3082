"""Kernel calibration error, its gradients and tests, for any probabilistic model, in JAX."""

from calibjax._distribution import Distribution as Distribution
from calibjax.distributions._beta import Beta as Beta
from calibjax.distributions._categorical import Bernoulli as Bernoulli
from calibjax.distributions._categorical import Categorical as Categorical
from calibjax.distributions._counts import Counts as Counts
from calibjax.distributions._empirical import Empirical as Empirical
from calibjax.distributions._foreign import as_predictions as as_predictions
from calibjax.distributions._gamma import Gamma as Gamma
from calibjax.distributions._laplace import Laplace as Laplace
from calibjax.distributions._log_normal import LogNormal as LogNormal
from calibjax.distributions._mixture import Mixture as Mixture
from calibjax.distributions._mixture import MixtureWasserstein as MixtureWasserstein
from calibjax.distributions._multivariate_normal import (
    MultivariateNormalFullCovariance as MultivariateNormalFullCovariance,
)
from calibjax.distributions._negative_binomial import NegativeBinomial as NegativeBinomial
from calibjax.distributions._normal import MultivariateNormalDiag as MultivariateNormalDiag
from calibjax.distributions._normal import Normal as Normal
from calibjax.distributions._poisson import Poisson as Poisson
from calibjax.distributions._quantiles import Quantiles as Quantiles
from calibjax.distributions._student_t import StudentT as StudentT
from calibjax.distributions._truncated import Truncated as Truncated
from calibjax.distributions._univariate import Univariate as Univariate
from calibjax.distributions._weibull import Weibull as Weibull
from calibjax.distributions._zero_inflated import ZeroInflated as ZeroInflated
from calibjax.estimators import MedianVarianceBinning as MedianVarianceBinning
from calibjax.estimators import RandomFeatureEstimate as RandomFeatureEstimate
from calibjax.estimators import UniformBinning as UniformBinning
from calibjax.estimators import ece as ece
from calibjax.estimators import h_matrix as h_matrix
from calibjax.estimators import mce as mce
from calibjax.estimators import mmce as mmce
from calibjax.estimators import one_vs_rest as one_vs_rest
from calibjax.estimators import random_feature_skce as random_feature_skce
from calibjax.estimators import skce as skce
from calibjax.estimators import top_label as top_label
from calibjax.estimators import ucme as ucme
from calibjax.estimators import witness as witness
from calibjax.expectations import MeanEmbeddingDistance as MeanEmbeddingDistance
from calibjax.expectations import default_kernel as default_kernel
from calibjax.expectations import default_kernels as default_kernels
from calibjax.expectations import inner_product as inner_product
from calibjax.expectations import mean_embedding as mean_embedding
from calibjax.hypothesis_tests import CalibrationTestResult as CalibrationTestResult
from calibjax.hypothesis_tests import SKCEState as SKCEState
from calibjax.hypothesis_tests import aggregated_skce_test as aggregated_skce_test
from calibjax.hypothesis_tests import asymptotic_block_skce_test as asymptotic_block_skce_test
from calibjax.hypothesis_tests import asymptotic_cme_test as asymptotic_cme_test
from calibjax.hypothesis_tests import asymptotic_skce_test as asymptotic_skce_test
from calibjax.hypothesis_tests import calibration_test as calibration_test
from calibjax.hypothesis_tests import consistency_test as consistency_test
from calibjax.hypothesis_tests import distribution_free_skce_test as distribution_free_skce_test
from calibjax.hypothesis_tests import sample_test_locations as sample_test_locations
from calibjax.kernels import Distance as Distance
from calibjax.kernels import DistanceKernel as DistanceKernel
from calibjax.kernels import EmbeddingDistance as EmbeddingDistance
from calibjax.kernels import Euclidean as Euclidean
from calibjax.kernels import FeatureKernel as FeatureKernel
from calibjax.kernels import GaussianKernel as GaussianKernel
from calibjax.kernels import Kernel as Kernel
from calibjax.kernels import LaplacianKernel as LaplacianKernel
from calibjax.kernels import Matern32Kernel as Matern32Kernel
from calibjax.kernels import Matern52Kernel as Matern52Kernel
from calibjax.kernels import TensorProduct as TensorProduct
from calibjax.kernels import TotalVariation as TotalVariation
from calibjax.kernels import Wasserstein as Wasserstein
from calibjax.kernels import WhiteKernel as WhiteKernel
from calibjax.kernels import median_heuristic as median_heuristic
from calibjax.monitoring import CalibrationMonitor as CalibrationMonitor
from calibjax.recalibration import fit_temperature as fit_temperature
from calibjax.recalibration import temper as temper
from calibjax.scores import crps as crps
from calibjax.scores import log_score as log_score
from calibjax.scores import pit as pit

__version__ = "0.1.0"
