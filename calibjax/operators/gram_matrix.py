"""The matrix H of h: its interface, in memory, by tiles and never stored, of features, in blocks.

With random features it is H = Psi Psi^T, where Psi has few columns.
"""

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax import lax

from calibjax._base.sharding import (
    Axis,
    all_of,
    all_sum,
    as_varying,
    axis_size,
    index_on,
    rows_at,
    rows_from_here,
)
from calibjax._base.struct import PyTree, indexed, static, struct
from calibjax._data.data import Rows, clean, in_dtype
from calibjax._numbers.arithmetic import (
    compensated_add,
    dot,
    eigh_of_kernel,
    fast_where,
    pairs_weight,
)
from calibjax._pairwise.ring import Added, ring, ring_sum
from calibjax._pairwise.tiles import cut, in_chunks, most_tile_rows, pad, tile_sizes, tile_values
from calibjax.discrepancy import SumOfTerms, deviation_tile, h_tile, h_with_itself, prepared
from calibjax.features.random_features import Features, draw_features
from calibjax.features.weighted_sums import map_rows, sum_rows
from calibjax.kernels.base import Sample, times
from calibjax.kernels.check import is_symmetric


class DiscrepancyMatrix(ABC):
    """The symmetric matrix of h_ij over n samples, accessed only through sums of its entries.

    Tests use only these sums, so that each test runs on each operator: on tiles that are computed
    and discarded (`TiledH`), and on a product of two thin matrices (`LowRankH`).

    Attributes:
        weights: how much each row counts, ``[n]``: 1 or 0 for tests, NaN if the data are invalid.
        axis: the mesh axes along which rows are cut among devices, or None.  Sums run over the rows
            of all devices, and arrays ``[n]`` hold the n rows of this device.
    """

    weights: jax.Array
    axis: Axis

    def count(self) -> jax.Array:
        """sum_i w_i, which is the number of kept rows if all weights are 0 or 1."""
        return all_sum(jnp.sum(self.weights), self.axis)

    def trace(self, power: int = 1) -> jax.Array:
        """sum_i w_i^2 h_ii^power."""
        return all_sum(jnp.sum(jnp.square(self.weights) * self.diagonal**power), self.axis)

    def unbiased(self, row_sums: jax.Array) -> jax.Array:
        """The unbiased SKCE, the mean of h_ij over i != j, from the row sums."""
        n = self.count()
        return all_sum(jnp.sum(self.weights * row_sums), self.axis) / (n * (n - 1))

    def standard_error(self, row_sums: jax.Array) -> jax.Array | None:
        """The standard error of `unbiased` if the model is not calibrated, from the row sums.

        It is 2 / sqrt(n) times the standard deviation of E[h((p, y), .)], which the mean of a row
        of H estimates (Hájek projection).  None if the operator cannot tell it.
        """
        n, estimate = self.count(), self.unbiased(row_sums)
        deviations = self.weights * (row_sums / (n - 1) - estimate)
        return 2 * jnp.sqrt(all_sum(jnp.sum(jnp.square(deviations)), self.axis) / (n * (n - 1)))

    @property
    @abstractmethod
    def diagonal(self) -> jax.Array:
        """h_ii, ``[n]``."""

    @abstractmethod
    def row_sums_and_squares(self) -> tuple[jax.Array, jax.Array]:
        """The row sums sum_{j != i} w_j h_ij ``[n]``, and sum_{i != j} w_i w_j h_ij^2.

        Both come from one pass over H.
        """

    @abstractmethod
    def quadratic_forms(self, vectors: jax.Array) -> tuple[jax.Array, jax.Array]:
        """sum_{i != j} v_i v_j h_ij for each row v of `vectors` ``[R, n]``, and the row sums.

        The row sums are sum_{j != i} w_j h_ij, ``[n]``.  Both come from one pass over H.
        """

    @abstractmethod
    def reduced(self) -> jax.Array:
        """A symmetric matrix with the nonzero eigenvalues of the matrix of w_i h_ij w_j.

        It is that matrix itself, or a smaller one.
        """


