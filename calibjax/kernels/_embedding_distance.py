"""The distance of embeddings of predictions."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from calibjax._distribution import Distribution
from calibjax._loops import (
    slope_of_square_beyond_rounding,
    square_beyond_rounding,
    sum_over_coordinates,
)
from calibjax._struct import is_array, struct, widest_dtype
from calibjax.kernels._base import vmap_pairs
from calibjax.kernels._distance import Coordinates, NormDistance

# Up to this number, each number of an embedding is a coordinate of its own.
_FEW = 4


@struct
class EmbeddingDistance(NormDistance):
    """|phi(p) - phi(q)|, the Euclidean distance of an embedding of the predictions.

    Args:
        phi: function of *one* prediction (arrays without the batch axis) that returns a scalar or
            a vector.  A function that is defined again is compiled again: define it once, and
            let `jax.tree_util.Partial` carry what changes.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> distance = cj.EmbeddingDistance(lambda p: p.loc)
        >>> predictions = cj.Normal(jnp.array([0.0, 3.0]), jnp.array([1.0, 5.0]))
        >>> float(distance.pairwise(predictions, predictions)[0, 1])
        3.0
    """

    phi: Callable[[Any], jax.Array]

    inner_functions = {"phi": "an embedding"}

    def _value(self, p: Distribution) -> jax.Array:
        """phi(p) as an array of the dtype of p."""
        value = self.phi(p)
        if not is_array(value):
            raise TypeError(
                "phi of EmbeddingDistance must return a scalar or a vector, got "
                f"{type(value).__name__}."
            )
        return jnp.asarray(value).astype(widest_dtype(*jax.tree.leaves(p)))

    def squared(self, p: Distribution, q: Distribution) -> jax.Array:
        return self.squared_norm(self.coordinates(p), self.coordinates(q))

    def coordinates(self, p: Distribution) -> Coordinates:
        value = self._value(p)
        # Tiles of single numbers are made in one loop, which is faster than tiles of vectors.
        return tuple(value) if value.ndim == 1 and value.size <= _FEW else (value,)

    def squared_norm(self, xs: Coordinates, ys: Coordinates) -> jax.Array:
        # Equal predictions may differ in the last bit of phi, which compiled loops round in more
        # than one way: equal up to rounding is equal, or the norm would have a slope of 1 there.
        squares = (jnp.sum(square_beyond_rounding(x, y)) for x, y in zip(xs, ys, strict=True))
        return functools.reduce(jnp.add, squares)

    def tile(self, xs: Coordinates, ys: Coordinates) -> jax.Array:
        if all(x.ndim == 1 for x in xs):
            return vmap_pairs(self.squared_norm)(xs, ys)
        (x,), (y,) = xs, ys
        x, y = x.reshape(x.shape[0], -1), y.reshape(y.shape[0], -1)
        return sum_over_coordinates(square_beyond_rounding, slope_of_square_beyond_rounding, x, y)

    def embedding(self, p: Distribution) -> jax.Array:
        """phi(p), a vector, of one prediction."""
        return jnp.ravel(self._value(p))
