"""What a table of another package is made of: functions that convert its distributions."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calibjax._distribution import Distribution
from calibjax.distributions._mixture import Mixture
from calibjax.distributions._normal import MultivariateNormalDiag, Normal

Batch = tuple[int, ...]
#: A distribution of another package, which is never imported.
Foreign = Any

_POINT_FORECASTS = "Delta", "Deterministic"


class Package(NamedTuple):
    """A package, by names: it is never imported.

    Args:
        name: the name of the package in error messages.
        prefix: what the names of its modules begin with.
        builders: for the name of a class, ``build(obj, batch, package)`` converts an object and
            broadcasts its parameters to the batch shape.
        draws: code that draws samples ``[100, n]`` from ``distribution``.
        class_name: the name of a class of the package in `builders`.
        shapes_of: the batch shape and the event shape of an object.
    """

    name: str
    prefix: str
    builders: Mapping[str, "Builder"]
    draws: str
    class_name: Callable[[Foreign], str] = lambda obj: type(obj).__name__
    shapes_of: Callable[[Foreign], tuple[Batch, Batch]] = lambda obj: (
        tuple(obj.batch_shape),
        tuple(obj.event_shape),
    )

    def builder(self, obj: Foreign) -> "Builder":
        """The function that converts an object; a TypeError if there is none."""
        # Subclasses are refused, because they may mean something else: the OneHotCategorical of
        # distrax is a subclass of its Categorical.
        if not type(obj).__module__.startswith(self.prefix):
            raise self.refused(qualified_name(obj))
        name = self.class_name(obj)
        if name in _POINT_FORECASTS:
            raise TypeError(
                f"obj must be a predictive distribution, got {self.name}.{name}, a point forecast, "
                "which does not say how uncertain it is."
            )
        if name not in self.builders:
            raise self.refused(f"{self.name}.{name}")
        return self.builders[name]

    def convert(self, obj: Foreign, batch: Batch) -> Distribution:
        """The predictions that an object of the package stands for."""
        return self.builder(obj)(obj, batch, self)

    def refused(self, actual: str) -> TypeError:
        """The error for an object that cannot be converted; `actual` says what came."""
        return TypeError(
            f"obj must be one of {', '.join(self.builders)} of {self.name}, got {actual}. "
            "Draws stand for any other, and calibration_test is exact for them: "
            f"Empirical(jnp.moveaxis({self.draws}, 0, 1), split=True)."
        )


Builder = Callable[[Foreign, Batch, Package], Distribution]


def qualified_name(obj: Foreign) -> str:
    """The module and the name of the class of an object."""
    return f"{type(obj).__module__}.{type(obj).__qualname__}".removeprefix("builtins.")


def broadcast(values: Iterable[ArrayLike], batch: Batch, n_axes: Iterable[int]) -> list[jax.Array]:
    """Parameters in one dtype, each with the batch shape before its last `n_axes` axes."""
    arrays = [jnp.asarray(value) for value in values]
    dtype = jnp.result_type(float, *arrays)
    return [
        jnp.broadcast_to(array.astype(dtype), (*batch, *array.shape[array.ndim - n :]))
        for array, n in zip(arrays, n_axes, strict=True)
    ]


def from_attributes(make: Callable[..., Distribution], **n_axes: int) -> Builder:
    """A builder that calls `make` with attributes of an object, in the order of the keywords.

    A keyword names an attribute, or a method without arguments.  Its value is the number of axes
    that the parameter of one prediction has.
    """

    def build(obj: Foreign, batch: Batch, package: Package) -> Distribution:
        values = [getattr(obj, name) for name in n_axes]
        arrays = [value() if callable(value) else value for value in values]
        return make(*broadcast(arrays, batch, n_axes.values()))

    return build


def from_independent(base_name: str) -> Builder:
    """A builder for Independent, which holds the distribution of coordinates as `base_name`."""

    def build(obj: Foreign, batch: Batch, package: Package) -> Distribution:
        base, event = getattr(obj, base_name), tuple(obj.event_shape)
        n_axes = len(event) - len(base.event_shape)
        converted = package.convert(base, (*batch, *event[:n_axes]))
        if n_axes == 1 and isinstance(converted, Normal):
            return MultivariateNormalDiag(converted.loc, converted.scale)
        if n_axes > 0:
            raise package.refused(f"Independent over {n_axes} axes of {qualified_name(base)}")
        return converted

    return build


def from_mixture(weights_name: str, components_name: str) -> Builder:
    """A builder for mixtures, whose components are one batch ``[n, K]`` or a list of K batches."""

    def build(obj: Foreign, batch: Batch, package: Package) -> Mixture:
        weights = package.convert(getattr(obj, weights_name), batch).label_probabilities()
        components = getattr(obj, components_name)
        is_list = isinstance(components, list)
        shape = batch if is_list else weights.shape
        parts = [package.convert(part, shape) for part in (components if is_list else [components])]
        family = type(parts[0])
        if family is Mixture or any(type(part) is not family for part in parts):
            raise package.refused(f"{qualified_name(obj)} of mixtures or of several families")
        if not is_list:
            return Mixture(weights, parts[0])
        # The constructors of counts choose one max_count for all components.
        parameters = zip(*map(jax.tree.leaves, parts), strict=True)
        return Mixture(weights, family(*(jnp.stack(arrays, axis=1) for arrays in parameters)))

    return build
