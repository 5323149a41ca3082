r"""The SKCE of several kernels, for the observed targets and for data sets under H0.

The kernels are taken apart into what they share.  Each one is a sum of terms, factor times
k_P(p, q) <f(p, y), f(q, z)>.  Kernels with one target kernel share the residuals of its features,
and kernels with one distance between predictions share the cells that rows are in.
Outside of jit they are only sorted: the arithmetic, of a dozen numbers, is a part of the test's one
program.

With the matrix K of k_P at F landmarks, and residuals r_i of the features of the targets, n^2 times
the biased SKCE is

    sum_ij k_P(p_i, p_j) <r_i, r_j>  ~  sum_ab K_ab <G_a, G_b>,    G_a = sum_{i in a} r_i,

with sums over the rows in the cell of each landmark, and equality up to as many rows as landmarks.
For more events the landmarks are the medians of cells of near probabilities, and for others each
row is in the cell of the nearest one (`features/weighted_sums.py`).  All D data sets of targets
share cells and K, and all kernels share the residuals: the time is O(n M D + F^2 M D), for features
of M numbers, and the memory is O(F M D) for some data sets at a time.
"""

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from calibjax._base.sharding import Axis, axis_size, global_offset, rows_at
from calibjax._base.struct import indexed, is_traced, rows_of, static, struct
from calibjax._data.capabilities import KnownLevels, has_atoms, pit_partition
from calibjax._data.data import Data, Rows, in_dtype, kept_first, with_known_weights
from calibjax._data.distribution import as_labels
from calibjax._data.row_columns import sampled
from calibjax._loops.coordinate_sums import row_at
from calibjax._numbers.arithmetic import diagonal_of, dot
from calibjax.discrepancy import SumOfTerms
from calibjax.expectations.defaults import prediction_coordinates
from calibjax.features.columns import ColumnFeatures, ColumnKernels, column_features, ranked
from calibjax.features.weighted_sums import (
    MANY_CLASSES,
    InCells,
    Landmarks,
    choose_cells,
    choose_landmarks,
    sums_of_classes,
    weighted_sums,
)
from calibjax.kernels.base import KernelLike, describe, times
from calibjax.kernels.predictions import DistanceKernel, embedded_rows
from calibjax.nulls.engine import (
    AllRows,
    Chunk,
    Statistic,
    factor_of_drawn,
    run,
    sums_of_sets,
)
from calibjax.nulls.event_sums import EventSums
from calibjax.nulls.readable_sums import sums_over_rows, tested_squares
from calibjax.nulls.sampler import NullSampler
from calibjax.residuals.base import FiniteResidual, Indicators, JointResidual, TargetResidual
from calibjax.residuals.pit import values_of
from calibjax.residuals.readable import Readable

#: A weighting and a residual.
Pair = tuple[int, int]


@struct
class ColumnTerms:
    """The kernels of covariates with one feature of targets.

    Args:
        kernels: which kernels these are.
        first: the number of the first of them among all kernels.
        pair: the number behind those of the `weightings`, and which of the `residuals` is that of
            the feature.
    """

    kernels: ColumnKernels = static()
    first: int = static()
    pair: Pair = static()


