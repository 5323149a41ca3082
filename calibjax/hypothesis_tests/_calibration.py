"""The test with default choices, for a first look at a model."""

import jax
from jax.typing import ArrayLike

from calibjax._between import Targets
from calibjax._check import check_integer, check_key
from calibjax._distribution import Distribution
from calibjax._rows import Data, Dependence, check_data, padded, with_dependence
from calibjax.hypothesis_tests._aggregated import aggregated_skce_test_of_data
from calibjax.hypothesis_tests._result import CalibrationTestResult


def calibration_test(
    key: jax.Array,
    predictions: Distribution,
    targets: Targets | None = None,
    *,
    where: ArrayLike | None = None,
    n_resamples: int = 999,
    weights: ArrayLike | None = None,
    clusters: ArrayLike | None = None,
    times: ArrayLike | None = None,
    horizon: float | None = None,
) -> CalibrationTestResult:
    """Is this model calibrated?  A small p-value says that it is not.

    It is `aggregated_skce_test` with `default_kernels`: targets drawn from the predictions show
    what chance does, and kernels of several kinds and scales look for errors.  Its level is exact
    for every family, every number of rows, and however rare events are: if the model is calibrated,
    and rows are independent given the predictions, the p-value is at most a with probability at
    most a.  Rows that depend on each other need `clusters` or `times`: calibrated forecasts for
    four steps ahead, issued at every step, are rejected in more than a third of all cases without.

    O(n n_resamples) time, and memory that does not depend on n_resamples.  Rows on several devices
    stay where they are.

    Args:
        key: a key of `jax.random`, such as ``jax.random.key(0)``.
        predictions: a batch of n >= 2 predictions of one family.
        targets: array ``[n]`` or ``[n, d]``; class labels are ``0 … m-1``.  Of single numbers also
            `Between`, where they are censored or binned.
        where: boolean mask ``[n]``; masked rows may hold anything.
        n_resamples: the number of draws; p is a multiple of 1 / (n_resamples + 1).
        weights: how much each row counts, nonnegative numbers ``[n]``.
        clusters: integers ``[n]``: rows of one cluster may depend on each other in any way.
        times: numbers ``[n]``: rows of one time may depend on each other in any way.
        horizon: a number in units of the times: rows less than it apart may depend on each other.

    Returns:
        CalibrationTestResult, whose `members` say what each kernel finds.

    Raises:
        TypeError, ValueError: as in `aggregated_skce_test`.

    See also:
        `aggregated_skce_test` with kernels of your own, `evaluate` for the whole picture,
        `CalibrationMonitor` for data that keep coming.

    Example:
        >>> import jax, jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Normal(jnp.zeros(500), jnp.full(500, 0.5))
        >>> targets = jax.random.normal(jax.random.key(0), (500,))
        >>> float(cj.calibration_test(jax.random.key(1), predictions, targets).pvalue)
        0.001
    """
    if isinstance(key, Distribution):
        raise TypeError(
            "key must come first, calibration_test(jax.random.key(0), predictions, targets), got "
            f"{type(key).__name__} predictions in its place."
        )
    if targets is None:
        raise TypeError("targets must be an array, got None.")
    check_key(key)
    n_resamples = check_integer("n_resamples", n_resamples, 1)
    data = check_data(predictions, targets, where, weights, intervals=True)
    data = padded(with_dependence(data, Dependence(clusters, times, horizon)))
    return calibration_test_of_data(key, data, n_resamples=n_resamples)


def calibration_test_of_data(
    key: jax.Array, data: Data, *, n_resamples: int
) -> CalibrationTestResult:
    """`calibration_test` of checked data."""
    return aggregated_skce_test_of_data(key, None, data, n_resamples=n_resamples)
