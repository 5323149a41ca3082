"""Families of predictive distributions: a class in a file each, and its closed forms beside it.

`calibjax/__init__.py` imports every family from its own module.  Later rooms import the families
that they construct, or know by their names, from this module.
"""

from calibjax.distributions import (
    _laplace_expectations,
    _normal_gaussian_kernel,
    _normal_laplacian_kernel,
    _univariate_expectations,
)
from calibjax.distributions._categorical import LEAST_OF_CLASS, Bernoulli, Categorical, Ordinal
from calibjax.distributions._conversion import as_predictions, is_foreign
from calibjax.distributions._counts import Counts
from calibjax.distributions._empirical import Empirical
from calibjax.distributions._normal import Normal
from calibjax.distributions._quantiles import Quantiles
from calibjax.distributions._recalibrated import Recalibrated
from calibjax.distributions._survival_curve import SurvivalCurve
from calibjax.distributions._univariate import Univariate
