"""Which kernels covariates have, and which features each of them is made of."""

import functools
import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

# Features of a column alone, and in products, in which a_k = 1 / k and 1 / k^2.
_COSINES, _FEW_COSINES = 4, 2
_DECAY, _FAST_DECAY = 1.0, 2.0
# Features of categories in products.
_FEW_CATEGORIES = 8


class Singles(NamedTuple):
    """Features of one column each, ``[S]``.

    Args:
        column: which column each is of.
        block: a column alone and a column in products are blocks, which have one scale each.
        frequency: k.
        category: the category that a feature indicates, and -1 if it is a cosine.
        size: the root of a_k.
    """

    column: np.ndarray
    block: np.ndarray
    frequency: np.ndarray
    category: np.ndarray
    size: np.ndarray


class Products(NamedTuple):
    """Features that are products of two: factor times single `left` times single `right`, ``[P]``.

    Args:
        left, right: two features of one column.
        factor: the root of the factor of the kernel.
        owner: the number of the kernel among those of pairs, and of predictions and a column.
    """

    left: np.ndarray
    right: np.ndarray
    factor: np.ndarray
    owner: np.ndarray


class ColumnKernels(NamedTuple):
    """The kernels of d covariates and of some coordinates of the predictions.

    There is one of each column, of each pair of columns, and of the predictions and each column.
    Behind each of these three kinds, if it has several, stands their mean.

    Args:
        sizes: the number of categories of each covariate, and 0 for numbers.
        n_coordinates: the number of coordinates of the predictions.
    """

    sizes: tuple[int, ...]
    n_coordinates: int

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """The pairs of covariates."""
        return list(itertools.combinations(range(len(self.sizes)), 2))

    @property
    def counts(self) -> tuple[int, int, int]:
        """How many kernels there are of columns, of pairs, and of predictions and a column."""
        return len(self.sizes), len(self.pairs), len(self.sizes)

    @property
    def n_kernels(self) -> int:
        """The number T of all kernels, the means of the kinds among them."""
        return sum(n + (n > 1) for n in self.counts)

    @property
    def families(self) -> tuple[int, ...]:
        """1 for kernels of columns, 2 of pairs, and 3 of predictions and a column, ``T``."""
        kinds = enumerate(self.counts, start=1)
        return tuple(kind for kind, n in kinds for _ in range(n + (n > 1)))

    def singles(self) -> Singles:
        """The features of single columns: covariates alone, and in products, and coordinates."""
        alone = [_of_column(size, _COSINES, size, _DECAY) for size in self.sizes]
        few = [
            _of_column(size, _FEW_COSINES, min(size, _FEW_CATEGORIES), _FAST_DECAY)
            for size in (*self.sizes, *(0,) * self.n_coordinates)
        ]
        d, parts = len(self.sizes), [*alone, *few]
        counts = [len(part) for part in parts]
        columns = [*range(d), *range(len(few))]
        frequency, category, size = np.concatenate(parts).T
        return Singles(
            column=np.repeat(np.array(columns, np.int32), counts),
            block=np.repeat(np.arange(len(parts), dtype=np.int32), counts),
            frequency=frequency,
            category=category,
            size=size,
        )

    def products(self) -> Products:
        """The features of pairs, and of the predictions and a column."""
        return _products(self)

    def of_features(self, squares: jax.Array) -> jax.Array:
        """The forms of all kernels ``[T, …]`` from those of their features ``[S' + P, …]``."""
        block, d = self.singles().block, len(self.sizes)
        owners = np.concatenate([block[block < d], d + self.products().owner])
        forms = jax.ops.segment_sum(squares, owners, sum(self.counts), indices_are_sorted=True)
        kinds = jnp.split(forms, np.cumsum(self.counts)[:-1])
        parts = [(x, jnp.mean(x, axis=0, keepdims=True)) if x.shape[0] > 1 else (x,) for x in kinds]
        return jnp.concatenate(list(itertools.chain(*parts)))


def _of_column(size: int, n_cosines: int, n_categories: int, decay: float) -> np.ndarray:
    """(frequency, category, size) of each feature of a column."""
    if size:
        return np.array([(0.0, c, 1.0) for c in range(n_categories)])
    return np.array([(k, -1.0, k ** (-decay / 2)) for k in range(1, n_cosines + 1)])


@functools.cache
def _products(kernels: ColumnKernels) -> Products:
    block, d, c = kernels.singles().block, len(kernels.sizes), kernels.n_coordinates
    # Blocks d, …, 2 d - 1 are of covariates in products, and those behind them of coordinates.
    of_block = [np.flatnonzero(block == k).astype(np.int32) for k in range(d, 2 * d + c)]
    pairs = [(i, (j, k), 1.0) for i, (j, k) in enumerate(kernels.pairs)]
    with_predictions = [(len(pairs) + j, (j, d + k), c**-0.5) for j in range(d) for k in range(c)]
    left, right, factor, owner = [], [], [], []
    for kernel, (j, k), size in pairs + with_predictions:
        a, b = np.meshgrid(of_block[j], of_block[k], indexing="ij")
        left.append(a.ravel())
        right.append(b.ravel())
        factor.append(np.full(a.size, size))
        owner.append(np.full(a.size, kernel, np.int32))
    return Products(*map(np.concatenate, (left, right, factor, owner)))