#: Samples, or what `h_tile` takes of them, and their weights.
WeightedRows = tuple[PyTree, jax.Array]


@struct
class TiledH(DiscrepancyMatrix):
    """H of a kernel on clean data: each sum is one pass over all tiles of pairs, in O(n) memory.

    As H is symmetric, a pass computes one tile for each unordered pair of chunks of rows.  On many
    devices the chunks go round a ring, and each device does its share of the O(n^2) work.

    Args:
        kernel: the parameters of the tiles.
        samples, weights: predictions and targets of n rows, a multiple of `tile_rows`, and how much
            each of them counts.
        tile_rows: how many rows and columns a tile has.
        axis: the mesh axes along which further rows lie on other devices, or None.
    """

    kernel: SumOfTerms
    samples: Sample
    weights: jax.Array
    tile_rows: int = static()
    axis: Axis = static(default=None)

    def pair_sum(self) -> jax.Array:
        """sum_{i != j} w_i w_j h_ij, differentiable in the kernel and the data.

        It can be differentiated forwards, backwards and again, in O(n) memory too.
        """
        return 2 * ring_sum(h_tile, self.axis, self.kernel, self.tiles())

    def pair_weight(self) -> jax.Array:
        """sum_{i != j} w_i w_j."""
        within = pairs_weight(self.weights)
        if self.axis is None:
            return within
        return all_sum(within, self.axis) + pairs_weight(all_of(jnp.sum(self.weights), self.axis))

    def full_weight(self) -> jax.Array:
        """sum_{i, j} w_i w_j."""
        return jnp.square(self.count())

    @functools.cached_property
    def diagonal(self) -> jax.Array:
        return jax.vmap(lambda a: h_with_itself(self.kernel, a))(self.samples)

    def row_sums_and_squares(self) -> tuple[jax.Array, jax.Array]:
        def visit(left: PyTree, right: PyTree, same: jax.Array, factor: jax.Array) -> Added:
            (_, left_weights), (_, right_weights) = left, right
            values = factor * self.off_diagonal(left, right, same)
            of_rows, of_columns = dot(values, right_weights), dot(left_weights, values)
            squares = dot(left_weights, dot(jnp.square(values), right_weights)) / factor
            return 2 * squares, ([], of_rows, of_columns)

        tiles, dtype = self.tiles(), self.weights.dtype
        zeros = jnp.zeros(tiles[1].shape, dtype)
        squares, _, sums = ring(visit, tiles, jnp.zeros((), dtype), [], zeros, self.axis)
        return sums.reshape(-1), all_sum(squares, self.axis)

    def quadratic_forms(self, vectors: jax.Array) -> tuple[jax.Array, jax.Array]:
        n_vectors, dtype = vectors.shape[0], self.weights.dtype
        # Some 10 digits of base 2 of each value are enough where they are multiplied with small
        # whole numbers: draws then change by 2e-4 of their standard deviation.
        is_whole = jnp.issubdtype(vectors.dtype, jnp.integer)
        precision = lax.Precision.HIGH if is_whole else lax.Precision.HIGHEST

        def visit(left: PyTree, right: PyTree, same: jax.Array, factor: jax.Array) -> Added:
            (left, left_vectors), (right, right_vectors) = left, right
            values = factor * self.off_diagonal(left, right, same)
            left_vectors, right_vectors = left_vectors.astype(dtype), right_vectors.astype(dtype)
            of_left = jnp.dot(left_vectors, values, precision=precision)
            both = jnp.sum(of_left * right_vectors, axis=1)
            return 2 * both, ([], dot(values, right[1]), dot(left[1], values))

        tiles = self.tiles()
        cut_vectors = jnp.moveaxis(vectors.reshape(n_vectors, *tiles[1].shape), 1, 0)
        zeros, zero = jnp.zeros(tiles[1].shape, dtype), jnp.zeros(n_vectors, dtype)
        forms, _, sums = ring(visit, (tiles, cut_vectors), zero, [], zeros, self.axis)
        return all_sum(forms, self.axis), sums.reshape(-1)

    def sums_at(self, index: jax.Array, n_kept: jax.Array | int) -> jax.Array:
        """sum_j w_j h_ij of the rows i with a global `index`, ``[J]``; the first `n_kept` count.

        O(n J) time and O(n + J) memory.
        """
        samples = prepared(self.kernel, self.samples, self.axis)
        chosen = rows_at(samples, n_kept, index, self.axis)

        def step(total: jax.Array, rows: WeightedRows) -> tuple[jax.Array, None]:
            values = tile_values(h_tile, self.kernel, rows[0], chosen)
            return total + dot(rows[1], values), None

        zeros = as_varying(jnp.zeros(index.shape, self.weights.dtype), (self.samples, chosen))
        sums, _ = lax.scan(step, zeros, cut((samples, self.weights), self.tile_rows))
        return all_sum(sums, self.axis)

    def reduced(self) -> jax.Array:
        """The matrix itself, in memory; all rows are on one device."""
        samples = prepared(self.kernel, self.samples, self.axis)
        matrix = h_tile(self.kernel, samples, samples)
        # A tile may round h_ii otherwise than `diagonal` does.
        matrix = jnp.fill_diagonal(matrix, self.diagonal, inplace=False)
        return self.weights[:, None] * matrix * self.weights[None, :]

    def deviations(self, locations: Rows) -> jax.Array:
        """The deviation of each sample at each location, ``[n, J]``."""
        return deviation_tile(self.kernel, self.samples, locations.samples)

    def deviation_sums(self, locations: Rows) -> jax.Array:
        """sum_i w_i deviation_ij, ``[J]``, in O(n + J) memory; so is its derivative, which computes
        each tile once more."""

        @jax.checkpoint
        def tile_sums(
            kernel: SumOfTerms, samples: Sample, weights: jax.Array, columns: Sample
        ) -> jax.Array:
            return dot(weights, tile_values(deviation_tile, kernel, samples, columns))

        def chunk_sums(columns: Sample) -> jax.Array:
            def step(
                total: tuple[jax.Array, jax.Array], rows: tuple[Sample, jax.Array]
            ) -> tuple[tuple[jax.Array, jax.Array], None]:
                return compensated_add(total, tile_sums(self.kernel, *rows, columns)), None

            zeros = jnp.zeros(jax.tree.leaves(columns)[0].shape[0], self.weights.dtype)
            zeros = as_varying(zeros, (self.samples, columns))
            rows = cut((self.samples, self.weights), self.tile_rows)
            (high, low), _ = lax.scan(step, (zeros, zeros), rows)
            return high + low

        n_chunks, width = tile_sizes(locations.n)
        columns, _ = pad((locations.samples, jnp.ones(locations.n)), n_chunks * width)
        sums = lax.map(chunk_sums, cut(columns, width))
        return all_sum(sums.reshape(-1)[: locations.n], self.axis)

    def tiles(self) -> WeightedRows:
        """Samples, ready for `h_tile`, and weights by tile, ``[n_tiles, tile_rows, …]``."""
        return cut((prepared(self.kernel, self.samples, self.axis), self.weights), self.tile_rows)

    def off_diagonal(self, left: WeightedRows, right: WeightedRows, same: jax.Array) -> jax.Array:
        """h_ij of the samples of two tiles, and 0 for i = j where the tiles are the same."""
        values = tile_values(h_tile, self.kernel, left[0], right[0])
        return fast_where(jnp.eye(self.tile_rows, dtype=bool) & same, 0.0, values)


