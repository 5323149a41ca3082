"""Distributions of numpyro."""

from calibjax._distribution import Distribution
from calibjax.distributions._foreign import _families as ours
from calibjax.distributions._foreign._package import (
    Batch,
    Foreign,
    Package,
    broadcast,
    from_attributes,
    from_independent,
    from_mixture,
    qualified_name,
)


def _from_transformed(obj: Foreign, batch: Batch, package: Package) -> Distribution:
    """exp(Y) for normal Y, the only transformed distribution that is one of ours."""
    names = [type(transform).__name__ for transform in obj.transforms]
    base = package.convert(obj.base_dist, batch) if names == ["ExpTransform"] else None
    if not isinstance(base, ours.Normal):
        raise package.refused(
            f"{qualified_name(obj)} of {qualified_name(obj.base_dist)} by {', '.join(names)}"
        )
    return ours.LogNormal(base.loc, base.scale)


def _from_zero_inflated(obj: Foreign, batch: Batch, package: Package) -> Distribution:
    base = package.convert(obj.base_dist, batch)
    if not isinstance(base, ours.Counts):
        raise package.refused(f"{qualified_name(obj)} of {qualified_name(obj.base_dist)}")
    (gate,) = broadcast([obj.gate], batch, [0])
    return ours.ZeroInflated(gate, base)


# All of these are gamma mixtures of Poisson distributions, and know their mean and concentration.
_NEGATIVE_BINOMIAL = from_attributes(ours.NegativeBinomial, mean=0, concentration=0)

NUMPYRO = Package(
    "numpyro",
    "numpyro.distributions.",
    {
        "CategoricalProbs": from_attributes(ours.Categorical, probs=1),
        "CategoricalLogits": from_attributes(ours.Categorical.from_logits, logits=1),
        "BernoulliProbs": from_attributes(ours.Bernoulli, probs=0),
        "BernoulliLogits": from_attributes(ours.Bernoulli.from_logits, logits=0),
        "Normal": from_attributes(ours.Normal, loc=0, scale=0),
        "Laplace": from_attributes(ours.Laplace, loc=0, scale=0),
        "StudentT": from_attributes(ours.StudentT, df=0, loc=0, scale=0),
        "Cauchy": from_attributes(ours.cauchy, loc=0, scale=0),
        "LogNormal": from_attributes(ours.LogNormal, loc=0, scale=0),
        "Poisson": from_attributes(ours.Poisson, rate=0),
        "BinomialProbs": from_attributes(ours.Binomial, total_count=0, probs=0),
        "BinomialLogits": from_attributes(ours.Binomial, total_count=0, probs=0),
        "Gamma": from_attributes(ours.Gamma, concentration=0, rate=0),
        "Chi2": from_attributes(ours.Gamma, concentration=0, rate=0),
        "Exponential": from_attributes(ours.exponential, mean=0),
        "Beta": from_attributes(ours.Beta, concentration1=0, concentration0=0),
        "Weibull": from_attributes(ours.Weibull, concentration=0, scale=0),
        "NegativeBinomial2": _NEGATIVE_BINOMIAL,
        "NegativeBinomialProbs": _NEGATIVE_BINOMIAL,
        "NegativeBinomialLogits": _NEGATIVE_BINOMIAL,
        "GammaPoisson": _NEGATIVE_BINOMIAL,
        "ZeroInflatedProbs": _from_zero_inflated,
        "ZeroInflatedLogits": _from_zero_inflated,
        "ZeroInflatedPoisson": _from_zero_inflated,
        "MultivariateNormal": from_attributes(
            ours.MultivariateNormalFullCovariance.from_scale_tril, mean=1, scale_tril=2
        ),
        "Independent": from_independent("base_dist"),
        "MixtureSameFamily": from_mixture("mixing_distribution", "component_distribution"),
        "MixtureGeneral": from_mixture("mixing_distribution", "component_distributions"),
        "TransformedDistribution": _from_transformed,
        "ExpandedDistribution": lambda obj, batch, package: package.convert(obj.base_dist, batch),
    },
    "distribution.sample(key, (100,))",
)
