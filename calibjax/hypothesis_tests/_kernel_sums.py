"""Sums over rows of the residuals of kernels, and the forms of these sums: statistics of a test.

Residuals of one row are added to the cell that the row is in, of each distance between predictions,
in one loop for all distances and data sets.
"""

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from calibjax._base.struct import rows_of, static, struct
from calibjax._data.distribution import as_labels
from calibjax._loops.coordinate_sums import row_at
from calibjax._loops.fusion import made_once
from calibjax._numbers.arithmetic import diagonal_of, dot
from calibjax.features.columns import ColumnFeatures
from calibjax.features.weighted_sums import (
    MANY_CLASSES,
    InCells,
    Landmarks,
    sums_of_classes,
    weighted_sums,
)
from calibjax.hypothesis_tests._kernel_terms import KernelTerms, Pair
from calibjax.nulls.engine import AllRows, Chunk, Statistic, factor_of_drawn, sums_of_sets
from calibjax.nulls.event_sums import EventSums
from calibjax.nulls.sampler import ClusterTurns
from calibjax.residuals.base import FiniteResidual, Indicators
from calibjax.residuals.pit import values_of

#: Weightings, and the residuals of each of them.
Block = tuple[tuple[int, ...], tuple[int, ...]]
#: G and the sums of squares of pairs, which the diagonals follow from: of those whose residuals are
#: indicators of classes, and flat for blocks of all others.
Sums = tuple[dict[Pair, tuple[jax.Array, jax.Array]], dict[Block, jax.Array]]
#: G ``[weightings, F, 1 + D, M]`` of all residuals, and squares ``[weightings, F, residuals]``.
BlockSums = tuple[jax.Array, jax.Array]
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
        xi = chunk.xi
        if xi is not None and isinstance(chunk.sets.turns, ClusterTurns):
            # Each number of a feature would else draw all signs again.
            xi = made_once(xi)
        for block in self._blocks([pair for pair in self.terms.pairs if pair not in of_classes]):
            weightings, residuals = block
            every = jnp.concatenate([values[s] for s in residuals], axis=2)
            if xi is not None:
                missing = jnp.concatenate([chunk.missing[s] for s in residuals], axis=2)
                sets = xi[..., None] * every[:, :1] + missing * every[:, 1:]
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