def in_tiles(kernel: SumOfTerms, samples: Sample, weights: jax.Array, axis: Axis = None) -> TiledH:
    """H with rows of weight 0 at the end, which fill whole tiles."""
    n_tiles, tile_rows = tile_sizes(weights.shape[0])
    samples, weights = pad((samples, weights), n_tiles * tile_rows)
    return TiledH(kernel, samples, weights, tile_rows, axis)


def poisoned_unless_symmetric(kernel: SumOfTerms, data: Rows) -> Rows:
    """The clean data, whose weights all become NaN if a user's kernel is not symmetric.

    h is evaluated in one order of each pair only, so that sums over an asymmetric kernel would be
    wrong numbers.
    """
    for term in () if kernel.is_ours else kernel.terms:
        symmetric = is_symmetric(term, *data.samples)
        data = data.replace(weights=fast_where(symmetric, data.weights, jnp.nan))
    return data


def tiled_h(kernel: SumOfTerms, data: Rows, axis: Axis = None) -> TiledH:
    """H of a kernel on clean data."""
    data = poisoned_unless_symmetric(kernel, data)
    samples, weights = (data.predictions, data.targets), data.weights
    return in_tiles(in_dtype(kernel, weights.dtype), samples, weights, axis)


# The distance of dependent times, in horizons: rounded times one horizon apart may seem nearer.
_LESS_THAN_ONE = 0.999


