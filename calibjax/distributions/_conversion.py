"""Distributions of numpyro, distrax, TensorFlow Probability on JAX and scipy.stats as ours.

The packages are never imported: their classes and attributes are recognised by name.
"""

import contextlib
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from calibjax._base.struct import is_array, static, struct
from calibjax._data.distribution import Distribution, as_labels
from calibjax.distributions._binomial import Binomial
from calibjax.distributions._categorical import Bernoulli, Categorical
from calibjax.distributions._counts import Counts
from calibjax.distributions._laplace import Laplace
from calibjax.distributions._mixture import Mixture
from calibjax.distributions._negative_binomial import NegativeBinomial
from calibjax.distributions._normal import (
    MultivariateNormalDiag,
    MultivariateNormalFullCovariance,
    Normal,
)
from calibjax.distributions._poisson import Poisson
from calibjax.distributions._positive import Gamma, LogNormal, Weibull
from calibjax.distributions._student_t import StudentT
from calibjax.distributions._univariate import Univariate

#: A distribution of another package, which is never imported.
Foreign = Any
Batch = tuple[int, ...]

#: What the names of the modules of a package begin with, and code that draws samples ``[100, n]``
#: from ``distribution``.
_PACKAGES = {
    "numpyro": ("numpyro.distributions.", "distribution.sample(key, (100,))"),
    "distrax": ("distrax.", "distribution.sample(seed=key, sample_shape=100)"),
    "tensorflow_probability": (
        "tensorflow_probability.substrates.jax.",
        "distribution.sample(100, seed=key)",
    ),
    "scipy.stats": ("scipy.stats.", "distribution.rvs((100, n))"),
}


def _cauchy(loc: jax.Array, scale: jax.Array) -> StudentT:
    return StudentT(jnp.ones_like(loc), loc, scale)


def _exponential(mean: jax.Array) -> Gamma:
    return Gamma(jnp.ones_like(mean), 1 / mean)


# In TFP some parameters may be None, such as the rate of a gamma distribution that is given by its
# logarithm, or a linear operator: moments always are arrays.
_COVARIANCE = MultivariateNormalFullCovariance, "mean:1 covariance:2"
# All of these are gamma mixtures of Poisson distributions.
_NEGATIVE_BINOMIAL = NegativeBinomial, "mean concentration|total_count"

#: What makes one of our families, by the name of a class or of a frozen distribution of SciPy, and
#: its attributes: the first of several names that an object has, and after a colon the number of
#: axes of the parameter of one prediction.
_CLOSED_FORMS: dict[str, tuple[Callable[..., Distribution], str]] = {
    "Categorical": (Categorical, "probs_parameter|probs:1"),
    "CategoricalLogits": (Categorical.from_logits, "logits:1"),
    "Bernoulli": (Bernoulli, "probs_parameter|probs"),
    "BernoulliLogits": (Bernoulli.from_logits, "logits"),
    "Normal": (Normal, "loc scale"),
    "Laplace": (Laplace, "loc scale"),
    "StudentT": (StudentT, "df loc scale"),
    "Cauchy": (_cauchy, "loc scale"),
    "LogNormal": (LogNormal, "loc scale"),
    "numpyro Gamma": (Gamma, "concentration rate"),
    "Gamma": (lambda a, mean: Gamma(a, a / mean), "concentration mean"),
    "Chi2": (Gamma, "concentration rate"),
    "Exponential": (_exponential, "mean"),
    "Weibull": (Weibull, "concentration scale"),
    "Poisson": (Poisson, "rate_parameter|rate"),
    "Binomial": (Binomial, "total_count probs_parameter|probs"),
    "NegativeBinomial": _NEGATIVE_BINOMIAL,
    "NegativeBinomial2": _NEGATIVE_BINOMIAL,
    "GammaPoisson": _NEGATIVE_BINOMIAL,
    "MultivariateNormal": (MultivariateNormalFullCovariance.from_scale_tril, "mean:1 scale_tril:2"),
    "MultivariateNormalDiag": (MultivariateNormalDiag, "mean:1 stddev:1"),
    "MultivariateNormalFullCovariance": _COVARIANCE,
    "MultivariateNormalTri": _COVARIANCE,
    "MultivariateNormalTriL": _COVARIANCE,
    "bernoulli": (Bernoulli, "p"),
    "binom": (Binomial, "n p"),
    "cauchy": (_cauchy, "loc scale"),
    "chi2": (lambda df, scale: Gamma(df / 2, 1 / (2 * scale)), "df scale"),
    "expon": (_exponential, "scale"),
    "gamma": (lambda a, scale: Gamma(a, 1 / scale), "a scale"),
    "laplace": (Laplace, "loc scale"),
    "lognorm": (lambda s, median: LogNormal(jnp.log(median), s), "s scale"),
    # The number of failures before n successes.
    "nbinom": (lambda n, p: NegativeBinomial(n * (1 - p) / p, n), "n p"),
    "norm": (Normal, "loc scale"),
    "poisson": (Poisson, "mu"),
    "t": (StudentT, "df loc scale"),
    "weibull_min": (Weibull, "c scale"),
}


