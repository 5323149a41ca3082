"""Distributions of other packages as our own, by names of classes and attributes: no imports."""

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

#: Converts an object with the parameters broadcast to a batch shape.
Builder = Callable[[Any, tuple[int, ...]], Any]


def as_predictions(obj: Any) -> Distribution:
    """A distribution of numpyro, distrax or TensorFlow Probability (on JAX) as one of calibjax.

    Gradients flow to its parameters, which may be tracers.  Supported are, from

    - all three: Categorical, Bernoulli, Normal, Laplace, Independent of Normal over one axis, and
      MixtureSameFamily of any of these and of those below;
    - numpyro: MultivariateNormal, Poisson, MixtureGeneral of one family, anything ``.expand``-ed;
    - distrax: MultivariateNormalDiag, MultivariateNormalFullCovariance, MultivariateNormalTri;
    - TFP: as distrax, but with a MultivariateNormalTriL for the last of these, and Poisson.

    Args:
        obj: one of these, no subclass, with the batch shape ``[n]`` (scalar parameters hold for all
            n), or a distribution of calibjax, which is returned as it is.

    Raises:
        TypeError: if `obj` is not one of these; samples may stand for others, see `Empirical`.
        ValueError: if its batch shape is not ``[n]``.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj, numpyro.distributions as dist
        >>> predictions = cj.as_predictions(dist.Normal(jnp.array([0.0, 1.0]), 2.0))
        >>> type(predictions).__name__, predictions.variance().tolist()
        ('Normal', [4.0, 4.0])
    """
    if isinstance(obj, Distribution):
        return obj
    build = _builder(obj)
    batch, event = tuple(obj.batch_shape), tuple(obj.event_shape)
    if len(batch) != 1:
        raise ValueError(
            "obj must have batch shape [n], one prediction for each target, "
            f"got batch shape {list(batch)} and event shape {list(event)}."
        )
    # The packages compute some of what is read: they rely on promotion, covariances are products.
    with (
        jax.numpy_dtype_promotion("standard"),
        jax.numpy_rank_promotion("allow"),
        jax.default_matmul_precision("highest"),
    ):
        return build(obj, batch)


def _family(make: Callable[..., Distribution], **n_axes: int) -> Builder:
    """From attributes, or methods without arguments, and how many axes one prediction has."""

    def build(obj: Any, batch: tuple[int, ...]) -> Distribution:
        values = [getattr(obj, name) for name in n_axes]
        arrays = [jnp.asarray(value() if callable(value) else value) for value in values]
        dtype = jnp.result_type(float, *arrays)

        def parameter(array: jax.Array, n: int) -> jax.Array:
            shape = (*batch, *array.shape[array.ndim - n :])
            return jnp.broadcast_to(array.astype(dtype), shape)

        return make(*map(parameter, arrays, n_axes.values()))

    return build


def _converted(obj: Any, batch: tuple[int, ...]) -> Any:
    return _builder(obj)(obj, batch)


def _independent(base_name: str) -> Builder:
    def build(obj: Any, batch: tuple[int, ...]) -> Any:
        base, event = getattr(obj, base_name), tuple(obj.event_shape)
        n_axes = len(event) - len(base.event_shape)
        converted = _converted(base, (*batch, *event[:n_axes]))
        if n_axes == 1 and isinstance(converted, Normal):
            return MultivariateNormalDiag(converted.loc, converted.scale)
        if n_axes > 0:
            raise _unsupported(obj, f"Independent over {n_axes} axes of {_name(base)}")
        return converted

    return build


def _mixture(weights_name: str, components_name: str) -> Builder:
    def build(obj: Any, batch: tuple[int, ...]) -> Mixture:
        weights = _converted(getattr(obj, weights_name), batch).probs
        components = getattr(obj, components_name)
        separate = isinstance(components, list)
        shape = batch if separate else weights.shape
        parts = [_converted(each, shape) for each in (components if separate else [components])]
        family = type(parts[0])
        if family is Mixture or any(type(part) is not family for part in parts):
            raise _unsupported(obj, f"{_name(obj)} of mixtures or of several families")
        if not separate:
            return Mixture(weights, parts[0])
        # Through the constructor: a Poisson family finds one max_count for all of its components.
        parameters = zip(*map(jax.tree.leaves, parts), strict=True)
        return Mixture(weights, family(*(jnp.stack(arrays, axis=1) for arrays in parameters)))

    return build


