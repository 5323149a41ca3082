r"""What weighted rows that depend on each other say of an SKCE, and how far it may be off.

The SKCE is |w|^2 for the mean w of a random function xi_i of a row, and H_ij = <xi_i, xi_j>.  With
weights w_i and W = sum_i w_i, the mean of the rows is w_n = sum_i w_i xi_i / W, the biased estimate
is |w_n|^2, and its error is

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
known to be 0, no mean is taken out, and with few clusters a test has the right level.

**Times.**  Instead of clusters, eta is the process of `_multipliers.py` with Bartlett's covariance.
Its sizes know what the mean takes out, so that f is 1, and tests take the same draws.

All of these are forms of the vectors v_i = w_i eta_i, and of m = sum_i v_i / W:

    W^2 |delta*|^2 = f^2 (v^T H v - 2 m v^T H w + m^2 w^T H w),
    W^2 <w_n, delta*> = f (v^T H w - m w^T H w).

Reference: Leucht and Neumann, Dependent wild bootstrap for degenerate U- and V-statistics, Journal
of Multivariate Analysis 2013; Cameron, Gelbach and Miller, Bootstrap-based improvements for
inference with clustered errors, Review of Economics and Statistics 2008.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from calibjax._numbers import dot
from calibjax._rows import Data
from calibjax._sharding import all_sum
from calibjax.operators import TiledH, related_sums
from calibjax.resampling._draws import DRAWS_PER_GROUP, row_numbers
from calibjax.resampling._multipliers import TimeMultipliers, multipliers, sizes_of_draws
from calibjax.resampling._rank import rounding_of

# The number of groups of draws that share one pass over H: some hundreds of numbers for each row.
# The process of times takes two more numbers for each draw and time.
_TOGETHER, _TOGETHER_OF_TIMES = 5, 2


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


def dependent_sums(
    key: jax.Array, h: TiledH, data: Data, n_resamples: int, is_normal: bool
) -> DependentSums:
    """The sums of H on clean `data`, whose rows are those of H in their order.

    All numbers are NaN if all rows depend on each other.  Draw r depends only on (key, r) and the
    order of clusters or times.  With `is_normal` clusters have normal multipliers, as residuals of
    labels need them.  O(n^2 n_resamples) time; O(n) memory, some hundreds of numbers for each row.
    """
    h_diagonal, weights, axis = h.diagonal, h.weights, h.axis
    is_alone = data.clusters is None and data.times is None
    if is_alone:
        data = data.replace(clusters=row_numbers(data.weights, axis))
    of_pairs, n_pairs = (0.0, 0.0) if is_alone else related_sums(h, data)
    eta = multipliers(key, data, is_normal, None, axis)
    own = weights * h_diagonal

    def forms_of(groups: jax.Array) -> tuple[tuple[jax.Array, ...], jax.Array]:
        """v^T H v, v^T H w and sum_i v_i of some groups of draws, and the row sums of H."""
        factors = eta.values(eta.rows, eta.shared(groups))
        vectors = (data.weights[:, None] * factors).T
        vectors = jnp.pad(vectors, ((0, 0), (0, weights.shape[0] - data.n)))
        pairs, row_sums = h.quadratic_forms(vectors)
        of_draws = (
            dot(jnp.square(vectors), h_diagonal),
            dot(vectors, row_sums + own),
            jnp.sum(vectors, axis=1),
        )
        squares, linear, totals = all_sum(of_draws, axis)
        return (pairs + squares, linear, totals), row_sums

    n_groups = -(-n_resamples // DRAWS_PER_GROUP)
    n_passes = -(-n_groups // (_TOGETHER if data.times is None else _TOGETHER_OF_TIMES))
    together = -(-n_groups // n_passes)
    groups = jnp.arange(n_passes * together, dtype=jnp.int32).reshape(n_passes, together)
    forms, row_sums = lax.map(forms_of, groups)
    quadratic, linear, totals = (x.reshape(-1)[:n_resamples] for x in forms)

    count, trace = h.count(), h.trace()
    squares = all_sum(jnp.sum(jnp.square(weights)), axis)
    off_diagonal = all_sum(jnp.sum(weights * row_sums[0]), axis)
    total, unit = off_diagonal + trace, 1 / jnp.square(count)
    unrelated = 1 - unit * (n_pairs + squares)
    unrelated = jnp.where(unrelated > _ROUNDING * jnp.finfo(weights.dtype).eps, unrelated, jnp.nan)
    means = totals / count
    errors = unit * (quadratic - 2 * means * linear + jnp.square(means) * total)
    linear = unit * (linear - means * total)
    null = unit * quadratic
    if isinstance(eta, TimeMultipliers):
        null = errors = jnp.where(jnp.isnan(unrelated), jnp.nan, errors)
    else:
        errors, linear = errors / unrelated, linear / jnp.sqrt(unrelated)
        # Normal multipliers have sizes already.
        if not is_normal:
            freedom = jnp.maximum(unrelated / (1 - unrelated), 1.0)
            sizes = sizes_of_draws(key, groups.reshape(-1), freedom, freedom)[:n_resamples]
            errors, linear = errors * jnp.square(sizes), linear * sizes
    null, biased = jnp.maximum(null, 0.0), unit * total
    return DependentSums(
        estimate=unit * (off_diagonal - of_pairs) / unrelated,
        biased=biased,
        errors=jnp.maximum(errors, 0.0),
        linear=linear,
        null=null + rounding_of(biased[None]),
    )


# In units of the precision of the dtype.
_ROUNDING = 64
