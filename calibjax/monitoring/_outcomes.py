r"""Targets as outcomes, which are cells with probabilities, and a basis of functions of them.

An outcome is one of A cells, with probabilities that the prediction states.  For labels the cells
are the labels.  For numbers and counts they are cells of U = F(y), where F is the cumulative
distribution function of the prediction: U is uniform in [0, 1] if the model is calibrated.  Where F
jumps at y, as for counts, U may be anywhere within the jump, and the target belongs to each cell by
the share of the jump that lies in it.  A quantile forecast says of a target at one of its values
only where the jump may begin and end: then there are R possible shares.

A target that is hidden between two numbers has a U anywhere between their F.  The shares are
then what is expected of those of the target, given what is seen, and their mean is pi still, if
what hides the target is independent of it given the prediction.

Vectors have no F.  There U is the rank of a statistic of the target, such as its log density, among
the same statistic of targets drawn from the prediction, since all ranks are equally probable.  Each
of T statistics makes a set of outcomes by itself.

In all cases the shares s(y) of the cells have E s(Y) = pi for Y from the prediction, where pi are
the probabilities of the cells, and s(y) is a mixture of the R possible shares.  This is all that a
bet needs (`_bets`).

**A basis of errors** has products of functions of the prediction and of the outcome.  An error of a
model, a function w(p, y) with E w(p, Z) = 0 for Z from p, is sought as

    w(p, y) = sum_jk theta_jk phi_j(p) psi_k(p, y).

phi_j are eigenfunctions of the kernel k_P on predictions: with landmarks l_a, weights v_a, and
D = diag(v / L),

    D^1/2 K D^1/2 = U diag(lambda) U^T,    phi_j(p) = lambda_j^-1 sum_a k_P(p, l_a) D_a^1/2 U_aj,

so that sum_a D_a phi_i(l_a) phi_j(l_a) = 1{i = j} (Nyström's method).  psi_k are linear functions
of features of the outcome, centred, with the mean covariance 1{k = l} under the predictions; mu_k
are the variances of the features in their directions.  v_a is the mean variance of the psi_k at
landmark a.  Then all products have the variance 1, and are uncorrelated where the variances of
psi_k factorise, while the kernel k_P(p, q) <f(y), f(z)> has the eigenvalues lambda_j mu_k: they say
how large an error is expected in each direction.

Landmarks, kernels and features are fixed before the first target.  That k_P fits the predictions
matters for the power of a monitor, and not for its guarantee.
"""

import functools
from collections.abc import Callable
from statistics import NormalDist

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._base.struct import PyTree, as_pytree, batch_of_one, struct
from calibjax._data.capabilities import KnownLevels
from calibjax._data.distribution import Distribution, Labels
from calibjax._data.interval_censored import unit_interval
from calibjax._numbers.arithmetic import dot, eigh_of_kernel, fast_where
from calibjax.expectations.default_features import (
    is_top_label,
    log_probability_of,
    squared_deviation,
    standardised,
)
from calibjax.expectations.defaults import has_log_prob
from calibjax.kernels.base import KernelLike, pairwise

# Edges of the cells of U, as quantiles of the normal distribution.  The last cell has the
# probability 3e-5, which float32 still resolves near U = 1; near U = 0 it resolves much less.
_EDGES = (0.3, 0.65, 1.0, 1.4, 1.85, 2.4, 3.0, 4.0)
_LOW_EDGES = (-6.0, -5.0)
# Widths of features of cells on the same scale.  Wide ones see locations and spreads.
_WIDTHS = 4.0, 1.0
# The number of draws among which a vector has a rank, and of its coordinates that are ranked.
_DRAWS, _COORDINATES = 63, 3
# The least log probability of a label as a feature.
_LEAST_LOG_PROB = -20.0


@struct
class Outcomes:
    """What n targets are.

    Args:
        shares: how much each target may belong to each cell, ``[n, T, R, A]``, with sums 1 over
            cells; NaN if the prediction gives the target no cell.
        probabilities: the probabilities of the cells, ``[n, A]``, or ``[1, A]`` if all rows have
            the same ones.
        features: features of the cells, one table ``[n, A, M]`` or ``[1, A, M]`` for each kind.
    """

    shares: jax.Array
    probabilities: jax.Array
    features: list[jax.Array]


def outcomes_of(key: jax.Array, predictions: Distribution, targets: PyTree) -> Outcomes:
    """The outcomes of n targets, an array or `IntervalCensored`; only vectors use the key."""
    if isinstance(predictions, Labels):
        return _labels(predictions.label_probabilities(), predictions, targets)
    if isinstance(predictions, KnownLevels):
        low, high = predictions.pit_intervals(targets)
        return _cells(low[:, None], high[:, None])
    if predictions.is_ordered:
        interval = unit_interval(predictions, targets)
        return _cells(interval.low[:, None, None], interval.high[:, None, None])
    return _cells(*_ranks(key, predictions, targets))


