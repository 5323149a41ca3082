"""Distributions of distrax and of TensorFlow Probability on JAX."""

from calibjax.distributions._foreign import _families as ours
from calibjax.distributions._foreign._package import (
    Package,
    from_attributes,
    from_independent,
    from_mixture,
)

# In TFP some parameters may be None, such as the rate of a gamma distribution that is given by its
# logarithm, or a linear operator: moments always are arrays.
_COVARIANCE = from_attributes(ours.MultivariateNormalFullCovariance, mean=1, covariance=2)

_BOTH = {
    "Normal": from_attributes(ours.Normal, loc=0, scale=0),
    "Laplace": from_attributes(ours.Laplace, loc=0, scale=0),
    "Gamma": from_attributes(ours.gamma_with_mean, concentration=0, mean=0),
    "MultivariateNormalDiag": from_attributes(ours.MultivariateNormalDiag, mean=1, stddev=1),
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
        "Categorical": from_attributes(ours.Categorical, probs=1),
        "Bernoulli": from_attributes(ours.Bernoulli, probs=0),
        "Beta": from_attributes(ours.Beta, alpha=0, beta=0),
        "MultivariateNormalTri": _COVARIANCE,
    },
    "distribution.sample(seed=key, sample_shape=100)",
)

TFP = Package(
    "tensorflow_probability",
    "tensorflow_probability.substrates.jax.",
    _BOTH
    | {
        "Categorical": from_attributes(ours.Categorical, probs_parameter=1),
        "Bernoulli": from_attributes(ours.Bernoulli, probs_parameter=0),
        "StudentT": from_attributes(ours.StudentT, df=0, loc=0, scale=0),
        "Cauchy": from_attributes(ours.cauchy, loc=0, scale=0),
        "LogNormal": from_attributes(ours.LogNormal, loc=0, scale=0),
        "Poisson": from_attributes(ours.Poisson, rate_parameter=0),
        "Exponential": from_attributes(ours.exponential, mean=0),
        "Beta": from_attributes(ours.Beta, concentration1=0, concentration0=0),
        "Weibull": from_attributes(ours.Weibull, concentration=0, scale=0),
        "NegativeBinomial": from_attributes(ours.NegativeBinomial, mean=0, total_count=0),
        "Binomial": from_attributes(ours.Binomial, total_count=0, probs_parameter=0),
        "MultivariateNormalTriL": _COVARIANCE,
    },
    "distribution.sample(100, seed=key)",
)
