r"""One engine under every test, band, range and p-value of data sets under H0.

- A **sampler** says how data sets are made that a calibrated model could have given
  (`sampler.py`).
- A **statistic** says what is summed over rows, and which numbers follow from the sums.
- A **reduction** compares the numbers of the observed targets with those of the data sets: a rank,
  also that of the largest of several scores (`ranks.py`), or a band (`bands.py`).

`run` decides for all statistics how rows are cut into chunks and data sets into batches, so that
memory is bounded, which rows count, and what is added where observed residuals vary too little.

With multipliers xi_i, observed residuals r_i and the residuals s_i of drawn targets, data sets have
the residuals

    xi_i r_i + lambda s_i,    lambda^2 = max(0, 1 - sum_i w_i^2 r_i^2 / sum_i w_i^2 E s_i^2).

Where events are rare, the observed residuals may hardly vary, by chance: lambda adds the variance
that is missing.  With too few clusters or stretches of time all numbers of the observed targets are
NaN, and so is every p-value.

A statistic that divides by a variance of the data set itself is largest where no rare event occurs,
because hardly anything varies there, and an excess of events is never detected.  Therefore a
statistic is standardised by moments that the model knows exactly, if targets are redrawn, or by
those of all data sets, the observed one included (`Found.variance`).  Both keep data sets
exchangeable.
"""

import abc
import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from calibjax._base.sharding import Axis, all_sum, as_varying
from calibjax._base.struct import PyTree, indexed
from calibjax._data.capabilities import has_atoms
from calibjax._data.data import Rows
from calibjax._data.distribution import Distribution
from calibjax._data.row_columns import weights_of_labels
from calibjax._loops.coordinate_sums import row_at
from calibjax._pairwise.tiles import in_chunks
from calibjax.nulls.draws import DRAWS_PER_BATCH, draw_batches, draw_pits, draw_targets, row_numbers
from calibjax.nulls.sampler import DataSets, NullSampler, SampledRows
from calibjax.residuals.base import Arguments

Sums = TypeVar("Sums")
Draws = TypeVar("Draws")
Other = TypeVar("Other")

# The number of data sets that share what depends on predictions alone, such as tiles of a kernel:
# the tiles are cheap then, and ten times the values of a tile still fit into caches.
_TOGETHER = 10
# The number of rows whose targets are drawn at a time.
_ROWS = 2**12
#: The number of rows that are in memory at a time, of data sets that are not sums over rows.
ROWS_OF_SETS = 2**14
# The number of values of a chunk of rows that are in memory at a time.
_NUMBERS = 2**20
# The number of sums for each value of a chunk, if there are more sums than values.
_SUMS_OF_NUMBERS = 16
# The number of sums that are in memory at a time, and of values that the multipliers of rows share.
_SUMS, _SHARED = 2**20, 2**26
# The number of values of a row that are in memory for its moments, about.
_OF_MOMENTS = 2**12
# The batch of draws that stands for the expectation of a residual.
_EXPECTATION_BATCH = 2**31 - 1
#: The batches of draws that stand for moments of the model.
MOMENT_BATCHES = 2**31 - 2 - np.arange(4, dtype=np.int32)


def sums_of_sets(sums: jax.Array, missing: list[jax.Array]) -> jax.Array:
    """Sums over rows of the residuals of the observed targets, and behind them of D data sets.

    Args:
        sums: of the observed targets, of drawn ones, and with multipliers of observed residuals
            times these, ``[F, 1 + 2 D, K]``; else ``[F, 1 + D, K]``.
        missing: the lambda that drawn ones are multiplied with, if there are multipliers.
    """
    for share in missing:
        drawn, multiplied = jnp.split(sums[:, 1:], 2, axis=1)
        sums = jnp.concatenate([sums[:, :1], multiplied + share * drawn], axis=1)
    return sums


def factor_of_drawn(observed: jax.Array, expected: jax.Array, drawn: jax.Array) -> jax.Array:
    """lambda, from sums of squares over rows.

    Args:
        observed: of the observed residuals as they are multiplied.
        expected: what they should be.
        drawn: those of drawn residuals, on average.
    """
    can_vary = drawn > 0
    share = (expected - observed) / jnp.where(can_vary, drawn, 1.0)
    return jnp.where(can_vary, jnp.sqrt(jnp.maximum(share, 0.0)), 0.0)


