"""Distributions of other packages, converted to ours.

The packages are never imported: their classes and attributes are recognised by name.
"""

import jax

from calibjax._distribution import Distribution
from calibjax._struct import is_array
from calibjax.distributions._foreign._distrax_and_tfp import DISTRAX, TFP
from calibjax.distributions._foreign._numpyro import NUMPYRO
from calibjax.distributions._foreign._package import Foreign, Package, qualified_name
from calibjax.distributions._foreign._scipy import SCIPY

_PACKAGES = NUMPYRO, DISTRAX, TFP, SCIPY


def as_predictions(obj: Foreign) -> Distribution:
    """A distribution of numpyro, distrax, TensorFlow Probability (on JAX) or SciPy as one of ours.

    Gradients flow to its parameters, which may be tracers, but for SciPy.  The supported
    distributions are, from

    - numpyro, distrax and TFP: Categorical, Bernoulli, Normal, Laplace, Gamma, Beta, Independent of
      Normal over one axis, and MixtureSameFamily of any distribution in this list;
    - numpyro and TFP: StudentT, Cauchy, LogNormal, Exponential, Weibull, Poisson, Binomial,
      NegativeBinomial;
    - numpyro: Chi2, NegativeBinomial2, GammaPoisson, zero-inflated counts, MultivariateNormal,
      MixtureGeneral of one family, TransformedDistribution of a Normal by ExpTransform, anything
      ``.expand``-ed;
    - distrax: MultivariateNormalDiag, MultivariateNormalFullCovariance, MultivariateNormalTri;
    - TFP: MultivariateNormalDiag, MultivariateNormalFullCovariance, MultivariateNormalTriL;
    - scipy.stats, frozen: norm, laplace, t, cauchy; without ``loc`` lognorm, gamma, expon, chi2,
      weibull_min, poisson, binom, nbinom, bernoulli; without ``loc`` and ``scale`` beta.

    Args:
        obj: an instance of one of these classes, not of a subclass, with the batch shape ``[n]``:
            at least one parameter is an array ``[n]``, and scalar ones are shared by all n
            predictions.  One of scipy.stats must be frozen, such as ``stats.t(5, loc)``, not
            ``stats.t``.  A distribution of calibjax is
            returned as it is.

    Raises:
        TypeError: if `obj` is not a supported distribution.  For any other pass draws to
            `Empirical`: `calibration_test` is exact for them, however few they are.
        ValueError: if its batch shape is not ``[n]``.

    See also:
        `Empirical` for what has a sampler only.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj, numpyro.distributions as dist
        >>> cj.as_predictions(dist.Normal(jnp.array([0.0, 1.0]), 2.0)).variance().tolist()
        [4.0, 4.0]
        >>> from scipy import stats
        >>> cj.as_predictions(stats.t(df=5, loc=[0.0, 1.0]))
        StudentT(n=2, float32)
    """
    if isinstance(obj, Distribution):
        return obj
    package = _package_of(obj)
    package.builder(obj)  # an error before its shapes are asked for
    batch, event = package.shapes_of(obj)
    if len(batch) != 1:
        raise ValueError(
            "obj must have batch shape [n], one prediction for each target, "
            f"got batch shape {list(batch)} and event shape {list(event)}."
        )
    # The packages compute some of these attributes, such as covariances, when they are read: their
    # code relies on promotion, and its matrix products need all digits.
    with (
        jax.numpy_dtype_promotion("standard"),
        jax.numpy_rank_promotion("allow"),
        jax.default_matmul_precision("highest"),
    ):
        return package.convert(obj, batch)


def is_foreign(obj: Foreign) -> bool:
    """Whether an object comes from one of the packages that `as_predictions` knows."""
    return _known_package(obj) is not None


def _known_package(obj: Foreign) -> Package | None:
    for cls in type(obj).__mro__:
        for package in _PACKAGES:
            if cls.__module__.startswith(package.prefix):
                return package
    return None


def _package_of(obj: Foreign) -> Package:
    package = _known_package(obj)
    if package is not None:
        return package
    raise TypeError(
        "obj must be a distribution of calibjax, numpyro, distrax, TensorFlow Probability on JAX "
        f"or scipy.stats, got {'an array' if is_array(obj) else qualified_name(obj)}. Draws [n, S] "
        "stand for any other, and calibration_test is exact for them: Empirical(draws, split=True)."
    )
