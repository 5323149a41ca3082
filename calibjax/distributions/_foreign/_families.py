"""Our families, also by parameters that other packages prefer, arrays of one shape."""

import jax
import jax.numpy as jnp

from calibjax.distributions._bernoulli import Bernoulli as Bernoulli
from calibjax.distributions._beta import Beta as Beta
from calibjax.distributions._binomial import Binomial as Binomial
from calibjax.distributions._categorical import Categorical as Categorical
from calibjax.distributions._counts import Counts as Counts
from calibjax.distributions._gamma import Gamma as Gamma
from calibjax.distributions._laplace import Laplace as Laplace
from calibjax.distributions._log_normal import LogNormal as LogNormal
from calibjax.distributions._multivariate_normal import (
    MultivariateNormalFullCovariance as MultivariateNormalFullCovariance,
)
from calibjax.distributions._negative_binomial import NegativeBinomial as NegativeBinomial
from calibjax.distributions._normal import (
    MultivariateNormalDiag as MultivariateNormalDiag,
)
from calibjax.distributions._normal import Normal as Normal
from calibjax.distributions._poisson import Poisson as Poisson
from calibjax.distributions._student_t import StudentT as StudentT
from calibjax.distributions._weibull import Weibull as Weibull
from calibjax.distributions._zero_inflated import ZeroInflated as ZeroInflated


def cauchy(loc: jax.Array, scale: jax.Array) -> StudentT:
    """A Cauchy variable is a t variable with one degree of freedom."""
    return StudentT(jnp.ones_like(loc), loc, scale)


def exponential(mean: jax.Array) -> Gamma:
    """An exponential variable is a gamma variable with the concentration 1."""
    return Gamma(jnp.ones_like(mean), 1 / mean)


def gamma_with_scale(concentration: jax.Array, scale: jax.Array) -> Gamma:
    """The scale is 1 / rate."""
    return Gamma(concentration, 1 / scale)


def gamma_with_mean(concentration: jax.Array, mean: jax.Array) -> Gamma:
    """The mean is concentration / rate."""
    return Gamma(concentration, concentration / mean)


def chi_squared(df: jax.Array, scale: jax.Array) -> Gamma:
    """A chi-squared variable is twice a gamma variable with the concentration df / 2."""
    return Gamma(df / 2, 1 / (2 * scale))


def log_normal_with_median(scale: jax.Array, median: jax.Array) -> LogNormal:
    """The logarithm of the median is the mean of log Y."""
    return LogNormal(jnp.log(median), scale)


def failures(successes: jax.Array, probability: jax.Array) -> NegativeBinomial:
    """The number of failures before so many successes, each of which has a probability."""
    return NegativeBinomial(successes * (1 - probability) / probability, successes)