def related_sums(h: TiledH, data: Rows) -> tuple[jax.Array, jax.Array]:
    """sum w_i w_j h_ij and sum w_i w_j over the pairs i != j of rows that may depend on each other.

    They are rows of one cluster, or whose times are less than 1 apart.  `data` are the rows of H in
    their order, without those that fill the last tile.  One pass over H.
    """
    units = data.clusters if data.times is None else data.times.astype(data.weights.dtype)
    units = jnp.pad(units, (0, h.weights.shape[0] - units.shape[0]), mode="edge")

    def related(a: jax.Array, b: jax.Array) -> jax.Array:
        if data.times is None:
            return a[:, None] == b[None, :]
        return jnp.abs(a[:, None] - b[None, :]) < _LESS_THAN_ONE

    def visit(left: PyTree, right: PyTree, same: jax.Array, factor: jax.Array) -> Added:
        (left, left_units), (right, right_units) = left, right
        values = h.off_diagonal(left, right, same)
        is_pair = ~(jnp.eye(h.tile_rows, dtype=bool) & same) & related(left_units, right_units)

        def total(values: jax.Array) -> jax.Array:
            return dot(left[1], dot(fast_where(is_pair, values, 0.0), right[1]))

        return 2 * factor * jnp.stack([total(values), total(jnp.ones_like(values))]), ([], [], [])

    tiles = h.tiles(), cut(units, h.tile_rows)
    sums, _, _ = ring(visit, tiles, jnp.zeros(2, h.weights.dtype), [], [], h.axis)
    sums = all_sum(sums, h.axis)
    return sums[0], sums[1]


@struct
class LowRankH(DiscrepancyMatrix):
    """H = Psi Psi^T of a random kernel, where row i of Psi is psi(p_i, y_i).

    A row holds the real and imaginary parts of the features of one sample, for each tensor product
    in the kernel: D numbers in all.  Sums over H cost O(n D), and `reduced` costs O(n D^2).
    """

    features: list[Features]
    projections: list[jax.Array]
    samples: Sample
    weights: jax.Array
    axis: Axis = static(default=None)

    def psi(self, samples: Sample) -> jax.Array:
        """The rows of Psi for a batch of samples, ``[S, D]``."""
        columns: list[jax.Array] = []
        for features, projection in zip(self.features, self.projections, strict=True):
            parts, residuals = jax.vmap(features)(samples)
            columns += [part * dot(residuals, projection.T) for part in parts]
        return jnp.concatenate(columns, axis=1)

    def standard_error(self, row_sums: jax.Array) -> None:
        """None, because the row sums do not show the error of the features."""
        return None

    @functools.cached_property
    def diagonal(self) -> jax.Array:
        return self._map_rows_of_psi(lambda rows: jnp.sum(jnp.square(rows), axis=1))

    def row_sums_and_squares(self) -> tuple[jax.Array, jax.Array]:
        matrix, total = self._moments_of_psi()
        return self._row_sums(total), jnp.sum(jnp.square(matrix)) - self.trace(power=2)

    def quadratic_forms(self, vectors: jax.Array) -> tuple[jax.Array, jax.Array]:
        def products(rows: tuple[Sample, jax.Array], weights: jax.Array) -> list[jax.Array]:
            psi, vectors = self.psi(rows[0]), rows[1].astype(self.weights.dtype)
            squares = jnp.sum(jnp.square(psi), axis=1)
            return [dot(vectors.T, psi), dot(jnp.square(vectors).T, squares), dot(weights, psi)]

        products_with_psi, diagonal_forms, total = self._summed(products, (self.samples, vectors.T))
        forms = jnp.sum(jnp.square(products_with_psi), axis=1) - diagonal_forms
        return forms, self._row_sums(total)

    def reduced(self) -> jax.Array:
        return self._moments_of_psi()[0]

    def _moments_of_psi(self) -> list[jax.Array]:
        """Psi^T W^2 Psi and Psi^T w, where w are the weights and W = diag(w)."""

        def moments(samples: Sample, weights: jax.Array) -> list[jax.Array]:
            rows = self.psi(samples) * weights[:, None]
            return [dot(rows.T, rows), jnp.sum(rows, axis=0)]

        return self._summed(moments, self.samples)

    def _row_sums(self, total: jax.Array) -> jax.Array:
        """sum_{j != i} w_j h_ij for each row i of weight 1, ``[n]``, from `total` = Psi^T w."""
        return self._map_rows_of_psi(
            lambda rows: dot(rows, total) - jnp.sum(jnp.square(rows), axis=1)
        )

    def _map_rows_of_psi(self, function: Callable[[jax.Array], jax.Array]) -> jax.Array:
        n_features = self.features[0].n_features
        return map_rows(lambda x: function(self.psi(x)), self.samples, self.weights, n_features)

    def _summed(
        self, function: Callable[[Any, jax.Array], list[jax.Array]], rows: PyTree
    ) -> list[jax.Array]:
        return sum_rows(function, rows, self.weights, self.features[0].n_features, self.axis)


