"""Predictions of one real number that are known by their quantiles or their cdf."""

from calibjax.distributions._univariate import _expectations as _expectations
from calibjax.distributions._univariate import _fourier as _fourier
from calibjax.distributions._univariate._univariate import Univariate as Univariate
from calibjax.distributions._univariate._univariate import positive_points as positive_points
from calibjax.distributions._univariate._univariate import (
    standard_normal_rule as standard_normal_rule,
)