@struct
class KernelTerms:
    """Kernels as sums of terms, factor k_P(p, q) <f(p, y), f(q, z)>.

    Args:
        kernel_lists: the kernels on predictions, a list for each distance and structure.
        weightings: a kernel on predictions for each distance, which says what is near.
        residuals: what h keeps of targets, each different from the others.
        of_columns: the kernels of covariates, which are behind all others.
        forms: a number of the `kernel_lists` for k_P, with the numbers of one of the `weightings`
            and of one of the `residuals`: what is summed for all kernels of the list.
        pairs: all weightings and residuals that go together.
        factors: the nonnegative factor of each of T terms; None stands for 1.
        kernels: which of the kernels of all forms the k_P of each term is.
        owners: which of the K kernels each term belongs to.
        n_kernels: the number of kernels K.
        families: the number of the family of each kernel; none if each is one of its own.
    """

    kernel_lists: list[list[KernelLike]]
    weightings: list[KernelLike]
    residuals: list[TargetResidual]
    of_columns: list[ColumnTerms]
    factors: list[jax.Array | None]
    forms: tuple[tuple[int, Pair], ...] = static()
    pairs: tuple[Pair, ...] = static()
    kernels: tuple[int, ...] = static()
    owners: tuple[int, ...] = static()
    n_kernels: int = static()
    families: tuple[int, ...] = static()

    def of_kernels(self, of_forms: jax.Array) -> jax.Array:
        """Sums over the terms of each kernel ``[K, …]``, from the numbers of all forms ``[U, …]``.

        Each of the `forms` has a number of each kernel of its list.
        """
        of_terms = rows_of(of_forms, np.array(self.kernels, np.int32))
        if self.factors.count(None) < len(self.factors):
            column = jnp.stack([jnp.asarray(times(x, 1.0), of_terms.dtype) for x in self.factors])
            of_terms *= column.reshape(-1, *(1,) * (of_terms.ndim - 1))
        zeros = jnp.zeros((self.n_kernels, *of_terms.shape[1:]), of_terms.dtype)
        return zeros.at[jnp.array(self.owners, jnp.int32)].add(of_terms, mode="promise_in_bounds")


def terms_of(kernels: Sequence[SumOfTerms]) -> KernelTerms:
    """The terms of the kernels; TypeError for a kernel that is not a sum of such terms."""
    distances: list[Any] = []
    residuals: list[Any] = []
    weightings: list[KernelLike] = []
    kernel_lists: dict[Any, dict[Any, KernelLike]] = {}
    groups: dict[Any, list[Any]] = {}
    for owner, kernel in enumerate(kernels):
        for term in kernel.terms:
            if isinstance(term.residual, JointResidual):
                raise TypeError(
                    "kernels must be TensorProducts, FeatureKernels or SteinKernels, or sums and "
                    f"multiples of them, got {describe(term.residual.kernel)}."
                )
            compared = term.prediction_kernel
            distance = compared.distance if isinstance(compared, DistanceKernel) else compared
            pair = _index(distances, distance), _index(residuals, term.residual)
            if len(distances) > len(weightings):
                weightings.append(compared)
            leaves, structure = jax.tree.flatten(compared)
            kernel_list = pair[0], structure, tuple(map(jnp.shape, leaves))
            # Programs must not depend on numbers: kernels are equal if they have the same arrays.
            known, arrays = kernel_lists.setdefault(kernel_list, {}), tuple(map(id, leaves))
            known.setdefault(arrays, compared)
            of_form = groups.setdefault((kernel_list, pair), [])
            of_form.append((term.factor, list(known).index(arrays), owner))
    forms, terms, numbers, first = [], [], list(kernel_lists), 0
    for (kernel_list, pair), of_form in groups.items():
        forms.append((numbers.index(kernel_list), pair))
        terms += [(factor, first + index, owner) for factor, index, owner in of_form]
        first += len(kernel_lists[kernel_list])
    factors, of_terms, owners = zip(*terms, strict=True)
    different = [list(known.values()) for known in kernel_lists.values()]
    pairs = tuple(dict.fromkeys(pair for _, pair in groups))
    of_kernels = list(factors), tuple(forms), pairs, of_terms, owners, len(kernels), ()
    return KernelTerms(different, weightings, residuals, [], *of_kernels)


def with_columns(terms: KernelTerms, data: Data, kernels: Sequence[SumOfTerms]) -> KernelTerms:
    """The terms of more kernels: those of the covariates, each with the features of `kernels`.

    These are among those that `terms` are of.  If one has several features, such as ranks and
    standard scores of samples, the first one counts.
    """
    assert data.covariates is not None
    coordinates = jax.eval_shape(prediction_coordinates, data.predictions)
    columns = ColumnKernels(data.covariates.sizes, int(coordinates.shape[1]))
    families, groups, pairs = [0] * terms.n_kernels, [], list(terms.pairs)
    for kernel in kernels:
        term, *_ = kernel.terms
        pairs.append((len(terms.weightings), _index(terms.residuals, term.residual)))
        groups.append(ColumnTerms(columns, len(families), pairs[-1]))
        families += columns.families
    return dataclasses.replace(
        terms,
        of_columns=groups,
        pairs=tuple(dict.fromkeys(pairs)),
        n_kernels=len(families),
        families=tuple(families),
    )


