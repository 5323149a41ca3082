"""Frozen distributions of scipy.stats, such as ``norm(loc, scale)`` with arrays."""

from collections.abc import Callable

import numpy as np
from jax.typing import ArrayLike

from calibjax._distribution import Distribution
from calibjax.distributions._foreign import _families as ours
from calibjax.distributions._foreign._package import Batch, Builder, Foreign, Package, broadcast


def _name_of(obj: Foreign) -> str:
    """The name of a frozen distribution of SciPy's own, else of the class."""
    distribution: Foreign = getattr(obj, "dist", None)
    is_own = type(distribution).__module__.startswith("scipy.stats.")
    return distribution.name if is_own else type(obj).__name__


def _parameters(obj: Foreign) -> dict[str, ArrayLike]:
    """Shape parameters, loc and scale, by name; SciPy takes them in this order."""
    shapes = obj.dist.shapes.split(", ") if obj.dist.shapes else []
    given = dict(zip([*shapes, "loc", "scale"], obj.args, strict=False)) | obj.kwds
    return {"loc": 0.0, "scale": 1.0} | given


def _shapes_of(obj: Foreign) -> tuple[Batch, Batch]:
    return np.broadcast_shapes(*map(np.shape, _parameters(obj).values())), ()


def _from_parameters(make: Callable[..., Distribution], names: str) -> Builder:
    """A builder that calls `make` with parameters by name; others must have their defaults."""

    def build(obj: Foreign, batch: Batch, package: Package) -> Distribution:
        parameters, wanted = _parameters(obj), names.split()
        for name, default in (("loc", 0), ("scale", 1)):
            if name not in wanted and np.any(np.asarray(parameters[name]) != default):
                raise package.refused(f"{obj.dist.name} with a {name} other than {default}")
        values = [parameters[name] for name in wanted]
        return make(*broadcast(values, batch, [0] * len(values)))

    return build


SCIPY = Package(
    "scipy.stats",
    "scipy.stats.",
    {
        "bernoulli": _from_parameters(ours.Bernoulli, "p"),
        "beta": _from_parameters(ours.Beta, "a b"),
        "binom": _from_parameters(ours.Binomial, "n p"),
        "cauchy": _from_parameters(ours.cauchy, "loc scale"),
        "chi2": _from_parameters(ours.chi_squared, "df scale"),
        "expon": _from_parameters(ours.exponential, "scale"),
        "gamma": _from_parameters(ours.gamma_with_scale, "a scale"),
        "laplace": _from_parameters(ours.Laplace, "loc scale"),
        "lognorm": _from_parameters(ours.log_normal_with_median, "s scale"),
        "nbinom": _from_parameters(ours.failures, "n p"),
        "norm": _from_parameters(ours.Normal, "loc scale"),
        "poisson": _from_parameters(ours.Poisson, "mu"),
        "t": _from_parameters(ours.StudentT, "df loc scale"),
        "weibull_min": _from_parameters(ours.Weibull, "c scale"),
    },
    "distribution.rvs((100, n))",
    _name_of,
    _shapes_of,
)
