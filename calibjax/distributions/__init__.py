"""Families of predictive distributions: a class in a file each, with its closed forms.

`calibjax/__init__.pyi` takes every family from its own module.  Later rooms import the families
that they construct, or know by their names, from this module.
"""

from calibjax.distributions import _normal_expectations, _univariate_expectations
from calibjax.distributions._categorical import LEAST_OF_CLASS, Bernoulli, Categorical, Ordinal
from calibjax.distributions._conversion import as_predictions, is_foreign
from calibjax.distributions._counts import Counts
from calibjax.distributions._empirical import Empirical, half_mean_difference
from calibjax.distributions._normal import Normal
from calibjax.distributions._quantiles import Quantiles
from calibjax.distributions._recalibrated import Recalibrated
from calibjax.distributions._survival_curve import SurvivalCurve
from calibjax.distributions._univariate import Univariate
