"""What only some families know: a class for each capability, which says who needs it.

A family inherits from the class or, where that is a protocol, has its methods.  The functions give
an answer for the predictions of all families.
"""

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, Protocol, Self, TypeVar, runtime_checkable

import jax
import numpy as np

from calibjax._data.distribution import Distribution, Labels, row_methods
from calibjax._numbers.unit_interval import UnitInterval, interval

P = TypeVar("P", bound=Distribution)


@row_methods
class OwnPIT(Distribution):
    """Numbers whose family says where U = F(y) lies, because the cdf jumps or is not known there.

    `PITKernel` and all other functions of U use it.  A family has `cdf_jump` or `unit_interval`.
    """

    @property
    def has_atoms(self) -> bool:
        """Whether U may be anywhere in an interval."""
        return True

    @property
    def compared_with_targets(self) -> tuple[str, ...]:
        """The names of parameters that a target may be equal to, such as samples or quantiles.

        Where these and the targets have two precisions, both are rounded to the coarser one.
        """
        return ()

    @property
    def pit_partition(self) -> int | tuple[float, ...] | None:
        """What is known of U: a rank among this number of members, or between which levels it is.

        None if it is a number, or if that depends on the row.
        """
        return None

    @property
    def pit_ends(self) -> np.ndarray | None:
        """In order all ends that `unit_interval` has; None if rows have others."""
        return None

    def cdf_jump(self, targets: jax.Array) -> tuple[jax.Array, jax.Array]:
        """P(Y < targets[i]) and P(Y <= targets[i]), each ``[n]``."""
        low, high, *_ = self.unit_interval(targets)
        return low, high

    def unit_interval(self, targets: jax.Array) -> UnitInterval:
        """Where U lies, each end ``[n]``; by default in the jump of the cdf."""
        return interval(*self.cdf_jump(targets))

    def restricted(self, targets: jax.Array) -> jax.Array:
        """Targets as `mean` and `variance` see them, up to the last number that is forecast."""
        return targets