def low_rank_h(
    key: jax.Array, kernel: SumOfTerms, data: Rows, n_features: int, axis: Axis
) -> LowRankH:
    """H of `n_features` random features on clean data.

    The features depend on the key, the kernel and the shapes of the data, but not on its values.
    """
    draw_key, sign_key = jax.random.split(key)
    features = draw_features(draw_key, kernel, indexed(data.samples, 0), n_features)
    keys = jax.random.split(sign_key, len(features))
    projections = [_draw_projection(k, part) for k, part in zip(keys, features, strict=True)]
    return LowRankH(features, projections, data.samples, data.weights, axis)


def _draw_projection(key: jax.Array, features: Features) -> jax.Array:
    """For each feature a random vector s with E s s^T = factor K / D, ``[D, m]``.

    For labels, s^T (e_y - p) replaces the residual e_y - p of m numbers by one number.
    """
    values, vectors = eigh_of_kernel(times(features.factor, features.metric))
    shape = features.n_features, values.shape[0]
    # jax.random.rademacher would draw other signs when jax_enable_x64 is set.
    heads = jax.random.bernoulli(key, jnp.asarray(0.5, values.dtype), shape)
    signs = jnp.where(heads, 1.0, -1.0).astype(values.dtype)
    return dot(signs, (vectors * jnp.sqrt(values / features.n_features)[None, :]).T)


T = TypeVar("T")


