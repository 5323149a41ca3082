r"""Bets against a model, whose gains are evidence that it is not calibrated.

A bet tilts the probabilities pi of the cells of an outcome by a function w of the past and of the
prediction.  With the shares s(y) of the cells,

    e = sum_a s_a(y) exp(w_a) / sum_a pi_a exp(w_a),    E e = 1 if the model is calibrated,

because E s(Y) = pi.  If s(y) is known only as a mixture of R possible shares, e is the least of
their R numbers, no larger than that of any mixture, and E e <= 1.  A product of such e is a wealth
that does not grow on average: by Ville's inequality it ever reaches 1 / a with a probability of at
most a, however often one looks (Ville, 1939; Shafer, Testing by betting, 2021; Ramdas et al.,
Game-theoretic statistics, 2023).

**Bets.**  The best w is the logarithm of the true over the stated probabilities.  In the basis of
`_outcomes`, theta has the prior variances tau prior_jk, and N rows with r = phi_j psi_k, whose
variance is 1 under the model, have the estimate

    theta_jk = sum r_jk / (N + 1 / (tau prior_jk)).

There is one bet for each size tau of an error and each memory, in which rows count half after that
many rows more.  Rows are taken a chunk at a time, and a chunk is bet on what is known before it.
Learning takes time.  Other bets have a small fixed theta in one of the directions with the largest
prior, such as an offset of all probabilities.  Others, which are not tilts, watch for targets that
the model nearly rules out: e = 1 - x + x sum_a s_a / (A pi_a) for small x.  Each of the three sorts
has a third of the money.

Rows that depend on each other.  Each row of a cluster has E e = 1 by itself, given the past before
the cluster, and so has the mean of e over its rows, whatever their joint distribution is:
expectations of sums need no independence.  Such means are multiplied over clusters instead of the e
of rows (Vovk and Wang, E-values: calibration, combination and applications, Annals of Statistics
2021).  There, tilts are larger by the root of the number of rows.

When to start.  A model that was calibrated for long has cost the bets of the past some wealth, and
what they have learnt.  Therefore half of the money starts at once, and the rest evenly on the scale
of log(1 + t), so that

    G(t) = 1/2 (1 - log(1 + t) / log(2^31))

is not at stake before batch t:

    M <- e (M + G(t) - G(t + 1)) for batch t,    evidence = M + G(t + 1).

The evidence is a mean over starts of wealths that begin with 1, and has their guarantee.

Chunks.  Rows of a chunk are bet on what was learnt before it.  Rows of one cluster may depend on
each other in any way, so that a bet on one of them must not know another one, wherever the chunks
end: a row teaches something only after the chunk in which its cluster ends.
"""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import logsumexp
from jax.typing import DTypeLike

from calibjax._base.sharding import as_varying
from calibjax._base.struct import PyTree, rows_of, struct
from calibjax.monitoring._outcomes import Basis, Outcomes

T = TypeVar("T")

# The number of chunks of a batch; more chunks would learn faster and take longer.
_CHUNKS = 8


@struct
class Chunks:
    """C chunks of at most m rows each.

    Args:
        index, weights: the row of the batch in each cell, and 1 for a row that counts, 0 in a cell
            without one, NaN as in the batch, ``[C, m]``.
        cluster: the number of the cluster of each row, ``[C, m]``, or None if all rows are alone.
        end: the chunk in which this cluster ends, ``[C, m]``, or None.
        is_last: whether the row is the last one of its cluster, ``[C, m]``, or None.
        boldness: by how much bets on the row are larger than on one that is alone, ``[C, m]``, or
            None.
    """

    index: jax.Array
    weights: jax.Array
    cluster: jax.Array | None = None
    end: jax.Array | None = None
    is_last: jax.Array | None = None
    boldness: jax.Array | None = None

    def rows_of(self, rows: T) -> T:
        """Arrays ``[n, …]`` of the batch, ``[C, m, …]``."""
        return jax.tree.map(lambda x: rows_of(x, self.index), rows)

    def sums_at_end(self, sums: Callable[[jax.Array], T]) -> T:
        """Sums over the rows of all clusters that end in a chunk, ``[C, …]``.

        Args:
            sums: from weights ``[C, m]`` to arrays ``[C, …]`` of sums over the rows of a chunk.
        """
        if self.end is None:
            return sums(self.weights)
        ends_here = self.end == jnp.arange(self.end.shape[0], dtype=jnp.int32)[:, None]
        ended, going_on = (
            sums(jnp.where(chosen, self.weights, 0.0)) for chosen in (ends_here, ~ends_here)
        )
        # At most one cluster of a chunk goes on, and no other one ends later.
        end = jnp.max(self.end, axis=1)
        return jax.tree.map(lambda x, more: x.at[end].add(more), ended, going_on)

    def gains(self, log_e: jax.Array) -> jax.Array:
        """The sum of log e over all clusters that end in a chunk, ``[C, …]``.

        The e of a cluster is the mean of those of its rows.

        Args:
            log_e: log e of each row, ``[C, …, m]``.
        """
        # A cell without a row may have an infinite log e.
        rows = jnp.where(_like(self.weights == 0, log_e), 0.0, log_e * _like(self.weights, log_e))
        if self.cluster is None or self.is_last is None:
            return jnp.sum(rows, axis=-1)
        rows = jnp.moveaxis(rows, -1, 1).reshape(self.index.size, *rows.shape[1:-1])
        of_clusters = _log_means(rows, self.cluster.reshape(-1), self.weights.reshape(-1))
        last = self.is_last.reshape(*self.is_last.shape, *(1,) * (of_clusters.ndim - 1))
        return jnp.sum(jnp.where(last, of_clusters[self.cluster], 0.0), axis=1)