@dataclasses.dataclass(frozen=True)
class Chunk:
    """Some rows, and the data sets of some batches of draws.

    Args:
        sets: the data sets of all rows.
        rows: what the data sets of these rows are drawn from.
        others: what the statistic takes of these rows.
        weights: of the rows, ``[n]``; 0 of one that does not count.
        batches: of draws.
        xi: multipliers, ``[n, D]``; None if targets are redrawn, and for moments.
        missing: what `Statistic.missing` returns; empty without `xi`.
        drawn_before: the targets, if another statistic of these rows has drawn them.
    """

    sets: DataSets
    rows: SampledRows
    others: Any
    weights: jax.Array
    batches: jax.Array
    xi: jax.Array | None
    missing: list[Any]
    drawn_before: PyTree = None

    def targets(self) -> PyTree:
        """The targets of the data sets, the observed ones first; see `DataSets.targets`."""
        if self.drawn_before is not None:
            return self.drawn_before
        return self.sets.targets(self.rows, self.batches)

    def uniform_draws(self) -> jax.Array:
        """PITs of drawn targets of continuous predictions, ``[n, D]``."""
        return draw_pits(self.sets.key, self.rows.numbers, self.batches, self.weights.dtype)[0]

    def arguments(self) -> Arguments:
        """Predictions, `targets`, and draws that are independent of these, ``[n, D', …]``."""
        predictions, batch = self.rows.predictions, jnp.int32(_EXPECTATION_BATCH)
        others = draw_targets(self.sets.key, predictions, self.rows.numbers, batch)
        return predictions, self.targets(), others

    def weighed(self, residuals: jax.Array) -> jax.Array:
        """Residuals ``[n, 1 + D, K]`` times `outcome_weights` of their labels, if there are any."""
        weights = self.rows.outcome_weights
        if weights is None:
            return residuals
        drawn = self.rows.drawn(self.sets.key, self.batches)
        labels = jnp.concatenate([self.rows.targets[:, None], drawn], axis=1)
        return residuals * jnp.take_along_axis(weights, labels, axis=1)[..., None]

    @property
    def observed_weights(self) -> jax.Array:
        """The weights of the observed targets, ``[n]``."""
        weights = self.rows.outcome_weights
        if weights is None:
            return self.weights
        return self.weights * weights_of_labels(weights, self.rows.targets)