def as_predictions(obj: Foreign) -> Distribution:
    """Converts a distribution of numpyro, distrax, TensorFlow Probability (on JAX) or SciPy.

    Gradients flow to its parameters, which may be tracers, but for SciPy.  One of our families with
    its closed forms becomes of, from

    - numpyro, distrax and TFP: Categorical, Bernoulli, Normal, Laplace, Gamma, Independent of a
      Normal over one axis, and MixtureSameFamily of any distribution in this list;
    - numpyro and TFP: StudentT, Cauchy, LogNormal, Exponential, Weibull, Poisson, Binomial,
      NegativeBinomial;
    - numpyro: Chi2, NegativeBinomial2, GammaPoisson, zero-inflated counts, MultivariateNormal,
      MixtureGeneral of one family, TransformedDistribution of a Normal by ExpTransform, anything
      ``.expand``-ed;
    - distrax: MultivariateNormalDiag, MultivariateNormalFullCovariance, MultivariateNormalTri;
    - TFP: MultivariateNormalDiag, MultivariateNormalFullCovariance, MultivariateNormalTriL;
    - scipy.stats, frozen: norm, laplace, t, cauchy; without ``loc`` lognorm, gamma, expon, chi2,
      weibull_min, poisson, binom, nbinom, bernoulli.

    Any other distribution of one real number that has a cdf, a log density, a mean and a variance
    becomes a `Univariate` family, whose expectations of kernels are sums over 64 quantiles.  Those
    of SciPy are computed by NumPy, and have no derivatives.

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
    if not is_distribution(obj):
        raise TypeError(
            "obj must be a distribution of calibjax, numpyro, distrax, TensorFlow Probability on "
            f"JAX or scipy.stats, got {'an array' if is_array(obj) else _qualified_name(obj)}. "
            "Draws [n, S] stand for any other, and calibration_test is exact for them: "
            "Empirical(draws, fair=True)."
        )
    _check_class(obj)  # an error before its shapes are asked for
    batch, event = _shapes_of(obj)
    if len(batch) != 1:
        raise ValueError(
            "obj must have batch shape [n], one prediction for each target, "
            f"got batch shape {list(batch)} and event shape {list(event)}."
        )
    with _their_promotion():
        return _convert(obj, batch)


def is_distribution(obj: Foreign) -> bool:
    """Whether an object is ours, or comes from one of the packages that `as_predictions` knows."""
    return isinstance(obj, Distribution) or bool(_package_of(obj))


@contextlib.contextmanager
def _their_promotion() -> Iterator[None]:
    """The code of the packages relies on promotion, and its matrix products need all digits."""
    with (
        jax.numpy_dtype_promotion("standard"),
        jax.numpy_rank_promotion("allow"),
        jax.default_matmul_precision("highest"),
    ):
        yield


def _package_of(obj: Foreign) -> str:
    """The name of the package of a class, or of one of its parents; "" if none is known."""
    modules = [cls.__module__ for cls in type(obj).__mro__]
    known = (name for x in modules for name, (start, _) in _PACKAGES.items() if x.startswith(start))
    return next(known, "")


def _qualified_name(obj: Foreign) -> str:
    """The module and the name of the class of an object."""
    return f"{type(obj).__module__}.{type(obj).__qualname__}".removeprefix("builtins.")


def _is_frozen(obj: Foreign) -> bool:
    """Whether an object is a frozen distribution of SciPy's own, such as ``norm(loc, scale)``."""
    return type(getattr(obj, "dist", None)).__module__.startswith("scipy.stats.")


