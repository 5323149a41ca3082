"""Is a probabilistic model's uncertainty right? Calibration errors, tests and remedies, in JAX.

Ten names are most of what people need:

==========================  =========================================================
`evaluate`                  a verdict, numbers and pictures, from arrays, frames or laws
`calibration_test`          the exact test behind it
`skce`                      the squared kernel calibration error, also as a loss
`skce_confidence_interval`  how far off a model is
`compare_calibration`       which of several models is better calibrated
`segment_test`              for whom a model is wrong
`fit_recalibrator`          a map that mends it, and `cross_fit` to judge such maps
`CalibrationMonitor`        is it still calibrated, asked after every batch
`reliability_curve`         what a picture shows; `pit_curve` for numbers
`decompose_score`           how much of a score is calibration
==========================  =========================================================

Predictions are batches of laws: `Categorical`, `Bernoulli`, `Normal`, `Quantiles`, `Empirical` of
draws, and others; `as_predictions` takes those of other libraries.
"""

from calibjax._data import Between as Between
from calibjax._data import Data as Data
from calibjax._data import Distribution as Distribution
from calibjax.curves import CORPCurve as CORPCurve
from calibjax.curves import CoverageCurve as CoverageCurve
from calibjax.curves import PITCurve as PITCurve
from calibjax.curves import ReliabilityCurve as ReliabilityCurve
from calibjax.curves import ResidualMap as ResidualMap
from calibjax.curves import WitnessMap as WitnessMap
from calibjax.curves import corp_curve as corp_curve
from calibjax.curves import coverage_curve as coverage_curve
from calibjax.curves import pit_curve as pit_curve
from calibjax.curves import reliability_curve as reliability_curve
from calibjax.curves import residual_map as residual_map
from calibjax.curves import witness_map as witness_map
from calibjax.distributions._binomial import Binomial as Binomial
from calibjax.distributions._categorical import Bernoulli as Bernoulli
from calibjax.distributions._categorical import Categorical as Categorical
from calibjax.distributions._categorical import Ordinal as Ordinal
from calibjax.distributions._conversion import as_predictions as as_predictions
from calibjax.distributions._counts import Counts as Counts
from calibjax.distributions._empirical import Empirical as Empirical
from calibjax.distributions._laplace import Laplace as Laplace
from calibjax.distributions._mixture import Mixture as Mixture
from calibjax.distributions._mixture import MixtureWasserstein as MixtureWasserstein
from calibjax.distributions._negative_binomial import NegativeBinomial as NegativeBinomial
from calibjax.distributions._normal import MultivariateNormalDiag as MultivariateNormalDiag
from calibjax.distributions._normal import (
    MultivariateNormalFullCovariance as MultivariateNormalFullCovariance,
)
from calibjax.distributions._normal import Normal as Normal
from calibjax.distributions._poisson import Poisson as Poisson
from calibjax.distributions._positive import Gamma as Gamma
from calibjax.distributions._positive import LogNormal as LogNormal
from calibjax.distributions._positive import Weibull as Weibull
from calibjax.distributions._quantiles import Quantiles as Quantiles
from calibjax.distributions._recalibrated import Recalibrated as Recalibrated
from calibjax.distributions._student_t import StudentT as StudentT
from calibjax.distributions._survival_curve import SurvivalCurve as SurvivalCurve
from calibjax.distributions._univariate import Univariate as Univariate
from calibjax.distributions._unnormalized import Unnormalized as Unnormalized
from calibjax.estimators import CalibrationBins as CalibrationBins
from calibjax.estimators import MedianVarianceBinning as MedianVarianceBinning
from calibjax.estimators import RandomFeatureEstimate as RandomFeatureEstimate
from calibjax.estimators import UniformBinning as UniformBinning
from calibjax.estimators import calibration_bins as calibration_bins
from calibjax.estimators import contributions as contributions
from calibjax.estimators import d_calibration as d_calibration
from calibjax.estimators import ece as ece
from calibjax.estimators import h_matrix as h_matrix
from calibjax.estimators import mce as mce
from calibjax.estimators import mmce as mmce
from calibjax.estimators import one_vs_rest as one_vs_rest
from calibjax.estimators import random_feature_skce as random_feature_skce
from calibjax.estimators import skce as skce
from calibjax.estimators import smooth_ece as smooth_ece
from calibjax.estimators import top_label as top_label
from calibjax.estimators import ucme as ucme
from calibjax.estimators import witness as witness
from calibjax.evaluation import Evaluation as Evaluation
from calibjax.evaluation import PosteriorCheck as PosteriorCheck
from calibjax.evaluation import check_posterior as check_posterior
from calibjax.evaluation import evaluate as evaluate
from calibjax.expectations import MeanEmbeddingDistance as MeanEmbeddingDistance
from calibjax.expectations import default_kernel as default_kernel
from calibjax.expectations import default_kernels as default_kernels
from calibjax.expectations import inner_product as inner_product
from calibjax.expectations import mean_embedding as mean_embedding
from calibjax.expectations import product_kernel as product_kernel
from calibjax.frames import read_data as read_data
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
from calibjax.intervals import CalibrationComparison as CalibrationComparison
from calibjax.intervals import EquivalentTemperature as EquivalentTemperature
from calibjax.intervals import Estimate as Estimate
from calibjax.intervals import compare_calibration as compare_calibration
from calibjax.intervals import compare_groups as compare_groups
from calibjax.intervals import equivalent_temperature as equivalent_temperature
from calibjax.intervals import skce_confidence_interval as skce_confidence_interval
from calibjax.kernels import Distance as Distance
from calibjax.kernels import DistanceKernel as DistanceKernel
from calibjax.kernels import EmbeddingDistance as EmbeddingDistance
from calibjax.kernels import Euclidean as Euclidean
from calibjax.kernels import FeatureKernel as FeatureKernel
from calibjax.kernels import FisherDistance as FisherDistance
from calibjax.kernels import GaussianKernel as GaussianKernel
from calibjax.kernels import Kernel as Kernel
from calibjax.kernels import KernelizedFisherDistance as KernelizedFisherDistance
from calibjax.kernels import LaplacianKernel as LaplacianKernel
from calibjax.kernels import Matern32Kernel as Matern32Kernel
from calibjax.kernels import Matern52Kernel as Matern52Kernel
from calibjax.kernels import PITKernel as PITKernel
from calibjax.kernels import SteinKernel as SteinKernel
from calibjax.kernels import TensorProduct as TensorProduct
from calibjax.kernels import TotalVariation as TotalVariation
from calibjax.kernels import VectorPITKernel as VectorPITKernel
from calibjax.kernels import Wasserstein as Wasserstein
from calibjax.kernels import WhiteKernel as WhiteKernel
from calibjax.kernels import median_heuristic as median_heuristic
from calibjax.monitoring import CalibrationMonitor as CalibrationMonitor
from calibjax.monitoring import holm_pvalues as holm_pvalues
from calibjax.recalibration import LogisticCalibration as LogisticCalibration
from calibjax.recalibration import Recalibrator as Recalibrator
from calibjax.recalibration import ScoreDecomposition as ScoreDecomposition
from calibjax.recalibration import cross_fit as cross_fit
from calibjax.recalibration import decompose_score as decompose_score
from calibjax.recalibration import fit_recalibrator as fit_recalibrator
from calibjax.recalibration import fit_temperature as fit_temperature
from calibjax.recalibration import load_recalibrator as load_recalibrator
from calibjax.recalibration import logistic_calibration as logistic_calibration
from calibjax.recalibration import temper as temper
from calibjax.scores import crps as crps
from calibjax.scores import log_score as log_score
from calibjax.scores import pit as pit
from calibjax.scores import pit_interval as pit_interval
from calibjax.segments import Segment as Segment
from calibjax.segments import SegmentTestResult as SegmentTestResult
from calibjax.segments import segment_test as segment_test

__version__ = "0.1.0"
