"""Predictions of one real number that are known by their quantiles or their cdf."""

from calibjax.distributions._univariate import _expectations, _fourier
from calibjax.distributions._univariate._univariate import (
    Univariate,
    positive_points,
    standard_normal_rule,
)
