"""What default kernels look at: numbers of a prediction, and of its target.

Coordinates of predictions that no unit changes: normal scores of their ranks among the rows.

Forecasts of 5 and of 5000 admissions differ by a thousand times as much as those of 1 and of 5, so
that in a distance in units of the targets all small ones are alike.  Among n rows the normal score
of a location is nearly the normal quantile at its rank over n: it is the same for locations in
other units, and for their logs.  With the scores a of the location and b of the logarithm of the
spread, whose correlation is c, the coordinates of a prediction are

    a    and    (b - c a) / sqrt(1 - c^2),

so that the second one tells forecasts of one location by their spread.  Both have a deviation of
about 1.  A prediction of vectors has these two for each coordinate of the vectors.  They are
functions of predictions alone: tests with kernels of them are as exact as with any other.
"""

import functools
from collections.abc import Sequence
from statistics import NormalDist

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import ndtri
from jax.typing import ArrayLike

from calibjax._base.sharding import Axis, all_of, on_devices
from calibjax._base.struct import batch_of_one, rows_of, static, struct
from calibjax._data.data import fill_masked
from calibjax._data.distribution import Distribution, Labels
from calibjax._numbers.arithmetic import dot, fast_where
from calibjax.kernels import DistanceKernel, EmbeddingDistance

# The number of frequencies v, of numbers and of vectors.
_FREQUENCIES, _VECTOR_FREQUENCIES = 8, 32
# No user is likely to choose this seed, and no draw of it is one of the targets: kernels must not
# depend on them.
_DIRECTIONS = 0x5CA1E
# The log probability of an impossible label is -infinity.
_LEAST_LOG_PROB = -1000.0
_LARGEST_DEVIATION = 1e6


def confidence_of(p: Labels) -> jax.Array:
    """The probability of the most likely label."""
    return jnp.max(p.label_probabilities())


def is_top_label(p: Labels, y: jax.Array) -> jax.Array:
    """Whether y is the most likely label, of several the first one."""
    return y == jnp.argmax(p.label_probabilities()).astype(y.dtype)


def log_probability_of(p: Distribution, y: jax.Array) -> jax.Array:
    """log p(y), at least -1000."""
    return jnp.maximum(p.log_prob(y), _LEAST_LOG_PROB)


def squared_deviation(p: Distribution, y: jax.Array) -> jax.Array:
    """|u|^2 for the standardised target u."""
    return jnp.sum(jnp.square(standardised(p, y)))


def location_and_spread(p: Distribution) -> jax.Array:
    """The locations and spreads of all coordinates, a vector."""
    p = batch_of_one(p)
    return jnp.concatenate([jnp.ravel(p.location()), jnp.ravel(p.spread())])


def standardised(p: Distribution, y: jax.Array) -> jax.Array:
    """u = (y - location) / spread of each coordinate, a vector; where that is 0, y - location.

    No |u| is larger than a million, so that sums of fourth powers are finite.
    """
    p = batch_of_one(p)
    location, spread = jnp.ravel(p.location()), jnp.ravel(p.spread())
    u = (jnp.ravel(y).astype(location.dtype) - location) / jnp.where(spread > 0, spread, 1.0)
    return jnp.clip(u, -_LARGEST_DEVIATION, _LARGEST_DEVIATION)


@struct
class StandardisedFourierFeatures:
    """cos(<v, u>) and sin(<v, u>) of the standardised target u, for some frequencies v.

    They are features of a Gaussian kernel on standardised targets: |v| times the lengthscale takes
    the even quantiles of its half-normal distribution, and the directions are fixed.

    Args:
        lengthscale: a number, in standard deviations of the predictions.
    """

    lengthscale: float = static()

    def __call__(self, p: Distribution, y: jax.Array) -> jax.Array:
        u = standardised(p, y)
        size = _FREQUENCIES if u.size == 1 else _VECTOR_FREQUENCIES
        length = ndtri((1 + (jnp.arange(size, dtype=u.dtype) + 0.5) / size) / 2)
        direction = jax.random.normal(jax.random.key(_DIRECTIONS), (size, u.size), u.dtype)
        direction = direction / jnp.linalg.norm(direction, axis=1, keepdims=True)
        angles = dot(length[:, None] / self.lengthscale * direction, u)
        return jnp.concatenate([jnp.cos(angles), jnp.sin(angles)])


# Number of even quantiles of the rows between which a score is linear.
_N_KNOTS = 64
_LEVELS = (np.arange(_N_KNOTS) + 0.5) / _N_KNOTS
_SCORES = tuple(map(NormalDist().inv_cdf, _LEVELS))
# Spreads that differ by much less than this share are equal, and so are those of one location.
_NEGLIGIBLE = 1e-3


#: Even quantiles of locations and of log spreads, c, and the share, of `RankScores`.
Ranks = tuple[jax.Array, jax.Array, jax.Array, jax.Array]
#: The predictions of one model, and its mask or None.
Masked = tuple[Distribution, ArrayLike | None]


