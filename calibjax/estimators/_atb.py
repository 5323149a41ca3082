"""The averaged two-bin calibration error."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calibjax._compile import quick_jit
from calibjax._distribution import Distribution
from calibjax._rows import Data, padded
from calibjax._sharding import gathered
from calibjax.estimators._cumulative import cumulative_residuals
from calibjax.estimators._top_label import check_binary


def atb(
    predictions: Distribution,
    targets: ArrayLike,
    *,
    where: ArrayLike | None = None,
    weights: ArrayLike | None = None,
) -> jax.Array:
    """The averaged two-bin calibration error, which no false probability makes smaller.

    .. math::
        \\mathrm{ATB} = \\int_0^1 \\frac{1}{n^2} \\Big(
        \\Big(\\sum_{i: p_i < t} (p_i - y_i)\\Big)^2
        + \\Big(\\sum_{i: p_i \\ge t} (p_i - y_i)\\Big)^2 \\Big) dt

    The two bins are those below and above t, and t is any number between 0 and 1, so that there is
    nothing to choose.  It is *truthful*: whatever the probabilities of independent rows are, its
    expectation is least if they are predicted, and as small only where forecasts are calibrated,
    such as the mean of all probabilities for each row.  The ECE is not: if the probabilities of two
    rows are 0.4 and 0.6, it is smaller on average if both are predicted to be 0.5.

    With the true probabilities the expectation is sum_i p_i (1 - p_i) / n^2, since at every t the
    squares are two variances: compare with it, or models on the same rows.  Its root is in units of
    probability.

    Args:
        predictions: n >= 2 Bernoulli predictions, such as `top_label` or `one_vs_rest` make.
        targets: booleans or integers 0 and 1, ``[n]``.
        where: boolean mask ``[n]``; masked rows may hold anything.
        weights: how much each row counts, nonnegative numbers ``[n]`` that are known before the
            targets; sums of w (p - y) / sum w.

    Returns:
        A scalar, in squared probability, continuous and piecewise differentiable in the
        probabilities.  Inside jit it is NaN if a kept row is invalid.  O(n log n).

    Raises:
        TypeError, ValueError: an argument of the wrong type, shape or, where it is concrete, value.

    See also:
        `consistency_test` for an exact p-value, `ecce` for the largest sum, `skce`, whose unbiased
        estimate is 0 on average for a calibrated model.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Bernoulli(jnp.array([0.25, 0.75]))
        >>> float(cj.atb(predictions, jnp.array([0, 1])))  # half of ((1/4)^2 + (-1/4)^2) / 2^2
        0.015625

    Reference: Hartline, Hu and Wu, A perfectly truthful calibration measure, Conference on Learning
    Theory 2026.
    """
    return _atb(*gathered((padded(check_binary(predictions, targets, where, weights)),)))


@quick_jit
def _atb(data: Data) -> jax.Array:
    found = cumulative_residuals(data)
    # Between two neighbours t parts the rows in the same way; equal rows have no room between.
    gaps = jnp.diff(found.probs, prepend=0.0, append=1.0)
    below = jnp.concatenate([jnp.zeros(1, found.sums.dtype), found.sums])
    above = below[-1] - below
    return jnp.sum(gaps * (jnp.square(below) + jnp.square(above)))
