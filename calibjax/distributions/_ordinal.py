"""Predictions over classes that have an order."""

from calibjax.distributions._categorical import Categorical


class Ordinal(Categorical):
    """Probabilities of ordered classes, such as grades: P(Y = c) = probs[c] for c = 0, …, m-1.

    Everything is as for `Categorical`, but where the order counts: in the cdf, the PIT, and the
    CRPS, which is the ranked probability score

    .. math::
        \\sum_{c = 0}^{m - 2} (P(Y \\le c) - 1\\{y \\le c\\})^2.

    `evaluate` shows both beside accuracy and reliability.  `default_kernel` is the one of numbers,
    which judges U = F(y).  `calibration_test` has the kernels of classes, which see that one class
    in the middle is too rare, and one of U, which sees whether targets are higher than predicted:
    of 150 rows with 5 classes whose logits were shifted by 0.5 it rejected 74 %, and as Categorical
    predictions 28 %.  Other kernels do not know the order, unless their target kernel does:
    LaplacianKernel(1.0) counts classes 4 and 5 as more alike than 1 and 5.

    Args:
        probs: array ``[n, m]``, classes in their order; rows are nonnegative and sum to one (within
            1e-3).
        ragged: whether rows have fewer classes or more, as for `Categorical`.
        normalize: divide each nonnegative row by its sum, whatever this is.

    Targets are integer labels ``0 … m-1`` of shape ``[n]``.

    See also:
        `Categorical` for classes without an order, `Binomial` for counts.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Ordinal(jnp.array([[0.5, 0.25, 0.25], [0.5, 0.25, 0.25]]))
        >>> cj.crps(predictions, jnp.array([1, 2])).tolist()
        [0.3125, 0.8125]
        >>> predictions.quantile(0.6).tolist(), predictions.survival(jnp.array([0, 1])).tolist()
        ([1, 1], [0.5, 0.25])

    Reference: Epstein, A scoring system for probability forecasts of ranked categories, Journal of
    Applied Meteorology 1969.
    """

    is_ordered = True