@struct
class RankScores:
    """The coordinates of one prediction, a vector of the one or two numbers that count.

    For vectors all arrays have a leading axis of their d coordinates, and one or two numbers of
    each count.

    Args:
        locations: even quantiles of the locations of all rows, ``[64]``.
        log_spreads: those of the logarithms of their spreads, ``[64]``.
        correlation: c.
        share: 1 if spreads differ, and nearly 0 if they are nearly equal.
        weights: what the coordinates of location and spread are multiplied with; 0 leaves one out.
    """

    locations: jax.Array
    log_spreads: jax.Array
    correlation: jax.Array
    share: jax.Array
    weights: tuple[float, float] = static()

    def __call__(self, p: Distribution) -> jax.Array:
        (location,), (log_spread,) = location_and_log_spread(batch_of_one(p))
        known = self.locations, self.log_spreads, self.correlation, self.share
        of_one = _both_scores if location.ndim == 0 else jax.vmap(_both_scores)
        both = of_one(known, location, log_spread)
        return jnp.stack([w * x for w, x in zip(self.weights, both, strict=True) if w > 0]).ravel()


def rank_score_kernels(
    rows: Sequence[Masked], *kinds: tuple[tuple[float, float], float]
) -> list[DistanceKernel]:
    """exp(-|x - x'|^2 / l^2) of the coordinates x, for each (weights of the coordinates, l).

    `rows` are the predictions of one or several models, each with its mask or None.
    """
    known = _ranks(None, rows)
    return [
        DistanceKernel(EmbeddingDistance(RankScores(*known, weights)), lengthscale, 2.0)
        for weights, lengthscale in kinds
    ]


def location_and_log_spread(predictions: Distribution) -> tuple[jax.Array, jax.Array]:
    """Both ``[n]``; equal samples have the spread 0."""
    spread = predictions.spread()
    return predictions.location(), jnp.log(jnp.maximum(spread, jnp.finfo(spread.dtype).tiny))


@functools.partial(on_devices, light=True)
def _ranks(axis: Axis, _: None, rows: Sequence[tuple[Distribution, jax.Array | None]]) -> Ranks:
    """What RankScores know of all rows."""
    columns, kept = [], []
    for predictions, where in rows:
        if where is not None:
            predictions = fill_masked(predictions, where, axis)
        both = jnp.stack(location_and_log_spread(predictions))
        values = jax.vmap(lambda x: all_of(x, axis).reshape(-1, *x.shape[1:]))(both)
        columns.append(values)
        mask = jnp.ones(both.shape[1], bool) if where is None else where
        kept.append(all_of(mask, axis).ravel())
    values, mask = lax.stop_gradient(jnp.concatenate(columns, axis=1)), jnp.concatenate(kept)
    if values.ndim == 2:
        return _ranks_of_numbers(values, mask)
    return jax.vmap(_ranks_of_numbers, (2, None))(values, mask)


def _ranks_of_numbers(values: jax.Array, mask: jax.Array) -> Ranks:
    """The same from locations and log spreads ``[2, n]`` of rows of which some are kept."""
    n = jnp.sum(mask, dtype=jnp.int32)
    ordered = jnp.sort(jnp.where(mask[None], values, jnp.inf), axis=1)
    locations, log_spreads = _even_quantiles(ordered, n)
    scores = jax.vmap(jax.vmap(_score, (None, 0)))(jnp.stack([locations, log_spreads]), values)
    a, b = jnp.where(mask[None], scores, 0.0)
    squares = jnp.sum(jnp.square(a)) * jnp.sum(jnp.square(b))
    correlation = jnp.sum(a * b) / jnp.sqrt(jnp.where(squares > 0, squares, 1.0))
    width = log_spreads[-1] - log_spreads[0]
    return locations, log_spreads, correlation, width / (width + _NEGLIGIBLE)


def _even_quantiles(ordered: jax.Array, n: jax.Array) -> jax.Array:
    """The knots ``[2, 64]`` of the first n of the sorted numbers ``[2, N]``.

    With fewer rows than knots they lie between the rows, so that different rows make different
    knots: a score would jump at two equal knots.
    """
    is_few = n < _N_KNOTS
    steps = jnp.where(is_few, jnp.maximum(n - 1, 0), n)
    index = jnp.asarray(_LEVELS, jnp.float32) * steps.astype(jnp.float32)
    below = jnp.floor(index)
    share = (index - below).astype(ordered.dtype)
    below = below.astype(jnp.int32)
    above = jnp.where(is_few, jnp.minimum(below + 1, steps), below)
    low, high = ordered[:, below], ordered[:, above]
    return jnp.where(low < high, low + share[None] * (high - low), low)


@jax.jit  # traced once for all kernels
def _both_scores(
    known: Ranks, location: jax.Array, log_spread: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Both coordinates of a prediction of numbers."""
    locations, log_spreads, correlation, share = known
    knots, numbers = jnp.stack([locations, log_spreads]), jnp.stack([location, log_spread])
    a, b = jax.vmap(_score)(knots, numbers)
    # What b says beside a: nothing where the one says all about the other.
    rest = 1 - jnp.square(correlation) + _NEGLIGIBLE
    return a, share * ((b - correlation * a) / jnp.sqrt(rest))


def _score(knots: jax.Array, x: jax.Array) -> jax.Array:
    """The normal score of a number, linear between the knots, and constant beyond them."""
    scores = jnp.asarray(np.array(_SCORES, knots.dtype))
    # All 64 knots are compared: a bisection is a loop, which takes longer to compile and to run.
    i = jnp.sum(knots <= x, dtype=jnp.int32)
    i = jnp.minimum(jnp.maximum(i, 1), _N_KNOTS - 1)
    (low, high), (score, next_score) = ((rows_of(x, i - 1), rows_of(x, i)) for x in (knots, scores))
    step = high - low
    share = (x - low) / fast_where(step > 0, step, 1.0)
    share = fast_where(step > 0, jnp.minimum(jnp.maximum(share, 0.0), 1.0), 0.5)
    return score + share * (next_score - score)