def _check_class(obj: Foreign) -> None:
    """A TypeError for a point forecast, and for a class that is not one of a package itself."""
    package, name = _package_of(obj), type(obj).__name__
    if package and name in ("Delta", "Deterministic"):
        raise TypeError(
            f"obj must be a predictive distribution, got {package}.{name}, a point forecast, "
            "which does not say how uncertain it is."
        )
    # Subclasses are refused, because they may mean something else: the OneHotCategorical of distrax
    # is a subclass of its Categorical.
    if not package or not type(obj).__module__.startswith(_PACKAGES[package][0]):
        raise _refused(obj, _qualified_name(obj))
    if package == "scipy.stats" and not _is_frozen(obj):
        raise _refused(obj, f"{package}.{name}")


def _refused(obj: Foreign, actual: str) -> TypeError:
    """The error for an object that cannot be converted; `actual` says what it is."""
    draws = _PACKAGES[_package_of(obj)][1] if _package_of(obj) else "draws"
    return TypeError(
        "obj must be a distribution that as_predictions names, or one of a real number with cdf, "
        f"log_prob, mean and variance, got {actual}. Draws stand for any other, and "
        f"calibration_test is exact for them: Empirical(jnp.moveaxis({draws}, 0, 1), fair=True)."
    )


def _parameters(obj: Foreign) -> dict[str, ArrayLike]:
    """Shape parameters, loc and scale of a frozen distribution, which SciPy takes in this order."""
    shapes = obj.dist.shapes.split(", ") if obj.dist.shapes else []
    given = dict(zip([*shapes, "loc", "scale"], obj.args, strict=False)) | obj.kwds
    return {"loc": 0.0, "scale": 1.0} | given


def _shapes_of(obj: Foreign) -> tuple[Batch, Batch]:
    """The batch shape and the event shape."""
    if _is_frozen(obj):
        return np.broadcast_shapes(*map(np.shape, _parameters(obj).values())), ()
    return tuple(obj.batch_shape), tuple(obj.event_shape)


def _attribute(obj: Foreign, names: str) -> Any:
    """The first attribute that an object has, or what a method without arguments returns."""
    if _is_frozen(obj):
        return _parameters(obj)[names]
    value = getattr(obj, next(name for name in names.split("|") if hasattr(obj, name)))
    return value() if isinstance(value, types.MethodType) else value


def _broadcast(values: Iterable[ArrayLike], batch: Batch, n_axes: Iterable[int]) -> list[jax.Array]:
    """Parameters in one dtype, each with the batch shape before its last `n_axes` axes."""
    arrays = [jnp.asarray(value) for value in values]
    dtype = jnp.result_type(float, *arrays)
    return [
        jnp.broadcast_to(array.astype(dtype), (*batch, *array.shape[array.ndim - n :]))
        for array, n in zip(arrays, n_axes, strict=True)
    ]


def _convert(obj: Foreign, batch: Batch) -> Distribution:
    """The predictions that an object stands for, with its parameters broadcast to the batch."""
    _check_class(obj)
    name = obj.dist.name if _is_frozen(obj) else type(obj).__name__
    if name in _MADE_OF_OTHERS:
        return _MADE_OF_OTHERS[name](obj, batch)
    # In numpyro the last word of a name says which parameters were given.
    family = name.removesuffix("Probs").removesuffix("Logits")
    known = [f"{_package_of(obj)} {name}", name, family]
    make, attributes = next((_CLOSED_FORMS[x] for x in known if x in _CLOSED_FORMS), (None, ""))
    words = [word.partition(":") for word in attributes.split()]
    names = [name for name, _, _ in words]
    given = _parameters(obj) if _is_frozen(obj) else {}
    # A frozen distribution has a loc and a scale, also where our family has none.
    others = [
        (given[x], usual) for x, usual in (("loc", 0), ("scale", 1)) if x in given.keys() - names
    ]
    if make is None or any(np.any(np.asarray(value) != usual) for value, usual in others):
        return _adapted(obj, batch)
    values = [_attribute(obj, name) for name in names]
    return make(*_broadcast(values, batch, [int(n or 0) for _, _, n in words]))


