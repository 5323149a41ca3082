"""Distributions of numpyro."""

from typing import Any

from calibjax._distribution import Distribution
from calibjax.distributions._beta import Beta
from calibjax.distributions._categorical import Bernoulli, Categorical
from calibjax.distributions._counts import Counts
from calibjax.distributions._foreign._conventions import cauchy, exponential
from calibjax.distributions._foreign._package import (
    Batch,
    Package,
    broadcast,
    from_attributes,
    from_independent,
    from_mixture,
    qualified_name,
)
from calibjax.distributions._gamma import Gamma
from calibjax.distributions._laplace._laplace import Laplace
from calibjax.distributions._log_normal import LogNormal
from calibjax.distributions._multivariate_normal._multivariate_normal import (
    MultivariateNormalFullCovariance,
)
from calibjax.distributions._negative_binomial import NegativeBinomial
from calibjax.distributions._normal._normal import Normal
from calibjax.distributions._poisson._poisson import Poisson
from calibjax.distributions._student_t import StudentT
from calibjax.distributions._weibull import Weibull
from calibjax.distributions._zero_inflated import ZeroInflated


def _from_transformed(obj: Any, batch: Batch, package: Package) -> Distribution:
    """exp(Y) for normal Y, the only transformed distribution that is one of ours."""
    names = [type(transform).__name__ for transform in obj.transforms]
    base = package.convert(obj.base_dist, batch) if names == ["ExpTransform"] else None
    if not isinstance(base, Normal):
        raise package.refused(
            f"{qualified_name(obj)} of {qualified_name(obj.base_dist)} by {', '.join(names)}"
        )
    return LogNormal(base.loc, base.scale)


def _from_zero_inflated(obj: Any, batch: Batch, package: Package) -> Distribution:
    base = package.convert(obj.base_dist, batch)
    if not isinstance(base, Counts):
        raise package.refused(f"{qualified_name(obj)} of {qualified_name(obj.base_dist)}")
    (gate,) = broadcast([obj.gate], batch, [0])
    return ZeroInflated(gate, base)


# All of these are gamma mixtures of Poisson distributions, and know their mean and concentration.
_NEGATIVE_BINOMIAL = from_attributes(NegativeBinomial, mean=0, concentration=0)

NUMPYRO = Package(
    "numpyro",
    "numpyro.distributions.",
    {
        "CategoricalProbs": from_attributes(Categorical, probs=1),
        "CategoricalLogits": from_attributes(Categorical.from_logits, logits=1),
        "BernoulliProbs": from_attributes(Bernoulli, probs=0),
        "BernoulliLogits": from_attributes(Bernoulli.from_logits, logits=0),
        "Normal": from_attributes(Normal, loc=0, scale=0),
        "Laplace": from_attributes(Laplace, loc=0, scale=0),
        "StudentT": from_attributes(StudentT, df=0, loc=0, scale=0),
        "Cauchy": from_attributes(cauchy, loc=0, scale=0),
        "LogNormal": from_attributes(LogNormal, loc=0, scale=0),
        "Poisson": from_attributes(Poisson, rate=0),
        "Gamma": from_attributes(Gamma, concentration=0, rate=0),
        "Chi2": from_attributes(Gamma, concentration=0, rate=0),
        "Exponential": from_attributes(exponential, mean=0),
        "Beta": from_attributes(Beta, concentration1=0, concentration0=0),
        "Weibull": from_attributes(Weibull, concentration=0, scale=0),
        "NegativeBinomial2": _NEGATIVE_BINOMIAL,
        "NegativeBinomialProbs": _NEGATIVE_BINOMIAL,
        "NegativeBinomialLogits": _NEGATIVE_BINOMIAL,
        "GammaPoisson": _NEGATIVE_BINOMIAL,
        "ZeroInflatedProbs": _from_zero_inflated,
        "ZeroInflatedLogits": _from_zero_inflated,
        "ZeroInflatedPoisson": _from_zero_inflated,
        "MultivariateNormal": from_attributes(
            MultivariateNormalFullCovariance.from_scale_tril, mean=1, scale_tril=2
        ),
        "Independent": from_independent("base_dist"),
        "MixtureSameFamily": from_mixture("mixing_distribution", "component_distribution"),
        "MixtureGeneral": from_mixture("mixing_distribution", "component_distributions"),
        "TransformedDistribution": _from_transformed,
        "ExpandedDistribution": lambda obj, batch, package: package.convert(obj.base_dist, batch),
    },
    "distribution.sample(key, (100,))",
)