_NUMPYRO: dict[str, Builder] = {
    "CategoricalProbs": _family(Categorical, probs=1),
    "CategoricalLogits": _family(Categorical.from_logits, logits=1),
    "BernoulliProbs": _family(Bernoulli, probs=0),
    "BernoulliLogits": _family(Bernoulli.from_logits, logits=0),
    "Normal": _family(Normal, loc=0, scale=0),
    "Laplace": _family(Laplace, loc=0, scale=0),
    "Poisson": _family(Poisson, rate=0),
    "MultivariateNormal": _family(
        MultivariateNormalFullCovariance.from_scale_tril, mean=1, scale_tril=2
    ),
    "Independent": _independent("base_dist"),
    "MixtureSameFamily": _mixture("mixing_distribution", "component_distribution"),
    "MixtureGeneral": _mixture("mixing_distribution", "component_distributions"),
    "ExpandedDistribution": lambda obj, batch: _converted(obj.base_dist, batch),
}

# In TFP `loc` may be None and `scale` is a linear operator, but moments are arrays.
_COVARIANCE = _family(MultivariateNormalFullCovariance, mean=1, covariance=2)

_DISTRAX_AND_TFP = {
    "Normal": _family(Normal, loc=0, scale=0),
    "Laplace": _family(Laplace, loc=0, scale=0),
    "MultivariateNormalDiag": _family(MultivariateNormalDiag, mean=1, stddev=1),
    "MultivariateNormalFullCovariance": _COVARIANCE,
    "Independent": _independent("distribution"),
    "MixtureSameFamily": _mixture("mixture_distribution", "components_distribution"),
}

# Their probabilities are the softmax or sigmoid of logits if those are given, as in from_logits.
_DISTRAX = _DISTRAX_AND_TFP | {
    "Categorical": _family(Categorical, probs=1),
    "Bernoulli": _family(Bernoulli, probs=0),
    "MultivariateNormalTri": _COVARIANCE,
}

_TFP = _DISTRAX_AND_TFP | {
    "Categorical": _family(Categorical, probs_parameter=1),
    "Bernoulli": _family(Bernoulli, probs_parameter=0),
    "Poisson": _family(Poisson, rate_parameter=0),
    "MultivariateNormalTriL": _COVARIANCE,
}

#: By prefix of modules.  Samples are of shape ``[100, n]``.
_PACKAGES = {
    "numpyro.distributions.": (_NUMPYRO, "distribution.sample(key, (100,))"),
    "distrax.": (_DISTRAX, "distribution.sample(seed=key, sample_shape=100)"),
    "tensorflow_probability.substrates.jax.": (_TFP, "distribution.sample(100, seed=key)"),
}


def _builder(obj: Any) -> Builder:
    # No subclasses: OneHotCategorical of distrax is a Categorical, a user's may change anything.
    prefix, supported, _ = _package(obj)
    name = type(obj).__name__ if type(obj).__module__.startswith(prefix) else ""
    if name not in supported:
        raise _unsupported(obj, _name(obj))
    return supported[name]


def _package(obj: Any) -> tuple[str, dict[str, Builder], str]:
    """The package of `obj`: the prefix of its modules, what is supported, how to draw samples."""
    for cls in type(obj).__mro__:
        for prefix, (supported, draws) in _PACKAGES.items():
            if cls.__module__.startswith(prefix):
                return prefix, supported, draws
    raise TypeError(
        "obj must be a distribution of calibjax, numpyro, distrax or TensorFlow Probability on "
        f"JAX, got {'an array' if is_array(obj) else _name(obj)}."
    )


def _unsupported(obj: Any, actual: str) -> TypeError:
    prefix, supported, draws = _package(obj)
    return TypeError(
        f"obj must be one of {', '.join(supported)} of {prefix.split('.')[0]}, got {actual}. "
        f"Samples stand for any other: Empirical(jnp.moveaxis({draws}, 0, 1))."
    )


def _name(obj: Any) -> str:
    return f"{type(obj).__module__}.{type(obj).__qualname__}".removeprefix("builtins.")
