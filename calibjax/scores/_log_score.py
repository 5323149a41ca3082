"""The log score."""

import jax
import jax.numpy as jnp

from calibjax._base.struct import PyTree
from calibjax._data import (
    Between,
    Data,
    Distribution,
    Targets,
    as_data,
    known_point,
    padded,
    unit_interval,
)
from calibjax.scores._score_rows import score_rows, without_masked


def log_score(predictions: Distribution | Data, targets: Targets | None = None) -> jax.Array:
    """The log score of each row, -log p_i(y_i), in nats: smaller is better.

    p_i is the density of prediction i, or the probabilities of labels and counts.  The mean over
    the rows is the negative log likelihood.  Of a target that is only known to be `Between` two
    numbers it is -log(F_i(high) - F_i(low)), where F_i is the cdf, and from the upper tails where
    these are smaller.  In float32 each tail has some 6 digits, down to 1e-38: a probability below
    that has an infinite score, and of a narrow interval fewer digits are left.

    Args:
        predictions, targets: as in `Data`, or one `Data`: n >= 1 predictions of a family that has
            `log_prob`.

    Returns:
        An array ``[n]``; infinite where the target was impossible.  A masked row is NaN, and
        inside jit an invalid one.

    Raises:
        TypeError: predictions without `log_prob`, such as `Empirical`, or a `Univariate` family of
            your own that defines only `quantile`; another wrong type.
        ValueError: an argument of the wrong shape or, where it is concrete, value.

    See also:
        `crps`, `pit`.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> cj.log_score(cj.Bernoulli(jnp.array([0.5, 0.9])), jnp.array([1, 0])).round(3).tolist()
        [0.693, 2.303]

    Reference: Good, Rational decisions, Journal of the Royal Statistical Society B 1952.
    """
    data = as_data(predictions, targets, at_least=1, intervals=True)
    return without_masked(score_rows(None, (padded(data),), _log_score), data)


def _log_score(predictions: Distribution, targets: PyTree) -> jax.Array:
    if not isinstance(targets, Between):
        return -predictions.log_prob(targets)
    exact = predictions.log_prob(known_point(predictions, targets))
    width = unit_interval(predictions, targets).width()
    # The derivative of a log at 0 would be NaN.
    is_possible = width > 0
    hidden = jnp.where(is_possible, jnp.log(jnp.where(is_possible, width, 1.0)), -jnp.inf)
    return -jnp.where(targets.is_exact(), exact, hidden)
