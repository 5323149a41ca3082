"""The interface of all families of predictive distributions.

Its methods are written for a batch, and also take one prediction, in numbers of one dtype.
"""

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable
from operator import attrgetter
from typing import Any, ClassVar, Self, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from calibjax._base.parameters import as_table, in_words, share_numbers
from calibjax._base.struct import batch_of_one, indexed, widened, widened_integers, with_fields
from calibjax._data.typed_column import check_same_order
from calibjax._numbers.derivatives import safe_sqrt
from calibjax._numbers.unit_interval import with_levels
from calibjax._numbers.validity import FINITE, Constraint

T = TypeVar("T")

#: Methods whose predictions and targets have one dtype: without targets, and of targets.
_WIDENED = (
    *("mean", "variance", "standard_deviation", "location", "spread", "off_mode_probability"),
    *("log_prob", "score", "cdf", "survival", "tails", "cdf_jump", "pit_intervals"),
    *("unit_interval", "unit_box", "crps_closed_form"),
)
#: Methods that see parameters and targets as they are given.
_AS_GIVEN = ("has_stein_identity", "supports", "restricted", "sample")


def _of_batch_or_one(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method of a batch that also takes one prediction and its target, as a batch of one.

    Parameters and real targets become floating-point numbers of one dtype, at least float32, labels
    and counts integers of at least 32 bits, and a level one number for each prediction.
    """
    name = method.__name__

    @functools.wraps(method)
    def of_batch_or_one(self: Any, *args: Any, **options: Any) -> Any:
        if not self.n_batch_axes:
            # A level, a key and a shape are not those of a row.
            is_given = name in ("quantile", "sample")
            given, named = (args, options) if is_given else batch_of_one((args, options))
            # The axes of `shape` stand in front of the batch.
            shape = options.get("shape", (*args, (), ())[1]) if name == "sample" else ()
            found = of_batch_or_one(batch_of_one(self), *given, **named)
            return jax.tree.map(lambda x: x if isinstance(x, str) else x.squeeze(len(shape)), found)
        if name == "quantile":
            return method(*with_levels(self, *args, **options))
        if name in _WIDENED and self.target_kind == "real":
            self, args, options = widened((self, args, options))
        elif name in _WIDENED:
            self = widened(self)
            args, options = jax.tree.map(widened_integers, (args, options))
        return method(self, *args, **options)

    return of_batch_or_one


def row_methods(cls: type[T]) -> type[T]:
    """Makes methods that a class defines also take one prediction, and numbers of one dtype."""
    for name in {*_WIDENED, *_AS_GIVEN, "quantile"} & vars(cls).keys():
        setattr(cls, name, _of_batch_or_one(vars(cls)[name]))
    return cls


D = TypeVar("D", bound="Distribution")


@row_methods
class Distribution(ABC):
    """A batch of n predictive distributions of one family: arrays with leading axis n.

    A family is a `struct` of arrays with the abstract methods below, one of `variance` and
    `standard_deviation`, and `log_prob` where it has a density.  Every other method and attribute
    has a default.  Methods of some families only are in `calibjax/_data/capabilities.py`.

    Methods are written for a batch.  Inside a kernel or a closed form the same class stands for
    *one* prediction, whose arrays have no batch axis, and `struct` makes methods take that as a
    batch of one.  It also gives those that compute with parameters floating-point numbers of one
    dtype, at least float32, for parameters and real targets, and a level for each prediction.

    A direct subclass of Distribution is decorated with `struct`.  A subclass of a family, such as
    `Univariate`, is one by itself.  A number for a parameter of shape "n" is shared by all
    predictions, if another parameter says how many these are.  The length of a batch is n.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Normal(jnp.zeros(5), jnp.ones(5))
        >>> isinstance(predictions, cj.Distribution), predictions.variance().shape
        (True, (5,))
        >>> predictions[:3].loc.shape, predictions[0].loc.shape
        ((3,), ())
        >>> cj.Normal(jnp.zeros(5), 2.0), len(predictions)
        (Normal(n=5, float32), 5)
    """

    #: Whether expectations of kernels are not known, and `SteinKernel` takes their place.
    score_only: ClassVar[bool] = False
    #: Whether the density, if there is one, has no jumps.
    has_continuous_density: ClassVar[bool] = True
    #: Why the family has no `tempered`: the end of an error message, after "got <family>".
    untempered: ClassVar[str] = ""
    #: What else an array without one of the axes may be, for the end of an error message.
    one_axis_less: ClassVar[str] = ""
    #: How many axes more than these the predictions inside them have.
    n_axes_of_parts: ClassVar[int] = 0
    #: The conditions on parameters, by name; all others must be finite.
    conditions: ClassVar[dict[str, Constraint]] = {}
    #: The condition on a target, or on each coordinate of one.
    condition_on_targets: ClassVar[Constraint] = FINITE

    __repr__ = in_words
    _repr_html_ = as_table

    @staticmethod
    def complete_struct(cls: type["Distribution"]) -> None:
        """What `struct` does to each family, whose methods are written for a batch."""
        row_methods(cls)
        if "cdf" in vars(cls) and "tails" not in vars(cls):
            # A new cdf does not have the tails of a parent.
            type.__setattr__(cls, "tails", Distribution.tails)

    def _complete(self) -> None:
        """Checks and converts the parameters; jax rebuilds predictions without it."""
        check_same_order(**vars(self))
        share_numbers(self)

    def __len__(self) -> int:
        if not self.n_batch_axes:
            raise TypeError(f"one prediction has no length, got {self}.")
        return jnp.shape(jax.tree.leaves(self)[0])[0]

    def __getitem__(self, rows: int | slice | ArrayLike) -> Self:
        """The predictions in some rows; `rows` indexes the leading axis of all arrays."""
        n = len(self)
        if isinstance(rows, (int, np.integer)) and not -n <= rows < n:
            raise IndexError(f"rows must be between {-n} and {n - 1}, got {rows}.")
        return indexed(self, rows)

    @property
    @abstractmethod
    def shapes(self) -> dict[str, str]:
        """The symbolic shape of each parameter, for example "n d"; "n" is the batch axis."""

    def with_full_precision(self) -> Self:
        """The same predictions, with numbers that differences need before jax rounds parameters."""
        return _with_parts(self, lambda part: part.with_full_precision())

    def with_common_structure(self) -> Self:
        """The predictions as all batches of the family can be: no option depends on the rows."""
        return _with_parts(self, lambda part: part.with_common_structure())

    def parameter(self, name: str) -> jax.Array:
        """The parameter of this name in `shapes`."""
        return attrgetter(name)(self)

    @property
    def n_batch_axes(self) -> int:
        """1 for a batch, 0 for one prediction, and 2 for the components of a batch of mixtures."""
        for part in vars(self).values():
            if isinstance(part, Distribution):
                return part.n_batch_axes - self.n_axes_of_parts
        for name, axes in self.shapes.items():
            if axes[0] == "n":
                n_own = len(axes.replace("...", "").split()) - 1
                return jnp.ndim(self.parameter(name)) - n_own
        raise TypeError(f"{type(self).__name__} has no parameter with the axis n of a batch.")

    def with_batch_axes(self, n_axes: int) -> Self:
        """The same predictions; a family whose arrays do not tell their `n_batch_axes` keeps it."""
        n_axes += self.n_axes_of_parts
        return _with_parts(self, lambda part: part.with_batch_axes(n_axes))

    @property
    def target_shape(self) -> str:
        """The symbolic shape of the targets, by default numbers."""
        return "n"

    @property
    def target_kind(self) -> str:
        """Either "integer", for labels and counts, or "real", the default."""
        return "real"

    def constraints(self) -> dict[str, tuple[str, jax.Array]]:
        """For each parameter its condition in words, and which rows satisfy it, ``[n]``.

        By default these are the `conditions` of the family.
        """
        known = {name: self.conditions.get(name, FINITE) for name in self.shapes}
        return {name: condition.of_rows(self.parameter(name)) for name, condition in known.items()}

    def supports(self, targets: jax.Array) -> tuple[str, jax.Array]:
        """The condition on targets in words, and which targets satisfy it, ``[n]``."""
        return self.condition_on_targets.of_rows(targets)

    @abstractmethod
    def mean(self) -> jax.Array:
        """The mean of each prediction."""

    def variance(self) -> jax.Array:
        """The variance of each prediction, one for each coordinate."""
        if type(self).standard_deviation is Distribution.standard_deviation:
            raise TypeError(f"{type(self).__name__} must have variance or standard_deviation.")
        return jnp.square(self.standard_deviation())

    def standard_deviation(self) -> jax.Array:
        """The root of the variance; a family overrides it where the square may underflow."""
        return safe_sqrt(self.variance())

    @abstractmethod
    def sample(self, key: jax.Array, shape: tuple[int, ...] = ()) -> jax.Array:
        """Independent draws from each prediction; `shape` stands in front of the batch."""

    def log_prob(self, targets: jax.Array) -> jax.Array:
        """The log density or log probability of each target, ``[n]``."""
        raise TypeError(f"{type(self).__name__} predictions have no log_prob.")

    def score(self, targets: jax.Array) -> jax.Array:
        """The score, the gradient of log p(y) in the target y, in the shape of the targets.

        By default it is the derivative of `log_prob`; NaN outside of the support.  TypeError for a
        family without a density.
        """
        if self.target_kind != "real":
            raise TypeError(
                f"{type(self).__name__} predictions have no score: their targets are not real."
            )
        # Row i of log_prob depends on target i alone.
        scores = jax.grad(lambda y: jnp.sum(self.log_prob(y)))(targets)
        supported = self.supports(targets)[1].reshape(-1, *(1,) * (targets.ndim - 1))
        return jnp.where(supported, scores, jnp.nan)

    def has_stein_identity(self) -> tuple[str, jax.Array]:
        """What a `SteinKernel` needs, in words, and which rows have it, ``[n]``.

        For a mean of 0 the density must be continuous, and 0 at the ends of the support.  For a
        variance, which every test needs, E s(Y)^2 must be finite: a density like y^(a - 1) near an
        end at 0 has the score (a - 1) / y there, and must have a > 2.  By default all rows have it.
        """
        return "a continuous density", jnp.full(len(self), self.has_continuous_density)

    def cdf(self, targets: jax.Array) -> jax.Array:
        """P(Y <= targets[i]) for Y from each prediction, ``[n]``."""
        if not has_own(type(self), "tails"):
            raise TypeError(f"{type(self).__name__} predictions have no cdf.")
        return self.tails(targets)[0]

    def survival(self, targets: jax.Array) -> jax.Array:
        """P(Y > targets[i]), ``[n]``.

        By default it is the second one of the `tails` of the family.  A family with only a `cdf`
        has 1 - F(y), which is 0 where F(y) rounds to 1.
        """
        return self.tails(targets)[1] if has_own(type(self), "tails") else 1 - self.cdf(targets)

    def tails(self, targets: jax.Array) -> tuple[jax.Array, jax.Array]:
        """`cdf` and `survival`, each of which has all digits down to the smallest numbers."""
        return self.cdf(targets), self.survival(targets)

    @property
    def is_ordered(self) -> bool:
        """Whether a target is a number with a cdf, so that a `PITKernel` sees every error."""
        return self.target_shape == "n" and has_own(type(self), "cdf", "tails")

    def quantile(self, level: jax.Array) -> jax.Array:
        """The smallest y with P(Y <= y) >= level, ``[n]``; `level` is a number or ``[n]``.

        At the levels 0 and 1 it is the end of the support.  Any other level that is not between
        them is a ValueError; inside jit it gives NaN, or -1 for labels and counts.
        """
        raise TypeError(f"{type(self).__name__} predictions have no quantile.")

    def location(self) -> jax.Array:
        """Where the targets are: the mean, or what a family without a finite mean has instead."""
        return self.mean()

    def spread(self) -> jax.Array:
        """How wide the targets are spread around `location`, in the shape of a target.

        It is the standard deviation, or what a family without a finite one has instead.
        """
        return self.standard_deviation()

    @property
    def n_labels(self) -> int | None:
        """The number m of `Labels`; None if the targets are not labels."""
        return None

    def default_distance(self) -> Any:
        """The distance in `product_kernel`; None stands for MeanEmbeddingDistance."""
        return None


@row_methods
class Discrete(Distribution):
    """Predictions of labels or counts: what `note_on_rare_events` needs."""

    target_kind = "integer"

    def off_mode_probability(self) -> jax.Array:
        """P(Y is not its most probable value), ``[n]``; infinite if that is not known."""
        leaf = jax.tree.leaves(self)[0]
        return jnp.full(leaf.shape[0], jnp.inf, jnp.result_type(leaf))


class CountLike(Discrete):
    """Predictions of counts 0, 1, …, each of which has a known probability."""

    @property
    @abstractmethod
    def max_count(self) -> int | None:
        """The last count of sums; part of the structure of the pytree.  None if it is unknown."""

    @abstractmethod
    def probability(self, count: jax.Array) -> jax.Array:
        """P(Y = count) for Y from *one* prediction, at one count."""


@row_methods
class Labels(Discrete):
    """Predictions of labels 0 … m-1, all of whose probabilities are known."""

    #: Labels have no order, unless their family says so.
    is_ordered = False
    #: Whether a probability of 0 is a label that a row does not have.
    ragged: bool = False

    @property
    def n_labels(self) -> int:
        """The number m of labels."""
        # Parameters of 64 bits may have been made where jax has such numbers, unlike here.
        of_32_bits = jax.tree.map(lambda x: jax.ShapeDtypeStruct(jnp.shape(x), np.float32), self)
        return jax.eval_shape(lambda p: p.label_probabilities(), of_32_bits).shape[-1]

    @abstractmethod
    def label_probabilities(self) -> jax.Array:
        """The probabilities of all m labels, ``[n, m]``, or ``[m]`` of one prediction."""

    def off_mode_probability(self) -> jax.Array:
        """P(Y is not its most probable label), ``[n]``."""
        # A sum of the others keeps the digits of small probabilities, which 1 - max would lose.
        return jnp.sum(jnp.sort(self.label_probabilities(), axis=1)[:, :-1], axis=1)


class Binary(Labels):
    """Predictions of the labels 0 and 1, of which one probability says it all."""

    n_labels = 2

    @abstractmethod
    def binary_probability(self) -> jax.Array:
        """P(Y = 1), ``[n]``, or a number of one prediction."""


def as_labels(predictions: Distribution) -> Labels:
    """The predictions; a TypeError if they have no probabilities of labels."""
    if not isinstance(predictions, Labels):
        raise TypeError(f"{type(predictions).__name__} predictions have no label probabilities.")
    return predictions


def as_binary(predictions: Distribution) -> Binary:
    """The predictions; a TypeError if they have no probability of an event."""
    if not isinstance(predictions, Binary):
        raise TypeError(f"{type(predictions).__name__} predictions have no event probability.")
    return predictions


def _with_parts(predictions: D, function: Callable[[Distribution], Distribution]) -> D:
    """The predictions with a function of the predictions inside them."""
    for name, part in vars(predictions).items():
        if isinstance(part, Distribution):
            predictions = with_fields(predictions, **{name: function(part)})
    return predictions


def of_part(name: str, found: dict[str, T]) -> dict[str, T]:
    """What is known of the parameters of a distribution that another one holds by this name."""
    return {f"{name}.{parameter}": x for parameter, x in found.items()}


def has_own(family: type[Distribution], *methods: str) -> bool:
    """Whether a family overrides one of these methods."""
    return any(getattr(family, name) is not getattr(Distribution, name) for name in methods)
