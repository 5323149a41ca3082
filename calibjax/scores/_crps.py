"""The continuous ranked probability score, sum_k (F(k) - 1{y <= k})^2 for labels and counts."""

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from calibjax._distribution import Distribution
from calibjax._rows import Data, first_rows, padded
from calibjax._sharding import as_varying
from calibjax.scores._quadrature import crps_of_numbers
from calibjax.scores._rows import check_numbers, score_rows


def crps(predictions: Distribution, targets: ArrayLike) -> jax.Array:
    """The continuous ranked probability score of each row, in units of the targets.

    For independent Y, Y' from the prediction with the cdf F, and the target y, it is

    .. math::
        E|Y - y| - E|Y - Y'| / 2 = \\int (F(x) - 1\\{y \\le x\\})^2 dx.

    Smaller is better.  It is |Y - y| for a prediction that is certain, and on average it is
    smallest for the law of the targets, given the features.  For labels, which are ordered as
    numbers, it is the ranked probability score, and the Brier score (p - y)^2 for binary ones.

    There are formulas, exact up to rounding, for Normal, Laplace, StudentT, LogNormal, Gamma, Beta,
    Quantiles, SurvivalCurve (up to its last time), Poisson, Binomial, mixtures of Normal, Laplace
    or SurvivalCurve, and samples; for labels and other counts it is a sum over all of them.  For
    samples it is the score of their own distribution, in O(S log S); with ``split=True`` it is the
    fair score, which on average over independent draws is the score of the law that they come from.

    All other predictions of numbers are integrated by a double exponential rule: 123 values of the
    cdf in float32, 315 in float64.  If the density is smooth inside its support, the relative error
    is below 2e-6 in float32 and 1e-9 in float64, even with tails as heavy as Cauchy's; a corner
    of the density costs some digits.  It is NaN for tails heavier than
    |x|^(-3/4), for which the integral nearly diverges.

    Args:
        predictions: n >= 1 predictions of labels, counts or real numbers.
        targets: the observed targets, ``[n]``.

    Returns:
        An array ``[n]``, differentiable in real targets, and in all parameters in which the cdf has
        a derivative.  Inside jit an invalid row is NaN; counts are NaN if they
        may exceed max_count.

    Raises:
        TypeError: predictions of vectors, or without a `cdf`; another wrong type.
        ValueError: an argument of the wrong shape or, where it is concrete, value; counts without
            max_count.

    See also:
        `log_score`, `pit`.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Normal(jnp.zeros(3), jnp.array([0.5, 1.0, 2.0]))
        >>> cj.crps(predictions, jnp.ones(3)).round(3).tolist()
        [0.726, 0.602, 0.663]

    Reference: Gneiting and Raftery, Strictly proper scoring rules, prediction, and estimation,
    Journal of the American Statistical Association 2007, Section 4.2; Jordan, Krüger and Lerch,
    Evaluating probabilistic forecasts with scoringRules, Journal of Statistical Software 2019, for
    the formulas; Ferro, Fair scores for ensemble forecasts, Quarterly Journal of the Royal
    Meteorological Society 2014.
    """
    data = check_numbers(predictions, targets)
    return first_rows(crps_of_data(padded(data)), data.n)


def crps_of_data(data: Data) -> jax.Array:
    """`crps` of checked data; masked rows hold any number or NaN."""
    return score_rows(None, (data,), _crps)


def _crps(predictions: Distribution, targets: jax.Array) -> jax.Array:
    if predictions.has_labels:
        return crps_of_labels(predictions.label_probabilities(), targets)
    closed_form = predictions.crps_closed_form(targets)
    if closed_form is not None:
        return closed_form
    of_kind = crps_of_numbers if predictions.target_kind == "real" else crps_of_counts
    return of_kind(predictions, targets)


def crps_of_labels(probabilities: jax.Array, targets: jax.Array) -> jax.Array:
    """The score from the probabilities ``[n, m]`` of all labels, ``[n]``."""
    total = jnp.sum(probabilities, axis=1, keepdims=True)
    below = jnp.cumsum(probabilities, axis=1) / total
    # Sums from the other end keep the digits of a small 1 - F.
    above = jnp.cumsum(probabilities[:, :0:-1], axis=1)[:, ::-1] / total
    labels = jnp.arange(probabilities.shape[1] - 1, dtype=jnp.int32)
    tail = jnp.where(targets[:, None] <= labels[None, :], above, below[:, :-1])
    return jnp.sum(jnp.square(tail), axis=1)


def crps_of_counts(predictions: Distribution, targets: jax.Array) -> jax.Array:
    """The score from the probabilities of the counts 0 … max_count, ``[n]``, in memory of O(n).

    It is NaN unless larger counts are improbable.
    """
    if predictions.max_count is None:
        raise ValueError(
            f"max_count must be given for the CRPS of {type(predictions).__name__} predictions of "
            "counts, which is a sum over 0 … max_count."
        )

    @jax.checkpoint
    def step(sums, count):
        cdf, score = sums
        cdf = cdf + jax.vmap(lambda p: p.probability(count))(predictions)
        return (cdf, score + jnp.square(cdf - (targets <= count).astype(cdf.dtype))), None

    dtype = jnp.result_type(jax.tree.leaves(predictions)[0])
    start = as_varying((jnp.zeros(targets.shape, dtype),) * 2, (predictions, targets))
    counts = jnp.arange(predictions.max_count + 1, dtype=targets.dtype)
    (_, score), _ = lax.scan(step, start, counts)
    # Between max_count and a larger target the cdf is 1.
    beyond = jnp.maximum(targets - predictions.max_count - 1, 0).astype(dtype)
    # False where the cdf is NaN, because too many counts are above max_count.
    is_complete = (
        predictions.cdf(jnp.full_like(targets, counts.size)) >= 1 - 8 * jnp.finfo(dtype).eps
    )
    return jnp.where(is_complete, score + beyond, jnp.nan)