def _index(found: list[Any], node: Any) -> int:
    """The index of an equal node, which is appended if there is none."""
    for i, other in enumerate(found):
        if _are_equal(node, other):
            return i
    found.append(node)
    return len(found) - 1


def _are_equal(a: Any, b: Any) -> bool:
    """Whether two pytrees are equal; traced leaves are equal only to themselves."""
    (ours, structure), (theirs, other) = map(jax.tree.flatten, (a, b))
    if (structure,) != (other,):
        return False

    def is_same(x: Any, y: Any) -> bool:
        return x is y or (not is_traced((x, y)) and np.array_equal(x, y))

    return all(map(is_same, ours, theirs))


#: Weightings, and the residuals of each of them.
Block = tuple[tuple[int, ...], tuple[int, ...]]
#: G and the sums of squares of pairs, which the diagonals follow from: of those whose residuals are
#: indicators of classes, and flat for blocks of all others.
Sums = tuple[dict[Pair, tuple[jax.Array, jax.Array]], dict[Block, jax.Array]]
#: G ``[weightings, F, 1 + D, M]`` of all residuals, and squares ``[weightings, F, residuals]``.
BlockSums = tuple[jax.Array, jax.Array]


class RedrawnSKCE(NamedTuple):
    """What a test of kernels takes of data sets under H0, the observed targets first.

    Args:
        values: the sums over all pairs for each kernel, ``[K, 1 + R]``.
        diagonals: sum_i k_P(p_i, p_i) |r_i|^2 for the observed targets, ``[K]``; without them the
            first sum would be n (n-1) times the unbiased SKCE.
        squares: those of readable statistics of all rows, ``[J', 1 + R]``, or None.
        n_units: how many units depend on each other only within themselves, or None.
    """

    values: jax.Array
    diagonals: jax.Array
    squares: jax.Array | None = None
    n_units: jax.Array | None = None


def redrawn_skce(
    key: jax.Array,
    terms: KernelTerms,
    data: Rows,
    n_resamples: int,
    n_cells: int,
    axis: Axis,
    sampler: NullSampler,
    readable: Readable | None = None,
) -> RedrawnSKCE:
    """The sums of kernels for clean data and data sets under H0.

    They come with the squares of `readable` statistics of all rows, if there are any.
    """
    draw_key, feature_key = jax.random.split(key)
    terms = in_dtype(terms, data.weights.dtype)
    data, n_kept = kept_first(with_known_weights(data), data.where)
    statistics: list[Any] = [_statistic(feature_key, terms, data, n_kept, n_cells, axis)]
    if readable is not None:
        statistics.append(sums_over_rows(readable, data, axis))
    found, *of_rows = run(statistics, draw_key, data, n_resamples, sampler, axis)
    values = jnp.concatenate([found.observed[None], found.draws]).T
    squares = [tested_squares(statistics[1], x) for x in of_rows]
    return RedrawnSKCE(values, found.shared, *squares, *(x.n_units for x in of_rows))