def in_chunks(weights: jax.Array, clusters: jax.Array | None) -> Chunks:
    """The rows of a batch, cut into chunks as if there were only those that count.

    Rows that count have the weight 1, or NaN, and stand first; `clusters` ``[n]`` are integers that
    are equal for neighbours of one cluster, or None.
    """
    n = weights.shape[0]
    n_kept = jnp.sum(weights != 0, dtype=jnp.int32)
    size = -(-n_kept // jnp.clip(n_kept, 1, _CHUNKS))
    n_chunks = min(n, _CHUNKS)
    within = jnp.arange(-(-n // n_chunks), dtype=jnp.int32)
    index = jnp.arange(n_chunks, dtype=jnp.int32)[:, None] * size + within[None, :]
    is_row = (within[None, :] < size) & (index < n_kept)
    index = jnp.minimum(index, n - 1)
    here = jnp.where(is_row, weights[index], 0.0)
    if clusters is None:
        return Chunks(index, here)
    rows = jnp.arange(n, dtype=jnp.int32)
    begins = _differs_from_last(clusters) | (rows == n_kept)
    cluster = jnp.cumsum(begins, dtype=jnp.int32) - 1
    last = jax.ops.segment_max(rows, cluster, n, indices_are_sorted=True)[cluster]
    # A cell without a row ends in its own chunk, so that no cluster seems to go on there.
    own = jnp.arange(n_chunks, dtype=jnp.int32)[:, None]
    end = jnp.where(is_row, (last // jnp.maximum(size, 1))[index], own)
    is_last = is_row & (last == rows)[index]
    n_rows = (last - jax.ops.segment_min(rows, cluster, n, indices_are_sorted=True)[cluster]) + 1
    # The mean of S rows has a variance between 1 / S and 1 of that of one row, and the bet that
    # gains most is larger by the inverse (Kelly).  Nothing is known of where it lies between.
    boldness = jnp.sqrt(n_rows.astype(weights.dtype))
    return Chunks(index, here, cluster[index], end, is_last, boldness[index])


def order_of_rows(weights: jax.Array, clusters: jax.Array | None) -> jax.Array:
    """The rows that count first, those of a cluster together, clusters by their first rows."""
    is_masked = weights == 0
    if clusters is None:
        return jnp.argsort(is_masked, stable=True)
    n = weights.shape[0]
    by_cluster = jnp.lexsort((clusters, is_masked))
    begins = _differs_from_last(clusters[by_cluster]) | _differs_from_last(is_masked[by_cluster])
    group = jnp.cumsum(begins, dtype=jnp.int32) - 1
    first = jax.ops.segment_min(by_cluster, group, n, indices_are_sorted=True)[group]
    return by_cluster[jnp.lexsort((first, is_masked[by_cluster]))]


def _differs_from_last(x: jax.Array) -> jax.Array:
    """Whether a value differs from the one before, ``[n]``; the first one does."""
    return jnp.concatenate([jnp.ones(1, bool), x[1:] != x[:-1]])


def _log_means(log_e: jax.Array, cluster: jax.Array, weights: jax.Array) -> jax.Array:
    """The logarithm of the mean of e over the rows of each cluster, ``[n, …]``."""
    n = cluster.size
    weights = weights.reshape(n, *(1,) * (log_e.ndim - 1))
    largest = jax.ops.segment_max(jnp.where(weights == 0, -jnp.inf, log_e), cluster, n)
    # An infinite e stays infinite.
    largest = jnp.where(jnp.isfinite(largest), largest, 0.0)
    e = jnp.where(weights == 0, 0.0, weights * jnp.exp(log_e - largest[cluster]))
    total, size = (jax.ops.segment_sum(x, cluster, n) for x in (e, weights))
    return largest + jnp.log(total) - jnp.log(jnp.where(size == 0, 1.0, size))


def _like(rows: jax.Array, x: jax.Array) -> jax.Array:
    """Values of rows ``[…, m]`` with axes of size 1 before the last, to go with ``[C, …, m]``."""
    between = x.ndim - rows.ndim
    return rows.reshape(*rows.shape[:-1], *(1,) * between, rows.shape[-1])


# Variances tau of w, and shares x of the bets on surprises.
_SIZES = 1e-3, 3e-2, 1.0
_SURPRISES = 1e-3, 1e-2, 1e-1
# The largest logarithm of a tilt: exp(80) is finite in float32.
_LARGEST_TILT = 80.0

# Coefficients of the bets that always bet on one direction, and the number of directions.
_FIXED, _DIRECTIONS = (-0.3, -0.1, -0.03, 0.03, 0.1, 0.3), 3
# The numbers of rows after which a row counts half.
_MEMORIES = math.inf, 500.0
# The logarithm of a gain that may be chance.
_NEAR = 1.0
# The logarithm of 1 plus the largest number of batches.
_LAST_START = math.log(2**31)

# The number of bets of each sort, and the logarithms of their shares of the money.
_SORTS = len(_SIZES) * len(_MEMORIES), len(_FIXED) * _DIRECTIONS, len(_SURPRISES)
_LOG_SHARES = np.concatenate([np.full(n, -math.log(len(_SORTS) * n)) for n in _SORTS])


@struct
class Bets:
    """What is known and won so far, for T sets of outcomes.

    Args:
        sums: sum of phi_j psi_k for each kind of features, set and memory, ``[T, H, J, K]``.
        counts: the number of rows in each memory, ``[H]``.
        wealth: log M of each set and bet, ``[T, B]``.
        gains: the sum of log e over all rows, ``[T, B]``.
        least: the smallest such sum so far, ``[T, B]``.
        low_until: the number of rows when the sum was last near the smallest one, ``[T, B]``.
        n_rows: the number of rows so far.
        n_updates: the number of batches so far.
    """

    sums: list[jax.Array]
    counts: jax.Array
    wealth: jax.Array
    gains: jax.Array
    least: jax.Array
    low_until: jax.Array
    n_rows: jax.Array
    n_updates: jax.Array

    def log_evidence(self) -> jax.Array:
        """The logarithm of the evidence, a mean over all sets and bets."""
        shares = jnp.asarray(_LOG_SHARES, self.wealth.dtype)[None]
        mean = logsumexp(self.wealth + shares) - math.log(self.wealth.shape[0])
        left = jnp.maximum(_not_at_stake(self.n_updates, self.wealth.dtype), 0.0)
        return jnp.logaddexp(mean, jnp.log(left))

    def change_point(self) -> jax.Array:
        """The number of rows when the sum of the richest bet was last near its smallest one."""
        return self.low_until.reshape(-1)[jnp.argmax(self.wealth)]


#: The sums of each kind of features, and the number of rows in each memory.
Known = tuple[list[jax.Array], jax.Array]


def first_bets(bases: list[Basis], n_sets: int, dtype: DTypeLike) -> Bets:
    """The state before the first row."""
    numbers = jnp.zeros((n_sets, sum(_SORTS)), dtype)
    return Bets(
        sums=[jnp.zeros((n_sets, len(_MEMORIES), *b.prior.shape), dtype) for b in bases],
        counts=jnp.zeros(len(_MEMORIES), dtype),
        wealth=jnp.full_like(numbers, jnp.log(0.5)),
        gains=numbers,
        least=numbers,
        low_until=jnp.zeros(numbers.shape, jnp.int32),
        n_rows=jnp.zeros((), jnp.int32),
        n_updates=jnp.zeros((), jnp.int32),
    )


def after_rows(
    bases: list[Basis],
    bets: Bets,
    phi: list[jax.Array],
    outcomes: Outcomes,
    weights: jax.Array,
    clusters: jax.Array | None,
) -> tuple[Bets, jax.Array, jax.Array]:
    """The state after n more rows, the log evidence and `change_point` after each chunk ``[C]``.

    Args:
        bases: the bases of all kinds of features.
        bets: the state before.
        phi: phi_j of the predictions, ``[n, J]`` for each kind.
        outcomes: the outcomes of the rows.
        weights: 1 for rows that count, which stand first, and 0 for the others, ``[n]``; NaN makes
            the state NaN.
        clusters: integers ``[n]``, equal for neighbours that may depend on each other; or None.
    """
    psi = [
        basis.outcome_functions(features, outcomes.probabilities)
        for basis, features in zip(bases, outcomes.features, strict=True)
    ]
    # The cells of numbers are the same for all rows.
    cells = psi, outcomes.probabilities
    are_shared = outcomes.probabilities.shape[0] == 1
    chunks = in_chunks(weights, clusters)
    rows = chunks.rows_of((phi, outcomes.shares, None if are_shared else cells))

    def target_functions(rows: PyTree) -> list[jax.Array]:
        _, shares, of_rows = rows
        psi, _ = cells if are_shared else of_rows
        likely = jnp.mean(shares, axis=2)
        return [jnp.sum(likely[:, :, :, None] * x[:, None], axis=2) for x in psi]

    bets, known = _learnt(bets, chunks, rows[0], lax.map(target_functions, rows))

    def log_e(chunk: PyTree) -> jax.Array:
        known, (phi, shares, of_rows), boldness = chunk
        rows = phi, shares, *(cells if are_shared else of_rows)
        return _log_e_of_rows(_learnt_thetas(bases, *known), rows, boldness)

    gains = chunks.gains(lax.map(log_e, (known, rows, chunks.boldness)))
    counts = chunks.sums_at_end(lambda weights: jnp.sum(weights > 0, axis=1, dtype=jnp.int32))

    def step(bets: Bets, more: tuple[jax.Array, jax.Array]) -> tuple[Bets, tuple[jax.Array, ...]]:
        gain, n_rows = more[0], _one_more(bets.n_rows, more[1])
        gains = bets.gains + gain
        least = jnp.minimum(bets.least, gains)
        low_until = jnp.where(gains < least + _NEAR, n_rows, bets.low_until)
        wealth, of_sums = bets.wealth + gain, (bets.sums, bets.counts)
        bets = Bets(*of_sums, wealth, gains, least, low_until, n_rows, bets.n_updates)
        return bets, (bets.log_evidence(), bets.change_point())

    start = as_varying(_with_new_start(bets), (gains, counts))
    bets, (evidence, changes) = lax.scan(step, start, (gains, counts))
    return bets, evidence, changes


def _learnt(
    bets: Bets, chunks: Chunks, phi: list[jax.Array], psi: list[jax.Array]
) -> tuple[Bets, Known]:
    """The state with what n rows teach, and the sums and counts that are known before each chunk.

    Args:
        bets: the state before.
        chunks: the rows.
        phi: phi_j of each row, ``[C, m, J]`` for each kind.
        psi: psi_k of each target, ``[C, m, T, K]`` for each kind.
    """

    def products_of(f: jax.Array, g: jax.Array) -> jax.Array:
        def sums(weights: jax.Array) -> jax.Array:
            return jnp.einsum("cn,cnj,cntk->ctjk", weights, f, g, precision="highest")

        return chunks.sums_at_end(sums)

    products = list(map(products_of, phi, psi))
    counts = chunks.sums_at_end(lambda weights: jnp.sum(weights, axis=1))
    memories = jnp.asarray(_MEMORIES, counts.dtype)

    def step(known: Known, more: tuple[list[jax.Array], jax.Array]) -> tuple[Known, Known]:
        (sums, rows), (products, count) = known, more
        kept = 0.5 ** (count / memories)
        after = [
            kept[None, :, None, None] * x + new[:, None]
            for x, new in zip(sums, products, strict=True)
        ]
        return (after, kept * rows + count), known

    start = as_varying((bets.sums, bets.counts), (products, counts))
    (sums, rows), known = lax.scan(step, start, (products, counts))
    return dataclasses.replace(bets, sums=sums, counts=rows), known


def _with_new_start(bets: Bets) -> Bets:
    """The state before a batch, when a part of the money that is left starts to bet."""
    n_updates = _one_more(bets.n_updates)
    dtype = bets.wealth.dtype
    starting = _not_at_stake(bets.n_updates, dtype) - _not_at_stake(n_updates, dtype)
    # Rounding could make the part that starts negative.
    wealth = jnp.logaddexp(bets.wealth, jnp.log(jnp.maximum(starting, 0.0)))
    return dataclasses.replace(bets, wealth=wealth, n_updates=n_updates)


def _not_at_stake(n_updates: jax.Array, dtype: DTypeLike) -> jax.Array:
    """G(t), the money that starts at batch t or later."""
    return 0.5 - 0.5 * jnp.log1p(n_updates.astype(dtype)) / _LAST_START


def _one_more(n: jax.Array, more: jax.Array | int = 1) -> jax.Array:
    """n + more, or the largest number of its dtype: counts do not overflow."""
    return n + jnp.minimum(jnp.asarray(more, n.dtype), jnp.iinfo(n.dtype).max - n)


def _learnt_thetas(bases: list[Basis], sums: list[jax.Array], counts: jax.Array) -> list[jax.Array]:
    """theta of each kind, for each set and bet that learns, ``[T, B, J, K]``."""
    sizes = jnp.asarray(_SIZES, counts.dtype)[:, None, None, None]
    counts = counts[None, :, None, None]

    thetas = []
    for basis, x in zip(bases, sums, strict=True):
        is_used = basis.prior > 0
        inverse = 1.0 / (sizes * jnp.where(is_used, basis.prior, 1.0)[None, None])
        theta = jnp.where(is_used[None, None, None], x[:, None] / (counts + inverse)[None], 0.0)
        thetas.append(theta.reshape(x.shape[0], -1, *basis.prior.shape))
    return thetas


def _log_e_of_rows(tilts: list[jax.Array], rows: PyTree, boldness: jax.Array | None) -> jax.Array:
    """log e of each set and bet for each row, ``[T, B, n]``; tilts are multiplied by `boldness`.

    The rows are phi, shares, psi and probabilities.  They stand last in all arrays here: a CPU then
    takes many of them at a time.
    """
    phi, shares, psi, probabilities = jax.tree.map(lambda x: jnp.moveaxis(x, 0, -1), rows)
    learnt = _learnt_tilts(tilts, phi, psi)
    main = _main_directions(phi, psi)
    fixed = jnp.concatenate([size * main for size in _FIXED])
    fixed = jnp.broadcast_to(fixed[None], (learnt.shape[0], *fixed.shape))
    # w_a of each set, bet and row, [T, B, A, n].
    w = jnp.concatenate([learnt, fixed], axis=1)
    w = w if boldness is None else w * boldness[None, None, None]
    possible = (probabilities > 0)[None, None]
    largest = jnp.max(jnp.where(possible, w, -jnp.inf), axis=2, keepdims=True)
    tilted = jnp.exp(jnp.minimum(w - largest, _LARGEST_TILT))
    tiny = jnp.finfo(w.dtype).tiny
    of_target = jnp.sum(tilted[:, :, None] * shares[:, None], axis=3)
    of_target = jnp.log(jnp.maximum(jnp.min(of_target, axis=2), tiny))
    mean = jnp.sum(jnp.where(possible, tilted * probabilities[None, None], 0.0), axis=2)
    # Probabilities of labels sum to one up to rounding, and millions of rows would add it up.
    total = jnp.sum(probabilities, axis=0)[None, None]
    of_tilts = of_target - jnp.log(mean / total)
    # A target in a cell of probability 0 is infinite evidence.
    stated = jnp.where(shares > 0, probabilities[None, None], 1.0)
    surprise = jnp.min(jnp.sum(shares / stated, axis=2), axis=1, keepdims=True)
    surprise = surprise / probabilities.shape[0]
    sizes = jnp.asarray(_SURPRISES, w.dtype)[None, :, None]
    return jnp.concatenate([of_tilts, jnp.log1p(sizes * (surprise - 1.0))], axis=1)


def _learnt_tilts(tilts: list[jax.Array], phi: list[jax.Array], psi: list[jax.Array]) -> jax.Array:
    """sum_jk theta_jk phi_j psi_k at each cell for the bets that learn, ``[T, B, A, n]``."""
    terms = []
    for theta, of_prediction, of_cells in zip(tilts, phi, psi, strict=True):
        of_row = jnp.einsum("tbjk,jn->tbkn", theta, of_prediction, precision="highest")
        # A product of matrices would be slow here: there is a tiny one for each row.
        terms += [of_row[:, :, k, None] * of_cells[None, None, :, k] for k in range(theta.shape[3])]
    return functools.reduce(jnp.add, terms)


def _main_directions(phi: list[jax.Array], psi: list[jax.Array]) -> jax.Array:
    """phi_0 psi_k for the first k of each kind, whose priors are large, ``[D, A, n]``.

    Labels have three kinds of features, and numbers have one kind.
    """
    first = slice(_DIRECTIONS // len(phi))
    of_kinds = zip(phi, psi, strict=True)
    return jnp.concatenate([f[0][None, None] * jnp.moveaxis(g, 1, 0)[first] for f, g in of_kinds])
