"""Families of predictive distributions."""

from calibjax.distributions._base import Distribution as Distribution
from calibjax.distributions._batch import check_predictions as check_predictions
from calibjax.distributions._batch import fill_masked as fill_masked
from calibjax.distributions._batch import kept_first as kept_first
from calibjax.distributions._batch import valid_rows as valid_rows
from calibjax.distributions._categorical import Bernoulli as Bernoulli
from calibjax.distributions._categorical import Categorical as Categorical
from calibjax.distributions._empirical import Empirical as Empirical
from calibjax.distributions._foreign import as_predictions as as_predictions
from calibjax.distributions._laplace import Laplace as Laplace
from calibjax.distributions._mixture import Mixture as Mixture
from calibjax.distributions._multivariate_normal import (
    MultivariateNormalFullCovariance as MultivariateNormalFullCovariance,
)
from calibjax.distributions._normal import MultivariateNormalDiag as MultivariateNormalDiag
from calibjax.distributions._normal import Normal as Normal
from calibjax.distributions._poisson import MANY_COUNTS as MANY_COUNTS
from calibjax.distributions._poisson import Poisson as Poisson
from calibjax.distributions._poisson import count_bound as count_bound
from calibjax.distributions._poisson import log_relative_to_stirling as log_relative_to_stirling