def _statistic(
    key: jax.Array,
    terms: KernelTerms,
    data: Rows,
    n_kept: jax.Array | int,
    n_cells: int,
    axis: Axis,
) -> "KernelSums":
    """The statistic of clean data, of which the first `n_kept` rows of this device count."""
    first, n_rows = global_offset(n_kept, axis)
    is_coarse = data.is_censored
    # What a distance compares is made once of each row: a quantile may take many steps.
    compared = [embedded_rows(kernel, data.predictions) for kernel in terms.weightings]
    n_all = data.n * axis_size(axis)
    size = min(n_cells, n_all)
    cells = None
    if size < n_all and data.predictions.n_labels == 2 and not terms.of_columns and not is_coarse:
        probabilities = prediction_coordinates(data.predictions)[:, 0]
        cells = choose_cells(probabilities, data.weights != 0, size, axis)
    landmarks = []
    for kernel, predictions in zip(terms.weightings, compared, strict=True):
        if cells is None:
            points = choose_landmarks(predictions, n_kept, n_rows, size, axis)
        else:
            points = rows_at(predictions, data.n, cells.medians, axis)
        landmarks.append(Landmarks(points, n_rows, kernel))
    places = {kernel_list: pair[0] for kernel_list, pair in terms.forms}
    matrices = [_matrices(x, landmarks[places[k]]) for k, x in enumerate(terms.kernel_lists)]
    weightings: list[Weighting] = [*landmarks]
    if terms.of_columns:
        assert data.covariates is not None
        kernels_of_columns = terms.of_columns[0].kernels
        columns = ranked(
            data.covariates.values,
            prediction_coordinates(data.predictions),
            kernels_of_columns.sizes,
            data.weights != 0,
            axis,
        )
        compared.append(columns)
        weightings.append(column_features(kernels_of_columns, columns, data.weights, axis))

    by_pit = data.predictions.is_ordered
    by_pit &= all(residual.is_of_pit for residual in terms.residuals)
    # If a PIT stands for its target, all rows tell the same pieces of the line.
    is_target = not isinstance(data.predictions, KnownLevels)
    found = pit_partition(data.predictions) if is_target else None
    pieces = found if isinstance(found, tuple) else ()
    in_pit_cells = by_pit and not is_coarse and size < n_all
    in_pit_cells &= bool(pieces) or not has_atoms(data.predictions)
    one = indexed(data.samples, 0)
    keys = jax.random.split(key, len(terms.residuals))
    features = [x.finite(k, *one) for k, x in zip(keys, terms.residuals, strict=True)]
    if in_pit_cells:
        features = [x.in_pit_cells(pieces, data.weights.dtype) for x in features]
    if cells is not None:
        events, n_numbers = _events_of(features, data, cells.of_rows, size)
        shared = terms, features, weightings, matrices, n_numbers
        return CellSums([], *shared, by_pit, in_pit_cells, events)
    numbers = first + jnp.arange(data.n, dtype=jnp.int32)
    for index, weighting in enumerate(landmarks):
        compared[index] = weighting.cells(compared[index], numbers, size < n_all)
    n_numbers = tuple(x.n_numbers(*indexed(data.samples, slice(1))) for x in features)
    return KernelSums(
        compared, terms, features, weightings, matrices, n_numbers, by_pit, in_pit_cells
    )


#: What has the weights w of rows: landmarks, or features of covariates.
Weighting = Landmarks | ColumnFeatures


