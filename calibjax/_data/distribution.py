"""The interface of all families of predictive distributions."""

import functools
from abc import ABC, abstractmethod
from collections.abc import Iterator
from operator import attrgetter
from typing import Any, ClassVar, Self, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from calibjax._base.parameters import as_table, in_words, share_numbers
from calibjax._base.struct import indexed, widened, widened_integers
from calibjax._data.row_methods import row_methods
from calibjax._numbers.derivatives import safe_sqrt
from calibjax._numbers.unit_interval import UnitInterval, interval
from calibjax._numbers.validity import FINITE, Constraint

T = TypeVar("T")


def _complete_family(cls: type["Distribution"]) -> None:
    """What `struct` does to each family, whose methods are written for a batch."""
    row_methods(cls)
    if "cdf" in vars(cls) and "tails" not in vars(cls):
        # A new cdf does not have the tails of a parent.
        type.__setattr__(cls, "tails", Distribution.tails)


@row_methods
class Distribution(ABC):
    """A batch of n predictive distributions of one family: arrays with leading axis n.

    A family is a `struct` of arrays with the abstract methods below, one of `variance` and
    `standard_deviation`, and `log_prob` where it has a density.  Every other method and attribute
    has a default.  Inside a kernel or a closed form the same class stands for *one* prediction, and
    its arrays have no batch axis.  Methods are written for a batch: of one prediction they are
    called with a batch of one.  Those that compute with parameters have them, and real targets, as
    floating-point numbers of one dtype, at least float32, and a level as one number for each
    prediction.  A direct subclass of Distribution is decorated with `struct`, since
    `jax.tree_util.register_dataclass` gives classes with the same names of fields equal structures;
    a subclass of a family, such as `Univariate`, is one by itself.

    A number for a parameter of shape "n" is shared by all predictions, if another parameter says
    how many these are, but in a direct subclass that `register_dataclass` has registered, whose
    constructor jax calls.  The length of a batch is n.

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
    #: Whether some quantiles or samples are all that is known: `known_quantiles`.
    has_known_quantiles: ClassVar[bool] = False
    #: Whether the density, if there is one, has no jumps.
    has_continuous_density: ClassVar[bool] = True
    #: Why the family has no `tempered`: the end of an error message, after "got <family>".
    untempered: ClassVar[str] = ""
    #: What else an array without one of the axes may be, for the end of an error message.
    one_axis_less: ClassVar[str] = ""
    #: The conditions on parameters, by name; all others must be finite.
    conditions: ClassVar[dict[str, Constraint]] = {}
    #: The condition on a target, or on each coordinate of one.
    condition_on_targets: ClassVar[Constraint] = FINITE

    #: What `struct` calls with each family.
    complete_struct = staticmethod(_complete_family)
    __repr__ = in_words
    _repr_html_ = as_table

    def _complete(self) -> None:
        """Checks and converts the parameters; jax rebuilds predictions without it."""
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

    def keeping_digits(self) -> Self:
        """The same predictions, with numbers that differences need before jax rounds parameters."""
        return self

    def without_marks(self) -> Self:
        """The predictions as other batches of the family are: their structure depends on no row."""
        return self

    def repeated(self, shape: tuple[int, ...]) -> Self:
        """The parameters, widened, once for each of the draws ``[*shape, n]``."""
        return jax.tree.map(lambda x: jnp.broadcast_to(x, (*shape, *x.shape)), widened(self))

    def parameter(self, name: str) -> jax.Array:
        """The parameter of this name in `shapes`."""
        return attrgetter(name)(self)

    @property
    def n_batch_axes(self) -> int:
        """1 for a batch, 0 for one prediction, and 2 for the components of a batch of mixtures."""
        for part in vars(self).values():
            if isinstance(part, Distribution):
                return part.n_batch_axes
        for name, axes in self.shapes.items():
            if axes[0] == "n":
                n_own = len(axes.replace("...", "").split()) - 1
                return jnp.ndim(self.parameter(name)) - n_own
        raise TypeError(f"{type(self).__name__} has no parameter with the axis n of a batch.")

    def with_batch_axes(self, n_axes: int) -> Self:
        """The same predictions; a family whose arrays do not tell their `n_batch_axes` keeps it."""
        return self

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
        found = {}
        for name in self.shapes:
            found[name] = self.conditions.get(name, FINITE).of_rows(self.parameter(name))
        return found

    def supports(self, targets: jax.Array) -> tuple[str, jax.Array]:
        """The condition on targets in words, and which targets satisfy it, ``[n]``."""
        return self.condition_on_targets.of_rows(targets)

    def upper_ends(self, ends: jax.Array) -> jax.Array:
        """Which numbers may be the upper end of an interval, ``[n]``, by default all targets."""
        return self.supports(ends)[1]

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

        By default it is the second one of the `tails` of the family.  Of a family with nothing but
        a `cdf` it is 1 - F(y), which is 0 where F(y) rounds to 1.
        """
        return self.tails(targets)[1] if has_own(type(self), "tails") else 1 - self.cdf(targets)

    def tails(self, targets: jax.Array) -> tuple[jax.Array, jax.Array]:
        """`cdf` and `survival`, each of which has all digits down to the smallest numbers."""
        return self.cdf(targets), self.survival(targets)

    @property
    def has_cdf(self) -> bool:
        """Whether a target is a number with a cdf."""
        return self.target_shape == "n" and has_own(type(self), "cdf", "tails")

    def cdf_jump(self, targets: jax.Array) -> tuple[jax.Array, jax.Array]:
        """P(Y < targets[i]) and P(Y <= targets[i]), each ``[n]``; by default only integers jump."""
        if self.target_kind == "real":
            at = self.cdf(targets)
            return at, at
        before, at = jax.vmap(self.cdf)(_both_ends(targets))
        return before, at

    def pit_intervals(self, targets: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Where U = F(y) may be, the lower and the upper ends of R intervals, each ``[n, R]``.

        If the targets are drawn from the predictions, U is uniform in [0, 1], and given the target
        it is even in one of these intervals, or in a mixture of them that is not known.  By default
        there is one interval, the jump of the cdf.
        """
        before, after = self.cdf_jump(targets)
        return before[:, None], after[:, None]

    def restricted(self, targets: jax.Array) -> jax.Array:
        """Targets as `mean` and `variance` see them, up to the last number that is forecast.

        By default they are the targets, since a forecast is about all numbers.
        """
        return targets

    @property
    def is_ordered(self) -> bool:
        """Whether a target is a number with a cdf, so that a `PITKernel` sees every error."""
        return self.has_cdf

    @property
    def takes_intervals(self) -> bool:
        """Whether targets may be `Between`: the forecast says what the cdf is at every number."""
        return self.has_cdf

    @property
    def has_atoms(self) -> bool:
        """Whether U = F(y) is not one number: the cdf may jump, or the targets are vectors.

        By default it jumps for integers, and where `cdf_jump` says so.
        """
        jumps = type(self).cdf_jump is not Distribution.cdf_jump
        return self.target_kind == "integer" or self.target_shape != "n" or jumps

    @property
    def compared_with_targets(self) -> tuple[str, ...]:
        """The names of parameters that a target may be equal to, such as samples or quantiles.

        Where these and the targets come in two precisions, both are rounded to the coarser one.
        """
        return ()

    @property
    def is_exchangeable(self) -> bool:
        """Whether the target might be any of the values of `exchangeable_pool`: of samples."""
        return False

    def standard_scores(self, targets: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """z = (y - mean) / deviation, of which any value of `exchangeable_pool` has its own.

        Returns:
            z of the targets ``[n]`` or ``[n, d]``, z of all values of the pool ``[n, S, …]`` with
            the mean 0 and the variance 1, or 0 if these are equal, and their probabilities
            ``[n, S]``.
        """
        raise TypeError(
            "standard scores are defined for samples (Empirical), got "
            f"{type(self).__name__} predictions; normal scores are defined for all."
        )

    @property
    def has_unit_box(self) -> bool:
        """Whether a `PITKernel` sees vectors, by their `unit_box`."""
        return False

    def unit_box(self, targets: jax.Array) -> UnitInterval:
        """Where U_1, …, U_d of target vectors lie on the unit line, each end ``[n, d]``.

        They are independent and uniform if the targets are drawn from the predictions.  No units of
        the coordinates change them.
        """
        raise TypeError(
            f"{type(self).__name__} predictions of vectors have no known PIT of each coordinate; "
            "TensorProduct compares vectors."
        )

    def unit_boxes_of_pool(self) -> tuple[UnitInterval, jax.Array | None] | None:
        """The `unit_box` of S vectors that might all be the target, each end ``[n, S, d]``.

        With them which of these exist, ``[n, S, 1]``; None if all do.

        None for all other predictions: then U_1, …, U_d are independent, and here they need not be.
        """
        return None

    def unit_interval(self, targets: jax.Array) -> UnitInterval:
        """What predictions say about targets: where U = F(y) lies, each end ``[n]``."""
        if self.target_kind == "integer":
            below, above = jax.vmap(self.tails)(_both_ends(targets))
            return UnitInterval(*below, *above)
        if self.has_atoms:
            return interval(*self.cdf_jump(targets))
        at, above = self.tails(targets)
        return UnitInterval(at, at, above, above)

    def pit_distribution(self) -> Any:
        """The distributions of U = F(Y), for predictions of which tests judge U and not the target.

        None for others.  Such predictions give the cdf at some `levels` only, which the
        distributions have too, and `pit_intervals` are between them.
        """
        return None

    def quantile(self, level: jax.Array) -> jax.Array:
        """The smallest y with P(Y <= y) >= level, ``[n]``; `level` is a number or ``[n]``.

        At the levels 0 and 1 it is the end of the support.  Any other level that is not between
        them is a ValueError; inside jit it gives NaN, or -1 for labels and counts.
        """
        raise TypeError(f"{type(self).__name__} predictions have no quantile.")

    def known_quantiles(self) -> tuple[jax.Array, jax.Array]:
        """The levels ``[L]`` of the quantiles that are all that is known, and these, ``[n, L]``."""
        raise TypeError(f"{type(self).__name__} predictions are about all numbers.")

    def with_quantiles(self, values: jax.Array) -> Self:
        """The same predictions with other values ``[n, L]`` of their `known_quantiles`."""
        raise TypeError(f"{type(self).__name__} predictions are about all numbers.")

    def crps_closed_form(self, targets: jax.Array) -> jax.Array | None:
        """The continuous ranked probability score of each target, ``[n]``; None without a formula.

        `crps` then computes it from the cdf.
        """
        return None

    def mean_absolute_difference(self, other: Self) -> jax.Array | None:
        """E|Z - Z'| for independent Z and Z' from *one* prediction each; None without a formula."""
        return None

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
        """The number m of `Labels`; None if the targets are no labels."""
        return None

    def default_distance(self) -> Any:
        """The distance in `product_kernel`; None stands for MeanEmbeddingDistance."""
        return None

    def wasserstein_embedding(self) -> jax.Array | None:
        """A vector for *one* prediction; None if the family has none.

        The Euclidean distance of two such vectors is the 2-Wasserstein distance of the predictions.
        """
        return None

    def wasserstein_coordinates(self) -> tuple[jax.Array, ...] | None:
        """`wasserstein_embedding` in parts: two numbers are faster than a vector of two."""
        vector = self.wasserstein_embedding()
        return None if vector is None else (vector,)

    def squared_wasserstein(self, other: Self) -> jax.Array:
        """The squared 2-Wasserstein distance of *one* prediction to another of the family."""
        ours, theirs = self.wasserstein_coordinates(), other.wasserstein_coordinates()
        if ours is None or theirs is None:
            raise wasserstein_refused(self)
        squares = (jnp.sum(jnp.square(x - y)) for x, y in zip(ours, theirs, strict=True))
        return functools.reduce(jnp.add, squares)

    def cross_fit_pairs(self) -> tuple[tuple[Self, Self], ...]:
        """What h sees of *one* prediction: pairs (compared, subtracted), over which it averages.

        The kernel on predictions compares the first of a pair.  The second is the distribution
        whose mean embedding is subtracted from the embedding of the target.  Both are the
        prediction itself, but for one that is given by draws, where they are halves of these.
        """
        return ((self, self),)

    def characteristic(self, v: jax.Array) -> jax.Array:
        """E exp(i <v, Z>) for Z from *one* prediction, a complex number; v is shaped like Z."""
        families = families_with("characteristic", "label_probabilities")
        raise TypeError(
            f"random features are defined for {families} predictions, got {type(self).__name__}."
        )

    @property
    def pieces_of_pit(self) -> int | tuple[float, ...] | None:
        """What is known of a PIT: a rank among so many members, or between which levels it is.

        None if it is a number, or if that depends on the row.
        """
        return None

    def exchangeable_pool(self, targets: jax.Array) -> tuple[Self, jax.Array]:
        """Predictions whose `sample` can be exchanged for the targets if the model is calibrated.

        They must not depend on which of the exchangeable values is the target.
        """
        return self, targets

    def tempered(self, temperature: jax.Array) -> Self:
        """The predictions with densities proportional to p^(1 / temperature)."""
        raise tempering_refused(type(self).__name__, self.untempered)

    def tempered_log_prob(self, targets: jax.Array, temperature: jax.Array) -> jax.Array:
        """`log_prob` of the tempered predictions, ``[n]``."""
        return self.tempered(temperature).log_prob(targets)


@row_methods
class Discrete(Distribution):
    """Predictions of labels or counts: what `remark_on_rare_events` needs."""

    @property
    def target_kind(self) -> str:
        return "integer"

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

    @property
    def is_ordered(self) -> bool:
        """Labels have no order, unless their family says so."""
        return False

    @property
    def ragged(self) -> bool:
        """Whether a probability of 0 is a label that a row does not have."""
        return False

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

    @abstractmethod
    def binary_probability(self) -> jax.Array:
        """P(Y = 1), ``[n]``, or a number of one prediction."""


def as_labels(predictions: Distribution) -> Labels:
    """The predictions; a TypeError if they have no probabilities of labels."""
    if not isinstance(predictions, Labels):
        raise TypeError(
            f"{type(predictions).__name__} predictions have no probabilities of labels."
        )
    return predictions


def as_binary(predictions: Distribution) -> Binary:
    """The predictions; a TypeError if they have no probability of an event."""
    if not isinstance(predictions, Binary):
        raise TypeError(
            f"{type(predictions).__name__} predictions have no probability of an event."
        )
    return predictions


def of_part(name: str, found: dict[str, T]) -> dict[str, T]:
    """What is known of the parameters of a distribution that another one holds by this name."""
    return {f"{name}.{parameter}": x for parameter, x in found.items()}


def _both_ends(counts: jax.Array) -> jax.Array:
    """The counts before the targets, and the targets: one program finds tails for both."""
    counts = widened_integers(counts)
    return jnp.stack([counts - 1, counts])


def families_with(*methods: str) -> str:
    """The names of the families that override one of these methods, joined by commas."""

    return ", ".join(sorted({f.__name__ for f in families() if has_own(f, *methods)}))


def has_own(family: type[Distribution], *methods: str) -> bool:
    """Whether a family overrides one of these methods, or has one that others do not have."""
    own = (getattr(family, name, None) is not getattr(Distribution, name, None) for name in methods)
    return any(own)


def families(parent: type[Distribution] = Distribution) -> Iterator[type[Distribution]]:
    """The families: subclasses of Distribution, and of what several families have in common."""
    for child in parent.__subclasses__():
        # A parent of families has no parameters.
        if getattr(child, "__dataclass_fields__", {}):
            yield child
        else:
            yield from families(child)


def wasserstein_refused(predictions: object) -> TypeError:
    """The error for predictions of a family whose Wasserstein distance has no formula."""
    families = families_with("wasserstein_embedding", "squared_wasserstein")
    return TypeError(
        f"Wasserstein is defined for {families} predictions, and MixtureWasserstein for mixtures "
        f"of these, got {type(predictions).__name__}."
    )


def tempering_refused(actual: str, reason: str = "") -> TypeError:
    """The error for predictions that cannot be tempered; `actual` says what came."""
    return TypeError(
        f"predictions must be one of {families_with('tempered')} to be tempered, got "
        f"{actual}{reason}."
    )