def _independent(obj: Foreign, batch: Batch) -> Distribution:
    base, event = _attribute(obj, "base_dist|distribution"), tuple(obj.event_shape)
    n_axes = len(event) - len(base.event_shape)
    converted = _convert(base, (*batch, *event[:n_axes]))
    if n_axes == 1 and isinstance(converted, Normal):
        return MultivariateNormalDiag(converted.loc, converted.scale)
    if n_axes > 0:
        raise _refused(obj, f"Independent over {n_axes} axes of {_qualified_name(base)}")
    return converted


def _mixture(obj: Foreign, batch: Batch) -> Mixture:
    """A mixture, whose components are one batch ``[n, K]`` or a list of K batches."""
    mixing = _attribute(obj, "mixing_distribution|mixture_distribution")
    weights = as_labels(_convert(mixing, batch)).label_probabilities()
    components = _attribute(
        obj, "component_distributions|component_distribution|components_distribution"
    )
    is_list = isinstance(components, list)
    shape = batch if is_list else weights.shape
    parts = [_convert(part, shape) for part in (components if is_list else [components])]
    family = type(parts[0])
    is_adapted = is_list and family is Adapted
    if family is Mixture or is_adapted or any(type(part) is not family for part in parts):
        raise _refused(obj, f"{_qualified_name(obj)} of mixtures or of several families")
    if not is_list:
        return Mixture(weights, parts[0])
    # The constructors of counts choose one max_count for all components.
    parameters = zip(*map(jax.tree.leaves, parts), strict=True)
    return Mixture(weights, family(*(jnp.stack(arrays, axis=1) for arrays in parameters)))


def _zero_inflated(obj: Foreign, batch: Batch) -> Mixture:
    """Counts, and with the probability of the gate those of the mean 0, which are always 0."""
    base = _convert(obj.base_dist, batch)
    if not isinstance(base, Counts):
        raise _refused(obj, f"{_qualified_name(obj)} of {_qualified_name(obj.base_dist)}")
    (gate,) = _broadcast([obj.gate], batch, [0])
    mean, *others = jax.tree.leaves(base)
    # The 0 is a constant: as a multiple of the mean it would have the derivative of log 0.
    pairs = [(jnp.zeros_like(mean), mean), *zip(others, others, strict=True)]
    components = type(base)(*(jnp.stack(pair, axis=1) for pair in pairs))
    return Mixture(jnp.stack([gate, 1 - gate], axis=1), components)


def _transformed(obj: Foreign, batch: Batch) -> Distribution:
    """exp(Y) for normal Y, the only transformed distribution that is one of ours."""
    names = [type(transform).__name__ for transform in obj.transforms]
    base = _convert(obj.base_dist, batch) if names == ["ExpTransform"] else None
    return LogNormal(base.loc, base.scale) if isinstance(base, Normal) else _adapted(obj, batch)


_MADE_OF_OTHERS: dict[str, Callable[[Foreign, Batch], Distribution]] = {
    "Independent": _independent,
    "MixtureSameFamily": _mixture,
    "MixtureGeneral": _mixture,
    "ZeroInflatedProbs": _zero_inflated,
    "ZeroInflatedLogits": _zero_inflated,
    "ZeroInflatedPoisson": _zero_inflated,
    "TransformedDistribution": _transformed,
    "ExpandedDistribution": lambda obj, batch: _convert(obj.base_dist, batch),
}


