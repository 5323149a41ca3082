r"""Bootstraps of an SKCE: multinomial, wild, and of weighted dependent rows.

**Multinomial.**  Let c be the counts of a resample (n draws with replacement out of n rows), H the
matrix of h, and d its diagonal.  Given the data,

    T* = [n/(n-1) (c^T H c - c^T d) - 2 c^T H 1] / n^2

is compared with S = n/(n-1) SKCE_u - SKCE_b: T* + SKCE_b has asymptotically the distribution that
n/(n-1) SKCE_u has if the model is calibrated (Arcones and Giné, On the bootstrap of U and V
statistics, 1992).  The code computes T* from e = c - 1, which has mean 0, so that every term is
small where T* is small.

**Wild.**  If a model is calibrated, the mean of h_ij over one of its samples, given the other, is
0.  With independent random signs e, the variance of sum_{i != j} e_i e_j h_ij given the data is
2 sum_{i != j} h_ij^2, whose mean is the variance of sum_{i != j} h_ij over data sets; both sums
have asymptotically the same distribution (Leucht and Neumann, Dependent wild bootstrap for
degenerate U- and V-statistics, Journal of Multivariate Analysis 2013).  The diagonal of H plays no
part.  In a multinomial resample, which repeats rows, a large diagonal hides the sum over pairs.

**Weighted dependent rows.**  The SKCE is |w|^2 for the mean w of a random function
xi_i of a row, and H_ij = <xi_i, xi_j>.  With weights w_i and W = sum_i w_i, the mean of the rows is
w_n = sum_i w_i xi_i / W, the biased estimate is |w_n|^2, and its error is

    delta = w_n - w = sum_g S_g / W,    S_g = sum_{i in g} w_i (xi_i - w),

a sum over clusters g, which are independent and have means of 0 in the limit.

**The estimate.**  Two rows of one cluster have no <xi_i, xi_j> of mean |w|^2, not even in a
calibrated model, where it is 0.  With Q = sum w_i w_j H_ij and P = sum w_i w_j over all pairs of
rows that may depend on each other, a row with itself included,

    SKCE = (W^2 |w_n|^2 - Q) / (W^2 - P)

is the mean over the other pairs, and |w_n|^2 - SKCE estimates E |delta|^2.

**Draws of the error.**  Random multipliers eta of clusters, of mean 0 and variance 1, give

    delta* = f sum_i e_i xi_i / W,    e_i = w_i (eta_g(i) - sum_j w_j eta_g(j) / W).

As sum_i e_i = 0, w cancels: sum_i e_i xi_i is the sum of eta_g (S_g - w_g delta), where w_g is the
weight of cluster g.  The squares of the brackets have the mean E |S_g|^2 - 2 w_g E <S_g, delta> +
w_g^2 E |delta|^2.  If E |S_g|^2 grows as w_g, or all w_g are equal, their sum is
(1 - P / W^2) W^2 E |delta|^2, with P = sum_g w_g^2.  Hence f^2 = 1 / (1 - P / W^2), and
E |delta*|^2 is |w_n|^2 - SKCE where clusters weigh the same.

Few clusters do not know this size well: as in a test of Student, all e_i of a draw are multiplied
with sqrt(nu / chi^2_nu), where nu + 1 = W^2 / P is their number, if they weigh the same.

**Draws of |w_n|^2 if the model is calibrated** are those of |sum_i w_i eta_g(i) xi_i / W|^2: w is
known to be 0, no mean is subtracted, and with few clusters a test has the right level.

**Times.**  Instead of signs of clusters, eta are rotations of the sums over times (`sampler.py`).
Their sizes know that the mean takes one of the K + 1 sums out, so that f is 1.

All of these are forms of the vectors v_i = w_i eta_i, and of m = sum_i v_i / W:

    W^2 |delta*|^2 = f^2 (v^T H v - 2 m v^T H w + m^2 w^T H w),
    W^2 <w_n, delta*> = f (v^T H w - m w^T H w).

Reference: Leucht and Neumann, Dependent wild bootstrap for degenerate U- and V-statistics, Journal
of Multivariate Analysis 2013; Cameron, Gelbach and Miller, Bootstrap-based improvements for
inference with clustered errors, Review of Economics and Statistics 2008.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from calibjax._base.sharding import Axis, all_sum, axis_size, global_offset
from calibjax._data.data import Rows
from calibjax._loops.random_numbers import folded, random_integers, random_signs
from calibjax._numbers.arithmetic import ROUNDINGS_OF_TERMS, dot, fast_where
from calibjax.nulls.draws import DRAWS_PER_BATCH, row_numbers
from calibjax.nulls.engine import in_passes
from calibjax.nulls.ranks import rounding_of
from calibjax.nulls.sampler import TimeTurns, sizes_of_draws, turns
from calibjax.operators.gram_matrix import DiscrepancyMatrix, TiledH, related_sums

# The number of resamples that share one pass over H.  Their counts, or signs, take one byte for
# each resample and row.
_TOGETHER = 1024
# The number of draws, or signs, that are made at a time.
_DRAWS = 2**20
# The number of draws that share one key.  Draws depend on the key and their position only, so that
# many devices make the same draws as one.
_DRAWS_PER_KEY = 128

# The number of batches of multipliers that share one pass over H: some hundreds of numbers of each
# row.  The process of times takes two more numbers for each draw and time.
_BATCHES, _BATCHES_OF_TIMES = 5, 2


class ResampledForms(NamedTuple):
    """Sums over H of the centred counts e of R resamples, with H = G + diag(d).

    Args:
        pairs: e^T G e, ``[R]``.
        rows: e^T G 1, ``[R]``.
        diagonal: sum_i e_i d_i, ``[R]``.
        squares: sum_i e_i^2 d_i, ``[R]``.
    """

    pairs: jax.Array
    rows: jax.Array
    diagonal: jax.Array
    squares: jax.Array


def bootstrap_draws(
    key: jax.Array, h: DiscrepancyMatrix, n_kept: jax.Array | int, n_resamples: int
) -> tuple[jax.Array, jax.Array]:
    """The draws T* ``[n_resamples]``, and the row sums of H without its diagonal ``[n]``.

    The arguments and the cost are those of `resampled_forms`.
    """
    forms, row_sums = resampled_forms(key, h, n_kept, n_resamples)
    count, total = h.count(), all_sum(jnp.sum(h.weights * row_sums), h.axis)
    # c^T H c - c^T d = c^T G c + sum_i (c_i^2 - c_i) d_i, and c_i^2 - c_i = e_i^2 + e_i.
    quadratic = forms.pairs + 2 * forms.rows + total + forms.squares + forms.diagonal
    # c^T H 1 = c^T G 1 + c^T d.
    linear = forms.rows + total + forms.diagonal + h.trace()
    return (count / (count - 1) * quadratic - 2 * linear) / jnp.square(count), row_sums


def resampled_forms(
    key: jax.Array, h: DiscrepancyMatrix, n_kept: jax.Array | int, n_resamples: int
) -> tuple[ResampledForms, jax.Array]:
    """The sums over H of each resample, and the row sums of H without its diagonal ``[n]``.

    The first `n_kept` rows of this device have weight 1, the other rows 0.  One pass over H serves
    1024 resamples, and the memory is one byte for each of these resamples and each row.
    """
    n, diagonal = h.weights.shape[0], h.diagonal

    def forms_of(numbers: jax.Array) -> tuple[ResampledForms, jax.Array]:
        excess = centred_counts(key, numbers, n, n_kept, h.axis)
        pairs, row_sums = h.quadratic_forms(excess)
        products = _products_with_columns(excess, jnp.stack([row_sums, h.weights * diagonal]))
        (rows, of_diagonal), (_, squares) = all_sum(products, h.axis)
        return ResampledForms(pairs, rows, of_diagonal, squares), row_sums

    return in_passes(forms_of, n_resamples, _TOGETHER, size=1)


def wild_draws(
    key: jax.Array, h: DiscrepancyMatrix, n_kept: jax.Array | int, n_resamples: int
) -> tuple[jax.Array, jax.Array]:
    """sum_{i != j} e_i e_j h_ij / (n - 1) of each resample, and the row sums of H ``[n]``.

    The arguments and the cost are those of `resampled_forms`.
    """

    def forms_of(numbers: jax.Array) -> tuple[jax.Array, jax.Array]:
        return h.quadratic_forms(_signs(key, numbers, h.weights.shape[0], n_kept, h.axis))

    forms, row_sums = in_passes(forms_of, n_resamples, _TOGETHER, size=1)
    return forms / (h.count() - 1), row_sums


def centred_counts(
    key: jax.Array, numbers: jax.Array, n: int, n_kept: jax.Array | int, axis: Axis
) -> jax.Array:
    """How often each resample contains each row of this device, minus 1; ``[R, n]``, int8.

    A resample has as many draws as rows are kept on all devices.  The kept rows of this device are
    the first `n_kept` of its n rows.  Draw i of resample r depends only on (key, r, i).
    """
    first, n_all = global_offset(n_kept, axis)
    kept = jnp.arange(n, dtype=jnp.int32) < n_kept
    # Every device makes all draws, about n at a time, and counts the draws of its own rows.
    n_parts = axis_size(axis)
    n_keys = -(-n // _DRAWS_PER_KEY)

    def counts_of_resample(number):
        resample_key = jax.random.fold_in(key, number)

        def add_draws(counts, part):
            numbers = part * n_keys + jnp.arange(n_keys, dtype=jnp.int32)
            keys = jax.vmap(jax.random.fold_in, (None, 0))(resample_key, numbers)
            drawn = jax.vmap(lambda k: random_integers(k, _DRAWS_PER_KEY, n_all))(keys)
            offset = jnp.arange(_DRAWS_PER_KEY, dtype=jnp.int32)
            position = numbers[:, None] * _DRAWS_PER_KEY + offset[None, :]
            row = drawn - first
            is_here = (position < n_all) & (row >= 0) & (row < n_kept)
            # A row is drawn once on average, and practically never more than 127 times.
            here = counts.at[fast_where(is_here, row, n)]
            return here.add(jnp.int8(1), mode="drop", wrap_negative_indices=False), None

        return lax.scan(add_draws, -kept.astype(jnp.int8), jnp.arange(n_parts, dtype=jnp.int32))[0]

    return _mapped(counts_of_resample, numbers, n)


def _products_with_columns(excess: jax.Array, columns: jax.Array) -> tuple[jax.Array, jax.Array]:
    """sum_i e_ri x_ki and sum_i e_ri^2 x_ki, each ``[k, R]``, a few resamples r at a time."""

    def products(e):
        e = e.astype(columns.dtype)
        return dot(columns, e), dot(columns, jnp.square(e))

    linear, squares = lax.map(products, excess, batch_size=max(1, _DRAWS // excess.shape[1]))
    return linear.T, squares.T


def _signs(
    key: jax.Array, numbers: jax.Array, n: int, n_kept: jax.Array | int, axis: Axis
) -> jax.Array:
    """1 or -1 for each resample and kept row of this device, else 0; ``[R, n]``, int8.

    A sign depends only on the key, the number of the resample and the number of the kept row.
    """
    first, _ = global_offset(n_kept, axis)
    kept = (jnp.arange(n, dtype=jnp.int32) < n_kept).astype(jnp.int8)

    def signs_of_resample(number):
        n_all = n * axis_size(axis)
        signs = random_signs(folded(key, number), n_all + n, jnp.int8)
        return kept * lax.dynamic_slice_in_dim(signs, first, n)

    return _mapped(signs_of_resample, numbers, n)


def _mapped(function: Callable[[jax.Array], jax.Array], numbers: jax.Array, n: int) -> jax.Array:
    """``function(number)`` of each resample, some draws of n rows at a time."""
    count = numbers.shape[0]
    n_batches = -(-count // max(1, _DRAWS // n))
    size = -(-count // n_batches)
    # An incomplete last batch would be compiled as another program.
    numbers = jnp.pad(numbers, (0, n_batches * size - count), mode="edge")
    return lax.map(function, numbers, batch_size=size)[:count]


class DependentSums(NamedTuple):
    """The estimates of an SKCE, and R draws of what may be wrong with them.

    Args:
        estimate: the mean of h over the pairs of rows that do not depend on each other.
        biased: |w_n|^2.
        errors: |delta*|^2, ``[R]``.
        linear: <w_n, delta*>, ``[R]``.
        null: |w_n|^2 if the model is calibrated, ``[R]``; with few clusters all may have the same
            multiplier, 1 or -1, and a draw that only rounding parts from `biased` is not smaller.
    """

    estimate: jax.Array
    biased: jax.Array
    errors: jax.Array
    linear: jax.Array
    null: jax.Array


def dependent_sums(key: jax.Array, h: TiledH, data: Rows, n_resamples: int) -> DependentSums:
    """The sums of H on clean `data`, whose rows are those of H in their order.

    All numbers are NaN if all rows depend on each other.  Draw r depends only on (key, r) and the
    order of clusters or times.  O(n^2 n_resamples) time; O(n) memory, some hundreds of numbers for
    each row.
    """
    h_diagonal, weights, axis = h.diagonal, h.weights, h.axis
    is_alone = not data.is_dependent
    if is_alone:
        data = data.replace(clusters=row_numbers(data.weights, axis))
    of_pairs, n_pairs = (0.0, 0.0) if is_alone else related_sums(h, data)
    eta = turns(data, None, axis)
    own = weights * h_diagonal

    def forms_of(batches: jax.Array) -> tuple[tuple[jax.Array, ...], jax.Array]:
        """v^T H v, v^T H w and sum_i v_i of some batches of draws, and the row sums of H."""
        vectors = (data.weights[:, None] * eta.values(eta.rows, eta.shared(batches))).T
        vectors = jnp.pad(vectors, ((0, 0), (0, weights.shape[0] - data.n)))
        pairs, row_sums = h.quadratic_forms(vectors)
        of_draws = (
            dot(jnp.square(vectors), h_diagonal),
            dot(vectors, row_sums + own),
            jnp.sum(vectors, axis=1),
        )
        squares, linear, totals = all_sum(of_draws, axis)
        return (pairs + squares, linear, totals), row_sums

    most = _BATCHES if data.times is None else _BATCHES_OF_TIMES
    (quadratic, linear, totals), row_sums = in_passes(forms_of, n_resamples, most)
    count, trace = h.count(), h.trace()
    squares = all_sum(jnp.sum(jnp.square(weights)), axis)
    off_diagonal = all_sum(jnp.sum(weights * row_sums), axis)
    total, unit = off_diagonal + trace, 1 / jnp.square(count)
    unrelated = 1 - unit * (n_pairs + squares)
    unrelated = fast_where(
        unrelated > ROUNDINGS_OF_TERMS * jnp.finfo(weights.dtype).eps, unrelated, jnp.nan
    )
    means = totals / count
    errors = unit * (quadratic - 2 * means * linear + jnp.square(means) * total)
    linear = unit * (linear - means * total)
    null = unit * quadratic
    batches = jnp.arange(-(-n_resamples // DRAWS_PER_BATCH), dtype=jnp.int32)
    if isinstance(eta, TimeTurns):
        sizes = fast_where(jnp.isnan(unrelated), jnp.nan, eta.sizes(key, batches))
    else:
        freedom = jnp.maximum(unrelated / (1 - unrelated), 1.0)
        sizes = sizes_of_draws(key, batches, freedom, freedom) / jnp.sqrt(unrelated)
    sizes = sizes[:n_resamples]
    errors, linear = errors * jnp.square(sizes), linear * sizes
    null, biased = jnp.maximum(null, 0.0), unit * total
    return DependentSums(
        estimate=unit * (off_diagonal - of_pairs) / unrelated,
        biased=biased,
        errors=jnp.maximum(errors, 0.0),
        linear=linear,
        null=null + rounding_of(biased[None]),
    )