@struct
class KernelSums(Statistic):
    """The statistic: sums G of all pairs of a weighting and a residual.

    Args:
        others: what each weighting takes of rows.
        terms: the kernels.
        features: the residuals with finitely many numbers.
        weightings: of each distance between predictions, and of covariates.
        matrices: K of the kernels of each list at their landmarks.
        n_numbers: M of each residual.
        by_pit, in_pit_cells: see `Statistic`.
    """

    others: list[Any]
    terms: KernelTerms
    features: list[FiniteResidual]
    weightings: list[Weighting]
    matrices: list[jax.Array]
    n_numbers: tuple[int, ...] = static()
    by_pit: bool = static()
    in_pit_cells: bool = static()

    def moments(self, chunk: Chunk) -> Any:
        """Sums of squares of all numbers, and of the mean squares of draws, ``[2, M]``."""
        if chunk.sets.turns is None:
            return []
        # One batch says enough of variances.
        arguments = dataclasses.replace(chunk, batches=chunk.batches[:1]).arguments()
        squared = jnp.square(chunk.weights)[:, None]
        squares = jnp.square(jnp.concatenate(values_of(self.features, *arguments), axis=2))
        both = jnp.stack([squares[:, 0], jnp.mean(squares[:, 1:], axis=1)])
        return jnp.sum(squared[None] * both, axis=1)

    def missing(self, moments: Any) -> list[jax.Array]:
        observed, expected = moments[:, None, None]
        every = factor_of_drawn(observed, expected, expected)
        return jnp.split(every, np.cumsum(self.n_numbers)[:-1].tolist(), axis=2)

    def sums(self, chunk: Chunk) -> Sums:
        arguments = predictions, targets, _ = chunk.arguments()
        both = zip(self.weightings, chunk.others, strict=True)
        w = [weighting.weighted(chunk.weights, x) for weighting, x in both]
        of_classes: dict[Pair, tuple[jax.Array, jax.Array]] = {}
        if chunk.xi is None and chunk.rows.outcome_weights is None:
            for k, s in self.terms.pairs:
                # Values of many classes are not used, and then not computed within jit.
                if isinstance(self.features[s], Indicators) and (
                    isinstance(w[k], InCells) or self.n_numbers[s] > MANY_CLASSES
                ):
                    probabilities = as_labels(predictions).label_probabilities()
                    of_classes[k, s] = sums_of_classes(w[k], probabilities, targets)
        values, of_blocks = list(map(chunk.weighed, values_of(self.features, *arguments))), {}
        for block in self._blocks([pair for pair in self.terms.pairs if pair not in of_classes]):
            weightings, residuals = block
            every = jnp.concatenate([values[s] for s in residuals], axis=2)
            if chunk.xi is not None:
                missing = jnp.concatenate([chunk.missing[s] for s in residuals], axis=2)
                sets = chunk.xi[..., None] * every[:, :1] + missing * every[:, 1:]
                every = jnp.concatenate([every[:, :1], sets], axis=1)
            squares = [jnp.sum(jnp.square(values[s][:, 0]), axis=1) for s in residuals]
            rows = every.reshape(every.shape[0], -1), jnp.stack(squares, axis=1)
            of_blocks[block] = weighted_sums([w[k] for k in weightings], *rows)
        return of_classes, of_blocks

    def _blocks(self, pairs: Sequence[Pair]) -> list[Block]:
        """Weightings whose residuals are the same ones, and are summed together."""
        residuals: dict[Any, list[int]] = {}
        for k, s in pairs:
            has_many = self.n_numbers[s] >= _MANY_NUMBERS
            residuals.setdefault((k, s if has_many else None), []).append(s)
        blocks: dict[Any, list[int]] = {}
        for (k, alone), own in residuals.items():
            # Features of covariates have sums of another size.
            is_alone = alone is not None or isinstance(self.weightings[k], ColumnFeatures)
            blocks.setdefault((k if is_alone else None, tuple(own)), []).append(k)
        return [(tuple(weightings), own) for (_, own), weightings in blocks.items()]

    @property
    def sizes(self) -> list[tuple[int, int]]:
        return [(self.weightings[k].n_weights, self.n_numbers[s]) for k, s in self.terms.pairs]

    def shapes(self, n_draws: int, is_multiplied: bool) -> list[tuple[int, int, int]]:
        # `sums` adds drawn residuals to multiplied ones.
        return super().shapes(n_draws, False)

    def numbers_of_row(self, shapes: list[tuple[int, int, int]], redraws: bool) -> int:
        n_numbers = 0
        for (_, residual), (_, n_sets, size) in zip(self.terms.pairs, shapes, strict=True):
            # Without residuals of many classes.
            is_by_class = isinstance(self.features[residual], Indicators) and size > MANY_CLASSES
            n_numbers += n_sets if redraws and is_by_class else n_sets * size
        return n_numbers

    def values(
        self, sums: Any, moments: Any, missing: list[jax.Array]
    ) -> tuple[jax.Array, jax.Array]:
        # `sums` has added lambda times drawn residuals.
        of_classes, of_blocks = sums
        found: dict[Block, BlockSums] = {}
        for (k, s), (x, y) in of_classes.items():
            found[(k,), (s,)] = x[None], y[None, :, None]
        for (weightings, residuals), both in of_blocks.items():
            flat, squares = jnp.split(both, [both.shape[2] - len(residuals)], axis=2)
            n_numbers = sum(self.n_numbers[s] for s in residuals)
            found[weightings, residuals] = flat.reshape(*flat.shape[:2], -1, n_numbers), squares
        return self._of_kernels(found)

    def _of_kernels(self, found: dict[Block, BlockSums]) -> tuple[jax.Array, jax.Array]:
        """The sums over pairs ``[1 + D, K]``, and the diagonals ``[K]``."""
        numbers: dict[Pair, np.ndarray] = {}
        of_columns: dict[int, tuple[jax.Array, jax.Array]] = {}
        of_sets, of_rows, first = [], [], 0
        for (weightings, residuals), (sums, squares) in found.items():
            ends = np.cumsum([self.n_numbers[s] for s in residuals]).tolist()
            places = {x: weightings.index(k) for x, (k, _) in self.terms.forms if k in weightings}
            if not places:
                norms = jnp.split(jnp.square(sums[0]), ends[:-1], axis=2)
                both = zip(residuals, norms, squares[0].T, strict=True)
                of_columns |= {s: (jnp.sum(x, axis=2), y) for s, x, y in both}
                continue
            matrices = jnp.concatenate([self.matrices[x] for x in places])
            lists = np.repeat([*places], [len(self.matrices[x]) for x in places])
            which = np.array([places[x] for x in lists], np.int32)
            forms = _quadratic_forms(matrices, which, sums, ends)
            of_sets.append(forms.reshape(-1, forms.shape[2]))
            diagonals = jax.vmap(diagonal_of)(matrices)[..., None]
            of_rows.append(jnp.sum(diagonals * squares[which], axis=1).ravel())
            for j, s in enumerate(residuals):
                of_lists = first + np.arange(len(lists)) * len(residuals) + j
                numbers |= {(x, s): of_lists[lists == x] for x in places}
            first += len(lists) * len(residuals)
        order = np.concatenate([numbers[x, s] for x, (_, s) in self.terms.forms])
        values, diagonals = (
            self.terms.of_kernels(rows_of(jnp.concatenate(x), order)) for x in (of_sets, of_rows)
        )
        for columns in self.terms.of_columns:
            own = slice(columns.first, columns.first + columns.kernels.n_kernels)
            forms, form = map(columns.kernels.of_features, of_columns[columns.pair[1]])
            values, diagonals = values.at[own].set(forms), diagonals.at[own].set(form)
        return values.T, diagonals


