"""Normal predictions of vectors with correlated coordinates."""

from calibjax.distributions._multivariate_normal import _gaussian
from calibjax.distributions._multivariate_normal._multivariate_normal import (
    MultivariateNormalFullCovariance,
)