class Statistic(abc.ABC):
    """Sums over rows, and the numbers of a data set that follow from them."""

    #: What the statistic takes of each row.
    others: Any
    #: Whether the PIT of a target is all that counts, and only in which cell of the line it is.
    by_pit: bool = False
    in_pit_cells: bool = False
    #: Whether it is a sum over chunks of rows.
    by_chunks: bool = True

    @abc.abstractmethod
    def moments(self, chunk: Chunk) -> PyTree:
        """Sums over rows that are the same for all data sets; the draws are `MOMENT_BATCHES`."""

    @abc.abstractmethod
    def missing(self, moments: PyTree) -> list[jax.Array]:
        """From the moments of all rows: lambda, of each of the features that are summed."""

    @abc.abstractmethod
    def sums(self, chunk: Chunk) -> PyTree:
        """Sums over the rows of a chunk, such as arrays ``[F, 1 + D, K]``."""

    @abc.abstractmethod
    def values(
        self, sums: PyTree, moments: PyTree, missing: list[jax.Array]
    ) -> tuple[PyTree, PyTree]:
        """From the sums over all rows: numbers ``[1 + D, …]``, and what all data sets share.

        Args:
            sums, moments: what the methods with these names return, summed over all rows.
            missing: the lambda that `missing` returns; none if targets are redrawn.
        """

    @property
    @abc.abstractmethod
    def sizes(self) -> list[tuple[int, int]]:
        """F and K of each array ``[F, 1 + D, K]`` of `sums`."""

    def shapes(self, n_draws: int, is_multiplied: bool) -> list[tuple[int, int, int]]:
        """The shapes of these arrays, which have sums of drawn residuals and multiplied ones."""
        n_sets = 1 + (2 if is_multiplied else 1) * n_draws
        return [(n_sums, n_sets, size) for n_sums, size in self.sizes]

    def numbers_of_row(self, shapes: list[tuple[int, int, int]], redraws: bool) -> int:
        """About how many numbers of a row are in memory for `sums` of these shapes."""
        return sum(n_sets * size for _, n_sets, size in shapes)

    def most_batches(self, rows: "AllRows", missing: list[jax.Array]) -> int:
        """How many batches of draws share a pass over the rows, at most."""
        shapes = self.shapes(DRAWS_PER_BATCH, bool(missing))
        shared = jax.eval_shape(rows.sets.shared, jnp.zeros(1, jnp.int32))
        n_shared = sum(x.size for x in jax.tree.leaves(shared))
        return min(_SUMS // _n_numbers(shapes), _SHARED // max(n_shared, 1))

    def total_moments(self, rows: "AllRows") -> PyTree:
        """The `moments` of all rows."""
        most = max(self.sizes[0][0], _NUMBERS // _OF_MOMENTS)
        return rows.summed(self.moments, jnp.asarray(MOMENT_BATCHES), most)

    def total_sums(self, rows: "AllRows", batches: jax.Array, missing: list[jax.Array]) -> PyTree:
        """The `sums` over all rows."""
        redraws = not missing and rows.sets.rows.outcome_weights is None
        shapes = self.shapes(batches.size * DRAWS_PER_BATCH, bool(missing))
        # Sums ``[F, …]`` over fewer rows than F would mostly move their result, and so do sums of
        # far more numbers than a chunk has.
        n_numbers = max(_NUMBERS, _n_numbers(shapes) // _SUMS_OF_NUMBERS)
        most = max(shapes[0][0], n_numbers // self.numbers_of_row(shapes, redraws))
        return rows.summed(self.sums, batches, most, missing)


@dataclasses.dataclass(frozen=True)
class Together(Statistic):
    """Several statistics of the same data sets, whose targets are drawn once."""

    parts: Sequence[Statistic]
    others: list[Any]
    by_pit: bool
    in_pit_cells: bool

    def of_parts(self, chunk: Chunk) -> Iterator[tuple[Statistic, Chunk]]:
        """Each statistic, and what it takes of a chunk."""
        for i, part in enumerate(self.parts):
            missing = chunk.missing[i] if chunk.missing else []
            yield part, dataclasses.replace(chunk, others=chunk.others[i], missing=missing)

    def moments(self, chunk: Chunk) -> list[PyTree]:
        return [part.moments(own) for part, own in self.of_parts(chunk)]

    def missing(self, moments: Any) -> list[Any]:
        return [part.missing(own) for part, own in zip(self.parts, moments, strict=True)]

    def sums(self, chunk: Chunk) -> list[PyTree]:
        chunk = dataclasses.replace(chunk, drawn_before=chunk.targets())
        return [part.sums(own) for part, own in self.of_parts(chunk)]

    def values(self, sums: Any, moments: Any, missing: list[Any]) -> tuple[PyTree, PyTree]:
        of_parts = zip(self.parts, sums, moments, missing or [[]] * len(self.parts), strict=True)
        values, shared = zip(*(part.values(*own) for part, *own in of_parts), strict=True)
        return list(values), list(shared)

    @property
    def sizes(self) -> list[tuple[int, int]]:
        return [size for part in self.parts for size in part.sizes]

    def shapes(self, n_draws: int, is_multiplied: bool) -> list[tuple[int, int, int]]:
        return [shape for part in self.parts for shape in part.shapes(n_draws, is_multiplied)]

    def numbers_of_row(self, shapes: list[tuple[int, int, int]], redraws: bool) -> int:
        of_parts = iter(shapes)
        owned = [list(itertools.islice(of_parts, len(part.sizes))) for part in self.parts]
        both = zip(self.parts, owned, strict=True)
        return sum(part.numbers_of_row(own, redraws) for part, own in both)


@dataclasses.dataclass(frozen=True)
class AllRows:
    """All rows of all devices, over which a statistic sums.

    Args:
        sets: the data sets of the rows of this device.
        others: what the statistic takes of them.
        weights: of these rows, ``[n]``.
        axis: the devices.
    """

    sets: DataSets
    others: Any
    weights: jax.Array
    axis: Axis

    def summed(
        self,
        function: Callable[[Chunk], Sums],
        batches: jax.Array,
        most: int,
        missing: list[jax.Array] | None = None,
    ) -> Sums:
        """The sum of a function of chunks of at most `most` rows, which returns a tree of sums.

        Rows of weight 0, which fill the last chunk, must add nothing to its sums.
        """
        # Moments need no multipliers, which take long to trace.
        is_of_moments = missing is None
        shared = None if is_of_moments else self.sets.shared(batches)

        @jax.jit  # traced once, for its shapes and in the loop
        def of_chunk(chunk: tuple[PyTree, jax.Array]) -> Sums:
            (rows, others), weights = chunk
            xi = None if is_of_moments else self.sets.factors(rows, shared)
            return function(Chunk(self.sets, rows, others, weights, batches, xi, missing or []))

        rows = self.sets.rows, self.others
        chunks = jax.tree.map(jnp.asarray, in_chunks(rows, self.weights, most))
        shapes = jax.eval_shape(of_chunk, indexed(chunks, 0))
        if not jax.tree.leaves(shapes):
            return shapes
        numbers = jnp.arange(1, len(chunks[1]) + 1, dtype=jnp.int32)
        # Masked rows are often behind all others.
        n_used = jnp.max(numbers, where=jnp.any(chunks[1] != 0, axis=1), initial=0)

        def step(k: jax.Array, totals: Sums) -> Sums:
            chunk = jax.tree.map(lambda x: row_at(x, k), chunks)
            return jax.tree.map(jnp.add, totals, of_chunk(chunk))

        zeros = as_varying(jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes), rows)
        return all_sum(lax.fori_loop(0, n_used, step, zeros), self.axis)


def _n_numbers(shapes: list[tuple[int, int, int]]) -> int:
    """How many numbers arrays of these shapes have."""
    return sum(map(math.prod, shapes))


class Found(NamedTuple):
    """The numbers of a statistic.

    Args:
        observed: of the observed targets.
        draws: of R data sets, ``[R, …]``.
        shared: what all data sets share.
        moments: the moments of the statistic.
        redraws: whether targets are redrawn, and weigh the same.
        n_units: the number of clusters, or of stretches of a horizon; None if targets are redrawn.
    """

    observed: Any
    draws: Any
    shared: Any
    moments: Any
    redraws: bool
    n_units: jax.Array | None = None

    def variance(self, known: jax.Array, observed: jax.Array, draws: jax.Array) -> jax.Array:
        """What standardises sums: the variance that is known where `redraws`.

        Else the mean square of all data sets, the observed one included.
        """
        if self.redraws:
            return known
        squares = jnp.sum(jnp.square(draws), axis=0) + jnp.square(observed)
        return squares / (draws.shape[0] + 1)


def run(
    statistics: Sequence[Statistic],
    key: jax.Array,
    data: Rows,
    n_resamples: int,
    sampler: NullSampler,
    axis: Axis = None,
) -> list[Found]:
    """The numbers of statistics for the observed targets and for the same data sets under H0.

    `data` are clean rows of this device.  Draw r of a row depends only on the key, r and the number
    of the row among the kept rows of all devices.
    """
    sets, rest = sampler.data_sets(key, data, axis), (data.weights, n_resamples, sampler, axis)
    # PITs that are drawn on the line are other draws than those of targets.
    are_of_line = {
        x.by_pit and (x.in_pit_cells or not has_atoms(data.predictions)) for x in statistics
    }
    if len(statistics) == 1 or len(are_of_line) == 2 or not all(x.by_chunks for x in statistics):
        return [_found(statistic, sets, *rest) for statistic in statistics]
    others = [x.others for x in statistics]
    of_pit = all(x.by_pit for x in statistics), all(x.in_pit_cells for x in statistics)
    found = _found(Together(statistics, others, *of_pit), sets, *rest)
    of_parts = zip(found.observed, found.draws, found.shared, found.moments, strict=True)
    return [Found(*of_part, found.redraws, found.n_units) for of_part in of_parts]


def _found(
    statistic: Statistic,
    sets: DataSets,
    weights: jax.Array,
    n_resamples: int,
    sampler: NullSampler,
    axis: Axis,
) -> Found:
    """The numbers of one statistic."""
    sets = dataclasses.replace(sets, by_pit=statistic.by_pit, in_pit_cells=statistic.in_pit_cells)
    rows = AllRows(sets, statistic.others, weights, axis)
    moments = statistic.total_moments(rows)
    missing = [] if sampler.redraws else statistic.missing(moments)
    if sampler.is_by_label:
        # Moments are those of equal weights.
        missing = jax.tree.map(lambda x: 0.0 * x, missing)

    def of_batches(batches: jax.Array) -> tuple[PyTree, PyTree]:
        sums = statistic.total_sums(rows, batches, missing)
        values, shared = statistic.values(sums, moments, missing)
        return indexed(values, slice(1, None)), (indexed(values, 0), shared)

    most = statistic.most_batches(rows, missing)
    draws, (observed, shared) = in_passes(of_batches, n_resamples, most)
    redraws = sampler.redraws and not sampler.is_by_label
    n_units = None if sets.turns is None else sets.turns.n_units
    return Found(observed, draws, shared, moments, redraws, n_units=n_units)


def in_passes(
    function: Callable[[jax.Array], tuple[Draws, Other]],
    n_resamples: int,
    most: int = 1,
    size: int = DRAWS_PER_BATCH,
) -> tuple[Draws, Other]:
    """``function(batches)`` of all batches of draws, at most `most` of them in one pass over rows.

    The function returns arrays ``[draws, …]``, of which R are returned, and what is the same for
    all batches.  A batch has `size` draws.
    """
    n_batches = -(-n_resamples // size)
    n_passes = -(-n_batches // max(1, most))
    together = -(-n_batches // n_passes)
    batches = jnp.arange(n_passes * together, dtype=jnp.int32).reshape(n_passes, together)
    draws, other = lax.map(function, batches)
    draws = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:])[:n_resamples], draws)
    return draws, indexed(other, 0)


def under_model(
    statistic: Callable[[jax.Array], Sums],
    key: jax.Array,
    data: Rows,
    n_resamples: int,
    together: int = _TOGETHER,
) -> Sums:
    """``statistic(targets)`` of n_resamples draws from the model, and last of the observed targets.

    The observed targets take their turn among the draws, so that the same program computes all
    values.  Draw r of a row depends only on the key, r and the number of the row among those kept.

    Args:
        statistic: a function of targets, which may sum over devices.
        key: a key of `jax.random`.
        data: clean rows.
        n_resamples: the number of draws, R.
        together: how many data sets are computed at once, at most.

    Returns:
        The tree that `statistic` returns, with the leading axis ``[R + 1]``.
    """
    predictions, observed = data.samples
    rows = row_numbers(data.weights)
    # A divisor of the size of a batch leaves no rest, which would be one more program.
    most = min(max(1, together), DRAWS_PER_BATCH)
    together = max(k for k in range(1, most + 1) if DRAWS_PER_BATCH % k == 0)

    def values_of_batch(batches: jax.Array) -> tuple[Sums, tuple[()]]:
        def draw(row: tuple[Distribution, jax.Array]) -> jax.Array:
            prediction, number = indexed(row, None)
            return draw_targets(key, prediction, number, batches[0])[0].astype(observed.dtype)

        drawn = lax.map(draw, (predictions, rows), batch_size=_ROWS)
        drawn = jnp.moveaxis(drawn, 1, 0)
        numbers = batches[0] * DRAWS_PER_BATCH + jnp.arange(DRAWS_PER_BATCH, dtype=jnp.int32)
        is_observed = (numbers == n_resamples).reshape(-1, *(1,) * observed.ndim)
        targets = jnp.where(is_observed, observed[None], drawn)
        return lax.map(statistic, targets, batch_size=together), ()

    return in_passes(values_of_batch, n_resamples + 1)[0]


def under_multipliers(
    statistic: Callable[[jax.Array], jax.Array],
    residuals: Callable[[jax.Array], jax.Array],
    variances: jax.Array,
    key: jax.Array,
    data: Rows,
    n_resamples: int,
    sampler: NullSampler,
) -> jax.Array:
    """``statistic(residuals)`` of n_resamples data sets with multipliers, and last of the data.

    Args:
        statistic: a function of residuals ``[n, K]``.
        residuals: those of targets ``[n]``.
        variances: of the residuals under the model, ``[n, K]``.
        key, data, n_resamples, sampler: as in `run`.
    """
    sets, weights = sampler.data_sets(key, data), data.weights
    observed, squares = residuals(data.targets), jnp.square(weights)[:, None]
    of_model = jnp.sum(squares * variances, axis=0)
    missing = factor_of_drawn(jnp.sum(squares * jnp.square(observed), axis=0), of_model, of_model)
    if sampler.is_by_label:
        missing = 0.0 * missing

    def of_batches(batches: jax.Array) -> tuple[jax.Array, tuple[()]]:
        xi = sets.factors(sets.rows, sets.shared(batches))
        assert xi is not None
        drawn = draw_batches(key, data.predictions, sets.rows.numbers, batches)

        def of_set(data_set: tuple[jax.Array, jax.Array]) -> jax.Array:
            factors, targets = data_set
            return statistic(factors[:, None] * observed + missing[None] * residuals(targets))

        return lax.map(of_set, (xi.T, drawn.T), batch_size=max(1, ROWS_OF_SETS // data.n)), ()

    draws, _ = in_passes(of_batches, n_resamples)
    return jnp.append(draws, statistic(observed))