@struct
class CellSums(KernelSums):
    """The same of rows of two labels, whose residuals are multiples of y - q.

    Args:
        events: the sums of all features of label 1 less those of label 0, in cells.
    """

    by_chunks = False

    events: EventSums

    def total_moments(self, rows: AllRows) -> list[jax.Array]:
        return self.events.observed(rows.sets, rows.axis)

    def missing(self, moments: Any) -> list[jax.Array]:
        _, observed, expected = (jnp.sum(x, axis=0, keepdims=True) for x in moments)
        return [factor_of_drawn(observed, expected, expected)]

    def total_sums(
        self, rows: AllRows, batches: jax.Array, missing: list[jax.Array]
    ) -> list[jax.Array]:
        return self.events.drawn(rows.sets, batches, rows.axis)

    def most_batches(self, rows: AllRows, missing: list[jax.Array]) -> int:
        return self.events.draws_together

    def values(
        self, sums: Any, moments: Any, missing: list[jax.Array]
    ) -> tuple[jax.Array, jax.Array]:
        observed, squares, _ = moments
        every = sums_of_sets(jnp.concatenate([observed, *sums], axis=1), missing)
        found: dict[Block, BlockSums] = {}
        starts = np.cumsum(self.n_numbers)[:-1].tolist()
        of_sets, of_rows = (jnp.split(x, starts, axis=2) for x in (every, squares))
        for weightings, residuals in self._blocks(self.terms.pairs):
            g = jnp.concatenate([of_sets[s] for s in residuals], axis=2)
            own = jnp.stack([jnp.sum(of_rows[s], axis=(1, 2)) for s in residuals], axis=1)
            count = len(weightings)
            found[weightings, residuals] = jnp.stack([g] * count), jnp.stack([own] * count)
        return self._of_kernels(found)


