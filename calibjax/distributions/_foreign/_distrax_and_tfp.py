"""Distributions of distrax and of TensorFlow Probability on JAX."""

from calibjax.distributions._beta import Beta
from calibjax.distributions._categorical import Bernoulli, Categorical
from calibjax.distributions._foreign._conventions import cauchy, exponential, gamma_with_mean
from calibjax.distributions._foreign._package import (
    Package,
    from_attributes,
    from_independent,
    from_mixture,
)
from calibjax.distributions._laplace._laplace import Laplace
from calibjax.distributions._log_normal import LogNormal
from calibjax.distributions._multivariate_normal._multivariate_normal import (
    MultivariateNormalFullCovariance,
)
from calibjax.distributions._negative_binomial import NegativeBinomial
from calibjax.distributions._normal._normal import MultivariateNormalDiag, Normal
from calibjax.distributions._poisson._poisson import Poisson
from calibjax.distributions._student_t import StudentT
from calibjax.distributions._weibull import Weibull

# In TFP some parameters may be None, such as the rate of a gamma distribution that is given by its
# logarithm, or a linear operator: moments always are arrays.
_COVARIANCE = from_attributes(MultivariateNormalFullCovariance, mean=1, covariance=2)

_BOTH = {
    "Normal": from_attributes(Normal, loc=0, scale=0),
    "Laplace": from_attributes(Laplace, loc=0, scale=0),
    "Gamma": from_attributes(gamma_with_mean, concentration=0, mean=0),
    "MultivariateNormalDiag": from_attributes(MultivariateNormalDiag, mean=1, stddev=1),
    "MultivariateNormalFullCovariance": _COVARIANCE,
    "Independent": from_independent("distribution"),
    "MixtureSameFamily": from_mixture("mixture_distribution", "components_distribution"),
}

# distrax computes `probs` from logits where logits are given, as `from_logits` does.
DISTRAX = Package(
    "distrax",
    "distrax.",
    _BOTH
    | {
        "Categorical": from_attributes(Categorical, probs=1),
        "Bernoulli": from_attributes(Bernoulli, probs=0),
        "Beta": from_attributes(Beta, alpha=0, beta=0),
        "MultivariateNormalTri": _COVARIANCE,
    },
    "distribution.sample(seed=key, sample_shape=100)",
)

TFP = Package(
    "tensorflow_probability",
    "tensorflow_probability.substrates.jax.",
    _BOTH
    | {
        "Categorical": from_attributes(Categorical, probs_parameter=1),
        "Bernoulli": from_attributes(Bernoulli, probs_parameter=0),
        "StudentT": from_attributes(StudentT, df=0, loc=0, scale=0),
        "Cauchy": from_attributes(cauchy, loc=0, scale=0),
        "LogNormal": from_attributes(LogNormal, loc=0, scale=0),
        "Poisson": from_attributes(Poisson, rate_parameter=0),
        "Exponential": from_attributes(exponential, mean=0),
        "Beta": from_attributes(Beta, concentration1=0, concentration0=0),
        "Weibull": from_attributes(Weibull, concentration=0, scale=0),
        "NegativeBinomial": from_attributes(NegativeBinomial, mean=0, total_count=0),
        "MultivariateNormalTriL": _COVARIANCE,
    },
    "distribution.sample(100, seed=key)",
)