def _labels(probabilities: jax.Array, predictions: Distribution, targets: jax.Array) -> Outcomes:
    """Labels, with the features e_y, whether y is the most likely label, and log p(y)."""
    m, dtype = probabilities.shape[1], probabilities.dtype
    labels = jnp.arange(m, dtype=jnp.int32)

    def table(feature: Callable[..., jax.Array]) -> jax.Array:
        values = jax.vmap(lambda p: jax.vmap(feature, (None, 0))(p, labels))(predictions)
        return values.astype(dtype)[:, :, None]

    log_probability = jnp.maximum(table(log_probability_of), _LEAST_LOG_PROB)
    indicators = jnp.eye(m, dtype=dtype)[None]
    shares = jax.nn.one_hot(targets, m, dtype=dtype)[:, None, None]
    probabilities = probabilities / jnp.sum(probabilities, axis=1, keepdims=True)
    return Outcomes(shares, probabilities, [indicators, table(is_top_label), log_probability])


def _cells(low: jax.Array, high: jax.Array) -> Outcomes:
    """The outcomes of values of U anywhere between low and high, ``[n, T, R]``."""
    dtype = low.dtype
    edges = jnp.asarray(_cell_edges(), dtype)
    n_cells = edges.size - 1
    width = (high - low)[..., None]
    left, right = low[..., None], high[..., None]
    starts, ends = edges[None, None, None, :-1], edges[None, None, None, 1:]
    overlap = jnp.minimum(right, ends) - jnp.maximum(left, starts)
    of_jump = jnp.maximum(overlap, 0.0) / jnp.where(width > 0, width, 1.0)
    cell = jnp.clip(jnp.searchsorted(edges, high) - 1, 0, n_cells - 1)
    shares = jnp.where(width > 0, of_jump, jax.nn.one_hot(cell, n_cells, dtype=dtype))
    return Outcomes(
        # A search would put NaN into a cell.
        jnp.where(jnp.isnan(width), jnp.nan, shares),
        # The widths of the cells, from rounded edges as the shares are.
        jnp.diff(edges)[None],
        [jnp.asarray(_cell_features(), dtype)[None]],
    )


def _cell_edges() -> np.ndarray:
    """The edges of the cells of U, from 0 to 1, ``[A + 1]``."""
    inner = (*_LOW_EDGES, *(-z for z in reversed(_EDGES)), 0.0, *_EDGES)
    return np.array([0.0, *map(NormalDist().cdf, inner), 1.0])


def _cell_features() -> np.ndarray:
    """Bumps of several widths around the middle of each cell, ``[A, M]``."""
    edges = _cell_edges()
    middle = np.array([NormalDist().inv_cdf(u) for u in (edges[1:] + edges[:-1]) / 2])
    differences = middle[:, None] - middle[None, :]
    return np.concatenate([np.exp(-((differences / width) ** 2) / 2) for width in _WIDTHS], axis=1)