def _events_of(
    features: list[FiniteResidual], data: Rows, cells: jax.Array, n_cells: int
) -> tuple[EventSums, tuple[int, ...]]:
    """The sums over cells ``[n]``, and how many numbers each feature has."""
    labels = jnp.broadcast_to(jnp.arange(2, dtype=jnp.int32), (data.n, 2))
    tables = [x.values(data.predictions, labels, labels) for x in features]
    if data.outcome_weights is not None:
        tables = [data.outcome_weights[..., None] * table for table in tables]
    probabilities = as_labels(data.predictions).label_probabilities()
    probabilities = sampled(probabilities, data.outcome_weights)
    # With the mean 0, residuals of a label are multiples of y - q.
    q = probabilities[:, 1] / jnp.sum(probabilities, axis=1)
    columns = jnp.concatenate([table[:, 1] - table[:, 0] for table in tables], axis=1)
    n_numbers = tuple(table.shape[2] for table in tables)
    return EventSums.of(columns, data.weights, q, cells, n_cells), n_numbers


def _matrices(kernels: Sequence[KernelLike], landmarks: Landmarks) -> jax.Array:
    """K of each of U kernels of one list at the landmarks, ``[U, F, F]``."""
    if len(kernels) == 1:
        return landmarks.matrix(kernels[0])[None]
    return jax.vmap(landmarks.matrix)(jax.tree.map(lambda *x: jnp.stack(x), *kernels))


# With as many numbers of a feature, kernels share the products of sums, half of which are needed.
_MANY_NUMBERS = 32
# The number of blocks of rows.  Products are symmetric: only blocks up to the diagonal are
# computed, and K counts twice before it.
_BLOCKS = 4


def _quadratic_forms(
    matrices: jax.Array, which: np.ndarray, sums: jax.Array, ends: list[int]
) -> jax.Array:
    """sum_ab K_ab <G_a, G_b> for each K of ``[T, F, F]``, ``[T, S, D]``.

    Args:
        matrices: K.
        which: the number of the G that belongs to each K, ``[T]``.
        sums: G of several weightings, for each data set, ``[weightings, F, D, M]``.
        ends: where the numbers of S residuals end.
    """
    n_kernels, size, _ = matrices.shape
    if sums.shape[3] >= _MANY_NUMBERS and sums.shape[0] == len(ends) == 1:
        blocks = []
        for start, end in itertools.pairwise(np.linspace(0, size, _BLOCKS + 1).astype(int)):
            twice = jnp.where(jnp.arange(end) < start, 2, 1).astype(matrices.dtype)[None, None]
            blocks.append((start, end, twice * matrices[:, start:end, :end]))

        def of_set(k: jax.Array) -> jax.Array:
            g = lax.dynamic_index_in_dim(sums[0], k, 1, keepdims=False)
            found = jnp.zeros(n_kernels, g.dtype)
            for start, end, block in blocks:
                found += jnp.sum(block * dot(g[start:end], g[:end].T)[None], axis=(1, 2))
            return found

        return lax.map(of_set, jnp.arange(sums.shape[2], dtype=jnp.int32)).T[:, None]

    def form(both: tuple[jax.Array, jax.Array]) -> jax.Array:
        matrix, number = both
        g = row_at(sums, number)
        products = jnp.sum(g * dot(matrix, g.reshape(size, -1)).reshape(g.shape), axis=0)
        return jnp.stack([jnp.sum(x, axis=1) for x in jnp.split(products, ends[:-1], axis=1)])

    return lax.map(form, (matrices, jnp.asarray(which)))
