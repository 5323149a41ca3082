"""What every family of predictive distributions offers."""

from abc import ABC, abstractmethod
from typing import Any, Self

import jax


class Distribution(ABC):
    """A batch of n predictive distributions of one family: arrays with leading axis n.

    A family is a `struct` of arrays with the attributes and methods below (and `log_prob` where
    it has a density); estimators and tests ask for nothing else.  Inside a kernel or a closed form
    the same class stands for *one* prediction: its arrays without the batch axis.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Normal(jnp.zeros(5), jnp.ones(5))
        >>> isinstance(predictions, cj.Distribution), predictions.variance().shape
        (True, (5,))
        >>> predictions[:3].loc.shape, predictions[0].loc.shape
        ((3,), ())
    """

    def __getitem__(self, rows: Any) -> Self:
        """Some predictions of the batch, or one: by slice, integers or a mask, as of arrays."""
        n = jax.tree.leaves(self)[0].shape[0]
        if isinstance(rows, int) and not -n <= rows < n:
            raise IndexError(f"rows must be between {-n} and {n - 1}, got {rows}.")
        return jax.tree.map(lambda x: x[rows], self)

    @property
    @abstractmethod
    def shapes(self) -> dict[str, str]:
        """The symbolic shape of every parameter, for example "n d"; the batch is "n"."""

    @property
    @abstractmethod
    def target_shape(self) -> str:
        """The symbolic shape of the targets."""

    @property
    @abstractmethod
    def target_kind(self) -> str:
        """Either "integer", for labels and counts, or "real"."""

    @abstractmethod
    def constraints(self) -> dict[str, tuple[str, jax.Array]]:
        """For each parameter what it must be, in words, and for which rows it is: ``[n]``."""

    @abstractmethod
    def supports(self, targets: jax.Array) -> tuple[str, jax.Array]:
        """What targets must be, in words, and which of them are: ``[n]``."""

    @abstractmethod
    def mean(self) -> jax.Array:
        """The mean of each prediction."""

    @abstractmethod
    def variance(self) -> jax.Array:
        """The variance of each prediction, one for each coordinate."""

    @abstractmethod
    def sample(self, key: jax.Array, shape: tuple[int, ...] = ()) -> jax.Array:
        """Independent draws from each prediction; `shape` stands in front of the batch."""
