"""Predictions over finitely many classes, and of an event."""

import dataclasses
from collections.abc import Callable
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from calibjax._base.check import check_flag
from calibjax._base.struct import is_rounded, repeated, static, struct, widened, widened_integers
from calibjax._data.checks import valid_rows
from calibjax._data.distribution import Binary, Labels
from calibjax._numbers.arithmetic import dot, fast_where
from calibjax._numbers.tempering import as_before, tempered_probabilities
from calibjax._numbers.unit_interval import falls_short, integer_or_invalid
from calibjax._numbers.validity import TOLERANCE, probability_vectors
from calibjax.expectations.dispatch import finite_sums
from calibjax.kernels import TotalVariation

#: In ragged predictions up to this the probability of a class that a row has is 0.
LEAST_OF_CLASS = 2.0**-119


def _where_good(
    are_good: jax.Array, function: Callable[[jax.Array], jax.Array], logits: jax.Array
) -> jax.Array:
    """A function of logits; other ones, as in masked rows, have NaN and the gradient 0."""
    return fast_where(are_good, function(fast_where(are_good, logits, 0.0)), jnp.nan)


@finite_sums
@struct
class Categorical(Labels):
    """Class probabilities: P(Y = c) = probs[c] for c = 0, …, m-1.

    Args:
        probs: array ``[n, m]``; rows are nonnegative and sum to one (within 1e-3).
        ragged: whether rows have fewer classes or more, as questions have options: a number of
            exactly 0 is a class that its row does not have, and numbers up to 2^-119 are the
            probability 0 of a class that it has.  Otherwise 0 is a probability.  Recalibrators are
            told by it.
        normalize: divide each nonnegative row by its sum, whatever this is; for probabilities that
            were rounded, for percentages or for counts.

    Targets are integer labels ``0 … m-1`` of shape ``[n]``.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Categorical(jnp.array([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3]]))
        >>> predictions.log_prob(jnp.array([0, 2])).round(3).tolist()
        [-0.357, -1.204]
        >>> cj.Categorical(jnp.array([[0.33, 0.33, 0.33]]), normalize=True).probs.round(3).tolist()
        [[0.333, 0.333, 0.333]]
    """

    probs: jax.Array
    ragged: bool = static(default=False)

    shapes = {"probs": "n m"}
    one_axis_less = "; probabilities [n] of an event are calibjax.Bernoulli(probs)"

    @classmethod
    def from_logits(cls, logits: ArrayLike) -> Self:
        """Predictions softmax(logits), from logits ``[n, m]``.

        The probabilities are at least float32, and their gradients are always finite.
        """
        logits = widened(jnp.asarray(logits))
        are_good = jnp.isfinite(jnp.max(logits, axis=-1, keepdims=True))
        return cls(_where_good(are_good, jax.nn.softmax, logits))

    def __init__(self, probs: jax.Array, ragged: bool = False, *, normalize: bool = False) -> None:
        if check_flag("normalize", normalize):
            probs = _normalized(jnp.asarray(probs))
        vars(self).update(probs=probs, ragged=check_flag("ragged", ragged))

    def with_common_structure(self) -> Self:
        return dataclasses.replace(self, probs=self.label_probabilities(), ragged=False)

    def constraints(self) -> dict[str, tuple[str, jax.Array]]:
        words, valid = probability_vectors(self.probs)
        advice = "normalize=True divides rows by their sums"
        if self.probs.shape[-1] == 1:
            advice = "one column of probabilities is calibjax.Bernoulli(probs[:, 0])"
        return {"probs": (f"{words} ({advice})", valid)}

    def supports(self, targets: jax.Array) -> tuple[str, jax.Array]:
        n_classes = self.probs.shape[-1]
        targets = widened_integers(targets)
        return f"labels in 0 … {n_classes - 1}", (targets >= 0) & (targets < n_classes)

    def mean(self) -> jax.Array:
        """The mean of each label, taken as a number, ``[n]``."""
        return dot(self.probs, jnp.arange(self.probs.shape[-1], dtype=self.probs.dtype))

    def variance(self) -> jax.Array:
        """The variance of each label, taken as a number, ``[n]``."""
        labels = jnp.arange(self.probs.shape[-1], dtype=self.probs.dtype)
        squares = jnp.square(labels[None, :] - self.mean()[:, None])
        return jnp.sum(self.probs * squares, axis=-1)

    def sample(self, key: jax.Array, shape: tuple[int, ...] = ()) -> jax.Array:
        """Draws: labels ``[*shape, n]``."""
        return jax.random.categorical(key, jnp.log(repeated(self, shape).probs)).astype(jnp.int32)

    def log_prob(self, targets: jax.Array) -> jax.Array:
        """log probs[i, targets[i]], ``[n]``."""
        return label_log_prob(self.label_probabilities(), targets)

    def tails(self, targets: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The probabilities of labels up to targets[i] and above it, over that of all labels."""
        labels = jnp.arange(self.probs.shape[-1], dtype=jnp.int32)
        up_to = labels[None, :] <= targets[:, None].astype(jnp.int32)
        sums = (jnp.sum(jnp.where(x, self.probs, 0.0), axis=-1) for x in (up_to, ~up_to))
        below, above = (x / jnp.sum(self.probs, axis=-1) for x in sums)
        return below, above

    def quantile(self, level: jax.Array) -> jax.Array:
        """The smallest labels up to which the probability is at least the level, ``[n]``, int32."""
        sums = jnp.cumsum(self.probs, axis=-1)
        return integer_or_invalid(level, jnp.sum(falls_short(sums, level[:, None]), axis=-1))

    def label_probabilities(self) -> jax.Array:
        """The probabilities of all classes, ``[n, m]``."""
        return jnp.where(self.probs <= LEAST_OF_CLASS, 0, self.probs) if self.ragged else self.probs

    def default_distance(self) -> TotalVariation:
        return TotalVariation()

    def tempered(self, temperature: jax.Array) -> Self:
        """The predictions with densities proportional to p^(1 / temperature)."""
        probs = tempered_probabilities(self.label_probabilities(), valid_rows(self), temperature)
        if self.ragged:  # The classes that rows have are those that they had.
            probs = jnp.maximum(probs, jnp.minimum(self.probs, LEAST_OF_CLASS / 2))
        return dataclasses.replace(self, probs=as_before(self.probs, probs))


def _normalized(probs: jax.Array) -> jax.Array:
    """Rows divided by their sums; invalid rows as they are, so that they are reported."""
    probs = widened(probs)
    totals = jnp.sum(probs, axis=-1, keepdims=True)
    valid = jnp.all(probs >= 0, axis=-1, keepdims=True) & (totals > 0) & jnp.isfinite(totals)
    return probs / jnp.where(valid, totals, 1.0)


def label_log_prob(probs: jax.Array, targets: jax.Array) -> jax.Array:
    """log probs[i, targets[i]], ``[n]``."""
    return jnp.log(jnp.take_along_axis(probs, targets[..., None], axis=-1)[..., 0])


class Ordinal(Categorical):
    """Probabilities of ordered classes, such as grades: P(Y = c) = probs[c] for c = 0, …, m-1.

    Everything is as for `Categorical`, but where the order counts: in the cdf, the PIT, and the
    CRPS, which is the ranked probability score

    .. math::
        \\sum_{c = 0}^{m - 2} (P(Y \\le c) - 1\\{y \\le c\\})^2.

    `evaluate` shows both beside accuracy and reliability.  `default_kernel` is the kernel of
    numbers, which compares U = F(y).  `calibration_test` uses the kernels of classes, which detect
    that a middle class is too rare, and a kernel of U, which detects that targets are higher than
    predicted: with 150 rows, 5 classes and logits shifted by 0.5, its power was 74 %, and 28 % with
    Categorical predictions.  Other kernels do not know the order, unless their target kernel does:
    LaplacianKernel(1.0) counts classes 4 and 5 as more alike than 1 and 5.

    Args:
        probs: array ``[n, m]``, classes in their order; rows are nonnegative and sum to one (within
            1e-3).
        ragged: whether rows have fewer classes or more, as for `Categorical`.
        normalize: divide each nonnegative row by its sum, whatever this is.

    Targets are integer labels ``0 … m-1`` of shape ``[n]``.

    See also:
        `Categorical` for classes without an order, `Binomial` for counts.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Ordinal(jnp.array([[0.5, 0.25, 0.25], [0.5, 0.25, 0.25]]))
        >>> cj.crps(predictions, jnp.array([1, 2])).tolist()
        [0.3125, 0.8125]
        >>> predictions.quantile(0.6).tolist(), predictions.survival(jnp.array([0, 1])).tolist()
        ([1, 1], [0.5, 0.25])

    Reference: Epstein, A scoring system for probability forecasts of ranked categories, Journal of
    Applied Meteorology 1969.
    """

    is_ordered = True


@finite_sums
@struct
class Bernoulli(Binary):
    """Binary predictions: P(Y = 1) = probs.

    All results are equal to the results of the two-class Categorical with probabilities
    ``[1 - probs, probs]``.

    Args:
        probs: array ``[n]`` with values in [0, 1].
        complement: P(Y = 0), ``[n]``, where 1 - probs would lose its digits: in float32 1 - 1e-9
            is 1.  None stands for 1 - probs; functions of rows take it from probabilities in
            float64 of NumPy, before jax rounds these.

    Predictions of `from_logits` and of maps have a complement: they are pytrees of two arrays,
    which ``jax.tree.map`` cannot combine with those of one, and other `probs` need another
    complement; ``Bernoulli(predictions.probs)`` has none.

    Targets are booleans or integers 0 and 1 of shape ``[n]``.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> cj.Bernoulli(jnp.array([0.25, 0.5])).variance().tolist()
        [0.1875, 0.25]
    """

    probs: jax.Array
    complement: jax.Array | None = dataclasses.field(default=None, kw_only=True)

    @classmethod
    def from_logits(cls, logits: ArrayLike) -> "Bernoulli":
        """Predictions 1 / (1 + exp(-logits)), from logits ``[n]``.

        The probabilities are at least float32, and their gradients are always finite.
        """
        logits = widened(jnp.asarray(logits))
        probs, rest = (_where_good(x == x, jax.nn.sigmoid, x) for x in (logits, -logits))
        return cls(probs, complement=rest)

    @property
    def shapes(self) -> dict[str, str]:
        return {"probs": "n"} if self.complement is None else {"probs": "n", "complement": "n"}

    def with_full_precision(self) -> Self:
        if self.complement is not None or not is_rounded(self.probs):
            return self
        complement: Any = np.maximum(1 - self.probs, 0)
        return dataclasses.replace(self, complement=complement)

    def with_common_structure(self) -> Self:
        return dataclasses.replace(self, complement=None)

    def constraints(self) -> dict[str, tuple[str, jax.Array]]:
        words, valid = "in [0, 1]", (self.probs >= 0) & (self.probs <= 1)
        if self.complement is not None:
            valid &= (self.complement >= 0) & (abs(self.probs + self.complement - 1) <= TOLERANCE)
            words += ", and 1 together with complement"
        return {"probs": (words, valid)}

    def _of_zero(self) -> jax.Array:
        """P(Y = 0)."""
        return 1 - self.probs if self.complement is None else self.complement

    def supports(self, targets: jax.Array) -> tuple[str, jax.Array]:
        targets = widened_integers(targets)
        return "0 or 1", (targets == 0) | (targets == 1)

    def mean(self) -> jax.Array:
        """P(Y = 1), ``[n]``."""
        return self.probs

    def variance(self) -> jax.Array:
        """The variance of each target, ``[n]``."""
        return self.probs * self._of_zero()

    def sample(self, key: jax.Array, shape: tuple[int, ...] = ()) -> jax.Array:
        """Draws: integers 0 and 1, ``[*shape, n]``."""
        return jax.random.bernoulli(key, repeated(self, shape).probs).astype(jnp.int32)

    def log_prob(self, targets: jax.Array) -> jax.Array:
        """The log probability of targets 0 and 1, ``[n]``."""
        one = targets == 1
        # The probability of the other target may be 0, and log has no finite derivative at 0.
        of_one = jnp.log(jnp.where(one, self.probs, 1.0))
        if self.complement is not None:
            return jnp.where(one, of_one, jnp.log(jnp.where(one, 1.0, self.complement)))
        return jnp.where(one, of_one, jnp.log1p(-jnp.where(one, 0.0, self.probs)))

    def tails(self, targets: jax.Array) -> tuple[jax.Array, jax.Array]:
        is_first, is_last = targets >= 0, targets >= 1
        below = jnp.where(is_last, 1.0, jnp.where(is_first, self._of_zero(), 0.0))
        return below, jnp.where(is_last, 0.0, jnp.where(is_first, self.probs, 1.0))

    def quantile(self, level: jax.Array) -> jax.Array:
        """0 where P(Y = 0) is at least the level, else 1, ``[n]``, int32."""
        return integer_or_invalid(level, self._of_zero() < level)

    def label_probabilities(self) -> jax.Array:
        """The probabilities of 0 and 1, ``[n, 2]``."""
        return jnp.stack([self._of_zero(), self.probs], axis=-1)

    def binary_probability(self) -> jax.Array:
        """The probability of 1."""
        return self.probs

    def default_distance(self) -> TotalVariation:
        return TotalVariation()

    def tempered(self, temperature: jax.Array) -> Self:
        """The predictions with densities proportional to p^(1 / temperature)."""
        probs = self.label_probabilities().astype(temperature.dtype)
        probs = tempered_probabilities(probs, valid_rows(self), temperature)
        complement = None if self.complement is None else probs[..., 0]
        tempered = dataclasses.replace(self, probs=probs[..., 1], complement=complement)
        return jax.tree.map(as_before, self, tempered)