class KnownLevels(OwnPIT):
    """Numbers whose cdf is known at some levels only: tests use U and not the target."""

    @abstractmethod
    def pit_distribution(self) -> Distribution:
        """The distributions of U, which have the same `pit_partition`."""

    @abstractmethod
    def pit_intervals(self, targets: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Where U may be, the lower and the upper ends of R intervals, each ``[n, R]``.

        If the targets are drawn from the predictions, U is uniform in [0, 1], and given the target
        it is uniform in one of these intervals, or in a mixture of them that is not known.
        """


class KnownQuantiles(Distribution):
    """Numbers of which only some quantiles or samples are known, which recalibrators move."""

    @abstractmethod
    def known_quantiles(self) -> tuple[jax.Array, jax.Array]:
        """The levels ``[L]``, or ``[n, L]`` if rows differ, and the quantiles ``[n, L]``."""

    @abstractmethod
    def with_quantiles(self, values: jax.Array) -> Self:
        """The same predictions with other values ``[n, L]`` of their `known_quantiles`."""


class Exchangeable(Distribution):
    """Samples, any of which might be the target: the tests take a pool that the target is among."""

    weights: jax.Array | None

    @property
    def is_exchangeable(self) -> bool:
        """Whether the samples have no weights; else they are a distribution like others."""
        return self.weights is None

    @abstractmethod
    def exchangeable_pool(self, targets: jax.Array) -> tuple[Self, jax.Array]:
        """Predictions whose `sample` can be exchanged for the targets if the model is calibrated.

        They must not depend on which of the exchangeable values is the target.
        """

    @abstractmethod
    def standard_scores(self, targets: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """z = (y - mean) / deviation, of which any value of `exchangeable_pool` has its own.

        Returns:
            z of the targets ``[n]`` or ``[n, d]``, z of all values of the pool ``[n, S, …]`` with
            the mean 0 and the variance 1, or 0 if these are equal, and their probabilities
            ``[n, S]``.
        """

    def unit_boxes_of_pool(self) -> tuple[UnitInterval, jax.Array | None] | None:
        """The `unit_box` of each of the S vectors of a pool, each end ``[n, S, d]``.

        Also which of these exist, ``[n, S, 1]``; None if all do.  None for other predictions.
        """
        return None


@runtime_checkable
class UnitBox(Protocol):
    """Vectors for `VectorPITKernel`."""

    def unit_box(self, targets: jax.Array) -> UnitInterval:
        """Where U_1, …, U_d of target vectors lie on the unit line, each end ``[n, d]``.

        They are independent and uniform if the targets are drawn from the predictions.  No units of
        the coordinates change them.
        """


@runtime_checkable
class CrossFit(Protocol):
    """What the discrepancy h splits in two."""

    def cross_fit_pairs(self) -> tuple[tuple[Any, Any], ...]:
        """What h sees of *one* prediction: pairs (compared, subtracted), over which it averages.

        The kernel on predictions compares the first of a pair.  The second is the distribution
        whose mean embedding is subtracted from the embedding of the target.  For predictions given
        by draws both are halves of these.
        """


@runtime_checkable
class WassersteinEmbedding(Protocol):
    """Families for `Wasserstein`, and for its random features."""

    def wasserstein_embedding(self) -> jax.Array | tuple[jax.Array, ...]:
        """A vector for *one* prediction, or a few numbers, which are faster.

        The Euclidean distance of two such vectors is the 2-Wasserstein distance of the predictions.
        """


@runtime_checkable
class SquaredWasserstein(Protocol):
    """Families for `Wasserstein` without an embedding."""

    def squared_wasserstein(self, other: Any) -> jax.Array:
        """The squared 2-Wasserstein distance of *one* prediction to another of the family."""


@runtime_checkable
class Characteristic(Protocol):
    """Families for the random features of real targets."""

    def characteristic(self, v: jax.Array) -> jax.Array:
        """E exp(i <v, Z>) for Z from *one* prediction, a complex number; v is shaped like Z."""


@runtime_checkable
class Tempered(Protocol):
    """Families for `apply_temperature` and `equivalent_temperature`."""

    def tempered(self, temperature: jax.Array) -> Self:
        """The predictions with densities proportional to p^(1 / temperature)."""


@runtime_checkable
class ClosedFormCRPS(Protocol):
    """Numbers for which `crps` needs no quadrature."""

    def crps_closed_form(self, targets: jax.Array) -> jax.Array | None:
        """The continuous ranked probability score of each target, ``[n]``.

        None if the components of a mixture have no formula.
        """


@runtime_checkable
class ClosedFormDifference(Protocol):
    """Numbers whose mixtures have a closed form of the CRPS."""

    def mean_absolute_difference(self, other: Any) -> jax.Array:
        """E|Z - Z'| for independent Z and Z' from *one* prediction each."""


def has_atoms(predictions: Distribution) -> bool:
    """Whether U = F(y) is not one number: the cdf may jump, or the targets are vectors."""
    is_number = predictions.target_kind == "real" and predictions.target_shape == "n"
    return not is_number or isinstance(predictions, OwnPIT) and predictions.has_atoms


def pit_partition(predictions: Distribution) -> int | tuple[float, ...] | None:
    """What is known of U, as `OwnPIT` has it; None if it is a number."""
    return predictions.pit_partition if isinstance(predictions, OwnPIT) else None


def pit_ends(predictions: Distribution) -> np.ndarray | None:
    """All ends of where U may be, as `OwnPIT` has them."""
    return predictions.pit_ends if isinstance(predictions, OwnPIT) else None


def restricted(predictions: Distribution, targets: jax.Array) -> jax.Array:
    """Targets as `mean` and `variance` see them, up to the last number that is forecast."""
    return predictions.restricted(targets) if isinstance(predictions, OwnPIT) else targets


def is_exchangeable(predictions: Distribution) -> bool:
    """Whether the target might be any of the values of `exchangeable_pool`."""
    return isinstance(predictions, Exchangeable) and predictions.is_exchangeable


def exchangeable_pool(predictions: P, targets: Any) -> tuple[P, Any]:
    """The pool of `Exchangeable` predictions, and all others as they are."""
    if isinstance(predictions, Exchangeable):
        return predictions.exchangeable_pool(targets)
    return predictions, targets


def has_unit_box(predictions: Distribution) -> bool:
    """Whether these are vectors that a `VectorPITKernel` sees."""
    are_weighted = isinstance(predictions, Exchangeable) and not predictions.is_exchangeable
    return predictions.target_shape != "n" and isinstance(predictions, UnitBox) and not are_weighted


def cross_fit_pairs(p: Any) -> tuple[tuple[Any, Any], ...]:
    """What h compares and subtracts of *one* prediction: by default both are the prediction."""
    return p.cross_fit_pairs() if isinstance(p, CrossFit) else ((p, p),)


def characteristic(p: Any, v: jax.Array) -> jax.Array:
    """E exp(i <v, Z>) for Z from *one* prediction, a complex number."""
    if not isinstance(p, Characteristic):
        families = families_with(Characteristic, Labels)
        raise TypeError(f"random features are for {families} predictions, got {type(p).__name__}.")
    return p.characteristic(v)


def tempered(predictions: P, temperature: jax.Array) -> P:
    """The predictions with densities proportional to p^(1 / temperature)."""
    if not isinstance(predictions, Tempered):
        raise tempering_refused(type(predictions).__name__, predictions.untempered)
    return predictions.tempered(temperature)


def tempering_refused(actual: str, reason: str = "") -> TypeError:
    """The error for predictions that cannot be tempered; `actual` says what they are."""
    return TypeError(
        f"predictions must be one of {families_with(Tempered)} to be tempered, got {actual}"
        f"{reason}."
    )


def families_with(*capabilities: type) -> str:
    """The names of the families with one of these capabilities, joined by commas."""
    return ", ".join(sorted({f.__name__ for f in families() if issubclass(f, capabilities)}))


def families(parent: type[Distribution] = Distribution) -> Iterator[type[Distribution]]:
    """The families: subclasses of Distribution, and of what several families have in common."""
    for child in parent.__subclasses__():
        # A parent of families has no parameters.
        if getattr(child, "__dataclass_fields__", {}):
            yield child
        else:
            yield from families(child)