def _ranks(
    key: jax.Array, predictions: Distribution, targets: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Where statistics of a target lie among those of draws, as intervals of U, ``[n, T, 1]``."""
    density = log_probability_of if has_log_prob(predictions) else squared_deviation

    def statistics(p: Distribution, y: jax.Array) -> jax.Array:
        return jnp.concatenate([density(p, y)[None], standardised(p, y)[:_COORDINATES]])

    def interval(row: jax.Array, p: Distribution, y: jax.Array) -> tuple[jax.Array, jax.Array]:
        draws = batch_of_one(p).sample(jax.random.fold_in(key, row), (_DRAWS,))[:, 0]
        # Two programs would round differently, and a draw that is the target would not tie with it.
        values = jax.vmap(statistics, (None, 0))(p, jnp.concatenate([y[None], draws]))
        value, drawn = values[0], values[1:]
        is_target = jnp.all(draws == y[None], axis=tuple(range(1, draws.ndim)))
        drawn = jnp.where(is_target[:, None], value[None], drawn)
        n_below = jnp.sum(drawn < value[None], axis=0, dtype=value.dtype)
        n_up_to = jnp.sum(drawn <= value[None], axis=0, dtype=value.dtype)
        low, high = n_below / (_DRAWS + 1), (n_up_to + 1) / (_DRAWS + 1)
        return jnp.where(jnp.isnan(value), jnp.nan, low)[:, None], high[:, None]

    return jax.vmap(interval)(jnp.arange(targets.shape[0], dtype=jnp.int32), predictions, targets)


# The number of functions of an outcome, the smallest eigenvalue that counts, in units of the
# largest one, and the largest function of an outcome, in standard deviations.
_OUTCOME_FUNCTIONS, _LEAST_EIGENVALUE, _LARGEST = 10, 1e-5, 6.0


@struct
class Basis:
    """The functions of one kind of features.

    Args:
        of_kernels: the coefficients of phi_j in the kernels at the landmarks, ``[L, J]``.
        of_features: the coefficients of psi_k in the features, ``[M, K]``.
        prior: lambda_j mu_k, with the sum 1, ``[J, K]``; 0 where a function is 0.
    """

    of_kernels: jax.Array
    of_features: jax.Array
    prior: jax.Array

    def outcome_functions(self, features: jax.Array, probabilities: jax.Array) -> jax.Array:
        """psi_k at all cells, ``[n, A, K]``, or ``[1, A, K]`` if all rows are the same."""
        centred = _centred(_combined(features, self.of_features), probabilities)
        return _centred(jnp.clip(centred, -_LARGEST, _LARGEST), probabilities)


def kernel_at(
    kernels: list[KernelLike], predictions: Distribution, landmarks: Distribution
) -> jax.Array:
    """The mean of kernels and of the constant 1, ``[n, L]``.

    The constant sees an error that all predictions share, also far from the landmarks.
    """
    values = [pairwise(as_pytree(kernel), predictions, landmarks) for kernel in kernels]
    return (1.0 + functools.reduce(jnp.add, values)) / (1 + len(values))


def make_basis(
    values: jax.Array, features: jax.Array, probabilities: jax.Array, n_functions: int
) -> Basis:
    """The basis of one kind, from values of the kernel and features at landmarks.

    Args:
        values: the kernel at all pairs of landmarks, ``[L, L]``.
        features: the features of their outcomes, ``[L, A, M]`` or ``[1, A, M]``.
        probabilities: the probabilities of their outcomes, ``[L, A]`` or ``[1, A]``.
        n_functions: J, the number of functions of a prediction.
    """
    n = values.shape[0]
    probabilities = jnp.broadcast_to(probabilities, (n, probabilities.shape[1]))
    mu, of_features = _whitening(_mean_covariance(features, probabilities), _OUTCOME_FUNCTIONS)
    psi = _centred(_combined(features, of_features), probabilities)
    n_psi = jnp.maximum(jnp.sum(mu > 0, dtype=mu.dtype), 1.0)
    root = jnp.sqrt(jnp.einsum("na,nak->n", probabilities, jnp.square(psi)) / n_psi / n)
    eigenvalues, vectors = _whitening(root[:, None] * values * root[None, :], n_functions)
    inverse_roots = fast_where(eigenvalues > 0, jax.lax.rsqrt(eigenvalues), 0.0)
    prior = eigenvalues[:, None] * mu[None, :]
    total = jnp.sum(prior)
    return Basis(
        # `_whitening` divides by the root of an eigenvalue, and phi by the eigenvalue itself.
        of_kernels=root[:, None] * vectors * inverse_roots[None, :],
        of_features=of_features,
        prior=prior / fast_where(total > 0, total, 1.0),
    )


def _combined(features: jax.Array, coefficients: jax.Array) -> jax.Array:
    """Linear functions of features ``[n, A, M]``, ``[n, A, K]``."""
    return jnp.einsum("nam,mk->nak", features, coefficients, precision="highest")


def _mean_covariance(features: jax.Array, probabilities: jax.Array) -> jax.Array:
    """The mean over rows of the covariance of the features, ``[M, M]``."""
    n = probabilities.shape[0]
    if features.shape[0] == 1:
        # Many classes have many features: nothing of the size n A M is made.
        table = features[0]
        second_moments = dot(table.T * jnp.mean(probabilities, axis=0)[None, :], table)
        means = dot(probabilities, table)
    else:
        weighted = probabilities[:, :, None] * features
        second_moments = jnp.einsum("nam,nal->ml", weighted, features, precision="highest") / n
        means = jnp.sum(weighted, axis=1)
    return second_moments - dot(means.T, means) / n


def _centred(values: jax.Array, probabilities: jax.Array) -> jax.Array:
    """Values at cells ``[n, A, K]`` minus their means under the predictions."""
    weights = fast_where(probabilities > 0, probabilities, 0.0)
    return values - jnp.sum(weights[:, :, None] * values, axis=1, keepdims=True)


def _whitening(matrix: jax.Array, size: int) -> tuple[jax.Array, jax.Array]:
    """The largest eigenvalues of a matrix and its eigenvectors over their roots.

    Both are 0 for eigenvalues that are nearly 0.
    """
    in_ascending_order = eigh_of_kernel(matrix)
    values, vectors = (jnp.flip(x, axis=-1)[..., :size] for x in in_ascending_order)
    counts = values > _LEAST_EIGENVALUE * jnp.maximum(values[0], jnp.finfo(values.dtype).tiny)
    roots = jnp.sqrt(fast_where(counts, values, 1.0))
    return fast_where(counts, values, 0.0), fast_where(counts[None], vectors / roots[None], 0.0)
