"""Families of predictive distributions: a class in a file each, with its closed forms."""

from calibjax.distributions import _fourier_rows, _normal_expectations
from calibjax.distributions._binomial import Binomial
from calibjax.distributions._categorical import LEAST_OF_CLASS, Bernoulli, Categorical, Ordinal
from calibjax.distributions._conversion import as_predictions, is_distribution
from calibjax.distributions._counts import Counts
from calibjax.distributions._empirical import Empirical
from calibjax.distributions._laplace import Laplace
from calibjax.distributions._mixture import Mixture, MixtureWasserstein
from calibjax.distributions._negative_binomial import NegativeBinomial
from calibjax.distributions._normal import (
    MultivariateNormalDiag,
    MultivariateNormalFullCovariance,
    Normal,
)
from calibjax.distributions._poisson import Poisson
from calibjax.distributions._positive import Gamma, LogNormal, Weibull
from calibjax.distributions._quantiles import Quantiles
from calibjax.distributions._recalibrated import Recalibrated
from calibjax.distributions._student_t import StudentT
from calibjax.distributions._survival_curve import SurvivalCurve
from calibjax.distributions._univariate import Univariate
from calibjax.distributions._unnormalized import Unnormalized

__all__ = [
    "Bernoulli", "Binomial", "Categorical", "Counts", "Empirical", "Gamma", "Laplace",
    "LogNormal", "Mixture", "MixtureWasserstein", "MultivariateNormalDiag",
    "MultivariateNormalFullCovariance", "NegativeBinomial", "Normal", "Ordinal", "Poisson",
    "Quantiles", "Recalibrated", "StudentT", "SurvivalCurve", "Univariate", "Unnormalized",
    "Weibull", "as_predictions",
]  # fmt: skip
__dir__ = __all__.copy