@struct
class Adapted(Univariate):
    """Predictions of one real number by the functions of a distribution of another package.

    Args:
        parameters: its parameters, ``[n]`` each.
        moments: its means and variances, ``[n]`` each.
        source: ``function(structure, name, parameters, x)``, which computes its cdf, log_prob or
            quantile, and the structure.
    """

    parameters: list[jax.Array]
    moments: tuple[jax.Array, jax.Array]
    source: tuple[Callable[..., jax.Array], Any] = static()

    @property
    def shapes(self) -> dict[str, str]:
        return {f"parameters[{i}]": "n" for i in range(len(self.parameters))}

    def parameter(self, name: str) -> jax.Array:
        return self.parameters[int(name.removeprefix("parameters[")[:-1])]

    def supports(self, targets: jax.Array) -> tuple[str, jax.Array]:
        cdf, density = self.cdf(targets), jnp.isfinite(self.log_prob(targets))
        return "in the support of the distribution", density & (cdf >= 0) & (cdf <= 1)

    def mean(self) -> jax.Array:
        """The means of the distribution, ``[n]``."""
        return self.moments[0]

    def variance(self) -> jax.Array:
        """The variances of the distribution, ``[n]``."""
        return self.moments[1]

    def cdf(self, targets: jax.Array) -> jax.Array:
        """P(Y <= targets), ``[n]``."""
        return self._call("cdf", targets)

    def log_prob(self, targets: jax.Array) -> jax.Array:
        """The log density at targets ``[n]``, ``[n]``."""
        return self._call("log_prob", targets)

    def quantile(self, level: jax.Array) -> jax.Array:
        """The quantiles ``[n]``, found by bisection if the distribution does not have them."""
        try:
            return self._call("quantile", level)
        except (AttributeError, NotImplementedError, ImportError):
            return super().quantile(level)

    def _call(self, name: str, x: jax.Array) -> jax.Array:
        function, structure = self.source
        return function(structure, name, self.parameters, x).astype(x.dtype)


def _of_jax(structure: Any, name: str, parameters: list[jax.Array], x: jax.Array) -> jax.Array:
    """A function of a distribution of numpyro, distrax or TFP, which is a pytree."""
    distribution = jax.tree.unflatten(structure, parameters)
    is_numpyro = name == "quantile" and hasattr(distribution, "icdf")
    with _their_promotion():
        return getattr(distribution, "icdf" if is_numpyro else name)(x)


def _of_scipy(structure: Any, name: str, parameters: list[jax.Array], x: jax.Array) -> jax.Array:
    """A function of a distribution of scipy.stats, computed by NumPy."""
    distribution, names = structure
    function = getattr(distribution, {"log_prob": "logpdf", "quantile": "ppf"}.get(name, name))

    def on_host(x: np.ndarray, *parameters: np.ndarray) -> np.ndarray:
        given = dict(zip(names, map(np.asarray, parameters), strict=True))
        with np.errstate(all="ignore"):
            return np.asarray(function(np.asarray(x), **given), x.dtype)

    shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return jax.pure_callback(on_host, shape, x, *parameters, vmap_method="broadcast_all")


def _is_discrete(obj: Foreign) -> bool:
    """Whether targets are counts or labels, of which a cdf and a density do not say enough."""
    if _is_frozen(obj):
        return not hasattr(obj.dist, "pdf")
    if hasattr(obj, "is_discrete"):
        return bool(obj.is_discrete)
    return not jnp.issubdtype(jnp.dtype(obj.dtype), jnp.floating)


def _adapted(obj: Foreign, batch: Batch) -> Distribution:
    """A distribution without a closed form of ours; a TypeError if it lacks what we need."""
    source: tuple[Callable[..., jax.Array], Any]
    name = obj.dist.name if _is_frozen(obj) else type(obj).__name__
    refused = _refused(obj, f"{_package_of(obj)}.{name}")
    if _is_discrete(obj):
        raise refused
    try:
        if _is_frozen(obj):
            given, moments = _parameters(obj), [obj.mean(), obj.var()]
            parameters, source = list(given.values()), (_of_scipy, (obj.dist, tuple(given)))
        else:
            parameters, structure = jax.tree.flatten(obj)
            moments = [_attribute(obj, name) for name in ("mean", "variance")]
            source = _of_jax, structure
        arrays = _broadcast([*parameters, *moments], batch, [0] * (len(parameters) + 2))
        predictions = Adapted(arrays[:-2], (arrays[-2], arrays[-1]), source)
        jax.eval_shape(lambda y: predictions.supports(y)[1], arrays[-2])
    except (AttributeError, NotImplementedError, StopIteration, TypeError, ValueError):
        raise refused from None
    return predictions
