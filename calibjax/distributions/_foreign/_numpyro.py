"""Distributions of numpyro."""

from typing import Any

from calibjax._distribution import Distribution
from calibjax.distributions._categorical import Bernoulli, Categorical
from calibjax.distributions._foreign._conventions import cauchy
from calibjax.distributions._foreign._package import (
    Batch,
    Package,
    from_attributes,
    from_independent,
    from_mixture,
    qualified_name,
)
from calibjax.distributions._laplace._laplace import Laplace
from calibjax.distributions._log_normal import LogNormal
from calibjax.distributions._multivariate_normal._multivariate_normal import (
    MultivariateNormalFullCovariance,
)
from calibjax.distributions._normal._normal import Normal
from calibjax.distributions._poisson._poisson import Poisson
from calibjax.distributions._student_t import StudentT


def _from_transformed(obj: Any, batch: Batch, package: Package) -> Distribution:
    """exp(Y) for normal Y, the only transformed distribution that is one of ours."""
    names = [type(transform).__name__ for transform in obj.transforms]
    base = package.convert(obj.base_dist, batch) if names == ["ExpTransform"] else None
    if not isinstance(base, Normal):
        raise package.refused(
            f"{qualified_name(obj)} of {qualified_name(obj.base_dist)} by {', '.join(names)}"
        )
    return LogNormal(base.loc, base.scale)


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
