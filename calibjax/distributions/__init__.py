"""Families of predictive distributions."""

from calibjax.distributions._base import Distribution as Distribution
from calibjax.distributions._categorical import Bernoulli as Bernoulli
from calibjax.distributions._categorical import Categorical as Categorical
from calibjax.distributions._normal import MultivariateNormalDiag as MultivariateNormalDiag
from calibjax.distributions._normal import Normal as Normal