@struct
class BlockH:
    """The blocks of B consecutive rows and columns on the diagonal of H.

    Args:
        kernel: the kernel of h.
        samples, weights: the N B samples of the N blocks that begin on this device, and the weights
            of the rows of each block, ``[N, B]``.
        axis: the mesh axes along which the blocks are cut among devices, or None.
    """

    kernel: SumOfTerms
    samples: Sample
    weights: jax.Array
    axis: Axis = static(default=None)

    @property
    def block_size(self) -> int:
        """The number of rows of a block, B."""
        return self.weights.shape[1]

    def sums(self) -> jax.Array:
        """sum_{i != j} w_i w_j h_ij of each block, ``[N]``; differentiable."""
        return self._map(
            lambda samples, weights: in_tiles(self.kernel, samples, weights).pair_sum()
        )

    def sums_and_squares(self) -> tuple[jax.Array, jax.Array]:
        """sum_{i != j} w_i w_j h_ij and sum_{i != j} w_i w_j h_ij^2 of each block, ``[N]`` each.

        Both come from one pass over the blocks.
        """

        def block_sums(samples: Sample, weights: jax.Array) -> tuple[jax.Array, jax.Array]:
            block = in_tiles(self.kernel, samples, weights)
            row_sums, squares = block.row_sums_and_squares()
            return jnp.sum(block.weights * row_sums), squares

        return self._map(block_sums)

    def _map(self, function: Callable[[Sample, jax.Array], T]) -> T:
        """``function(samples, weights)`` of each block, ``[N, …]``."""
        n_blocks, block_size = self.weights.shape
        samples, weights = cut(self.samples, block_size), self.weights
        if n_blocks == 1:
            return indexed(function(*indexed((samples, weights), 0)), None)
        # Small blocks go together, as many as fill one tile, but no more than leave little to pad.
        chunks = in_chunks(samples, weights, most_tile_rows() ** 2 // block_size**2)
        results = lax.map(lambda chunk: jax.vmap(function)(*chunk), chunks)
        return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:])[:n_blocks], results)

    def complete(self) -> jax.Array:
        """1 for each block without masked rows, else 0, ``[N]``; NaN if the data are invalid."""
        return jnp.prod(self.weights, axis=1)

    def estimates(self, sums: jax.Array) -> jax.Array:
        """`sums` over the number of pairs i != j for complete blocks, 0 for others, ``[N]``."""
        return self.complete() * sums / (self.block_size * (self.block_size - 1))

    def pair_sum(self) -> jax.Array:
        """sum_{i != j} w_i w_j h_ij, over the pairs within blocks on all devices."""
        return all_sum(jnp.sum(self.sums()), self.axis)

    def pair_weight(self) -> jax.Array:
        """sum_{i != j} w_i w_j, over the pairs within blocks on all devices."""
        return all_sum(jnp.sum(pairs_weight(self.weights)), self.axis)

    def full_weight(self) -> jax.Array:
        """sum_{i, j} w_i w_j, over the pairs within blocks on all devices."""
        return all_sum(jnp.sum(jnp.square(jnp.sum(self.weights, axis=1))), self.axis)

    def trace(self) -> jax.Array:
        """sum_i w_i^2 h_ii, over the rows of all devices."""
        diagonal = jax.vmap(lambda a: h_with_itself(self.kernel, a))(self.samples)
        return all_sum(jnp.sum(jnp.square(self.weights.reshape(-1)) * diagonal), self.axis)


def block_h(kernel: SumOfTerms, data: Rows, block_size: int, axis: Axis) -> BlockH:
    """The blocks of H on checked data; the incomplete last block is dropped."""
    data = poisoned_unless_symmetric(kernel, clean(data, axis))
    data = whole_blocks(data, block_size, axis)
    kernel = in_dtype(kernel, data.weights.dtype)
    return BlockH(kernel, data.samples, data.weights.reshape(-1, block_size), axis)


def whole_blocks(data: Rows, block_size: int, axis: Axis) -> Rows:
    """The rows of the blocks that begin on this device.

    Blocks are cut from the rows of all devices, and a block that begins on this device may end on a
    later one.  Each device has the same number of blocks; a block that does not exist has weight 0.
    """
    rows = Rows(data.predictions, data.targets, weights=data.weights)
    n, n_devices = data.n, axis_size(axis)
    if n_devices == 1 or n % block_size == 0:
        return indexed(rows, slice(n // block_size * block_size))
    n_blocks = -(-n // block_size)
    size = n_blocks * block_size
    first = index_on(axis) * n
    # The first block of this device begins `offset` rows behind its first row.
    offset = -first % block_size
    rows = jax.tree.map(lambda x: rows_from_here(x, size + block_size, axis), rows)
    rows = jax.tree.map(lambda x: lax.dynamic_slice_in_dim(x, offset, size), rows)
    begins = offset + jnp.arange(n_blocks, dtype=jnp.int32) * block_size
    complete = (begins < n) & (first + begins + block_size <= n * n_devices)
    weights = jnp.where(jnp.repeat(complete, block_size), rows.weights, 0.0)
    return Rows(rows.predictions, rows.targets, weights=weights)
