"""Distributions of other packages, converted to ours.

The packages are never imported: their classes and attributes are recognised by name.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from calibjax._distribution import Distribution
from calibjax._struct import is_array
from calibjax.distributions._categorical import Bernoulli, Categorical
from calibjax.distributions._laplace._laplace import Laplace
from calibjax.distributions._mixture._mixture import Mixture
from calibjax.distributions._multivariate_normal._multivariate_normal import (
    MultivariateNormalFullCovariance,
)
from calibjax.distributions._normal._normal import MultivariateNormalDiag, Normal
from calibjax.distributions._poisson._poisson import Poisson

#: ``builder(obj, batch)`` converts an object and broadcasts its parameters to the batch shape.
Builder = Callable[[Any, tuple[int, ...]], Any]


def as_predictions(obj: Any) -> Distribution:
    """A distribution of numpyro, distrax or TensorFlow Probability (on JAX) as one of calibjax.

    Gradients flow to its parameters, which may be tracers.  The supported distributions are, from

    - all three: Categorical, Bernoulli, Normal, Laplace, Independent of Normal over one axis, and
      MixtureSameFamily of any distribution in this list;
    - numpyro: MultivariateNormal, Poisson, MixtureGeneral of one family, anything ``.expand``-ed;
    - distrax: MultivariateNormalDiag, MultivariateNormalFullCovariance, MultivariateNormalTri;
    - TFP: MultivariateNormalDiag, MultivariateNormalFullCovariance, MultivariateNormalTriL,
      Poisson.

    Args:
        obj: an instance of one of these classes, not of a subclass, with the batch shape ``[n]``;
            scalar parameters are shared by all n predictions.  A distribution of calibjax is
            returned as it is.

    Raises:
        TypeError: if `obj` is not a supported distribution; for any other, pass draws to
            `Empirical`.
        ValueError: if its batch shape is not ``[n]``.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj, numpyro.distributions as dist
        >>> predictions = cj.as_predictions(dist.Normal(jnp.array([0.0, 1.0]), 2.0))
        >>> type(predictions).__name__, predictions.variance().tolist()
        ('Normal', [4.0, 4.0])
    """
    if isinstance(obj, Distribution):
        return obj
    build = _builder_of(obj)
    batch, event = tuple(obj.batch_shape), tuple(obj.event_shape)
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
        return build(obj, batch)


def _from_attributes(make: Callable[..., Distribution], **n_axes: int) -> Builder:
    """A builder that calls `make` with attributes of an object, in the order of the keywords.

    A keyword names an attribute, or a method without arguments.  Its value is the number of axes
    that the parameter of one prediction has.
    """

    def build(obj: Any, batch: tuple[int, ...]) -> Distribution:
        values = [getattr(obj, name) for name in n_axes]
        arrays = [jnp.asarray(value() if callable(value) else value) for value in values]
        dtype = jnp.result_type(float, *arrays)

        def parameter(array: jax.Array, n: int) -> jax.Array:
            shape = (*batch, *array.shape[array.ndim - n :])
            return jnp.broadcast_to(array.astype(dtype), shape)

        return make(*map(parameter, arrays, n_axes.values()))

    return build


def _convert(obj: Any, batch: tuple[int, ...]) -> Any:
    return _builder_of(obj)(obj, batch)


def _from_independent(base_name: str) -> Builder:
    """A builder for Independent, which holds the distribution of coordinates as `base_name`."""

    def build(obj: Any, batch: tuple[int, ...]) -> Any:
        base, event = getattr(obj, base_name), tuple(obj.event_shape)
        n_axes = len(event) - len(base.event_shape)
        converted = _convert(base, (*batch, *event[:n_axes]))
        if n_axes == 1 and isinstance(converted, Normal):
            return MultivariateNormalDiag(converted.loc, converted.scale)
        if n_axes > 0:
            raise _unsupported_error(
                obj, f"Independent over {n_axes} axes of {_qualified_name(base)}"
            )
        return converted

    return build


def _from_mixture(weights_name: str, components_name: str) -> Builder:
    """A builder for mixtures, whose components are one batch ``[n, K]`` or a list of K batches."""

    def build(obj: Any, batch: tuple[int, ...]) -> Mixture:
        weights = _convert(getattr(obj, weights_name), batch).probs
        components = getattr(obj, components_name)
        is_list = isinstance(components, list)
        shape = batch if is_list else weights.shape
        parts = [_convert(each, shape) for each in (components if is_list else [components])]
        family = type(parts[0])
        if family is Mixture or any(type(part) is not family for part in parts):
            raise _unsupported_error(
                obj, f"{_qualified_name(obj)} of mixtures or of several families"
            )
        if not is_list:
            return Mixture(weights, parts[0])
        # The constructor of Poisson chooses one max_count for all components.
        parameters = zip(*map(jax.tree.leaves, parts), strict=True)
        return Mixture(weights, family(*(jnp.stack(arrays, axis=1) for arrays in parameters)))

    return build


_NUMPYRO: dict[str, Builder] = {
    "CategoricalProbs": _from_attributes(Categorical, probs=1),
    "CategoricalLogits": _from_attributes(Categorical.from_logits, logits=1),
    "BernoulliProbs": _from_attributes(Bernoulli, probs=0),
    "BernoulliLogits": _from_attributes(Bernoulli.from_logits, logits=0),
    "Normal": _from_attributes(Normal, loc=0, scale=0),
    "Laplace": _from_attributes(Laplace, loc=0, scale=0),
    "Poisson": _from_attributes(Poisson, rate=0),
    "MultivariateNormal": _from_attributes(
        MultivariateNormalFullCovariance.from_scale_tril, mean=1, scale_tril=2
    ),
    "Independent": _from_independent("base_dist"),
    "MixtureSameFamily": _from_mixture("mixing_distribution", "component_distribution"),
    "MixtureGeneral": _from_mixture("mixing_distribution", "component_distributions"),
    "ExpandedDistribution": lambda obj, batch: _convert(obj.base_dist, batch),
}

# In TFP `loc` may be None and `scale` is a linear operator; `mean` and `covariance` give arrays.
_COVARIANCE = _from_attributes(MultivariateNormalFullCovariance, mean=1, covariance=2)

_DISTRAX_AND_TFP = {
    "Normal": _from_attributes(Normal, loc=0, scale=0),
    "Laplace": _from_attributes(Laplace, loc=0, scale=0),
    "MultivariateNormalDiag": _from_attributes(MultivariateNormalDiag, mean=1, stddev=1),
    "MultivariateNormalFullCovariance": _COVARIANCE,
    "Independent": _from_independent("distribution"),
    "MixtureSameFamily": _from_mixture("mixture_distribution", "components_distribution"),
}

# distrax computes `probs` from logits where logits are given, as `from_logits` does.
_DISTRAX = _DISTRAX_AND_TFP | {
    "Categorical": _from_attributes(Categorical, probs=1),
    "Bernoulli": _from_attributes(Bernoulli, probs=0),
    "MultivariateNormalTri": _COVARIANCE,
}

_TFP = _DISTRAX_AND_TFP | {
    "Categorical": _from_attributes(Categorical, probs_parameter=1),
    "Bernoulli": _from_attributes(Bernoulli, probs_parameter=0),
    "Poisson": _from_attributes(Poisson, rate_parameter=0),
    "MultivariateNormalTriL": _COVARIANCE,
}

#: For each prefix of module names: the builders, and code that draws samples ``[100, n]``.
_PACKAGES = {
    "numpyro.distributions.": (_NUMPYRO, "distribution.sample(key, (100,))"),
    "distrax.": (_DISTRAX, "distribution.sample(seed=key, sample_shape=100)"),
    "tensorflow_probability.substrates.jax.": (_TFP, "distribution.sample(100, seed=key)"),
}


def _builder_of(obj: Any) -> Builder:
    # Subclasses are refused, because they may mean something else: the OneHotCategorical of distrax
    # is a subclass of its Categorical.
    prefix, supported, _ = _package_of(obj)
    name = type(obj).__name__ if type(obj).__module__.startswith(prefix) else ""
    if name not in supported:
        raise _unsupported_error(obj, _qualified_name(obj))
    return supported[name]


def _package_of(obj: Any) -> tuple[str, dict[str, Builder], str]:
    """The prefix of the package of `obj`, its builders, and code that draws samples."""
    for cls in type(obj).__mro__:
        for prefix, (supported, draws) in _PACKAGES.items():
            if cls.__module__.startswith(prefix):
                return prefix, supported, draws
    raise TypeError(
        "obj must be a distribution of calibjax, numpyro, distrax or TensorFlow Probability on "
        f"JAX, got {'an array' if is_array(obj) else _qualified_name(obj)}."
    )


def _unsupported_error(obj: Any, actual: str) -> TypeError:
    prefix, supported, draws = _package_of(obj)
    return TypeError(
        f"obj must be one of {', '.join(supported)} of {prefix.split('.')[0]}, got {actual}. "
        f"Samples stand for any other: Empirical(jnp.moveaxis({draws}, 0, 1), split=True)."
    )


def _qualified_name(obj: Any) -> str:
    return f"{type(obj).__module__}.{type(obj).__qualname__}".removeprefix("builtins.")
